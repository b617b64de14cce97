/* moves.c - many small tensors on a device, over a driver that is none (fake_cuda.h), its kernels
 * on cores: what they cost in calls of the driver, and that all of them get in and out.
 *
 * Covers: intra/cuda/cuda_moves.c intra/cuda/cuda_kernels.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/check.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/shard_on_gpu.h"

#define COUNT     10000u /* tensors */
#define EACH_MAX  3000u  /* bytes of one: their borders are anything */
#define LARGE     100000u
#define ROOM_EACH 3072u /* where one stands in the device's memory; the large one is the last */

struct world {
    struct tb_gpu *gpu;
    struct tb_gpu_memory *memory;
    void *layout_memory, *manifest_memory;
    struct tb_manifest manifest;
    uint8_t *room; /* of the device */
    uint8_t *tensors[COUNT];
    uint8_t *seen; /* what is to be in `room` */
    struct tb_shared_memory packed;
};

static void make_layout(struct world *w)
{
    struct tb_tensor *t = calloc(COUNT, sizeof *t);
    char(*names)[16] = calloc(COUNT, sizeof *names);
    uint64_t seed = 3;
    struct tb_layout layout;
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint64_t bytes = i + 1 == COUNT ? LARGE : 1 + check_random(&seed) % EACH_MAX;
        snprintf(names[i], sizeof names[i], "t%05u", i);
        t[i] = (struct tb_tensor){
            .name = names[i], .dtype = TB_DTYPE_U8, .rank = 1, .full = {bytes}, .box_count = {bytes}};
    }
    const size_t bytes = tb_layout_bytes_for(t, COUNT);
    w->layout_memory = malloc(bytes);
    CHECK_OK(tb_layout_build(t, COUNT, w->layout_memory, bytes, &layout));
    const size_t manifest_bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    w->manifest_memory = malloc(manifest_bytes);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, w->manifest_memory, manifest_bytes, &w->manifest));
    free(names);
    free(t);
}

static uint64_t room_bytes(void)
{
    return (uint64_t)COUNT * ROOM_EACH + LARGE;
}

/* Odd ones before even ones, so that none stands behind the one that is before it in packed
 * order. */
static void place_tensors(struct world *w)
{
    uint64_t at = 0;
    for (uint32_t first = 1; first <= 2; first++)
        for (uint32_t i = first % 2; i < COUNT; i += 2) {
            const uint64_t bytes = w->manifest.layout.tensors[i].bytes;
            w->tensors[i] = w->room + at + (bytes < LARGE ? i % 16 : 0);
            at += bytes < LARGE ? ROOM_EACH : LARGE;
        }
}

static void world_open(struct world *w, const char *image)
{
    memset(w, 0, sizeof *w);
    fake_cuda_open();
    tb_cuda_replace_image(image);
    make_layout(w);
    CHECK_OK(tb_gpu_open(&w->gpu, (char[TB_GPU_WHY_BYTES]){""}));
    w->room = fake_cuda_alloc(0, room_bytes());
    w->seen = malloc(room_bytes());
    memset(w->seen, 0xee, room_bytes());
    fake_cuda_write(w->room, w->seen, room_bytes());
    place_tensors(w);
    const struct tb_gpu_tensors tensors = {&w->manifest.layout, w->tensors};
    CHECK_OK(tb_gpu_memory_open(w->gpu, &tensors, &w->memory, (char[TB_GPU_WHY_BYTES]){""}));
    CHECK_OK(tb_shared_memory_new("test", w->manifest.bytes, &w->packed));
    tb_gpu_pin(w->gpu, &w->packed);
    uint64_t seed = 9;
    for (uint64_t i = 0; i < w->manifest.bytes; i++)
        ((uint8_t *)w->packed.bytes)[i] = (uint8_t)check_random(&seed);
}

static void world_close(struct world *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    tb_gpu_memory_close(w->memory);
    tb_shared_memory_free(&w->packed);
    tb_gpu_close(w->gpu);
    fake_cuda_free(w->room);
    free(w->seen);
    free(w->manifest_memory);
    free(w->layout_memory);
    fake_cuda_close();
}

/* As a switch has them: from packed bytes into each tensor. */
static struct tb_gpu_rows *moves_from(const struct world *w, const uint8_t *packed)
{
    struct tb_gpu_rows *moves = calloc(COUNT, sizeof *moves);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct tb_tensor *t = &w->manifest.layout.tensors[i];
        moves[i] = (struct tb_gpu_rows){.row = {w->tensors[i], packed + t->offset, t->bytes}, .rows = 1};
    }
    return moves;
}

/* All but each `left_out`-th; 0: all. */
static void check_got_in(struct world *w, uint32_t left_out)
{
    uint8_t *got = malloc(room_bytes());
    for (uint32_t i = 0; i < COUNT; i++) {
        if (left_out > 0 && i % left_out == 0) continue;
        const struct tb_tensor *t = &w->manifest.layout.tensors[i];
        memcpy(w->seen + (w->tensors[i] - w->room), (uint8_t *)w->packed.bytes + t->offset, t->bytes);
    }
    fake_cuda_read(w->room, got, room_bytes());
    assert_memory_equal(got, w->seen, room_bytes());
    free(got);
}

