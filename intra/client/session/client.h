/* client.h - what the files of the worker library share: a session and all that belongs to it. Threads,
 * locks, their order and the calls that may wait: session_lock.h.
 *
 * Bounds: each message of the gateway is decoded by intra/session_msg.h and checked against our request
 * before it is used. A garbled frame closes the wire with one log line. */
#ifndef TB_INTRA_CLIENT_CLIENT_H
#define TB_INTRA_CLIENT_CLIENT_H

#include <pthread.h>
#include <uv.h>

#include "base/assert.h"
#include "base/codec/codec.h"
#include "base/damage_reports.h"
#include "base/layout/layouts.h"
#include "base/layout/shelf.h"
#include "base/net/resolve.h"
#include "base/net/wire.h"
#include "intra/client/follow/patch.h"
#include "intra/client/memory/boxes.h"
#include "intra/client/memory/file_guard.h"
#include "intra/client/memory/seal_protection.h"
#include "intra/client/memory/stretches.h"
#include "intra/client/memory/thread_crew.h"
#include "intra/client/memory/tied_tensors.h"
#include "intra/client/publish/encode.h"
#include "intra/client/session/last_error.h"
#include "intra/client/session/session_lock.h"
#include "intra/cuda_part.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/shared_memory.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/session_msg.h"
#include "tombolo/tombolo.h"

#define TB_SHADOWS_MAX 2 /* a (model, shard): one being landed at home, one being written */
#define TB_WATCHES_MAX 16

/* What tb_register and tb_register_slices say of a dtype; with its text, or with its name and bits. */
#define TB_DTYPE_UNKNOWN "dtype \"%.40s\" is unknown: give the name and bits of an element as NAME:BITS"
#define TB_OFF_BYTES                                                                                         \
    "a box of %s (%u bits an element) begins or ends inside a byte; along the last axis its first, its "     \
    "count and the length have to take whole bytes"

/* ---- requests (request.c) ---- */

struct tb_request;
/* When the answer comes, on the session thread and under the lock; a detached request is freed after it. What a call
 * makes of its answer and the next announcement has to say is made here: its own thread may wake after the next cut. */
typedef void (*tb_request_fn)(struct tb_session *s, struct tb_request *request, void *user);

struct tb_request {
    struct tb_request *next;
    uint64_t id;     /* 0: a notice, gone once it is sent */
    uint16_t type;   /* enum tb_session_type */
    uint16_t expect; /* the answer's type; TB_SESSION_REPLY is always understood */
    bool sent;       /* on the wire that is up now */
    bool done;
    bool detached;         /* nobody waits: fn, then gone */
    bool announcement;     /* forgotten when the wire breaks: it is made anew */
    bool farewell;         /* after a break it goes before what is announced */
    enum tb_status status; /* of the answer */
    char why[TB_TEXT_BYTES_MAX + 1];
    uint8_t *answer; /* the payload of an answer that is not a REPLY; decodes */
    size_t answer_bytes;
    tb_request_fn fn;
    void *user;       /* what fn needs to know */
    struct tb_id uid; /* likewise */
    uint32_t number;
    struct tb_writer payload; /* over the bytes behind this struct */
};

/* payload_max counts spans; the rest of a message is small. NULL: no memory. */
struct tb_request *tb_request_new(struct tb_session *s, uint16_t type, uint16_t expect, size_t spans_bytes);
void tb_request_free(struct tb_request *request);
/* Under the lock: queues it and wakes the session thread, which owns it if it is a notice or detached. */
void tb_request_post(struct tb_session *s, struct tb_request *request);

/* Under the lock: posts and waits for the answer, or TB_TIMEOUT, TB_GATEWAY_AWAY, TB_CANCELLED. The request
 * stays the caller's. */
enum tb_status tb_request_wait(struct tb_session *s, struct tb_request *request, const struct tb_call *call);
/* The same of one that was posted. */
enum tb_status tb_request_await(struct tb_session *s, struct tb_request *request, const struct tb_call *call);
/* The same with the lock taken, keeping tb_last_error on failure; request NULL is TB_SITE_NOMEM. */
int tb_request_call(struct tb_session *s, struct tb_request *request, const struct tb_call *call,
                    const char *what);
