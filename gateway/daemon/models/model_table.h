/* model_table.h - a row for each model that this gateway has in memory: those that the
 * configuration names, and those of its patterns that somebody uses (they are awake).
 *
 * A named model has the row of its place in config->models, and keeps it. Models of patterns have
 * rows behind these, which are given back: model_wake.h. Other rooms have their own arrays by the
 * number of the row, TB_CONFIG_MODELS_MAX long.
 *
 * Promise P7. A leaf. On the main loop. */
#ifndef TB_DAEMON_MODEL_TABLE_H
#define TB_DAEMON_MODEL_TABLE_H

#include "base/ident.h"
#include "base/time.h"
#include "gateway/config/config.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/models/model_waiting.h"

#define TB_MODEL_NONE    UINT32_MAX
#define TB_MODEL_BUCKETS 1024u

struct tb_daemon;
struct tb_store_model;

enum tb_model_life {
    TB_MODEL_FREE,
    /* Of a pattern: the store is asked for it, or could not read it (failed_at), and the catalog
     * does not know it. */
    TB_MODEL_READING,
    TB_MODEL_AWAKE, /* of a pattern */
    TB_MODEL_NAMED
};

struct tb_model_row {
    struct tb_name name;
    enum tb_model_life life;
    uint32_t next;      /* in its bucket; TB_MODEL_NONE */
    uint64_t owner;     /* whose share of the table it is of; TB_SHARE_OURS: nobody's */
    tb_time_ns used_at; /* somebody spoke of it */
    /* READING: what is asked; `asked` also while it waits for a place in the queue */
    struct tb_store_model *store;
    bool asked;
    bool doubted;         /* READING: all models of patterns were, since it was asked for */
    tb_time_ns failed_at; /* READING: the store could not read it; 0: it was not tried, or is under way */
};

struct tb_model_table {
    struct tb_model_row rows[TB_CONFIG_MODELS_MAX];
    uint32_t buckets[TB_MODEL_BUCKETS]; /* the number of a row, plus one; 0: none */
    uint64_t salt;                      /* of the buckets; random, as peers choose names */
    struct tb_gauge awake;              /* rows of patterns */
    /* Marks for the dispatcher (model_life.h): rows came or went; the store answered so many; rows,
     * or those of that owner, are scarce. */
    bool changed, scarce;
    uint32_t answers;
    uint64_t scarce_for;
    uint32_t ticks;
    tb_time_ns looked_at; /* for a row that can be given back, in vain; 0: the last look found one */
    struct tb_model_waiting waiting[TB_MODELS_WAITING_MAX]; /* model_waiting.h */
    tb_time_ns waiting_looked_at; /* for one of `waiting` that has a row by now; 0: never */
};

/* The row of that name, whatever its life; TB_MODEL_NONE. */
uint32_t tb_model_row_of(const struct tb_daemon *d, const struct tb_name *name);
/* The first row from `from` on that the catalog knows; TB_MODEL_NONE. */
uint32_t tb_model_row_next(const struct tb_daemon *d, uint32_t from);
#define TB_EACH_MODEL(d, i)                                                                                  \
    for (uint32_t i = tb_model_row_next(d, 0); i != TB_MODEL_NONE; i = tb_model_row_next(d, i + 1))
const struct tb_name *tb_model_name(const struct tb_daemon *d, uint32_t row);
/* The row of the configuration that counts for it. */
const struct tb_config_model *tb_model_config(const struct tb_daemon *d, uint32_t row);
static inline bool tb_model_is_of_pattern(uint32_t row)
{
    return row >= TB_CONFIG_LIST_MAX;
}

/* Models that the configuration names get their rows, also after a reload. */
void tb_model_rows_named(struct tb_daemon *d);
/* A free row for a model of a pattern, READING; TB_MODEL_NONE. The caller looks at shares. */
uint32_t tb_model_row_new(struct tb_daemon *d, const struct tb_name *name, uint64_t owner);
/* It is not in the catalog. */
void tb_model_row_free(struct tb_daemon *d, uint32_t row);
/* Rows of patterns that the owner has. */
uint32_t tb_model_rows_of(const struct tb_daemon *d, uint64_t owner);
void tb_model_table_check(const struct tb_daemon *d); /* daemon_check.h */

#endif
