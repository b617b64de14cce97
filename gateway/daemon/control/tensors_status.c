/* tensors_status.c - a version's tensors as JSON. Pure. */
#include "gateway/daemon/control/tensors_status.h"

#include <stdbool.h>
#include <string.h>

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

/* False: no memory. An array of more than TB_STATUS_TENSORS_MAX rows is not whole. */
static bool put_rows(const struct tb_layout *const *shards, uint32_t shard_count, json_t *rows)
{
    for (uint32_t s = 0; s < shard_count; s++) {
        for (uint32_t i = 0; i < shards[s]->tensor_count; i++) {
            if (is_said(shards, s, i)) continue;
            if (json_array_append_new(rows, row(&shards[s]->tensors[i])) != 0) return false;
            if (json_array_size(rows) > TB_STATUS_TENSORS_MAX) return true;
        }
    }
    return true;
}

json_t *tb_status_tensors(const struct tb_layout *const *shards, uint32_t shard_count)
{
    json_t *rows = json_array();
    if (rows == NULL) return NULL;
    if (!put_rows(shards, shard_count, rows)) {
        json_decref(rows);
        return NULL;
    }
    if (json_array_size(rows) > TB_STATUS_TENSORS_MAX) {
        json_decref(rows);
        rows = json_null();
    }
    return json_pack("{s:i, s:o}", "schema", 1, "tensors", rows);
}
