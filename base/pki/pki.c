/* pki.c - authorities are made, and sign for leaves. */
#include "base/pki/pki.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/net/tls_context.h"
#include "base/pki/authority.h"
#include "base/pki/certificate.h"
#include "base/pki/pki_files.h"

#define NAME_BYTES (TB_NAME_BYTES_MAX + 8)

static enum tb_status write_key(const char *path, EVP_PKEY *key, bool secret, char error_out[256])
{
    BIO *text = tb_pki_text();
    enum tb_status status = TB_OK;
    if (text == NULL || !(secret ? tb_pki_put_secret_key(text, key, error_out) : tb_pki_put_key(text, key)))
        status = tb_pki_say_openssl(error_out, path);
    else
        status = tb_pki_write_new(path, 0600, text, error_out);
    BIO_free(text);
    return status;
}

/* An issuing authority's certificate behind the leaf's; `issuer` NULL: none. */
static BIO *text_of_certs(X509 *cert, X509 *issuer)
{
    STACK_OF(X509) *certs = sk_X509_new_null();
    BIO *text = tb_pki_text();
    const bool good = certs != NULL && text != NULL && sk_X509_push(certs, cert) > 0 &&
                      (issuer == NULL || sk_X509_push(certs, issuer) > 0) && tb_pki_put_certs(text, certs);
    sk_X509_free(certs);
    if (good) return text;
    BIO_free(text);
    return NULL;
}

static enum tb_status write_certs(const char *path, X509 *cert, X509 *issuer, char error_out[256])
{
    BIO *text = text_of_certs(cert, issuer);
    if (text == NULL) return tb_pki_say_openssl(error_out, path);
    const enum tb_status status = tb_pki_write_new(path, 0644, text, error_out);
    BIO_free(text);
    return status;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

struct pair {
    EVP_PKEY *key;
    X509 *cert;
    X509 *issuer; /* that stands behind it; NULL: none */
    bool secret;  /* the key of an authority */
};

/* Both files or none. */
static enum tb_status write_pair(const char *dir, const char *stem, const struct pair *pair,
                                 char error_out[256])
{
    char key_path[TB_PKI_PATH_BYTES], cert_path[TB_PKI_PATH_BYTES], name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "%.64s.key", stem);
    enum tb_status status = tb_pki_path(key_path, dir, name, error_out);
    if (status != TB_OK) return status;
    (void)snprintf(name, sizeof name, "%.64s.crt", stem);
    status = tb_pki_path(cert_path, dir, name, error_out);
    if (status != TB_OK) return status;
    if (exists(cert_path))
        return tb_pki_say(TB_CONFLICT, error_out, "%.150s: exists already and is left alone", cert_path);
    status = write_key(key_path, pair->key, pair->secret, error_out);
    if (status != TB_OK) return status;
    status = write_certs(cert_path, pair->cert, pair->issuer, error_out);
    if (status != TB_OK) (void)unlink(key_path);
    return status;
}

/* ---- authorities ---- */

static enum tb_status days_fit(unsigned days, char error_out[256])
{
    if (days > 0 && days <= TB_PKI_DAYS_MAX) return TB_OK;
    return tb_pki_say(TB_BAD_ARGUMENT, error_out, "days must be between 1 and %d", TB_PKI_DAYS_MAX);
}

enum tb_status tb_pki_init(const char *dir, const char *site, unsigned days, char error_out[256])
{
    enum tb_status status = tb_pki_begin(error_out);
    if (status != TB_OK) return status;
    if (!tb_name_valid(site) || site[0] == '.') /* a constraint that begins with a dot means a domain */
        return tb_pki_say(TB_BAD_ARGUMENT, error_out,
                          "the name of a site has 1 to 64 of A-Z a-z 0-9 . _ - and begins with no dot");
    status = days_fit(days, error_out);
    if (status != TB_OK) return status;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", dir, strerror(errno));
    const struct tb_pki_span span = {-TB_PKI_CA_BEFORE_S, (int64_t)days * TB_PKI_DAY_S};
    const struct pair pair = {.key = EVP_EC_gen("P-256"), .cert = X509_new(), .secret = true};
    if (pair.key == NULL || pair.cert == NULL ||
        !tb_pki_fill_ca(pair.cert, pair.key, site, TB_PKI_ROOT_PATHLEN, span, NULL, NULL))
        status = tb_pki_say_openssl(error_out, "making the CA");
    else
        status = write_pair(dir, "ca", &pair, error_out);
    X509_free(pair.cert);
    EVP_PKEY_free(pair.key);
    return status;
}

