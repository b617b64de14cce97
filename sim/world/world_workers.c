/* world_workers.c - rollout workers: they wait, stage by hops, switch together, and come back after a crash. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "world.h"

/* The catalog hears of it: what was planned for this staging is planned anew with the next. */
static void drop_staging(struct world *w, struct site *s, struct worker *k)
{
    if (k->staging < VERSIONS_MAX && k->staging != k->active)
        (void)!tb_catalog_release(s->catalog, w->now, &k->session, &w->versions[k->staging].key.uid);
    if (k->staging < VERSIONS_MAX && k->staging != k->active) k->copies[k->staging].there = false;
    k->staging = VERSIONS_MAX;
    k->plan = 0;
    k->source = NULL;
}

static bool subscribe(struct world *w, struct site *s, struct worker *k)
{
    struct tb_catalog_member m = {
        .session = k->session, .subscription = 1, .index = k->index, .count = s->worker_count};
    TB_ASSERT(tb_name_set(&m.model, "policy") == TB_OK && tb_name_set(&m.group, "engine") == TB_OK);
    return tb_catalog_subscribe(s->catalog, w->now, &m) == TB_OK;
}

static void come(struct world *w, struct site *s, struct worker *k)
{
    struct tb_catalog_session q = {.id = world_id(w), .identity = "unix:2"};
    char text[16];
    (void)snprintf(text, sizeof text, "w%u", (unsigned)k->index);
    TB_ASSERT(tb_name_set(&q.name, text) == TB_OK);
    (void)snprintf(text, sizeof text, "host%u", (unsigned)(k->index / 2));
    TB_ASSERT(tb_name_set(&q.host, text) == TB_OK);
    const uint32_t index = k->index;
    memset(k, 0, sizeof *k);
    k->index = index;
    k->staging = k->active = VERSIONS_MAX;
    k->session = q.id;
    k->here = tb_catalog_session_open(s->catalog, w->now, &q) == TB_OK && subscribe(w, s, k);
    if (!k->here) world_fail(w, "%s could not come to %s", q.name.text, s->name.text);
}

static void crash(struct world *w, struct site *s, struct worker *k)
{
    world_say(w, "%s > w%u dies", s->name.text, k->index);
    w->struck[FAULT_CRASH]++;
    k->here = false;
    k->back_at = w->now + TB_MS(world_random(w, 1000));
    for (uint32_t i = 0; i < s->worker_count; i++) { /* who reads from it loses its hop */
        struct worker *reader = &s->workers[i];
        if (!reader->here || reader->source == NULL || reader->source_index != k->index) continue;
        const struct tb_id uid = w->versions[reader->staging].key.uid;
        const uint64_t plan = reader->plan;
        reader->source = NULL;
        (void)!tb_catalog_hop_lost(s->catalog, w->now, &reader->session, &uid, plan);
    }
    tb_catalog_session_close(s->catalog, w->now, &k->session);
}

static void wait_latest(struct world *w, struct site *s, struct worker *k)
{
    struct tb_catalog_wait q = {.handle = ++w->waits,
                                .session = k->session,
                                .kind = TB_CATALOG_WAIT_LATEST,
                                .deadline = TB_TIME_NEVER};
    if (k->active < VERSIONS_MAX) q.after = w->versions[k->active].key.uid;
    TB_ASSERT(tb_name_set(&q.model, "policy") == TB_OK);
    if (tb_catalog_wait(s->catalog, w->now, &q) == TB_OK) k->wait = q.handle;
}

static void stage(struct world *w, struct site *s, struct worker *k, const struct tb_id *uid)
{
    struct tb_id instead;
    enum tb_status status = tb_catalog_stage(s->catalog, w->now, &k->session, 1, uid, &instead);
    if (status == TB_CONFLICT)
        status = tb_catalog_stage(s->catalog, w->now, &k->session, 1, &instead, &instead);
    if (status != TB_OK) return;
    k->staging = world_version_find(w, &instead);
    k->told = 0;
    if (!k->copies[k->staging].there) world_store_init(w, &k->copies[k->staging], k->staging);
    (void)!tb_catalog_export(s->catalog, w->now, &k->session, &instead, k->staging + 1, 0, false);
    world_say(w, "%s > w%u stages v%u", s->name.text, k->index, k->staging + 1);
}

static void plan(struct world *w, struct site *s, struct worker *k, const struct tb_catalog_todo *todo)
{
    const uint32_t version = world_version_find(w, &todo->uid);
    if (version != k->staging) return;
    k->plan = todo->plan;
    k->source = todo->from_gateway ? &s->copies[version] : NULL;
    k->source_index = WORKERS_MAX;
    for (uint32_t i = 0; !todo->from_gateway && i < s->worker_count; i++) {
        if (!tb_id_equal(&s->workers[i].session, &todo->source_session)) continue;
        k->source = &s->workers[i].copies[version];
        k->source_index = i;
    }
    if (k->source == NULL) { /* the publisher itself: only the gateway reads it here */
        (void)!tb_catalog_hop_lost(s->catalog, w->now, &k->session, &todo->uid, todo->plan);
        return;
    }
    const uint32_t chunks = w->versions[version].manifest.chunk_count;
    TB_ASSERT(tb_hop_shard_words(chunks) <= sizeof k->hop_memory / sizeof k->hop_memory[0]);
    k->source_shard = (struct tb_source_shard){0};
    k->hop_shard = (struct tb_hop_shard){
        .source = &k->source_shard, .place = &k->copies[version].place, .memory = k->hop_memory};
    tb_hop_state_init(&k->hop, &k->hop_shard, 1, 0, w->now);
}

