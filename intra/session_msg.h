/* session_msg.h - the messages between a worker's library and its gateway. Pure.
 *
 * Frames of base/net/wire.h. "->" the worker asks, "<-" the gateway answers or tells. A request's
 * frame carries an id above 0 and is answered by exactly one frame with that id: REPLY, or the type
 * named. Notices have id 0. Lists inside a span are encoded as their comment says. */
/* clang-format does not settle on these tables of fields. */
/* clang-format off */
#ifndef TB_INTRA_SESSION_MSG_H
#define TB_INTRA_SESSION_MSG_H

#include "base/message.h"

/* Another number is refused, with TB_PEER_PROTOCOL. HELLO begins with it in every protocol, and
 * REPLY stays as it is.
 *   2: VERSION has classes, SEAL has base
 *   3: RUN_OPEN has joins and was_order, RUN names the run it shut out, SEAL has retry, blobs and
 *      said, CHUNK_BAD has encoded chunk, PLAN has foreign, MANIFESTS and SUBSCRIBE have said;
 *      DOUBT, DOUBTED, PROOFS, PROVE and PROVEN are new */
#define TB_MSG_PROTOCOL        3
#define TB_MSG_FRAME_BYTES_MAX (64u << 20) /* a manifest head of 100,000 tensors is 10 MiB */

enum tb_msg_type {
    TB_MSG_HELLO = 1,      /* -> first frame */
    TB_MSG_WELCOME,        /* <- answers HELLO */
    TB_MSG_REPLY,          /* <- answers what has no answer of its own */
    TB_MSG_RENEW,          /* -> notice, every third of the lease */
    TB_MSG_RUN_OPEN,       /* -> */
    TB_MSG_RUN,            /* <- answers RUN_OPEN */
    TB_MSG_VERSION_OPEN,   /* -> */
    TB_MSG_VERSION,        /* <- answers VERSION_OPEN and WAIT */
    TB_MSG_SEAL,           /* -> REPLY: TB_OK, TB_DONE_BEFORE, TB_CONFLICT, TB_FENCED, ... */
    /* -> REPLY when the gateway has what it must take, and no grant for the export is given any
     * more; the rank then closes its export */
    TB_MSG_UNPUBLISH,
    TB_MSG_SUBSCRIBE,      /* -> REPLY */
    TB_MSG_UNSUBSCRIBE,    /* -> REPLY */
    /* -> VERSION or REPLY with a failure; the gateway answers when it comes true or after
     * timeout_ms */
    TB_MSG_WAIT,
    TB_MSG_WAIT_SITE,      /* -> REPLY likewise */
    TB_MSG_CANCEL,         /* -> notice: the WAIT or WAIT_SITE of that id ends with TB_CANCELLED */
    TB_MSG_STAGE,          /* -> MANIFESTS; then PLAN notices come */
    /* <- answers STAGE: says how many shards; the shards follow as MANIFEST notices before any
     * PLAN */
    TB_MSG_MANIFESTS,
    TB_MSG_MANIFEST,       /* <- notice: one shard of the version of STAGE */
    /* -> notice: this worker's staging of the version can be read now, from here; export_id 0:
     * never */
    TB_MSG_EXPORT,
    /* <- notice: read the version from this source (a later one for the same uid
     * replaces the source) */
    TB_MSG_PLAN,
    /* <- notice to the source's owner: this token opens that export to that reader */
    TB_MSG_GRANT,
    /* -> notice, answers GRANT: the token opens it from now on, or why not; PLAN goes to
     * the reader only then */
    TB_MSG_GRANTED,
    /* -> notice: the source of PLAN failed; another PLAN follows when there is another source */
    TB_MSG_HOP_LOST,
    /* -> notice: a chunk came twice with a wrong digest from this source; plan 0: somebody wrote to
     * what this rank has sealed */
    TB_MSG_CHUNK_BAD,
    TB_MSG_PROGRESS,       /* -> notice, at most once a second while staging, and at the end */
    TB_MSG_GO,             /* <- notice: the group may activate the uid */
    /* -> REPLY: TB_OK (go was given), TB_AGAIN, TB_VERSION_WITHDRAWN, TB_BAD_STATE (backwards)
     * ... */
    TB_MSG_ACTIVATE,
    TB_MSG_ACTIVATED,      /* -> notice: the bytes are in the buffers */
    TB_MSG_RELEASE,        /* -> REPLY: no grant for the export is given any more */
    /* <- notice: a version this session holds, stages or publishes became kept, lost, broken,
     * withdrawn, superseded; or its attempt ended */
    TB_MSG_VERSION_STATE,
    TB_MSG_STATUS,         /* -> STATUS_TEXT */
    TB_MSG_STATUS_TEXT,    /* <- JSON */
    /* -> notice behind ACTIVATED, to a gateway that takes it (WELCOME): what the update of the
     * buffers took */
    TB_MSG_UPDATED,
    TB_MSG_DOUBT,          /* <- notice: a reader got a damaged chunk from here: digest it */
    TB_MSG_DOUBTED,        /* -> notice, answers DOUBT: what the digest said, and what was done */
    /* <- notice, behind the MANIFEST of the shard: proofs of its chunks, as they become known */
    TB_MSG_PROOFS,
    TB_MSG_PROVE,          /* <- notice: digest what that subscription computes from, and answer */
    TB_MSG_PROVEN,         /* -> notice: what the digests said; answers PROVE, or by itself */
    TB_MSG_TYPE_END
};

