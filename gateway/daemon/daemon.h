/* daemon.h - what the rooms of tombolod share. Private to gateway/daemon.
 *
 * Everything here lives on the main loop's thread. The catalog decides; this folder carries its todos out
 * with the arena (memory), the fabric (inside the site), the links (to other sites), the store (disk) and the
 * sessions (workers).
 *
 *   main.c           command line, signals, the loop
 *   daemon.c         opening and closing everything in order; the tick
 *   dispatcher.c     what was marked in a turn of the loop is concluded, and rooms are called
 *   catalog_todos.c  the catalog's todos, one function each
 *   persist.c        the durable ones, on their way to the disk; what waits for them
 *   store_restore.c  at start: what the store knows, into the catalog
 *   copy_table.c     the rows of this gateway's copies
 *   copies.c         this gateway's copy of each version: region, export, offers, and giving it back
 *   repair.c         reports of damaged chunks: own copies are digested, workers asked to digest theirs
 *   copy_shelf.c     encoded chunks beside it; shelves.c: the thread that makes them
 *   home_landing.c   at home: hops from the ranks that sealed
 *   crossings.c      what is asked of links, and offered; crossing_room.c: space for what crosses to here
 *   link_events.c    what links say; link_reports.c: what sites report of versions; link_opening.c: links opened
 *   peer_rights.c    whose home a model is, and which peers may read it
 *   site_lag.c       what this site holds of a model, how far it is behind, and why; site_records.c: what it tells peers of that, and they it
 *   crossing_policy.c         is a crossing given up for a newer version?
 *   anchors.c        whole versions on a disk, for a reboot
 *   adopt.c          versions that stand in files here; adopt_read.c reads them
 *   peer_limits.c         how much is sent to each peer: rates, hours, a day's bytes
 *   home_runs.c      a home whose store is new or restored asks which runs other sites remember
 *   found_streams.c    how many streams each peer's path takes, over restarts
 *   session_table.c  the rows of workers' sessions; session_reply.c: replies, and rights
 *   sessions.c       workers' connections; session_repair.c, session_publish.c, session_follow.c: what they ask
 *   control.c        the operator's socket; site_status.c, link_status.c, chain_status.c: what it answers */
#ifndef TB_DAEMON_DAEMON_H
#define TB_DAEMON_DAEMON_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "base/clock.h"
#include "base/damage_reports.h"
#include "base/log.h"
#include "base/net/resolve.h"
#include "base/net/wire.h"
#include "gateway/arena/arena.h"
#include "gateway/catalog/abandon.h"
#include "gateway/catalog/catalog.h"
#include "gateway/config/bounds.h"
#include "gateway/config/config.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/copies/shelves.h"
#include "gateway/daemon/links/lag.h"
#include "gateway/store/store.h"
#include "intra/fabric/fabric.h"
#include "intra/session_msg.h"
#include "wan/link/links.h"
#include "wan/send/budget.h"

/* A status that says nothing new here: what it concerns ended meanwhile, and the catalog has told so or will. */
#define TB_MOOT(call)                                                                                        \
    do {                                                                                                     \
        if (call) {                                                                                          \
        }                                                                                                    \
    } while (0)

struct tb_daemon;

/* How full a list of this folder's is. */
struct tb_gauge {
    uint64_t used, most; /* now; at once so far */
    uint64_t refused;    /* for want of room */
};
static inline void tb_gauge_add(struct tb_gauge *g, uint64_t count)
{
    g->used += count;
    if (g->used > g->most) g->most = g->used;
}

#define TB_DAEMON_TABLES 32u
/* What was said of a table. */
struct tb_table_told {
    uint64_t refused; /* requests, when it was looked last */
    bool full;        /* the line stands */
};

/* Counters of the status page: each only grows. docs/operations.md says what to do when one rises. */
/* clang-format off */
#define TB_COUNTERS(X)                                                                     \
    X(sessions_opened) X(sessions_refused) X(sessions_garbled) X(sessions_lost) X(denied)  \
    X(seals) X(seals_refused)                                                              \
    X(versions_ready) X(versions_kept) X(versions_lost) X(versions_broken)                 \
    X(versions_withdrawn) X(versions_abandoned)                                            \
    X(hops_lost) X(chunks_bad) X(plans)                                                    \
    X(evictions) X(arena_refused) X(tables_full) X(store_failed)                           \
    X(links_up) X(links_down) X(links_refused) X(links_twins) X(reports_refused)          \
    X(runs_refused) X(runs_below)                                                          \
    X(lives_changed) X(verify_bad) X(chunks_rotted) X(chunks_repaired) X(budgets_held)     \
    X(certificates_loaded) X(certificates_refused)                                         \
    X(anchors_written) X(anchors_failed) X(anchors_bad) X(adopted_chunks)
/* clang-format on */
struct tb_counters {
#define TB_COUNTER_FIELD(name) uint64_t name;
    TB_COUNTERS(TB_COUNTER_FIELD)
#undef TB_COUNTER_FIELD
};

/* ---- a worker's connection ---- */

/* What a worker exports of a version: a sealed shard, or its staging. */
struct tb_worker_export {
    struct tb_worker_export *next;
    struct tb_id uid;
    struct tb_id base; /* its shelf has differences to that version; zero: it has none */
    uint32_t shard;    /* TB_CATALOG_ALL_SHARDS: its staging */
    uint64_t export_id;
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
    bool judged;           /* that is of this shard by itself: what is told of all is of the others */
};

