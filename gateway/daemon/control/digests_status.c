/* digests_status.c - the newest version of a model that is whole here: its layouts and the digests
 * of its chunks (docs/control.md). */
#include "gateway/daemon/control/digests_status.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"

#define CHUNKS_MAX 131072u /* of one answer: it stays below 16 MiB */

_Static_assert(CHUNKS_MAX *(2u * TB_DIGEST_BYTES + 3u) < (16u << 20), "an answer has its bound");

static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static json_t *digest_json(const struct tb_digest *digest)
{
    char hex[2 * TB_DIGEST_BYTES];
    static const char digits[] = "0123456789abcdef"; /* the loop waits: no format is read for each byte */
    for (size_t i = 0; i < TB_DIGEST_BYTES; i++) {
        hex[2 * i] = digits[digest->bytes[i] >> 4];
        hex[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    return json_stringn_nocheck(hex, sizeof hex);
}

static json_t *shard_json(const struct tb_manifest *m)
{
    json_t *list = json_array();
    for (uint32_t k = 0; list != NULL && k < m->chunk_count; k++) {
        if (json_array_append_new(list, digest_json(&m->digests[k])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return json_pack("{s:o, s:I, s:o}", "layout", digest_json(&m->layout.id), "bytes", (json_int_t)m->bytes,
                     "digests", list);
}

/* Null where there are too many chunks; NULL: no memory. */
static json_t *shards_json(const struct tb_copy *copy)
{
    uint64_t chunks = 0;
    for (uint32_t s = 0; s < copy->key.shard_count; s++)
        chunks += tb_arena_place(copy->region, s)->manifest->chunk_count;
    if (chunks > CHUNKS_MAX) return json_null();
    json_t *list = json_array();
    for (uint32_t s = 0; list != NULL && s < copy->key.shard_count; s++) {
        if (json_array_append_new(list, shard_json(tb_arena_place(copy->region, s)->manifest)) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* NULL: none is whole here. */
static const struct tb_copy *newest_whole(struct tb_daemon *d, const char *model)
{
    const struct tb_copy *best = NULL;
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (strcmp(c->key.model.text, model) != 0 || c->region == NULL) continue;
        if (!tb_copy_is_whole(c) || tb_copy_leaves(c)) continue;
        if (best == NULL || tb_version_key_compare(&c->key, &best->key) > 0) best = c;
    }
    return best;
}

static bool is_known(struct tb_daemon *d, const char *model)
{
    struct tb_catalog_model m;
    for (uint32_t cursor = 0; tb_catalog_model_at(d->catalog, &cursor, &m);)
        if (strcmp(m.name.text, model) == 0) return true;
    return false;
}

static bool fill(json_t *reply, const struct tb_copy *copy)
{
    if (copy == NULL) return put(reply, "version", json_null()) && put(reply, "shards", json_null());
    return put(reply, "version",
               json_sprintf("%llu:%llu", (unsigned long long)copy->key.run_order,
                            (unsigned long long)copy->key.number)) &&
           put(reply, "shards", shards_json(copy));
}

enum tb_status tb_status_digests(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    const char *model = json_string_value(json_object_get(request, "model"));
    if (model == NULL) {
        (void)snprintf(error, 256, "digests needs \"model\"");
        return TB_BAD_ARGUMENT;
    }
    if (!is_known(d, model)) {
        (void)snprintf(error, 256, "no model \"%.64s\" is configured here", model);
        return TB_NOT_FOUND;
    }
    return fill(reply, newest_whole(d, model)) ? TB_OK : TB_SITE_NOMEM;
}
