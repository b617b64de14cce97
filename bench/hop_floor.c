/* hop_floor.c - the floor under one hop inside a site: the least that brings a version to one
 * reader and digests it.
 *
 * --way memory: one thread copies a chunk of 1 MiB from a source that stands in memory to a cold
 * target, then digests it. --way socket: a process writes the source to a loopback socket, another
 * reads it into its memory and digests each chunk: two threads, blocking. --way digest: the digest
 * alone. Of each chunk BLAKE3, as a hop between workers has it, or XXH3-128 with --digest xxh3, as
 * one from a gateway; pages are made before the clock runs. --threads: readers, as many as the
 * hop's cores.
 *
 * Prints one JSON line: {"bytes", "seconds", "gb_per_s", "vector"}, the last of which names the
 * instructions that digest. */
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/proof/blake3.h"
#include "base/vector.h"
#include "bench/measured.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define THREADS_MAX 16

struct part {
    pthread_t thread;
    const uint8_t *from; /* NULL: from the socket, or not at all */
    uint8_t *to;         /* NULL: to the socket */
    size_t bytes;
    int fd;
    struct tb_digest digest; /* of the last chunk, so that no compiler leaves it out */
    struct tb_blake3 proof;  /* likewise */
    bool failed, digests_alone, proves;
};

static bool read_all(int fd, uint8_t *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = read(fd, to + done, bytes - done);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static void *receive(void *user)
{
    struct part *p = user;
    for (size_t at = 0; at < p->bytes && !p->failed; at += CHUNK_BYTES) {
        const size_t count = p->bytes - at < CHUNK_BYTES ? p->bytes - at : CHUNK_BYTES;
        if (p->from != NULL)
            memcpy(p->to + at, p->from + at, count);
        else if (!p->digests_alone)
            p->failed = !read_all(p->fd, p->to + at, count);
        if (p->proves)
            p->proof = tb_blake3_of(p->to + at, count);
        else
            p->digest = tb_digest_of(p->to + at, count);
    }
    return NULL;
}

static void *dispatch(void *user)
{
    struct part *p = user;
    for (size_t done = 0; done < p->bytes && !p->failed;) {
        const size_t left = p->bytes - done;
        const ssize_t n = write(p->fd, p->from + done, left < CHUNK_BYTES ? left : CHUNK_BYTES);
        p->failed = n <= 0;
        if (n > 0) done += (size_t)n;
    }
    return NULL;
}

static void socket_pair(int fds[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof a;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&a, &bytes) != 0)
        measured_die("hop_floor: listen");
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fds[0] < 0 || connect(fds[0], (struct sockaddr *)&a, sizeof a) != 0)
        measured_die("hop_floor: connect");
    fds[1] = accept(listener, NULL, NULL);
    if (fds[1] < 0) measured_die("hop_floor: accept");
    close(listener);
}

enum way { MEMORY, SOCKET, DIGEST, WAYS };
static const char *const way_names[WAYS] = {"memory", "socket", "digest"};

static bool run(const uint8_t *from, uint8_t *to, size_t bytes, uint32_t threads, enum way way, bool proves)
{
    const bool sockets = way == SOCKET;
    struct part readers[THREADS_MAX], writers[THREADS_MAX];
    bool failed = false;
    const size_t each = bytes / threads;
    for (uint32_t i = 0; i < threads; i++) {
        const size_t at = i * each, count = i + 1 == threads ? bytes - at : each;
        int fds[2] = {-1, -1};
        if (sockets) socket_pair(fds);
        readers[i] = (struct part){.from = way == MEMORY ? from + at : NULL,
                                   .to = to + at,
                                   .bytes = count,
                                   .fd = fds[1],
                                   .digests_alone = way == DIGEST,
                                   .proves = proves};
        writers[i] = (struct part){.from = from + at, .bytes = count, .fd = fds[0]};
        if (pthread_create(&readers[i].thread, NULL, receive, &readers[i]) != 0)
            measured_die("hop_floor: thread");
        if (sockets && pthread_create(&writers[i].thread, NULL, dispatch, &writers[i]) != 0)
            measured_die("hop_floor: thread");
    }
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(readers[i].thread, NULL);
        if (sockets) pthread_join(writers[i].thread, NULL);
        failed |= readers[i].failed || (sockets && writers[i].failed);
        if (sockets) close(readers[i].fd), close(writers[i].fd);
    }
    return !failed;
}

struct all {
    const uint8_t *from;
    uint8_t *to;
    size_t bytes;
    uint32_t threads;
    enum way way;
    bool proves;
};

static bool pass(void *user)
{
    const struct all *a = user;
    return run(a->from, a->to, a->bytes, a->threads, a->way, a->proves);
}

static const char *vector_name(void)
{
    static const char *const names[] = {[TB_VECTOR_PORTABLE] = "portable",
                                        [TB_VECTOR_NEON] = "neon",
                                        [TB_VECTOR_AVX2] = "avx2",
                                        [TB_VECTOR_AVX512] = "avx512"};
    return names[tb_vector_choose(TB_VECTOR_BEST)];
}

static const char usage[] =
    "Usage: tombolo-hop-floor [--way memory|socket|digest] [--digest blake3|xxh3] [--bytes N]\n"
    "                         [--threads N]\n"
    "The least that brings bytes to one reader and digests them: a floor for hops.\n"
    "Example: tombolo-hop-floor --way socket --bytes 1073741824\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {{"way", 1, NULL, 'w'},   {"digest", 1, NULL, 'd'},
                                            {"bytes", 1, NULL, 'b'}, {"threads", 1, NULL, 't'},
                                            {"help", 0, NULL, 'h'},  {NULL, 0, NULL, 0}};
    size_t bytes = (size_t)1 << 30;
    uint32_t threads = 1;
    enum way way = MEMORY;
    bool right = true, proves = true;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case 'w':
            for (way = MEMORY; way < WAYS && strcmp(optarg, way_names[way]) != 0; way++)
                continue;
            right = right && way < WAYS;
            break;
        case 'd':
            proves = strcmp(optarg, "blake3") == 0;
            right = right && (proves || strcmp(optarg, "xxh3") == 0);
            break;
        case 'b':
            bytes = strtoull(optarg, NULL, 10);
            break;
        case 't':
            threads = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            right = false;
        }
    }
    if (!right || threads == 0 || threads > THREADS_MAX || bytes < threads) {
        fputs(usage, stderr);
        return 2;
    }
    const uint8_t *from = measured_shared_memory(bytes, 1);
    uint8_t *to = measured_shared_memory(bytes, 2);
    bool steady;
    const double seconds =
        measured_pass_s(pass, &(struct all){from, to, bytes, threads, way, proves}, &steady);
    if (seconds < 0) return 1;
    if (way != DIGEST && memcmp(to, from, bytes) != 0) return 1;
    printf("{\"bytes\": %zu, \"seconds\": %.6f, \"gb_per_s\": %.4f, \"steady\": %s, \"vector\": \"%s\"}\n",
           bytes, seconds, (double)bytes / seconds / 1e9, steady ? "true" : "false", vector_name());
    return 0;
}
