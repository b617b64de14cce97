/* pki_files.c - PEM files: bounded when they are read, whole when they are written. */
#include "base/pki/pki_files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/secret_memory.h"
#include "base/net/tls_context.h"
#include "base/pki/pki.h"
#include "base/system_calls.h"

#define PEM_BYTES_MAX (1u << 20)
#define CERTS_MAX     64
#define PASS_BYTES    1024
/* A guess costs 16 MiB and some 50 ms of a core. OpenSSL reads no more than 32 MiB. */
#define SCRYPT_N 16384
#define SCRYPT_R 8
#define SCRYPT_P 1

static struct tb_pki_secret the_secret; /* of the process: a command works on one authority */
static bool was_asked;                  /* for a key that was read */

void tb_pki_set_secret(const struct tb_pki_secret *secret)
{
    was_asked = false;
    the_secret = secret != NULL ? *secret : (struct tb_pki_secret){.ask = NULL};
}

enum tb_status tb_pki_say(enum tb_status status, char error_out[256], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error_out, 256, format, args);
    va_end(args);
    return status;
}

enum tb_status tb_pki_say_openssl(char error_out[256], const char *what)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    if (error_out[0] != '\0') return TB_BAD_ARGUMENT;
    return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", what, text != NULL ? text : "OpenSSL failed");
}

enum tb_status tb_pki_begin(char error_out[256])
{
    error_out[0] = '\0';
    if (tb_openssl_begin()) return TB_OK;
    return tb_pki_say(TB_SITE_NOMEM, error_out, "OpenSSL cannot begin: no memory");
}

enum tb_status tb_pki_path(char out[TB_PKI_PATH_BYTES], const char *dir, const char *name,
                           char error_out[256])
{
    if (snprintf(out, TB_PKI_PATH_BYTES, "%s/%s", dir, name) < TB_PKI_PATH_BYTES) return TB_OK;
    return tb_pki_say(TB_BAD_ARGUMENT, error_out, "%.200s: the path is too long", dir);
}

