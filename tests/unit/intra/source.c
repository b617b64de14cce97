/* source.c - source descriptors: what is encoded comes back, what is garbled is refused, runs
 * are where bytes stand.
 *
 * Covers: intra/fabric/source_descriptor.c */
#include "intra/fabric/source_descriptor.h"

#include <stdlib.h>
#include <string.h>

#include "island.h"

static const struct tb_source_at tensors[] = {{1, 100}, {2, 200}, {3, 300}};
static const struct tb_source_encoded encoded_chunks[] = {{1, 11, 4, 40}, {0, 0, 0, 0}};
static const struct tb_source_shard shards[] = {
    {.shard = 5, .held_buffer = 9, .held_offset = 64, .packed_buffer = 1, .packed_offset = 1 << 20},
    {.shard = 6,
     .held_buffer = TB_SOURCE_ALL_HELD,
     .scattered = true,
     .packed_buffer = 7,
     .packed_offset = 8,
     .tensor_count = 3,
     .tensors = tensors,
     .encoded_count = 2,
     .encoded_chunks = encoded_chunks},
};

static size_t encoded(uint8_t *bytes, size_t cap)
{
    struct tb_writer w;
    tb_writer_init(&w, bytes, cap);
    tb_source_encode(shards, 2, &w);
    assert_false(w.full);
    assert_int_equal(w.used, tb_source_encoded_bytes(shards, 2));
    return w.used;
}

static void an_encoded_chunk_comes_back(void **state)
{
    (void)state;
    uint8_t bytes[512];
    const size_t n = encoded(bytes, sizeof bytes);
    const size_t needed = tb_source_decode_bytes(bytes, n);
    assert_true(needed > 0);
    void *memory = malloc(needed);
    const struct tb_source_shard *got = NULL;
    uint32_t count = 0;
    assert_int_equal(tb_source_decode(bytes, n, memory, needed - 1, &got, &count), TB_SITE_NOMEM);
    assert_int_equal(tb_source_decode(bytes, n, memory, needed, &got, &count), TB_OK);
    assert_int_equal(count, 2);
    assert_int_equal(got[0].shard, 5);
    assert_int_equal(got[0].held_offset, 64);
    assert_int_equal(got[0].packed_offset, 1 << 20);
    assert_false(got[0].scattered);
    assert_null(got[0].tensors);
    assert_true(got[1].scattered);
    assert_int_equal(got[1].held_buffer, TB_SOURCE_ALL_HELD);
    assert_int_equal(got[1].tensors[2].buffer, 3);
    assert_int_equal(got[1].tensors[2].offset, 300);
    assert_int_equal(got[1].encoded_chunks[0].codec, 1);
    assert_int_equal(got[1].encoded_chunks[0].bytes, 11);
    assert_int_equal(got[1].encoded_chunks[0].offset, 40);
    free(memory);
}

static void P7_truncations_and_tails_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[512];
    const size_t n = encoded(bytes, sizeof bytes);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(tb_source_decode_bytes(bytes, cut), 0);
    bytes[n] = 0;
    assert_int_equal(tb_source_decode_bytes(bytes, n + 1), 0);
}

/* Counts far beyond what was sent: refused before anything is allocated. */
static void P7_counts_are_not_believed(void **state)
{
    (void)state;
    uint8_t bytes[512];
    const size_t n = encoded(bytes, sizeof bytes);
    const size_t tensor_count_at = 4 + 29; /* of the first shard */
    for (size_t at = 0; at < 4; at++) {
        uint8_t other[512];
        memcpy(other, bytes, n);
        other[at] = 0xff;
        assert_int_equal(tb_source_decode_bytes(other, n), 0);
        memcpy(other, bytes, n);
        other[tensor_count_at + at] = 0xff;
        assert_int_equal(tb_source_decode_bytes(other, n), 0);
    }
    bytes[4 + 16] = 2; /* scattered is 0 or 1 */
    assert_int_equal(tb_source_decode_bytes(bytes, n), 0);
}

static void P7_tables_must_fit_the_manifest(void **state)
{
    (void)state;
    struct cargo c;
    cargo_make(&c, 2, 3000004);
    const uint32_t chunks = c.manifest.chunk_count;
    struct tb_source_encoded *o = calloc(chunks, sizeof *o);
    struct tb_source_at *at = calloc(c.manifest.layout.tensor_count, sizeof *at);
    struct tb_source_shard s = {.held_buffer = 1};
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_OK);
    s.held_offset = 4;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_PEER_GARBLED);
    s.held_offset = 0;
    s.packed_offset = (uint64_t)1 << 62;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_PEER_GARBLED);
    s.packed_offset = 0;
    s.scattered = true;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_PEER_GARBLED); /* no table */
    s.tensors = at;
    s.tensor_count = c.manifest.layout.tensor_count;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_OK);
    at[1].offset = UINT64_MAX;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_PEER_GARBLED);
    at[1].offset = 0;
    s.encoded_chunks = o;
    s.encoded_count = chunks - 1;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_PEER_GARBLED);
    s.encoded_count = chunks;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_OK);
    o[0] = (struct tb_source_encoded){.codec = 1, .bytes = c.manifest.chunks[0].bytes + 1};
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_PEER_GARBLED); /* larger than the chunk */
    o[0].bytes = 0;
    assert_int_equal(tb_source_check(&s, &c.manifest), TB_PEER_GARBLED);
    free(at);
    free(o);
    cargo_free(&c);
}

