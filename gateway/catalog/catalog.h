/* catalog.h - a site's single truth of models, runs, versions, references, reader
 * groups, waits and plans.
 *
 * Pure: no socket, file, clock, thread, heap or randomness. Memory is the caller's and its tables
 * are fixed at init; `now` and fresh ids are passed in. Requests are functions that answer at once.
 * What others must be told or do comes out of tb_catalog_next, which the owner drains after each
 * call; a todo is a mark on the row that it is about, so none can be lost and none overflows. Todos
 * that must be durable (PERSIST_*) come out before all others.
 *
 * Promises: P2 (a group switches together), P3 and P6 (leases, recovery), P4 (a request
 * said twice changes nothing), P10 (a todo says what, whom and why). Kept by
 * tests/unit/catalog and tests/scenario.
 *
 * What is left to the caller: rights (who may publish, read, withdraw), bytes, bitmaps, manifests,
 * tokens, links, SQLite.
 *
 * Statuses beside those named at a function: TB_PEER_LEASE (no such session, or its lease ran out),
 * TB_NOT_FOUND (no such uid, model or run), TB_SITE_NOMEM (a table is full: tb_catalog_full says
 * which). A failed request changes nothing, except as said.
 *
 * Threads: one at a time. */
#ifndef TB_GATEWAY_CATALOG_H
#define TB_GATEWAY_CATALOG_H

#include "base/ident.h"
#include "base/layout/manifest.h"
#include "base/time.h"
#include "tombolo/status.h"

#define TB_CATALOG_TEXT_MAX   256 /* an identity, a run key; with the NUL */
#define TB_CATALOG_FROM_MAX   8   /* sites a model may be crossed from */
#define TB_CATALOG_ALL_SHARDS UINT32_MAX
#define TB_CATALOG_NONE       UINT32_MAX

struct tb_catalog;

/* ---- start ---- */

/* Table sizes. 0 takes the default beside it. */
#define TB_CATALOG_RUNS            1024u /* what is kept of runs, here and in the store */
#define TB_CATALOG_VERSIONS        512u
#define TB_CATALOG_SHARDS          64u
#define TB_CATALOG_SITE_REFERENCES 1024u

struct tb_catalog_limits {
    uint32_t models;         /* 16 */
    uint32_t runs;           /* TB_CATALOG_RUNS; full, it forgets the oldest shut-out run without a version */
    uint32_t versions;       /* TB_CATALOG_VERSIONS, of all models; what leaves and when: forget.c */
    uint32_t model_versions; /* of one model at most; as `versions` */
    uint32_t shards;         /* TB_CATALOG_SHARDS, of one version */
    uint32_t sessions;       /* 1024 */
    uint32_t references;     /* 4096: of sealed shards, and of workers that stage or hold */
    /* TB_CATALOG_SITE_REFERENCES, beside those: of other sites. What peers say takes no
     * place from who is here. */
    uint32_t site_references;
    uint32_t groups;         /* 512 */
    uint32_t members;        /* 1024, of all groups */
    uint32_t waits;          /* 2048 */
    uint32_t sites;          /* 32 */
    uint32_t records;        /* 128: one for each other site and model (records.h) */
    uint64_t manifest_bytes; /* TB_MANIFESTS_BYTES_MAX, of one version that is sealed */
};

struct tb_catalog_config {
    struct tb_name site;
    struct tb_name host; /* where the gateway shares memory with workers */
    tb_time_ns lease_ns; /* 10 s */
    tb_time_ns tick_ns; /* tb_catalog_tick is called at least so often (0: 100 ms); a longer gap is a pause of
                           this process */
    tb_time_ns drain_ns;   /* largest drain of an unpublish: 10 s */
    tb_time_ns pin_max_ns; /* 10 min */
    tb_time_ns retry_ns;   /* a source that failed is tried again after this when there is no other: 1 s */
    tb_time_ns turn_ns;    /* sites that cannot send one version at once have so long each; 0: all can */
    /* readers on one NIC; 0: as nic_bytes_per_s and the rate at which versions arrive allow */
    uint32_t fan_out;
    uint64_t nic_bytes_per_s; /* of each host of the site, each way; 0: as each says of its own */
};

size_t tb_catalog_bytes(const struct tb_catalog_limits *limits);
/* `memory` (max-aligned, tb_catalog_bytes(limits) of it) is the caller's and outlives the catalog.
 * Recovery begins: for one lease time nothing is evicted and nothing is judged lost. Never fails;
 * zeros in config and limits take their defaults. */
struct tb_catalog *tb_catalog_init(void *memory, const struct tb_catalog_limits *limits,
                                   const struct tb_catalog_config *config, tb_time_ns now);

/* What the gateway's own NIC carries, as far as it knows; 0: not known, as at the beginning. The
 * config's word comes before it. */
void tb_catalog_nic(struct tb_catalog *c, uint64_t bytes_per_s);

/* A table of rows, by turns; false: that was the last. `who` uses most of it (a model, an identity,
 * a site; empty where rows have no owner): a walk over its rows. */