/* What answered it, other than a REPLY: it decoded when it came. Spans stand in the request. */
#define TB_ANSWER_DECODE(request, message, message_out)                                                      \
    do {                                                                                                     \
        struct tb_reader answer_reader;                                                                      \
        tb_reader_init(&answer_reader, (request)->answer, (request)->answer_bytes);                          \
        const enum tb_status answer_status = message##_decode(&answer_reader, message_out);                  \
        TB_ASSERT(answer_status == TB_OK);                                                                   \
    } while (0)
/* Under the lock: something of ours has ended, and the gateway has to hear of it however long it is away: to one that kept the
 * session it would be there for as long as the session is. Takes the request; NULL: there was no memory for it. */
void tb_request_farewell(struct tb_session *s, struct tb_request *request);
/* Under the lock: of what nobody waits for, those of that type and uid go that are not on the wire. */
void tb_requests_withdraw(struct tb_session *s, uint16_t type, const struct tb_id *uid);
/* Under the lock, by the session thread. */
enum tb_status tb_request_answer(struct tb_session *s, struct tb_wire_frame *frame);
void tb_requests_unsent(struct tb_session *s); /* the wire broke */
void tb_requests_drop(struct tb_session *s);   /* the session ends: all that nobody waits for */

/* ---- memory (buffers.c, spare_memory.c, registration.c) ---- */

struct tb_buffer {
    struct tb_buffer *next;
    struct tb_shared_memory memory;
};
/* Memory that readers map and NICs register once. Without the lock: its pages take a while to come and to go. */
enum tb_status tb_session_memory_new(struct tb_session *s, const char *name, uint64_t bytes,
                                     struct tb_shared_memory *memory_out);
void tb_session_memory_free(struct tb_session *s, struct tb_shared_memory *memory); /* a zeroed one is fine */
/* The buffer that has all of [at, at + bytes), or NULL. */
const struct tb_buffer *tb_buffer_find(const struct tb_session *s, const void *at, uint64_t bytes);
void tb_buffers_free(struct tb_session *s);

/* Memory of a version that has ended here, kept for the next one of its model: its pages stand, are mapped and, where that is done,
 * pinned, which is four fifths of what staging a version costs. One a session, of what was staged, goes with the model's last
 * subscription; one a registration, of copies of a GPU's memory that was published in place, with that. Only of the same model: a
 * reader of the old version may have it mapped still. */
struct tb_spare {
    struct tb_shared_memory memory;
    struct tb_name model;
};
struct tb_spare_wish {
    const struct tb_name *model;
    uint64_t bytes;
};
/* Under the lock. Takes the memory; what was kept before is the caller's to free, without the lock. */
struct tb_shared_memory tb_spare_keep(struct tb_spare *spare, const struct tb_name *model,
                                      struct tb_shared_memory *memory);
/* Without the lock. False: none of that size is there, and one of the model but of another size is there no more. Its bytes are what
 * they were. */
bool tb_spare_take(struct tb_session *s, struct tb_spare *spare, const struct tb_spare_wish *wish,
                   struct tb_shared_memory *memory_out);
/* Under the lock, let go meanwhile. */
void tb_spare_drop(struct tb_session *s, struct tb_spare *spare);

