/* tombolo.h - what a trainer rank or a rollout rank calls to publish and to follow the
 * versions of a model.
 *
 * Handles are opaque. Every function that returns int, but tb_session_eventfd, answers with a
 * number of status.h. 0: done. Above 0: nothing failed, but the call is not done either (TB_AGAIN,
 * TB_TIMEOUT, TB_CANCELLED, TB_END). Below 0: it failed. Outputs are written with 0 alone, unless a
 * call says otherwise.
 *
 * Structs begin with their size, outputs too, so that a program built today runs with a later
 * library: set `struct_bytes = sizeof x` and zero the rest. Strings are UTF-8 and copied before a
 * call returns, except where "borrowed" is said.
 *
 * Threads: a session and its handles may be used from any thread. Calls on one subscription are
 * made one at a time, and tb_unregister is the last call on a registration. No call may be made
 * from a signal handler. The library owns one thread a session and a pool for passes over bytes
 * (default: the cores allowed to the process). Once something is proven (enum tb_prove) it owns a
 * thread of low priority, too.
 *
 * Time: blocking calls take `timeout_ms`. 0 asks once (TB_AGAIN), UINT32_MAX waits for ever, and
 * tb_cancel wakes them. The drain time is the gateway's `drain_ms`, 10 s as a rule: so long may
 * readers finish when memory is taken from them.
 *
 * fork: a child cannot use its parent's session. Calls there answer TB_FORKED, and memory of
 * tb_buffer_new is not mapped there.
 *
 * Ends: a handle ends with the call that takes it back (tb_unregister, tb_unsubscribe with TB_OK),
 * and with its session. It is not to be used after that.
 *
 * While the gateway is away, calls that need it answer TB_GATEWAY_AWAY when their timeout has
 * passed. Staged bytes, sources and versions already marked `go` go on working. A release, or the
 * end of a subscription or a registration, takes effect here at once. The gateway hears of it when
 * it is back.
 *
 * Statuses: a call names those that mean something special there. Besides, any call may answer
 * TB_BAD_ARGUMENT (tb_last_error says which), TB_SITE_NOMEM, TB_FORKED, and TB_CANCELLED once
 * its session is being closed. */
#ifndef TOMBOLO_TOMBOLO_H
#define TOMBOLO_TOMBOLO_H

#include <stdint.h>

#include "tombolo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tb_session;
struct tb_registration;
struct tb_subscription;

/* 128 bits that name one version for ever. */
struct tb_uid {
    uint8_t bytes[16];
};

#define TB_WAIT_FOREVER UINT32_MAX

/* ---- session ---- */

struct tb_session_options {
    uint32_t struct_bytes;
    /* of the pool; 0: the cores allowed to the process, and at most 8 for arriving bytes */
    uint32_t threads;
    const char *gateway; /* "unix:/run/tombolo/west.sock" or "host:port" (TLS) */
    const char *name;    /* of this worker, as people will see it; NULL: "HOSTNAME-PID" */
    const char *host;    /* where it shares memory and a NIC; NULL: the machine's boot id */
    const char *rack;    /* NULL: unknown */
    const char *ca;      /* TLS: PEM files, read anew for each connection; NULL over a unix socket */
    const char *cert;
    const char *key;
    /* Where its door listens for `tcp` readers; NULL: 127.0.0.1 over a unix socket, else the
     * address used towards the gateway. */
    const char *fabric_address;
    /* At most this much out and in by `tcp`, as a NIC would; 0: no limit (for emulated hosts). */
    uint64_t pace_bytes_per_s;
    uint32_t spot;            /* 1: serves others, but is never counted as the last copy */
    uint32_t open_timeout_ms; /* 0: 10000 */
    /* 1: no RDMA, neither to read nor to serve. RDMA is not encrypted. Where both ends have it it
     * is used, and tcp else. */
    uint32_t no_verbs;
    /* 1, for finding faults: pages of what is published in place are write-protected while it is
     * sealed. A write to them goes on, is logged with its tensor, and makes the version broken.
     * Takes the process's SIGSEGV handler; other faults go to the one before. */
    uint32_t protect;
    /* 0: memory that a later call is bound to need is prepared in background: a second shadow once
     * the first version is sealed, and staging once tb_subscribe has returned. 1: each call makes
     * its memory when it needs it, which takes half a second a GiB, and longer for a GPU. */
    uint32_t no_prepare;
    /* A publisher's certificate and key (PEM; `tombolo pki issue --publisher`). All that this
     * session publishes is signed with it, as models.NAME.publishers may demand. The signature
     * covers a BLAKE3 of each chunk: tb_publish takes longer by a pass of it over the shard, some
     * GB/s on each thread. Read once, when the session opens. NULL: nothing is signed. */
    const char *sign_cert;
    const char *sign_key;
};

