/* models.h - models as configured, and the runs that publish them. A room of the catalog
 * (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_MODELS_H
#define TB_GATEWAY_CATALOG_MODELS_H

#include "gateway/catalog/catalog.h"

struct tb_catalog_model {
    struct tb_name name;
    struct tb_name home; /* site */
    bool is_home;        /* home is this site */
    bool subscribed;     /* not home, and this site crosses it */
    bool every;          /* each version crosses, in order; else the newest does */
    uint32_t keep;       /* whole versions, head included; 0 counts as 2 */
    uint32_t from_count; /* sites to cross from, in order of preference; 0: any that has it */
    struct tb_name from[TB_CATALOG_FROM_MAX];
    /* P3: gateways whose copy of a version counts as this gateway's own would. */
    uint32_t durable_count;
    struct tb_name durable[TB_CATALOG_DURABLE_MAX];
};

/* At start, and again after the config was read again: every, keep, subscribed and from may change,
 * home may not (TB_CONFLICT). */
TB_MUST_USE enum tb_status tb_catalog_model_add(struct tb_catalog *c, const struct tb_catalog_model *model);

/* Whether nothing needs its row: no version of it is open, lives, or stands in the arena; no group,
 * wait or worker is about it; its rows are on disk. False also where there is no such model. */
bool tb_catalog_model_idle(const struct tb_catalog *c, const struct tb_name *name);
/* Its row goes, and with it those of its runs, of its versions that ended, and of what other sites
 * said of it. The owner has read them back from the store before it adds the model again.
 *   TB_NOT_FOUND  there is no such model
 *   TB_BAD_STATE  it is not idle */
TB_MUST_USE enum tb_status tb_catalog_model_forget(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_name *name);

/* A run as the store keeps it. */
struct tb_catalog_run {
    struct tb_name model;
    struct tb_id id;
    uint64_t order; /* 1 for the model's first */
    char key[TB_CATALOG_TEXT_MAX];
    bool has_last;
    uint64_t last_number;       /* of its newest ready version */
    uint64_t resumed_run_order; /* the model's head when it began; 0: none */
    uint64_t resumed_number;
    /* The run that it shut out, and that run's newest ready version. Order 0: none, or a restart
     * forgot it. */
    uint64_t shut_out_order;
    bool shut_out_has_last;
    uint64_t shut_out_number;
    bool fenced; /* a newer run exists */
    /* Identities, proven. "": not known, as of runs that an older release opened. */
    char opened_by[TB_CATALOG_TEXT_MAX];
    char fenced_by[TB_CATALOG_TEXT_MAX]; /* "": also where another site's word fenced it */
};

/* Before anything else of its model, in order. */
TB_MUST_USE enum tb_status tb_catalog_restore_run(struct tb_catalog *c, const struct tb_catalog_run *run);

struct tb_catalog_run_request {
    struct tb_id session;
    struct tb_name model;
    /* Up to TB_CATALOG_TEXT_MAX - 1 bytes; empty: the newest run. */
    const char *key;
    struct tb_id fresh_id;
    bool joins; /* an unknown key starts a run only where the model has none yet, else TB_BAD_STATE */
    /* The order of the run that this session opened with the key before; 0: none. A new store does
     * not know the key: TB_FENCED where it remembers a newer run, else a run above that one. */
    uint64_t was_order;
    bool may_fence; /* runs that other identities opened */
};

/* The newest run's key joins that run (*joined_out), and so does an empty key. A new key starts a
 * run and shuts out the others: their open versions end as abandoned.
 *   TB_FENCED     the key of a run that was shut out
 *   TB_PEER_DENIED  a new key, and another identity opened the newest run: `may_fence`
 *   TB_NOT_FOUND  an empty key, and there is no run
 *   TB_BAD_STATE  see `joins`
 *   TB_NOT_HOME, TB_BAD_ARGUMENT */
TB_MUST_USE enum tb_status tb_catalog_run_open(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_catalog_run_request *q,
                                               struct tb_catalog_run *run_out, bool *joined_out);

/* The run that may publish now; false: the model has none, or is not known. */
bool tb_catalog_run_newest(const struct tb_catalog *c, const struct tb_name *model,
                           struct tb_catalog_run *run_out);

/* A run of a model, as a site or a worker remembers it. */
struct tb_catalog_known_run {
    struct tb_name model;
    uint64_t order;  /* 0: none */
    uint64_t number; /* of the newest version that was heard of; 0: of none */
    struct tb_id id; /* zero: not known */
};

#define TB_CATALOG_RUN_ORDER_STEP                                                                            \
    ((uint64_t)1 << 20) /* a peer raises the order of the next run by at most so much at once */
#define TB_CATALOG_RUN_ORDER_MAX ((uint64_t)1 << 48)
/* The newest run that this site ever heard of. False: none, or no such model. */
bool tb_catalog_known_run(const struct tb_catalog *c, const struct tb_name *name,
                          struct tb_catalog_known_run *known_out);

/* Another site or a worker remembers that run, and the next run gets a higher order. `doubted`: the
 * store of this home is new or restored. Older runs here are shut out then, and the same run opens
 * no number up to the told one. A site that is not the home takes it only while it knows no version
 * of the model.
 *   TB_DONE_BEFORE  nothing new
 *   TB_TOO_LARGE    more than TB_CATALOG_RUN_ORDER_STEP above what is known here, or above
 *                   TB_CATALOG_RUN_ORDER_MAX; nothing changed */
TB_MUST_USE enum tb_status tb_catalog_run_told(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_catalog_known_run *told, bool doubted);

#endif