struct tb_registration {
    struct tb_session *session;
    struct tb_registration *next;
    /* As a publisher has it. */
    void *layout_memory;
    struct tb_layout layout;     /* empty: slices that no shard may have */
    uint8_t **memory;            /* for each tensor in packed order */
    struct tb_spread_rows *rows; /* of each; NULL: all are dense */
    uint32_t *given_of;          /* of each: the index in the caller's list */
    uint64_t *given_offset;      /* of each: from the address given there; NULL: none */
    bool scattered;              /* some are not dense */
    char unpublishable[320];     /* why the layout is empty */
    /* As the caller listed it. */
    uint32_t given_count;
    uint8_t **given;
    /* As a reader has it: what it wants, and where to. */
    uint32_t want_count;
    uint64_t want_bytes;
    const struct tb_tensor *wants; /* the layout's tensors, or those of `slices` */
    uint8_t *const *want_memory;   /* `memory` or `given` */
    struct tb_tensor *slices;      /* NULL: whole tensors */
    char *slice_names;
    struct tb_tied tied;       /* of the wants; stays as it is while a subscription uses the registration */
    struct tb_gpu_memory *gpu; /* NULL: all of it is host memory, or it is suspended */
    struct tb_spare spare;     /* of a GPU: the packed copy that the version before left */
    /* Published in place: its tensors but those in buffers of ours, until the caller has the memory back. */
    struct tb_stretches stretches; /* list NULL: not yet */
    bool stays;                    /* NICs keep what they register of them */
    uint32_t subscriptions;
    uint32_t passes; /* that read or write the memory now */
    bool suspended;
    uint32_t ending; /* calls that take the memory from its readers, and let the lock go meanwhile */
    struct tb_patch_target target;
    struct tb_guard *guard; /* NULL: none of it maps a file, or it is suspended */
};
struct tb_registration *tb_registration_new(struct tb_session *s);  /* empty; NULL: no memory */
void tb_registration_enter(struct tb_registration *registration);   /* into the session's list */
void tb_registration_discard(struct tb_registration *registration); /* one that is not in it */
/* Without the lock: whether some of it is a GPU's; NULL: none is. */
int tb_registration_find_gpu(struct tb_session *s, const struct tb_registration *registration,
                             struct tb_gpu_memory **gpu_out);
/* Without the lock, once its memory is known, the GPU's too: what of it maps a file is guarded. */
int tb_registration_guard(const struct tb_registration *registration, struct tb_guard **guard_out);
/* What is missing of it, in words, as TB_SITE_IO; TB_OK: nothing that anybody has met. */
int tb_registration_missing(const struct tb_registration *registration);
/* The driver. Without the lock. NULL: none of the registration's memory is a GPU's; or, of none, no registration has found one. */
struct tb_gpu *tb_session_gpu(struct tb_session *s, const struct tb_registration *registration);
/* Which of its wants stand in one memory; what was known before is freed. TB_SITE_NOMEM. */
int tb_registration_tie(struct tb_registration *registration);
/* Where its tensors stand, from where the caller's do. */
void tb_registration_place(struct tb_registration *registration);
/* Under the lock: its memory is published in place from now on. Its stretches stand, and NICs keep what they register of them, until
 * the caller has it back. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_registration_stretch(struct tb_session *s,
                                                   struct tb_registration *registration);
/* Under the lock: nobody encodes on the memory, or will, until told otherwise; the bytes may have changed. */
void tb_registration_gone(struct tb_registration *registration, bool gone);
void tb_registration_free(struct tb_registration *registration);

/* ---- publishing (runs.c, publish_pass.c, shadow.c, publication.c, publish.c) ---- */

struct tb_run_opened {
    struct tb_run_opened *next;
    struct tb_name model;
    struct tb_text key;
    struct tb_id run;
};

struct tb_shadow {
    struct tb_shadow *next;
    struct tb_name model;
    uint32_t shard;
    struct tb_shared_memory memory;
    struct tb_shared_memory shelf; /* for the encoded chunks of what is in it; bytes NULL: none yet */
    struct tb_publication *user;   /* NULL: free */
    /* The version that is in it, whole, and its cut; zero: none, or it is being written. */
    struct tb_id uid;
    struct tb_digest layout_id;
    uint64_t bytes;
};