#define TB_MSG_HELLO_FIELDS(F) \
    F(u32, protocol) F(id, session) /* zero: a new one; else the one to go on with */ \
    F(name, name) F(name, host) F(opt_name, rack) F(bool, spot) \
    F(u32, pid) /* of tb_msg_pid_put */ \
    F(text, shm_door) F(text, tcp) F(bool, tls) \
    F(fingerprint, print) /* its door: struct tb_fabric_endpoint */
TB_MESSAGE(tb_msg_hello, TB_MSG_HELLO_FIELDS)

/* A pid of Linux has 22 bits. Above it stands what the worker's NIC carries each way, in Gbit/s,
 * rounded down, 1023 at most; 0: not known. A gateway of the release before looks at neither, and a
 * worker of that release says 0. */
#define TB_MSG_PID_BITS       22u
#define TB_MSG_NIC_GBITS_MAX  1023u
#define TB_MSG_GBIT_BYTES     UINT64_C(125000000)
static inline uint32_t tb_msg_pid_put(uint32_t pid, uint64_t nic_bytes_per_s)
{
    const uint64_t gbits = nic_bytes_per_s / TB_MSG_GBIT_BYTES;
    const uint32_t said = gbits > TB_MSG_NIC_GBITS_MAX ? TB_MSG_NIC_GBITS_MAX : (uint32_t)gbits;
    return (pid & ((1u << TB_MSG_PID_BITS) - 1)) | said << TB_MSG_PID_BITS;
}
static inline uint64_t tb_msg_nic_get(uint32_t pid)
{
    return (pid >> TB_MSG_PID_BITS) * TB_MSG_GBIT_BYTES;
}

/* The longest drain_ms that a gateway may say, and be configured with: under the bit that
 * UNPUBLISH has there. */
#define TB_MSG_DRAIN_MS_MAX 3600000u
/* In WELCOME's incarnation: this gateway takes UPDATED. A gateway of the release before never
 * counts so far and drops the session of a worker that sends it one; a worker of the release before
 * does not look at the number. */
#define TB_MSG_TAKES_UPDATED (UINT64_C(1) << 63)
#define TB_MSG_WELCOME_FIELDS(F) \
    F(u32, protocol) F(id, session) /* differs from HELLO's: announce everything again */ \
    F(name, site) F(name, gateway) F(u64, incarnation) F(u32, lease_ms) F(bool, fabric_trusted) \
    F(u32, drain_ms) F(text, peer_address)
