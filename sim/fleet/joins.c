/* joins.c - tombolo-fleet-joins: what a catalog pays, in CPU, for workers that all join within one lease.
 *
 * The catalog is the shipped core, in virtual time: at even distances over a lease each worker opens a session,
 * subscribes, stages the version that the gateway holds whole and exports it; then it says its progress once a
 * second and renews its lease every third of it. All todos are taken. Not counted: sockets, TLS and the
 * decoding of messages. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "gateway/catalog/catalog.h"

#define WORKERS_MAX     50000
#define GROUP           8 /* workers of an engine, and of a host */
#define CHUNKS          8192
#define LEASE_NS        TB_SECONDS(10)
#define TICK_NS         TB_MS(100)
#define RENEW_NS        (LEASE_NS / 3)
#define FIRST_WORKER_ID 100

static const char usage_text[] =
    "usage: tombolo-fleet-joins [--workers 10000] [--json]\n"
    "CPU of one catalog while so many workers (1 to 50000) join it within one lease of 10 s; no sockets.\n"
    "Example: tombolo-fleet-joins --workers 1000\n"
    "Exit codes: 0 done, 1 no memory, 2 usage.\n";

struct joins {
    struct tb_catalog *catalog;
    tb_time_ns now;
    uint32_t workers, joined;
    uint64_t calls, plans;
    bool shows; /* stderr is a terminal */
};

static struct tb_id id_of(uint64_t number)
{
    struct tb_id id = {{0}};
    memcpy(id.bytes, &number, sizeof number);
    return id;
}

static struct tb_name name_of(const char *kind, uint32_t number)
{
    char text[32];
    struct tb_name name = {{0}};
    (void)snprintf(text, sizeof text, "%s%u", kind, number);
    TB_ASSERT(tb_name_set(&name, text) == TB_OK);
    return name;
}

static struct tb_id worker_id(uint32_t worker)
{
    return id_of(FIRST_WORKER_ID + (uint64_t)worker);
}

/* A catalog of the model's other site, past its recovery, whose gateway holds version 1. */
static void begin(struct joins *j, void *memory, const struct tb_catalog_limits *limits)
{
    const struct tb_catalog_config config = {.site = name_of("west", 0),
                                             .host = name_of("gateway", 0),
                                             .lease_ns = LEASE_NS,
                                             .tick_ns = TICK_NS,
                                             .fan_out = 1};
    const struct tb_catalog_model model = {
        .name = name_of("policy", 0), .home = name_of("east", 0), .subscribed = true, .keep = 2};
    j->now = TB_SECONDS(1000);
    j->catalog = tb_catalog_init(memory, limits, &config, j->now);
    TB_ASSERT(tb_catalog_model_add(j->catalog, &model) == TB_OK);
    while (tb_catalog_recovering(j->catalog)) {
        j->now += TICK_NS;
        tb_catalog_tick(j->catalog, j->now);
    }
}

static void land_version(struct joins *j)
{
    const struct tb_version_key key = {.uid = id_of(1),
                                       .model = name_of("policy", 0),
                                       .run = id_of(2),
                                       .run_order = 1,
                                       .number = 1,
                                       .shard_count = 1,
                                       .root = {{1}}};
    const struct tb_name east = name_of("east", 0);
    const struct tb_catalog_shard shard = {
        .root = {{7}}, .chunk_count = CHUNKS, .bytes = (uint64_t)CHUNKS << 20};
    struct tb_catalog *c = j->catalog;
    TB_ASSERT(tb_catalog_remote_version(c, j->now, &east, &key, TB_VERSION_KEPT) == TB_OK);
    TB_ASSERT(tb_catalog_arena_shard(c, j->now, &key.uid, 0, &shard) == TB_OK);
    TB_ASSERT(tb_catalog_arena_reserved(c, j->now, &key.uid) == TB_OK);
    TB_ASSERT(tb_catalog_crossing_begun(c, j->now, &key.uid) == TB_OK);
    TB_ASSERT(tb_catalog_arena_progress(c, j->now, &key.uid, 0, CHUNKS) == TB_OK);
}

static void drain(struct joins *j)
{
    struct tb_catalog_todo todo;
    while (tb_catalog_next(j->catalog, &todo)) {
        if (todo.kind != TB_CATALOG_PLAN) continue;
        j->plans++;
        (void)!tb_catalog_plan_told(j->catalog, j->now, &todo.session, &todo.uid, todo.plan);
    }
}

/* A call that must succeed, and what comes of it. */
static void said(struct joins *j, enum tb_status status)
{
    TB_ASSERT(status == TB_OK || status == TB_DONE_BEFORE);
    j->calls++;
    drain(j);
}