/* One shard of one version that this process sealed. */
struct tb_publication {
    struct tb_publication *next;
    struct tb_id uid;
    struct tb_name model;
    struct tb_id run;
    uint64_t number;
    uint32_t shard;
    bool in_place;
    bool retry;       /* other bytes beside a version that is ready do not break it */
    bool copied;      /* in place, of device memory: `blobs` begins with a packed copy of the tensors */
    bool busy;        /* a call works on it */
    bool sealed;      /* the gateway answered; announced again after a reconnection, until it is removed */
    bool suspended;   /* its registration is */
    bool counted_on;  /* with `suspended`: the gateway did not say that it needs it no more */
    bool removing;    /* with `busy`: it is on its way out, and its memory the caller's when it has gone */
    bool unpublished; /* tb_unpublish had its answer while another call worked on it: it does not come back */
    struct tb_request *hiding; /* its UNPUBLISH, while its registration is suspended or ends */
    bool kept;
    enum tb_status state; /* TB_OK, or why the version ended */
    uint64_t order;       /* of publishing, to find the oldest */
    uint64_t export_id;   /* 0: not exported */
    struct tb_registration *registration;
    struct tb_shadow *shadow;
    struct tb_protection *protection; /* in place, in a session that protects */
    bool written;                     /* somebody wrote to it, and the gateway was told */
    bool spoiled;                     /* a chunk of it is damaged for good: no new reader is let in */
    /* In place: our copies of blobs; of device memory the whole shard's, packed, for those who cannot read the device. */
    struct tb_shared_memory blobs;
    struct tb_shared_memory objects; /* encoded chunks; bytes NULL without */
    /* Its chunks as differences to the version in `base`, made after the call that published it; NULL: none are. */
    struct tb_shadow *base;
    struct tb_id base_uid;
    struct tb_shelf shelf;
    uint32_t classes;
    struct tb_encoding *encoding;
    bool ending; /* a call waits for the end of its encoding, without the lock: it stays */
    struct tb_manifest_memory manifest_memory;
    struct tb_manifest manifest;
    struct tb_source_object *object_table;
    struct tb_export_device *devices; /* copied: of each tensor, for its export */
    uint64_t encoded_bytes;
    uint8_t *head; /* encoded */
    size_t head_bytes;
    uint8_t *source; /* encoded */
    size_t source_bytes;
};

struct tb_publication *tb_publication_find(struct tb_session *s, const struct tb_id *uid, uint32_t shard);
/* Opens the export and makes the source descriptor; without the lock. */
enum tb_status tb_publication_export(struct tb_session *s, struct tb_publication *p);
/* Its pages, in a session that protects; without the lock. */
void tb_publication_protect(struct tb_session *s, struct tb_publication *p);
/* Under the lock, by the session thread: who wrote to sealed memory is told to the log and to the gateway. */
void tb_publications_look(struct tb_session *s);
void tb_registrations_look(struct tb_session *s);
/* Under the lock; the lock is let go while readers drain. */
void tb_publication_hide(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms);
void tb_publication_remove(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms);
struct tb_request *tb_publication_seal(struct tb_session *s, const struct tb_publication *p);
#define TB_UNPUBLISH_ALL UINT32_MAX
/* One shard that this session sealed, or all of them. */
struct tb_request *tb_unpublish_request(struct tb_session *s, const struct tb_id *uid, uint32_t shard,
                                        uint32_t drain_ms);
/* Likewise of one whose memory goes when the drain ends: the gateway is not to count on it after that. */
struct tb_request *tb_unpublish_gone_request(struct tb_session *s, const struct tb_publication *p,
                                             uint32_t drain_ms);
void tb_publications_free(struct tb_session *s);

/* Under the lock. Waits until one of the two shadows may be written; TB_TIMEOUT, TB_CANCELLED, TB_SITE_NOMEM. */
enum tb_status tb_shadow_take(struct tb_session *s, struct tb_publication *p, uint64_t bytes,
                              const struct tb_call *call);
/* Of the same model and shard. */
bool tb_shadow_is_of(const struct tb_shadow *sh, const struct tb_publication *p);
/* The pass over it is done: what is in its shadow is a base from now on. Under the lock. */
void tb_shadow_filled(struct tb_publication *p);
/* A shelf for its differences to the version before, if that is kept and of the same cut. Without the lock. */
void tb_shadow_shelf(struct tb_session *s, struct tb_publication *p, uint32_t classes);
/* Under the lock: its differences are made from now on, in background. */
void tb_shadow_encode(struct tb_session *s, struct tb_publication *p);
/* And not any more. Under the lock, let go meanwhile: nobody else removes it. */
void tb_shadow_encode_end(struct tb_session *s, struct tb_publication *p);
void tb_shadows_free(struct tb_session *s);

/* ---- following (subscription.c, staging.c, plan.c, activate.c) ---- */

