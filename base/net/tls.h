/* tls.h - TLS 1.3 contexts and who the peer is. A shell.
 *
 * Mutual always, TLS 1.3 only, no tickets, no 0-RTT, no system roots. Two ways of trust:
 *   by CA    links, and workers from elsewhere: the peer's certificate chains to the one CA file
 *            given, and has exactly one URI in its subjectAltName, which tb_identity_parse reads,
 *            or a list of SPIFFE URIs has (spiffe.h)
 *   by print hops of the `tcp` fabric: both ends made a self-signed certificate when their session
 *            began, and the catalog told each the SHA-256 fingerprint of the other's
 * Promise P8: no plaintext leaves a site; only an expected identity gets past the handshake. */
#ifndef TB_BASE_NET_TLS_H
#define TB_BASE_NET_TLS_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/ident.h"
#include "base/message.h"
#include "tombolo/status.h"

struct tb_tls; /* an SSL_CTX and what to expect; shared by many connections; any thread after it is made */

struct tb_tls_files {
    const char *ca;   /* PEM; of the peer's site; NULL when only the calls below add some */
    const char *cert; /* PEM; ours, with chain */
    /* PEM; refused when others than its owner may read it; a group may where root owns it */
    const char *key;
    /* A list (spiffe.h): identities of SPIFFE URIs, ours and those of peers; NULL: none */
    const char *spiffe;
    /* Ours may have a SPIFFE URI that is not listed: peers know our identity, we do not (NONE). */
    bool cert_unlisted;
};

/* `error_out` (at least 256 bytes) gets one sentence with the file name on failure. TB_SITE_CONFIG
 * for files that are missing, unreadable, do not fit together, have no or several URIs, or whose
 * certificate has expired. Several CAs: call tb_tls_add_site_ca. */
TB_MUST_USE enum tb_status tb_tls_new_ca(const struct tb_tls_files *files, struct tb_tls **tls_out,
                                         char error_out[256]);
/* One CA more, whose certificates may speak for `site` alone: where the CAs of several sites are
 * trusted, none of them can make a certificate of another. (A CA of tb_pki_init carries the same
 * restriction in itself, as X.509 name constraints.) */
TB_MUST_USE enum tb_status tb_tls_add_site_ca(struct tb_tls *tls, const struct tb_name *site,
                                              const char *ca_path, char error_out[256]);
/* Trust alone, for signatures (signed.h): it has no certificate, and opens no connection. */
TB_MUST_USE enum tb_status tb_tls_new_trust(const char *ca_path, struct tb_tls **tls_out,
                                            char error_out[256]);
/* A fresh P-256 key and self-signed certificate in memory; peers are checked by
 * fingerprint only. */
TB_MUST_USE enum tb_status tb_tls_new_ephemeral(struct tb_tls **tls_out);
void tb_tls_free(struct tb_tls *tls); /* connections that use it keep it alive until they end */
/* One owner more: each calls tb_tls_free once. */
struct tb_tls *tb_tls_ref(struct tb_tls *tls);

/* Ours: from the certificate's URI (CA) and its SHA-256 (both). */
const struct tb_identity *tb_tls_identity(const struct tb_tls *tls);
const struct tb_fingerprint *tb_tls_fingerprint(const struct tb_tls *tls);
/* notAfter, seconds since 1970; a session does not outlive it. */
uint64_t tb_tls_expires_wall_s(const struct tb_tls *tls);
/* The chain that it shows to peers: our certificate and all that the file has behind it, in its
 * order. */
struct tb_digest tb_tls_shown(const struct tb_tls *tls);
/* The trust of a context: of all CAs, the sites that they may speak for, in the order in which they
 * were added, the identities of SPIFFE URIs, and the revoked certificates. Two contexts with equal
 * ones let the same peers in. */
struct tb_digest tb_tls_trust(const struct tb_tls *tls);
/* notAfter of the CA that ends first; 0: there is none. */
uint64_t tb_tls_cas_expire_wall_s(const struct tb_tls *tls);

/* Certificates that it refuses although a CA signed them (revoked.h). The list is the context's
 * from now on. Before the first connection. */
struct tb_revoked;
void tb_tls_set_revoked(struct tb_tls *tls, struct tb_revoked *revoked);
uint32_t tb_tls_revoked_count(const struct tb_tls *tls);
bool tb_tls_is_revoked(const struct tb_tls *tls); /* our own certificate is on its own list */

/* How many records one key encrypts before a connection takes the next (TLS's KeyUpdate)
 * [2^22 + 2^21]. AES-GCM wears out at 2^24.5; links replace their data streams at 2^22.
 * Before the first connection. */
void tb_tls_set_key_records(struct tb_tls *tls, uint64_t records);

/* Whether connections that ask for bulk have records of ours (tls_bulk.h) [true]; else OpenSSL's.
 * Before the first connection. */
void tb_tls_set_own_records(struct tb_tls *tls, bool own);

/* The first message of each connection that is dialled with it is so many bytes longer, at most
 * TB_TLS_PADDING_MAX: it fills packets, and shows whether large ones pass. Peers skip the padding.
 * Before the first connection. TB_SITE_NOMEM. */
#define TB_TLS_PADDING_MAX 14000u
TB_MUST_USE enum tb_status tb_tls_set_padding(struct tb_tls *tls, uint32_t bytes);

/* A connection's expectations of its peer, checked inside the handshake. A mismatch is
 * TB_PEER_IDENTITY, and so is a certificate that no CA of ours signed, or that has expired. An
 * empty site or name in `identity` fits any. */
struct tb_tls_expect {
    struct tb_identity identity;       /* kind NONE: any that the CA signed */
    struct tb_fingerprint fingerprint; /* ephemeral only */
    bool any_fingerprint; /* ephemeral server: accept, the token decides after (tb_chan_peer has the print) */
    /* A dialler's: so much will be sent, either way, that records are sealed and opened in batches
     * (tls_bulk.h), or sealed by the kernel where kernel and OpenSSL can (kTLS): the acceptor hears
     * of it by the server name TB_TLS_BULK. Bytes to be written then stay where they are until they
     * were taken, the kernel changes no key, and a caller that asks has SIGPIPE ignored. */
    bool bulk;
    /* An acceptor's: whether it heeds that name. Any stranger can say it, before its certificate is
     * looked at: only for a caller that has SIGPIPE ignored, or with `no_kernel`. */
    bool bulk_heard;
    /* The kernel is never asked, so SIGPIPE may stay as the process has it. */
    bool no_kernel;
};
#define TB_TLS_BULK "bulk.tombolo"

/* Why a handshake was refused, by us or by the peer. */
enum tb_tls_fault {
    TB_TLS_FAULT_NONE,     /* no end refused the other's certificate */
    TB_TLS_FAULT_TRUST,    /* no CA of the judge signed it, or the CA may not speak for that site */
    TB_TLS_FAULT_DATES,    /* it has expired, or is not valid yet, by the clock of the judge */
    TB_TLS_FAULT_IDENTITY, /* it is another gateway's than the judge expects */
    TB_TLS_FAULT_REVOKED,  /* it is on the judge's list (revoked.h) */
    TB_TLS_FAULT_OTHER     /* TLS failed in another way */
};
struct tb_tls_refusal {
    enum tb_tls_fault fault;
    bool by_peer; /* the peer refused ours; an alert said so */
    /* !by_peer: what the peer's certificate says. Nobody vouches for it unless the fault is
     * IDENTITY. kind NONE: not known. */
    struct tb_identity claimed;
};

#endif
