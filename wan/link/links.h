/* links.h - a gateway's links to the gateways of other sites. A shell that speaks
 * docs/protocol.md.
 *
 * One object per daemon. The daemon says which versions it holds (offer), which it wants (ask,
 * land) and what happened here (report). The links keep one session per peer, move chunks between
 * places, and tell the daemon by callbacks. Streams move the bytes, each on a loop of its own
 * thread. Cores decide, on the main loop: link_session.h, outbound.h, inbound.h.
 *
 *   receiving  on_version -> tb_links_ask -> on_manifests -> reserve, tb_links_offer
 *              -> tb_links_land -> on_landed
 *   sending    tb_links_offer -> on_peer_held; also while it fills: each held chunk goes on at once
 *
 * Offer every version that is held or being landed, at every site. An offer is served only to
 * peers that subscribed to its model and may read it. By an offer a peer that has the same version
 * also learns that it is whole here.
 *
 * Promises: P1 P4 P5 P6 P7 P8 P10, see docs/protocol.md. A peer that goes away changes nothing
 * here: asks and landings stay, and go on when the peer announces the version again.
 *
 * Threads: every function and every callback on the thread of `loop`. Inside a callback every call
 * is allowed except tb_links_close's completion. Callbacks never come from inside a call. Pointers
 * given to callbacks are borrowed until they return. Peers are named by their index in
 * options.peers. */
#ifndef TB_WAN_LINKS_H
#define TB_WAN_LINKS_H

#include <uv.h>

#include "base/layout/manifest.h"
#include "base/layout/place.h"
#include "base/net/resolve.h"
#include "base/net/signed.h"
#include "base/net/tls.h"
#include "base/net/wire.h"
#include "base/site_state.h"
#include "base/time.h"
#include "wan/link/links_known.h"
#include "wan/send/codec_choice.h"

enum tb_links_version_state {
    TB_LINKS_READY, /* the peer holds all or part of it and serves it; comes again after each reconnection */
    TB_LINKS_WITHDRAWN, /* an operator withdrew it; also for versions never announced here */
    TB_LINKS_GONE /* the peer serves it no more; why: TB_VERSION_LOST, TB_SUPERSEDED (evicted there), ... */
};

/* A state that a site reached with a version. Relays pass reports on: `site` reached the state,
 * and the peer passed it on. */
enum tb_links_report_state { TB_LINKS_REPORT_HELD = 1, TB_LINKS_REPORT_ACTIVATED = 2 };
struct tb_links_report {
    struct tb_id uid;
    struct tb_name site;
    enum tb_links_report_state state;
};

/* The newest run of a model that a site ever heard of. order 0: none, or none that the
 * asking site may hear of. */
struct tb_links_run {
    struct tb_name model;
    uint64_t order;
    uint64_t number;  /* of its newest version that was heard of */
    struct tb_id run; /* zero: only the order is known */
};

/* A chunk whose digest did not match after it crossed. */
struct tb_links_bad_chunk {
    struct tb_id uid;
    uint32_t shard;
    uint32_t chunk;
    uint32_t times;    /* that this chunk was refused on this link, 1.. */
    bool ours;         /* we sent it and the peer refused it; false: we refused what the peer sent */
    struct tb_id base; /* with ours: it went as a delta to that version's chunk; zero: it went whole */
};

/* Proofs of chunks first, first + 1, ... of a shard, as a peer says them. */
struct tb_links_proofs {
    struct tb_id uid;
    uint32_t shard;
    uint32_t first;
    uint32_t count;
    const uint8_t *bytes; /* count of TB_BLAKE3_BYTES */
};

/* A statement that a home signed, for a peer. Bytes as base/net/signed.h writes them. */
struct tb_links_said {
    enum tb_statement_kind kind;
    struct tb_name model;
    struct tb_id id; /* of a run; else the uid of a version. Zero: the newest that is known */
};

