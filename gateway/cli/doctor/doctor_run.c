/* doctor_run.c - see doctor_run.h. A check tells its findings over a pipe, in rows of one size; a
 * row without a name is its last. */
#include "gateway/cli/doctor/doctor_run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/gateway_user.h"

#define AT_ONCE   8u
#define TOLD_MAX  192u /* of one check: a certificate is one, and a peer may have a file of several */
#define TOLD_ROOM (TOLD_MAX + 8u) /* and the row that comes, and those that are told here */

struct told {
    char name[TB_CHECK_NAME_BYTES];
    struct tb_finding finding;
};

struct check_job {
    const struct tb_check *check;
    uint32_t peer; /* UINT32_MAX: of none */
    pid_t pid;     /* 0: it did not begin, or has ended */
    int fd;
    tb_time_ns until;
    bool ended, whole;
    uint32_t count;
    uint32_t dropped[TB_MARK_COUNT]; /* rows that found no place; the last of that name */
    char dropped_name[TB_CHECK_NAME_BYTES];
    size_t used; /* bytes of told[count] that came */
    struct told *told;
};

struct check_jobs {
    const struct tb_doctor *d;
    const struct tb_doctor_watch *watch;
    struct check_job *list;
    uint32_t count, begun, shown;
};

/* ---- the list ---- */

/* Rows of peers that stand beside each other are one block for each peer. */
static uint32_t peers_add(struct check_jobs *j, const struct tb_check *row, uint32_t rows, uint32_t only)
{
    const uint32_t peers = j->d->config != NULL ? j->d->config->peer_count : 0;
    uint32_t added = 0;
    for (uint32_t p = 0; p < peers; p++) {
        if (only != UINT32_MAX && p != only) continue;
        for (uint32_t i = 0; i < rows; i++) {
            if (j->list != NULL)
                j->list[j->count] = (struct check_job){.check = row + i, .peer = p, .fd = -1};
            j->count++;
            added++;
        }
    }
    return added;
}

static void list_fill(struct check_jobs *j, const struct tb_check *checks, uint32_t only)
{
    j->count = 0;
    for (const struct tb_check *c = checks; c->group != NULL;) {
        uint32_t rows = 0;
        while (c[rows].group != NULL && (c[rows].needs & TB_EACH_PEER) != 0)
            rows++;
        if (rows > 0) {
            (void)peers_add(j, c, rows, only);
            c += rows;
            continue;
        }
        if (j->list != NULL) j->list[j->count] = (struct check_job){.check = c, .peer = UINT32_MAX, .fd = -1};
        j->count++;
        c++;
    }
}

/* The next of the check's names; `at` begins as `check->names`. False: there is none. */
static bool next_name(const char **at, char name_out[TB_CHECK_NAME_BYTES])
{
    const size_t bytes = strcspn(*at, " ");
    if (**at == '\0') return false;
    TB_ASSERT(bytes > 0 && bytes < TB_CHECK_NAME_BYTES);
    (void)snprintf(name_out, TB_CHECK_NAME_BYTES, "%.*s", (int)bytes, *at);
    *at += bytes + ((*at)[bytes] == ' ');
    return true;
}

static uint32_t limit_ms(const struct check_jobs *j, const struct check_job *job)
{
    return job->check->limit_ms * (j->d->limit_times > 0 ? j->d->limit_times : 1);
}

/* ---- a check's process ---- */

static void send_row(void *user, const char *name, const struct tb_finding *finding)
{
    const int fd = *(const int *)user;
    struct told row;
    memset(&row, 0, sizeof row);
    (void)snprintf(row.name, sizeof row.name, "%s", name);
    row.finding = *finding;
    for (size_t sent = 0; sent < sizeof row;) {
        const ssize_t wrote = write(fd, (const char *)&row + sent, sizeof row - sent);
        if (wrote < 0 && errno != EINTR) _exit(1); /* nobody waits for it any more */
        if (wrote > 0) sent += (size_t)wrote;
    }
}

/* Becomes the gateway's user. False: the check would look with the rights of another one. */
static bool be_user(struct tb_doctor *d, char why_out[160])
{
    char user[TB_CLI_USER_BYTES];
    if (d->config == NULL) {
        d->no_user = "the configuration could not be read";
        return true;
    }
    d->no_user =
        d->no_files != NULL ? d->no_files : tb_cli_gateway_unknown(d->config->store_path, d->status != NULL);
    if (tb_cli_be_gateway(d->config->store_path, user)) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        return true;
    }
    (void)snprintf(why_out, 160, "this process cannot become the gateway's user: %s", strerror(errno));
    return false;
}

static void look(const struct tb_check *check, struct tb_doctor *d)
{
    char name[TB_CHECK_NAME_BYTES], why[160];
    const char *at = check->names;
    if (!be_user(d, why)) {
        while (next_name(&at, name))
            tb_doctor_tell(d, name, tb_find(TB_MARK_UNKNOWN, "%s", why));
    } else if ((check->needs & TB_NEEDS_USER) != 0 && d->no_user != NULL) {
        while (next_name(&at, name))
            tb_doctor_tell(d, name,
                           tb_find(TB_MARK_UNKNOWN, "the gateway's user is not known: %s", d->no_user));
    } else {
        check->look(d);
    }
}

