/* gpu_speed.c - what a GPU does with weights, in GB of one version a second, against what its
 * memory and its bus give.
 *
 * Floors: a copy inside the device, and one between pinned host memory and the device each way.
 *
 * Ours: a pass that publishes from device memory (gather, digest, copy to the host); moves that
 * activate into it (whole, slices, small tensors); another process's READs by a tray (CUDA IPC);
 * a version that lands and is digested on the device, from 16 threads (whole chunks from host
 * memory, and deltas that are applied for it: bench/gpu_landing.c); the digest by itself; encoding
 * a delta in which 2 % of the BF16 elements changed by one unit (one class and eight), and patching
 * with it.
 *
 * Chunks of 1 MiB. Every rate is the median of the rounds, and the bytes of one version are
 * counted once. Needs a device: else exit code 77 and the reason. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec/sparse_kernels.h"
#include "bench/gpu_landing.h"
#include "bench/measured.h"
#include "gpu/far_reach.h"
#include "gpu/real_device.h"

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define ROUNDS_MAX  64u
#define SKIPPED     77
#define TRAY_PARTS  4u   /* of a tray, in flight at a time */
#define BLOCKS      528u /* of encode and patch at once: four for each of 132 processors */

struct bench {
    struct real_device real;
    uint64_t bytes;
    uint32_t chunks, rounds;
    uint8_t *host; /* pinned: a version */
    CUdeviceptr base, version, out, jobs, scratch, digests;
    struct tb_encode_job *encode;
    struct tb_patch_job *patch;
    struct tb_gpu_memory *memory;
    struct tb_manifest manifest;
    struct tb_shared_memory to;
    void *layout_memory, *manifest_memory;
    uint8_t *tensors[1];
    struct gpu_landing *landing; /* NULL until a version lands */
};

/* ---- a version and the one before it ---- */

/* Weights between 2^-8 and 1, then one in fifty of them a unit up or down. */
static void make_versions(struct bench *b)
{
    uint64_t seed = 1;
    uint16_t *elements = (uint16_t *)(void *)b->host;
    for (uint64_t i = 0; i < b->bytes / 2; i++)
        elements[i] = (uint16_t)((measured_random(&seed) & 0x83ff) | 0x3c00);
    real_device_copy(&b->real, (void *)(uintptr_t)b->base, b->host, b->bytes);
    for (uint64_t i = measured_random(&seed) % 100; i < b->bytes / 2; i += 1 + measured_random(&seed) % 99)
        elements[i] = (uint16_t)(elements[i] + (measured_random(&seed) % 2 == 0 ? 1 : 0xffff));
    real_device_copy(&b->real, (void *)(uintptr_t)b->version, b->host, b->bytes);
}

static void make_shard(struct bench *b)
{
    const struct tb_tensor t = {.name = "weights",
                                .dtype = TB_DTYPE_BF16,
                                .rank = 1,
                                .full = {b->bytes / 2},
                                .box_count = {b->bytes / 2}};
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(&t, 1);
    b->layout_memory = measured_given(malloc(layout_bytes));
    if (tb_layout_build(&t, 1, b->layout_memory, layout_bytes, &layout) != TB_OK) measured_end("a layout");
    const size_t bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    b->manifest_memory = measured_given(malloc(bytes));
    if (tb_manifest_build(&layout, NULL, 0, b->manifest_memory, bytes, &b->manifest) != TB_OK)
        measured_end("a manifest");
    if (tb_shared_memory_new("gpu-speed", b->bytes, &b->to) != TB_OK) measured_end("no host memory");
    tb_gpu_pin(b->real.gpu, &b->to);
    b->host = b->to.bytes;
    b->tensors[0] = (uint8_t *)(uintptr_t)b->version;
    const struct tb_gpu_tensors tensors = {&b->manifest.layout, b->tensors};
    char why[TB_GPU_WHY_BYTES];
    if (tb_gpu_memory_open(b->real.gpu, &tensors, &b->memory, why) != TB_OK) measured_end(why);
}