struct tb_links_ops {
    /* P10: a refusal here is logged by the owner that answers may_read or is told by on_chunk_bad,
     * not by links too: the owner knows what to do about it, and one refusal is one line. P8: may
     * this peer read that model, and is `home` (empty: not said) its home here too? Asked at each
     * SUBSCRIBE. NULL denies all. */
    bool (*may_read)(void *user, uint32_t peer, const struct tb_name *model, const struct tb_name *home);
    /* Which site is the model's home, as this one is configured: told with SUBSCRIBE, because all
     * sites must agree. False or NULL: not said. */
    bool (*home_of)(void *user, const struct tb_name *model, struct tb_name *home_out);
    /* May the next version of this model be sent here by that peer unasked? So where it is asked
     * for at once as a rule, and of that peer alone. False or NULL: no. */
    bool (*expects)(void *user, uint32_t peer, const struct tb_name *model);
    /* A model's share of a link, 1 to 1000, against the others that cross to that
     * peer. NULL: all alike. */
    uint32_t (*weight_of)(void *user, const struct tb_name *model);
    /* up: the session is there (identity is the peer's certificate). Not up: why says what
     * ended it; it is dialled again. A session replaced by a fresh one of the same peer is told
     * by on_renewed instead. */
    void (*on_peer)(void *user, uint32_t peer, bool up, enum tb_status why);
    /* A session begins, and this is the life of the peer's arena. The peer lost the versions that
     * it held in another life, until it says again that it holds them. Before on_peer and
     * on_renewed. */
    void (*on_life)(void *user, uint32_t peer, const struct tb_id *life);
    /* The peer subscribed to that model, and may read it: from now on tb_links_tell_state
     * says it of that model. */
    void (*on_granted)(void *user, uint32_t peer, const struct tb_name *model);
    /* The peer says what it, or a site behind it (hops > 0), holds of a model that concerns
     * both. */
    void (*on_state)(void *user, uint32_t peer, const struct tb_site_state *state);
    /* A fresh session took the place of one that was up: reports in flight on the
     * old one may be lost. */
    void (*on_renewed)(void *user, uint32_t peer);
    /* The peer or we refused a session. TB_PEER_STALE: `detail` is the highest incarnation seen;
     * with `by_peer` it is ours that is too low, and the catalog has to restart above it. Others:
     * TB_PEER_PROTOCOL, TB_PEER_DENIED... */
    void (*on_refused)(void *user, uint32_t peer, enum tb_status why, uint64_t detail, bool by_peer);
    /* bytes: of all shards, as the peer says; for planning only, the manifests say it again.
     * why: TB_OK but for GONE. */
    void (*on_version)(void *user, uint32_t peer, const struct tb_version_key *key, uint64_t bytes,
                       enum tb_links_version_state state, enum tb_status why);
    /* Answer to tb_links_ask: manifests[0..key->shard_count), complete: every digest, every shard
     * root and the version's root agree with key->root. Borrowed: copy what is kept (heads by
     * tb_manifest_head_encode). */
    void (*on_manifests)(void *user, uint32_t peer, const struct tb_version_key *key,
                         const struct tb_manifest *manifests);
    /* P1: is that peer not believed about the bytes of this version? Then its manifests come with
     * all proofs, and its chunks have to fit the proofs that stand in their places. NULL: every
     * peer is believed. */
    bool (*is_foreign)(void *user, uint32_t peer, const struct tb_version_key *key);
    /* A page of proofs behind manifests that on_manifests brought without them. Nothing of it was
     * compared with anything. */
    void (*on_proofs)(void *user, uint32_t peer, const struct tb_links_proofs *page);
    /* Every chunk of every shard is held here, by whatever way it came. The landing is over. */
    void (*on_landed)(void *user, uint32_t peer, const struct tb_version_key *key);
    /* An ask or landing failed and is over. TB_VERSION_LOST, TB_SUPERSEDED, TB_NOT_FOUND: the peer
     * serves it no more; TB_CHUNK_DIGEST: a chunk was wrong TB_LINKS_REFUSALS_MAX times;
     * TB_SITE_NOMEM: here or at the peer, try again later. After a landing failed
     * tb_links_land_stop is still called before the places go. */
    void (*on_failed)(void *user, uint32_t peer, const struct tb_id *uid, enum tb_status why);
    /* An ask is over: its manifests take more than manifest_bytes_max, at least
     * needed_bytes, and would again. */
    void (*on_too_large)(void *user, uint32_t peer, const struct tb_id *uid, uint64_t needed_bytes);
    /* The peer holds all of a version that is offered here. Once per version and peer and
     * life of the session. */
    void (*on_peer_held)(void *user, uint32_t peer, const struct tb_id *uid);
    /* The peer begins to draw a version from here; also one that is sent unasked. */
    void (*on_drawn)(void *user, uint32_t peer, const struct tb_version_key *key);
    /* That peer holds none any more of a version that it never offered here in this session. */
    void (*on_peer_dropped)(void *user, uint32_t peer, const struct tb_id *uid);
    void (*on_report)(void *user, uint32_t peer, const struct tb_links_report *report);
    void (*on_chunk_bad)(void *user, uint32_t peer, const struct tb_links_bad_chunk *bad);
    /* The peer, which takes itself for the model's home, asks which run is remembered
     * here: answered by tb_links_run_tell. Rights are the owner's to check. NULL: the
     * answer is order 0. */
    void (*on_runs_asked)(void *user, uint32_t peer, const struct tb_name *model);
    /* The answer; or unasked: home says which run is its newest, a follower that this
     * one is above home's. */
    void (*on_run_told)(void *user, uint32_t peer, const struct tb_links_run *run);
    /* The statement, which goes before VERSION and RUN_TOLD to a peer that knows the frame. False
     * or NULL: there is none, and the frame goes without it. Borrowed until the next call. */
    bool (*statement_of)(void *user, const struct tb_links_said *which, struct tb_span *said_out);
    /* The peer brings a statement. Only its length was looked at. NULL: it is dropped. */
    void (*on_statement)(void *user, uint32_t peer, const struct tb_span *said);
    /* May this held chunk of a version offered here be a base (P1: one left by an earlier process
     * is digested first)? The only one of these that is called from any thread; the places stay
     * until it returns. NULL: all may. */
    bool (*base_good)(void *user, const struct tb_id *uid, uint32_t shard, uint32_t chunk);
};

