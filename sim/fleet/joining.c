/* joining.c - see joining.h. */
#include "sim/fleet/joining.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/todos.h"
#include "gateway/catalog/version_state.h"
#include "gateway/catalog/workers.h"

#define SHARE           4u /* one identity, as all workers here have, gets a quarter of a table */
#define GROUP           8  /* workers of an engine, and of a host */
#define CHUNKS          8192
#define TICK_NS         TB_MS(100)
#define RENEW_NS        (TB_JOINING_LEASE / 3)
#define FIRST_WORKER_ID 100

struct joins {
    struct tb_catalog *catalog;
    tb_time_ns now;
    uint32_t workers, joined;
    uint64_t calls, plans;
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
                                             .lease_ns = TB_JOINING_LEASE,
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
    const uint32_t upto = (uint32_t)((j->now - start) * j->workers / TB_JOINING_LEASE);
    for (uint32_t w = 0; w < j->joined; w++) {
        const tb_time_ns since =
            start + ((tb_time_ns)w * TB_JOINING_LEASE / j->workers / TICK_NS + 1) * TICK_NS;
        if (due(j->now, since, TB_SECONDS(1)))
            tell_progress(j, w, (uint32_t)((j->now - since) / TB_SECONDS(1)));
        if (due(j->now, since, RENEW_NS)) renew(j, w);
    }
    while (j->joined < upto)
        join(j, j->joined++);
    tb_catalog_tick(j->catalog, j->now);
    drain(j);
}

enum tb_status tb_joining_run(uint32_t workers, void (*tick)(uint32_t joined),
                              struct tb_joining_result *result_out)
{
    struct joins j = {.workers = workers};
    const struct tb_catalog_limits limits = {.sessions = SHARE * (workers + 1),
                                             .references = SHARE * (workers + 1) + 16,
                                             .groups = SHARE * (workers / GROUP + 2),
                                             .members = SHARE * (workers + 1),
                                             .versions = 16};
    TB_ASSERT(workers > 0 && workers <= TB_JOINING_WORKERS_MAX);
    void *memory = tb_malloc(tb_catalog_bytes(&limits));
    if (memory == NULL) return TB_SITE_NOMEM;
    begin(&j, memory, &limits);
    land_version(&j);
    drain(&j);
    const tb_time_ns start = j.now;
    while (j.now < start + TB_JOINING_LEASE) {
        pass_tick(&j, start);
        if (tick != NULL) tick(j.joined);
    }
    *result_out = (struct tb_joining_result){.calls = j.calls, .plans = j.plans};
    tb_free(memory);
    return TB_OK;
}
