/* gpu_suite.c - see gpu_suite.h.
 *
 * Covers: intra/client/follow/staged_gpu.c intra/client/follow/patch_device.c
 * Covers: intra/client/publish/publish_pass.c intra/cuda/cuda_device.c */
#include "unit/cuda/gpu_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/check.h"
#include "unit/client/fake_gateway.h"

static const struct gpu_under_test *under;

/* BF16 stands before U8 in packed order, the blob behind. */
static void check_landed(struct fake *f, uint64_t number, const struct gpu_worker *w)
{
    const struct fake_version *v = fake_version(f, number);
    const uint8_t *at = v->shards[0].bytes;
    assert_int_equal(v->shards[0].manifest.bytes, GPU_WORKER_BIG + GPU_WORKER_SMALL + 7);
    assert_memory_equal(at, w->big_truth, GPU_WORKER_BIG);
    assert_memory_equal(at + GPU_WORKER_BIG, w->small_truth, GPU_WORKER_SMALL);
    assert_memory_equal(at + GPU_WORKER_BIG + GPU_WORKER_SMALL, "{\"a\":1}", 7);
}

/* ---- publishing ---- */

/* P1: home lands what the device held, by every mode and form; the publisher may write
 * again behind a shadow. */
static void the_bytes_of_the_device_land(void **state)
{
    (void)state;
    static const struct {
        uint32_t mode;
        const char *codec;
    } ways[] = {{TB_PUBLISH_SHADOW, NULL},
                {TB_PUBLISH_IN_PLACE, NULL},
                {TB_PUBLISH_SHADOW, "zstd"},
                {TB_PUBLISH_IN_PLACE, "zstd"}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct fake f;
        struct gpu_worker w;
        under->open();
        fake_open(&f);
        gpu_worker_open(&w, &f, under, "rank0", "host-a");
        if (gpu_worker_publish_as(&w, 1, ways[i].mode, ways[i].codec) != TB_OK)
            fail_msg("%s", tb_last_error());
        if (ways[i].mode == TB_PUBLISH_SHADOW) {
            uint8_t *other = calloc(1, GPU_WORKER_BIG);
            under->write(w.big, other, GPU_WORKER_BIG);
            free(other);
        }
        fake_land(&f, 1);
        check_landed(&f, 1, &w);
        gpu_worker_close(&w, under);
        fake_close(&f);
        under->close();
    }
}

/* P4: the same bytes again are done, others are refused. */
static void a_retry_looks_at_the_device(void **state)
{
    (void)state;
    struct fake f;
    struct gpu_worker w;
    under->open();
    fake_open(&f);
    gpu_worker_open(&w, &f, under, "rank0", "host-a");
    CHECK_OK(gpu_worker_publish_as(&w, 1, TB_PUBLISH_SHADOW, NULL));
    CHECK_OK(gpu_worker_publish_as(&w, 1, TB_PUBLISH_SHADOW, NULL));
    const uint8_t other = (uint8_t)(w.big_truth[GPU_WORKER_BIG - 1] + 1);
    under->write(w.big + GPU_WORKER_BIG - 1, &other, 1);
    CHECK_STATUS(gpu_worker_publish_as(&w, 1, TB_PUBLISH_SHADOW, NULL), TB_CONFLICT);
    gpu_worker_close(&w, under);
    fake_close(&f);
    under->close();
}

/* ---- suspending ---- */

/* The engine sleeps: no reader gets in and the memory may go. It wakes with its tensors elsewhere:
 * the reference is back. */
static void a_suspended_device_memory_comes_back(void **state)
{
    (void)state;
    struct fake f;
    struct gpu_worker w;
    under->open();
    fake_open(&f);
    gpu_worker_open(&w, &f, under, "rank0", "host-a");
    CHECK_OK(gpu_worker_publish_as(&w, 1, TB_PUBLISH_IN_PLACE, NULL));
    CHECK_OK(tb_suspend(w.r));
    assert_true(fake_read(&f, fake_version(&f, 1), 0) != TB_OK);
    CHECK_STATUS(gpu_worker_publish_as(&w, 2, TB_PUBLISH_IN_PLACE, NULL), TB_BAD_STATE);
    uint8_t *big = under->alloc(GPU_WORKER_BIG), *small = under->alloc(GPU_WORKER_SMALL);
    under->free(w.big);
    under->free(w.small);
    w.big = big;
    w.small = small;
    under->write(big, w.big_truth, GPU_WORKER_BIG);
    under->write(small, w.small_truth, GPU_WORKER_SMALL);
    void *moved[] = {small, big}; /* as they were registered */
    if (tb_resume(w.r, moved, 2) != TB_OK) fail_msg("%s", tb_last_error());
    CHECK_OK(fake_read(&f, fake_version(&f, 1), 0));
    gpu_worker_close(&w, under);
    fake_close(&f);
    under->close();
}

