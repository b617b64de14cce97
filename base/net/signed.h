/* signed.h - a statement with the signature of its home and the certificates behind it. A shell.
 *
 * It is signed with the key of a TLS context, by the function that fits the key: Ed25519, or ECDSA
 * or RSA-PSS over SHA-256. A check needs the CA of that site and nothing else: not the gateway that
 * signed, and not the gateway that brought it.
 *
 * As bytes: u16 length, the statement (base/proof/statement.h); u16 length, the signature;
 * u8 count; for each certificate, the signer's first, u16 length and its DER. */
#ifndef TB_BASE_NET_SIGNED_H
#define TB_BASE_NET_SIGNED_H

#include "base/net/tls.h"
#include "base/proof/statement.h"

#define TB_SIGNED_BYTES_MAX (16 * 1024)
#define TB_SIGNED_CERTS_MAX 8 /* behind the first */

/* By the key of `tls`, a context from files. TB_TOO_LARGE: with its chain it has no room in `w`, or
 * in TB_SIGNED_BYTES_MAX. TB_SITE_NOMEM. On failure `w` is where it was. */
TB_MUST_USE enum tb_status tb_signed_write(const struct tb_tls *tls, const struct tb_statement *statement,
                                           struct tb_writer *w);

/* The statement inside; nothing is checked but its form. TB_PEER_GARBLED. */
TB_MUST_USE enum tb_status tb_signed_peek(const void *bytes, size_t count,
                                          struct tb_statement *statement_out);

struct tb_signer {
    struct tb_identity identity;
    struct tb_fingerprint fingerprint; /* of its certificate */
};

/* Finds the signer: `trust` has the CA of its site, and its certificate was valid when it signed.
 * The caller decides whether that signer may speak of the model.
 *   TB_PEER_GARBLED   no statement, or more bytes than one
 *   TB_PEER_IDENTITY  a signature that does not fit, a certificate that no CA of `trust` signed or
 *                     that may not speak for its site, or that was not valid then
 *   TB_SITE_NOMEM
 * `error_out` gets a sentence on failure; nothing else is written then. Any thread. */
TB_MUST_USE enum tb_status tb_signed_check(const struct tb_tls *trust, const void *bytes, size_t count,
                                           struct tb_statement *statement_out, struct tb_signer *signer_out,
                                           char error_out[256]);

#endif
