/* tied.c - tensors of a device that stand in one memory, in each way in which a
 * version gets into them.
 *
 * Covers: intra/client/memory/tied_tensors_bytes.c intra/client/follow/patch_tied.c
 * intra/client/follow/patch_device.c */
#include <stdlib.h>
#include <string.h>

#include "unit/check.h"
#include "unit/client/fake_gateway.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/gpu_worker.h"

#define LARGE 2400000u
#define SMALL 1003u
#define COUNT 5u

static const char *const names[COUNT] = {"embed", "head", "norm.a", "norm.b", "other"};
static const uint64_t sizes[COUNT] = {LARGE, LARGE, SMALL, SMALL, 3 * SMALL};

struct world {
    struct fake f;
    struct tb_session *trainer, *s;
    uint8_t *truth[COUNT]; /* the trainer's, in memory of the host; each its own */
    uint8_t *out[COUNT];   /* the reader's, on the device: "head" is "embed", "norm.b" is "norm.a" */
    struct tb_registration *sealed;
    struct tb_subscription *sub;
};

static struct tb_registration *registered(struct tb_session *s, uint8_t *const *memory)
{
    struct tb_registration *r;
    struct tb_tensor_desc list[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        list[i] = (struct tb_tensor_desc){
            .name = names[i], .dtype = "U8", .rank = 1, .shape = &sizes[i], .memory = memory[i]};
    if (tb_register(s, list, COUNT, &r) != TB_OK) fail_msg("%s", tb_last_error());
    return r;
}

static void world_open(struct world *w, enum tb_update update, bool on_gpu)
{
    memset(w, 0, sizeof *w);
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    fake_open(&w->f);
    FAKE_SET(&w->f, shelves, true);
    w->trainer = fake_session_open(&w->f, "trainer", "host-a");
    w->s = fake_session_open(&w->f, "reader", "host-b");
    for (uint32_t i = 0; i < COUNT; i++) {
        w->truth[i] = malloc(sizes[i]);
        for (uint64_t k = 0; k < sizes[i]; k++)
            w->truth[i][k] = (uint8_t)((k * 2654435761u >> 13) + i / 2);
        w->out[i] = i % 2 == 1 ? w->out[i - 1] : fake_cuda_alloc(0, sizes[i]);
    }
    w->sealed = registered(w->trainer, w->truth);
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = registered(w->s, w->out),
                                           .update = (uint32_t)update,
                                           .stage_on_gpu = on_gpu};
    if (tb_subscribe(w->s, &o, &w->sub) != TB_OK) fail_msg("%s", tb_last_error());
}

static void world_close(struct world *w)
{
    tb_session_close(w->s);
    tb_session_close(w->trainer);
    for (uint32_t i = 0; i < COUNT; i++) {
        free(w->truth[i]);
        if (i % 2 == 0) fake_cuda_free(w->out[i]);
    }
    fake_close(&w->f);
    fake_cuda_close();
}

static void publish(struct world *w, uint64_t number)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w->trainer, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = w->sealed};
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    if (tb_publish(w->trainer, &o, &info) != TB_OK) fail_msg("%s", tb_last_error());
    if (number == 1)
        fake_land(&w->f, number);
    else
        fake_land_on(&w->f, number, fake_version(&w->f, number - 1));
}

static void step(struct world *w, uint64_t number)
{
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint64_t k = number * 31 % 100; k < sizes[i]; k += 100)
            w->truth[i][k] = (uint8_t)((k + number) * 7 + i / 2);
}

static enum tb_status follow(struct world *w, uint64_t number, struct tb_activate_info *info)
{
    const struct tb_uid uid = fake_uid(fake_version(&w->f, number));
    *info = (struct tb_activate_info){.struct_bytes = sizeof *info};
    const int staged = tb_stage(w->sub, &uid, 20000);
    if (staged != TB_OK) return (enum tb_status)staged;
    fake_go(&w->f, number);
    return (enum tb_status)tb_activate(w->sub, &uid, info);
}

static void check_out(const struct world *w)
{
    uint8_t *room = malloc(LARGE);
    for (uint32_t i = 0; i < COUNT; i++) {
        fake_cuda_read(w->out[i], room, sizes[i]);
        assert_memory_equal(room, w->truth[i], sizes[i]);
    }
    free(room);
}

/* P1: nothing comes again, and what the device holds of the large ones comes down for nobody. */
static void tied_tensors_of_a_device_are_patched_once(void **state)
{
    (void)state;
    for (int shelves = 0; shelves < 2; shelves++) {
        struct world w;
        struct tb_activate_info info;
        world_open(&w, TB_UPDATE_PATCH, false);
        FAKE_SET(&w.f, shelves, shelves != 0);
        for (uint64_t n = 1; n < 4; n++) {
            step(&w, n);
            publish(&w, n);
            const uint64_t before = fake_cuda_counts().down_bytes;
            if (follow(&w, n, &info) != TB_OK) fail_msg("%s", tb_last_error());
            if (n > 1) assert_true(fake_cuda_counts().down_bytes - before < LARGE / 4);
            assert_int_equal(info.fetched_chunks, 0);
            assert_int_equal(info.patched_bytes, n == 1 ? 0 : LARGE);
            assert_int_equal(info.copied_bytes + info.patched_bytes, LARGE + 4 * SMALL);
            check_out(&w);
        }
        world_close(&w);
    }
}

static void tied_tensors_of_a_device_are_copied_once(void **state)
{
    (void)state;
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        struct world w;
        struct tb_activate_info info;
        world_open(&w, TB_UPDATE_COPY, on_gpu != 0);
        for (uint64_t n = 1; n < 3; n++) {
            step(&w, n);
            publish(&w, n);
            if (follow(&w, n, &info) != TB_OK) fail_msg("%s", tb_last_error());
            assert_int_equal(info.copied_bytes, LARGE + 4 * SMALL);
            check_out(&w);
        }
        world_close(&w);
    }
}

/* P2: by digests, and by bytes that are the host's or the device's. */
static void a_version_that_has_them_apart_is_refused(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        for (uint32_t apart = 1; apart < 4; apart += 2) {
            struct world w;
            struct tb_activate_info info;
            world_open(&w, way == 2 ? TB_UPDATE_PATCH : TB_UPDATE_COPY, way == 1);
            publish(&w, 1);
            CHECK_OK(follow(&w, 1, &info));
            w.truth[apart][77] ^= 1;
            publish(&w, 2);
            CHECK_STATUS(follow(&w, 2, &info), TB_LAYOUT_MISMATCH);
            assert_non_null(strstr(tb_last_error(), "registered in one memory"));
            w.truth[apart][77] ^= 1;
            if (way < 2) check_out(&w); /* nothing was written */
            publish(&w, 3);
            if (follow(&w, 3, &info) != TB_OK) fail_msg("%s", tb_last_error());
            check_out(&w);
            world_close(&w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_tensors_of_a_device_are_patched_once),
        cmocka_unit_test(tied_tensors_of_a_device_are_copied_once),
        cmocka_unit_test(a_version_that_has_them_apart_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