bool tb_pki_missing(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* ---- reading ---- */

static bool fill(int fd, char *bytes, size_t *count_out)
{
    size_t count = 0;
    while (count < PEM_BYTES_MAX) {
        const ssize_t got = tb_sys_pread(fd, bytes + count, PEM_BYTES_MAX - count, (off_t)count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) break;
        count += (size_t)got;
    }
    *count_out = count;
    return true;
}

static enum tb_status io_failed(const char *path, char error_out[256])
{
    const enum tb_status status = errno == ENOENT || errno == ENOTDIR ? TB_NOT_FOUND
                                  : errno == ENOMEM                   ? TB_SITE_NOMEM
                                                                      : TB_SITE_IO;
    return tb_pki_say(status, error_out, "%.150s: %s", path, strerror(errno));
}

static enum tb_status to_text(const char *path, const char *bytes, size_t count, BIO **text_out,
                              char error_out[256])
{
    if (count == PEM_BYTES_MAX)
        return tb_pki_say(TB_BAD_FILE, error_out, "%.150s: is too large for a PEM file", path);
    BIO *text = BIO_new(BIO_s_secmem());
    if (text != NULL && (count == 0 || BIO_write(text, bytes, (int)count) == (int)count)) {
        *text_out = text;
        return TB_OK;
    }
    BIO_free(text);
    return tb_pki_say(TB_SITE_NOMEM, error_out, "%.150s: no memory", path);
}

static enum tb_status read_text(const char *path, BIO **text_out, char error_out[256])
{
    size_t count = 0;
    enum tb_status status = TB_OK;
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return io_failed(path, error_out);
    char *bytes = tb_secret_new(PEM_BYTES_MAX);
    if (bytes == NULL)
        status = tb_pki_say(TB_SITE_NOMEM, error_out, "%.150s: no memory", path);
    else if (!fill(fd, bytes, &count))
        status = io_failed(path, error_out);
    else
        status = to_text(path, bytes, count, text_out, error_out);
    tb_secret_free(bytes, PEM_BYTES_MAX);
    close(fd);
    return status;
}

/* The meaning of OpenSSL's last error for a file that was read. */
static enum tb_status no_pem(const char *path, const char *what, char error_out[256])
{
    const bool nomem = ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE;
    ERR_clear_error();
    if (nomem) return tb_pki_say(TB_SITE_NOMEM, error_out, "%.150s: no memory", path);
    return tb_pki_say(TB_BAD_FILE, error_out, "%.150s: %s", path, what);
}

static int no_passphrase(char *out, int cap, int writing, void *user)
{
    (void)out, (void)cap, (void)writing, (void)user;
    return -1;
}

/* False: the file has something in it that is no certificate, or too many; OpenSSL's last error. */
static bool take_certs(BIO *text, STACK_OF(X509) * certs)
{
    for (;;) {
        X509 *cert = PEM_read_bio_X509(text, NULL, no_passphrase, NULL);
        if (cert == NULL) break;
        if (sk_X509_num(certs) < CERTS_MAX && sk_X509_push(certs, cert) > 0) continue;
        X509_free(cert);
        return false;
    }
    const unsigned long why = ERR_peek_last_error();
    return ERR_GET_LIB(why) == ERR_LIB_PEM && ERR_GET_REASON(why) == PEM_R_NO_START_LINE &&
           sk_X509_num(certs) > 0;
}

enum tb_status tb_pki_read_certs(const char *path, STACK_OF(X509) * *certs_out, char error_out[256])
{
    BIO *text = NULL;
    const enum tb_status status = read_text(path, &text, error_out);
    if (status != TB_OK) return status;
    ERR_clear_error();
    STACK_OF(X509) *certs = sk_X509_new_null();
    const bool good = certs != NULL && take_certs(text, certs);
    BIO_free(text);
    if (good) {
        ERR_clear_error();
        *certs_out = certs;
        return TB_OK;
    }
    sk_X509_pop_free(certs, X509_free);
    return no_pem(path, "holds no whole PEM certificates", error_out);
}

/* The file whose passphrase is asked for, and why it could not be had. */
struct asking {
    bool asked; /* OpenSSL tries several readers on one key: a person is asked once */
    const char *path;
    char *error_out;
};

static int passphrase(char *out, int cap, int writing, void *user)
{
    struct asking *a = user;
    (void)writing;
    if (a->asked) return -1;
    a->asked = true;
    if (the_secret.ask == NULL) {
        (void)tb_pki_say(TB_BAD_FILE, a->error_out, "%.150s: has a passphrase, and none was given", a->path);
        return -1;
    }
    was_asked = true;
    return the_secret.ask(the_secret.user, a->path, false, out, cap, a->error_out);
}

void tb_pki_secret_keeps(void)
{
    if (was_asked) the_secret.encrypts = true;
}

static EVP_PKEY *find_key(BIO *text, X509 *fits, struct asking *asking)
{
    for (;;) {
        EVP_PKEY *key = PEM_read_bio_PrivateKey(text, NULL, passphrase, asking);
        if (key == NULL || fits == NULL || X509_check_private_key(fits, key) == 1) return key;
        EVP_PKEY_free(key);
        asking->asked = false; /* that one was read */
    }
}

enum tb_status tb_pki_read_key(const char *path, X509 *fits, EVP_PKEY **key_out, char error_out[256])
{
    struct asking asking = {false, path, error_out};
    BIO *text = NULL;
    const enum tb_status status = read_text(path, &text, error_out);
    if (status != TB_OK) return status;
    ERR_clear_error();
    EVP_PKEY *key = find_key(text, fits, &asking);
    BIO_free(text);
    if (key != NULL) {
        ERR_clear_error();
        *key_out = key;
        return TB_OK;
    }
    const bool wrong = asking.asked;         /* a wrong one may also give bytes that are no key */
    const bool asked = error_out[0] != '\0'; /* and why there is none was said */
    if (!wrong && !asked) return no_pem(path, "holds no PEM key that fits", error_out);
    ERR_clear_error();
    return asked ? TB_BAD_ARGUMENT
                 : tb_pki_say(TB_BAD_ARGUMENT, error_out, "%.150s: the passphrase does not fit", path);
}

enum tb_status tb_pki_read_request(const char *path, X509_REQ **request_out, char error_out[256])
{
    BIO *text = NULL;
    const enum tb_status status = read_text(path, &text, error_out);
    if (status != TB_OK) return status;
    ERR_clear_error();
    *request_out = PEM_read_bio_X509_REQ(text, NULL, no_passphrase, NULL);
    BIO_free(text);
    if (*request_out == NULL) return no_pem(path, "holds no PEM certificate request", error_out);
    return TB_OK;
}

/* ---- writing ---- */

BIO *tb_pki_text(void)
{
    return BIO_new(BIO_s_secmem());
}

bool tb_pki_put_key(BIO *text, EVP_PKEY *key)
{
    return PEM_write_bio_PKCS8PrivateKey(text, key, NULL, NULL, 0, NULL, NULL) == 1;
}

/* OpenSSL's own way takes 2048 rounds of PBKDF2, which a thief tries in no time. */
static X509_SIG *encrypt(EVP_PKEY *key, const char *pass, int count)
{
    PKCS8_PRIV_KEY_INFO *plain = EVP_PKEY2PKCS8(key);
    X509_ALGOR *by = PKCS5_pbe2_set_scrypt(EVP_aes_256_cbc(), NULL, 0, NULL, SCRYPT_N, SCRYPT_R, SCRYPT_P);
    X509_SIG *sealed = NULL;
    if (plain != NULL && by != NULL) sealed = PKCS8_set0_pbe(pass, count, plain, by);
    if (sealed == NULL) X509_ALGOR_free(by); /* else it is in there */
    PKCS8_PRIV_KEY_INFO_free(plain);
    return sealed;
}

bool tb_pki_put_secret_key(BIO *text, EVP_PKEY *key, char error_out[256])
{
    char pass[PASS_BYTES];
    if (!the_secret.encrypts) return tb_pki_put_key(text, key);
    TB_ASSERT(the_secret.ask != NULL);
    const int count = the_secret.ask(the_secret.user, "ca.key", true, pass, sizeof pass, error_out);
    X509_SIG *sealed = count > 0 ? encrypt(key, pass, count) : NULL;
    OPENSSL_cleanse(pass, sizeof pass);
    const bool good = sealed != NULL && PEM_write_bio_PKCS8(text, sealed) == 1;
    X509_SIG_free(sealed);
    return good;
}

bool tb_pki_put_certs(BIO *text, const STACK_OF(X509) * certs)
{
    for (int i = 0; i < sk_X509_num(certs); i++)
        if (PEM_write_bio_X509(text, sk_X509_value(certs, i)) != 1) return false;
    return true;
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

static bool like(int fd, const struct stat *old)
{
    return fchown(fd, old->st_uid, old->st_gid) == 0 && fchmod(fd, old->st_mode & 07777) == 0;
}

/* `old`: whose owner and mode it gets; NULL: none's. */
static enum tb_status write_file(const char *path, mode_t mode, BIO *text, const struct stat *old,
                                 char error_out[256])
{
    char *bytes = NULL;
    const long count = BIO_get_mem_data(text, &bytes);
    TB_ASSERT(count > 0);
    const int fd = tb_sys_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 && errno == EEXIST)
        return tb_pki_say(TB_CONFLICT, error_out, "%.150s: exists already and is left alone", path);
    if (fd < 0) return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", path, strerror(errno));
    const bool good = (old == NULL || like(fd, old)) && write_all(fd, bytes, (size_t)count);
    const int error = errno;
    if (close(fd) == 0 && good) return TB_OK;
    (void)unlink(path);
    return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", path, strerror(error));
}

enum tb_status tb_pki_write_new(const char *path, mode_t mode, BIO *text, char error_out[256])
{
    return write_file(path, mode, text, NULL, error_out);
}

/* The new name is on the disk, or the next start has the old file. */
static void folder_sync(const char *path)
{
    char folder[TB_PKI_PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) slash[slash == folder] = '\0';
    const int fd = tb_sys_open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return;
    (void)tb_sys_fsync(fd);
    close(fd);
}

enum tb_status tb_pki_replace(const char *path, mode_t mode, BIO *text, char error_out[256])
{
    char next[TB_PKI_PATH_BYTES];
    struct stat old;
    const bool there = lstat(path, &old) == 0;
    if (snprintf(next, sizeof next, "%s.next", path) >= (int)sizeof next)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out, "%.200s: the path is too long", path);
    if (there && !S_ISREG(old.st_mode))
        return tb_pki_say(TB_BAD_ARGUMENT, error_out, "%.150s: is no regular file", path);
    (void)unlink(next); /* of a command that was killed */
    const enum tb_status status = write_file(next, there ? 0600 : mode, text, there ? &old : NULL, error_out);
    if (status != TB_OK) return status;
    if (tb_sys_rename(next, path) == 0) {
        folder_sync(path);
        return TB_OK;
    }
    const int error = errno;
    (void)unlink(next);
    return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", path, strerror(error));
}