__attribute__((noreturn)) static void be_check(const struct check_jobs *j, const struct check_job *job,
                                               int fd)
{
    struct tb_doctor d = *j->d;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* before it becomes another user, which would clear it */
    d.peer = job->peer;
    d.tell = send_row;
    d.user = &fd;
    look(job->check, &d);
    send_row(&fd, "", &(struct tb_finding){.mark = TB_MARK_FINE});
    _exit(0);
}

static void end(struct check_job *job)
{
    if (job->fd >= 0) (void)close(job->fd);
    job->fd = -1;
    job->ended = true;
    /* It has said all that it will say. One that waits in the kernel, for a disk or in a driver,
     * stays until that answers: nothing waits for it. */
    if (job->pid > 0) (void)kill(job->pid, SIGKILL);
}

/* Those that have ended, and are gone by now. */
static void reap(struct check_jobs *j)
{
    for (uint32_t i = 0; i < j->begun; i++)
        if (j->list[i].ended && j->list[i].pid > 0 && waitpid(j->list[i].pid, NULL, WNOHANG) != 0)
            j->list[i].pid = 0;
}

static uint32_t rows_of(const struct check_job *job, const char *name)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->count; i++)
        count += strcmp(job->told[i].name, name) == 0;
    return count;
}

static void tell_here(struct check_job *job, const char *name, enum tb_mark mark, const char *text)
{
    if (job->told == NULL) return; /* show() says so */
    TB_ASSERT(job->count < TOLD_ROOM);
    struct told t = {.finding = tb_find(mark, "%s", text)};
    (void)snprintf(t.name, sizeof t.name, "%s", name); /* of another row, perhaps */
    job->told[job->count++] = t;
}

/* For each of the check's names of which nothing was told. Where each was told, it is one row more:
 * a name may be told of several things, and the last of them may be missing. */
static void tell_rest(struct check_job *job, enum tb_mark mark, const char *text)
{
    char name[TB_CHECK_NAME_BYTES] = "";
    const uint32_t before = job->count;
    const char *at = job->check->names;
    while (next_name(&at, name))
        if (rows_of(job, name) == 0) tell_here(job, name, mark, text);
    if (job->count == before && before > 0) tell_here(job, job->told[before - 1].name, mark, text);
}

/* ---- more rows than there is room for ---- */

static uint32_t weight_of(enum tb_mark mark)
{
    static const uint8_t weights[TB_MARK_COUNT] = {[TB_MARK_FINE] = 0,
                                                   [TB_MARK_SKIPPED] = 1,
                                                   [TB_MARK_UNKNOWN] = 2,
                                                   [TB_MARK_WARNING] = 3,
                                                   [TB_MARK_WRONG] = 4};
    TB_ASSERT(mark < TB_MARK_COUNT);
    return weights[mark];
}

/* The last of those that weigh least. The newest row stays, as it may be the check's verdict, and
 * so does one row of each name. */
static void drop_one(struct check_job *job)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = job->count - 1; i-- > 0;)
        if ((least == UINT32_MAX ||
             weight_of(job->told[i].finding.mark) < weight_of(job->told[least].finding.mark)) &&
            rows_of(job, job->told[i].name) > 1)
            least = i;
    TB_ASSERT(least < job->count); /* a check has fewer names than rows */
    job->dropped[job->told[least].finding.mark]++;
    memcpy(job->dropped_name, job->told[least].name, sizeof job->dropped_name);
    memmove(&job->told[least], &job->told[least + 1], (job->count - 1 - least) * sizeof *job->told);
    job->count--;
}

static void tell_dropped(struct check_job *job)
{
    char parts[128] = "", text[192];
    enum tb_mark worst = TB_MARK_FINE;
    uint32_t all = 0;
    for (unsigned m = 0; m < TB_MARK_COUNT; m++) {
        const size_t used = strlen(parts);
        if (job->dropped[m] == 0) continue;
        if (weight_of((enum tb_mark)m) > weight_of(worst)) worst = (enum tb_mark)m;
        (void)snprintf(parts + used, sizeof parts - used, "%s%u %s", all > 0 ? ", " : "", job->dropped[m],
                       tb_mark_name((enum tb_mark)m));
        all += job->dropped[m];
    }
    (void)snprintf(text, sizeof text, "%u more rows have no place here: %s", all, parts);
    if (all > 0) tell_here(job, job->dropped_name, worst, text);
}

