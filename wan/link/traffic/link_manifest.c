/* link_manifest.c - manifests cross in pages, ahead of the bytes: heads, then digests,
 * shard by shard, in order.
 *
 * Nothing is allocated from a number of the peer's: a head's memory grows with the bytes that
 * came, a manifest's is what its head needs, and the sum over the version stays under
 * manifest_bytes_max (P7). */
#include "wan/link/traffic/link_manifest.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/version_key.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/ask_table.h"
#include "wan/link/traffic/link_push.h"
#include "wan/link/traffic/push_table.h"

#define HEAD_BYTES_MAX (128u << 20)

/* ---- asking ---- */

static void ask_too_large(struct tb_link *l, struct tb_link_ask **at)
{
    const struct tb_links_ops *ops = l->links->options.ops;
    const struct tb_id id = (*at)->uid;
    const uint64_t needed_bytes = (*at)->needed_bytes;
    tb_link_ask_free(at);
    if (ops->on_too_large != NULL) ops->on_too_large(l->links->options.user, l->index, &id, needed_bytes);
}

/* ---- receiving ---- */

/* Grows with what came: at most twice of it. */
static enum tb_status head_append(struct tb_link_ask *a, const struct tb_span *page)
{
    TB_ASSERT(a->head_got + page->count <= a->head_total);
    const uint32_t need = a->head_got + page->count;
    uint8_t *more = tb_realloc(a->head, need < a->head_total / 2 ? (size_t)need * 2 : a->head_total);
    if (more == NULL) return TB_SITE_NOMEM;
    a->head = more;
    memcpy(a->head + a->head_got, page->bytes, page->count);
    a->head_got = need;
    return TB_OK;
}

static enum tb_status head_done(struct tb_link *l, struct tb_link_ask *a)
{
    TB_ASSERT(a->shard < a->key.shard_count && a->memories[a->shard] == NULL);
    const size_t bytes = tb_manifest_decode_bytes(a->head, a->head_total);
    if (bytes == 0) return TB_PEER_GARBLED;
    a->needed_bytes = a->memory_bytes + bytes;
    if (bytes > tb_link_ask_room(l, a)) return TB_TOO_LARGE;
    a->memories[a->shard] = tb_malloc(bytes);
    if (a->memories[a->shard] == NULL) return TB_SITE_NOMEM;
    a->memory_bytes += bytes;
    const enum tb_status status = tb_manifest_head_decode(a->head, a->head_total, a->memories[a->shard],
                                                          bytes, &a->manifests[a->shard]);
    tb_free(a->head);
    a->head = NULL;
    if (status == TB_OK && a->manifests[a->shard].layout.other_dtypes &&
        tb_link_protocol(l) < TB_LINK_PROTOCOL_DTYPES)
        return TB_PEER_GARBLED;
    return status == TB_OK ? TB_OK : TB_PEER_GARBLED;
}

/* All manifests are here: do they make up the version that was announced? */
static bool roots_agree(const struct tb_link_ask *a)
{
    struct tb_digest *roots = tb_malloc(a->key.shard_count * sizeof *roots);
    if (roots == NULL) return false;
    for (uint32_t s = 0; s < a->key.shard_count; s++)
        roots[s] = a->manifests[s].root;
    const struct tb_digest root = tb_version_key_root(&a->key, roots);
    tb_free(roots);
    return tb_digest_equal(&root, &a->key.root);
}

static void deliver(struct tb_link *l, struct tb_link_ask **at)
{
    TB_ASSERT((*at)->complete && !(*at)->unasked);
    struct tb_link_ask *a = *at;
    *at = a->next; /* the daemon may ask again from inside the callback */
    if (l->links->options.ops->on_manifests != NULL)
        l->links->options.ops->on_manifests(l->links->options.user, l->index, &a->key, a->manifests);
    tb_link_ask_clear(a);
    tb_free(a);
}

/* The peer is not believed about bytes, so neither about digests: its manifests count with the
 * proofs that its home signed. */
static bool awaits_proofs(const struct tb_link *l, const struct tb_link_ask *a)
{
    const struct tb_links_options *o = &l->links->options;
    if (a->proving || tb_link_protocol(l) < TB_LINK_PROTOCOL_PROOFS) return false;
    return o->ops->is_foreign != NULL && o->ops->is_foreign(o->user, l->index, &a->key);
}