enum tb_status tb_pki_site(const char *dir, struct tb_name *site_out, char error_out[256])
{
    struct tb_pki_authority a = {.cert = NULL};
    enum tb_status status = tb_pki_begin(error_out);
    if (status == TB_OK) status = tb_pki_authority_read(dir, &a, error_out);
    if (status == TB_OK) status = tb_pki_site_of(dir, a.cert, site_out, error_out);
    tb_pki_authority_free(&a);
    return status;
}

/* ---- leaves ---- */

static enum tb_status leaf_fits(const struct tb_identity *identity, struct tb_pki_span span,
                                char error_out[256])
{
    const int64_t most = (int64_t)TB_PKI_DAYS_MAX * TB_PKI_DAY_S;
    if (identity->kind == TB_IDENTITY_NONE || identity->kind == TB_IDENTITY_UNIX)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out,
                          "certificates are for gateways, workers and publishers");
    if (span.valid_s <= 0 || span.valid_s > most || span.start_offset_s < -most || span.start_offset_s > most)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out, "the time of validity is out of range");
    return TB_OK;
}

/* A certificate outside the CA's constraints would be refused by every peer: say it now. */
static enum tb_status fill(const char *dir, const struct tb_pki_authority *a, X509 *cert, EVP_PKEY *key,
                           const struct tb_identity *identity, struct tb_pki_span span, char error_out[256])
{
    if (key == NULL || cert == NULL || !tb_pki_fill_leaf(cert, key, identity, span, a->cert, a->key))
        return tb_pki_say_openssl(error_out, "making the certificate");
    if (tb_pki_permits(a->cert, cert)) return TB_OK;
    return tb_pki_say(TB_BAD_ARGUMENT, error_out, "%.150s/ca.crt is not the CA of site %s", dir,
                      identity->site.text);
}

/* Names of an authority's own files. */
static bool is_of_authority(const char *file_stem)
{
    static const char *const names[] = {"ca", "ca-next", "ca-old", "root"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(file_stem, names[i]) == 0) return true;
    return false;
}

enum tb_status tb_pki_issue(const char *dir, const char *file_stem, const struct tb_identity *identity,
                            int64_t start_offset_s, int64_t valid_s, char error_out[256])
{
    struct tb_pki_authority a;
    const struct tb_pki_span span = {start_offset_s, valid_s};
    enum tb_status status = tb_pki_begin(error_out);
    if (status != TB_OK) return status;
    if (!tb_name_valid(file_stem) || is_of_authority(file_stem))
        return tb_pki_say(TB_BAD_ARGUMENT, error_out,
                          "the file name is a plain name, and none of ca, ca-next, ca-old and root");
    status = leaf_fits(identity, span, error_out);
    if (status != TB_OK) return status;
    status = tb_pki_authority_read(dir, &a, error_out);
    if (status == TB_OK) {
        const struct pair pair = {
            .key = EVP_EC_gen("P-256"), .cert = X509_new(), .issuer = a.issuing ? a.cert : NULL};
        status = fill(dir, &a, pair.cert, pair.key, identity, span, error_out);
        if (status == TB_OK) status = write_pair(dir, file_stem, &pair, error_out);
        X509_free(pair.cert);
        EVP_PKEY_free(pair.key);
    }
    tb_pki_authority_free(&a);
    return status;
}

/* ---- requests ---- */

static enum tb_status write_request(const char *path, X509_REQ *request, char error_out[256])
{
    BIO *text = tb_pki_text();
    enum tb_status status = TB_OK;
    if (text == NULL || PEM_write_bio_X509_REQ(text, request) != 1)
        status = tb_pki_say_openssl(error_out, path);
    else
        status = tb_pki_write_new(path, 0644, text, error_out);
    BIO_free(text);
    return status;
}

