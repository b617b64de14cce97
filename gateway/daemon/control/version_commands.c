/* version_commands.c - what an operator decides about a version at this site.
 *
 * P10: the decision and the operator's name are on disk before the answer goes out. */
#include "gateway/daemon/control/version_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fault.h"
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

/* TB_AGAIN: the reply goes out once it is durable. */
static enum tb_status answer_when_saved(struct tb_daemon *d)
{
    if (d->store_down) return TB_SITE_STORE;
    struct held_answer *h = tb_calloc(1, sizeof *h);
    if (h == NULL) return TB_SITE_NOMEM;
    *h = (struct held_answer){.held = {.fn = held_answer}, .ticket = tb_control_ticket(d->control)};
    const enum tb_status status = tb_persist_then(d, &h->held);
    if (status != TB_OK) tb_free(h);
    return status == TB_OK ? TB_AGAIN : status;
}

/* ---- withdraw ---- */

enum tb_status tb_withdraw_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    struct tb_catalog_version_view before, after;
    char who[TB_OPERATOR_BYTES];
    enum tb_status status = version_of(d, request, &before, error);
    if (status != TB_OK) return status;
    tb_control_operator(d->control, who);
    status = tb_catalog_withdraw(d->catalog, tb_clock_now(), &before.key.uid, who);
    if (status == TB_BAD_STATE)
        snprintf(error, ERROR_BYTES, "version %" PRIu64 ":%" PRIu64 " is %s", before.key.run_order,
                 before.key.number, tb_catalog_state_name(before.state));
    if (status != TB_OK && status != TB_DONE_BEFORE) return status;
    const bool known = tb_catalog_version_get(d->catalog, &before.key.uid, &after);
    TB_ASSERT(known); /* its row waits for the store */
    if (!version_put(reply, &before) || !text_put(reply, "before", tb_catalog_state_name(before.state)) ||
        !text_put(reply, "who", after.who) ||
        !text_put(reply, "where", after.withdrawn_here ? "here" : "everywhere"))
        return TB_SITE_NOMEM;
    return status == TB_OK ? answer_when_saved(d) : TB_OK;
}
