/* pki.c - keys, a CA and certificates for people who have none. */
#include "base/net/pki.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/tls_context.h"
#include "base/system_calls.h"

#define PATH_BYTES    4096
#define PEM_BYTES_MAX (64 * 1024)
#define SERIAL_BITS   127
#define DAY_S         86400
#define CA_BEFORE_S   300 /* the clocks of two sites differ */

__attribute__((format(printf, 3, 4))) static enum tb_status say(enum tb_status status, char error_out[256],
                                                                const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_out, 256, format, args);
    va_end(args);
    return status;
}

static enum tb_status say_openssl(char error_out[256], const char *what)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());
    say(TB_SITE_IO, error_out, "%s: %s", what, text != NULL ? text : "OpenSSL failed");
    ERR_clear_error();
    return TB_SITE_IO;
}

static enum tb_status begin_openssl(char error_out[256])
{
    if (tb_openssl_begin()) return TB_OK;
    return say(TB_SITE_NOMEM, error_out, "OpenSSL cannot begin: no memory");
}

/* Files. */

static bool path_of(char out[PATH_BYTES], const char *dir, const char *stem, const char *suffix)
{
    return snprintf(out, PATH_BYTES, "%s/%s.%s", dir, stem, suffix) < PATH_BYTES;
}

static bool write_all(int fd, const char *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        const ssize_t put = tb_sys_pwrite(fd, bytes + done, count - done, (off_t)done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        done += (size_t)put;
        TB_ASSERT(done <= count);
    }
    return tb_sys_fsync(fd) == 0;
}

/* Never replaces a file: an existing key is somebody's. */
static enum tb_status write_new(const char *path, mode_t mode, BIO *pem, char error_out[256])
{
    char *bytes = NULL;
    const long count = BIO_get_mem_data(pem, &bytes);
    TB_ASSERT(count > 0);
    const int fd = tb_sys_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 && errno == EEXIST)
        return say(TB_CONFLICT, error_out, "%s: exists already and is left alone", path);
    if (fd < 0) return say(TB_SITE_IO, error_out, "%s: %s", path, strerror(errno));
    const bool good = write_all(fd, bytes, (size_t)count);
    const int error = errno;
    if (close(fd) == 0 && good) return TB_OK;
    (void)unlink(path);
    return say(TB_SITE_IO, error_out, "%s: %s", path, strerror(error));
}

static enum tb_status write_key(const char *path, EVP_PKEY *key, char error_out[256])
{
    BIO *pem = BIO_new(BIO_s_secmem()); /* wiped when it is freed */
    enum tb_status status = TB_SITE_NOMEM;
    if (pem != NULL && PEM_write_bio_PKCS8PrivateKey(pem, key, NULL, NULL, 0, NULL, NULL) == 1)
        status = write_new(path, 0600, pem, error_out);
    else
        status = say_openssl(error_out, path);
    BIO_free(pem);
    return status;
}

static enum tb_status write_cert(const char *path, X509 *cert, char error_out[256])
{
    BIO *pem = BIO_new(BIO_s_mem());
    enum tb_status status = TB_SITE_NOMEM;
    if (pem != NULL && PEM_write_bio_X509(pem, cert) == 1)
        status = write_new(path, 0644, pem, error_out);
    else
        status = say_openssl(error_out, path);
    BIO_free(pem);
    return status;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static bool missing(const char *path)
{
    return !exists(path) && (errno == ENOENT || errno == ENOTDIR);
}

/* Both files or none. */
static enum tb_status write_pair(const char *dir, const char *stem, EVP_PKEY *key, X509 *cert,
                                 char error_out[256])
{
    char key_path[PATH_BYTES], cert_path[PATH_BYTES];
    if (!path_of(key_path, dir, stem, "key") || !path_of(cert_path, dir, stem, "crt"))
        return say(TB_BAD_ARGUMENT, error_out, "%.200s: the path is too long", dir);
    if (exists(cert_path))
        return say(TB_CONFLICT, error_out, "%s: exists already and is left alone", cert_path);
    enum tb_status status = write_key(key_path, key, error_out);
    if (status != TB_OK) return status;
    status = write_cert(cert_path, cert, error_out);
    if (status != TB_OK) (void)unlink(key_path);
    return status;
}

static BIO *read_pem(const char *path, char error_out[256])
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    char *bytes = fd < 0 ? NULL : tb_malloc(PEM_BYTES_MAX);
    const ssize_t got = bytes == NULL ? -1 : tb_sys_pread(fd, bytes, PEM_BYTES_MAX, 0);
    BIO *bio = NULL;
    if (got < 0)
        say(TB_SITE_IO, error_out, "%s: %s", path, strerror(errno));
    else
        bio = BIO_new(BIO_s_secmem());
    if (bio != NULL && BIO_write(bio, bytes, (int)got) != got) {
        BIO_free(bio);
        bio = NULL;
    }
    if (bytes != NULL) OPENSSL_cleanse(bytes, PEM_BYTES_MAX);
    tb_free(bytes);
    if (fd >= 0) close(fd);
    return bio;
}

