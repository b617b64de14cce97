/* tls_session.c - the connection: records over our own BIO, and the judgement of the peer's
 * certificate. */
#include "base/net/tls_session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/tls_bulk.h"
#include "base/net/tls_context.h"
#include "base/system_calls.h"

#define RECORD_BYTES 16384u
/* openssl/bio.h names it in a comment alone; the number says: to send, or to receive */
#define SET_KERNEL_KEYS 72

void tb_tls_session_because(struct tb_tls_session *s, const char *format, ...)
{
    if (s->reason[0] != '\0') return;
    va_list args;
    va_start(args, format);
    vsnprintf(s->reason, sizeof s->reason, format, args);
    va_end(args);
}

static bool bulk_begun(const struct tb_tls_session *s)
{
    return s->bulk != NULL && s->bulk->begun;
}

static bool bulk_sends(const struct tb_tls_session *s)
{
    return bulk_begun(s) && s->bulk->sends;
}

/* The BIO. */

static bool worth_retry(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static size_t take_ahead(struct tb_tls_session *s, char *out, size_t cap)
{
    TB_ASSERT(s->ahead_from <= s->ahead_used && s->ahead_used <= sizeof s->ahead);
    const size_t left = (size_t)(s->ahead_used - s->ahead_from);
    const size_t count = cap < left ? cap : left;
    memcpy(out, s->ahead + s->ahead_from, count);
    s->ahead_from += (uint16_t)count;
    return count;
}

/* OpenSSL asks for a record's five bytes, and then for its rest. The rest goes straight into
 * OpenSSL's memory, and the beginning of the next record comes along, so that a record costs one
 * call of the kernel. OpenSSL's own read-ahead moves all that it has read ahead to the front of
 * its buffer, for each record: with 256 KiB that was a third of a receiver's time. */
static int pipe_read(BIO *bio, char *out, int cap)
{
    struct tb_tls_session *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    /* Where the kernel sends, OpenSSL still says the goodbye: what comes is not its any more, nor
     * does it know the number of the next record. */
    if (bulk_begun(s)) return -1;
    const size_t taken = take_ahead(s, out, (size_t)cap);
    if (taken == (size_t)cap) return cap;
    struct iovec pieces[2] = {{.iov_base = out + taken, .iov_len = (size_t)cap - taken},
                              {.iov_base = s->ahead, .iov_len = sizeof s->ahead}};
    struct msghdr m = {.msg_iov = pieces, .msg_iovlen = 2};
    const ssize_t got = tb_sys_recvmsg(s->fd, &m, 0);
    const size_t asked = pieces[0].iov_len;
    s->ahead_from = 0;
    s->ahead_used = got > (ssize_t)asked ? (uint16_t)((size_t)got - asked) : 0;
    if (got > 0) return (int)(taken + ((size_t)got < asked ? (size_t)got : asked));
    if (taken > 0) return (int)taken; /* the next call meets the same, or the end */
    if (got == 0)
        s->eof = true;
    else if (worth_retry(errno))
        BIO_set_retry_read(bio);
    else
        s->io_errno = errno;
    return got == 0 ? 0 : -1;
}

static bool kernel_sends(const struct tb_tls_session *s)
{
    return s->kernel != NULL && BIO_ctrl(s->kernel, BIO_CTRL_GET_KTLS_SEND, 0, NULL) > 0;
}

static int kernel_write(struct tb_tls_session *s, BIO *bio, const char *bytes, int count)
{
    const int put = BIO_write(s->kernel, bytes, count);
    if (put > 0) return put;
    if (BIO_should_retry(s->kernel))
        BIO_set_retry_write(bio);
    else
        s->io_errno = errno;
    return -1;
}

static int pipe_write(BIO *bio, const char *bytes, int count)
{
    struct tb_tls_session *s = BIO_get_data(bio);
    if (kernel_sends(s)) {
        BIO_clear_retry_flags(bio);
        return kernel_write(s, bio, bytes, count);
    }
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = (size_t)count};
    const struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    BIO_clear_retry_flags(bio);
    const ssize_t put = tb_sys_sendmsg(s->fd, &m, MSG_NOSIGNAL);
    if (put >= 0) return (int)put;
    if (worth_retry(errno))
        BIO_set_retry_write(bio);
    else
        s->io_errno = errno;
    return -1;
}

