/* codec.h - one interface for every way to write a chunk in fewer bytes. A shell-free library, but it links zstd.
 *
 * A decoder never reads or writes outside what it was given, whatever it is fed, and never allocates from a number it
 * read. Base: the transform "difference to a base" comes in front of a codec; until it is here, base is NULL. */
#ifndef TB_BASE_CODEC_H
#define TB_BASE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"
#include "tombolo/status.h"

/* Numbers are on the wire. PLANES is for whole bf16, fp16, fp8 and fp32 elements (docs/protocol.md has its form); no
 * link asks for it yet. */
enum tb_codec_id { TB_CODEC_RAW = 0, TB_CODEC_ZSTD = 1, TB_CODEC_PLANES = 2 };

struct tb_codec_input {
    const void *bytes;
    size_t count;
    enum tb_dtype dtype; /* of the chunk's elements; U8 for blobs */
};

/* Contexts are heavy: one a thread. TB_SITE_NOMEM. */
struct tb_codec;
TB_MUST_USE enum tb_status tb_codec_new(struct tb_codec **codec_out);
void tb_codec_free(struct tb_codec *codec);

const char *tb_codec_name(enum tb_codec_id id); /* NULL if unknown */
TB_MUST_USE enum tb_status tb_codec_parse(const char *name,
                                          enum tb_codec_id *id_out); /* TB_BAD_ARGUMENT: raw, zstd */

/* The most that encode may write for `count` bytes. */
size_t tb_codec_bound(enum tb_codec_id id, size_t count);

/* Encodes into out[0..cap). If the codec does not get below 0.97 of the input the chunk is written raw and *id_out
 * says so. TB_SITE_NOMEM: cap is less than tb_codec_bound. */
TB_MUST_USE enum tb_status tb_codec_encode(struct tb_codec *codec, enum tb_codec_id id,
                                           const struct tb_codec_input *in, void *out, size_t cap,
                                           enum tb_codec_id *id_out, size_t *count_out);

/* Decodes exactly out_count bytes. TB_CHUNK_CODEC: unknown id, damaged, or another length comes out. */
TB_MUST_USE enum tb_status tb_codec_decode(struct tb_codec *codec, enum tb_codec_id id, const void *in,
                                           size_t in_count, void *out, size_t out_count);

#endif
