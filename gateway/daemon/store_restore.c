/* store_restore.c - at start, before there is a writer: what the store knows, into the catalog. */
#include "gateway/catalog/versions.h"
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/links/statements.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/store_restore.h"
#include "gateway/store/store_load.h"

/* Of a model that is not configured any more: a reload that adds it leaves that to a start. */
static void unread(struct tb_daemon *d, const struct tb_name *model)
{
    const struct tb_config_model *m = tb_config_model_for(d->config, model);
    if (m != NULL && m->is_pattern) return; /* it is read when somebody uses it */
    for (uint32_t i = 0; i < d->unread_count; i++)
        if (tb_name_equal(&d->unread[i], model)) return;
    d->unread_more |= d->unread_count == TB_CONFIG_LIST_MAX;
    if (d->unread_count < TB_CONFIG_LIST_MAX) d->unread[d->unread_count++] = *model;
}

static enum tb_status restore_run(void *user, const struct tb_catalog_run *run)
{
    struct tb_daemon *d = user;
    const enum tb_status status = tb_catalog_restore_run(d->catalog, run);
    if (status == TB_NOT_FOUND) unread(d, &run->model);
    return status == TB_NOT_FOUND ? TB_OK : status;
}

static enum tb_status restore_version(void *user, const struct tb_store_version *v)
{
    struct tb_daemon *d = user;
    /* P3: it had left the arena before the reboot, but not the disk: here it is again. */
    const bool again = v->state == TB_VERSION_RETIRED && tb_anchors_refilled(d, &v->key.uid);
    const enum tb_catalog_state state = again ? TB_VERSION_READY : v->state;
    const enum tb_status status = tb_catalog_restore_version(d->catalog, &v->key, state, v->bytes, v->pinned);
    if (status == TB_NOT_FOUND) unread(d, &v->key.model);
    if (status == TB_OK && v->pinned)
        (void)tb_catalog_restore_pinned_by(d->catalog, &v->key.uid, v->pinned_by);
    return status == TB_NOT_FOUND || status == TB_SITE_NOMEM ? TB_OK : status;
}

enum tb_status tb_persist_restore(struct tb_daemon *d)
{
    TB_ASSERT(d->persist == NULL); /* or rows would be written again */
    enum tb_status status = tb_store_load(d->store, restore_run, restore_version, d);
    if (status == TB_OK) status = tb_withdrawn_restore(d);
    if (status == TB_OK) status = tb_statements_restore(d);
    if (status != TB_OK) {
        struct tb_log_line l;
        tb_log_begin(&l, TB_LOG_ERROR, "store.damaged");
        tb_log_str(&l, "path", d->config->store_path);
        tb_log_str(&l, "why", tb_store_error(d->store));
        tb_log_str(&l, "action",
                   "move the file away: the arena's ready versions are found again, runs begin anew");
        tb_log_end(&l);
        return status;
    }
    status = tb_store_incarnation(d->store, 1, &d->incarnation);
    if (status != TB_OK) tb_persist_down_log(d, tb_store_error(d->store));
    return status;
}