static int no_passphrase(char *out, int cap, int writing, void *user)
{
    (void)out, (void)cap, (void)writing, (void)user;
    return -1;
}

/* Certificates. */

static bool set_serial(X509 *cert)
{
    BIGNUM *n = BN_new();
    const bool good = n != NULL && BN_rand(n, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
                      BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert)) != NULL;
    BN_free(n);
    return good;
}

static bool set_time(ASN1_TIME *at, int64_t offset_s)
{
    TB_ASSERT(offset_s / DAY_S <= INT32_MAX && offset_s / DAY_S >= INT32_MIN);
    return X509_time_adj_ex(at, (int)(offset_s / DAY_S), (long)(offset_s % DAY_S), NULL) != NULL;
}

static bool set_name(X509_NAME *name, const char *cn)
{
    return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"Tombolo", -1, -1, 0) ==
               1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0) == 1;
}

/* `value` in the words of openssl.cnf; every value is ours or a valid name, so
 * nothing can be injected. */
static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    const bool good = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

struct span {
    int64_t start_offset_s;
    int64_t valid_s;
};

static bool begin_cert(X509 *cert, EVP_PKEY *key, const char *cn, struct span span)
{
    TB_ASSERT(span.valid_s > 0);
    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           set_time(X509_getm_notBefore(cert), span.start_offset_s) &&
           set_time(X509_getm_notAfter(cert), span.start_offset_s + span.valid_s) &&
           set_name(X509_get_subject_name(cert), cn) && X509_set_pubkey(cert, key) == 1;
}

/* A CA speaks for its own site alone, wherever it is trusted: X.509 name constraints say so. */
static bool fill_ca(X509 *cert, EVP_PKEY *key, const char *site, struct span span)
{
    char permitted[TB_NAME_BYTES_MAX + 32];
    TB_ASSERT(tb_name_valid(site)); /* what is written into the certificate has nothing else in it */
    snprintf(permitted, sizeof permitted, "critical,permitted;URI:%s", site);
    return begin_cert(cert, key, site, span) &&
           X509_set_issuer_name(cert, X509_get_subject_name(cert)) == 1 &&
           add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           add_extension(cert, cert, NID_subject_key_identifier, "hash") &&
           add_extension(cert, cert, NID_name_constraints, permitted) &&
           X509_sign(cert, key, EVP_sha256()) != 0;
}

struct ca {
    X509 *cert;
    EVP_PKEY *key;
};