struct tb_worker_session {
    struct tb_worker_session *next, *previous;
    struct tb_worker_session *bucket_next; /* of those that once had a HELLO, by id */
    bool bucketed;
    struct tb_daemon *d;
    struct tb_wire *wire; /* NULL while it is away within its lease */
    struct tb_id id;
    bool welcomed;
    bool
        apart; /* over a unix socket, from a network namespace of its own: no door of the other's can be reached by its name */
    bool local; /* by the unix socket */
    /* What tb_session_may refused last: the reply to it names the list. */
    struct tb_name denied_model;
    bool denied_publish;
    struct tb_identity identity;
    struct tb_name name;
    struct tb_fabric_endpoint endpoint; /* of its door */
    uint64_t expires_wall_s;            /* of its certificate; 0: none */
    uint32_t held_replies;              /* that wait for the disk */
    uint64_t since_wall_ms;
    struct tb_worker_export *exports;
    struct tb_pending_wait *waits;
    struct tb_unpublish_wait *unpublishes;
};

/* ---- this gateway's copy of a version ---- */

struct tb_copy_hop { /* at home: from one rank */
    struct tb_copy_hop *next;
    struct tb_copy *copy;
    struct tb_hop *hop; /* NULL: waiting to be tried again */
    uint64_t serial;    /* of this opening: a note of an earlier one is not taken for its own */
    struct tb_id session;
    uint32_t shard; /* or TB_CATALOG_ALL_SHARDS */
    uint64_t export_id;
    struct tb_id token; /* that its rank was asked to grant */
    tb_time_ns retry_at;
    tb_time_ns looks_until; /* its rank digests its own copy of this chunk; 0: it was not asked */
    uint32_t looks_shard, looks_chunk;
    bool for_objects;     /* its chunks are all here: what the rank still encodes is what it is open for */
    struct tb_copy *base; /* it decodes from this; NULL: nothing */
    const struct tb_place *base_place;
    /* For objects, which come on the fabric's threads; they stay as long as the hop is open. */
    struct tb_objects *objects;
    const struct tb_place *place; /* they are of; NULL: not known yet */
    tb_time_ns opened_at;
    atomic_uint classes; /* of one that came; 0: none did */
    /* Of those that came since it was opened: what they are decoded, and as they came. */
    atomic_uint_fast64_t raw_bytes, wire_bytes;
    struct tb_id uid, on; /* on: the base that the rank encodes on; zero: it does not */
    uint32_t shard_count;
};

/* Who reads a copy's bytes here: the catalog spares it. Each sets and clears its own bit. */
enum tb_copy_user {
    TB_COPY_USED_BY_LANDING = 1, /* hops of a newer version decode from it */
    TB_COPY_USED_BY_ANCHOR = 2,  /* it is being written to a disk */
};

struct tb_copy {
    struct tb_copy *next;
    struct tb_daemon *d;
    struct tb_version_key key;
    struct tb_arena_region *region; /* NULL: no space yet (its manifests are on their way) */
    uint64_t export_id;             /* 0: not exported */
    uint8_t *source;                /* its descriptor, for PLAN */
    uint32_t source_bytes;
    struct tb_shelf shelf; /* encoded chunks, for workers that hold shelf_base */
    void *shelf_memory;    /* NULL: it has none */
    struct tb_shelf_work *shelf_work;
    struct tb_copy *shelf_base; /* that the work reads; NULL: none is done */
    bool ready;                 /* home said so: it may be offered and staged */
    bool offered;
    bool offer_due; /* it can be served: the dispatcher offers it to the links */
    bool whole;
    bool activated; /* by every group here */
    struct tb_copy_hop *hops;
    /* Crossing here. */
    bool crossing;
    uint32_t from_count;
    struct tb_name from[TB_CATALOG_FROM_MAX]; /* in order of preference */
    bool asked;                               /* manifests are on their way */
    bool wants_room;                          /* reserve again when something was evicted */
    /* The arena had no room for so many bytes when it was asked last; false: it had, or was not asked. */
    bool lacks_room;
    uint64_t room_bytes;
    /* Why it could not cross and what room it lacked, as the log was told last; TB_OK and zero: nothing since it began. */
    enum tb_status refused_told;
    struct tb_digest room_told;
    enum tb_status
        failed; /* the last time that it did, since something of it was held last; TB_OK: it did not */
    bool failed_lately; /* since its pace was looked at: it is shown for a second at least */
    uint32_t used_by;   /* bits of enum tb_copy_user */
    bool base;          /* it is used, also by a crossing under way, as the catalog was told */
    /* Being given back. */
    bool evicting;
    enum tb_status evict_why;
    uint32_t evict_waits;     /* retract and land_stop under way */
    uint64_t hop_wire_bytes;  /* read from ranks by hops that ended */
    uint64_t link_wire_bytes; /* delivered by links that were closed (restart_closed opens new ones) */
    uint32_t rotted;          /* chunks found damaged since it was whole last */
    tb_time_ns rotted_at;     /* the first of them */
    tb_time_ns seen_at, whole_at;
    tb_time_ns asked_at, landing_at, activated_at; /* its stages (version_status.c); 0: not begun */
    struct tb_lag_pace pace;                       /* bytes held */
    struct tb_lag_pace came;                       /* bytes, chunks or not */
    tb_time_ns pace_ns; /* the longest that what one of its ranks encodes took to come; 0: not known */
    uint64_t opened_wall_ms;
};

