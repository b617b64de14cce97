/* tables.h - the rows behind catalog.h, and what its rooms say to each other. Private to gateway/catalog.
 *
 * How a change travels: a request changes rows and *touches* what depends on them (version, group, model);
 * before it returns, tb_catalog_settle lets every touched row draw its conclusions until none is
 * left. So no conclusion is drawn in the middle of a change, and no rule is written twice. What the world
 * must know becomes a bit on a row (tb_row_mark), which todo_marks.c turns into todos. */
#ifndef TB_GATEWAY_CATALOG_TABLES_H
#define TB_GATEWAY_CATALOG_TABLES_H

#include "base/assert.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/records.h"
#include "intra/planner.h"

#define NONE        TB_CATALOG_NONE
#define GATEWAY     (UINT32_MAX - 1) /* as a source in a plan */
#define BADS_MAX    8
#define AVOIDED_MAX 4
/* Workers with a part of a version that home reads at once for what rotted here: a hop each, of some thousands there may be. */
#define LANDING_PARTS_MAX 32

/* ---- tables.c: fixed tables with a free list and a list of rows that have todos ---- */

struct row {
    uint32_t next, previous; /* in the dirty list, or (next) in the free list */
    uint32_t todos;          /* bits: 1 << enum tb_catalog_todo_kind */
    uint32_t held;           /* those that wait for a detached session */
    bool live;
    bool dirty; /* in the dirty list */
    bool dead;  /* live only until its todos are told; counts for nothing */
};

struct table {
    uint8_t *rows;
    size_t row_bytes;
    uint32_t cap;
    uint32_t high;       /* rows at and above were never used */
    uint32_t used, most; /* rows that are live; as many as there ever were at once */
    uint64_t refused;    /* requests for which there was no row */
    uint32_t free_first;
    uint32_t dirty_first, dirty_last;
    const char *name;
};

/* Here, because walks over tables are most of what a catalog of thousands does. */
static inline struct row *tb_table_row(const struct table *t, uint32_t index)
{
    TB_ASSERT(index < t->high);
    return (struct row *)(void *)(t->rows + (size_t)index * t->row_bytes);
}
/* A zeroed live row, or NONE when the table is full. */
uint32_t tb_table_new(struct table *t);
void tb_table_free(struct table *t, uint32_t index);
/* The first live row that is not dead, from `index` on; NONE. */
static inline uint32_t tb_table_next(const struct table *t, uint32_t index)
{
    for (; index < t->high; index++) {
        const struct row *row = tb_table_row(t, index);
        if (row->live && !row->dead) return index;
    }
    return NONE;
}
void tb_row_mark(struct table *t, uint32_t index, enum tb_catalog_todo_kind kind);
void tb_row_unmark(struct table *t, uint32_t index, enum tb_catalog_todo_kind kind);
bool tb_row_marked(const struct row *row, enum tb_catalog_todo_kind kind);
/* The first row that has this todo, or the first behind row `after`; NONE. */
uint32_t tb_table_todo(const struct table *t, enum tb_catalog_todo_kind kind);
uint32_t tb_table_todo_after(const struct table *t, uint32_t after, enum tb_catalog_todo_kind kind);

#define EACH(table, i)                                                                                       \
    for (uint32_t i = tb_table_next(&(table), 0); i != NONE; i = tb_table_next(&(table), i + 1))

/* ---- rows ---- */

/* A version as others remember it: its row may be forgotten, its order may not. */
struct which {
    struct tb_id uid; /* zero: none */
    uint64_t run_order, number;
};

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
    uint32_t unsaved; /* rows of it that are on their way to the disk */
    bool touched;
};

struct run {
    struct row row;
    struct tb_catalog_run info;
    uint32_t model;
    char opened_identity[TB_CATALOG_TEXT_MAX]; /* "": not in this life of the catalog */
};

struct shard {
    struct tb_catalog_shard info;
    uint32_t held_chunks;
    bool known;  /* info is filled */
    bool sealed; /* by a rank, in this life of the catalog */
};

struct bad_chunk {
    struct tb_id publisher;
    uint32_t shard, chunk;
};

struct version {
    struct row row;
    struct tb_version_key key;
    uint32_t model;
    enum tb_catalog_state state;
    bool was_ready;
    bool
        restored_open; /* the store calls it open; one that lost its last writes says so of what was ready, too */
    bool ending;    /* it ended, and settling has not yet drawn the conclusions */
    bool rank_lost; /* while open: a rank that had opened or sealed it is gone */
    const char *why;
    char who[TB_CATALOG_TEXT_MAX];
    struct tb_id blamed; /* session of a rank */
    struct tb_name blamed_name;
    uint32_t blamed_shard;

