/* audit_commands.c - what operators do is written down: also what they were refused. And the
 * record is read, by the thread that writes it. */
#include "gateway/daemon/control/audit_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/control/gc_acts.h"
#include "gateway/daemon/control/pause_acts.h"
#include "gateway/daemon/control/version_commands.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_limits.h"

#define ERROR_BYTES 256 /* as control.h has it */

/* ---- acts ---- */

/* "policy 1:12", "policy dir=/models", "west rate=1Mbit": what the request says, in its order. */
static void object_of(const json_t *request, char out[TB_AUDIT_OBJECT_BYTES])
{
    static const char *const plain[] = {"model", "peer", "version"};
    size_t used = 0;
    const char *key;
    const json_t *value;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        const char *text = json_string_value(json_object_get(request, plain[i]));
        if (text != NULL && used < TB_AUDIT_OBJECT_BYTES)
            used += (size_t)snprintf(out + used, TB_AUDIT_OBJECT_BYTES - used, "%s%.64s", used > 0 ? " " : "",
                                     text);
    }
    json_object_foreach((json_t *)(uintptr_t)request, key, value)
    {
        bool told = strcmp(key, "schema") == 0 || strcmp(key, "cmd") == 0;
        for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
            told |= strcmp(key, plain[i]) == 0;
        char *text = told ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        if (text != NULL && used < TB_AUDIT_OBJECT_BYTES)
            used += (size_t)snprintf(out + used, TB_AUDIT_OBJECT_BYTES - used, "%s%.32s=%s",
                                     used > 0 ? " " : "", key, text);
        free(text);
    }
}

enum tb_status tb_audited(const char *action, tb_control_fn fn, struct tb_daemon *d, const json_t *request,
                          json_t *reply, char *error)
{
    char who[TB_OPERATOR_BYTES], object[TB_AUDIT_OBJECT_BYTES];
    if (json_is_true(json_object_get(request, "dry_run"))) return fn(d, request, reply, error); /* no act */
    tb_control_operator(d->control, who);
    object_of(request, object);
    if (object[0] == '\0') (void)snprintf(object, sizeof object, "%s", d->site.text); /* of all of it */
    const enum tb_status status = fn(d, request, reply, error);
    const bool done = status == TB_OK || status == TB_AGAIN;
    const char *result = done ? "ok" : error[0] != '\0' ? error : tb_status_name(status);
    tb_audit_act(d, &(struct tb_audit_event){action, who, object, "control", result});
    return status;
}

enum tb_status tb_audited_refusal(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    const char *cmd = json_string_value(json_object_get(request, "cmd")); /* one of our table */
    char who[TB_OPERATOR_BYTES];
    (void)reply;
    tb_control_operator(d->control_read, who);
    d->counters.denied++;
    tb_log(TB_LOG_WARN, "control.refused", "reason=only_reads cmd=%s", cmd);
    (void)snprintf(error, 256, "control.read answers only what reads; ask at control.socket");
    tb_audit_denied(d, &(struct tb_audit_event){"control", who, cmd, "control.read", "it answers only reads"},
                    1);
    return TB_PEER_DENIED;
}

enum tb_status tb_audited_withdraw(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("withdraw", tb_withdraw_command, user, request, reply, error);
}

enum tb_status tb_audited_pin(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("pin", tb_pin_command, user, request, reply, error);
}

enum tb_status tb_audited_unpin(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("unpin", tb_unpin_command, user, request, reply, error);
}

enum tb_status tb_audited_rollback(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("rollback", tb_rollback_command, user, request, reply, error);
}

enum tb_status tb_audited_pause(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("pause", tb_pause_acts_command, user, request, reply, error);
}

enum tb_status tb_audited_resume(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("resume", tb_resume_command, user, request, reply, error);
}

enum tb_status tb_audited_gc(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("gc", tb_gc_command, user, request, reply, error);
}

/* Without a limit it only shows, and without a folder it only asks how far the other one is. */
enum tb_status tb_audited_limit(void *user, const json_t *request, json_t *reply, char *error)
{
    const bool changes = json_object_get(request, "rate") != NULL ||
                         json_object_get(request, "schedule") != NULL ||
                         json_object_get(request, "day_bytes") != NULL;
    if (!changes) return tb_limits_command(user, request, reply, error);
    return tb_audited("limit", tb_limits_command, user, request, reply, error);
}

