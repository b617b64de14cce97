/* arena_verify.c - digests again what an earlier process left in the file.
 *
 * A chunk that fails: first the new life, then the cleared bit, so that no peer sees a
 * loss within one life. */
#include "gateway/arena/arena_verify.h"

#include <inttypes.h>

#include "base/assert.h"
#include "base/layout/chunk_digest.h"
#include "base/log.h"
#include "gateway/arena/arena_inner.h"
#include "gateway/arena/arena_regions.h"

struct suspect {
    struct tb_arena_region *region;
    struct arena_shard *s;
    uint32_t k;
};

static bool is_suspect(const struct arena_shard *s, uint32_t k)
{
    return s->suspect != NULL && tb_bitmap_test(s->suspect, k);
}

/* Findings of a pass over a chunk. */
struct found {
    bool good;
    bool proves; /* this site makes its proof, and had none */
    struct tb_blake3 proof;
    uint64_t bytes;
};

static struct found pass(const struct arena_shard *s, uint32_t k)
{
    uint32_t bytes = 0;
    TB_ASSERT(k < s->manifest.chunk_count);
    const uint8_t *chunk = tb_place_chunk(&s->place, k, &bytes);
    struct found f = {.good = tb_chunk_matches(&s->manifest, k, chunk), .bytes = bytes};
    f.proves = f.good && s->proves && !tb_manifest_proof(&s->manifest, k, &f.proof);
    if (f.proves) f.proof = tb_chunk_proof(&s->manifest, k, chunk);
    return f;
}

static void condemn(const struct suspect *chunk)
{
    const struct tb_arena_region *region = chunk->region;
    char uid[TB_HEX_CHARS];
    TB_ASSERT(tb_place_held(&chunk->s->place, chunk->k));
    tb_arena_life_renew(region->arena);
    tb_bitmap_clear(chunk->s->place.held, chunk->k);
    chunk->s->condemned++;
    (void)__atomic_fetch_add(&chunk->s->rotted, 1, __ATOMIC_RELEASE);
    tb_id_format(&region->key.uid, uid);
    tb_log(TB_LOG_ERROR, "arena.chunk_damaged",
           "model=%s number=%" PRIu64 " uid=%s shard=%" PRIu32 " chunk=%" PRIu32
           " action=fetch_again_under_a_new_life",
           region->key.model.text, region->key.number, uid, (uint32_t)(chunk->s - region->shards), chunk->k);
}

/* With the mutex. Of two that digested the same chunk only the first acts: the other may speak of
 * bytes that have been landed again since. True when this call condemned it. */
static bool judge(const struct suspect *chunk, const struct found *f)
{
    if (!is_suspect(chunk->s, chunk->k)) return false;
    if (!f->good) condemn(chunk);
    if (f->proves) tb_manifest_set_proof(&chunk->s->manifest, chunk->k, &f->proof);
    tb_bitmap_clear(chunk->s->suspect, chunk->k);
    TB_ASSERT(chunk->s->suspects > 0);
    chunk->s->suspects--;
    return !f->good;
}

static bool find_suspect(struct tb_arena *arena, struct suspect *chunk_out)
{
    for (struct tb_arena_region *region = arena->first; region != NULL; region = region->next) {
        if (region->leaving) continue;
        for (uint32_t i = 0; i < region->key.shard_count; i++) {
            struct arena_shard *s = &region->shards[i];
            if (s->suspects == 0) continue;
            const uint32_t k = tb_bitmap_next_set(s->suspect, s->manifest.chunk_count, 0);
            TB_ASSERT(k < s->manifest.chunk_count); /* as many are marked as are counted */
            *chunk_out = (struct suspect){region, s, k};
            return true;
        }
    }
    return false;
}

