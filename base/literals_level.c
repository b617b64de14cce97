/* literals_level.c - where libzstd exports no sequences: level 1, a little larger and half as fast. */
#include "base/literals.h"

#define BYTES_MAX (64u << 20) /* as literals_sequences.c has it */

bool tb_literals_init(ZSTD_CCtx *compress)
{
    return !ZSTD_isError(ZSTD_CCtx_setParameter(compress, ZSTD_c_compressionLevel, 1));
}

size_t tb_literals_encode(ZSTD_CCtx *compress, const void *bytes, size_t count, struct tb_literals_room room)
{
    if (count > BYTES_MAX) return 0;
    const size_t got = ZSTD_compress2(compress, room.bytes, room.cap, bytes, count);
    return ZSTD_isError(got) ? 0 : got;
}