static long pipe_ctrl(BIO *bio, int command, long number, void *pointer)
{
    const struct tb_tls_session *s = BIO_get_data(bio);
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return s != NULL && s->eof;
    /* Receiving stays ours: what the kernel decrypts comes without the records that pipe_read
     * gives. */
    if (command == SET_KERNEL_KEYS && number == 0) return 0;
    /* Keys for the kernel, and the types of records that are no data: OpenSSL's secrets
     * between it and its BIO. */
    return s != NULL && s->kernel != NULL ? BIO_ctrl(s->kernel, command, number, pointer) : 0;
}

static pthread_once_t pipe_once = PTHREAD_ONCE_INIT;
static BIO_METHOD *pipe_method; /* NULL: there was no memory for it; made once a process */

static void pipe_make(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tombolo socket");
    if (m == NULL) return;
    BIO_meth_set_read(m, pipe_read);
    BIO_meth_set_write(m, pipe_write);
    BIO_meth_set_ctrl(m, pipe_ctrl);
    pipe_method = m;
}

/* The kernel encrypts what is sent. Where it lacks a part of that, OpenSSL encrypts. */

static void ask_kernel(struct tb_tls_session *s)
{
    static const char ulp[] = "tls";
    if (s->kernel_asked || s->expect.no_kernel) return;
    s->kernel_asked = true;
    if (setsockopt(s->fd, IPPROTO_TCP, TCP_ULP, ulp, sizeof ulp - 1) != 0) return;
    s->kernel = BIO_new_socket(s->fd, BIO_NOCLOSE);
    if (s->kernel != NULL) SSL_set_options(s->ssl, SSL_OP_ENABLE_KTLS);
}

/* P10: the operator's switch is on, and yet OpenSSL makes a connection's records. */
static void own_records_lack(const char *what)
{
    tb_log(TB_LOG_WARN, "tls.own_records", "lacking=%s records=openssl", what);
}

/* For what is sent and received after the handshake. NULL: OpenSSL does it. */
static void own_records(struct tb_tls_session *s, const struct tb_tls *tls)
{
    if (!tls->own_records || s->bulk != NULL) return;
    s->bulk = tb_tls_bulk_new(s->expect.no_kernel);
    if (s->bulk == NULL) own_records_lack("memory");
}

int tb_tls_named(SSL *ssl, int *alert, void *user)
{
    (void)alert, (void)user;
    struct tb_tls_session *s = SSL_get_app_data(ssl);
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (!s->expect.bulk_heard || name == NULL || strcmp(name, TB_TLS_BULK) != 0) return SSL_TLSEXT_ERR_NOACK;
    ask_kernel(s);
    own_records(s, s->tls);
    return SSL_TLSEXT_ERR_OK;
}

void tb_tls_keyed(const SSL *ssl, const char *line)
{
    struct tb_tls_session *s = SSL_get_app_data(ssl);
    if (s != NULL) tb_tls_bulk_secret(s, line);
}

bool tb_tls_session_own_records(const struct tb_tls_session *s)
{
    return bulk_begun(s);
}

bool tb_tls_session_kernel_sends(const struct tb_tls_session *s)
{
    return kernel_sends(s);
}

/* The judgement. */

static bool identity_fits(const struct tb_identity *want, const struct tb_identity *have)
{
    if (want->kind == TB_IDENTITY_NONE) return true;
    if (want->kind != have->kind) return false;
    if (want->site.text[0] != '\0' && !tb_name_equal(&want->site, &have->site)) return false;
    return want->name.text[0] == '\0' || tb_name_equal(&want->name, &have->name);
}

bool tb_tls_anchor_fits(const struct tb_tls *tls, const X509 *anchor, const struct tb_identity *have)
{
    bool bound = false;
    for (uint32_t i = 0; i < tls->bound_count; i++) {
        if (X509_cmp(tls->bound[i].ca, anchor) != 0) continue;
        if (tb_name_equal(&tls->bound[i].site, &have->site)) return true;
        bound = true;
    }
    return !bound;
}

