/* staged_items.c - tb_staged_item: what is staged, for a program that reads it in place. */
#include <stddef.h>
#include <string.h>

#include "base/layout/tensor.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/session/session.h"

/* Of a program built before dtype_bits was there. */
#define FIRST_ITEM_BYTES offsetof(struct tb_item, dtype_bits)

/* All of them, in memory of the host. */
static bool keeps_tensors(const struct tb_place *p)
{
    return p->owner == NULL && p->far == NULL;
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
    if (st->life != TB_STAGING_WHOLE)
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
