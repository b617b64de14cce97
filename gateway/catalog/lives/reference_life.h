/* reference_life.h - the three lives of a reference as tables of states and events. Pure.
 *
 * A table answers with the next state, or with its END where it has no such pair. The rows assert
 * that a pair is there: a worker that asks in the wrong state gets a status before.
 *
 * A thing is a state where it excludes others and decides what may happen next:
 *   sight     of a rank: in sight, hidden, or hidden and with an answer to give
 *   reading   of a worker: rests, asks for a source, reads, yields its place. Others rest.
 *   standing  of a worker in its tree: keeps up, stands aside, slow
 * Everything else may hold in any state and stays an attribute (reference_rows.h):
 *   of its bytes     whole, has, activated, reads_only, in_place
 *   of its session   silent, spot
 *   of judgement     stood
 *   of home          landing (LAND_FROM is out or marked), was_asked
 *   of accounting    source_loads (a source on the same host bears no load)
 *
 * Kept by: tests/unit/catalog/reference_life.c, which walks all pairs. */
#ifndef TB_GATEWAY_REFERENCE_LIFE_H
#define TB_GATEWAY_REFERENCE_LIFE_H

#include "tombolo/status.h"

/* ---- a rank's: unpublishing ---- */

enum tb_sight {
    TB_SIGHT_IN_SIGHT,
    TB_SIGHT_HIDDEN,  /* another one that was hidden with it answers */
    TB_SIGHT_ANSWERS, /* for itself and those hidden with it */
    TB_SIGHT_GOES,    /* answers for itself alone, and its memory goes when the drain ends */
    TB_SIGHT_END
};
enum tb_sight_event {
    TB_SIGHT_IS_HIDDEN,
    TB_SIGHT_LEADS,      /* it gives the answer of the request, or inherits that */
    TB_SIGHT_IS_GOING,   /* its memory goes */
    TB_SIGHT_COMES_BACK, /* the drain passed, or it was sealed again */
    TB_SIGHT_EVENT_END
};
/* TB_SIGHT_END: there is no such pair. */
TB_MUST_USE enum tb_sight tb_sight_after(enum tb_sight sight, enum tb_sight_event event);

/* ---- a worker's: its reading ---- */

enum tb_reading {
    TB_READING_RESTS,
    TB_READING_ASKS,
    TB_READING_READS,
    TB_READING_YIELDS, /* it reads on until another one may read there */
    TB_READING_END
};
enum tb_reading_event {
    TB_READING_WANTS,   /* it lives, has not all of it and has no source */
    TB_READING_IS_SENT, /* it has a source */
    TB_READING_GIVES_UP,
    TB_READING_IS_DONE, /* it has all of it, or has ended */
    TB_READING_EVENT_END
};
/* TB_READING_END: there is no such pair. */
TB_MUST_USE enum tb_reading tb_reading_after(enum tb_reading reading, enum tb_reading_event event);

/* ---- a worker's: its place in the tree, in the order in which workers are planned ---- */

enum tb_standing {
    TB_STANDING_KEEPS_UP,
    TB_STANDING_ASIDE, /* gives its place up, so that another one there can be compared with it */
    TB_STANDING_SLOW,  /* a leaf for the rest of this version */
    TB_STANDING_END
};
enum tb_standing_event {
    TB_STANDING_IS_PUT_ASIDE,
    TB_STANDING_IS_PLANNED, /* it has a source behind the others */
    TB_STANDING_IS_SLOW,    /* judged (plans.c), or its session was slow in the last version */
    TB_STANDING_EVENT_END
};
/* TB_STANDING_END: there is no such pair. */
TB_MUST_USE enum tb_standing tb_standing_after(enum tb_standing standing, enum tb_standing_event event);

#endif
