/* registration.h - the table of registered tensors: memory that stays the caller's. */
#ifndef TB_INTRA_CLIENT_REGISTRATION_H
#define TB_INTRA_CLIENT_REGISTRATION_H

#include "base/layout/layout.h"
#include "intra/client/follow/patch.h"
#include "intra/client/memory/file_guard.h"
#include "intra/client/memory/spare_memory.h"
#include "intra/client/memory/stretches.h"
#include "intra/client/memory/tied_tensors.h"
#include "intra/cuda_part.h"
#include "intra/tensor_spread.h"

struct tb_session;

/* Error texts of tb_register and tb_register_slices about a dtype: with its text, or with its name
 * and bits. */
#define TB_DTYPE_UNKNOWN "dtype \"%.40s\" is unknown: give the name and bits of an element as NAME:BITS"
#define TB_OFF_BYTES                                                                                         \
    "a box of %s (%u bits an element) begins or ends inside a byte; along the last axis its first, its "     \
    "count and the length have to take whole bytes"
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
    /* of the wants; stays as it is while a subscription uses the registration */
    struct tb_tied tied;
    struct tb_gpu_memory *gpu; /* NULL: all of it is host memory, or it is suspended */
    struct tb_spare spare;     /* of a GPU: the packed copy that the version before left */
    /* Published in place: its tensors but those in buffers of ours, until the caller has the memory
     * back. */
    struct tb_stretches stretches; /* list NULL: not yet */
    bool stays;                    /* NICs keep what they register of them */
    uint32_t subscriptions;
    uint32_t passes; /* that read or write the memory now */
    bool suspended;
    /* calls that take the memory from its readers, and let the lock go meanwhile */
    uint32_t ending;
    struct tb_patch_target target;
    struct tb_guard *guard; /* NULL: none of it maps a file, or it is suspended */
};

struct tb_registration *tb_registration_new(struct tb_session *s); /* empty; NULL: no memory */
/* One that has its tensors or slices: which are tied, its GPU and its guard. */
int tb_registration_complete(struct tb_session *s, struct tb_registration *registration);
void tb_registration_enter(struct tb_registration *registration);   /* into the session's list */
void tb_registration_discard(struct tb_registration *registration); /* one that is not in it */
/* Without the lock: whether some of it is a GPU's; NULL: none is. */
int tb_registration_find_gpu(struct tb_session *s, const struct tb_registration *registration,
                             struct tb_gpu_memory **gpu_out);
/* Without the lock, once its memory is known, the GPU's too: what of it maps a file is guarded. */
int tb_registration_guard(const struct tb_registration *registration, struct tb_guard **guard_out);
/* TB_SITE_IO: bytes of it are missing, and tb_last_error names the tensor. TB_OK: nobody has met a
 * missing byte. */
int tb_registration_missing(const struct tb_registration *registration);
/* The driver. Without the lock. NULL: none of the registration's memory is a GPU's; or, of none, no
 * registration has found one. */
struct tb_gpu *tb_registration_gpu(struct tb_session *s, const struct tb_registration *registration);
/* Which of its wants stand in one memory; what was known before is freed. TB_SITE_NOMEM. */
int tb_registration_tie(struct tb_registration *registration);
/* Where its tensors stand, from where the caller's do. */
void tb_registration_place(struct tb_registration *registration);
/* Under the lock: its memory is published in place from now on. Its stretches stand, and NICs keep
 * what they register of them, until the caller has it back. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_registration_stretch(struct tb_session *s,
                                                   struct tb_registration *registration);
/* Under the lock: its memory stays where it is until the pass ends. Passes are counted. */
void tb_registration_begin_pass(struct tb_registration *registration);
void tb_registration_end_pass(struct tb_registration *registration);
/* Under the lock: nobody encodes on the memory, or will, until told otherwise; the bytes may have
 * changed. */
void tb_registration_gone(struct tb_registration *registration, bool gone);
/* Asserts what holds of the table while the lock is free. Under the lock. */
void tb_registrations_check(const struct tb_session *s);
void tb_registration_free(struct tb_registration *registration);

#endif
