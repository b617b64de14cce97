/* version_state.h - the state of a version, as every site and the store name it. */
#ifndef TB_GATEWAY_CATALOG_VERSION_STATE_H
#define TB_GATEWAY_CATALOG_VERSION_STATE_H

#include "gateway/catalog/catalog.h"

enum tb_catalog_state {
    TB_VERSION_OPEN = 1,        /* invisible to workers */
    TB_VERSION_READY,           /* every shard is sealed, every lease alive */
    TB_VERSION_KEPT,            /* and a reliable holder besides the publisher has all of it */
    TB_VERSION_RETIRED,         /* superseded, and dropped here */
    TB_VERSION_ENDED_LOST,      /* some chunk has no holder left, or a rank was lost before ready */
    TB_VERSION_ENDED_BROKEN,    /* sealed bytes changed, or ranks sealed one shard with different digests */
    TB_VERSION_ENDED_WITHDRAWN, /* by an operator, at home */
    /* Its run was shut out before it was ready, or its crossing was given up, or after a restart no
     * rank finished it. */
    TB_VERSION_ENDED_ABANDONED,
    TB_CATALOG_STATE_END
};
/* "open", "ready", ..., "lost", "broken", "withdrawn", "abandoned" */
const char *tb_catalog_state_name(enum tb_catalog_state state);
/* The answer to waiters and holders: TB_OK while the version lives, then TB_VERSION_LOST, _BROKEN,
 * _WITHDRAWN, TB_SUPERSEDED (retired, abandoned). */
enum tb_status tb_catalog_state_status(enum tb_catalog_state state);

#endif
