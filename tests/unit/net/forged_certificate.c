#include "forged_certificate.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>

static void save(const struct world *w, const struct forge *f, X509 *cert, EVP_PKEY *key)
{
    char name[80];
    snprintf(name, sizeof name, "%s.key", f->stem);
    const mode_t old = umask(077);
    FILE *out = fopen(world_path(w, f->dir, name), "w");
    umask(old);
    assert_int_equal(PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(out);
    snprintf(name, sizeof name, "%s.crt", f->stem);
    out = fopen(world_path(w, f->dir, name), "w");
    assert_int_equal(PEM_write_X509(out, cert), 1);
    fclose(out);
}

static void add(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(e);
    assert_int_equal(X509_add_ext(cert, e, -1), 1);
    X509_EXTENSION_free(e);
}

void forge(const struct world *w, const struct forge *f)
{
    X509 *cert = X509_new(), *issuer = NULL;
    EVP_PKEY *key = EVP_EC_gen("P-256"), *signer = NULL;
    if (!f->ca && !f->own_key_only) {
        FILE *in = fopen(world_path(w, f->dir, "ca.crt"), "r");
        issuer = PEM_read_X509(in, NULL, NULL, NULL);
        fclose(in);
        in = fopen(world_path(w, f->dir, "ca.key"), "r");
        signer = PEM_read_PrivateKey(in, NULL, NULL, NULL);
        fclose(in);
    }
    X509_set_version(cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 7);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)f->stem, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer != NULL ? issuer : cert));
    X509_set_pubkey(cert, key);
    add(cert, NID_basic_constraints, f->ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (f->alt != NULL) add(cert, NID_subject_alt_name, f->alt);
    assert_true(X509_sign(cert, signer != NULL ? signer : key, EVP_sha256()) > 0);
    save(w, f, cert, key);
    X509_free(cert);
    X509_free(issuer);
    EVP_PKEY_free(key);
    EVP_PKEY_free(signer);
}
