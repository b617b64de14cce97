/* links_versions.h - a fixture: two versions of one model, of which west has the first. */
#ifndef TB_TESTS_LINKS_VERSIONS_H
#define TB_TESTS_LINKS_VERSIONS_H

#include "check.h"
#include "links_world.h"

/* East publishes v1, v2, ...; west has v1 when a test begins. */
struct two_versions {
    struct links_world w;
    struct truth v1, v2;
    struct site *east, *west;
    struct copy *east_v1;
};

void two_versions_make(struct two_versions *s, uint32_t shards, uint64_t shard_bytes);
void two_versions_begin(struct two_versions *s);
void two_versions_free(struct two_versions *s);
/* The site sends so many bytes to its first peer, since ever; UINT64_MAX: no limit. */
void two_versions_limit(struct site *s, uint64_t until_bytes);

#endif
