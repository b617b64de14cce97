/* chan.h - one byte channel: a unix or TCP socket, with TLS on it or not, on a libuv loop. A shell.
 *
 * Non-blocking SSL_read and SSL_write straight on the socket (uv_poll): no memory BIO, so no extra
 * copy. Bytes go from the caller's memory and into the caller's memory. Kernel buffers are never
 * set: autotuning stays on.
 *
 * Threads: a chan lives on the thread of its loop. Callbacks run there. Inside any callback any
 * call on the chan is allowed, close included. After on_closed has run the chan is gone; it runs
 * exactly once for each chan that dial or accept gave. */
#ifndef TB_BASE_NET_CHAN_H
#define TB_BASE_NET_CHAN_H

#include <uv.h>

#include "base/net/endpoint.h"
#include "base/net/tls.h"
#include "base/time.h"

struct tb_chan;

/* The peer at the other end, known from on_open on. */
struct tb_chan_peer {
    struct tb_identity identity;       /* TLS by CA: from the certificate; unix: the uid; else NONE */
    struct tb_fingerprint fingerprint; /* TLS: of its certificate */
    uint64_t expires_wall_s;           /* TLS: its certificate's notAfter; 0 otherwise */
    int32_t pid;                       /* unix: SO_PEERCRED; -1 otherwise */
    char address[128];                 /* for people */
};

struct tb_chan_ops {
    /* connected, handshake done */
    void (*on_open)(struct tb_chan *c, void *user, const struct tb_chan_peer *peer);
    /* level-triggered: called again while bytes wait and reading is wanted */
    void (*on_readable)(struct tb_chan *c, void *user);
    void (*on_writable)(struct tb_chan *c, void *user); /* only while writing is wanted */
    /* the chan is freed after this returns */
    void (*on_closed)(struct tb_chan *c, void *user, enum tb_status why);
};

struct tb_chan_options {
    uv_loop_t *loop;
    struct tb_tls *tls;          /* NULL: plain */
    struct tb_tls_expect expect; /* with tls */
    const struct tb_chan_ops *ops;
    void *user;
    uint32_t open_ms;           /* connect and handshake together; 0 = 10000 */
    uint32_t segment_bytes_max; /* dialled over TCP: payload of a segment, either way; 0: the path's own */
};

/* Errors at once (TB_SITE_NOMEM, TB_SITE_IO, TB_BAD_ARGUMENT) mean no chan and no callback; later
 * ones come by on_closed: TB_PEER_UNREACHABLE, TB_STREAM_IDLE (open_ms), TB_STREAM_TLS,
 * TB_PEER_IDENTITY, TB_STREAM_CLOSED, TB_STREAM_IO. In TLS 1.3 the dialler is open before the other
 * end has judged its certificate: a refusal comes to it after on_open, as TB_PEER_DENIED. */
TB_MUST_USE enum tb_status tb_chan_dial(const struct tb_chan_options *options, const struct tb_address *to,
                                        struct tb_chan **chan_out);
/* Takes fd, on failure too. */
TB_MUST_USE enum tb_status tb_chan_accept(const struct tb_chan_options *options, int fd,
                                          struct tb_chan **chan_out);
/* on_closed(why) comes on the next turn of the loop; TLS gets a close_notify where it
 * can be sent at once. */
void tb_chan_close(struct tb_chan *c, enum tb_status why);
/* Says that no more will be written (close_notify, then FIN) as soon as the socket takes it.
 * Reading goes on. Bytes that were written before reach a peer that reads; tb_chan_close with
 * unread bytes in the socket would cut them off. */
void tb_chan_end(struct tb_chan *c);
/* Closes with `why` unless it is closed within ms. The earliest of several counts. */
void tb_chan_deadline(struct tb_chan *c, enum tb_status why, uint32_t ms);
/* Why it failed, as a sentence for the log: "certificate has expired", "Connection refused". Empty
 * when nothing is known. It may quote what the peer sent. Valid until on_closed returns. */