/* Without kernels each is a call, and with them a few are all. Nothing between the tensors is
 * touched. */
static void small_tensors_get_in_together(void **state)
{
    (void)state;
    static const char *const images[] = {"none", FAKE_CUDA_IMAGE};
    for (int kernels = 0; kernels < 2; kernels++) {
        struct world w;
        world_open(&w, images[kernels]);
        struct tb_gpu_rows *moves = moves_from(&w, w.packed.bytes);
        const uint32_t before = fake_cuda_calls("cuMemcpyAsync");
        CHECK_OK(tb_gpu_move(w.memory, moves, COUNT));
        const uint32_t calls = fake_cuda_calls("cuMemcpyAsync") - before;
        if (kernels)
            assert_in_range(calls, 1, 12); /* a list, what it moves, and the large one */
        else
            assert_int_equal(calls, COUNT);
        assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
        check_got_in(&w, 0);
        free(moves);
        world_close(&w);
    }
}

/* As slices want some: what stands between two that are wanted goes nowhere. */
static void bytes_that_are_left_out_stay(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, FAKE_CUDA_IMAGE);
    struct tb_gpu_rows *moves = moves_from(&w, w.packed.bytes);
    uint32_t count = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        if (i % 97 != 0) moves[count++] = moves[i];
    CHECK_OK(tb_gpu_move(w.memory, moves, count));
    check_got_in(&w, 97);
    free(moves);
    world_close(&w);
}

/* From memory of the device, as where it was staged there, nothing goes up but lists. */
static void small_tensors_get_in_from_the_device(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, FAKE_CUDA_IMAGE);
    uint8_t *staged = fake_cuda_alloc(0, w.manifest.bytes);
    fake_cuda_write(staged, w.packed.bytes, w.manifest.bytes);
    struct tb_gpu_rows *moves = moves_from(&w, staged);
    const uint32_t before = fake_cuda_calls("cuMemcpyAsync");
    CHECK_OK(tb_gpu_move(w.memory, moves, COUNT));
    assert_in_range(fake_cuda_calls("cuMemcpyAsync") - before, 1, 6);
    check_got_in(&w, 0);
    free(moves);
    fake_cuda_free(staged);
    world_close(&w);
}

static void nothing_lands(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    (void)user, (void)first, (void)count, (void)bytes;
    fail_msg("cores are to digest");
}

/* P1: a publisher's are gathered together, too. */
static void small_tensors_are_published_together(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, FAKE_CUDA_IMAGE);
    for (uint32_t i = 0; i < COUNT; i++)
        fake_cuda_write(w.tensors[i], (uint8_t *)w.packed.bytes + w.manifest.layout.tensors[i].offset,
                        w.manifest.layout.tensors[i].bytes);
    struct tb_digest *got = calloc(w.manifest.chunk_count, sizeof *got);
    const struct tb_gpu_pass pass = {.manifest = &w.manifest,
                                     .from = {.layout = &w.manifest.layout, .tensors = w.tensors},
                                     .digests = got,
                                     .landed = nothing_lands};
    const uint32_t before = fake_cuda_calls("cuMemcpyAsync");
    CHECK_OK(tb_gpu_pass(w.memory, &pass));
    assert_true(fake_cuda_calls("cuMemcpyAsync") - before < COUNT / 50 + 4 * w.manifest.chunk_count);
    for (uint32_t k = 0; k < w.manifest.chunk_count; k++) {
        const struct tb_chunk *c = &w.manifest.chunks[k];
        const struct tb_digest truth = tb_digest_of((uint8_t *)w.packed.bytes + c->offset, c->bytes);
        assert_true(tb_digest_equal(&got[k], &truth));
    }
    free(got);
    world_close(&w);
}

/* Nothing that was begun runs on; without room for it they go one by one. */
static void a_device_that_refuses_is_told(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuLaunchKernel", "cuMemcpyAsync", "cuEventSynchronize"};
    struct world w;
    world_open(&w, FAKE_CUDA_IMAGE);
    struct tb_gpu_rows *moves = moves_from(&w, w.packed.bytes);
    fake_cuda_fail("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(tb_gpu_move(w.memory, moves, COUNT));
    check_got_in(&w, 0);
    world_close(&w);
    free(moves);
    world_open(&w, FAKE_CUDA_IMAGE);
    moves = moves_from(&w, w.packed.bytes);
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1; nth <= 2; nth++) {
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_ILLEGAL_ADDRESS);
            const enum tb_status status = tb_gpu_move(w.memory, moves, COUNT);
            assert_int_equal(status, fake_cuda_failed() ? TB_SITE_IO : TB_OK);
            assert_true((nth > 1 || fake_cuda_failed()) && fake_cuda_idle());
        }
    }
    free(moves);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tensors_get_in_together),
        cmocka_unit_test(bytes_that_are_left_out_stay),
        cmocka_unit_test(small_tensors_get_in_from_the_device),
        cmocka_unit_test(small_tensors_are_published_together),
        cmocka_unit_test(a_device_that_refuses_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