struct tb_catalog_table {
    const char *name;           /* "versions", "sessions", ... */
    uint32_t used, most, bound; /* rows now; at once so far; at most */
    uint64_t refused;           /* requests for which there was no row */
};
bool tb_catalog_table_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_table *out);
uint32_t tb_catalog_table_most(const struct tb_catalog *c, const char *table,
                               char who_out[TB_CATALOG_TEXT_MAX]);

/* Which table refused the last request that answered TB_SITE_NOMEM: "versions",
 * "sessions", ... or "" */
const char *tb_catalog_full(const struct tb_catalog *c);

struct tb_catalog_model {
    struct tb_name name;
    struct tb_name home; /* site */
    bool is_home;        /* home is this site */
    bool subscribed;     /* not home, and this site crosses it */
    bool every;    /* versions cross in order, none that a site still has is skipped; else the newest does */
    uint32_t keep; /* whole versions, head included; 0 counts as 2 */
    uint32_t from_count; /* sites to cross from, in order of preference; 0: any that has it */
    struct tb_name from[TB_CATALOG_FROM_MAX];
};
/* At start, and again after the config was read again: every, keep, subscribed and from may change,
 * home may not (TB_CONFLICT). */
TB_MUST_USE enum tb_status tb_catalog_model_add(struct tb_catalog *c, const struct tb_catalog_model *model);

enum tb_catalog_state {
    TB_VERSION_OPEN = 1,        /* invisible to workers */
    TB_VERSION_READY,           /* every shard sealed, every lease alive */
    TB_VERSION_KEPT,            /* and a reliable holder besides the publisher has all of it */
    TB_VERSION_RETIRED,         /* superseded and dropped here */
    TB_VERSION_ENDED_LOST,      /* some chunk has no holder left, or a rank was lost before ready */
    TB_VERSION_ENDED_BROKEN,    /* somebody wrote to sealed bytes, or ranks sealed one shard with different
                                   digests */
    TB_VERSION_ENDED_WITHDRAWN, /* by an operator, at home */
    TB_VERSION_ENDED_ABANDONED, /* its run was shut out before it was ready, or its crossing was given up; or
                                   home's store calls it open, and after that restart no rank finished it */
    TB_CATALOG_STATE_END
};
/* "open", "ready", ..., "lost", "broken", "withdrawn", "abandoned" */
const char *tb_catalog_state_name(enum tb_catalog_state state);
/* What waiters and holders of it are answered: TB_OK while it lives, then TB_VERSION_LOST, _BROKEN,
 * _WITHDRAWN, TB_SUPERSEDED (retired, abandoned). */
enum tb_status tb_catalog_state_status(enum tb_catalog_state state);

/* From the durable store, before anything else: runs in order, then versions in any order. */
struct tb_catalog_run {
    struct tb_name model;
    struct tb_id id;
    uint64_t order; /* 1 for the model's first */
    char key[TB_CATALOG_TEXT_MAX];
    bool has_last;
    uint64_t last_number;       /* of its newest ready version */
    uint64_t resumed_run_order; /* the model's head when it began; 0: none */
    uint64_t resumed_number;
    /* The run that it shut out, with that run's newest ready version; order 0: none, or
     * a restart forgot it. */
    uint64_t shut_out_order;
    bool shut_out_has_last;
    uint64_t shut_out_number;
    bool fenced; /* a newer run exists */
};
TB_MUST_USE enum tb_status tb_catalog_restore_run(struct tb_catalog *c, const struct tb_catalog_run *run);
TB_MUST_USE enum tb_status tb_catalog_restore_version(struct tb_catalog *c, const struct tb_version_key *key,
                                                      enum tb_catalog_state state, uint64_t bytes,
                                                      bool pinned);

/* ---- time and todos ---- */

/* Ends leases, waits, drains, recovery. A gap since the last tick that is longer than tick_ns
 * extends leases and recovery by itself: a pause of this process takes nobody's lease. */
void tb_catalog_tick(struct tb_catalog *c, tb_time_ns now);
/* When tick has something to do; TB_TIME_NEVER: nothing is running. (The owner still
 * ticks every tick_ns.) */
tb_time_ns tb_catalog_next_deadline(const struct tb_catalog *c);
bool tb_catalog_recovering(const struct tb_catalog *c);
/* No catalog of this site ran before: no session, uid or reference was ever given out that could be
 * announced again, so nothing is lost by not waiting. Before the first session. */
void tb_catalog_first_start(struct tb_catalog *c, tb_time_ns now);

