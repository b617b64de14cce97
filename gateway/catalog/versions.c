/* versions.c - the requests about a version's life: open, seal, withdraw, pin, and what the store
 * remembers.
 *
 * Promises: P4 (open and seal said twice change nothing), P10 (an end names its reason and, where
 * there is one, the rank). */
#include "gateway/catalog/versions.h"

#include "base/assert.h"
#include "base/layout/chunk_cut.h"
#include "base/layout/version_key.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/settle.h"
#include "gateway/catalog/rules/unpublish_rules.h"
#include "gateway/catalog/rules/version_removal.h"

static bool restorable(const struct tb_catalog *c, const struct tb_version_key *key,
                       enum tb_catalog_state state)
{
    return state >= TB_VERSION_OPEN && state < TB_CATALOG_STATE_END && !tb_id_is_zero(&key->uid) &&
           key->shard_count > 0 && key->shard_count <= c->limits.shards;
}

/* P3: a store that lost its last write calls open what an arena knows to have been ready. */
static enum tb_status restore_ready(struct tb_catalog *c, uint32_t version, const struct tb_version_key *key,
                                    enum tb_catalog_state state)
{
    struct version *v = version_at(c, version);
    const bool has_root = !tb_digest_equal(&key->root, &(struct tb_digest){{0}});
    if (v->life != TB_LIFE_OPEN || state != TB_VERSION_READY || !has_root) return TB_CONFLICT;
    v->key.root = key->root;
    tb_version_moves(v, TB_VERSION_BECOMES_READY);
    v->was_ready = true;
    tb_table_mark(&c->versions, version, TB_CATALOG_PERSIST_VERSION);
    tb_catalog_touch_version(c, version);
    return tb_catalog_settle(c, TB_OK);
}

/* The store ends the pin before this one with the same row. */
static void set_pin(struct tb_catalog *c, uint32_t version, bool pinned)
{
    struct version *v = version_at(c, version);
    struct model *m = model_at(c, v->model);
    if (m->pin != NONE) version_at(c, m->pin)->pinned = false;
    v->pinned = pinned;
    m->pin = pinned ? version : NONE;
    TB_ASSERT(m->row.live);
}

enum tb_status tb_catalog_restore_version(struct tb_catalog *c, const struct tb_version_key *key,
                                          enum tb_catalog_state state, uint64_t bytes, bool pinned)
{
    tb_catalog_enter(c, c->now);
    const uint32_t model = tb_catalog_model_find(c, &key->model);
    if (model == NONE) return TB_NOT_FOUND;
    if (!restorable(c, key, state)) return TB_BAD_ARGUMENT;
    const uint32_t known = tb_version_find(c, &key->uid);
    if (known != NONE) return restore_ready(c, known, key, state);
    tb_versions_make_room(c, model);
    const uint32_t i = tb_version_new(c, model, key);
    if (i == NONE) return tb_catalog_settle(c, tb_catalog_refuse_full(c, &c->versions));
    struct version *v = version_at(c, i);
    /* An arena may remember a run that the store has lost: the next run is newer all the same, and
     * those before it are shut out. */
    if (key->run_order > model_at(c, model)->run_order) model_at(c, model)->run_order = key->run_order;
    tb_catalog_run_seen(c, model, key);
    tb_runs_fence_older(c, model, key->run_order);
    /* A holder that keeps it has to say so again. */
    v->life = tb_version_life_restored(state);
    v->was_ready = !tb_digest_equal(&key->root, &(struct tb_digest){{0}});
    v->restored_open = state == TB_VERSION_OPEN;
    v->had_more = v->was_ready; /* what the life before held and this one does not, others may have read */
    v->bytes = bytes;
    if (pinned) set_pin(c, i, true);
    v->why = "restored";
    tb_catalog_touch_version(c, i);
    (void)tb_catalog_settle(c, TB_OK);
    tb_table_unmark(&c->models, model, TB_CATALOG_PERSIST_POINTER); /* the store knows its head */
    return TB_OK;
}

/* ---- opening ---- */

/* Its number may be opened again, where it was not ready. (An open one of a fenced run is
 * abandoned, too; that run opens nothing.) */
static bool failed(const struct version *v)
{
    return v->life == TB_LIFE_LOST || v->life == TB_LIFE_ABANDONED;
}

