/* pki.h - a small certificate authority for people who have none. A shell.
 *
 * Keys are P-256, written with mode 0600; certificates are X.509 v3, SHA-256, with exactly one URI
 * (tombolo://...) and, for a CA, the name of its site. A file that is there is left alone,
 * unless a call says that it replaces it.
 *
 * Each call takes `error_out`, which gets a sentence. Statuses:
 *   TB_NOT_FOUND     there is no CA, or not its key
 *   TB_BAD_FILE      what is there is no certificate, key or request, or not the fitting one
 *   TB_CONFLICT      one of the files is there already (it is left alone)
 *   TB_BAD_ARGUMENT  the CA is not of that site; a name or time out of range; no passphrase fits
 *   TB_SITE_IO, TB_SITE_NOMEM
 * Threads: one. */
#ifndef TB_BASE_PKI_PKI_H
#define TB_BASE_PKI_PKI_H

#include <stdbool.h>

#include "base/ident.h"
#include "tombolo/status.h"

/* The passphrase of an authority's key, of the whole process: a command works on one authority. */
struct tb_pki_secret {
    bool encrypts; /* keys of authorities that are made from now on stand under it */
    /* Its length; -1: error_out says why there is none. `is_new`: it is being chosen. NULL: a key
     * that has one is refused. */
    int (*ask)(void *user, const char *path, bool is_new, char *out, int cap, char error_out[256]);
    void *user;
};
void tb_pki_set_secret(const struct tb_pki_secret *secret); /* copied; NULL: none */

/* DIR/ca.crt and DIR/ca.key. */
TB_MUST_USE enum tb_status tb_pki_init(const char *dir, const char *site, unsigned days, char error_out[256]);
/* DIR/NAME.crt and DIR/NAME.key, signed by DIR/ca.key, for tombolo://SITE/GATEWAY,
 * tombolo://SITE/worker/NAME or tombolo://SITE/publisher/NAME. An issuing authority's certificate
 * stands behind the leaf's. start_offset_s and days may make a certificate that has expired
 * already: tests need one. */
TB_MUST_USE enum tb_status tb_pki_issue(const char *dir, const char *file_stem,
                                        const struct tb_identity *identity, int64_t start_offset_s,
                                        int64_t valid_s, char error_out[256]);
/* The site whose CA stands there. */
TB_MUST_USE enum tb_status tb_pki_site(const char *dir, struct tb_name *site_out, char error_out[256]);

/* A request at CSR_PATH for a new key at KEY_PATH, or for the key that is there. */
TB_MUST_USE enum tb_status tb_pki_request(const char *csr_path, const char *key_path, bool key_is_there,
                                          const struct tb_identity *identity, char error_out[256]);
/* P8: the caller decides the identity. A request that asks for another one, or whose key is weak
 * or not its own, is refused; nothing else in it counts. CERT_PATH is new. */
TB_MUST_USE enum tb_status tb_pki_sign(const char *dir, const char *csr_path, const char *cert_path,
                                       const struct tb_identity *identity, int64_t valid_s,
                                       char error_out[256]);

/* A new certificate in the place of the one at CERT_PATH, which this authority signed: same
 * identity, and a new key at KEY_PATH unless keeps_key. P9: both files fit each other at each
 * moment. valid_s 0: as long as the one before. */
struct tb_pki_renewal {
    const char *dir, *cert_path, *key_path;
    bool keeps_key;
    int64_t valid_s;
};
TB_MUST_USE enum tb_status tb_pki_renew(const struct tb_pki_renewal *renewal,
                                        struct tb_identity *identity_out, char error_out[256]);

/* An issuing authority in DIR, signed by the root in ROOT_DIR: ca.crt, ca.key, and root.crt, which
 * is what others trust. */
TB_MUST_USE enum tb_status tb_pki_intermediate(const char *root_dir, const char *dir, unsigned days,
                                               char error_out[256]);

/* Roots roll over in three steps. Between them the new ca.crt goes to each machine that has the
 * old one.
 *   begin   makes the second root; ca.crt has both. The first one signs on
 *   turn    the second one signs from now on. Each certificate is renewed
 *   end     ca.crt has the second one alone. TB_CONFLICT: a certificate in DIR is of the first */
TB_MUST_USE enum tb_status tb_pki_rollover_begin(const char *dir, unsigned days, char error_out[256]);
TB_MUST_USE enum tb_status tb_pki_rollover_turn(const char *dir, char error_out[256]);
TB_MUST_USE enum tb_status tb_pki_rollover_end(const char *dir, char error_out[256]);

#endif