enum tb_catalog_todo_kind {
    /* Durable, first. Each is one row and one audit line in one transaction. */
    TB_CATALOG_PERSIST_RUN = 1, /* run, session (who): insert or update by run.id */
    TB_CATALOG_PERSIST_VERSION, /* key, state, bytes, status, why, who; shard and session when a rank is to
                                   blame. Log it, tell the links */
    TB_CATALOG_PERSIST_POINTER, /* model, uid (zero: none), pinned: head when `head`, else an operator's pin
                                   or its end */
    /* To this site's machinery. */
    TB_CATALOG_LAND_FROM, /* uid, shard (or ALL_SHARDS), session, export_id: the gateway may read this
                             replica, and lacks it */
    TB_CATALOG_LAND_END,  /* uid, shard, session, export_id: it may not any more */
    TB_CATALOG_CROSS,     /* key, from: ask these sites for it, in this order; answer with crossing_begun or
                             crossing_refused */
    TB_CATALOG_EVICT, /* uid, status: give its memory back, tell peers, then call tb_catalog_evicted. status
                         TB_OK: retention, else why it ended */
    TB_CATALOG_SITE_STATE,   /* uid, whole, activated: tell peers that this site holds it / that every group
                                here activated it */
    TB_CATALOG_SESSION_LOST, /* session, name: its lease ran out; close its connection, revoke its grants */
    /* To workers. Those for a detached session wait until it resumes. */
    TB_CATALOG_TELL, /* session, uid, status: VERSION_STATE. TB_OK: kept; else lost, broken, withdrawn,
                        superseded, group broken, pin lost */
    TB_CATALOG_GO,   /* session, subscription, uid */
    TB_CATALOG_PLAN, /* session (the reader), uid, plan, from_gateway or source_session + export_id: PLAN to
                        one, GRANT to the other */
    TB_CATALOG_PLAN_END,    /* session (the reader), uid, plan: nobody has it now; another PLAN follows when
                               somebody does. Revoke its grant */
    TB_CATALOG_ANSWER,      /* wait, session, status; for TB_OK of WAIT also key, bytes, whole */
    TB_CATALOG_UNPUBLISHED, /* session, uid, shard (as asked: one, or ALL_SHARDS), status: TB_OK, TB_TIMEOUT (the references stay, but for what was
                               said to be gone meanwhile: of that it is told by itself), TB_PEER_REVOKED (of one shard: it went with its memory) */
};

/* Fields that a kind does not name are zero. Texts are borrowed until the next call. */
struct tb_catalog_todo {
    enum tb_catalog_todo_kind kind;
    enum tb_status status;
    struct tb_id session;
    struct tb_id uid;
    struct tb_name name; /* the session's worker name, where `session` is set */
    struct tb_name model;
    struct tb_version_key key;
    enum tb_catalog_state state;
    struct tb_catalog_run run;
    const char *why; /* "ready", "rank_lost", "digest_differs", "chunk_bad", "fenced", "withdrawn",
                        "no_holder", "evicted", ... */
    const char *who; /* operator of a withdrawal; identity that opened a run; "" */
    uint64_t bytes;
    uint32_t shard;
    uint32_t subscription;
    uint64_t export_id;
    uint64_t plan;
    struct tb_id source_session;
    uint64_t wait;
    bool from_gateway;
    bool whole;
    bool activated;
    bool head;
    bool pinned;
    uint32_t from_count;
    struct tb_name from[TB_CATALOG_FROM_MAX];
};
/* False: nothing more to do now. */
bool tb_catalog_next(struct tb_catalog *c, struct tb_catalog_todo *todo_out);
/* For an owner whose disk takes its time. It calls unsaved when it takes a PERSIST_* todo that it
 * writes later, and saved once that is on disk (or is given up: then what rests on it goes out all
 * the same). Between the two, what others could build on stays a mark: EVICT, SITE_STATE, PLAN,
 * TELL and UNPUBLISHED of that version; GO, and what a member or a wait is told, of that model.
 * What ends, landing, crossing and time-outs go on, as does all else. `uid` zero: a run, or the
 * head. An owner that writes before it goes on calls neither. */
void tb_catalog_unsaved(struct tb_catalog *c, const struct tb_name *model, const struct tb_id *uid);
void tb_catalog_saved(struct tb_catalog *c, const struct tb_name *model, const struct tb_id *uid);

/* ---- sessions ---- */

struct tb_catalog_session {
    struct tb_id id; /* fresh */
    char identity[TB_CATALOG_TEXT_MAX];
    struct tb_name name;
    struct tb_name host;
    struct tb_name rack; /* empty: unknown */
    bool spot;
    uint64_t nic_bytes_per_s; /* of its host, each way; 0: not known, and one reader at a time */
};
/* TB_CONFLICT: the id is in use. */
TB_MUST_USE enum tb_status tb_catalog_session_open(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_catalog_session *s);
/* The connection is back: TB_OK within the lease (its GO, PLAN and what could not be told
 * come out again; waits end as by detach, which an old connection that still seems to be
 * there was spared), TB_PEER_LEASE after it: open a new one. TB_CONFLICT: the identity is not
 * the one that opened it. */
TB_MUST_USE enum tb_status tb_catalog_session_resume(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *session, const char *identity);
/* The connection is gone; the lease goes on. Waits of the session end without an answer. */
void tb_catalog_session_detach(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);
/* Any word of it: its lease begins anew, and it is silent no more. */
TB_MUST_USE enum tb_status tb_catalog_session_renew(struct tb_catalog *c, tb_time_ns now,
                                                    const struct tb_id *session);
/* It was asked for something, by a reader of it or by the site, and did not answer: until
 * its next word nobody is sent there, nor to who depends on it, while there is anybody else
 * (P6). Its lease goes on. */
