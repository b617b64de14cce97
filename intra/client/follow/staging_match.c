/* staging_match.c - where a registration's tensors stand in a version: whole, or in boxes. It reads
 * layouts alone. */
#include "intra/client/follow/staging_match.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/layout/tensor.h"
#include "intra/client/follow/staging.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"

static bool same_shape(const struct tb_tensor *mine, const struct tb_tensor *theirs)
{
    if (!tb_tensor_dtype_equal(mine, theirs) || mine->rank != theirs->rank) return false;
    for (uint32_t i = 0; i < mine->rank; i++)
        if (mine->full[i] != theirs->full[i] || theirs->box_count[i] != theirs->full[i]) return false;
    return true;
}

static void format_shape(const struct tb_tensor *t, char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "%s[", tb_tensor_dtype_name(t));
    for (uint32_t i = 0; i < t->rank && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%llu", i == 0 ? "" : ",",
                                 (unsigned long long)t->full[i]);
    if (used < cap) snprintf(out + used, cap - used, "]");
}

/* theirs: the first box of that name; NULL: there is none. */
static int mismatch(const struct tb_tensor *mine, const struct tb_tensor *theirs)
{
    char want[200], have[200];
    format_shape(mine, want, sizeof want);
    if (theirs == NULL)
        return tb_fail(TB_LAYOUT_MISMATCH,
                       "tensor \"%.200s\" (%s) is registered, and the version has none of that name",
                       mine->name, want);
    format_shape(theirs, have, sizeof have);
    if (strcmp(want, have) == 0)
        return tb_fail(TB_LAYOUT_MISMATCH,
                       "of tensor \"%.200s\" (%s) the version has not all that is registered", mine->name,
                       want);
    return tb_fail(TB_LAYOUT_MISMATCH, "tensor \"%.200s\" is registered as %s, and the version has %s",
                   mine->name, want, have);
}

static const struct tb_tensor *find_tensor(const struct tb_staging *st, const char *name)
{
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        const struct tb_layout *layout = &st->shards[i].manifest.layout;
        for (uint32_t k = 0; k < layout->tensor_count; k++)
            if (strcmp(layout->tensors[k].name, name) == 0) return &layout->tensors[k];
    }
    return NULL;
}

const struct tb_tensor *tb_staging_tensor(const struct tb_staging *st, const struct tb_tensor *mine,
                                          uint32_t *shard_out)
{
    const struct tb_tensor like = {.name = mine->name, .dtype = mine->dtype, .other = mine->other};
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        const struct tb_tensor *t = tb_layout_find_like(&st->shards[i].manifest.layout, &like);
        *shard_out = i;
        if (t != NULL) return same_shape(mine, t) ? t : NULL;
    }
    return NULL;
}

int tb_staging_match(const struct tb_staging *st, const struct tb_registration *r,
                     struct tb_box_copies *copies_out)
{
    const struct tb_layout **layouts = tb_calloc((size_t)st->key.shard_count + 1, sizeof *layouts);
    if (layouts == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the table of copies");
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        layouts[i] = &st->shards[i].manifest.layout;
    const struct tb_box_question q = {layouts, st->key.shard_count, r->wants, r->want_count};
    uint32_t missing;
    const enum tb_status status = tb_boxes_match(&q, copies_out, &missing);
    tb_free(layouts);
    if (status == TB_OK) return TB_OK;
    tb_free(copies_out->list);
    *copies_out = (struct tb_box_copies){0};
    if (status != TB_LAYOUT_MISMATCH) return tb_fail(status, "no table of copies can be made");
    return mismatch(&r->wants[missing], find_tensor(st, r->wants[missing].name));
}
