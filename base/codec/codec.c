/* codec.c - a chunk through one of four codecs, and sparse deltas merged into one. Each codec
 * has a file of its own, but raw and zstd. */
#include "base/codec/codec.h"

#include <string.h>

#include <zstd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/codec/delta.h"
#include "base/codec/planes.h"
#include "base/codec/sparse.h"
#include "base/layout/dtype.h"

#define ZSTD_LEVEL   1
#define DELTAS_BYTES ((size_t)128 << 10) /* in one piece: a zstd block */

/* One codec at a time uses it. */
union scratch {
    uint64_t sparse[TB_SPARSE_SCRATCH_BYTES / 8], planes[TB_PLANES_SCRATCH_BYTES / 8];
    uint8_t deltas[DELTAS_BYTES];
};

struct tb_codec {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    enum tb_vector vector;
    union scratch scratch;
};

enum tb_status tb_codec_new(struct tb_codec **codec_out)
{
    struct tb_codec *codec = tb_malloc(sizeof *codec);
    if (codec == NULL) goto fail;
    codec->vector = TB_VECTOR_BEST;
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

void tb_codec_force(struct tb_codec *codec, enum tb_vector vector)
{
    codec->vector = tb_vector_choose(vector);
}

static const char *const names[] = {"raw", "zstd", "planes", "sparse", "chained"}; /* by their numbers */

#define CODECS (sizeof names / sizeof names[0])

enum tb_status tb_codec_parse(const char *name, enum tb_codec_id *id_out)
{
    for (size_t i = 0; i < CODECS; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *id_out = (enum tb_codec_id)i;
        return TB_OK;
    }
    return TB_BAD_ARGUMENT;
}

bool tb_codec_form_valid(struct tb_codec_form form)
{
    if ((size_t)form.id >= CODECS) return false;
    if (form.id == TB_CODEC_RAW) return !form.on_base;
    return (form.id != TB_CODEC_SPARSE && form.id != TB_CODEC_CHAINED) || form.on_base;
}

unsigned tb_codec_classes(const struct tb_codec_coded *coded)
{
    return coded->form.id == TB_CODEC_SPARSE
               ? tb_sparse_classes((struct tb_sparse_form){coded->bytes, coded->count})
               : 0;
}

/* A chunk that does not shrink is written raw into the same memory. */
size_t tb_codec_bound(enum tb_codec_id id, size_t count)
{
    TB_ASSERT((size_t)id < CODECS);
    const size_t bound = id == TB_CODEC_ZSTD ? 1 + ZSTD_compressBound(count) : count;
    return bound > count ? bound : count;
}

/* Less is no gain worth a decoder's time. */
static size_t gain_max(size_t count)
{
    return count - count * 3 / 100;
}

/* ---- zstd ---- */

static size_t zstd_encode(struct tb_codec *codec, const struct tb_codec_input *in, struct tb_codec_room room)
{
    const size_t got = ZSTD_compress2(codec->compress, room.bytes, room.cap, in->bytes, in->count);
    return ZSTD_isError(got) ? 0 : got; /* out of memory inside zstd: raw is always right */
}

/* Differences come in pieces that stay in a cache, so that nobody needs room for a chunk of
 * them. */
static bool deltas_encode(struct tb_codec *codec, struct tb_delta d, const struct tb_codec_input *in,
                          ZSTD_outBuffer *out)
{
    uint8_t *piece = codec->scratch.deltas;
    TB_ASSERT(DELTAS_BYTES % d.width == 0); /* no element is cut in two */
    for (size_t at = 0; at < in->count; at += DELTAS_BYTES) {
        const size_t left = in->count - at, count = left < DELTAS_BYTES ? left : DELTAS_BYTES;
        tb_delta_take(d, (const uint8_t *)in->bytes + at, (const uint8_t *)in->base + at, count, piece);
        ZSTD_inBuffer from = {piece, count, 0};
        const ZSTD_EndDirective then = count == left ? ZSTD_e_end : ZSTD_e_continue;
        const size_t more = ZSTD_compressStream2(codec->compress, out, &from, then);
        if (ZSTD_isError(more) || from.pos < from.size || (count == left && more > 0)) return false;
    }
    TB_ASSERT(out->pos <= out->size);
    return true;
}

/* u8 width of an element, then the frame. */
static size_t zstd_encode_on_base(struct tb_codec *codec, const struct tb_codec_input *in,
                                  struct tb_codec_room room)
{
    const struct tb_delta d = {codec->vector, tb_dtype_element_bytes(in->dtype)};
    TB_ASSERT(in->base != NULL && room.cap > 0);
    uint8_t *bytes = room.bytes;
    if (in->count == 0 || !tb_delta_width_valid(d.width)) return 0;
    if (ZSTD_isError(ZSTD_CCtx_reset(codec->compress, ZSTD_reset_session_only))) return 0;
    if (ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(codec->compress, in->count))) return 0;
    bytes[0] = (uint8_t)d.width;
    ZSTD_outBuffer out = {bytes, room.cap, 1};
    return deltas_encode(codec, d, in, &out) ? out.pos : 0;
}