static bool leaf_fits(struct tb_tls_session *s, X509_STORE_CTX *store, enum tb_tls_fault *fault_out)
{
    struct tb_identity have;
    char text[TB_URI_BYTES_MAX], wanted[TB_URI_BYTES_MAX];
    const enum tb_status named = tb_tls_cert_identity(s->tls->spiffe, X509_STORE_CTX_get0_cert(store), &have);
    if (named != TB_OK) {
        tb_tls_session_because(s, named == TB_NOT_FOUND
                                      ? "no identity is listed for the SPIFFE URI of the peer (tls.spiffe)"
                                      : "the peer's certificate has not exactly one tombolo:// URI");
        *fault_out = TB_TLS_FAULT_IDENTITY;
        return false;
    }
    tb_identity_format(&have, text);
    const STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(store);
    TB_ASSERT(sk_X509_num(chain) > 0);
    if (tb_tls_chain_revoked(s->tls, chain)) {
        tb_tls_session_because(s, "the certificate of %s is revoked (tls.revoked)", text);
        *fault_out = TB_TLS_FAULT_REVOKED;
        return false;
    }
    if (!tb_tls_anchor_fits(s->tls, sk_X509_value(chain, sk_X509_num(chain) - 1), &have)) {
        tb_tls_session_because(
            s, "the CA that signed the peer's certificate may not speak for the site of %s", text);
        return false;
    }
    if (!identity_fits(&s->expect.identity, &have)) {
        tb_identity_format(&s->expect.identity, wanted);
        tb_tls_session_because(s, "the peer is %s, expected %s", text, wanted);
        *fault_out = TB_TLS_FAULT_IDENTITY;
        return false;
    }
    return true;
}

static struct tb_tls_session *judge(X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    return SSL_get_app_data(ssl);
}

/* OpenSSL makes the alert from the error, and the alert is all that the peer hears of the fault. */
static int error_for(enum tb_tls_fault fault, int error)
{
    switch (fault) {
    case TB_TLS_FAULT_DATES:
        return X509_V_ERR_CERT_HAS_EXPIRED; /* a certificate that is not valid yet would be a bad one */
    case TB_TLS_FAULT_IDENTITY:
        return X509_V_ERR_CERT_REJECTED;
    case TB_TLS_FAULT_REVOKED:
        return X509_V_ERR_CERT_REVOKED;
    default:
        return error != X509_V_ERR_CERT_REJECTED ? error : X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY;
    }
}

static int refuse(struct tb_tls_session *s, X509_STORE_CTX *store, enum tb_tls_fault fault, int error)
{
    struct tb_tls_refusal *r = &s->refusal;
    TB_ASSERT(fault != TB_TLS_FAULT_NONE);
    s->refused = true;
    r->fault = fault;
    if (tb_tls_cert_identity(s->tls->spiffe, X509_STORE_CTX_get0_cert(store), &r->claimed) != TB_OK)
        r->claimed = (struct tb_identity){.kind = TB_IDENTITY_NONE};
    X509_STORE_CTX_set_error(store, error_for(fault, error));
    return 0;
}

static bool is_date(int error)
{
    return error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
}

/* "certificate has expired, at 2026-11-22 17:55 UTC; here it is 2026-11-23 04:10 UTC". */
static void because_of_dates(struct tb_tls_session *s, X509_STORE_CTX *store, int error)
{
    const X509 *cert = X509_STORE_CTX_get_current_cert(store);
    const bool late = error == X509_V_ERR_CERT_HAS_EXPIRED;
    char at[TB_TLS_TIME_CHARS] = "?", now[TB_TLS_TIME_CHARS] = "?";
    ASN1_TIME *here = ASN1_TIME_set(NULL, (time_t)(tb_clock_wall_ms() / 1000));
    if (cert != NULL) (void)tb_tls_time_text(late ? X509_get0_notAfter(cert) : X509_get0_notBefore(cert), at);
    if (here != NULL) (void)tb_tls_time_text(here, now);
    ASN1_TIME_free(here);
    tb_tls_session_because(s, "the peer's certificate: %s, %s %s; here it is %s",
                           X509_verify_cert_error_string(error), late ? "at" : "but from", at, now);
}

