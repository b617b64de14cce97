/* conformance_arriving.c - bytes arrive as they were sealed, whatever way and form they come in,
 * over each way to move them.
 *
 * Covers: intra/hop/hop_follow.c intra/hop/hop_land.c intra/fabric/source_buffers.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/codec/codec.h"
#include "conformance.h"
#include "far_place.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"

/* Some times what may be in flight, and several words of the bitmaps. */
#define MANY_CHUNKS 200

/* An emulated processor (sim/vm) would take minutes for what a real one does in a second. */
#define FEW_CHUNKS 60

void P1_a_whole_transfer_is_exact(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    const bool by_tray = s.way->memory == MEMORY_DEVICE;
    assert_int_equal(told(&s.tale).transport, by_tray ? TB_TRANSPORT_CUDA : s.way->transport);
    assert_true(tb_place_whole(&s.hold.place));
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.bytes_read, s.cargo.manifest.bytes);
    assert_int_equal(stats.chunks_landed, s.cargo.manifest.chunk_count);
    assert_int_equal(stats.bytes_wasted, 0);
    assert_int_equal(stats.transport, told(&s.tale).transport);
    tb_hop_close(hop);
    scene_close(&s);
}

/* The caller's own tensors: each in memory of its own, in any order, with the blobs apart. */
void P1_scattered_tensors_arrive_packed(void **state)
{
    struct scene s;
    scene_open(&s, *state, 300, 40004, 0);
    const struct tb_layout *layout = &s.cargo.manifest.layout;
    const uint32_t n = layout->tensor_count;
    struct tb_export_buffer *buffers = calloc(n + 1, sizeof *buffers);
    struct tb_source_at *at = calloc(n, sizeof *at);
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t b = n - 1 - t; /* buffers in another order than tensors */
        buffers[b] = (struct tb_export_buffer){.bytes = malloc(layout->tensors[t].bytes + 5),
                                               .count = layout->tensors[t].bytes + 5,
                                               .memfd = -1};
        memcpy((uint8_t *)buffers[b].bytes + 5, s.cargo.bytes + layout->tensors[t].offset,
               layout->tensors[t].bytes);
        at[t] = (struct tb_source_at){.buffer = b, .offset = 5};
    }
    buffers[n] = (struct tb_export_buffer){
        .bytes = s.cargo.bytes + layout->bytes, .count = s.cargo.manifest.blob_bytes, .memfd = -1};
    owner_export(&s.owner, buffers, n + 1);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .scattered = true,
                                             .packed_buffer = n,
                                             .tensor_count = n,
                                             .tensors = at};
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    owner_revoke(&s.owner, 0);
    for (uint32_t b = 0; b < n; b++)
        free(buffers[b].bytes);
    free(buffers);
    free(at);
    scene_close(&s);
}

struct encoded {
    struct tb_source_encoded *encoded_chunks;
    uint8_t *bytes;
    uint64_t used;
};

static void encode(struct encoded *e, const struct cargo *c)
{
    struct tb_codec *codec = NULL;
    assert_int_equal(tb_codec_new(&codec), TB_OK);
    e->encoded_chunks = calloc(c->manifest.chunk_count, sizeof *e->encoded_chunks);
    e->bytes = malloc(2 * c->manifest.bytes + 65536);
    e->used = 0;
    for (uint32_t k = 0; k < c->manifest.chunk_count; k++) {
        const struct tb_chunk *chunk = &c->manifest.chunks[k];
        const struct tb_codec_input in = {
            .bytes = c->bytes + chunk->offset, .count = chunk->bytes, .dtype = TB_DTYPE_U8};
        const struct tb_codec_room room = {e->bytes + e->used, tb_codec_bound(TB_CODEC_ZSTD, chunk->bytes)};
        struct tb_codec_coded coded;
        assert_int_equal(
            tb_codec_encode(codec, (struct tb_codec_form){.id = TB_CODEC_ZSTD}, &in, room, &coded), TB_OK);
        e->encoded_chunks[k] = (struct tb_source_encoded){
            .codec = (uint8_t)coded.form.id, .bytes = (uint32_t)coded.count, .buffer = 0, .offset = e->used};
        if (coded.form.id == TB_CODEC_ZSTD) e->used += coded.count;
    }
    tb_codec_free(codec);
    assert_true(e->used > 0);
}

