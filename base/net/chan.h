/* chan.h - one byte channel: a unix or TCP socket, with TLS on it or not, on a libuv loop. A shell.
 *
 * Non-blocking SSL_read and SSL_write straight on the socket (uv_poll): no memory BIO, so no extra
 * copy. Bytes go from the caller's memory and into the caller's memory. Kernel buffers are never
 * set: autotuning stays on. chan_bytes.h reads and writes; chan_facts.h says what is known of one.
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
    /* Dialled over TCP: from this address of ours. One of the other family reaches nothing, and
     * neither does one that this machine does not have: on_closed says so. NULL: the kernel
     * chooses. Borrowed for the call. */
    const struct tb_address *source;
    uint32_t dscp; /* dialled over TCP, from its SYN on: 0 to 63; 0: the system's */
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

/* From one loop to another, for an accepted chan whose first frame says where it belongs. Only an
 * open chan; no callback comes any more, on_closed neither. On a later turn `then` gets it, with
 * what it has not read: attach it, on the thread of the new loop, or discard it. Attached it is
 * open, wants to read and has no deadline. TB_SITE_IO: still detached. */
typedef void (*tb_chan_detached_fn)(struct tb_chan *c, void *user);
void tb_chan_detach(struct tb_chan *c, tb_chan_detached_fn then, void *user);
TB_MUST_USE enum tb_status tb_chan_attach(struct tb_chan *c, uv_loop_t *loop, const struct tb_chan_ops *ops,
                                          void *user);
void tb_chan_discard(struct tb_chan *c);

#endif
