/* make_weights.c - tombolo-make-weights: files of made weights for tests, benches and the
 * quickstart. The numbers are weights.c's; this writes them as v0000.safetensors ... with a few
 * threads, every block of all versions at once. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/weights.h"

#define THREADS_MAX 64

struct writing {
    struct tb_weights weights;
    int files[TB_WEIGHTS_VERSIONS_MAX];
    uint64_t header_bytes;
    atomic_uint_fast64_t next; /* block to be made next, counted over all tensors */
    uint64_t block_count;
    atomic_int error; /* errno of the first failure */
};

static const char usage_text[] = "usage: tombolo-make-weights --out DIR [--bytes 256M] [--versions 6] [--lr "
                                 "1e-6] [--seed 1] [--threads N]\n"
                                 "Writes DIR/v0000.safetensors, v0001 ...: a bf16 transformer with the "
                                 "statistics of real weights, and casts of it\n"
                                 "after each step of an optimizer. The same options write the same bytes.\n"
                                 "Example: tombolo-make-weights --out /tmp/weights --bytes 16M --versions 3\n"
                                 "Exit codes: 0 done, 1 a file cannot be written, 2 usage.\n";

static bool write_all(int fd, const void *bytes, size_t count, uint64_t at)
{
    const char *from = bytes;
    while (count > 0) {
        const ssize_t wrote = pwrite(fd, from, count, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        from += wrote;
        at += (uint64_t)wrote;
        count -= (size_t)wrote;
    }
    return true;
}

/* The prefix and the JSON, padded with spaces to 8 bytes as the format's own library does. */
static char *header_of(const struct tb_weights *w, uint64_t *bytes_out)
{
    const size_t cap = 8 + 64 + (size_t)w->tensor_count * (TB_WEIGHTS_NAME_MAX + 160);
    char *header = calloc(1, cap);
    if (header == NULL) return NULL;
    size_t used = 8;
    used += (size_t)snprintf(header + used, cap - used, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < w->tensor_count; i++) {
        const struct tb_weights_tensor *t = &w->tensors[i];
        char shape[48];
        if (t->rank == 2)
            (void)snprintf(shape, sizeof shape, "%" PRIu64 ",%" PRIu64 "", t->shape[0], t->shape[1]);
        else
            (void)snprintf(shape, sizeof shape, "%" PRIu64 "", t->shape[0]);
        used += (size_t)snprintf(header + used, cap - used,
                                 ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                                 ",%" PRIu64 "]}",
                                 t->name, shape, t->begin, (t->begin + t->elements * 2));
    }
    header[used++] = '}';
    while (used % 8 != 0)
        header[used++] = ' ';
    for (int i = 0; i < 8; i++)
        header[i] = (char)((uint64_t)(used - 8) >> (8 * i));
    *bytes_out = used;
    return header;
}

/* Which tensor block `index` of all belongs to. Tensors are few; blocks are 32768
 * elements of work each. */
static uint32_t tensor_of(const struct tb_weights *w, uint64_t *index)
{
    uint32_t tensor = 0;
    while (*index >= tb_weights_blocks(&w->tensors[tensor]))
        *index -= tb_weights_blocks(&w->tensors[tensor++]);
    return tensor;
}

static void *make_blocks(void *argument)
{
    struct writing *w = argument;
    uint16_t *out[TB_WEIGHTS_VERSIONS_MAX] = {NULL};
    uint16_t *memory = malloc(sizeof(uint16_t) * TB_WEIGHTS_BLOCK * w->weights.options.versions);
    if (memory == NULL) {
        atomic_store(&w->error, ENOMEM);
        return NULL;
    }
    for (uint32_t v = 0; v < w->weights.options.versions; v++)
        out[v] = memory + (size_t)v * TB_WEIGHTS_BLOCK;
    for (;;) {
        uint64_t block = atomic_fetch_add(&w->next, 1);
        if (block >= w->block_count || atomic_load(&w->error) != 0) break;
        const uint32_t tensor = tensor_of(&w->weights, &block);
        const uint32_t count = tb_weights_block(&w->weights, tensor, block, out);
        const uint64_t at = w->header_bytes + w->weights.tensors[tensor].begin + block * TB_WEIGHTS_BLOCK * 2;
        for (uint32_t v = 0; v < w->weights.options.versions; v++)
            if (!write_all(w->files[v], out[v], count * 2u, at))
                atomic_store(&w->error, errno != 0 ? errno : EIO);
    }
    free(memory);
    return NULL;
}

static int open_file(const char *dir, uint32_t version)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/v%04u.safetensors", dir, version) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

static bool open_files(struct writing *w, const char *dir)
{
    char *header = header_of(&w->weights, &w->header_bytes);
    if (header == NULL) return false;
    bool good = true;
    for (uint32_t v = 0; v < w->weights.options.versions && good; v++) {
        w->files[v] = open_file(dir, v);
        good = w->files[v] >= 0 && write_all(w->files[v], header, w->header_bytes, 0);
    }
    free(header);
    return good;
}

static void run_threads(struct writing *w, unsigned threads)
{
    pthread_t handles[THREADS_MAX];
    unsigned started = 0;
    while (started + 1 < threads && pthread_create(&handles[started], NULL, make_blocks, w) == 0)
        started++;
    (void)make_blocks(w); /* this thread works too, so it goes on where no other could be started */
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(handles[i], NULL);
}

static bool write_weights(struct writing *w, const char *dir, unsigned threads)
{
    if (mkdir(dir, 0755) != 0 && errno != EEXIST) return false;
    if (!open_files(w, dir)) return false;
    for (uint32_t i = 0; i < w->weights.tensor_count; i++)
        w->block_count += tb_weights_blocks(&w->weights.tensors[i]);
    run_threads(w, threads);
    for (uint32_t v = 0; v < w->weights.options.versions; v++)
        if (close(w->files[v]) != 0) atomic_store(&w->error, errno);
    errno = atomic_load(&w->error);
    return errno == 0;
}

/* "256M": a number and K, M or G (powers of 1024). 0 when it is not that. */
static uint64_t bytes_of(const char *text)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (*end == 'K') shift = 10;
    if (*end == 'M') shift = 20;
    if (*end == 'G') shift = 30;
    if (shift != 0) end++;
    if (errno != 0 || *text == '-' || end == text || *end != '\0' || value > UINT64_MAX >> shift) return 0;
    return (uint64_t)value << shift;
}

