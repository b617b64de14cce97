/* reload_rooms.c - a plan of reload.h becomes what counts: room by room, in an order in which no
 * room looks at what another has yet to take.
 *
 * Links to new peers can fail: they come first, and are undone. From there on nothing fails. */
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/reload.h"

#include <unistd.h>

#include "base/assert.h"
#include "gateway/catalog/sites.h"
#include "gateway/daemon/catalog_models.h"
#include "gateway/daemon/certificates.h"
#include "gateway/daemon/links/link_opening.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_limits.h"

/* While it is a peer still: it hears BYE, and the catalog that its link is down. */
static void peers_leave(struct tb_daemon *d, const struct tb_config *next)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        if (d->config->peers[i].gone || !next->peers[i].gone) continue;
        tb_peer_leaves(d, i);
        tb_catalog_site_leaves(d->catalog, tb_clock_now(), &d->config->peers[i].site);
    }
}

/* Rows that the file did not touch are the same to the catalog. */
static void models_change(struct tb_daemon *d)
{
    tb_model_rows_named(d);
    TB_EACH_MODEL(d, i)
    {
        const enum tb_status status = tb_daemon_model(d, i);
        TB_ASSERT(status == TB_OK); /* reload.c: its home is the same, and there is a row */
    }
}

enum tb_status tb_reload_rooms(struct tb_daemon *d, struct tb_reload *plan)
{
    struct tb_config *was = d->config;
    TB_ASSERT(d->turning && plan->next != NULL && plan->next->peer_count >= was->peer_count);
    const enum tb_status status = tb_peers_come(d, plan->next);
    if (status != TB_OK) return status;
    peers_leave(d, plan->next);
    d->config = plan->next;
    plan->next = NULL;
    if (d->config->log_level != was->log_level) tb_log_set(d->config->log_level, STDERR_FILENO);
    tb_worker_session_limits_change(&d->session_limits, d->config);
    tb_sessions_rights_changed(d);
    if (plan->tls != NULL) tb_certificates_take(d, plan->tls);
    plan->tls = NULL;
    models_change(d);
    tb_limits_changed(d, was);
    tb_site_records_changed(d, was);
    tb_home_runs_changed(d, was);
    tb_link_opening_changed(d, was);
    d->news_refused = true; /* what was announced of a model that was not followed */
    d->room_freed = true;
    if (was != d->given) tb_config_free(was);
    tb_daemon_wake(d);
    return TB_OK;
}
