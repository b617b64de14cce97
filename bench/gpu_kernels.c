/* gpu_kernels.c - the kernels of a delta by themselves, over how many chunks one launch has and how
 * many elements changed: in GB of version a second and in microseconds a launch.
 *
 * A version of BF16 weights in chunks of 1 MiB. Of its elements one in 50, or as asked, moved by a
 * unit. Each figure is the median of the rounds. Needs a device: else exit code 77 and the
 * reason. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec/sparse_kernels.h"
#include "bench/measured.h"
#include "gpu/real_device.h"

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define CHUNKS_MAX  1024u
#define ROUNDS      7
#define SKIPPED     77

struct bench {
    struct real_device real;
    CUdeviceptr base, version, out, target, jobs, scratch;
    struct tb_encode_job encode[CHUNKS_MAX];
    struct tb_patch_job patch[CHUNKS_MAX];
    uint32_t one_in;
};

static void make_versions(struct bench *b)
{
    const uint64_t bytes = CHUNKS_MAX * CHUNK_BYTES;
    uint64_t seed = 1;
    uint16_t *elements = malloc(bytes);
    if (elements == NULL) measured_end("no memory");
    for (uint64_t i = 0; i < bytes / 2; i++)
        elements[i] = (uint16_t)((measured_random(&seed) & 0x83ff) | 0x3c00);
    real_device_copy(&b->real, (void *)(uintptr_t)b->base, elements, bytes);
    for (uint64_t i = 0; i < bytes / 2; i += 1 + measured_random(&seed) % (2 * b->one_in - 1))
        elements[i] = (uint16_t)(elements[i] + (measured_random(&seed) % 2 == 0 ? 1 : 0xffff));
    real_device_copy(&b->real, (void *)(uintptr_t)b->version, elements, bytes);
    free(elements);
}

static uint8_t *chunk_of(CUdeviceptr at, uint32_t i)
{
    return (uint8_t *)(uintptr_t)at + CHUNK_BYTES * i;
}

static double launch(struct bench *b, enum tb_cuda_kernel kernel, void *jobs, size_t job_bytes,
                     uint32_t count)
{
    real_device_copy(&b->real, (void *)(uintptr_t)b->jobs, jobs, count * job_bytes);
    const struct tb_cuda_launch l = {
        .kernel = kernel, .jobs = b->jobs, .count = count, .blocks = count, .scratch = b->scratch};
    const double began = measured_now_s();
    if (tb_cuda_launch(b->real.gpu, b->real.device, b->real.stream, &l) != TB_OK)
        measured_end("a launch failed");
    real_device_wait(&b->real);
    const double took = measured_now_s() - began;
    real_device_copy(&b->real, jobs, (const void *)(uintptr_t)b->jobs, count * job_bytes);
    return took;
}

static double encode(struct bench *b, uint32_t classes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        b->encode[i] = (struct tb_encode_job){.base = chunk_of(b->base, i),
                                              .bytes = chunk_of(b->version, i),
                                              .count = CHUNK_BYTES,
                                              .kind = TB_SPARSE_BF16,
                                              .classes_max = classes,
                                              .out = chunk_of(b->out, i),
                                              .cap = CHUNK_BYTES};
    const double took = launch(b, TB_CUDA_ENCODE, b->encode, sizeof *b->encode, count);
    for (uint32_t i = 0; i < count; i++)
        if (b->encode[i].used == 0) measured_end("a chunk was not encoded");
    return took;
}

/* With what was encoded last. */
static double patch(struct bench *b, uint32_t classes, uint32_t count)
{
    (void)classes;
    real_device_copy(&b->real, (void *)(uintptr_t)b->target, (const void *)(uintptr_t)b->base,
                     count * CHUNK_BYTES);
    for (uint32_t i = 0; i < count; i++)
        b->patch[i] = (struct tb_patch_job){.form = chunk_of(b->out, i),
                                            .form_count = b->encode[i].used,
                                            .bytes = chunk_of(b->target, i),
                                            .count = CHUNK_BYTES};
    const double took = launch(b, TB_CUDA_PATCH, b->patch, sizeof *b->patch, count);
    for (uint32_t i = 0; i < count; i++)
        if (!b->patch[i].ok) measured_end("a form was refused");
    return took;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static void row(struct bench *b, const char *name, double (*run)(struct bench *b, uint32_t, uint32_t),
                uint32_t classes)
{
    static const uint32_t counts[] = {16, 64, 128, 256, 512, CHUNKS_MAX};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        double took[ROUNDS];
        (void)run(b, classes, counts[c]);
        for (int i = 0; i < ROUNDS; i++)
            took[i] = run(b, classes, counts[c]);
        qsort(took, ROUNDS, sizeof took[0], by_size);
        const double s = took[ROUNDS / 2];
        printf("%-8s one in %-4u classes %-2u chunks %-4u %9.1f us %9.1f GB/s\n", name, b->one_in, classes,
               counts[c], s * 1e6, (double)(counts[c] * CHUNK_BYTES) / s / 1e9);
    }
}

static void open_bench(struct bench *b)
{
    const size_t bytes = CHUNKS_MAX * CHUNK_BYTES;
    CUdeviceptr *const all[] = {&b->base, &b->version, &b->out, &b->target};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        *all[i] = real_device_alloc(&b->real, bytes);
    b->jobs = real_device_alloc(&b->real, sizeof b->encode);
    b->scratch = real_device_alloc(&b->real, (size_t)CHUNKS_MAX * TB_KERNEL_SCRATCH_BYTES);
    if (b->real.device->module == NULL) measured_end(b->real.device->why_cores);
    printf("%s: at a time %u blocks that encode, %u that patch\n", b->real.device->name,
           b->real.device->blocks[TB_CUDA_ENCODE], b->real.device->blocks[TB_CUDA_PATCH]);
}

static void usage(FILE *to)
{
    fprintf(to, "usage: tombolo-gpu-kernels [--one-in N]\n"
                "  --one-in N  of so many elements one changed, 2 to 100000 (default 50)\n"
                "Exit codes: 0 done, 1 failed, 2 the command line, 77 no GPU here.\n");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"one-in", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    static struct bench b = {.one_in = 50};
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c != 'o') return usage(c == 'h' ? stdout : stderr), c == 'h' ? 0 : 2;
        b.one_in = (uint32_t)strtoul(optarg, NULL, 10);
    }
    if (b.one_in < 2 || b.one_in > 100000 || optind != argc) return usage(stderr), 2;
    const char *why = real_device_open(&b.real);
    if (why != NULL) {
        fprintf(stderr, "gpu_kernels: skipped: no GPU here: %s\n", why);
        return SKIPPED;
    }
    open_bench(&b);
    make_versions(&b);
    row(&b, "encode", encode, 1);
    row(&b, "patch", patch, 1);
    row(&b, "encode", encode, 8);
    row(&b, "patch", patch, 8);
    return 0;
}