void tb_catalog_session_silent(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);
/* Good-bye: like an expired lease, without SESSION_LOST. Unknown is fine. */
void tb_catalog_session_close(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);

/* ---- publishing ---- */

struct tb_catalog_run_request {
    struct tb_id session;
    struct tb_name model;
    /* Up to TB_CATALOG_TEXT_MAX - 1 bytes; empty: the newest run, TB_NOT_FOUND when there is
     * none. */
    const char *key;
    struct tb_id fresh_id;
    bool
        joins; /* a key that is not known starts a run only where the model has none yet, else TB_BAD_STATE */
    /* Of the run that this session opened with the key before; 0: it did not. A key that is not
     * known (the store is new) is TB_FENCED where a newer run is remembered, and starts a run above
     * that one otherwise. */
    uint64_t was_order;
};
/* The newest run's key joins it (*joined_out), as does an empty key (TB_NOT_FOUND when there is
 * no run); a new key starts a run and shuts out the others: their open versions end as
 * abandoned. TB_FENCED: the key of a run that was shut out. TB_BAD_STATE: see `joins`.
 * TB_NOT_HOME, TB_BAD_ARGUMENT. */
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
    ((uint64_t)1 << 20) /* one word raises the order of the next run by no more */
#define TB_CATALOG_RUN_ORDER_MAX ((uint64_t)1 << 48)
/* The newest run that this site ever heard of. False: none, or no such model. */
bool tb_catalog_known_run(const struct tb_catalog *c, const struct tb_name *name,
                          struct tb_catalog_known_run *known_out);
/* Another site or a worker remembers that run; the next run gets a higher order. With
 * `doubted` (this home's store is new or restored) older runs here are shut out, and the same
 * run opens no number up to the one that is told. A site that is not the model's home takes it
 * only while it knows no version of the model itself. TB_DONE_BEFORE: nothing new.
 * TB_TOO_LARGE: more than TB_CATALOG_RUN_ORDER_STEP above what is known here, or above
 * TB_CATALOG_RUN_ORDER_MAX; nothing changed. */
TB_MUST_USE enum tb_status tb_catalog_run_told(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_catalog_known_run *told, bool doubted);

struct tb_catalog_version_request {
    struct tb_id session;
    struct tb_name model;
    struct tb_id run;
    uint64_t number;
    uint32_t shard_count;
    struct tb_id fresh_uid;
};
/* The same (run, number, shard_count) gives the same uid to every rank. TB_CONFLICT: another shard
 * count. TB_BAD_STATE: number not above the run's last ready one. TB_FENCED, TB_NOT_HOME,
 * TB_TOO_LARGE (shards), TB_BAD_ARGUMENT (0 shards, a number of 2^63 or above). TB_VERSION_BROKEN:
 * that number is spent. A number whose version failed because a rank was lost, in this life or
 * before it, may be opened again, with a new uid. */
TB_MUST_USE enum tb_status tb_catalog_version_open(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_catalog_version_request *q,
                                                   struct tb_version_key *key_out);

struct tb_catalog_seal {
    struct tb_id session;
    struct tb_id uid;
    uint32_t shard;
    struct tb_digest root; /* of the shard */
    struct tb_digest layout_id;
    uint32_t chunk_count;
    uint64_t bytes;
    uint64_t manifest_bytes; /* tb_manifest_decoded_bytes */
    uint64_t export_id;      /* where the gateway reads it */
    bool in_place; /* the bytes are the rank's own, and stay: workers of its host may read them too */
    bool retry;    /* other bytes than those of a ready version are TB_CONFLICT, and the version stays */
};
/* TB_OK: a reference more; the last shard makes the version ready. TB_DONE_BEFORE: this session
 * sealed it with the same root (a new export replaces the old). TB_CONFLICT: this session sealed it
 * with another root, which changes nothing. TB_VERSION_BROKEN: another session sealed it with
 * another root; the version is broken now (or was). A retry does not break a ready one:
 * TB_CONFLICT. TB_VERSION_*, TB_SUPERSEDED: it ended before. TB_FENCED: its run is shut out and the
 * version was not ready. After a restart of the catalog ranks seal again what they still hold; on a
 * ready version that only adds references. */
TB_MUST_USE enum tb_status tb_catalog_seal(struct tb_catalog *c, tb_time_ns now,
                                           const struct tb_catalog_seal *s);
/* What it would refuse without a look at roots, but a retry's (TB_CONFLICT): TB_PEER_LEASE,
 * TB_NOT_FOUND, TB_NOT_HOME, TB_BAD_ARGUMENT, TB_FENCED, what ended, and TB_TOO_LARGE: with the
 * shards known before, the version's manifests would be over limits.manifest_bytes, and no site
 * could take it; it stays open, for a smaller shard or until a newer one takes its place. Space
 * is reserved behind it: where no seal is taken, a manifest that somebody says would stand in the
 * way of the true one. */
