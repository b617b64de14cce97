/* subscription.h - the table of members of groups. */
#ifndef TB_INTRA_CLIENT_SUBSCRIPTION_H
#define TB_INTRA_CLIENT_SUBSCRIPTION_H

#include "base/ident.h"
#include "intra/client/follow/home_word.h"
#include "intra/client/live/live_proof.h"
#include "intra/client/session/request.h"
#include "intra/session_msg.h"

struct tb_registration;
struct tb_staged_use;
struct tb_session;

struct tb_subscription {
    struct tb_session *session;
    struct tb_subscription *next;
    uint32_t number;
    struct tb_name model, group;
    uint32_t member_index, member_count;
    struct tb_registration *registration;
    uint32_t update; /* enum tb_update */
    bool stage_on_gpu;
    uint32_t prove; /* enum tb_prove */
    struct tb_live live;
    struct tb_registration *second;
    uint32_t buffer;     /* SWITCH: which one is in use */
    struct tb_id filled; /* SWITCH: the version in the other one; zero: none */
    /* target.writes of a buffer after we wrote: the newest, of what `filled` names, of the one in
     * use. */
    uint64_t wrote, filled_wrote, active_wrote;
    /* a switch to it has begun and is not complete: the buffers in use hold no version */
    struct tb_id torn;
    struct tb_id active;
    uint64_t active_run_order, active_number;
    bool active_withdrawn;
    struct tb_home_word active_word; /* of the active version */
    struct tb_tls *home_trust;       /* NULL: the gateway is believed */
    struct tb_msg_updated updated;   /* what the last switch took; uid zero: there was none */
    struct tb_staged_use *uses;
};

struct tb_request *tb_subscribe_request(struct tb_session *s, const struct tb_subscription *sub);
/* Asserts what holds of the table while the lock is free. Under the lock. */
void tb_subscriptions_check(const struct tb_session *s);
void tb_subscriptions_free(struct tb_session *s);

#endif