static void open_bench(struct bench *b)
{
    b->chunks = (uint32_t)(b->bytes / CHUNK_BYTES);
    b->base = real_device_alloc(&b->real, b->bytes);
    b->version = real_device_alloc(&b->real, b->bytes);
    b->out = real_device_alloc(&b->real, b->bytes);
    b->jobs = real_device_alloc(&b->real, b->chunks * sizeof(struct tb_encode_job));
    b->scratch = real_device_alloc(&b->real, (size_t)BLOCKS * TB_KERNEL_SCRATCH_BYTES);
    b->digests = real_device_alloc(&b->real, (size_t)b->chunks * TB_DIGEST_BYTES);
    b->encode = measured_given(calloc(b->chunks, sizeof *b->encode));
    b->patch = measured_given(calloc(b->chunks, sizeof *b->patch));
    make_shard(b);
    make_versions(b); /* so that every row moves what weights are like */
}

static void close_bench(struct bench *b)
{
    gpu_landing_free(b->landing);
    tb_gpu_memory_close(b->memory);
    tb_shared_memory_free(&b->to);
    const CUdeviceptr all[] = {b->base, b->version, b->out, b->jobs, b->scratch, b->digests};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        real_device_free(&b->real, all[i]);
    free(b->encode);
    free(b->patch);
    free(b->manifest_memory);
    free(b->layout_memory);
    real_device_close(&b->real);
}

static const uint8_t *chunk_of(CUdeviceptr version, uint32_t i)
{
    return (const uint8_t *)(uintptr_t)version + CHUNK_BYTES * i;
}

/* ---- what is measured: seconds of one round ---- */

static double copy(struct bench *b, void *to, const void *from)
{
    const double began = measured_now_s();
    real_device_copy(&b->real, to, from, b->bytes);
    return measured_now_s() - began;
}

static double in_device(struct bench *b)
{
    return copy(b, (void *)(uintptr_t)b->out, (const void *)(uintptr_t)b->version);
}

static double to_device(struct bench *b)
{
    return copy(b, (void *)(uintptr_t)b->version, b->host);
}

static double to_host(struct bench *b)
{
    return copy(b, b->host, (const void *)(uintptr_t)b->version);
}

static void on_landed(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    struct bench *b = user;
    for (uint32_t i = first; i < first + count; i++, bytes += b->manifest.chunks[i - 1].bytes)
        b->manifest.digests[i] = tb_digest_of(bytes, b->manifest.chunks[i].bytes);
}

static double publish(struct bench *b)
{
    const double began = measured_now_s();
    const struct tb_gpu_pass pass = {.manifest = &b->manifest,
                                     .from = {.layout = &b->manifest.layout, .tensors = b->tensors},
                                     .to = b->host,
                                     .digests = b->manifest.digests,
                                     .landed = on_landed,
                                     .user = b};
    if (tb_gpu_pass(b->memory, &pass) != TB_OK) measured_end("a pass failed");
    return measured_now_s() - began;
}

static double activate(struct bench *b)
{
    const double began = measured_now_s();
    const struct tb_gpu_rows all = {.row = {b->tensors[0], b->host, b->bytes}};
    if (tb_gpu_move(b->memory, &all, 1) != TB_OK) measured_end("a move failed");
    return measured_now_s() - began;
}

/* Two column slices of rows of 8 KiB, one behind the other on the device. */
static double activate_slices(struct bench *b)
{
    const uint64_t row = 4096, rows = b->bytes / (2 * row);
    const struct tb_gpu_rows left = {.row = {b->tensors[0], b->host, row},
                                     .rows = rows,
                                     .to_stride = row,
                                     .from_stride = 2 * row},
                             right = {.row = {b->tensors[0] + rows * row, b->host + row, row},
                                      .rows = rows,
                                      .to_stride = row,
                                      .from_stride = 2 * row};
    const struct tb_gpu_rows both[] = {left, right};
    const double began = measured_now_s();
    if (tb_gpu_move(b->memory, both, 2) != TB_OK) measured_end("a move of rows failed");
    return measured_now_s() - began;
}