    uint64_t bytes;
    uint32_t chunk_count, held_chunks;
    uint32_t known_count, sealed_count;
    uint32_t holders;                   /* references of ranks and sites: the first of their list */
    uint32_t workers;                   /* those of workers, which may be thousands: the first of theirs */
    uint32_t asking_count, asking_last; /* plans.c: workers that want a plan, and who asked last */
    uint32_t landing_workers;           /* of those, how many LAND_FROM names */
    struct shard *shards;
    struct bad_chunk bads[BADS_MAX];
    uint32_t bad_count;

    bool reserved;             /* the arena has a region for it */
    bool whole;                /* and every chunk of it */
    bool evicting;             /* EVICT is out */
    bool pinned;               /* by an operator */
    bool base;                 /* of a crossing under way */
    bool cross_asked;          /* CROSS is out, nothing has begun */
    bool cross_begun;          /* in this life of the gateway */
    tb_time_ns moved_at;       /* when its crossing began, or last brought a chunk */
    tb_time_ns arriving_since; /* plans.c: its first chunks came; 0: none, in this life */
    uint32_t arriving_from;    /* and so many they were */
    tb_time_ns judged_at;      /* plans.c: a worker of it was last judged */
    tb_time_ns looked_at;      /* plans.c: it was last looked whether one leads all others */
    uint64_t fastest;          /* bytes a second: the most that a worker of it ever told */
    uint32_t trials;           /* plans.c: so many gave their place up to see who holds up the chain */
    bool tried;                /* plans.c: and that was enough of it */
    uint32_t yielding_count;   /* plans.c: workers that wait for another to take their place */
    bool stands_told;          /* scratch of sites.c */
    bool wanted;               /* an exact wait asks for it */
    bool unheld;               /* RETIRED without ever having been here: news of it begins it anew */
    bool lost_at_home;         /* home gave it up: it lives as long as somebody here has all of it */
    bool had_more;             /* chunks that are not here were, and others may have read them */
    bool lacks;                /* home: some shard has no sure holder, since: */
    /* fed: a holder that was there by then last told of more chunks, or a site's link came up */
    tb_time_ns lacks_since, fed_at;
    tb_time_ns came_at; /* when bytes for it were last seen to come, of chunks that are not here yet */
    uint64_t came_bytes;
    tb_time_ns refused_until;
    bool activated_here; /* by every group of the model */
    bool whole_told;     /* SITE_STATE said whole */
    tb_time_ns opened_at, ready_at, whole_at;
    uint32_t unsaved; /* writes of its row that are on their way to the disk */
    bool touched;
};

struct session {
    struct row row;
    struct tb_catalog_session info;
    tb_time_ns lease_until;
    bool attached;
    uint32_t host, rack; /* planner's numbers */
    bool slow;           /* plans.c: it was, when it last told a rate that could be judged */
    bool silent;         /* leases.c: it was asked and has said nothing since */
    uint64_t stamp;
    uint32_t references; /* its own, of all versions: the first of the list */
    uint32_t members;    /* its memberships: likewise */
};

struct avoided {
    uint32_t source; /* reference, or GATEWAY */
    uint32_t held_chunks;
};

struct reference {
    struct row row;
    int kind; /* TB_REFERENCE_* */
    uint32_t version;
    /* What a question to the planner looks at stands together: with 10,000 workers each one is a line of cache. */
    uint32_t next, previous; /* in one of the version's two lists */
    uint32_t owner;          /* session or site */
    uint32_t held_chunks;    /* WORKER, SITE; as the next */
    uint32_t source;         /* WORKER: reference, GATEWAY, NONE */
    uint32_t question;       /* WORKER: scratch of plans.c */
    uint32_t host, rack;     /* WORKER: its session's */
    bool spot;               /* WORKER: its session's */
    bool reads_only; /* WORKER: reads, serves nobody, and is no copy: it keeps bytes in a form of its own */
    bool whole;
    bool silent;              /* its session's */
    uint64_t nic_bytes_per_s; /* WORKER: its session's */

    uint32_t owner_next; /* in the owner's list */
    struct tb_id uid;    /* of the version: outlives its row */
    struct tb_id session_id;
    struct tb_name name; /* worker or site: outlives its row */
    enum tb_status tell;

