/* version_life.h - the four lives of a version as tables of states and events: its own, of the copy
 * here, of its crossing to here, of the search for a slow first reader. Pure.
 *
 * A table answers with the next state, or with its END where it has no such pair. The rows assert
 * that a pair is there, because a wrong one is a mistake of ours. A peer's word is looked up first
 * and refused with a status.
 *
 * A thing is a state where it excludes others and decides what may happen next:
 *   life      open, ready, kept, retired, unheld, and four ends that nothing follows
 *   copy      none, here (the arena has a region), leaving (EVICT is out)
 *   crossing  none, asked (CROSS is out), begun
 *   search    none, trying, done
 * Everything else may hold in several of these states and changes for reasons of its own. It stays
 * an attribute of the row (version_rows.h):
 *   of the past      was_ready, restored_open, had_more, rank_lost, withdrawn_here
 *   of the copy      whole: a count of chunks says so, also while the copy leaves
 *   by others' word  pinned, base, wanted, lost_at_home, activated_here, whole_told
 *   of judgement     lacks (with lacks_since)
 *   of settling      touched, ending, stands_told
 *
 * Kept by: tests/unit/catalog/version_life.c, which walks all pairs. */
#ifndef TB_GATEWAY_VERSION_LIFE_H
#define TB_GATEWAY_VERSION_LIFE_H

#include "gateway/catalog/version_state.h"

/* ---- its own ---- */

enum tb_version_life {
    TB_LIFE_OPEN,
    TB_LIFE_READY,
    TB_LIFE_KEPT,
    TB_LIFE_RETIRED,
    TB_LIFE_UNHELD, /* retired without ever having been here: news of it begins it anew */
    TB_LIFE_LOST,
    TB_LIFE_BROKEN,
    TB_LIFE_WITHDRAWN,
    TB_LIFE_ABANDONED,
    TB_LIFE_END
};

enum tb_version_event {
    TB_VERSION_BECOMES_READY,   /* all shards are sealed, or home says so */
    TB_VERSION_BECOMES_KEPT,    /* a reliable holder has all of it */
    TB_VERSION_IS_EVICTED,      /* its memory was given back */
    TB_VERSION_IS_UNHELD,       /* no site offers it any more */
    TB_VERSION_IS_OFFERED_OPEN, /* an unheld one is offered again, and was never ready */
    TB_VERSION_IS_OFFERED,      /* likewise, and was ready */
    TB_VERSION_IS_LOST,
    TB_VERSION_IS_BROKEN,
    TB_VERSION_IS_WITHDRAWN,
    TB_VERSION_IS_ABANDONED,
    TB_VERSION_EVENT_END
};

/* TB_LIFE_END: there is no such pair. */
TB_MUST_USE enum tb_version_life tb_version_life_after(enum tb_version_life life,
                                                       enum tb_version_event event);
/* As the world hears it: an unheld version is retired. */
enum tb_catalog_state tb_version_life_state(enum tb_version_life life);
/* As the store remembers it: what was kept has to be said again. */
enum tb_version_life tb_version_life_restored(enum tb_catalog_state state);
/* Of an end that is not retired. */
enum tb_version_event tb_version_life_event(enum tb_catalog_state end);

/* ---- the copy here ---- */

enum tb_version_copy {
    TB_VERSION_COPY_NONE,
    TB_VERSION_COPY_HERE,
    TB_VERSION_COPY_LEAVING,
    TB_VERSION_COPY_END
};
enum tb_version_copy_event {
    TB_VERSION_COPY_RESERVED, /* the arena has a region for it */
    TB_VERSION_COPY_EVICTED,  /* EVICT is marked */
    TB_VERSION_COPY_GIVEN_BACK,
    TB_VERSION_COPY_EVENT_END
};
/* TB_VERSION_COPY_END: there is no such pair. */
TB_MUST_USE enum tb_version_copy tb_version_copy_after(enum tb_version_copy copy,
                                                       enum tb_version_copy_event event);

/* ---- its crossing to here ---- */

enum tb_version_crossing {
    TB_VERSION_CROSSING_NONE,
    TB_VERSION_CROSSING_ASKED, /* CROSS is out, nothing has begun */
    TB_VERSION_CROSSING_BEGUN, /* in this life of the gateway */
    TB_VERSION_CROSSING_END
};
enum tb_version_crossing_event {
    TB_VERSION_CROSSING_ASKS,
    TB_VERSION_CROSSING_UNASKS, /* another one comes first: what has begun goes on */
    TB_VERSION_CROSSING_BEGINS,
    TB_VERSION_CROSSING_SHRINKS, /* chunks of it rotted: what had begun has to be asked for again */
    TB_VERSION_CROSSING_STOPS,   /* refused, or its memory is gone */
    TB_VERSION_CROSSING_EVENT_END
};
/* TB_VERSION_CROSSING_END: there is no such pair. */
TB_MUST_USE enum tb_version_crossing tb_version_crossing_after(enum tb_version_crossing crossing,
                                                               enum tb_version_crossing_event event);

/* ---- the search for a slow first reader (plans.c) ---- */

enum tb_version_search {
    TB_VERSION_SEARCH_NONE,
    TB_VERSION_SEARCH_TRYING, /* a first reader gave its place up, to be compared */
    TB_VERSION_SEARCH_DONE,   /* the version is not troubled again */
    TB_VERSION_SEARCH_END
};
enum tb_version_search_event {
    TB_VERSION_SEARCH_TRIES,       /* one that gets nothing is tried also when the search is done */
    TB_VERSION_SEARCH_IS_ENOUGH,   /* the rate at which the first reads now is what can be had */
    TB_VERSION_SEARCH_BEGINS_ANEW, /* all readers have ended; a new one comes */
    TB_VERSION_SEARCH_EVENT_END
};
/* TB_VERSION_SEARCH_END: there is no such pair. */
TB_MUST_USE enum tb_version_search tb_version_search_after(enum tb_version_search search,
                                                           enum tb_version_search_event event);

#endif