/* As tensors of 2.5 KiB, none behind the one before it: a hundred thousand of them are 256 MB. */
static double activate_small(struct bench *b)
{
    const uint64_t each = 2560, count = b->bytes / each;
    struct tb_gpu_rows *moves = measured_given(calloc(count, sizeof *moves));
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t to = i < count / 2 ? 2 * i + 1 : 2 * (i - count / 2);
        moves[i] = (struct tb_gpu_rows){.row = {b->tensors[0] + to * each, b->host + i * each, each}};
    }
    const double began = measured_now_s();
    if (tb_gpu_move(b->memory, moves, (uint32_t)count) != TB_OK) measured_end("a move of small ones failed");
    const double took = measured_now_s() - began;
    free(moves);
    return took;
}

static double launch(struct bench *b, enum tb_cuda_kernel kernel, void *jobs, size_t job_bytes)
{
    real_device_copy(&b->real, (void *)(uintptr_t)b->jobs, jobs, b->chunks * job_bytes);
    const struct tb_cuda_launch l = {.kernel = kernel,
                                     .jobs = b->jobs,
                                     .count = b->chunks,
                                     .blocks = kernel == TB_CUDA_DIGEST ? b->chunks : BLOCKS,
                                     .scratch = b->scratch};
    const double began = measured_now_s();
    if (tb_cuda_launch(b->real.gpu, b->real.device, b->real.stream, &l) != TB_OK)
        measured_end("a launch failed");
    real_device_wait(&b->real);
    const double took = measured_now_s() - began;
    real_device_copy(&b->real, jobs, (const void *)(uintptr_t)b->jobs, b->chunks * job_bytes);
    return took;
}

static double digest(struct bench *b)
{
    struct tb_digest_job *jobs = measured_given(calloc(b->chunks, sizeof *jobs));
    for (uint32_t i = 0; i < b->chunks; i++)
        jobs[i] = (struct tb_digest_job){chunk_of(b->version, i), CHUNK_BYTES,
                                         (uint8_t *)(uintptr_t)b->digests + (size_t)TB_DIGEST_BYTES * i};
    const double took = launch(b, TB_CUDA_DIGEST, jobs, sizeof *jobs);
    free(jobs);
    return took;
}

static double encode(struct bench *b, uint32_t classes)
{
    for (uint32_t i = 0; i < b->chunks; i++)
        b->encode[i] = (struct tb_encode_job){.base = chunk_of(b->base, i),
                                              .bytes = chunk_of(b->version, i),
                                              .count = CHUNK_BYTES,
                                              .kind = TB_SPARSE_BF16,
                                              .classes_max = classes,
                                              .out = (uint8_t *)(uintptr_t)chunk_of(b->out, i),
                                              .cap = CHUNK_BYTES};
    const double took = launch(b, TB_CUDA_ENCODE, b->encode, sizeof *b->encode);
    for (uint32_t i = 0; i < b->chunks; i++)
        if (b->encode[i].used == 0) measured_end("a chunk was not encoded");
    return took;
}

static double encode_one(struct bench *b)
{
    return encode(b, 1);
}

static double encode_eight(struct bench *b)
{
    return encode(b, 8);
}

/* The delta that was encoded last is in `out`; the base is patched, and brought back for the
 * next round. */
static double patch(struct bench *b)
{
    (void)encode(b, 8);
    uint8_t *before = measured_given(malloc(b->bytes));
    real_device_copy(&b->real, before, (const void *)(uintptr_t)b->base, b->bytes);
    for (uint32_t i = 0; i < b->chunks; i++)
        b->patch[i] = (struct tb_patch_job){.form = chunk_of(b->out, i),
                                            .form_count = b->encode[i].used,
                                            .bytes = (uint8_t *)(uintptr_t)chunk_of(b->base, i),
                                            .count = CHUNK_BYTES};
    const double took = launch(b, TB_CUDA_PATCH, b->patch, sizeof *b->patch);
    for (uint32_t i = 0; i < b->chunks; i++)
        if (!b->patch[i].ok) measured_end("a form was refused");
    real_device_copy(&b->real, (void *)(uintptr_t)b->base, before, b->bytes);
    free(before);
    return took;
}

