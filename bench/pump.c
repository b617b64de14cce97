/* pump.c - the floor under a link: the least that moves bytes from one process to another over
 * TLS 1.3 with OpenSSL.
 *
 * Two processes, blocking sockets, one thread a connection, TLS_AES_128_GCM_SHA256 on both ends, a
 * cold source and a cold sink of --bytes each (every byte is read once from memory and written once
 * to memory), writes of --batch bytes. No frames, no digests, no bitmaps: what a link adds to this
 * is what the link costs.
 *
 * --batched puts records through a memory BIO: --batch bytes are encrypted, then written by one
 * call; what one read of the same size brought is decrypted. Fewer system calls for one more copy.
 *
 * --memory: a source and a sink of so many bytes that are gone over again and again, where a link
 * is slow and memory short. --repeat: again and again, over new connections. Prints a JSON line
 * each time: {"bytes", "began" (by the monotonic clock), "seconds", "gb_per_s", "streams",
 * "batch_bytes", "batched", "congestion", "stream_s"}. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STREAMS_MAX 64

struct pump {
    uint64_t bytes;
    uint64_t memory; /* of the source, and of the sink; at most `bytes` */
    uint32_t streams;
    uint32_t batch;
    uint32_t repeat;
    bool batched;
    const char *congestion; /* NULL: the system's */
    const char *connect_to; /* NULL: both ends here, on loopback */
    const char *listen_at;
    uint16_t port;
};

struct stream {
    const struct pump *pump;
    SSL_CTX *tls;
    int fd;
    uint8_t *bytes;
    uint64_t room; /* behind `bytes`; above 0 */
    uint64_t count;
    double seconds;
    bool sends;
    int failed;
};

static void die(const char *what)
{
    fprintf(stderr, "pump: %s: %s\n", what, errno != 0 ? strerror(errno) : "see OpenSSL's errors");
    ERR_print_errors_fp(stderr);
    exit(1);
}

