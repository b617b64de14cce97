/* patch_device.c - chunks of a patch that stand on a device: the device proves a delta, encodes a
 * chunk as a delta, and switches. Over the bus go deltas and chunks that came whole. No byte of the
 * tensors comes down. */
#include "base/allocate.h"
#include "base/codec/sparse.h"
#include "base/layout/chunk_digest.h"
#include "intra/client/follow/patch_inside.h"

/* Of a version's bytes on the device, for deltas that wait there for the switch. They are mostly a
 * thirtieth; those above go to pinned memory. */
#define KEEP_PART 16u

/* ---- where a chunk stands ---- */

enum tb_patch_side tb_patch_side_of(const struct tb_patch_shard *sh, const struct tb_chunk *chunk)
{
    const struct tb_layout *layout = &sh->manifest->layout;
    const uint64_t end = chunk->offset + chunk->bytes;
    if (sh->patch->target->gpu == NULL) return TB_PATCH_ON_HOST;
    bool host = end > layout->bytes, device = false;
    for (uint32_t i = tb_layout_tensor_at(layout, chunk->offset);
         i < layout->tensor_count && layout->tensors[i].offset < end; i++) {
        if (layout->tensors[i].bytes == 0) continue;
        device = device || sh->on_device[i];
        host = host || !sh->on_device[i];
    }
    if (!device) return TB_PATCH_ON_HOST;
    return host ? TB_PATCH_ON_BOTH : TB_PATCH_ON_DEVICE;
}

/* Its stretches that are here, one behind another; counted where `to` is NULL. */
static uint32_t pieces_in(const struct tb_patch_shard *sh, uint8_t *const *memory,
                          const struct tb_chunk *chunk, struct tb_gpu_piece *to)
{
    const struct tb_spread spread = {.layout = &sh->manifest->layout, .tensors = memory};
    uint32_t tensor = tb_layout_tensor_at(&sh->manifest->layout, chunk->offset), count = 0;
    const uint64_t end = chunk->offset + chunk->bytes;
    for (uint64_t at = chunk->offset; at < end;) {
        const struct tb_stretch s = tb_spread_at(&spread, at, end - at, &tensor);
        if (to != NULL) to[count] = (struct tb_gpu_piece){s.at, s.bytes};
        count++;
        at += s.bytes;
    }
    return count;
}

static uint32_t pieces_of(const struct tb_patch_shard *sh, const struct tb_chunk *chunk,
                          struct tb_gpu_piece *to)
{
    return pieces_in(sh, sh->memory, chunk, to);
}

enum tb_status tb_patch_exchange(const struct tb_patch_shard *sh, const struct tb_chunk *chunk,
                                 uint8_t *whole, bool to_tensors, uint64_t *bytes_out)
{
    uint8_t *const *memory = to_tensors ? sh->own : sh->memory;
    const uint32_t count = pieces_in(sh, memory, chunk, NULL);
    struct tb_gpu_piece *pieces = tb_calloc((size_t)count + 1, sizeof *pieces);
    struct tb_gpu_rows *moves = tb_calloc((size_t)count + 1, sizeof *moves);
    enum tb_status status = pieces == NULL || moves == NULL ? TB_SITE_NOMEM : TB_OK;
    *bytes_out = 0;
    if (status == TB_OK) {
        uint32_t n = 0;
        (void)pieces_in(sh, memory, chunk, pieces);
        for (uint32_t i = 0; i < count; whole += pieces[i++].bytes) {
            if (pieces[i].at == NULL) continue;
            moves[n++].row = to_tensors ? (struct tb_gpu_move){pieces[i].at, whole, pieces[i].bytes}
                                        : (struct tb_gpu_move){whole, pieces[i].at, pieces[i].bytes};
            *bytes_out += pieces[i].bytes;
        }
        status = tb_gpu_move(sh->patch->target->gpu, moves, n);
    }
    tb_free(moves);
    tb_free(pieces);
    return status;
}

/* ---- asked for while a version lands ---- */

