/* patch_tied.c - chunks of a patch that have tensors which stand in another's memory: what of them
 * is written, and that they are there. */
#include <string.h>

#include "intra/client/follow/patch_inside.h"

/* The first tensor of the chunk, and behind its last one. */
struct tensors_of {
    uint32_t first;
    uint64_t end;
};

static struct tensors_of tensors_of(const struct tb_patch_shard *sh, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    return (struct tensors_of){tb_layout_tensor_at(&sh->manifest->layout, chunk->offset),
                               chunk->offset + chunk->bytes};
}

enum tb_patch_tied tb_patch_tied_of(const struct tb_patch_shard *sh, uint32_t k)
{
    const struct tb_layout *layout = &sh->manifest->layout;
    if (sh->ties == NULL) return TB_PATCH_TIED_NONE;
    const struct tensors_of in = tensors_of(sh, k);
    bool tied = false, own = in.end > layout->bytes;
    for (uint32_t i = in.first; i < layout->tensor_count && layout->tensors[i].offset < in.end; i++) {
        if (layout->tensors[i].bytes == 0) continue;
        tied = tied || sh->ties[i] != TB_PATCH_OWN;
        own = own || sh->ties[i] == TB_PATCH_OWN;
    }
    if (!tied) return TB_PATCH_TIED_NONE;
    return own ? TB_PATCH_TIED_SOME : TB_PATCH_TIED_ALL;
}

void tb_patch_own(struct tb_patch *patch)
{
    for (uint32_t s = 0; s < patch->shard_count; s++) {
        struct tb_patch_shard *sh = &patch->shards[s];
        for (uint32_t i = 0; sh->ties != NULL && i < sh->manifest->layout.tensor_count; i++)
            sh->own[i] = sh->ties[i] == TB_PATCH_OWN ? sh->memory[i] : NULL;
    }
}

/* The chunks of the first tensor have its digests, and were looked at. */
static bool is_alike(const struct tb_patch_shard *sh, uint32_t k)
{
    const struct tb_layout *layout = &sh->manifest->layout;
    const struct tensors_of in = tensors_of(sh, k);
    bool alike = in.end <= layout->bytes;
    for (uint32_t i = in.first; i < layout->tensor_count && layout->tensors[i].offset < in.end; i++)
        alike = alike && (layout->tensors[i].bytes == 0 || sh->ties[i] == TB_PATCH_TIED_ALIKE);
    return alike;
}

/* Of a chunk that stayed whole, what it says of tied tensors, where others of it are not here. */
static bool parts_hold(const struct tb_patch_shard *sh, struct tb_patch_tool *t, uint32_t k)
{
    const struct tb_layout *layout = &sh->manifest->layout;
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    const struct tensors_of in = tensors_of(sh, k);
    uint32_t bytes = 0;
    uint64_t moved;
    const uint8_t *whole = tb_place_chunk(sh->place, k, &bytes);
    const bool far = tb_patch_side_of(sh, chunk) != TB_PATCH_ON_HOST;
    if (far && tb_patch_exchange(sh, chunk, t->gathered, false, &moved) != TB_OK) return false;
    for (uint32_t i = in.first; i < layout->tensor_count && layout->tensors[i].offset < in.end; i++) {
        const struct tb_tensor *tensor =
            &layout->tensors[i]; /* all of it: one that is larger has chunks of its own */
        if (tensor->bytes == 0 || sh->ties[i] == TB_PATCH_OWN) continue;
        const uint64_t at = tensor->offset - chunk->offset;
        if (memcmp(far ? t->gathered + at : sh->memory[i], whole + at, tensor->bytes) != 0) return false;
    }
    return true;
}

/* All of it is here, and as sealed; or what is here of it is. */
static bool tied_holds(const struct tb_patch_shard *sh, struct tb_patch_tool *t, uint32_t k)
{
    if (tb_spread_covers(&sh->spread, &sh->manifest->chunks[k])) return tb_patch_holds(sh, t, k);
    return parts_hold(sh, t, k);
}

bool tb_patch_ties_hold(struct tb_patch *patch, struct tb_patch_tool *t)
{
    for (uint32_t s = 0; s < patch->shard_count; s++) {
        const struct tb_patch_shard *sh = &patch->shards[s];
        for (uint32_t k = 0; sh->ties != NULL && k < sh->manifest->chunk_count; k++) {
            if (tb_patch_tied_of(sh, k) == TB_PATCH_TIED_NONE || is_alike(sh, k)) continue;
            if (!tied_holds(sh, t, k)) return false;
        }
    }
    return true;
}
