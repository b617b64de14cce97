#include "intra/fabric/source_descriptor.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/layout/chunk_cut.h"

#define SHARD_BYTES   37u /* on the wire, without its tables */
#define TENSOR_BYTES  12u
#define ENCODED_BYTES 17u
#define OFFSET_END    ((uint64_t)1 << 62) /* so that offset + length never overflows */

size_t tb_source_encoded_bytes(const struct tb_source_shard *shards, uint32_t count)
{
    size_t bytes = 4;
    for (uint32_t i = 0; i < count; i++)
        bytes += SHARD_BYTES + (size_t)shards[i].tensor_count * TENSOR_BYTES +
                 (size_t)shards[i].encoded_count * ENCODED_BYTES;
    return bytes;
}

static void encode_tables(const struct tb_source_shard *s, struct tb_writer *w)
{
    tb_write_u32(w, s->tensor_count);
    for (uint32_t t = 0; t < s->tensor_count; t++) {
        tb_write_u32(w, s->tensors[t].buffer);
        tb_write_u64(w, s->tensors[t].offset);
    }
    tb_write_u32(w, s->encoded_count);
    for (uint32_t k = 0; k < s->encoded_count; k++) {
        tb_write_u8(w, s->encoded_chunks[k].codec);
        tb_write_u32(w, s->encoded_chunks[k].bytes);
        tb_write_u32(w, s->encoded_chunks[k].buffer);
        tb_write_u64(w, s->encoded_chunks[k].offset);
    }
}

void tb_source_encode(const struct tb_source_shard *shards, uint32_t count, struct tb_writer *w)
{
    tb_write_u32(w, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct tb_source_shard *s = &shards[i];
        tb_write_u32(w, s->shard);
        tb_write_u32(w, s->held_buffer);
        tb_write_u64(w, s->held_offset);
        tb_write_u8(w, s->scattered ? 1 : 0);
        tb_write_u32(w, s->packed_buffer);
        tb_write_u64(w, s->packed_offset);
        encode_tables(s, w);
    }
}

/* Reads the fixed part; false when it is not one. */
static bool decode_fixed(struct tb_reader *r, struct tb_source_shard *out)
{
    struct tb_source_shard s = {0};
    s.shard = tb_read_u32(r);
    s.held_buffer = tb_read_u32(r);
    s.held_offset = tb_read_u64(r);
    const uint8_t scattered = tb_read_u8(r);
    s.packed_buffer = tb_read_u32(r);
    s.packed_offset = tb_read_u64(r);
    s.scattered = scattered == 1;
    *out = s;
    return !r->bad && scattered <= 1;
}

/* Reads the count of a table, which must fit what is left: nobody makes us allocate more than a
 * small multiple of what it sent. */
