/* authority.h - an authority as it stands in its folder. Inside base/pki.
 *
 *   ca.crt       its certificate; while roots roll over, both
 *   ca.key       the key that signs; ca.crt has the certificate that fits it
 *   root.crt     of an issuing authority: the roots that others trust
 *   ca-next.key  of a root that is to come; ca-old.key, of one that is to go (rollover.c) */
#ifndef TB_BASE_PKI_AUTHORITY_H
#define TB_BASE_PKI_AUTHORITY_H

#include <openssl/x509.h>
#include <stdbool.h>

#include "base/ident.h"
#include "tombolo/status.h"

struct tb_pki_authority {
    X509 *cert;           /* borrowed from `all` */
    EVP_PKEY *key;        /* its own */
    STACK_OF(X509) * all; /* that ca.crt has */
    bool issuing;         /* another authority signed it */
};

/* After this tb_pki_authority_free is due, on failure too. TB_NOT_FOUND, TB_BAD_FILE, TB_SITE_IO,
 * TB_SITE_NOMEM, TB_BAD_ARGUMENT; error_out gets a sentence. */
TB_MUST_USE enum tb_status tb_pki_authority_read(const char *dir, struct tb_pki_authority *a,
                                                 char error_out[256]);
void tb_pki_authority_free(struct tb_pki_authority *a);

/* The site that the certificate speaks for. TB_BAD_FILE: it names none. */
TB_MUST_USE enum tb_status tb_pki_site_of(const char *dir, X509 *cert, struct tb_name *site_out,
                                          char error_out[256]);
/* Which of the certificates has that key; NULL: none. */
X509 *tb_pki_of_key(const STACK_OF(X509) * certs, EVP_PKEY *key);

#endif