/* P1: a reference does not come back over other bytes. */
static void a_device_memory_that_changed_asleep_is_no_reference(void **state)
{
    (void)state;
    struct fake f;
    struct gpu_worker w;
    under->open();
    fake_open(&f);
    gpu_worker_open(&w, &f, under, "rank0", "host-a");
    CHECK_OK(gpu_worker_publish_as(&w, 1, TB_PUBLISH_IN_PLACE, NULL));
    CHECK_OK(tb_suspend(w.r));
    const uint8_t other = (uint8_t)(w.small_truth[5] + 1);
    under->write(w.small + 5, &other, 1);
    CHECK_STATUS(tb_resume(w.r, NULL, 0), TB_CONFLICT);
    assert_true(fake_read(&f, fake_version(&f, 1), 0) != TB_OK);
    CHECK_OK(gpu_worker_publish_as(&w, 2, TB_PUBLISH_SHADOW,
                                   NULL)); /* and the registration is good for the next */
    gpu_worker_close(&w, under);
    fake_close(&f);
    under->close();
}

/* ---- following ---- */

/* P2: not before `go`, then all of it when activate returns. */
static void a_version_gets_into_the_device(void **state)
{
    (void)state;
    struct fake f;
    struct gpu_worker rank, rollout;
    under->open();
    fake_open(&f);
    gpu_worker_open(&rank, &f, under, "rank0", "host-a");
    gpu_worker_open(&rollout, &f, under, "rollout0", "host-b");
    gpu_worker_fill(&rank, under, 77);
    CHECK_OK(gpu_worker_publish_as(&rank, 1, TB_PUBLISH_SHADOW, NULL));
    fake_land(&f, 1);
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = rollout.r};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(rollout.s, &o, &sub));
    struct tb_uid uid;
    memcpy(uid.bytes, fake_version(&f, 1)->key.uid.bytes, sizeof uid.bytes);
    if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    CHECK_STATUS(tb_activate(sub, &uid, NULL), TB_AGAIN);
    assert_true(gpu_worker_holds(&rollout, under, &rollout));
    fake_go(&f, 1);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_activate(sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
    assert_int_equal(info.copied_bytes, GPU_WORKER_BIG + GPU_WORKER_SMALL);
    assert_true(gpu_worker_holds(&rollout, under, &rank));
    gpu_worker_close(&rollout, under);
    gpu_worker_close(&rank, under);
    fake_close(&f);
    under->close();
}