/* Returns when the gateway has answered. TB_GATEWAY_AWAY: it did not within open_timeout_ms;
 * TB_PEER_DENIED, TB_PEER_IDENTITY, TB_PEER_PROTOCOL: it will not have us; TB_SITE_CONFIG: ca,
 * cert, key, sign_cert or sign_key; TB_SITE_IO: no default host name, or no door can be opened
 * here. *session_out is untouched on failure. */
TB_API TB_MUST_USE int tb_session_open(const struct tb_session_options *options,
                                       struct tb_session **session_out);
/* Ends everything of the session: readers are cut off (they go on elsewhere), registrations,
 * subscriptions and buffers end, waiting calls return TB_CANCELLED, and it returns behind them.
 * Once, and no call may begin beside it or after. NULL is fine. */
TB_API void tb_session_close(struct tb_session *session);
/* A descriptor (an eventfd, non-blocking) that becomes readable when something this session waits
 * for may have changed: a version that tb_wait was asked for with timeout 0, of the 16 different
 * questions asked last at most; go; a version whole in staging, or ended; the gateway gone or back.
 * Owned by the session: not to be closed. Read its 8 bytes, then ask again. -1: not a session of
 * this process, or it closes. */
TB_API int tb_session_eventfd(struct tb_session *session);
/* Wakes every blocking call of the session with TB_CANCELLED; later calls are not concerned.
 * A call that was cancelled has the effect of one that failed, but tb_stage: the version
 * goes on arriving. */
TB_API void tb_cancel(struct tb_session *session);
/* A sentence about this thread's last failed call: what failed, where, and what to do. Calls that
 * did not fail leave it. Never NULL; valid until the thread's next call. */
TB_API const char *tb_last_error(void);
/* State as JSON ("schema": 1). `what` is one of:
 *   "session"      registrations, staged versions, hops with transport and rate
 *   "site"         as `tombolo status`; asks the gateway, 10 s at most. TB_PEER_DENIED: this
 *                  identity may neither publish nor read any model there
 *   "tensors UID"  of a version that the site holds or gets, by the 32 hex digits of its uid:
 *                  "tensors" has [name, dtype, [axes]] of each, some more than once; null over
 *                  65,536. Asks likewise. TB_NOT_FOUND: not all of its manifests are there. A
 *                  gateway of the release before answers as to "site"
 * Writes at most cap bytes, a NUL among them. *needed_out (NULL is fine) is the size of the whole
 * text. TB_TOO_LARGE: cap is less, and the beginning is there. */
TB_API TB_MUST_USE int tb_status(struct tb_session *session, const char *what, char *out, uint64_t cap,
                                 uint64_t *needed_out);
/* "0.1.0" */
TB_API const char *tb_library_version(void);

/* ---- memory ---- */

/* Memory that readers on the same host map (a sealed memfd), page-aligned and zeroed; bytes is at
 * least 1. Its pages are there when it returns, so a full machine is TB_SITE_NOMEM and no signal
 * later. Owned by the session; free it after its registration is gone. */
TB_API TB_MUST_USE int tb_buffer_new(struct tb_session *session, uint64_t bytes, void **memory_out);
/* memory: as tb_buffer_new gave it, else TB_NOT_FOUND. TB_BAD_STATE while registered and not
 * suspended. */
TB_API TB_MUST_USE int tb_buffer_free(struct tb_session *session, void *memory);

