/* version_removal.h - which versions have a row. */
#ifndef TB_GATEWAY_VERSION_REMOVAL_H
#define TB_GATEWAY_VERSION_REMOVAL_H

#include "gateway/catalog/rows/version_rows.h"

/* Why a version has a row: the first that holds. */
enum tb_version_reason {
    TB_REASON_NONE,
    TB_REASON_TO_SAY,       /* a todo, or a write that is not on disk yet */
    TB_REASON_PINNED,       /* by an operator */
    TB_REASON_HERE,         /* memory of the arena */
    TB_REASON_HELD_INSIDE,  /* by a rank or a worker */
    TB_REASON_HELD_BY_PEER, /* as that says itself */
    TB_REASON_WAITED_FOR,   /* by tb_wait_site */
    TB_REASON_HEAD,
    TB_REASON_NOT_JUDGED, /* open or alive, and home or the end of recovery decides */
    TB_REASON_PAST        /* one of the last few that ended */
};
enum tb_version_reason tb_version_reason(const struct tb_catalog *c, const struct version *v);
/* Rows of the model that have no reason leave, and some more where its share is nearly full. Last
 * in its settling. */
void tb_versions_forget(struct tb_catalog *c, uint32_t model);
/* The share is nearly full, and a row for this one, which is not known here, would be the first to
 * leave. */
bool tb_version_useless(const struct tb_catalog *c, uint32_t model, const struct tb_version_key *key);
/* All versions of the model ended, and nobody here needs one. */
bool tb_versions_past(const struct tb_catalog *c, uint32_t model);
/* Their rows go, where tb_versions_past says so. */
void tb_versions_forget_past(struct tb_catalog *c, uint32_t model);
/* Where the table or the model's share is full, the least useful version gives up its row. */
void tb_versions_make_room(struct tb_catalog *c, uint32_t model);
/* The oldest version that can be done without gives its references of sites back, unless it is this
 * one. */
bool tb_versions_lose_sites(struct tb_catalog *c, uint32_t except);

#endif