struct tb_links_peer_options {
    struct tb_name site, gateway; /* whose certificate is expected: tombolo://SITE/GATEWAY, exactly */
    struct tb_name label;   /* what it is called here; empty: its site. Unequal for gateways of one site */
    bool gone;              /* a row of no peer: it keeps its index, and is not dialled */
    uint32_t lane;          /* that it says it is, of its site */
    const char *address;    /* "host:port"; NULL: only the peer dials */
    const char *source;     /* the address to dial from, numeric; NULL: the kernel's choice; copied */
    uint32_t dscp;          /* of what is sent there, 0 to 63; 0: the system's */
    const char *congestion; /* of TCP: "auto" (tuner.h), or "bbr", "cubic"...; NULL: the system's; copied */
    uint32_t streams_found; /* by an earlier process, for what is sent there; 0: none */
    uint64_t found_bytes_per_s;   /* with them */
    const struct tb_name *models; /* that are wanted from this peer; copied */
    uint32_t model_count;
};

struct tb_links_options {
    uv_loop_t *loop;              /* the main loop */
    struct tb_name site, gateway; /* ours; must be what the certificate of `tls` says */
    struct tb_id life;            /* of our arena */
    struct tb_id process; /* drawn by lot at the start of this process; zero: peers do not hear of it */
    uint64_t incarnation; /* of our catalog */
    /* this gateway's, of its site's [0 of 1]; a peer of our site is another of them */
    uint32_t lane, lane_count;
    struct tb_tls *tls;                        /* a reference is taken */
    const char *listen;                        /* "address:port", port 0 chooses; NULL: listen nowhere */
    const struct tb_links_peer_options *peers; /* copied */
    uint32_t peer_count;
    /* encoded chunks that are kept (encoded_chunks.h); outlives the links; NULL: none are */
    struct tb_encoded_chunks *encoded_chunks;
    uint32_t protocol_max;          /* a peer of the release before is spoken to in its own [2] */
    const struct tb_links_ops *ops; /* static */
    void *user;
    /* 0 means the default in brackets. */
    uint32_t streams;        /* data streams per link; 0: searched for (tuner.h) */
    uint64_t records_max;    /* TLS records either way after which a stream is replaced [4194304] */
    uint32_t threads;        /* stream loops [tb_links_threads] */
    uint32_t heartbeat_ms;   /* [1000] */
    uint32_t down_ms;        /* nothing heard for so long: the session is down [3000] */
    uint32_t silent_ms;      /* a heartbeat unanswered for so long: fresh dials begin [1000] */
    uint32_t fresh_dial_ms;  /* and go on so often, until one is answered [232: under 0.25 s] */
    uint32_t stream_idle_ms; /* no progress in mid-chunk: the stream is dropped [5000] */
    uint32_t retry_min_ms, retry_max_ms; /* [100, 5000], full jitter */
    /* what a peer sends unasked is taken within that of the last page of its
     * manifests, or asked for [250] */
    uint32_t push_ms;
    /* and within that of PUSH: streams may wait so long [1000, below stream_idle_ms] */
    uint32_t push_most_ms;
    /* where it was not, none of that model is expected from that peer for so long [60000] */
    uint32_t push_rest_ms;
    uint32_t push_manifest_bytes; /* versions with more of manifests are not sent unasked [65536] */
    /* Of the bytes that a crossing sent, that may go again on another stream when they are late, in
     * thousandths [20]; TB_LINKS_HEDGE_NONE. */
    uint32_t hedge_permille;
    uint64_t manifest_bytes_max; /* of one version's manifests in memory [256 MiB] */
    enum tb_choice_wish codec;   /* of what is sent [raw] */
    /* Memory for frames that are not whole yet, shared with others of the same thread; NULL: none
     * is counted */
    struct tb_wire_budget *partial;
    uint32_t handshakes_open;     /* unfinished, of one address that is no peer's [32] */
    uint32_t handshakes_failed;   /* likewise, that fail in a second [10] */
    uint32_t garbled_frames;      /* of a peer in a minute, before it is shut out [20] */
    struct tb_resolver *resolver; /* on the same loop; needed when an address is a name; outlives the links */
};

