/* world_versions.h - the versions that trainers made: the oracle. A part of the world (world.h). */
#ifndef TB_SIM_WORLD_VERSIONS_H
#define TB_SIM_WORLD_VERSIONS_H

#include "world.h"

/* world_versions.c */
uint32_t world_version_make(uint32_t model);
uint32_t world_version_before(uint32_t version); /* of its model; NONE: it is the first */
uint32_t world_version_last(uint32_t model);     /* NONE: it has none */
uint32_t world_version_count(uint32_t model);
uint32_t world_version_newer(uint32_t version);       /* how many of its model are newer */
uint32_t world_version_find(const struct tb_id *uid); /* NONE: of no version that was published */
int world_version_compare(uint32_t a, uint32_t b);
uint64_t world_version_all(uint32_t version, uint32_t shard);

#endif
