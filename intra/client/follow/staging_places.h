/* staging_places.h - how places for a described version are made. */
#ifndef TB_INTRA_CLIENT_STAGING_PLACES_H
#define TB_INTRA_CLIENT_STAGING_PLACES_H

#include "intra/client/follow/staging.h"

/* A task of the pool, of a staging whose manifests are all here: its places. */
void tb_staging_prepare(void *user, uint32_t piece, uint32_t slot);
/* Where the tensors of patch_for stand now. Under the lock, or while nobody else has the staging.
 * TB_LAYOUT_MISMATCH: the version has one of them not at all, or in boxes. */
TB_MUST_USE enum tb_status tb_staging_patch_tables(const struct tb_staging *st);

#endif