TB_MESSAGE(tb_msg_welcome, TB_MSG_WELCOME_FIELDS)

#define TB_MSG_REPLY_FIELDS(F) \
    F(u32, status_negated) /* of tb_msg_status_put */ \
    F(text, why)
TB_MESSAGE(tb_msg_reply, TB_MSG_REPLY_FIELDS)

/* A status in a u32, here and wherever a field is named so: its own 32 bits, so TB_AGAIN is 1 and
 * TB_CHUNK_ABSENT is 0xffffff98. */
static inline uint32_t tb_msg_status_put(enum tb_status status)
{
    return (uint32_t)(int32_t)status;
}
/* TB_PEER_GARBLED for what is no status. */
static inline enum tb_status tb_msg_status_get(uint32_t field)
{
    const int32_t status = (int32_t)field;
    const bool strange = status < -999 || status > 99 || (status < 0 && status > -100);
    return strange ? TB_PEER_GARBLED : (enum tb_status)status;
}

/* joins: a key that is not known starts a run only where the model has none yet.
 * was_order: of the run that this session opened with this key before; 0: it did not. A home that
 * lost its store knows no key, and shuts no newer run out for such a one. */
#define TB_MSG_RUN_OPEN_FIELDS(F) F(name, model) F(text, key) F(bool, joins) F(u64, was_order)
TB_MESSAGE(tb_msg_run_open, TB_MSG_RUN_OPEN_FIELDS)

#define TB_MSG_RUN_FIELDS(F)                                                               \
    F(id, run) F(u64, run_order) F(bool, joined) F(bool, has_last) F(u64, last_number)          \
    F(u64, resumed_run_order) F(u64, resumed_number)                                            \
    F(u64, shut_out_order) /* of the run that it shut out; 0: none */                           \
    F(bool, shut_out_has_last) F(u64, shut_out_number)
TB_MESSAGE(tb_msg_run, TB_MSG_RUN_FIELDS)

#define TB_MSG_VERSION_OPEN_FIELDS(F) \
    F(name, model) F(id, run) F(u64, number) F(u32, shard_count)
TB_MESSAGE(tb_msg_version_open, TB_MSG_VERSION_OPEN_FIELDS)

/* classes, in the answer to VERSION_OPEN: the number of classes in which the gateway wants deltas;
 * 0: it wants none. */
#define TB_MSG_VERSION_FIELDS(F) F(key, key) F(u64, bytes) F(bool, whole_here) F(u8, classes)
TB_MESSAGE(tb_msg_version, TB_MSG_VERSION_FIELDS)

#define TB_MSG_SEAL_FIELDS(F)                                                              \
    F(id, uid) F(u32, shard) F(bool, in_place) F(u64, export_id)                               \
    F(bool, retry)   /* other bytes than those of a ready version do not break it */           \
    F(span, head)    /* tb_manifest_head_encode, root filled */                                \
    F(span, digests) /* chunk_count x 16 */                                                    \
    F(span, source)  /* tb_source_encode of this one shard */                                  \
    F(id, base)      /* its shelf gets deltas against that version; zero: it has none */       \
    F(span, blobs)   /* blob_count x 16, a digest of each blob; empty: not known */        \
    F(span, said)    /* STATEMENT of a publisher for this shard; empty: it is not signed */ \
    F(span, proofs)  /* chunk_count x 32, which that one covers; empty: it is not signed */
TB_MESSAGE(tb_msg_seal, TB_MSG_SEAL_FIELDS)

/* shard UINT32_MAX: every shard of it that this session sealed. For one shard the highest bit of
 * drain_ms says that its memory goes when the drain ends: the reference does not come back, and the
 * REPLY is TB_PEER_REVOKED where the gateway lacks some of it by then. */
#define TB_MSG_UNPUBLISH_GONE (UINT32_C(1) << 31)
#define TB_MSG_UNPUBLISH_FIELDS(F) F(id, uid) F(u32, shard) F(u32, drain_ms)
TB_MESSAGE(tb_msg_unpublish, TB_MSG_UNPUBLISH_FIELDS)