/* P2: a group's active version is whole, right and never older than before. */
static void activated(struct world *w, struct site *s, struct worker *k, uint32_t version)
{
    struct store *copy = &k->copies[version];
    if (!tb_place_whole(&copy->place))
        world_fail(w, "P2: w%u switched to a mix of v%u", k->index, version + 1);
    if (k->active != VERSIONS_MAX && version <= k->active) world_fail(w, "P2: w%u went backwards", k->index);
    const uint32_t old = k->active;
    k->active = version;
    k->staging = VERSIONS_MAX;
    k->source = NULL;
    (void)!tb_catalog_activated(s->catalog, w->now, &k->session, 1, &w->versions[version].key.uid);
    if (old != VERSIONS_MAX) {
        (void)!tb_catalog_release(s->catalog, w->now, &k->session, &w->versions[old].key.uid);
        k->copies[old].there = false;
    }
    world_say(w, "%s > w%u computes from v%u", s->name.text, k->index, version + 1);
}

static void go(struct world *w, struct site *s, struct worker *k, uint32_t version)
{
    if (version != k->staging) return;
    const enum tb_status status =
        tb_catalog_activate(s->catalog, w->now, &k->session, 1, &w->versions[version].key.uid);
    if (status == TB_OK) activated(w, s, k, version);
}

void world_worker_todo(struct world *w, struct site *s, const struct tb_catalog_todo *todo)
{
    struct worker *k = NULL;
    for (uint32_t i = 0; i < s->worker_count; i++)
        if (s->workers[i].here && tb_id_equal(&s->workers[i].session, &todo->session)) k = &s->workers[i];
    if (k == NULL) return;
    const uint32_t version = world_version_find(w, &todo->uid);
    switch (todo->kind) {
    case TB_CATALOG_ANSWER:
        k->wait = 0;
        if (todo->status == TB_OK) stage(w, s, k, &todo->key.uid);
        return;
    case TB_CATALOG_PLAN:
        plan(w, s, k, todo);
        return;
    case TB_CATALOG_PLAN_END:
        k->source = NULL;
        return;
    case TB_CATALOG_GO:
        go(w, s, k, version);
        return;
    case TB_CATALOG_TELL:
        if (todo->status != TB_OK && version == k->staging) drop_staging(w, s, k);
        return;
    default:
        return;
    }
}

/* One chunk a step, after the snapshot that showed its bit. */
static void read_on(struct world *w, struct site *s, struct worker *k)
{
    const uint32_t chunks = w->versions[k->staging].manifest.chunk_count;
    struct tb_hop_aim aim;
    uint32_t first, count, bytes;
    if (!k->source->there) {
        k->source = NULL;
        (void)!tb_catalog_hop_lost(s->catalog, w->now, &k->session, &w->versions[k->staging].key.uid,
                                   k->plan);
        return;
    }
    if (w->now >= k->hop.poll_at && tb_hop_poll_words(&k->hop, 0, &first, &count)) {
        if (tb_hop_seen(&k->hop, 0, first, k->source->held + first, count) != TB_OK)
            world_fail(w, "a bitmap of %u chunks was refused", chunks);
        tb_hop_round_done(&k->hop, w->now);
    }
    if (!tb_hop_next(&k->hop, &aim)) return;
    struct tb_place *place = &k->copies[k->staging].place;
    uint8_t *at = tb_place_chunk(place, aim.chunk, &bytes);
    memcpy(at, tb_place_chunk(&k->source->place, aim.chunk, &bytes), bytes);
    const bool rots = w->on[FAULT_CORRUPT] && world_chance(w, 20);
    if (rots) at[0] ^= 1;
    w->struck[FAULT_CORRUPT] += rots;
    if (tb_place_finish(place, aim.chunk) == TB_OK)
        tb_hop_landed(&k->hop, &aim);
    else if (tb_hop_failed(&k->hop, &aim)) {
        k->source = NULL;
        (void)!tb_catalog_hop_lost(s->catalog, w->now, &k->session, &w->versions[k->staging].key.uid,
                                   k->plan);
    }
}

static void tell_progress(struct world *w, struct site *s, struct worker *k)
{
    struct store *copy = &k->copies[k->staging];
    const uint32_t chunks = w->versions[k->staging].manifest.chunk_count,
                   held = tb_place_held_count(&copy->place);
    world_check_bytes(w, copy, k->staging, "a worker");
    if (held == k->told) return;
    k->told = held;
    const struct tb_catalog_progress p = {.session = k->session,
                                          .uid = w->versions[k->staging].key.uid,
                                          .held_chunks = held,
                                          .total_chunks = chunks,
                                          .whole = held == chunks};
    (void)!tb_catalog_progress(s->catalog, w->now, &p);
}

void world_worker_step(struct world *w, struct site *s, struct worker *k)
{
    if (!k->here) {
        if (w->now >= k->back_at) come(w, s, k);
        return;
    }
    if (w->now < k->paused_until) return;
    if (w->on[FAULT_CRASH] && world_chance(w, 2)) {
        crash(w, s, k);
        return;
    }
    if (w->on[FAULT_PAUSE] && world_chance(w, 2)) {
        k->paused_until = w->now + TB_MS(world_random(w, 2000));
        w->struck[FAULT_PAUSE]++;
        return;
    }
    (void)!tb_catalog_session_renew(s->catalog, w->now, &k->session);
    if (k->staging == VERSIONS_MAX && k->wait == 0) wait_latest(w, s, k);
    if (k->staging == VERSIONS_MAX) return;
    if (k->source != NULL) read_on(w, s, k);
    if (k->staging != VERSIONS_MAX) tell_progress(w, s, k);
}
