/* crossing_answers.h - what became of a version that was to cross to here (CROSS). A room of the
 * catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_CROSSING_ANSWERS_H
#define TB_GATEWAY_CATALOG_CROSSING_ANSWERS_H

#include "gateway/catalog/catalog.h"

/* Space is reserved and the manifest is on its way: the version is `next` now, may be staged once
 * it is ready, and its crossing is finished. CROSS comes out again when the sites that can be asked
 * change before it is whole. */
TB_MUST_USE enum tb_status tb_catalog_crossing_begun(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid);

/* It is still the version to cross: no newer one has taken its place. */
bool tb_catalog_crossing_wanted(const struct tb_catalog *c, const struct tb_id *uid);

/* There was no room or no link: CROSS comes out again after retry_ns, or for a newer version. */
TB_MUST_USE enum tb_status tb_catalog_crossing_refused(struct tb_catalog *c, tb_time_ns now,
                                                       const struct tb_id *uid);

/* CROSS cannot be done in this life of the gateway: the version is not asked for again. */
TB_MUST_USE enum tb_status tb_catalog_crossing_hopeless(struct tb_catalog *c, tb_time_ns now,
                                                        const struct tb_id *uid);

/* A crossing under way is given up for a newer version that will be whole sooner
 * (crossing_abandonment.h decides). The version ends as abandoned, and workers that stage it are
 * told TB_SUPERSEDED.
 *   TB_BAD_STATE  it has not begun, is whole, or a wait names exactly this version; the model wants
 *                 every version; or no newer version can cross */
TB_MUST_USE enum tb_status tb_catalog_crossing_abandon(struct tb_catalog *c, tb_time_ns now,
                                                       const struct tb_id *uid);

#endif
