/* codec_choice_ranks.c - deltas that ranks encode: in how many classes they had best be, and
 * whether a link takes them as they are.
 *
 * Covers: wan/send/codec_choice.c */
#include "codec_choice_world.h"

#include <string.h>

#include "tests/unit/check.h"
#include "wan/send/codec_pace.h"

static void a_link_says_how_deltas_are_best_encoded(void **state)
{
    (void)state;
    const struct {
        enum tb_choice_wish wish;
        double goodput, saving;
        unsigned classes;
    } rows[] = {{TB_CHOICE_AUTO, MBIT_50, 90, TB_CODEC_CLASSES},
                {TB_CHOICE_AUTO, LOOPBACK, 90, 1},
                {TB_CHOICE_AUTO, 30e9, 90, 0},
                {TB_CHOICE_AUTO, MBIT_50, 1.3, 0},
                {TB_CHOICE_SPARSE, LOOPBACK, 90, TB_CODEC_CLASSES},
                {TB_CHOICE_RAW, MBIT_50, 90, 0},
                {TB_CHOICE_PLANES, MBIT_50, 90, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        choice_setup(&c, rows[i].wish, rows[i].goodput);
        c.ways[TB_KIND_BF16][TB_WAY_CLASSES].saving = rows[i].saving;
        c.ways[TB_KIND_BF16][TB_WAY_GAPS].saving = rows[i].saving > 2 ? 60 : rows[i].saving;
        assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){0}), rows[i].classes);
        c.protocol = 1;
        assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){0}), 0);
    }
}

/* Their cores are not ours: how the last step came says what they have. Eight classes cost 0.50 ns
 * a byte, one 0.26: 1.93 times less. */
static void a_slow_encoder_gets_one_class(void **state)
{
    (void)state;
    const double one =
        25e6 * 90 * 60 / 80; /* what the link moves of a step in one class, by what eight saved */
    const struct {
        unsigned classes;
        double bytes_per_s;
        unsigned then;
    } rows[] = {{TB_CODEC_CLASSES, 9e9, TB_CODEC_CLASSES},
                {TB_CODEC_CLASSES, 0.5e9, 1},
                {TB_CODEC_CLASSES, 0.97 * one, TB_CODEC_CLASSES}, /* as soon, in fewer bytes */
                {TB_CODEC_CLASSES, 0.90 * one, 1},
                {1, 9e9, TB_CODEC_CLASSES}, /* in eight they would be fast enough too */
                {1, 1.90 * one, 1},         /* hardly: they would be back in one after the next */
                {1, 1.0e9, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        choice_setup(&c, TB_CHOICE_AUTO, 25e6);
        const struct tb_choice_pace pace = {rows[i].classes, rows[i].bytes_per_s,
                                            rows[i].classes == 1 ? 90.0 * 60 / 80 : 90};
        assert_int_equal(tb_choice_classes(&c, &pace), rows[i].then);
        c.ways[TB_KIND_BF16][TB_WAY_GAPS].decode = 0; /* not known: then pace says nothing of it */
        if (rows[i].classes == TB_CODEC_CLASSES && rows[i].bytes_per_s > one)
            assert_int_equal(tb_choice_classes(&c, &pace), TB_CODEC_CLASSES);
    }
}

static void a_pace_is_of_a_delta_that_was_work(void **state)
{
    (void)state;
    const struct {
        struct tb_choice_came came;
        bool says;
    } rows[] = {
        {{8, 2000000000, 20000000, TB_SECONDS(1)}, true}, {{1, 2000000000, 2000000, TB_SECONDS(4)}, true},
        {{8, 2000000000, 20000000, TB_MS(100)}, true},    {{1, 2000000000, 20000000, TB_MS(25)}, true},
        {{1, 2000000000, 1999999, TB_SECONDS(4)}, false}, /* as good as nothing changed */
        {{1, 2000000000, 1999999, TB_MS(1)}, false},      {{1, 0, 0, TB_SECONDS(4)}, false},
        {{0, 2000000000, 20000000, TB_SECONDS(1)}, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice_pace pace = {.classes = 7, .bytes_per_s = 1};
        assert_int_equal(tb_choice_pace_take(&pace, &rows[i].came), rows[i].says);
        assert_int_equal(pace.classes, rows[i].says ? rows[i].came.classes : 7);
        const uint64_t rate = UINT64_C(2000000000) * TB_SECONDS(1) / rows[i].came.took_ns;
        assert_int_equal((uint64_t)pace.bytes_per_s, rows[i].says ? rate : 1);
        if (rows[i].says) assert_true(pace.saving > 99 && pace.saving < 1001);
    }
}

/* One step that a rank was held up in is forgotten once steps come as they did: and of those
 * that are quick in one class, only what is as quick in eight ends it, or every other step
 * would go the other way. */
static void a_quick_delta_ends_a_bad_pace(void **state)
{
    (void)state;
    const struct tb_choice_came held_up = {8, 100000000, 1000000, TB_SECONDS(5)};
    const struct {
        unsigned classes;
        tb_time_ns took_ns;
        unsigned then;
    } rows[] = {{8, TB_MS(99), TB_CODEC_CLASSES}, {1, TB_MS(24), TB_CODEC_CLASSES}, {1, TB_MS(500), 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_choice c;
        struct tb_choice_pace pace = {.classes = 0};
        choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
        assert_true(tb_choice_pace_take(&pace, &held_up));
        assert_int_equal(tb_choice_classes(&c, &pace), 1);
        const struct tb_choice_came came = {rows[i].classes, 100000000, 1000000, rows[i].took_ns};
        assert_true(tb_choice_pace_take(&pace, &came));
        assert_int_equal(tb_choice_classes(&c, &pace), rows[i].then);
    }
}

static bool takes(struct tb_choice *c, unsigned classes, uint32_t saving)
{
    const struct tb_choice_made made = {.kind = TB_KIND_BF16,
                                        .form = {TB_CODEC_SPARSE, true},
                                        .classes = classes,
                                        .raw_bytes = 1 << 20,
                                        .wire_bytes = (1 << 20) / saving,
                                        .elsewhere = true};
    return tb_choice_takes(c, &made);
}

/* Chunks with next to no changes stand between others in a step: what it takes on
 * the link are its bytes. */
static void a_mixed_delta_saves_what_its_bytes_do(void **state)
{
    (void)state;
    for (unsigned classes = 1; classes <= TB_CODEC_CLASSES; classes += TB_CODEC_CLASSES - 1) {
        const enum tb_choice_way way = classes == 1 ? TB_WAY_GAPS : TB_WAY_CLASSES;
        struct tb_choice c;
        choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
        for (int i = 0; i < 60; i++) {
            assert_true(takes(&c, classes, i % 2 == 0 ? 1000 : 50));
            if (i > 50) assert_in_range((uint64_t)c.ways[TB_KIND_BF16][way].saving, 80, 110);
        }
    }
}

/* A handful of changes is written in one class whatever was asked for. */
static void a_handful_of_changes_says_nothing_of_one_class(void **state)
{
    (void)state;
    struct tb_choice c;
    choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
    for (int i = 0; i < 60; i++) {
        assert_true(takes(&c, 1, 4000));
        assert_true(takes(&c, TB_CODEC_CLASSES, 90));
        assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){0}), TB_CODEC_CLASSES);
    }
    assert_int_equal((uint64_t)c.ways[TB_KIND_BF16][TB_WAY_GAPS].saving, 60);
    assert_in_range((uint64_t)c.ways[TB_KIND_BF16][TB_WAY_CLASSES].saving, 160, 195); /* 176 by bytes */
    assert_int_equal(c.chunks[TB_WAY_GAPS], 60);
}