static uint32_t version_by_number(const struct tb_catalog *c, uint32_t model, const struct tb_id *run,
                                  uint64_t number)
{
    uint32_t found = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || v->key.number != number || !tb_id_equal(&v->key.run, run)) continue;
        /* Of several attempts at one number at most one has not failed. */
        if (found == NONE || failed(version_at(c, found))) found = i;
    }
    return found;
}

/* So that a rank that dies between its open and its seal is missed. */
static enum tb_status note_opener(struct tb_catalog *c, uint32_t version, uint32_t session)
{
    if (tb_reference_find(c, TB_REFERENCE_PUBLISHER, version, session) != NONE) return TB_OK;
    return tb_reference_new(c, TB_REFERENCE_PUBLISHER, version, session) == NONE
               ? tb_catalog_refuse_full(c, &c->references)
               : TB_OK;
}

static enum tb_status join_version(struct tb_catalog *c, uint32_t i, uint32_t session,
                                   const struct tb_catalog_version_request *q, struct tb_version_key *key_out)
{
    const struct version *v = version_at(c, i);
    if (v->key.shard_count != q->shard_count) return TB_CONFLICT;
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK) return ended;
    if (v->life == TB_LIFE_OPEN) {
        const enum tb_status noted = note_opener(c, i, session);
        if (noted != TB_OK) return noted;
    }
    *key_out = v->key;
    return TB_OK;
}

/* P7: of the versions of a model an identity may have a quarter open, so that another publisher of
 * that model finds room. */
static bool opened_its_share(struct tb_catalog *c, uint32_t model, uint64_t owner)
{
    const uint32_t most = c->limits.model_versions / 4;
    uint32_t count = 0;
    if (owner == TB_SHARE_OURS || c->limits.model_versions < TB_SHARE_LEAST) return false;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        count += v->model == model && v->life == TB_LIFE_OPEN && v->row.owner == owner;
    }
    c->versions.spent += count >= most;
    return count >= most;
}

static enum tb_status begin_version(struct tb_catalog *c, uint32_t model, uint32_t run, uint32_t session,
                                    const struct tb_catalog_version_request *q,
                                    struct tb_version_key *key_out)
{
    const struct tb_catalog_run *info = &run_at(c, run)->info;
    if (info->has_last && q->number <= info->last_number) return TB_BAD_STATE;
    if (tb_version_find(c, &q->fresh_uid) != NONE) return TB_CONFLICT;
    const struct tb_version_key key = {.uid = q->fresh_uid,
                                       .model = q->model,
                                       .run = q->run,
                                       .run_order = info->order,
                                       .number = q->number,
                                       .shard_count = q->shard_count};
    const uint64_t owner = tb_identity_owner(session_at(c, session)->info.identity);
    if (opened_its_share(c, model, owner)) return tb_catalog_refuse_full(c, &c->versions);
    tb_versions_make_room(c, model);
    const uint32_t i = tb_version_new(c, model, &key);
    if (i == NONE) return tb_catalog_refuse_full(c, &c->versions);
    version_at(c, i)->row.owner = owner;
    const enum tb_status noted = note_opener(c, i, session);
    if (noted != TB_OK) {
        tb_table_free(&c->versions, i);
        return noted;
    }
    tb_table_mark(&c->versions, i, TB_CATALOG_PERSIST_VERSION);
    *key_out = key;
    return TB_OK;
}

enum tb_status tb_catalog_version_open(struct tb_catalog *c, tb_time_ns now,
                                       const struct tb_catalog_version_request *q,
                                       struct tb_version_key *key_out)
{
    tb_catalog_enter(c, now);
    const uint32_t session = tb_catalog_session_find(c, &q->session);
    if (session == NONE) return TB_PEER_LEASE;
    const uint32_t model = tb_catalog_model_find(c, &q->model);
    if (model == NONE) return TB_NOT_FOUND;
    if (!model_at(c, model)->config.is_home) return TB_NOT_HOME;
    if (q->shard_count == 0 || tb_id_is_zero(&q->fresh_uid)) return TB_BAD_ARGUMENT;
    if (q->number > INT64_MAX) return TB_BAD_ARGUMENT; /* JSON and SQLite have no larger one */
    if (q->shard_count > c->limits.shards) return TB_TOO_LARGE;
    const uint32_t run = tb_catalog_run_find(c, model, &q->run);
    if (run == NONE) return TB_NOT_FOUND;
    if (run_at(c, run)->info.fenced) return TB_FENCED;
    const uint32_t known = version_by_number(c, model, &q->run, q->number);
    const bool again = known == NONE || (failed(version_at(c, known)) && !version_at(c, known)->was_ready);
    return tb_catalog_settle(c, again ? begin_version(c, model, run, session, q, key_out)
                                      : join_version(c, known, session, q, key_out));
}

