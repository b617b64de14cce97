/* link_reports.h - what sites report of versions: to the catalog, to peers, and on as a relay. */
#ifndef TB_DAEMON_LINK_REPORTS_H
#define TB_DAEMON_LINK_REPORTS_H

#include "gateway/catalog/todos.h"
#include "wan/link/links.h"

struct tb_daemon;

/* To a session that begins: what this site holds and activated, and what the sites behind it do. */
void tb_reports_again(struct tb_daemon *d, uint32_t peer);
/* A peer's progress to the catalog; that it is whole now also to the other peers, who may be
 * nearer to home. */
void tb_reports_progress(struct tb_daemon *d, uint32_t peer, const struct tb_id *uid,
                         const struct tb_links_progress *p);
/* The peer said something of a site that it does not speak for (peer_rights.h): a counter and a
 * line. */
void tb_reports_disbelieved(struct tb_daemon *d, uint32_t peer, const struct tb_name *site);
void tb_reports_heard(struct tb_daemon *d, uint32_t peer, const struct tb_links_report *report);
void tb_crossing_site_state(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_crossings_poll(struct tb_daemon *d); /* peers' progress to the catalog */

#endif
