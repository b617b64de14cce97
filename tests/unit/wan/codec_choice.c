/* codec_choice.c - which way wins at which link. A way that is not there is not chosen.
 *
 * Covers: wan/send/codec_choice.c */
#include "codec_choice_world.h"

#include <string.h>

#include "base/layout/dtype.h"
#include "tests/unit/check.h"

static void the_link_decides(void **state)
{
    (void)state;
    const struct {
        double goodput;
        enum tb_choice_way full, step;
    } rows[] = {{0, TB_WAY_PLANES, TB_WAY_CLASSES},
                {MBIT_50, TB_WAY_PLANES, TB_WAY_CLASSES},
                {GBIT_1, TB_WAY_PLANES,
                 TB_WAY_GAPS}, /* 11 GB/s against 6: gaps are written faster than the link takes them */
                {LOOPBACK, TB_WAY_PLANES, TB_WAY_GAPS},
                {12.5e9, TB_WAY_RAW, TB_WAY_RAW}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        choice_setup(&c, TB_CHOICE_AUTO, rows[i].goodput);
        assert_int_equal(choice_pick(&c, false), rows[i].full);
        assert_int_equal(choice_pick(&c, true), rows[i].step);
        assert_int_equal(c.last[TB_KIND_BF16][1], rows[i].step);
    }
}

/* A link carries no more than an operator allows. */
static void a_cap_is_a_slow_link(void **state)
{
    (void)state;
    struct tb_choice c;
    choice_setup(&c, TB_CHOICE_AUTO, LOOPBACK);
    c.cap = MBIT_50;
    assert_int_equal(choice_pick(&c, true), TB_WAY_CLASSES);
    c.cap = 1e12;
    assert_int_equal(choice_pick(&c, true), TB_WAY_GAPS);
}

/* Never worse than the best fixed way by more than 5 %, by what it reckons with. */
static void nothing_fixed_is_much_better(void **state)
{
    (void)state;
    for (double goodput = 1e6; goodput < 1e11; goodput *= 1.3) {
        struct tb_choice c;
        choice_setup(&c, TB_CHOICE_AUTO, goodput);
        for (int on_base = 0; on_base < 2; on_base++) {
            const double chosen = tb_choice_rate(&c, TB_KIND_BF16, choice_pick(&c, on_base != 0), NULL);
            for (int w = 0; w < (on_base != 0 ? (int)TB_WAY_CHAINED : (int)TB_WAY_DENSE); w++)
                assert_true(chosen >= 0.95 * tb_choice_rate(&c, TB_KIND_BF16, (enum tb_choice_way)w, NULL));
        }
    }
}

static void the_bound_is_said(void **state)
{
    (void)state;
    struct tb_choice c;
    const char *bound = "";
    choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
    assert_true(tb_choice_rate(&c, TB_KIND_BF16, TB_WAY_CLASSES, &bound) > 89 * MBIT_50);
    assert_string_equal(bound, "link");
    c.goodput = LOOPBACK;
    assert_true(tb_choice_rate(&c, TB_KIND_BF16, TB_WAY_CLASSES, &bound) == 6e9);
    assert_string_equal(bound, "encode");
    c.ways[TB_KIND_BF16][TB_WAY_CLASSES].decode = 1e9;
    assert_true(tb_choice_rate(&c, TB_KIND_BF16, TB_WAY_CLASSES, &bound) == 2e9);
    assert_string_equal(bound, "decode");
}

/* A step that changed everything makes sparse useless, and what saves more takes its place. */
static void a_dense_delta_changes_the_way(void **state)
{
    (void)state;
    struct tb_choice c;
    choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
    for (int i = 0; i < 100; i++) {
        const enum tb_choice_way way = choice_pick(&c, true);
        const struct tb_choice_sample s = {.kind = TB_KIND_BF16,
                                           .way = way,
                                           .raw_bytes = 1 << 20,
                                           .wire_bytes = way == TB_WAY_DENSE ? 300000 : 900000,
                                           .encode_ns = TB_MS(1)};
        tb_choice_learn(&c, &s);
    }
    assert_int_equal(choice_pick(&c, true), TB_WAY_DENSE);
    assert_true(c.ways[TB_KIND_BF16][TB_WAY_DENSE].encode > 1.0e9);
}

/* So many chunks of a step in which sparse and dense deltas save that much; of the last
 * hundred, those that went dense. */