#define TB_MSG_SUBSCRIBE_FIELDS(F) \
    F(u32, subscription) /* the worker's number for it, above 0 */ \
    F(name, model) F(name, group) F(u32, member_index) F(u32, member_count) \
    F(id, active) /* after a reconnection: the active uid, or zero */ \
    F(u64, active_run_order) \
    F(u64, active_number) /* a gateway that lost its memory cannot know how new it is */ \
    F(span, said) /* STATEMENT of home for the active version, as MANIFESTS brought it */
TB_MESSAGE(tb_msg_subscribe, TB_MSG_SUBSCRIBE_FIELDS)

#define TB_MSG_UNSUBSCRIBE_FIELDS(F) F(u32, subscription)
TB_MESSAGE(tb_msg_unsubscribe, TB_MSG_UNSUBSCRIBE_FIELDS)

#define TB_MSG_WAIT_FIELDS(F) \
    F(u8, kind) F(name, model) F(u64, run_order) F(u64, number) F(id, after) F(u32, timeout_ms)
TB_MESSAGE(tb_msg_wait, TB_MSG_WAIT_FIELDS)

#define TB_MSG_WAIT_SITE_FIELDS(F) F(id, uid) F(opt_name, site) F(u8, state) F(u32, timeout_ms)
TB_MESSAGE(tb_msg_wait_site, TB_MSG_WAIT_SITE_FIELDS)

#define TB_MSG_CANCEL_FIELDS(F) F(u64, request)
TB_MESSAGE(tb_msg_cancel, TB_MSG_CANCEL_FIELDS)

#define TB_MSG_STAGE_FIELDS(F) F(u32, subscription) F(id, uid)
TB_MESSAGE(tb_msg_stage, TB_MSG_STAGE_FIELDS)

#define TB_MSG_MANIFESTS_FIELDS(F) \
    F(key, key) F(u32, shard_count) \
    F(span, said) /* STATEMENT of home for the version; empty: the gateway has none */
TB_MESSAGE(tb_msg_manifests, TB_MSG_MANIFESTS_FIELDS)

#define TB_MSG_MANIFEST_FIELDS(F) F(id, uid) F(u32, shard) F(span, head) F(span, digests)
TB_MESSAGE(tb_msg_manifest, TB_MSG_MANIFEST_FIELDS)

/* Of the chunks from `first` on. One that was told before has the same proof again. */
#define TB_MSG_PROOFS_FIELDS(F) F(id, uid) F(u32, shard) F(u32, first) F(span, proofs) /* n x 32 */
TB_MESSAGE(tb_msg_proofs, TB_MSG_PROOFS_FIELDS)

#define TB_MSG_EXPORT_FIELDS(F) \
    F(id, uid) F(u64, export_id) F(u32, held_chunks) F(bool, whole) F(span, source)
TB_MESSAGE(tb_msg_export, TB_MSG_EXPORT_FIELDS)

#define TB_MSG_PLAN_FIELDS(F) \
    F(id, uid) F(u64, plan) /* grows; names this assignment in HOP_LOST */ \
    F(name, source_name) F(u64, export_id) F(id, token) F(name, host) F(text, shm_door) \
    F(text, tcp) F(bool, tls) F(fingerprint, print) F(span, source) \
    F(bool, foreign) /* the source is another worker: its bytes have to fit their proofs */
TB_MESSAGE(tb_msg_plan, TB_MSG_PLAN_FIELDS)

#define TB_MSG_GRANT_FIELDS(F) F(u64, export_id) F(id, token) F(fingerprint, reader)
TB_MESSAGE(tb_msg_grant, TB_MSG_GRANT_FIELDS)

#define TB_MSG_GRANTED_FIELDS(F) F(id, token) F(u32, status_negated)
TB_MESSAGE(tb_msg_granted, TB_MSG_GRANTED_FIELDS)

