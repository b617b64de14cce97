/* group_status.c - what "status" says of reader groups (docs/control.md): who is there, and which
 * version they use and stage. */
#include "gateway/daemon/control/group_status.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/usage.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/daemon.h"

#define GROUPS_MAX 1024u /* of one answer */

/* "R:N"; null for none, "?" of a version that is forgotten here. */
static json_t *version_json(const struct tb_daemon *d, const struct tb_id *uid)
{
    struct tb_catalog_version_view v;
    if (tb_id_is_zero(uid)) return json_null();
    if (!tb_catalog_version_get(d->catalog, uid, &v)) return json_string("?");
    return json_sprintf("%llu:%llu", (unsigned long long)v.key.run_order, (unsigned long long)v.key.number);
}

static json_t *group_json(const struct tb_daemon *d, const struct tb_catalog_group_view *g)
{
    TB_ASSERT(g->present <= g->count);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "model", g->model.text, "group",
                     g->name.text, "members", (json_int_t)g->count, "present", (json_int_t)g->present,
                     "staged_whole", (json_int_t)g->staged_whole, "activated",
                     (json_int_t)(tb_id_is_zero(&g->uid) ? 0 : g->activated), "active",
                     version_json(d, &g->uid), "staging", version_json(d, &g->attempt));
}

uint32_t tb_status_group_count(const struct tb_daemon *d)
{
    struct tb_catalog_table t;
    for (uint32_t cursor = 0; tb_catalog_table_at(d->catalog, &cursor, &t);)
        if (strcmp(t.name, "groups") == 0) return t.used;
    return 0;
}

json_t *tb_status_groups(struct tb_daemon *d)
{
    static struct tb_catalog_group_view views[GROUPS_MAX]; /* large; the main loop's alone */
    const uint32_t count = tb_catalog_groups(d->catalog, views, GROUPS_MAX);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        if (json_array_append_new(list, group_json(d, &views[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}