enum tb_staging_state {
    TB_STAGING_ASKED,     /* STAGE is on its way */
    TB_STAGING_MANIFESTS, /* the key is known, shards' manifests arrive */
    TB_STAGING_PREPARING, /* a task of the pool checks roots and makes places */
    TB_STAGING_PREPARED,  /* ... has done so; the session thread opens the export next */
    TB_STAGING_READING,
    TB_STAGING_WHOLE,
    TB_STAGING_FAILED
};

struct tb_staged_shard {
    struct tb_manifest_memory manifest_memory; /* zero: not here yet */
    struct tb_manifest manifest;
    struct tb_place place;
    uint64_t bytes_offset, held_offset; /* in the staging's memory */
    /* Staged on a GPU: where its tensors stand in the stage; `bytes_offset` is of its blobs. */
    uint64_t far_offset;
    struct tb_place_far far;
};

/* What the hop's callback has to tell, under note_lock. */
struct tb_hop_note {
    bool opened, lost, whole;
    enum tb_transport transport;
    enum tb_transport_why why_transport;
    enum tb_status why;
    uint32_t bad_count; /* chunks that came wrong twice; more than fit are told again by the next read */
    struct tb_hop_bad {
        uint32_t shard, chunk;
        bool object; /* its encoded form */
    } bad[16];
};

/* A version in this process's memory, for one or more subscriptions. */
struct tb_staging {
    struct tb_staging *next;
    struct tb_session *session;
    enum tb_staging_state state;
    enum tb_status status; /* FAILED: why */
    char why[TB_TEXT_BYTES_MAX + 1];
    struct tb_id uid;
    struct tb_version_key key;
    bool preparing; /* a task of the pool has it: it must not go */
    uint32_t uses;
    uint32_t manifests_here;
    struct tb_staged_shard *shards; /* key.shard_count */
    struct tb_shared_memory memory; /* of a patch: ours alone, without a descriptor */
    uint64_t *claimed;
    uint32_t total_chunks;
    /* Of it only what these want; NULL: all. */
    struct tb_registration *slices_for;
    uint64_t *wanted; /* bits of all shards */
    uint64_t wanted_bytes;
    struct tb_shared_memory *pinned; /* for a GPU: the pages of what is wanted; views into the memory */
    uint32_t pinned_count;
    /* To be staged in the memory of the GPU that its tensors stand on; NULL: in that of the host, or that GPU cannot. */
    struct tb_registration *gpu_for;
    struct tb_gpu_stage *stage; /* NULL: not there */
    uint64_t stage_bytes;       /* of it */
    bool left_gpu;              /* it was there, and went when the registration was suspended: FAILED */
    /* Staged as a patch for these buffers; NULL: whole. It becomes NULL when the manifests show that they are no base. */
    struct tb_registration *patch_for;
    struct tb_patch *patch;              /* from PREPARED on */
    uint64_t shelf_offset;               /* in the memory; 0: it has no shelf */
    struct tb_shelf shelf;               /* encoded chunks for those behind it */
    struct tb_staging *base;             /* whole here: what the hop decodes from; NULL: nothing */
    const struct tb_place **base_places; /* of it, while there is a hop */
    struct tb_hop_stats read;            /* by hops that ended */
    tb_time_ns lost_at;                  /* when its source was lost; 0: it has one, or never had */
    uint64_t export_id;                  /* 0: not exported */
    bool unserved;   /* damaged, and computed from: the gateway sends nobody there any more */
    uint8_t *source; /* encoded */
    size_t source_bytes;
    struct tb_hop *hop;
    bool hop_opened; /* its source has answered */
    uint64_t plan;   /* of the hop */
    /* The newest plan, its source span behind it: followed once the places stand. */
    struct tb_session_plan *kept_plan;
    enum tb_transport transport;
    enum tb_transport_why why_transport;
    uint32_t told_chunks; /* in the last PROGRESS */
    uint64_t told_bytes;
    tb_time_ns told_at;
    pthread_mutex_t note_lock;
    struct tb_hop_note note;
};