/* Stream loops, where options.threads says nothing. */
uint32_t tb_links_threads(uint32_t cores);

/* TB_BAD_ARGUMENT: an address that does not parse, a name needs a resolver, an identity that is
 * not the certificate's, a count over its maximum; TB_SITE_CONFIG: a congestion control that
 * cannot be had; TB_SITE_IO: cannot listen; TB_SITE_NOMEM. `error_out` gets a sentence.
 * Dialling begins at once. */
TB_MUST_USE enum tb_status tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                                        char error_out[256]);
/* Says goodbye, ends streams and threads; `done` comes on the loop when no thread touches any place
 * any more and everything is freed. No other callback comes after the call. */
void tb_links_close(struct tb_links *links, void (*done)(void *user), void *user);

/* Our catalog restarted above what a peer had seen: said in every HELLO from now on. */
void tb_links_set_incarnation(struct tb_links *links, uint64_t incarnation);

/* Certificates, keys and CAs from now on. `tls` is of the same gateway, and a reference is taken.
 * TB_BAD_ARGUMENT: it is of another gateway, and nothing changed.
 *
 * A session that this side dialled goes on over a fresh connection at once. A renewal that is
 * under way is followed by another, and one that failed is tried again after 10 s.
 *
 * A session that a peer dialled stays under the certificate that it began with. The peer dials
 * anew before that certificate expires.
 *
 * Where trust changed (tb_tls_trust) a session ends whose peer showed a chain that is not trusted
 * now (tb_chan_is_trusted). It is dialled again, and comes back if the peer has another one. */