static bool is_stranger(int error)
{
    return error == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
           error == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE ||
           error == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN || error == X509_V_ERR_CERT_SIGNATURE_FAILURE;
}

/* With the name of the authority, as a stranger has it: so a CA file of another site is noticed. */
static void because_of_its_authority(struct tb_tls_session *s, X509_STORE_CTX *store)
{
    const X509 *cert = X509_STORE_CTX_get_current_cert(store);
    char name[65] = "";
    if (cert != NULL)
        (void)X509_NAME_get_text_by_NID(X509_get_issuer_name(cert), NID_commonName, name, sizeof name);
    for (char *at = name; *at != '\0'; at++)
        if (*at < ' ' || *at > '~' || *at == '"') *at = '?';
    tb_tls_session_because(
        s, "the peer's certificate: no CA that is trusted here signed it; its authority is called \"%s\"",
        name);
}

int tb_tls_verify_by_ca(int good, X509_STORE_CTX *store)
{
    struct tb_tls_session *s = judge(store);
    const int error = X509_STORE_CTX_get_error(store);
    enum tb_tls_fault fault = TB_TLS_FAULT_TRUST;
    if (!good && is_date(error)) {
        because_of_dates(s, store, error);
        return refuse(s, store, TB_TLS_FAULT_DATES, error);
    }
    if (!good) {
        if (is_stranger(error))
            because_of_its_authority(s, store);
        else
            tb_tls_session_because(s, "the peer's certificate: %s", X509_verify_cert_error_string(error));
        return refuse(s, store, TB_TLS_FAULT_TRUST, error);
    }
    if (X509_STORE_CTX_get_error_depth(store) != 0 || leaf_fits(s, store, &fault)) return 1;
    return refuse(s, store, fault, X509_V_ERR_CERT_REJECTED);
}

int tb_tls_verify_by_print(X509_STORE_CTX *store, void *user)
{
    (void)user;
    struct tb_tls_session *s = judge(store);
    struct tb_fingerprint have;
    if (s->expect.any_fingerprint) return 1;
    if (tb_tls_cert_fingerprint(X509_STORE_CTX_get0_cert(store), &have) == TB_OK &&
        memcmp(have.bytes, s->expect.fingerprint.bytes, sizeof have.bytes) == 0)
        return 1;
    tb_tls_session_because(s, "the fingerprint of the peer's certificate is not the one expected");
    return refuse(s, store, TB_TLS_FAULT_IDENTITY, X509_V_ERR_CERT_REJECTED);
}

/* The session. */

enum tb_status tb_tls_session_init(struct tb_tls_session *s, struct tb_tls *tls,
                                   const struct tb_tls_expect *expect, int fd, bool server)
{
    TB_ASSERT(fd >= 0);
    *s = (struct tb_tls_session){.fd = fd, .expect = *expect};
    pthread_once(&pipe_once, pipe_make);
    BIO *bio = pipe_method == NULL ? NULL : BIO_new(pipe_method);
    if (bio == NULL) goto fail;
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    s->ssl = SSL_new(tls->ctx);
    if (s->ssl == NULL) goto undo_bio;
    if (!server && expect->bulk && SSL_set_tlsext_host_name(s->ssl, TB_TLS_BULK) != 1) goto undo_ssl;
    if (SSL_set_app_data(s->ssl, s) != 1)
        goto undo_ssl; /* it wants memory, and OpenSSL's callbacks want the session */

    SSL_set_bio(s->ssl, bio, bio);
    if (!server && expect->bulk) own_records(s, tls);
    if (server)
        SSL_set_accept_state(s->ssl);
    else
        SSL_set_connect_state(s->ssl);
    s->tls = tb_tls_ref(tls);
    return TB_OK;

undo_ssl:
    SSL_free(s->ssl);
    s->ssl = NULL;
undo_bio:
    BIO_free(bio);
fail:
    ERR_clear_error();
    return TB_SITE_NOMEM;
}

