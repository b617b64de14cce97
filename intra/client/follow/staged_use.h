/* staged_use.h - a subscription's hold on a staging. */
#ifndef TB_INTRA_CLIENT_STAGED_USE_H
#define TB_INTRA_CLIENT_STAGED_USE_H

#include "base/time.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/live/live_plan.h"
#include "intra/client/memory/boxes.h"

/* A subscription's hold on a staging. */
struct tb_staged_use {
    struct tb_staged_use *next;
    struct tb_staging *staging;
    bool go;
    /* STAGE was posted for this attempt. False again once the gateway took another version of this
     * subscription: it counts a member for one version at a time. */
    bool asked;
    tb_time_ns asked_at;   /* the last time */
    enum tb_status answer; /* to the last STAGE; TB_AGAIN: there is none yet */
    char answer_why[TB_TEXT_BYTES_MAX + 1];
    /* and refused: the gateway that came back did not know the version yet */
    bool unheard;
    enum tb_status ended;        /* TB_OK, or why this attempt ended: group broken, withdrawn ... */
    struct tb_box_copies copies; /* what activate does; made when the manifests are here */
    bool copies_made;
    struct tb_live_plan *live; /* until it is active; NULL: not made */
    /* Of a subscription that demands the home's signature: it was checked, or why it fails. */
    bool proven;
    enum tb_status refused; /* TB_OK: it does not fail so far */
    char refused_why[TB_TEXT_BYTES_MAX + 1];
    bool tied_compared; /* tensors of one memory have the same bytes in the version */
};

struct tb_staged_use *tb_use_find(struct tb_subscription *sub, const struct tb_id *uid);
/* A use of the version, which is staged from now on if it was not. Under the lock. NULL: no
 * memory. */
struct tb_staged_use *tb_use_new(struct tb_subscription *sub, const struct tb_id *uid);
/* Under the lock, let go while readers drain: the use ends, and the staging with its last use. */
void tb_use_drop(struct tb_subscription *sub, struct tb_staged_use *use, uint32_t drain_ms);
/* TB_LAYOUT_MISMATCH with the tensor in tb_last_error. Under the lock, let go meanwhile, once the
 * manifests are here. */
int tb_use_match(struct tb_subscription *sub, struct tb_staged_use *use);
/* Why a version that ended so, or was refused so, is not to be had, and what its caller does
 * then. */
const char *tb_staging_remedy(int status);

#endif
