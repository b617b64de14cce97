/* world_main.c - the program: seeds over jobs, what they met, the first that fails. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

#define JOBS_MAX   64u
#define WINDOW     10000u /* a fault that no seed of so many met is a failure */
#define WINDOW_MIN 1000u  /* of fewer seeds nothing is asked */
#define PROGRESS_S 10
#define MET        (FAULTS + WAYS) /* what is counted: faults, then ways */

struct result { /* of one seed, from a job to the parent */
    uint64_t seed, hash;
    uint64_t met; /* faults that struck and ways that were gone, a bit each */
    uint32_t failed;
    char why[240];
};

struct options {
    uint64_t from, seeds, one, jobs;
    bool trace, json, keep_going;
    uint32_t most[FAULTS];
};

struct total {
    uint64_t done, failed, first_failed, hash;
    uint64_t met[MET];
    uint32_t *met_by_window; /* windows x MET */
};

static struct result run_seed(uint64_t seed, const struct options *o)
{
    struct result r = {.seed = seed};
    world_run(seed, false, o->most);
    r.hash = the->hash;
    r.failed = the->failed;
    memcpy(r.why, the->why, sizeof r.why);
    for (uint32_t i = 0; i < MET; i++)
        r.met |= (uint64_t)(i < FAULTS ? the->struck[i] != 0 : the->went[i - FAULTS] != 0) << i;
    return r;
}

/* ---- jobs ---- */

static bool write_all(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        const ssize_t n = write(fd, at, count);
        if (n <= 0) return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

/* A record is smaller than PIPE_BUF, so those of several jobs do not mix. */
static void job(const struct options *o, uint64_t index, int fd)
{
    for (uint64_t i = index; i < o->seeds; i += o->jobs) {
        const struct result r = run_seed(o->from + i, o);
        if (!write_all(fd, &r, sizeof r)) break;
    }
    _exit(0);
}

static bool read_result(int fd, struct result *r)
{
    size_t got = 0;
    while (got < sizeof *r) {
        const ssize_t n = read(fd, (char *)r + got, sizeof *r - got);
        if (n <= 0) return false;
        got += (size_t)n;
    }
    return true;
}

/* Sums do not depend on the order in which seeds end, so the hash is the same with any number of jobs. */
static void add(struct total *t, const struct options *o, const struct result *r)
{
    const uint64_t window = (r->seed - o->from) / WINDOW;
    t->done++;
    t->hash += (r->hash ^ r->seed) * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < MET; i++) {
        const uint32_t met = r->met >> i & 1;
        t->met[i] += met;
        t->met_by_window[window * MET + i] += met;
    }
    if (r->failed == 0) return;
    if (t->failed++ == 0 || r->seed < t->first_failed) t->first_failed = r->seed;
    if (o->keep_going || o->json)
        fprintf(stderr, "seed %llu fails: %s\n", (unsigned long long)r->seed, r->why);
}

static void say_progress(const struct total *t, const struct options *o, time_t began)
{
    static time_t said;
    const time_t now = time(NULL);
    if (said == 0) said = began;
    if (now - said < PROGRESS_S) return;
    said = now;
    fprintf(stderr, "world: %llu of %llu seeds, %llu failed, %lld s\n", (unsigned long long)t->done,
            (unsigned long long)o->seeds, (unsigned long long)t->failed, (long long)(now - began));
}

/* 0, or 2 when a job ended early. */
static int run_jobs(const struct options *o, struct total *t)
{
    const time_t began = time(NULL);
    pid_t jobs[JOBS_MAX];
    int fds[2];
    if (pipe(fds) != 0) return 2;
    for (uint64_t j = 0; j < o->jobs; j++) {
        jobs[j] = fork();
        if (jobs[j] < 0) return 2;
        if (jobs[j] == 0) {
            (void)close(fds[0]);
            job(o, j, fds[1]);
        }
    }
    (void)close(fds[1]);
    struct result r;
    while ((t->failed == 0 || o->keep_going) && read_result(fds[0], &r)) {
        add(t, o, &r);
        say_progress(t, o, began);
    }
    bool crashed = false;
    for (uint64_t j = 0; j < o->jobs; j++) {
        int status = 0;
        if (t->failed != 0 && !o->keep_going) (void)kill(jobs[j], SIGTERM);
        (void)waitpid(jobs[j], &status, 0);
        crashed |= t->failed == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    }
    (void)close(fds[0]);
    return crashed || (t->failed == 0 && t->done != o->seeds) ? 2 : 0;
}

/* ---- what came out ---- */

static const char *name_of(uint32_t met)
{
    return met < FAULTS ? fault_names[met] : way_names[met - FAULTS];
}

/* False: a fault or a way was met by no seed of some window. */
static bool covered(const struct options *o, const struct total *t)
{
    bool all = true;
    if (o->seeds < WINDOW_MIN) return true;
    for (uint64_t w = 0; w * WINDOW + WINDOW_MIN <= o->seeds; w++) {
        for (uint32_t i = 0; i < MET; i++) {
            if ((i < FAULTS && o->most[i] == 0) || t->met_by_window[w * MET + i] != 0) continue;
            fprintf(stderr, "%s was met by no seed from %llu on\n", name_of(i),
                    (unsigned long long)o->from + w * WINDOW);
            all = false;
        }
    }
    return all;
}

