/* reserve_life.h - the states of memory that is prepared before a call needs it. A core. */
#ifndef TB_INTRA_CLIENT_RESERVE_LIFE_H
#define TB_INTRA_CLIENT_RESERVE_LIFE_H

#include <stdbool.h>

enum tb_reserve_life {
    TB_RESERVE_QUEUED,  /* asked for: its task stands in the crew's line */
    TB_RESERVE_FILLING, /* its task makes pages, or pins them */
    TB_RESERVE_READY,   /* no task has it */
    TB_RESERVE_REFUSED, /* there was no room for its pages, and they are gone again */
    TB_RESERVE_ENDING,  /* taken or dropped while its task is at work: that one is waited for */
    TB_RESERVE_DROPPED, /* taken or dropped while its task stood in line: the task frees the row */
    TB_RESERVE_FREE,    /* its row goes */
    TB_RESERVE_LIVES    /* their number; as an answer: the pair is illegal */
};

enum tb_reserve_event {
    TB_RESERVE_TURN,      /* its task begins */
    TB_RESERVE_GIVES_WAY, /* the task stands in line again: other work comes first */
    TB_RESERVE_ENDS,      /* the task ends: all pages are there, or it found no place in the line */
    TB_RESERVE_FAILS,     /* a page was refused */
    TB_RESERVE_LEAVES,    /* a call takes the memory, or nobody will */
    TB_RESERVE_EVENTS
};

/* The state behind the event; TB_RESERVE_LIVES: the pair is illegal. */
enum tb_reserve_life tb_reserve_after(enum tb_reserve_life life, enum tb_reserve_event event);
/* Takes the step. The pair is legal: an assert says so. */
void tb_reserve_step(enum tb_reserve_life *life, enum tb_reserve_event event);

/* Another call has taken or dropped it, and removes its row: also while that call has not seen yet
 * that the task has ended. */
bool tb_reserve_is_leaving(enum tb_reserve_life life);

#endif
