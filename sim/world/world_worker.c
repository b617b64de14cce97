/* world_worker.c - a rollout worker: it waits, stages by hops, switches when its group is told to,
 * and serves what it staged. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/catalog/waiters.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/hop/hop_shelf.h"
#include "intra/session_msg.h"
#include "world.h"
#include "world_check.h"
#include "world_clients.h"
#include "world_faults.h"
#include "world_process.h"
#include "world_versions.h"

static struct staged *find(struct worker *k, uint32_t version)
{
    struct staged *st = k->staged;
    while (st != NULL && st->version != version)
        st = st->next;
    return st;
}

static const struct tb_version_key *key_of(uint32_t version)
{
    static const struct tb_version_key none;
    return version == NONE ? &none : &the->versions[version].key;
}

static const struct tb_id *uid_of(uint32_t version)
{
    return &key_of(version)->uid;
}

/* ---- staging ---- */

static struct staged *staged_new(struct worker *k, uint32_t version)
{
    struct staged *st = tb_calloc(1, sizeof *st);
    st->version = version;
    st->next = k->staged;
    k->staged = st;
    return st;
}

static void hop_end(struct staged *st)
{
    if (st->hop != NULL) tb_hop_close(st->hop);
    st->hop = NULL;
    st->base = NULL;
    st->news = (struct tb_hop_event){.why = TB_OK};
    st->has_news = false;
}

static void staged_free(struct worker *k, struct staged *st)
{
    struct staged **at = &k->staged;
    while (*at != st)
        at = &(*at)->next;
    *at = st->next;
    hop_end(st);
    for (struct staged *o = k->staged; o != NULL; o = o->next)
        if (o->base == st) hop_end(o); /* it asks for another source in a while */
    if (st->export_id != 0) tb_export_close(k->c.fabric, st->export_id, 0);
    for (uint32_t s = 0; s < SHARDS_MAX; s++) {
        tb_free(st->memory[s]);
        tb_free(st->bytes[s]);
    }
    tb_free(st->shelf_memory);
    tb_free(st);
}

static void release(struct worker *k, struct staged *st)
{
    const struct tb_msg_release m = {.uid = *uid_of(st->version)};
    if (k->c.up) WORLD_SEND(&k->c, TB_MSG_RELEASE, ++k->c.requests, &m, tb_msg_release_encode);
    staged_free(k, st);
}

static void staging_drop(struct worker *k)
{
    struct staged *st = k->staging != NONE ? find(k, k->staging) : NULL;
    if (st != NULL && k->staging != k->active) release(k, st);
    k->staging = NONE;
    k->asked = false;
    k->stage_id = k->activate_id = 0;
}

static void ask_stage(struct worker *k)
{
    const struct tb_msg_stage m = {.subscription = 1, .uid = *uid_of(k->staging)};
    k->asked = true;
    k->asked_at = the->now;
    k->stage_id = ++k->c.requests;
    WORLD_SEND(&k->c, TB_MSG_STAGE, k->stage_id, &m, tb_msg_stage_encode);
}

static void stage(struct worker *k, uint32_t version)
{
    if (k->staging != NONE && k->staging != version) staging_drop(k);
    k->staging = version;
    if (find(k, version) == NULL) (void)staged_new(k, version);
    world_say("stages v%u", version + 1);
    k->moved_at = the->now;
    ask_stage(k);
}

/* ---- what it has, told ---- */

static uint32_t held_count(const struct staged *st, uint32_t *total_out)
{
    uint32_t held = 0;
    *total_out = 0;
    for (uint32_t s = 0; s < st->key.shard_count; s++) {
        held += tb_place_held_count(&st->place[s]);
        *total_out += st->manifest[s].chunk_count;
    }
    return held;
}

static void say_whole(struct worker *k, const struct staged *st)
{
    if (!st->whole) return;
    TB_ASSERT(st->version < VERSIONS_MAX);
    k->said_whole |= 1u << st->version;
}

/* FAULT_LIE, P3: one that is no member of the engine says that it has all of a version of which it
 * has a part, and the next time says how it is. No version may be lost for it. */
static bool lies(struct worker *k, const struct staged *st)
{
    if (st->whole || !k->solo || !world_strikes(FAULT_LIE, 5000)) return false;
    k->lied |= 1u << st->version;
    world_say("lies that it has all of v%u", st->version + 1);
    return true;
}

