/* world_trainer.c - the trainer's rank: a run, versions one after another, each sealed and kept in
 * its memory. A trainer that died comes back with a new run and an older step. */
#include <string.h>

#include "base/assert.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/session_msg.h"
#include "world.h"
#include "world_check.h"
#include "world_clients.h"
#include "world_faults.h"
#include "world_process.h"
#include "world_versions.h"

#define RETAINED 3u /* versions of its life that it seals again for a gateway that forgot them */

static void run_open(struct trainer *t)
{
    struct tb_msg_run_open m = {0};
    const enum tb_status status = tb_name_set(&m.model, world_models[t->model]);
    TB_ASSERT(status == TB_OK);
    (void)snprintf(m.key.text, sizeof m.key.text, "%s", t->key);
    t->run_id = ++t->c.requests;
    WORLD_SEND(&t->c, TB_MSG_RUN_OPEN, t->run_id, &m, tb_msg_run_open_encode);
}

static void export_version(struct trainer *t, uint32_t v)
{
    struct tb_export_buffer buffers[SHARDS_MAX];
    struct version *made = &the->versions[v];
    if (t->exported[v]) return;
    t->exported[v] = true;
    for (uint32_t s = 0; s < made->shard_count; s++)
        buffers[s] = (struct tb_export_buffer){
            .bytes = made->shards[s].bytes, .count = made->shards[s].manifest.bytes, .memfd = -1};
    const struct tb_export_options options = {
        .export_id = v + 1, .buffers = buffers, .buffer_count = made->shard_count};
    const enum tb_status status = tb_export_open(t->c.fabric, &options);
    TB_ASSERT(status == TB_OK);
}

static uint64_t seal(struct trainer *t, uint32_t v, uint32_t shard)
{
    uint8_t head[4096], source[256];
    struct tb_writer w, ws;
    const struct tb_manifest *m = &the->versions[v].shards[shard].manifest;
    const struct tb_source_shard s = {
        .shard = shard, .held_buffer = TB_SOURCE_ALL_HELD, .packed_buffer = shard};
    tb_writer_init(&w, head, sizeof head);
    tb_manifest_head_encode(m, &w);
    tb_writer_init(&ws, source, sizeof source);
    tb_source_encode(&s, 1, &ws);
    TB_ASSERT(!w.full && !ws.full);
    export_version(t, v);
    t->may_go[v] = false;
    const uint32_t before = world_version_before(v);
    const bool encodes = t->encodes && before != NONE && before >= t->first;
    const struct tb_msg_seal q = {.uid = the->versions[v].key.uid,
                                  .shard = shard,
                                  .export_id = v + 1,
                                  .head = {head, (uint32_t)w.used},
                                  .digests = {(const uint8_t *)m->digests, m->chunk_count * TB_DIGEST_BYTES},
                                  .source = {source, (uint32_t)ws.used},
                                  .base = encodes ? the->versions[before].key.uid : (struct tb_id){{0}}};
    const uint64_t id = ++t->c.requests;
    WORLD_SEND(&t->c, TB_MSG_SEAL, id, &q, tb_msg_seal_encode);
    return id;
}

/* Shards of this rank that may still be needed, and the answers about the version in hand. The
 * library keeps its shadows until they are kept. */
static void seal_again(struct trainer *t)
{
    for (uint32_t v = t->first; v < the->version_count; v++) {
        if (the->versions[v].model != t->model || v == t->making) continue;
        const bool retained = world_version_newer(v) < RETAINED + (t->making != NONE);
        const bool known = retained && !t->gone[v] && !tb_id_is_zero(&the->versions[v].key.uid);
        for (uint32_t s = 0; known && s < the->shard_count; s++)
            (void)seal(t, v, s);
    }
    for (uint32_t s = 0; t->making != NONE && s < t->sealed; s++)
        (void)seal(t, t->making, s);
}

static void version_open(struct trainer *t)
{
    struct tb_msg_version_open m = {.run = t->run, .number = t->number, .shard_count = the->shard_count};
    const enum tb_status status = tb_name_set(&m.model, world_models[t->model]);
    TB_ASSERT(status == TB_OK);
    t->open_id = ++t->c.requests;
    WORLD_SEND(&t->c, TB_MSG_VERSION_OPEN, t->open_id, &m, tb_msg_version_open_encode);
}

