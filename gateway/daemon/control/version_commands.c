/* version_commands.c - an operator's decisions about a version at this site.
 *
 * P10: the decision and the operator's name are on disk before the answer goes out. */
#include "gateway/daemon/control/version_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/site_state.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/persist.h"

#define ERROR_BYTES 256 /* as control.h has it */

/* ---- the request ---- */

/* "R:N" or "N": digits only, nothing else. */
static bool version_parse(const char *text, uint64_t *run_out, uint64_t *number_out)
{
    char *end;
    *run_out = 0;
    if (text == NULL || text[0] < '0' || text[0] > '9') return false;
    uint64_t v = strtoull(text, &end, 10);
    if (*end == ':' && end[1] >= '0' && end[1] <= '9') {
        *run_out = v;
        v = strtoull(end + 1, &end, 10);
    }
    *number_out = v;
    return *end == '\0';
}

/* The model of the request, as the catalog has it. */
static enum tb_status model_of(struct tb_daemon *d, const json_t *request, struct tb_catalog_model *model_out,
                               char *error)
{
    const char *model = json_string_value(json_object_get(request, "model"));
    if (model == NULL) {
        snprintf(error, ERROR_BYTES, "the request needs \"model\"");
        return TB_BAD_ARGUMENT;
    }
    for (uint32_t cursor = 0; tb_catalog_model_at(d->catalog, &cursor, model_out);)
        if (strcmp(model_out->name.text, model) == 0) return TB_OK;
    snprintf(error, ERROR_BYTES, "no model \"%.64s\" is configured here", model);
    return TB_NOT_FOUND;
}

/* The version of the request, as the catalog has it. */
static enum tb_status version_of(struct tb_daemon *d, const json_t *request,
                                 struct tb_catalog_version_view *version_out, char *error)
{
    const char *version = json_string_value(json_object_get(request, "version"));
    struct tb_catalog_model model;
    struct tb_id uid;
    uint64_t run, number;
    if (!version_parse(version, &run, &number)) {
        snprintf(error, ERROR_BYTES, "the request needs \"model\" and \"version\" as \"R:N\" or \"N\"");
        return TB_BAD_ARGUMENT;
    }
    enum tb_status status = model_of(d, request, &model, error);
    if (status != TB_OK) return status;
    status = tb_catalog_find(d->catalog, &model.name, run, number, &uid);
    if (status == TB_OK && tb_catalog_version_get(d->catalog, &uid, version_out)) return TB_OK;
    snprintf(error, ERROR_BYTES, "model \"%.64s\" has no version %.40s here", model.name.text, version);
    return TB_NOT_FOUND;
}

/* ---- the answer ---- */

static bool version_put(json_t *reply, const struct tb_catalog_version_view *v)
{
    char hex[TB_HEX_CHARS];
    tb_id_format(&v->key.uid, hex);
    return json_object_set_new(reply, "run", json_integer((json_int_t)v->key.run_order)) == 0 &&
           json_object_set_new(reply, "number", json_integer((json_int_t)v->key.number)) == 0 &&
           json_object_set_new(reply, "uid", json_string(hex)) == 0;
}

static bool text_put(json_t *o, const char *key, const char *text)
{
    json_t *v = json_string(text); /* NULL for text that is not UTF-8 */
    return json_object_set_new(o, key, v != NULL ? v : json_string("?")) == 0;
}

struct held_answer {
    struct tb_held held;
    uint64_t ticket;
};

static void held_answer(struct tb_daemon *d, struct tb_held *held, enum tb_status status)
{
    TB_ASSERT(held->fn == held_answer);
    tb_control_release(d->control, ((struct held_answer *)(void *)held)->ticket, status);
    tb_free(held);
}

enum tb_status tb_answer_when_saved(struct tb_daemon *d)
{
    if (d->store_down) return TB_SITE_STORE;
    struct held_answer *h = tb_calloc(1, sizeof *h);
    if (h == NULL) return TB_SITE_NOMEM;
    *h = (struct held_answer){.held = {.fn = held_answer}, .ticket = tb_control_ticket(d->control)};
    const enum tb_status status = tb_persist_then(d, &h->held);
    if (status != TB_OK) tb_free(h);
    return status == TB_OK ? TB_AGAIN : status;
}

/* ---- trying it ---- */

static bool is_dry(const json_t *request)
{
    return json_is_true(json_object_get(request, "dry_run"));
}

