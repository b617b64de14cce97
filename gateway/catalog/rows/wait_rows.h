/* wait_rows.h - waits for a version or for a site. */
#ifndef TB_GATEWAY_WAIT_ROWS_H
#define TB_GATEWAY_WAIT_ROWS_H

#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/waiters.h"

struct wait {
    struct row row;
    struct tb_catalog_wait q;
    uint32_t session; /* NONE: the gateway's own */
    enum tb_status status;
    struct tb_version_key key; /* of the answer */
    uint64_t bytes;
    bool whole;
};

static inline struct wait *wait_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct wait *)tb_table_row(&c->waits, i);
}

uint32_t tb_wait_find(const struct tb_catalog *c, uint64_t handle);
bool tb_wait_answered(const struct wait *w);
/* ANSWER is marked. */
void tb_wait_answer(struct tb_catalog *c, uint32_t wait, enum tb_status status);
void tb_waits_end_session(struct tb_catalog *c, uint32_t session);
tb_time_ns tb_waits_deadline(const struct tb_catalog *c);

#endif
