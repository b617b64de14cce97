/* session_proofs.c - the proofs of a version's chunks, told to the workers that stage it.
 *
 * Promise P1: a worker compares what another worker serves with these, and asks for no such chunk
 * before. Proofs become known while a version lands, and may come long after a worker has begun.
 * A copy remembers which of its proofs were told: those go to each worker that begins, and new ones
 * to all that have begun. So no worker has a row here. */
#include "gateway/daemon/sessions/session_proofs.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

#define PAGE_PROOFS 2048u /* of a message: 64 KiB */

/* Workers that stage a version. */
struct followers {
    struct tb_worker_session **list;
    uint32_t count;
};

/* Proofs [first, first + count) of a shard, all of them known. */
struct page {
    const struct tb_id *uid;
    uint32_t shard, first, count;
    const struct tb_blake3 *proofs;
};

static void page_send(struct tb_worker_session *s, const struct page *p)
{
    const uint32_t bytes = p->count * TB_BLAKE3_BYTES;
    TB_ASSERT(p->count > 0 && p->count <= PAGE_PROOFS);
    const struct tb_msg_proofs m = {
        .uid = *p->uid, .shard = p->shard, .first = p->first, .proofs = {(const uint8_t *)p->proofs, bytes}};
    TB_WORKER_SEND(s, TB_MSG_PROOFS, 0, &m, bytes + TB_WORKER_SMALL, tb_msg_proofs_encode);
}

static bool followers_new(struct tb_daemon *d, const struct tb_id *uid, struct followers *out)
{
    struct tb_catalog_reference_view view;
    *out = (struct followers){.list = tb_calloc((size_t)d->session_count + 1, sizeof *out->list)};
    if (out->list == NULL) return false;
    for (uint32_t cursor = 0; tb_catalog_reference_at(d->catalog, &cursor, &view);) {
        if (view.kind != TB_REFERENCE_WORKER || !tb_id_equal(&view.uid, uid)) continue;
        struct tb_worker_session *s = tb_worker_find(d, &view.session);
        if (s != NULL && s->wire != NULL && out->count < d->session_count) out->list[out->count++] = s;
    }
    return true;
}

/* A run of the shard's bits from `from` on, and no longer than a page. 0: there is none. */
static uint32_t run_at(const uint64_t *bits, uint32_t chunk_count, uint32_t *from)
{
    uint32_t k = *from;
    while (k < chunk_count && !tb_bitmap_test(bits, k))
        k++;
    *from = k;
    while (k < chunk_count && k - *from < PAGE_PROOFS && tb_bitmap_test(bits, k))
        k++;
    return k - *from;
}

/* The proofs of these bits, to all of these. */
static void shard_tell(const struct tb_copy *copy, uint32_t shard, const uint64_t *bits,
                       const struct followers *to)
{
    const struct tb_manifest *m = tb_arena_place(copy->region, shard)->manifest;
    struct page p = {.uid = &copy->key.uid, .shard = shard};
    while ((p.count = run_at(bits, m->chunk_count, &p.first)) > 0) {
        p.proofs = m->proofs + p.first;
        for (uint32_t i = 0; i < to->count; i++)
            page_send(to->list[i], &p);
        p.first += p.count;
    }
}

static uint32_t shard_words(const struct tb_copy *copy, uint32_t shard)
{
    return (uint32_t)TB_BITMAP_WORDS(tb_arena_place(copy->region, shard)->manifest->chunk_count);
}

/* NULL: no memory; it is tried again with the next worker. */
static struct tb_proofs_told *told_of(struct tb_copy *copy)
{
    uint64_t words = 0, chunks = 0;
    if (copy->proofs_told != NULL) return copy->proofs_told;
    for (uint32_t i = 0; i < copy->key.shard_count; i++) {
        words += shard_words(copy, i);
        chunks += tb_arena_place(copy->region, i)->manifest->chunk_count;
    }
    struct tb_proofs_told *t = tb_calloc(1, sizeof *t + 2 * words * sizeof t->words[0]);
    if (t == NULL) return NULL;
    t->left = (uint32_t)chunks;
    t->word_count = words;
    copy->proofs_told = t;
    return t;
}

/* Bits of the proofs that are known and were not told, into the second half; how many. */
static uint32_t find_news(struct tb_copy *copy, struct tb_proofs_told *t)
{
    uint32_t count = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < copy->key.shard_count; i++) {
        const uint64_t *proven = tb_arena_place(copy->region, i)->manifest->proven;
        for (uint32_t w = 0, words = shard_words(copy, i); w < words; w++, at++) {
            const uint64_t news = __atomic_load_n(&proven[w], __ATOMIC_ACQUIRE) & ~t->words[at];
            t->words[t->word_count + at] = news;
            count += (uint32_t)__builtin_popcountll(news);
        }
    }
    return count;
}

static void tell_news(struct tb_copy *copy)
{
    struct tb_proofs_told *t = copy->proofs_told;
    struct followers all;
    const uint32_t count = find_news(copy, t);
    if (count == 0 || !followers_new(copy->d, &copy->key.uid, &all)) return;
    TB_ASSERT(count <= t->left);
    uint64_t at = 0;
    for (uint32_t i = 0; i < copy->key.shard_count; at += shard_words(copy, i++))
        shard_tell(copy, i, t->words + t->word_count + at, &all);
    for (uint64_t w = 0; w < t->word_count; w++)
        t->words[w] |= t->words[t->word_count + w];
    t->left -= count;
    tb_free(all.list);
}

void tb_worker_proofs_begin(struct tb_worker_session *s, struct tb_copy *copy)
{
    TB_ASSERT(copy->region != NULL && tb_arena_region_complete(copy->region));
    struct tb_proofs_told *t = told_of(copy);
    const struct followers one = {.list = &s, .count = 1};
    if (t == NULL) return;
    uint64_t at = 0;
    for (uint32_t i = 0; i < copy->key.shard_count; at += shard_words(copy, i++))
        shard_tell(copy, i, t->words + at, &one);
    if (t->left > 0) tell_news(copy);
}

bool tb_worker_proofs_tick(struct tb_daemon *d)
{
    bool busy = false;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (c->proofs_told == NULL || c->proofs_told->left == 0 || c->region == NULL) continue;
        tell_news(c);
        busy = busy || c->proofs_told->left > 0;
    }
    return busy;
}
