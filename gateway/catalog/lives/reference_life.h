/* reference_life.h - the two lives of a reference as tables: how far a rank's is being unpublished,
 * and where a worker stands in its chain. Pure: tables of states and events, and nothing else.
 *
 * A step says false, and changes nothing, where its table has no such pair. The rooms assert that a
 * step is legal: what a worker asks for in the wrong state is answered with a status before.
 *
 * States, because each excludes the others and decides what may happen next: sight    of a rank's:
 * in sight; hidden behind another one that answers; hidden and answers; hidden, answers alone, and
 * goes when the drain ends reading  of a worker's: it rests (it has all, or has ended), asks for a
 * source, reads, or yields its place to another reader. Ranks and sites rest. Everything else is a
 * fact that may hold in any state, and stays an attribute (reference_rows.h): of its bytes
 * whole, has, activated, reads_only, in_place of its session   silent, spot of judgement     slow,
 * aside, stood of home          landing (LAND_FROM is out; the marks on the row say whether it was
 * told), was_asked of accounting    source_loads (the source may be on the same host, and then
 * bears no load)
 *
 * Kept by: tests/unit/catalog/reference_life.c, which walks all pairs. */
#ifndef TB_GATEWAY_REFERENCE_LIFE_H
#define TB_GATEWAY_REFERENCE_LIFE_H

#include <stdbool.h>

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
TB_MUST_USE bool tb_sight_step(enum tb_sight *sight, enum tb_sight_event event);

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
TB_MUST_USE bool tb_reading_step(enum tb_reading *reading, enum tb_reading_event event);

#endif