/* A block of the device works on a chunk, so it takes as long for several as for one. */
struct proof {
    struct tb_gpu_proof asked;
    struct tb_patch_shard *sh;
    struct tb_place_look *look;
    struct tb_gpu_piece pieces[]; /* of the chunk */
};
struct encoding {
    struct tb_asked asked;
    struct tb_gpu_new_delta delta;
};

static enum tb_status encode_all(void *user, struct tb_asked *const *all, uint32_t count)
{
    const struct tb_patch *patch = user;
    struct tb_gpu_new_delta list[TB_TOGETHER_MAX];
    for (uint32_t i = 0; i < count; i++)
        list[i] = ((const struct encoding *)all[i])->delta;
    const enum tb_status status = tb_gpu_encode(patch->target->gpu, list, count);
    for (uint32_t i = 0; i < count; i++)
        ((struct encoding *)all[i])->delta = list[i];
    return status;
}

void tb_patch_device_init(struct tb_patch *patch)
{
    tb_together_init(&patch->encodings, encode_all, patch);
    pthread_mutex_init(&patch->device_lock, NULL);
}

void tb_patch_device_fini(struct tb_patch *patch)
{
    tb_gpu_proofs_close(patch->proofs);
    tb_together_fini(&patch->encodings);
    pthread_mutex_destroy(&patch->device_lock);
}

/* The caller's to free; NULL: no memory. */
static struct tb_gpu_piece *new_pieces(const struct tb_patch_shard *sh, const struct tb_chunk *chunk,
                                       uint32_t *count_out)
{
    *count_out = pieces_of(sh, chunk, NULL);
    struct tb_gpu_piece *pieces = tb_calloc((size_t)*count_out + 1, sizeof *pieces);
    if (pieces != NULL) (void)pieces_of(sh, chunk, pieces);
    return pieces;
}

static bool begin_proofs(void *user)
{
    const struct tb_patch *patch = user;
    return tb_patch_begin_look(patch);
}

static void end_proofs(void *user)
{
    const struct tb_patch *patch = user;
    tb_patch_end_look(patch);
}

/* The answer that place.h will give. Of a delta that it refuses nothing may be kept: the chunk
 * comes whole, and its delta is made here. */
static bool is_proven(const struct tb_patch_shard *sh, const struct tb_place_look *look,
                      const struct tb_gpu_delta *delta)
{
    const bool foreign = look->came.foreign;
    return tb_chunk_has_digest(sh->manifest, look->chunk, &delta->digest) &&
           (!foreign || tb_chunk_has_proof(sh->manifest, look->chunk, &delta->proof));
}

/* On the GPU's thread. The chunk has the kept delta before place.h asks for it. */
static void on_proven(struct tb_gpu_ask *asked, enum tb_status status)
{
    struct proof *mine = (struct proof *)asked; /* its first member's first */
    const struct tb_gpu_delta *delta = &mine->asked.delta;
    struct tb_patch_shard *sh = mine->sh;
    struct tb_place_look *look = mine->look;
    const struct tb_digest digest = delta->digest;
    const bool is_delta = status == TB_OK && delta->patched;
    look->proof = delta->proof; /* zero where nobody asked for it */
    if (is_delta && is_proven(sh, look, delta)) sh->chunks[look->chunk].kept = delta->kept;
    tb_free(mine);
    tb_place_looked(look, is_delta ? TB_OK : TB_CHUNK_CODEC, &digest);
}

/* NULL: no memory. */
static struct proof *new_proof(struct tb_patch_shard *sh, struct tb_place_look *look)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[look->chunk];
    const struct tb_codec_coded *coded = look->came.encoded;
    const uint32_t count = pieces_of(sh, chunk, NULL);
    struct proof *p = tb_calloc(1, sizeof *p + count * sizeof p->pieces[0]);
    if (p == NULL) return NULL;
    (void)pieces_of(sh, chunk, p->pieces);
    p->sh = sh;
    p->look = look;
    p->asked = (struct tb_gpu_proof){.asked.answer = on_proven,
                                     .delta = {.pieces = p->pieces,
                                               .piece_count = count,
                                               .bytes = chunk->bytes,
                                               .form_bytes = (uint32_t)coded->count,
                                               .form = coded->bytes,
                                               .foreign = look->came.foreign}};
    return p;
}

