/* keeping.h - which versions stay in the arena, which would go, and why. A room of the catalog
 * (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_KEEPING_H
#define TB_GATEWAY_CATALOG_KEEPING_H

#include "base/layout/version_key.h"
#include "gateway/catalog/catalog.h"

struct tb_catalog_keeping {
    struct tb_version_key key;
    uint64_t bytes;
    bool whole;
    bool goes;       /* tb_catalog_clear would evict it */
    const char *why; /* it goes, or stays; static */
};

/* Each version that has memory here, by turns: begin with *cursor 0. False: that was the last. */
bool tb_catalog_keeping_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_keeping *out);
/* Evicts each version that is not among the newest `keep` of its model and that nothing holds: what
 * would go for want of room goes now. *count_out: how many. */
enum tb_status tb_catalog_clear(struct tb_catalog *c, tb_time_ns now, uint32_t *count_out);

#endif
