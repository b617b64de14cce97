/* tied.c - tensors that stand in one memory: published, and written to once in each way.
 *
 * Covers: intra/client/memory/tied_tensors.c intra/client/memory/tied_tensors_bytes.c
 * intra/client/follow/patch_tied.c */
#include "intra/client/memory/tied_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "unit/client/fake_gateway.h"

#define LARGE 1500000u /* more than a chunk */
#define SMALL 1000u    /* with others in one chunk */
#define COUNT 5u

static const char *const names[COUNT] = {"embed", "head", "norm.a", "norm.b", "other"};
static const uint64_t sizes[COUNT] = {LARGE, LARGE, SMALL, SMALL, 3 * SMALL};

/* Where each stands: "head" in the memory of "embed", "norm.b" in that of "norm.a". */
struct weights {
    uint8_t *at[COUNT];
    uint8_t *memory;
};

static struct weights weights_new(bool tied)
{
    struct weights w = {.memory = calloc(1, 2 * LARGE + 5 * SMALL)};
    w.at[0] = w.memory;
    w.at[1] = tied ? w.at[0] : w.memory + LARGE;
    w.at[2] = w.memory + 2 * LARGE;
    w.at[3] = tied ? w.at[2] : w.at[2] + SMALL;
    w.at[4] = w.at[2] + 2 * SMALL;
    return w;
}

static struct tb_registration *registered(struct tb_session *s, const struct weights *w)
{
    struct tb_registration *r;
    struct tb_tensor_desc list[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        list[i] = (struct tb_tensor_desc){
            .name = names[i], .dtype = "U8", .rank = 1, .shape = &sizes[i], .memory = w->at[i]};
    if (tb_register(s, list, COUNT, &r) != TB_OK) fail_msg("%s", tb_last_error());
    return r;
}

struct world {
    struct fake f;
    struct tb_session *trainer, *s;
    struct weights sealed, second, out;
    struct tb_registration *of_trainer, *r, *r2;
    struct tb_subscription *sub;
};

/* The trainer's are tied if `ties` says so; the reader's are. */
static void world_open(struct world *w, bool ties, const char *host)
{
    memset(w, 0, sizeof *w);
    fake_open(&w->f);
    FAKE_SET(&w->f, shelves, true);
    w->trainer = fake_session_open(&w->f, "trainer", "host-a");
    w->s = fake_session_open(&w->f, "reader", host);
    w->sealed = weights_new(ties);
    w->out = weights_new(true);
    w->second = weights_new(true);
    w->of_trainer = registered(w->trainer, &w->sealed);
    w->r = registered(w->s, &w->out);
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint64_t k = 0; k < sizes[i]; k++)
            w->sealed.at[i][k] = (uint8_t)((k * 2654435761u >> 13) + i / 2);
}

static void world_close(struct world *w)
{
    tb_session_close(w->s);
    tb_session_close(w->trainer);
    free(w->sealed.memory);
    free(w->second.memory);
    free(w->out.memory);
    fake_close(&w->f);
}

static void subscribe(struct world *w, enum tb_update update)
{
    if (update == TB_UPDATE_SWITCH) w->r2 = registered(w->s, &w->second);
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = w->r,
                                           .update = (uint32_t)update,
                                           .second = w->r2};
    if (tb_subscribe(w->s, &o, &w->sub) != TB_OK) fail_msg("%s", tb_last_error());
}

static void publish(struct world *w, uint64_t number, enum tb_publish_mode mode)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w->trainer, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = (uint32_t)mode,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = w->of_trainer};
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    if (tb_publish(w->trainer, &o, &info) != TB_OK) fail_msg("%s", tb_last_error());
    if (number == 1)
        fake_land(&w->f, number);
    else
        fake_land_on(&w->f, number, fake_version(&w->f, number - 1));
}

/* A byte in a hundred, the same of those that may be tied. */
static void step(struct world *w, uint64_t number)
{
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint64_t k = number * 31 % 100; k < sizes[i]; k += 100)
            w->sealed.at[i][k] = (uint8_t)((k + number) * 7 + i / 2);
}

static enum tb_status stage(struct world *w, uint64_t number)
{
    const struct tb_uid uid = fake_uid(fake_version(&w->f, number));
    const int status = tb_stage(w->sub, &uid, 20000);
    if (status == TB_OK) fake_go(&w->f, number);
    return (enum tb_status)status;
}

static enum tb_status activate(struct world *w, uint64_t number, struct tb_activate_info *info)
{
    const struct tb_uid uid = fake_uid(fake_version(&w->f, number));
    *info = (struct tb_activate_info){.struct_bytes = sizeof *info};
    return (enum tb_status)tb_activate(w->sub, &uid, info);
}