/* The rest of an answer that changed nothing. */
static bool dry_put(const struct tb_daemon *d, json_t *reply)
{
    char who[TB_OPERATOR_BYTES];
    tb_control_operator(d->control, who);
    return text_put(reply, "who", who) && json_object_set_new(reply, "dry_run", json_true()) == 0;
}

/* ---- withdraw ---- */

static enum tb_status withdraw_dry(struct tb_daemon *d, const struct tb_catalog_version_view *v, bool is_home,
                                   json_t *reply)
{
    const bool put = version_put(reply, v) && text_put(reply, "before", tb_catalog_state_name(v->state)) &&
                     text_put(reply, "where", is_home ? "everywhere" : "here") && dry_put(d, reply);
    return put ? TB_OK : TB_SITE_NOMEM;
}

enum tb_status tb_withdraw_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    struct tb_catalog_version_view before, after;
    struct tb_catalog_model model;
    char who[TB_OPERATOR_BYTES];
    enum tb_status status = version_of(d, request, &before, error);
    if (status == TB_OK) status = model_of(d, request, &model, error);
    if (status != TB_OK) return status;
    tb_control_operator(d->control, who);
    status = is_dry(request) ? tb_catalog_may_withdraw(d->catalog, &before.key.uid)
                             : tb_catalog_withdraw(d->catalog, tb_clock_now(), &before.key.uid, who);
    if (status == TB_BAD_STATE)
        snprintf(error, ERROR_BYTES, "version %" PRIu64 ":%" PRIu64 " is %s", before.key.run_order,
                 before.key.number, tb_catalog_state_name(before.state));
    if (status != TB_OK && status != TB_DONE_BEFORE) return status;
    if (is_dry(request)) return withdraw_dry(d, &before, model.is_home, reply);
    const bool known = tb_catalog_version_get(d->catalog, &before.key.uid, &after);
    TB_ASSERT(known); /* its row waits for the store */
    if (!version_put(reply, &before) || !text_put(reply, "before", tb_catalog_state_name(before.state)) ||
        !text_put(reply, "who", after.who) ||
        !text_put(reply, "where", after.withdrawn_here ? "here" : "everywhere"))
        return TB_SITE_NOMEM;
    return status == TB_OK ? tb_answer_when_saved(d) : TB_OK;
}

/* ---- pin, unpin, roll back ---- */

/* "1:5, 1:4": the versions that a pin may name, the newest first, as far as there is room. */
static void held_here(struct tb_daemon *d, const struct tb_name *model, char *text, size_t size)
{
    static struct tb_catalog_version_view v; /* large; the main loop's alone */
    struct tb_site_which below = {UINT64_MAX, UINT64_MAX};
    size_t used = 0;
    for (bool more = true; more && used + 48 < size;) {
        struct tb_site_which next = {0, 0};
        for (uint32_t cursor = 0; tb_catalog_version_at(d->catalog, &cursor, &v);) {
            const struct tb_site_which w = {v.key.run_order, v.key.number};
            const bool lives = v.state == TB_VERSION_READY || v.state == TB_VERSION_KEPT;
            if (!lives || !v.whole || v.evicting || !tb_name_equal(&v.key.model, model)) continue;
            if (tb_site_which_compare(&w, &below) < 0 && tb_site_which_compare(&w, &next) > 0) next = w;
        }
        more = !tb_site_which_none(&next);
        if (more)
            used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64 ":%" PRIu64, used > 0 ? ", " : "",
                                     next.run_order, next.number);
        below = next;
    }
    if (used == 0) snprintf(text, size, "none");
}

static enum tb_status not_held(struct tb_daemon *d, const json_t *request, const struct tb_name *model,
                               enum tb_status status, char *error)
{
    char held[128];
    const char *version = json_string_value(json_object_get(request, "version"));
    held_here(d, model, held, sizeof held);
    snprintf(error, ERROR_BYTES, "version %.40s is not whole here; whole here: %s", version, held);
    return status;
}

/* Readers that ask for the latest version here get none that is newer than this one. */
static bool is_latest(struct tb_daemon *d, const struct tb_catalog_version_view *v)
{
    struct tb_catalog_lag lag;
    struct tb_catalog_version_view latest;
    struct tb_id uid;
    if (!tb_catalog_pinned(d->catalog, &v->key.model, &uid)) {
        if (tb_catalog_lag(d->catalog, tb_clock_now(), &v->key.model, &lag) != TB_OK) return false;
        uid = lag.newest;
    }
    return tb_catalog_version_get(d->catalog, &uid, &latest) &&
           tb_version_key_compare(&v->key, &latest.key) >= 0;
}

