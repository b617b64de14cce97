/* lag_status.h - why a site is behind, and what other sites hold of a version. */
#ifndef TB_DAEMON_LAG_STATUS_H
#define TB_DAEMON_LAG_STATUS_H

#include <jansson.h>

#include "gateway/catalog/views.h"

struct tb_daemon;
struct tb_site_lag;

enum tb_status tb_status_lag(void *user, const json_t *request, json_t *reply, char *error);
/* Of the head, as far as it is known; else null. */
json_t *tb_status_head_bytes(struct tb_daemon *d, const struct tb_site_lag *lag);
/* The sites that hold some of a version, by their records. New reference; NULL: no memory. */
json_t *tb_status_sites_of(struct tb_daemon *d, const struct tb_version_key *key);
/* Nobody holds it, here or elsewhere as far as is known, and it is no news: it is not listed. */
bool tb_status_nobodys(struct tb_daemon *d, const struct tb_catalog_version_view *v);

#endif