static uint32_t dense_of_last_hundred(struct tb_choice *c, uint32_t chunks, double sparse, double dense)
{
    uint32_t went = 0;
    for (uint32_t i = 0; i < chunks; i++) {
        const enum tb_choice_way way = choice_pick(c, true);
        const double saving = way == TB_WAY_DENSE ? dense : way == TB_WAY_RAW ? 1 : sparse;
        const struct tb_choice_sample s = {.kind = TB_KIND_BF16,
                                           .way = way,
                                           .raw_bytes = 1 << 20,
                                           .wire_bytes = (uint32_t)((1 << 20) / saving),
                                           .encode_ns = TB_MS(1) / 4};
        tb_choice_learn(c, &s);
        went += i + 100 >= chunks && way == TB_WAY_DENSE;
    }
    return went;
}

/* With what is believed before anything was measured: where every element changed a dense
 * difference is two thirds of a sparse one, and that is found; what saves less than was hoped is
 * left, and a step as usual is sparse again. */
static void a_dense_delta_is_tried_where_it_may_pay(void **state)
{
    (void)state;
    struct tb_choice c;
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    c.goodput = MBIT_50;
    assert_int_equal(dense_of_last_hundred(&c, 400, 80, 15), 0);
    assert_true(dense_of_last_hundred(&c, 400, 5.5, 7.9) > 90);
    assert_true(dense_of_last_hundred(&c, 400, 80, 15) < 10);
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    c.goodput = MBIT_50;
    assert_int_equal(dense_of_last_hundred(&c, 400, 5.5, 3), 0);
}

static void a_wish_is_kept_where_it_fits(void **state)
{
    (void)state;
    const struct {
        enum tb_choice_wish wish;
        enum tb_choice_way full, step, opaque;
    } rows[] = {{TB_CHOICE_RAW, TB_WAY_RAW, TB_WAY_RAW, TB_WAY_RAW},
                {TB_CHOICE_ZSTD, TB_WAY_ZSTD, TB_WAY_ZSTD, TB_WAY_ZSTD},
                {TB_CHOICE_PLANES, TB_WAY_PLANES, TB_WAY_PLANES, TB_WAY_RAW},
                {TB_CHOICE_SPARSE, TB_WAY_PLANES, TB_WAY_CLASSES, TB_WAY_GAPS}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        const struct tb_choice_ask opaque = {TB_KIND_BYTES, true};
        choice_setup(&c, rows[i].wish, LOOPBACK);
        assert_int_equal(choice_pick(&c, false), rows[i].full);
        assert_int_equal(choice_pick(&c, true), rows[i].step);
        assert_int_equal(tb_choice_pick(&c, &opaque), rows[i].opaque);
    }
}

