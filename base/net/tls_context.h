/* tls_context.h - what tls.c and tls_session.c share: the inside of a tb_tls. For
 * these and pki.c alone. */
#ifndef TB_BASE_NET_TLS_CONTEXT_H
#define TB_BASE_NET_TLS_CONTEXT_H

#include <openssl/types.h>
#include <stdatomic.h>

#include "base/net/tls.h"

/* A CA that may speak for one site only. */
struct tb_tls_bound {
    X509 *ca;
    struct tb_name site;
};

struct tb_tls {
    SSL_CTX *ctx;
    atomic_uint refs; /* the owner's and one for each session */
    bool ephemeral;
    bool own_records;
    uint64_t key_records; /* that one key encrypts */
    struct tb_identity identity;
    struct tb_fingerprint fingerprint;
    uint64_t expires_wall_s;
    struct tb_digest shown;     /* of our certificate, and those behind it so far */
    struct tb_digest trust;     /* of the CAs so far */
    struct tb_digest trust_any; /* of those of them that may speak for any site */
    uint64_t cas_expire_wall_s; /* the first of the CAs ends then; 0: there are none */
    struct tb_revoked *revoked; /* owned; NULL: none are */
    struct tb_tls_bound *bound;
    uint32_t bound_count;
};

/* The one URI of a certificate. TB_BAD_ARGUMENT: none, several, or not one of ours. */
TB_MUST_USE enum tb_status tb_tls_cert_identity(const X509 *cert, struct tb_identity *identity_out);
/* SHA-256 of the certificate's DER. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_tls_cert_fingerprint(const X509 *cert, struct tb_fingerprint *fingerprint_out);
uint64_t tb_tls_cert_expires(const X509 *cert); /* notAfter, seconds since 1970; 0 when it is before that */

/* Whether this CA may vouch for the site of that identity. One that was named for one site vouches
 * for that site alone, or the CA of one site could speak as any other. A CA bound to several sites,
 * or also to none, has the sum of these rights. */
bool tb_tls_anchor_fits(const struct tb_tls *tls, const X509 *anchor, const struct tb_identity *have);

struct stack_st_X509;
/* Whether one of these certificates is revoked: the peer's, or one of those behind it. */
bool tb_tls_chain_revoked(const struct tb_tls *tls, const struct stack_st_X509 *chain);

/* "2026-11-22 17:55 UTC"; "?" for what is no time. */
#define TB_TLS_TIME_CHARS 32
const char *tb_tls_time_text(const ASN1_TIME *at, char out[TB_TLS_TIME_CHARS]);

/* OpenSSL's callbacks, in tls_session.c. */
int tb_tls_named(SSL *ssl, int *alert, void *user);
void tb_tls_keyed(const SSL *ssl, const char *line);
int tb_tls_verify_by_ca(int good, X509_STORE_CTX *store);
int tb_tls_verify_by_print(X509_STORE_CTX *store, void *user);

/* OpenSSL begins by itself, but where it had no memory for that its calls look at what is not
 * there. False: it could not. */
bool tb_openssl_begin(void);

#endif
