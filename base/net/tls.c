/* tls.c - making TLS contexts from files or from nothing.
 *
 * All contexts have in common what context_new sets. The two ways of trust differ only in their
 * verify callback, which is in tls_session.c beside the connection that it judges. */
#include "base/net/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/revoked.h"
#include "base/net/secret_memory.h"
#include "base/net/spiffe.h"
#include "base/net/tls_context.h"
#include "base/system_calls.h"

#define PEM_BYTES_MAX      ((off_t)1 << 20)
#define CHAIN_DEPTH_MAX    8
#define PEER_CHAIN_BYTES   (64 * 1024) /* what a peer may send as its certificates */
#define BOUND_MAX          256
#define KEY_RECORDS        (UINT64_C(3) << 21)
#define EPHEMERAL_VALID_S  (10L * 365 * 24 * 3600) /* the session ends it, not the calendar */
#define EPHEMERAL_BEFORE_S (24L * 3600)            /* the other end's clock may be behind ours */

static const char suites[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

__attribute__((format(printf, 2, 3))) static enum tb_status say(char error_out[256], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_out, 256, format, args);
    va_end(args);
    return TB_SITE_CONFIG;
}

/* Files. */

struct pem {
    const char *path;
    char *bytes;
    size_t count, room;
    BIO *bio; /* over the bytes */
};

static void pem_fini(struct pem *pem)
{
    BIO_free(pem->bio);
    tb_secret_free(pem->bytes, pem->room);
}

/* The owner's alone. But what root owns it may give to a group of ours, to read: as a file of a
 * Kubernetes secret. */
static bool others_may_use(const struct stat *st)
{
    const bool given = st->st_uid == 0 && geteuid() != 0;
    return (st->st_mode & (given ? 037u : 077u)) != 0;
}

static enum tb_status pem_check(int fd, const struct pem *pem, bool secret, off_t *bytes_out,
                                char error_out[256])
{
    struct stat st;
    if (fstat(fd, &st) != 0) return say(error_out, "%s: %s", pem->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return say(error_out, "%s: is not a regular file", pem->path);
    if (secret && others_may_use(&st))
        return say(error_out, "%s: mode %04o lets others than its owner use the key; chmod 600 it", pem->path,
                   (unsigned)(st.st_mode & 07777));
    if (st.st_size > PEM_BYTES_MAX)
        return say(error_out, "%s: %lld bytes is too large for a PEM file", pem->path, (long long)st.st_size);
    *bytes_out = st.st_size;
    return TB_OK;
}

static enum tb_status pem_fill(int fd, struct pem *pem, size_t bytes, char error_out[256])
{
    TB_ASSERT(pem->bytes == NULL && bytes <= (size_t)PEM_BYTES_MAX);
    pem->room = bytes + 1;
    pem->bytes = tb_secret_new(pem->room);
    if (pem->bytes == NULL) {
        (void)say(error_out, "%s: no memory", pem->path);
        return TB_SITE_NOMEM;
    }
    while (pem->count < bytes) {
        const ssize_t got = tb_sys_pread(fd, pem->bytes + pem->count, bytes - pem->count, (off_t)pem->count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return say(error_out, "%s: %s", pem->path, strerror(errno));
        if (got == 0) break; /* it shrank; the parser will say what is missing */
        pem->count += (size_t)got;
        TB_ASSERT(pem->count <= bytes);
    }
    return TB_OK;
}

/* After this pem_fini is due, on failure too. */
static enum tb_status pem_read(struct pem *pem, const char *path, bool secret, char error_out[256])
{
    *pem = (struct pem){.path = path};
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return say(error_out, "%s: %s", path, strerror(errno));
    off_t bytes = 0;
    enum tb_status status = pem_check(fd, pem, secret, &bytes, error_out);
    if (status == TB_OK) status = pem_fill(fd, pem, (size_t)bytes, error_out);
    close(fd);
    if (status != TB_OK) return status;
    pem->bio = BIO_new_mem_buf(pem->bytes, (int)pem->count);
    return pem->bio != NULL ? TB_OK : TB_SITE_NOMEM;
}

/* Certificates. */

uint64_t tb_tls_cert_expires(const X509 *cert)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1) return 0;
    const time_t at = timegm(&tm);
    return at > 0 ? (uint64_t)at : 0;
}