/* Under the device's lock. */
static bool has_proofs(struct tb_patch *patch)
{
    uint64_t bytes = 0;
    if (patch->left) return false;
    if (patch->proofs != NULL) return true;
    for (uint32_t i = 0; i < patch->shard_count; i++)
        bytes += patch->shards[i].manifest->layout.bytes;
    const struct tb_gpu_proofs_user user = {begin_proofs, end_proofs, patch};
    return tb_gpu_proofs_open(patch->target->gpu, &user, bytes / KEEP_PART, &patch->proofs) == TB_OK;
}

/* The device's memory stays as long as the proofs do, because it waits for their end. */
static bool ask(struct tb_patch_shard *sh, struct tb_place_look *look)
{
    struct tb_patch *patch = sh->patch;
    struct proof *mine = NULL;
    if (!tb_patch_begin_look(patch)) return false;
    pthread_mutex_lock(&patch->device_lock);
    if (tb_gpu_may_patch(patch->target->gpu) && has_proofs(patch)) mine = new_proof(sh, look);
    if (mine != NULL) tb_gpu_proofs_ask(patch->proofs, &mine->asked);
    pthread_mutex_unlock(&patch->device_lock);
    tb_patch_end_look(patch);
    return mine != NULL;
}

void tb_patch_prove_by_device(struct tb_patch_shard *sh, struct tb_place_look *look)
{
    const struct tb_codec_coded *coded = look->came.encoded;
    const bool may =
        coded->form.id == TB_CODEC_SPARSE && coded->count < sh->manifest->chunks[look->chunk].bytes;
    if (!may || !ask(sh, look)) tb_place_looked(look, TB_CHUNK_CODEC, NULL);
}

struct tb_gpu_proofs *tb_patch_take_proofs(struct tb_patch *patch)
{
    pthread_mutex_lock(&patch->device_lock);
    struct tb_gpu_proofs *proofs = patch->proofs;
    patch->proofs = NULL;
    patch->left = true;
    pthread_mutex_unlock(&patch->device_lock);
    return proofs;
}

void tb_patch_proofs_facts(struct tb_patch *patch, struct tb_gpu_proofs_facts *facts_out)
{
    *facts_out = (struct tb_gpu_proofs_facts){.device_bytes = 0};
    pthread_mutex_lock(&patch->device_lock);
    if (patch->proofs != NULL) tb_gpu_proofs_facts(patch->proofs, facts_out);
    pthread_mutex_unlock(&patch->device_lock);
}

bool tb_patch_has_left(struct tb_patch *patch)
{
    pthread_mutex_lock(&patch->device_lock);
    const bool left = patch->left;
    pthread_mutex_unlock(&patch->device_lock);
    return left;
}

bool tb_patch_encode_by_device(struct tb_patch_shard *sh, uint32_t k, const uint8_t *bytes, uint8_t *room,
                               struct tb_codec_coded *coded_out)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    if (!tb_gpu_may_patch(sh->patch->target->gpu)) return false;
    uint32_t count;
    struct tb_gpu_piece *pieces = new_pieces(sh, chunk, &count);
    if (pieces == NULL) return false;
    const enum tb_dtype dtype = tb_layout_dtype_at(&sh->manifest->layout, chunk->offset);
    struct encoding mine = {.delta = {.pieces = pieces,
                                      .piece_count = count,
                                      .bytes = chunk->bytes,
                                      .chunk = bytes,
                                      .kind = tb_sparse_kind_of(dtype),
                                      .classes = TB_CODEC_CLASSES,
                                      .form = room}};
    const enum tb_status status = tb_together_ask(&sh->patch->encodings, &mine.asked);
    tb_free(pieces);
    *coded_out = (struct tb_codec_coded){{TB_CODEC_SPARSE, true}, room, mine.delta.form_bytes};
    return status == TB_OK && mine.delta.form_bytes > 0;
}