    /* PUBLISHER */
    uint32_t shard; /* NONE: opened, not sealed */
    uint64_t export_id;
    bool in_place;
    bool hidden;              /* being unpublished */
    bool gone;                /* with `hidden`, and with no other: its memory goes when the drain ends */
    bool unpublish_answers;   /* this one of those that a request hid carries its answer */
    uint32_t unpublish_with;  /* the one that does; with `hidden` */
    uint32_t unpublish_shard; /* as the request named it; with unpublish_answers */
    tb_time_ns drain_until;
    enum tb_status unpublished;
    bool landing; /* LAND_FROM is told or marked */

    /* WORKER, SITE */
    uint32_t total_chunks;
    bool activated;
    bool has;            /* SITE: has it or is getting it, as it says */
    uint32_t heard_in;   /* SITE: of its sessions, in which it last said so itself; 0: none, others did */
    uint32_t told_in;    /* SITE: likewise, in which it last said that it holds some of it */
    tb_time_ns since;    /* when the reader began */
    tb_time_ns moved_at; /* SITE: when what it holds last grew */

    /* WORKER */
    bool source_loads;    /* it was counted in the source's readers */
    bool asking;          /* it is counted in its version's asking_count */
    bool was_asked;       /* home read what it had of a version of which chunks rotted */
    uint32_t source_from; /* what it held when it was sent there */
    uint32_t followers;   /* and PUBLISHER: workers whose source it is */
    uint64_t plan;        /* told, or about to be; 0: none */
    struct avoided avoided[AVOIDED_MAX];
    uint32_t avoided_count;
    tb_time_ns retry_at;
    uint64_t bytes_per_s;
    struct tb_planner_pace pace;
    bool slow;   /* a leaf from now on */
    bool aside;  /* it gives its place up to be compared, until it has another */
    bool yields; /* it gives its place up once another may read there */
    bool stood;  /* it got nothing as the first of a chain, and was put aside for that once */
    uint8_t transport;
};

struct group {
    struct row row;
    uint32_t model;
    struct tb_name name;
    uint32_t count;
    uint32_t members; /* the first of its list */
    struct which go;
    tb_time_ns go_at;
    bool go_unpinned; /* pin_max passed and the room was needed */
    struct which attempt;
    tb_time_ns attempt_at;
    bool touched;
};

struct member {
    struct row row;
    uint32_t session, group, index;
    uint32_t group_next, session_next;
    uint32_t subscription;
    struct which active;
    struct tb_catalog_update update; /* that was told last; maybe of what was active before */
    struct which staging;
    struct which ended; /* the last attempt that ended before go */
    enum tb_status ended_status;
    struct tb_id tell_uid;
    enum tb_status tell;
    bool go_told;
};

struct wait {
    struct row row;
    struct tb_catalog_wait q;
    uint32_t session; /* NONE: the gateway's own */
    enum tb_status status;
    struct tb_version_key key; /* of the answer */
    uint64_t bytes;
    bool whole;
};

struct site {
    struct row row;
    struct tb_name name;
    uint32_t references; /* the first of its list */
    bool is_peer;        /* it speaks itself; else others spoke of it */
    bool up;
    bool unsure; /* what it had before its link came up, and has not said again since, is still believed */
    tb_time_ns up_at;
    uint32_t session; /* 1..; grows whenever its link comes up or goes on in another session */
};

struct record {
    struct row row;
    struct tb_record info;
};

struct tb_catalog {
    struct tb_catalog_config config;
    struct tb_catalog_limits limits;
    struct table models, runs, versions, sessions, references, groups, members, waits, sites, records;
    struct shard *shards;               /* limits.shards for each version row */
    struct tb_planner_member *question; /* plans.c: limits.references + 1 */
    uint32_t *session_readers;          /* of each session's row: hops that load its NIC */
    uint32_t *session_hints;            /* leases.c: where a session may stand, by a hash of its id or host */
    uint32_t session_hint_count;        /* a power of two */
    tb_time_ns now, last_tick;
    tb_time_ns recovers_until;
    bool recovering;
    bool unsettled;
    bool waits_touched;
    uint64_t plans, stamps;
    uint32_t unsaved; /* of all models */
    uint32_t gateway_readers;
    uint64_t gateway_nic; /* bytes a second; 0: not known */
    /* That live: of limits.references and limits.site_references. */
    uint32_t worker_references, site_references;
    const char *full;
};

