/* live_status.c - see live_status.h.
 *
 * P10: a worker speaks for its own bytes alone, so each row is of the session that said it. */
#include "gateway/daemon/live/live_status.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/daemon/daemon.h"
#include "intra/session_msg.h"

static json_t *text_of(const char *text)
{
    json_t *v = json_string(text); /* NULL for text that is not UTF-8 */
    return v != NULL ? v : json_string("?");
}

json_t *tb_live_status_proof(const struct tb_catalog_proof *p)
{
    if (p->at == 0) return json_null();
    const double age_s = (double)tb_time_since(p->at, tb_clock_now()) / 1e9;
    return json_pack("{s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "verdict",
                     tb_msg_verdict_name(p->verdict), "why", tb_msg_unprovable_name(p->why), "age_s", age_s,
                     "took_ms", (json_int_t)p->took_ms, "bytes", (json_int_t)p->bytes, "box_bytes",
                     (json_int_t)p->box_bytes, "blake3_bytes", (json_int_t)p->blake3_bytes, "left_bytes",
                     (json_int_t)p->left_bytes, "bad", (json_int_t)p->bad, "shard", (json_int_t)p->shard,
                     "chunk", (json_int_t)p->chunk, "tensor", text_of(p->tensor));
}

/* Run and number are null of a version that is forgotten here. */
static json_t *serving_row(struct tb_daemon *d, const struct tb_catalog_member_view *m)
{
    struct tb_catalog_version_view v;
    const bool known = tb_catalog_version_get(d->catalog, &m->active, &v);
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "model", m->model.text, "group", m->group.text, "rank",
                     (json_int_t)m->index, "run",
                     known ? json_integer((json_int_t)v.key.run_order) : json_null(), "number",
                     known ? json_integer((json_int_t)v.key.number) : json_null(), "proof",
                     tb_live_status_proof(&m->proof));
}

json_t *tb_live_status_serving(struct tb_daemon *d, const struct tb_id *session)
{
    json_t *list = json_array();
    uint32_t cursor = 0;
    struct tb_catalog_member_view m;
    while (list != NULL && tb_catalog_member_at(d->catalog, &cursor, &m)) {
        if (!tb_id_equal(&m.session, session) || tb_id_is_zero(&m.active)) continue;
        if (json_array_append_new(list, serving_row(d, &m)) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

bool tb_live_status_evidence(struct tb_daemon *d, const struct tb_name *model, char *out, size_t cap)
{
    TB_ASSERT(cap > 0);
    uint32_t cursor = 0;
    struct tb_catalog_member_view m;
    while (tb_catalog_member_at(d->catalog, &cursor, &m)) {
        if (!tb_name_equal(&m.model, model) || m.proof.bad == 0) continue;
        (void)snprintf(out, cap, "worker %s (rank %u of %s) computes from other bytes: tensor %.100s",
                       m.worker.text, m.index, m.group.text, m.proof.tensor);
        return true;
    }
    return false;
}
