/* A peer k versions behind is sent one delta that is k deltas merged, or whole chunks where these
 * are fewer bytes: never more than the k deltas one by one. Over made weights with the statistics
 * of real ones.
 *
 * Covers: wan/send/codec_choice.c */
#include <stdlib.h>
#include <string.h>

#include "base/codec/codec.h"
#include "sim/weights.h"
#include "tests/unit/check.h"
#include "wan/send/codec_choice.h"

#define VERSIONS 9
#define ELEMENTS (8u * TB_WEIGHTS_BLOCK) /* 512 KiB of bf16 */
#define BYTES    (2u * ELEMENTS)
#define SLOW     6.25e6 /* 50 Mbit/s, in bytes */

struct world {
    struct tb_codec *codec;
    uint16_t *versions[VERSIONS];
    uint8_t *room;
};

static void versions_make(struct world *w, double lr)
{
    const struct tb_weights_options options = {.bytes = 4u << 20, .versions = VERSIONS, .seed = 11, .lr = lr};
    struct tb_weights weights;
    uint32_t filled = 0;
    CHECK_OK(tb_weights_new(&options, &weights));
    for (uint32_t t = 0; t < weights.tensor_count && filled < ELEMENTS; t++) {
        if (weights.tensors[t].kind != TB_WEIGHTS_LINEAR) continue;
        for (uint64_t b = 0; b < tb_weights_blocks(&weights.tensors[t]) && filled < ELEMENTS; b++) {
            uint16_t *out[VERSIONS];
            for (uint32_t v = 0; v < VERSIONS; v++)
                out[v] = w->versions[v] + filled;
            filled += tb_weights_block(&weights, t, b, out);
        }
    }
    assert_true(filled >= ELEMENTS);
    tb_weights_free(&weights);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    CHECK_OK(tb_codec_new(&w->codec));
    for (uint32_t v = 0; v < VERSIONS; v++)
        w->versions[v] = calloc(ELEMENTS + TB_WEIGHTS_BLOCK, sizeof(uint16_t));
    w->room = malloc(2u * BYTES + 4096);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    tb_codec_free(w->codec);
    for (uint32_t v = 0; v < VERSIONS; v++)
        free(w->versions[v]);
    free(w->room);
    free(w);
    return 0;
}

static size_t coded_bytes(struct world *w, uint32_t from, uint32_t to, enum tb_choice_way way)
{
    unsigned classes = 0;
    const struct tb_codec_form form = tb_choice_form(way, &classes);
    const struct tb_codec_input in = {.bytes = w->versions[to],
                                      .count = BYTES,
                                      .dtype = TB_DTYPE_BF16,
                                      .base = form.on_base ? w->versions[from] : NULL,
                                      .classes = classes};
    struct tb_codec_coded coded;
    CHECK_OK(
        tb_codec_encode(w->codec, form, &in, (struct tb_codec_room){w->room, 2u * BYTES + 4096}, &coded));
    return coded.count;
}

/* The bytes that `auto` sends of a chunk of one version on another, once it has seen some;
 * *all_out of `chunks` of them. */
static size_t chosen_of(struct world *w, struct tb_choice *c, uint32_t from, uint32_t to, uint32_t chunks,
                        size_t *all_out)
{
    const struct tb_codec_input step = {w->versions[to], BYTES, TB_DTYPE_BF16, w->versions[from], 0};
    const struct tb_choice_ask ask = {tb_choice_kind_of(&step), true};
    size_t sizes[TB_WAYS] = {0}, all = 0, last = 0;
    for (uint32_t i = 0; i < chunks; i++) {
        const enum tb_choice_way way = tb_choice_pick(c, &ask);
        if (sizes[way] == 0) sizes[way] = coded_bytes(w, from, to, way);
        all += last = sizes[way];
        tb_choice_learn(c, &(struct tb_choice_sample){.kind = ask.kind,
                                                      .way = way,
                                                      .raw_bytes = BYTES,
                                                      .wire_bytes = (uint32_t)last,
                                                      .encode_ns = TB_MS(1)});
    }
    if (all_out != NULL) *all_out = all;
    return last;
}

static void choice_begin(struct tb_choice *c)
{
    tb_choice_init(c, TB_CHOICE_AUTO, 2);
    tb_choice_carried(c, &(struct tb_choice_carried){SLOW, true});
}

static size_t chosen_bytes(struct world *w, uint32_t from, uint32_t to)
{
    struct tb_choice c;
    choice_begin(&c);
    return chosen_of(w, &c, from, to, 40, NULL);
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void merged_is_never_more_than_one_by_one(struct world *w, double lr)
{
    size_t one_by_one = 0;
    versions_make(w, lr);
    for (uint32_t k = 1; k < VERSIONS; k++) {
        one_by_one += chosen_bytes(w, k - 1, k);
        const size_t merged =
            least_of(coded_bytes(w, 0, k, TB_WAY_CLASSES), coded_bytes(w, 0, k, TB_WAY_DENSE));
        const size_t full = coded_bytes(w, 0, k, TB_WAY_PLANES);
        const size_t chosen = chosen_bytes(w, 0, k);
        print_message("lr %g, %u behind: one by one %zu, merged %zu, whole %zu, chosen %zu\n", lr, k,
                      one_by_one, merged, full, chosen);
        assert_true((double)chosen <= 1.05 * (double)least_of(merged, full));
        assert_true((double)chosen <= 1.05 * (double)one_by_one);
        if (k > 1) assert_true(chosen < one_by_one);
    }
}

static void small_deltas_are_merged(void **state)
{
    merged_is_never_more_than_one_by_one(*state, 1e-6);
}

/* Hardly an element stays what it was. */
static void huge_steps_are_not_worth_a_delta(void **state)
{
    struct world *w = *state;
    merged_is_never_more_than_one_by_one(w, 0.02);
    assert_int_equal(chosen_bytes(w, 0, VERSIONS - 1), coded_bytes(w, 0, VERSIONS - 1, TB_WAY_PLANES));
}

/* `auto` stays within 5 % of the best fixed way over 1,000 chunks of steps that turned from small
 * to huge, what it took to find that out and to try the other way included; and when they are small
 * again it finds back. */
static void auto_follows_what_deltas_become(void **state)
{
    struct world *w = *state;
    struct tb_choice c;
    choice_begin(&c);
    for (unsigned turn = 0; turn < 3; turn++) {
        size_t all = 0, least = SIZE_MAX;
        versions_make(w, turn == 1 ? 0.02 : 1e-6);
        const size_t last = chosen_of(w, &c, 0, 1, 1000, &all);
        for (unsigned way = 0; way < TB_WAYS; way++)
            least = least_of(least, coded_bytes(w, 0, 1, (enum tb_choice_way)way));
        print_message("%s: a chunk as auto %zu, the least %zu\n", turn == 1 ? "huge" : "small", all / 1000,
                      least);
        assert_int_equal(last, least);
        if (turn < 2) assert_true((double)all <= 1.05 * 1000 * (double)least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_deltas_are_merged, setup, teardown),
        cmocka_unit_test_setup_teardown(auto_follows_what_deltas_become, setup, teardown),
        cmocka_unit_test_setup_teardown(huge_steps_are_not_worth_a_delta, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