/* A belief about a way that no chunk goes is no reason to go over to it, whatever the pace. */
static void a_way_that_was_not_seen_saves_as_the_seen_one_says(void **state)
{
    (void)state;
    struct tb_choice c;
    choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
    for (int i = 0; i < 60; i++)
        assert_true(takes(&c, TB_CODEC_CLASSES, 20));
    assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){0}), TB_CODEC_CLASSES);
    for (int i = 0; i < 60; i++)
        assert_true(takes(&c, 1, 20));
    c.ways[TB_KIND_BF16][TB_WAY_CLASSES].saving = 10; /* of a step long ago */
    assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){0}), TB_CODEC_CLASSES);
    /* The step's own saving counts, and not what single chunks made believe. */
    c.ways[TB_KIND_BF16][TB_WAY_GAPS].saving = 900;
    assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){1, 500e6, 20}), TB_CODEC_CLASSES);
}

/* Half of everything changed: the differences that ranks made would be sent at twice the
 * bytes of dense ones. */
static void a_dense_delta_of_ranks_goes_dense(void **state)
{
    (void)state;
    struct tb_choice c;
    choice_setup(&c, TB_CHOICE_AUTO, MBIT_50); /* dense saves 3 */
    assert_true(takes(&c, TB_CODEC_CLASSES, 4));
    assert_false(takes(&c, TB_CODEC_CLASSES, 2));
    assert_false(takes(&c, 1, 2));
    for (int i = 0; i < 60; i++) {
        const struct tb_choice_sample s = {
            .kind = TB_KIND_BF16, .way = TB_WAY_CLASSES, .raw_bytes = 1 << 20, .wire_bytes = (1 << 20) / 2};
        tb_choice_learn(&c, &s);
    }
    assert_true(c.ways[TB_KIND_BF16][TB_WAY_GAPS].saving > 59); /* still, as none went so */
    assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){0}), 0);
}