TB_MUST_USE enum tb_status tb_catalog_seal_may(const struct tb_catalog *c, const struct tb_catalog_seal *s);
/* The version's manifests with that shard's, and how much they may have: the numbers of
 * TB_TOO_LARGE. 0: it is not known. */
uint64_t tb_catalog_manifest_bytes(const struct tb_catalog *c, const struct tb_catalog_seal *s,
                                   uint64_t *max_out);

/* Hides this session's reference to that shard, or to all that it sealed (TB_CATALOG_ALL_SHARDS),
 * at once. UNPUBLISHED follows: TB_OK when nothing retained is lost by it, TB_TIMEOUT after
 * drain_ns (at most config.drain_ns). TB_NOT_FOUND: it has none. TB_DONE_BEFORE: all of them are
 * being unpublished already, and are not gone yet: UNPUBLISHED follows for those that were asked
 * for then, by one request or several. */
TB_MUST_USE enum tb_status tb_catalog_unpublish(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, const struct tb_id *uid,
                                                uint32_t shard, tb_time_ns drain_ns);
/* Likewise of one shard whose memory goes when the drain ends: the reference does not come
 * back, and what is lost with it is told as of a rank that was lost. UNPUBLISHED says
 * TB_PEER_REVOKED then. TB_DONE_BEFORE: it is being unpublished already; it goes by itself from
 * now on, when the earlier of the two drains ends, and what was hidden with it drains on. A
 * seal of it at another export takes that back, and any other unpublish of it: UNPUBLISHED says
 * TB_TIMEOUT of that shard. */
TB_MUST_USE enum tb_status tb_catalog_unpublish_gone(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *session, const struct tb_id *uid,
                                                     uint32_t shard, tb_time_ns drain_ns);
/* Is a reference of this session to that shard, or to any (TB_CATALOG_ALL_SHARDS), hidden, or is an
 * UNPUBLISHED about it not taken yet? Until then nobody may be told how it ended. */
bool tb_catalog_unpublishing(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                             uint32_t shard);

/* A chunk that the gateway read from this publisher had a wrong digest. TB_AGAIN: once, read it
 * again. TB_VERSION_BROKEN: twice; the version is broken, the todo names the rank. */
TB_MUST_USE enum tb_status tb_catalog_chunk_bad(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                                uint32_t shard, uint32_t chunk,
                                                const struct tb_id *publisher);

/* ---- the gateway's own copy ---- */

/* At start, for each shard of each region found in the arena, and when a crossing's manifest came:
 * what the shard is. At home seals say it. TB_CONFLICT: it is another root than was sealed. */
struct tb_catalog_shard {
    struct tb_digest root;
    struct tb_digest layout_id;
    uint32_t chunk_count;
    uint64_t bytes;
    uint64_t manifest_bytes; /* tb_manifest_decoded_bytes; 0: not home, where nobody adds it up */
};
TB_MUST_USE enum tb_status tb_catalog_arena_shard(struct tb_catalog *c, tb_time_ns now,
                                                  const struct tb_id *uid, uint32_t shard,
                                                  const struct tb_catalog_shard *info);
/* The gateway has space for it and may serve it from now on, held or not yet. At home: call
 * it at the first seal. */
TB_MUST_USE enum tb_status tb_catalog_arena_reserved(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid);
/* What the bitmap of a shard says; it only grows. Cheap: call it as often as the
 * bitmaps are looked at. */
TB_MUST_USE enum tb_status tb_catalog_arena_progress(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid, uint32_t shard,
                                                     uint32_t held_chunks);
/* So many bytes for it came so far over links and hops, whether chunks became of them or not; from
 * 0 again when it begins again. Once a second will do: on a slow path a chunk takes longer than
 * the lease time after which home calls what nobody brings lost, and any site a crossing that
 * brings nothing stuck. */
TB_MUST_USE enum tb_status tb_catalog_arena_came(struct tb_catalog *c, tb_time_ns now,
                                                 const struct tb_id *uid, uint64_t bytes);
/* A chunk failed its re-verification: the shard has only so many now; and not fewer than before
 * where others have landed since: of a shard that is not whole it is believed. TB_DONE_BEFORE: it
 * is whole. References elsewhere are asked again. Where nobody else has all of it, home reads from
 * all that have a part (LAND_FROM, CROSS), and judges nothing lost until nothing has come from them
 * for one lease time; while a site that has a part is cut off, not at all. */
TB_MUST_USE enum tb_status tb_catalog_arena_shrunk(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_id *uid, uint32_t shard,
                                                   uint32_t held_chunks);
/* The memory of an EVICT was given back. */
TB_MUST_USE enum tb_status tb_catalog_evicted(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid);

struct tb_catalog_room {
    uint64_t needed;    /* bytes asked for */
    uint64_t evictable; /* could go, or is going */
    uint64_t heads;     /* held by heads */
    uint64_t pinned;    /* held by readers and operators' pins */
    uint64_t last_copies;
    uint64_t arriving;
};
/* `bytes_needed` beyond what is free. TB_OK: nothing is needed. TB_AGAIN: EVICT todos come or are
 * out, ask again after tb_catalog_evicted. TB_SITE_NOMEM: it does not fit, room_out says why;
 * nothing is evicted for it. Order: the oldest whole version, then superseded partial ones, then
 * bases of crossings. Never: a head, a version with readers or an operator's pin, the last copy of
 * one of the newest `keep`, or anything during recovery (TB_AGAIN while that could help). */