/* One chunk. With the mutex, which is let go for the pass over its bytes. */
static void verify_one(struct tb_arena *arena, const struct suspect *chunk, struct tb_arena_verified *done)
{
    chunk->region->verifying++;
    pthread_mutex_unlock(&arena->mutex);
    const struct found f = pass(chunk->s, chunk->k);
    pthread_mutex_lock(&arena->mutex);
    done->bad += judge(chunk, &f) ? 1 : 0;
    done->chunks++;
    done->bytes += f.bytes;
    chunk->region->verifying--;
    pthread_cond_broadcast(&arena->verified);
}

enum tb_status tb_arena_verify_step(struct tb_arena *arena, uint64_t max_bytes,
                                    struct tb_arena_verified *done_out)
{
    struct suspect chunk;
    *done_out = (struct tb_arena_verified){0};
    pthread_mutex_lock(&arena->mutex);
    bool more = find_suspect(arena, &chunk);
    while (more && (done_out->chunks == 0 || done_out->bytes < max_bytes)) {
        verify_one(arena, &chunk, done_out);
        more = find_suspect(arena, &chunk);
    }
    pthread_mutex_unlock(&arena->mutex);
    return more ? TB_AGAIN : TB_END;
}

/* With the mutex, which is let go for the pass over its bytes. */
static struct found pass_beside(const struct suspect *chunk)
{
    struct tb_arena *arena = chunk->region->arena;
    chunk->region->verifying++;
    pthread_mutex_unlock(&arena->mutex);
    const struct found f = pass(chunk->s, chunk->k);
    pthread_mutex_lock(&arena->mutex);
    TB_ASSERT(chunk->region->verifying > 0);
    chunk->region->verifying--;
    pthread_cond_broadcast(&arena->verified);
    return f;
}

/* ---- chunks that landed without a proof ---- */

static uint64_t unproven_word(const struct arena_shard *s, uint32_t w, bool suspects)
{
    const uint64_t held = __atomic_load_n(&s->place.held[w], __ATOMIC_ACQUIRE);
    const uint64_t others = s->suspect != NULL && !suspects ? s->suspect[w] : 0; /* the verifier's */
    return held & ~others & ~__atomic_load_n(&s->manifest.proven[w], __ATOMIC_ACQUIRE);
}

/* The next one from where the last search ended: chunks land in order, nearly. */
static bool shard_unproven(struct arena_shard *s, bool suspects, uint32_t *k_out)
{
    const uint32_t words = (uint32_t)TB_BITMAP_WORDS(s->manifest.chunk_count);
    for (uint32_t i = 0; i < words; i++) {
        const uint32_t w = (s->prove_from + i) % words;
        const uint64_t word = unproven_word(s, w, suspects);
        if (word == 0) continue;
        s->prove_from = w;
        *k_out = w * 64 + (uint32_t)__builtin_ctzll(word);
        return true;
    }
    return false;
}

static bool region_unproven(struct tb_arena_region *region, bool suspects, struct suspect *chunk_out)
{
    for (uint32_t i = 0; i < region->key.shard_count && !region->leaving; i++) {
        struct arena_shard *s = &region->shards[i];
        if (!s->proves || s->all_proven || !tb_arena_place_ready(region, i)) continue;
        s->all_proven = tb_manifest_all_proven(&s->manifest);
        *chunk_out = (struct suspect){.region = region, .s = s};
        if (!s->all_proven && shard_unproven(s, suspects, &chunk_out->k)) return true;
    }
    return false;
}

/* With the mutex, which the main loop waits for: from the region of the last one on, and no more of
 * shards that are done. */
static bool find_unproven(struct tb_arena *arena, bool suspects, struct suspect *chunk_out)
{
    struct tb_arena_region *from = arena->prove_from != NULL ? arena->prove_from : arena->first;
    for (struct tb_arena_region *r = from; r != NULL;) {
        if (region_unproven(r, suspects, chunk_out)) {
            arena->prove_from = r;
            return true;
        }
        r = r->next != NULL ? r->next : arena->first;
        if (r == from) break;
    }
    return false;
}

