/* activate.c - the short switch: after `go`, the version gets into the buffers that the rollout computes from: copied from staging,
 * or it is there already in others, or as a patch.
 *
 * Promise P2: nothing is copied before the gateway said `go` for the whole group, and after it this member
 * waits for no other. A `go` that was heard stays good while the gateway is away. */
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/client/session/client.h"

#define ASK_MS   10000u
#define FETCH_MS 30000u
/* Of a program built before there were ways to update. */
#define FIRST_INFO_BYTES offsetof(struct tb_activate_info, patched_bytes)
#define FIRST_ITEM_BYTES offsetof(struct tb_item, dtype_bits)
#define CONFIRM_MS       1000u /* with `go` heard before, a gateway that hangs costs no more stall than this */

/* So many pieces at most: enough for threads to end together, and a hundred thousand small tensors cost no more than a large one. */
#define PIECES_MAX 512u

struct copying {
    const struct tb_staged_use *use;
    uint8_t *const *memory;
    const struct tb_tied *tied;
    const struct tb_gpu_memory *gpu;
};

static void copy_box(const struct copying *c, const struct tb_box_copy *copy)
{
    if (tb_gpu_memory_has(c->gpu, copy->want) || tb_tied_has(c->tied, copy->want)) return;
    const uint8_t *from = c->use->staging->shards[copy->shard].place.bytes + copy->from;
    uint8_t *to = c->memory[copy->want] + copy->to;
    for (uint64_t row = 0; row < copy->rows; row++)
        memcpy(to + row * copy->to_stride, from + row * copy->from_stride, copy->run);
}

/* What tb_use_copy writes there: of tensors of one memory the first alone. */
static uint64_t copied_to(const struct tb_staged_use *use, const struct tb_registration *to)
{
    return use->copies.bytes - to->tied.bytes;
}

static uint32_t copies_a_piece(const struct tb_box_copies *copies)
{
    return copies->count / PIECES_MAX + 1;
}

static void copy_piece(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    const struct copying *c = user;
    const struct tb_box_copies *copies = &c->use->copies;
    const uint32_t each = copies_a_piece(copies), first = piece * each;
    for (uint32_t i = first; i < copies->count && i < first + each; i++)
        copy_box(c, &copies->list[i]);
}

