/* sites.h - what other sites say: that they are there, what they hold, how a version lives. A room
 * of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_SITES_H
#define TB_GATEWAY_CATALOG_SITES_H

#include "base/layout/version_key.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/version_state.h"

/* A link to the site is up or down. While it is down, the site still holds what it held. Say `up`
 * also when a session took another's place (TB_DONE_BEFORE). A version that the site does not
 * announce again within a lease time is not there any more. */
TB_MUST_USE enum tb_status tb_catalog_site_up(struct tb_catalog *c, tb_time_ns now,
                                              const struct tb_name *site, bool up);

/* The site's arena has a new life: it holds nothing until it says so. For a lease time the site may
 * still be asked for what it had announced. */
void tb_catalog_site_forget(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name);

/* The site is no peer any more: nothing that it holds counts, and nothing is known of it. Its link
 * is down. */
void tb_catalog_site_leaves(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name);

/* A peer says what it knows of a version. OPEN, READY and KEPT: it has the version, or is getting
 * it.
 *
 * An end is believed from the model's home alone, or as a relay passes it on. Home believes none,
 * since its own state is the truth; RETIRED only ends that site's reference. LOST does not concern
 * a site that has the version whole, or that has a worker with all of it.
 *   TB_CONFLICT    the uid, or the (run_order, number), is another version here: drop the peer
 *   TB_NOT_FOUND   the model is not configured
 *   TB_SUPERSEDED  the model's share of rows is nearly full, and this version, not known here, is
 *                  older than the one that crosses */
TB_MUST_USE enum tb_status tb_catalog_remote_version(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_name *from_site,
                                                     const struct tb_version_key *key,
                                                     enum tb_catalog_state state);

/* Readers here do not hear of it: its home has not signed it yet. It crosses all the same. Not of a
 * version of which some reader heard before. */
void tb_catalog_version_awaits(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid, bool awaits);

/* How much of a version a site holds (its HELD bitmap, counted), and whether all its reader groups
 * activated it. It only grows, until the site says RETIRED or is forgotten. */
struct tb_catalog_site_progress {
    struct tb_name site;
    struct tb_name via; /* the relay that said so; empty: the site itself */
    struct tb_id uid;
    uint32_t held_chunks;
    bool whole;
    bool activated;
    bool itself; /* the site says so of itself; else another site does */
};
/* A site need not have spoken itself to be spoken of; its row then gives way to a peer's.
 *   TB_DONE_BEFORE   nothing of it is new
 *   TB_BAD_ARGUMENT  it is about this site: its only copy would count as a second one (P3) */
TB_MUST_USE enum tb_status tb_catalog_site_progress(struct tb_catalog *c, tb_time_ns now,
                                                    const struct tb_catalog_site_progress *p);

/* The site says of itself that it holds nothing of the version any more. Both may be unknown. */
void tb_catalog_site_dropped(struct tb_catalog *c, tb_time_ns now, const struct tb_name *site,
                             const struct tb_id *uid);

#endif