/* A subscription's hold on a staging. */
struct tb_staged_use {
    struct tb_staged_use *next;
    struct tb_staging *staging;
    bool go;
    /* STAGE was posted for this attempt. False again once the gateway took another version of this subscription:
     * it counts a member for one version at a time. */
    bool asked;
    tb_time_ns asked_at;   /* the last time */
    enum tb_status answer; /* to the last STAGE; TB_AGAIN: there is none yet */
    char answer_why[TB_TEXT_BYTES_MAX + 1];
    bool unheard;                /* and refused: the gateway that came back did not know the version yet */
    enum tb_status ended;        /* TB_OK, or why this attempt ended: group broken, withdrawn ... */
    struct tb_box_copies copies; /* what activate does; made when the manifests are here */
    bool copies_made;
    bool tied_compared; /* tensors of one memory have the same bytes in the version */
};

struct tb_subscription {
    struct tb_session *session;
    struct tb_subscription *next;
    uint32_t number;
    struct tb_name model, group;
    uint32_t member_index, member_count;
    struct tb_registration *registration;
    uint32_t update; /* enum tb_update */
    bool stage_on_gpu;
    struct tb_registration *second;
    uint32_t buffer;     /* SWITCH: which one is in use */
    struct tb_id filled; /* SWITCH: the version in the other one; zero: none */
    /* target.writes of a buffer after we wrote: the newest, of what `filled` names, of the one in use. */
    uint64_t wrote, filled_wrote, active_wrote;
    struct tb_id torn; /* a switch to it has begun and is not complete: the buffers in use hold no version */
    struct tb_id active;
    uint64_t active_run_order, active_number;
    bool active_withdrawn;
    struct tb_session_updated updated; /* what the last switch took; uid zero: there was none */
    struct tb_staged_use *uses;
};

struct tb_request *tb_subscribe_request(struct tb_session *s, const struct tb_subscription *sub);
struct tb_staged_use *tb_use_find(struct tb_subscription *sub, const struct tb_id *uid);
/* Under the lock: posts STAGE. */
int tb_use_ask(struct tb_subscription *sub, struct tb_staged_use *use);
/* Under the lock, let go while readers drain: the use ends, and the staging with its last use. */
void tb_use_drop(struct tb_subscription *sub, struct tb_staged_use *use, uint32_t drain_ms);
/* A use of the version, which is staged from now on if it was not. Under the lock. NULL: no memory. */
struct tb_staged_use *tb_use_new(struct tb_subscription *sub, const struct tb_id *uid);
/* Under the lock, let go meanwhile: the gateway hears that the version goes from here with this use. */
void tb_use_tell_release(struct tb_session *s, const struct tb_staging *st);
/* The staged version into the buffers in use, or into the other ones, which are then in use. Neither is suspended. Under the
 * lock, let go meanwhile. */
int tb_use_overwrite(struct tb_subscription *sub, const struct tb_staged_use *use,
                     struct tb_activate_info *info);
int tb_use_flip(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_activate_info *info);
/* TB_UPDATE_SWITCH: the version is in the buffers that are not in use, from now on. Likewise. Nothing while they are suspended. */
int tb_use_fill(struct tb_subscription *sub, const struct tb_staged_use *use);
/* Under the lock: the gateway is told to forget what is staged here, and asked for it again: a whole one gets a source again. */
int tb_use_ask_anew(struct tb_subscription *sub, struct tb_staged_use *use, const struct tb_call *call);
/* The tensor of that registration in the version, whole and of its shape; NULL: none. */
const struct tb_tensor *tb_staging_tensor(const struct tb_staging *st, const struct tb_tensor *mine,
                                          uint32_t *shard_out);
/* TB_LAYOUT_MISMATCH with the tensor in tb_last_error. Under the lock, let go meanwhile, once the manifests are here. */
int tb_use_match(struct tb_subscription *sub, struct tb_staged_use *use);

/* ---- tensors of one memory (tied_tensors_bytes.c) ---- */

/* Under the lock. A subscription with these registrations can be written to. */
int tb_tied_may_subscribe(const struct tb_registration *first, const struct tb_registration *second);
/* Under the lock, of a registration that was suspended and whose wants stand elsewhere now, `tied` being as it was: its
 * subscriptions can go on. */
