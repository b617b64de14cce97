/* wire.h - framed control messages over a chan. A shell.
 *
 * A frame is: u32 payload bytes, u16 type, u16 0, u64 request id, payload. A frame over
 * frame_bytes_max is the peer's mistake (TB_PEER_GARBLED), and is refused from its header,
 * before anything is allocated. One that a connection may not send yet (frame_bytes_now,
 * tb_wire_allow) is refused likewise, with TB_TOO_LARGE. Memory for a frame grows with the bytes
 * that really came, and several wires can share one budget for it (TB_SITE_NOMEM). The
 * queue of bytes to send is bounded by queue_bytes_max: a peer that does not read is dropped. */
#ifndef TB_BASE_NET_WIRE_H
#define TB_BASE_NET_WIRE_H

#include "base/bytes.h"
#include "base/net/chan.h"
#include "base/net/chan_facts.h"

#define TB_WIRE_HEADER_BYTES 16
#define TB_WIRE_PART_BYTES   (64u << 10)

struct tb_wire;

struct tb_wire_frame {
    uint16_t type;
    uint64_t request;         /* a reply carries its request's id; 0: a notice */
    struct tb_reader payload; /* borrowed until on_frame returns */
};

struct tb_wire_ops {
    void (*on_open)(struct tb_wire *w, void *user, const struct tb_chan_peer *peer);
    /* Anything but TB_OK closes the wire with that status. */
    enum tb_status (*on_frame)(struct tb_wire *w, void *user, struct tb_wire_frame *frame);
    /* TB_WIRE_PART_BYTES more of a frame came that is not whole yet: a peer that says something
     * long is heard while it does. Or NULL. */
    void (*on_part)(struct tb_wire *w, void *user);
    void (*on_closed)(struct tb_wire *w, void *user, enum tb_status why); /* the wire is freed after this */
};

/* Memory for frames that are not whole yet, of all wires that share it. One thread. */
struct tb_wire_budget {
    uint64_t used, most, bound;
    uint64_t refused; /* wires that were closed for want of it */
    uint64_t spent;   /* of them: its owner closed them, as their party had its share */
};

struct tb_wire_options {
    struct tb_chan_options chan; /* its ops and user are ignored */
    const struct tb_wire_ops *ops;
    void *user;
    uint32_t frame_bytes_max;      /* 0 = 1 MiB */
    uint32_t frame_bytes_now;      /* until tb_wire_allow; 0: frame_bytes_max */
    struct tb_wire_budget *budget; /* outlives the wire; NULL: none */
    uint64_t queue_bytes_max;      /* 0 = 64 MiB */
};

TB_MUST_USE enum tb_status tb_wire_dial(const struct tb_wire_options *options, const struct tb_address *to,
                                        struct tb_wire **wire_out);
TB_MUST_USE enum tb_status tb_wire_accept(const struct tb_wire_options *options, int fd,
                                          struct tb_wire **wire_out);
void tb_wire_close(struct tb_wire *w, enum tb_status why);
/* As close, but what is queued is sent first, for at most linger_ms. */
void tb_wire_finish(struct tb_wire *w, enum tb_status why, uint32_t linger_ms);

/* The wire goes and its chan stays, detached (chan.h): for an accepted connection whose first frame
 * says that it is no wire. Allowed on an open wire, inside on_frame too; no callback comes any
 * more. On a later turn `then` gets the chan, or NULL when bytes had come that no frame took or
 * were queued to send: it is closed then. */
typedef void (*tb_wire_detached_fn)(void *user, struct tb_chan *c);
void tb_wire_detach(struct tb_wire *w, tb_wire_detached_fn then, void *user);

/* Begins a frame of at most payload_max bytes: write the payload through the writer, then end. The
 * writer's memory is the send queue itself. NULL when the queue is over its bound (the wire is then
 * closed with TB_SITE_NOMEM). */
struct tb_writer *tb_wire_begin(struct tb_wire *w, uint16_t type, uint64_t request, size_t payload_max);
void tb_wire_end(struct tb_wire *w);

/* From now on a frame may have so many bytes, frame_bytes_max at most. The last quarter of the
 * budget is for wires that are preferred. */
void tb_wire_allow(struct tb_wire *w, uint32_t frame_bytes, bool preferred);
/* When the last whole frame came, or the last TB_WIRE_PART_BYTES of one that is under way; 0: no
 * frame is under way. */
tb_time_ns tb_wire_moved_at(const struct tb_wire *w);
uint64_t tb_wire_in_bytes(const struct tb_wire *w); /* of the budget */
uint64_t tb_wire_queued_bytes(const struct tb_wire *w);
tb_time_ns tb_wire_heard_at(const struct tb_wire *w); /* when the last byte came */
struct tb_chan *tb_wire_chan(struct tb_wire *w);

#endif
