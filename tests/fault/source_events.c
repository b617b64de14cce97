/* Every shape of a source that a worker can describe, against a shard of two tensors and a blob:
 * what is believed is what fits (P7), and of that each byte is read from where it stands (P1).
 * tb_source has no state: its events are descriptors.
 *
 * Covers: intra/fabric/source_descriptor.c intra/fabric/source_buffers.c */
#include <stdio.h>
#include <string.h>

#include "intra/fabric/source_descriptor.h"
#include "tests/unit/check.h"

#define TENSORS     2u
#define CHUNKS      2u
#define FIRST_BYTES 10u
#define LAST_BYTES  6u
#define BLOB_BYTES  4u
#define BYTES       (FIRST_BYTES + LAST_BYTES + BLOB_BYTES)
#define FAR         ((uint64_t)1 << 62) /* nothing stands there or beyond */

static struct tb_tensor tensors[TENSORS] = {{.offset = 0, .bytes = FIRST_BYTES},
                                            {.offset = FIRST_BYTES, .bytes = LAST_BYTES}};
static struct tb_chunk chunks[CHUNKS] = {{0, FIRST_BYTES + LAST_BYTES},
                                         {FIRST_BYTES + LAST_BYTES, BLOB_BYTES}};
static const struct tb_manifest manifest = {
    .layout = {.tensor_count = TENSORS, .tensors = tensors, .bytes = FIRST_BYTES + LAST_BYTES},
    .chunk_count = CHUNKS,
    .chunks = chunks,
    .bytes = BYTES};

/* A descriptor with the memory of its tables. */
struct told {
    struct tb_source_shard s;
    struct tb_source_at at[TENSORS + 1];
    struct tb_source_encoded encoded_chunks[CHUNKS + 1];
};

/* The next of the choices that `*rest` numbers. */
static uint32_t pick(uint32_t *rest, uint32_t count)
{
    const uint32_t choice = *rest % count;
    *rest /= count;
    return choice;
}

static struct tb_source_encoded encoded_of(uint32_t choice)
{
    static const struct tb_source_encoded choices[] = {{0, 0, 0, 0},   {1, 1, 4, 40},
                                                       {1, 0, 4, 40},  {1, BLOB_BYTES + 1, 4, 0},
                                                       {1, 2, 4, FAR}, {0, 99, 9, FAR}};
    return choices[choice];
}

/* False: there are no more. */
static bool told_of(uint32_t number, struct told *t)
{
    static const uint64_t places[] = {0, 8, 4, FAR - 8, FAR};
    *t = (struct told){.s = {.shard = 3, .packed_buffer = 7}};
    t->s.held_buffer = pick(&number, 2) == 0 ? 5 : TB_SOURCE_ALL_HELD;
    t->s.held_offset = places[pick(&number, 5)];
    t->s.packed_offset = places[pick(&number, 5)];
    t->s.scattered = pick(&number, 2) == 1;
    t->s.tensor_count = pick(&number, TENSORS + 2);
    t->at[0] = (struct tb_source_at){1, 100};
    t->at[1] = (struct tb_source_at){2, pick(&number, 2) == 0 ? 200 : FAR};
    t->s.encoded_count = pick(&number, CHUNKS + 2);
    t->encoded_chunks[0] = encoded_of(pick(&number, 6));
    t->encoded_chunks[1] = encoded_of(pick(&number, 6));
    t->s.tensors = t->s.tensor_count > 0 ? t->at : NULL;
    t->s.encoded_chunks = t->s.encoded_count > 0 ? t->encoded_chunks : NULL;
    return number == 0;
}

static bool encoded_fits(const struct tb_source_encoded *o, uint32_t chunk_bytes)
{
    return o->codec == 0 || (o->bytes >= 1 && o->bytes <= chunk_bytes && o->offset < FAR);
}

/* The rule once more, from the header's words. */
static bool fits(const struct told *t)
{
    const struct tb_source_shard *s = &t->s;
    if (s->packed_offset == FAR || s->held_offset == FAR) return false;
    if (s->held_buffer != TB_SOURCE_ALL_HELD && s->held_offset == 4) return false;
    if (s->scattered ? s->tensor_count != TENSORS || t->at[1].offset == FAR : s->tensor_count != 0)
        return false;
    if (s->encoded_count == 0) return true;
    return s->encoded_count == CHUNKS && encoded_fits(&t->encoded_chunks[0], chunks[0].bytes) &&
           encoded_fits(&t->encoded_chunks[1], chunks[1].bytes);
}

static struct tb_source_at where(const struct told *t, uint64_t byte)
{
    const uint64_t packed = t->s.packed_offset;
    if (!t->s.scattered) return (struct tb_source_at){7, packed + byte};
    if (byte < FIRST_BYTES) return (struct tb_source_at){1, 100 + byte};
    if (byte < FIRST_BYTES + LAST_BYTES) return (struct tb_source_at){2, 200 + byte - FIRST_BYTES};
    return (struct tb_source_at){7, packed + byte - FIRST_BYTES - LAST_BYTES};
}

static void each_byte_is_where_it_stands(const struct told *t)
{
    for (uint64_t from = 0; from < BYTES; from++)
        for (uint64_t most = 1; most <= BYTES; most++) {
            const struct tb_source_run run = tb_source_run_at(&t->s, &manifest, from, most);
            assert_true(run.bytes >= 1 && run.bytes <= most && from + run.bytes <= BYTES);
            for (uint64_t i = 0; i < run.bytes; i++) {
                const struct tb_source_at at = where(t, from + i);
                assert_true(at.buffer == run.buffer && at.offset == run.offset + i);
            }
        }
    for (uint32_t k = 0; k < CHUNKS; k++) {
        const struct tb_source_encoded *encoded = NULL;
        const bool there = t->s.encoded_count > 0 && t->encoded_chunks[k].codec != 0;
        assert_int_equal(tb_source_encoded_of(&t->s, k, &encoded), there);
        if (there) assert_ptr_equal(encoded, &t->encoded_chunks[k]);
    }
}

static void it_comes_back(const struct told *t)
{
    static uint64_t memory[64];
    uint8_t bytes[256], again[256];
    struct tb_writer w;
    const struct tb_source_shard *got = NULL;
    uint32_t count = 0;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_source_encode(&t->s, 1, &w);
    const size_t written = w.used;
    assert_int_equal(tb_source_decode(bytes, written, memory, sizeof memory, &got, &count), TB_OK);
    assert_int_equal(count, 1);
    tb_writer_init(&w, again, sizeof again);
    tb_source_encode(got, 1, &w);
    assert_int_equal(w.used, written);
    assert_memory_equal(again, bytes, written);
    assert_int_equal(tb_source_check(got, &manifest), tb_source_check(&t->s, &manifest));
}

static void P7_every_source_is_believed_as_far_as_it_fits(void **state)
{
    (void)state;
    struct told t;
    uint32_t number = 0, believed = 0;
    for (; told_of(number, &t); number++) {
        const bool good = fits(&t);
        assert_int_equal(tb_source_check(&t.s, &manifest), good ? TB_OK : TB_PEER_GARBLED);
        it_comes_back(&t);
        if (good) each_byte_is_where_it_stands(&t);
        believed += good;
    }
    printf("%u sources, %u believed\n", number, believed);
    assert_true(believed > 100 && number > 10 * believed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(P7_every_source_is_believed_as_far_as_it_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
