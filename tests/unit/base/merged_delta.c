/* merged_delta.c - deltas that were encoded one by one are merged into one: it decodes to the last
 * version. A form that lies about their number or lengths is refused.
 * Covers: base/codec/codec.c base/codec/sparse.c */
#include "base/codec/codec.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/vectors.h"
#include "tests/unit/check.h"

#define BYTES  200003u /* two sections of bf16 and a tail */
#define STEPS  TB_CODEC_CHAINED_MAX
#define MARGIN 64u

struct story {
    struct tb_codec *codec;
    uint8_t versions[STEPS + 2][BYTES];
    uint8_t *rooms[STEPS + 1];
    struct tb_codec_coded steps[STEPS + 1]; /* of version i + 1 on version i */
};

/* Weights whose exponents are spread, so that the classes of a base are not those of the version on
 * it. */
static void versions_make(struct story *s)
{
    uint64_t seed = 5;
    for (size_t i = 0; i < BYTES; i++)
        s->versions[0][i] = (uint8_t)(i % 2 == 0 ? check_random(&seed) : 0x38 + check_random(&seed) % 5);
    for (unsigned v = 1; v < STEPS + 2; v++) {
        memcpy(s->versions[v], s->versions[v - 1], BYTES);
        for (size_t i = 0; i + 1 < BYTES; i += 2 + 2 * (check_random(&seed) % 60)) {
            uint8_t *low = &s->versions[v][i];
            const uint16_t more = (uint16_t)(low[0] + 1u);
            low[0] = (uint8_t)more;
            low[1] = (uint8_t)(low[1] + (more >> 8) + (check_random(&seed) % 200 == 0 ? 1 : 0));
        }
        s->versions[v][BYTES - 1] = (uint8_t)check_random(&seed);
    }
}

static void deltas_encode_all(struct story *s, enum tb_dtype dtype, unsigned classes)
{
    const struct tb_codec_form form = {TB_CODEC_SPARSE, true};
    for (unsigned i = 0; i < STEPS + 1; i++) {
        const struct tb_codec_input in = {s->versions[i + 1], BYTES, dtype, s->versions[i], classes};
        const struct tb_codec_room room = {s->rooms[i], tb_codec_bound(TB_CODEC_SPARSE, BYTES)};
        CHECK_OK(tb_codec_encode(s->codec, form, &in, room, &s->steps[i]));
        assert_int_equal(s->steps[i].form.id, TB_CODEC_SPARSE);
    }
}

static int story_up(void **state)
{
    struct story *s = calloc(1, sizeof *s);
    assert_non_null(s);
    CHECK_OK(tb_codec_new(&s->codec));
    versions_make(s);
    for (unsigned i = 0; i < STEPS + 1; i++) {
        s->rooms[i] = malloc(tb_codec_bound(TB_CODEC_SPARSE, BYTES));
        assert_non_null(s->rooms[i]);
    }
    deltas_encode_all(s, TB_DTYPE_BF16, TB_CODEC_CLASSES);
    *state = s;
    return 0;
}

static int story_down(void **state)
{
    struct story *s = *state;
    for (unsigned i = 0; i < STEPS + 1; i++)
        free(s->rooms[i]);
    tb_codec_free(s->codec);
    free(s);
    return 0;
}

/* Into memory of exactly its size, the caller's. */
static struct tb_codec_coded joined(const struct tb_codec_coded *parts, unsigned count)
{
    const size_t bytes = tb_codec_chain_bytes(parts, count);
    struct tb_codec_coded coded;
    uint8_t *room = malloc(bytes);
    assert_true(bytes > 0 && room != NULL);
    CHECK_STATUS(tb_codec_chain(parts, count, (struct tb_codec_room){room, bytes - 1}, &coded),
                 TB_SITE_NOMEM);
    CHECK_OK(tb_codec_chain(parts, count, (struct tb_codec_room){room, bytes}, &coded));
    assert_true(coded.bytes == room && coded.count == bytes && coded.form.on_base);
    return coded;
}