#define TB_MSG_HOP_LOST_FIELDS(F) F(id, uid) F(u64, plan) F(u32, status_negated)
TB_MESSAGE(tb_msg_hop_lost, TB_MSG_HOP_LOST_FIELDS)

#define TB_MSG_CHUNK_BAD_FIELDS(F) \
    F(id, uid) F(u64, plan) F(u32, shard) F(u32, chunk) \
    F(bool, encoded) /* not the chunk: its encoded form, on the source's shelf */
TB_MESSAGE(tb_msg_chunk_bad, TB_MSG_CHUNK_BAD_FIELDS)

/* Of what this session stages, or of what it sealed. A worker that lately digested the chunk, or
 * does not serve it, answers nothing. */
#define TB_MSG_DOUBT_FIELDS(F) F(id, uid) F(u32, shard) F(u32, chunk) F(bool, encoded)
TB_MESSAGE(tb_msg_doubt, TB_MSG_DOUBT_FIELDS)

/* The result of a holder's own digest, and its action. */
enum tb_msg_found {
    TB_MSG_FOUND_GOOD = 1,
    /* staged, and damaged: it is fetched again, and PROGRESS says that the staging is not whole */
    TB_MSG_FOUND_AGAIN,
    /* damaged, and served no more: staged, and the worker computes from it; or an encoded chunk */
    TB_MSG_FOUND_GONE,
    /* sealed, and the copy was damaged: it was made again from the memory it was made of */
    TB_MSG_FOUND_MENDED,
    TB_MSG_FOUND_SPOILED /* sealed, and damaged for good */
};
#define TB_MSG_DOUBTED_FIELDS(F) F(id, uid) F(u32, shard) F(u32, chunk) F(u8, found)
TB_MESSAGE(tb_msg_doubted, TB_MSG_DOUBTED_FIELDS)

#define TB_MSG_PROGRESS_FIELDS(F) \
    F(id, uid) F(u32, held_chunks) F(u32, total_chunks) F(bool, whole) F(u64, bytes_per_s) \
    F(u8, transport)
TB_MESSAGE(tb_msg_progress, TB_MSG_PROGRESS_FIELDS)

#define TB_MSG_GO_FIELDS(F) F(u32, subscription) F(id, uid)
TB_MESSAGE(tb_msg_go, TB_MSG_GO_FIELDS)

#define TB_MSG_ACTIVATE_FIELDS(F) F(u32, subscription) F(id, uid)
TB_MESSAGE(tb_msg_activate, TB_MSG_ACTIVATE_FIELDS)

#define TB_MSG_ACTIVATED_FIELDS(F) \
    F(u32, subscription) F(id, uid) F(u64, run_order) F(u64, number) F(u64, stall_ns) \
    F(u64, copied_bytes)
TB_MESSAGE(tb_msg_activated, TB_MSG_ACTIVATED_FIELDS)

/* How a version got to where the rollout computes from. Numbers are only added, and UNKNOWN stands
 * for those of a later release. */
enum tb_msg_way {
    TB_MSG_WAY_STAGED, /* no buffers are registered: it is read where it is staged */
    TB_MSG_WAY_COPY,
    TB_MSG_WAY_SWITCH,
    TB_MSG_WAY_PATCH,
    TB_MSG_WAY_UNKNOWN
};
static inline const char *tb_msg_way_name(uint8_t way)
{
    static const char *const names[] = {"staged", "copy", "switch", "patch", "unknown"};
    return names[way < TB_MSG_WAY_UNKNOWN ? way : TB_MSG_WAY_UNKNOWN];
}

/* As in struct tb_activate_info. */
#define TB_MSG_UPDATED_FIELDS(F) \
    F(u32, subscription) F(id, uid) F(u8, way) F(u64, stall_ns) F(u64, staged_bytes) \
    F(u64, copied_bytes) F(u64, patched_bytes) F(u32, fetched_chunks)
TB_MESSAGE(tb_msg_updated, TB_MSG_UPDATED_FIELDS)