static void check_out(const struct world *w, const struct weights *out)
{
    for (uint32_t i = 0; i < COUNT; i++)
        assert_memory_equal(out->at[i], w->sealed.at[i], sizes[i]);
}

static void tied_weights_are_published(void **state)
{
    (void)state;
    for (int mode = TB_PUBLISH_SHADOW; mode <= TB_PUBLISH_IN_PLACE; mode++) {
        struct world w;
        struct tb_activate_info info;
        world_open(&w, true, "host-b");
        struct weights untied = weights_new(false);
        CHECK_OK(tb_unregister(w.r));
        w.r = registered(w.s, &untied);
        subscribe(&w, TB_UPDATE_COPY);
        publish(&w, 1, (enum tb_publish_mode)mode);
        CHECK_OK(stage(&w, 1));
        CHECK_OK(activate(&w, 1, &info));
        check_out(&w, &untied);
        assert_int_equal(info.copied_bytes, 2 * LARGE + 5 * SMALL);
        world_close(&w);
        free(untied.memory);
    }
}

/* P1: no chunk has to come again, whether it came whole or encoded, and the shared
 * memory is written once. */
static void tied_weights_are_patched_once(void **state)
{
    (void)state;
    for (int shelves = 0; shelves < 2; shelves++) {
        for (int ties = 0; ties < 2; ties++) {
            struct world w;
            struct tb_activate_info info;
            world_open(&w, ties != 0, "host-b");
            FAKE_SET(&w.f, shelves, shelves != 0);
            subscribe(&w, TB_UPDATE_PATCH);
            for (uint64_t n = 1; n < 5; n++) {
                step(&w, n);
                publish(&w, n, TB_PUBLISH_SHADOW);
                if (stage(&w, n) != TB_OK) fail_msg("%s", tb_last_error());
                if (activate(&w, n, &info) != TB_OK) fail_msg("%s", tb_last_error());
                check_out(&w, &w.out);
                assert_int_equal(info.fetched_chunks, 0);
                assert_int_equal(info.patched_bytes + info.copied_bytes, LARGE + 4 * SMALL);
                assert_int_equal(info.patched_bytes, n == 1 ? 0 : LARGE);
                if (n > 1) assert_true(info.staged_bytes < LARGE / 10);
                const struct tb_uid uid = fake_uid(fake_version(&w.f, n));
                CHECK_OK(tb_release(w.sub, &uid));
            }
            world_close(&w);
        }
    }
}

/* Chunks that were encoded are void, and come whole; tied chunks need nothing. */
static void a_patch_of_tied_weights_that_is_void_comes_whole(void **state)
{
    (void)state;
    struct world w;
    struct tb_activate_info info;
    world_open(&w, true, "host-b");
    subscribe(&w, TB_UPDATE_PATCH);
    for (uint64_t n = 1; n < 3; n++) {
        step(&w, n);
        publish(&w, n, TB_PUBLISH_SHADOW);
        CHECK_OK(stage(&w, n));
        if (n == 1) CHECK_OK(activate(&w, n, &info));
    }
    void *moved[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        moved[i] = w.second.at[i];
    CHECK_OK(tb_suspend(w.r));
    CHECK_OK(tb_resume(w.r, moved, COUNT));
    if (activate(&w, 2, &info) != TB_OK) fail_msg("%s", tb_last_error());
    check_out(&w, &w.second);
    assert_true(info.fetched_chunks > 0);
    CHECK_OK(activate(&w, 2, &info));
    check_out(&w, &w.second);
    world_close(&w);
}

static void tied_weights_are_copied_once(void **state)
{
    (void)state;
    static const enum tb_update ways[] = {TB_UPDATE_COPY, TB_UPDATE_SWITCH};
    for (int way = 0; way < 2; way++) {
        struct world w;
        struct tb_activate_info info;
        world_open(&w, true, "host-b");
        subscribe(&w, ways[way]);
        for (uint64_t n = 1; n < 4; n++) {
            step(&w, n);
            publish(&w, n, TB_PUBLISH_SHADOW);
            CHECK_OK(stage(&w, n));
            CHECK_OK(activate(&w, n, &info));
            check_out(&w, ways[way] == TB_UPDATE_COPY || n % 2 == 1 ? &w.out : &w.second);
            assert_int_equal(info.copied_bytes, ways[way] == TB_UPDATE_COPY ? LARGE + 4 * SMALL : 0);
        }
        world_close(&w);
    }
}

/* P2: a version that has two of them apart cannot be in one memory: it is refused before anything
 * is written, where its digests or its bytes say so, and the tensors are named. */
static void a_version_that_has_them_apart_is_refused(void **state)
{
    (void)state;
    static const enum tb_update ways[] = {TB_UPDATE_COPY, TB_UPDATE_SWITCH, TB_UPDATE_PATCH};
    for (int way = 0; way < 3; way++) {
        for (uint32_t apart = 1; apart < 4; apart += 2) {
            struct world w;
            struct tb_activate_info info;
            world_open(&w, false, "host-b");
            subscribe(&w, ways[way]);
            publish(&w, 1, TB_PUBLISH_SHADOW);
            CHECK_OK(stage(&w, 1));
            CHECK_OK(activate(&w, 1, &info));
            check_out(&w, &w.out);
            w.sealed.at[apart][77] ^= 1;
            publish(&w, 2, TB_PUBLISH_SHADOW);
            enum tb_status status = stage(&w, 2);
            if (ways[way] == TB_UPDATE_PATCH && apart == 3) {
                CHECK_OK(status); /* of small ones the buffers tell */
                status = activate(&w, 2, &info);
                assert_non_null(strstr(tb_last_error(), "registered in one memory"));
            } else {
                assert_non_null(strstr(tb_last_error(), names[apart - 1]));
                assert_non_null(strstr(tb_last_error(), names[apart]));
                w.sealed.at[apart][77] ^= 1;
                check_out(&w, &w.out);
                w.sealed.at[apart][77] ^= 1;
            }
            CHECK_STATUS(status, TB_LAYOUT_MISMATCH);
            w.sealed.at[apart][77] ^= 1; /* and back */
            publish(&w, 3, TB_PUBLISH_SHADOW);
            if (stage(&w, 3) != TB_OK) fail_msg("%s", tb_last_error());
            CHECK_OK(activate(&w, 3, &info));
            check_out(&w, ways[way] == TB_UPDATE_SWITCH ? &w.second : &w.out);
            world_close(&w);
        }
    }
}

static int try_subscribe(struct world *w, struct tb_registration *r, struct tb_registration *second)
{
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = r,
                                           .update = second == NULL ? TB_UPDATE_COPY : TB_UPDATE_SWITCH,
                                           .second = second};
    return tb_subscribe(w->s, &o, &w->sub);
}

