/* session_table.h - the rows of workers' sessions, and of what they export. A leaf. */
#ifndef TB_DAEMON_SESSION_TABLE_H
#define TB_DAEMON_SESSION_TABLE_H

#include "base/ident.h"
#include "base/net/wire.h"
#include "gateway/daemon/sessions/session_limits.h"
#include "intra/fabric/fabric.h"

struct tb_daemon;

/* A worker's export of a version: a sealed shard, or its staging. */
struct tb_worker_export {
    struct tb_worker_export *next;
    struct tb_id uid;
    struct tb_id base; /* its shelf has deltas to that version; zero: it has none */
    uint32_t shard;    /* TB_CATALOG_ALL_SHARDS: its staging */
    uint64_t export_id;
    uint32_t again; /* damaged chunks of it that the worker fetches once more */
    uint32_t source_bytes;
    uint8_t source[]; /* as tb_source_encode wrote it */
};

struct tb_pending_wait {
    struct tb_pending_wait *next;
    uint64_t handle; /* the catalog's name for it */
    uint64_t request;
};

struct tb_unpublish_wait {
    struct tb_unpublish_wait *next;
    struct tb_id uid;
    uint32_t shard; /* or TB_CATALOG_ALL_SHARDS */
    uint64_t request;
    enum tb_status status; /* the worst that was told of it so far */
    bool judged;           /* that is of this shard by itself: a status of all concerns the others */
};

struct tb_worker_session {
    struct tb_worker_session *next, *previous;
    struct tb_worker_session *bucket_next; /* of those that once had a HELLO, by id */
    bool bucketed;
    struct tb_daemon *d;
    struct tb_wire *wire; /* NULL while it is away within its lease */
    struct tb_id id;
    bool welcomed;
    bool refused; /* it was told why; its end is no second refusal */
    /* over a unix socket, from a network namespace of its own: no door of the other's can
     * be reached by its name */
    bool apart;
    bool local;   /* by the unix socket */
    bool revoked; /* its certificate is on the list: it ends and does not wait for its lease */
    struct tb_worker_session_door door;
    /* The last refusal of tb_worker_may: the reply to it names the list. */
    struct tb_name denied_model;
    bool denied_publish;
    struct tb_identity identity;
    struct tb_name name;
    struct tb_fabric_endpoint endpoint; /* of its door */
    uint64_t expires_wall_s;            /* of its certificate; 0: none */
    uint32_t held_replies;              /* that wait for the disk */
    uint32_t tensors_made;              /* answers on a version's tensors, in the second from tensors_at on */
    tb_time_ns tensors_at;
    uint64_t since_wall_ms;
    struct tb_worker_export *exports;
    struct tb_pending_wait *waits;
    struct tb_unpublish_wait *unpublishes;
};

#define TB_SESSION_BUCKETS 4096u

/* A connection's row; NULL: no memory. */
struct tb_worker_session *tb_worker_new(struct tb_daemon *d, bool local);
void tb_worker_enlist(struct tb_worker_session *s); /* it has its id now */
void tb_worker_free(struct tb_worker_session *s);   /* its row, exports and waits */
struct tb_worker_session *tb_worker_find(struct tb_daemon *d, const struct tb_id *id);
/* An address of a door; "" has none, and counts as well. */
bool tb_worker_is_loopback(const char *tcp);
struct tb_worker_export *tb_worker_export_find(struct tb_worker_session *s, const struct tb_id *uid,
                                               uint32_t shard);
/* TB_SITE_NOMEM, also where there are as many as there can be references. */
enum tb_status tb_worker_export_put(struct tb_worker_session *s, const struct tb_worker_export *export,
                                    const struct tb_span *source);
uint64_t tb_worker_sources_max(void); /* bytes of the descriptors of all exports */
void tb_worker_export_drop(struct tb_worker_session *s, struct tb_worker_export **at);
/* Exports of sealed shards: one, or all except those whose end is told by itself. */
void tb_worker_exports_drop(struct tb_worker_session *s, const struct tb_id *uid, uint32_t shard);

#endif