static void is_version(struct story *s, const struct tb_codec_coded *coded, unsigned base, unsigned version)
{
    uint8_t *out = malloc(BYTES), *on = malloc(BYTES);
    assert_true(out != NULL && on != NULL);
    memcpy(on, s->versions[base], BYTES);
    memset(out, 0x5a, BYTES);
    CHECK_OK(tb_codec_decode(s->codec, coded, &(struct tb_codec_output){out, BYTES, on}));
    assert_memory_equal(out, s->versions[version], BYTES);
    assert_memory_equal(on, s->versions[base], BYTES);
    free(out);
    free(on);
}

/* P1: in one class and in many, by every set of instructions that is here, up to as
 * many as there may be. */
static void chained_deltas_make_the_last_version(void **state)
{
    static const enum tb_dtype dtypes[] = {TB_DTYPE_BF16, TB_DTYPE_F8E4, TB_DTYPE_F32, TB_DTYPE_U8};
    struct story *s = *state;
    for (unsigned d = 0; d < 2 * sizeof dtypes / sizeof dtypes[0]; d++) {
        deltas_encode_all(s, dtypes[d / 2], d % 2 == 0 ? 1 : TB_CODEC_CLASSES);
        for (unsigned v = 0; v < VECTORS; v++) {
            if (!tb_vector_here(vectors[v])) continue;
            tb_codec_force(s->codec, vectors[v]);
            for (unsigned count = 1; count <= STEPS; count += 5) {
                struct tb_codec_coded coded = joined(s->steps + 1, count);
                assert_int_equal(coded.form.id, count == 1 ? TB_CODEC_SPARSE : TB_CODEC_CHAINED);
                assert_int_equal(tb_codec_deltas(&coded), count);
                is_version(s, &coded, 1, 1 + count);
                free((void *)(uintptr_t)coded.bytes);
            }
        }
    }
}

/* A relay merges the deltas behind a merged delta that it got as if it had merged the first ones
 * itself. */
static void a_merged_delta_can_be_merged_again(void **state)
{
    struct story *s = *state;
    struct tb_codec_coded all = joined(s->steps, 7), front = joined(s->steps, 3),
                          back = joined(s->steps + 4, 3);
    const struct tb_codec_coded parts[] = {front, s->steps[3], back};
    struct tb_codec_coded again = joined(parts, 3), alone = joined(&front, 1);
    assert_int_equal(again.count, all.count);
    assert_memory_equal(again.bytes, all.bytes, all.count);
    assert_int_equal(alone.count, front.count);
    assert_int_equal(alone.form.id, TB_CODEC_CHAINED);
    assert_memory_equal(alone.bytes, front.bytes, front.count);
    is_version(s, &again, 0, 7);
    const struct tb_codec_coded *made[] = {&all, &front, &back, &again, &alone};
    for (unsigned i = 0; i < sizeof made / sizeof made[0]; i++)
        free((void *)(uintptr_t)made[i]->bytes);
}

static void refused(const struct tb_codec_coded *parts, unsigned count)
{
    struct tb_codec_coded coded;
    static uint8_t room[(STEPS + 1) * BYTES];
    CHECK_STATUS(tb_codec_chain(parts, count, (struct tb_codec_room){room, sizeof room}, &coded),
                 TB_CHUNK_CODEC);
}

static void only_sparse_deltas_are_merged(void **state)
{
    struct story *s = *state;
    struct tb_codec_coded parts[] = {s->steps[0], s->steps[1]}, two = joined(s->steps, 2);
    refused(parts, 0);
    refused(s->steps, STEPS + 1);
    parts[1].form = (struct tb_codec_form){TB_CODEC_PLANES, true};
    refused(parts, 2);
    parts[1] = (struct tb_codec_coded){{TB_CODEC_CHAINED, true}, two.bytes, two.count - 1};
    refused(parts, 2);
    parts[1].count = 0;
    refused(parts, 2);
    free((void *)(uintptr_t)two.bytes);
}

/* P7: cut anywhere, or with other lengths and numbers in front. Nothing is written behind the
 * chunk. */