static inline struct model *model_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct model *)tb_table_row(&c->models, i);
}
static inline struct run *run_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct run *)tb_table_row(&c->runs, i);
}
static inline struct version *version_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct version *)tb_table_row(&c->versions, i);
}
static inline struct session *session_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct session *)tb_table_row(&c->sessions, i);
}
static inline struct reference *reference_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct reference *)tb_table_row(&c->references, i);
}
static inline struct group *group_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct group *)tb_table_row(&c->groups, i);
}
static inline struct member *member_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct member *)tb_table_row(&c->members, i);
}
static inline struct wait *wait_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct wait *)tb_table_row(&c->waits, i);
}
static inline struct site *site_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct site *)tb_table_row(&c->sites, i);
}
static inline struct record *record_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct record *)tb_table_row(&c->records, i);
}

/* The references of a version, in two lists: workers may be thousands, and most questions are about the others. An
 * ended one keeps its `next`, so a body may end the one it is at. */
#define EACH_HOLDER(c, v, r) for (uint32_t r = (v)->holders; r != NONE; r = reference_at(c, r)->next)
#define EACH_WORKER(c, v, r) for (uint32_t r = (v)->workers; r != NONE; r = reference_at(c, r)->next)
/* Both: the workers, then the ranks and sites. */
static inline uint32_t tb_reference_first(const struct version *v)
{
    return v->workers != NONE ? v->workers : v->holders;
}
static inline uint32_t tb_reference_after(const struct tb_catalog *c, const struct version *v, uint32_t r)
{
    const struct reference *ref = reference_at(c, r);
    return ref->next == NONE && ref->kind == TB_REFERENCE_WORKER ? v->holders : ref->next;
}
#define EACH_REFERENCE(c, v, r)                                                                              \
    for (uint32_t r = tb_reference_first(v); r != NONE; r = tb_reference_after(c, v, r))

/* ---- settle.c ---- */

/* Every request begins with this. */
void tb_catalog_enter(struct tb_catalog *c, tb_time_ns now);
void tb_catalog_touch_version(struct tb_catalog *c, uint32_t version); /* and its model, and the waits */
void tb_catalog_touch_model(struct tb_catalog *c, uint32_t model);
void tb_catalog_touch_group(struct tb_catalog *c, uint32_t group);
/* Every request that changed something ends with this; returns `status`. */
enum tb_status tb_catalog_settle(struct tb_catalog *c, enum tb_status status);
/* TB_SITE_NOMEM, and tb_catalog_full names the table. */
enum tb_status tb_catalog_refuse_full(struct tb_catalog *c, struct table *t);
bool tb_catalog_same_name(const struct tb_name *a, const struct tb_name *b);
bool tb_catalog_copy_text(char out[TB_CATALOG_TEXT_MAX], const char *text); /* false: it had to be cut */

/* ---- models.c ---- */

uint32_t tb_model_find(const struct tb_catalog *c, const struct tb_name *name);
uint32_t tb_run_find(const struct tb_catalog *c, uint32_t model, const struct tb_id *id);
/* A run of that order was there: those before it publish nothing any more. */
/* A version of the model was heard of. */
void tb_run_seen(struct tb_catalog *c, uint32_t model, const struct tb_version_key *key);
void tb_runs_fence_older(struct tb_catalog *c, uint32_t model, uint64_t than);

/* ---- versions.c ---- */

uint32_t tb_version_find(const struct tb_catalog *c, const struct tb_id *uid);
uint32_t tb_versions_of(const struct tb_catalog *c, uint32_t model); /* rows of the model */
/* NONE: the table or the model's share is full. */
uint32_t tb_version_new(struct tb_catalog *c, uint32_t model, const struct tb_version_key *key);
int tb_which_compare(const struct which *a, const struct which *b);
struct which tb_which_of(const struct version *v);
bool tb_which_is(const struct which *w, const struct tb_id *uid);
bool tb_version_lives(const struct version *v); /* ready or kept: workers may hear of it */
bool tb_version_here(const struct version *v);  /* lives, whole at the gateway and staying */
bool tb_version_older(const struct version *a, const struct version *b);
/* Marks the end. Settling tells the holders, and ends groups and references. */
void tb_version_end(struct tb_catalog *c, uint32_t version, enum tb_catalog_state state, const char *why);
/* What a caller gets who asks about an ended version; TB_OK while it is open or lives. */
enum tb_status tb_version_status(const struct tb_catalog *c, const struct version *v);
void tb_version_settle(struct tb_catalog *c, uint32_t version);
/* This reference told of more chunks. */
void tb_version_fed(struct tb_catalog *c, const struct reference *ref);
/* When something of it came last: bytes count as a chunk does, for a while behind the last chunk. */
tb_time_ns tb_version_sign(const struct tb_catalog *c, const struct version *v, tb_time_ns chunk_at);
tb_time_ns tb_versions_deadline(const struct tb_catalog *c); /* of the next verdict of loss */
/* A reliable whole replica other than the gateway's. */
bool tb_version_whole_elsewhere(const struct tb_catalog *c, const struct version *v);
void tb_version_name_ready(struct tb_catalog *c, uint32_t version);