enum tb_status tb_tls_cert_fingerprint(const X509 *cert, struct tb_fingerprint *fingerprint_out)
{
    unsigned bytes = sizeof fingerprint_out->bytes;
    return X509_digest(cert, EVP_sha256(), fingerprint_out->bytes, &bytes) == 1 ? TB_OK : TB_SITE_NOMEM;
}

/* The URI as a C string, or NULL: a NUL inside would make the text that is compared another
 * than the one signed. */
static const char *uri_text(const GENERAL_NAME *name)
{
    TB_ASSERT(name->type == GEN_URI);
    const ASN1_IA5STRING *uri = name->d.uniformResourceIdentifier;
    const char *text = (const char *)ASN1_STRING_get0_data(uri);
    const int bytes = ASN1_STRING_length(uri);
    if (bytes <= 0 || bytes >= (int)TB_SPIFFE_BYTES_MAX || strlen(text) != (size_t)bytes) return NULL;
    return text;
}

static enum tb_status uri_identity(const struct tb_spiffe *spiffe, const char *text,
                                   struct tb_identity *identity_out)
{
    if (tb_spiffe_valid(text)) return tb_spiffe_identity(spiffe, text, identity_out);
    const enum tb_status status = tb_identity_parse(text, identity_out);
    if (status == TB_OK && identity_out->kind == TB_IDENTITY_UNIX)
        return TB_BAD_ARGUMENT; /* "unix:0" is for the kernel to say, not for a certificate */
    return status;
}

enum tb_status tb_tls_cert_identity(const struct tb_spiffe *spiffe, const X509 *cert,
                                    struct tb_identity *identity_out)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    if (names == NULL) return TB_BAD_ARGUMENT;
    const GENERAL_NAME *only = NULL;
    int uris = 0;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI) continue;
        only = name;
        uris++;
    }
    const char *text = uris == 1 ? uri_text(only) : NULL;
    struct tb_identity identity;
    const enum tb_status status = text == NULL ? TB_BAD_ARGUMENT : uri_identity(spiffe, text, &identity);
    if (status == TB_OK) *identity_out = identity;
    GENERAL_NAMES_free(names);
    return status;
}

/* PEM. */

/* A key file with a passphrase must fail, not ask on the terminal of a daemon. */
static int no_passphrase(char *out, int cap, int writing, void *user)
{
    (void)out, (void)cap, (void)writing, (void)user;
    return -1;
}

/* Whether a line is the first of a certificate, or what a cut left of one where the file ends:
 * OpenSSL passes over that as over any text. */
static bool line_begins(const char *line, size_t bytes, bool at_end)
{
    static const char first[] = "-----BEGIN CERTIFICATE-----";
    while (bytes > 0 && (unsigned char)line[bytes - 1] <= ' ')
        bytes--;
    if (bytes == 0 || bytes > sizeof first - 1) return false;
    return (bytes == sizeof first - 1 || at_end) && memcmp(line, first, bytes) == 0;
}

static uint32_t certs_begun(const struct pem *pem)
{
    uint32_t begun = 0;
    const char *const end = pem->bytes + pem->count;
    for (const char *line = pem->bytes; line < end;) {
        const char *const newline = memchr(line, '\n', (size_t)(end - line));
        const char *const next = newline != NULL ? newline + 1 : end;
        begun += line_begins(line, (size_t)(next - line), newline == NULL);
        line = next;
    }
    return begun;
}

static enum tb_status cert_broken(const struct pem *pem, uint32_t which, char error_out[256])
{
    return say(error_out, "%s: certificate %u in it is cut or damaged; write the file again, whole",
               pem->path, (unsigned)which);
}

/* The next certificate of a file that gave `*read` so far; NULL and TB_OK behind the last. A
 * certificate that is cut or damaged is an error: a file without its end would be a smaller
 * trust, or a shorter chain, than the operator wrote. */
static enum tb_status cert_next(const struct pem *pem, uint32_t *read, X509 **cert_out, char error_out[256])
{
    ERR_clear_error();
    X509 *cert = PEM_read_bio_X509(pem->bio, NULL, no_passphrase, NULL);
    const unsigned long why = cert == NULL ? ERR_peek_last_error() : 0;
    ERR_clear_error();
    *cert_out = cert;
    if (cert != NULL) {
        (*read)++;
        return TB_OK;
    }
    if (why == 0 || ERR_GET_REASON(why) == ERR_R_MALLOC_FAILURE) {
        (void)say(error_out, "%s: no memory", pem->path);
        return TB_SITE_NOMEM;
    }
    const bool end = ERR_GET_LIB(why) == ERR_LIB_PEM && ERR_GET_REASON(why) == PEM_R_NO_START_LINE;
    if (!end || certs_begun(pem) > *read) return cert_broken(pem, *read + 1, error_out);
    return *read > 0 ? TB_OK : say(error_out, "%s: holds no PEM certificate", pem->path);
}

