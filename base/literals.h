/* literals.h - one zstd frame that holds literals only: an order-0 code without a search for matches, which in the
 * exponents of weights finds only junk. Any zstd decodes it. literals_sequences.c does it where libzstd exports
 * ZSTD_compressSequences, literals_level.c asks for level 1 elsewhere. */
#ifndef TB_BASE_LITERALS_H
#define TB_BASE_LITERALS_H

#include <stdbool.h>
#include <stddef.h>

#include <zstd.h>

/* Prepares a context for nothing but this. False: libzstd does not take the parameters. */
bool tb_literals_init(ZSTD_CCtx *compress);

struct tb_literals_room {
    void *bytes;
    size_t cap; /* at least ZSTD_compressBound(count) */
};

/* The bytes written, or 0: it can not be done (more than 64 MiB, or no memory inside zstd). */
size_t tb_literals_encode(ZSTD_CCtx *compress, const void *bytes, size_t count, struct tb_literals_room room);

#endif