enum tb_status tb_pki_request(const char *csr_path, const char *key_path, bool key_is_there,
                              const struct tb_identity *identity, char error_out[256])
{
    enum tb_status status = tb_pki_begin(error_out);
    if (status == TB_OK) status = leaf_fits(identity, (struct tb_pki_span){.valid_s = 1}, error_out);
    if (status != TB_OK) return status;
    if (exists(csr_path))
        return tb_pki_say(TB_CONFLICT, error_out, "%.150s: exists already and is left alone", csr_path);
    EVP_PKEY *key = NULL;
    if (key_is_there)
        status = tb_pki_read_key(key_path, NULL, &key, error_out);
    else
        key = EVP_EC_gen("P-256");
    if (status != TB_OK) return status;
    X509_REQ *request = X509_REQ_new();
    if (key == NULL || request == NULL || !tb_pki_fill_request(request, key, identity))
        status = tb_pki_say_openssl(error_out, "making the request");
    if (status == TB_OK && !key_is_there) status = write_key(key_path, key, false, error_out);
    if (status == TB_OK) {
        status = write_request(csr_path, request, error_out);
        if (status != TB_OK && !key_is_there) (void)unlink(key_path);
    }
    X509_REQ_free(request);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return status;
}

/* P8: the maker of the request has its key, and asks for nothing else than is given. */
static enum tb_status request_fits(const char *path, X509_REQ *request, const struct tb_identity *identity,
                                   char error_out[256])
{
    struct tb_identity asked;
    char uri[TB_URI_BYTES_MAX];
    EVP_PKEY *key = X509_REQ_get0_pubkey(request);
    const bool own = key != NULL && X509_REQ_verify(request, key) == 1;
    ERR_clear_error();
    if (!own) return tb_pki_say(TB_BAD_FILE, error_out, "%.150s: is not signed with its own key", path);
    if (!tb_pki_key_fits(key))
        return tb_pki_say(TB_BAD_FILE, error_out,
                          "%.150s: its key is none of P-256 to P-521, Ed25519, RSA from "
                          "2048 bits on",
                          path);
    if (!tb_pki_requested(request, &asked))
        return tb_pki_say(TB_BAD_FILE, error_out, "%.150s: asks for no identity, or for several", path);
    if (tb_identity_equal(&asked, identity)) return TB_OK;
    tb_identity_format(&asked, uri);
    return tb_pki_say(TB_BAD_ARGUMENT, error_out, "%.100s: asks for %.120s", path, uri);
}

static enum tb_status sign(const char *dir, const char *cert_path, X509_REQ *request,
                           const struct tb_identity *identity, struct tb_pki_span span, char error_out[256])
{
    struct tb_pki_authority a = {.cert = NULL};
    X509 *cert = X509_new();
    enum tb_status status = tb_pki_authority_read(dir, &a, error_out);
    if (status == TB_OK)
        status = fill(dir, &a, cert, X509_REQ_get0_pubkey(request), identity, span, error_out);
    if (status == TB_OK) status = write_certs(cert_path, cert, a.issuing ? a.cert : NULL, error_out);
    tb_pki_authority_free(&a);
    X509_free(cert);
    return status;
}

enum tb_status tb_pki_sign(const char *dir, const char *csr_path, const char *cert_path,
                           const struct tb_identity *identity, int64_t valid_s, char error_out[256])
{
    const struct tb_pki_span span = {0, valid_s};
    enum tb_status status = tb_pki_begin(error_out);
    if (status == TB_OK) status = leaf_fits(identity, span, error_out);
    if (status != TB_OK) return status;
    X509_REQ *request = NULL;
    status = tb_pki_read_request(csr_path, &request, error_out);
    if (status != TB_OK) return status;
    status = request_fits(csr_path, request, identity, error_out);
    if (status == TB_OK) status = sign(dir, cert_path, request, identity, span, error_out);
    X509_REQ_free(request);
    return status;
}

/* ---- renewal ---- */

/* One of these signed the first certificate, or an issuing authority that stands behind it. */
static bool vouches(const STACK_OF(X509) * by, const STACK_OF(X509) * chain)
{
    X509 *leaf = sk_X509_value(chain, 0), *behind = sk_X509_num(chain) > 1 ? sk_X509_value(chain, 1) : NULL;
    const bool issued = behind != NULL && X509_check_ca(behind) == 1 && tb_pki_signed_by(leaf, behind);
    for (int i = 0; i < sk_X509_num(by); i++)
        if (tb_pki_signed_by(leaf, sk_X509_value(by, i)) ||
            (issued && tb_pki_signed_by(behind, sk_X509_value(by, i))))
            return true;
    return false;
}