static uint64_t status_number(struct tb_session *s, const char *key)
{
    char text[4096];
    uint64_t needed;
    CHECK_OK(tb_status(s, "session", text, sizeof text, &needed));
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

static bool device_has_kernels(struct tb_session *s)
{
    char text[4096];
    uint64_t needed;
    CHECK_OK(tb_status(s, "session", text, sizeof text, &needed));
    return strstr(text, "\"digests\":\"gpu\"") != NULL;
}

/* Of a version that is staged on the device no tensor can be read there by the host, and every blob
 * can. */
static void check_items(struct tb_subscription *sub, const struct tb_uid *uid, bool on_device)
{
    uint32_t found = 0;
    struct tb_item item = {.struct_bytes = sizeof item};
    for (uint32_t i = 0; tb_staged_item(sub, uid, i, &item) == TB_OK; i++) {
        if (!item.is_blob) {
            assert_int_equal(item.bytes == NULL, on_device);
            continue;
        }
        assert_int_equal(item.count, 7);
        assert_memory_equal(item.bytes, "{\"a\":1}", 7);
        found++;
    }
    assert_int_equal(found, 1);
}

/* P1: versions that are staged on the device itself, where it can digest: no host memory has them,
 * and the switch brings them into the tensors. Their memory is given back. */
static void versions_are_staged_on_the_device(void **state)
{
    (void)state;
    struct fake f;
    struct gpu_worker rank, rollout;
    under->open();
    fake_open(&f);
    gpu_worker_open(&rank, &f, under, "rank0", "host-a");
    gpu_worker_open(&rollout, &f, under, "rollout0", "host-b");
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = rollout.r,
                                           .stage_on_gpu = 1};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(rollout.s, &o, &sub));
    for (uint64_t number = 1; number <= 3; number++) {
        gpu_worker_fill(&rank, under, number);
        CHECK_OK(gpu_worker_publish_as(&rank, number, TB_PUBLISH_SHADOW, number == 2 ? "zstd" : NULL));
        fake_land(&f, number);
        const struct tb_uid uid = fake_uid(fake_version(&f, number));
        if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
        const bool kernels = device_has_kernels(rollout.s);
        assert_int_equal(status_number(rollout.s, "\"gpu_bytes\":") >= GPU_WORKER_BIG + GPU_WORKER_SMALL,
                         kernels);
        check_items(sub, &uid, kernels);
        fake_go(&f, number);
        struct tb_activate_info info = {.struct_bytes = sizeof info};
        if (tb_activate(sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
        assert_int_equal(info.copied_bytes, GPU_WORKER_BIG + GPU_WORKER_SMALL);
        assert_in_range(info.staged_bytes, GPU_WORKER_BIG + GPU_WORKER_SMALL, 2 * GPU_WORKER_BIG);
        assert_true(gpu_worker_holds(&rollout, under, &rank));
        if (number > 1) CHECK_OK(tb_release(sub, &uid)); /* the first one stays beside the next */
    }
    gpu_worker_close(&rollout, under);
    gpu_worker_close(&rank, under);
    fake_close(&f);
    under->close();
}

/* Publishes what `rank` holds as `number`, and brings it into the rollout: the buffer it is in. */
static uint32_t follow(struct fake *f, struct gpu_worker *rank, struct tb_subscription *sub, uint64_t number,
                       struct tb_activate_info *info)
{
    CHECK_OK(gpu_worker_publish_as(rank, number, TB_PUBLISH_SHADOW, NULL));
    fake_land_on(f, number, number > 1 ? fake_version(f, number - 1) : NULL);
    struct tb_uid uid;
    memcpy(uid.bytes, fake_version(f, number)->key.uid.bytes, sizeof uid.bytes);
    if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(f, number);
    *info = (struct tb_activate_info){.struct_bytes = sizeof *info};
    if (tb_activate(sub, &uid, info) != TB_OK) fail_msg("%s", tb_last_error());
    return info->buffer;
}

/* P2: two sets of tensors on the device, one in use while the other is filled. */
static void two_buffers_of_the_device_take_turns(void **state)
{
    (void)state;
    struct fake f;
    struct gpu_worker rank, rollout;
    under->open();
    fake_open(&f);
    gpu_worker_open(&rank, &f, under, "rank0", "host-a");
    gpu_worker_open(&rollout, &f, under, "rollout0", "host-b");
    uint8_t *big = under->alloc(GPU_WORKER_BIG), *small = under->alloc(GPU_WORKER_SMALL);
    struct tb_registration *second;
    CHECK_OK(gpu_worker_register(rollout.s, big, small, &second));
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = rollout.r,
                                           .update = TB_UPDATE_SWITCH,
                                           .second = second};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(rollout.s, &o, &sub));
    for (uint64_t number = 1; number <= 3; number++) {
        struct tb_activate_info info;
        gpu_worker_fill(&rank, under, number);
        const uint32_t buffer = follow(&f, &rank, sub, number, &info);
        assert_int_equal(buffer, (number + 1) % 2); /* the first of them first */
        const struct gpu_worker filled = {.big = buffer == 0 ? rollout.big : big,
                                          .small = buffer == 0 ? rollout.small : small};
        assert_true(gpu_worker_holds(&filled, under, &rank));
    }
    gpu_worker_close(&rollout, under);
    under->free(big);
    under->free(small);
    gpu_worker_close(&rank, under);
    fake_close(&f);
    under->close();
}

/* ---- patches ---- */

/* As a step of training does: some elements move by a little. */
static void take_a_step(struct gpu_worker *w, uint64_t number)
{
    for (uint32_t i = (uint32_t)number; i < GPU_WORKER_BIG; i += 100)
        w->big_truth[i / 2 * 2]++;
    w->small_truth[number]++;
    under->write(w->big, w->big_truth, GPU_WORKER_BIG);
    under->write(w->small, w->small_truth, GPU_WORKER_SMALL);
}

