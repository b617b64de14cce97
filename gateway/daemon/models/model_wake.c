/* model_wake.c - see model_wake.h. It calls no room that could call it: answers of the store, and
 * rows that are given back, are model_life.c's. */
#include "gateway/daemon/models/model_wake.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/limits/share_table.h"
#include "gateway/catalog/records.h"
#include "gateway/catalog/views.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/daemon/sessions/session_shares.h"

/* From so many rows of the table, or of a share, on one is given back for each that comes. */
#define SCARCE(of) ((of) / 4 * 3)

/* False: there is no place in the queue; the tick asks again. */
void tb_model_ask(struct tb_daemon *d, uint32_t row)
{
    struct tb_model_row *r = &d->models.rows[row];
    TB_ASSERT(r->life == TB_MODEL_READING && r->store != NULL);
    r->store->dropped = false;
    r->asked = tb_persist_model(d, r->store);
}

bool tb_model_home_has(struct tb_daemon *d, uint32_t row)
{
    static struct tb_record r; /* large; the main loop's alone */
    const struct tb_name *home = &tb_model_config(d, row)->home, *name = tb_model_name(d, row);
    if (tb_name_equal(home, &d->site) || !tb_record_get(d->catalog, home, name, &r)) return false;
    return r.known && !tb_site_which_none(&r.state.head);
}

/* Of that owner. A row whose model has a version does not count before the last quarter of the
 * table: it is no name that was made up, and a trainer or a home may well have many. */
static uint32_t rows_counted(struct tb_daemon *d, uint64_t owner)
{
    static struct tb_catalog_version_view v; /* likewise */
    static bool live[TB_CONFIG_MODELS_MAX];
    uint32_t count = tb_model_rows_of(d, owner);
    if (count < TB_CONFIG_AWAKE_MAX / 4 || d->models.awake.used >= TB_CONFIG_AWAKE_MAX / 4 * 3) return count;
    memset(live, 0, sizeof live);
    for (uint32_t cursor = 0; tb_catalog_version_at(d->catalog, &cursor, &v);) {
        const uint32_t row = tb_model_row_of(d, &v.key.model);
        if (row != TB_MODEL_NONE && tb_catalog_state_status(v.state) == TB_OK) live[row] = true;
    }
    count = 0;
    for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++) {
        const struct tb_model_row *r = &d->models.rows[i];
        if (r->life == TB_MODEL_FREE || r->owner != owner || live[i]) continue;
        count += r->life != TB_MODEL_AWAKE || !tb_model_home_has(d, i);
    }
    return count;
}

/* The rule of base/limits/share_table.h: a quarter at most, and the last one is for publishers and
 * peers. */
static bool share_room(struct tb_daemon *d, const struct tb_model_user *user)
{
    const uint64_t used = d->models.awake.used;
    if (user->owner == TB_SHARE_OURS) return true;
    if (used >= TB_CONFIG_AWAKE_MAX / 4 * 3 && used < TB_CONFIG_AWAKE_MAX && !user->preferred) return false;
    return rows_counted(d, user->owner) < TB_CONFIG_AWAKE_MAX / 4;
}

static uint32_t row_for(struct tb_daemon *d, const struct tb_name *name, const struct tb_model_user *user)
{
    struct tb_gauge *g = &d->models.awake;
    const bool full = g->used == TB_CONFIG_AWAKE_MAX, room = !full && share_room(d, user);
    d->models.scarce = d->models.scarce || !room || g->used >= SCARCE(TB_CONFIG_AWAKE_MAX) ||
                       tb_model_rows_of(d, user->owner) >= SCARCE(TB_CONFIG_AWAKE_MAX / 4);
    d->models.scarce_for = g->used >= SCARCE(TB_CONFIG_AWAKE_MAX) ? TB_SHARE_OURS : user->owner;
    g->refused += !room;
    g->spent += !room && !full;
    return room ? tb_model_row_new(d, name, user->owner) : TB_MODEL_NONE;
}

enum tb_status tb_model_wake(struct tb_daemon *d, const struct tb_name *name,
                             const struct tb_model_user *user)
{
    uint32_t row = tb_model_row_of(d, name);
    if (row != TB_MODEL_NONE) {
        struct tb_model_row *r = &d->models.rows[row];
        if (r->life == TB_MODEL_READING) return r->failed_at != 0 ? TB_SITE_STORE : TB_AGAIN;
        r->used_at = tb_clock_now();
        return TB_OK;
    }
    const struct tb_config_model *m = tb_config_model_for(d->config, name);
    if (m == NULL || !m->is_pattern || m->left) return TB_NOT_FOUND;
    if (d->store_down) return TB_SITE_STORE; /* P2: a question takes no place of a change in its queue */
    row = row_for(d, name, user);
    if (row == TB_MODEL_NONE) return TB_SITE_NOMEM;
    struct tb_model_row *r = &d->models.rows[row];
    r->store = tb_calloc(1, sizeof *r->store);
    if (r->store == NULL) {
        tb_model_row_free(d, row);
        return TB_SITE_NOMEM;
    }
    r->store->name = *name;
    r->used_at = tb_clock_now();
    tb_model_ask(d, row);
    tb_daemon_wake(d);
    return TB_AGAIN;
}

/* P8: a home alone wakes its models, and only for a site that follows them from there. */
enum tb_status tb_model_announced(struct tb_daemon *d, uint32_t peer, const struct tb_name *name)
{
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_config_peer *p = &d->config->peers[peer];
    const struct tb_config_model *m = tb_config_model_for(d->config, name);
    const struct tb_config_subscribe *s = tb_config_subscribe_for(d->config, name);
    bool follows = false;
    if (m == NULL || !m->is_pattern || m->left || s == NULL || !tb_name_equal(&m->home, &p->site))
        return TB_NOT_FOUND;
    for (uint32_t i = 0; i < s->from_count; i++)
        follows = follows || tb_name_equal(&s->from[i], &p->site);
    if (!follows) return TB_NOT_FOUND;
    const struct tb_identity gateway = {.kind = TB_IDENTITY_GATEWAY, .site = p->of, .name = p->gateway};
    const struct tb_model_user user = {tb_worker_session_owner(&gateway), true};
    return tb_model_wake(d, name, &user); /* where it is not OK, the peer says it again */
}