/* A key and certificate of this run alone: the pump measures bytes, not trust. */
static void tls_identity(SSL_CTX *tls)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    if (key == NULL || cert == NULL) die("key");
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const uint8_t *)"pump", -1,
                               -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    if (X509_sign(cert, key, EVP_sha256()) == 0) die("sign");
    SSL_CTX_use_certificate(tls, cert);
    SSL_CTX_use_PrivateKey(tls, key);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static SSL_CTX *tls_new(bool server)
{
    SSL_CTX *tls = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (tls == NULL) die("SSL_CTX_new");
    SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_num_tickets(tls, 0);
    SSL_CTX_set_read_ahead(tls, 1);
    SSL_CTX_set_default_read_buffer_len(tls, 256 << 10);
    if (server) tls_identity(tls);
    return tls;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- batches of records, through memory ---- */

struct batch {
    BIO *in, *out; /* of the SSL, which owns them */
    uint8_t *bytes;
    size_t cap;
};

/* All records that wait go out, in one call where the socket takes them. */
static bool batch_send(struct batch *b, int fd)
{
    char *at = NULL;
    long left = BIO_get_mem_data(b->out, &at);
    while (left > 0) {
        const ssize_t n = write(fd, at, (size_t)left);
        if (n <= 0) return false;
        at += n;
        left -= n;
    }
    return BIO_reset(b->out) >= 0;
}

static bool batch_receive(struct batch *b, int fd)
{
    const ssize_t n = read(fd, b->bytes, b->cap);
    return n > 0 && BIO_write(b->in, b->bytes, (int)n) == (int)n;
}

/* The event that an SSL call waits for before it is asked again; false: it failed. */
static bool batch_serve(struct batch *b, const SSL *ssl, int result, int fd)
{
    if (!batch_send(b, fd)) return false;
    return SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ && batch_receive(b, fd);
}

static bool batch_shake(struct batch *b, SSL *ssl, const struct stream *s)
{
    for (;;) {
        const int done = s->sends ? SSL_connect(ssl) : SSL_accept(ssl);
        if (done == 1) return batch_send(b, s->fd);
        if (!batch_serve(b, ssl, done, s->fd)) return false;
    }
}

static int batch_read(struct batch *b, SSL *ssl, const struct stream *s, uint8_t *to, int want)
{
    for (;;) {
        const int n = SSL_read(ssl, to, want);
        if (n > 0 || !batch_serve(b, ssl, n, s->fd)) return n;
    }
}

static int batch_write(struct batch *b, SSL *ssl, const struct stream *s, const uint8_t *from, int want)
{
    const int n = SSL_write(ssl, from, want);
    return n > 0 && batch_send(b, s->fd) ? n : -1;
}

/* ---- one stream ---- */

static int move(struct batch *b, SSL *ssl, const struct stream *s, uint8_t *at, int want, bool sends)
{
    if (b->bytes == NULL) return sends ? SSL_write(ssl, at, want) : SSL_read(ssl, at, want);
    return sends ? batch_write(b, ssl, s, at, want) : batch_read(b, ssl, s, at, want);
}

static SSL *stream_open(struct stream *s, struct batch *b)
{
    SSL *ssl = SSL_new(s->tls);
    if (!s->pump->batched) {
        SSL_set_fd(ssl, s->fd);
        return (s->sends ? SSL_connect(ssl) : SSL_accept(ssl)) == 1 ? ssl : NULL;
    }
    *b = (struct batch){.in = BIO_new(BIO_s_mem()), .out = BIO_new(BIO_s_mem()), .cap = s->pump->batch};
    b->bytes = malloc(b->cap);
    if (b->in == NULL || b->out == NULL || b->bytes == NULL) die("batch");
    BIO_set_mem_eof_return(b->in, -1);
    SSL_set_bio(ssl, b->in, b->out);
    return batch_shake(b, ssl, s) ? ssl : NULL;
}

static void *stream_run(void *user)
{
    struct stream *s = user;
    struct batch batch = {0};
    const double start = now_s();
    SSL *ssl = stream_open(s, &batch);
    s->failed = ssl == NULL;
    for (uint64_t at = 0; !s->failed && at < s->count;) {
        const uint64_t in = at % s->room;
        const uint64_t left = s->count - at < s->room - in ? s->count - at : s->room - in;
        const int want = (int)(left < s->pump->batch ? left : s->pump->batch);
        const int n = move(&batch, ssl, s, s->bytes + in, want, s->sends);
        s->failed = n <= 0;
        at += n > 0 ? (uint64_t)n : 0;
    }
    uint8_t done = 'd'; /* the receiver's word that all came, so the sender's clock covers the whole way */
    if (!s->failed) s->failed = move(&batch, ssl, s, &done, 1, !s->sends) != 1;
    s->seconds = now_s() - start;
    SSL_free(ssl);
    free(batch.bytes);
    close(s->fd);
    return NULL;
}

static void congestion_set(const struct pump *p, int fd)
{
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (p->congestion == NULL) return;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, p->congestion, (socklen_t)strlen(p->congestion)) != 0) {
        die("TCP_CONGESTION");
    }
}

static uint8_t *memory_new(uint64_t bytes, bool fill)
{
    uint8_t *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (m == MAP_FAILED) die("mmap");
    uint64_t x = 0x9E3779B97F4A7C15u;
    for (uint64_t i = 0; fill && i + 8 <= bytes; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(m + i, &x, 8);
    }
    return m;
}

static int streams_run(const struct pump *p, const int *fds, uint8_t *memory, bool sends,
                       struct stream *streams)
{
    pthread_t threads[STREAMS_MAX];
    SSL_CTX *tls = tls_new(!sends);
    const uint64_t each = p->bytes / p->streams, room = p->memory / p->streams;
    int failed = 0;
    for (uint32_t i = 0; i < p->streams; i++) {
        streams[i] = (struct stream){.pump = p,
                                     .tls = tls,
                                     .fd = fds[i],
                                     .bytes = memory + i * room,
                                     .room = room,
                                     .count = each,
                                     .sends = sends};
        if (pthread_create(&threads[i], NULL, stream_run, &streams[i]) != 0) die("pthread_create");
    }
    for (uint32_t i = 0; i < p->streams; i++) {
        pthread_join(threads[i], NULL);
        failed |= streams[i].failed;
    }
    SSL_CTX_free(tls);
    return failed;
}

static struct sockaddr_in address(const char *host, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1) die("address");
    return a;
}

static int listen_on(const char *host, uint16_t *port)
{
    struct sockaddr_in a = address(host, *port);
    socklen_t bytes = sizeof a;
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 64) != 0) die("listen");
    getsockname(fd, (struct sockaddr *)&a, &bytes);
    *port = ntohs(a.sin_port);
    return fd;
}