/* ---- sealing ---- */

static void blame(struct tb_catalog *c, uint32_t version, uint32_t session, uint32_t shard)
{
    struct version *v = version_at(c, version);
    v->blamed = session_at(c, session)->info.id;
    v->blamed_name = session_at(c, session)->info.name;
    v->blamed_shard = shard;
}

/* The session's reference to that shard, or one that only opened the version; NONE. */
static uint32_t sealed_before(const struct tb_catalog *c, uint32_t version, uint32_t session, uint32_t shard)
{
    uint32_t opener = NONE;
    EACH_HOLDER(c, version_at(c, version), r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_PUBLISHER || ref->owner != session) continue;
        if (ref->shard == shard) return r;
        if (ref->shard == NONE) opener = r;
    }
    return opener;
}

/* A ready version's root was hashed over its shards' roots: a rank that comes back may fill in what
 * a restart forgot, and the last one shows whether all told the truth. */
static bool contradicts_root(const struct version *v, uint32_t shard, const struct tb_digest *root)
{
    if (!v->was_ready || v->known_count + 1 != v->key.shard_count) return false;
    struct tb_digest roots[TB_SHARDS_MAX];
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        roots[s] = s == shard ? *root : v->shards[s].info.root;
    const struct tb_digest all = tb_version_key_root(&v->key, roots);
    return !tb_digest_equal(&all, &v->key.root);
}

static enum tb_status seal_again(struct tb_catalog *c, uint32_t r, const struct tb_catalog_seal *s)
{
    struct reference *ref = reference_at(c, r);
    const struct shard *shard = &version_at(c, ref->version)->shards[s->shard];
    TB_ASSERT(shard->known && shard->sealed && ref->shard == s->shard);
    if (!tb_digest_equal(&shard->info.root, &s->root)) return TB_CONFLICT;
    if (ref->export_id == s->export_id) return TB_DONE_BEFORE;
    ref->export_id = s->export_id;
    if (tb_reference_hidden(ref)) tb_unpublish_take_back(c, r); /* that was of the export before */
    ref->landing = false;
    tb_plan_tell_readers(c, ref->version, r);
    tb_catalog_touch_version(c, ref->version);
    return TB_DONE_BEFORE;
}

static enum tb_status learn_sealed(struct version *v, const struct tb_catalog_seal *s)
{
    struct shard *shard = &v->shards[s->shard];
    if (!shard->known) {
        if (contradicts_root(v, s->shard, &s->root)) return TB_CONFLICT;
        if (s->chunk_count > UINT32_MAX - v->chunk_count) return TB_TOO_LARGE;
        if (v->known_count == 0) v->bytes = 0;
        shard->info =
            (struct tb_catalog_shard){s->root, s->layout_id, s->chunk_count, s->bytes, s->manifest_bytes};
        shard->known = true;
        v->known_count++;
        v->bytes += s->bytes;
        v->chunk_count += s->chunk_count;
    }
    if (!shard->sealed) v->sealed_count++;
    shard->sealed = true;
    TB_ASSERT(v->sealed_count <= v->known_count && v->known_count <= v->key.shard_count);
    return TB_OK;
}

static enum tb_status seal_fresh(struct tb_catalog *c, uint32_t version, uint32_t session, uint32_t opener,
                                 const struct tb_catalog_seal *s)
{
    struct version *v = version_at(c, version);
    const struct shard *shard = &v->shards[s->shard];
    if (shard->known && !tb_digest_equal(&shard->info.root, &s->root)) {
        blame(c, version, session, s->shard);
        tb_version_end(c, version, TB_VERSION_IS_BROKEN, "digest_differs");
        return TB_VERSION_BROKEN;
    }
    const uint32_t r =
        opener != NONE ? opener : tb_reference_new(c, TB_REFERENCE_PUBLISHER, version, session);
    if (r == NONE) return tb_catalog_refuse_full(c, &c->references);
    const enum tb_status learned = learn_sealed(v, s);
    if (learned != TB_OK) {
        if (opener == NONE) tb_reference_end(c, r);
        return learned;
    }
    struct reference *ref = reference_at(c, r);
    TB_ASSERT(ref->shard == NONE); /* one reference is of one shard */
    ref->shard = s->shard;
    ref->export_id = s->export_id;
    ref->in_place = s->in_place;
    if (v->life == TB_LIFE_KEPT) {
        ref->tell = TB_OK;
        tb_table_mark(&c->references, r, TB_CATALOG_TELL);
    }
    tb_catalog_touch_version(c, version);
    return TB_OK;
}