enum tb_status tb_audited_adopt(void *user, const json_t *request, json_t *reply, char *error)
{
    const bool changes =
        json_object_get(request, "files") != NULL || json_is_true(json_object_get(request, "cancel"));
    if (!changes) return tb_adopt_command(user, request, reply, error);
    if (json_is_true(json_object_get(request, "dry_run"))) {
        snprintf(error, ERROR_BYTES, "adopt cannot be tried: it reads the files to know what they have");
        return TB_BAD_ARGUMENT;
    }
    return tb_audited("adopt", tb_adopt_command, user, request, reply, error);
}

/* The end begins with the next tick, so that this answer goes out before it. */
static enum tb_status drain_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    const bool dry = json_is_true(json_object_get(request, "dry_run"));
    (void)error;
    if (json_object_set_new(reply, "workers", json_integer(d->session_count)) != 0 ||
        json_object_set_new(reply, "drain_ms", json_integer(d->config->drain_ms)) != 0 ||
        json_object_set_new(reply, "pid", json_integer(uv_os_getpid())) != 0 ||
        json_object_set_new(reply, "dry_run", json_boolean(dry)) != 0)
        return TB_SITE_NOMEM;
    d->drain_asked |= !dry;
    return TB_OK;
}

enum tb_status tb_audited_drain(void *user, const json_t *request, json_t *reply, char *error)
{
    return tb_audited("drain", drain_command, user, request, reply, error);
}

/* ---- the record ---- */

struct asked {
    uint64_t ticket;
    json_t *reply; /* the control socket's too */
};

static const char *const share_names[TB_AUDIT_SHARES] = {"acts", "versions", "denials"};

/* Texts of strangers may be no UTF-8. */
static json_t *text_json(const char *text)
{
    json_t *v = json_string(text);
    return v != NULL ? v : json_string("?");
}

static json_t *row_json(const struct tb_audit_record *r)
{
    return json_pack("{s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I}", "id", (json_int_t)r->id, "time_ms",
                     (json_int_t)r->wall_ms, "share", share_names[r->share], "action", text_json(r->action),
                     "identity", text_json(r->identity), "object", text_json(r->object), "origin",
                     text_json(r->origin), "result", text_json(r->result), "count", (json_int_t)r->count);
}

static void answer(struct tb_daemon *d, void *user, struct tb_audit_query *q, enum tb_status status)
{
    struct asked *a = user;
    json_t *list = json_array();
    for (uint32_t i = 0; status == TB_OK && i < q->count; i++)
        if (json_array_append_new(list, row_json(&q->rows[i])) != 0) status = TB_SITE_NOMEM;
    if (json_object_set_new(a->reply, "audit", list) != 0 && status == TB_OK) status = TB_SITE_NOMEM;
    tb_control_release(d->control, a->ticket, status);
    json_decref(a->reply);
    tb_free(q);
    tb_free(a);
}

static bool number_of(const json_t *request, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(request, key);
    if (v == NULL) return true;
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool part_of(const json_t *request, const char *key, char *out, size_t size)
{
    const json_t *v = json_object_get(request, key);
    if (v == NULL) return true;
    return json_is_string(v) && (size_t)snprintf(out, size, "%s", json_string_value(v)) < size;
}

static bool query_read(const json_t *request, struct tb_audit_query *q)
{
    uint64_t most = TB_AUDIT_PAGE;
    if (!number_of(request, "since_ms", &q->since_wall_ms) || !number_of(request, "before", &q->before_id) ||
        !number_of(request, "limit", &most) || most == 0 || most > TB_AUDIT_PAGE)
        return false;
    q->most = (uint32_t)most;
    return part_of(request, "action", q->action, sizeof q->action) &&
           part_of(request, "identity", q->identity, sizeof q->identity);
}

enum tb_status tb_audit_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    enum tb_status status = TB_SITE_NOMEM;
    struct tb_audit_query *q = tb_calloc(1, sizeof *q);
    struct asked *a = tb_calloc(1, sizeof *a);
    if (q == NULL || a == NULL) goto undo;
    if (!query_read(request, q)) {
        snprintf(error, ERROR_BYTES,
                 "audit takes \"since_ms\", \"before\", \"limit\" (1 to %u), \"action\" and \"identity\"",
                 TB_AUDIT_PAGE);
        status = TB_BAD_ARGUMENT;
        goto undo;
    }
    *a = (struct asked){.ticket = tb_control_ticket(d->control), .reply = json_incref(reply)};
    status = tb_audit_ask(d, q, answer, a);
    if (status == TB_OK) return TB_AGAIN;
    json_decref(reply);

undo:
    tb_free(q);
    tb_free(a);
    return status;
}
