/* intermediate.c - an issuing authority under a root. The root's key can stay offline: the issuing
 * one signs, and is revoked or made anew without any change at the peers. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pki/authority.h"
#include "base/pki/certificate.h"
#include "base/pki/pki.h"
#include "base/pki/pki_files.h"

#define SITE_BYTES_MAX 56 /* X.509 has 64 characters for it and " issuing" */

struct issuing {
    char cert_path[TB_PKI_PATH_BYTES], key_path[TB_PKI_PATH_BYTES], root_path[TB_PKI_PATH_BYTES];
    BIO *cert, *key, *root;
};

static enum tb_status paths(const char *dir, struct issuing *i, char error_out[256])
{
    if (tb_pki_path(i->cert_path, dir, "ca.crt", error_out) != TB_OK ||
        tb_pki_path(i->key_path, dir, "ca.key", error_out) != TB_OK ||
        tb_pki_path(i->root_path, dir, "root.crt", error_out) != TB_OK)
        return TB_BAD_ARGUMENT;
    return TB_OK;
}

static bool fill(const struct tb_pki_authority *root, const char *site, unsigned days, struct issuing *i,
                 char error_out[256])
{
    const struct tb_pki_span span = {-TB_PKI_CA_BEFORE_S, (int64_t)days * TB_PKI_DAY_S};
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    i->cert = tb_pki_text();
    i->key = tb_pki_text();
    i->root = tb_pki_text();
    const bool good = key != NULL && cert != NULL && i->cert != NULL && i->key != NULL && i->root != NULL &&
                      tb_pki_fill_ca(cert, key, site, TB_PKI_ISSUER_PATHLEN, span, root->cert, root->key) &&
                      PEM_write_bio_X509(i->cert, cert) == 1 &&
                      tb_pki_put_secret_key(i->key, key, error_out) && tb_pki_put_certs(i->root, root->all);
    X509_free(cert);
    EVP_PKEY_free(key);
    return good;
}

/* All three or none. */
static enum tb_status write_all(const struct issuing *i, char error_out[256])
{
    enum tb_status status = tb_pki_write_new(i->key_path, 0600, i->key, error_out);
    if (status != TB_OK) return status;
    status = tb_pki_write_new(i->root_path, 0644, i->root, error_out);
    if (status != TB_OK) goto undo_key;
    status = tb_pki_write_new(i->cert_path, 0644, i->cert, error_out);
    if (status == TB_OK) return TB_OK;

    (void)unlink(i->root_path);
undo_key:
    (void)unlink(i->key_path);
    return status;
}

/* A root that allows none below it makes certificates that every peer refuses. */
static enum tb_status may_sign(const char *root_dir, const struct tb_pki_authority *root, char error_out[256])
{
    (void)X509_check_purpose(root->cert, -1, 0);
    const long below = X509_get_pathlen(root->cert);
    if (root->issuing)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out, "%.150s: is an issuing authority itself", root_dir);
    if (below == 0)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out,
                          "%.120s: its certificate allows no issuing authority (pathlen 0): roll it over",
                          root_dir);
    return TB_OK;
}

static enum tb_status make(const struct tb_pki_authority *root, const char *root_dir, unsigned days,
                           struct issuing *i, char error_out[256])
{
    struct tb_name site;
    enum tb_status status = may_sign(root_dir, root, error_out);
    if (status != TB_OK) return status;
    status = tb_pki_site_of(root_dir, root->cert, &site, error_out);
    if (status != TB_OK) return status;
    if (strlen(site.text) > SITE_BYTES_MAX)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out,
                          "a site with an issuing authority has a name of at most %d bytes", SITE_BYTES_MAX);
    if (!fill(root, site.text, days, i, error_out))
        return tb_pki_say_openssl(error_out, "making the issuing authority");
    return write_all(i, error_out);
}

enum tb_status tb_pki_intermediate(const char *root_dir, const char *dir, unsigned days, char error_out[256])
{
    struct tb_pki_authority root;
    struct issuing i = {.cert = NULL};
    enum tb_status status = tb_pki_begin(error_out);
    if (status == TB_OK) status = paths(dir, &i, error_out);
    if (status != TB_OK) return status;
    if (days == 0 || days > TB_PKI_DAYS_MAX)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out, "days must be between 1 and %d", TB_PKI_DAYS_MAX);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", dir, strerror(errno));
    status = tb_pki_authority_read(root_dir, &root, error_out);
    if (status == TB_OK) status = make(&root, root_dir, days, &i, error_out);
    BIO_free(i.cert);
    BIO_free(i.key);
    BIO_free(i.root);
    tb_pki_authority_free(&root);
    ERR_clear_error();
    return status;
}