struct tb_tensor_desc {
    const char *name; /* canonical; equal at publisher and reader */
    /* As safetensors spells it: "BF16", "F8_E8M0", "F4"... A dtype is a name and the bits of one
     * element; one that this library does not know is "NAME:BITS" (1 to 29 of A-Z a-z 0-9 . _ - and
     * 1 to 1024), and its bytes are opaque. A tensor takes the bits of all its elements, in whole
     * bytes rounded up. A file's tensor of an unknown dtype is published as "NAME:8", with one
     * dimension: its bytes. */
    const char *dtype;
    uint32_t rank; /* 0 to 8 */
    const uint64_t *shape;
    /* Where its elements stand, dense, row-major: in a buffer of tb_buffer_new, the caller's own
     * memory, or a CUDA device's (a library built with CUDA's headers sees which; one built without
     * them must not be given any). */
    void *memory;
};

/* Registers 1 to 1,000,000 tensors once. The memory stays the caller's and must stay valid until
 * tb_unregister has returned; the rest is copied. A name has 1 to 512 bytes of UTF-8 without
 * control characters, and one element type and shape. A tensor may have no elements (memory is NULL
 * then), and rank 0 is one element. Works without the gateway.
 *
 * Tied weights: tensors may have one address and as many bytes. A version is written to such a
 * memory once, and has to have the same bytes for all of them. Else tb_stage or tb_activate is
 * TB_LAYOUT_MISMATCH, and tb_last_error names two. Tensors that share a part of their memory can be
 * published; tb_subscribe refuses them.
 *
 * Device memory: of one device, in its primary context. Calls do not wait for the caller's streams.
 * Writes of a stream have to be complete (the stream is synchronised) before a call that reads the
 * memory. Kernels that read it have to be complete before a call that writes it: tb_activate, and
 * with TB_UPDATE_SWITCH tb_stage for the buffers that are not in use.
 *
 * Memory that maps a file: if somebody makes the file shorter, the process lives. The missing pages
 * read as zeros from then on (to the caller, too). Calls over this registration answer TB_SITE_IO
 * and name the tensor until tb_resume, and a version that was published in place ends as if it were
 * unpublished. For that, the first such registration takes the process's SIGBUS handler; other
 * faults go to the one before.
 *
 *   TB_BAD_ARGUMENT            tb_last_error names the tensor
 *   TB_SITE_IO, TB_SITE_NOMEM  the driver refused; the log has gpu.failed */
TB_API TB_MUST_USE int tb_register(struct tb_session *session, const struct tb_tensor_desc *tensors,
                                   uint32_t count, struct tb_registration **registration_out);
/* A box of a tensor: the part that one rank has, [first, first + count) along each axis. */
struct tb_slice_desc {
    uint32_t struct_bytes;
    uint32_t rank; /* 0 to 8 */
    const char *name;
    /* As in tb_tensor_desc. Where an element takes a fraction of a byte, the last axis, and first
     * and count along it, take whole bytes, and so does each part of a split along it. */
    const char *dtype;
    const uint64_t *shape; /* of the whole tensor */
    const uint64_t *first; /* NULL: from the beginning of each axis */
    const uint64_t *count; /* NULL: all behind `first` */
    /* where the box stands, dense, row-major: a part of a fused tensor is a part of its memory */
    void *memory;
    /* A publisher says along which axis readers split the tensor, and into how many equal parts at
     * most (part p of n is [p x length / n, (p + 1) x length / n), length that of the whole
     * tensor). Readers of such parts then read little else. 0: not split.
     *
     * Of a fused tensor n is such that q, k and v, and the part of each that a reader has, begin
     * where a part does. For readers up to tp=8 that is 24 where the three are of one size, and 48
     * where q is four times k and v. */
    uint32_t split_axis;
    uint32_t split_count;
};

/* Registers boxes of tensors, for ranks that have parts of a model. A name may be listed several
 * times. Otherwise as tb_register.
 *
 * A reader may have any boxes. Its names may stand whole, or in boxes of any kind, at the version's
 * shards. It reads and verifies the chunks that meet its boxes, keeps those alone in staging, and
 * serves nobody. The shards of a version may have elements in common; the first shard's are read.
 * An element that no shard has is TB_LAYOUT_MISMATCH for its reader.
 *
 * A publisher's boxes of one name have one dtype and shape, and no element in common; else
 * tb_publish is TB_BAD_ARGUMENT. So it is with more than 1,024 boxes of a name, where each counts
 * for the parts that its split makes, and the largest split of names listed once is added.
 *
 * Boxes of one name stand in no chunk with each other, so experts that are read by number need no
 * split. Nor do they stand in one with names that are cut in another way, up to 1,024 ways. */
