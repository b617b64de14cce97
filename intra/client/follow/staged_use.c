/* staged_use.c - a subscription's hold on a staging: the staging goes with its last use. */
#include "intra/client/follow/staged_use.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/follow/staged_gpu.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_match.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

struct tb_staged_use *tb_use_find(struct tb_subscription *sub, const struct tb_id *uid)
{
    TB_ASSERT_LOCKED(sub->session);
    for (struct tb_staged_use *use = sub->uses; use != NULL; use = use->next)
        if (tb_id_equal(&use->staging->uid, uid)) return use;
    return NULL;
}

static bool has_slices(const struct tb_subscription *sub)
{
    return sub->registration != NULL && sub->registration->slices != NULL;
}

/* Its buffers hold a version, in memory of the host or of a device that can patch. */
static bool can_patch(const struct tb_subscription *sub)
{
    if (sub->update != TB_UPDATE_PATCH || has_slices(sub)) return false;
    if (sub->registration->gpu != NULL && !tb_gpu_may_patch(sub->registration->gpu)) return false;
    return !tb_id_is_zero(&sub->active) && tb_id_is_zero(&sub->torn);
}

struct tb_staged_use *tb_use_new(struct tb_subscription *sub, const struct tb_id *uid)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_session *s = sub->session;
    struct tb_staged_use *use = tb_calloc(1, sizeof *use);
    if (use == NULL) return NULL;
    use->staging = tb_staging_find(s, uid);
    if (use->staging == NULL) {
        use->staging = tb_staging_new(s, uid);
        if (use->staging != NULL && can_patch(sub)) use->staging->patch_for = sub->registration;
        if (use->staging != NULL && has_slices(sub)) use->staging->slices_for = sub->registration;
        if (use->staging != NULL && sub->stage_on_gpu) use->staging->gpu_for = sub->registration;
    } else if (sub->stage_on_gpu) {
        tb_staging_not_on_gpu(use->staging, "another subscription has it in host memory");
    }
    if (use->staging == NULL) {
        tb_free(use);
        return NULL;
    }
    use->staging->uses++;
    use->next = sub->uses;
    sub->uses = use;
    return use;
}

void tb_use_drop(struct tb_subscription *sub, struct tb_staged_use *use, uint32_t drain_ms)
{
    TB_ASSERT_LOCKED(sub->session);
    TB_ASSERT(use->staging->uses > 0);
    for (struct tb_staged_use **at = &sub->uses; *at != NULL; at = &(*at)->next) {
        if (*at == use) {
            *at = use->next;
            break;
        }
    }
    struct tb_staging *st = use->staging;
    /* P2: or the answer would be taken for that of a later use */
    tb_requests_withdraw(sub->session, TB_MSG_STAGE, &st->uid, sub->number);
    tb_live_released(sub, st);
    tb_live_plan_drop(use->live);
    tb_free(use->copies.list);
    tb_free(use);
    TB_ASSERT(st->uses > 0);
    if (--st->uses == 0) tb_staging_drop(sub->session, st, drain_ms);
}

int tb_use_match(struct tb_subscription *sub, struct tb_staged_use *use)
{
    TB_ASSERT_LOCKED(sub->session);
    if (use->copies_made || sub->registration == NULL) return TB_OK;
    struct tb_session *s = sub->session;
    struct tb_box_copies copies = {0};
    tb_session_unlock(
        /* of a million tensors it takes long; calls on a subscription come one at a time, so the
         * use stays */
        s);
    const int status = tb_staging_match(use->staging, sub->registration, &copies);
    tb_session_lock(s);
    if (status != TB_OK) return status;
    use->copies = copies;
    use->copies_made = true;
    return TB_OK;
}

const char *tb_staging_remedy(int status)
{
    static const struct {
        int status;
        const char *text;
    } remedies[] = {
        {TB_BAD_STATE,
         "this member does not stage it now: tb_stage it again, which says whether it may be activated"},
        {TB_CONFLICT, "the group stages another version: ask tb_wait for that one"},
        {TB_GROUP_BROKEN,
         "a member of the group was lost before all had it: tb_stage it again, or ask tb_wait"},
        {TB_NOT_FOUND, "the gateway does not know it: tb_stage it again, or ask tb_wait for another"},
        {TB_VERSION_WITHDRAWN, "an operator withdrew it: ask tb_wait for another"},
        {TB_VERSION_LOST, "no holder is left of some of it: ask tb_wait for another"},
        {TB_VERSION_BROKEN, "its bytes were changed after they were sealed: ask tb_wait for another"},
        {TB_SUPERSEDED, "a newer one took its place: ask tb_wait for that one"},
        {TB_PIN_LOST, "the gateway does not hold it any more: ask tb_wait for another"},
        {TB_TIMEOUT, "the gateway has not answered in time: call again"},
        {TB_CANCELLED, "tb_cancel was called: call again"},
    };
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
        if (remedies[i].status == status) return remedies[i].text;
    return "call again, or ask tb_wait for another";
}
