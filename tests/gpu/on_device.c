/* on_device.c - a real GPU, where there is one: libtombolo over its memory (the suite that
 * tests/unit/cuda runs over a mock), and the kernels on the device against the digest and the codec
 * of base/. Elsewhere it is skipped, with the reason.
 *
 * Covers: intra/cuda/cuda_memory.c intra/cuda/cuda_lanes.c intra/cuda/cuda_pass.c
 * Covers: intra/cuda/cuda_patch.c intra/cuda/cuda_encode.c intra/cuda/cuda_device.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/layout/chunk_cut.h"
#include "gpu/far_reach.h"
#include "gpu/real_device.h"
#include "unit/check.h"
#include "unit/cuda/gpu_suite.h"
#include "unit/cuda/steps.h"

static struct real_device real;
static bool is_small; /* --small: sizes for compute-sanitizer, which slows kernels a hundredfold */

/* ---- the suite ---- */

static void nothing(void)
{
}

static void *alloc_here(size_t bytes)
{
    return (void *)(uintptr_t)real_device_alloc(&real, bytes);
}

static void free_here(void *device_memory)
{
    real_device_free(&real, (CUdeviceptr)(uintptr_t)device_memory);
}

static void write_here(void *device_memory, const void *from, size_t bytes)
{
    real_device_copy(&real, device_memory, from, bytes);
}

static void read_here(const void *device_memory, void *to, size_t bytes)
{
    real_device_copy(&real, to, device_memory, bytes);
}

static const struct gpu_under_test under = {nothing, nothing, alloc_here, free_here, write_here, read_here};

/* ---- a pass ---- */

static void on_landed(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    struct tb_digest *digests = ((void **)user)[0];
    const struct tb_chunk *chunks = ((void **)user)[1];
    for (uint32_t i = first; i < first + count; i++)
        digests[i] = tb_digest_of(bytes + (chunks[i].offset - chunks[first].offset), chunks[i].bytes);
}

/* P1 */
static void a_pass_copies_and_digests_what_the_device_has(void **state)
{
    (void)state;
    struct shard_on_gpu s;
    shard_open(&s, real.gpu, &under, is_small ? SHARD_SMALL : SHARD_LARGE);
    struct tb_digest *truth = calloc(s.manifest.chunk_count, sizeof *truth);
    struct tb_digest *got = calloc(s.manifest.chunk_count, sizeof *got);
    shard_digests(&s, truth);
    struct tb_shared_memory to;
    CHECK_OK(tb_shared_memory_new("test", s.manifest.bytes, &to));
    tb_gpu_pin(real.gpu, &to);
    for (int copy = 0; copy < 2; copy++) {
        const void *user[] = {got, s.manifest.chunks};
        memset(got, 0, s.manifest.chunk_count * sizeof *got);
        const struct tb_gpu_pass pass = {.manifest = &s.manifest,
                                         .from = shard_spread(&s),
                                         .to = copy ? to.bytes : NULL,
                                         .digests = got,
                                         .landed = on_landed,
                                         .user = user};
        CHECK_OK(tb_gpu_pass(s.memory, &pass));
        assert_memory_equal(got, truth, s.manifest.chunk_count * sizeof *got);
    }
    assert_memory_equal(to.bytes, s.packed, s.manifest.bytes);
    tb_shared_memory_free(&to);
    free(truth);
    free(got);
    shard_close(&s, &under);
}

/* P1: another process reads the shard by a tray (CUDA IPC), chunk by chunk, as it was sealed. */
static void another_process_reads_what_the_device_has(void **state)
{
    (void)state;
    struct shard_on_gpu s;
    struct tb_gpu_tray *tray;
    struct tb_gpu_offer offer;
    struct far_reach reader;
    shard_open(&s, real.gpu, &under, SHARD_SMALL);
    const struct tb_gpu_origin origin = {s.memory, &s.manifest, shard_spread(&s)};
    CHECK_OK(tb_gpu_tray_open(s.memory, TB_GPU_TRAY_BYTES_MAX, &tray, &offer));
    CHECK_OK(far_reach_open(&reader, &offer));
    uint8_t *got = malloc(TB_CHUNK_BYTES_MAX);
    for (uint32_t k = 0; k < s.manifest.chunk_count; k++) {
        const struct tb_chunk *c = &s.manifest.chunks[k];
        const uint64_t at = (k % 2) * (uint64_t)TB_CHUNK_BYTES_MAX;
        const struct tb_gpu_fill fill = {.offset = c->offset, .at = at, .bytes = c->bytes};
        CHECK_OK(tb_gpu_tray_fill(tray, &origin, &fill, 1));
        CHECK_OK(far_reach_copy(&reader, at, c->bytes, got));
        assert_memory_equal(got, s.packed + c->offset, c->bytes);
    }
    free(got);
    far_reach_close(&reader);
    tb_gpu_tray_close(tray, true);
    shard_close(&s, &under);
}

/* ---- kernels ---- */

static void needs_kernels(void)
{
    if (real.device->module != NULL) return;
    printf("skipped: %s\n", real.device->why_cores);
    skip();
}

/* `jobs` is host memory of `bytes`, and comes back as the kernel left it. */
static void launch(enum tb_cuda_kernel kernel, void *jobs, uint32_t count, size_t bytes)
{
    const CUdeviceptr on_device = real_device_alloc(&real, bytes);
    const CUdeviceptr scratch = real_device_alloc(&real, (size_t)count * TB_KERNEL_SCRATCH_BYTES);
    real_device_copy(&real, (void *)(uintptr_t)on_device, jobs, bytes);
    const struct tb_cuda_launch l = {
        .kernel = kernel, .jobs = on_device, .count = count, .blocks = count, .scratch = scratch};
    CHECK_OK(tb_cuda_launch(real.gpu, real.device, real.stream, &l));
    real_device_wait(&real);
    real_device_copy(&real, jobs, (const void *)(uintptr_t)on_device, bytes);
    real_device_free(&real, scratch);
    real_device_free(&real, on_device);
}

