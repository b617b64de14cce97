/* link_reports.c - what sites report of versions: this site's copies to its peers, peers'
 * progress to the catalog, and what is passed on as a relay. */
#include "gateway/catalog/sites.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/link_reports.h"
#include "gateway/daemon/links/peer_rights.h"
#include "wan/link/links_messages.h"

/* To every peer but the one that said it and the one it speaks of. */
static void report_pass(struct tb_daemon *d, uint32_t from, const struct tb_links_report *report)
{
    TB_ASSERT(from < d->config->peer_count && !tb_name_equal(&report->site, &d->site));
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        if (i == from || tb_name_equal(&d->config->peers[i].site, &report->site)) continue;
        TB_MOOT(tb_links_tell(d->links, i, report)); /* down: told by reports_again */
    }
}

/* A session begins with these reports: of the versions that this site holds and activated, and of
 * those of the sites behind it. Reports that were made while the link was down, or in flight when
 * it broke, reach home by this. A home that lost its arena hears which sites have its versions. */
void tb_reports_again(struct tb_daemon *d, uint32_t peer)
{
    TB_ASSERT(peer < d->config->peer_count);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        struct tb_links_report report = {c->key.uid, d->site, TB_LINKS_REPORT_HELD};
        if (c->life == TB_COPY_WHOLE) TB_MOOT(tb_links_tell(d->links, peer, &report));
        report.state = TB_LINKS_REPORT_ACTIVATED;
        if (c->activated) TB_MOOT(tb_links_tell(d->links, peer, &report));
    }
    struct tb_catalog_reference_view view;
    for (uint32_t cursor = 0; tb_catalog_reference_at(d->catalog, &cursor, &view);) {
        if (view.kind != TB_REFERENCE_SITE || tb_name_equal(&view.name, &d->config->peers[peer].site))
            continue;
        if (tb_copy_find(d, &view.uid) == NULL) continue; /* bounds what is said by what is here */
        struct tb_links_report report = {view.uid, view.name, TB_LINKS_REPORT_HELD};
        if (view.whole) TB_MOOT(tb_links_tell(d->links, peer, &report));
        report.state = TB_LINKS_REPORT_ACTIVATED;
        if (view.activated) TB_MOOT(tb_links_tell(d->links, peer, &report));
    }
}

static void report_refused(struct tb_daemon *d, uint32_t peer, const struct tb_name *site, enum tb_status why)
{
    TB_ASSERT(why != TB_OK);
    d->counters.reports_refused++;
    tb_audit_peer_denied(d, peer, "report", site->text, tb_status_name(why));
    tb_log(TB_LOG_WARN, "link.report_refused", "peer=%s site=%s status=%s", tb_peer_site(d, peer), site->text,
           tb_status_name(why));
}

/* P10: one line until its link comes up anew. A peer may repeat the same words for ever. */
void tb_reports_disbelieved(struct tb_daemon *d, uint32_t peer, const struct tb_name *site)
{
    TB_ASSERT(peer < d->config->peer_count && !tb_peer_speaks_for(d->config, peer, site));
    d->counters.reports_refused++;
    tb_audit_peer_denied(d, peer, "report", site->text, "it does not speak for that site");
    if (d->disbelieved[peer]) return;
    d->disbelieved[peer] = true;
    tb_log(TB_LOG_WARN, "link.report_refused",
           "peer=%s site=%s status=%s action=add_it_to_peers.%s.speaks_for_if_it_is_behind_that_peer",
           tb_peer_site(d, peer), site->text, tb_status_name(TB_PEER_DENIED), tb_peer_site(d, peer));
}

/* P10. Progress that has no place is looked at again at each tick, and has one line for the whole
 * time. */
static void place_refused(struct tb_daemon *d, uint32_t peer)
{
    if (!d->places_refused && !d->places_told)
        report_refused(d, peer, &d->config->peers[peer].site, TB_SITE_NOMEM);
    d->places_refused = true;
}

/* A peer's progress to the catalog; that it is whole now also to the other peers, who may be
 * nearer to home. */
void tb_reports_progress(struct tb_daemon *d, uint32_t peer, const struct tb_id *uid,
                         const struct tb_links_progress *p)
{
    const struct tb_name *site = &d->config->peers[peer].site;
    TB_ASSERT(peer < d->config->peer_count && !tb_id_is_zero(uid));
    const struct tb_catalog_site_progress progress = {
        .site = *site, .uid = *uid, .held_chunks = p->held_chunks, .whole = p->whole, .itself = true};
    const enum tb_status status = tb_catalog_site_progress(d->catalog, tb_clock_now(), &progress);
    if (status == TB_SITE_NOMEM) place_refused(d, peer);
    if (status != TB_OK || !p->whole) return;
    const struct tb_links_report report = {*uid, *site, TB_LINKS_REPORT_HELD};
    report_pass(d, peer, &report);
}

/* Reports are passed on once: only when they told the catalog something new. A site says
 * ACTIVATED also of what it skipped, as its groups are beyond it: that is no copy, and the last
 * one anywhere must not go for it (P3). */
void tb_reports_heard(struct tb_daemon *d, uint32_t peer, const struct tb_links_report *report)
{
    TB_ASSERT(peer < d->config->peer_count);
    const bool ours = tb_name_equal(&report->site, &d->site); /* the catalog refuses that */
    if (!ours && !tb_peer_speaks_for(d->config, peer, &report->site)) {
        tb_reports_disbelieved(d, peer, &report->site);
        return;
    }
    const struct tb_catalog_site_progress progress = {
        .site = report->site,
        .uid = report->uid,
        .via = d->config->peers[peer].site,
        .itself = tb_name_equal(&report->site, &d->config->peers[peer].site),
        .whole = report->state == TB_LINKS_REPORT_HELD,
        .activated = report->state == TB_LINKS_REPORT_ACTIVATED};
    const enum tb_status status = tb_catalog_site_progress(d->catalog, tb_clock_now(), &progress);
    if (status == TB_OK) report_pass(d, peer, report);
    if (status == TB_BAD_ARGUMENT || status == TB_SITE_NOMEM) report_refused(d, peer, &report->site, status);
}

void tb_crossing_site_state(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_copy *copy = tb_copy_find(d, &todo->uid);
    TB_ASSERT(todo->kind == TB_CATALOG_SITE_STATE);
    if (copy != NULL && todo->activated && !copy->activated) copy->activated_at = tb_clock_now();
    if (copy != NULL && todo->activated) copy->activated = true;
    if (d->links == NULL || d->links_restarting) return;
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        struct tb_links_report report = {todo->uid, d->site, TB_LINKS_REPORT_HELD};
        if (todo->whole) TB_MOOT(tb_links_tell(d->links, i, &report));
        report.state = TB_LINKS_REPORT_ACTIVATED;
        if (todo->activated) TB_MOOT(tb_links_tell(d->links, i, &report));
    }
}

void tb_crossings_poll(struct tb_daemon *d)
{
    if (d->links == NULL || d->links_restarting) return;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        for (uint32_t i = 0; c->serving == TB_COPY_OFFERED && i < d->config->peer_count; i++) {
            struct tb_links_progress p;
            if (d->config->peers[i].gone) continue;
            if (tb_links_peer_progress(d->links, i, &c->key.uid, &p) != TB_OK || p.held_chunks == 0) continue;
            tb_reports_progress(d, i, &c->key.uid, &p);
        }
    }
    d->places_told = d->places_refused;
    d->places_refused = false;
}
