/* codec_speed.c - what a codec of base/ makes of weights: how many bytes, and how fast on one core.
 *
 * The elements of one version, or of a version and its base, are tiled to --bytes, so that neither
 * stands in a cache. Chunks of 1 MiB are encoded one behind another and decoded again, and the
 * result is compared. A delta is decoded as a link does it: from the base into other memory. The
 * floor moves the same bytes: a memcpy, or a scan that reads both versions and counts the words
 * that differ.
 *
 * Prints one JSON line: {"bytes", "memcpy_s", "full": {"coded", "encode_s", "decode_s"}}, or for a
 * step {"bytes", "changed", "scan_s", "classes": {...}, "gaps": {...}, "dense": {...}}. */
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/codec/codec.h"
#include "bench/measured.h"

#define CHUNK_BYTES ((size_t)1 << 20)

struct forms {
    uint8_t *bytes; /* of all chunks, one behind another */
    size_t used, cap;
    uint32_t *count; /* of each chunk */
    struct tb_codec_form *form;
};

struct timed {
    size_t coded;
    double encode_s, decode_s;
};

/* The bytes of a file behind `skip`, again and again until there are `bytes` (0: once). */
static uint8_t *tiled(const char *path, size_t skip, size_t *bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) measured_die(path);
    if ((size_t)st.st_size <= skip) exit(2);
    const size_t one = ((size_t)st.st_size - skip) / 2 * 2;
    const uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) measured_die(path);
    if (*bytes == 0) *bytes = one;
    uint8_t *m = measured_memory(*bytes, 0);
    for (size_t at = 0; at < *bytes; at += one)
        memcpy(m + at, map + skip, *bytes - at < one ? *bytes - at : one);
    munmap((void *)(uintptr_t)map, (size_t)st.st_size);
    close(fd);
    return m;
}

static size_t chunk_at(size_t bytes, size_t at)
{
    return bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
}

static struct forms forms_new(size_t bytes)
{
    const size_t chunks = bytes / CHUNK_BYTES + 1;
    struct forms f = {.cap = bytes + bytes / 8 + 2 * CHUNK_BYTES};
    f.bytes = measured_memory(f.cap, 0);
    f.count = calloc(chunks, sizeof *f.count);
    f.form = calloc(chunks, sizeof *f.form);
    if (f.count == NULL || f.form == NULL) measured_die("codec_speed: calloc");
    return f;
}

static void forms_free(struct forms *f)
{
    munmap(f->bytes, f->cap);
    free(f->count);
    free(f->form);
}

static void must_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    if (memcmp(a, b, bytes) == 0) return;
    fputs("codec_speed: what was decoded differs\n", stderr);
    exit(1);
}

/* ---- a step ---- */

/* Written so that compilers make vectors of it. */
static size_t scan(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    const uint64_t *x = (const uint64_t *)(const void *)a, *y = (const uint64_t *)(const void *)b;
    size_t differ = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        differ += x[i] != y[i];
    return differ;
}

static size_t changed_elements(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    const uint16_t *x = (const uint16_t *)(const void *)a, *y = (const uint16_t *)(const void *)b;
    size_t differ = 0;
    for (size_t i = 0; i < bytes / 2; i++)
        differ += x[i] != y[i];
    return differ;
}

/* The bytes that are coded, and how. */
struct job {
    const uint8_t *base, *version; /* base NULL: a full copy */
    size_t bytes;
    struct tb_codec_form form;
    unsigned classes;
};

static struct tb_codec *codec;

static void job_encode(const struct job *job, struct forms *f)
{
    f->used = 0;
    for (size_t at = 0, k = 0; at < job->bytes; at += CHUNK_BYTES, k++) {
        const struct tb_codec_input in = {.bytes = job->version + at,
                                          .count = chunk_at(job->bytes, at),
                                          .dtype = TB_DTYPE_BF16,
                                          .base = job->base == NULL ? NULL : job->base + at,
                                          .classes = job->classes};
        const struct tb_codec_room room = {f->bytes + f->used, f->cap - f->used};
        struct tb_codec_coded coded;
        if (tb_codec_encode(codec, job->form, &in, room, &coded) != TB_OK) exit(1);
        f->form[k] = coded.form;
        f->count[k] = (uint32_t)coded.count;
        f->used += coded.count;
    }
}

