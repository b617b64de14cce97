/* todos.h - what the owner of a catalog is told to do. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_TODOS_H
#define TB_GATEWAY_CATALOG_TODOS_H

#include "base/layout/manifest.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/version_state.h"

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

#endif
