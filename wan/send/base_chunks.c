/* base_chunks.c - may a chunk of the base stand for one of the version, and is it the same? */
#include "wan/send/base_chunks.h"

bool tb_base_fits(const struct tb_manifest *m, const struct tb_manifest *base, uint32_t k)
{
    /* With one layout the tensors' chunks are the same; the blobs behind them have a
     * length of their own. */
    return tb_digest_equal(&m->layout.id, &base->layout.id) && k < base->chunk_count &&
           m->chunks[k].offset == base->chunks[k].offset && m->chunks[k].bytes == base->chunks[k].bytes;
}

bool tb_base_same(const struct tb_manifest *m, const struct tb_manifest *base, uint32_t k)
{
    return tb_digest_equal(&m->digests[k], &base->digests[k]) && tb_base_fits(m, base, k);
}
