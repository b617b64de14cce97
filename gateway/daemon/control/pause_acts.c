/* pause_acts.c - an operator pauses a model or a peer, and lets it go on.
 *
 * P10: the decision is on disk before the answer goes out. */
#include "gateway/daemon/control/pause_acts.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/control/version_commands.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/pauses.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/models/model_table.h"

#define ERROR_BYTES 256 /* as control.h has it */

_Static_assert(TB_STORE_WHO_BYTES >= TB_OPERATOR_BYTES, "an operator has room in the store's row");

static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static json_t *row_json(const struct tb_store_pause *p)
{
    return json_pack("{s:s, s:s, s:I}", p->is_peer ? "peer" : "model", p->name.text, "who", p->who, "time_ms",
                     (json_int_t)p->wall_ms);
}

json_t *tb_pause_acts_json(const struct tb_daemon *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && i < d->pauses.count; i++) {
        if (json_array_append_new(list, row_json(&d->pauses.rows[i])) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* A pause ends under the name that it has: its model may be asleep, and its peer may have left the
 * configuration. */
static enum tb_status name_check(struct tb_daemon *d, const struct tb_store_pause *p, char *error)
{
    if (tb_pause_find(&d->pauses, &p->name, p->is_peer) != NULL) return TB_OK;
    if (p->is_peer) return tb_limits_peer_find(d, p->name.text, error);
    if (tb_model_row_of(d, &p->name) != TB_MODEL_NONE) return TB_OK;
    (void)snprintf(error, ERROR_BYTES, "no model \"%.64s\" is configured here", p->name.text);
    return TB_NOT_FOUND;
}

static enum tb_status request_read(struct tb_daemon *d, const json_t *request, struct tb_store_pause *p,
                                   char *error)
{
    const char *model = json_string_value(json_object_get(request, "model"));
    const char *peer = json_string_value(json_object_get(request, "peer"));
    p->is_peer = peer != NULL;
    if ((model == NULL) == (peer == NULL) || tb_name_set(&p->name, peer != NULL ? peer : model) != TB_OK) {
        (void)snprintf(error, ERROR_BYTES, "the request needs \"model\" or \"peer\", and a name");
        return TB_BAD_ARGUMENT;
    }
    return name_check(d, p, error);
}

static void act_log(const struct tb_store_pause *p)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_INFO, p->paused ? "pause.begun" : "pause.ended");
    tb_log_str(&l, p->is_peer ? "peer" : "model", p->name.text);
    tb_log_str(&l, "who", p->who);
    tb_log_end(&l);
}

static enum tb_status refused(const struct tb_store_pause *p, enum tb_status status, char *error)
{
    if (status == TB_TOO_LARGE)
        (void)snprintf(error, ERROR_BYTES, "as many %s are paused as there are rows for",
                       p->is_peer ? "peers" : "models");
    return status;
}

/* `changes` is false where it is so already. */
static bool answer(struct tb_daemon *d, const struct tb_store_pause *p, bool dry, bool changes, json_t *reply)
{
    const struct tb_store_pause *row = tb_pause_find(&d->pauses, &p->name, p->is_peer);
    const char *who = row != NULL ? row->who : p->who;
    return put(reply, p->is_peer ? "peer" : "model", json_string(p->name.text)) &&
           put(reply, "paused", json_boolean(p->paused)) && put(reply, "changed", json_boolean(changes)) &&
           put(reply, "who", json_string(who)) && (!dry || put(reply, "dry_run", json_true()));
}

static enum tb_status act(struct tb_daemon *d, const json_t *request, json_t *reply, bool paused, char *error)
{
    struct tb_store_pause p = {.paused = paused, .wall_ms = tb_clock_wall_ms()};
    const bool dry = json_is_true(json_object_get(request, "dry_run"));
    enum tb_status status = request_read(d, request, &p, error);
    if (status != TB_OK) return status;
    tb_control_operator(d->control, p.who);
    if (dry)
        status = (tb_pause_find(&d->pauses, &p.name, p.is_peer) != NULL) == paused ? TB_DONE_BEFORE : TB_OK;
    else
        status = tb_pause_set(d, &p);
    if (status != TB_OK && status != TB_DONE_BEFORE) return refused(&p, status, error);
    if (!answer(d, &p, dry, status == TB_OK, reply)) return TB_SITE_NOMEM;
    if (dry) return TB_OK;
    if (status == TB_OK) act_log(&p);
    return tb_answer_when_saved(d); /* also of one before, whose row may still wait */
}

enum tb_status tb_pause_acts_command(void *user, const json_t *request, json_t *reply, char *error)
{
    return act(user, request, reply, true, error);
}

enum tb_status tb_resume_command(void *user, const json_t *request, json_t *reply, char *error)
{
    return act(user, request, reply, false, error);
}