/* Contexts. */

static bool context_harden(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_max_cert_list(ctx, PEER_CHAIN_BYTES);
    SSL_CTX_set_verify_depth(ctx, CHAIN_DEPTH_MAX);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, tb_tls_verify_by_ca);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_tlsext_servername_callback(ctx, tb_tls_named);
    SSL_CTX_set_keylog_callback(ctx, tb_tls_keyed);
    /* A CA file may hold an intermediate: what the operator named is what is trusted,
     * and nothing above it. */
    X509_STORE_set_flags(SSL_CTX_get_cert_store(ctx), X509_V_FLAG_PARTIAL_CHAIN);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(ctx, suites) == 1 && SSL_CTX_set_num_tickets(ctx, 0) == 1 &&
           SSL_CTX_set_max_early_data(ctx, 0) == 1;
}

bool tb_openssl_begin(void)
{
    /* The second is what init forgets to look at. */
    const bool begun = OPENSSL_init_ssl(0, NULL) == 1 && OSSL_LIB_CTX_get0_global_default() != NULL;
    ERR_clear_error();
    return begun;
}

static enum tb_status context_new(struct tb_tls **tls_out)
{
    if (!tb_openssl_begin()) return TB_SITE_NOMEM;
    struct tb_tls *tls = tb_calloc(1, sizeof *tls);
    if (tls == NULL) return TB_SITE_NOMEM;
    atomic_init(&tls->refs, 1);
    tls->own_records = true;
    tls->key_records = KEY_RECORDS;
    tls->ctx = SSL_CTX_new(TLS_method());
    if (tls->ctx == NULL || !context_harden(tls->ctx)) {
        tb_tls_free(tls);
        ERR_clear_error();
        return TB_SITE_NOMEM;
    }
    *tls_out = tls;
    return TB_OK;
}

struct tb_tls *tb_tls_ref(struct tb_tls *tls)
{
    const unsigned before = (unsigned)atomic_fetch_add_explicit(&tls->refs, 1, memory_order_relaxed);
    TB_ASSERT(before > 0); /* it has an owner, who keeps it meanwhile */
    return tls;
}

void tb_tls_free(struct tb_tls *tls)
{
    if (tls == NULL || atomic_fetch_sub_explicit(&tls->refs, 1, memory_order_acq_rel) != 1) return;
    TB_ASSERT(tls->bound_count <= BOUND_MAX);
    for (uint32_t i = 0; i < tls->bound_count; i++)
        X509_free(tls->bound[i].ca);
    tb_free(tls->bound);
    tb_revoked_free(tls->revoked);
    tb_spiffe_free(tls->spiffe);
    SSL_CTX_free(tls->ctx);
    tb_free(tls);
}

/* One certificate more is shown. */
static enum tb_status shown_grow(struct tb_tls *tls, const X509 *cert)
{
    struct {
        struct tb_digest before;
        struct tb_fingerprint cert;
    } all = {.before = tls->shown};
    const enum tb_status status = tb_tls_cert_fingerprint(cert, &all.cert);
    tls->shown = tb_digest_of(&all, sizeof all);
    return status;
}

static enum tb_status know_thyself(struct tb_tls *tls, const X509 *cert)
{
    TB_ASSERT(tls->expires_wall_s == 0); /* a context has one certificate */
    tls->expires_wall_s = tb_tls_cert_expires(cert);
    const enum tb_status status = tb_tls_cert_fingerprint(cert, &tls->fingerprint);
    return status == TB_OK ? shown_grow(tls, cert) : status;
}

/* Trust by CA. */