void tb_tls_session_fini(struct tb_tls_session *s)
{
    if (s->ssl == NULL) return;
    TB_ASSERT(s->tls != NULL);
    SSL_free(s->ssl);
    tb_tls_bulk_free(s->bulk);
    BIO_free(s->kernel);
    tb_tls_free(s->tls);
    s->ssl = NULL;
    s->bulk = NULL;
    s->kernel = NULL;
}

/* Alerts with which a peer says that it does not want our certificate. TLS 1.3 lets the dialler
 * finish first, so they may come in the place of its first bytes. */
static bool is_refusal(int reason)
{
    switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return true;
    default:
        return false;
    }
}

/* The reason in an alert by which the peer refused our certificate: error_for makes one of each
 * fault. */
static enum tb_tls_fault fault_told(int reason)
{
    switch (reason) {
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return TB_TLS_FAULT_DATES;
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        return TB_TLS_FAULT_IDENTITY;
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        return TB_TLS_FAULT_REVOKED;
    default:
        return TB_TLS_FAULT_TRUST;
    }
}

static enum tb_status judge_reason(struct tb_tls_session *s, unsigned long error)
{
    const char *text = ERR_reason_error_string(error);
    const int reason = ERR_GET_REASON(error);
    const bool refused = is_refusal(reason);
    tb_tls_session_because(s, "TLS: %s", text != NULL ? text : "unknown error");
    s->refusal.fault = refused ? fault_told(reason) : TB_TLS_FAULT_OTHER;
    s->refusal.by_peer = refused;
    return refused ? TB_PEER_DENIED : TB_STREAM_TLS;
}

enum tb_status tb_tls_session_alert(struct tb_tls_session *s, uint8_t alert)
{
    s->dead = true;
    return judge_reason(s, ERR_PACK(ERR_LIB_SSL, 0, SSL_AD_REASON_OFFSET + alert));
}

static enum tb_status judge_protocol(struct tb_tls_session *s)
{
    const unsigned long error = ERR_peek_error();
    s->dead = true;
    if (s->refused) return TB_PEER_IDENTITY;
    if (s->eof && ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        tb_tls_session_because(s, "the connection was cut without TLS's goodbye");
        return s->shaken ? TB_STREAM_IO : TB_STREAM_CLOSED;
    }
    return judge_reason(s, error);
}

enum tb_status tb_tls_session_cut(struct tb_tls_session *s)
{
    s->dead = true;
    if (s->io_errno == 0)
        tb_tls_session_because(s, "the connection was cut without TLS's goodbye");
    else
        tb_tls_session_because(s, "%s", strerror(s->io_errno));
    return s->io_errno == 0 && !s->shaken ? TB_STREAM_CLOSED : TB_STREAM_IO;
}