static uint64_t manifest_bytes_with(const struct version *v, const struct tb_catalog_seal *s)
{
    uint64_t bytes = s->manifest_bytes;
    for (uint32_t i = 0; i < v->key.shard_count; i++)
        if (v->shards[i].known && i != s->shard) bytes += v->shards[i].info.manifest_bytes;
    return bytes;
}

/* P1: ranks that seal one shard with different bytes have diverged, and the version is no good. A
 * command that runs again beside a version that is ready has no such weight. */
static bool retry_differs(const struct version *v, const struct tb_catalog_seal *s)
{
    const struct shard *shard = &v->shards[s->shard];
    return s->retry && v->was_ready && shard->known && !tb_digest_equal(&shard->info.root, &s->root);
}

/* P7: no site would take it, and no worker be told of it. One that was ready did fit. */
static bool manifests_fit(const struct tb_catalog *c, const struct version *v,
                          const struct tb_catalog_seal *s)
{
    return v->was_ready || v->shards[s->shard].known || manifest_bytes_with(v, s) <= c->limits.manifest_bytes;
}

uint64_t tb_catalog_manifest_bytes(const struct tb_catalog *c, const struct tb_catalog_seal *s,
                                   uint64_t *max_out)
{
    *max_out = c->limits.manifest_bytes;
    const uint32_t i = tb_version_find(c, &s->uid);
    return i != NONE ? manifest_bytes_with(version_at(c, i), s) : 0;
}

enum tb_status tb_catalog_seal_may(const struct tb_catalog *c, const struct tb_catalog_seal *s)
{
    if (tb_catalog_session_find(c, &s->session) == NONE) return TB_PEER_LEASE;
    const uint32_t i = tb_version_find(c, &s->uid);
    if (i == NONE) return TB_NOT_FOUND;
    const struct version *v = version_at(c, i);
    if (!model_at(c, v->model)->config.is_home) return TB_NOT_HOME;
    if (s->shard >= v->key.shard_count || s->bytes > TB_SHARD_BYTES_MAX || s->chunk_count > TB_CHUNKS_MAX)
        return TB_BAD_ARGUMENT;
    if (v->life == TB_LIFE_OPEN && tb_version_run_fenced(c, v)) return TB_FENCED;
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK) return ended;
    if (retry_differs(v, s)) return TB_CONFLICT;
    return manifests_fit(c, v, s) ? TB_OK : TB_TOO_LARGE;
}

enum tb_status tb_catalog_seal(struct tb_catalog *c, tb_time_ns now, const struct tb_catalog_seal *s)
{
    tb_catalog_enter(c, now);
    const enum tb_status may = tb_catalog_seal_may(c, s);
    if (may != TB_OK) return may;
    const uint32_t session = tb_catalog_session_find(c, &s->session);
    const uint32_t i = tb_version_find(c, &s->uid);
    const uint32_t mine = sealed_before(c, i, session, s->shard);
    if (mine != NONE && reference_at(c, mine)->shard == s->shard)
        return tb_catalog_settle(c, seal_again(c, mine, s));
    return tb_catalog_settle(c, seal_fresh(c, i, session, mine, s));
}

static uint32_t publisher_of(const struct tb_catalog *c, uint32_t version, uint32_t shard,
                             const struct tb_id *session)
{
    EACH_HOLDER(c, version_at(c, version), r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_PUBLISHER && ref->shard == shard &&
            tb_id_equal(&ref->session_id, session))
            return r;
    }
    return NONE;
}

/* True when this chunk was bad before. A list that is full says the same: eight chunks of one
 * version is no accident. */
static bool note_bad(struct version *v, const struct bad_chunk *bad)
{
    for (uint32_t b = 0; b < v->bad_count; b++)
        if (v->bads[b].shard == bad->shard && v->bads[b].chunk == bad->chunk &&
            tb_id_equal(&v->bads[b].publisher, &bad->publisher))
            return true;
    if (v->bad_count == BADS_MAX) return true;
    v->bads[v->bad_count++] = *bad;
    return false;
}