static void refused(struct world *w, struct tb_registration *r, struct tb_registration *second,
                    const char *one, const char *other)
{
    CHECK_STATUS(try_subscribe(w, r, second), TB_BAD_ARGUMENT);
    if (strstr(tb_last_error(), one) == NULL || strstr(tb_last_error(), other) == NULL)
        fail_msg("%s", tb_last_error());
}

/* A part of a memory can be published, and nothing is written to it. */
static void an_overlap_is_for_publishers(void **state)
{
    (void)state;
    struct world w;
    struct tb_activate_info info;
    world_open(&w, true, "host-b");
    struct weights other = w.second;
    other.at[3] = other.at[2] + 1; /* norm.b begins inside norm.a */
    struct tb_registration *r = registered(w.s, &other);
    refused(&w, r, NULL, "norm.a", "norm.b");
    CHECK_OK(tb_unregister(r));
    other.at[3] = other.at[0] + LARGE - SMALL; /* the end of embed */
    r = registered(w.s, &other);
    refused(&w, r, NULL, "embed", "norm.b");
    CHECK_OK(tb_unregister(r));
    other.at[3] = other.at[0] + LARGE; /* right behind it */
    r = registered(w.s, &other);
    CHECK_OK(try_subscribe(&w, r, NULL));
    CHECK_OK(tb_unsubscribe(w.sub));

    CHECK_OK(tb_unregister(w.of_trainer));
    w.sealed.at[3] = w.sealed.at[0] + 5;
    w.of_trainer = registered(w.trainer, &w.sealed);
    publish(&w, 1, TB_PUBLISH_IN_PLACE);
    other = weights_new(false);
    r = registered(w.s, &other);
    CHECK_OK(try_subscribe(&w, r, NULL));
    CHECK_OK(stage(&w, 1));
    CHECK_OK(activate(&w, 1, &info));
    check_out(&w, &other);
    world_close(&w);
    free(other.memory);
}

static void a_switch_needs_two_memories(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, true, "host-b");
    struct tb_registration *same = registered(w.s, &w.out);
    refused(&w, w.r, same, "embed", "embed");
    struct weights partly = w.second;
    partly.at[4] = w.out.at[2] + SMALL - 1; /* the last byte of norm.a */
    struct tb_registration *second = registered(w.s, &partly);
    refused(&w, w.r, second, "norm.a", "other");
    partly.at[4] = w.second.at[4];
    CHECK_OK(tb_unregister(second));
    second = registered(w.s, &partly);
    CHECK_OK(try_subscribe(&w, w.r, second));
    /* Nor do they meet later. */
    void *moved[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        moved[i] = w.out.at[i];
    CHECK_OK(tb_suspend(second));
    CHECK_STATUS(tb_resume(second, moved, COUNT), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "TB_UPDATE_SWITCH"));
    CHECK_OK(tb_resume(second, NULL, 0)); /* where they were */
    world_close(&w);
}

