/* door_inside.h - one reader at the door, and what the door's files ask of each other: door.c
 * lets it in, door_requests.c hears it, door_answers.c serves it, door_guests.c lets it read by
 * RDMA, door_ends.c lets it go. Each calls only files behind it in this list. Only they may include
 * this.
 *
 * Threads: the fabric's. */
#ifndef TB_INTRA_DOOR_INSIDE_H
#define TB_INTRA_DOOR_INSIDE_H

#include "intra/fabric/door_lent.h"
#include "intra/fabric/door_tray.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/hop/hop_wire.h"
#include "intra/verbs_part.h"

#define TB_DOOR_PEERS_MAX     1024u
#define TB_DOOR_STRANGERS_MAX 128u /* that have not shown a token yet */
#define TB_DOOR_OUT_BYTES     ((uint32_t)64 << 10)
#define TB_DOOR_ATTACHES_MAX  128u
#define TB_DOOR_PINGS_MAX     128u

enum tb_door_peer_state { TB_DOOR_GREETING, TB_DOOR_SERVING, TB_DOOR_ENDING };

struct tb_door_run {
    const uint8_t *at;
    uint32_t bytes;
    bool words;
};

struct tb_door_peer {
    LIST_ENTRY(tb_door_peer) link;
    struct tb_door *door;
    struct tb_chan *chan;
    bool tcp;
    enum tb_door_peer_state state;
    bool gone;           /* tb_chan_close was called */
    bool chan_gone;      /* and has told: only its guest or its tray is left */
    bool lingers;        /* it did not end in time, and has no export any more */
    tb_time_ns deadline; /* TB_DOOR_GREETING, TB_DOOR_ENDING */
    struct tb_export *export;
    uint64_t owner; /* whose share of the door's readers it uses; 0: nobody's */

    uint8_t in[TB_HOP_REQUEST_BYTES];
    uint32_t in_used;

    struct tb_door_run runs[TB_HOP_READS_MAX]; /* a ring: what is to be sent, in order */
    uint32_t run_first, run_count;
    uint32_t run_done;  /* bytes of the first run that are sent or in out */
    uint64_t run_bytes; /* still to send, all runs */
    uint32_t data_left; /* of the DATA answer that was begun */
    uint64_t pings[TB_DOOR_PINGS_MAX];
    uint32_t ping_count;
    uint32_t attaches[TB_DOOR_ATTACHES_MAX];
    uint32_t attach_first, attach_count;
    int memfd_due;                /* to be sent as soon as out is empty; -1: none */
    struct tb_verbs_guest *guest; /* reads by RDMA; NULL: never did, or its queue pair is gone */
    bool verbs_asked, verbs_due;
    bool verbs_again; /* asked for while the queue pair of before is still there: offered when that is gone */
    struct tb_door_tray *tray; /* NULL: never asked, or none could be had, or it is gone */
    bool tray_asked, tray_refused;
    struct tb_door_lent *lent; /* NULL: the reader never lent memory, or there was no room for it */
    uint64_t lend_bytes;       /* that its LEND said */
    bool lend_asked, lend_due, lend_refused; /* due: its descriptor is */
    enum tb_status end_why;
    bool end_sent;

    _Alignas(8) uint8_t out[TB_DOOR_OUT_BYTES];
    uint32_t out_at, out_used;
    size_t offered; /* a write of so many bytes was not taken whole: it is repeated before anything else */
    struct tb_pace_waiter pace;
};

struct tb_door {
    struct tb_fabric *fabric;
    struct tb_listener *tcp;
    struct tb_listener *local;
    LIST_HEAD(, tb_door_peer) peers;
    uint32_t peer_count;
    uint32_t stranger_count;
    bool full_told;
    bool closed;
    uint8_t nonce[16]; /* what a reader compares to know that it reads this process */
};

/* ---- door_requests.c ---- */

void tb_door_on_readable(struct tb_chan *c, void *user);

/* ---- door_guests.c ---- */

/* A queue pair, or no rails where none can be made. */
void tb_door_offer_verbs(struct tb_door_peer *p);

/* ---- door_answers.c ---- */

/* Into `out`, where there is room for it: between two answers. */
void tb_door_put_answer(struct tb_door_peer *p, const struct tb_hop_answer *answer);
void tb_door_on_writable(struct tb_chan *c, void *user);
void tb_door_on_paced(struct tb_pace_waiter *waiter);

/* ---- door_ends.c ---- */

bool tb_door_share_spent(struct tb_door_peer *p);
void tb_door_count(struct tb_door *door, int more); /* readers: 1 or -1 */
/* Nothing of the peer touches its export any more, and it is freed. */
void tb_door_leave(struct tb_door_peer *p);
void tb_door_log_refused(const struct tb_door_peer *p, enum tb_status why, const char *what);
void tb_door_cut_off(struct tb_door_peer *p, enum tb_status why);
/* Says why and hangs up. Requests whose answers were not begun get none. */
void tb_door_end(struct tb_door_peer *p, enum tb_status why);
void tb_door_refuse(struct tb_door_peer *p, enum tb_status why, const char *what);
/* It did not take its END. Bytes that are being sent to it stay where they are. */
void tb_door_linger(struct tb_door_peer *p);
void tb_door_on_closed(struct tb_chan *c, void *user, enum tb_status why);
extern const struct tb_door_tray_events tb_door_peer_tray_events;
extern const struct tb_door_lent_events tb_door_peer_lent_events;

#endif
