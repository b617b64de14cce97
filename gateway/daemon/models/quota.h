/* quota.h - how much the models of one row of `models` may have here together
 * (models.NAME.quota). Each model counts with the versions that it keeps: so one that has `keep` of
 * them goes on, and its oldest gives way, while a new model is refused.
 *
 * Promise P10: a refusal names the quota, is counted and is one line. A leaf. On the main loop. */
#ifndef TB_DAEMON_QUOTA_H
#define TB_DAEMON_QUOTA_H

#include "base/layout/version_key.h"
#include "intra/session_msg.h"

struct tb_daemon;

/* A version that is not here yet; its publisher opens it. TB_SITE_NOMEM: why_out says which
 * quota. */
TB_MUST_USE enum tb_status tb_quota_open(struct tb_daemon *d, const struct tb_name *model,
                                         const struct tb_id *run, uint64_t number,
                                         char why_out[TB_TEXT_BYTES_MAX + 1]);
/* A version that is here takes so many bytes more: a shard is sealed. */
TB_MUST_USE enum tb_status tb_quota_grow(struct tb_daemon *d, const struct tb_version_key *key,
                                         uint64_t bytes, char why_out[TB_TEXT_BYTES_MAX + 1]);
/* Whether a version may cross to here. False: why_out says which quota. Neither counted nor
 * logged: it is asked again whenever room is freed. */
bool tb_quota_room(struct tb_daemon *d, const struct tb_version_key *key, uint64_t bytes,
                   char why_out[TB_TEXT_BYTES_MAX + 1]);

#endif