int tb_tied_may_move(const struct tb_session *s, const struct tb_registration *r);
enum tb_tied_said {
    TB_TIED_SAME, /* in the version, both have the same bytes */
    TB_TIED_DIFFER,
    TB_TIED_UNSAID /* their chunks have other bytes beside theirs, or other borders */
};
/* What the digests of a version say of want i and the one that it is tied to. */
enum tb_tied_said tb_tied_by_digests(const struct tb_staging *st, const struct tb_registration *r,
                                     uint32_t i);
/* The version is whole. Each tied tensor of the subscription's registrations has the bytes of the one whose memory it shares:
 * TB_OK, TB_LAYOUT_MISMATCH, TB_SITE_NOMEM or from the GPU's driver. Under the lock, let go meanwhile. Once for each use. */
int tb_use_tied(struct tb_subscription *sub, struct tb_staged_use *use);
void tb_subscriptions_free(struct tb_session *s);

/* Why a version that ended so, or was refused so, is not to be had, and what its caller does then. */
const char *tb_staging_remedy(int status);

struct tb_staging *tb_staging_find(struct tb_session *s, const struct tb_id *uid);
struct tb_staging *tb_staging_new(struct tb_session *s, const struct tb_id *uid);     /* NULL: no memory */
void tb_staging_drop(struct tb_session *s, struct tb_staging *st, uint32_t drain_ms); /* with its last use */
/* Frees the spare memory if nobody is subscribed to its model any more. */
void tb_spare_drop_unwanted(struct tb_session *s);
void tb_staging_fail(struct tb_staging *st, enum tb_status status, const char *why);
/* Where the tensors of patch_for stand now. Under the lock, or while nobody else has the staging. TB_LAYOUT_MISMATCH: the version
 * has one of them not at all, or in boxes. */
TB_MUST_USE enum tb_status tb_staging_patch_tables(const struct tb_staging *st);
/* Nobody is served from it: it has not all, or not in this form. */
bool tb_staging_reads_only(const struct tb_staging *st);
/* What the registration wants, from where the version's shards stand. TB_LAYOUT_MISMATCH in words. */
int tb_staging_match(const struct tb_staging *st, const struct tb_registration *r,
                     struct tb_box_copies *copies_out);
/* Of a staging in slices, once its places stand: what is wanted of each shard, whose bitmaps are `words` together; of slices of a
 * GPU that is pinned. Without the lock. */
TB_MUST_USE enum tb_status tb_staging_want_slices(struct tb_staging *st, uint64_t words);
void tb_staging_unpin(struct tb_staging *st);
/* Of a staging that is for a GPU: memory there, or a line says why not, and it is for the host as any other. Before its places; without the
 * lock. */
void tb_staging_find_gpu(struct tb_staging *st);
/* A shard's place, which is laid out over the host's memory: its tensors are far from now on. */
void tb_staging_put_far(struct tb_staging *st, struct tb_staged_shard *sh);
/* P10: no memory there, and why. */
void tb_staging_not_on_gpu(const struct tb_staging *st, const char *why);
/* Under the lock, let go meanwhile. The registration is suspended: nothing that was staged in its GPU's memory is there at return. */
void tb_stagings_leave_gpu(struct tb_session *s, struct tb_registration *r);
/* Under the lock: what is staged here goes, and nobody waits until the gateway has heard of it. */
void tb_staging_give_back(struct tb_session *s, const struct tb_staging *st);
/* Memory that it takes. */
uint64_t tb_staging_bytes(const struct tb_staging *st);
bool tb_staging_has_manifests(const struct tb_staging *st);
uint32_t tb_staging_held_chunks(const struct tb_staging *st);
struct tb_request *tb_stage_request(struct tb_session *s, const struct tb_subscription *sub,
                                    const struct tb_id *uid);
enum tb_status tb_staging_manifest(struct tb_session *s, const struct tb_session_manifest *m);
/* By the session thread, under the lock. */
enum tb_status tb_staging_plan(struct tb_session *s, const struct tb_session_plan *m);
void tb_stagings_advance(struct tb_session *s); /* what pool and hops have done since */
void tb_stagings_progress(struct tb_session *s);
void tb_staging_export_notice(struct tb_session *s, const struct tb_staging *st);
void tb_staging_progress_notice(struct tb_session *s, struct tb_staging *st);
void tb_staging_close_hop(struct tb_staging *st);
bool tb_staging_is_whole(const struct tb_staging *st);
void tb_staging_lost_notice(struct tb_session *s, const struct tb_staging *st, uint64_t plan,
                            enum tb_status why);
