/* upstream_inside.h - one reader by RDMA, and what its files ask of each other: upstream.c its
 * life, upstream_path.c the way to the source's NIC, upstream_reads.c what is read by it. Only
 * they may include this.
 *
 * Threads: the fabric's; of the memory that is being registered, the pool's. */
#ifndef TB_INTRA_VERBS_UPSTREAM_INSIDE_H
#define TB_INTRA_VERBS_UPSTREAM_INSIDE_H

#include <stddef.h>

#include "intra/transport/pipe.h"
#include "intra/verbs/nic.h"
#include "intra/verbs/read_window.h"

#define TB_VERBS_READS_MAX    64u /* posted */
#define TB_VERBS_BOUNCE_BYTES TB_HOP_WORDS_BYTES_MAX
#define TB_VERBS_BOUNCES      16u
/* A queue pair breaks; the door has so long to say that it was it who did. */
#define TB_VERBS_LAST_WORD TB_SECONDS(1)

enum tb_verbs_state {
    TB_VERBS_GREETING,
    TB_VERBS_ASKING,
    TB_VERBS_RESOLVING,
    TB_VERBS_ROUTING,
    TB_VERBS_REGISTERING,
    TB_VERBS_CONNECTING,
    TB_VERBS_ATTACHING,
    TB_VERBS_OPEN,
    TB_VERBS_STREAMING
};

struct tb_verbs_remote {
    uint32_t buffer;
    bool reachable;
    uint32_t key;
    uint64_t count, address;
};

struct tb_verbs_target {
    const struct tb_place *place;
    struct tb_pinned_region *region; /* NULL: none */
};

struct tb_verbs_posted_read {
    struct tb_read *read;
    uint8_t *to;
    uint8_t bounce;
    struct tb_window_sample sample;
};

struct tb_verbs_read_list {
    struct tb_read *first, *last; /* not asked for to their ends */
};

struct tb_verbs_upstream {
    struct tb_upstream base;
    struct tb_pipe stream;
    struct tb_verbs *v;
    enum tb_verbs_state state;
    bool asked_for; /* by the hop's owner: nothing else will do */
    bool told;      /* on_open: READs come, and go over the connection where no path is open */
    bool may_ask_again;
    struct tb_rail_turn turn; /* TB_VERBS_STREAMING: when a path is looked for again */
    struct tb_rail theirs[TB_RAILS_MAX];
    uint32_t their_count;
    uint16_t their_port;
    struct tb_id secret;

    struct tb_rail_path path;
    bool on_path;          /* its load is counted */
    struct rdma_cm_id *id; /* until the queue has it */
    struct tb_verbs_cm cm;
    struct tb_verbs_queue queue;
    tb_time_ns open_at;
    tb_time_ns connect_until; /* TB_VERBS_CONNECTING: rdma_cm alone would try for over a minute */
    uint32_t open_ms;

    struct tb_verbs_target *targets;
    uint32_t target_count;
    uint8_t *bounce;
    struct tb_pinned_region *bounce_region;
    uint32_t bounce_busy;
    struct tb_pool_job registering;
    struct tb_fabric_job registered;
    struct ibv_pd *domain; /* of the NIC that the path goes by */
    bool job_out;
    enum tb_status job_status;
    int job_error;

    struct tb_verbs_remote *remotes;
    uint32_t remote_count, asked, answered;
    uint32_t stale; /* answers still to come that tell of a queue pair of before */

    struct tb_verbs_read_list words, data;
    struct tb_verbs_posted_read posted[TB_VERBS_READS_MAX]; /* a ring: RC completes in order */
    uint32_t post_at;
    uint64_t posted_bytes;
    struct tb_window window;
    bool broken;
    tb_time_ns broken_at;
    const char *broken_why;
    bool closing, ended; /* ended: the queue is */
};

static inline struct tb_verbs_upstream *tb_verbs_with_queue(struct tb_verbs_queue *q)
{
    return (struct tb_verbs_upstream *)((char *)q - offsetof(struct tb_verbs_upstream, queue));
}

static inline const struct tb_rail *tb_verbs_our_rail(const struct tb_verbs_upstream *u)
{
    return &u->v->rails.rails[u->path.ours];
}

/* ---- upstream.c ---- */

/* The queue pair is connected: the door tells of the buffers, and when it has, the hop is open. */
void tb_verbs_ask_remotes(struct tb_verbs_upstream *u);
/* The connection goes once the queue has ended and no memory is being registered. */
void tb_verbs_go_on_closing(struct tb_verbs_upstream *u);

/* ---- upstream_path.c ---- */

void tb_verbs_path_init(struct tb_verbs_upstream *u);
/* Asks the door for its rails and for a secret for one path: tb_verbs_path_try follows. */
void tb_verbs_path_ask(struct tb_verbs_upstream *u);
/* The best of those that do not rest; when there is none, the connection, until the next turn. */
void tb_verbs_path_try(struct tb_verbs_upstream *u);
void tb_verbs_path_failed(struct tb_verbs_upstream *u, const char *what);
void tb_verbs_path_leave(struct tb_verbs_upstream *u);
/* The door is there and said nothing: it was the path. */
void tb_verbs_path_blame(struct tb_verbs_upstream *u);
/* Everything goes over the connection from here on, or still. */
void tb_verbs_become_stream(struct tb_verbs_upstream *u, enum tb_transport_why why);
/* The queue pair broke while the hop was open: the door is given time to say why, or to be gone.
 * what: static storage. */
void tb_verbs_break_off(struct tb_verbs_upstream *u, const char *what);
void tb_verbs_targets_free(struct tb_verbs_upstream *u);
void tb_verbs_on_dead(struct tb_verbs_queue *q);

/* ---- upstream_reads.c ---- */

/* All of it, or it goes over the connection, whose door says what is wrong with it. */
bool tb_verbs_reached(const struct tb_verbs_upstream *u, const struct tb_read *read);
/* A far chunk's bytes go by our NIC to the device: it is registered there, and the way is open. */
bool tb_verbs_writes_far(const struct tb_upstream *upstream, const struct tb_read *read);
void tb_verbs_take_read(struct tb_verbs_upstream *u, struct tb_read *read);
void tb_verbs_on_completion(struct tb_verbs_queue *q, const struct ibv_wc *wc);

#endif