/* ---- references.c ---- */

uint32_t tb_reference_new(struct tb_catalog *c, int kind, uint32_t version, uint32_t owner);
/* It counts no more; its row goes when its todos are told. Readers behind it are planned anew. */
void tb_reference_end(struct tb_catalog *c, uint32_t reference);
/* The same for one whose bytes went with it: an open version that counted on a rank's is lost, and the rank is named. */
void tb_reference_lost(struct tb_catalog *c, uint32_t reference);
uint32_t tb_reference_find(const struct tb_catalog *c, int kind, uint32_t version, uint32_t owner);
/* plans.c counts who wants a plan: call it when what that depends on changed. */
void tb_plan_note(struct tb_catalog *c, uint32_t reference);
/* Before a worker that is to read that version is among its workers. */
void tb_plan_begins(struct tb_catalog *c, uint32_t version);
bool tb_shard_published(const struct tb_catalog *c, const struct version *v, uint32_t shard);
bool tb_shard_whole(const struct version *v, uint32_t shard);
/* TELL to each session that holds a reference of the version, once. */
void tb_references_tell(struct tb_catalog *c, uint32_t version, enum tb_status status, bool workers_too);
void tb_landing_settle(struct tb_catalog *c, uint32_t version);
/* Who was read had its time. False: there is nobody with a part of it who was not read yet. */
bool tb_landing_ask_others(struct tb_catalog *c, uint32_t version);
void tb_version_forget_shards(struct version *v);

/* ---- unpublish.c ---- */

void tb_unpublish_settle(struct tb_catalog *c, uint32_t version);
/* A hidden reference stays: it is back in sight, and who asked for it hears so (TB_TIMEOUT). What was hidden with it drains on. */
void tb_unpublish_take_back(struct tb_catalog *c, uint32_t reference);
tb_time_ns tb_unpublish_deadline(const struct tb_catalog *c);

/* ---- leases.c ---- */

uint32_t tb_catalog_session_find(const struct tb_catalog *c, const struct tb_id *id);
void tb_catalog_session_end(struct tb_catalog *c, uint32_t session, bool tell);
void tb_leases_tick(struct tb_catalog *c);
tb_time_ns tb_leases_deadline(const struct tb_catalog *c);

/* ---- groups.c ---- */

void tb_group_settle(struct tb_catalog *c, uint32_t group);
void tb_groups_version_ended(struct tb_catalog *c, uint32_t version, enum tb_status status);
/* A group stages it or computes from it, for not longer than pin_max. */
bool tb_groups_pin(const struct tb_catalog *c, const struct version *v);
/* It goes all the same: whose pin was too old is told. */
void tb_groups_unpin(struct tb_catalog *c, uint32_t version);
void tb_member_end(struct tb_catalog *c, uint32_t member);
void tb_member_progress(struct tb_catalog *c, uint32_t session, uint32_t version);
void tb_member_release(struct tb_catalog *c, uint32_t session, uint32_t version);
void tb_member_retell(struct tb_catalog *c, uint32_t session);
/* The membership of that session in a group of that model; NONE also when there are several. */
uint32_t tb_member_only(const struct tb_catalog *c, uint32_t session, uint32_t model);
/* Some member of the session computes from it. */
bool tb_member_active(const struct tb_catalog *c, uint32_t session, const struct tb_id *uid);
bool tb_group_activated(const struct tb_catalog *c, uint32_t group, const struct which *w);

/* ---- waiters.c ---- */

/* Looks at all waits, where something changed that a wait may be about. An exact one may touch a model. */
void tb_waits_settle(struct tb_catalog *c);
void tb_waits_end_session(struct tb_catalog *c, uint32_t session);
tb_time_ns tb_waits_deadline(const struct tb_catalog *c);

/* ---- retention.c ---- */