/* A SEAL that waits for room: its frame, to be handled again. */
struct tb_parked_seal {
    struct tb_parked_seal *next;
    struct tb_id session;
    struct tb_id uid;
    uint32_t shard;
    uint64_t request;
    tb_time_ns deadline;
    uint32_t bytes;
    uint8_t payload[];
};

/* A model's crossing, as it is weighed against newer ones. */
struct tb_policy {
    struct tb_abandon abandon;
    struct tb_id uid;    /* of the version that crosses; zero: none */
    uint64_t wire_bytes; /* that came for it, as counted last */
};

/* A worker was asked to digest its copy of a chunk, and has not answered. */
struct tb_asked {
    struct tb_id holder, uid;
    uint32_t shard, chunk;
};

/* From the fabric's thread to ours. */
struct tb_hop_note {
    uint64_t serial; /* not the hop's address: the next hop may stand where a closed one stood */
    struct tb_hop_event event;
};
#define TB_HOP_NOTES_MAX   256
#define TB_SESSION_BUCKETS 4096u

/* What may be sent to a peer: the config's, until an operator says otherwise. */
struct tb_peer_limit {
    struct tb_rate_plan rate;
    struct tb_budget budget;
    uint64_t bit_per_s;     /* now */
    uint64_t counted_bytes; /* of the links' bytes_sent */
    enum tb_budget_state told;
};

struct tb_daemon {
    uv_loop_t loop;
    bool has_loop; /* it could be made; before that there is nothing to close */
    struct tb_config *config;
    struct tb_name site; /* as other sites know this gateway: config->label */
    struct tb_name gateway, host;
    uint64_t incarnation;
    tb_time_ns started_at;

    struct tb_tls *tls;
    /* the files as they were when they were read, and when they were looked at */
    struct tb_digest tls_mark, tls_seen;
    tb_time_ns tls_again_at; /* they were refused, and are read again then; 0: they are what is loaded */
    char tls_refused[512];   /* why */
    struct tb_resolver *resolver;
    struct tb_store *store;
    struct tb_arena *arena;
    void *catalog_memory;
    struct tb_catalog *catalog;
    struct tb_fabric *fabric;
    struct tb_fabric_endpoint endpoint; /* of our door */
    struct tb_shelves *shelves;         /* NULL: there was nothing to encode yet */
    struct tb_objects *objects;         /* encoded chunks, for links and shelves; NULL: none are kept */
    struct tb_links *links;
    bool links_restarting;
    struct tb_control *control;
    struct tb_listener *session_unix, *session_tls;

    struct tb_worker_session *sessions;
    struct tb_worker_session *session_buckets[TB_SESSION_BUCKETS];
    uint32_t session_count;  /* connections, and sessions that are away */
    bool sessions_full;      /* told */
    bool records_full_told;  /* that there is no row for what a peer said of a site */
    bool records_again;      /* a link came up or went down: peers hear this site's state again */
    struct tb_site_own *own; /* of config->models: site_lag.h */
    bool places_refused;     /* since the last poll: to what peers hold */
    bool places_told;        /* before it */
    bool news_refused;       /* a version that a peer announced found no row: it is heard again */
    struct tb_bounds bounds; /* of the catalog's tables */
    struct tb_table_told tables_told[TB_DAEMON_TABLES];
    struct tb_gauge connections, worker_exports, copies_used, parked_bytes, plan_waits_used;
    struct tb_copy *copies;
    struct tb_parked_seal *parked;
    struct tb_home_runs *home_runs; /* of models whose home is here */
    bool new_home; /* the operator says that no other site remembers a run (tombolod --new-home) */
    struct tb_plan_wait *plan_waits;
    uint64_t next_export_id, next_wait, next_hop;
    struct tb_choice_pace paces[TB_CONFIG_LIST_MAX]; /* of config->models: the last step, from its ranks */
    struct tb_counters counters;

    struct {
        uint64_t bytes, bytes_per_s; /* over the last second, both ways */
        struct tb_lag_pace pace;
    } goodput[TB_CONFIG_LIST_MAX];

    struct tb_peer_limit limits[TB_CONFIG_LIST_MAX];
    struct tb_store_path found[TB_CONFIG_LIST_MAX]; /* streams 0: nothing */
    struct tb_id
        peer_lives[TB_CONFIG_LIST_MAX]; /* of the peers' arenas, by their last HELLO; zero: none came */
    struct tb_policy policies[TB_CONFIG_LIST_MAX]; /* of config->models */

    uv_prepare_t before_wait;
    uv_check_t after_wait;
    uv_timer_t tick;
    uint64_t tick_ms;
    tb_time_ns polled_at, slow_at, drain_at;
    uv_signal_t sigterm, sigint, sighup;
    uv_async_t hop_wake, verify_wake;
    pthread_mutex_t hop_lock;
    struct tb_hop_note hop_notes[TB_HOP_NOTES_MAX];
    uint32_t hop_note_count;
    bool hop_notes_lost; /* more came than fit: every hop is looked at */

    struct tb_anchors *anchors; /* NULL: no anchor.dir */
    struct tb_adopt *adopt;     /* NULL: none was asked for yet */