/* A gateway that has just made it for its workers may still make it in more classes for a thin
 * link. */
static void a_chunk_made_elsewhere_is_not_made_again(void **state)
{
    (void)state;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        struct tb_choice c;
        choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
        struct tb_choice_made made = {.kind = TB_KIND_BF16,
                                      .form = {TB_CODEC_SPARSE, true},
                                      .raw_bytes = 1 << 20,
                                      .wire_bytes = (1 << 20) / 60, /* in eight it would be 90 */
                                      .classes = 1,
                                      .elsewhere = elsewhere != 0};
        assert_int_equal(tb_choice_takes(&c, &made), elsewhere);
        for (unsigned w = 0; w < TB_WAYS; w++) /* the link is full of it: raw is as soon as anything */
            c.ways[TB_KIND_BF16][w].saving = w == TB_WAY_RAW ? 100 : 1;
        assert_false(tb_choice_takes(&c, &made));
    }
}

/* Steps in one class and in several differ in bytes alike: what goes in one of them says what
 * the other would save. */
static void a_made_chunk_says_its_saving(void **state)
{
    (void)state;
    struct tb_choice c;
    choice_setup(&c, TB_CHOICE_AUTO, MBIT_50);
    const struct tb_choice_made made = {.kind = TB_KIND_BF16,
                                        .form = {TB_CODEC_SPARSE, true},
                                        .raw_bytes = 1 << 20,
                                        .wire_bytes = (1 << 20) / 30,
                                        .classes = 1,
                                        .elsewhere = true};
    for (int i = 0; i < 60; i++)
        assert_true(tb_choice_takes(&c, &made));
    assert_in_range((uint64_t)c.ways[TB_KIND_BF16][TB_WAY_GAPS].saving, 29, 31);
    assert_int_equal((uint64_t)c.ways[TB_KIND_BF16][TB_WAY_CLASSES].saving, 90);
    assert_int_equal(c.chunks[TB_WAY_GAPS], 60);
    /* In one class the link moves 187 MB of it a second, and in eight 250: ranks that bring 200 in
     * one, 104 in eight, stay with it. */
    assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){1, 200e6, 30}), 1);
    assert_int_equal(tb_choice_classes(&c, &(struct tb_choice_pace){1, 900e6, 30}), TB_CODEC_CLASSES);
}

/* So many chunks of a step that went as ranks made them, or dense where that is less; then, in how
 * many classes the next had best come. */
static unsigned classes_after(struct tb_choice *c, uint32_t few, uint32_t most)
{
    for (uint32_t i = 0; i < few; i++)
        (void)tb_choice_pick(c, &(struct tb_choice_ask){TB_KIND_BF16, true});
    for (uint32_t i = 0; i < most; i++)
        (void)tb_choice_pick(c, &(struct tb_choice_ask){TB_KIND_BF16_MOST, true});
    return tb_choice_classes(c, &(struct tb_choice_pace){0});
}

/* Ranks are told by what steps are of late, however long they were otherwise. */
static void ranks_are_told_by_what_deltas_are_of_late(void **state)
{
    (void)state;
    struct tb_choice c;
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    c.goodput = MBIT_50;
    assert_int_equal(classes_after(&c, 1000, 0), TB_CODEC_CLASSES);
    assert_int_equal(classes_after(&c, 30, 30), TB_CODEC_CLASSES);
    assert_int_equal(classes_after(&c, 0, 60), TB_CODEC_CLASSES); /* still a quarter of the last hundred */
    assert_int_equal(classes_after(&c, 0, 100), 0);
    assert_int_equal(classes_after(&c, 0, 5000), 0);
    assert_int_equal(classes_after(&c, 100, 0), TB_CODEC_CLASSES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_says_how_deltas_are_best_encoded),
        cmocka_unit_test(a_slow_encoder_gets_one_class),
        cmocka_unit_test(a_pace_is_of_a_delta_that_was_work),
        cmocka_unit_test(a_quick_delta_ends_a_bad_pace),
        cmocka_unit_test(a_mixed_delta_saves_what_its_bytes_do),
        cmocka_unit_test(a_handful_of_changes_says_nothing_of_one_class),
        cmocka_unit_test(a_way_that_was_not_seen_saves_as_the_seen_one_says),
        cmocka_unit_test(a_dense_delta_of_ranks_goes_dense),
        cmocka_unit_test(a_chunk_made_elsewhere_is_not_made_again),
        cmocka_unit_test(a_made_chunk_says_its_saving),
        cmocka_unit_test(ranks_are_told_by_what_deltas_are_of_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
