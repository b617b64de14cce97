/* shadow.h - the table of host copies that versions are served from, and the deltas between two. */
#ifndef TB_INTRA_CLIENT_SHADOW_H
#define TB_INTRA_CLIENT_SHADOW_H

#include "base/digest.h"
#include "base/ident.h"
#include "intra/fabric/shared_memory.h"

struct tb_publication;
struct tb_session;

#define TB_SHADOWS_MAX 2 /* a (model, shard): one being landed at home, one being written */
struct tb_shadow {
    struct tb_shadow *next;
    struct tb_name model;
    uint32_t shard;
    struct tb_shared_memory memory;
    /* for the encoded chunks of what is in it; bytes NULL: none yet */
    struct tb_shared_memory shelf;
    struct tb_publication *user; /* NULL: free */
    /* The version that is in it, whole, and its cut; zero: none, or it is being written. */
    struct tb_id uid;
    struct tb_digest layout_id;
    uint64_t bytes;
};

/* Of the same model and shard. */
bool tb_shadow_is_of(const struct tb_shadow *sh, const struct tb_publication *p);
/* The pass over it is done: what is in its shadow is a base from now on. Under the lock. */
void tb_shadow_filled(struct tb_publication *p);
/* A shelf for its deltas against the version before, if that is kept and of the same cut. Without
 * the lock. */
void tb_shadow_shelf(struct tb_session *s, struct tb_publication *p, uint32_t classes);
/* Under the lock: its deltas are made from now on, in background. */
void tb_shadow_encode(struct tb_session *s, struct tb_publication *p);
/* And not any more. Under the lock, let go meanwhile: nobody else removes it. */
void tb_shadow_encode_end(struct tb_session *s, struct tb_publication *p);
/* Asserts what holds of the table while the lock is free. Under the lock. */
void tb_shadows_check(const struct tb_session *s);
void tb_shadows_free(struct tb_session *s);

#endif
