/* publish_pass.c - the pass over one shard, a chunk at a time on any thread of the pool. */
#include "intra/client/publish/publish_pass.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/chunk_digest.h"
#include "base/system_calls.h"

/* A tile is read, copied and digested while it is in the second-level cache; 64 KiB leaves room for
 * both copies of it. */
#define TILE_BYTES (64u << 10)

struct run {
    const struct tb_pass *pass;
    struct tb_digest *digests; /* chunk_count */
    /* With a codec: encoded chunks are put one behind another into `side`, which has room for all
     * of the shard and whose pages exist once they are written. */
    uint8_t *side;
    _Atomic uint64_t side_used;
    struct slot {
        struct tb_codec *codec;
        uint8_t *gathered; /* a chunk whose tensors stand apart */
        uint8_t *encoded;
    } * slots;
    uint32_t slot_count;
    size_t encoded_cap;
    bool digested;      /* all of it, and copied: a device's are */
    _Atomic int failed; /* enum tb_status */
};

static struct tb_spread spread_of(const struct tb_pass *pass)
{
    return (struct tb_spread){.layout = &pass->manifest->layout,
                              .tensors = pass->tensors,
                              .rows = pass->rows,
                              .blobs = pass->blobs};
}

static void digest_tiles(struct tb_digest_state *state, const uint8_t *from, uint8_t *to, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t tile = bytes - done < TILE_BYTES ? bytes - done : TILE_BYTES;
        if (to != NULL) memcpy(to + done, from + done, tile);
        tb_digest_update(state, (to != NULL ? to : from) + done, tile);
        done += tile;
    }
}

/* Copies (into the shadow, if there is one) and digests chunk k. */
static void digest_chunk(struct run *run, uint32_t k)
{
    const struct tb_pass *pass = run->pass;
    const struct tb_chunk *chunk = &pass->manifest->chunks[k];
    struct tb_digest_state state;
    tb_digest_begin(&state);
    const struct tb_spread spread = spread_of(pass);
    uint32_t tensor = tb_layout_tensor_at(spread.layout, chunk->offset);
    const uint64_t end = chunk->offset + chunk->bytes;
    for (uint64_t at = chunk->offset; at < end;) {
        const struct tb_stretch from = tb_spread_at(&spread, at, end - at, &tensor);
        /* blobs stand already */
        const bool copy = pass->shadow != NULL && at < pass->manifest->layout.bytes;
        digest_tiles(&state, from.at, copy ? pass->shadow + at : NULL, from.bytes);
        at += from.bytes;
    }
    run->digests[k] = tb_digest_end(&state);
}

/* ---- encoding ---- */

/* Chunk k as one contiguous range: in the shadow, in its tensor, or gathered. */
static const uint8_t *contiguous(struct run *run, const struct slot *slot, const struct tb_chunk *chunk)
{
    const struct tb_pass *pass = run->pass;
    if (pass->shadow != NULL) return pass->shadow + chunk->offset;
    const struct tb_spread spread = spread_of(pass);
    return tb_spread_gather(&spread, chunk, slot->gathered);
}

static enum tb_status encode_chunk(struct run *run, uint32_t k, uint32_t slot_index)
{
    TB_ASSERT(k < run->pass->manifest->chunk_count && slot_index < run->slot_count);
    const struct tb_pass *pass = run->pass;
    const struct tb_chunk *chunk = &pass->manifest->chunks[k];
    struct slot *slot = &run->slots[slot_index];
    if (slot->codec == NULL) {
        const enum tb_status made = tb_codec_new(&slot->codec);
        if (made != TB_OK) return made;
    }
    const struct tb_codec_input in = {.bytes = contiguous(run, slot, chunk),
                                      .count = chunk->bytes,
                                      .dtype = tb_layout_dtype_at(&pass->manifest->layout, chunk->offset)};
    struct tb_codec_coded coded;
    const enum tb_status status =
        tb_codec_encode(slot->codec, (struct tb_codec_form){.id = pass->codec}, &in,
                        (struct tb_codec_room){slot->encoded, run->encoded_cap}, &coded);
    if (status != TB_OK) return status;
    if (coded.form.id == TB_CODEC_RAW) { /* readers take the packed bytes */
        pass->encoded_chunks[k] = (struct tb_source_encoded){.codec = TB_CODEC_RAW, .bytes = chunk->bytes};
        return TB_OK;
    }
    const uint64_t offset = atomic_fetch_add(&run->side_used, coded.count);
    TB_ASSERT(offset + coded.count <= pass->manifest->bytes); /* each got smaller than its chunk */
    memcpy(run->side + offset, slot->encoded, coded.count);
    pass->encoded_chunks[k] = (struct tb_source_encoded){
        .codec = (uint8_t)coded.form.id, .bytes = (uint32_t)coded.count, .offset = offset};
    return TB_OK;
}

