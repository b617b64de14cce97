/* catalog_check.h - what holds of the catalog between two requests: each table, each list and each
 * count agrees with the others. An assert that fails here is a mistake of ours. Nothing that a
 * peer, a worker, the store or the arena says is asserted. */
#ifndef TB_GATEWAY_CATALOG_CHECK_H
#define TB_GATEWAY_CATALOG_CHECK_H

#include "gateway/catalog/catalog.h"

/* Walks all rows once. The catalog has settled. */
void tb_catalog_check(const struct tb_catalog *c);

/* Each version's row has a reason to exist (rules/version_removal.h). False: `uid_out` has none. */
bool tb_catalog_reasons(const struct tb_catalog *c, struct tb_id *uid_out);

/* A turn ended: all todos are told. Where turns are checked (TB_CHECK_TURNS), a small catalog is
 * checked now. In a large one each turn pays for some rows, and the check runs once all are paid
 * for: thousands of rows would cost more than the turn itself. */
void tb_catalog_check_turn(struct tb_catalog *c);
/* In a tick: once a second in every build. */
void tb_catalog_check_tick(struct tb_catalog *c);

#endif
