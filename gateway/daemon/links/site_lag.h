/* site_lag.h - this site and one model: what it holds, how far it is behind, and why.
 * Private to gateway/daemon. */
#ifndef TB_DAEMON_SITE_LAG_H
#define TB_DAEMON_SITE_LAG_H

#include "base/ident.h"
#include "base/site_state.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/links/lag.h"
#include "wan/link/links.h"
#include "wan/link/links_stats.h"

struct tb_copy;
struct tb_daemon;

/* This site's own state as its peers know it, one for each model of the config. */
struct tb_site_own {
    struct tb_site_state said; /* as peers were told last */
    tb_time_ns said_at;        /* 0: never */
    tb_time_ns answered_at;    /* home's word; 0: never */
    tb_time_ns behind_at;      /* since when it is behind; 0: it is not */
    bool refused_full;         /* the catalog refused the newest version that was announced a row */
    /* The newest that was announced without its home's signature, by that peer; uid zero: none. */
    struct tb_version_key unsigned_key;
    uint32_t unsigned_peer;
};
struct tb_site_own *tb_site_lag_own(struct tb_daemon *d, const struct tb_name *model);

struct tb_site_lag {
    const struct tb_catalog_model *model;
    struct tb_site_own *own;
    struct tb_site_state state; /* of this site, but `serial` */
    struct tb_id head;          /* zero: none, or one that this catalog does not know */
    /* false: the head is not known now, and versions, left_bytes and behind_ms are of the last
     * one */
    bool known;
    tb_time_ns heard_at; /* the home's last word of the model; here, now; 0: none came */
    struct tb_catalog_lag lag;
    struct tb_lag_facts facts;
    const struct tb_copy *copy; /* of the head; NULL: none */
    uint32_t shards_here;
    uint32_t source; /* the peer that brings it, or would; UINT32_MAX: none */
    uint32_t
        paused_from;     /* the first peer that could bring it, where each that is up is paused; UINT32_MAX */
    uint32_t spent_from; /* a peer whose day's bytes to here are used up; UINT32_MAX: none is in the way */
};
void tb_site_lag_here(struct tb_daemon *d, const struct tb_catalog_model *m, struct tb_site_lag *lag_out);

/* An operator here keeps readers from the head. *by_out is the version that is pinned, or the head
 * that is withdrawn here. */
bool tb_site_lag_held_back(const struct tb_daemon *d, const struct tb_site_lag *lag,
                           struct tb_catalog_version_view *by_out);

/* TB_LAG_UP_TO_DATE: the link is up. */
enum tb_lag_reason tb_site_lag_link_reason(struct tb_daemon *d, uint32_t peer);
/* By the config here that peer may not read the model. */
bool tb_site_lag_denied(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
const struct tb_links_stats *tb_site_lag_link(struct tb_daemon *d, uint32_t peer); /* until the next call */

#endif
