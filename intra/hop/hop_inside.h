/* hop_inside.h - one hop in memory, and what its files ask of each other: hop_run.c its life,
 * hop_follow.c what its source holds, hop_land.c its chunks, hop_facts.c what they post. Each calls
 * only files behind it in this list. Only they may include this.
 *
 * Threads: the fabric's; of a slot that is WORKING the pool's, or the place's owner's. */
#ifndef TB_INTRA_HOP_INSIDE_H
#define TB_INTRA_HOP_INSIDE_H

#include "base/layout/land_chunk.h"
#include "base/scratch_memory.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop.h"
#include "intra/hop/hop_life.h"

/* WORKING: on the pool, or with the place's owner. */
enum tb_hop_slot_state { TB_SLOT_FREE, TB_SLOT_READING, TB_SLOT_WORKING, TB_SLOT_CONFIRMING };

/* One chunk in flight. */
struct tb_hop_slot {
    struct tb_pool_job job;    /* copy, decode, digest */
    struct tb_fabric_job done; /* and back on the loop */
    struct tb_hop *hop;
    enum tb_hop_slot_state state;
    struct tb_hop_aim aim;
    struct tb_read read;
    bool copies;            /* the job reads it; else the transport has, or brought it near (read.staged) */
    bool passes;            /* the encoded chunk goes on: to our shelf, or to the owner */
    struct tb_id base;      /* of the encoded chunk */
    uint8_t codec;          /* 0: read.to is the chunk's place */
    struct tb_room scratch; /* for the encoded form */
    bool bounces;           /* a far chunk that no NIC writes there: it lands in `near` */
    uint8_t *near;          /* and its place's owner brings it there: `lent`, or `bounce` */
    uint8_t *lent;          /* by the place's owner; NULL: nothing */
    struct tb_room bounce;
    struct tb_codec_coded coded; /* what came, while the owner looks at it */
    struct tb_place_look look;
    enum tb_status status;
    uint64_t failed_order; /* CONFIRMING: answers come in this order */
};

/* The source's shelf: head and bits, or entries, on their way. */
struct tb_hop_shelf_read {
    struct tb_read read;
    uint64_t *words;
    bool entries;
    uint32_t first;
};

/* A shard's bitmap on its way. */
struct tb_hop_snapshot {
    struct tb_read read;
    uint64_t *words;
    uint32_t first;
};

struct tb_hop {
    LIST_ENTRY(tb_hop) link;
    struct tb_fabric *fabric;
    struct tb_hop_options options; /* its source is our copy, its places are not used after open */
    uint32_t idle_ms, open_ms;
    void *source_memory;
    enum tb_status source_status;
    struct tb_hop_shard *shards;
    struct tb_hop_snapshot *snapshots; /* one a shard */
    const struct tb_source_shard **sources;
    const struct tb_place **targets; /* as many */
    uint64_t *words;                 /* of all bitmaps */
    struct tb_hop_state state;
    struct tb_hop_slot slots[TB_HOP_CHUNKS_MAX];
    struct tb_hop_shelf shelf; /* state.shelf is this, or NULL */
    struct tb_shelf_at shelf_at;
    void *shelf_memory;
    struct tb_hop_shelf_read shelf_read;
    struct tb_hop_base base;
    uint64_t failed_order;
    uint32_t jobs; /* slots that are WORKING */
    uint32_t snapshots_owed;

    enum tb_transport transport;
    enum tb_transport_why why;
    struct tb_upstream *upstream;
    struct tb_upstream_events events;
    enum tb_hop_life life;
    bool round_running;
    bool orphan; /* the fabric closes: the hop frees itself */
    bool upstream_closing;
    bool conclusion_posted;
    enum tb_status lost; /* why; TB_OK: not */
    bool stop;           /* atomic: jobs that have not begun need not */
    struct tb_fabric_job start, close, conclusion, look;
    bool look_posted; /* atomic: `look` is in the queue */
    bool closed;      /* under the fabric's lock */

    struct tb_hop_stats stats; /* under the fabric's lock */
};

/* hop_facts.c */
void tb_hop_tell(struct tb_hop *hop, struct tb_hop_event event);
/* Nothing new is asked from here on, and LOST is told once nothing of the hop writes any more.
 * Nothing of the hop is closed or freed inside this call. */
void tb_hop_lose(struct tb_hop *hop, enum tb_status why);
void tb_hop_end(struct tb_hop *hop, enum tb_hop_life_event event); /* the same, of LOSE and CLOSE */
/* Something of an ending hop came home: hop_run.c looks at what is left of it, on a later turn. */
void tb_hop_conclude_soon(struct tb_hop *hop);

/* hop_land.c */
void tb_hop_slots_init(struct tb_hop *hop);
void tb_hop_slots_drop(struct tb_hop *hop); /* claims that are left go back; nothing writes any more */
void tb_hop_slots_free(struct tb_hop *hop);
/* Asks for as many chunks as may be in flight, and tells when there is none left to ask for. */
void tb_hop_pump(struct tb_hop *hop);
void tb_hop_chunk_came(struct tb_hop_slot *slot); /* the transport has read it */
/* The source still had its memory after the oldest chunk failed whose digest did not match. */
void tb_hop_confirmed(struct tb_hop *hop);

/* hop_follow.c */
void tb_hop_begin_round(struct tb_hop *hop);
void tb_hop_words_came(struct tb_hop *hop, struct tb_read *read);
void tb_hop_follow_shelf(struct tb_hop *hop, uint32_t buffer, uint64_t offset);
void tb_hop_leave_shelf(struct tb_hop *hop); /* there is none, or no more: those behind us are told so */

#endif