const char *tb_tls_time_text(const ASN1_TIME *at, char out[TB_TLS_TIME_CHARS])
{
    struct tm tm;
    if (ASN1_TIME_to_tm(at, &tm) != 1 || strftime(out, TB_TLS_TIME_CHARS, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        return "?";
    return out;
}

static enum tb_status own_identity(struct tb_tls *tls, const struct tb_tls_files *files, const X509 *cert,
                                   char error_out[256])
{
    const enum tb_status status = tb_tls_cert_identity(tls->spiffe, cert, &tls->identity);
    if (status == TB_OK || (status == TB_NOT_FOUND && files->cert_unlisted)) return TB_OK;
    if (status == TB_NOT_FOUND)
        return say(error_out, "%s: no identity is listed for the certificate's SPIFFE URI (tls.spiffe)",
                   files->cert);
    return say(error_out,
               "%s: needs exactly one URI in subjectAltName, tombolo://SITE/GATEWAY or "
               "tombolo://SITE/worker/NAME",
               files->cert);
}

static enum tb_status cert_usable(struct tb_tls *tls, const struct tb_tls_files *files, X509 *cert,
                                  char error_out[256])
{
    const ASN1_TIME *from = X509_get0_notBefore(cert), *until = X509_get0_notAfter(cert);
    char at[TB_TLS_TIME_CHARS];
    if (X509_cmp_current_time(until) <= 0)
        return say(error_out, "%s: the certificate has expired, at %s; have a new one issued", files->cert,
                   tb_tls_time_text(until, at));
    if (X509_cmp_current_time(from) >= 0)
        return say(error_out, "%s: the certificate is not valid yet, but from %s on; compare the clocks",
                   files->cert, tb_tls_time_text(from, at));
    return own_identity(tls, files, cert, error_out);
}

/* The certificates behind the first: intermediates that peers do not have. */
static enum tb_status chain_use(struct tb_tls *tls, const struct pem *pem, char error_out[256])
{
    for (uint32_t read = 1;;) {
        X509 *next = NULL;
        const enum tb_status status = cert_next(pem, &read, &next, error_out);
        if (status != TB_OK || next == NULL) return status;
        if (read - 1 <= CHAIN_DEPTH_MAX && shown_grow(tls, next) == TB_OK &&
            SSL_CTX_add0_chain_cert(tls->ctx, next) == 1)
            continue;
        X509_free(next);
        if (read - 1 > CHAIN_DEPTH_MAX)
            return say(error_out,
                       "%s: holds more than %d certificates behind the first; leave those of its own chain",
                       pem->path, CHAIN_DEPTH_MAX);
        return say(error_out, "%s: OpenSSL does not take certificate %u in it", pem->path, (unsigned)read);
    }
}

static enum tb_status first_use(struct tb_tls *tls, const struct tb_tls_files *files, X509 *cert,
                                char error_out[256])
{
    enum tb_status status = cert_usable(tls, files, cert, error_out);
    if (status != TB_OK) return status;
    status = know_thyself(tls, cert);
    if (status != TB_OK) return status;
    if (SSL_CTX_use_certificate(tls->ctx, cert) == 1) return TB_OK;
    return say(error_out, "%s: OpenSSL does not take the certificate", files->cert);
}

static enum tb_status cert_use(struct tb_tls *tls, const struct tb_tls_files *files, const struct pem *pem,
                               char error_out[256])
{
    uint32_t read = 0;
    X509 *cert = NULL;
    enum tb_status status = cert_next(pem, &read, &cert, error_out);
    if (status != TB_OK) return status;
    status = first_use(tls, files, cert, error_out);
    X509_free(cert);
    return status == TB_OK ? chain_use(tls, pem, error_out) : status;
}

static enum tb_status cert_load(struct tb_tls *tls, const struct tb_tls_files *files, char error_out[256])
{
    struct pem pem;
    enum tb_status status = pem_read(&pem, files->cert, false, error_out);
    if (status == TB_OK) status = cert_use(tls, files, &pem, error_out);
    pem_fini(&pem);
    return status;
}

/* The first key that fits: while a pair is renewed the file has the old and the new one, and the
 * certificate is of either (base/pki). */
static enum tb_status key_use(struct tb_tls *tls, const struct tb_tls_files *files, const struct pem *pem,
                              char error_out[256])
{
    TB_ASSERT(SSL_CTX_get0_certificate(tls->ctx) != NULL); /* whose key it is to be */
    for (bool any = false;; any = true) {
        EVP_PKEY *key = PEM_read_bio_PrivateKey(pem->bio, NULL, no_passphrase, NULL);
        if (key == NULL && any) return say(error_out, "%s: is not the key of %s", files->key, files->cert);
        if (key == NULL)
            return say(error_out, "%s: holds no PEM private key without a passphrase", files->key);
        const bool fits =
            SSL_CTX_use_PrivateKey(tls->ctx, key) == 1 && SSL_CTX_check_private_key(tls->ctx) == 1;
        EVP_PKEY_free(key);
        if (fits) return TB_OK;
    }
}

static enum tb_status key_load(struct tb_tls *tls, const struct tb_tls_files *files, char error_out[256])
{
    struct pem pem;
    enum tb_status status = pem_read(&pem, files->key, true, error_out);
    tb_secret_wipe(true);
    if (status == TB_OK) status = key_use(tls, files, &pem, error_out);
    tb_secret_wipe(false);
    pem_fini(&pem);
    return status;
}

static bool bind_ca(struct tb_tls *tls, X509 *ca, const struct tb_name *site)
{
    TB_ASSERT(tls->bound_count <= BOUND_MAX);
    if (tls->bound_count == BOUND_MAX) return false;
    struct tb_tls_bound *more = tb_realloc(tls->bound, (tls->bound_count + 1) * sizeof *more);
    if (more == NULL) return false;
    tls->bound = more;
    X509_up_ref(ca);
    tls->bound[tls->bound_count++] = (struct tb_tls_bound){.ca = ca, .site = *site};
    return true;
}

/* One CA more is trusted, for that site or (NULL) for any. */
static enum tb_status trust_grow(struct tb_tls *tls, const X509 *ca, const struct tb_name *site)
{
    struct {
        struct tb_digest before;
        struct tb_fingerprint ca;
        struct tb_name site;
    } all = {.before = tls->trust};
    if (site != NULL && tb_name_set(&all.site, site->text) != TB_OK) return TB_BAD_ARGUMENT;
    const enum tb_status status = tb_tls_cert_fingerprint(ca, &all.ca);
    const uint64_t ends = tb_tls_cert_expires(ca);
    tls->trust = tb_digest_of(&all, sizeof all);
    if (tls->cas_expire_wall_s == 0 || ends < tls->cas_expire_wall_s) tls->cas_expire_wall_s = ends;
    return status;
}

static enum tb_status ca_use(struct tb_tls *tls, const struct pem *pem, const struct tb_name *site,
                             char error_out[256])
{
    X509_STORE *store = SSL_CTX_get_cert_store(tls->ctx);
    for (uint32_t read = 0;;) {
        X509 *ca = NULL;
        const enum tb_status status = cert_next(pem, &read, &ca, error_out);
        if (status != TB_OK || ca == NULL) return status;
        /* what it works out of it once is there before threads share it */
        (void)X509_check_purpose(ca, -1, 0);
        const bool good = X509_STORE_add_cert(store, ca) == 1 && (site == NULL || bind_ca(tls, ca, site)) &&
                          trust_grow(tls, ca, site) == TB_OK;
        X509_free(ca);
        if (good) continue;
        if (tls->bound_count == BOUND_MAX)
            return say(error_out, "%s: makes more than %d CA certificates in all", pem->path, BOUND_MAX);
        return say(error_out, "%s: OpenSSL does not take CA certificate %u in it", pem->path, (unsigned)read);
    }
}

static enum tb_status ca_load(struct tb_tls *tls, const char *path, const struct tb_name *site,
                              char error_out[256])
{
    struct pem pem;
    enum tb_status status = pem_read(&pem, path, false, error_out);
    if (status == TB_OK) status = ca_use(tls, &pem, site, error_out);
    pem_fini(&pem);
    return status;
}

enum tb_status tb_tls_add_site_ca(struct tb_tls *tls, const struct tb_name *site, const char *ca_path,
                                  char error_out[256])
{
    TB_ASSERT(!tls->ephemeral);
    error_out[0] = '\0';
    return ca_load(tls, ca_path, site, error_out);
}

/* P8: a list that cannot be read is no empty list. */
static enum tb_status spiffe_load(struct tb_tls *tls, const char *path, char error_out[256])
{
    if (path == NULL) return TB_OK;
    const enum tb_status status = tb_spiffe_read(path, &tls->spiffe, error_out);
    tls->trust = tb_spiffe_digest(tls->spiffe);
    return status;
}

static enum tb_status files_use(struct tb_tls *tls, const struct tb_tls_files *files, char error_out[256])
{
    enum tb_status status = spiffe_load(tls, files->spiffe, error_out);
    if (status != TB_OK) return status;
    status = cert_load(tls, files, error_out);
    if (status != TB_OK) return status;
    status = key_load(tls, files, error_out);
    if (status != TB_OK) return status;
    return files->ca != NULL ? ca_load(tls, files->ca, NULL, error_out) : TB_OK;
}

enum tb_status tb_tls_new_ca(const struct tb_tls_files *files, struct tb_tls **tls_out, char error_out[256])
{
    error_out[0] = '\0';
    struct tb_tls *tls = NULL;
    enum tb_status status = context_new(&tls);
    if (status == TB_OK) status = files_use(tls, files, error_out);
    ERR_clear_error();
    if (status == TB_OK) {
        *tls_out = tls;
        return TB_OK;
    }
    if (error_out[0] == '\0') (void)say(error_out, "no memory for a TLS context");
    tb_tls_free(tls);
    return status;
}

enum tb_status tb_tls_new_trust(const char *ca_path, struct tb_tls **tls_out, char error_out[256])
{
    error_out[0] = '\0';
    struct tb_tls *tls = NULL;
    enum tb_status status = context_new(&tls);
    if (status == TB_OK) status = ca_load(tls, ca_path, NULL, error_out);
    ERR_clear_error();
    if (status == TB_OK) {
        *tls_out = tls;
        return TB_OK;
    }
    if (error_out[0] == '\0') (void)say(error_out, "no memory for a TLS context");
    tb_tls_free(tls);
    return status;
}

/* Trust by print. */

static bool ephemeral_name(X509 *cert)
{
    X509_NAME *name = X509_get_subject_name(cert);
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"tombolo hop", -1, -1,
                                      0) == 1 &&
           X509_set_issuer_name(cert, name) == 1;
}

static bool ephemeral_fill(X509 *cert, EVP_PKEY *key)
{
    uint64_t serial = 0;
    tb_random_bytes(&serial, sizeof serial);
    return X509_set_version(cert, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set_uint64(X509_get_serialNumber(cert), serial >> 1) == 1 &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -EPHEMERAL_BEFORE_S) != NULL &&
           X509_gmtime_adj(X509_getm_notAfter(cert), EPHEMERAL_VALID_S) != NULL && ephemeral_name(cert) &&
           X509_set_pubkey(cert, key) == 1 && X509_sign(cert, key, EVP_sha256()) != 0;
}

static enum tb_status ephemeral_use(struct tb_tls *tls)
{
    enum tb_status status = TB_SITE_NOMEM;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    if (key != NULL && cert != NULL && ephemeral_fill(cert, key) &&
        SSL_CTX_use_certificate(tls->ctx, cert) == 1 && SSL_CTX_use_PrivateKey(tls->ctx, key) == 1)
        status = know_thyself(tls, cert);
    X509_free(cert);
    EVP_PKEY_free(key);
    return status;
}

enum tb_status tb_tls_new_ephemeral(struct tb_tls **tls_out)
{
    struct tb_tls *tls = NULL;
    enum tb_status status = context_new(&tls);
    if (status != TB_OK) return status;
    TB_ASSERT(tls->bound_count == 0); /* by print: no CA has a word in it */
    tls->ephemeral = true;
    SSL_CTX_set_cert_verify_callback(tls->ctx, tb_tls_verify_by_print, NULL);
    status = ephemeral_use(tls);
    if (status == TB_OK) {
        *tls_out = tls;
        return TB_OK;
    }
    ERR_clear_error();
    tb_tls_free(tls);
    return status;
}

void tb_tls_set_key_records(struct tb_tls *tls, uint64_t records)
{
    tls->key_records = records;
}

void tb_tls_set_own_records(struct tb_tls *tls, bool own)
{
    tls->own_records = own;
}

const struct tb_identity *tb_tls_identity(const struct tb_tls *tls)
{
    return &tls->identity;
}

const struct tb_fingerprint *tb_tls_fingerprint(const struct tb_tls *tls)
{
    return &tls->fingerprint;
}

uint64_t tb_tls_expires_wall_s(const struct tb_tls *tls)
{
    return tls->expires_wall_s;
}

struct tb_digest tb_tls_shown(const struct tb_tls *tls)
{
    return tls->shown;
}

struct tb_digest tb_tls_trust(const struct tb_tls *tls)
{
    const struct tb_digest all[] = {tls->trust, tb_revoked_digest(tls->revoked)};
    return tb_digest_of(all, sizeof all);
}

uint64_t tb_tls_cas_expire_wall_s(const struct tb_tls *tls)
{
    return tls->cas_expire_wall_s;
}