static void take_answer(struct far_reach *reader, uint32_t *answered)
{
    if (far_reach_answer(reader) != TB_OK) measured_end("a copy out of the tray failed");
    ++*answered;
}

/* Out of this process's device into the host memory of another, by a tray of several parts: one is
 * filled while others are copied out, as by a hop. */
static double by_tray(struct bench *b)
{
    struct tb_gpu_tray *tray;
    struct tb_gpu_offer offer;
    struct far_reach reader;
    const struct tb_gpu_origin origin = {
        b->memory, &b->manifest, {.layout = &b->manifest.layout, .tensors = b->tensors}};
    if (tb_gpu_tray_open(b->memory, TB_GPU_TRAY_BYTES_MAX, &tray, &offer) != TB_OK) measured_end("no tray");
    if (far_reach_open(&reader, &offer) != TB_OK)
        measured_end("the tray cannot be opened by another process");
    const uint64_t part = TB_GPU_TRAY_BYTES_MAX / TRAY_PARTS;
    const double from = measured_now_s();
    uint32_t asked = 0, answered = 0;
    for (uint64_t done = 0; done < b->bytes; asked++) {
        const uint64_t left = b->bytes - done, bytes = left < part ? left : part;
        const struct tb_gpu_fill fill = {.offset = done, .at = asked % TRAY_PARTS * part, .bytes = bytes};
        if (asked - answered == TRAY_PARTS) take_answer(&reader, &answered);
        if (tb_gpu_tray_fill(tray, &origin, &fill, 1) != TB_OK) measured_end("a fill failed");
        far_reach_ask(&reader, fill.at, bytes);
        done += bytes;
    }
    while (answered < asked)
        take_answer(&reader, &answered);
    const double took = measured_now_s() - from;
    far_reach_close(&reader);
    tb_gpu_tray_close(tray, true);
    return took;
}

/* A version lands from 16 threads, from memory that no device has pinned. */
static struct gpu_landing *landing(struct bench *b)
{
    if (b->landing == NULL) b->landing = gpu_landing_new(&b->real, b->memory, b->tensors[0], b->bytes);
    return b->landing;
}

static void make_landing(struct bench *b)
{
    make_versions(b);
    gpu_landing_fill(landing(b), b->host);
}

static void make_deltas(struct bench *b)
{
    make_landing(b);
    gpu_landing_encode(landing(b), (const void *)(uintptr_t)b->base);
}

static double stage(struct bench *b)
{
    return gpu_landing_stage(landing(b));
}

static double prove(struct bench *b)
{
    return gpu_landing_prove(landing(b));
}

/* ---- rows ---- */

enum { IN_DEVICE, TO_DEVICE, TO_HOST };

static const struct row {
    const char *key;
    double (*run)(struct bench *b);
    int floor; /* a row above */
    bool kernel;
    void (*make)(struct bench *b); /* its data, as rows above move bytes; NULL: any will do */
} rows[] = {{"floor.in_device", in_device, IN_DEVICE, false, NULL},
            {"floor.to_device", to_device, TO_DEVICE, false, NULL},
            {"floor.to_host", to_host, TO_HOST, false, NULL},
            {"gpu.publish", publish, TO_HOST, false, NULL},
            {"gpu.activate", activate, TO_DEVICE, false, NULL},
            {"gpu.activate.slices", activate_slices, TO_DEVICE, false, NULL},
            {"gpu.activate.small", activate_small, TO_DEVICE, true, NULL},
            {"gpu.tray", by_tray, TO_HOST, false, NULL},
            {"gpu.stage", stage, TO_DEVICE, true, make_landing},
            {"gpu.digest", digest, IN_DEVICE, true, NULL},
            {"gpu.encode.gaps", encode_one, IN_DEVICE, true, make_versions},
            {"gpu.encode.classes", encode_eight, IN_DEVICE, true, make_versions},
            {"gpu.patch", patch, IN_DEVICE, true, make_versions},
            {"gpu.prove", prove, IN_DEVICE, true, make_deltas}};
