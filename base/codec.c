/* codec.c - chunks as they are (raw) or through zstd at level 1. */
#include "base/codec.h"

#include <stdbool.h>
#include <string.h>

#include <zstd.h>

#include "base/assert.h"
#include "base/fault.h"

#define ZSTD_LEVEL 1

struct tb_codec {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
};

enum tb_status tb_codec_new(struct tb_codec **codec_out)
{
    struct tb_codec *codec = tb_malloc(sizeof *codec);
    if (codec == NULL) goto fail;
    codec->compress = ZSTD_createCCtx();
    if (codec->compress == NULL) goto undo_codec;
    codec->decompress = ZSTD_createDCtx();
    if (codec->decompress == NULL) goto undo_compress;
    if (ZSTD_isError(ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_compressionLevel, ZSTD_LEVEL))) {
        goto undo_decompress;
    }
    *codec_out = codec;
    return TB_OK;

undo_decompress:
    ZSTD_freeDCtx(codec->decompress);
undo_compress:
    ZSTD_freeCCtx(codec->compress);
undo_codec:
    tb_free(codec);
fail:
    return TB_SITE_NOMEM;
}

void tb_codec_free(struct tb_codec *codec)
{
    if (codec == NULL) return;
    ZSTD_freeDCtx(codec->decompress);
    ZSTD_freeCCtx(codec->compress);
    tb_free(codec);
}

static const struct {
    enum tb_codec_id id;
    const char *name;
} codecs[] = {{TB_CODEC_RAW, "raw"}, {TB_CODEC_ZSTD, "zstd"}};

const char *tb_codec_name(enum tb_codec_id id)
{
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        if (codecs[i].id == id) return codecs[i].name;
    }
    return NULL;
}

enum tb_status tb_codec_parse(const char *name, enum tb_codec_id *id_out)
{
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        if (strcmp(codecs[i].name, name) != 0) continue;
        *id_out = codecs[i].id;
        return TB_OK;
    }
    return TB_BAD_ARGUMENT;
}

size_t tb_codec_bound(enum tb_codec_id id, size_t count)
{
    if (id == TB_CODEC_RAW) return count;
    const size_t bound = ZSTD_compressBound(count);
    return bound > count ? bound : count; /* what does not shrink is written raw into the same memory */
}

/* The bytes that came out, or `count` when that is no gain worth a decoder's time. */
static size_t zstd_encode(struct tb_codec *codec, const struct tb_codec_input *in, void *out, size_t cap)
{
    const size_t got = ZSTD_compress2(codec->compress, out, cap, in->bytes, in->count);
    if (ZSTD_isError(got)) return in->count; /* out of memory inside zstd: raw is always right */
    return got < in->count - in->count * 3 / 100 ? got : in->count;
}

enum tb_status tb_codec_encode(struct tb_codec *codec, enum tb_codec_id id, const struct tb_codec_input *in,
                               void *out, size_t cap, enum tb_codec_id *id_out, size_t *count_out)
{
    TB_ASSERT(tb_codec_name(id) != NULL);
    if (cap < tb_codec_bound(id, in->count)) return TB_SITE_NOMEM;
    const size_t count = id == TB_CODEC_ZSTD ? zstd_encode(codec, in, out, cap) : in->count;
    const bool raw = count == in->count;
    if (raw && count > 0) memcpy(out, in->bytes, count);
    *id_out = raw ? TB_CODEC_RAW : id;
    *count_out = count;
    return TB_OK;
}

static enum tb_status raw_decode(const void *in, size_t in_count, void *out, size_t out_count)
{
    if (in_count != out_count) return TB_CHUNK_CODEC;
    if (out_count > 0) memcpy(out, in, out_count);
    return TB_OK;
}

/* Exactly one frame of today's format: zstd would also take skippable frames, several in a row, and old
 * formats whose decoders nobody looks at any more. */
static bool one_zstd_frame(const uint8_t *in, size_t in_count)
{
    static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    if (in_count < sizeof magic || memcmp(in, magic, sizeof magic) != 0) return false;
    return ZSTD_findFrameCompressedSize(in, in_count) == in_count;
}

static enum tb_status zstd_decode(struct tb_codec *codec, const void *in, size_t in_count, void *out,
                                  size_t out_count)
{
    if (!one_zstd_frame(in, in_count)) return TB_CHUNK_CODEC;
    const size_t got = ZSTD_decompressDCtx(codec->decompress, out, out_count, in, in_count);
    return !ZSTD_isError(got) && got == out_count ? TB_OK : TB_CHUNK_CODEC;
}

enum tb_status tb_codec_decode(struct tb_codec *codec, enum tb_codec_id id, const void *in, size_t in_count,
                               void *out, size_t out_count)
{
    switch (id) {
    case TB_CODEC_RAW:
        return raw_decode(in, in_count, out, out_count);
    case TB_CODEC_ZSTD:
        return zstd_decode(codec, in, in_count, out, out_count);
    }
    return TB_CHUNK_CODEC;
}
