/* rows.c - bytes that stand in rows, as slices of tensors do, into a device and out of it, over a
 * driver that is none (fake_cuda.h).
 *
 * Covers: intra/cuda/cuda_lanes.c intra/cuda/cuda_pass.c */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/layout/chunk_cut.h"
#include "base/log.h"
#include "unit/caught_log.h"
#include "unit/check.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/shard_on_gpu.h"

#define ROWS   700u
#define RUN    3001u
#define STRIDE 9000u
#define SLICE  (ROWS * RUN)
#define DENSE  1200001u
#define BLOB   1003u
#define BYTES  (SLICE + DENSE + BLOB)

/* A tensor of ROWS x RUN bytes, the part of a wider one: on the device its rows are STRIDE apart.
 * Behind it one that is dense, and a blob. */
struct world {
    struct tb_gpu *gpu;
    struct tb_gpu_memory *memory;
    void *layout_memory, *manifest_memory;
    struct tb_manifest manifest;
    uint8_t *packed, *wide; /* the truth: of all, and of what stands where the part does */
    uint8_t *tensors[2];
    struct tb_spread_rows rows[2];
    struct tb_digest *got;
};

static void fill(struct world *w)
{
    uint64_t seed = 3;
    for (uint32_t i = 0; i < ROWS * STRIDE; i++)
        w->wide[i] = (uint8_t)check_random(&seed);
    for (uint32_t row = 0; row < ROWS; row++)
        memcpy(w->packed + row * RUN, w->wide + row * STRIDE, RUN);
    for (uint32_t i = SLICE; i < BYTES; i++)
        w->packed[i] = (uint8_t)check_random(&seed);
    fake_cuda_write(w->tensors[0], w->wide, ROWS * STRIDE);
    fake_cuda_write(w->tensors[1], w->packed + SLICE, DENSE);
}

static void world_open(struct world *w, int pitch_max, const char *image)
{
    const struct tb_tensor t[] = {
        {.name = "w", .dtype = TB_DTYPE_U8, .rank = 2, .full = {ROWS, RUN}, .box_count = {ROWS, RUN}},
        {.name = "x", .dtype = TB_DTYPE_U8, .rank = 1, .full = {DENSE}, .box_count = {DENSE}}};
    const struct tb_blob blob = {.name = "b", .bytes = BLOB};
    struct tb_layout layout;
    memset(w, 0, sizeof *w);
    fake_cuda_open();
    tb_cuda_replace_image(image);
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH, pitch_max);
    w->layout_memory = malloc(tb_layout_bytes_for(t, 2));
    CHECK_OK(tb_layout_build(t, 2, w->layout_memory, tb_layout_bytes_for(t, 2), &layout));
    const size_t bytes = tb_manifest_bytes_for(&layout, &blob, 1);
    w->manifest_memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, &blob, 1, w->manifest_memory, bytes, &w->manifest));
    w->packed = malloc(BYTES);
    w->wide = malloc(ROWS * STRIDE);
    w->got = calloc(w->manifest.chunk_count, sizeof *w->got);
    w->tensors[0] = fake_cuda_alloc(0, ROWS * STRIDE);
    w->tensors[1] = fake_cuda_alloc(0, DENSE);
    w->rows[0] = (struct tb_spread_rows){RUN, STRIDE};
    w->rows[1] = (struct tb_spread_rows){DENSE, DENSE};
    fill(w);
    char why[TB_GPU_WHY_BYTES] = "";
    CHECK_OK(tb_gpu_open(&w->gpu, why));
    const struct tb_gpu_tensors tensors = {&w->manifest.layout, w->tensors};
    CHECK_OK(tb_gpu_memory_open(w->gpu, &tensors, &w->memory, why));
}

static void world_close(struct world *w)
{
    tb_gpu_memory_close(w->memory);
    tb_gpu_close(w->gpu);
    fake_cuda_free(w->tensors[0]);
    fake_cuda_free(w->tensors[1]);
    free(w->got);
    free(w->wide);
    free(w->packed);
    free(w->manifest_memory);
    free(w->layout_memory);
    fake_cuda_close();
}

/* Bytes between the rows belong to others. */
static void move_and_look(struct world *w, uint8_t *from, uint64_t from_stride)
{
    uint8_t *seen = malloc(ROWS * STRIDE);
    const struct tb_gpu_rows move = {
        .row = {w->tensors[0], from, RUN}, .rows = ROWS, .to_stride = STRIDE, .from_stride = from_stride};
    memset(from, 0xa5, (ROWS - 1) * from_stride + RUN);
    CHECK_OK(tb_gpu_move(w->memory, &move, 1));
    fake_cuda_read(w->tensors[0], seen, ROWS * STRIDE);
    for (uint32_t row = 0; row < ROWS; row++)
        memset(w->wide + row * STRIDE, 0xa5, RUN);
    assert_memory_equal(seen, w->wide, ROWS * STRIDE);
    free(seen);
}

static void check_rows_alone_are_written(int pitch_max, uint32_t calls_of_rows, uint32_t calls)
{
    struct world w;
    world_open(&w, pitch_max, "none");
    uint8_t *from = malloc(SLICE);
    move_and_look(&w, from, RUN);
    assert_int_equal(fake_cuda_calls("cuMemcpy2DAsync"), calls_of_rows);
    assert_int_equal(fake_cuda_calls("cuMemcpyAsync"), calls);
    free(from);
    world_close(&w);
}