/* Exactly one frame of today's format: zstd would also take skippable frames, several in a row, and
 * old formats whose decoders nobody looks at any more. */
static bool one_zstd_frame(const uint8_t *in, size_t in_count)
{
    static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    if (in_count < sizeof magic || memcmp(in, magic, sizeof magic) != 0) return false;
    return ZSTD_findFrameCompressedSize(in, in_count) == in_count;
}

static enum tb_status zstd_decode(struct tb_codec *codec, const uint8_t *in, size_t in_count,
                                  const struct tb_codec_output *out)
{
    if (!one_zstd_frame(in, in_count)) return TB_CHUNK_CODEC;
    const size_t got = ZSTD_decompressDCtx(codec->decompress, out->bytes, out->count, in, in_count);
    return !ZSTD_isError(got) && got == out->count ? TB_OK : TB_CHUNK_CODEC;
}

static enum tb_status zstd_decode_on_base(struct tb_codec *codec, const uint8_t *in, size_t in_count,
                                          const struct tb_codec_output *out)
{
    if (in_count == 0 || !tb_delta_width_valid(in[0])) return TB_CHUNK_CODEC;
    const struct tb_delta d = {codec->vector, in[0]};
    const enum tb_status status = zstd_decode(codec, in + 1, in_count - 1, out);
    if (status == TB_OK) tb_delta_undo(d, out->bytes, out->base, out->count);
    return status;
}

/* ---- ours ---- */

static size_t planes_encode(struct tb_codec *codec, const struct tb_codec_input *in, bool on_base,
                            struct tb_codec_room room)
{
    TB_ASSERT(!on_base || in->base != NULL); /* else it would be written as if it had none */
    const struct tb_planes_means means = {codec->scratch.planes, codec->vector};
    const struct tb_planes_input input = {
        .base = on_base ? in->base : NULL, .bytes = in->bytes, .count = in->count, .dtype = in->dtype};
    return tb_planes_encode(&input, &means, room.bytes, room.cap);
}

static enum tb_status planes_decode(struct tb_codec *codec, const struct tb_codec_coded *coded,
                                    const struct tb_codec_output *out)
{
    const struct tb_planes_means means = {codec->scratch.planes, codec->vector};
    const struct tb_planes_output output = {
        .base = coded->form.on_base ? out->base : NULL, .bytes = out->bytes, .count = out->count};
    return tb_planes_decode((struct tb_planes_form){coded->bytes, coded->count}, &means, &output);
}

static size_t sparse_encode(struct tb_codec *codec, const struct tb_codec_input *in,
                            struct tb_codec_room room)
{
    TB_ASSERT(in->base != NULL);
    const struct tb_sparse_means means = {codec->scratch.sparse, codec->vector};
    const struct tb_sparse_input input = {.base = in->base,
                                          .bytes = in->bytes,
                                          .count = in->count,
                                          .dtype = in->dtype,
                                          .classes_max = in->classes == 0 ? TB_CODEC_CLASSES : in->classes};
    return tb_sparse_encode(&input, &means, room.bytes, room.cap);
}

