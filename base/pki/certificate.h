/* certificate.h - the fields of certificates and requests, and whether one fits another. Inside
 * base/pki. */
#ifndef TB_BASE_PKI_CERTIFICATE_H
#define TB_BASE_PKI_CERTIFICATE_H

#include <openssl/x509.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ident.h"

struct tb_pki_span {
    int64_t start_offset_s; /* from now */
    int64_t valid_s;
};

#define TB_PKI_DAY_S          86400
#define TB_PKI_DAYS_MAX       36500
#define TB_PKI_CA_BEFORE_S    300 /* the clocks of two sites differ */
#define TB_PKI_ISSUER_PATHLEN 0   /* under an issuing authority stand leaves alone */
#define TB_PKI_ROOT_PATHLEN   1   /* under a root, issuing authorities too */

/* An authority that may speak for that site alone: X.509 name constraints say so. `issuer` NULL: it
 * signs itself, with `key`. */
bool tb_pki_fill_ca(X509 *cert, EVP_PKEY *key, const char *site, int pathlen, struct tb_pki_span span,
                    X509 *issuer, EVP_PKEY *issuer_key);
/* For a gateway, a worker or a publisher. `key`: its public half is all that is taken. */
bool tb_pki_fill_leaf(X509 *cert, EVP_PKEY *key, const struct tb_identity *identity, struct tb_pki_span span,
                      X509 *issuer, EVP_PKEY *issuer_key);
/* Signed with `key`, with the identity that is asked for. */
bool tb_pki_fill_request(X509_REQ *request, EVP_PKEY *key, const struct tb_identity *identity);
/* The identity that a request asks for. False: it has no, or several, or a strange one. */
bool tb_pki_requested(X509_REQ *request, struct tb_identity *identity_out);

/* A key of a strength that peers take: EC on P-256 to P-521, Ed25519, RSA from 2048 bits on. */
bool tb_pki_key_fits(const EVP_PKEY *key);
bool tb_pki_signed_by(X509 *cert, X509 *issuer);
/* Whether the issuer's name constraints let it vouch for that certificate. */
bool tb_pki_permits(X509 *issuer, X509 *cert);

#endif
