/* literals_sequences.c - one sequence without a match for each block. The declarations are in the part of zstd.h that is
 * for static linking, though Debian's library exports them: the build looks whether they link. */
#define ZSTD_STATIC_LINKING_ONLY
#include "base/literals.h"

#define BLOCK      (128u << 10) /* the most that a zstd block holds */
#define BLOCKS_MAX 512u         /* 64 MiB: twice the largest chunk */
#define WINDOW_LOG 17           /* nothing refers back: no decoder needs more than a block */

bool tb_literals_init(ZSTD_CCtx *compress)
{
    return !ZSTD_isError(ZSTD_CCtx_setParameter(compress, ZSTD_c_compressionLevel, 1)) &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(compress, ZSTD_c_windowLog, WINDOW_LOG)) &&
           !ZSTD_isError(
               ZSTD_CCtx_setParameter(compress, ZSTD_c_blockDelimiters, ZSTD_sf_explicitBlockDelimiters)) &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(compress, ZSTD_c_literalCompressionMode, ZSTD_ps_enable));
}

size_t tb_literals_encode(ZSTD_CCtx *compress, const void *bytes, size_t count, struct tb_literals_room room)
{
    ZSTD_Sequence blocks[BLOCKS_MAX];
    const size_t needed = (count + BLOCK - 1) / BLOCK;
    if (needed > BLOCKS_MAX) return 0;
    for (size_t i = 0; i < needed; i++) {
        const size_t left = count - i * BLOCK;
        blocks[i] = (ZSTD_Sequence){.litLength = left < BLOCK ? (unsigned)left : BLOCK};
    }
    const size_t got = ZSTD_compressSequences(compress, room.bytes, room.cap, blocks, needed, bytes, count);
    return ZSTD_isError(got) ? 0 : got;
}