static bool table_count(struct tb_reader *r, size_t entry_bytes, uint32_t count_max, uint32_t *count_out)
{
    const uint32_t count = tb_read_u32(r);
    *count_out = count;
    return !r->bad && count <= count_max && count <= r->left / entry_bytes;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

size_t tb_source_decode_bytes(const void *encoded, size_t encoded_bytes)
{
    struct tb_reader r;
    tb_reader_init(&r, encoded, encoded_bytes);
    uint32_t count = 0;
    if (!table_count(&r, SHARD_BYTES, TB_SHARDS_MAX, &count)) return 0;
    size_t bytes = rounded(sizeof(struct tb_source_shard) * (count ? count : 1));
    for (uint32_t i = 0; i < count; i++) {
        struct tb_source_shard s;
        if (!decode_fixed(&r, &s)) return 0;
        if (!table_count(&r, TENSOR_BYTES, TB_TENSORS_MAX, &s.tensor_count)) return 0;
        (void)tb_read_span(&r, (size_t)s.tensor_count * TENSOR_BYTES);
        if (!table_count(&r, ENCODED_BYTES, TB_CHUNKS_MAX, &s.encoded_count)) return 0;
        (void)tb_read_span(&r, (size_t)s.encoded_count * ENCODED_BYTES);
        bytes += rounded(s.tensor_count * sizeof(struct tb_source_at)) +
                 rounded(s.encoded_count * sizeof(struct tb_source_encoded));
    }
    return tb_reader_ended(&r) ? bytes : 0;
}

static uint8_t *decode_tensors(struct tb_reader *r, struct tb_source_shard *s, uint8_t *at)
{
    s->tensor_count = tb_read_u32(r);
    struct tb_source_at *tensors = (struct tb_source_at *)at;
    for (uint32_t t = 0; t < s->tensor_count; t++) {
        tensors[t].buffer = tb_read_u32(r);
        tensors[t].offset = tb_read_u64(r);
    }
    s->tensors = s->tensor_count > 0 ? tensors : NULL;
    return at + rounded(s->tensor_count * sizeof *tensors);
}

static uint8_t *decode_encoded_chunks(struct tb_reader *r, struct tb_source_shard *s, uint8_t *at)
{
    s->encoded_count = tb_read_u32(r);
    struct tb_source_encoded *encoded_chunks = (struct tb_source_encoded *)at;
    for (uint32_t k = 0; k < s->encoded_count; k++) {
        encoded_chunks[k].codec = tb_read_u8(r);
        encoded_chunks[k].bytes = tb_read_u32(r);
        encoded_chunks[k].buffer = tb_read_u32(r);
        encoded_chunks[k].offset = tb_read_u64(r);
    }
    s->encoded_chunks = s->encoded_count > 0 ? encoded_chunks : NULL;
    return at + rounded(s->encoded_count * sizeof *encoded_chunks);
}

enum tb_status tb_source_decode(const void *encoded, size_t encoded_bytes, void *memory, size_t cap,
                                const struct tb_source_shard **shards_out, uint32_t *count_out)
{
    /* walks every count: what follows cannot fail */
    const size_t needed = tb_source_decode_bytes(encoded, encoded_bytes);
    if (needed == 0) return TB_PEER_GARBLED;
    if (cap < needed) return TB_SITE_NOMEM;
    TB_ASSERT(((uintptr_t)memory & 7u) == 0);

    struct tb_reader r;
    tb_reader_init(&r, encoded, encoded_bytes);
    const uint32_t count = tb_read_u32(&r);
    struct tb_source_shard *shards = memory;
    uint8_t *at = (uint8_t *)memory + rounded(sizeof *shards * (count ? count : 1));
    for (uint32_t i = 0; i < count; i++) {
        const bool whole = decode_fixed(&r, &shards[i]);
        TB_ASSERT(whole);
        at = decode_tensors(&r, &shards[i], at);
        at = decode_encoded_chunks(&r, &shards[i], at);
    }
    *shards_out = shards;
    *count_out = count;
    return TB_OK;
}

static bool tensors_fit(const struct tb_source_shard *s, const struct tb_manifest *m)
{
    if (!s->scattered) return s->tensor_count == 0;
    if (s->tensor_count != m->layout.tensor_count) return false;
    for (uint32_t t = 0; t < s->tensor_count; t++)
        if (s->tensors[t].offset >= OFFSET_END) return false;
    return true;
}

static bool encoded_chunks_fit(const struct tb_source_shard *s, const struct tb_manifest *m)
{
    if (s->encoded_count == 0) return true;
    if (s->encoded_count != m->chunk_count) return false;
    for (uint32_t k = 0; k < s->encoded_count; k++) {
        const struct tb_source_encoded *o = &s->encoded_chunks[k];
        if (o->codec == 0) continue; /* raw: read the packed bytes */
        if (o->bytes == 0 || o->bytes > m->chunks[k].bytes || o->offset >= OFFSET_END) return false;
    }
    return true;
}

enum tb_status tb_source_check(const struct tb_source_shard *shard, const struct tb_manifest *manifest)
{
    if (shard->packed_offset >= OFFSET_END || shard->held_offset >= OFFSET_END) return TB_PEER_GARBLED;
    if (shard->held_buffer != TB_SOURCE_ALL_HELD && shard->held_offset % 8 != 0) return TB_PEER_GARBLED;
    if (!tensors_fit(shard, manifest) || !encoded_chunks_fit(shard, manifest)) return TB_PEER_GARBLED;
    return TB_OK;
}

/* So many bytes from `inside` tensor t on stand in one piece, as tensors do that follow one another
 * in packed order and in memory. It looks no further than bytes_max. */
static uint64_t bytes_in_piece(const struct tb_source_shard *shard, const struct tb_layout *layout,
                               uint32_t t, uint64_t inside, uint64_t bytes_max)
{
    const struct tb_source_at *first = &shard->tensors[t];
    uint64_t end = first->offset + layout->tensors[t].bytes;
    while (end - first->offset - inside < bytes_max && ++t < layout->tensor_count) {
        const struct tb_source_at *next = &shard->tensors[t];
        if (layout->tensors[t].bytes == 0) continue; /* nowhere */
        if (next->buffer != first->buffer || next->offset != end) break;
        end += layout->tensors[t].bytes;
    }
    return end - first->offset - inside;
}

struct tb_source_run tb_source_run_at(const struct tb_source_shard *shard, const struct tb_manifest *manifest,
                                      uint64_t packed_offset, uint64_t bytes_max)
{
    TB_ASSERT(packed_offset < manifest->bytes && bytes_max > 0);
    const struct tb_layout *layout = &manifest->layout;
    struct tb_source_run run = {
        .buffer = shard->packed_buffer, .offset = shard->packed_offset + packed_offset, .bytes = bytes_max};
    uint64_t left = manifest->bytes - packed_offset;
    if (shard->scattered && packed_offset >= layout->bytes)
        run.offset -= layout->bytes; /* blobs start at packed_offset */
    if (shard->scattered && packed_offset < layout->bytes) {
        const uint32_t t = tb_layout_tensor_at(layout, packed_offset);
        const uint64_t inside = packed_offset - layout->tensors[t].offset;
        run.buffer = shard->tensors[t].buffer;
        run.offset = shard->tensors[t].offset + inside;
        left = bytes_in_piece(shard, layout, t, inside, bytes_max);
    }
    if (run.bytes > left) run.bytes = left;
    TB_ASSERT(run.bytes > 0); /* else its reader would ask for ever */
    return run;
}

bool tb_source_encoded_of(const struct tb_source_shard *shard, uint32_t k,
                          const struct tb_source_encoded **encoded_out)
{
    TB_ASSERT(shard->encoded_count == 0 || k < shard->encoded_count);
    if (shard->encoded_count == 0 || shard->encoded_chunks[k].codec == 0) return false;
    *encoded_out = &shard->encoded_chunks[k];
    return true;
}
