/* world_jobs.c - seeds over processes. Each says which seed it begins, so that the one at
 * which it dies is known. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"
#include "world_run.h"

struct job {
    pid_t pid;
    int fd;        /* -1: it has ended */
    uint64_t next; /* seeds behind `from`: what it runs next */
    bool busy;     /* with that one */
};

struct record { /* smaller than PIPE_BUF: it comes whole or not at all */
    bool begun;
    struct world_result result; /* unless begun */
};

static void run_seed(uint64_t seed, const struct trial_limits *l, struct world_result *r)
{
    world_trial_begin(l->cpu_s);
    world_run(seed, false, l->most);
    *r = (struct world_result){.seed = seed, .hash = the->hash, .failed = the->failed};
    memcpy(r->why, the->why, sizeof r->why);
    for (uint32_t i = 0; i < MET; i++)
        r->met |= (uint64_t)(i < FAULTS ? the->struck[i] != 0 : the->went[i - FAULTS] != 0) << i;
}

static void job_run(const struct world_jobs *w, uint64_t first, int fd)
{
    struct record r;
    for (uint64_t i = first; i < w->seeds; i += w->jobs) {
        memset(&r, 0, sizeof r);
        r.begun = true;
        if (write(fd, &r, sizeof r) != (ssize_t)sizeof r) break;
        r.begun = false;
        run_seed(w->from + i, &w->limits, &r.result);
        if (write(fd, &r, sizeof r) != (ssize_t)sizeof r) break;
    }
    _exit(0);
}

static bool job_start(const struct world_jobs *w, struct job *j)
{
    int fds[2];
    j->fd = -1;
    j->busy = false;
    if (pipe(fds) != 0) return false;
    j->pid = fork();
    if (j->pid == 0) {
        (void)close(fds[0]);
        job_run(w, j->next, fds[1]);
    }
    (void)close(fds[1]);
    if (j->pid > 0)
        j->fd = fds[0];
    else
        (void)close(fds[0]);
    return j->pid > 0;
}

/* It is gone: with its last seed, or in the middle of one, which is then a seed that failed, and
 * the ones behind it are for another. */
static bool job_gone(const struct world_jobs *w, struct job *j, bool *go_on)
{
    struct world_result r = {.seed = w->from + j->next, .failed = true};
    int status = 0;
    (void)close(j->fd);
    j->fd = -1;
    const bool died = waitpid(j->pid, &status, 0) != j->pid || world_trial_why(status, r.why);
    if (!j->busy) return !died;
    if (!died) return false; /* it could not say what came out */
    *go_on = w->ended(w->user, &r);
    j->next += w->jobs;
    return !*go_on || j->next >= w->seeds || job_start(w, j);
}

static bool job_says(const struct world_jobs *w, struct job *j, bool *go_on)
{
    struct record r;
    const ssize_t got = read(j->fd, &r, sizeof r);
    if (got != (ssize_t)sizeof r) return job_gone(w, j, go_on);
    j->busy = r.begun;
    if (r.begun) return true;
    j->next += w->jobs;
    *go_on = w->ended(w->user, &r.result);
    return true;
}

/* False: all of them have ended, or there is an error. */
static bool look(const struct world_jobs *w, struct job *jobs, bool *go_on, bool *good)
{
    struct pollfd fds[JOBS_MAX];
    uint64_t open = 0;
    for (uint64_t j = 0; j < w->jobs; j++) {
        fds[j] = (struct pollfd){.fd = jobs[j].fd, .events = POLLIN};
        open += jobs[j].fd >= 0;
    }
    if (open == 0) return false;
    if (poll(fds, (nfds_t)w->jobs, -1) < 0) return *good = false;
    for (uint64_t j = 0; j < w->jobs && *good && *go_on; j++)
        if (jobs[j].fd >= 0 && fds[j].revents != 0) *good = job_says(w, &jobs[j], go_on);
    return *good && *go_on;
}

bool world_jobs(const struct world_jobs *w)
{
    struct job jobs[JOBS_MAX];
    bool good = true, go_on = true;
    for (uint64_t j = 0; j < w->jobs; j++) {
        jobs[j] = (struct job){.next = j, .fd = -1};
        good = good && job_start(w, &jobs[j]);
    }
    while (good && look(w, jobs, &go_on, &good)) {
    }
    for (uint64_t j = 0; j < w->jobs; j++) {
        if (jobs[j].fd < 0) continue;
        (void)kill(jobs[j].pid, SIGTERM);
        (void)waitpid(jobs[j].pid, NULL, 0);
        (void)close(jobs[j].fd);
    }
    return good;
}
