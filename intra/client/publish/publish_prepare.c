/* publish_prepare.c - tb_publish_prepare: the memory that the first version of a shard will be
 * copied to is made before it is published. */
#include "intra/client/publish/publish_prepare.h"

#include "base/assert.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/shadow_claim.h"
#include "intra/client/session/session.h"

#define COPY_STEP_BYTES ((uint64_t)2 << 20) /* a huge page */

uint64_t tb_publish_copy_bytes(uint64_t bytes)
{
    return (bytes + COPY_STEP_BYTES - 1) / COPY_STEP_BYTES * COPY_STEP_BYTES;
}

static int check(const struct tb_session *s, const struct tb_publish_options *o, struct tb_publication *p)
{
    if (o == NULL || o->struct_bytes < sizeof *o)
        return tb_fail(TB_BAD_ARGUMENT, "options.struct_bytes must be sizeof(struct tb_publish_options), %zu",
                       sizeof *o);
    if (o->model == NULL || tb_name_set(&p->model, o->model) != TB_OK)
        return tb_fail(TB_BAD_ARGUMENT, "model \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -",
                       o->model == NULL ? "" : o->model);
    if (o->mode != TB_PUBLISH_SHADOW && o->mode != TB_PUBLISH_IN_PLACE)
        return tb_fail(TB_BAD_ARGUMENT, "mode %u is unknown", o->mode);
    if (o->registration == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "without a registration there is nothing to prepare");
    if (o->registration->session != s)
        return tb_fail(TB_BAD_ARGUMENT, "the registration belongs to another session");
    if (o->blob_count > TB_BLOBS_MAX || (o->blob_count > 0 && o->blobs == NULL))
        return tb_fail(TB_BAD_ARGUMENT, "%u blobs; a shard has at most %d", o->blob_count, TB_BLOBS_MAX);
    for (uint32_t i = 0; i < o->blob_count; i++)
        if (o->blobs[i].count > TB_BLOB_BYTES_MAX)
            return tb_fail(TB_BAD_ARGUMENT, "blob %u has %llu bytes; at most %llu are allowed", i,
                           (unsigned long long)o->blobs[i].count, (unsigned long long)TB_BLOB_BYTES_MAX);
    p->shard = o->shard_index;
    return TB_OK;
}

static uint64_t shard_bytes(const struct tb_publish_options *o)
{
    uint64_t bytes = o->registration->layout.bytes;
    for (uint32_t i = 0; i < o->blob_count; i++)
        bytes += o->blobs[i].count;
    return bytes;
}

/* Under the lock. The copy that the version before left is used first. */
static void prepare_copy(struct tb_session *s, const struct tb_publication *p, uint64_t bytes,
                         struct tb_registration *r)
{
    const struct tb_reserve_wish wish = {.kind = TB_RESERVE_COPY,
                                         .model = &p->model,
                                         .shard = p->shard,
                                         .bytes = tb_publish_copy_bytes(bytes),
                                         .pin = true,
                                         .of = r};
    if (r->spare.memory.bytes == NULL && tb_reserve_count(s, &wish) == 0) tb_reserve_ask(s, &wish);
}

static void prepare(struct tb_session *s, const struct tb_publication *p, const struct tb_publish_options *o)
{
    TB_ASSERT_LOCKED(s);
    struct tb_registration *r = o->registration;
    const bool on_gpu = r->gpu != NULL;
    if (o->mode == TB_PUBLISH_SHADOW)
        tb_shadow_claim_prepare(s, p, shard_bytes(o), on_gpu, r);
    else if (on_gpu)
        prepare_copy(s, p, shard_bytes(o), r);
}

int tb_publish_prepare(struct tb_session *session, const struct tb_publish_options *options)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct tb_publication like = {0};
    status = check(session, options, &like);
    tb_session_lock(session);
    if (status == TB_OK) prepare(session, &like, options);
    tb_session_unlock(session);
    tb_session_leave(session);
    return status;
}