    pthread_t verifier;
    bool verifier_runs;
    _Atomic bool verifier_stop;
    struct tb_asked asked[TB_DOUBTS_MAX]; /* the last looks that workers were asked for */
    uint32_t asked_next;
    struct tb_doubts doubts; /* of what stands here, or at workers that this gateway asks */
    bool life_untold; /* chunks were damaged: the links have to begin anew, under the arena's new life */
    tb_time_ns life_told_at;
    _Atomic uint32_t verify_bad;
    _Atomic uint64_t verified_bytes, huge_bytes;
    _Atomic bool verify_done;

    struct tb_persist *persist; /* rows on their way to the disk, and what waits for them */
    uv_async_t store_wake;
    bool store_down;
    bool woken;      /* something was marked that the dispatcher has to look at */
    bool turning;    /* it does */
    bool room_freed; /* in the arena, or the catalog lets go of some: who waits for room asks again */
    bool opening;    /* before the loop runs: a signal sets draining, and what takes long looks at it */
    bool draining;
    bool fault; /* something that must not happen did: exit code 1 */
    bool left;  /* a thread waits for a disk that does not answer, and what it touches is left as it is */
    tb_time_ns close_until;
};

/* daemon.c */
/* Errors are logged with what to do. TB_SITE_*. */
TB_MUST_USE enum tb_status tb_daemon_open(struct tb_daemon *d, struct tb_config *config);
void tb_daemon_run(struct tb_daemon *d); /* until SIGTERM or SIGINT has drained */
void tb_daemon_close(struct tb_daemon *d);

/* shutdown.c: the end waits for disks until drain_ms are over, and two seconds at least from the last grant: at its begin, and for
 * each thing that the store has to write. */
void tb_closing_grant(struct tb_daemon *d);
uint32_t tb_closing_ms(const struct tb_daemon *d); /* that are left of that */
/* False: there are none left, and it is not done. */
bool tb_closing_awaits(const struct tb_daemon *d, const _Atomic bool *done);
/* Whoever waits for this disk is left behind: nothing that it may touch is given back, and the exit code is 1. */
void tb_closing_left(struct tb_daemon *d, const char *what, const char *path);

/* Something was told to the catalog, or marked in a row: the dispatcher looks at it in this turn
 * of the loop. Only sets a mark. */
static inline void tb_daemon_wake(struct tb_daemon *d)
{
    d->woken = true;
}

/* dispatcher.c: draws the conclusions of all that was marked, until nothing is. By the loop,
 * once per turn: no room calls it. */
void tb_daemon_turn(struct tb_daemon *d);
/* At the end: rows are written while shutdown.c has time for it, and what rests on them goes
 * out. */
void tb_daemon_flush(struct tb_daemon *d);

/* catalog_todos.c */
/* persist.c has it: what rests on it waits until it is on disk. */
bool tb_todo_durable(const struct tb_catalog_todo *todo);
void tb_todo_do(struct tb_daemon *d, const struct tb_catalog_todo *todo); /* one that is not durable */
/* A version's new state is durable (or the disk given up for now): the log, the links, what follows here. */
void tb_version_saved(struct tb_daemon *d, const struct tb_catalog_todo *todo);

/* certificates.c: at start; when the operator says SIGHUP; once a second. */
TB_MUST_USE enum tb_status tb_certificates_open(struct tb_daemon *d, char error[512]);
void tb_certificates_reload(struct tb_daemon *d);
void tb_certificates_tick(struct tb_daemon *d);

/* persist.c */
/* A request whose answer waits for the disk; a struct of the caller's that begins with this. */
struct tb_held {
    struct tb_held *next;
    uint64_t after; /* the number of a row */
    /* Frees it. TB_OK; TB_SITE_STORE: the disk is given up for now; TB_SITE_DRAINING. */
    void (*fn)(struct tb_daemon *d, struct tb_held *held, enum tb_status status);
};
/* Calls fn once all that the catalog wants durable by now is on disk, in this turn at the
 * earliest. TB_SITE_NOMEM: too many wait. */
TB_MUST_USE enum tb_status tb_persist_then(struct tb_daemon *d, struct tb_held *held);
TB_MUST_USE enum tb_status tb_persist_open(struct tb_daemon *d);
/* Closes the store, behind tb_daemon_flush. */
void tb_persist_close(struct tb_daemon *d);
/* The dispatcher's: a version's state that is on disk now, or whose disk is given up for now.
 * False: there is no other; what it points to stays until the next call. */
bool tb_persist_next(struct tb_daemon *d, struct tb_catalog_todo *saved_out);
uint64_t tb_persist_incarnation_written(struct tb_daemon *d); /* once; 0: none was */
/* At the end: writes rows, and waits for them. False: all are written, the store fails, or its
 * disk does not answer. */