static void rows_go_in_one_call(void **state)
{
    (void)state;
    check_rows_alone_are_written(STRIDE, 1, 0);
}

/* A stride beyond what the device takes, and a driver that does not say what it takes. */
static void rows_that_are_far_apart_go_one_by_one(void **state)
{
    (void)state;
    check_rows_alone_are_written(STRIDE - 1, 0, ROWS);
    check_rows_alone_are_written(0, 0, ROWS);
}

/* ---- what the driver refuses of rows, and no row ---- */

static int log_begin(void)
{
    const int log = caught_log_new();
    tb_log_set(TB_LOG_WARN, log);
    return log;
}

static void log_must_be_empty(int log)
{
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    assert_int_equal(lseek(log, 0, SEEK_END), 0);
    close(log);
}

/* Some rows stand in pages that are pinned, others do not, and one call may not have both.
 * Nobody is warned of that. */
static void rows_that_are_pinned_in_parts_go_one_by_one(void **state)
{
    (void)state;
    struct world w;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct tb_shared_memory memory;
    world_open(&w, INT32_MAX, "none");
    CHECK_OK(tb_shared_memory_new("rows", ROWS * 2 * page, &memory));
    struct tb_shared_memory view = {.bytes = (uint8_t *)memory.bytes + 4 * page, .count = page, .memfd = -1};
    tb_gpu_pin(w.gpu, &view);
    const int log = log_begin();
    move_and_look(&w, memory.bytes, 2 * page);
    log_must_be_empty(log);
    assert_int_equal(fake_cuda_calls("cuMemcpy2DAsync"), 1);
    assert_int_equal(fake_cuda_calls("cuMemcpyAsync"), ROWS);
    tb_shared_memory_unpin(&view);
    tb_shared_memory_free(&memory);
    world_close(&w);
}

/* Any other refusal is one. */
static void rows_that_fail_are_told(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, INT32_MAX, "none");
    uint8_t *from = calloc(1, SLICE);
    const struct tb_gpu_rows move = {
        .row = {w.tensors[0], from, RUN}, .rows = ROWS, .to_stride = STRIDE, .from_stride = RUN};
    fake_cuda_fail("cuMemcpy2DAsync", 1, CUDA_ERROR_ECC_UNCORRECTABLE);
    CHECK_STATUS(tb_gpu_move(w.memory, &move, 1), TB_SITE_IO);
    assert_int_equal(fake_cuda_calls("cuMemcpyAsync"), 0);
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    free(from);
    world_close(&w);
}

/* ---- a pass ---- */

static void on_landed(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    struct world *w = user;
    const struct tb_chunk *chunks = w->manifest.chunks;
    for (uint32_t i = first; i < first + count; i++)
        w->got[i] = tb_digest_of(bytes + (chunks[i].offset - chunks[first].offset), chunks[i].bytes);
}

/* P1: chunks begin and end in the middle of rows, and what is digested is what was copied. Rows go
 * in one call: of a chunk where the device digests, of a batch where cores do. */
static void check_pass(const char *image, bool own_pitches, uint32_t calls_of_rows)
{
    struct world w;
    world_open(&w, INT32_MAX, image);
    fake_cuda_set_own_pitches(own_pitches);
    uint8_t *to = calloc(1, BYTES);
    memcpy(to + SLICE + DENSE, w.packed + SLICE + DENSE, BLOB); /* as a publisher's blobs stand there */
    const struct tb_gpu_pass pass = {.manifest = &w.manifest,
                                     .from = {.layout = &w.manifest.layout,
                                              .tensors = w.tensors,
                                              .rows = w.rows,
                                              .blobs = to + SLICE + DENSE},
                                     .to = to,
                                     .digests = w.got,
                                     .landed = on_landed,
                                     .user = &w};
    const int log = log_begin();
    CHECK_OK(tb_gpu_pass(w.memory, &pass));
    log_must_be_empty(log);
    assert_memory_equal(to, w.packed, BYTES);
    assert_true(w.manifest.chunk_count > 4 && w.manifest.chunks[0].bytes % RUN != 0);
    for (uint32_t k = 0; k < w.manifest.chunk_count; k++) {
        const struct tb_chunk *c = &w.manifest.chunks[k];
        const struct tb_digest right = tb_digest_of(w.packed + c->offset, c->bytes);
        assert_memory_equal(&w.got[k], &right, sizeof right);
    }
    assert_int_equal(fake_cuda_calls("cuMemcpy2DAsync"), calls_of_rows);
    free(to);
    world_close(&w);
}

#define SLICE_CHUNKS ((SLICE + TB_CHUNK_BYTES_MIN - 1) / TB_CHUNK_BYTES_MIN)

static void a_pass_gathers_rows(void **state)
{
    (void)state;
    check_pass("none", false, 1);
    check_pass(FAKE_CUDA_IMAGE, false, SLICE_CHUNKS);
}

/* Of device memory to device memory: each call is refused, and its rows go one by one. */
static void a_pass_gathers_rows_at_strides_that_the_device_did_not_choose(void **state)
{
    (void)state;
    check_pass(FAKE_CUDA_IMAGE, true, SLICE_CHUNKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_in_one_call),
        cmocka_unit_test(rows_that_are_far_apart_go_one_by_one),
        cmocka_unit_test(rows_that_are_pinned_in_parts_go_one_by_one),
        cmocka_unit_test(rows_that_fail_are_told),
        cmocka_unit_test(a_pass_gathers_rows),
        cmocka_unit_test(a_pass_gathers_rows_at_strides_that_the_device_did_not_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
