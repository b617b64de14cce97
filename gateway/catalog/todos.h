/* todos.h - what the owner of a catalog is told to do. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_TODOS_H
#define TB_GATEWAY_CATALOG_TODOS_H

#include "base/layout/version_key.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/version_state.h"

/* Behind each kind: its fields, and what the owner does. */
enum tb_catalog_todo_kind {
    /* Durable, and first. Each is one row and one audit line in one transaction. */

    /* run, session (of `who`): insert or update by run.id */
    TB_CATALOG_PERSIST_RUN = 1,
    /* key, state, bytes, status, why, who; shard and session of a rank that is to blame: log it,
     * and tell the links */
    TB_CATALOG_PERSIST_VERSION,
    /* model, uid (zero: none), pinned: the head when `head`, else an operator's pin or its end */
    TB_CATALOG_PERSIST_POINTER,

    /* To this site's machinery. */

    /* uid, shard (or ALL_SHARDS), session, export_id: the gateway lacks it, and may read it
     * there */
    TB_CATALOG_LAND_FROM,
    TB_CATALOG_LAND_END, /* uid, shard, session, export_id: the gateway may not any more */
    /* key, from: ask these sites in this order; answer with crossing_begun or crossing_refused */
    TB_CATALOG_CROSS,
    /* uid, status: give its memory back, tell peers, then call tb_catalog_evicted. TB_OK:
     * retention; else the reason of its end */
    TB_CATALOG_EVICT,
    /* uid, whole, activated: tell peers that this site holds it, that every group here activated
     * it */
    TB_CATALOG_SITE_STATE,
    /* session, name: its lease ran out; close its connection and revoke its grants */
    TB_CATALOG_SESSION_LOST,

    /* To workers. Those for a detached session wait until it resumes. */

    /* session, uid, status: VERSION_STATE. TB_OK: kept; else lost, broken, withdrawn, superseded,
     * group broken, pin lost */
    TB_CATALOG_TELL,
    TB_CATALOG_GO, /* session, subscription, uid */
    /* session (the reader), uid, plan, from_gateway or source_session + export_id: PLAN to the
     * reader, GRANT to the source */
    TB_CATALOG_PLAN,
    /* session (the reader), uid, plan: it has no source now, and another PLAN follows when there is
     * one. Revoke its grant */
    TB_CATALOG_PLAN_END,
    TB_CATALOG_ANSWER, /* wait, session, status; for TB_OK of a wait also key, bytes, whole */
    /* session, uid, shard (as the request named it), status. TB_TIMEOUT: the references stay,
     * except those that were said to be gone meanwhile, which have an answer of their own.
     * TB_PEER_REVOKED: the shard went with its memory */
    TB_CATALOG_UNPUBLISHED,
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
    const char *who; /* operator of a withdrawal or a pin; identity that opened a run; "" */
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
    bool withdrawn_here; /* `state` is withdrawn, for this site alone */
    uint32_t from_count;
    struct tb_name from[TB_CATALOG_FROM_MAX];
};

/* False: nothing more to do now. */
bool tb_catalog_next(struct tb_catalog *c, struct tb_catalog_todo *todo_out);

/* For an owner that writes later. It calls unsaved when it takes a PERSIST_* todo, and saved when
 * that is on disk, or is given up. `uid` zero: a run, or the head. An owner that writes before it
 * goes on calls neither.
 *
 * Between the two these todos stay marks: EVICT, SITE_STATE, PLAN, TELL and UNPUBLISHED of that
 * version; GO, and TELL and ANSWER to members and waits, of that model. All others go on. */
void tb_catalog_unsaved(struct tb_catalog *c, const struct tb_name *model, const struct tb_id *uid);

void tb_catalog_saved(struct tb_catalog *c, const struct tb_name *model, const struct tb_id *uid);

#endif
