/* staged_slices.h - of a version that is staged for slices: the chunks that are wanted. */
#ifndef TB_INTRA_CLIENT_STAGED_SLICES_H
#define TB_INTRA_CLIENT_STAGED_SLICES_H

#include "intra/client/follow/staging.h"

/* Of a staging in slices, once its places stand: what is wanted of each shard, whose bitmaps are
 * `words` together; of slices of a GPU that is pinned. Without the lock. */
TB_MUST_USE enum tb_status tb_staging_want_slices(struct tb_staging *st, uint64_t words);
void tb_staging_unpin(struct tb_staging *st);

#endif
