/* publication_life.h - the states of one sealed shard, from tb_publish to its removal. A core. */
#ifndef TB_INTRA_CLIENT_PUBLICATION_LIFE_H
#define TB_INTRA_CLIENT_PUBLICATION_LIFE_H

#include <stdbool.h>

enum tb_publication_life {
    /* the first tb_publish works on it; the gateway has taken nothing */
    TB_PUBLICATION_NEW,
    TB_PUBLICATION_CLAIMED,       /* sealed, and a call of tb_publish works on it */
    TB_PUBLICATION_STANDING,      /* sealed, and no call works on it */
    TB_PUBLICATION_ENDED,         /* it cannot be served from here any more; no call works on it */
    TB_PUBLICATION_ENDED_CLAIMED, /* the same, and a call of tb_publish works on it */
    /* its registration ends or is suspended: UNPUBLISH waits for an answer */
    TB_PUBLICATION_HIDING,
    TB_PUBLICATION_HIDDEN,    /* the gateway does not count it; readers may drain still */
    TB_PUBLICATION_SUSPENDED, /* its export is closed, and the memory is the caller's */
    TB_PUBLICATION_RETURNING, /* tb_resume compares its bytes, exports and seals it again */
    TB_PUBLICATION_REMOVING,  /* readers drain, then it is freed */
    TB_PUBLICATION_LIVES      /* their number; as an answer: the pair is illegal */
};

enum tb_publication_event {
    TB_PUBLICATION_CLAIM,    /* tb_publish of a shard that was sealed before */
    TB_PUBLICATION_TAKEN,    /* the gateway answered SEAL of tb_publish */
    TB_PUBLICATION_LOST,     /* the gateway refuses its announcement, or its memory is gone */
    TB_PUBLICATION_RELEASE,  /* tb_publish has ended */
    TB_PUBLICATION_HIDE,     /* tb_suspend or tb_unregister begins */
    TB_PUBLICATION_ANSWERED, /* the gateway answered its UNPUBLISH */
    TB_PUBLICATION_CLOSED,   /* the last reader has left, or was cut off */
    TB_PUBLICATION_RETURN,   /* tb_resume begins */
    TB_PUBLICATION_RETURNED, /* the gateway took its seal again */
    TB_PUBLICATION_REMOVE,   /* it does not come back */
    TB_PUBLICATION_EVENTS
};

/* The state behind the event; TB_PUBLICATION_LIVES: the pair is illegal. */
enum tb_publication_life tb_publication_after(enum tb_publication_life life, enum tb_publication_event event);
/* Takes the step. The pair is legal: an assert says so. */
void tb_publication_step(enum tb_publication_life *life, enum tb_publication_event event);

/* A call works on it: no other call changes or frees it. */
bool tb_publication_is_busy(enum tb_publication_life life);
/* The gateway took its seal, and it was not lost since. */
bool tb_publication_is_sealed(enum tb_publication_life life);
/* A gateway that comes anew hears of it. */
bool tb_publication_is_announced(enum tb_publication_life life);

#endif
