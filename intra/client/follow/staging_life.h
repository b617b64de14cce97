/* staging_life.h - the states of a version that is staged here, from the first request to its end.
 * A core. */
#ifndef TB_INTRA_CLIENT_STAGING_LIFE_H
#define TB_INTRA_CLIENT_STAGING_LIFE_H

#include <stdbool.h>

enum tb_staging_life {
    TB_STAGING_ASKED,     /* STAGE is on its way */
    TB_STAGING_MANIFESTS, /* the key is known; the manifests of shards arrive */
    TB_STAGING_PREPARING, /* a task of the crew checks roots and makes places */
    TB_STAGING_PREPARED,  /* the task has ended; the session thread opens the export next */
    TB_STAGING_READING,   /* chunks land */
    TB_STAGING_WHOLE,     /* all chunks are here */
    TB_STAGING_FAILING,   /* it failed while the task had it: it stays until the task ends */
    TB_STAGING_FAILED,
    TB_STAGING_LEFT, /* it failed because tb_suspend took the GPU memory that it stood in */
    TB_STAGING_LIVES /* their number; as an answer: the pair is illegal */
};

enum tb_staging_event {
    TB_STAGING_DESCRIBED,  /* the gateway answered STAGE with the key */
    TB_STAGING_SUBMITTED,  /* all manifests are here, and the task begins */
    TB_STAGING_PLACED,     /* the task made the places */
    TB_STAGING_UNPLACED,   /* the task could not */
    TB_STAGING_OPENED,     /* others may read it; chunks may land */
    TB_STAGING_LANDED,     /* the last chunk is here */
    TB_STAGING_READ_AGAIN, /* chunks were damaged, and are fetched again */
    TB_STAGING_FAILS,      /* the gateway, the memory or a device ends it */
    TB_STAGING_LEAVES,     /* tb_suspend takes the GPU memory of a staging that failed */
    TB_STAGING_EVENTS
};

/* The state behind the event; TB_STAGING_LIVES: the pair is illegal. */
enum tb_staging_life tb_staging_after(enum tb_staging_life life, enum tb_staging_event event);
/* Takes the step. The pair is legal: an assert says so. */
void tb_staging_step(enum tb_staging_life *life, enum tb_staging_event event);

/* A task of the crew has it: no other thread frees it or looks at its places. */
bool tb_staging_is_preparing(enum tb_staging_life life);
/* Its places stand, and it has not failed. */
bool tb_staging_has_places(enum tb_staging_life life);
/* The gateway knows its export; chunks land, or all have landed. */
bool tb_staging_is_open(enum tb_staging_life life);
/* It ended, and nothing brings it back. */
bool tb_staging_has_failed(enum tb_staging_life life);

#endif
