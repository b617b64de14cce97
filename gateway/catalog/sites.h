/* sites.h - what other sites say. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_SITES_H
#define TB_GATEWAY_CATALOG_SITES_H

#include "base/layout/manifest.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/version_state.h"

/* A link to the site is up or down. What the site held it still holds while the link is down. Up is
 * also said of a session that took another's place (TB_DONE_BEFORE): what the site had announced
 * and does not announce again within a lease time it has no more. */
TB_MUST_USE enum tb_status tb_catalog_site_up(struct tb_catalog *c, tb_time_ns now,
                                              const struct tb_name *site, bool up);

/* The site's arena has a new life: it holds nothing until it says so. What it had announced it may
 * be asked for, for a lease time. */
void tb_catalog_site_forget(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name);

/* A peer says what it knows of a version. OPEN, READY, KEPT: it has it, or is getting it. Ends of a
 * life are believed from the model's home alone, or as a relay passes them on; home believes none
 * (its own state is the truth; RETIRED only ends that site's reference). LOST does not concern a
 * site that has it whole, or one of whose workers has. TB_CONFLICT: the uid or the (run_order,
 * number) is another version here; drop the peer. TB_NOT_FOUND: the model is not configured.
 * TB_SUPERSEDED: the model's share of rows is nearly full, and this one, which is not known here,
 * is older than what crosses. */
TB_MUST_USE enum tb_status tb_catalog_remote_version(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_name *from_site,
                                                     const struct tb_version_key *key,
                                                     enum tb_catalog_state state);

/* What a site holds of a version (its HELD bitmap, counted) and whether all its reader groups of
 * the model activated it. It only grows, until the site says RETIRED or is forgotten. Any site
 * may be spoken of that was not heard itself, and gives its place to one that is; never this
 * one: TB_BAD_ARGUMENT, or the only copy would be its own second one (P3). TB_DONE_BEFORE:
 * nothing of it is new. */
struct tb_catalog_site_progress {
    struct tb_name site;
    struct tb_name via; /* the relay whose word it is; empty: the site's own */
    struct tb_id uid;
    uint32_t held_chunks;
    bool whole;
    bool activated;
    bool itself; /* the site says so of itself; else another site does */
};

TB_MUST_USE enum tb_status tb_catalog_site_progress(struct tb_catalog *c, tb_time_ns now,
                                                    const struct tb_catalog_site_progress *p);

/* The site says of itself that it holds none of it any more. Unknown versions and sites are
 * fine. */
void tb_catalog_site_dropped(struct tb_catalog *c, tb_time_ns now, const struct tb_name *site,
                             const struct tb_id *uid);

#endif