static struct tb_request *activate_request(struct tb_session *s, const struct tb_subscription *sub,
                                           const struct tb_id *uid)
{
    struct tb_request *request = tb_request_new(s, TB_SESSION_ACTIVATE, TB_SESSION_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_session_activate m = {.subscription = sub->number, .uid = *uid};
    tb_session_activate_encode(&m, &request->payload);
    return request;
}

static void activated_notice(struct tb_session *s, const struct tb_subscription *sub, const struct tb_id *uid,
                             const struct tb_activate_info *info)
{
    struct tb_request *notice = tb_request_new(s, TB_SESSION_ACTIVATED, 0, 0);
    if (notice == NULL) return; /* the next SUBSCRIBE says it */
    const struct tb_session_activated m = {.subscription = sub->number,
                                           .uid = *uid,
                                           .run_order = sub->active_run_order,
                                           .number = sub->active_number,
                                           .stall_ns = info->stall_ns,
                                           .copied_bytes = info->copied_bytes};
    tb_session_activated_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

static enum tb_session_way way_of(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    if (sub->registration == NULL) return TB_SESSION_WAY_STAGED;
    if (use->staging->patch != NULL) return TB_SESSION_WAY_PATCH;
    return sub->update == TB_UPDATE_SWITCH ? TB_SESSION_WAY_SWITCH : TB_SESSION_WAY_COPY;
}

/* Behind ACTIVATED, which a gateway of the release before takes as well (P9). */
static void updated_notice(struct tb_session *s, struct tb_subscription *sub, const struct tb_staged_use *use,
                           const struct tb_activate_info *info)
{
    sub->updated = (struct tb_session_updated){.subscription = sub->number,
                                               .uid = use->staging->uid,
                                               .way = (uint8_t)way_of(sub, use),
                                               .stall_ns = info->stall_ns,
                                               .staged_bytes = info->staged_bytes,
                                               .copied_bytes = info->copied_bytes,
                                               .patched_bytes = info->patched_bytes,
                                               .fetched_chunks = info->fetched_chunks};
    const bool taken = (s->welcome.incarnation & TB_SESSION_TAKES_UPDATED) != 0;
    struct tb_request *notice = taken ? tb_request_new(s, TB_SESSION_UPDATED, 0, 0) : NULL;
    if (notice == NULL) return; /* the next one says its own */
    tb_session_updated_encode(&sub->updated, &notice->payload);
    tb_request_post(s, notice);
}

/* P2: where the gateway cannot know what was active here: only forward, unless that was withdrawn. */
static int may_follow(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    const struct tb_version_key *key = &use->staging->key;
    const bool older = key->run_order < sub->active_run_order ||
                       (key->run_order == sub->active_run_order && key->number < sub->active_number);
    if (older && !sub->active_withdrawn)
        return tb_fail(
            TB_BAD_STATE,
            "version %llu is older than the active %llu, of which no withdrawal was heard: ask tb_wait "
            "for a newer one",
            (unsigned long long)key->number, (unsigned long long)sub->active_number);
    return TB_OK;
}

static int may_go_alone(const struct tb_session *s, const struct tb_subscription *sub,
                        const struct tb_staged_use *use)
{
    if (!use->go)
        return tb_fail(TB_GATEWAY_AWAY, "the gateway at %s is away and has not said go for version %llu",
                       s->gateway_text, (unsigned long long)use->staging->key.number);
    return may_follow(sub, use);
}

/* The gateway's own words come first. What it does not count for this member has to be staged again: tb_stage asks anew. */
static int refused(struct tb_staged_use *use, const struct tb_request *request, int status)
{
    if (request->done) use->asked = false;
    if (request->done && status == TB_BAD_STATE) use->go = false;
    return tb_fail(status, "version %llu cannot be activated: %s%s%s",
                   (unsigned long long)use->staging->key.number, request->why,
                   request->why[0] == '\0' ? "" : "; ", tb_staging_remedy(status));
}

/* Under the lock. */
static int ask_go(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use)
{
    if (!s->up) return may_go_alone(s, sub, use);
    struct tb_request *request = activate_request(s, sub, &use->staging->uid);
    if (request == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the request");
    const struct tb_call call = {
        .deadline = tb_time_add(tb_clock_now(), TB_MS(use->go ? CONFIRM_MS : ASK_MS)), .cancels = s->cancels};
    int status = tb_request_wait(s, request, &call);
    if (status == TB_DONE_BEFORE) status = TB_OK;
    if (status == TB_GATEWAY_AWAY || (status == TB_TIMEOUT && !request->done))
        status = may_go_alone(s, sub, use);
    else if (status == TB_AGAIN)
        tb_fail(TB_AGAIN, "not every member of group %s has version %llu whole", sub->group.text,
                (unsigned long long)use->staging->key.number);
    else if (status != TB_OK)
        (void)refused(use, request, status);
    tb_request_free(request);
    /* It was told of no active version. */
    return status == TB_OK && !tb_id_is_zero(&sub->torn) ? may_follow(sub, use) : status;
}

static bool is_suspended(const struct tb_subscription *sub)
{
    return (sub->registration != NULL && sub->registration->suspended) ||
           (sub->second != NULL && sub->second->suspended);
}

static int may_activate(struct tb_subscription *sub, struct tb_staged_use *use)
{
    if (use == NULL)
        return tb_fail(TB_BAD_STATE,
                       "this subscription has not staged the version, or has released it: tb_stage it");
    const struct tb_staging *st = use->staging;
    /* First, because the lock is let go meanwhile. As a rule tb_stage has done it. */
    const int matched = use->ended == TB_OK && st->state == TB_STAGING_WHOLE ? tb_use_match(sub, use) : TB_OK;
    if (use->ended != TB_OK)
        return tb_fail(use->ended, "version %llu cannot be activated: %s", (unsigned long long)st->key.number,
                       tb_staging_remedy(use->ended));
    if (st->state == TB_STAGING_FAILED)
        return tb_fail(st->status, "version %llu: %s", (unsigned long long)st->key.number, st->why);
    if (st->state != TB_STAGING_WHOLE)
        return tb_fail(TB_AGAIN, "version %llu is not whole here: %u of %u chunks",
                       (unsigned long long)st->key.number, tb_staging_held_chunks(st), st->total_chunks);
    if (is_suspended(sub)) return tb_fail(TB_BAD_STATE, "the registration is suspended: tb_resume first");
    return matched == TB_OK ? tb_use_tied(sub, use) : matched;
}

static enum tb_status copy_to_gpu(const struct tb_registration *r, const struct tb_staged_use *use)
{
    if (r->gpu == NULL) return TB_OK;
    struct tb_gpu_rows *moves = tb_calloc((size_t)use->copies.count + 1, sizeof *moves);
    if (moves == NULL) return TB_SITE_NOMEM;
    uint32_t count = 0;
    for (uint32_t i = 0; i < use->copies.count; i++) {
        const struct tb_box_copy *copy = &use->copies.list[i];
        if (!tb_gpu_memory_has(r->gpu, copy->want) || tb_tied_has(&r->tied, copy->want)) continue;
        TB_ASSERT(copy->rows > 0); /* none would be one to tb_gpu_move */
        uint8_t *to = r->want_memory[copy->want] + copy->to;
        const uint8_t *from = use->staging->shards[copy->shard].place.bytes + copy->from;
        moves[count++] = (struct tb_gpu_rows){.row = {to, from, copy->run},
                                              .rows = copy->rows,
                                              .to_stride = copy->to_stride,
                                              .from_stride = copy->from_stride};
    }
    const enum tb_status status = tb_gpu_move(r->gpu, moves, count);
    tb_free(moves);
    return status;
}

/* Without the lock: the calls on a subscription come one at a time, and `passes` keeps the memory where it
 * is. */
int tb_use_copy(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_registration *to)
{
    struct tb_session *s = sub->session;
    to->passes++;
    tb_session_unlock(s);
    struct copying c = {.use = use, .memory = to->want_memory, .tied = &to->tied, .gpu = to->gpu};
    pthread_rwlock_wrlock(&to->target.lock);
    const uint64_t wrote = ++to->target.writes;
    const enum tb_status status = copy_to_gpu(to, use);
    const uint32_t each = copies_a_piece(&use->copies);
    if (status == TB_OK) tb_crew_run(s->crew, (use->copies.count + each - 1) / each, copy_piece, &c);
    pthread_rwlock_unlock(&to->target.lock);
    tb_session_lock(s);
    to->passes--;
    tb_session_changed(s, false);
    sub->wrote = wrote;
    if (status == TB_OK) return TB_OK;
    return tb_fail(
        status,
        "version %llu did not get into the GPU's memory (gpu.failed in the log says why): the buffers are "
        "of no one version until tb_activate returns TB_OK",
        (unsigned long long)use->staging->key.number);
}

/* Into the buffers in use: until all of it is there they hold no version (P2). */
static int copy_in_use(struct tb_subscription *sub, const struct tb_staged_use *use,
                       struct tb_registration *to)
{
    sub->torn = use->staging->uid;
    return tb_use_copy(sub, use, to);
}

/* ---- a switch between two ---- */

static struct tb_registration *idle_buffers(const struct tb_subscription *sub)
{
    return sub->buffer == 0 ? sub->second : sub->registration;
}

/* The buffers hold what this subscription wrote: no later write, no suspension. Under the lock, so it does
 * not wait for a writer, which may take seconds and leaves other bytes. */
static bool as_written(struct tb_registration *r, uint64_t wrote)
{
    if (pthread_rwlock_tryrdlock(&r->target.lock) != 0) return false;
    const bool same = r->target.writes == wrote;
    pthread_rwlock_unlock(&r->target.lock);
    return same;
}

static bool is_filled(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    return tb_id_equal(&sub->filled, &use->staging->uid) && as_written(idle_buffers(sub), sub->filled_wrote);
}

static int fill(struct tb_subscription *sub, const struct tb_staged_use *use)
{
    sub->filled = (struct tb_id){{0}};
    const int status = tb_use_copy(sub, use, idle_buffers(sub));
    if (status != TB_OK) return status;
    sub->filled = use->staging->uid;
    sub->filled_wrote = sub->wrote;
    return TB_OK;
}

int tb_use_fill(struct tb_subscription *sub, const struct tb_staged_use *use)
{
    if (is_filled(sub, use) || tb_id_equal(&sub->active, &use->staging->uid)) return TB_OK;
    if (idle_buffers(sub)->suspended) return TB_OK; /* the switch does it, or refuses */
    return fill(sub, use);
}

/* The active version is in the buffers in use; after they were suspended it is not, and comes again, to where it was. */
static int stay(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_activate_info *info)
{
    struct tb_registration *in_use = sub->buffer == 0 ? sub->registration : sub->second;
    if (as_written(in_use, sub->active_wrote)) return TB_OK;
    const int status = copy_in_use(sub, use, in_use);
    if (status != TB_OK) return status;
    sub->active_wrote = sub->wrote;
    info->copied_bytes = copied_to(use, in_use);
    return TB_OK;
}

static int flip(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_activate_info *info)
{
    if (tb_id_equal(&sub->active, &use->staging->uid)) return stay(sub, use, info);
    if (!is_filled(sub, use)) {
        info->copied_bytes = copied_to(use, idle_buffers(sub));
        const int filled = fill(sub, use);
        if (filled != TB_OK) return filled;
    }
    sub->buffer = !sub->buffer;
    sub->active_wrote = sub->filled_wrote;
    sub->filled = (struct tb_id){{0}};
    return TB_OK;
}

/* ---- a patch ---- */

/* The chunks that failed, whole, from whoever has the version. */
static int fetch_again(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use,
                       const struct tb_call *call)
{
    const struct tb_staging *st = use->staging;
    int status = tb_use_ask_anew(sub, use, call);
    while (status == TB_OK && st->state != TB_STAGING_WHOLE) {
        const enum tb_status waited = tb_session_wait_change(s, call);
        if (waited != TB_OK)
            status =
                tb_fail(waited, "version %llu: %u of %u chunks are here again",
                        (unsigned long long)st->key.number, tb_staging_held_chunks(st), st->total_chunks);
        else if (use->ended != TB_OK || st->state == TB_STAGING_FAILED)
            status = tb_fail(use->ended != TB_OK ? use->ended : st->status, "version %llu ended: %s",
                             (unsigned long long)st->key.number, st->why);
    }
    if (status == TB_OK && sub->registration->suspended)
        status = tb_fail(TB_BAD_STATE, "the registration was suspended meanwhile");
    return status;
}

static enum tb_status apply_patch(struct tb_session *s, struct tb_registration *r, struct tb_patch *patch,
                                  struct tb_patch_result *result_out)
{
    r->passes++;
    tb_session_unlock(s);
    const enum tb_status status = tb_patch_apply(patch, s->crew, result_out);
    tb_session_lock(s);
    r->passes--;
    tb_session_changed(s, false);
    return status;
}

/* The buffers hold neither version until all of it is there. */
static int patch(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use,
                 struct tb_activate_info *info)
{
    struct tb_staging *st = use->staging;
    const struct tb_call call = {.deadline = tb_time_add(tb_clock_now(), TB_MS(FETCH_MS)),
                                 .cancels = s->cancels};
    for (;;) {
        struct tb_patch_result result;
        enum tb_status applied = tb_staging_patch_tables(st);
        if (applied != TB_OK)
            return tb_fail(applied, "version %llu has not every tensor of the buffers whole",
                           (unsigned long long)st->key.number);
        sub->torn = st->uid;
        applied = apply_patch(s, sub->registration, st->patch, &result);
        info->copied_bytes += result.copied_bytes;
        info->patched_bytes += result.patched_bytes;
        info->fetched_chunks += result.failed;
        if (applied == TB_LAYOUT_MISMATCH)
            return tb_fail(applied,
                           "version %llu has different bytes for tensors that are registered in one memory: "
                           "the buffers are of no one version",
                           (unsigned long long)st->key.number);
        if (applied != TB_OK)
            return tb_fail(applied, "version %llu: the buffers do not hold what was written to them",
                           (unsigned long long)st->key.number);
        if (result.failed == 0) return TB_OK;
        tb_log(TB_LOG_WARN, "activate.fetched", "number=%llu chunks=%u of=%u action=fetched_whole",
               (unsigned long long)st->key.number, result.failed, st->total_chunks);
        const int fetched = fetch_again(s, sub, use, &call);
        if (fetched != TB_OK) return fetched;
    }
}

/* Under the lock. */
static int update(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use,
                  struct tb_activate_info *info)
{
    info->staged_bytes = tb_staging_bytes(use->staging);
    if (sub->registration == NULL) return TB_OK;
    if (use->staging->patch != NULL) return patch(s, sub, use, info);
    if (sub->update == TB_UPDATE_SWITCH) return flip(sub, use, info);
    const int copied = copy_in_use(sub, use, sub->registration);
    if (copied != TB_OK) return copied;
    info->copied_bytes = copied_to(use, sub->registration);
    return TB_OK;
}

static void became_active(struct tb_subscription *sub, const struct tb_staging *st)
{
    sub->torn = (struct tb_id){{0}};
    sub->active = st->uid;
    sub->active_run_order = st->key.run_order;
    sub->active_number = st->key.number;
    sub->active_withdrawn = false;
}

/* The gateway came back without the version, so that it refused to hear that it is staged here: it is told again, until it knows it. */
static int stage_again(struct tb_subscription *sub, struct tb_staged_use *use)
{
    const int status = tb_use_ask(sub, use);
    if (status != TB_OK) return status;
    return tb_fail(TB_AGAIN, "the gateway at %s came back and did not know version %llu: it is asked again",
                   sub->session->gateway_text, (unsigned long long)use->staging->key.number);
}

/* Under the lock. */
static int activate(struct tb_session *s, struct tb_subscription *sub, const struct tb_id *uid,
                    tb_time_ns began, struct tb_activate_info *info)
{
    struct tb_staged_use *use = tb_use_find(sub, uid);
    int status = may_activate(sub, use);
    if (status == TB_OK) status = ask_go(s, sub, use);
    if (status == TB_GROUP_BROKEN) { /* told once: the next tb_stage begins another attempt */
        use->ended = TB_OK;
        use->asked = use->go = false;
    }
    if (use != NULL && use->unheard && (status == TB_NOT_FOUND || status == TB_BAD_STATE))
        return stage_again(sub, use);
    if (status != TB_OK) return status;
    /* While the answer was waited for the registration may have been suspended by another thread. */
    if (is_suspended(sub) || use->staging->left_gpu)
        return tb_fail(TB_BAD_STATE, "the registration was suspended meanwhile");
    status = update(s, sub, use, info);
    if (status == TB_OK) status = tb_registration_missing(sub->registration);
    if (status == TB_OK) status = tb_registration_missing(sub->second);
    if (status != TB_OK) return status;
    became_active(sub, use->staging);
    info->buffer = sub->second == NULL ? 0 : sub->buffer;
    info->stall_ns = tb_time_since(began, tb_clock_now());
    activated_notice(s, sub, uid, info);
    updated_notice(s, sub, use, info);
    return TB_OK;
}

int tb_activate(struct tb_subscription *subscription, const struct tb_uid *uid,
                struct tb_activate_info *info_out)
{
    const tb_time_ns began = tb_clock_now();
    if (subscription == NULL) return tb_fail(TB_BAD_ARGUMENT, "no subscription given");
    struct tb_session *s = subscription->session;
    int status = tb_session_enter(s);
    if (status != TB_OK) return status;
    struct tb_activate_info info = {0};
    if (uid == NULL || (info_out != NULL && info_out->struct_bytes < FIRST_INFO_BYTES)) {
        status =
            tb_fail(TB_BAD_ARGUMENT,
                    "a uid is needed, and info.struct_bytes must be sizeof(struct tb_activate_info), %zu",
                    sizeof info);
    } else {
        struct tb_id id;
        memcpy(id.bytes, uid->bytes, sizeof id.bytes);
        tb_session_lock(s);
        status = activate(s, subscription, &id, began, &info);
        tb_session_unlock(s);
    }
    if (status == TB_OK && info_out != NULL) {
        const uint32_t bytes = info_out->struct_bytes;
        info.struct_bytes = bytes;
        memcpy(info_out, &info, bytes < sizeof info ? bytes : sizeof info);
    }
    tb_session_leave(s);
    return status;
}

/* ---- what is staged, for those who read it in place ---- */

/* All of them, in memory of the host. */
static bool keeps_tensors(const struct tb_place *p)
{
    return p->landed == NULL && p->wanted == NULL && p->far == NULL;
}

static bool fill_item(const struct tb_staged_shard *sh, uint32_t shard, uint32_t index, struct tb_item *item)
{
    const struct tb_manifest *m = &sh->manifest;
    item->shard_index = shard;
    if (index < m->layout.tensor_count) {
        const struct tb_tensor *t = &m->layout.tensors[index];
        item->is_blob = 0;
        item->rank = t->rank;
        item->name = t->name;
        item->dtype = tb_tensor_dtype_name(t);
        item->dtype_bits = tb_tensor_bits(t);
        item->shape = t->box_count;
        item->bytes = keeps_tensors(&sh->place) ? sh->place.bytes + t->offset : NULL;
        item->count = t->bytes;
        return true;
    }
    index -= m->layout.tensor_count;
    if (index >= m->blob_count) return false;
    item->is_blob = 1;
    item->rank = 0;
    item->name = m->blobs[index].name;
    item->dtype = NULL;
    item->dtype_bits = 0;
    item->shape = NULL;
    item->bytes = sh->place.far != NULL ? sh->place.far->rest + (m->blobs[index].offset - m->layout.bytes)
                                        : sh->place.bytes + m->blobs[index].offset;
    item->count = m->blobs[index].bytes;
    return true;
}

static int staged_item(struct tb_subscription *sub, const struct tb_id *uid, uint32_t index,
                       struct tb_item *item)
{
    struct tb_staged_use *use = tb_use_find(sub, uid);
    if (use == NULL) return tb_fail(TB_NOT_FOUND, "the subscription has not staged that version");
    const struct tb_staging *st = use->staging;
    if (st->state != TB_STAGING_WHOLE)
        return tb_fail(TB_BAD_STATE, "version %llu is not whole here yet",
                       (unsigned long long)st->key.number);
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        if (fill_item(&st->shards[i], i, index, item)) return TB_OK;
        index -= st->shards[i].manifest.layout.tensor_count + st->shards[i].manifest.blob_count;
    }
    return tb_fail(TB_END, "the version has no more items");
}

int tb_staged_item(struct tb_subscription *subscription, const struct tb_uid *uid, uint32_t index,
                   struct tb_item *item_out)
{
    if (subscription == NULL) return tb_fail(TB_BAD_ARGUMENT, "no subscription given");
    struct tb_session *s = subscription->session;
    int status = tb_session_enter(s);
    if (status != TB_OK) return status;
    if (uid == NULL || item_out == NULL || item_out->struct_bytes < FIRST_ITEM_BYTES) {
        status = tb_fail(TB_BAD_ARGUMENT,
                         "a uid is needed, and item.struct_bytes must be sizeof(struct tb_item), %zu",
                         sizeof *item_out);
    } else {
        struct tb_id id;
        memcpy(id.bytes, uid->bytes, sizeof id.bytes);
        tb_session_lock(s);
        struct tb_item item = {.struct_bytes = item_out->struct_bytes};
        status = staged_item(subscription, &id, index, &item);
        tb_session_unlock(s);
        if (status == TB_OK)
            memcpy(item_out, &item, item.struct_bytes < sizeof item ? item.struct_bytes : sizeof item);
    }
    tb_session_leave(s);
    return status;
}