TB_MUST_USE enum tb_status tb_catalog_make_room(struct tb_catalog *c, tb_time_ns now, uint64_t bytes_needed,
                                                struct tb_catalog_room *room_out);

/* ---- other sites ---- */

/* A link to the site is up or down. What the site held it still holds while the link is down. Up is
 * also said of a session that took another's place (TB_DONE_BEFORE): what the site had announced
 * and does not announce again within a lease time it has no more. */
TB_MUST_USE enum tb_status tb_catalog_site_up(struct tb_catalog *c, tb_time_ns now,
                                              const struct tb_name *site, bool up);
/* The site's arena has a new life: it holds nothing until it says so. What it had announced it may
 * be asked for, for a lease time. */
void tb_catalog_site_forget(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name);
/* A peer says what it knows of a version. OPEN, READY, KEPT: it has it, or is getting it. Ends of a
 * life are believed from the model's home alone, or as a relay passes them on; home believes none
 * (its own state is the truth; RETIRED only ends that site's reference). LOST does not concern a
 * site that has it whole, or one of whose workers has. TB_CONFLICT: the uid or the (run_order,
 * number) is another version here; drop the peer. TB_NOT_FOUND: the model is not configured.
 * TB_SUPERSEDED: the model's share of rows is nearly full, and this one, which is not known here,
 * is older than what crosses. */
TB_MUST_USE enum tb_status tb_catalog_remote_version(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_name *from_site,
                                                     const struct tb_version_key *key,
                                                     enum tb_catalog_state state);
/* What a site holds of a version (its HELD bitmap, counted) and whether all its reader groups of
 * the model activated it. It only grows, until the site says RETIRED or is forgotten. Any site
 * may be spoken of that was not heard itself, and gives its place to one that is; never this
 * one: TB_BAD_ARGUMENT, or the only copy would be its own second one (P3). TB_DONE_BEFORE:
 * nothing of it is new. */
struct tb_catalog_site_progress {
    struct tb_name site;
    struct tb_name via; /* the relay whose word it is; empty: the site's own */
    struct tb_id uid;
    uint32_t held_chunks;
    bool whole;
    bool activated;
    bool itself; /* the site says so of itself; else another site does */
};
TB_MUST_USE enum tb_status tb_catalog_site_progress(struct tb_catalog *c, tb_time_ns now,
                                                    const struct tb_catalog_site_progress *p);
/* The site says of itself that it holds none of it any more. Unknown versions and sites are
 * fine. */
void tb_catalog_site_dropped(struct tb_catalog *c, tb_time_ns now, const struct tb_name *site,
                             const struct tb_id *uid);
/* CROSS is told again when the sites that can be asked for a version that is not whole changed: ask
 * those, in this order. Space is reserved and the manifest is on its way: the version is now
 * `next`, may be staged once it is ready, and its crossing is finished. */
TB_MUST_USE enum tb_status tb_catalog_crossing_begun(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid);
/* Is this still the one to cross? A newer one may have taken the place of one that was asked
 * for. */
bool tb_catalog_crossing_wanted(const struct tb_catalog *c, const struct tb_id *uid);
/* CROSS could not be done (no room, no link): it comes out again after retry_ns, or for a newer
 * one. */
TB_MUST_USE enum tb_status tb_catalog_crossing_refused(struct tb_catalog *c, tb_time_ns now,
                                                       const struct tb_id *uid);
/* CROSS can not be done in this life: nobody is asked for that version again. */
TB_MUST_USE enum tb_status tb_catalog_crossing_hopeless(struct tb_catalog *c, tb_time_ns now,
                                                        const struct tb_id *uid);
/* A crossing that has begun is given up for a newer one that will be whole sooner (abandon.h
 * decides): it ends as abandoned, and who stages it is told TB_SUPERSEDED. TB_BAD_STATE: it has
 * not begun, is whole, somebody waits for exactly this one, the model wants every version, or
 * nothing newer can cross. */
TB_MUST_USE enum tb_status tb_catalog_crossing_abandon(struct tb_catalog *c, tb_time_ns now,
                                                       const struct tb_id *uid);
/* At home, by an operator (`who` goes into the audit line). TB_NOT_HOME; TB_DONE_BEFORE;
 * TB_BAD_STATE: it is not ready, or it ended otherwise. */
TB_MUST_USE enum tb_status tb_catalog_withdraw(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                               const char *who);
/* It is the base of a crossing under way, or no more: `keep` spares it meanwhile, and who needs
 * room takes it last. TB_NOT_FOUND, TB_DONE_BEFORE. */
TB_MUST_USE enum tb_status tb_catalog_base(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                           bool used);
/* An operator's pin keeps it from retention. TB_DONE_BEFORE. TB_VERSION_*: it ended. */
TB_MUST_USE enum tb_status tb_catalog_pin(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                          bool pinned);