static void pass_chunk(void *user, uint32_t k, uint32_t slot)
{
    struct run *run = user;
    if (!run->digested) digest_chunk(run, k);
    if (run->slots == NULL || atomic_load_explicit(&run->failed, memory_order_relaxed) != TB_OK) return;
    const enum tb_status status = encode_chunk(run, k, slot);
    if (status != TB_OK) atomic_store(&run->failed, (int)status);
}

static uint32_t largest_chunk(const struct tb_manifest *m)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < m->chunk_count; k++)
        if (m->chunks[k].bytes > most) most = m->chunks[k].bytes;
    return most;
}

static void free_slots(struct run *run)
{
    for (uint32_t i = 0; run->slots != NULL && i < run->slot_count; i++) {
        tb_codec_free(run->slots[i].codec);
        tb_free(run->slots[i].gathered);
        tb_free(run->slots[i].encoded);
    }
    tb_free(run->slots);
    if (run->side != NULL) munmap(run->side, run->pass->manifest->bytes);
}

/* On failure the caller frees what is there. */
static enum tb_status new_slots(struct run *run, uint32_t count)
{
    const uint32_t chunk_bytes = largest_chunk(run->pass->manifest);
    run->encoded_cap = tb_codec_bound(run->pass->codec, chunk_bytes);
    run->slots = tb_calloc(count, sizeof *run->slots);
    if (run->slots == NULL) return TB_SITE_NOMEM;
    run->slot_count = count;
    for (uint32_t i = 0; i < count; i++) {
        run->slots[i].gathered = tb_malloc(chunk_bytes);
        run->slots[i].encoded = tb_malloc(run->encoded_cap);
        if (run->slots[i].gathered == NULL || run->slots[i].encoded == NULL) return TB_SITE_NOMEM;
    }
    /* No chunk is stored here unless it got smaller, so the shard's size is always enough. */
    void *side = tb_sys_mmap(NULL, run->pass->manifest->bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (side == MAP_FAILED) return TB_SITE_NOMEM;
    run->side = side;
    return TB_OK;
}

/* Readers of this host map what is served: the encoded chunks move into memory of just their
 * size. */
static enum tb_status publish_side(struct run *run, struct tb_shared_memory *encoded_out)
{
    TB_ASSERT(run->slots != NULL);
    const uint64_t used = atomic_load(&run->side_used);
    if (used == 0) return TB_OK;
    const enum tb_status status = tb_shared_memory_new("tombolo-encoded", used, encoded_out);
    if (status == TB_OK) memcpy(encoded_out->bytes, run->side, used);
    return status;
}

/* ---- from a device ---- */

struct landed {
    struct run *run;
    struct tb_crew *crew;
    uint32_t first;
    const uint8_t *bytes;
};

static void digest_landed(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    const struct landed *l = user;
    const struct tb_chunk *chunks = l->run->pass->manifest->chunks;
    const struct tb_chunk *chunk = &chunks[l->first + piece];
    l->run->digests[l->first + piece] =
        tb_digest_of(l->bytes + (chunk->offset - chunks[l->first].offset), chunk->bytes);
}

static void on_landed(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    struct landed *l = user;
    l->first = first;
    l->bytes = bytes;
    tb_crew_run(l->crew, count, digest_landed, l);
}

static enum tb_status pass_from_device(struct tb_crew *crew, struct run *run)
{
    TB_ASSERT(run->pass->gpu != NULL);
    const struct tb_pass *pass = run->pass;
    struct landed landed = {.run = run, .crew = crew};
    const struct tb_gpu_pass on_device = {.manifest = pass->manifest,
                                          .from = spread_of(pass),
                                          .to = pass->shadow,
                                          .digests = run->digests,
                                          .landed = on_landed,
                                          .user = &landed};
    run->digested = true;
    return tb_gpu_pass(pass->gpu, &on_device);
}

/* Copies, digests and encodes what is asked for. */
static enum tb_status pass_all(struct tb_crew *crew, struct run *run)
{
    if (run->pass->gpu != NULL) {
        const enum tb_status status = pass_from_device(crew, run);
        if (status != TB_OK || run->slots == NULL) return status;
    }
    tb_crew_run(crew, run->pass->manifest->chunk_count, pass_chunk, run);
    return (enum tb_status)atomic_load(&run->failed);
}

enum tb_status tb_pass_run(struct tb_crew *crew, const struct tb_pass *pass,
                           struct tb_shared_memory *encoded_out)
{
    struct run run = {.pass = pass, .digests = pass->manifest->digests};
    enum tb_status status = TB_OK;
    const bool encode = pass->codec != TB_CODEC_RAW && pass->manifest->chunk_count > 0;
    if (encode) status = new_slots(&run, tb_crew_slots(crew));
    if (status == TB_OK) status = pass_all(crew, &run);
    if (status == TB_OK && encode) status = publish_side(&run, encoded_out);
    free_slots(&run);
    return status;
}

static void prove_chunk(void *user, uint32_t k, uint32_t slot)
{
    (void)slot;
    const struct tb_pass *pass = user;
    const struct tb_chunk *chunk = &pass->manifest->chunks[k];
    const struct tb_spread spread = spread_of(pass);
    struct tb_blake3_state state;
    tb_blake3_begin(&state);
    uint32_t tensor = tb_layout_tensor_at(spread.layout, chunk->offset);
    const uint64_t end = chunk->offset + chunk->bytes;
    for (uint64_t at = chunk->offset; at < end;) {
        struct tb_stretch from = {pass->shadow != NULL ? pass->shadow + at : NULL, end - at};
        if (pass->shadow == NULL) from = tb_spread_at(&spread, at, end - at, &tensor);
        tb_blake3_update(&state, from.at, from.bytes);
        at += from.bytes;
    }
    const struct tb_blake3 proof = tb_blake3_end(&state);
    tb_manifest_set_proof(pass->manifest, k, &proof);
}

void tb_pass_prove(struct tb_crew *crew, const struct tb_pass *pass)
{
    TB_ASSERT(pass->gpu == NULL || pass->shadow != NULL); /* cores read no device */
    tb_crew_run(crew, pass->manifest->chunk_count, prove_chunk, (void *)(uintptr_t)pass);
}

enum tb_status tb_pass_compare(struct tb_crew *crew, const struct tb_pass *with, uint32_t *differs_out)
{
    const struct tb_manifest *manifest = with->manifest;
    if (manifest->chunk_count == 0) return TB_OK;
    const struct tb_pass pass = {.manifest = with->manifest,
                                 .tensors = with->tensors,
                                 .rows = with->rows,
                                 .blobs = with->blobs,
                                 .gpu = with->gpu};
    struct run run = {.pass = &pass, .digests = tb_calloc(manifest->chunk_count, sizeof *run.digests)};
    if (run.digests == NULL) return TB_SITE_NOMEM;
    enum tb_status status = pass_all(crew, &run);
    for (uint32_t k = 0; k < manifest->chunk_count && status == TB_OK; k++) {
        if (tb_chunk_has_digest(manifest, k, &run.digests[k])) continue;
        *differs_out = k;
        status = TB_CONFLICT;
    }
    tb_free(run.digests);
    return status;
}