bool tb_persist_flush(struct tb_daemon *d);
bool tb_persist_room(struct tb_daemon *d);
void tb_persist_todo(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_persist_settled(struct tb_daemon *d, bool all); /* all: the catalog has no rows left */
/* The store cannot be written: counts, and logs once a time. */
void tb_persist_down_log(struct tb_daemon *d, const char *why);
void tb_persist_tick(struct tb_daemon *d);
void tb_persist_wake(uv_async_t *async);
void tb_persist_spent(struct tb_daemon *d, const struct tb_store_spent *spent);
void tb_persist_path(struct tb_daemon *d, const struct tb_store_path *path);
void tb_persist_doubt(struct tb_daemon *d, const struct tb_store_doubt *doubt);
uint32_t tb_persist_waiting(const struct tb_daemon *d); /* rows that are not on disk */
/* Of rows: refused are those that others overtook. Of requests that wait for them. Their bounds. */
struct tb_persist_usage {
    struct tb_gauge rows, held;
    uint32_t rows_max, held_max;
};
void tb_persist_usage(const struct tb_daemon *d, struct tb_persist_usage *usage_out);
bool tb_persist_saved(const struct tb_daemon *d, const struct tb_id *uid);
/* Runs, versions and pins from the store into the catalog; raises and writes the incarnation. Waits for the disk. */
TB_MUST_USE enum tb_status tb_persist_restore(struct tb_daemon *d);
/* Raises it above that, which a peer says that it has seen, or a good step towards it; links say it once it is on disk. */
void tb_persist_incarnation(struct tb_daemon *d, uint64_t seen);

/* copy_table.c */
void tb_copy_free(struct tb_copy *copy); /* its row: nothing of it is open any more */
struct tb_copy *tb_copy_find(struct tb_daemon *d, const struct tb_id *uid);
/* Makes it; NULL: no memory. */
struct tb_copy *tb_copy_get(struct tb_daemon *d, const struct tb_version_key *key);
/* copies.c */
/* Everything in the arena becomes a copy again, and the catalog hears of it. */
void tb_copies_restore(struct tb_daemon *d);
/* Export, offer: what a complete region allows now. */
void tb_copy_serve(struct tb_copy *copy);
void tb_copy_evict(struct tb_copy *copy, enum tb_status why);
/* Its version ended. Where nothing of it has a place here, the next tick frees it. */
void tb_copy_ended(struct tb_copy *copy, enum tb_status why);
/* Bitmaps to the catalog; retries. True while something is on its way. */
bool tb_copies_tick(struct tb_daemon *d);
/* Bitmaps to the catalog, now: before it hears that somebody who has a version goes, or gave it up. It would call the version
 * lost for chunks that landed since the last tick. */
void tb_copies_look(struct tb_daemon *d);
/* What the verifier found, now: when it wakes this loop, and before a rank takes back memory that the lacking chunk is in. */
void tb_copies_rotted(struct tb_daemon *d);
void tb_copies_free(struct tb_daemon *d);

/* repair.c */
struct tb_report { /* that a chunk is damaged where it stands */
    struct tb_id uid;
    uint32_t shard, chunk; /* as said: bounded by repair.c */
    uint64_t reporter;     /* equal for reports that share a part of the looks (base/damage_reports.h) */
    bool object;           /* not the chunk: its encoded form, on the holder's shelf */
};
uint64_t tb_repair_reporter(const struct tb_worker_session *s);
/* Digests the chunk of this gateway's own copy. TB_OK: it is good. TB_CHUNK_DIGEST: it is not, is not held any more, and is
 * fetched again. TB_CHUNK_ABSENT: it is not here. TB_AGAIN: not looked at, as it was lately, or too many were. */
TB_MUST_USE enum tb_status tb_repair_arena(struct tb_daemon *d, const struct tb_report *r);
/* Digests the encoded chunk of this gateway's own shelf, likewise; TB_CHUNK_DIGEST: it is shown to nobody any more. */
TB_MUST_USE enum tb_status tb_repair_shelf(struct tb_daemon *d, const struct tb_report *r);
/* That holder was asked about that chunk. P7: an answer counts once, and only where it was asked
 * for. */
bool tb_repair_asked(struct tb_daemon *d, const struct tb_id *holder, const struct tb_session_doubted *m);
const char *tb_repair_action(enum tb_status found); /* for the log */
/* Asks a worker to digest the chunk of its copy. False: it is away, or is not asked, as it was lately, or too many were. */
bool tb_repair_ask(struct tb_daemon *d, const struct tb_id *holder, const struct tb_report *r);
/* `bytes` did not fit in one piece: what the catalog evicts for them (tb_catalog_make_room). */
TB_MUST_USE enum tb_status tb_copies_make_room(struct tb_daemon *d, uint64_t bytes,
                                               struct tb_catalog_room *room_out);
uint64_t tb_copy_held_bytes(const struct tb_copy *copy);
/* What came for it over the fabric from ranks, and over links, since this process began. */
uint64_t tb_copy_wire_bytes(const struct tb_copy *copy);

/* home_landing.c */
void tb_landing_from(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_landing_end(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_landing_stop(struct tb_copy *copy);
void tb_landing_retry(struct tb_copy *copy, tb_time_ns now);
/* A chunk that is held no more may be one that a hop has passed: they begin anew. */
void tb_landing_anew(struct tb_copy *copy, tb_time_ns now);
/* The rank answered GRANT: the hop opens, or is tried again. Another token than the last one asked for is ignored. */
void tb_landing_granted(struct tb_worker_session *s, const struct tb_id *token, enum tb_status status);
void tb_landing_wake(uv_async_t *async);
/* A rank or a worker digested its own copy of a chunk that it was asked about. */
void tb_landing_looked(struct tb_worker_session *s, const struct tb_session_doubted *m);
/* It is whole: what reads it for its chunks ends, what still brings objects goes on. */
void tb_landing_done(struct tb_copy *copy);
/* It goes: hops that decode from it begin again without. */
void tb_landing_base_goes(struct tb_copy *base);
/* The rank's objects of this shard are on their way. */
void tb_landing_expects(struct tb_copy *copy, uint32_t shard, const struct tb_id *base);
/* In how many classes ranks had best encode steps of the model; 0: nobody takes them. */
uint8_t tb_landing_classes(struct tb_daemon *d, const struct tb_name *model);

/* crossings.c */
/* What streams of that peer bring of it lands; of every source that is up, at once: the links
 * divide the chunks among them. */
void tb_crossing_land(struct tb_copy *copy, uint32_t peer);
void tb_crossing_land_all(struct tb_copy *copy);
/* The peer announced it. Begun before, by this process or the one before it: what is held stays,
 * and the peer brings the rest. */
void tb_crossing_go_on(struct tb_copy *copy, uint32_t peer);
/* It was not to be had; it is tried again. */
void tb_copy_crossing_refused(struct tb_copy *copy, enum tb_status why);
/* To ask again would bring the same, in this life. */
void tb_copy_crossing_hopeless(struct tb_copy *copy);
/* crossing_room.c */
void tb_crossing_manifests(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                           const struct tb_manifest *manifests);
/* link_reports.c */
/* To a session that begins: what this site holds and activated, and what the sites behind it do. */
void tb_reports_again(struct tb_daemon *d, uint32_t peer);
/* A peer's progress to the catalog; that it is whole now also to the other peers, who may be
 * nearer to home. */
void tb_reports_progress(struct tb_daemon *d, uint32_t peer, const struct tb_id *uid,
                         const struct tb_links_progress *p);
void tb_reports_heard(struct tb_daemon *d, uint32_t peer, const struct tb_links_report *report);
/* link_events.c */
extern const struct tb_links_ops tb_link_events;
/* link_opening.c */
TB_MUST_USE enum tb_status tb_crossings_open(struct tb_daemon *d); /* links; offers what is held */
/* The arena's life is a new one: links begin anew, so that peers hear of it. Where memory fails
 * chunk by chunk, once a second, as what is fetched again comes over them. */
void tb_crossings_life_tell(struct tb_daemon *d);
/* Is ours from now on. Sessions that are there go on: P6, the word of one peer is no end of the others' links. */
void tb_crossings_incarnation(struct tb_daemon *d, uint64_t incarnation);
/* Space for a version whose manifests are here, and the catalog's word on it. TB_AGAIN: something is being evicted for it.
 * TB_SITE_NOMEM: it does not fit; TB_TOO_LARGE: nor will it in this life. Both are logged. */
TB_MUST_USE enum tb_status tb_crossing_reserve(struct tb_copy *copy, const struct tb_manifest *manifests);
/* What streams land of it ends; what is held stays. It is asked for again when it may be. */
void tb_crossing_pause(struct tb_copy *copy);
void tb_cross_start(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_crossing_retry(struct tb_copy *copy); /* after something was evicted */
void tb_crossing_offer(struct tb_copy *copy);
void tb_crossing_site_state(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_crossings_poll(struct tb_daemon *d); /* peers' progress to the catalog */
/* Announcements that found no row: once a second, while there are some. */
void tb_crossings_hear_again(struct tb_daemon *d);

/* Which site is the model's home, as the configuration says. False: it has no such model. */
bool tb_home_of(const struct tb_daemon *d, const struct tb_name *model, struct tb_name *home_out);
/* P8: may that peer read the model? Says nothing and counts nothing. */
bool tb_peer_may_read(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
/* As it is called here and in other sites' configurations. */
const char *tb_peer_site(const struct tb_daemon *d, uint32_t peer);
/* The links, while calls to them have a meaning; NULL otherwise. */
struct tb_links *tb_links_now(const struct tb_daemon *d);

/* home_runs.c */
/* The store is open, its rows are not read. TB_SITE_STORE is logged. */
TB_MUST_USE enum tb_status tb_home_runs_open(struct tb_daemon *d);
void tb_home_runs_close(struct tb_daemon *d);
void tb_home_runs_up(struct tb_daemon *d, uint32_t peer); /* a session with it began */
/* A peer has seen a later life of this store, so a copy was put back: every model here is doubted from now on. */
void tb_home_runs_doubt(struct tb_daemon *d);
void tb_home_runs_asked(struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
void tb_home_runs_told(struct tb_daemon *d, uint32_t peer, const struct tb_links_run *run);
/* A worker computes with that version of the model. */
void tb_home_runs_worker(struct tb_daemon *d, const struct tb_name *name, uint64_t run_order,
                         uint64_t number);
/* True: the request is not to be handled now. It was refused, or it waits for peers and is handled again. `frame` is as it came. */
bool tb_home_runs_holds(struct tb_worker_session *s, const struct tb_name *model,
                        const struct tb_wire_frame *frame);
void tb_home_runs_opened(struct tb_daemon *d, const struct tb_name *name); /* or joined */
void tb_home_runs_tick(struct tb_daemon *d, tb_time_ns now);
/* A request that waited for peers, as it came. */
#define TB_WAITING_PAYLOAD_BYTES 1024u /* RUN_OPEN and VERSION_OPEN have less */
struct tb_waiting_request {
    struct tb_waiting_request *next;
    struct tb_id session;
    uint32_t model;
    uint64_t request;
    uint16_t type;
    uint32_t bytes;
    uint8_t payload[TB_WAITING_PAYLOAD_BYTES];
};
/* The next that need wait no longer, as the caller's own; NULL: none. */
struct tb_waiting_request *tb_home_runs_ready(struct tb_daemon *d);

/* site_records.c: what sites say of themselves (catalog/records.h) */
TB_MUST_USE enum tb_status tb_records_open(struct tb_daemon *d); /* behind the catalog, before links */
void tb_records_close(struct tb_daemon *d);
void tb_records_tick(struct tb_daemon *d); /* once a second */
void tb_records_link(struct tb_daemon *d, uint32_t peer, bool up);
/* All that is known here to that peer; of one model, or of all (NULL). */
void tb_records_tell(struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
void tb_records_state(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *state);

/* crossing_policy.c */
void tb_policy_tick(struct tb_daemon *d);
uint32_t tb_policy_weight(void *daemon, const struct tb_name *model);

/* anchors.c */
/* The arena is open, the catalog is not: reads back what a reboot took, which takes as long as it takes. TB_SITE_DRAINING: a
 * signal came meanwhile. TB_SITE_IO, TB_SITE_LOCKED: anchor.dir cannot be used. */
TB_MUST_USE enum tb_status tb_anchors_open(struct tb_daemon *d);
void tb_anchors_tick(struct tb_daemon *d, tb_time_ns now);
void tb_anchors_stop(struct tb_daemon *d); /* its thread is to end; waits for nothing. No tick after it */
void tb_anchors_close(struct tb_daemon *d);
bool tb_anchors_refilled(const struct tb_daemon *d, const struct tb_id *uid); /* by this start */
void tb_anchors_whole(struct tb_daemon *d, const struct tb_version_key *key); /* it is whole here now */
void tb_anchors_rotted(struct tb_daemon *d,
                       const struct tb_version_key *key); /* chunks of it were damaged here */
json_t *tb_anchors_json(const struct tb_daemon *d);

/* adopt.c */
enum tb_status tb_adopt_command(void *daemon, const json_t *request, json_t *reply, char *error);
/* Nothing but what is adopted crosses of a model meanwhile; to its home what it lost, as ever. */
bool tb_adopt_holds(const struct tb_daemon *d, const struct tb_version_key *key);
void tb_adopt_announced(struct tb_daemon *d, const struct tb_name *model);
void tb_adopt_manifests(struct tb_daemon *d, const struct tb_version_key *key,
                        const struct tb_manifest *manifests);
void tb_adopt_failed(struct tb_daemon *d, const struct tb_id *uid); /* its manifests do not come */
void tb_adopt_tick(struct tb_daemon *d, tb_time_ns now);
void tb_adopt_stop(struct tb_daemon *d); /* as tb_anchors_stop */
void tb_adopt_close(struct tb_daemon *d);

/* found_streams.c */
TB_MUST_USE enum tb_status tb_found_open(struct tb_daemon *d);
/* Once a second. */
void tb_found_seen(struct tb_daemon *d, uint32_t peer, const struct tb_links_stats *stats);

/* peer_limits.c */
TB_MUST_USE enum tb_status tb_limits_open(struct tb_daemon *d);
void tb_limits_renewed(struct tb_daemon *d); /* the links were opened anew: they have sent nothing yet */
void tb_limits_tick(struct tb_daemon *d);
uint64_t tb_limits_day_ends_s(void);       /* UTC */
void tb_limits_close(struct tb_daemon *d); /* what was sent is written down as it is */
/* An operator's word, until the next start. Fields that are not given stay. */
struct tb_limit_change {
    const char *rate; /* NULL: as it is */
    bool has_windows;
    uint32_t window_count;
    struct tb_rate_window windows[TB_RATE_WINDOWS_MAX];
    bool has_day_bytes;
    uint64_t day_bytes;
};
enum tb_status tb_limits_change(struct tb_daemon *d, uint32_t peer, const struct tb_limit_change *change);
enum tb_status tb_limit_command(void *daemon, const json_t *request, json_t *reply, char *error);
json_t *tb_limit_json(const struct tb_peer_limit *limit); /* NULL: no memory */

/* sessions.c */
TB_MUST_USE enum tb_status tb_sessions_open(struct tb_daemon *d);
void tb_sessions_shut(struct tb_daemon *d); /* no new ones */
void tb_sessions_close(struct tb_daemon *d);
void tb_sessions_distrust(struct tb_daemon *d); /* the CAs changed: who came by TLS has to come again */
void tb_sessions_tick(struct tb_daemon *d, uint64_t wall_s);
/* A connection's row; NULL: no memory. */
struct tb_worker_session *tb_session_new(struct tb_daemon *d, bool local);
void tb_session_enlist(struct tb_worker_session *s); /* it has its id now */
void tb_session_free(struct tb_worker_session *s);   /* its row, and what hangs on it */
void tb_session_refusal_log(struct tb_worker_session *s, const char *event, const char *what,
                            const char *why);
struct tb_worker_session *tb_session_find(struct tb_daemon *d, const struct tb_id *id);
void tb_session_reply(struct tb_worker_session *s, uint64_t request, enum tb_status status, const char *why);
void tb_session_over(struct tb_worker_session *s, enum tb_status why);    /* the catalog knows already */
void tb_session_leaves(struct tb_daemon *d, const struct tb_id *session); /* the catalog hears it now */
struct tb_worker_export *tb_session_export_find(struct tb_worker_session *s, const struct tb_id *uid,
                                                uint32_t shard);
/* TB_SITE_NOMEM, also where there are as many as there can be references. */
enum tb_status tb_session_export_put(struct tb_worker_session *s, const struct tb_worker_export *export,
                                     const struct tb_span *source);
void tb_session_export_drop(struct tb_worker_session *s, struct tb_worker_export **at);
/* Those of sealed shards: one, or all; but of all none whose end is told by itself. */
void tb_session_exports_drop(struct tb_worker_session *s, const struct tb_id *uid, uint32_t shard);
uint32_t tb_sessions_max(const struct tb_daemon *d); /* connections; some of them may be about to say HELLO */
/* P8. Logs and counts a refusal. */
enum tb_status tb_session_may(struct tb_worker_session *s, const struct tb_name *model, bool publish);
void tb_session_denied(struct tb_worker_session *s, const char *what, const char *why); /* logs and counts */
/* A frame of `type` around the encoder of one message; nothing when the worker is away. */
#define TB_SESSION_SEND(s, type, request, message, bytes, encode)                                            \
    do {                                                                                                     \
        struct tb_writer *send_w = (s)->wire ? tb_wire_begin((s)->wire, (type), (request), (bytes)) : NULL;  \
        if (send_w != NULL) {                                                                                \
            encode((message), send_w);                                                                       \
            tb_wire_end((s)->wire);                                                                          \
        }                                                                                                    \
    } while (0)
#define TB_SESSION_SMALL 4096 /* bytes: enough for any message without a span */

typedef enum tb_status (*tb_session_fn)(struct tb_worker_session *s, struct tb_wire_frame *frame);
/* session_publish.c and session_follow.c: anything but TB_OK ends the session (the peer broke the protocol). */
enum tb_status tb_session_run_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_version_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_seal_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_unpublish_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_subscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_unsubscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_wait_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_wait_site_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_cancel_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_stage_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_export_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_hop_lost_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_chunk_bad_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_doubted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_progress_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_activate_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_activated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_updated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_release_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_status_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
void tb_seals_retry(struct tb_daemon *d); /* after something was evicted */
void tb_seals_free(struct tb_daemon *d);
uint64_t tb_seals_max(void); /* bytes of parked ones */
/* todos to workers */
void tb_session_tell(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_session_go(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_session_answer(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_session_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo);

/* A source's owner that has not answered GRANT by then: a reader is given another plan, a rank at home is asked again. */
#define TB_GRANT_WAIT_NS TB_SECONDS(1)

/* session_plan.c: PLAN once the source's owner has answered GRANT */
void tb_session_plan(struct tb_daemon *d, const struct tb_catalog_todo *todo);
enum tb_status tb_session_granted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
void tb_plan_waits_tick(struct tb_daemon *d, tb_time_ns now);
void tb_plan_waits_free(struct tb_daemon *d);

/* codec_status.c: new reference; NULL: no memory */
json_t *tb_choice_json(const struct tb_choice *choice);
json_t *tb_status_codec(struct tb_daemon *d, uint32_t peer);
json_t *tb_status_objects(struct tb_daemon *d);

/* site_status.c */
extern const struct tb_control_command tb_status_commands[];
json_t *tb_status_site(struct tb_daemon *d);                        /* new reference; NULL: no memory */
json_t *tb_status_versions(struct tb_daemon *d, const char *model); /* NULL: all */

/* copy_shelf.c */
/* As it is exported: memory for encoded chunks, and the buffer that it is. False: it gets none. */
bool tb_copy_shelf_make(struct tb_copy *copy, struct tb_export_buffer *buffer_out);
void tb_copy_shelf_begin(struct tb_copy *copy);
/* It goes: nobody reads its shelf any more, and nothing is encoded on it. */
void tb_copy_shelf_end(struct tb_copy *copy);
/* Workers of other hosts read here, by tcp, or some patch their buffers with that model. */
bool tb_copy_read_encoded(const struct tb_daemon *d, const struct tb_name *model);

/* chain_status.c */
enum tb_status tb_status_chains(void *user, const json_t *request, json_t *reply, char *error);
/* Null where its uid is zero. New reference; NULL: no memory. */
json_t *tb_status_update(const struct tb_catalog_update *update);

/* link_status.c */
enum tb_status tb_status_streams(void *user, const json_t *request, json_t *reply, char *error);
json_t *tb_status_window(const struct tb_links_stats *stats);
void tb_status_pace(struct tb_daemon *d); /* once a second: how fast copies fill and links move */

/* usage_status.c */
json_t *tb_status_tables(struct tb_daemon *d); /* NULL: no memory */
void tb_usage_tick(struct tb_daemon *d);       /* each second: a table that refused rows is told of */

/* lag_status.c */
enum tb_status tb_status_lag(void *user, const json_t *request, json_t *reply, char *error);
/* A version's `stages`, `sent` and `eta_s`; `copy` may be NULL: nothing is here. False: no memory. */
bool tb_status_moves(struct tb_daemon *d, const struct tb_copy *copy, uint64_t bytes, json_t *version);
json_t *tb_status_eta(const struct tb_lag_pace *pace, uint64_t left_bytes); /* null: no estimate */
/* What other sites hold of a version, by their records. New reference; NULL: no memory. */
json_t *tb_status_sites_of(struct tb_daemon *d, const struct tb_version_key *key);
/* Nobody holds it, here or elsewhere as far as is known, and it is no news: it is not listed. */
bool tb_status_nobodys(struct tb_daemon *d, const struct tb_catalog_version_view *v);

#endif
