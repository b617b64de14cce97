/* sealed_version.h - a version that one rank sealed at a home gateway in this process, and
 * what of it has landed. */
#ifndef TB_TESTS_UNIT_SEALED_VERSION_H
#define TB_TESTS_UNIT_SEALED_VERSION_H

#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/daemon/daemon_home.h"

#define SEALED_SHARD_BYTES ((uint64_t)4 << 20) /* four chunks */

struct sealed {
    struct home home;
    struct version made;
    struct tb_id rank; /* its session */
    struct tb_copy *copy;
};

/* `models`: of the configuration, as home_new_with has it. */
void sealed_begin(struct sealed *s, const char *models);
/* The same with a session lease of its own in place of HOME_LEASE_MS: for tests in which no lease
 * is to end, however busy the machine. */
void sealed_begin_with(struct sealed *s, const char *models, uint32_t lease_ms);
void sealed_land(struct sealed *s, uint32_t first, uint32_t end);
struct tb_catalog_version_view sealed_view(struct sealed *s);
void sealed_end(struct sealed *s);

#endif
