/* signed.c - OpenSSL signs and checks; the bytes around it are ours. */
#include "base/net/signed.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/net/tls_context.h"

#define SIGNATURE_BYTES_MAX 1024 /* an RSA key of 8192 bits */

__attribute__((format(printf, 2, 3))) static enum tb_status refuse(char error_out[256], const char *format,
                                                                   ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_out, 256, format, args);
    va_end(args);
    ERR_clear_error();
    return TB_PEER_IDENTITY;
}

static enum tb_status no_memory(char error_out[256])
{
    (void)refuse(error_out, "no memory to look at a signature");
    return TB_SITE_NOMEM;
}

/* Ed25519 digests by itself, and takes no other digest. */
static const EVP_MD *digest_for(const EVP_PKEY *key)
{
    return EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256();
}

/* The shorter of RSA's two signatures has a proof behind it. */
static bool pad(EVP_PKEY *key, EVP_PKEY_CTX *context)
{
    return !EVP_PKEY_is_a(key, "RSA") || EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PSS_PADDING) > 0;
}

/* Writing. */

static bool sign(EVP_PKEY *key, const uint8_t *bytes, size_t count, uint8_t *signature_out,
                 size_t *cap_in_bytes_out)
{
    EVP_PKEY_CTX *padding = NULL;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool good =
        context != NULL && EVP_DigestSignInit(context, &padding, digest_for(key), NULL, key) == 1 &&
        pad(key, padding) && EVP_DigestSign(context, signature_out, cap_in_bytes_out, bytes, count) == 1;
    EVP_MD_CTX_free(context);
    ERR_clear_error();
    return good;
}

static void write_short(struct tb_writer *w, const void *bytes, size_t count)
{
    TB_ASSERT(count <= UINT16_MAX);
    tb_write_u16(w, (uint16_t)count);
    tb_write_bytes(w, bytes, count);
}

static bool write_cert(struct tb_writer *w, X509 *cert)
{
    uint8_t *der = NULL;
    const int bytes = i2d_X509(cert, &der);
    if (bytes < 0) return false;
    if (bytes > UINT16_MAX)
        w->full = true;
    else
        write_short(w, der, (size_t)bytes);
    OPENSSL_free(der);
    return true;
}

/* False: no memory. */
static bool write_certs(const struct tb_tls *tls, struct tb_writer *w)
{
    STACK_OF(X509) *behind = NULL;
    (void)SSL_CTX_get0_chain_certs(tls->ctx, &behind);
    const int count = behind == NULL ? 0 : sk_X509_num(behind);
    TB_ASSERT(count < TB_SIGNED_CERTS_MAX + 1); /* tls.c takes no more from a file */
    tb_write_u8(w, (uint8_t)(1 + count));
    bool good = write_cert(w, SSL_CTX_get0_certificate(tls->ctx));
    for (int i = 0; i < count && good; i++)
        good = write_cert(w, sk_X509_value(behind, i));
    return good;
}

enum tb_status tb_signed_write(const struct tb_tls *tls, const struct tb_statement *statement,
                               struct tb_writer *w)
{
    TB_ASSERT(!tls->ephemeral);
    uint8_t said[TB_STATEMENT_BYTES_MAX], signature[SIGNATURE_BYTES_MAX];
    size_t signature_bytes = sizeof signature;
    const struct tb_writer before = *w;
    struct tb_writer s;
    tb_writer_init(&s, said, sizeof said);
    tb_statement_encode(statement, &s);
    TB_ASSERT(!s.full);
    if (!sign(SSL_CTX_get0_privatekey(tls->ctx), said, s.used, signature, &signature_bytes))
        return TB_SITE_NOMEM;
    TB_ASSERT(signature_bytes > 0 && signature_bytes <= sizeof signature);
    write_short(w, said, s.used);
    write_short(w, signature, signature_bytes);
    const bool good = write_certs(tls, w);
    const bool fits = !w->full && w->used - before.used <= TB_SIGNED_BYTES_MAX;
    if (good && fits) return TB_OK;
    *w = before;
    return good ? TB_TOO_LARGE : TB_SITE_NOMEM;
}

/* Checking. */

struct envelope {
    const uint8_t *said, *signature;
    size_t said_bytes, signature_bytes;
    STACK_OF(X509) * certs; /* the signer's first */
};

static void envelope_fini(struct envelope *e)
{
    sk_X509_pop_free(e->certs, X509_free);
}

static enum tb_status read_cert(struct tb_reader *r, STACK_OF(X509) * certs)
{
    const uint16_t bytes = tb_read_u16(r);
    const uint8_t *der = tb_read_span(r, bytes), *at = der;
    if (der == NULL) return TB_PEER_GARBLED;
    X509 *cert = d2i_X509(NULL, &at, bytes);
    const bool whole = cert != NULL && at == der + bytes;
    if (whole && sk_X509_push(certs, cert) > 0) return TB_OK;
    X509_free(cert);
    return whole ? TB_SITE_NOMEM : TB_PEER_GARBLED;
}

/* After this envelope_fini is due, on failure too. */
static enum tb_status envelope_read(struct envelope *e, const void *bytes, size_t count)
{
    struct tb_reader r;
    *e = (struct envelope){.certs = sk_X509_new_null()};
    if (e->certs == NULL) return TB_SITE_NOMEM;
    tb_reader_init(&r, bytes, count);
    e->said_bytes = tb_read_u16(&r);
    e->said = tb_read_span(&r, e->said_bytes);
    e->signature_bytes = tb_read_u16(&r);
    e->signature = tb_read_span(&r, e->signature_bytes);
    const uint8_t certs = tb_read_u8(&r);
    if (r.bad || certs == 0 || certs > 1 + TB_SIGNED_CERTS_MAX || e->signature_bytes > SIGNATURE_BYTES_MAX)
        return TB_PEER_GARBLED;
    for (uint8_t i = 0; i < certs; i++) {
        const enum tb_status status = read_cert(&r, e->certs);
        if (status != TB_OK) return status;
    }
    return tb_reader_ended(&r) ? TB_OK : TB_PEER_GARBLED;
}

