/* shard_files.c - see shard_files.h. */
#include "gateway/daemon/copies/shard_files.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"

struct tb_shard_files *tb_shard_files_new(const struct tb_manifest *manifest, const struct tb_name *rank,
                                          const void *digests)
{
    const size_t bytes = digests != NULL ? (size_t)manifest->blob_count * TB_DIGEST_BYTES : 0;
    struct tb_shard_files *row = tb_malloc(sizeof *row + bytes);
    if (row == NULL) return NULL;
    *row = (struct tb_shard_files){.root = manifest->root, .rank = *rank, .known = digests != NULL};
    if (bytes > 0) memcpy(row->digests, digests, bytes);
    return row;
}

static bool has_like(const struct tb_manifest *m, const struct tb_blob *blob)
{
    for (uint32_t i = 0; i < m->blob_count; i++)
        if (m->blobs[i].bytes == blob->bytes && strcmp(m->blobs[i].name, blob->name) == 0) return true;
    return false;
}

struct tb_shard_files *tb_shard_files_read(const struct tb_place *place, const struct tb_manifest *other)
{
    const struct tb_manifest *m = place->manifest;
    TB_ASSERT(tb_place_whole(place));
    const size_t bytes = (size_t)m->blob_count * TB_DIGEST_BYTES;
    struct tb_shard_files *row = tb_calloc(1, sizeof *row + bytes);
    if (row == NULL) return NULL;
    row->root = m->root;
    row->known = true;
    for (uint32_t i = 0; i < m->blob_count; i++) {
        const struct tb_blob *blob = &m->blobs[i];
        if (has_like(other, blob)) row->digests[i] = tb_digest_of(place->bytes + blob->offset, blob->bytes);
    }
    return row;
}

bool tb_shard_files_put(struct tb_shard_files_table *table, uint32_t shard_count, uint32_t shard,
                        struct tb_shard_files *row)
{
    if (table->rows == NULL) {
        table->rows = tb_calloc(shard_count, sizeof *table->rows);
        if (table->rows == NULL) return false;
        table->shard_count = shard_count;
    }
    TB_ASSERT(shard < table->shard_count);
    tb_free(table->rows[shard]);
    table->rows[shard] = row;
    return true;
}

const struct tb_shard_files *tb_shard_files_find(const struct tb_shard_files_table *table, uint32_t shard,
                                                 const struct tb_digest *root)
{
    const struct tb_shard_files *row = shard < table->shard_count ? table->rows[shard] : NULL;
    return row != NULL && tb_digest_equal(&row->root, root) ? row : NULL;
}

void tb_shard_files_free(struct tb_shard_files_table *table)
{
    for (uint32_t s = 0; s < table->shard_count; s++)
        tb_free(table->rows[s]);
    tb_free(table->rows);
    *table = (struct tb_shard_files_table){0};
}
