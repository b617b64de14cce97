/* pump.c - the floor under a link: the least that moves bytes from one process to another over TLS 1.3 with OpenSSL.
 *
 * Two processes, blocking sockets, one thread a connection, TLS_AES_128_GCM_SHA256 on both ends, a cold source and a cold
 * sink of --bytes each (every byte is read once from memory and written once to memory), writes of --batch bytes. No
 * frames, no digests, no bitmaps: what a link adds to this is what the link costs.
 *
 * Prints one JSON line: {"bytes", "seconds", "gb_per_s", "streams", "batch_bytes", "congestion"}. */
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
    uint32_t streams;
    uint32_t batch;
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
    uint64_t count;
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

static void *stream_run(void *user)
{
    struct stream *s = user;
    SSL *ssl = SSL_new(s->tls);
    SSL_set_fd(ssl, s->fd);
    if ((s->sends ? SSL_connect(ssl) : SSL_accept(ssl)) != 1) {
        s->failed = 1;
        return NULL;
    }
    uint64_t at = 0;
    while (at < s->count) {
        const uint64_t left = s->count - at;
        const int want = (int)(left < s->pump->batch ? left : s->pump->batch);
        const int n = s->sends ? SSL_write(ssl, s->bytes + at, want) : SSL_read(ssl, s->bytes + at, want);
        if (n <= 0) {
            s->failed = 1;
            break;
        }
        at += (uint64_t)n;
    }
    char done = 'd'; /* the receiver's word that all came, so the sender's clock covers the whole way */
    if (!s->failed) s->failed = (s->sends ? SSL_read(ssl, &done, 1) : SSL_write(ssl, &done, 1)) != 1;
    SSL_free(ssl);
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

static int streams_run(const struct pump *p, const int *fds, uint8_t *memory, bool sends)
{
    struct stream streams[STREAMS_MAX];
    pthread_t threads[STREAMS_MAX];
    SSL_CTX *tls = tls_new(!sends);
    const uint64_t each = p->bytes / p->streams;
    int failed = 0;
    for (uint32_t i = 0; i < p->streams; i++) {
        streams[i] = (struct stream){
            .pump = p, .tls = tls, .fd = fds[i], .bytes = memory + i * each, .count = each, .sends = sends};
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
    uint8_t *memory = memory_new(p->bytes, false);
    int fds[STREAMS_MAX];
    for (uint32_t i = 0; i < p->streams; i++) {
        fds[i] = accept(listener, NULL, NULL);
        if (fds[i] < 0) die("accept");
        congestion_set(p, fds[i]);
    }
    return streams_run(p, fds, memory, false);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int source(const struct pump *p, const char *host)
{
    uint8_t *memory = memory_new(p->bytes, true);
    int fds[STREAMS_MAX];
    const double start = now_s();
    for (uint32_t i = 0; i < p->streams; i++) {
        const struct sockaddr_in a = address(host, p->port);
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        congestion_set(p, fds[i]);
        if (connect(fds[i], (const struct sockaddr *)&a, sizeof a) != 0) die("connect");
    }
    const int failed = streams_run(p, fds, memory, true);
    const double seconds = now_s() - start;
    const uint64_t moved = p->bytes / p->streams * p->streams;
    printf("{\"bytes\": %llu, \"seconds\": %.6f, \"gb_per_s\": %.4f, \"streams\": %u, \"batch_bytes\": %u, "
           "\"congestion\": \"%s\"}\n",
           (unsigned long long)moved, seconds, (double)moved / seconds / 1e9, p->streams, p->batch,
           p->congestion != NULL ? p->congestion : "default");
    return failed;
}

static const char usage[] = "Usage: tombolo-pump [--bytes N] [--streams N] [--batch N] [--congestion NAME]\n"
                            "                    [--listen ADDRESS --port P | --connect ADDRESS --port P]\n"
                            "The least that moves bytes over TLS 1.3: a floor for links. Without --listen or "
                            "--connect both ends run here.\n"
                            "Example: tombolo-pump --bytes 1073741824 --streams 2 --congestion cubic\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"bytes", 1, NULL, 'b'},      {"streams", 1, NULL, 's'}, {"batch", 1, NULL, 'w'},
        {"congestion", 1, NULL, 'c'}, {"listen", 1, NULL, 'l'},  {"connect", 1, NULL, 'd'},
        {"port", 1, NULL, 'p'},       {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    struct pump p = {.bytes = 1u << 30, .streams = 2, .batch = 1u << 20};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case 'b':
            p.bytes = strtoull(optarg, NULL, 10);
            break;
        case 's':
            p.streams = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            p.batch = (uint32_t)strtoul(optarg, NULL, 10);
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
    if (p.streams == 0 || p.streams > STREAMS_MAX || p.batch == 0 || p.batch > 1u << 30 ||
        p.bytes < p.streams) {
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