static void tell_export(struct worker *k, struct staged *st)
{
    uint32_t total;
    st->lied = lies(k, st);
    const struct tb_msg_export m = {.uid = *uid_of(st->version),
                                    .export_id = st->export_id,
                                    .held_chunks = held_count(st, &total),
                                    .whole = st->whole || st->lied,
                                    .source = {st->source, st->source_bytes}};
    say_whole(k, st);
    WORLD_SEND(&k->c, TB_MSG_EXPORT, 0, &m, tb_msg_export_encode);
}

static void tell_progress(struct worker *k, struct staged *st)
{
    struct tb_msg_progress m = {.uid = *uid_of(st->version), .whole = st->whole};
    const uint32_t told = st->told;
    const tb_time_ns passed = tb_time_since(st->told_at, the->now);
    m.held_chunks = st->told = held_count(st, &m.total_chunks);
    if (passed > 0 && st->told > told)
        m.bytes_per_s = (uint64_t)(st->told - told) * CHUNK_BYTES_MEAN * TB_SECONDS(1) / passed;
    st->told_at = the->now;
    say_whole(k, st);
    st->lied = lies(k, st);
    m.whole = st->whole || st->lied;
    k->progress_at = tb_time_add(the->now, TB_MS(40));
    if (st->whole || st->told != told) k->moved_at = the->now;
    WORLD_SEND(&k->c, TB_MSG_PROGRESS, 0, &m, tb_msg_progress_encode);
}

static void subscribe(struct worker *k)
{
    struct tb_msg_subscribe m = {.subscription = 1,
                                 .member_index = k->index,
                                 .active = *uid_of(k->active),
                                 .active_run_order = key_of(k->active)->run_order,
                                 .active_number = key_of(k->active)->number};
    m.member_count = the->sites[k->site].group_count;
    char group[16] = "engine";
    if (k->solo) {
        (void)snprintf(group, sizeof group, "solo-%u", (unsigned)k->index);
        m.member_index = 0;
        m.member_count = 1;
    }
    enum tb_status status = tb_name_set(&m.model, world_models[k->model]);
    if (status == TB_OK) status = tb_name_set(&m.group, group);
    TB_ASSERT(status == TB_OK);
    k->asked_at = the->now;
    k->subscribe_id = ++k->c.requests;
    WORLD_SEND(&k->c, TB_MSG_SUBSCRIBE, k->subscribe_id, &m, tb_msg_subscribe_encode);
}

/* As the library's announcement: subscriptions and stagings are said again, to any gateway. */
static void welcome(struct client *c, bool same)
{
    struct worker *k = c->owner;
    (void)same;
    k->subscribed = false;
    k->wait_id = k->stage_id = k->activate_id = 0;
    subscribe(k);
    for (struct staged *st = k->staged; st != NULL; st = st->next) {
        if (!st->prepared) continue;
        tell_export(k, st);
        if (st->whole) tell_progress(k, st);
    }
    const struct staged *st = k->staging != NONE ? find(k, k->staging) : NULL;
    if (st != NULL) ask_stage(k);
}

/* ---- manifests and places ---- */

static enum tb_status keep_manifest(struct staged *st, const struct tb_msg_manifest *m)
{
    const size_t bytes = tb_manifest_decode_bytes(m->head.bytes, m->head.count);
    if (bytes == 0 || m->shard >= SHARDS_MAX) return TB_PEER_GARBLED;
    st->memory[m->shard] = tb_malloc(bytes);
    struct tb_manifest *manifest = &st->manifest[m->shard];
    const enum tb_status status =
        tb_manifest_head_decode(m->head.bytes, m->head.count, st->memory[m->shard], bytes, manifest);
    if (status != TB_OK || m->digests.count != manifest->chunk_count * TB_DIGEST_BYTES)
        return TB_PEER_GARBLED;
    memcpy(manifest->digests, m->digests.bytes, m->digests.count);
    const struct tb_digest root = tb_manifest_root(manifest);
    return tb_digest_equal(&root, &manifest->root) ? TB_OK : TB_PEER_GARBLED;
}