static void begin(struct check_jobs *j, struct check_job *job)
{
    int ends[2];
    struct tb_doctor d = *j->d;
    d.peer = job->peer;
    const char *why_not = tb_check_why_not(job->check, &d);
    job->told = tb_calloc(TOLD_ROOM, sizeof *job->told);
    job->pid = -1;
    if (why_not == NULL && job->told != NULL && pipe(ends) == 0) {
        job->until = tb_clock_now() + TB_MS(limit_ms(j, job));
        job->pid = fork();
        if (job->pid == 0) {
            (void)close(ends[0]);
            be_check(j, job, ends[1]);
        }
        (void)close(ends[1]);
        job->fd = ends[0];
    }
    if (job->pid > 0) return;
    tell_rest(job, why_not != NULL ? TB_MARK_SKIPPED : TB_MARK_UNKNOWN,
              why_not != NULL ? why_not : "no process for this check");
    job->pid = 0;
    end(job);
}

/* ---- waiting ---- */

static void row_came(struct check_job *job)
{
    job->used = 0;
    if (job->told[job->count].name[0] == '\0')
        job->whole = true;
    else if (++job->count > TOLD_MAX)
        drop_one(job);
}

static void take(struct check_job *job)
{
    struct told *t = &job->told[job->count];
    const ssize_t got = read(job->fd, (char *)t + job->used, sizeof *t - job->used);
    if (got < 0 && errno == EINTR) return;
    if (got > 0) job->used += (size_t)got;
    if (got > 0 && job->used == sizeof *t) row_came(job);
    if (got > 0 && !job->whole) return;
    if (!job->whole) tell_rest(job, TB_MARK_UNKNOWN, "the check ended without an answer");
    tell_dropped(job);
    end(job);
}

static void expire(const struct check_jobs *j, struct check_job *job)
{
    char text[64];
    (void)snprintf(text, sizeof text, "no answer within %u s", limit_ms(j, job) / 1000);
    tell_rest(job, TB_MARK_WRONG, text);
    tell_dropped(job);
    end(job);
}

static int wait_ms(tb_time_ns until)
{
    const tb_time_ns left = tb_time_since(tb_clock_now(), until);
    return (int)(left / TB_MS(1)) + 1;
}

/* Until one of those that run says something, or has used up its time. */
static void wait_for_one(struct check_jobs *j)
{
    struct pollfd fds[AT_ONCE];
    struct check_job *of[AT_ONCE];
    tb_time_ns first = TB_TIME_NEVER;
    nfds_t count = 0;
    for (uint32_t i = j->shown; i < j->begun; i++) {
        if (j->list[i].ended) continue;
        TB_ASSERT(count < AT_ONCE);
        of[count] = &j->list[i];
        fds[count++] = (struct pollfd){.fd = j->list[i].fd, .events = POLLIN};
        first = tb_time_min(first, j->list[i].until);
    }
    if (count == 0) return;
    const int ready = poll(fds, count, wait_ms(first));
    for (nfds_t i = 0; i < count; i++) {
        if (ready > 0 && fds[i].revents != 0)
            take(of[i]);
        else if (tb_clock_now() >= of[i]->until)
            expire(j, of[i]);
    }
}

static void show_row(const struct check_jobs *j, const struct check_job *job, const char *name,
                     const struct tb_finding *finding)
{
    struct tb_result r = {.check = job->check, .site = "", .finding = *finding};
    if (job->peer != UINT32_MAX) r.site = j->d->config->peers[job->peer].site.text;
    (void)snprintf(r.name, sizeof r.name, "%s", name);
    const bool asks = r.finding.mark == TB_MARK_WRONG || r.finding.mark == TB_MARK_WARNING;
    if (asks && r.finding.advice[0] == '\0') tb_advise(&r.finding, "%s", job->check->advice);
    j->watch->result(j->watch->user, &r);
}

static void show(const struct check_jobs *j, struct check_job *job)
{
    char name[TB_CHECK_NAME_BYTES];
    const char *at = job->check->names;
    const struct tb_finding lacking = tb_find(TB_MARK_UNKNOWN, "no memory for this check");
    while (job->told == NULL && next_name(&at, name))
        show_row(j, job, name, &lacking);
    for (uint32_t i = 0; i < job->count; i++)
        show_row(j, job, job->told[i].name, &job->told[i].finding);
    tb_free(job->told);
    job->told = NULL;
}

static uint32_t running(const struct check_jobs *j)
{
    uint32_t count = 0;
    for (uint32_t i = j->shown; i < j->begun; i++)
        count += !j->list[i].ended;
    return count;
}

enum tb_status tb_doctor_run(const struct tb_check *checks, const struct tb_doctor *d, uint32_t only,
                             const struct tb_doctor_watch *watch)
{
    struct check_jobs j = {.d = d, .watch = watch};
    list_fill(&j, checks, only);
    j.list = tb_calloc(j.count > 0 ? j.count : 1, sizeof *j.list);
    if (j.list == NULL) return TB_SITE_NOMEM;
    list_fill(&j, checks, only);
    while (j.shown < j.count) {
        while (j.begun < j.count && running(&j) < AT_ONCE)
            begin(&j, &j.list[j.begun++]);
        watch->progress(watch->user, j.begun - running(&j), j.count);
        wait_for_one(&j);
        reap(&j);
        while (j.shown < j.begun && j.list[j.shown].ended)
            show(&j, &j.list[j.shown++]);
    }
    tb_free(j.list);
    return TB_OK;
}