static int sink(const struct pump *p, int listener)
{
    uint8_t *memory = memory_new(p->memory, false);
    int fds[STREAMS_MAX], failed = 0;
    struct stream streams[STREAMS_MAX];
    for (uint32_t turn = 0; turn < p->repeat && !failed; turn++) {
        for (uint32_t i = 0; i < p->streams; i++) {
            fds[i] = accept(listener, NULL, NULL);
            if (fds[i] < 0) die("accept");
            congestion_set(p, fds[i]);
        }
        failed = streams_run(p, fds, memory, false, streams);
    }
    return failed;
}

static void report(const struct pump *p, const struct stream *streams, double began, double seconds)
{
    const uint64_t moved = p->bytes / p->streams * p->streams;
    printf("{\"bytes\": %llu, \"began\": %.6f, \"seconds\": %.6f, \"gb_per_s\": %.4f, \"streams\": %u, "
           "\"batch_bytes\": %u, \"batched\": %s, \"congestion\": \"%s\", \"stream_s\": [",
           (unsigned long long)moved, began, seconds, (double)moved / seconds / 1e9, p->streams, p->batch,
           p->batched ? "true" : "false", p->congestion != NULL ? p->congestion : "default");
    for (uint32_t i = 0; i < p->streams; i++)
        printf("%s%.6f", i > 0 ? ", " : "", streams[i].seconds);
    puts("]}");
    fflush(stdout);
}

static int source_once(const struct pump *p, const char *host, uint8_t *memory)
{
    int fds[STREAMS_MAX];
    const double start = now_s();
    for (uint32_t i = 0; i < p->streams; i++) {
        const struct sockaddr_in a = address(host, p->port);
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        congestion_set(p, fds[i]);
        if (connect(fds[i], (const struct sockaddr *)&a, sizeof a) != 0) die("connect");
    }
    struct stream streams[STREAMS_MAX];
    const int failed = streams_run(p, fds, memory, true, streams);
    report(p, streams, start, now_s() - start);
    return failed;
}

static int source(const struct pump *p, const char *host)
{
    uint8_t *memory = memory_new(p->memory, true);
    int failed = 0;
    for (uint32_t turn = 0; turn < p->repeat && !failed; turn++)
        failed = source_once(p, host, memory);
    return failed;
}

static const char usage[] =
    "Usage: tombolo-pump [--bytes N] [--streams N] [--batch N] [--batched] [--repeat N] [--congestion NAME]\n"
    "                    [--memory N] [--listen ADDRESS --port P | --connect ADDRESS --port P]\n"
    "The least that moves bytes over TLS 1.3: a floor for links. Without --listen or "
    "--connect both ends run here.\n"
    "Example: tombolo-pump --bytes 1073741824 --streams 2 --congestion cubic\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"bytes", 1, NULL, 'b'},      {"streams", 1, NULL, 's'}, {"batch", 1, NULL, 'w'},
        {"congestion", 1, NULL, 'c'}, {"listen", 1, NULL, 'l'},  {"connect", 1, NULL, 'd'},
        {"port", 1, NULL, 'p'},       {"batched", 0, NULL, 'B'}, {"repeat", 1, NULL, 'r'},
        {"memory", 1, NULL, 'm'},     {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    struct pump p = {.bytes = 1u << 30, .streams = 2, .batch = 1u << 20, .repeat = 1};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case 'b':
            p.bytes = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            p.memory = strtoull(optarg, NULL, 10);
            break;
        case 's':
            p.streams = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            p.batch = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'B':
            p.batched = true;
            break;
        case 'r':
            p.repeat = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            p.congestion = optarg;
            break;
        case 'l':
            p.listen_at = optarg;
            break;
        case 'd':
            p.connect_to = optarg;
            break;
        case 'p':
            p.port = (uint16_t)strtoul(optarg, NULL, 10);
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (p.memory == 0 || p.memory > p.bytes) p.memory = p.bytes;
    if (p.streams == 0 || p.streams > STREAMS_MAX || p.batch == 0 || p.batch > 1u << 30 ||
        p.memory < p.streams) {
        fputs(usage, stderr);
        return 2;
    }
    if (p.connect_to != NULL) return source(&p, p.connect_to);
    const int listener = listen_on(p.listen_at != NULL ? p.listen_at : "127.0.0.1", &p.port);
    if (p.listen_at != NULL) return sink(&p, listener);
    const pid_t child = fork();
    if (child == 0) _exit(sink(&p, listener));
    close(listener);
    const int failed = source(&p, "127.0.0.1");
    int status = 0;
    waitpid(child, &status, 0);
    return failed || status != 0;
}