/* Runs walk all packed bytes, each where its tensor stands; empty tensors are nowhere. */
static void runs_are_where_the_tensors_stand(void **state)
{
    (void)state;
    struct cargo c;
    cargo_make(&c, 50, 4004);
    const struct tb_layout *layout = &c.manifest.layout;
    struct tb_source_at *at = calloc(layout->tensor_count, sizeof *at);
    for (uint32_t t = 0; t < layout->tensor_count; t++)
        at[t] = (struct tb_source_at){.buffer = t, .offset = 1000u * t};
    const struct tb_source_shard s = {.scattered = true,
                                      .tensors = at,
                                      .tensor_count = layout->tensor_count,
                                      .packed_buffer = 999,
                                      .packed_offset = 7};
    uint64_t at_packed = 0;
    uint32_t runs = 0;
    while (at_packed < c.manifest.bytes) {
        const struct tb_source_run run = tb_source_run_at(&s, &c.manifest, at_packed, 1500);
        assert_in_range(run.bytes, 1, 1500);
        if (run.buffer == 999) {
            assert_int_equal(run.offset, 7 + at_packed - layout->bytes);
        } else {
            const struct tb_tensor *t = &layout->tensors[run.buffer];
            assert_true(at_packed >= t->offset && at_packed + run.bytes <= t->offset + t->bytes);
            assert_int_equal(run.offset, 1000u * run.buffer + (at_packed - t->offset));
        }
        at_packed += run.bytes;
        runs++;
    }
    assert_int_equal(at_packed, c.manifest.bytes);
    assert_true(runs > 150);
    free(at);
    cargo_free(&c);
}

/* Tensors that follow one another in the buffer, too, are one run, over an empty one, but not into
 * another buffer, past a gap, back, or into the blobs. */
static void neighbours_are_one_run(void **state)
{
    (void)state;
    struct cargo c;
    cargo_make(&c, 50, 4004);
    const struct tb_layout *layout = &c.manifest.layout;
    const struct tb_tensor *tensors_of = layout->tensors;
    const uint32_t count = layout->tensor_count;
    struct tb_source_at *at = calloc(count, sizeof *at);
    const struct tb_source_shard s = {
        .scattered = true, .tensors = at, .tensor_count = count, .packed_buffer = 999};
    for (uint32_t t = 0; t < count; t++)
        if (tensors_of[t].bytes > 0)
            at[t] = (struct tb_source_at){.buffer = 3, .offset = 70 + tensors_of[t].offset};
    const struct tb_source_run whole = tb_source_run_at(&s, &c.manifest, 5, UINT64_MAX);
    assert_int_equal(whole.buffer, 3);
    assert_int_equal(whole.offset, 75);
    assert_int_equal(whole.bytes, layout->bytes - 5);
    assert_int_equal(tb_source_run_at(&s, &c.manifest, 5, 11000).bytes, 11000);
    uint32_t last = 0; /* with a tensor behind it */
    for (uint32_t t = 0; t < count / 2; t++)
        if (tensors_of[t].bytes > 0) last = t;
    uint32_t next = last + 1;
    while (tensors_of[next].bytes == 0)
        next++;
    const uint64_t end = tensors_of[next].offset;
    const struct tb_source_at apart[] = {
        {4, at[next].offset}, {3, at[next].offset + 1}, {3, at[next].offset - 1}};
    const struct tb_source_at before = at[next];
    for (uint32_t i = 0; i < 3; i++) {
        at[next] = apart[i];
        assert_int_equal(tb_source_run_at(&s, &c.manifest, 5, UINT64_MAX).bytes, end - 5);
    }
    at[next] = before;
    assert_int_equal(tb_source_run_at(&s, &c.manifest, 5, UINT64_MAX).bytes, layout->bytes - 5);
    free(at);
    cargo_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_encoded_chunk_comes_back),
        cmocka_unit_test(P7_truncations_and_tails_are_refused),
        cmocka_unit_test(P7_counts_are_not_believed),
        cmocka_unit_test(P7_tables_must_fit_the_manifest),
        cmocka_unit_test(runs_are_where_the_tensors_stand),
        cmocka_unit_test(neighbours_are_one_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