#define ROWS (sizeof rows / sizeof rows[0])

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double gb_per_s(struct bench *b, const struct row *row)
{
    double took[ROUNDS_MAX] = {0};
    if (row->make != NULL) row->make(b);
    (void)row->run(b); /* the first time makes what stays */
    for (uint32_t i = 0; i < b->rounds; i++)
        took[i] = row->run(b);
    qsort(took, b->rounds, sizeof took[0], by_size);
    return (double)b->bytes / took[b->rounds / 2] / 1e9;
}

static void print_rows(struct bench *b, bool json)
{
    double rates[ROWS];
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(b->memory, &facts);
    if (json)
        printf("{\"device\":\"%s\",\"driver\":%d,\"bytes\":%llu,\"rounds\":%u,\"digests\":\"%s\",\"rows\":[",
               facts.name, b->real.driver.version, (unsigned long long)b->bytes, b->rounds, facts.digests);
    else
        printf("%s, driver %d.%d, %llu bytes, median of %u rounds, digests: %s\n", facts.name,
               b->real.driver.version / 1000, b->real.driver.version % 1000 / 10,
               (unsigned long long)b->bytes, b->rounds, facts.digests);
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        rates[i] = 0;
        if (row->kernel && b->real.device->module == NULL) continue;
        rates[i] = gb_per_s(b, row);
        const double floor = rates[row->floor];
        if (json)
            printf("%s{\"key\":\"%s\",\"gb_per_s\":%.2f,\"against\":\"%s\",\"ratio\":%.3f}",
                   i == 0 ? "" : ",", row->key, rates[i], rows[row->floor].key, rates[i] / floor);
        else
            printf("%-20s %9.2f GB/s  %6.3f of %s\n", row->key, rates[i], rates[i] / floor,
                   rows[row->floor].key);
        fflush(stdout); /* should a later row stand still, this one is told */
    }
    if (json) printf("]}\n");
}

static void usage(FILE *to)
{
    fprintf(to, "usage: tombolo-gpu-speed [--bytes N] [--rounds N] [--json]\n"
                "  --bytes N   of one version; rounded down to MiB (default 1073741824); the device holds "
                "four of them\n"
                "  --rounds N  1 to 64 (default 5)\n"
                "  --json      one JSON object on stdout\n"
                "Exit codes: 0 done, 1 failed, 2 the command line, 77 no GPU here.\n"
                "Example: tombolo-gpu-speed --bytes 4294967296 --json\n");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"bytes", required_argument, NULL, 'b'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    if (argc == 2 && strcmp(argv[1], FAR_REACH_ARGUMENT) == 0) return far_reach_main();
    struct bench b = {.bytes = (uint64_t)1 << 30, .rounds = 5};
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'b')
            b.bytes = strtoull(optarg, NULL, 10) / CHUNK_BYTES * CHUNK_BYTES;
        else if (c == 'r')
            b.rounds = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 'j')
            json = true;
        else
            return usage(c == 'h' ? stdout : stderr), c == 'h' ? 0 : 2;
    }
    if (b.bytes < CHUNK_BYTES || b.rounds < 1 || b.rounds > ROUNDS_MAX || optind != argc)
        return usage(stderr), 2;
    const char *why = real_device_open(&b.real);
    if (why != NULL) {
        fprintf(stderr, "gpu_speed: skipped: no GPU here: %s\n", why);
        return SKIPPED;
    }
    open_bench(&b);
    print_rows(&b, json);
    close_bench(&b);
    return 0;
}