static enum tb_status sparse_decode(struct tb_codec *codec, const void *bytes, size_t count,
                                    const struct tb_codec_output *out)
{
    const struct tb_sparse_means means = {codec->scratch.sparse, codec->vector};
    const struct tb_sparse_output output = {out->base, out->bytes, out->count};
    return tb_sparse_decode((struct tb_sparse_form){bytes, count}, &means, &output);
}

/* ---- merged deltas: u8 how many, then for each u32 bytes and a sparse form ---- */

unsigned tb_codec_deltas(const struct tb_codec_coded *coded)
{
    if (coded->form.id == TB_CODEC_SPARSE) return 1;
    if (coded->form.id != TB_CODEC_CHAINED || coded->count == 0) return 0;
    return ((const uint8_t *)coded->bytes)[0];
}

/* Without the number of deltas in front. */
static size_t part_bytes(const struct tb_codec_coded *part)
{
    TB_ASSERT(tb_codec_deltas(part) > 0);
    return part->form.id == TB_CODEC_SPARSE ? 4 + part->count : part->count - 1;
}

size_t tb_codec_chain_bytes(const struct tb_codec_coded *parts, unsigned count)
{
    size_t bytes = 1;
    unsigned deltas = 0;
    for (unsigned i = 0; i < count; i++) {
        const unsigned more = tb_codec_deltas(&parts[i]);
        if (more == 0) return 0;
        deltas += more;
        bytes += part_bytes(&parts[i]);
    }
    if (deltas == 0 || deltas > TB_CODEC_CHAINED_MAX) return 0;
    return count == 1 ? parts[0].count : bytes;
}

/* The next delta of a merged one; false: it is not as it says. */
static bool next_delta(struct tb_reader *r, const uint8_t **bytes_out, size_t *count_out)
{
    *count_out = tb_read_u32(r);
    *bytes_out = tb_read_span(r, *count_out);
    return !r->bad;
}

static bool is_whole(const struct tb_codec_coded *part)
{
    struct tb_reader r;
    const uint8_t *bytes;
    size_t count;
    TB_ASSERT(tb_codec_deltas(part) > 0);
    if (part->form.id == TB_CODEC_SPARSE) return true;
    tb_reader_init(&r, part->bytes, part->count);
    for (unsigned left = tb_read_u8(&r); left > 0; left--)
        if (!next_delta(&r, &bytes, &count)) return false;
    return r.left == 0;
}

enum tb_status tb_codec_chain(const struct tb_codec_coded *parts, unsigned count, struct tb_codec_room room,
                              struct tb_codec_coded *coded_out)
{
    const size_t bytes = tb_codec_chain_bytes(parts, count);
    struct tb_writer w;
    unsigned deltas = 0;
    if (bytes == 0) return TB_CHUNK_CODEC;
    if (bytes > room.cap) return TB_SITE_NOMEM;
    for (unsigned i = 0; i < count; i++) {
        if (!is_whole(&parts[i])) return TB_CHUNK_CODEC;
        deltas += tb_codec_deltas(&parts[i]);
    }
    TB_ASSERT(deltas <= TB_CODEC_CHAINED_MAX);
    tb_writer_init(&w, room.bytes, room.cap);
    if (count > 1) tb_write_u8(&w, (uint8_t)deltas);
    for (unsigned i = 0; i < count; i++) {
        const bool single = parts[i].form.id == TB_CODEC_SPARSE;
        const size_t skip = count > 1 && !single ? 1 : 0;
        if (count > 1 && single) tb_write_u32(&w, (uint32_t)parts[i].count);
        tb_write_bytes(&w, (const uint8_t *)parts[i].bytes + skip, parts[i].count - skip);
    }
    TB_ASSERT(!w.full && w.used == bytes);
    const struct tb_codec_form chained = {TB_CODEC_CHAINED, true};
    *coded_out = (struct tb_codec_coded){count == 1 ? parts[0].form : chained, room.bytes, bytes};
    return TB_OK;
}

