/* repair.c - reports that a chunk is damaged where it stands: the holder digests its own copy, and repairs it or stops serving it.
 *
 * P1: a report is a stranger's word, and nothing is dropped for it. Only the holder's own digest counts: this gateway's for its
 * arena and its shelves, a worker's for its staging and for what it sealed.
 * P7: base/doubts.h bounds the digests that reports cost. A report that is not looked at is not kept: the reader reports it again.
 * P10: one line a damaged chunk says where it stood and what its holder did. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/digest.h"

/* Sessions over TLS that show one certificate are one reporter; so are all sessions of this host's users, each by itself. */
uint64_t tb_repair_reporter(const struct tb_worker_session *s)
{
    uint64_t number = 0;
    char uri[TB_URI_BYTES_MAX];
    struct tb_digest digest;
    if (s->local) {
        memcpy(&number, s->id.bytes, sizeof number);
        return number;
    }
    tb_identity_format(&s->identity, uri);
    digest = tb_digest_of(uri, strlen(uri));
    memcpy(&number, digest.bytes, sizeof number);
    return number;
}

static bool may_look(struct tb_daemon *d, const struct tb_report *r)
{
    const struct tb_doubt doubt = {
        .uid = r->uid, .reporter = r->reporter, .shard = r->shard, .chunk = r->chunk, .at = tb_clock_now()};
    return tb_doubts_take(&d->doubts, &doubt);
}

/* The chunk is one of a copy that is served here. */
static struct tb_copy *copy_of(struct tb_daemon *d, const struct tb_report *r)
{
    struct tb_copy *copy = tb_copy_find(d, &r->uid);
    if (copy == NULL || copy->evicting || copy->region == NULL || r->shard >= copy->key.shard_count)
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
    if (!may_look(d, r)) return TB_AGAIN;
    const enum tb_status status = tb_arena_chunk_recheck(copy->region, r->shard, r->chunk);
    if (status != TB_CHUNK_DIGEST) return status;
    atomic_fetch_add(&d->verify_bad, 1); /* a new life: as the verifier does */
    uv_async_send(&d->verify_wake);
    return status;
}

const char *tb_repair_action(enum tb_status found)
{
    switch (found) {
    case TB_OK:
        return "own_copy_is_good";
    case TB_CHUNK_DIGEST:
        return "fetch_again";
    case TB_CHUNK_ABSENT:
        return "not_held";
    default:
        return "looked_at_lately";
    }
}
