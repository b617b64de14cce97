/* world_trial.c - one seed in a process of its own, so that one that crashes or never ends is a
 * seed that fails, as any other. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"
#include "world_run.h"

/* A world that waits for ever burns no processor. So long, so that no busy machine is taken for
 * one. */
#define STANDS_S 600u

void world_trial_begin(uint32_t cpu_s)
{
    const struct itimerval burnt = {.it_value = {.tv_sec = (time_t)cpu_s}};
    (void)setitimer(ITIMER_PROF, &burnt, NULL);
    (void)alarm(STANDS_S);
}

bool world_trial_why(int status, char why_out[WHY_BYTES])
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    if (WIFEXITED(status))
        (void)snprintf(why_out, WHY_BYTES, "its process ended with code %d", WEXITSTATUS(status));
    else if (WTERMSIG(status) == SIGPROF)
        (void)snprintf(why_out, WHY_BYTES, "it came to no end (--seed-s)");
    else if (WTERMSIG(status) == SIGALRM)
        (void)snprintf(why_out, WHY_BYTES, "it stood still for %u s", STANDS_S);
    else
        (void)snprintf(why_out, WHY_BYTES, "its process was ended by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    return true;
}

/* A crash prints once, with the trace. A line of the trace is out when it is printed. */
static void speak(bool trace)
{
    const struct rlimit no_core = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    const int nowhere = trace ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    (void)dup2(nowhere, STDERR_FILENO);
    (void)close(nowhere);
}

static void run_here(uint64_t seed, bool trace, const struct trial_limits *l, int fd)
{
    speak(trace);
    world_trial_begin(l->cpu_s);
    world_run(seed, trace, l->most);
    const ssize_t put = write(fd, the->why, sizeof the->why);
    (void)fflush(stdout);
    _exit(put == (ssize_t)sizeof the->why ? 0 : 1);
}

bool world_trial(uint64_t seed, bool trace, const struct trial_limits *l, char why_out[WHY_BYTES])
{
    int fds[2], status = 0;
    (void)fflush(stdout);
    why_out[0] = '\0';
    if (pipe(fds) != 0) return false;
    const pid_t pid = fork();
    if (pid == 0) run_here(seed, trace, l, fds[1]);
    (void)close(fds[1]);
    const ssize_t got = pid > 0 ? read(fds[0], why_out, WHY_BYTES) : 0; /* at once or not at all */
    (void)close(fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return false;
    if (got != (ssize_t)WHY_BYTES) why_out[0] = '\0';
    (void)world_trial_why(status, why_out);
    return why_out[0] != '\0';
}