TB_API TB_MUST_USE int tb_register_slices(struct tb_session *session, const struct tb_slice_desc *slices,
                                          uint32_t count, struct tb_registration **registration_out);
/* Blocks until no reader can touch the memory (at most the drain time, then readers are cut off),
 * and ends the references to versions published in it in place. Meanwhile the gateway takes the
 * chunks of them that it lacks. A chunk that it could not take is lost where nobody else has it:
 * tb_unpublish waits for the gateway, and may be called first. TB_BAD_STATE while a subscription
 * uses it. */
TB_API TB_MUST_USE int tb_unregister(struct tb_registration *registration);
/* For engines that sleep or offload: hides the references to this memory and drains readers, as
 * tb_unregister does; after it returns the memory may go, and until tb_resume versions that stand
 * in it alone can be read by nobody. TB_BAD_STATE: it is suspended already. Subscriptions stay;
 * tb_activate and tb_publish answer TB_BAD_STATE until tb_resume. */
TB_API TB_MUST_USE int tb_suspend(struct tb_registration *registration);
/* The same tensors in the order in which they were registered, at memories[i] now; memories NULL:
 * where they were, and count is not looked at. References come back only after a pass has compared
 * digests with those that were sealed.
 *   TB_BAD_ARGUMENT            a subscription uses it, and other weights are tied there than
 *                              before; it stays where it was
 *   TB_CONFLICT                one did not come back; the registration can be used all the same
 *   TB_BAD_STATE               it is not suspended, or another call suspends or resumes it
 *   TB_SITE_IO, TB_SITE_NOMEM  from the GPU's driver: it stays suspended */
TB_API TB_MUST_USE int tb_resume(struct tb_registration *registration, void *const *memories, uint32_t count);

/* ---- publishing ---- */

struct tb_run_info {
    uint32_t struct_bytes;
    uint32_t joined; /* 1: the key was known, this rank joined that run */
    struct tb_uid run;
    uint64_t run_order;   /* 1 for the model's first run */
    uint64_t last_number; /* of this run's newest ready version; meaningless while has_last is 0 */
    uint32_t has_last;
    uint64_t resumed_run_order; /* the model's newest ready version when the run began; 0: none */
    uint64_t resumed_number;
    /* The run that this one shut out, and that run's newest ready version. 0: none, or the
     * gateway restarted since. */
    uint64_t shut_out_run_order;
    uint64_t shut_out_number; /* meaningless while shut_out_has_last is 0 */
    uint32_t shut_out_has_last;
    uint32_t reserved;
};

/* key: at most 255 bytes. A new key starts a run and shuts out every earlier one; the newest run's
 * key joins it, and so does an empty key (then TB_NOT_FOUND also means that the model has no run
 * yet). TB_FENCED: the key of a run that was shut out. TB_NOT_HOME, TB_PEER_DENIED, TB_NOT_FOUND
 * (model not configured); TB_SITE_DOUBT: the home's store is new or restored, and the peers that
 * tb_last_error names have not said which runs they remember, for up to 30 s; TB_TIMEOUT,
 * TB_GATEWAY_AWAY after 45 s. */
TB_API TB_MUST_USE int tb_run_open(struct tb_session *session, const char *model, const char *key,
                                   struct tb_run_info *info_out);
/* As tb_run_open, but a key that is not known starts a run only where the model has none yet.
 *   TB_BAD_STATE  the model has a run with another key; tb_last_error names it and its newest
 *                 version */
TB_API TB_MUST_USE int tb_run_join(struct tb_session *session, const char *model, const char *key,
                                   struct tb_run_info *info_out);