static void shelf_make(struct staged *st, struct tb_export_buffer *buffer)
{
    uint32_t chunks = 0;
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < st->key.shard_count; s++) {
        chunks += st->manifest[s].chunk_count;
        bytes += st->manifest[s].bytes;
    }
    const uint64_t count = tb_shelf_bytes(chunks, TB_SHELF_ROOM(bytes));
    st->shelf_memory = tb_calloc(1, count);
    tb_shelf_init(&st->shelf, st->shelf_memory, chunks, TB_SHELF_ROOM(bytes));
    *buffer = (struct tb_export_buffer){.bytes = st->shelf_memory, .count = count, .memfd = -1};
}

/* The whole version in one export: for each shard its bitmap and its bytes, and a shelf behind
 * them. */
static void prepare(struct worker *k, struct staged *st)
{
    struct tb_export_buffer buffers[2 * SHARDS_MAX + 1];
    const struct tb_shelf_at shelf = {.buffer = 2 * st->key.shard_count};
    struct tb_source_shard shards[SHARDS_MAX];
    memset(shards, 0, sizeof shards);
    for (uint32_t s = 0; s < st->key.shard_count; s++) {
        st->bytes[s] = tb_calloc(1, st->manifest[s].bytes);
        st->place[s] = (struct tb_place){.manifest = &st->manifest[s],
                                         .bytes = st->bytes[s],
                                         .held = &st->held[s],
                                         .claimed = &st->claimed[s]};
        buffers[2 * s] =
            (struct tb_export_buffer){.bytes = &st->held[s], .count = sizeof st->held[s], .memfd = -1};
        buffers[2 * s + 1] =
            (struct tb_export_buffer){.bytes = st->bytes[s], .count = st->manifest[s].bytes, .memfd = -1};
        shards[s] = (struct tb_source_shard){.shard = s, .held_buffer = 2 * s, .packed_buffer = 2 * s + 1};
    }
    struct tb_writer w;
    tb_writer_init(&w, st->source, sizeof st->source);
    tb_source_encode(shards, st->key.shard_count, &w);
    TB_ASSERT(!w.full);
    st->source_bytes = (uint32_t)w.used;
    st->export_id = ++k->exports;
    if (k->encoded) shelf_make(st, &buffers[shelf.buffer]);
    const struct tb_export_options options = {.export_id = st->export_id,
                                              .buffers = buffers,
                                              .buffer_count = shelf.buffer + k->encoded,
                                              .shelf = k->encoded ? &shelf : NULL};
    const enum tb_status status = tb_export_open(k->c.fabric, &options);
    TB_ASSERT(status == TB_OK);
    st->prepared = true;
    tell_export(k, st);
}

