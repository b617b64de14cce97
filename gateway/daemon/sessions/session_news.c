/* session_news.c - what the catalog has told to workers, over their sessions. */
#include "gateway/daemon/sessions/session_news.h"

#include "base/allocate.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/sessions/session_repair.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

void tb_worker_answer(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_worker_session *s = tb_worker_find(d, &todo->session);
    for (struct tb_pending_wait **at = s != NULL ? &s->waits : NULL; at != NULL && *at != NULL;
         at = &(*at)->next) {
        struct tb_pending_wait *w = *at;
        if (w->handle != todo->wait) continue;
        *at = w->next;
        if (todo->status == TB_OK && !tb_id_is_zero(&todo->key.uid)) {
            const struct tb_msg_version m = {todo->key, todo->bytes, todo->whole, 0};
            TB_WORKER_SEND(s, TB_MSG_VERSION, w->request, &m, TB_WORKER_SMALL, tb_msg_version_encode);
        } else {
            tb_worker_reply(s, w->request, todo->status, "");
        }
        tb_free(w);
        return;
    }
}

static bool publishes(const struct tb_worker_session *s, const struct tb_id *uid)
{
    struct tb_catalog_reference_view view;
    for (uint32_t cursor = 0; tb_catalog_reference_at(s->d->catalog, &cursor, &view);)
        if (view.kind == TB_REFERENCE_PUBLISHER && tb_id_equal(&view.session, &s->id) &&
            tb_id_equal(&view.uid, uid))
            return true;
    return false;
}

static bool has_sealed(const struct tb_worker_session *s, const struct tb_id *uid)
{
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
        if (e->shard != TB_CATALOG_ALL_SHARDS && tb_id_equal(&e->uid, uid)) return true;
    return false;
}

/* P7: a version that ends takes its references along, and nobody unpublishes it any more. */
static void exports_end(struct tb_worker_session *s, const struct tb_id *uid)
{
    if (has_sealed(s, uid) && !publishes(s, uid)) tb_worker_exports_drop(s, uid, TB_CATALOG_ALL_SHARDS);
}

void tb_worker_tell(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_worker_session *s = tb_worker_find(d, &todo->session);
    if (s == NULL) return;
    if (todo->status < TB_OK) exports_end(s, &todo->uid);
    const struct tb_msg_version_state m = {todo->uid, tb_msg_status_put(todo->status)};
    TB_WORKER_SEND(s, TB_MSG_VERSION_STATE, 0, &m, TB_WORKER_SMALL, tb_msg_version_state_encode);
}

void tb_worker_go(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_worker_session *s = tb_worker_find(d, &todo->session);
    if (s == NULL) return;
    const struct tb_msg_go m = {todo->subscription, todo->uid};
    TB_WORKER_SEND(s, TB_MSG_GO, 0, &m, TB_WORKER_SMALL, tb_msg_go_encode);
}