void tb_staging_bad_notice(struct tb_session *s, const struct tb_staging *st, const struct tb_hop_bad *bad);
struct tb_request *tb_release_request(struct tb_session *s, const struct tb_id *uid);
/* A task of the pool, of a staging whose manifests are all here: its places. */
void tb_staging_prepare(void *user, uint32_t piece, uint32_t slot);
/* A chunk of it is not held any more, as it was damaged: it is fetched again. */
void tb_staging_read_again(struct tb_session *s, struct tb_staging *st);
/* The gateway sends nobody there any more. */
void tb_staging_unserve(struct tb_session *s, struct tb_staging *st);
/* A reader got a damaged chunk from here, the gateway says. */
void tb_recheck(struct tb_session *s, const struct tb_session_doubt *m);
/* It goes: hops that decode from it end, and other sources are asked for. */
void tb_staging_base_goes(struct tb_session *s, const struct tb_staging *base);

/* ---- session (session.c, connection.c, notices.c, reannounce.c) ---- */

struct tb_watch { /* what tb_wait with timeout 0 asked and the gateway answers later, for the eventfd */
    bool used;
    struct tb_session_wait asked;
};

struct tb_session {
    pid_t pid;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    uint32_t calls;         /* inside the library now */
    bool closing;
    uint64_t cancels;
    int eventfd;
    struct tb_crew *crew;
    struct tb_layouts *layouts; /* of what is published and staged */
    struct tb_connection *connection;
    uv_async_t *wake;   /* its handle; NULL: it has no loop. Changes only while no other thread runs */
    struct tb_gpu *gpu; /* NULL until a registration finds that this process has a driver; then it stays */

    /* what the options said, and who we are */
    struct tb_name name, host, rack;
    bool spot;
    char gateway_text[256];
    char fabric_address[64]; /* "" : choose */
    uint64_t pace_bytes_per_s;
    bool no_verbs;
    bool protect;
    uint32_t threads;

    /* what the session thread found out */
    struct tb_fabric *fabric;
    bool fabric_trusted;
    bool up, was_up;
    enum tb_status down_why;
    char down_text[320]; /* "stream_tls: certificate has expired": down_why, and what else is known */
    tb_time_ns down_since;
    bool refused; /* the first connection failed in a way that waiting does not heal */
    struct tb_id id;
    struct tb_session_welcome welcome;
    uint64_t reconnections;

    uint64_t next_request, next_export, next_order;
    uint32_t next_subscription;
    struct tb_request *requests; /* in the order of asking */
    struct tb_buffer *buffers;
    struct tb_registration *registrations;
    struct tb_run_opened *runs;
    struct tb_shadow *shadows;
    struct tb_publication *publications;
    struct tb_subscription *subscriptions;
    struct tb_staging *stagings;
    struct tb_spare spare;
    struct tb_doubts doubts; /* of what this process serves */
    struct tb_watch watches[TB_WATCHES_MAX];
};

enum tb_status tb_connection_open(struct tb_session *s, const struct tb_session_options *options);
void tb_connection_close(struct tb_session *s); /* joins the thread */
/* How long after an attempt that failed the next one begins; `attempts`: those that did before it, in a row. A gateway that starts anew
 * waits for a lease before it calls lost what nobody has told it of (design: recovery), so nobody is away from it for longer than a
 * third of that. lease_ms 0: no gateway has said yet. */
uint32_t tb_connection_retry_ms(uint32_t attempts, uint32_t lease_ms, uint32_t random);

/* Session thread, under the lock. */
enum tb_status tb_notice(struct tb_session *s, struct tb_wire_frame *frame);
/* Puts what this session holds in front of all requests that wait. Session thread, under the lock. same: the
 * gateway knew the session. */
void tb_announce(struct tb_session *s, bool same);

#endif