static void make_some_shrink(struct cargo *c)
{
    memset(c->bytes, 7, 5000000);
    for (uint32_t k = 0; k < c->manifest.chunk_count; k++)
        c->manifest.digests[k] =
            tb_digest_of(c->bytes + c->manifest.chunks[k].offset, c->manifest.chunks[k].bytes);
}

/* Encoded encoded chunks beside packed bytes: chunks that zstd did not shrink are read packed. */
void P1_encoded_chunks_are_decoded(void **state)
{
    struct scene s;
    struct encoded e;
    scene_open(&s, *state, 5, 3000004, 0);
    make_some_shrink(&s.cargo);
    encode(&e, &s.cargo);
    e.encoded_chunks[1].codec = TB_CODEC_RAW;
    const struct tb_export_buffer buffers[] = {
        {.bytes = e.bytes, .count = e.used, .memfd = -1},
        {.bytes = s.cargo.bytes, .count = s.cargo.manifest.bytes, .memfd = -1}};
    owner_export(&s.owner, buffers, 2);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .packed_buffer = 1,
                                             .encoded_count = s.cargo.manifest.chunk_count,
                                             .encoded_chunks = e.encoded_chunks};
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_true(stats.bytes_read < s.cargo.manifest.bytes - 2000000);
    tb_hop_close(hop);
    owner_revoke(&s.owner, 0);
    free(e.encoded_chunks);
    free(e.bytes);
    scene_close(&s);
}

/* Where a place's bytes are a device's, whole chunks and encoded ones come together in memory of
 * the host, and their place's owner takes them from there; but for those of blobs, which stand
 * there. No core looks at the others. */
void P1_far_chunks_are_brought_there(void **state)
{
    struct scene s;
    struct encoded e;
    struct far_place far;
    scene_open(&s, *state, 5, 3000004, 0);
    make_some_shrink(&s.cargo);
    encode(&e, &s.cargo);
    const struct tb_manifest *m = &s.cargo.manifest;
    const struct tb_export_buffer buffers[] = {{.bytes = e.bytes, .count = e.used, .memfd = -1},
                                               {.bytes = s.cargo.bytes, .count = m->bytes, .memfd = -1}};
    owner_export(&s.owner, buffers, 2);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .packed_buffer = 1,
                                             .encoded_count = m->chunk_count,
                                             .encoded_chunks = e.encoded_chunks};
    far_place_open(&far, &s.hold);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    uint32_t blobs = 0;
    for (uint32_t k = 0; k < m->chunk_count; k++)
        blobs += m->chunks[k].offset >= m->layout.bytes;
    assert_true(blobs > 0);
    assert_int_equal(atomic_load(&far.brought), m->chunk_count - blobs);
    assert_int_equal(atomic_load(&far.found), 0);
    far_place_close(&far, &s.hold);
    owner_revoke(&s.owner, 0);
    free(e.encoded_chunks);
    free(e.bytes);
    scene_close(&s);
}

