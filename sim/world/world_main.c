/* world_main.c - the program: many seeds, what they met, the first that fails; or one. */
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "world_met.h"
#include "world_run.h"

#define NUMBER_MAX 1000000000u
#define PROGRESS_S 10
/* Of a processor, for one seed: 0.02 s are usual, and some ten times as many under a sanitizer. */
#define SEED_S 30u

struct options {
    uint64_t from, seeds, one, jobs, seed_s;
    bool trace, json, keep_going;
    struct trial_limits limits;
};

struct total {
    const struct options *options;
    time_t began;
    uint64_t done, failed, first_failed, hash;
    struct world_met met;
};

/* Sums do not depend on the order in which seeds end, so the hash is the same with any number of
 * jobs. */
static void add(struct total *t, const struct world_result *r)
{
    t->done++;
    t->hash += (r->hash ^ r->seed) * UINT64_C(0x9e3779b97f4a7c15);
    world_met_add(&t->met, r->seed - t->options->from, r->met);
    if (!r->failed) return;
    if (t->failed++ == 0 || r->seed < t->first_failed) t->first_failed = r->seed;
    fprintf(stderr, "seed %llu fails: %s\n", (unsigned long long)r->seed, r->why);
}

static void say_progress(const struct total *t)
{
    static time_t said;
    const time_t now = time(NULL);
    if (said == 0) said = t->began;
    if (now - said < PROGRESS_S) return;
    said = now;
    fprintf(stderr, "world: %llu of %llu seeds, %llu failed, %lld s\n", (unsigned long long)t->done,
            (unsigned long long)t->options->seeds, (unsigned long long)t->failed,
            (long long)(now - t->began));
}

static bool seed_ended(void *user, const struct world_result *r)
{
    struct total *t = user;
    add(t, r);
    say_progress(t);
    return t->failed == 0 || t->options->keep_going;
}

/* ---- what came out ---- */

static const char *name_of(uint32_t met)
{
    return met < FAULTS ? fault_names[met] : way_names[met - FAULTS];
}

static bool covered(const struct options *o, const struct world_met *met)
{
    struct world_missed missed;
    bool all = true;
    for (uint64_t at = 0; world_met_missed(met, &at, &missed); all = false) {
        const uint64_t seed = o->from + missed.first;
        fprintf(stderr, "%s was met by no seed from %llu on\n", name_of(missed.which),
                (unsigned long long)seed);
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
        printf(o->json ? "%s\"%s\":%llu" : "%s %s=%llu", comma, name_of(i),
               (unsigned long long)world_met_by(&t->met, i));
        if (o->json) comma = ",";
    }
    puts(o->json ? "}}" : "");
}

static int run_many(const struct options *o)
{
    uint32_t *counts = calloc(world_met_counts(o->seeds), sizeof *counts);
    if (counts == NULL) return 2;
    struct total t = {.options = o, .began = time(NULL), .met = {o->seeds, o->limits.most, counts}};
    const struct world_jobs w = {o->from, o->seeds, o->jobs, o->limits, seed_ended, &t};
    int code = world_jobs(&w) ? 0 : 2;
    if (code == 2) fputs("the world: a process could not be made, or was ended from outside\n", stderr);
    if (code == 0 && t.failed != 0 && !o->json && !o->keep_going) world_shrink(t.first_failed, &o->limits);
    if (code == 0) {
        code = t.failed != 0 ? 1 : covered(o, &t.met) ? 0 : 3;
        print_total(o, &t);
    }
    free(counts);
    return code;
}

static int run_one(const struct options *o)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* the trace of one that crashes is all there */
    world_run(o->one, o->trace, o->limits.most);
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
         "  --seed-s S      a seed fails that takes more than S seconds of a processor (default 30)\n"
         "  --plant WHAT    crash or hang: a mistake of the world's own, once a gateway was killed, to see "
         "that it is told\n"
         "  --json          one object on stdout\n\n"
         "Exit codes: 0 all passed, 1 a seed failed, 2 wrong use or no process, 3 a fault or way was met by "
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

static bool number_parse(const char *text, uint64_t least, uint64_t *out)
{
    char *end = NULL;
    *out = strtoull(text, &end, 10);
    if (isdigit((unsigned char)text[0]) && *end == '\0' && *out >= least && *out <= NUMBER_MAX) return true;
    fprintf(stderr, "tombolo-world: not a number from %llu to %llu: '%s'\n", (unsigned long long)least,
            (unsigned long long)NUMBER_MAX, text);
    return false;
}

static bool plant_parse(const char *text)
{
    world_plant = strcmp(text, "hang") == 0 ? PLANT_HANG : PLANT_CRASH;
    if (world_plant == PLANT_HANG || strcmp(text, "crash") == 0) return true;
    fprintf(stderr, "tombolo-world: --plant takes crash or hang, not '%s'\n", text);
    return false;
}

static bool option_parse(int c, struct options *o)
{
    switch (c) {
    case 'n':
        return number_parse(optarg, 1, &o->seeds);
    case 'f':
        return number_parse(optarg, 1, &o->from);
    case 's':
        return number_parse(optarg, 1, &o->one);
    case 'j':
        return number_parse(optarg, 0, &o->jobs);
    case 'S':
        return number_parse(optarg, 1, &o->seed_s);
    case 'F':
        return faults_parse(optarg, o->limits.most);
    case 'p':
        return plant_parse(optarg);
    default:
        return true;
    }
}

/* -1: go on; else the exit code. */
static int options_parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"seeds", required_argument, NULL, 'n'},  {"from", required_argument, NULL, 'f'},
        {"seed", required_argument, NULL, 's'},   {"jobs", required_argument, NULL, 'j'},
        {"faults", required_argument, NULL, 'F'}, {"trace", no_argument, NULL, 't'},
        {"json", no_argument, NULL, 'J'},         {"keep-going", no_argument, NULL, 'k'},
        {"seed-s", required_argument, NULL, 'S'}, {"plant", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
        if (!option_parse(c, o)) return 2;
        o->trace |= c == 't';
        o->json |= c == 'J';
        o->keep_going |= c == 'k';
        if (c == 'h' || c == '?') usage();
        if (c == 'h' || c == '?') return c == 'h' ? 0 : 2;
    }
    if (optind < argc) {
        fprintf(stderr, "tombolo-world: what is '%s'? (--help)\n", argv[optind]);
        return 2;
    }
    o->limits.cpu_s = (uint32_t)o->seed_s;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (o->jobs == 0) o->jobs = cores > 0 ? (uint64_t)cores : 1;
    if (o->jobs > JOBS_MAX) o->jobs = JOBS_MAX;
    return -1;
}

int main(int argc, char **argv)
{
    struct options o = {.from = 1, .seeds = 100, .jobs = 1, .seed_s = SEED_S};
    for (uint32_t f = 0; f < FAULTS; f++)
        o.limits.most[f] = STRENGTH_MAX;
    int code = options_parse(argc, argv, &o);
    if (code >= 0) return code;
    the = calloc(1, sizeof *the);
    if (the == NULL) return 2;
    code = o.one != 0 ? run_one(&o) : run_many(&o);
    free(the);
    return code;
}