static enum tb_status take_manifest(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_manifest m;
    if (tb_msg_manifest_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const uint32_t version = world_version_find(&m.uid);
    struct staged *st = find(k, version);
    if (st == NULL || st->prepared || st->memory[m.shard % SHARDS_MAX] != NULL)
        return TB_OK; /* told again, or given up */
    const enum tb_status status = keep_manifest(st, &m);
    if (status == TB_OK && ++st->manifests == st->key.shard_count) prepare(k, st);
    return status;
}

static enum tb_status take_proofs(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_proofs m;
    if (tb_msg_proofs_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    struct staged *st = find(k, world_version_find(&m.uid));
    if (st == NULL || m.shard >= st->key.shard_count || st->memory[m.shard] == NULL) return TB_OK;
    struct tb_manifest *to = &st->manifest[m.shard];
    for (uint32_t i = 0; i < m.proofs.count / TB_BLAKE3_BYTES; i++) {
        struct tb_blake3 proof;
        memcpy(proof.bytes, m.proofs.bytes + (size_t)i * TB_BLAKE3_BYTES, sizeof proof.bytes);
        if (m.first + i >= to->chunk_count) return TB_PEER_GARBLED;
        tb_manifest_set_proof(to, m.first + i, &proof);
    }
    if (st->hop != NULL) tb_hop_proofs_came(st->hop);
    return TB_OK;
}

/* ---- reading ---- */

static void hop_told(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    struct staged *st = user;
    (void)hop;
    if (st->has_news && st->news.kind != TB_HOP_CHUNK_BAD) return;
    st->news = *event;
    st->has_news = true;
}

/* The newest older version that is whole here. */
static void base_set(struct worker *k, struct staged *st, struct tb_hop_base *base_out)
{
    struct staged *best = NULL;
    *base_out = (struct tb_hop_base){.places = NULL};
    for (struct staged *b = k->staged; k->encoded && b != NULL; b = b->next)
        if (b->whole && world_version_compare(b->version, st->version) < 0 &&
            (best == NULL || world_version_compare(b->version, best->version) > 0))
            best = b;
    st->base = best;
    if (best == NULL) return;
    for (uint32_t s = 0; s < st->key.shard_count; s++)
        st->base_places[s] = &best->place[s];
    *base_out = (struct tb_hop_base){.uid = best->key.uid, .places = st->base_places};
}

static enum tb_status take_plan(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_plan m;
    if (tb_msg_plan_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    struct staged *st = find(k, world_version_find(&m.uid));
    if (st == NULL || !st->prepared || st->whole) return TB_OK;
    hop_end(st);
    st->plan = m.plan;
    const size_t bytes = tb_source_decode_bytes(m.source.bytes, m.source.count);
    if (bytes == 0) return TB_PEER_GARBLED;
    void *memory = tb_malloc(bytes);
    const struct tb_source_shard *shards;
    uint32_t count = 0;
    enum tb_status status = tb_source_decode(m.source.bytes, m.source.count, memory, bytes, &shards, &count);
    for (uint32_t i = 0; status == TB_OK && i < count; i++)
        status = shards[i].shard < st->key.shard_count
                     ? tb_source_check(&shards[i], &st->manifest[shards[i].shard])
                     : TB_PEER_GARBLED;
    struct tb_hop_place places[SHARDS_MAX];
    for (uint32_t s = 0; s < st->key.shard_count; s++)
        places[s] = (struct tb_hop_place){s, &st->place[s]};
    struct tb_hop_base base;
    base_set(k, st, &base);
    struct tb_hop_options options = {.export_id = m.export_id,
                                     .token = m.token,
                                     .source = shards,
                                     .source_count = count,
                                     .places = places,
                                     .place_count = st->key.shard_count,
                                     .base = &base,
                                     .shelf = k->encoded ? &st->shelf : NULL,
                                     .foreign = m.foreign,
                                     .order_seed = k->index * 3,
                                     .fn = hop_told,
                                     .user = st};
    options.from.host = m.host;
    (void)snprintf(options.from.shm_door, sizeof options.from.shm_door, "%.107s", m.shm_door.text);
    if (status == TB_OK) status = tb_hop_open(k->c.fabric, &options, &st->hop);
    tb_free(memory);
    return status;
}

static void tell_lost(struct worker *k, struct staged *st)
{
    const struct tb_hop_event e = st->news;
    const struct tb_msg_chunk_bad bad = {*uid_of(st->version), st->plan, e.shard, e.chunk, false};
    const struct tb_msg_hop_lost lost = {*uid_of(st->version), st->plan, tb_msg_status_put(e.why)};
    hop_end(st);
    k->asked_at = the->now;
    if (!k->c.up) return;
    if (e.kind == TB_HOP_CHUNK_BAD)
        WORLD_SEND(&k->c, TB_MSG_CHUNK_BAD, 0, &bad, tb_msg_chunk_bad_encode);
    else
        WORLD_SEND(&k->c, TB_MSG_HOP_LOST, 0, &lost, tb_msg_hop_lost_encode);
}

static void look(struct worker *k, struct staged *st)
{
    uint32_t total = 0;
    if (!st->prepared) return;
    const uint32_t held = held_count(st, &total);
    for (uint32_t s = 0; s < st->key.shard_count; s++)
        world_check_place(&st->place[s], st->version, s, &st->seen[s], k->c.process->name);
    if (!st->whole && held == total) {
        st->whole = true;
        hop_end(st);
        if (st->shelf_memory != NULL) tb_shelf_close(&st->shelf);
        if (k->c.up) tell_progress(k, st);
    }
    if (st->has_news && st->news.kind != TB_HOP_OPENED) tell_lost(k, st);
    const bool stands = st->hop != NULL && the->now >= tb_time_add(st->told_at, TB_SECONDS(1));
    if (k->c.up && (held != st->told || stands || st->lied) && the->now >= k->progress_at)
        tell_progress(k, st);
}

static enum tb_status take_grant(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_grant m;
    if (tb_msg_grant_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const enum tb_status status = tb_export_grant(k->c.fabric, m.export_id, &m.token, &m.reader);
    const struct tb_msg_granted answer = {m.token, tb_msg_status_put(status)};
    WORLD_SEND(&k->c, TB_MSG_GRANTED, 0, &answer, tb_msg_granted_encode);
    return TB_OK;
}

/* ---- the switch ---- */

static void activate(struct worker *k)
{
    const uint32_t version = k->staging, old = k->active;
    world_check_active(k, version);
    k->active = version;
    k->staging = NONE;
    k->asked = false;
    k->activate_id = 0;
    world_say("computes from v%u", version + 1);
    const struct tb_msg_activated m = {.subscription = 1,
                                       .uid = *uid_of(version),
                                       .run_order = key_of(version)->run_order,
                                       .number = key_of(version)->number};
    if (k->c.up) WORLD_SEND(&k->c, TB_MSG_ACTIVATED, 0, &m, tb_msg_activated_encode);
    struct staged *st = old != NONE && old != version ? find(k, old) : NULL;
    if (st != NULL) release(k, st);
}

static void ask_activate(struct worker *k)
{
    const struct tb_msg_activate m = {.subscription = 1, .uid = *uid_of(k->staging)};
    k->activate_id = ++k->c.requests;
    WORLD_SEND(&k->c, TB_MSG_ACTIVATE, k->activate_id, &m, tb_msg_activate_encode);
}

/* ---- frames ---- */

/* "the group stages HEX" */
static void stage_refused(struct worker *k, enum tb_status status, const char *why)
{
    struct tb_id uid;
    k->stage_id = 0;
    k->asked_at = the->now;
    if (status == TB_CONFLICT && strncmp(why, "the group stages ", 17) == 0 && tb_id_parse(why + 17, &uid)) {
        staging_drop(k);
        k->next = world_version_find(&uid);
        return;
    }
    const struct staged *st = find(k, k->staging);
    if (st != NULL && st->hop != NULL) return; /* it is read while its source gives */
    staging_drop(k);
}

static enum tb_status take_reply(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_reply m;
    if (tb_msg_reply_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const enum tb_status status = tb_msg_status_get(m.status_negated);
    if (f->request == k->subscribe_id) {
        k->subscribe_id = 0;
        k->subscribed = status == TB_OK;
    } else if (f->request == k->wait_id) {
        k->wait_id = 0;
        k->asked_at = the->now;
    } else if (f->request == k->stage_id && k->staging != NONE) {
        stage_refused(k, status, m.why.text);
    } else if (f->request == k->activate_id && k->staging != NONE) {
        k->activate_id = 0;
        if (status == TB_OK)
            activate(k);
        else if (status != TB_AGAIN)
            staging_drop(k);
    }
    return TB_OK;
}

static enum tb_status take_version(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_version m;
    if (tb_msg_version_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (f->request != k->wait_id) return TB_OK;
    k->wait_id = 0;
    k->next = world_version_find(&m.key.uid);
    return TB_OK;
}

static enum tb_status take_manifests(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_manifests m;
    if (tb_msg_manifests_decode(&f->payload, &m) != TB_OK || m.shard_count > SHARDS_MAX)
        return TB_PEER_GARBLED;
    struct staged *st = find(k, world_version_find(&m.key.uid));
    if (f->request == k->stage_id) k->stage_id = 0;
    if (st == NULL) return TB_OK;
    if (!st->prepared) st->key = m.key;
    if (st->whole) tell_progress(k, st);
    return TB_OK;
}

static enum tb_status take_go(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_go m;
    if (tb_msg_go_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    struct staged *st = find(k, world_version_find(&m.uid));
    if (st != NULL) st->go = true;
    return TB_OK;
}

static enum tb_status take_state(struct worker *k, struct tb_wire_frame *f)
{
    struct tb_msg_version_state m;
    if (tb_msg_version_state_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const enum tb_status status = tb_msg_status_get(m.status_negated);
    const uint32_t version = world_version_find(&m.uid);
    struct staged *st = find(k, version);
    if (status == TB_OK || st == NULL || version != k->staging) return TB_OK;
    world_say("hears of v%u: %s", version + 1, tb_status_name(status));
    if (status != TB_GROUP_BROKEN) {
        staging_drop(k);
        return TB_OK;
    }
    k->asked = st->go = false; /* what is here stays; it is asked for again */
    return TB_OK;
}

static enum tb_status frame(struct client *c, struct tb_wire_frame *f)
{
    struct worker *k = c->owner;
    switch (f->type) {
    case TB_MSG_REPLY:
        return take_reply(k, f);
    case TB_MSG_VERSION:
        return take_version(k, f);
    case TB_MSG_MANIFESTS:
        return take_manifests(k, f);
    case TB_MSG_MANIFEST:
        return take_manifest(k, f);
    case TB_MSG_PROOFS:
        return take_proofs(k, f);
    case TB_MSG_PLAN:
        return take_plan(k, f);
    case TB_MSG_GRANT:
        return take_grant(k, f);
    case TB_MSG_GO:
        return take_go(k, f);
    case TB_MSG_VERSION_STATE:
        return take_state(k, f);
    default:
        return TB_PEER_GARBLED;
    }
}

/* ---- its life ---- */

static void ask_wait(struct worker *k)
{
    struct tb_msg_wait m = {.kind = TB_CATALOG_WAIT_LATEST, .after = *uid_of(k->active), .timeout_ms = 3000};
    if (world_random(4) == 0) m.kind = TB_CATALOG_WAIT_NEXT; /* staged while it crosses */
    const enum tb_status status = tb_name_set(&m.model, world_models[k->model]);
    TB_ASSERT(status == TB_OK);
    k->wait_id = ++k->c.requests;
    WORLD_SEND(&k->c, TB_MSG_WAIT, k->wait_id, &m, tb_msg_wait_encode);
}

/* With nothing on its way for a while it asks again, as a rollout's loop does. */
static void go_on(struct worker *k)
{
    const bool rested = tb_time_since(k->asked_at, the->now) >= TB_MS(100);
    const struct staged *st = k->staging != NONE ? find(k, k->staging) : NULL;
    if (!k->subscribed) {
        if (k->subscribe_id == 0 && rested) subscribe(k);
    } else if (k->staging == NONE && k->next != NONE) {
        const uint32_t version = k->next;
        k->next = NONE;
        stage(k, version);
    } else if (k->staging == NONE && k->wait_id == 0 && rested) {
        ask_wait(k);
    } else if (st != NULL && !st->whole && tb_time_since(k->moved_at, the->now) >= TB_SECONDS(5)) {
        staging_drop(k); /* a rollout waits so long and no longer for one version */
    } else if (st != NULL && !k->asked) {
        ask_stage(k);
    } else if (st != NULL && st->whole && st->go && k->activate_id == 0) {
        ask_activate(k);
    } else if (st != NULL && (st->whole ? !st->go : st->hop == NULL) &&
               tb_time_since(k->asked_at, the->now) >= TB_SECONDS(1)) {
        ask_stage(
            k); /* its source went, or a gateway that came back did not know the version when it was asked */
    }
}

void world_worker_start(struct worker *k)
{
    k->c.owner = k;
    k->c.frame = frame;
    k->c.welcome = welcome;
    k->staged = NULL;
    k->staging = k->active = k->next = NONE;
    k->subscribed = k->asked = false;
    k->subscribe_id = k->wait_id = k->stage_id = k->activate_id = 0;
    k->exports = 0;
    world_client_start(&k->c);
}

void world_worker_end(struct worker *k, bool leave)
{
    const struct tb_msg_unsubscribe m = {.subscription = 1};
    the->current = k->c.process;
    world_say(leave ? "leaves" : "is killed");
    if (leave && k->c.up)
        WORLD_SEND(&k->c, TB_MSG_UNSUBSCRIBE, ++k->c.requests, &m, tb_msg_unsubscribe_encode);
    the->current = NULL;
    k->staged = NULL;
    k->active = k->staging = NONE;
    world_process_end(k->c.process, false);
}

void world_worker_step(struct worker *k)
{
    the->current = k->c.process;
    world_client_step(&k->c);
    for (struct staged *st = k->staged, *next; st != NULL; st = next) {
        next = st->next;
        look(k, st);
    }
    const struct staged *st = k->staging != NONE ? find(k, k->staging) : NULL;
    if (k->c.up)
        go_on(k);
    else if (st != NULL && st->go && st->whole)
        activate(k); /* a go that was heard stays good while the gateway is away */
    the->current = NULL;
}