static enum tb_status take_run(struct trainer *t, struct tb_wire_frame *f)
{
    struct tb_msg_run m;
    if (tb_msg_run_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (f->request != t->run_id) return TB_OK;
    t->run_id = 0;
    if (!t->run_open && t->number == 0) { /* a new life: it goes on from an older step */
        const uint64_t back = world_draw(FAULT_TRAINER, 3);
        t->number = m.resumed_number > back ? m.resumed_number - back : 1;
    }
    if (m.has_last && t->number <= m.last_number) t->number = m.last_number + 1;
    t->run = m.run;
    t->run_open = true;
    if (t->making == NONE) return TB_OK;
    if (tb_id_is_zero(&the->versions[t->making].key.uid)) {
        version_open(t);
        return TB_OK;
    }
    t->seal_id = seal(t, t->making, t->sealed);
    return TB_OK;
}

static enum tb_status take_opened(struct trainer *t, struct tb_wire_frame *f)
{
    struct tb_msg_version m;
    if (tb_msg_version_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    t->encodes = m.classes > 0; /* as the library does, on the version before of its life */
    if (f->request != t->open_id || t->making == NONE) return TB_OK;
    t->open_id = 0;
    the->versions[t->making].key = m.key;
    if (m.key.run_order > TB_TIME_NEVER >> 8) world_fail("P3: a run is opened far ahead of all that were");
    t->seal_id = seal(t, t->making, 0);
    return TB_OK;
}

static void give_up(struct trainer *t, enum tb_status why)
{
    world_say("gives up v%u: %s", t->making + 1, tb_status_name(why));
    t->making = NONE;
    t->open_id = t->seal_id = 0;
    t->number++;
    t->publish_at = tb_time_add(the->now, TB_MS(100));
}

static bool is_for_now(enum tb_status why)
{
    return why == TB_SITE_STORE || why == TB_SITE_NOMEM;
}

static void sealed(struct trainer *t, enum tb_status status)
{
    t->seal_id = 0;
    if (is_for_now(status)) { /* asked again */
        t->publish_at = tb_time_add(the->now, TB_MS(100));
        return;
    }
    if (status != TB_OK && status != TB_DONE_BEFORE) {
        give_up(t, status);
        return;
    }
    if (++t->sealed < the->shard_count) {
        t->seal_id = seal(t, t->making, t->sealed);
        return;
    }
    world_say("published v%u", t->making + 1);
    /* One begun before may be lost: its trainer stood still for longer than its lease, and hears
     * of this answer first. */
    t->last_made |= t->calm;
    t->making = NONE;
    t->number++;
    t->publish_at = tb_time_add(the->now, TB_MS(50 + world_random(1200)));
}

/* ---- its memory, taken back ---- */

static void unpublish(struct trainer *t)
{
    const uint32_t v = t->first + (uint32_t)world_random(the->version_count - t->first + 1);
    t->unpublish_at = tb_time_add(the->now, TB_MS(100 + world_random(1500)));
    if (v >= the->version_count || v == t->making || !t->exported[v]) return;
    const struct tb_msg_unpublish m = {.uid = the->versions[v].key.uid,
                                       .shard = TB_CATALOG_ALL_SHARDS,
                                       .drain_ms = (uint32_t)world_random(1500)};
    t->unpublishing = v;
    t->unpublish_id = ++t->c.requests;
    world_say("unpublishes v%u", v + 1);
    WORLD_SEND(&t->c, TB_MSG_UNPUBLISH, t->unpublish_id, &m, tb_msg_unpublish_encode);
}

/* TB_TIMEOUT: nobody could take it in time, so it stays. */
static void unpublished(struct trainer *t, enum tb_status status)
{
    t->unpublish_id = 0;
    if (status != TB_OK) return;
    tb_export_close(t->c.fabric, t->unpublishing + 1, 0);
    t->exported[t->unpublishing] = false;
    t->gone[t->unpublishing] = true;
    the->went[WAY_UNPUBLISH]++;
    world_say("has unpublished v%u", t->unpublishing + 1);
}

static enum tb_status take_reply(struct trainer *t, struct tb_wire_frame *f)
{
    struct tb_msg_reply m;
    if (tb_msg_reply_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const enum tb_status status = tb_msg_status_get(m.status_negated);
    if (f->request == t->run_id) {
        t->run_id = 0;
        t->publish_at = tb_time_add(the->now, TB_MS(100));
        if (!is_for_now(status)) world_fail("its run is refused: %s", tb_status_name(status));
    } else if (f->request == t->open_id && t->making != NONE) {
        t->open_id = 0;
        t->publish_at = tb_time_add(the->now, TB_MS(100));
        if (status == TB_NOT_FOUND) /* the run went with the store's last writes: it is opened again */
            t->run_open = false;
        else if (!is_for_now(status))
            give_up(t, status);
    } else if (f->request == t->seal_id && t->making != NONE) {
        sealed(t, status);
    } else if (f->request == t->unpublish_id && f->request != 0) {
        unpublished(t, status);
    }
    return TB_OK;
}

static enum tb_status take_grant(struct trainer *t, struct tb_wire_frame *f)
{
    struct tb_msg_grant m;
    if (tb_msg_grant_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const enum tb_status status = tb_export_grant(t->c.fabric, m.export_id, &m.token, &m.reader);
    const struct tb_msg_granted answer = {m.token, tb_msg_status_put(status)};
    WORLD_SEND(&t->c, TB_MSG_GRANTED, 0, &answer, tb_msg_granted_encode);
    return TB_OK;
}

static enum tb_status frame(struct client *c, struct tb_wire_frame *f)
{
    struct trainer *t = c->owner;
    struct tb_msg_version_state m;
    switch (f->type) {
    case TB_MSG_RUN:
        return take_run(t, f);
    case TB_MSG_VERSION:
        return take_opened(t, f);
    case TB_MSG_REPLY:
        return take_reply(t, f);
    case TB_MSG_GRANT:
        return take_grant(t, f);
    case TB_MSG_VERSION_STATE:
        return tb_msg_version_state_decode(&f->payload, &m);
    default:
        return TB_PEER_GARBLED;
    }
}

static void welcome(struct client *c, bool same)
{
    struct trainer *t = c->owner;
    (void)same;
    t->open_id = t->seal_id = t->unpublish_id = 0;
    t->hold_steps = 0;
    run_open(t);
    seal_again(t); /* at once, as the library does: whatever becomes of the run */
}

void world_trainer_start(struct trainer *t)
{
    t->c.owner = t;
    t->c.frame = frame;
    t->c.welcome = welcome;
    (void)snprintf(t->key, sizeof t->key, "run-%u", ++t->runs);
    t->run_open = false;
    t->run_id = t->open_id = t->seal_id = t->unpublish_id = t->number = 0;
    t->making = NONE;
    t->first = the->version_count;
    memset(t->exported, 0, sizeof t->exported);
    memset(t->gone, 0, sizeof t->gone);
    memset(t->may_go, 0, sizeof t->may_go);
    world_client_start(&t->c);
}

void world_trainer_end(struct trainer *t)
{
    the->current = t->c.process;
    world_say("is killed");
    the->current = NULL;
    world_process_end(t->c.process, false);
}

bool world_trainer_holds(uint32_t version)
{
    const struct trainer *t = &the->trainers[the->versions[version].model];
    return t->c.process->alive && version >= t->first && world_version_newer(version) < RETAINED &&
           t->exported[version] && !t->may_go[version];
}

void world_trainer_released(uint32_t version)
{
    the->trainers[the->versions[version].model].may_go[version] = true;
}

static bool wants_more(const struct trainer *t)
{
    const uint32_t count = world_version_count(t->model);
    return the->faulty ? count < the->versions_wanted : !t->last_made && count < VERSIONS_MAX / MODELS_MAX;
}

void world_trainer_step(struct trainer *t)
{
    the->current = t->c.process;
    world_client_step(&t->c);
    if (t->c.up) world_check_hold(t);
    const bool may_unpublish = the->unpublishes && t->c.up && t->run_open && t->unpublish_id == 0;
    if (may_unpublish && the->now >= t->unpublish_at) unpublish(t);
    if (t->c.up && the->now >= t->publish_at) {
        if (!t->run_open) {
            if (t->run_id == 0) run_open(t);
        } else if (t->making == NONE && wants_more(t)) {
            t->making = world_version_make(t->model);
            t->calm = !the->faulty;
            t->sealed = 0;
            version_open(t);
        } else if (t->making != NONE && t->open_id == 0 && t->seal_id == 0) {
            if (tb_id_is_zero(&the->versions[t->making].key.uid))
                version_open(t);
            else
                t->seal_id = seal(t, t->making, t->sealed);
        }
    }
    the->current = NULL;
}
