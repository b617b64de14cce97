/* tensors_status.c - a version's tensors as JSON. Pure. */
#include "gateway/daemon/control/tensors_status.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/layout/layout.h"

static bool same_name(const struct tb_layout *layout, uint32_t index, const char *name)
{
    return index < layout->tensor_count && strcmp(layout->tensors[index].name, name) == 0;
}

/* Boxes of one name stand one behind the other, and ranks that share each tensor have the same
 * names in the same places. */
static bool is_said(const struct tb_layout *const *shards, uint32_t shard, uint32_t index)
{
    const char *name = shards[shard]->tensors[index].name;
    return (index > 0 && same_name(shards[shard], index - 1, name)) ||
           (shard > 0 && same_name(shards[0], index, name));
}

static json_t *row(const struct tb_tensor *t)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; shape != NULL && i < t->rank; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)t->full[i])) == 0) continue;
        json_decref(shape);
        shape = NULL;
    }
    return shape == NULL ? NULL : json_pack("[s, s, o]", t->name, tb_tensor_dtype_name(t), shape);
}

/* Counted before a row is made. */
static bool are_too_many(const struct tb_layout *const *shards, uint32_t shard_count)
{
    uint64_t tensors = 0, rows = 0;
    for (uint32_t s = 0; s < shard_count; s++)
        tensors += shards[s]->tensor_count;
    if (tensors <= TB_STATUS_TENSORS_MAX || tensors > TB_STATUS_TENSORS_LOOKED)
        return tensors > TB_STATUS_TENSORS_MAX;
    for (uint32_t s = 0; s < shard_count; s++)
        for (uint32_t i = 0; i < shards[s]->tensor_count && rows <= TB_STATUS_TENSORS_MAX; i++)
            rows += is_said(shards, s, i) ? 0 : 1;
    return rows > TB_STATUS_TENSORS_MAX;
}

/* False: no memory. */
static bool put_rows(const struct tb_layout *const *shards, uint32_t shard_count, json_t *rows)
{
    for (uint32_t s = 0; s < shard_count; s++) {
        for (uint32_t i = 0; i < shards[s]->tensor_count; i++) {
            if (is_said(shards, s, i)) continue;
            if (json_array_append_new(rows, row(&shards[s]->tensors[i])) != 0) return false;
        }
    }
    return true;
}

json_t *tb_status_tensors(const struct tb_layout *const *shards, uint32_t shard_count)
{
    if (are_too_many(shards, shard_count)) return tb_status_tensors_untold();
    json_t *rows = json_array();
    if (rows == NULL) return NULL;
    if (!put_rows(shards, shard_count, rows)) {
        json_decref(rows);
        return NULL;
    }
    TB_ASSERT(json_array_size(rows) <= TB_STATUS_TENSORS_MAX);
    return json_pack("{s:i, s:o}", "schema", 1, "tensors", rows);
}

json_t *tb_status_tensors_untold(void)
{
    return json_pack("{s:i, s:n}", "schema", 1, "tensors");
}

/* ---- answers that are kept ---- */

const char *tb_tensors_kept(const struct tb_tensors_kept *kept, const struct tb_id *uid,
                            const struct tb_digest *root)
{
    for (uint32_t i = 0; i < TB_TENSORS_KEPT; i++)
        if (kept->rows[i].text != NULL && tb_id_equal(&kept->rows[i].uid, uid) &&
            tb_digest_equal(&kept->rows[i].root, root))
            return kept->rows[i].text;
    return NULL;
}

void tb_tensors_keep(struct tb_tensors_kept *kept, const struct tb_id *uid, const struct tb_digest *root,
                     char *text)
{
    TB_ASSERT(text != NULL && tb_tensors_kept(kept, uid, root) == NULL);
    if (strlen(text) > TB_TENSORS_KEPT_BYTES) {
        free(text);
        return;
    }
    const uint32_t at = kept->next++ % TB_TENSORS_KEPT;
    free(kept->rows[at].text);
    kept->rows[at].uid = *uid;
    kept->rows[at].root = *root;
    kept->rows[at].text = text;
}

void tb_tensors_kept_free(struct tb_tensors_kept *kept)
{
    for (uint32_t i = 0; i < TB_TENSORS_KEPT; i++)
        free(kept->rows[i].text);
    *kept = (struct tb_tensors_kept){.next = 0};
}