#define TB_MSG_PROVE_FIELDS(F) F(u64, ask) /* above 0; a later one replaces it */ F(u32, subscription)
TB_MESSAGE(tb_msg_prove, TB_MSG_PROVE_FIELDS)

/* The result of a worker's digests of what it computes from. */
enum tb_msg_verdict {
    TB_MSG_PROVEN_WHOLE = 1, /* all of it is what was sealed, chunk by chunk */
    TB_MSG_PROVEN_BY_BOX,    /* likewise; some of it is compared with digests of the staged bytes */
    TB_MSG_PROVEN_DIFFERS,
    TB_MSG_PROVEN_NOT, /* it cannot be proven: tb_msg_unprovable */
    TB_MSG_PROVEN_END
};
static inline const char *tb_msg_verdict_name(uint8_t verdict)
{
    static const char *const names[] = {"unknown", "proven", "proven by box", "differs", "not provable"};
    return names[verdict < TB_MSG_PROVEN_END ? verdict : 0];
}
enum tb_msg_unprovable {
    TB_MSG_PROVABLE,
    TB_MSG_UNPROVABLE_REPACKED,   /* the engine says that it writes to the tensors */
    TB_MSG_UNPROVABLE_IDLE,       /* no version is active */
    TB_MSG_UNPROVABLE_RELEASED,   /* it was computed from where it was staged, and that was released */
    TB_MSG_UNPROVABLE_WRITTEN,    /* a switch is under way, or the memory was suspended since */
    TB_MSG_UNPROVABLE_UNDIGESTED, /* the registered boxes were staged as a patch */
    TB_MSG_UNPROVABLE_REFUSED,    /* no memory, a device refused, or a mapped file was cut short */
    TB_MSG_UNPROVABLE_END
};
static inline const char *tb_msg_unprovable_name(uint8_t why)
{
    static const char *const names[] = {"",        "repacked",   "idle",   "released",
                                        "written", "undigested", "refused"};
    return names[why < TB_MSG_UNPROVABLE_END ? why : 0];
}

/* Not `done`: something differs, the first of it is named, and the rest is still looked at. */
#define TB_MSG_PROVEN_FIELDS(F)                                                                 \
    F(u64, ask) /* 0: nobody asked */ F(u32, subscription) F(id, uid) F(bool, done)             \
    F(u8, verdict) F(u8, why) F(u64, bytes) /* that were compared; of them: */                  \
    F(u64, box_bytes) F(u64, blake3_bytes) F(u64, left_bytes) /* in boxes without a digest */   \
    F(u64, took_ms) F(u64, age_ms) /* of the result, when it is told */                         \
    F(u32, bad) /* chunks and boxes that differ; of the first: */                               \
    F(u32, shard) F(u32, chunk) F(text, tensor)
TB_MESSAGE(tb_msg_proven, TB_MSG_PROVEN_FIELDS)

#define TB_MSG_RELEASE_FIELDS(F) F(id, uid)
TB_MESSAGE(tb_msg_release, TB_MSG_RELEASE_FIELDS)

/* state: the status that waiters get (TB_VERSION_LOST, ...), as in REPLY; TB_OK: the version is
 * kept. */
#define TB_MSG_VERSION_STATE_FIELDS(F) F(id, uid) F(u32, status_negated)
TB_MESSAGE(tb_msg_version_state, TB_MSG_VERSION_STATE_FIELDS)

/* Where STATUS's `what` begins so, a uid in hex follows, and the answer has the tensors of that
 * version. Any other `what` asks for the site's status. A gateway of the release before answers
 * each with that. */
#define TB_MSG_STATUS_TENSORS "tensors "
#define TB_MSG_STATUS_FIELDS(F) F(text, what)
TB_MESSAGE(tb_msg_status, TB_MSG_STATUS_FIELDS)

#define TB_MSG_STATUS_TEXT_FIELDS(F) F(span, json)
TB_MESSAGE(tb_msg_status_text, TB_MSG_STATUS_TEXT_FIELDS)

#endif