/* ---- following ---- */

/* The rule that keeps P2. A group has at most one open *attempt*: the uid that its members stage.
 * The first stage while there is none opens it, for the uid asked for. Until it ends, stage of any
 * other uid is refused with TB_CONFLICT and the attempt's uid, and latest and next waits of a
 * member are answered with the attempt's uid: so members that saw different heads meet. It ends
 *   - by `go`, when all members are there and have it staged whole;
 *   - for all, when a member is lost, unsubscribes or releases it before go
 *     (TB_GROUP_BROKEN), or the version
 * ends (its status);
 *   - as TB_SUPERSEDED, when a member stages a newer one that is whole here while
 *     the attempt's is not.
 * After go the group's uid is that one. A member that comes back later stages and activates it
 * without the others. Stage and activate of an older uid are refused (TB_BAD_STATE) unless the
 * group's was withdrawn. */
/* What a member computes from, and how new that is by its own word: believed of versions that the
 * catalog does not know. */
struct tb_catalog_active {
    struct tb_id uid; /* zero: nothing, or nothing any more */
    uint64_t run_order, number;
};
struct tb_catalog_member {
    struct tb_id session;
    uint32_t subscription; /* the session's number for it, above 0 */
    struct tb_name model;
    struct tb_name group;
    uint32_t index;
    uint32_t count;
    struct tb_catalog_active active;
};
/* The same again: TB_OK. TB_CONFLICT: another count for the group, the index is taken, or the
 * subscription is used otherwise. TB_BAD_ARGUMENT. An `active` that the catalog had not marked go
 * (it restarted) becomes the group's uid when it is newer. */
TB_MUST_USE enum tb_status tb_catalog_subscribe(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_catalog_member *m);
TB_MUST_USE enum tb_status tb_catalog_unsubscribe(struct tb_catalog *c, tb_time_ns now,
                                                  const struct tb_id *session, uint32_t subscription);

/* TB_OK: it stages; a PLAN follows when there is a source. *uid_out is the uid to ask for instead
 * when TB_CONFLICT, else the same. TB_BAD_STATE: backwards. TB_VERSION_*, TB_SUPERSEDED: it ended.
 * TB_NOT_FOUND: unknown here or not ready. TB_LAYOUT_MISMATCH is the library's. */
TB_MUST_USE enum tb_status tb_catalog_stage(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                            uint32_t subscription, const struct tb_id *uid,
                                            struct tb_id *uid_out);
/* This worker's staging can be read at this export of it. 0: it can not, and is no copy of the
 * version: nobody is sent there. */
TB_MUST_USE enum tb_status tb_catalog_export(struct tb_catalog *c, tb_time_ns now,
                                             const struct tb_id *session, const struct tb_id *uid,
                                             uint64_t export_id, uint32_t held_chunks, bool whole);
struct tb_catalog_progress {
    struct tb_id session;
    struct tb_id uid;
    uint32_t held_chunks;
    uint32_t total_chunks;
    bool whole;
    uint64_t bytes_per_s;
    uint8_t transport; /* as the worker says it; for status */
};
/* Held progress of a worker; whole counts towards go. */
TB_MUST_USE enum tb_status tb_catalog_progress(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_catalog_progress *p);
/* The source of that plan takes its reader in, and the reader is told: a worker that was to give
 * its place there up to it does so now. TB_DONE_BEFORE: an old plan. */
TB_MUST_USE enum tb_status tb_catalog_plan_told(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, const struct tb_id *uid,
                                                uint64_t plan);
/* The source of that plan failed: another PLAN without it until it shows progress (or retry_ns
 * passed and there is no other). TB_DONE_BEFORE: an old plan. */
TB_MUST_USE enum tb_status tb_catalog_hop_lost(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_id *session, const struct tb_id *uid,
                                               uint64_t plan);
/* TB_OK after go. TB_AGAIN before it, or while this member has not staged it whole. TB_BAD_STATE:
 * backwards, or never staged. TB_GROUP_BROKEN: the attempt ended. TB_VERSION_WITHDRAWN, _LOST,
 * _BROKEN. (Lost and broken do not take back a go: staged bytes are whole and verified.) */
TB_MUST_USE enum tb_status tb_catalog_activate(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_id *session, uint32_t subscription,
                                               const struct tb_id *uid);
/* The bytes are in the buffers. */
TB_MUST_USE enum tb_status tb_catalog_activated(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, uint32_t subscription,
                                                const struct tb_catalog_active *active);
/* What it took to get them there, as the worker says: for people, and nothing follows from it. */
struct tb_catalog_update {
    struct tb_id uid;
    uint8_t way; /* enum tb_session_way, or a later release's */
    uint32_t fetched_chunks;
    uint64_t stall_ns, staged_bytes, copied_bytes, patched_bytes;
};
/* Behind tb_catalog_activated of the same version, else TB_BAD_STATE. TB_PEER_LEASE,
 * TB_NOT_FOUND: it is no member. */