struct patched {
    struct fake f;
    struct gpu_worker rank, rollout;
    struct tb_subscription *sub;
    bool kernels;
};

/* Both hold version 1, which came whole. With `shelves` the gateway has steps encoded. */
static void patched_open(struct patched *p, bool shelves)
{
    under->open();
    fake_open(&p->f);
    FAKE_SET(&p->f, shelves, shelves);
    gpu_worker_open(&p->rank, &p->f, under, "rank0", "host-a");
    gpu_worker_open(&p->rollout, &p->f, under, "rollout0", "host-b");
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = p->rollout.r,
                                           .update = TB_UPDATE_PATCH};
    CHECK_OK(tb_subscribe(p->rollout.s, &o, &p->sub));
    struct tb_activate_info info;
    gpu_worker_fill(&p->rank, under, 5);
    (void)follow(&p->f, &p->rank, p->sub, 1, &info);
    assert_int_equal(info.patched_bytes, 0);
    assert_true(gpu_worker_holds(&p->rollout, under, &p->rank));
    p->kernels = device_has_kernels(p->rollout.s);
}

static void patched_close(struct patched *p)
{
    gpu_worker_close(&p->rollout, under);
    gpu_worker_close(&p->rank, under);
    fake_close(&p->f);
    under->close();
}

/* P1: staging holds the step; the device writes it over its tensors, and what these then hold is
 * digested. Without kernels versions come whole. */
static void the_device_patches_its_tensors(void **state)
{
    (void)state;
    struct patched p;
    patched_open(&p, false);
    for (uint64_t number = 2; number <= 4; number++) {
        struct tb_activate_info info;
        take_a_step(&p.rank, number);
        (void)follow(&p.f, &p.rank, p.sub, number, &info);
        assert_int_equal(info.patched_bytes, p.kernels ? GPU_WORKER_BIG + GPU_WORKER_SMALL : 0);
        assert_int_equal(info.copied_bytes, p.kernels ? 0 : GPU_WORKER_BIG + GPU_WORKER_SMALL);
        assert_int_equal(info.fetched_chunks, 0);
        if (p.kernels) assert_true(info.staged_bytes < GPU_WORKER_BIG / 10);
        assert_true(gpu_worker_holds(&p.rollout, under, &p.rank));
    }
    patched_close(&p);
}

/* P1: the tensors hold other bytes than the step was made for: those chunks come whole
 * before activate returns. */
