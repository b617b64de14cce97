/* world_check.h - what has to hold at every step. A part of the world (world.h). */
#ifndef TB_SIM_WORLD_CHECK_H
#define TB_SIM_WORLD_CHECK_H

#include "world.h"

/* world_check.c */
void world_check_place(const struct tb_place *place, uint32_t version, uint32_t shard, uint64_t *seen,
                       const char *where);
void world_check_go(uint32_t site, const struct tb_id *session, uint32_t version);
void world_check_active(struct worker *k, uint32_t version);
void world_check_ended(uint32_t site, const struct tb_store_version *v, uint32_t before);
void world_check_unpublished(uint32_t site, const struct tb_id *uid);
void world_check_let_go(const struct tb_catalog *c); /* a reference has ended */
void world_check_rows(const struct tb_catalog *c);   /* P7: each has a reason */
void world_check_hold(struct trainer *t);
void world_check_memory(void);
void world_check_leaving(void); /* P7: memory that is given up goes */
void world_check_log(enum tb_log_level level, const char *event, const char *line);
bool world_converged(void);

#endif
