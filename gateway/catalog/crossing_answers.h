/* crossing_answers.h - what became of a version that was to cross to here. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_CROSSING_ANSWERS_H
#define TB_GATEWAY_CATALOG_CROSSING_ANSWERS_H

#include "gateway/catalog/catalog.h"

/* CROSS is told again when the sites that can be asked for a version that is not whole changed: ask
 * those, in this order. Space is reserved and the manifest is on its way: the version is now
 * `next`, may be staged once it is ready, and its crossing is finished. */
TB_MUST_USE enum tb_status tb_catalog_crossing_begun(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid);

/* Is this still the one to cross? A newer one may have taken the place of one that was asked
 * for. */
bool tb_catalog_crossing_wanted(const struct tb_catalog *c, const struct tb_id *uid);

/* CROSS could not be done (no room, no link): it comes out again after retry_ns, or for a newer
 * one. */
TB_MUST_USE enum tb_status tb_catalog_crossing_refused(struct tb_catalog *c, tb_time_ns now,
                                                       const struct tb_id *uid);

/* CROSS can not be done in this life: nobody is asked for that version again. */
TB_MUST_USE enum tb_status tb_catalog_crossing_hopeless(struct tb_catalog *c, tb_time_ns now,
                                                        const struct tb_id *uid);

/* A crossing that has begun is given up for a newer one that will be whole sooner (abandon.h
 * decides): it ends as abandoned, and who stages it is told TB_SUPERSEDED. TB_BAD_STATE: it has
 * not begun, is whole, somebody waits for exactly this one, the model wants every version, or
 * nothing newer can cross. */
TB_MUST_USE enum tb_status tb_catalog_crossing_abandon(struct tb_catalog *c, tb_time_ns now,
                                                       const struct tb_id *uid);

#endif