/* With the mutex, which is let go for the pass. A chunk that was condemned meanwhile may land
 * again: the pass may speak of a mixture, and counts for nothing. */
static void prove_one(const struct suspect *chunk, struct tb_arena_verified *done)
{
    struct arena_shard *s = chunk->s;
    const uint32_t condemned = s->condemned;
    const bool suspect = is_suspect(s, chunk->k);
    const struct found f = pass_beside(chunk);
    done->chunks++;
    done->bytes += f.bytes;
    if (suspect) {
        done->bad += judge(chunk, &f) ? 1 : 0;
        return;
    }
    if (condemned != s->condemned || !tb_place_held(&s->place, chunk->k)) return;
    if (f.proves) tb_manifest_set_proof(&s->manifest, chunk->k, &f.proof);
    if (f.good) return;
    condemn(chunk);
    done->bad++;
}

enum tb_status tb_arena_prove_step(struct tb_arena *arena, uint64_t max_bytes, bool suspects,
                                   struct tb_arena_verified *done_out)
{
    struct suspect chunk;
    *done_out = (struct tb_arena_verified){0};
    pthread_mutex_lock(&arena->mutex);
    bool more = find_unproven(arena, suspects, &chunk);
    while (more && (done_out->chunks == 0 || done_out->bytes < max_bytes)) {
        prove_one(&chunk, done_out);
        if (tb_manifest_all_proven(&chunk.s->manifest)) done_out->proven++;
        more = find_unproven(arena, suspects, &chunk);
    }
    pthread_mutex_unlock(&arena->mutex);
    return more ? TB_AGAIN : TB_END;
}

uint32_t tb_arena_place_rotted(struct tb_arena_region *region, uint32_t shard)
{
    if (!tb_arena_place_ready(region, shard)) return 0;
    return __atomic_exchange_n(&region->shards[shard].rotted, 0, __ATOMIC_ACQ_REL);
}

bool tb_arena_chunk_trusted(const struct tb_arena_region *region, uint32_t shard, uint32_t k)
{
    if (!tb_arena_place_ready(region, shard)) return false;
    const struct arena_shard *s = &region->shards[shard];
    return tb_place_held(&s->place, k) && !is_suspect(s, k);
}

/* Nearly always the chunk is good, and the pass over its bytes holds up nobody. A chunk that
 * fails is passed over once more with the mutex: meanwhile another caller may have condemned it,
 * and it may be landing again. The second caller finds it absent, or good.
 *
 * A landing chunk sets its bit without the mutex. So the bit is read before each pass and not
 * after, and a chunk that was absent at the last look is not judged. */
enum tb_status tb_arena_chunk_recheck(struct tb_arena_region *region, uint32_t shard, uint32_t k)
{
    if (!tb_arena_place_ready(region, shard)) return TB_CHUNK_ABSENT;
    const struct suspect chunk = {region, &region->shards[shard], k};
    const struct tb_place *place = &chunk.s->place;
    struct found f = {.good = false};
    pthread_mutex_lock(&region->arena->mutex);
    bool held = tb_place_held(place, k);
    if (held) f = pass_beside(&chunk);
    if (held) held = tb_place_held(place, k);
    if (held && !f.good) f = pass(chunk.s, k);
    if (held && is_suspect(chunk.s, k))
        (void)judge(&chunk, &f);
    else if (held && !f.good)
        condemn(&chunk);
    pthread_mutex_unlock(&region->arena->mutex);
    return !held ? TB_CHUNK_ABSENT : f.good ? TB_OK : TB_CHUNK_DIGEST;
}

enum tb_status tb_arena_chunk_verify(struct tb_arena_region *region, uint32_t shard, uint32_t k)
{
    if (tb_arena_chunk_trusted(region, shard, k)) return TB_OK;
    return tb_arena_chunk_recheck(region, shard, k);
}