enum tb_publish_mode {
    /* The pass copies: the caller's bytes are its own again when tb_publish returns. */
    TB_PUBLISH_SHADOW = 0,
    /* Nothing is copied: the bytes must not change until tb_unpublish has returned. Of a device's
     * memory a copy in host memory is kept too, for readers that cannot read the device. Tensors
     * that stand one right behind the other cost readers and NICs no more than one.
     *
     * With RDMA the pages stay pinned over versions, until tb_suspend, tb_unregister or
     * tb_session_close has returned. Before that they must not be unmapped, or dropped by madvise,
     * not even between two versions. */
    TB_PUBLISH_IN_PLACE = 1
};

struct tb_blob_desc {
    /* A relative path of 1 to 255 bytes, at most 8 folders, unlike the others of the shard.
     * No component is "." or "..", or begins with ".tombolo". The first is not STABLE or WITHDRAWN,
     * which are `tombolo subscribe`'s. None is a folder of another, in no shard of the version. */
    const char *name;
    const void *bytes;
    uint64_t count; /* at most 100 MiB */
};

struct tb_publish_options {
    uint32_t struct_bytes;
    uint32_t mode; /* enum tb_publish_mode */
    const char *model;
    const struct tb_uid *run; /* of tb_run_open */
    uint64_t number;          /* the trainer's step; above every number of the run so far, and below 2^63 */
    uint32_t shard_index;     /* 0 .. shard_count - 1 */
    uint32_t shard_count;
    struct tb_registration *registration; /* the shard's tensors; NULL: blobs only */
    const struct tb_blob_desc *blobs;     /* copied always */
    uint32_t blob_count;                  /* at most 1024 */
    const char *codec;                    /* "raw" (NULL) or "zstd": how chunks go to the gateway */
    uint32_t timeout_ms;                  /* for the gateway's answer; 0: 30000 */
    /* 1: the call may run again beside a version that is ready: other bytes are TB_CONFLICT,
     * and change nothing. 0: ranks that seal one shard with different bytes have diverged, and
     * the version is broken. */
    uint32_t retry;
};

struct tb_publish_info {
    uint32_t struct_bytes;
    uint32_t chunk_count;
    struct tb_uid uid;
    uint64_t bytes;         /* of the shard, blobs included */
    uint64_t encoded_bytes; /* of it with `codec` */
    /* from the call until the caller may write the bytes again (shadow mode; 0 in place) */
    uint64_t hold_ns;
};

/* Says what will be published, so that its memory is prepared now, in background: made, and pinned
 * for a GPU. The first tb_publish takes as much of it as is ready, and makes the rest itself: it
 * never waits longer than without this call. Of the options it reads mode, model, shard_index,
 * registration and the counts of blobs; run, number and the others may be 0.
 *
 * In shadow mode it is one copy of the shard in host memory; the second is prepared once the first
 * version is sealed. In place it is the copy of a GPU's memory, and of host memory there is nothing
 * to prepare. The memory goes with tb_unregister and tb_session_close. tb_status shows it.
 *
 * Works without the gateway, and returns at once. Memory that is refused is no failure: a line of
 * the log, memory.unprepared, says so, and tb_publish makes it. */
TB_API TB_MUST_USE int tb_publish_prepare(struct tb_session *session,
                                          const struct tb_publish_options *options);

/* Opens the version if no rank did yet and seals this shard. Never waits for a link. On failure the
 * bytes are the caller's again. info_out may be NULL.
 *   TB_OK                        also when it is retried with the same bytes
 *   TB_CONFLICT                  retried with others; or another shard has a blob of one name with
 *                                different bytes (tb_last_error names the blob and both ranks)
 *   TB_SITE_IO                   the memory maps a file that was cut short (tb_register);
 *                                tb_last_error names the tensor or blob
 *   TB_FENCED                    a newer run exists
 *   TB_SITE_NOMEM                it does not fit the arena (numbers in tb_last_error)
 *   TB_TOO_LARGE                 the description of this shard's tensors is over 64 MiB (more
 *                                shards help), or those of the version's shards are over 256 MiB
 *                                together, decoded, some 800,000 tensors (numbers in
 *                                tb_last_error): fewer or merged tensors
 *   TB_BAD_STATE                 number not above the last (tb_last_error names the newest); or the
 *                                registration is suspended; or that of the first call is, where
 *                                this one is retried
 *   TB_TIMEOUT, TB_GATEWAY_AWAY  no answer in time, or (shadow mode) both copies of the two
 *                                versions before are still on their way home. Called again within
 *                                the drain time it goes on; else the gateway gives up the part
 *                                that it heard of */