/* ---- the switch ---- */

bool tb_patch_device_decodes(const struct tb_patch_shard *sh, uint32_t k)
{
    return sh->chunks[k].state == TB_PATCH_CODED &&
           tb_patch_side_of(sh, &sh->manifest->chunks[k]) == TB_PATCH_ON_DEVICE;
}

/* Chunks that it decodes, in the order of all. */
struct device_deltas {
    struct tb_gpu_delta *deltas;
    struct tb_gpu_piece *pieces;
    uint32_t count, piece_count;
};

static void each_delta(const struct tb_patch *patch, struct device_deltas *d,
                       void (*fn)(struct device_deltas *d, struct tb_patch_shard *sh, uint32_t k, void *user),
                       void *user)
{
    for (uint32_t i = 0; i < patch->shard_count; i++) {
        struct tb_patch_shard *sh = &patch->shards[i];
        for (uint32_t k = 0; k < sh->manifest->chunk_count; k++)
            if (tb_patch_device_decodes(sh, k)) fn(d, sh, k, user);
    }
}

static void count_delta(struct device_deltas *d, struct tb_patch_shard *sh, uint32_t k, void *user)
{
    (void)user;
    d->count++;
    d->piece_count += pieces_of(sh, &sh->manifest->chunks[k], NULL);
}

static void list_delta(struct device_deltas *d, struct tb_patch_shard *sh, uint32_t k, void *user)
{
    (void)user;
    struct tb_gpu_piece *pieces = d->pieces + d->piece_count;
    const uint32_t count = pieces_of(sh, &sh->manifest->chunks[k], pieces);
    d->deltas[d->count++] = (struct tb_gpu_delta){.pieces = pieces,
                                                  .piece_count = count,
                                                  .bytes = sh->manifest->chunks[k].bytes,
                                                  .form_bytes = sh->chunks[k].bytes,
                                                  .form = sh->chunks[k].coded,
                                                  .kept = sh->chunks[k].kept};
    d->piece_count += count;
}

static void judge_delta(struct device_deltas *d, struct tb_patch_shard *sh, uint32_t k, void *user)
{
    struct tb_patch_applying *a = user;
    const struct tb_gpu_delta *delta = &d->deltas[d->count++];
    if (delta->patched) atomic_fetch_add(&a->patched_bytes, delta->bytes);
    if (delta->patched && tb_chunk_has_digest(sh->manifest, k, &delta->digest))
        tb_patch_done(&sh->chunks[k]);
    else
        tb_patch_failed(a, sh, k);
}

void tb_patch_apply_by_device(struct tb_patch_applying *a)
{
    struct tb_gpu_memory *gpu = a->patch->target->gpu;
    struct device_deltas d = {.count = 0};
    if (gpu == NULL) return;
    each_delta(a->patch, &d, count_delta, NULL);
    if (d.count == 0) return;
    d.deltas = tb_calloc(d.count, sizeof *d.deltas);
    d.pieces = tb_calloc(d.piece_count, sizeof *d.pieces);
    const uint32_t count = d.count;
    enum tb_status status = d.deltas == NULL || d.pieces == NULL ? TB_BAD_STATE : TB_OK;
    if (status == TB_OK) {
        d.count = d.piece_count = 0;
        each_delta(a->patch, &d, list_delta, NULL);
        status = tb_gpu_patch(gpu, d.deltas, count);
        d.count = 0;
        /* Without room on the device nothing is patched, and all of it comes whole. */
        if (status == TB_OK || status == TB_SITE_NOMEM) each_delta(a->patch, &d, judge_delta, a);
    }
    if (status != TB_OK && status != TB_SITE_NOMEM)
        atomic_store(&a->status, status == TB_BAD_STATE ? TB_SITE_NOMEM : status);
    tb_free(d.pieces);
    tb_free(d.deltas);
}
