/* tls_session.h - one TLS connection over a non-blocking socket, for chan.c alone. A shell.
 *
 * OpenSSL reads and writes the socket through a BIO of ours over recvmsg and sendmsg(MSG_NOSIGNAL):
 * the socket BIO it comes with uses write(2), whose SIGPIPE would kill the process, and a library
 * must not change its host's signals. Where the kernel encrypts what is sent (tb_tls_expect.bulk),
 * OpenSSL's BIO stands behind ours: only that one knows how OpenSSL hands keys and record types to
 * the kernel. Such a connection's records are, after the handshake, tls_bulk.h's otherwise.
 *
 * Threads: one at a time. The tb_tls behind it is shared. */
#ifndef TB_BASE_NET_TLS_SESSION_H
#define TB_BASE_NET_TLS_SESSION_H

#include <openssl/types.h>
#include <stddef.h>

#include "base/net/tls.h"

#define TB_TLS_REASON_BYTES 256
#define TB_TLS_AHEAD_BYTES  1024 /* a small record comes whole with its header */

struct tb_tls_bulk;

struct tb_tls_session {
    SSL *ssl;
    /* bulk: OpenSSL's own socket BIO, through which records go that the kernel
     * encrypts; else NULL */
    BIO *kernel;
    bool kernel_asked; /* it was, once */
    /* bulk: records are sealed and opened by ours, once the handshake is done; NULL: by OpenSSL */
    struct tb_tls_bulk *bulk;
    struct tb_tls *tls; /* referenced */
    struct tb_tls_expect expect;
    int fd;                                  /* borrowed */
    int io_errno;                            /* of the last failed system call; 0 if none failed */
    bool eof;                                /* recv said 0 */
    bool shaken;                             /* the handshake is done */
    bool said_end;                           /* the goodbye is sent, or sealed */
    bool dead;                               /* a fatal error: no further record may be sent */
    bool starved;                            /* the last read needs more from the socket */
    bool wants_read;                         /* the last call stopped for want of bytes */
    bool wants_write;                        /* the last call stopped for want of room */
    uint64_t records_sent, records_received; /* TLS records, at most so many */
    uint64_t key_since;                      /* of records_sent, when our sending key was made */
    uint16_t ahead_from, ahead_used;         /* of what was read from the socket and not asked for yet */
    uint8_t ahead[TB_TLS_AHEAD_BYTES];
    enum tb_status ended; /* TB_OK, or what every read says from now on */
    bool refused;         /* we refused the peer's certificate */
    struct tb_tls_refusal refusal;
    char reason[TB_TLS_REASON_BYTES]; /* a sentence once something failed; else empty */
};

/* The session stays at its address until fini. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_tls_session_init(struct tb_tls_session *s, struct tb_tls *tls,
                                               const struct tb_tls_expect *expect, int fd, bool server);
void tb_tls_session_fini(struct tb_tls_session *s);

/* TB_OK, TB_AGAIN, TB_PEER_IDENTITY, TB_PEER_DENIED (it refused our certificate), TB_STREAM_TLS,
 * TB_STREAM_IO, TB_STREAM_CLOSED. */
TB_MUST_USE enum tb_status tb_tls_session_handshake(struct tb_tls_session *s);
/* As tb_chan_read and tb_chan_write. */
TB_MUST_USE enum tb_status tb_tls_session_read(struct tb_tls_session *s, void *out, size_t cap,
                                               size_t *count_out);
TB_MUST_USE enum tb_status tb_tls_session_write(struct tb_tls_session *s, const void *bytes, size_t count,
                                                size_t *count_out);
/* Sends close_notify. TB_AGAIN: not yet, call again when the socket takes more. */
TB_MUST_USE enum tb_status tb_tls_session_end(struct tb_tls_session *s);

/* True when a read may give bytes although the socket is quiet. */
bool tb_tls_session_pending(const struct tb_tls_session *s);
/* After the handshake: records are made and read by tls_bulk.h, but for those that the kernel
 * makes. */
bool tb_tls_session_own_records(const struct tb_tls_session *s);
/* After the handshake: what we send is encrypted by the kernel. */
bool tb_tls_session_kernel_sends(const struct tb_tls_session *s);
/* After the handshake. identity_out->kind is NONE for ephemeral contexts. */
void tb_tls_session_peer(const struct tb_tls_session *s, struct tb_identity *identity_out,
                         struct tb_fingerprint *fingerprint_out, uint64_t *expires_wall_s_out);

/* After the handshake: a CA that `tls` trusts for the peer's site vouches for it, and nothing of
 * its chain is on the list of `tls`. CAs that are bound to no site do not count. */
bool tb_tls_session_trusted(const struct tb_tls_session *s, const struct tb_tls *tls);
/* After the handshake: a certificate of the peer's chain is on the list of `tls` by now. */
bool tb_tls_session_revoked(const struct tb_tls_session *s, const struct tb_tls *tls);
/* For tls_bulk.c. The first reason is the true one: what follows is its consequence. */
__attribute__((format(printf, 2, 3))) void tb_tls_session_because(struct tb_tls_session *s,
                                                                  const char *format, ...);
/* The socket ended or failed, as io_errno says; the peer said why. */
enum tb_status tb_tls_session_cut(struct tb_tls_session *s);
enum tb_status tb_tls_session_alert(struct tb_tls_session *s, uint8_t alert);

#endif