static void job_decode(const struct job *job, const struct forms *f, uint8_t *elements)
{
    const uint8_t *bytes = f->bytes;
    for (size_t at = 0, k = 0; at < job->bytes; at += CHUNK_BYTES, k++) {
        const struct tb_codec_coded coded = {f->form[k], bytes, f->count[k]};
        const struct tb_codec_output out = {elements + at, chunk_at(job->bytes, at),
                                            job->base == NULL ? NULL : job->base + at};
        if (tb_codec_decode(codec, &coded, &out) != TB_OK) exit(1);
        bytes += coded.count;
    }
}

static struct timed job_time(const struct job *job)
{
    struct forms f = forms_new(job->bytes);
    uint8_t *elements = measured_memory(job->bytes, 0);
    const double start = measured_now_s();
    job_encode(job, &f);
    const double between = measured_now_s();
    job_decode(job, &f, elements);
    const struct timed t = {f.used, between - start, measured_now_s() - between};
    must_equal(elements, job->version, job->bytes);
    munmap(elements, job->bytes);
    forms_free(&f);
    return t;
}

static void timed_print(const char *name, struct timed t)
{
    printf(", \"%s\": {\"coded\": %zu, \"encode_s\": %.6f, \"decode_s\": %.6f}", name, t.coded, t.encode_s,
           t.decode_s);
}

static int step(const char *base_path, const char *version_path, size_t skip, size_t bytes)
{
    const uint8_t *base = tiled(base_path, skip, &bytes), *version = tiled(version_path, skip, &bytes);
    const double start = measured_now_s();
    const size_t words = scan(base, version, bytes);
    const double scan_s = measured_now_s() - start;
    const size_t changed = changed_elements(base, version, bytes);
    if (words > changed) return 1;
    const struct tb_codec_form sparse = {TB_CODEC_SPARSE, true}, dense = {TB_CODEC_PLANES, true};
    printf("{\"bytes\": %zu, \"changed\": %zu, \"scan_s\": %.6f", bytes, changed, scan_s);
    timed_print("classes", job_time(&(struct job){base, version, bytes, sparse, 0}));
    timed_print("gaps", job_time(&(struct job){base, version, bytes, sparse, 1}));
    timed_print("dense", job_time(&(struct job){base, version, bytes, dense, 0}));
    printf("}\n");
    return 0;
}

static int full(const char *path, size_t skip, size_t bytes)
{
    const uint8_t *version = tiled(path, skip, &bytes);
    uint8_t *elements = measured_memory(bytes, 0);
    const double start = measured_now_s();
    memcpy(elements, version, bytes);
    const double copied = measured_now_s() - start;
    must_equal(elements, version, bytes);
    munmap(elements, bytes);
    printf("{\"bytes\": %zu, \"memcpy_s\": %.6f", bytes, copied);
    timed_print("full", job_time(&(struct job){NULL, version, bytes, {TB_CODEC_PLANES, false}, 0}));
    printf("}\n");
    return 0;
}

static const char usage[] =
    "Usage: tombolo-codec-speed --version FILE [--base FILE] [--skip N] [--bytes N]\n"
    "What the codecs make of bf16 weights. --base: of the step from it; else of a full copy. --skip: bytes "
    "of a header.\n"
    "--bytes: the files are repeated until there are so many (default: once).\n"
    "Example: tombolo-codec-speed --base v0.bf16 --version v1.bf16 --bytes 1073741824\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {{"version", 1, NULL, 'v'}, {"base", 1, NULL, 'b'},
                                            {"skip", 1, NULL, 's'},    {"bytes", 1, NULL, 'n'},
                                            {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    const char *version = NULL, *base = NULL;
    size_t skip = 0, bytes = 0;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case 'v':
            version = optarg;
            break;
        case 'b':
            base = optarg;
            break;
        case 's':
            skip = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            bytes = strtoull(optarg, NULL, 10) / 2 * 2;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            version = NULL;
            optind = argc;
            break;
        }
    }
    if (version == NULL) {
        fputs(usage, stderr);
        return 2;
    }
    if (tb_codec_new(&codec) != TB_OK) return 1;
    return base != NULL ? step(base, version, skip, bytes) : full(version, skip, bytes);
}
