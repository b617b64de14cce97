/* staging_notices.h - what the gateway hears of a staging. Under the lock. */
#ifndef TB_INTRA_CLIENT_STAGING_NOTICES_H
#define TB_INTRA_CLIENT_STAGING_NOTICES_H

#include "intra/client/follow/staging.h"
#include "intra/client/session/request.h"

void tb_staging_export_notice(struct tb_session *s, const struct tb_staging *st);
void tb_staging_progress_notice(struct tb_session *s, struct tb_staging *st);
void tb_stagings_progress(struct tb_session *s);
void tb_staging_lost_notice(struct tb_session *s, const struct tb_staging *st, uint64_t plan,
                            enum tb_status why);
void tb_staging_bad_notice(struct tb_session *s, const struct tb_staging *st, const struct tb_hop_bad *bad);
struct tb_request *tb_release_request(struct tb_session *s, const struct tb_id *uid);
/* Under the lock: what is staged here goes, and nobody waits until the gateway has heard of it. */
void tb_staging_give_back(struct tb_session *s, const struct tb_staging *st);

#endif
