/* world_site.c - a gateway: its catalog, its copies, and at home the trainer that publishes. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "world.h"

static const struct tb_catalog_limits limits = {.models = 1,
                                                .runs = 4,
                                                .versions = 16,
                                                .shards = 1,
                                                .sessions = 32,
                                                .references = 128,
                                                .groups = 2,
                                                .members = 16,
                                                .waits = 32,
                                                .sites = 4};

void world_site_open(struct world *w, uint32_t index)
{
    static const char *const names[SITES_MAX] = {"east", "west", "north", "south"};
    struct site *s = &w->sites[index];
    enum tb_status status = tb_name_set(&s->name, names[index]);
    s->index = index;
    s->memory = calloc(1, tb_catalog_bytes(&limits));
    TB_ASSERT(status == TB_OK && s->memory != NULL);
    const struct tb_catalog_config config = {
        .site = s->name, .host = s->name, .lease_ns = TB_SECONDS(10), .tick_ns = TB_MS(100)};
    s->catalog = tb_catalog_init(s->memory, &limits, &config, w->now);
    struct tb_catalog_model model = {.is_home = index == 0, .subscribed = index != 0, .keep = 2};
    status = tb_name_set(&model.name, "policy");
    TB_ASSERT(status == TB_OK && tb_name_set(&model.home, "east") == TB_OK);
    status = tb_catalog_model_add(s->catalog, &model);
    TB_ASSERT(status == TB_OK);
    s->worker_count = 1 + (uint32_t)world_random(w, WORKERS_MAX);
    for (uint32_t i = 0; i < s->worker_count; i++)
        s->workers[i].index = i;
}

static void evict(struct world *w, struct site *s, uint32_t version)
{
    if (version == VERSIONS_MAX) return;
    s->copies[version].there = false;
    for (uint32_t from = 0; from < w->site_count; from++)
        w->crossings[from][s->index][version].acked = 0;
    world_gone(w, s->index, version);
    world_say(w, "%s > evicts v%u", s->name.text, version + 1);
    (void)!tb_catalog_evicted(s->catalog, w->now, &w->versions[version].key.uid);
}

static void version_state(struct world *w, struct site *s, const struct tb_catalog_todo *todo,
                          uint32_t version)
{
    world_say(w, "%s > v%u %s", s->name.text, version + 1, tb_catalog_state_name(todo->state));
    if (todo->state == TB_VERSION_ENDED_LOST || todo->state == TB_VERSION_ENDED_BROKEN)
        world_fail(w, "v%u is %s at %s though the trainer holds it or held it until it was kept", version + 1,
                   tb_catalog_state_name(todo->state), s->name.text);
    if (s->index != 0 || todo->state != TB_VERSION_READY) return;
    w->versions[version].key = todo->key;
    w->versions[version].ready = true;
    world_announce(w, 0, version);
}

void world_settle(struct world *w, struct site *s)
{
    struct tb_catalog_todo todo;
    while (tb_catalog_next(s->catalog, &todo)) {
        const struct tb_id uid = tb_id_is_zero(&todo.uid) ? todo.key.uid : todo.uid;
        const uint32_t version = world_version_find(w, &uid);
        todo.uid = uid;
        switch (todo.kind) {
        case TB_CATALOG_PERSIST_VERSION:
            if (version != VERSIONS_MAX) version_state(w, s, &todo, version);
            break;
        case TB_CATALOG_LAND_FROM:
            s->rank_open[version] = true;
            break;
        case TB_CATALOG_LAND_END:
            s->rank_open[version] = false;
            break;
        case TB_CATALOG_CROSS:
            world_ask(w, s->index, &todo);
            break;
        case TB_CATALOG_EVICT:
            evict(w, s, version);
            break;
        case TB_CATALOG_GO:
        case TB_CATALOG_PLAN:
        case TB_CATALOG_PLAN_END:
        case TB_CATALOG_ANSWER:
        case TB_CATALOG_TELL:
            world_worker_todo(w, s, &todo);
            break;
        default:
            break;
        }
    }
}

/* The home gateway reads the rank: one chunk a step, so that the version fills while it crosses. */
static void land_home(struct world *w, struct site *s, uint32_t version)
{
    struct store *copy = &s->copies[version];
    const struct store *rank = &w->versions[version].rank;
    const uint32_t chunks = w->versions[version].manifest.chunk_count;
    for (uint32_t times = 0; times < 2; times++) {
        const uint32_t k = tb_bitmap_next_clear(copy->held, chunks, 0);
        uint32_t bytes;
        if (k == chunks || !tb_place_claim(&copy->place, k)) return;
        uint8_t *at = tb_place_chunk(&copy->place, k, &bytes);
        memcpy(at, tb_place_chunk(&rank->place, k, &bytes), bytes);
        if (tb_place_finish(&copy->place, k) != TB_OK) world_fail(w, "P1: home could not land chunk %u", k);
    }
}

