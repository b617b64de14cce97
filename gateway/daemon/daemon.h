/* daemon.h - the object that the rooms of tombolod share, and its dispatcher. Private to
 * gateway/daemon.
 *
 * Everything here lives on the main loop's thread. The catalog decides. This folder carries its
 * todos out with the arena (memory), the fabric (inside the site), the links (to other sites), the
 * store (disk) and the sessions (workers).
 *
 * Each room has a header of its own, and README.md is a map of them. A room changes its own
 * rows, marks what follows with tb_daemon_wake and returns. The dispatcher calls the rooms that
 * it concerns. No header of a room includes this one. */
#ifndef TB_DAEMON_DAEMON_H
#define TB_DAEMON_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "base/clock.h"
#include "base/damage_reports.h"
#include "base/log.h"
#include "gateway/catalog/catalog.h"
#include "gateway/config/bounds.h"
#include "gateway/config/config.h"
#include "gateway/daemon/control/tensors_status.h"
#include "gateway/daemon/copies/arena_prover.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/copies/repair.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/crossing_policy.h"
#include "gateway/daemon/links/lag.h"
#include "gateway/daemon/links/pauses.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/links/statement_table.h"
#include "gateway/daemon/links/withdrawals.h"
#include "gateway/daemon/live/live_asks.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/service_manager.h"
#include "gateway/daemon/sessions/grant_table.h"
#include "gateway/daemon/sessions/session_hops.h"
#include "gateway/daemon/sessions/session_limits.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/sandbox/sandbox.h"
#include "gateway/store/store.h"
#include "intra/fabric/fabric.h"
#include "wan/link/links.h"

struct tb_arena;
struct tb_backup;
struct tb_reload;

/* A status that says nothing new here: what it concerns ended meanwhile, and the catalog
 * has told so or will. */
#define TB_MOOT(call)                                                                                        \
    do {                                                                                                     \
        if (call) {                                                                                          \
        }                                                                                                    \
    } while (0)

struct tb_daemon {
    uv_loop_t loop;
    bool has_loop;            /* it could be made; before that there is nothing to close */
    struct tb_config *config; /* that counts now: of the start, or of the last reload */
    struct tb_config *given;  /* of the start, the caller's; texts of it may be in use until the end */
    const char *config_path;  /* of its file; NULL: it has none */
    uint32_t protocol_max;    /* --protocol-max, whatever the file says; 0: it was not given */
    struct tb_name site;      /* as other sites know this gateway: config->label */
    struct tb_name gateway, host;
    uint64_t incarnation;
    struct tb_id process; /* of this start, for peers that tell twins apart */
    tb_time_ns started_at;
    struct tb_service_manager manager;
    struct tb_sandbox sandbox;     /* what main.c entered; all zero where nobody did */
    struct tb_disk_keys disk_keys; /* that main.c read; all zero: files stand in clear */

    struct tb_tls *tls;
    /* the files as they were when they were read, and when they were looked at */
    struct tb_digest tls_mark, tls_seen;
    tb_time_ns tls_moves_since; /* each look since then saw others than the one before; 0: the last did not */
    tb_time_ns tls_again_at;    /* they were refused, and are read again then; 0: they are what is loaded */
    char tls_refused[512];      /* why */
    uint64_t tls_warned_day;    /* since 1970, plus one: the log was told how long certificates last */
    struct tb_resolver *resolver;
    struct tb_store *store;
    struct tb_arena *arena;
    void *catalog_memory;
    struct tb_catalog *catalog;
    struct tb_fabric *fabric;
    struct tb_fabric_endpoint endpoint; /* of our door */
    struct tb_shelves *shelves;         /* NULL: there was nothing to encode yet */
    /* encoded chunks, for links and shelves; NULL: none are kept */
    struct tb_encoded_chunks *encoded_chunks;
    struct tb_links *links;
    bool links_restarting;
    struct tb_control *control, *control_read; /* the second one answers reads alone; NULL: none */
    struct tb_listener *session_unix, *session_tls;

    struct tb_worker_session_limits session_limits;
    struct tb_session_hops session_hops;
    struct tb_worker_session *sessions;
    struct tb_worker_session *session_buckets[TB_SESSION_BUCKETS];
    uint32_t session_count; /* connections, and sessions that are away */
    bool sessions_full;     /* told */
    bool records_full_told; /* that there is no row for what a peer said of a site */
    bool records_again;     /* a link came up or went down: peers hear this site's state again */
    struct tb_model_table models;
    /* site_lag.h, by the rows of `models`: of named ones in one block, of others one each */
    struct tb_site_own *own_named, *own[TB_CONFIG_MODELS_MAX];
    bool disbelieved[TB_CONFIG_LIST_MAX];      /* peers whose word on other sites was refused, and told */
    uint32_t home_answers[TB_CONFIG_LIST_MAX]; /* to words of homes that came by that peer, in this second */
    bool places_refused;                       /* since the last poll: to what peers hold */
    bool places_told;                          /* before it */
    bool news_refused;       /* a version that a peer announced found no row: it is heard again */
    struct tb_bounds bounds; /* of the catalog's tables */
    struct tb_table_told tables_told[TB_DAEMON_TABLES];
    struct tb_gauge connections, worker_exports, copies_used, parked_bytes;
    struct tb_gauge source_bytes, unpublish_waits, run_waits;
    struct tb_copy *copies;
    struct tb_parked_seal *parked;
    struct tb_withdrawn withdrawn;
    struct tb_statement_table said;           /* what homes signed */
    uint32_t said_failed[TB_CONFIG_LIST_MAX]; /* statements of that peer that were refused in this second */
    uint32_t shown_failed;                    /* the same of those that workers showed */
    tb_time_ns unsigned_said_at;              /* the log was told that this home could not sign */
    tb_time_ns unsigned_told_at[TB_CONFIG_LIST_MAX]; /* the log was told of a peer's unsigned versions */
    struct tb_tensors_kept tensors_kept;             /* for readers that ask */
    struct tb_live_asks live;                        /* operators that ask workers for proofs */
    struct tb_home_runs *home_runs;                  /* of models whose home is here */
    bool new_home; /* the operator says that no other site remembers a run (tombolod --new-home) */
    struct tb_grant_table grants; /* tokens that workers were asked to accept */
    uint64_t next_export_id, next_wait, next_hop;
    struct tb_choice_pace paces[TB_CONFIG_MODELS_MAX]; /* of `models`: the last delta, from its ranks */
    struct tb_counters counters;