TB_API TB_MUST_USE int tb_publish(struct tb_session *session, const struct tb_publish_options *options,
                                  struct tb_publish_info *info_out);
/* Ends this rank's reference to its shards of the version: no new reader comes, readers in flight
 * drain for at most drain_ms, then the memory is the caller's to write (and still pinned:
 * TB_PUBLISH_IN_PLACE).
 *
 * When nobody else holds a retained version whole, the gateway first takes the chunks that it
 * lacks. It has drain_ms for that, or its own (docs/config.md) where that is less. All of it takes
 * drain_ms at most. A gateway that does not answer is waited for 5 s longer, and readers are cut
 * off then.
 *
 * Another call may unpublish, suspend, resume or publish a shard of it at that time. This call
 * waits for that one too, and the shard does not come back with it.
 *
 *   TB_TIMEOUT    the gateway could not take it, or did not answer; the reference stays, as after
 *                 every other failure
 *   TB_NOT_FOUND  nothing of it was sealed here, or it was unpublished before */
TB_API TB_MUST_USE int tb_unpublish(struct tb_session *session, const struct tb_uid *uid, uint32_t drain_ms);

/* ---- following ---- */

/* How a version gets into the buffers that a rollout computes from. */
enum tb_update {
    /* Staging holds the version; the switch copies it. The stall is the copy. */
    TB_UPDATE_COPY = 0,
    /* Two registrations, used in turn: tb_stage fills the one that is not in use, and the switch
     * names it (info.buffer). */
    TB_UPDATE_SWITCH = 1,
    /* Staging holds deltas against the active version, and chunks whose delta is no smaller. The
     * switch decodes them into the buffers, and digests the buffers. A chunk that differs from
     * the sealed one is fetched whole before tb_activate returns. Such a worker serves nobody.
     *
     * Staged whole are slices, the first version, a version after a switch that failed, and one for
     * a GPU that has none of our kernels. */
    TB_UPDATE_PATCH = 2
};

/* When the library digests the tensors that a rollout computes from, and compares them with what
 * was sealed (`tombolo verify MODEL --live`). A thread of its own does it, chunk by chunk, at a low
 * rate and priority; a switch waits for 256 KiB at most. A tensor that differs leaves a line in the
 * log, live.differs, here and at the gateway. */
enum tb_prove {
    TB_PROVE_ASKED = 0,  /* when an operator asks */
    TB_PROVE_ALWAYS = 1, /* and in background behind each activation */
    /* The engine writes to the registered tensors behind an activation, as one does that repacks
     * its weights. Asked, the worker says that it is not provable. */
    TB_PROVE_NEVER = 2
};

struct tb_subscribe_options {
    uint32_t struct_bytes;
    uint32_t member_count; /* of the group; 1 for a group of one */
    uint32_t member_index; /* 0 .. member_count - 1 */
    const char *model;
    const char *group; /* name, unique for the model at the site; NULL: a group of one with a made name */
    /* The buffers to compute from; NULL: bytes stay in staging (tb_staged_item). */
    struct tb_registration *registration;
    uint32_t update;                /* enum tb_update; all but COPY need a registration */
    struct tb_registration *second; /* SWITCH: the same tensors, in other memory */
    /* 1: COPY, of whole tensors that all stand on one GPU: versions are staged in that GPU's
     * memory, as many bytes more as a version has and 64 MiB, until tb_release. The device digests
     * the chunks that land there, a NIC that can writes there by itself, and the switch copies
     * inside the device. Such a worker serves nobody, and reads whole chunks: no deltas.
     *
     * Where the GPU cannot, a version is staged in host memory, and a line of the log,
     * staging.not_on_gpu, says why. tb_suspend takes a staged version from the GPU: tb_activate
     * answers TB_BAD_STATE until tb_stage has brought it again. Run over a mock of the driver alone
     * so far: no GPU has run it. */
    uint32_t stage_on_gpu;
    uint32_t prove; /* enum tb_prove */
    /* A PEM file with the CAs of the model's home. Its signature is demanded then: tb_stage checks
     * certificates, date, and that manifests and bytes are those that were signed, and believes no
     * gateway. NULL: the gateway is believed. A version without the signature, or with another, is
     * not staged: TB_PEER_IDENTITY, and tb_last_error says why. TB_BAD_STATE: a subscription of the
     * session without it has begun to read that version. Such two need a session each. They share
     * no registration: tb_subscribe answers TB_BAD_STATE. */
    const char *home_ca;
};