/* The first delta decodes beside its base, the others over its result. */
static enum tb_status chained_decode(struct tb_codec *codec, const struct tb_codec_coded *coded,
                                     const struct tb_codec_output *out)
{
    struct tb_reader r;
    struct tb_codec_output to = *out;
    TB_ASSERT(coded->form.id == TB_CODEC_CHAINED && out->base != NULL);
    tb_reader_init(&r, coded->bytes, coded->count);
    const unsigned deltas = tb_read_u8(&r);
    if (r.bad || deltas == 0 || deltas > TB_CODEC_CHAINED_MAX) return TB_CHUNK_CODEC;
    for (unsigned i = 0; i < deltas; i++) {
        const uint8_t *bytes;
        size_t count;
        if (!next_delta(&r, &bytes, &count)) return TB_CHUNK_CODEC;
        const enum tb_status status = sparse_decode(codec, bytes, count, &to);
        if (status != TB_OK) return status;
        to.base = NULL;
    }
    return r.left == 0 ? TB_OK : TB_CHUNK_CODEC;
}

/* ---- all ---- */

/* The bytes that came out, or 0: it does not pay. */
static size_t shrink(struct tb_codec *codec, struct tb_codec_form wanted, const struct tb_codec_input *in,
                     struct tb_codec_room room)
{
    switch (wanted.id) {
    case TB_CODEC_ZSTD:
        return wanted.on_base ? zstd_encode_on_base(codec, in, room) : zstd_encode(codec, in, room);
    case TB_CODEC_PLANES:
        return planes_encode(codec, in, wanted.on_base, room);
    case TB_CODEC_SPARSE:
        return sparse_encode(codec, in, room);
    default:
        return 0;
    }
}

enum tb_status tb_codec_encode(struct tb_codec *codec, struct tb_codec_form wanted,
                               const struct tb_codec_input *in, struct tb_codec_room room,
                               struct tb_codec_coded *coded_out)
{
    TB_ASSERT(tb_codec_form_valid(wanted) && (in->base != NULL || !wanted.on_base));
    TB_ASSERT(in->count <= TB_CODEC_BYTES_MAX);
    TB_ASSERT(in->classes <= TB_SPARSE_CLASSES_MAX);
    if (room.cap < tb_codec_bound(wanted.id, in->count)) return TB_SITE_NOMEM;
    size_t count = shrink(codec, wanted, in, room);
    TB_ASSERT(count <= room.cap);
    const bool raw = count == 0 || count >= gain_max(in->count);
    if (raw) count = in->count;
    if (raw && count > 0) memcpy(room.bytes, in->bytes, count);
    const struct tb_codec_form plain = {TB_CODEC_RAW, false};
    *coded_out = (struct tb_codec_coded){raw ? plain : wanted, room.bytes, count};
    return TB_OK;
}

static enum tb_status raw_decode(const struct tb_codec_coded *coded, const struct tb_codec_output *out)
{
    TB_ASSERT(coded->form.id == TB_CODEC_RAW && !coded->form.on_base);
    if (coded->count != out->count) return TB_CHUNK_CODEC;
    if (out->count > 0) memcpy(out->bytes, coded->bytes, out->count);
    return TB_OK;
}

enum tb_status tb_codec_decode(struct tb_codec *codec, const struct tb_codec_coded *coded,
                               const struct tb_codec_output *out)
{
    if (!tb_codec_form_valid(coded->form)) return TB_CHUNK_CODEC;
    if (coded->form.on_base && out->base == NULL) return TB_CHUNK_CODEC;
    switch (coded->form.id) {
    case TB_CODEC_ZSTD:
        return coded->form.on_base ? zstd_decode_on_base(codec, coded->bytes, coded->count, out)
                                   : zstd_decode(codec, coded->bytes, coded->count, out);
    case TB_CODEC_PLANES:
        return planes_decode(codec, coded, out);
    case TB_CODEC_SPARSE:
        return sparse_decode(codec, coded->bytes, coded->count, out);
    case TB_CODEC_CHAINED:
        return chained_decode(codec, coded, out);
    default:
        return raw_decode(coded, out);
    }
}
