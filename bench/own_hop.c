/* own_hop.c - one hop inside a site out of a source's own memory, as a rank publishes it: between
 * two processes, digests included.
 *
 * Three ways, by turns: process_vm_readv; lent memory (intra/fabric/lent_memory.h), as to a gateway
 * in its sandbox; and the door's socket, where neither can be had. --threads: of either process.
 *
 * Prints one JSON line: {"bytes", "readv", "lent", "socket"}, GB/s, each the median of --rounds;
 * and "readv_cpu", "lent_cpu", "socket_cpu": seconds of a core, of both processes, a GB. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bitmap.h"
#include "base/clock.h"
#include "base/log.h"
#include "bench/measured.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/lent_memory.h"
#include "intra/fabric/source_descriptor.h"

#define EXPORT_ID  1u
#define SHARD      0u
#define ROUNDS_MAX 100u

enum way { READV, LENT, SOCKET, WAYS };

static enum way way;

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count, unsigned long flags);
enum tb_status __real_tb_lent_memory_make(uint64_t count, struct tb_lent_memory *memory_out);
enum tb_status __wrap_tb_lent_memory_make(uint64_t count, struct tb_lent_memory *memory_out);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count, unsigned long flags)
{
    if (way == READV) return __real_process_vm_readv(pid, here, here_count, there, there_count, flags);
    errno = EPERM;
    return -1;
}

enum tb_status __wrap_tb_lent_memory_make(uint64_t count, struct tb_lent_memory *memory_out)
{
    return way == LENT ? __real_tb_lent_memory_make(count, memory_out) : TB_SITE_NOMEM;
}

/* One tensor, cut as a shard of that size is. */
static void manifest_make(struct tb_manifest *manifest_out, uint64_t bytes)
{
    struct tb_tensor tensor = {.name = "weight", .dtype = TB_DTYPE_U8, .rank = 1};
    struct tb_layout layout;
    tensor.full[0] = tensor.box_count[0] = bytes;
    const size_t layout_bytes = tb_layout_bytes_for(&tensor, 1);
    void *memory = measured_given(malloc(layout_bytes));
    if (tb_layout_build(&tensor, 1, memory, layout_bytes, &layout) != TB_OK)
        measured_end("own_hop: a layout");
    const size_t count = tb_manifest_bytes_for(&layout, NULL, 0);
    void *kept = measured_given(malloc(count));
    if (tb_manifest_build(&layout, NULL, 0, kept, count, manifest_out) != TB_OK)
        measured_end("own_hop: a manifest");
    free(memory);
}

static void seal(struct tb_manifest *m, const uint8_t *bytes)
{
    for (uint32_t k = 0; k < m->chunk_count; k++)
        m->digests[k] = tb_digest_of(bytes + m->chunks[k].offset, m->chunks[k].bytes);
    m->root = tb_manifest_root(m);
}

static struct tb_fabric *fabric_new(uint32_t threads)
{
    struct tb_fabric *fabric = NULL;
    struct tb_fabric_options options = {.trusted = true, .threads = threads, .no_verbs = true};
    if (tb_name_set(&options.host, "bench") != TB_OK || tb_fabric_open(&options, &fabric) != TB_OK)
        measured_end("own_hop: a fabric");
    return fabric;
}

/* The source, in a process of its own: grants the token that it is asked for, until nobody asks. */
_Noreturn static void serve(int fd, uint8_t *bytes, uint64_t count, uint32_t threads)
{
    struct tb_fabric *fabric = fabric_new(threads);
    const struct tb_export_buffer buffer = {.bytes = bytes, .count = count, .memfd = -1};
    const struct tb_export_options options = {.export_id = EXPORT_ID, .buffers = &buffer, .buffer_count = 1};
    const struct tb_fingerprint any = {{0}};
    struct tb_fabric_endpoint endpoint;
    struct tb_id token;
    if (tb_export_open(fabric, &options) != TB_OK) measured_end("own_hop: an export");
    tb_fabric_endpoint(fabric, &endpoint);
    while (recv(fd, &token, sizeof token, MSG_WAITALL) == sizeof token)
        if (tb_export_grant(fabric, EXPORT_ID, &token, &any) != TB_OK ||
            write(fd, &endpoint, sizeof endpoint) != sizeof endpoint)
            break;
    tb_fabric_close(fabric);
    _exit(0);
}

struct reader {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool whole, failed;
};