/* The status of an OpenSSL call that failed. */
static enum tb_status outcome(struct tb_tls_session *s, int result)
{
    TB_ASSERT(result <= 0);
    switch (SSL_get_error(s->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        s->wants_read = true;
        return TB_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        s->wants_write = true;
        return TB_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return s->ended = TB_STREAM_CLOSED;
    case SSL_ERROR_SYSCALL:
        return s->ended = tb_tls_session_cut(s);
    default:
        return s->ended = judge_protocol(s);
    }
}

static void begin(struct tb_tls_session *s)
{
    s->wants_read = false;
    s->wants_write = false;
    ERR_clear_error(); /* SSL_get_error looks at the thread's queue: what others left there is not ours */
}

static enum tb_status shaken(struct tb_tls_session *s)
{
    TB_ASSERT(s->shaken && !s->refused);
    if (s->bulk == NULL || tb_tls_bulk_begin(s)) return TB_OK;
    own_records_lack("keys");
    tb_tls_bulk_free(s->bulk);
    s->bulk = NULL;
    ERR_clear_error();
    return TB_OK;
}

enum tb_status tb_tls_session_handshake(struct tb_tls_session *s)
{
    begin(s);
    if (s->expect.bulk) ask_kernel(s); /* not before: the kernel wants a connection */
    const int result = SSL_do_handshake(s->ssl);
    s->shaken = result == 1; /* not SSL_is_init_finished: that turns false again with an error */
    if (s->shaken) return shaken(s);
    const enum tb_status status = outcome(s, result);
    ERR_clear_error();
    return status;
}

/* A record is at most 16 KiB: go on until the caller's memory is full or the
 * socket is empty. */
enum tb_status tb_tls_session_read(struct tb_tls_session *s, void *out, size_t cap, size_t *count_out)
{
    size_t used = 0;
    enum tb_status status = s->ended;
    TB_ASSERT(s->shaken);
    begin(s);
    if (bulk_begun(s)) return tb_tls_bulk_read(s, out, cap, count_out);
    while (used < cap && status == TB_OK) {
        size_t got = 0;
        const int result = SSL_read_ex(s->ssl, (uint8_t *)out + used, cap - used, &got);
        if (result == 1)
            used += got, s->records_received++;
        else
            status = outcome(s, result);
    }
    if (status != TB_OK) ERR_clear_error();
    s->starved = status == TB_AGAIN;
    /* Bytes first: an end or an error waits in `ended` for the next read. */
    *count_out = used;
    return used > 0 ? TB_OK : status;
}

/* Between two records: one that the socket did not take whole is under the old key. The peer hears
 * of it in front of the next. */
static void next_key(struct tb_tls_session *s)
{
    TB_ASSERT(s->records_sent >= s->key_since);
    if (s->dead || s->records_sent - s->key_since < s->tls->key_records) return;
    if (kernel_sends(s)) return; /* it would go on with the old one; it is replaced in time */
    if (SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) s->key_since = s->records_sent;
    ERR_clear_error();
}

enum tb_status tb_tls_session_write(struct tb_tls_session *s, const void *bytes, size_t count,
                                    size_t *count_out)
{
    size_t used = 0;
    enum tb_status status = s->dead ? s->ended : TB_OK; /* after the peer's end we may still write */
    bool between = !s->wants_write;                     /* two records */
    TB_ASSERT(s->shaken);
    begin(s);
    if (bulk_sends(s)) return tb_tls_bulk_write(s, bytes, count, count_out);
    while (used < count && status == TB_OK) {
        size_t put = 0;
        if (between) next_key(s);
        between = true;
        const int result = SSL_write_ex(s->ssl, (const uint8_t *)bytes + used, count - used, &put);
        if (result == 1)
            used += put, s->records_sent += (put + RECORD_BYTES - 1) / RECORD_BYTES;
        else
            status = outcome(s, result);
    }
    if (status != TB_OK) ERR_clear_error();
    *count_out = used;
    return used > 0 ? TB_OK : status;
}

enum tb_status tb_tls_session_end(struct tb_tls_session *s)
{
    if (s->dead || !s->shaken) return TB_OK;
    begin(s);
    if (bulk_sends(s)) return tb_tls_bulk_end(s);
    if (s->said_end) return TB_OK; /* a second call would wait for the peer's */
    const int result = SSL_shutdown(s->ssl);
    s->said_end = result >= 0;
    const enum tb_status status = result >= 0 ? TB_OK : outcome(s, result);
    ERR_clear_error();
    return status;
}

bool tb_tls_session_pending(const struct tb_tls_session *s)
{
    if (bulk_begun(s)) return s->ended != TB_OK || tb_tls_bulk_pending(s->bulk);
    return s->ended != TB_OK ||
           (!s->starved && (s->ahead_from < s->ahead_used || SSL_has_pending(s->ssl) == 1));
}

void tb_tls_session_peer(const struct tb_tls_session *s, struct tb_identity *identity_out,
                         struct tb_fingerprint *fingerprint_out, uint64_t *expires_wall_s_out)
{
    const X509 *cert = SSL_get0_peer_certificate(s->ssl);
    TB_ASSERT(cert != NULL); /* FAIL_IF_NO_PEER_CERT */
    *identity_out = (struct tb_identity){.kind = TB_IDENTITY_NONE};
    if (!s->tls->ephemeral && tb_tls_cert_identity(s->tls->spiffe, cert, identity_out) != TB_OK)
        *identity_out = (struct tb_identity){.kind = TB_IDENTITY_NONE};
    if (tb_tls_cert_fingerprint(cert, fingerprint_out) != TB_OK)
        *fingerprint_out = (struct tb_fingerprint){0}; /* equals no certificate's */
    *expires_wall_s_out = tb_tls_cert_expires(cert);
}