static unsigned cores(void)
{
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > THREADS_MAX ? THREADS_MAX : (unsigned)count;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"out", required_argument, NULL, 'o'},      {"bytes", required_argument, NULL, 'b'},
        {"versions", required_argument, NULL, 'v'}, {"lr", required_argument, NULL, 'l'},
        {"seed", required_argument, NULL, 's'},     {"threads", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    struct tb_weights_options options = {.bytes = 256u << 20, .versions = 6, .seed = 1, .lr = 1e-6};
    const char *dir = NULL;
    unsigned threads = cores();
    for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        switch (c) {
        case 'o':
            dir = optarg;
            break;
        case 'b':
            options.bytes = bytes_of(optarg);
            break;
        case 'v':
            options.versions = (uint32_t)bytes_of(optarg);
            break;
        case 'l':
            options.lr = strtod(optarg, NULL);
            break;
        case 's':
            options.seed = strtoull(optarg, NULL, 10);
            break;
        case 't':
            threads = (unsigned)bytes_of(optarg);
            break;
        case 'h':
            (void)fputs(usage_text, stdout);
            return 0;
        default:
            (void)fputs(usage_text, stderr);
            return 2;
        }
    }
    static struct writing w;
    if (dir == NULL || optind != argc || threads < 1 || threads > THREADS_MAX ||
        tb_weights_new(&options, &w.weights) != TB_OK) {
        (void)fputs(usage_text, stderr);
        return 2;
    }
    if (!write_weights(&w, dir, threads)) {
        (void)fprintf(stderr, "tombolo-make-weights: %s: %s\n", dir, strerror(errno));
        return 1;
    }
    (void)printf("%u versions of %u tensors, %" PRIu64 " bytes each, in %s\n", options.versions,
                 w.weights.tensor_count, (w.header_bytes + w.weights.data_bytes), dir);
    tb_weights_free(&w.weights);
    return 0;
}