const char *tb_chan_reason(const struct tb_chan *c);
/* TLS: who refused whose certificate, and why. Valid until on_closed returns. */
struct tb_tls_refusal tb_chan_refusal(const struct tb_chan *c);

/* True at first; false pushes back through TCP's window. */
void tb_chan_want_read(struct tb_chan *c, bool wanted);
void tb_chan_want_write(struct tb_chan *c, bool wanted); /* false at first */

/* Reads what is there, at most cap: TB_OK with 1..cap bytes, TB_AGAIN, TB_STREAM_CLOSED (orderly
 * end), TB_STREAM_IO, TB_STREAM_TLS, TB_PEER_DENIED. A status that is neither TB_OK nor TB_AGAIN
 * has closed the chan, here and in the calls below: on_closed will come with it. On a closed chan
 * they say why it closed. */
TB_MUST_USE enum tb_status tb_chan_read(struct tb_chan *c, void *out, size_t cap, size_t *count_out);
/* Writes what fits now: TB_OK with 1..count bytes taken, TB_AGAIN (then want_write). A write that
 * got TB_AGAIN is repeated later with the same bytes first, and not fewer; the buffer may have
 * moved. The same holds for the rest that a write did not take. */
TB_MUST_USE enum tb_status tb_chan_write(struct tb_chan *c, const void *bytes, size_t count,
                                         size_t *count_out);

/* Unix only, plain only: one message byte with 1 to 16 descriptors. Send keeps the caller's fds;
 * receive gives them to the caller, CLOEXEC. A tb_chan_read that meets the message drops the
 * descriptors: both ends know from what was said before when descriptors come. TB_PEER_GARBLED:
 * other bytes, no descriptors or more than cap (those that came are closed). */
TB_MUST_USE enum tb_status tb_chan_send_fds(struct tb_chan *c, const int *fds, uint32_t count);
TB_MUST_USE enum tb_status tb_chan_recv_fds(struct tb_chan *c, int *fds_out, uint32_t cap,
                                            uint32_t *count_out);

/* From one loop to another, for an accepted chan whose first frame says where it belongs. Only an
 * open chan; no callback comes any more, on_closed neither. On a later turn `then` gets it, with
 * what it has not read: attach it, on the thread of the new loop, or discard it. Attached it is
 * open, wants to read and has no deadline. TB_SITE_IO: still detached. */
typedef void (*tb_chan_detached_fn)(struct tb_chan *c, void *user);
void tb_chan_detach(struct tb_chan *c, tb_chan_detached_fn then, void *user);
TB_MUST_USE enum tb_status tb_chan_attach(struct tb_chan *c, uv_loop_t *loop, const struct tb_chan_ops *ops,
                                          void *user);
void tb_chan_discard(struct tb_chan *c);

const struct tb_chan_peer *tb_chan_peer(const struct tb_chan *c);
int tb_chan_fd(const struct tb_chan *c);         /* for getsockopt(TCP_INFO) and tests */
bool tb_chan_hung_up(const struct tb_chan *c);   /* of one without TLS: it closed because its peer did */
bool tb_chan_connected(const struct tb_chan *c); /* the other machine has answered; TLS may be under way */

/* How far a dial came, also one that failed. */
enum tb_chan_reach {
    TB_CHAN_NOWHERE, /* this machine has no way there now, as while its device is down: nothing was sent */
    TB_CHAN_UNHEARD, /* nothing came from there: silence, or a router's word that it leads nowhere */
    TB_CHAN_HEARD    /* the other machine answered, be it by a refusal */
};
enum tb_chan_reach tb_chan_reach(const struct tb_chan *c);
bool tb_chan_kernel_sends(const struct tb_chan *c); /* TLS: the kernel encrypts what is written */
/* TLS: records are ours (tls_bulk.h), not OpenSSL's; those that are sent the
 * kernel's, where it sends. */
bool tb_chan_own_records(const struct tb_chan *c);
uint64_t tb_chan_records(const struct tb_chan *c); /* of TLS, at most; the more of both ways */

#endif
