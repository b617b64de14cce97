/* repair.c - reports that a chunk is damaged where it stands: the holder digests its own copy, and
 * repairs it or stops serving it.
 *
 * P1: a report is a stranger's word, and nothing is dropped for it. Only the holder's own digest
 * counts: this gateway's for its arena and its shelves, a worker's for its staging and for
 * shards that it sealed. P7: base/damage_reports.h bounds the digests that reports cost. A
 * report that is not looked at is not kept: the reader reports it again. P10: one line a damaged
 * chunk says where it stood and what its holder did. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/assert.h"
#include "base/digest.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/repair.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

static uint64_t number_of(const struct tb_id *id)
{
    uint64_t number;
    memcpy(&number, id->bytes, sizeof number);
    return number;
}

/* Sessions over TLS that show one certificate are one reporter; so are all sessions of this host's
 * users, each by itself. */
uint64_t tb_repair_reporter(const struct tb_worker_session *s)
{
    char uri[TB_URI_BYTES_MAX];
    struct tb_id id;
    if (s->local) return number_of(&s->id);
    tb_identity_format(&s->identity, uri);
    const struct tb_digest digest = tb_digest_of(uri, strlen(uri));
    memcpy(id.bytes, digest.bytes, sizeof id.bytes);
    return number_of(&id);
}

static bool may_look(struct tb_daemon *d, const struct tb_report *r, uint64_t holder)
{
    const struct tb_doubt doubt = {.uid = r->uid,
                                   .reporter = r->reporter,
                                   .holder = holder,
                                   .shard = r->shard,
                                   .chunk = r->chunk,
                                   .at = tb_clock_now()};
    return tb_doubts_take(&d->doubts, &doubt);
}

/* The chunk is one of a copy that is served here. */
static struct tb_copy *copy_of(struct tb_daemon *d, const struct tb_report *r)
{
    struct tb_copy *copy = tb_copy_find(d, &r->uid);
    if (copy == NULL || tb_copy_leaves(copy) || copy->region == NULL || r->shard >= copy->key.shard_count)
        return NULL;
    if (!tb_arena_place_ready(copy->region, r->shard)) return NULL;
    const struct tb_place *place = tb_arena_place(copy->region, r->shard);
    return r->chunk < place->manifest->chunk_count ? copy : NULL;
}

enum tb_status tb_repair_arena(struct tb_daemon *d, const struct tb_report *r)
{
    struct tb_copy *copy = copy_of(d, r);
    if (copy == NULL || !tb_place_held(tb_arena_place(copy->region, r->shard), r->chunk))
        return TB_CHUNK_ABSENT;
    if (!may_look(d, r, 0)) return TB_AGAIN;
    const enum tb_status status = tb_arena_chunk_recheck(copy->region, r->shard, r->chunk);
    if (status != TB_CHUNK_DIGEST) return status;
    atomic_fetch_add(&d->verify_bad, 1); /* a new life: as the verifier does */
    uv_async_send(&d->verify_wake);
    return status;
}

/* The chunks of a shelf stand in one line. */
static uint32_t line_of(const struct tb_copy *copy, const struct tb_report *r)
{
    uint32_t line = r->chunk;
    for (uint32_t s = 0; s < r->shard; s++)
        line += tb_arena_place(copy->region, s)->manifest->chunk_count;
    return line;
}

enum tb_status tb_repair_shelf(struct tb_daemon *d, const struct tb_report *r)
{
    struct tb_copy *copy = copy_of(d, r);
    if (copy == NULL || copy->shelf_memory == NULL) return TB_CHUNK_ABSENT;
    TB_ASSERT(line_of(copy, r) < copy->shelf.count);
    if (!may_look(d, r, 0)) return TB_AGAIN;
    if (tb_shelf_recheck(&copy->shelf, line_of(copy, r))) return TB_OK;
    d->counters.chunks_rotted++;
    tb_log(TB_LOG_ERROR, "chunk.damaged",
           "place=shelf model=%s number=%llu shard=%u chunk=%u action=not_served", copy->key.model.text,
           (unsigned long long)copy->key.number, r->shard, r->chunk);
    return TB_CHUNK_DIGEST;
}

const char *tb_repair_action(enum tb_status found)
{
    switch (found) {
    case TB_OK:
        return "own_copy_is_good";
    case TB_CHUNK_DIGEST:
        return "damaged";
    case TB_CHUNK_ABSENT:
        return "not_held";
    default:
        return "looked_at_lately";
    }
}

/* ---- copies of workers ---- */

static bool serves(const struct tb_worker_session *s, const struct tb_id *uid)
{
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
        if (tb_id_equal(&e->uid, uid)) return true;
    return false;
}

bool tb_repair_ask(struct tb_daemon *d, const struct tb_id *holder, const struct tb_report *r)
{
    struct tb_worker_session *s = tb_worker_find(d, holder);
    if (s == NULL || s->wire == NULL || !serves(s, &r->uid) || !may_look(d, r, number_of(holder)))
        return false;
    TB_ASSERT(d->asked_next < TB_DOUBTS_MAX);
    d->asked[d->asked_next] =
        (struct tb_asked_look){.holder = *holder, .uid = r->uid, .shard = r->shard, .chunk = r->chunk};
    d->asked_next = (d->asked_next + 1) % TB_DOUBTS_MAX;
    const struct tb_msg_doubt m = {
        .uid = r->uid, .shard = r->shard, .chunk = r->chunk, .encoded = r->encoded};
    TB_WORKER_SEND(s, TB_MSG_DOUBT, 0, &m, TB_WORKER_SMALL, tb_msg_doubt_encode);
    return true;
}

bool tb_repair_asked(struct tb_daemon *d, const struct tb_id *holder, const struct tb_msg_doubted *m)
{
    for (uint32_t i = 0; i < TB_DOUBTS_MAX; i++) {
        struct tb_asked_look *a = &d->asked[i];
        if (a->shard != m->shard || a->chunk != m->chunk) continue;
        if (!tb_id_equal(&a->uid, &m->uid) || !tb_id_equal(&a->holder, holder)) continue;
        *a = (struct tb_asked_look){.shard = 0};
        return true;
    }
    return false;
}
