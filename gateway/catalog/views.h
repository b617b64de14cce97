/* views.h - what is known here, row by row, for status and logs. A room of the catalog
 * (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_VIEWS_H
#define TB_GATEWAY_CATALOG_VIEWS_H

#include "base/layout/version_key.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/version_state.h"

/* By (run_order, number); run_order 0: the newest run that has it. TB_NOT_FOUND. */
TB_MUST_USE enum tb_status tb_catalog_find(const struct tb_catalog *c, const struct tb_name *model,
                                           uint64_t run_order, uint64_t number, struct tb_id *uid_out);

struct tb_catalog_version_view {
    struct tb_version_key key;
    enum tb_catalog_state state;
    bool crossing; /* it has begun, and is not whole */
    bool wanted;   /* an exact wait names it */
    uint64_t bytes;
    uint32_t chunk_count;
    uint32_t held_chunks;  /* here, at the gateway */
    uint32_t sealed_count; /* shards */
    bool whole;            /* here */
    bool arriving;         /* space is reserved and it is not whole */
    bool head;
    bool awaits; /* its home's signature */
    bool pinned;
    const char *pinned_by; /* as `who`; of the last pin, or of its end */
    bool withdrawn_here;   /* `state` is withdrawn, by the operator `who`, for this site alone */
    const char *who;       /* borrowed until the next call that changes the catalog; "": not known */
    bool evicting;
    bool activated;      /* by every group here */
    uint32_t publishers; /* references */
    uint32_t workers;
    uint32_t sites;
    uint32_t gateway_readers;     /* workers that read this version from the gateway */
    uint32_t fan_out;             /* readers that the gateway's NIC is to feed, by the rates as they are */
    uint64_t arrival_bytes_per_s; /* of the model's newest versions, at the gateway; 0: not known */
    tb_time_ns opened_at, ready_at, whole_at; /* on the catalog's clock; 0: not yet or not known */
};

struct tb_catalog_session_view {
    struct tb_catalog_session session;
    bool attached;
    tb_time_ns lease_until;
};

struct tb_catalog_group_view {
    struct tb_name model, name;
    uint32_t count, present, staged_whole, activated;
    struct tb_id uid;     /* of the last go; zero: none */
    struct tb_id attempt; /* zero: none */
    uint32_t row;         /* where it stands, until the catalog's next event */
};

struct tb_catalog_member_view {
    struct tb_name model, group, worker;
    struct tb_id session, active, staging;
    struct tb_catalog_update update; /* how it got to `active`; uid zero: nothing was said of that */
    /* of `active`, or of none where that is zero; at 0: nothing was said of that */
    struct tb_catalog_proof proof;
    uint32_t subscription, index;
    bool staged_whole;
};

struct tb_catalog_reference_view {
    enum { TB_REFERENCE_PUBLISHER = 1, TB_REFERENCE_WORKER, TB_REFERENCE_SITE } kind;
    struct tb_id uid;
    struct tb_id session; /* not of a site */
    struct tb_name name;  /* worker or site */
    uint32_t shard;       /* PUBLISHER */
    uint64_t export_id;
    uint32_t held_chunks, total_chunks;
    bool whole, hidden;
    bool activated;   /* SITE: by every group there; WORKER: it computes from it now */
    bool slow;        /* WORKER: held up those behind it, and is read from only when there is nobody else */
    bool silent;      /* WORKER, PUBLISHER: it was asked and has not answered: likewise */
    bool spot;        /* WORKER: its session's */
    uint32_t readers; /* WORKER, PUBLISHER: whose upstream it is */
    uint32_t fan_out; /* WORKER: readers that its host's NIC is to feed */
    uint64_t bytes_per_s;
    uint8_t transport;
    /* where these two stand, until the catalog's next event; TB_CATALOG_NONE: not a worker */
    uint32_t row, upstream_row;
    bool from_gateway;     /* WORKER: its upstream */
    struct tb_id upstream; /* WORKER: session of its upstream; zero: the gateway, or none */
    struct tb_name upstream_name;
    uint64_t plan; /* 0: none */
};

/* Row `*cursor` or the next one that is in use; *cursor moves on. Begin with 0; false: no more. */
bool tb_catalog_version_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_version_view *out);

bool tb_catalog_version_get(const struct tb_catalog *c, const struct tb_id *uid,
                            struct tb_catalog_version_view *out);

bool tb_catalog_session_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_session_view *out);

bool tb_catalog_session_get(const struct tb_catalog *c, const struct tb_id *session,
                            struct tb_catalog_session_view *out);

bool tb_catalog_group_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_group_view *out);

/* The first `most` groups, in one pass over the members; how many there are in `out`. */
uint32_t tb_catalog_groups(const struct tb_catalog *c, struct tb_catalog_group_view *out, uint32_t most);

bool tb_catalog_member_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_member_view *out);

bool tb_catalog_reference_at(const struct tb_catalog *c, uint32_t *cursor,
                             struct tb_catalog_reference_view *out);

bool tb_catalog_model_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_model *out);

/* For tests: no view shows runs, and only here is seen which were forgotten. */
bool tb_catalog_run_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_run *out);

/* Source of the plan that this reader has now, for CHUNK_BAD and tokens. False: no such plan. */
bool tb_catalog_plan_get(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                         uint64_t plan, struct tb_catalog_reference_view *out);

/* How far this site is behind a model's head, by what it has heard of. Of other
 * sites: records.h. */
struct tb_catalog_lag {
    bool known; /* there is a head */
    struct tb_id head;
    uint64_t head_run_order, head_number;
    struct tb_id newest; /* whole here; zero: none */
    uint32_t versions;   /* ready ones newer than `newest` */
    uint64_t bytes;      /* of the head, not yet held here (by chunks, an estimate) */
    /* since the oldest ready one that is newer than `newest` became ready, as known here */
    tb_time_ns behind_ns;
};

/* TB_NOT_FOUND: the model is unknown. */
TB_MUST_USE enum tb_status tb_catalog_lag(const struct tb_catalog *c, tb_time_ns now,
                                          const struct tb_name *model, struct tb_catalog_lag *lag_out);

#endif