/* TB_SITE_CONFIG: home_ca cannot be read. TB_PEER_DENIED (no right to the model, or the group is
 * another identity's: the gateway's models.NAME.groups), TB_NOT_FOUND (model not configured),
 * TB_CONFLICT: another count for the group, or the index is taken; TB_TIMEOUT, TB_GATEWAY_AWAY
 * after 30 s. On failure nothing is left of it, here or at the gateway. */
TB_API TB_MUST_USE int tb_subscribe(struct tb_session *session, const struct tb_subscribe_options *options,
                                    struct tb_subscription **subscription_out);
/* Leaves the group. Staged memory goes, and so does the memory that a released version left.
 * Blocks as tb_release does. */
TB_API TB_MUST_USE int tb_unsubscribe(struct tb_subscription *subscription);

enum tb_wait_kind {
    TB_WAIT_MINIMUM = 0, /* the newest whole one whose number is at least `number` in the newest run */
    TB_WAIT_EXACT = 1,   /* run_order (0: the newest run that has it) and number */
    TB_WAIT_LATEST = 2,  /* the newest that is whole at this site and newer than `after` */
    TB_WAIT_NEXT = 3     /* the newest whose crossing here has begun, newer than `after` */
};

/* The way back. Where the version `after` was withdrawn, LATEST and NEXT answer with the newest
 * other one, although it is older. Where an operator pinned a version at this site (tombolo pin,
 * tombolo rollback), they answer with that one alone. It may be older than `after`; tb_stage and
 * tb_activate take it all the same. EXACT waits for a newer version until the pin is gone. While
 * its gateway is away, a worker goes back only behind a withdrawal that it heard of. */

struct tb_wait_options {
    uint32_t struct_bytes;
    uint32_t kind; /* enum tb_wait_kind */
    const char *model;
    uint64_t run_order;
    uint64_t number;
    const struct tb_uid *after; /* NULL: any */
    uint32_t timeout_ms;
};

struct tb_version_info {
    uint32_t struct_bytes;
    uint32_t shard_count;
    struct tb_uid uid;
    uint64_t run_order;
    uint64_t number;
    uint64_t bytes;
    uint32_t whole_here; /* 1: the site's gateway holds all of it */
};

/* TB_TIMEOUT; TB_AGAIN (timeout 0); TB_VERSION_LOST, _BROKEN, _WITHDRAWN for an exact one that will
 * not come; TB_NOT_FOUND: model unknown; TB_PEER_DENIED. */
TB_API TB_MUST_USE int tb_wait(struct tb_session *session, const struct tb_wait_options *options,
                               struct tb_version_info *info_out);

enum tb_site_state { TB_SITE_HOLDS = 0, TB_SITE_ACTIVATED = 1 };

/* Waits until `site` (NULL: this one) holds the version whole, or every reader group there that is
 * subscribed to the model has activated it. */
TB_API TB_MUST_USE int tb_wait_site(struct tb_session *session, const struct tb_uid *uid, const char *site,
                                    uint32_t state, uint32_t timeout_ms);

/* Bytes arrive in staging while the rollout goes on serving. Returns when this member has the
 * version whole, or after timeout_ms (0: starts it, goes on in background) with TB_AGAIN. After a
 * failure but TB_GROUP_BROKEN, TB_CANCELLED and TB_GATEWAY_AWAY the chunks that had arrived are
 * gone. A version that was whole here stays after TB_BAD_STATE and TB_CONFLICT, too.
 *
 * A member is counted for one version at a time: the one that it staged last. So a version that is
 * whole here already is asked for again once another was staged, and TB_OK means that the gateway
 * counts this member for it now.
 *
 *   TB_SUPERSEDED       the crossing was abandoned
 *   TB_GROUP_BROKEN     a member was lost before `go`: ask tb_wait again, or stage it again; the
 *                       chunks that arrived are kept
 *   TB_CONFLICT         the group stages another, or an operator pinned an older one at this site
 *   TB_BAD_STATE        the group has a newer version, which was not withdrawn, and no operator
 *                       pinned this one
 *   TB_LAYOUT_MISMATCH  tb_last_error names the tensor
 *   TB_SITE_NOMEM, TB_VERSION_*, TB_NOT_FOUND */