static bool fill_leaf(X509 *cert, EVP_PKEY *key, const struct ca *ca, const struct tb_identity *identity,
                      struct span span)
{
    char uri[TB_URI_BYTES_MAX], names[TB_URI_BYTES_MAX + 8];
    TB_ASSERT(identity->kind != TB_IDENTITY_NONE && identity->kind != TB_IDENTITY_UNIX);
    tb_identity_format(identity, uri);
    snprintf(names, sizeof names, "URI:%s", uri);
    return begin_cert(cert, key, identity->name.text, span) &&
           X509_set_issuer_name(cert, X509_get_subject_name(ca->cert)) == 1 &&
           add_extension(cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, ca->cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, ca->cert, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_extension(cert, ca->cert, NID_subject_key_identifier, "hash") &&
           add_extension(cert, ca->cert, NID_authority_key_identifier, "keyid") &&
           add_extension(cert, ca->cert, NID_subject_alt_name, names) &&
           X509_sign(cert, ca->key, EVP_sha256()) != 0;
}

enum tb_status tb_pki_init(const char *dir, const char *site, unsigned days, char error_out[256])
{
    error_out[0] = '\0';
    if (!tb_name_valid(site) || site[0] == '.') /* a constraint that begins with a dot means a domain */
        return say(TB_BAD_ARGUMENT, error_out,
                   "the name of a site has 1 to 64 of A-Z a-z 0-9 . _ - and begins with no dot");
    if (days == 0 || days > 36500) return say(TB_BAD_ARGUMENT, error_out, "days must be between 1 and 36500");
    if (begin_openssl(error_out) != TB_OK) return TB_SITE_NOMEM;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return say(TB_SITE_IO, error_out, "%s: %s", dir, strerror(errno));
    const struct span span = {.start_offset_s = -CA_BEFORE_S, .valid_s = (int64_t)days * DAY_S};
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    enum tb_status status = TB_OK;
    if (key == NULL || cert == NULL || !fill_ca(cert, key, site, span))
        status = say_openssl(error_out, "making the CA");
    else
        status = write_pair(dir, "ca", key, cert, error_out);
    X509_free(cert);
    EVP_PKEY_free(key);
    return status;
}

static void ca_free(struct ca *ca)
{
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
}

/* Files that are there and were read, and are no pair; or OpenSSL had no memory for them. */
static enum tb_status ca_unfit(const char *dir, char error_out[256])
{
    const bool nomem = ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE;
    ERR_clear_error();
    if (nomem) return say(TB_SITE_NOMEM, error_out, "%.150s: no memory to read the CA", dir);
    return say(TB_BAD_FILE, error_out, "%.150s: ca.crt and ca.key are not a PEM certificate and its key",
               dir);
}

/* After this ca_free is due, on failure too. */
static enum tb_status ca_read(const char *dir, struct ca *ca, char error_out[256])
{
    char cert_path[PATH_BYTES], key_path[PATH_BYTES];
    *ca = (struct ca){0};
    if (!path_of(cert_path, dir, "ca", "crt") || !path_of(key_path, dir, "ca", "key"))
        return say(TB_BAD_ARGUMENT, error_out, "%.200s: the path is too long", dir);
    if (missing(cert_path))
        return say(TB_NOT_FOUND, error_out, "%.150s: there is no CA here; `tombolo pki init` makes one",
                   cert_path);
    if (missing(key_path))
        return say(TB_NOT_FOUND, error_out, "%.150s: is not here; issue where the CA was made", key_path);
    BIO *bio = read_pem(cert_path, error_out);
    if (bio != NULL) ca->cert = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    BIO_free(bio);
    bio = ca->cert == NULL ? NULL : read_pem(key_path, error_out);
    if (bio != NULL) ca->key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    BIO_free(bio);
    if (ca->key != NULL && X509_check_private_key(ca->cert, ca->key) == 1) return TB_OK;
    return error_out[0] == '\0' ? ca_unfit(dir, error_out) : TB_SITE_IO;
}

/* A certificate outside the CA's constraints would be refused by every peer: say it now. */
static bool ca_permits(const struct ca *ca, X509 *cert)
{
    /* makes OpenSSL read the extensions of a certificate that it wrote */
    (void)X509_check_purpose(cert, -1, 0);
    NAME_CONSTRAINTS *limits = X509_get_ext_d2i(ca->cert, NID_name_constraints, NULL, NULL);
    const bool permits = limits == NULL || NAME_CONSTRAINTS_check(cert, limits) == X509_V_OK;
    NAME_CONSTRAINTS_free(limits);
    return permits;
}

static enum tb_status issue(const char *dir, const char *stem, const struct tb_identity *identity,
                            struct span span, const struct ca *ca, char error_out[256])
{
    enum tb_status status = TB_OK;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    if (key == NULL || cert == NULL || !fill_leaf(cert, key, ca, identity, span))
        status = say_openssl(error_out, "making the certificate");
    else if (!ca_permits(ca, cert))
        status = say(TB_BAD_ARGUMENT, error_out, "%.150s/ca.crt is not the CA of site %s", dir,
                     identity->site.text);
    else
        status = write_pair(dir, stem, key, cert, error_out);
    X509_free(cert);
    EVP_PKEY_free(key);
    return status;
}

enum tb_status tb_pki_issue(const char *dir, const char *file_stem, const struct tb_identity *identity,
                            int64_t start_offset_s, int64_t valid_s, char error_out[256])
{
    error_out[0] = '\0';
    if (!tb_name_valid(file_stem) || strcmp(file_stem, "ca") == 0)
        return say(TB_BAD_ARGUMENT, error_out, "the file name is a plain name and not \"ca\"");
    if (identity->kind == TB_IDENTITY_NONE || identity->kind == TB_IDENTITY_UNIX)
        return say(TB_BAD_ARGUMENT, error_out, "certificates are for gateways, workers and publishers");
    if (valid_s <= 0 || valid_s > (int64_t)36500 * DAY_S || start_offset_s < -(int64_t)36500 * DAY_S ||
        start_offset_s > (int64_t)36500 * DAY_S)
        return say(TB_BAD_ARGUMENT, error_out, "the time of validity is out of range");
    if (begin_openssl(error_out) != TB_OK) return TB_SITE_NOMEM;
    struct ca ca;
    enum tb_status status = ca_read(dir, &ca, error_out);
    const struct span span = {.start_offset_s = start_offset_s, .valid_s = valid_s};
    if (status == TB_OK) status = issue(dir, file_stem, identity, span, &ca, error_out);
    ca_free(&ca);
    return status;
}

enum tb_status tb_pki_site(const char *dir, struct tb_name *site_out, char error_out[256])
{
    error_out[0] = '\0';
    if (begin_openssl(error_out) != TB_OK) return TB_SITE_NOMEM;
    struct ca ca;
    char text[TB_NAME_BYTES_MAX + 2] = "";
    enum tb_status status = ca_read(dir, &ca, error_out);
    if (status == TB_OK)
        (void)X509_NAME_get_text_by_NID(X509_get_subject_name(ca.cert), NID_commonName, text, sizeof text);
    ca_free(&ca);
    if (status != TB_OK || tb_name_set(site_out, text) == TB_OK) return status;
    return say(TB_BAD_FILE, error_out, "%.150s/ca.crt does not name its site", dir);
}