/* Encoded by somebody else: its encoder is not our cores'. */
static void a_made_chunk_goes_unless_another_way_is_sooner(void **state)
{
    (void)state;
    const struct {
        enum tb_choice_wish wish;
        double goodput;
        uint32_t wire_bytes;
        bool takes;
    } rows[] = {{TB_CHOICE_AUTO, MBIT_50, 12000, true},   {TB_CHOICE_AUTO, LOOPBACK, 12000, true},
                {TB_CHOICE_AUTO, 12.5e9, 12000, false},   /* raw is sooner than its decoder */
                {TB_CHOICE_AUTO, MBIT_50, 900000, false}, /* dense would be a third of it */
                {TB_CHOICE_SPARSE, 12.5e9, 12000, true},  {TB_CHOICE_RAW, MBIT_50, 12000, false},
                {TB_CHOICE_ZSTD, MBIT_50, 12000, false},  {TB_CHOICE_PLANES, MBIT_50, 12000, false},
                {TB_CHOICE_AUTO, MBIT_50, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        choice_setup(&c, rows[i].wish, rows[i].goodput);
        c.ways[TB_KIND_BF16][TB_WAY_CLASSES].saving = rows[i].wire_bytes > 100000 ? 1.2 : 90;
        c.ways[TB_KIND_BF16][TB_WAY_GAPS].saving = rows[i].wire_bytes > 100000 ? 1.2 : 60;
        c.ways[TB_KIND_BF16][TB_WAY_CLASSES].encode = 1; /* does not count */
        const struct tb_choice_made made = {.kind = TB_KIND_BF16,
                                            .form = {TB_CODEC_SPARSE, true},
                                            .raw_bytes = 1 << 20,
                                            .wire_bytes = rows[i].wire_bytes};
        assert_int_equal(tb_choice_takes(&c, &made), rows[i].takes);
        assert_int_equal(c.picks[TB_KIND_BF16][1], rows[i].takes);
        c.protocol = 1;
        assert_false(tb_choice_takes(&c, &made));
    }
}

/* A tensor of which more changed than of others is so however it is encoded: it goes as its
 * publisher wrote it, and is not encoded here once more for being above the average. */
static void a_chunk_that_changed_more_than_most_goes_as_it_was_made(void **state)
{
    (void)state;
    const struct {
        double goodput;
        unsigned classes;
        uint32_t saves;
        bool takes;
    } rows[] = {{MBIT_50, TB_CODEC_CLASSES, 90, true},
                {MBIT_50, TB_CODEC_CLASSES, 45, true},
                {MBIT_50, TB_CODEC_CLASSES, 2, false}, /* dense has 3 */
                {MBIT_50, 0, 45, true},
                {MBIT_50, 1, 60, false}, /* several classes would be two thirds of it */
                {MBIT_50, 1, 30, false},
                {LOOPBACK, 1, 30, true}, /* where one class is what goes, of all */
                {LOOPBACK, TB_CODEC_CLASSES, 45, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        choice_setup(&c, TB_CHOICE_AUTO, rows[i].goodput);
        const struct tb_choice_made made = {.kind = TB_KIND_BF16,
                                            .form = {TB_CODEC_SPARSE, true},
                                            .classes = rows[i].classes,
                                            .raw_bytes = 1 << 20,
                                            .wire_bytes = (1 << 20) / rows[i].saves};
        assert_int_equal(tb_choice_takes(&c, &made), rows[i].takes);
        assert_int_equal(c.chunks[rows[i].classes == 1 ? TB_WAY_GAPS : TB_WAY_CLASSES], rows[i].takes);
    }
}

/* `share` of each hundred elements differ, spread over the chunk or in its first part. */
static enum tb_choice_kind kind_at(enum tb_dtype dtype, size_t count, unsigned share, bool in_front)
{
    static uint8_t bytes[100 << 10], base[100 << 10];
    const size_t element = tb_dtype_element_bytes(dtype), elements = count / element;
    assert_true(count <= sizeof bytes);
    memset(base, 7, count);
    memcpy(bytes, base, count);
    for (size_t i = 0; i < elements; i++)
        if (in_front ? i * 100 < elements * share : i * 61 % 100 < share) bytes[i * element]++;
    return tb_choice_kind_of(&(struct tb_codec_input){bytes, count, dtype, base, 0});
}

static void a_chunk_is_of_its_elements_and_of_how_many_changed(void **state)
{
    (void)state;
    static const struct {
        enum tb_dtype dtype;
        enum tb_choice_kind few, most;
    } rows[] = {
        {TB_DTYPE_U8, TB_KIND_BYTES, TB_KIND_BYTES_MOST}, {TB_DTYPE_F8E4, TB_KIND_F8, TB_KIND_F8_MOST},
        {TB_DTYPE_F8E5, TB_KIND_F8, TB_KIND_F8_MOST},     {TB_DTYPE_F16, TB_KIND_F16, TB_KIND_F16_MOST},
        {TB_DTYPE_BF16, TB_KIND_BF16, TB_KIND_BF16_MOST}, {TB_DTYPE_I64, TB_KIND_BYTES, TB_KIND_BYTES_MOST},
        {TB_DTYPE_F32, TB_KIND_F32, TB_KIND_F32_MOST},
    };
    static const size_t counts[] = {800, 2000, 2064, 65536, 99992};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
            for (int in_front = 0; in_front < 2; in_front++) {
                assert_int_equal(kind_at(rows[i].dtype, counts[n], 0, in_front != 0), rows[i].few);
                assert_int_equal(kind_at(rows[i].dtype, counts[n], 40, in_front != 0), rows[i].few);
                assert_int_equal(kind_at(rows[i].dtype, counts[n], 60, in_front != 0), rows[i].most);
                assert_int_equal(kind_at(rows[i].dtype, counts[n], 100, in_front != 0), rows[i].most);
            }
    const struct tb_codec_input whole = {.bytes = rows, .count = 8, .dtype = TB_DTYPE_BF16};
    assert_int_equal(tb_choice_kind_of(&whole), TB_KIND_BF16);
    const struct tb_codec_input nothing = {.bytes = rows, .dtype = TB_DTYPE_BF16, .base = counts};
    assert_int_equal(tb_choice_kind_of(&nothing), TB_KIND_BF16);
}

/* A training step that changed most of some tensors and little of the others, by turns. Each chunk
 * goes its best way, which is less than any one way for all of them. The cost of a try is in it. */
static void each_chunk_goes_as_its_own_changes_say(void **state)
{
    (void)state;
    static const double saves[2][TB_WAYS] = {{1, 1.25, 1.5, 15, 60, 80}, {1, 1.25, 1.5, 8, 3.5, 5}};
    static const enum tb_choice_kind kinds[] = {TB_KIND_BF16, TB_KIND_BF16_MOST};
    struct tb_choice c;
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    c.goodput = MBIT_50;
    double sent = 0, fixed[TB_WAYS] = {0};
    uint32_t went[2][TB_WAYS] = {{0}};
    for (int i = 0; i < 400; i++) {
        const int most = i % 2;
        const enum tb_choice_way way = tb_choice_pick(&c, &(struct tb_choice_ask){kinds[most], true});
        const struct tb_choice_sample s = {.kind = kinds[most],
                                           .way = way,
                                           .raw_bytes = 1 << 20,
                                           .wire_bytes = (uint32_t)((1 << 20) / saves[most][way]),
                                           .encode_ns = TB_MS(1) / 4};
        tb_choice_learn(&c, &s);
        went[most][way]++;
        sent += s.wire_bytes;
        for (int w = 0; w < TB_WAYS; w++)
            fixed[w] += (1 << 20) / saves[most][w];
    }
    assert_int_equal(went[0][TB_WAY_CLASSES], 200);
    assert_true(went[1][TB_WAY_DENSE] > 190);
    for (int w = 0; w < TB_WAYS; w++)
        assert_true(sent < 0.75 * fixed[w]);
}

/* Weights that are others altogether: each difference is tried once, and then they go
 * whole, but for one in 32. */
static void a_chunk_new_everywhere_soon_goes_whole(void **state)
{
    (void)state;
    static const double saves[TB_WAYS] = {1, 1.25, 1.5, 1, 1, 1.3};
    struct tb_choice c;
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    c.goodput = MBIT_50;
    uint32_t planes = 0;
    for (int i = 0; i < 100; i++) {
        const enum tb_choice_way way = tb_choice_pick(&c, &(struct tb_choice_ask){TB_KIND_BF16_MOST, true});
        const struct tb_choice_sample s = {.kind = TB_KIND_BF16_MOST,
                                           .way = way,
                                           .raw_bytes = 1 << 20,
                                           .wire_bytes = (uint32_t)((1 << 20) / saves[way]),
                                           .encode_ns = TB_MS(1) / 4};
        tb_choice_learn(&c, &s);
        planes += way == TB_WAY_PLANES;
    }
    assert_in_range(planes, 94, 97);
}

/* A sparse delta of a rank, of a chunk that changed everywhere, is made dense here, and not sparse
 * again. Deltas of the other chunks go as they are. */
static void a_chunk_made_anew_is_of_another_form(void **state)
{
    (void)state;
    struct tb_choice c;
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    c.goodput = MBIT_50;
    struct tb_choice_made made = {.kind = TB_KIND_BF16_MOST,
                                  .form = {TB_CODEC_SPARSE, true},
                                  .classes = TB_CODEC_CLASSES,
                                  .raw_bytes = 1 << 20,
                                  .wire_bytes = (1 << 20) / 5,
                                  .elsewhere = true};
    assert_false(tb_choice_takes(&c, &made));
    assert_int_equal(tb_choice_pick(&c, &(struct tb_choice_ask){TB_KIND_BF16_MOST, true}), TB_WAY_DENSE);
    made.kind = TB_KIND_BF16;
    made.wire_bytes = (1 << 20) / 40;
    assert_true(tb_choice_takes(&c, &made));
}

/* P9: to a peer of the release before, only what it can read. */
static void an_old_peer_gets_old_forms(void **state)
{
    (void)state;
    for (int wish = 0; wish < TB_CHOICE_WISHES; wish++) {
        struct tb_choice c;
        choice_setup(&c, (enum tb_choice_wish)wish, MBIT_50);
        c.protocol = 1;
        for (int on_base = 0; on_base < 2; on_base++) {
            const enum tb_choice_way way = choice_pick(&c, on_base != 0);
            assert_true(way == TB_WAY_RAW || way == TB_WAY_ZSTD);
        }
    }
}

static void a_link_is_measured_while_it_is_busy(void **state)
{
    (void)state;
    struct tb_choice c;
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    tb_choice_carried(&c, &(struct tb_choice_carried){0, true});
    assert_true(c.goodput == 0);
    tb_choice_carried(&c, &(struct tb_choice_carried){1e8, false});
    assert_true(c.goodput == 1e8);
    tb_choice_carried(&c, &(struct tb_choice_carried){2e8, false});
    assert_true(c.goodput > 1e8 && c.goodput < 2e8);
    /* A writer that encodes leaves it idle: it is no slower for that. One that is full is. */
    const double before = c.goodput;
    tb_choice_carried(&c, &(struct tb_choice_carried){1e6, false});
    assert_true(c.goodput == before);
    tb_choice_carried(&c, &(struct tb_choice_carried){1e6, true});
    assert_true(c.goodput < before);
}

static void names_come_back(void **state)
{
    (void)state;
    for (int w = 0; w < TB_CHOICE_WISHES; w++) {
        enum tb_choice_wish back = TB_CHOICE_WISHES;
        CHECK_OK(tb_choice_wish_parse(tb_choice_wish_name((enum tb_choice_wish)w), &back));
        assert_int_equal(back, w);
    }
    enum tb_choice_wish back;
    CHECK_STATUS(tb_choice_wish_parse("lz4", &back), TB_BAD_ARGUMENT);
    assert_null(tb_choice_wish_name(TB_CHOICE_WISHES));
    assert_string_equal(tb_choice_way_name(TB_WAY_GAPS), "gaps");
    assert_string_equal(tb_choice_way_name(TB_WAYS), "unknown");
    for (int w = 0; w < TB_WAYS; w++) {
        unsigned classes = 0;
        const struct tb_codec_form form = tb_choice_form((enum tb_choice_way)w, &classes);
        assert_int_equal(tb_choice_way_of(form, classes), w);
    }
    assert_int_equal(tb_choice_kind_of(&(struct tb_codec_input){.dtype = TB_DTYPE_F64}), TB_KIND_BYTES);
    assert_string_equal(tb_choice_kind_name(TB_KIND_F32), "f32");
    assert_string_equal(tb_choice_kind_name(TB_KIND_F32_MOST), "f32-most");
}

/* Steps that were kept go where they are sooner there than the whole chunk, and only where
 * differences may go at all. */
static void deltas_are_chained_where_that_is_sooner(void **state)
{
    (void)state;
    const struct {
        enum tb_choice_wish wish;
        double goodput;
        unsigned steps;
        uint32_t wire_bytes;
        bool joins;
    } rows[] = {{TB_CHOICE_AUTO, MBIT_50, 8, 100000, true},
                {TB_CHOICE_AUTO, MBIT_50, 16, 690000, true},
                {TB_CHOICE_AUTO, MBIT_50, 16, 710000, false}, /* planes take 699 KB */
                {TB_CHOICE_AUTO, GBIT_1, 8, 100000, true},
                {TB_CHOICE_AUTO, 8e9, 2, 26000, false}, /* two cores decode 11.8 GB/s of one step */
                {TB_CHOICE_AUTO, 8e9, 1, 26000, true},
                {TB_CHOICE_SPARSE, GBIT_1, 8, 900000, true},
                {TB_CHOICE_PLANES, MBIT_50, 2, 26000, false},
                {TB_CHOICE_RAW, MBIT_50, 2, 26000, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        choice_setup(&c, rows[i].wish, rows[i].goodput);
        const struct tb_choice_made made = {.kind = TB_KIND_BF16,
                                            .form = {TB_CODEC_CHAINED, true},
                                            .raw_bytes = 1 << 20,
                                            .wire_bytes = rows[i].wire_bytes};
        assert_int_equal(tb_choice_chains(&c, &made, rows[i].steps), rows[i].joins);
        assert_int_equal(c.chunks[TB_WAY_CHAINED], rows[i].joins);
        if (rows[i].joins) assert_int_equal(c.last[TB_KIND_BF16][1], TB_WAY_CHAINED);
        c.protocol = 1;
        assert_false(tb_choice_chains(&c, &made, rows[i].steps));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_link_decides),
        cmocka_unit_test(a_cap_is_a_slow_link),
        cmocka_unit_test(nothing_fixed_is_much_better),
        cmocka_unit_test(the_bound_is_said),
        cmocka_unit_test(a_dense_delta_changes_the_way),
        cmocka_unit_test(a_dense_delta_is_tried_where_it_may_pay),
        cmocka_unit_test(a_wish_is_kept_where_it_fits),
        cmocka_unit_test(a_made_chunk_goes_unless_another_way_is_sooner),
        cmocka_unit_test(a_chunk_that_changed_more_than_most_goes_as_it_was_made),
        cmocka_unit_test(a_chunk_is_of_its_elements_and_of_how_many_changed),
        cmocka_unit_test(each_chunk_goes_as_its_own_changes_say),
        cmocka_unit_test(a_chunk_new_everywhere_soon_goes_whole),
        cmocka_unit_test(a_chunk_made_anew_is_of_another_form),
        cmocka_unit_test(an_old_peer_gets_old_forms),
        cmocka_unit_test(a_link_is_measured_while_it_is_busy),
        cmocka_unit_test(names_come_back),
        cmocka_unit_test(deltas_are_chained_where_that_is_sooner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