TB_API TB_MUST_USE int tb_stage(struct tb_subscription *subscription, const struct tb_uid *uid,
                                uint32_t timeout_ms);

struct tb_activate_info {
    uint32_t struct_bytes;
    uint32_t buffer;         /* SWITCH: where the version is: 0 the registration, 1 the second */
    uint64_t stall_ns;       /* from the call to its return */
    uint64_t copied_bytes;   /* into the registered buffers, of chunks that were staged whole */
    uint64_t patched_bytes;  /* PATCH: written by decoding */
    uint64_t staged_bytes;   /* memory that staging took for this version, of host and GPU */
    uint32_t fetched_chunks; /* PATCH: that came again, whole */
    uint32_t reserved;
};

/* TB_AGAIN until every member has staged it; then the version gets into the registered buffers, as
 * `update` said, and it returns with the new bytes there. Nobody may read those buffers meanwhile.
 * The gateway is asked and may take 10 s to answer, 1 s once it has said go. info_out may be NULL.
 * A PATCH that fails after it began (TB_CHUNK_DIGEST, TB_LAYOUT_MISMATCH, TB_GATEWAY_AWAY,
 * TB_TIMEOUT: a chunk could not be fetched within 30 s) leaves buffers that hold no version: call
 * it again, or stage and activate another.
 *   TB_VERSION_WITHDRAWN, _LOST, _BROKEN, TB_SUPERSEDED, TB_PIN_LOST
 *                    it ended: ask tb_wait for another
 *   TB_GROUP_BROKEN  a member was lost before all had it: tb_stage it again
 *   TB_BAD_STATE     it was not staged, or another was staged since: tb_stage it again, which says
 *                    whether it may be activated; or the registration is suspended. tb_last_error
 *                    says which */
TB_API TB_MUST_USE int tb_activate(struct tb_subscription *subscription, const struct tb_uid *uid,
                                   struct tb_activate_info *info_out);
/* Drops the staging of a version: this worker does not serve it any more. The active one may be
 * released, as its bytes are in the registered buffers. Blocks until its readers have drained, at
 * most the drain time. TB_NOT_FOUND: the subscription has not staged it.
 *
 * The memory of the last one released is kept for the model's next version, until tb_unsubscribe:
 * staging into pages that stand costs a fifth. From another host the next version comes as deltas
 * against one that is still staged, a hundredth of its bytes. So a worker with memory for two
 * releases a version once the one behind it is active. One without releases it at once, and reads
 * all of the next, or asks for PATCH, which needs neither. */
TB_API TB_MUST_USE int tb_release(struct tb_subscription *subscription, const struct tb_uid *uid);

struct tb_item {
    uint32_t struct_bytes;
    uint32_t is_blob;
    uint32_t shard_index;
    uint32_t rank;
    const char *name;  /* borrowed until tb_release of the version, as are the next three */
    const char *dtype; /* without bits; NULL for a blob */
    const uint64_t *shape;
    /* in staging; may be read once tb_stage returned TB_OK. NULL: a tensor of which PATCH, or a
     * registration of slices, keeps other than all, or that is staged on a GPU */
    const void *bytes;
    uint64_t count;      /* bytes */
    uint32_t dtype_bits; /* of one element; 0 for a blob */
};

/* Item `index` of a staged version, tensors and blobs of all shards in a fixed order; TB_END past
 * the last. TB_BAD_STATE: it is not whole yet; TB_NOT_FOUND: the subscription has not staged it. */
TB_API TB_MUST_USE int tb_staged_item(struct tb_subscription *subscription, const struct tb_uid *uid,
                                      uint32_t index, struct tb_item *item_out);

#ifdef __cplusplus
}
#endif
#endif
