/* model_rows.h - models as configured, and their runs. */
#ifndef TB_GATEWAY_MODEL_ROWS_H
#define TB_GATEWAY_MODEL_ROWS_H

#include "gateway/catalog/rows/tables.h"

struct model {
    struct row row;
    struct tb_catalog_model config;
    struct which head;
    uint64_t run_order; /* of its newest run, here or as other sites remember it */
    struct tb_catalog_known_run
        known;                    /* of the newest version that was heard of, whatever became of its row */
    uint64_t arrival_bytes_per_s; /* at which the gateway last got a version of it; 0: not known */
    /* plans.c: what the first of a chain reads at; 0: nobody was tried in its place */
    uint64_t proven_bytes_per_s;
    uint32_t pin;     /* the version that an operator pinned; NONE */
    uint32_t unsaved; /* rows of it that are on their way to the disk */
    bool touched;
};

struct run {
    struct row row;
    struct tb_catalog_run info;
    uint32_t model;
};

static inline struct model *model_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct model *)tb_table_row(&c->models, i);
}
static inline struct run *run_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct run *)tb_table_row(&c->runs, i);
}

uint32_t tb_catalog_model_find(const struct tb_catalog *c, const struct tb_name *name);
uint32_t tb_catalog_run_find(const struct tb_catalog *c, uint32_t model, const struct tb_id *id);
/* (order, number) is newer than what is known. */
bool tb_catalog_run_seen_after(const struct tb_catalog_known_run *known, uint64_t order, uint64_t number);
/* A version of the model was heard of. */
void tb_catalog_run_seen(struct tb_catalog *c, uint32_t model, const struct tb_version_key *key);
/* A run of that order was there: those before it publish nothing any more. */
void tb_runs_fence_older(struct tb_catalog *c, uint32_t model, uint64_t than);

#endif