/* To the next shard that has chunks. True: there is one. */
static bool proofs_go_on(struct tb_link_ask *a)
{
    while (a->shard < a->key.shard_count && a->manifests[a->shard].chunk_count == a->digests_got) {
        a->shard++;
        a->digests_got = 0;
    }
    return a->shard < a->key.shard_count;
}

static enum tb_status all_done(struct tb_link *l, struct tb_link_ask **at)
{
    if (!roots_agree(*at)) return TB_PEER_GARBLED;
    if (awaits_proofs(l, *at)) {
        (*at)->proving = true;
        (*at)->shard = 0;
        if (proofs_go_on(*at)) return TB_OK;
    }
    (*at)->complete = true;
    if ((*at)->unasked) return TB_OK;
    deliver(l, at);
    tb_link_asks_send(l);
    return TB_OK;
}

/* Those that followed a PUSH, and were asked for since. */
static struct tb_link_ask **ask_over(struct tb_link *l)
{
    struct tb_link_ask **at = &l->traffic.asks;
    while (*at != NULL && (!(*at)->complete || (*at)->unasked))
        at = &(*at)->next;
    return at;
}

void tb_link_asks_tick(struct tb_link *l)
{
    for (struct tb_link_ask **at; *(at = ask_over(l)) != NULL;)
        deliver(l, at);
}

static enum tb_status shard_done(struct tb_link *l, struct tb_link_ask **at)
{
    struct tb_link_ask *a = *at;
    const struct tb_digest root = tb_manifest_root(&a->manifests[a->shard]);
    if (!tb_digest_equal(&root, &a->manifests[a->shard].root)) return TB_PEER_GARBLED;
    TB_ASSERT(a->shard < a->key.shard_count);
    a->shard++;
    a->head_total = a->head_got = a->digests_got = 0;
    return a->shard == a->key.shard_count ? all_done(l, at) : TB_OK;
}

/* A failure that dropping the peer would not mend ends the ask alone. The rest of its answer is
 * skipped. */
static enum tb_status judge(struct tb_link *l, const struct tb_id *uid, enum tb_status status)
{
    if (status != TB_TOO_LARGE && status != TB_SITE_NOMEM) return status;
    struct tb_link_ask **at = tb_link_ask_find(l, uid);
    if (*at != NULL) tb_link_ask_skip(l, *at);
    if (*at != NULL && (*at)->unasked)
        tb_link_push_too_much(l, uid);
    else if (*at != NULL && status == TB_TOO_LARGE)
        ask_too_large(l, at);
    else
        tb_link_ask_fail(l, uid, status);
    return TB_OK;
}

/* Answers to one uid follow one another, each from its first page to its last: what comes before a
 * first page is the rest of an answer that was given up, or came with a PUSH that was declined. */
static bool is_rest(const struct tb_link_ask *a, bool first_page)
{
    return a->shard == 0 && a->head_got == 0 && a->memories[0] == NULL && !first_page;
}

enum tb_status tb_link_on_head(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_head m;
    enum tb_status status = tb_frame_head_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    struct tb_link_ask **at = tb_link_ask_find(l, &m.uid), *a = *at;
    if (a == NULL || !a->sent) return TB_OK; /* given up meanwhile */
    if (is_rest(a, m.shard == 0 && m.offset == 0)) return TB_OK;
    tb_link_push_moved(l, &m.uid);
    tb_link_ask_passed(l, a);
    if (a->proving || m.shard != a->shard || m.shard >= a->key.shard_count || m.offset != a->head_got)
        return TB_PEER_GARBLED;
    if (a->memories[a->shard] != NULL || m.page.count == 0) return TB_PEER_GARBLED;
    if (m.total_bytes == 0 || m.total_bytes > HEAD_BYTES_MAX) return TB_PEER_GARBLED;
    if (m.offset > 0 && m.total_bytes != a->head_total) return TB_PEER_GARBLED;
    if (m.page.count > m.total_bytes - m.offset) return TB_PEER_GARBLED;
    if (a->unasked && m.total_bytes > tb_link_ask_room(l, a)) return judge(l, &m.uid, TB_TOO_LARGE);
    a->head_total = m.total_bytes;
    status = head_append(a, &m.page);
    if (status == TB_OK && a->head_got == a->head_total) {
        status = head_done(l, a);
        if (status == TB_OK && a->manifests[a->shard].chunk_count == 0) status = shard_done(l, at);
    }
    return judge(l, &m.uid, status);
}

