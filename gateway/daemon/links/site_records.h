/* site_records.h - what sites say of themselves, and what is passed on as a relay
 * (catalog/records.h). */
#ifndef TB_DAEMON_SITE_RECORDS_H
#define TB_DAEMON_SITE_RECORDS_H

#include "base/site_state.h"

struct tb_config;
struct tb_daemon;

/* The states of sites (catalog/records.h) */
TB_MUST_USE enum tb_status tb_site_records_open(struct tb_daemon *d); /* behind the catalog, before links */
/* After a reload: sites and models that came are shown. */
void tb_site_records_changed(struct tb_daemon *d, const struct tb_config *was);
/* A model of a pattern has a row of model_table.h: peers that it concerns are shown. */
TB_MUST_USE enum tb_status tb_site_records_row_begins(struct tb_daemon *d, uint32_t row); /* TB_SITE_NOMEM */
void tb_site_records_row_ends(struct tb_daemon *d, uint32_t row);
void tb_site_records_close(struct tb_daemon *d);
void tb_site_records_tick(struct tb_daemon *d); /* once a second */
void tb_site_records_link(struct tb_daemon *d, uint32_t peer, bool up);
/* All that is known here to that peer; of one model, or of all (NULL). */
void tb_site_records_tell(struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
void tb_site_records_state(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *state);

#endif