enum tb_status tb_signed_peek(const void *bytes, size_t count, struct tb_statement *statement_out)
{
    struct tb_reader r;
    if (count > TB_SIGNED_BYTES_MAX) return TB_PEER_GARBLED;
    tb_reader_init(&r, bytes, count);
    const uint16_t said_bytes = tb_read_u16(&r);
    const uint8_t *said = tb_read_span(&r, said_bytes);
    return said == NULL ? TB_PEER_GARBLED : tb_statement_decode(said, said_bytes, statement_out);
}

static enum tb_status check_signature(const struct envelope *e, char error_out[256])
{
    TB_ASSERT(sk_X509_num(e->certs) > 0); /* envelope_read has looked */
    EVP_PKEY *key = X509_get0_pubkey(sk_X509_value(e->certs, 0));
    if (key == NULL) return refuse(error_out, "the key in the signer's certificate is of no kind known here");
    EVP_PKEY_CTX *padding = NULL;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context == NULL) return no_memory(error_out);
    const bool fits =
        EVP_DigestVerifyInit(context, &padding, digest_for(key), NULL, key) == 1 && pad(key, padding) &&
        EVP_DigestVerify(context, e->signature, e->signature_bytes, e->said, e->said_bytes) == 1;
    EVP_MD_CTX_free(context);
    return fits ? TB_OK : refuse(error_out, "the signature is not one of these bytes by that key");
}

static enum tb_status check_anchor(const struct tb_tls *trust, X509_STORE_CTX *store,
                                   const struct tb_signer *signer, char error_out[256])
{
    const STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(store);
    TB_ASSERT(sk_X509_num(chain) > 0);
    if (tb_tls_chain_revoked(trust, chain))
        return refuse(error_out, "the signer's certificate is revoked (tls.revoked)");
    if (tb_tls_anchor_fits(trust, sk_X509_value(chain, sk_X509_num(chain) - 1), &signer->identity))
        return TB_OK;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&signer->identity, uri);
    return refuse(error_out, "the CA that signed the certificate may not speak for the site of %s", uri);
}

/* Dates are those of the statement: a certificate ends, what it signed before does not. */
static enum tb_status check_chain(const struct tb_tls *trust, const struct envelope *e, uint64_t wall_ms,
                                  const struct tb_signer *signer, char error_out[256])
{
    X509_STORE_CTX *store = X509_STORE_CTX_new();
    if (store == NULL || X509_STORE_CTX_init(store, SSL_CTX_get_cert_store(trust->ctx),
                                             sk_X509_value(e->certs, 0), e->certs) != 1) {
        X509_STORE_CTX_free(store);
        return no_memory(error_out);
    }
    X509_STORE_CTX_set_time(store, 0, (time_t)(wall_ms / 1000));
    enum tb_status status = TB_OK;
    if (X509_verify_cert(store) == 1) {
        status = check_anchor(trust, store, signer, error_out);
    } else {
        const int error = X509_STORE_CTX_get_error(store);
        status = error == X509_V_ERR_OUT_OF_MEM ? no_memory(error_out)
                                                : refuse(error_out, "the signer's certificate: %s",
                                                         X509_verify_cert_error_string(error));
    }
    X509_STORE_CTX_free(store);
    ERR_clear_error();
    return status;
}

static enum tb_status check(const struct tb_tls *trust, const struct envelope *e,
                            const struct tb_statement *statement, struct tb_signer *signer_out,
                            char error_out[256])
{
    const X509 *cert = sk_X509_value(e->certs, 0);
    if (tb_tls_cert_identity(trust->spiffe, cert, &signer_out->identity) != TB_OK)
        return refuse(error_out,
                      "the signer's certificate has not exactly one tombolo:// URI, and no SPIFFE URI that "
                      "tls.spiffe lists");
    if (tb_tls_cert_fingerprint(cert, &signer_out->fingerprint) != TB_OK) return no_memory(error_out);
    const enum tb_status status = check_signature(e, error_out);
    return status != TB_OK ? status : check_chain(trust, e, statement->wall_ms, signer_out, error_out);
}

enum tb_status tb_signed_check(const struct tb_tls *trust, const void *bytes, size_t count,
                               struct tb_statement *statement_out, struct tb_signer *signer_out,
                               char error_out[256])
{
    struct envelope e = {0};
    struct tb_statement statement;
    struct tb_signer signer = {0};
    error_out[0] = '\0';
    if (count > TB_SIGNED_BYTES_MAX) return TB_PEER_GARBLED;
    enum tb_status status = envelope_read(&e, bytes, count);
    if (status == TB_OK) status = tb_statement_decode(e.said, e.said_bytes, &statement);
    if (status == TB_OK) status = check(trust, &e, &statement, &signer, error_out);
    envelope_fini(&e);
    ERR_clear_error();
    if (error_out[0] == '\0' && status != TB_OK)
        snprintf(error_out, 256, "%s",
                 status == TB_SITE_NOMEM ? "no memory to look at a signature" : "it is no signed statement");
    if (status != TB_OK) return status;
    *statement_out = statement;
    *signer_out = signer;
    return TB_OK;
}