TB_MUST_USE enum tb_status tb_links_set_tls(struct tb_links *links, struct tb_tls *tls);

/* ---- what we hold ---- */

/* places[shard], shard_count of them, in the state they are in now; also while they fill. The
 * structs are copied, what they point to (manifest, bytes, bitmaps) stays until tb_links_retract's
 * `done`. key->root must not be zero: only ready versions are offered. TB_DONE_BEFORE: offered
 * already (nothing changed). TB_SITE_NOMEM, TB_BAD_ARGUMENT. */
TB_MUST_USE enum tb_status tb_links_offer(struct tb_links *links, const struct tb_version_key *key,
                                          const struct tb_place *places);
/* Every chunk of it has a proof now: peers that have its manifests hear them. */
void tb_links_proven(struct tb_links *links, const struct tb_id *uid);
/* Serves it no more and tells the peers `why`. `done` comes on a later turn of the loop, when no
 * stream touches the places any more (a stream in the middle of one of its chunks is closed and
 * opened again). TB_NOT_FOUND: not offered; `done` is not called. */
TB_MUST_USE enum tb_status tb_links_retract(struct tb_links *links, const struct tb_id *uid,
                                            enum tb_status why, void (*done)(void *user), void *user);
/* Tells every peer that may read the model, now and after reconnections, that the version was
 * withdrawn; of so many that TB_LINKS_WITHDRAWN_MAX came since, the owner tells a peer that has
 * it (tb_links_tell_withdrawn). Retract it as well when its memory goes. */
TB_MUST_USE enum tb_status tb_links_withdrawn(struct tb_links *links, const struct tb_version_key *key);

/* ---- what we want ---- */

/* Asks for the manifests of a version the peer announced: on_manifests or on_failed. TB_NOT_FOUND:
 * not announced in this session; TB_DONE_BEFORE: under way; TB_SITE_NOMEM: TB_LINKS_ASKS_MAX. Of so
 * many, one of a version that the peer has not announced in this session fails, as TB_NOT_FOUND. */
TB_MUST_USE enum tb_status tb_links_ask(struct tb_links *links, uint32_t peer, const struct tb_id *uid);
/* Lands the version from that peer into places[shard], telling it what is held already. Their
 * manifests must be those of the version. Structs are copied, what they point to stays until
 * tb_links_land_stop's `done`. The peer may be down. Several peers may land into the same places:
 * claims keep them apart. One that failed begins again, and one beyond TB_LINKS_LANDINGS_MAX waits.
 * TB_DONE_BEFORE: under way, or landed; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_links_land(struct tb_links *links, uint32_t peer,
                                         const struct tb_version_key *key, const struct tb_place *places);
/* Ends all landings of the uid, from every peer, finished ones too: afterwards no stream writes
 * its places. `done` comes on a later turn of the loop, also when there was no landing. Bits
 * that are held stay held. */
TB_MUST_USE enum tb_status tb_links_land_stop(struct tb_links *links, const struct tb_id *uid,
                                              void (*done)(void *user), void *user);

/* ---- what is allowed ---- */

struct tb_links_limit {
    uint64_t bytes_per_s; /* of all streams to that peer, packets with their headers; 0: no limit */
    /* tb_links_stats' bytes_sent that are not gone over: a chunk that would waits in its stream.
     * UINT64_MAX: no limit */
    uint64_t until_bytes;
};
/* From now on; of chunks that are begun the rest still goes. */
void tb_links_limit(struct tb_links *links, uint32_t peer, const struct tb_links_limit *limit);

#endif