enum tb_status tb_catalog_chunk_bad(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                    uint32_t shard, uint32_t chunk, const struct tb_id *publisher)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK) return ended;
    const uint32_t r = publisher_of(c, i, shard, publisher);
    if (r == NONE) return TB_NOT_FOUND;
    if (!note_bad(v, &(struct bad_chunk){*publisher, shard, chunk})) return TB_AGAIN;
    blame(c, i, reference_at(c, r)->owner, shard);
    tb_version_end(c, i, TB_VERSION_IS_BROKEN, "chunk_bad");
    return tb_catalog_settle(c, TB_VERSION_BROKEN);
}

enum tb_status tb_catalog_may_withdraw(const struct tb_catalog *c, const struct tb_id *uid)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    const struct version *v = version_at(c, i);
    if (v->life == TB_LIFE_WITHDRAWN) return TB_DONE_BEFORE;
    return tb_version_lives(v) || tb_version_state(v) == TB_VERSION_RETIRED ? TB_OK : TB_BAD_STATE;
}

enum tb_status tb_catalog_withdraw(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                   const char *who)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    const enum tb_status may = tb_catalog_may_withdraw(c, uid);
    if (may != TB_OK) return may;
    (void)tb_catalog_copy_text(v->who, who); /* cut where it is too long: it is for people */
    v->withdrawn_here = !model_at(c, v->model)->config.is_home;
    tb_version_end(c, i, TB_VERSION_IS_WITHDRAWN, v->withdrawn_here ? "withdrawn_here" : "withdrawn");
    return tb_catalog_settle(c, TB_OK);
}

bool tb_catalog_restore_withdrawn(struct tb_catalog *c, const struct tb_id *uid, bool here, const char *who)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE || version_at(c, i)->life != TB_LIFE_WITHDRAWN) return false;
    if (here) version_at(c, i)->withdrawn_here = !model_at(c, version_at(c, i)->model)->config.is_home;
    (void)tb_catalog_copy_text(version_at(c, i)->who, who);
    return true;
}

enum tb_status tb_catalog_may_pin(const struct tb_catalog *c, const struct tb_id *uid, bool pinned)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    const struct version *v = version_at(c, i);
    if (v->pinned == pinned) return TB_DONE_BEFORE;
    if (pinned && tb_version_status(c, v) != TB_OK) return tb_version_status(c, v);
    return pinned && !tb_version_here(v) ? TB_BAD_STATE : TB_OK;
}

enum tb_status tb_catalog_pin(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid, bool pinned,
                              const char *who)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    const enum tb_status may = tb_catalog_may_pin(c, uid, pinned);
    if (may != TB_OK) return may;
    set_pin(c, i, pinned);
    (void)tb_catalog_copy_text(v->pinned_by, who); /* cut where it is too long: it is for people */
    tb_table_mark(&c->versions, i, TB_CATALOG_PERSIST_POINTER);
    tb_catalog_touch_version(c, i);
    tb_groups_touch(c, v->model);
    return tb_catalog_settle(c, TB_OK);
}

bool tb_catalog_restore_pinned_by(struct tb_catalog *c, const struct tb_id *uid, const char *who)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE || !version_at(c, i)->pinned) return false;
    (void)tb_catalog_copy_text(version_at(c, i)->pinned_by, who);
    return true;
}

bool tb_catalog_pinned(const struct tb_catalog *c, const struct tb_name *model, struct tb_id *uid_out)
{
    const uint32_t m = tb_catalog_model_find(c, model);
    if (m == NONE || model_at(c, m)->pin == NONE) return false;
    *uid_out = version_at(c, model_at(c, m)->pin)->key.uid;
    return true;
}

static bool is_beyond(const struct tb_catalog *c, const struct which *w, const struct version *v)
{
    const struct which this = tb_which_of(v);
    if (tb_id_is_zero(&w->uid) || tb_which_compare(w, &this) <= 0) return false;
    const uint32_t i = tb_version_find(c, &w->uid);
    return i == NONE || version_at(c, i)->life != TB_LIFE_WITHDRAWN;
}

bool tb_catalog_pin_goes_back(const struct tb_catalog *c, const struct tb_id *uid)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return false;
    const struct version *v = version_at(c, i);
    EACH(c->groups, g)
    {
        const struct group *group = group_at(c, g);
        if (group->model != v->model) continue;
        if (is_beyond(c, &group->go, v) || is_beyond(c, &group->attempt, v)) return true;
    }
    return false;
}