static void tied_tensors_stay_so(void **state)
{
    (void)state;
    struct world w;
    struct tb_activate_info info;
    world_open(&w, true, "host-b");
    subscribe(&w, TB_UPDATE_COPY);
    struct weights untied = weights_new(false);
    void *moved[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        moved[i] = untied.at[i];
    CHECK_OK(tb_suspend(w.r));
    CHECK_STATUS(tb_resume(w.r, moved, COUNT), TB_BAD_ARGUMENT);
    moved[1] = moved[0];
    moved[3] = untied.at[2] + 1;
    CHECK_STATUS(tb_resume(w.r, moved, COUNT), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "norm.b"));
    moved[3] = moved[2];
    CHECK_OK(tb_resume(w.r, moved, COUNT));
    publish(&w, 1, TB_PUBLISH_SHADOW);
    CHECK_OK(stage(&w, 1));
    CHECK_OK(activate(&w, 1, &info));
    untied.at[1] = untied.at[0];
    untied.at[3] = untied.at[2];
    check_out(&w, &untied);
    /* Without a subscription they may part. */
    CHECK_OK(tb_unsubscribe(w.sub));
    CHECK_OK(tb_suspend(w.r));
    for (uint32_t i = 0; i < COUNT; i++)
        moved[i] = w.second.memory + i * LARGE / 2;
    moved[0] = w.second.memory;
    moved[1] = w.second.memory + LARGE;
    for (uint32_t i = 2; i < COUNT; i++)
        moved[i] = w.second.memory + 2 * LARGE + (i - 2) * SMALL;
    CHECK_OK(tb_resume(w.r, moved, COUNT));
    world_close(&w);
    free(untied.memory);
}

/* ---- the lists alone ---- */

static void lists_are_looked_through(void **state)
{
    (void)state;
    static uint8_t m[100];
    struct tb_tensor t[6] = {{.bytes = 10}, {.bytes = 10}, {.bytes = 10},
                             {.bytes = 0},  {.bytes = 10}, {.bytes = 20}};
    uint8_t *at[6] = {m + 20, m, m + 20, m + 20, m + 20, m + 30};
    const struct tb_tied_list list = {t, at, 6};
    struct tb_tied tied;
    CHECK_OK(tb_tied_find(&list, &tied));
    static const uint32_t first[6] = {TB_TIED_NONE, TB_TIED_NONE, 0, TB_TIED_NONE, 0, TB_TIED_NONE};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(tied.first_of[i], first[i]);
    assert_int_equal(tied.count, 2);
    assert_int_equal(tied.bytes, 20);
    assert_int_equal(tied.overlap[0], TB_TIED_NONE);
    tb_tied_free(&tied);
    at[5] = m + 29;
    CHECK_OK(tb_tied_find(&list, &tied));
    assert_true(tied.overlap[0] == 0 && tied.overlap[1] == 5);
    tb_tied_free(&tied);
    t[5].bytes = 100; /* around all others */
    at[5] = m;
    CHECK_OK(tb_tied_find(&list, &tied));
    assert_int_equal(tied.overlap[1], 5);
    tb_tied_free(&tied);

    uint8_t *there[1] = {m + 9};
    const struct tb_tensor one = {.bytes = 2};
    const struct tb_tied_list other = {&one, there, 1}, few = {t, at, 3};
    uint32_t meet[2];
    CHECK_OK(tb_tied_meet(&few, &other, meet));
    assert_true(meet[0] == 1 && meet[1] == 0);
    CHECK_OK(tb_tied_meet(&other, &few, meet));
    assert_true(meet[0] == 0 && meet[1] == 1);
    there[0] = m + 10;
    CHECK_OK(tb_tied_meet(&few, &other, meet));
    assert_int_equal(meet[0], TB_TIED_NONE);
    there[0] = m + 18;
    CHECK_OK(tb_tied_meet(&few, &other, meet));
    assert_int_equal(meet[0], TB_TIED_NONE);
    there[0] = m + 19;
    CHECK_OK(tb_tied_meet(&few, &other, meet));
    assert_int_equal(meet[0], 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_weights_are_published),
        cmocka_unit_test(tied_weights_are_patched_once),
        cmocka_unit_test(a_patch_of_tied_weights_that_is_void_comes_whole),
        cmocka_unit_test(tied_weights_are_copied_once),
        cmocka_unit_test(a_version_that_has_them_apart_is_refused),
        cmocka_unit_test(an_overlap_is_for_publishers),
        cmocka_unit_test(a_switch_needs_two_memories),
        cmocka_unit_test(tied_tensors_stay_so),
        cmocka_unit_test(lists_are_looked_through),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
