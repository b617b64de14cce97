/* copy_life.h - the two lives of this gateway's copy of a version as tables: how its bytes come,
 * and whether others may read them. Pure: tables of states and events, and nothing else.
 *
 * A pair that is not in its table is a mistake of this gateway: no peer, worker or file can cause
 * one. tests/unit/daemon/copy_life.c walks all pairs.
 *
 * A thing is a state where it excludes others and decides what may happen next. A thing that may
 * hold in several states, and changes for reasons of its own, stays an attribute of the row
 * (copy_table.h): its region, its hops, the last refusal, that the arena lacked room when it was
 * asked last, the sweep. */
#ifndef TB_DAEMON_COPY_LIFE_H
#define TB_DAEMON_COPY_LIFE_H

#include <stdbool.h>

/* ---- how its bytes come ---- */

enum tb_copy_life {
    TB_COPY_RESTS,        /* not whole, and no link brings it: ranks or files may */
    TB_COPY_ASKED,        /* a site was asked for its manifests */
    TB_COPY_AWAITS_ROOM,  /* the manifests came, and the arena has no room before an eviction */
    TB_COPY_CROSSES,      /* links bring its chunks */
    TB_COPY_WHOLE,        /* all chunks are here, and the catalog was told */
    TB_COPY_PART_LEAVES,  /* it is being given back */
    TB_COPY_WHOLE_LEAVES, /* the same, of a copy that is whole */
    TB_COPY_LIVES         /* their number; as an answer: the pair is illegal */
};

enum tb_copy_event {
    TB_COPY_ASKS, /* a site was asked for its manifests */
    TB_COPY_NEEDS_ROOM,
    TB_COPY_BEGINS,  /* its places are there, and links may land in them */
    TB_COPY_STOPS,   /* the crossing was refused, failed, paused, or is not wanted */
    TB_COPY_FILLS,   /* the last chunk is here */
    TB_COPY_SHRINKS, /* a chunk of it was damaged */
    TB_COPY_IS_EVICTED,
    TB_COPY_EVENTS
};

/* The state behind the event; TB_COPY_LIVES: the pair is illegal. */
enum tb_copy_life tb_copy_life_after(enum tb_copy_life life, enum tb_copy_event event);
/* Takes the step. The pair is legal: an assert says so. */
void tb_copy_life_step(enum tb_copy_life *life, enum tb_copy_event event);

/* ---- whether others may read it ---- */

enum tb_copy_serving {
    TB_COPY_UNREADY, /* home has not said that the version is ready */
    TB_COPY_READY,   /* it may be served, once its region is complete */
    TB_COPY_DUE,     /* the dispatcher offers it to the links */
    TB_COPY_OFFERED, /* the links serve it */
    TB_COPY_SERVINGS /* their number; as an answer: the pair is illegal */
};

enum tb_copy_serving_event {
    TB_COPY_IS_READY, /* home says so */
    TB_COPY_SERVES,   /* its region is complete, and its export is open */
    TB_COPY_IS_OFFERED,
    TB_COPY_IS_NOT_OFFERED, /* no links, or no memory: the next TB_COPY_SERVES tries again */
    TB_COPY_IS_RETRACTED,   /* it leaves, or the links were closed */
    TB_COPY_SERVING_EVENTS
};

enum tb_copy_serving tb_copy_serving_after(enum tb_copy_serving serving, enum tb_copy_serving_event event);
void tb_copy_serving_step(enum tb_copy_serving *serving, enum tb_copy_serving_event event);

#endif
