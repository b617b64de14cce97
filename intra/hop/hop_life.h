/* hop_life.h - the states of one hop, from tb_hop_open until its memory may go. A core.
 *
 * A hop ends in two ways: it loses its source (LOSING, then LOST), or its owner closes it (CLOSING,
 * then CLOSED). An ending hop asks for nothing. In LOST and CLOSED nothing of it writes. */
#ifndef TB_INTRA_HOP_LIFE_H
#define TB_INTRA_HOP_LIFE_H

#include <stdbool.h>

enum tb_hop_life {
    TB_HOP_LIFE_OPENING,    /* its source is dialled */
    TB_HOP_LIFE_REDIALLING, /* shared memory failed: that way closes, then the network is dialled */
    TB_HOP_LIFE_OPEN,       /* it reads what the source holds */
    TB_HOP_LIFE_WHOLE,      /* every chunk is held, and the owner was told */
    TB_HOP_LIFE_LOSING,     /* the source is lost; jobs come home, and the transport closes */
    TB_HOP_LIFE_LOST,       /* the owner was told so, and has to close the hop */
    TB_HOP_LIFE_CLOSING,    /* the owner or the fabric closes it; the rest is as in LOSING */
    TB_HOP_LIFE_CLOSED,     /* its memory may go */
    TB_HOP_LIVES            /* their number; as an answer: the pair is illegal */
};

enum tb_hop_life_event {
    TB_HOP_ON_OPENED,  /* the transport lets it read; again where it changed its path */
    TB_HOP_ON_REFUSED, /* shared memory cannot be had, and another transport may be tried */
    TB_HOP_ON_REDIAL,  /* the way that failed has closed */
    TB_HOP_ON_WHOLE,   /* nothing is left to ask for, and nothing is in flight */
    TB_HOP_ON_LOSE,    /* the source is lost, or is of no use */
    TB_HOP_ON_CLOSE,   /* by its owner, or by the fabric that closes */
    TB_HOP_ON_ENDED,   /* no job, no transport and no claim of it is left */
    TB_HOP_LIFE_EVENTS
};

/* The state after the event; TB_HOP_LIVES: the pair is illegal. */
enum tb_hop_life tb_hop_life_after(enum tb_hop_life life, enum tb_hop_life_event event);
/* Takes the step. The pair is legal: an assert says so. */
void tb_hop_life_step(enum tb_hop_life *life, enum tb_hop_life_event event);

bool tb_hop_life_is_open(enum tb_hop_life life);   /* it may ask its source */
bool tb_hop_life_ends(enum tb_hop_life life);      /* nothing new is asked from here on */
bool tb_hop_life_is_silent(enum tb_hop_life life); /* its owner hears nothing any more */

#endif
