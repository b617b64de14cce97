/* certificate.c - what stands in an authority's, a leaf's and a request's fields. */
#include "base/pki/certificate.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/net/tls_context.h"

#define SERIAL_BITS  127
#define RSA_BITS_MIN 2048

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
    TB_ASSERT(offset_s / TB_PKI_DAY_S <= INT32_MAX && offset_s / TB_PKI_DAY_S >= INT32_MIN);
    return X509_time_adj_ex(at, (int)(offset_s / TB_PKI_DAY_S), (long)(offset_s % TB_PKI_DAY_S), NULL) !=
           NULL;
}

static bool add_to_name(X509_NAME *name, const char *field, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_ASC, (const unsigned char *)text, -1, -1, 0) == 1;
}

static bool set_name(X509_NAME *name, const char *cn)
{
    return add_to_name(name, "O", "Tombolo") && add_to_name(name, "CN", cn);
}

/* `value` in the words of openssl.cnf; every value is ours or a valid name, so
 * nothing can be injected. */
static X509_EXTENSION *extension_new(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    return X509V3_EXT_conf_nid(NULL, &context, nid, value);
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509_EXTENSION *extension = extension_new(cert, issuer, nid, value);
    const bool good = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static bool begin_cert(X509 *cert, EVP_PKEY *key, const char *cn, struct tb_pki_span span)
{
    TB_ASSERT(span.valid_s > 0);
    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           set_time(X509_getm_notBefore(cert), span.start_offset_s) &&
           set_time(X509_getm_notAfter(cert), span.start_offset_s + span.valid_s) &&
           set_name(X509_get_subject_name(cert), cn) && X509_set_pubkey(cert, key) == 1;
}

bool tb_pki_fill_ca(X509 *cert, EVP_PKEY *key, const char *site, int pathlen, struct tb_pki_span span,
                    X509 *issuer, EVP_PKEY *issuer_key)
{
    char permitted[TB_NAME_BYTES_MAX + 32], basic[64], cn[TB_NAME_BYTES_MAX + 16];
    TB_ASSERT(tb_name_valid(site)); /* what is written into the certificate has nothing else in it */
    snprintf(permitted, sizeof permitted, "critical,permitted;URI:%s", site);
    snprintf(basic, sizeof basic, "critical,CA:TRUE,pathlen:%d", pathlen);
    /* An issuer that has its root's name would look like the root. */
    snprintf(cn, sizeof cn, "%s%s", site, issuer != NULL ? " issuing" : "");
    if (!begin_cert(cert, key, cn, span)) return false;
    X509 *by = issuer != NULL ? issuer : cert;
    return X509_set_issuer_name(cert, X509_get_subject_name(by)) == 1 &&
           add_extension(cert, by, NID_basic_constraints, basic) &&
           add_extension(cert, by, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           add_extension(cert, by, NID_subject_key_identifier, "hash") &&
           (issuer == NULL || add_extension(cert, by, NID_authority_key_identifier, "keyid")) &&
           add_extension(cert, by, NID_name_constraints, permitted) &&
           X509_sign(cert, issuer != NULL ? issuer_key : key, EVP_sha256()) != 0;
}

static void names_of(const struct tb_identity *identity, char out[TB_URI_BYTES_MAX + 8])
{
    char uri[TB_URI_BYTES_MAX];
    TB_ASSERT(identity->kind != TB_IDENTITY_NONE && identity->kind != TB_IDENTITY_UNIX);
    tb_identity_format(identity, uri);
    snprintf(out, TB_URI_BYTES_MAX + 8, "URI:%s", uri);
}

bool tb_pki_fill_leaf(X509 *cert, EVP_PKEY *key, const struct tb_identity *identity, struct tb_pki_span span,
                      X509 *issuer, EVP_PKEY *issuer_key)
{
    char names[TB_URI_BYTES_MAX + 8];
    names_of(identity, names);
    return begin_cert(cert, key, identity->name.text, span) &&
           X509_set_issuer_name(cert, X509_get_subject_name(issuer)) == 1 &&
           add_extension(cert, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, issuer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_extension(cert, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(cert, issuer, NID_authority_key_identifier, "keyid") &&
           add_extension(cert, issuer, NID_subject_alt_name, names) &&
           X509_sign(cert, issuer_key, EVP_sha256()) != 0;
}

bool tb_pki_fill_request(X509_REQ *request, EVP_PKEY *key, const struct tb_identity *identity)
{
    char names[TB_URI_BYTES_MAX + 8];
    names_of(identity, names);
    X509_EXTENSION *name = extension_new(NULL, NULL, NID_subject_alt_name, names);
    X509_EXTENSIONS *all = name != NULL ? sk_X509_EXTENSION_new_null() : NULL;
    const bool good = all != NULL && sk_X509_EXTENSION_push(all, name) > 0 &&
                      X509_REQ_set_version(request, X509_REQ_VERSION_1) == 1 &&
                      set_name(X509_REQ_get_subject_name(request), identity->name.text) &&
                      X509_REQ_set_pubkey(request, key) == 1 && X509_REQ_add_extensions(request, all) == 1 &&
                      X509_REQ_sign(request, key, EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256()) > 0;
    sk_X509_EXTENSION_free(all);
    X509_EXTENSION_free(name);
    return good;
}

bool tb_pki_requested(X509_REQ *request, struct tb_identity *identity_out)
{
    X509_EXTENSIONS *all = X509_REQ_get_extensions(request);
    X509 *cert = X509_new();
    bool good = cert != NULL && all != NULL;
    /* In a certificate that is signed by nobody its names are read as those of any other. */
    for (int i = 0; good && i < sk_X509_EXTENSION_num(all); i++) {
        X509_EXTENSION *extension = sk_X509_EXTENSION_value(all, i);
        if (OBJ_obj2nid(X509_EXTENSION_get_object(extension)) != NID_subject_alt_name) continue;
        good = X509_add_ext(cert, extension, -1) == 1;
    }
    good = good && tb_tls_cert_identity(NULL, cert, identity_out) == TB_OK;
    sk_X509_EXTENSION_pop_free(all, X509_EXTENSION_free);
    X509_free(cert);
    ERR_clear_error();
    return good;
}

bool tb_pki_key_fits(const EVP_PKEY *key)
{
    if (key == NULL) return false;
    if (EVP_PKEY_is_a(key, "RSA")) return EVP_PKEY_get_bits(key) >= RSA_BITS_MIN;
    if (!EVP_PKEY_is_a(key, "EC")) return EVP_PKEY_is_a(key, "ED25519");
    char curve[32] = ""; /* others are none of TLS 1.3's */
    return EVP_PKEY_get_group_name(key, curve, sizeof curve, NULL) == 1 &&
           (strcmp(curve, "prime256v1") == 0 || strcmp(curve, "secp384r1") == 0 ||
            strcmp(curve, "secp521r1") == 0);
}

bool tb_pki_signed_by(X509 *cert, X509 *issuer)
{
    const bool good =
        X509_check_issued(issuer, cert) == X509_V_OK && X509_verify(cert, X509_get0_pubkey(issuer)) == 1;
    ERR_clear_error();
    return good;
}

bool tb_pki_permits(X509 *issuer, X509 *cert)
{
    /* makes OpenSSL read the extensions of a certificate that it wrote */
    (void)X509_check_purpose(cert, -1, 0);
    NAME_CONSTRAINTS *limits = X509_get_ext_d2i(issuer, NID_name_constraints, NULL, NULL);
    const bool permits = limits == NULL || NAME_CONSTRAINTS_check(cert, limits) == X509_V_OK;
    NAME_CONSTRAINTS_free(limits);
    return permits;
}