void tb_retention_settle(struct tb_catalog *c, uint32_t model);
/* EVICT; its readers are planned anew. */
void tb_catalog_evict(struct tb_catalog *c, uint32_t version);
/* Among the newest `keep` that live. */
bool tb_version_retained(const struct tb_catalog *c, const struct version *v);

/* ---- forget.c ---- */

/* Why a version has a row: the first that holds. */
enum tb_version_reason {
    TB_REASON_NONE,
    TB_REASON_TO_SAY,       /* a todo, or a write that is not on disk yet */
    TB_REASON_PINNED,       /* by an operator */
    TB_REASON_HERE,         /* memory of the arena */
    TB_REASON_HELD_INSIDE,  /* by a rank or a worker */
    TB_REASON_HELD_BY_PEER, /* as that says itself */
    TB_REASON_WAITED_FOR,   /* by tb_wait_site */
    TB_REASON_HEAD,
    TB_REASON_NOT_JUDGED, /* open or alive, and home or the end of recovery decides */
    TB_REASON_PAST        /* one of the last few that ended */
};
enum tb_version_reason tb_version_reason(const struct tb_catalog *c, const struct version *v);
/* Rows of the model that have no reason leave, and some more where its share is nearly full. Last in its settling. */
void tb_versions_forget(struct tb_catalog *c, uint32_t model);
/* The share is nearly full, and a row for this one, which is not known here, would be the first to leave. */
bool tb_version_useless(const struct tb_catalog *c, uint32_t model, const struct tb_version_key *key);
/* Where the table or the model's share is full, the least useful version gives up its row. */
void tb_versions_make_room(struct tb_catalog *c, uint32_t model);
/* The oldest version that can be done without gives its references of sites back, unless it is this one. */
bool tb_versions_lose_sites(struct tb_catalog *c, uint32_t except);

/* ---- sites.c ---- */

uint32_t tb_catalog_site_find(const struct tb_catalog *c, const struct tb_name *name);
void tb_sites_tick(struct tb_catalog *c);
/* A newer one of its model is whole here. */
bool tb_version_newer_here(const struct tb_catalog *c, const struct version *v);
/* Nothing came for a lease time. */
bool tb_crossing_stands(const struct tb_catalog *c, const struct version *v);
bool tb_crossing_stuck(const struct tb_catalog *c, const struct version *v);
void tb_groups_touch(struct tb_catalog *c, uint32_t model);
void tb_catalog_crossing_settle(struct tb_catalog *c, uint32_t model);
uint32_t tb_catalog_crossing_from(const struct tb_catalog *c, const struct version *v,
                                  struct tb_name from_out[TB_CATALOG_FROM_MAX]);
tb_time_ns tb_catalog_crossing_deadline(const struct tb_catalog *c);
/* Every group of the model here activated it. */
void tb_catalog_site_activated_settle(struct tb_catalog *c, uint32_t model);

/* ---- records.c ---- */

/* What a link says of a version between two states of the site, to a record that is known by the same way. */
void tb_record_progress(struct tb_catalog *c, uint32_t version, const struct tb_catalog_site_progress *p);
void tb_record_gone(struct tb_catalog *c, uint32_t version, const struct tb_name *site);
bool tb_record_reached(const struct tb_catalog *c, const struct tb_name *site, const struct version *v,
                       bool activated);
void tb_records_forget(struct tb_catalog *c, const struct tb_name *site);
void tb_records_expire(struct tb_catalog *c);

/* ---- plans.c ---- */

void tb_plans_settle(struct tb_catalog *c, uint32_t version);
void tb_plan_drop_source(struct tb_catalog *c, uint32_t version, uint32_t source);
void tb_plan_forget(struct tb_catalog *c, uint32_t reference); /* it reads no more */
void tb_plan_tell_readers(struct tb_catalog *c, uint32_t version, uint32_t source);
void tb_plans_tick(struct tb_catalog *c);
void tb_plan_retell(struct tb_catalog *c, uint32_t reference);
/* It told of its progress: who holds up those behind it becomes a leaf. */
void tb_plan_judge(struct tb_catalog *c, uint32_t reference);
/* The gateway holds more of a version: how fast they arrive says how many readers a NIC can feed. */
void tb_plan_arrival(struct tb_catalog *c, uint32_t version);
/* Of a NIC that says this of itself; 0: it says nothing. */
uint32_t tb_plan_fan_out(const struct tb_catalog *c, const struct version *v, uint64_t nic_bytes_per_s);
tb_time_ns tb_plans_deadline(const struct tb_catalog *c);

#endif
