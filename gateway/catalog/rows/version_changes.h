/* version_changes.h - what changes a version's row: the steps of its lives, its beginning and its
 * end. */
#ifndef TB_GATEWAY_VERSION_CHANGES_H
#define TB_GATEWAY_VERSION_CHANGES_H

#include "gateway/catalog/rows/version_rows.h"

struct reference;

/* One step of a life (version_life.h). A pair that there is not is our mistake. */
void tb_version_moves(struct version *v, enum tb_version_event event);
void tb_version_copy_moves(struct version *v, enum tb_version_copy_event event);
void tb_version_crossing_moves(struct version *v, enum tb_version_crossing_event event);
void tb_version_search_moves(struct version *v, enum tb_version_search_event event);

/* NONE: the table or the model's share is full. */
uint32_t tb_version_new(struct tb_catalog *c, uint32_t model, const struct tb_version_key *key);
void tb_version_name_ready(struct tb_catalog *c, uint32_t version);
/* Marks the end. Settling tells the holders, and ends groups and references. */
void tb_version_end(struct tb_catalog *c, uint32_t version, enum tb_version_event event, const char *why);
/* This reference told of more chunks. */
void tb_version_fed(struct tb_catalog *c, const struct reference *ref);
/* The memory is gone. The descriptions of the shards stay. */
void tb_version_forget_shards(struct version *v);

#endif
