/* base_chunks.h - may a chunk of the base stand for one of the version, and is it the same?
 * Pure. */
#ifndef TB_WAN_BASE_CHUNKS_H
#define TB_WAN_BASE_CHUNKS_H

#include <stdbool.h>

#include "base/layout/manifest.h"

/* Has chunk k of this manifest a chunk in the base that may stand for it: of the same
 * layout, and as long? */
bool tb_base_fits(const struct tb_manifest *m, const struct tb_manifest *base, uint32_t k);
/* And are its bytes those of the base? */
bool tb_base_same(const struct tb_manifest *m, const struct tb_manifest *base, uint32_t k);

#endif