static void digests_are_the_hosts(void **state)
{
    (void)state;
    needs_kernels();
    enum { COUNT = 12, SMALL = 9 };
    static const size_t counts[COUNT] = {241,   1024,  1025,  1088,       1089,           2048,
                                         32768, 32769, 65537, (1u << 20), (1u << 20) + 1, (16u << 20) + 4095};
    const int count = is_small ? SMALL : COUNT;
    const size_t most = counts[count - 1] + 1;
    uint8_t *bytes = step_memory(most), *there = alloc_here(most), *digests = alloc_here(COUNT * 16);
    step_fill(bytes, most, 5);
    write_here(there, bytes, most);
    struct tb_digest_job jobs[COUNT];
    for (int i = 0; i < count; i++)
        jobs[i] = (struct tb_digest_job){there, counts[i], digests + 16 * i};
    launch(TB_CUDA_DIGEST, jobs, (uint32_t)count, sizeof jobs);
    struct tb_digest got[COUNT];
    read_here(digests, got, sizeof got);
    for (int i = 0; i < count; i++) {
        const struct tb_digest truth = tb_digest_of(bytes, counts[i]);
        if (!tb_digest_equal(&got[i], &truth)) fail_msg("%zu bytes", counts[i]);
    }
    free_here(digests);
    free_here(there);
    free(bytes);
}

static void check_step(const struct step *s, unsigned classes)
{
    const size_t cap = (s->count + 67) / 4 * 4; /* a kernel writes words */
    uint8_t *truth = step_memory(cap), *got = step_memory(cap);
    const size_t used = step_encode(s, classes, truth, cap);
    uint8_t *base = alloc_here(cap), *bytes = alloc_here(cap), *out = alloc_here(cap);
    write_here(base, s->base, s->count);
    write_here(bytes, s->bytes, s->count);
    struct tb_encode_job job = {.base = base,
                                .bytes = bytes,
                                .count = s->count,
                                .kind = s->kind,
                                .classes_max = classes,
                                .out = out,
                                .cap = cap};
    launch(TB_CUDA_ENCODE, &job, 1, sizeof job);
    assert_int_equal(job.used, used);
    if (used > 0) {
        read_here(out, got, used);
        assert_memory_equal(got, truth, used);
        assert_int_equal(job.changed, step_changed(s));
        struct tb_patch_job patch = {.form = out, .form_count = used, .bytes = base, .count = s->count};
        launch(TB_CUDA_PATCH, &patch, 1, sizeof patch);
        assert_true(patch.ok);
        read_here(base, got, s->count);
        assert_memory_equal(got, s->bytes, s->count);
    }
    free_here(out);
    free_here(bytes);
    free_here(base);
    free(truth);
    free(got);
}

/* P1: bit for bit what the codec writes, and patched on the device it is the version. */
static void forms_are_the_codecs(void **state)
{
    (void)state;
    needs_kernels();
    static const struct {
        enum tb_dtype dtype;
        uint32_t kind;
    } kinds[] = {{TB_DTYPE_BF16, TB_SPARSE_BF16},
                 {TB_DTYPE_F16, TB_SPARSE_F16},
                 {TB_DTYPE_F32, TB_SPARSE_F32},
                 {TB_DTYPE_F8E4, TB_SPARSE_F8},
                 {TB_DTYPE_U8, TB_SPARSE_BYTES}};
    static const size_t large[] = {3, 1023, 140003, 1048576}, small[] = {3, 1023, 20003, 36000};
    const size_t *counts = is_small ? small : large;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (size_t c = 0; c < sizeof large / sizeof large[0]; c++) {
            for (int change = NOTHING; change <= LAST_OF_ALL; change++) {
                struct step s;
                step_make(&s, kinds[k].dtype, kinds[k].kind, counts[c], (enum change)change);
                check_step(&s, 1);
                check_step(&s, 8);
                step_free(&s);
            }
        }
    }
}

static int kernels_run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_copies_and_digests_what_the_device_has),
        cmocka_unit_test(digests_are_the_hosts),
        cmocka_unit_test(forms_are_the_codecs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

static int all_run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_process_reads_what_the_device_has)};
    return kernels_run() + cmocka_run_group_tests(tests, NULL, NULL) + gpu_suite_run(&under);
}

/* One line for tests/gpu/run: the device and its driver. */
static int tell(void)
{
    const int version = real.driver.version;
    if (real.device->module == NULL) {
        printf("skipped: the GPU takes no kernels: %s\n", real.device->why_cores);
        return 77;
    }
    printf("%s, driver %d.%d\n", real.device->name, version / 1000, version % 1000 / 10);
    return 0;
}

static void usage(void)
{
    fprintf(stderr, "usage: test_gpu_device [--small | --tell]\n"
                    "  --small  the kernels alone, in sizes for compute-sanitizer\n"
                    "  --tell   prints the device; 77 and the reason where it takes no kernels\n");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], FAR_REACH_ARGUMENT) == 0) return far_reach_main();
    is_small = argc == 2 && strcmp(argv[1], "--small") == 0;
    const bool tells = argc == 2 && strcmp(argv[1], "--tell") == 0;
    if (argc > 1 && !is_small && !tells) return usage(), 2;
    const char *why = real_device_open(&real);
    if (why != NULL) {
        printf("skipped: no GPU here: %s\n", why);
        return 77;
    }
    const int code = tells ? tell() : is_small ? kernels_run() : all_run();
    real_device_close(&real);
    return code;
}
