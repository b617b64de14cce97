/* crossing_room.h - space for a version that crosses to here, once its manifests have come. */
#ifndef TB_DAEMON_CROSSING_ROOM_H
#define TB_DAEMON_CROSSING_ROOM_H

#include "base/ident.h"
#include "base/layout/manifest.h"

struct tb_copy;
struct tb_daemon;

void tb_crossing_manifests(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                           const struct tb_manifest *manifests);
/* Space for a version whose manifests are here, and the catalog's word on it. TB_AGAIN:
 * something is being evicted for it. TB_SITE_NOMEM: it does not fit; TB_TOO_LARGE: nor will it
 * in this life. Both are logged. */
TB_MUST_USE enum tb_status tb_crossing_reserve(struct tb_copy *copy, const struct tb_manifest *manifests);

#endif