TB_MUST_USE enum tb_status tb_catalog_updated(struct tb_catalog *c, const struct tb_id *session,
                                              uint32_t subscription, const struct tb_catalog_update *update);
/* The worker's staging of it goes: nobody is sent there any more, its readers are planned anew.
 * TB_DONE_BEFORE: it has none. */
TB_MUST_USE enum tb_status tb_catalog_release(struct tb_catalog *c, tb_time_ns now,
                                              const struct tb_id *session, const struct tb_id *uid);

enum tb_catalog_wait_kind {
    TB_CATALOG_WAIT_MINIMUM = 0, /* the first four as enum tb_wait_kind of tombolo.h */
    TB_CATALOG_WAIT_EXACT,
    TB_CATALOG_WAIT_LATEST,
    TB_CATALOG_WAIT_NEXT,
    TB_CATALOG_WAIT_SITE_HOLDS,
    TB_CATALOG_WAIT_SITE_ACTIVATED,
};
struct tb_catalog_wait {
    uint64_t handle;      /* the caller's name for it, unique */
    struct tb_id session; /* zero: the gateway's own (control socket) */
    enum tb_catalog_wait_kind kind;
    struct tb_name model;
    uint64_t run_order; /* EXACT; 0: the newest run that has the number */
    uint64_t number;    /* MINIMUM, EXACT */
    /* LATEST, NEXT: newer than this one, or another when this one was withdrawn; zero: any */
    struct tb_id after;
    struct tb_id uid;    /* SITE_* */
    struct tb_name site; /* SITE_*; empty: this one */
    tb_time_ns deadline; /* TB_TIME_NEVER: none; not after now: asks once */
};
/* TB_OK: one ANSWER follows, maybe at once: TB_OK, TB_AGAIN (asked once), TB_TIMEOUT,
 * TB_CANCELLED, TB_VERSION_LOST, _BROKEN, _WITHDRAWN for an exact one or a uid that will not come.
 * EXACT, MINIMUM and LATEST are whole here; an EXACT version that is known and was never here is
 * crossed for its waiter. */
TB_MUST_USE enum tb_status tb_catalog_wait(struct tb_catalog *c, tb_time_ns now,
                                           const struct tb_catalog_wait *w);
void tb_catalog_cancel(struct tb_catalog *c, tb_time_ns now, uint64_t handle);

/* ---- looking (status JSON) ---- */

/* By (run_order, number); run_order 0: the newest run that has it. TB_NOT_FOUND. */
TB_MUST_USE enum tb_status tb_catalog_find(const struct tb_catalog *c, const struct tb_name *model,
                                           uint64_t run_order, uint64_t number, struct tb_id *uid_out);

/* For checks of this catalog's own work: each version's row has a reason to exist.
 * False: uid_out's has none. */
bool tb_catalog_reasons(const struct tb_catalog *c, struct tb_id *uid_out);

struct tb_catalog_version_view {
    struct tb_version_key key;
    enum tb_catalog_state state;
    bool crossing; /* it has begun, and is not whole */
    bool wanted;   /* somebody waits for exactly this one */
    uint64_t bytes;
    uint32_t chunk_count;
    uint32_t held_chunks;  /* here, at the gateway */
    uint32_t sealed_count; /* shards */
    bool whole;            /* here */
    bool arriving;         /* space is reserved and it is not whole */
    bool head;
    bool pinned;
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
};
/* What stands in the way of a member that stages or activates a version, where the
 * answer is TB_BAD_STATE. */
enum tb_catalog_obstacle {
    TB_OBSTACLE_NONE,      /* no such member */
    TB_OBSTACLE_NEWER,     /* the group's last go was for a newer version, which was not withdrawn */
    TB_OBSTACLE_ATTEMPT,   /* the group stages another version */
    TB_OBSTACLE_STAGED,    /* this member staged another version since */
    TB_OBSTACLE_NOT_STAGED /* the gateway has not heard that this member stages it */
};
struct tb_catalog_obstacle_view {
    enum tb_catalog_obstacle kind;
    struct tb_name group;
    uint64_t run_order, number; /* of the other version; 0 for NOT_STAGED */
};
struct tb_catalog_member_view {
    struct tb_name model, group, worker;
    struct tb_id session, active, staging;
    struct tb_catalog_update update; /* how it got to `active`; uid zero: nothing was said of that */
    uint32_t index;
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
bool tb_catalog_member_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_member_view *out);
struct tb_catalog_obstacle_view tb_catalog_obstacle_of(const struct tb_catalog *c,
                                                       const struct tb_id *session, uint32_t subscription,
                                                       const struct tb_id *uid);
/* How that session came to that version, if it is active in a member of it; false: it is not, or
 * nothing was said of it. */
bool tb_catalog_update_get(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                           struct tb_catalog_update *out);
/* Some member of a group of that model computes from what it got in that way. */
bool tb_catalog_updated_by(const struct tb_catalog *c, const struct tb_name *model, uint8_t way);
bool tb_catalog_reference_at(const struct tb_catalog *c, uint32_t *cursor,
                             struct tb_catalog_reference_view *out);
bool tb_catalog_model_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_model *out);
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
