/* copy_sweep.c - after damage in the arena the rest of that copy is digested, too.
 *
 * A worker digests the reported chunk alone: its memory is its own, and so is the time of its
 * threads. */
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/daemon/copies/copy_sweep.h"
#include "gateway/daemon/copies/copy_table.h"

/* A thirtieth of a core: 16 GiB take a minute. A pause is not made up for. */
#define SWEEP_BYTES_PER_S (256 << 20)
#define SWEEP_BYTES_MAX   (16 << 20)

void tb_copy_sweep_begin(struct tb_copy *copy)
{
    TB_ASSERT(copy->region != NULL);
    if (copy->sweeping) return;
    copy->sweeping = true;
    copy->sweep_shard = copy->sweep_chunk = copy->swept_chunks = copy->swept_bad = 0;
}

/* Its next chunk that is held, and is not for the verifier of a start to look at. False: there is
 * none. */
static bool sweep_next(struct tb_copy *copy, uint32_t *shard_out, uint32_t *chunk_out)
{
    for (; copy->sweep_shard < copy->key.shard_count; copy->sweep_shard++, copy->sweep_chunk = 0) {
        const uint32_t s = copy->sweep_shard;
        if (!tb_arena_place_ready(copy->region, s)) continue;
        const uint32_t count = tb_arena_place(copy->region, s)->manifest->chunk_count;
        while (copy->sweep_chunk < count) {
            const uint32_t k = copy->sweep_chunk++;
            if (!tb_arena_chunk_trusted(copy->region, s, k)) continue;
            *shard_out = s;
            *chunk_out = k;
            return true;
        }
    }
    return false;
}

static void sweep_end(struct tb_copy *copy)
{
    TB_ASSERT(copy->sweeping && copy->swept_bad <= copy->swept_chunks);
    copy->sweeping = false;
    copy->d->sweep_at = 0;
    tb_log(TB_LOG_INFO, "copy.looked_over", "model=%s run=%llu number=%llu chunks=%u damaged=%u",
           copy->key.model.text, (unsigned long long)copy->key.run_order,
           (unsigned long long)copy->key.number, copy->swept_chunks, copy->swept_bad);
}

static void sweep_copy(struct tb_daemon *d, struct tb_copy *copy)
{
    uint32_t s, k;
    TB_ASSERT(copy->sweeping && d->sweep_bytes <= SWEEP_BYTES_MAX);
    while (d->sweep_bytes > 0) {
        if (tb_copy_leaves(copy) || copy->region == NULL || !sweep_next(copy, &s, &k)) {
            sweep_end(copy);
            return;
        }
        d->sweep_bytes -= tb_arena_place(copy->region, s)->manifest->chunks[k].bytes;
        copy->swept_chunks++;
        if (tb_arena_chunk_recheck(copy->region, s, k) != TB_CHUNK_DIGEST) continue;
        copy->swept_bad++;
        copy->swept_untold++;
        atomic_fetch_add(&d->verify_bad, 1);
        uv_async_send(&d->verify_wake);
    }
}

void tb_copies_sweep(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_copy *copy = d->copies;
    while (copy != NULL && !copy->sweeping)
        copy = copy->next;
    if (copy == NULL) {
        d->sweep_at = 0;
        return;
    }
    if (d->sweep_at == 0) {
        d->sweep_at = now;
        d->sweep_bytes = 0;
    }
    const tb_time_ns since = tb_time_since(d->sweep_at, now), most = TB_SECONDS(1);
    d->sweep_at = now;
    d->sweep_bytes += (int64_t)((since < most ? since : most) / 1000 * SWEEP_BYTES_PER_S / 1000000);
    if (d->sweep_bytes > SWEEP_BYTES_MAX) d->sweep_bytes = SWEEP_BYTES_MAX;
    sweep_copy(d, copy);
}