/* P8: a file that somebody put there does not become an identity of this authority's. */
static enum tb_status was_ours(const struct tb_pki_renewal *r, const struct tb_pki_authority *a,
                               const STACK_OF(X509) * old, char error_out[256])
{
    char path[TB_PKI_PATH_BYTES], unused[256] = "";
    bool ours = vouches(a->all, old);
    if (!ours && a->issuing && tb_pki_path(path, r->dir, "root.crt", unused) == TB_OK) {
        STACK_OF(X509) *roots = NULL;
        ours = tb_pki_read_certs(path, &roots, unused) == TB_OK && vouches(roots, old);
        sk_X509_pop_free(roots, X509_free);
    }
    if (ours) return TB_OK;
    return tb_pki_say(TB_BAD_FILE, error_out, "%.100s: the authority in %.80s did not sign it; issue another",
                      r->cert_path, r->dir);
}

static int64_t span_of(const X509 *cert)
{
    int days = 0, seconds = 0;
    if (ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(cert), X509_get0_notAfter(cert)) != 1) return 0;
    return (int64_t)days * TB_PKI_DAY_S + seconds;
}

static enum tb_status replace_keys(const char *path, EVP_PKEY *first, EVP_PKEY *second, char error_out[256])
{
    BIO *text = tb_pki_text();
    enum tb_status status = TB_OK;
    if (text == NULL || !tb_pki_put_key(text, first) || (second != NULL && !tb_pki_put_key(text, second)))
        status = tb_pki_say_openssl(error_out, path);
    else
        status = tb_pki_replace(path, 0600, text, error_out);
    BIO_free(text);
    return status;
}

/* P9: the key's file has both keys while the certificate is replaced: at each moment one of them
 * fits (tls.c takes the one that does). */
static enum tb_status replace_pair(const struct tb_pki_renewal *r, const struct tb_pki_authority *a,
                                   X509 *cert, EVP_PKEY *old_key, EVP_PKEY *key, char error_out[256])
{
    BIO *text = text_of_certs(cert, a->issuing ? a->cert : NULL);
    enum tb_status status = TB_OK;
    if (text == NULL) return tb_pki_say_openssl(error_out, r->cert_path);
    if (!r->keeps_key) status = replace_keys(r->key_path, old_key, key, error_out);
    if (status == TB_OK) status = tb_pki_replace(r->cert_path, 0644, text, error_out);
    if (status == TB_OK && !r->keeps_key) status = replace_keys(r->key_path, key, NULL, error_out);
    BIO_free(text);
    return status;
}

static enum tb_status renew(const struct tb_pki_renewal *r, const struct tb_pki_authority *a,
                            const STACK_OF(X509) * chain, struct tb_identity *identity_out,
                            char error_out[256])
{
    X509 *old = sk_X509_value(chain, 0);
    const struct tb_pki_span span = {-TB_PKI_CA_BEFORE_S, r->valid_s != 0 ? r->valid_s : span_of(old)};
    if (tb_tls_cert_identity(NULL, old, identity_out) != TB_OK)
        return tb_pki_say(TB_BAD_FILE, error_out, "%.150s: has not exactly one tombolo:// URI", r->cert_path);
    enum tb_status status = leaf_fits(identity_out, span, error_out);
    if (status == TB_OK) status = was_ours(r, a, chain, error_out);
    if (status != TB_OK) return status;
    EVP_PKEY *old_key = NULL;
    status = tb_pki_read_key(r->key_path, old, &old_key, error_out);
    if (status != TB_OK) return status;
    EVP_PKEY *key = r->keeps_key ? old_key : EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    status = fill(r->dir, a, cert, key, identity_out, span, error_out);
    if (status == TB_OK) status = replace_pair(r, a, cert, old_key, key, error_out);
    X509_free(cert);
    if (key != old_key) EVP_PKEY_free(key);
    EVP_PKEY_free(old_key);
    ERR_clear_error();
    return status;
}

enum tb_status tb_pki_renew(const struct tb_pki_renewal *renewal, struct tb_identity *identity_out,
                            char error_out[256])
{
    struct tb_pki_authority a;
    STACK_OF(X509) *old = NULL;
    enum tb_status status = tb_pki_begin(error_out);
    if (status != TB_OK) return status;
    status = tb_pki_read_certs(renewal->cert_path, &old, error_out);
    if (status != TB_OK) return status;
    status = tb_pki_authority_read(renewal->dir, &a, error_out);
    if (status == TB_OK) status = renew(renewal, &a, old, identity_out, error_out);
    tb_pki_authority_free(&a);
    sk_X509_pop_free(old, X509_free);
    return status;
}
