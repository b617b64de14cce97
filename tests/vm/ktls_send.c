/* ktls_send.c - does the kernel encrypt what OpenSSL sends? Says `on`, or why not.
 *
 * One connection over loopback, TLS 1.3, both ends here; SENT_BYTES go each way and are compared.
 * OpenSSL hands its keys to the kernel in silence, or does not, in the same silence: where it did
 * not, each thing it needs is asked for by itself. Exit code 0: on. 77: off, and the line gives the
 * reason. 1: something that must work did not.
 *
 * Covers: sim/vm/run */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tls.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SENT_BYTES (256 << 10)
#define CALLS_MAX  100000 /* of OpenSSL before it is given up; a poll of at most 10 ms lies between two */
#define SKIP       77

static void die(const char *what)
{
    fprintf(stderr, "ktls_send: %s: %s\n", what, errno != 0 ? strerror(errno) : "see OpenSSL's errors");
    ERR_print_errors_fp(stderr);
    exit(1);
}

struct pair {
    int client;
    int server;
};

/* Connected before OpenSSL gets them: the kernel's layer is refused on a socket that is not. */
static struct pair pair_open(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_bytes = sizeof(at);
    struct pair p;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 1) != 0)
        die("listen");
    if (getsockname(listener, (struct sockaddr *)&at, &at_bytes) != 0) die("getsockname");
    p.client = socket(AF_INET, SOCK_STREAM, 0);
    if (p.client < 0 || connect(p.client, (struct sockaddr *)&at, sizeof(at)) != 0) die("connect");
    p.server = accept(listener, NULL, NULL);
    if (p.server < 0) die("accept");
    close(listener);
    return p;
}

static void pair_close(struct pair p)
{
    close(p.client);
    close(p.server);
}

/* A key and certificate of this run alone. */
static void identity_make(SSL_CTX *tls)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    if (key == NULL || cert == NULL) die("a key");
    if (X509_set_version(cert, X509_VERSION_3) != 1 ||
        ASN1_INTEGER_set(X509_get_serialNumber(cert), 1) != 1 ||
        X509_gmtime_adj(X509_getm_notBefore(cert), -60) == NULL ||
        X509_gmtime_adj(X509_getm_notAfter(cert), 86400) == NULL || X509_set_pubkey(cert, key) != 1 ||
        X509_sign(cert, key, EVP_sha256()) == 0) {
        die("a certificate");
    }
    if (SSL_CTX_use_certificate(tls, cert) != 1 || SSL_CTX_use_PrivateKey(tls, key) != 1) die("an identity");
    X509_free(cert);
    EVP_PKEY_free(key);
}

static SSL *end_new(const SSL_METHOD *method, int fd)
{
    SSL_CTX *tls = SSL_CTX_new(method);
    if (tls == NULL || SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) != 1) die("TLS 1.3");
    (void)SSL_CTX_set_options(tls, SSL_OP_ENABLE_KTLS);
    (void)SSL_CTX_set_num_tickets(tls, 0);
    if (method == TLS_server_method()) identity_make(tls);
    SSL *end = SSL_new(tls);
    SSL_CTX_free(tls); /* the end keeps its own reference */
    if (end == NULL || SSL_set_fd(end, fd) != 1) die("a TLS end");
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) die("fcntl");
    return end;
}