static void damage_is_refused_or_harmless(void **state)
{
    struct story *s = *state;
    struct tb_codec_coded two = joined(s->steps, 2);
    uint8_t *bytes = (uint8_t *)(uintptr_t)two.bytes, *out = malloc(BYTES);
    const struct tb_codec_output to = {out, BYTES, s->versions[0]};
    assert_non_null(out);
    for (size_t cut = 0; cut < two.count; cut += cut < MARGIN || cut + MARGIN > two.count ? 1 : 997) {
        struct tb_codec_coded shorter = {two.form, malloc(cut + 1), cut};
        memcpy((void *)(uintptr_t)shorter.bytes, bytes, cut);
        CHECK_STATUS(tb_codec_decode(s->codec, &shorter, &to), TB_CHUNK_CODEC);
        free((void *)(uintptr_t)shorter.bytes);
    }
    for (unsigned steps = 0; steps < 256; steps++) {
        bytes[0] = (uint8_t)steps;
        CHECK_STATUS(tb_codec_decode(s->codec, &two, &to), steps == 2 ? TB_OK : TB_CHUNK_CODEC);
    }
    bytes[0] = 2;
    for (unsigned bit = 0; bit < 32; bit++) { /* of the first one's length */
        bytes[1 + bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_STATUS(tb_codec_decode(s->codec, &two, &to), TB_CHUNK_CODEC);
        bytes[1 + bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CHECK_OK(tb_codec_decode(s->codec, &two, &to));
    assert_memory_equal(out, s->versions[2], BYTES);
    free(bytes);
    free(out);
}

/* P7: a delta that costs its receiver more than sixteen is refused, though each step be sound. */
static void more_than_sixteen_are_refused(void **state)
{
    struct story *s = *state;
    struct tb_codec_coded all = joined(s->steps, STEPS);
    const struct tb_codec_coded *more = &s->steps[STEPS];
    uint8_t *bytes = malloc(all.count + 4 + more->count), *out = malloc(BYTES);
    assert_true(bytes != NULL && out != NULL);
    memcpy(bytes, all.bytes, all.count);
    bytes[0]++;
    for (unsigned i = 0; i < 4; i++)
        bytes[all.count + i] = (uint8_t)(more->count >> 8 * i);
    memcpy(bytes + all.count + 4, more->bytes, more->count);
    const struct tb_codec_coded over = {all.form, bytes, all.count + 4 + more->count};
    const struct tb_codec_output to = {out, BYTES, s->versions[0]};
    CHECK_STATUS(tb_codec_decode(s->codec, &over, &to), TB_CHUNK_CODEC);
    CHECK_OK(tb_codec_decode(s->codec, &all, &to));
    free((void *)(uintptr_t)all.bytes);
    free(bytes);
    free(out);
}

/* They are joined, and nothing is encoded as them. */
static void nothing_is_encoded_as_chained(void **state)
{
    struct story *s = *state;
    struct tb_codec_coded coded;
    const struct tb_codec_input in = {s->versions[1], BYTES, TB_DTYPE_BF16, s->versions[0], 0};
    const struct tb_codec_room room = {s->rooms[0], tb_codec_bound(TB_CODEC_CHAINED, BYTES)};
    CHECK_OK(tb_codec_encode(s->codec, (struct tb_codec_form){TB_CODEC_CHAINED, true}, &in, room, &coded));
    assert_int_equal(coded.form.id, TB_CODEC_RAW);
    assert_false(tb_codec_form_valid((struct tb_codec_form){TB_CODEC_CHAINED, false}));
    assert_int_equal(tb_codec_deltas(&coded), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_STORY(test) cmocka_unit_test_setup_teardown(test, story_up, story_down)
        WITH_STORY(chained_deltas_make_the_last_version), WITH_STORY(a_merged_delta_can_be_merged_again),
        WITH_STORY(only_sparse_deltas_are_merged),        WITH_STORY(damage_is_refused_or_harmless),
        WITH_STORY(more_than_sixteen_are_refused),        WITH_STORY(nothing_is_encoded_as_chained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