    struct {
        uint64_t bytes, bytes_per_s; /* over the last second, both ways */
        struct tb_lag_pace pace;
    } goodput[TB_CONFIG_LIST_MAX];

    struct tb_peer_limit limits[TB_CONFIG_LIST_MAX];
    struct tb_pauses pauses;                        /* of operators */
    struct tb_store_path found[TB_CONFIG_LIST_MAX]; /* streams 0: nothing */
    struct tb_id
        peer_lives[TB_CONFIG_LIST_MAX]; /* of the peers' arenas, by their last HELLO; zero: none came */
    struct tb_policy policies[TB_CONFIG_MODELS_MAX]; /* of `models` */
    struct tb_name unread[TB_CONFIG_LIST_MAX];       /* models that the store has and the start had not */
    uint32_t unread_count;
    bool unread_more;         /* more of them than fit */
    struct tb_reload *reload; /* that the dispatcher takes in this turn; NULL: none */
    bool reload_again;        /* it was asked for once more meanwhile */

    uv_prepare_t before_wait;
    uv_check_t after_wait;
    uv_timer_t tick;
    uint64_t tick_ms;
    tb_time_ns polled_at, slow_at, drain_at;
    uv_signal_t sigterm, sigint, sighup;
    uv_async_t hop_wake, verify_wake;
    pthread_mutex_t hop_lock;
    struct tb_home_hop_note hop_notes[TB_HOP_NOTES_MAX];
    uint32_t hop_note_count;
    bool hop_notes_lost; /* more came than fit: every hop is looked at */

    struct tb_anchors *anchors; /* NULL: no anchor.dir */
    struct tb_adopt *adopt;     /* NULL: none was asked for yet */

    struct tb_arena_prover prover;
    pthread_t verifier;
    bool verifier_runs;
    bool verifier_digests; /* arena.reverify; as the start left it, so threads may read it */
    _Atomic bool verifier_stop;
    struct tb_asked_look asked[TB_DOUBTS_MAX]; /* the last looks that workers were asked for */
    uint32_t asked_next;
    int64_t sweep_bytes;     /* that may be digested now */
    tb_time_ns sweep_at;     /* it was reckoned */
    struct tb_doubts doubts; /* of what stands here, or at workers that this gateway asks */
    bool life_untold; /* chunks were damaged: the links have to begin anew, under the arena's new life */
    tb_time_ns life_told_at;
    _Atomic uint32_t verify_bad;
    _Atomic uint64_t verified_bytes, huge_bytes;
    _Atomic bool verify_done;

    struct tb_audit *audit;     /* NULL: before the store is open */
    uint64_t strangers_seen;    /* of the links' count, that the audit record has */
    uint64_t tokens_denied;     /* likewise, of the door's */
    struct tb_persist *persist; /* rows on their way to the disk, and what waits for them */
    uv_async_t store_wake;
    bool store_down;
    struct tb_backup *backup; /* a copy of the store that is being made; NULL: none */
    uint64_t check_paid;      /* rows, by turns since the last check (daemon_check.h) */
    bool woken;               /* something was marked that the dispatcher has to look at */
    bool turning;             /* it does */
    bool room_freed; /* in the arena, or the catalog lets go of some: who waits for room asks again */
    bool opening;    /* before the loop runs: a signal sets draining, and what takes long looks at it */
    bool draining;
    bool drain_asked; /* by an operator: the next tick begins it */
    bool fault;       /* something that must not happen did: exit code 1 */
    bool left; /* a thread waits for a disk that does not answer, and what it touches is left as it is */
    tb_time_ns close_until;
};

/* Errors are logged with what to do. TB_SITE_*. */
TB_MUST_USE enum tb_status tb_daemon_open(struct tb_daemon *d, struct tb_config *config);
void tb_daemon_run(struct tb_daemon *d); /* until SIGTERM or SIGINT has drained */
void tb_daemon_close(struct tb_daemon *d);

/* Something was told to the catalog, or marked in a row: the dispatcher looks at it in this turn
 * of the loop. Only sets a mark. */
static inline void tb_daemon_wake(struct tb_daemon *d)
{
    d->woken = true;
}

/* Draws the conclusions of all that was marked, until nothing is. By the loop,
 * once per turn: no room calls it. */
void tb_daemon_turn(struct tb_daemon *d);
/* At the end: rows are written while shutdown.c has time for it, and what rests on them goes
 * out. */
void tb_daemon_flush(struct tb_daemon *d);

#endif
