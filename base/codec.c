/* codec.c - chunks as they are (raw), through zstd at level 1, or as planes of which one is zstd literals. */
#include "base/codec.h"

#include <stdbool.h>
#include <string.h>

#include <zstd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fault.h"
#include "base/literals.h"
#include "base/planes.h"

#define ZSTD_LEVEL          1
#define PLANES_HEADER_BYTES 8u /* u8 kind, u8 0, u16 0, u32 bytes of the hot plane's frame */

struct tb_codec {
    ZSTD_CCtx *compress;
    ZSTD_CCtx *literals; /* its parameters are the hot plane's */
    ZSTD_DCtx *decompress;
};

enum tb_status tb_codec_new(struct tb_codec **codec_out)
{
    struct tb_codec *codec = tb_malloc(sizeof *codec);
    if (codec == NULL) goto fail;
    codec->compress = ZSTD_createCCtx();
    if (codec->compress == NULL) goto undo_codec;
    codec->literals = ZSTD_createCCtx();
    if (codec->literals == NULL) goto undo_compress;
    codec->decompress = ZSTD_createDCtx();
    if (codec->decompress == NULL) goto undo_literals;
    if (!tb_literals_init(codec->literals)) goto undo_decompress;
    if (ZSTD_isError(ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_compressionLevel, ZSTD_LEVEL))) {
        goto undo_decompress;
    }
    *codec_out = codec;
    return TB_OK;

undo_decompress:
    ZSTD_freeDCtx(codec->decompress);
undo_literals:
    ZSTD_freeCCtx(codec->literals);
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
    ZSTD_freeCCtx(codec->literals);
    ZSTD_freeCCtx(codec->compress);
    tb_free(codec);
}

/* What may be asked for by name is what version 1 of the links' protocol carries. */
static const struct {
    enum tb_codec_id id;
    const char *name;
    bool asked;
} codecs[] = {{TB_CODEC_RAW, "raw", true}, {TB_CODEC_ZSTD, "zstd", true}, {TB_CODEC_PLANES, "planes", false}};

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
        if (!codecs[i].asked || strcmp(codecs[i].name, name) != 0) continue;
        *id_out = codecs[i].id;
        return TB_OK;
    }
    return TB_BAD_ARGUMENT;
}

size_t tb_codec_bound(enum tb_codec_id id, size_t count)
{
    if (id == TB_CODEC_RAW) return count;
    if (id == TB_CODEC_PLANES)
        return PLANES_HEADER_BYTES + ZSTD_compressBound(count) + count; /* frame, rest, scratch */
    const size_t bound = ZSTD_compressBound(count);
    return bound > count ? bound : count; /* what does not shrink is written raw into the same memory */
}

/* Less is no gain worth a decoder's time. */
static size_t gain_max(size_t count)
{
    return count - count * 3 / 100;
}

/* The bytes that came out, or `count` when that is no gain worth a decoder's time. */
static size_t zstd_encode(struct tb_codec *codec, const struct tb_codec_input *in, void *out, size_t cap)
{
    const size_t got = ZSTD_compress2(codec->compress, out, cap, in->bytes, in->count);
    if (ZSTD_isError(got)) return in->count; /* out of memory inside zstd: raw is always right */
    return got < gain_max(in->count) ? got : in->count;
}

/* The hot plane is made at the end of `out`, behind all that is written while it is read. */
static size_t planes_encode(struct tb_codec *codec, const struct tb_codec_input *in, uint8_t *out, size_t cap)
{
    const enum tb_planes_kind kind = tb_planes_kind_of(in->dtype);
    const size_t width = tb_planes_width((uint8_t)kind);
    const size_t count = width == 0 ? 0 : in->count / width;
    if (count == 0) return in->count;
    uint8_t *hot = out + cap - count;
    tb_planes_hot(kind, in->bytes, count, hot);
    const struct tb_literals_room room = {out + PLANES_HEADER_BYTES, ZSTD_compressBound(count)};
    const size_t frame = tb_literals_encode(codec->literals, hot, count, room);
    const size_t tail = in->count - width * count;
    const size_t used = PLANES_HEADER_BYTES + frame + (width - 1) * count + tail;
    if (frame == 0 || used >= gain_max(in->count)) return in->count;
    uint8_t *rest = out + PLANES_HEADER_BYTES + frame;
    tb_planes_rest(kind, in->bytes, count, rest);
    if (tail > 0) memcpy(rest + (width - 1) * count, (const uint8_t *)in->bytes + width * count, tail);
    struct tb_writer w;
    tb_writer_init(&w, out, PLANES_HEADER_BYTES);
    tb_write_u8(&w, (uint8_t)kind);
    tb_write_u8(&w, 0);
    tb_write_u16(&w, 0);
    tb_write_u32(&w, (uint32_t)frame);
    return used;
}

static size_t shrink(struct tb_codec *codec, enum tb_codec_id id, const struct tb_codec_input *in, void *out,
                     size_t cap)
{
    if (id == TB_CODEC_ZSTD) return zstd_encode(codec, in, out, cap);
    return id == TB_CODEC_PLANES ? planes_encode(codec, in, out, cap) : in->count;
}

enum tb_status tb_codec_encode(struct tb_codec *codec, enum tb_codec_id id, const struct tb_codec_input *in,
                               void *out, size_t cap, enum tb_codec_id *id_out, size_t *count_out)
{
    TB_ASSERT(tb_codec_name(id) != NULL);
    if (cap < tb_codec_bound(id, in->count)) return TB_SITE_NOMEM;
    const size_t count = shrink(codec, id, in, out, cap);
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

/* The frame comes out where tb_planes_join wants the hot plane: no scratch. */
static enum tb_status planes_decode(struct tb_codec *codec, const uint8_t *in, size_t in_count, uint8_t *out,
                                    size_t out_count)
{
    struct tb_reader r;
    tb_reader_init(&r, in, in_count);
    const uint8_t kind = tb_read_u8(&r);
    const uint8_t zero = tb_read_u8(&r);
    const uint16_t zeros = tb_read_u16(&r);
    const uint32_t frame_bytes = tb_read_u32(&r);
    const size_t width = tb_planes_width(kind);
    if (r.bad || width == 0 || zero != 0 || zeros != 0) return TB_CHUNK_CODEC;
    const size_t count = out_count / width, tail = out_count % width, after = (width - 1) * count + tail;
    if (count == 0 || in_count - PLANES_HEADER_BYTES < frame_bytes) return TB_CHUNK_CODEC;
    if (in_count - PLANES_HEADER_BYTES - frame_bytes != after) return TB_CHUNK_CODEC;

    const uint8_t *frame = in + PLANES_HEADER_BYTES, *rest = frame + frame_bytes;
    const enum tb_status status = zstd_decode(codec, frame, frame_bytes, out + (width - 1) * count, count);
    if (status != TB_OK) return status;
    tb_planes_join((enum tb_planes_kind)kind, rest, count, out);
    if (tail > 0) memcpy(out + width * count, rest + (width - 1) * count, tail);
    return TB_OK;
}

enum tb_status tb_codec_decode(struct tb_codec *codec, enum tb_codec_id id, const void *in, size_t in_count,
                               void *out, size_t out_count)
{
    switch (id) {
    case TB_CODEC_RAW:
        return raw_decode(in, in_count, out, out_count);
    case TB_CODEC_ZSTD:
        return zstd_decode(codec, in, in_count, out, out_count);
    case TB_CODEC_PLANES:
        return planes_decode(codec, in, in_count, out, out_count);
    }
    return TB_CHUNK_CODEC;
}