static void a_device_that_holds_no_base_gets_whole_chunks(void **state)
{
    (void)state;
    struct patched p;
    patched_open(&p, false);
    take_a_step(&p.rank, 2);
    CHECK_OK(gpu_worker_publish_as(&p.rank, 2, TB_PUBLISH_SHADOW, NULL));
    fake_land(&p.f, 2);
    struct tb_uid uid;
    memcpy(uid.bytes, fake_version(&p.f, 2)->key.uid.bytes, sizeof uid.bytes);
    CHECK_OK(tb_stage(p.sub, &uid, 20000));
    const uint8_t stray = (uint8_t)(p.rank.big_truth[GPU_WORKER_BIG / 2 + 1] + 3);
    under->write(p.rollout.big + GPU_WORKER_BIG / 2 + 1, &stray, 1);
    fake_go(&p.f, 2);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_activate(p.sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
    assert_int_equal(info.fetched_chunks, p.kernels ? 1 : 0);
    assert_true(gpu_worker_holds(&p.rollout, under, &p.rank));
    patched_close(&p);
}

static uint64_t staged_number(const struct patched *p, const char *key)
{
    char text[16384], quoted[64];
    uint64_t needed;
    CHECK_OK(tb_status(p->rollout.s, "session", text, sizeof text, &needed));
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(strstr(text, "\"staged\""), quoted);
    return at != NULL ? strtoull(at + strlen(quoted), NULL, 10) : 0;
}

/* P1: an encoded chunk is kept as it came, once the device has said what it comes to on what its
 * tensors hold. Version 3 finds one of them changed, so that one chunk comes whole. */
static void the_device_takes_encoded_chunks(void **state)
{
    (void)state;
    struct patched p;
    patched_open(&p, true);
    for (uint64_t number = 2; number <= 4; number++) {
        struct tb_activate_info info;
        take_a_step(&p.rank, number);
        const uint8_t stray = (uint8_t)(p.rank.big_truth[GPU_WORKER_BIG / 2 + 1] + 3);
        if (number == 3) under->write(p.rollout.big + GPU_WORKER_BIG / 2 + 1, &stray, 1);
        (void)follow(&p.f, &p.rank, p.sub, number, &info);
        const uint64_t whole = 1 + (number == 3); /* the blob's too */
        /* Without kernels versions are copied, and decoded from the one before in host memory. */
        if (p.kernels)
            assert_int_equal(staged_number(&p, "encoded_chunks"), staged_number(&p, "total_chunks") - whole);
        assert_int_equal(info.patched_bytes, p.kernels ? GPU_WORKER_BIG + GPU_WORKER_SMALL : 0);
        assert_int_equal(info.fetched_chunks, 0);
        assert_true(gpu_worker_holds(&p.rollout, under, &p.rank));
    }
    patched_close(&p);
}

/* Proven deltas wait on the device, and tb_suspend takes them from there: the version comes whole
 * when the engine is awake. */
static void a_suspended_device_keeps_no_deltas(void **state)
{
    (void)state;
    struct patched p;
    patched_open(&p, true);
    take_a_step(&p.rank, 2);
    CHECK_OK(gpu_worker_publish_as(&p.rank, 2, TB_PUBLISH_SHADOW, NULL));
    fake_land_on(&p.f, 2, fake_version(&p.f, 1));
    struct tb_uid uid;
    memcpy(uid.bytes, fake_version(&p.f, 2)->key.uid.bytes, sizeof uid.bytes);
    if (tb_stage(p.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    assert_int_equal(staged_number(&p, "kept_bytes") + staged_number(&p, "pinned_bytes") > 0, p.kernels);
    CHECK_OK(tb_suspend(p.rollout.r));
    assert_int_equal(staged_number(&p, "kept_bytes") + staged_number(&p, "pinned_bytes"), 0);
    CHECK_OK(tb_resume(p.rollout.r, NULL, 0));
    fake_go(&p.f, 2);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_activate(p.sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
    assert_true(!p.kernels || info.fetched_chunks > 0);
    assert_true(gpu_worker_holds(&p.rollout, under, &p.rank));
    patched_close(&p);
}

/* ---- slices ---- */

/* The large tensor as a matrix: what a slice of it is, in elements. */
#define SLICE_ROWS 600u
#define SLICE_COLS (GPU_WORKER_BIG / 2 / SLICE_ROWS)

struct slice_axes {
    uint64_t shape[2], first[2], count[2];
};

static struct tb_slice_desc slice_of(const struct slice_axes *a, void *memory)
{
    return (struct tb_slice_desc){.struct_bytes = sizeof(struct tb_slice_desc),
                                  .rank = 2,
                                  .name = "w",
                                  .dtype = "BF16",
                                  .shape = a->shape,
                                  .first = a->first,
                                  .count = a->count,
                                  .memory = memory};
}

static void publish_in_parts(struct gpu_worker *w, uint32_t mode, uint32_t split_axis)
{
    const struct slice_axes all = {{SLICE_ROWS, SLICE_COLS}, {0, 0}, {SLICE_ROWS, SLICE_COLS}};
    struct tb_slice_desc d = slice_of(&all, w->big);
    d.split_axis = split_axis;
    d.split_count = 4;
    struct tb_registration *r;
    if (tb_register_slices(w->s, &d, 1, &r) != TB_OK) fail_msg("%s", tb_last_error());
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = mode,
                                         .model = "policy",
                                         .run = &w->run->run,
                                         .number = 1,
                                         .shard_count = 1,
                                         .registration = r,
                                         .timeout_ms = 20000};
    if (tb_publish(w->s, &o, NULL) != TB_OK) fail_msg("%s", tb_last_error());
    CHECK_OK(tb_publish(w->s, &o, NULL)); /* the same bytes again are done: it looks at the device */
}

static void check_box(const struct slice_axes *a, const uint8_t *got, const uint8_t *truth)
{
    for (uint64_t row = 0; row < a->count[0]; row++)
        assert_memory_equal(got + 2 * row * a->count[1],
                            truth + 2 * ((a->first[0] + row) * SLICE_COLS + a->first[1]), 2 * a->count[1]);
}

/* P1: parts of a tensor that a device holds, as two boxes of it into another's: a quarter of the
 * columns, and some rows. */
static void check_slices(uint32_t mode, uint32_t split_axis)
{
    struct fake f;
    struct gpu_worker rank, rollout;
    under->open();
    fake_open(&f);
    gpu_worker_open(&rank, &f, under, "rank0", "host-a");
    gpu_worker_open(&rollout, &f, under, "rollout0", "host-b");
    gpu_worker_fill(&rank, under, 77);
    publish_in_parts(&rank, mode, split_axis);
    fake_land(&f, 1);
    const struct slice_axes columns = {
        {SLICE_ROWS, SLICE_COLS}, {0, SLICE_COLS / 4}, {SLICE_ROWS, SLICE_COLS / 4}};
    const struct slice_axes rows = {{SLICE_ROWS, SLICE_COLS}, {50, 0}, {10, SLICE_COLS}};
    const uint64_t columns_bytes = 2 * columns.count[0] * columns.count[1],
                   rows_bytes = 2 * rows.count[0] * rows.count[1];
    const struct tb_slice_desc list[] = {slice_of(&columns, rollout.big),
                                         slice_of(&rows, rollout.big + columns_bytes)};
    struct tb_registration *r;
    if (tb_register_slices(rollout.s, list, 2, &r) != TB_OK) fail_msg("%s", tb_last_error());
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .group = "engine", .registration = r};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(rollout.s, &o, &sub));
    const struct tb_uid uid = fake_uid(fake_version(&f, 1));
    if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&f, 1);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_activate(sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
    assert_int_equal(info.copied_bytes, columns_bytes + rows_bytes);
    uint8_t *got = malloc(GPU_WORKER_BIG);
    under->read(rollout.big, got, GPU_WORKER_BIG);
    check_box(&columns, got, rank.big_truth);
    check_box(&rows, got + columns_bytes, rank.big_truth);
    assert_memory_equal(got + columns_bytes + rows_bytes, rollout.big_truth + columns_bytes + rows_bytes,
                        GPU_WORKER_BIG - columns_bytes - rows_bytes);
    free(got);
    gpu_worker_close(&rollout, under);
    gpu_worker_close(&rank, under);
    fake_close(&f);
    under->close();
}

static void slices_of_a_device_are_published_and_read(void **state)
{
    (void)state;
    check_slices(TB_PUBLISH_SHADOW, 1);
    check_slices(TB_PUBLISH_IN_PLACE, 0);
}

/* P10 */
static void the_status_says_that_it_is_a_device(void **state)
{
    (void)state;
    struct fake f;
    struct gpu_worker w;
    under->open();
    fake_open(&f);
    gpu_worker_open(&w, &f, under, "rank0", "host-a");
    char text[4096];
    uint64_t needed;
    CHECK_OK(tb_status(w.s, "session", text, sizeof text, &needed));
    assert_non_null(strstr(text, "\"gpu\":{\"device\":0,\"name\":\""));
    CHECK_OK(tb_suspend(w.r));
    CHECK_OK(tb_status(w.s, "session", text, sizeof text, &needed));
    assert_null(strstr(text, "\"gpu\":{"));
    CHECK_OK(tb_unregister(w.r));
    gpu_worker_close(&w, under);
    fake_close(&f);
    under->close();
}

int gpu_suite_run(const struct gpu_under_test *on)
{
    under = on;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_of_the_device_land),
        cmocka_unit_test(a_retry_looks_at_the_device),
        cmocka_unit_test(a_suspended_device_memory_comes_back),
        cmocka_unit_test(a_device_memory_that_changed_asleep_is_no_reference),
        cmocka_unit_test(a_version_gets_into_the_device),
        cmocka_unit_test(versions_are_staged_on_the_device),
        cmocka_unit_test(two_buffers_of_the_device_take_turns),
        cmocka_unit_test(the_device_patches_its_tensors),
        cmocka_unit_test(a_device_that_holds_no_base_gets_whole_chunks),
        cmocka_unit_test(the_device_takes_encoded_chunks),
        cmocka_unit_test(a_suspended_device_keeps_no_deltas),
        cmocka_unit_test(slices_of_a_device_are_published_and_read),
        cmocka_unit_test(the_status_says_that_it_is_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