void world_site_step(struct world *w, struct site *s)
{
    tb_catalog_tick(s->catalog, w->now);
    for (uint32_t v = 0; v < w->published; v++) {
        struct store *copy = &s->copies[v];
        if (!copy->there) continue;
        if (s->index == 0 && s->rank_open[v]) land_home(w, s, v);
        world_check_bytes(w, copy, v, s->name.text);
        (void)!tb_catalog_arena_progress(s->catalog, w->now, &w->versions[v].key.uid, 0,
                                         tb_place_held_count(&copy->place));
    }
    world_settle(w, s);
    for (uint32_t i = 0; i < s->worker_count; i++) {
        world_worker_step(w, s, &s->workers[i]);
        world_settle(w, s);
    }
}

static void trainer_begin(struct world *w)
{
    struct tb_catalog_session q = {.id = world_id(w), .identity = "unix:1"};
    struct tb_catalog_run run = {0};
    struct tb_catalog_run_request r = {.key = "run", .fresh_id = world_id(w)};
    bool joined;
    w->trainer = r.session = q.id;
    enum tb_status status = tb_name_set(&q.name, "rank");
    if (status == TB_OK) status = tb_name_set(&q.host, "trainer");
    if (status == TB_OK) status = tb_name_set(&r.model, "policy");
    if (status == TB_OK) status = tb_catalog_session_open(w->sites[0].catalog, w->now, &q);
    if (status == TB_OK) status = tb_catalog_run_open(w->sites[0].catalog, w->now, &r, &run, &joined);
    TB_ASSERT(status == TB_OK);
    w->run = run.id;
}

static void publish(struct world *w)
{
    struct tb_catalog *c = w->sites[0].catalog;
    const uint32_t v = w->published;
    world_version_make(w, v);
    struct version *made = &w->versions[v];
    struct tb_catalog_version_request q = {
        .session = w->trainer, .run = w->run, .number = v + 1, .shard_count = 1, .fresh_uid = world_id(w)};
    enum tb_status status = tb_name_set(&q.model, "policy");
    if (status == TB_OK) status = tb_catalog_version_open(c, w->now, &q, &made->key);
    const struct tb_catalog_seal seal = {.session = w->trainer,
                                         .uid = made->key.uid,
                                         .root = made->manifest.root,
                                         .layout_id = made->manifest.layout.id,
                                         .chunk_count = made->manifest.chunk_count,
                                         .bytes = made->manifest.bytes,
                                         .export_id = v + 1};
    w->published++;
    if (status == TB_OK) status = tb_catalog_seal(c, w->now, &seal);
    if (status != TB_OK) world_fail(w, "publish of v%u: %s", v + 1, tb_status_name(status));
    world_store_init(w, &w->sites[0].copies[v], v);
    (void)!tb_catalog_arena_reserved(c, w->now, &made->key.uid);
    world_say(w, "rank > publishes v%u", v + 1);
}

/* Hold never waits for a link: a publish is answered in the call, whatever the links do. */
void world_trainer_step(struct world *w)
{
    if (tb_id_is_zero(&w->run)) trainer_begin(w);
    (void)!tb_catalog_session_renew(w->sites[0].catalog, w->now, &w->trainer);
    if (w->published == w->version_count || w->now < w->publish_at) return;
    publish(w);
    w->publish_at = w->now + TB_MS(50 + world_random(w, 1500));
    world_settle(w, &w->sites[0]);
}