static void print_total(const struct options *o, const struct total *t)
{
    const char *comma = "";
    printf(o->json ? "{\"schema\":1,\"seeds\":%llu,\"failed\":%llu,\"hash\":\"%016llx\",\"met_by_seeds\":{"
                   : "seeds %llu failed %llu hash %016llx met by seeds:",
           (unsigned long long)t->done, (unsigned long long)t->failed, (unsigned long long)t->hash);
    for (uint32_t i = 0; i < MET; i++) {
        printf(o->json ? "%s\"%s\":%llu" : "%s %s=%llu", comma, name_of(i), (unsigned long long)t->met[i]);
        if (o->json) comma = ",";
    }
    puts(o->json ? "}}" : "");
}

static int run_many(const struct options *o)
{
    struct total t = {0};
    t.met_by_window = calloc((o->seeds / WINDOW + 1) * MET, sizeof *t.met_by_window);
    if (t.met_by_window == NULL) return 2;
    int code = run_jobs(o, &t);
    if (code == 2)
        fputs("a job of the world ended early: run its seeds with --jobs 1 to see which\n", stderr);
    if (code == 0 && t.failed != 0 && !o->json && !o->keep_going) world_shrink(t.first_failed, o->most);
    if (code == 0) {
        code = t.failed != 0 ? 1 : covered(o, &t) ? 0 : 3;
        print_total(o, &t);
    }
    free(t.met_by_window);
    return code;
}

static int run_one(const struct options *o)
{
    world_run(o->one, o->trace, o->most);
    printf("seed %llu %s hash %016llx\n", (unsigned long long)o->one, the->failed ? the->why : "ok",
           (unsigned long long)the->hash);
    return the->failed;
}

/* ---- the command line ---- */

static void usage(void)
{
    puts("usage: tombolo-world [--seeds N] [--from S] [--jobs J] [--faults LIST] [--keep-going] [--json]\n"
         "       tombolo-world --seed S [--trace] [--faults LIST]\n\n"
         "Runs whole gateways, links, workers and a trainer through N seeded worlds (default 100), J at a "
         "time (default 1;\n"
         "0: one a core). The first seed that fails is printed with its trace and the smallest faults that "
         "still make it fail.\n\n"
         "  --faults LIST   none, or names with the most strength they may have: cut=2,kill (1 to 4; default "
         "all, 4)\n"
         "  --keep-going    name every seed that fails, shrink none\n"
         "  --json          one object on stdout\n\n"
         "Exit codes: 0 all passed, 1 a seed failed, 2 wrong use or a job died, 3 a fault or way was met by "
         "no seed of 10,000\n"
         "(of all, where 1,000 or more were asked for).\nExample: tombolo-world --seeds 1000 --jobs 2");
    printf("Faults:");
    for (uint32_t f = 0; f < FAULTS; f++)
        printf(" %s", fault_names[f]);
    puts("");
}

static bool fault_parse(const char *item, size_t count, uint32_t *most)
{
    const char *equal = memchr(item, '=', count);
    const size_t name = equal != NULL ? (size_t)(equal - item) : count;
    for (uint32_t f = 0; f < FAULTS; f++) {
        if (strlen(fault_names[f]) != name || memcmp(fault_names[f], item, name) != 0) continue;
        most[f] = equal != NULL ? (uint32_t)strtoul(equal + 1, NULL, 10) : STRENGTH_MAX;
        return most[f] <= STRENGTH_MAX;
    }
    return false;
}

static bool faults_parse(const char *list, uint32_t *most)
{
    memset(most, 0, FAULTS * sizeof *most);
    if (strcmp(list, "none") == 0) return true;
    while (*list != '\0') {
        const size_t count = strcspn(list, ",");
        if (!fault_parse(list, count, most)) {
            fprintf(stderr, "tombolo-world: no such fault or strength: %.*s (--help names them)\n",
                    (int)count, list);
            return false;
        }
        list += count + (list[count] == ',');
    }
    return true;
}

/* -1: go on; else the exit code. */
static int options_parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"seeds", required_argument, NULL, 'n'},  {"from", required_argument, NULL, 'f'},
        {"seed", required_argument, NULL, 's'},   {"jobs", required_argument, NULL, 'j'},
        {"faults", required_argument, NULL, 'F'}, {"trace", no_argument, NULL, 't'},
        {"json", no_argument, NULL, 'J'},         {"keep-going", no_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
        if (c == 'n') o->seeds = strtoull(optarg, NULL, 10);
        if (c == 'f') o->from = strtoull(optarg, NULL, 10);
        if (c == 's') o->one = strtoull(optarg, NULL, 10);
        if (c == 'j') o->jobs = strtoull(optarg, NULL, 10);
        if (c == 'F' && !faults_parse(optarg, o->most)) return 2;
        o->trace |= c == 't';
        o->json |= c == 'J';
        o->keep_going |= c == 'k';
        if (c == 'h' || c == '?') usage();
        if (c == 'h' || c == '?') return c == 'h' ? 0 : 2;
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (o->jobs == 0) o->jobs = cores > 0 ? (uint64_t)cores : 1;
    if (o->jobs > JOBS_MAX) o->jobs = JOBS_MAX;
    return -1;
}

int main(int argc, char **argv)
{
    struct options o = {.from = 1, .seeds = 100, .jobs = 1};
    for (uint32_t f = 0; f < FAULTS; f++)
        o.most[f] = STRENGTH_MAX;
    int code = options_parse(argc, argv, &o);
    if (code >= 0) return code;
    the = calloc(1, sizeof *the);
    if (the == NULL) return 2;
    code = o.one != 0 ? run_one(&o) : run_many(&o);
    free(the);
    return code;
}