/* A pin that would take readers back is called by its name. */
static enum tb_status direction_check(struct tb_daemon *d, const struct tb_catalog_version_view *v, bool back,
                                      char *error)
{
    const bool goes_back = tb_catalog_pin_goes_back(d->catalog, &v->key.uid);
    if (goes_back == back || (back && !is_latest(d, v))) return TB_OK;
    if (back)
        snprintf(error, ERROR_BYTES,
                 "%" PRIu64 ":%" PRIu64 " is not older than what readers here get: `tombolo pin` keeps them "
                 "there",
                 v->key.run_order, v->key.number);
    else
        snprintf(error, ERROR_BYTES,
                 "readers here use or stage a newer version than %" PRIu64 ":%" PRIu64
                 ": `tombolo rollback` takes them back",
                 v->key.run_order, v->key.number);
    return TB_BAD_STATE;
}

static void pin_log(const struct tb_version_key *key, const char *event, const char *who)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_INFO, event);
    tb_log_str(&l, "model", key->model.text);
    tb_log_u64(&l, "run", key->run_order);
    tb_log_u64(&l, "number", key->number);
    tb_log_str(&l, "who", who);
    tb_log_end(&l);
}

static enum tb_status pin_answer(struct tb_daemon *d, const struct tb_version_key *key, enum tb_status status,
                                 json_t *reply)
{
    struct tb_catalog_version_view v;
    const bool known = tb_catalog_version_get(d->catalog, &key->uid, &v);
    TB_ASSERT(known && (status == TB_OK || status == TB_DONE_BEFORE)); /* its row waits for the store */
    if (!version_put(reply, &v) || !text_put(reply, "who", v.pinned_by) ||
        json_object_set_new(reply, "pinned", json_boolean(v.pinned)) != 0)
        return TB_SITE_NOMEM;
    return status == TB_OK ? tb_answer_when_saved(d) : TB_OK;
}

static enum tb_status pin_dry(const struct tb_daemon *d, const struct tb_catalog_version_view *v, bool pinned,
                              json_t *reply)
{
    const bool put = version_put(reply, v) && json_object_set_new(reply, "pinned", json_boolean(pinned)) == 0;
    return put && dry_put(d, reply) ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status pin(struct tb_daemon *d, const json_t *request, json_t *reply, bool back, char *error)
{
    static struct tb_catalog_version_view v; /* large; the main loop's alone */
    struct tb_catalog_model model;
    char who[TB_OPERATOR_BYTES];
    enum tb_status status = version_of(d, request, &v, error);
    if (status == TB_NOT_FOUND && model_of(d, request, &model, error) == TB_OK)
        return not_held(d, request, &model.name, status, error);
    if (status == TB_OK) status = direction_check(d, &v, back, error);
    if (status != TB_OK) return status;
    tb_control_operator(d->control, who);
    status = is_dry(request) ? tb_catalog_may_pin(d->catalog, &v.key.uid, true)
                             : tb_catalog_pin(d->catalog, tb_clock_now(), &v.key.uid, true, who);
    if (status != TB_OK && status != TB_DONE_BEFORE) return not_held(d, request, &v.key.model, status, error);
    if (is_dry(request)) return pin_dry(d, &v, true, reply);
    if (status == TB_OK) pin_log(&v.key, "version.pinned", who);
    return pin_answer(d, &v.key, status, reply);
}

enum tb_status tb_pin_command(void *user, const json_t *request, json_t *reply, char *error)
{
    return pin(user, request, reply, false, error);
}

enum tb_status tb_rollback_command(void *user, const json_t *request, json_t *reply, char *error)
{
    return pin(user, request, reply, true, error);
}

enum tb_status tb_unpin_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    struct tb_catalog_model model;
    struct tb_catalog_version_view v;
    struct tb_id uid;
    char who[TB_OPERATOR_BYTES];
    enum tb_status status = model_of(d, request, &model, error);
    if (status != TB_OK) return status;
    if (!tb_catalog_pinned(d->catalog, &model.name, &uid) || !tb_catalog_version_get(d->catalog, &uid, &v))
        return json_object_set_new(reply, "pinned", json_false()) == 0 &&
                       (!is_dry(request) || dry_put(d, reply))
                   ? TB_OK
                   : TB_SITE_NOMEM;
    if (is_dry(request)) return pin_dry(d, &v, false, reply);
    tb_control_operator(d->control, who);
    status = tb_catalog_pin(d->catalog, tb_clock_now(), &uid, false, who);
    if (status != TB_OK) return status;
    pin_log(&v.key, "version.unpinned", who);
    return pin_answer(d, &v.key, status, reply);
}