/* A damaged encoded chunk is a bad chunk, not a crash and not a held one. */
void P1_a_damaged_encoded_chunk_is_bad(void **state)
{
    struct scene s;
    struct encoded e;
    scene_open(&s, *state, 1, 3000004, 0);
    memset(s.cargo.bytes, 7, 3000000);
    encode(&e, &s.cargo);
    for (uint32_t i = 0; i < e.encoded_chunks[0].bytes; i++)
        e.bytes[i] ^= 0x5a;
    const struct tb_export_buffer buffer = {.bytes = e.bytes, .count = e.used, .memfd = -1};
    owner_export(&s.owner, &buffer, 1);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .encoded_count = s.cargo.manifest.chunk_count,
                                             .encoded_chunks = e.encoded_chunks};
    for (uint32_t k = 1; k < s.cargo.manifest.chunk_count; k++) { /* only chunk 0 is wanted */
        memcpy(s.hold.bytes + s.cargo.manifest.chunks[k].offset,
               s.cargo.bytes + s.cargo.manifest.chunks[k].offset, s.cargo.manifest.chunks[k].bytes);
        (void)tb_bitmap_set(s.hold.place.held, k);
    }
    struct tb_hop *hop = scene_hop(&s);
    tale_wait(&s.tale, &s.tale.told.bad, 1);
    assert_int_equal(told(&s.tale).bad_chunk, 0);
    tb_hop_close(hop);
    assert_false(tb_place_held(&s.hold.place, 0));
    owner_revoke(&s.owner, 0);
    free(e.encoded_chunks);
    free(e.bytes);
    scene_close(&s);
}

/* A reader of slices takes the chunks that meet them, and not a byte of others: what it reads
 * beyond its own is what those chunks have, whatever moves them. (Where a layout declares the axes,
 * chunks end there: at most 5 %, tests/system/test_python.py.) */
void only_what_is_wanted_is_read(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    const uint32_t n = s.cargo.manifest.chunk_count;
    uint64_t *wanted = calloc(TB_BITMAP_WORDS(n), sizeof *wanted), own = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (k % 3 == 1) {
            (void)tb_bitmap_set(wanted, k);
            own += s.cargo.manifest.chunks[k].bytes;
        } else {
            (void)tb_bitmap_set(s.hold.place.claimed, k);
        }
    }
    const struct tb_place_owner owner = {.wanted = wanted};
    s.hold.place.owner = &owner;
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.bytes_read, own);
    tb_hop_close(hop);
    for (uint32_t k = 0; k < n; k++)
        assert_int_equal(tb_place_held(&s.hold.place, k), k % 3 == 1);
    memset(s.hold.place.claimed, 0, TB_BITMAP_WORDS(n) * sizeof *wanted);
    scene_close(&s);
    free(wanted);
}

/* A source that fills while it is read: nothing is asked before its bit is set, all of it
 * arrives. */
void P1_a_filling_source_is_followed(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    const uint32_t n = s.cargo.manifest.chunk_count;
    owner_fill(&s.owner, 0); /* what is not held is not there */
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_opened(&s.tale);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = (i * 7 + 3) % n;
        if (n % 7 == 0) skip();
        const struct tb_chunk *chunk = &s.cargo.manifest.chunks[k];
        assert_false(tb_place_held(&s.hold.place, k));
        owner_put(&s.owner, 64 + chunk->offset, s.cargo.bytes + chunk->offset, chunk->bytes);
        owner_hold(&s.owner, k, k + 1);
        wait_until(tb_place_held(&s.hold.place, k));
    }
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).bad, 0);
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.bytes_wasted, 0); /* a chunk asked for too early would not have matched */
    tb_hop_close(hop);
    scene_close(&s);
}

void P6_many_chunks_in_one_go(void **state)
{
    struct scene s;
    const struct way *way = *state;
    scene_open(&s, way, way->transport == TB_TRANSPORT_VERBS ? FEW_CHUNKS : MANY_CHUNKS, 540000, 0);
    owner_hold_all(&s.owner);
    const tb_time_ns from = tb_clock_now();
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    const double seconds = (double)(tb_clock_now() - from) * 1e-9;
    print_message("%s: %u chunks, %.0f MB/s\n", s.way->name, s.cargo.manifest.chunk_count,
                  (double)s.cargo.manifest.bytes / 1e6 / seconds);
    tb_hop_close(hop);
    scene_close(&s);
}
