/* staging_match.h - where a registration's tensors stand in a version. */
#ifndef TB_INTRA_CLIENT_STAGING_MATCH_H
#define TB_INTRA_CLIENT_STAGING_MATCH_H

#include "intra/client/follow/staging.h"
#include "intra/client/memory/boxes.h"

/* The tensor of that registration in the version, whole and of its shape; NULL: none. */
const struct tb_tensor *tb_staging_tensor(const struct tb_staging *st, const struct tb_tensor *mine,
                                          uint32_t *shard_out);
/* Copies from the version's shards to the tensors that the registration wants. TB_LAYOUT_MISMATCH:
 * the reason is in tb_last_error. */
int tb_staging_match(const struct tb_staging *st, const struct tb_registration *r,
                     struct tb_box_copies *copies_out);

#endif
