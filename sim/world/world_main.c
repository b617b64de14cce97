/* world_main.c - seeds, faults by coin, the end of faults, convergence; the program. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

#define FAULTS_LAST  TB_SECONDS(12)
#define CONVERGED_BY TB_SECONDS(60)

static bool converged(const struct world *w)
{
    if (w->published != w->version_count) return false;
    for (uint32_t i = 0; i < w->site_count; i++) {
        const struct site *s = &w->sites[i];
        const struct store *copy = &s->copies[w->published - 1];
        if (!copy->there || !tb_place_whole(&copy->place)) return false;
        for (uint32_t k = 0; k < s->worker_count; k++)
            if (!s->workers[k].here || s->workers[k].active != w->published - 1) return false;
    }
    return true;
}

/* Where everybody stood when it failed. */
static void state_say(struct world *w, const struct site *s)
{
    struct tb_catalog_group_view g;
    for (uint32_t at = 0; tb_catalog_group_at(s->catalog, &at, &g);)
        world_say(w, "%s: %u of %u here, %u staged whole, attempt v%u, go v%u", s->name.text, g.present,
                  g.count, g.staged_whole, world_version_find(w, &g.attempt) + 1,
                  world_version_find(w, &g.uid) + 1);
    for (uint32_t i = 0; i < s->worker_count; i++) {
        const struct worker *k = &s->workers[i];
        world_say(w, "%s: w%u%s staging v%u holds %u, active v%u, wait %llu, source %d", s->name.text, i,
                  k->here ? "" : " away", k->staging + 1, k->told, k->active + 1, (unsigned long long)k->wait,
                  k->source != NULL);
    }
}

/* P6: when faults stop, every site holds the newest version and every worker computes from it. */
static void run(struct world *w, uint64_t seed, bool trace, uint32_t allowed)
{
    memset(w, 0, sizeof *w);
    w->seed = w->random = seed;
    w->hash = UINT64_C(0xcbf29ce484222325);
    w->trace = trace;
    w->faulty = true;
    w->now = TB_SECONDS(1000);
    w->site_count = 2 + (uint32_t)world_random(w, 3);
    w->version_count = 2 + (uint32_t)world_random(w, VERSIONS_MAX - 1);
    for (uint32_t f = 0; f < FAULTS; f++)
        w->on[f] = world_random(w, 2) == 1 && (allowed >> f & 1) != 0;
    for (uint32_t i = 0; i < w->site_count; i++)
        world_site_open(w, i);
    const tb_time_ns began = w->now;
    while (!w->failed && !(w->now > began + TB_SECONDS(2) && converged(w))) {
        w->now += STEP;
        w->faulty = w->now < began + FAULTS_LAST;
        if (w->now > began + CONVERGED_BY) world_fail(w, "P6: no convergence after faults stopped");
        world_trainer_step(w);
        world_events_run(w);
        world_links_step(w);
        for (uint32_t i = 0; i < w->site_count; i++)
            world_site_step(w, &w->sites[i]);
    }
    for (uint32_t i = 0; w->failed && i < w->site_count; i++)
        state_say(w, &w->sites[i]);
    for (uint32_t i = 0; i < w->site_count; i++)
        free(w->sites[i].memory);
}

/* The smallest set of fault kinds that still fails: each is switched off in turn. */
static void report_failure(struct world *w, uint64_t seed)
{
    uint32_t allowed = (1u << FAULTS) - 1;
    for (uint32_t f = 0; f < FAULTS; f++) {
        run(w, seed, false, allowed & ~(1u << f));
        if (w->failed) allowed &= ~(1u << f);
    }
    run(w, seed, true, allowed);
    fprintf(stderr, "seed %llu fails: %s; faults needed:", (unsigned long long)seed, w->why);
    for (uint32_t f = 0; f < FAULTS; f++)
        if (w->on[f]) fprintf(stderr, " %s", fault_names[f]);
    fprintf(stderr, "\n");
}

static int run_many(struct world *w, uint64_t from, uint64_t count, bool json)
{
    uint64_t struck[FAULTS] = {0}, hash = 0;
    int code = 0;
    for (uint64_t seed = from; seed < from + count; seed++) {
        run(w, seed, false, UINT32_MAX);
        if (w->failed) {
            report_failure(w, seed);
            return 1;
        }
        hash = hash * 31 + w->hash;
        for (uint32_t f = 0; f < FAULTS; f++)
            struck[f] += w->struck[f];
    }
    printf(json ? "{\"seeds\":%llu,\"hash\":\"%016llx\",\"struck\":{" : "seeds %llu hash %016llx struck ",
           (unsigned long long)count, (unsigned long long)hash);
    for (uint32_t f = 0; f < FAULTS; f++) {
        printf(json ? "%s\"%s\":%llu" : "%s%s=%llu",
               f == 0 ? ""
               : json ? ","
                      : " ",
               fault_names[f], (unsigned long long)struck[f]);
        if (struck[f] == 0 && count >= 1000) code = 3;
    }
    printf(json ? "}}\n" : "\n");
    if (code != 0) fprintf(stderr, "a fault was met by no seed\n");
    return code;
}

static void usage(void)
{
    puts("usage: tombolo-world [--seeds N] [--from S] [--json] | --seed S --trace\n"
         "Drives the cores through N seeded worlds (default 100).\n"
         "Exit codes: 0 all passed, 1 a seed failed (its seed, faults and trace are printed), 2 usage,\n"
         "3 a fault was met by no seed.\nExample: tombolo-world --seeds 1000");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seeds", required_argument, NULL, 'n'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"trace", no_argument, NULL, 't'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    uint64_t count = 100, from = 1, one = 0;
    bool trace = false, json = false;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'n') count = strtoull(optarg, NULL, 10);
        if (c == 'f') from = strtoull(optarg, NULL, 10);
        if (c == 's') one = strtoull(optarg, NULL, 10);
        trace |= c == 't';
        json |= c == 'j';
        if (c == 'h' || c == '?') usage();
        if (c == 'h' || c == '?') return c == 'h' ? 0 : 2;
    }
    struct world *w = calloc(1, sizeof *w);
    if (w == NULL) return 2;
    int code = 0;
    if (one != 0) {
        run(w, one, trace, UINT32_MAX);
        printf("seed %llu %s hash %016llx\n", (unsigned long long)one, w->failed ? w->why : "ok",
               (unsigned long long)w->hash);
        code = w->failed;
    } else {
        code = run_many(w, from, count, json);
    }
    free(w);
    return code;
}
