/* pki.h - a small certificate authority for people who have none. A shell.
 *
 * Keys are P-256, written with mode 0600 into files that did not exist before (O_EXCL);
 * certificates are X.509 v3, SHA-256, with exactly one URI (tombolo://...) and, for a CA,
 * the name of its site. */
#ifndef TB_BASE_NET_PKI_H
#define TB_BASE_NET_PKI_H

#include "base/ident.h"
#include "tombolo/status.h"

/* DIR/ca.crt and DIR/ca.key. TB_CONFLICT when one is there already (it is left alone); TB_SITE_IO.
 * `error_out` gets a sentence. */
TB_MUST_USE enum tb_status tb_pki_init(const char *dir, const char *site, unsigned days, char error_out[256]);
/* DIR/NAME.crt and DIR/NAME.key, signed by DIR/ca.key, for tombolo://SITE/GATEWAY,
 * tombolo://SITE/worker/NAME or tombolo://SITE/publisher/NAME. start_offset_s and days may make a
 * certificate that has expired already: tests need one.
 *   TB_NOT_FOUND     there is no CA, or not its key
 *   TB_BAD_FILE      what is there is no certificate with its key
 *   TB_CONFLICT      one of the files is there already (it is left alone)
 *   TB_BAD_ARGUMENT  the CA is not of that site; a name or time out of range
 *   TB_SITE_IO, TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_pki_issue(const char *dir, const char *file_stem,
                                        const struct tb_identity *identity, int64_t start_offset_s,
                                        int64_t valid_s, char error_out[256]);
/* The site whose CA stands there. Statuses as above. */
TB_MUST_USE enum tb_status tb_pki_site(const char *dir, struct tb_name *site_out, char error_out[256]);

#endif