/* Proofs without an ask: their manifests were taken already. */
static void tell_proofs(struct tb_link *l, const struct tb_frame_proofs *m)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_links_proofs page = {.uid = m->uid,
                                         .shard = m->shard,
                                         .first = m->first,
                                         .count = m->page.count / TB_BLAKE3_BYTES,
                                         .bytes = m->page.bytes};
    if (o->ops->on_proofs != NULL) o->ops->on_proofs(o->user, l->index, &page);
}

/* They followed manifests of a PUSH that nobody has asked for yet. */
static enum tb_status keep_proofs(struct tb_link_ask *a, const struct tb_frame_proofs *m, uint32_t count)
{
    TB_ASSERT(a->complete);
    if (m->shard >= a->key.shard_count) return TB_PEER_GARBLED;
    struct tb_manifest *manifest = &a->manifests[m->shard];
    if (m->first > manifest->chunk_count || count > manifest->chunk_count - m->first) return TB_PEER_GARBLED;
    if (tb_manifest_proven_count(manifest) != m->first) return TB_OK; /* a page before it is lacking */
    for (uint32_t i = 0; i < count; i++) {
        struct tb_blake3 proof;
        memcpy(proof.bytes, m->page.bytes + (size_t)i * TB_BLAKE3_BYTES, TB_BLAKE3_BYTES);
        tb_manifest_set_proof(manifest, m->first + i, &proof);
    }
    return TB_OK;
}

enum tb_status tb_link_on_proofs(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_proofs m;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_PROOFS) return TB_PEER_GARBLED;
    const enum tb_status status = tb_frame_proofs_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    const uint32_t count = m.page.count / TB_BLAKE3_BYTES;
    if (count == 0 || m.page.count % TB_BLAKE3_BYTES != 0) return TB_PEER_GARBLED;
    struct tb_link_ask **at = tb_link_ask_find(l, &m.uid), *a = *at;
    if (a == NULL) tell_proofs(l, &m);
    if (a != NULL && a->complete && !a->proving) return keep_proofs(a, &m, count);
    if (a == NULL || !a->sent || !a->proving) return TB_OK;
    struct tb_manifest *manifest = &a->manifests[a->shard];
    if (m.shard != a->shard || m.first != a->digests_got) return TB_PEER_GARBLED;
    if (count > manifest->chunk_count - a->digests_got) return TB_PEER_GARBLED;
    for (uint32_t i = 0; i < count; i++) {
        struct tb_blake3 proof;
        memcpy(proof.bytes, m.page.bytes + (size_t)i * TB_BLAKE3_BYTES, TB_BLAKE3_BYTES);
        tb_manifest_set_proof(manifest, a->digests_got + i, &proof);
    }
    a->digests_got += count;
    return proofs_go_on(a) ? TB_OK : all_done(l, at);
}

enum tb_status tb_link_on_digests(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_digests m;
    const enum tb_status status = tb_frame_digests_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    struct tb_link_ask **at = tb_link_ask_find(l, &m.uid), *a = *at;
    if (a == NULL || !a->sent || is_rest(a, false)) return TB_OK;
    tb_link_push_moved(l, &m.uid);
    if (a->proving || m.shard != a->shard || m.shard >= a->key.shard_count || a->memories[a->shard] == NULL)
        return TB_PEER_GARBLED;
    struct tb_manifest *manifest = &a->manifests[a->shard];
    const uint32_t count = m.page.count / TB_DIGEST_BYTES;
    if (count == 0 || m.page.count % TB_DIGEST_BYTES != 0 || m.first != a->digests_got)
        return TB_PEER_GARBLED;
    if (count > manifest->chunk_count - a->digests_got) return TB_PEER_GARBLED;
    memcpy(manifest->digests + a->digests_got, m.page.bytes, m.page.count);
    a->digests_got += count;
    return a->digests_got == manifest->chunk_count ? judge(l, &m.uid, shard_done(l, at)) : TB_OK;
}
