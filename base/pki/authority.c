/* authority.c - ca.crt and ca.key, read as a pair. */
#include "base/pki/authority.h"

#include <openssl/err.h>
#include <string.h>

#include "base/assert.h"
#include "base/pki/certificate.h"
#include "base/pki/pki_files.h"

void tb_pki_authority_free(struct tb_pki_authority *a)
{
    sk_X509_pop_free(a->all, X509_free);
    EVP_PKEY_free(a->key);
}

X509 *tb_pki_of_key(const STACK_OF(X509) * certs, EVP_PKEY *key)
{
    X509 *found = NULL;
    for (int i = 0; found == NULL && i < sk_X509_num(certs); i++)
        if (X509_check_private_key(sk_X509_value(certs, i), key) == 1) found = sk_X509_value(certs, i);
    ERR_clear_error();
    return found;
}

/* Files that are there and were read, and are no pair. */
static enum tb_status unfit(const char *dir, enum tb_status status, char error_out[256])
{
    if (status != TB_BAD_FILE) return status;
    return tb_pki_say(TB_BAD_FILE, error_out,
                      "%.150s: ca.crt and ca.key are not a PEM certificate and its key", dir);
}

enum tb_status tb_pki_site_of(const char *dir, X509 *cert, struct tb_name *site_out, char error_out[256])
{
    char text[TB_NAME_BYTES_MAX + 16] = "";
    (void)X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, text, sizeof text);
    char *issuing = strchr(text, ' ');
    if (issuing != NULL && strcmp(issuing, " issuing") == 0) *issuing = '\0';
    if (tb_name_set(site_out, text) == TB_OK) return TB_OK;
    return tb_pki_say(TB_BAD_FILE, error_out, "%.150s/ca.crt does not name its site", dir);
}

enum tb_status tb_pki_authority_read(const char *dir, struct tb_pki_authority *a, char error_out[256])
{
    char cert_path[TB_PKI_PATH_BYTES], key_path[TB_PKI_PATH_BYTES];
    *a = (struct tb_pki_authority){.cert = NULL};
    if (tb_pki_path(cert_path, dir, "ca.crt", error_out) != TB_OK ||
        tb_pki_path(key_path, dir, "ca.key", error_out) != TB_OK)
        return TB_BAD_ARGUMENT;
    if (tb_pki_missing(cert_path))
        return tb_pki_say(TB_NOT_FOUND, error_out,
                          "%.150s: there is no CA here; `tombolo pki init` makes one", cert_path);
    if (tb_pki_missing(key_path))
        return tb_pki_say(TB_NOT_FOUND, error_out, "%.150s: is not here; issue where the CA was made",
                          key_path);
    enum tb_status status = tb_pki_read_certs(cert_path, &a->all, error_out);
    if (status != TB_OK) return unfit(dir, status, error_out);
    status = tb_pki_read_key(key_path, NULL, &a->key, error_out);
    if (status != TB_OK) return unfit(dir, status, error_out);
    a->cert = tb_pki_of_key(a->all, a->key);
    if (a->cert == NULL) return unfit(dir, TB_BAD_FILE, error_out);
    a->issuing = !tb_pki_signed_by(a->cert, a->cert);
    TB_ASSERT(sk_X509_num(a->all) > 0);
    return TB_OK;
}