static void join(struct joins *j, uint32_t worker)
{
    struct tb_catalog_session session = {
        .id = worker_id(worker), .name = name_of("w", worker), .host = name_of("h", worker / GROUP)};
    (void)snprintf(session.identity, sizeof session.identity, "unix:1000");
    said(j, tb_catalog_session_open(j->catalog, j->now, &session));
    const uint32_t group = worker / GROUP;
    const uint32_t left = j->workers - group * GROUP;
    const struct tb_catalog_member member = {.session = session.id,
                                             .subscription = 1,
                                             .model = name_of("policy", 0),
                                             .group = name_of("g", group),
                                             .index = worker % GROUP,
                                             .count = left < GROUP ? left : GROUP};
    said(j, tb_catalog_subscribe(j->catalog, j->now, &member));
    const struct tb_id uid = id_of(1);
    struct tb_id instead;
    said(j, tb_catalog_stage(j->catalog, j->now, &session.id, 1, &uid, &instead));
    said(j, tb_catalog_export(j->catalog, j->now, &session.id, &uid, (uint64_t)worker + 1, 0, false));
}

static void tell_progress(struct joins *j, uint32_t worker, uint32_t seconds)
{
    const struct tb_catalog_progress p = {.session = worker_id(worker),
                                          .uid = id_of(1),
                                          .held_chunks = seconds * 100,
                                          .total_chunks = CHUNKS,
                                          .bytes_per_s = UINT64_C(100) << 20};
    said(j, tb_catalog_progress(j->catalog, j->now, &p));
}

static void renew(struct joins *j, uint32_t worker)
{
    const struct tb_id id = worker_id(worker);
    said(j, tb_catalog_session_renew(j->catalog, j->now, &id));
}

/* Whether something that comes every `every` since `since` came in the tick that ends at `now`. */
static bool due(tb_time_ns now, tb_time_ns since, tb_time_ns every)
{
    const tb_time_ns age = now - since;
    return age >= every && age / every != (age - TICK_NS) / every;
}

static void pass_tick(struct joins *j, tb_time_ns start)
{
    j->now += TICK_NS;
    const uint32_t upto = (uint32_t)((j->now - start) * j->workers / LEASE_NS);
    for (uint32_t w = 0; w < j->joined; w++) {
        const tb_time_ns since = start + ((tb_time_ns)w * LEASE_NS / j->workers / TICK_NS + 1) * TICK_NS;
        if (due(j->now, since, TB_SECONDS(1)))
            tell_progress(j, w, (uint32_t)((j->now - since) / TB_SECONDS(1)));
        if (due(j->now, since, RENEW_NS)) renew(j, w);
    }
    while (j->joined < upto)
        join(j, j->joined++);
    tb_catalog_tick(j->catalog, j->now);
    drain(j);
    if (j->shows) fprintf(stderr, "\r%u of %u joined", j->joined, j->workers);
}

static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static int run(struct joins *j, bool json)
{
    const struct tb_catalog_limits limits = {.sessions = j->workers + 1,
                                             .references = j->workers + 16,
                                             .groups = j->workers / GROUP + 2,
                                             .members = j->workers + 1,
                                             .versions = 16};
    void *memory = tb_malloc(tb_catalog_bytes(&limits));
    if (memory == NULL) {
        fprintf(stderr, "tombolo-fleet-joins: no memory for a catalog of %u workers\n", j->workers);
        return 1;
    }
    begin(j, memory, &limits);
    land_version(j);
    drain(j);
    const tb_time_ns start = j->now;
    const double before = cpu_s();
    while (j->now < start + LEASE_NS)
        pass_tick(j, start);
    const double spent = cpu_s() - before;
    const double lease = LEASE_NS / 1e9;
    if (j->shows) fprintf(stderr, "\r\033[K");
    printf(json ? "{\"workers\":%u,\"cpu_s\":%.4f,\"lease_s\":%.1f,\"ratio\":%.5f,\"calls_per_s\":%.1f,"
                  "\"plans\":%llu}\n"
                : "%u workers: %.3f s of CPU in a lease of %.0f s = %.4f cores; %.0f calls a second, %llu "
                  "plans\n",
           j->joined, spent, lease, spent / lease, (double)j->calls / lease, (unsigned long long)j->plans);
    tb_free(memory);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"workers", required_argument, NULL, 'w'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct joins j = {.workers = 10000, .shows = isatty(STDERR_FILENO) == 1};
    bool json = false;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h') return fputs(usage_text, stdout) < 0;
        if (option == 'j') {
            json = true;
            continue;
        }
        char *end = NULL;
        const unsigned long n = option == 'w' ? strtoul(optarg, &end, 10) : 0;
        if (n == 0 || n > WORKERS_MAX || *end != '\0') {
            fputs(usage_text, stderr);
            return 2;
        }
        j.workers = (uint32_t)n;
    }
    if (optind < argc) {
        fprintf(stderr, "tombolo-fleet-joins: %s: not an option; see --help\n", argv[optind]);
        return 2;
    }
    return run(&j, json);
}
