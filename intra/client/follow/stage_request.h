/* stage_request.h - STAGE and its answer. */
#ifndef TB_INTRA_CLIENT_STAGE_REQUEST_H
#define TB_INTRA_CLIENT_STAGE_REQUEST_H

#include "intra/client/follow/subscription.h"

struct tb_request *tb_stage_request(struct tb_session *s, const struct tb_subscription *sub,
                                    const struct tb_id *uid);

#endif