/* Whether a call that returned `result` is to be made again; waits a moment for what it wants. */
static bool again(SSL *end, int result)
{
    const int error = SSL_get_error(end, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
    struct pollfd wanted = {.fd = SSL_get_fd(end), .events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
    (void)poll(&wanted, 1, 10);
    return true;
}

static void handshake(SSL *client, SSL *server)
{
    for (int calls = 0; calls < CALLS_MAX; calls++) {
        const int connected = SSL_connect(client);
        const int accepted = SSL_accept(server);
        if (connected == 1 && accepted == 1) return;
        if (connected != 1 && !again(client, connected)) die("SSL_connect");
        if (accepted != 1 && !again(server, accepted)) die("SSL_accept");
    }
    errno = ETIMEDOUT;
    die("handshake");
}

/* SENT_BYTES from one end to the other. */
static void send_across(SSL *from, SSL *to)
{
    static uint8_t sent[SENT_BYTES], got[SENT_BYTES];
    int out = 0, in = 0;
    for (int i = 0; i < SENT_BYTES; i++)
        sent[i] = (uint8_t)(i * 167 + (i >> 8));
    memset(got, 0, sizeof(got));
    for (int calls = 0; in < SENT_BYTES && calls < CALLS_MAX; calls++) {
        if (out < SENT_BYTES) {
            const int wrote = SSL_write(from, sent + out, SENT_BYTES - out);
            if (wrote <= 0 && SSL_get_error(from, wrote) != SSL_ERROR_WANT_WRITE) die("SSL_write");
            if (wrote > 0) out += wrote;
        }
        const int read = SSL_read(to, got + in, SENT_BYTES - in);
        if (read > 0) {
            in += read;
        } else if (!again(to, read)) {
            die("SSL_read");
        }
    }
    if (in != SENT_BYTES || memcmp(sent, got, SENT_BYTES) != 0) {
        errno = EBADMSG;
        die("the bytes that came are not those that were sent");
    }
}

/* NULL, or what the kernel refuses when it is asked without OpenSSL; the text is good
 * until the next call. */
static const char *kernel_refuses(void)
{
    static char text[256];
    const struct pair p = pair_open();
    struct tls12_crypto_info_aes_gcm_256 keys = {
        .info = {.version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_256}};
    text[0] = '\0';
    if (setsockopt(p.client, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) != 0) {
        snprintf(text, sizeof(text), "the kernel refuses TCP_ULP tls: %s (modprobe tls)", strerror(errno));
    } else if (setsockopt(p.client, SOL_TLS, TLS_TX, &keys, sizeof(keys)) != 0) {
        snprintf(text, sizeof(text), "the kernel refuses TLS_TX with AES-256-GCM: %s%s", strerror(errno),
                 errno == ENOENT ? " (it has no gcm(aes): modprobe aesni_intel, or gcm)" : "");
    }
    pair_close(p);
    return text[0] != '\0' ? text : NULL;
}

static int report(SSL *client, SSL *server)
{
    const int to_send =
        (int)BIO_get_ktls_send(SSL_get_wbio(client)) + (int)BIO_get_ktls_send(SSL_get_wbio(server));
    const int to_receive =
        (int)BIO_get_ktls_recv(SSL_get_rbio(client)) + (int)BIO_get_ktls_recv(SSL_get_rbio(server));
    const char *cipher = SSL_get_cipher_name(client);
    if (to_send == 2) {
        printf("on: the kernel encrypts what both ends send (%s, %s); receiving is %s\n",
               OpenSSL_version(OPENSSL_VERSION), cipher,
               to_receive == 2 ? "on" : "off (OpenSSL has it for TLS 1.3 from 3.2 on)");
        return 0;
    }
    const char *why = kernel_refuses();
    if (why != NULL) {
        printf("off: %s\n", why);
    } else if (strstr(cipher, "GCM") == NULL) {
        printf("off: %s is not a cipher that the kernel is given\n", cipher);
    } else {
        printf("off: the kernel would take the keys, but %s did not hand them over: it may be built without "
               "enable-ktls\n",
               OpenSSL_version(OPENSSL_VERSION));
    }
    return SKIP;
}

int main(void)
{
    const struct pair p = pair_open();
    SSL *client = end_new(TLS_client_method(), p.client);
    SSL *server = end_new(TLS_server_method(), p.server);
    handshake(client, server);
    send_across(client, server);
    send_across(server, client);
    const int code = report(client, server);
    SSL_free(client);
    SSL_free(server);
    pair_close(p);
    return code;
}