static void on_event(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    struct reader *r = user;
    (void)hop;
    pthread_mutex_lock(&r->lock);
    r->whole |= event->kind == TB_HOP_WHOLE;
    r->failed |= event->kind == TB_HOP_LOST || event->kind == TB_HOP_CHUNK_BAD;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static double cpu_s(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) measured_die("own_hop: a clock");
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double hop_s(struct tb_fabric *fabric, int source, struct tb_place *place)
{
    struct reader r = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    const struct tb_source_shard shard = {.shard = SHARD, .held_buffer = TB_SOURCE_ALL_HELD};
    struct tb_hop_place to = {.shard = SHARD, .place = place};
    struct tb_hop_options options = {.export_id = EXPORT_ID,
                                     .source = &shard,
                                     .source_count = 1,
                                     .places = &to,
                                     .place_count = 1,
                                     .transport = TB_TRANSPORT_SHM,
                                     .fn = on_event,
                                     .user = &r};
    struct tb_hop *hop = NULL;
    tb_random_bytes(options.token.bytes, sizeof options.token.bytes);
    if (write(source, &options.token, sizeof options.token) != sizeof options.token ||
        recv(source, &options.from, sizeof options.from, MSG_WAITALL) != sizeof options.from)
        measured_die("own_hop: the source");
    memset(place->held, 0, TB_BITMAP_WORDS(place->manifest->chunk_count) * sizeof *place->held);
    const double from = measured_now_s();
    if (tb_hop_open(fabric, &options, &hop) != TB_OK) measured_end("own_hop: a hop");
    pthread_mutex_lock(&r.lock);
    while (!r.whole && !r.failed)
        pthread_cond_wait(&r.changed, &r.lock);
    pthread_mutex_unlock(&r.lock);
    const double seconds = measured_now_s() - from;
    tb_hop_close(hop);
    if (r.failed) measured_end("own_hop: the hop was lost");
    return seconds;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static const char usage[] = "Usage: tombolo-own-hop [--bytes N] [--rounds N] [--threads N]\n"
                            "One hop out of another process's own memory, by each way that there is.\n"
                            "Example: tombolo-own-hop --bytes 536870912 --rounds 9\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {{"bytes", 1, NULL, 'b'},
                                            {"rounds", 1, NULL, 'r'},
                                            {"threads", 1, NULL, 't'},
                                            {"help", 0, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    uint64_t bytes = (uint64_t)512 << 20;
    uint32_t rounds = 5, threads = 2;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'b') {
            bytes = strtoull(optarg, NULL, 10);
        } else if (o == 'r') {
            rounds = (uint32_t)strtoul(optarg, NULL, 10);
        } else if (o == 't') {
            threads = (uint32_t)strtoul(optarg, NULL, 10);
        } else {
            fputs(usage, o == 'h' ? stdout : stderr);
            return o == 'h' ? 0 : 2;
        }
    }
    if (bytes == 0 || rounds == 0 || rounds > ROUNDS_MAX || threads == 0 || threads > 64) {
        fputs(usage, stderr);
        return 2;
    }
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    struct tb_manifest manifest;
    int ends[2];
    uint8_t *from = measured_memory(bytes, 1), *to = measured_memory(bytes, 2);
    manifest_make(&manifest, bytes);
    seal(&manifest, from);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) measured_die("own_hop: a socket pair");
    const pid_t child = fork();
    if (child < 0) measured_die("own_hop: fork");
    if (child == 0) {
        close(ends[1]);
        serve(ends[0], from, bytes, threads);
    }
    close(ends[0]);
    const size_t words = TB_BITMAP_WORDS(manifest.chunk_count);
    struct tb_place place = {.manifest = &manifest, .bytes = to};
    place.held = measured_given(calloc(words, sizeof *place.held));
    place.claimed = measured_given(calloc(words, sizeof *place.claimed));
    struct tb_fabric *fabric = fabric_new(threads);
    double seconds[WAYS][ROUNDS_MAX], cpu[WAYS] = {0};
    clockid_t source;
    if (clock_getcpuclockid(child, &source) != 0) measured_end("own_hop: a clock");
    for (uint32_t round = 0; round < rounds; round++)
        for (way = READV; way < WAYS; way++) {
            const double before = cpu_s(CLOCK_PROCESS_CPUTIME_ID) + cpu_s(source);
            seconds[way][round] = hop_s(fabric, ends[1], &place);
            cpu[way] += cpu_s(CLOCK_PROCESS_CPUTIME_ID) + cpu_s(source) - before;
        }
    tb_fabric_close(fabric);
    close(ends[1]);
    if (waitpid(child, NULL, 0) != child) measured_die("own_hop: the source");
    for (uint32_t w = 0; w < WAYS; w++)
        qsort(seconds[w], rounds, sizeof seconds[w][0], by_size);
    const double gb = (double)bytes / 1e9, all = gb * rounds;
    const uint32_t middle = rounds / 2;
    printf("{\"bytes\": %llu, \"readv\": %.4f, \"lent\": %.4f, \"socket\": %.4f, \"readv_cpu\": %.4f, "
           "\"lent_cpu\": %.4f, \"socket_cpu\": %.4f}\n",
           (unsigned long long)bytes, gb / seconds[READV][middle], gb / seconds[LENT][middle],
           gb / seconds[SOCKET][middle], cpu[READV] / all, cpu[LENT] / all, cpu[SOCKET] / all);
    return memcmp(from, to, bytes) == 0 ? 0 : 1;
}
