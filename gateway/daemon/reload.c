/* reload.c - see reload.h. The sandbox holds the paths of the start: a file that it does not lead
 * to is out of reach until the next. */
#include "gateway/daemon/reload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/system_calls.h"
#include "gateway/config/gateway_tls.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/certificates.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/models/model_table.h"

#define ROWS_MOST 16u /* of the audit record, for one reload */

/* ---- a plan ---- */

static void plan_free(struct tb_reload *p)
{
    if (p == NULL) return;
    tb_config_difference_free(&p->difference);
    tb_config_free(p->next);
    tb_tls_free(p->tls);
    json_decref(p->errors);
    tb_free(p);
}

static struct tb_reload *plan_new(void)
{
    struct tb_reload *p = tb_calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->errors = json_array();
    if (p->errors != NULL) return p;
    tb_free(p);
    return NULL;
}

/* P10: each complaint is a line, and stands in the answer. */
static void complain(void *user, const char *line)
{
    struct tb_reload *p = user;
    struct tb_log_line l;
    json_t *text = json_string(line);
    p->bad = true;
    if (text == NULL) text = json_string("a complaint that is no UTF-8: the log has it");
    (void)json_array_append_new(p->errors, text);
    if (p->dry_run) return;
    tb_log_begin(&l, TB_LOG_WARN, "reload.refused");
    tb_log_str(&l, "why", line);
    tb_log_str(&l, "action", "nothing_changed");
    tb_log_end(&l);
}

static bool is_good(const struct tb_reload *p)
{
    return !p->bad;
}

/* ---- what this process can reach ---- */

struct looking {
    struct tb_daemon *d;
    struct tb_reload *plan;
};

static bool reaches_file(void *user, const char *path)
{
    const struct looking *at = user;
    char line[512];
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); /* a FIFO holds up nobody */
    if (fd >= 0) {
        close(fd);
        return true;
    }
    if (at->d->sandbox.landlock && errno == EACCES) return false;
    (void)snprintf(line, sizeof line, "cannot read \"%.300s\": %s", path, strerror(errno));
    complain(at->plan, line);
    return true;
}

/* P2: runs of a model that the store has, and that were not read at the start, would be begun
 * again. */
static bool reaches_model(void *user, const struct tb_name *model)
{
    const struct looking *at = user;
    const struct tb_daemon *d = at->d;
    const struct tb_config_model *m = tb_config_model_for(d->config, model);
    if (tb_model_pattern_is(model->text)) return true; /* its models are read when somebody uses them */
    if (m != NULL && m->is_pattern) return false;
    for (uint32_t i = 0; i < d->unread_count; i++)
        if (tb_name_equal(&d->unread[i], model)) return false;
    return !d->unread_more;
}

static struct tb_config_reach reach_of(const struct looking *at)
{
    const struct tb_daemon *d = at->d;
    uint32_t peers = TB_CONFIG_LIST_MAX - d->config->peer_count;
    const uint32_t added = d->config->peer_count - d->given->peer_count;
    TB_ASSERT(d->config->peer_count >= d->given->peer_count && added <= TB_LINKS_PEERS_SPARE);
    if (peers > TB_LINKS_PEERS_SPARE - added) peers = TB_LINKS_PEERS_SPARE - added;
    return (struct tb_config_reach){.links = d->tls != NULL,
                                    .peers = peers,
                                    .models = TB_CONFIG_LIST_MAX - d->config->model_count,
                                    .bounds = &d->bounds,
                                    .file = reaches_file,
                                    .model = reaches_model,
                                    .user = (void *)(uintptr_t)at};
}

/* P8: all files as they are now, or nothing changes. */
static void read_tls(struct tb_reload *p)
{
    char error[512] = "", line[640];
    if (p->next->tls_cert == NULL || tb_gateway_tls(p->next, &p->tls, error) == TB_OK) return;
    (void)snprintf(line, sizeof line, "tls: %s", error);
    complain(p, line);
}

/* A model of a pattern that is awake keeps its home: another pattern may match it from now on. */
static void homes_stay(struct tb_daemon *d, struct tb_reload *p)
{
    char line[640];
    for (uint32_t i = tb_model_row_next(d, TB_CONFIG_LIST_MAX); i != TB_MODEL_NONE;
         i = tb_model_row_next(d, i + 1)) {
        const struct tb_config_model *was = tb_model_config(d, i);
        const struct tb_config_model *is = tb_config_model_for(p->next, tb_model_name(d, i));
        if (is == NULL || tb_name_equal(&was->home, &is->home)) continue;
        (void)snprintf(line, sizeof line,
                       "models.%s: its model %s is in use here with home %s, and not %s: restart, or keep "
                       "the home",
                       is->name.text, tb_model_name(d, i)->text, was->home.text, is->home.text);
        complain(p, line);
    }
}

/* The file, checked whole, and what of it differs. TB_OK also where it is refused: then the plan
 * has errors. */
static enum tb_status plan_read(struct tb_daemon *d, struct tb_reload *p)
{
    struct looking at = {d, p};
    struct tb_config *file = NULL;
    const struct tb_config_reach reach = reach_of(&at);
    enum tb_status status = tb_config_load_running(d->config_path, complain, p, &file);
    if (status == TB_SITE_CONFIG && !is_good(p)) return TB_OK;
    if (status != TB_OK) return status;
    if (d->protocol_max != 0) file->link_protocol_max = d->protocol_max;
    status = tb_config_differ(d->config, file, &reach, &p->difference);
    if (status == TB_OK && p->difference.live > 0) {
        status = tb_config_merge(d->config, file, &p->difference, &p->next);
        if (status == TB_OK) read_tls(p);
        if (status == TB_OK) homes_stay(d, p);
    }
    tb_config_free(file);
    return status;
}

/* ---- what is said of it ---- */

/* "peers.west.rate 200Mbit to 50Mbit, models.policy added": of the changes from *at on as many as
 * fit, at least one; *at goes on behind them. */
static void difference_text(const struct tb_config_difference *d, uint32_t *at,
                            char out[TB_AUDIT_OBJECT_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (; *at < d->count; ++*at) {
        const struct tb_config_change *c = &d->changes[*at];
        char one[TB_AUDIT_OBJECT_BYTES];
        if (c->kind != TB_CONFIG_CHANGED)
            (void)snprintf(one, sizeof one, "%.120s %s", c->key, tb_config_change_name(c->kind));
        else
            (void)snprintf(one, sizeof one, "%.120s %.40s to %.40s", c->key, c->was != NULL ? c->was : "none",
                           c->is != NULL ? c->is : "none");
        if (used > 0 && used + strlen(one) + 3 > TB_AUDIT_OBJECT_BYTES) return;
        used += (size_t)snprintf(out + used, TB_AUDIT_OBJECT_BYTES - used, "%s%s", used > 0 ? ", " : "", one);
    }
}

static void keys_text(const struct tb_config_difference *d, enum tb_config_effect effect, char out[512])
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < d->count; i++) {
        const struct tb_config_change *c = &d->changes[i];
        if (c->effect != effect || used + strlen(c->key) + 2 > 512) continue;
        used += (size_t)snprintf(out + used, 512 - used, "%s%s", used > 0 ? " " : "", c->key);
    }
}

static void keys_log(const struct tb_config_difference *d, enum tb_config_effect effect)
{
    const bool live = effect == TB_CONFIG_LIVE;
    const uint32_t count = live ? d->live : d->restart;
    char keys[512];
    struct tb_log_line l;
    if (count == 0) return;
    keys_text(d, effect, keys);
    tb_log_begin(&l, live ? TB_LOG_INFO : TB_LOG_WARN, live ? "reload.applied" : "reload.needs_restart");
    tb_log_str(&l, "keys", keys);
    tb_log_u64(&l, "count", count);
    tb_log_end(&l);
}

/* P10: a row for each reload, also for one that was refused; more where its changes fill more. */
static void plan_audit(struct tb_daemon *d, const struct tb_reload *p, enum tb_status status)
{
    char object[TB_AUDIT_OBJECT_BYTES], result[TB_AUDIT_RESULT_BYTES];
    const char *why = json_string_value(json_array_get(p->errors, 0));
    if (!is_good(p))
        (void)snprintf(result, sizeof result, "refused: %.110s", why != NULL ? why : "");
    else if (status != TB_OK)
        (void)snprintf(result, sizeof result, "refused: %s", tb_status_name(status));
    else
        (void)snprintf(result, sizeof result, "%u applied, %u need a restart%s%.80s", p->difference.live,
                       p->difference.restart, p->reason[0] != '\0' ? "; " : "", p->reason);
    for (uint32_t at = 0, rows = 0; rows == 0 || (at < p->difference.count && rows < ROWS_MOST); rows++) {
        difference_text(&p->difference, &at, object);
        tb_audit_act(d, &(struct tb_audit_event){"reload", p->who, object, p->origin, result});
    }
}

static void plan_tell(struct tb_daemon *d, const struct tb_reload *p, enum tb_status status)
{
    plan_audit(d, p, status);
    if (!is_good(p) || status != TB_OK) {
        d->counters.reloads_refused++;
        return;
    }
    d->counters.reloads++;
    keys_log(&p->difference, TB_CONFIG_LIVE);
    keys_log(&p->difference, TB_CONFIG_RESTART);
}

static json_t *change_json(const struct tb_config_change *c)
{
    return json_pack("{s:s, s:s, s:s?, s:s?, s:s, s:s}", "key", c->key, "kind",
                     tb_config_change_name(c->kind), "was", c->was, "is", c->is, "effect",
                     tb_config_effect_name(c->effect), "how", c->how);
}

/* False: no memory. */
static bool plan_json(const struct tb_reload *p, json_t *reply)
{
    json_t *changes = json_array();
    bool ok = changes != NULL;
    for (uint32_t i = 0; ok && i < p->difference.count; i++)
        ok = json_array_append_new(changes, change_json(&p->difference.changes[i])) == 0;
    ok = json_object_set_new(reply, "changes", changes) == 0 && ok;
    const bool good = is_good(p);
    ok = json_object_set(reply, "errors", p->errors) == 0 && ok;
    ok = json_object_set_new(reply, "dry_run", json_boolean(p->dry_run)) == 0 && ok;
    ok = json_object_set_new(reply, "applied", json_integer(good && !p->dry_run ? p->difference.live : 0)) ==
             0 &&
         ok;
    return json_object_set_new(reply, "restart", json_integer(good ? p->difference.restart : 0)) == 0 && ok;
}

/* ---- the dispatcher's turn ---- */

static void plan_take(struct tb_daemon *d, struct tb_reload *p)
{
    enum tb_status status = TB_OK;
    if (is_good(p) && p->next != NULL) status = tb_reload_rooms(d, p);
    plan_tell(d, p, status);
    if (is_good(p) && p->difference.live == 0) tb_certificates_reload(d);
    if (p->ticket != 0) tb_control_release(d->control, p->ticket, status);
    tb_service_manager_ready(&d->manager);
    plan_free(p);
}

void tb_reload_follow(struct tb_daemon *d)
{
    while (d->reload != NULL) {
        struct tb_reload *p = d->reload;
        d->reload = NULL;
        if (d->draining)
            plan_free(p);
        else
            plan_take(d, p);
        if (!d->reload_again) continue;
        d->reload_again = false;
        tb_reload_signal(d);
    }
}

void tb_reload_close(struct tb_daemon *d)
{
    plan_free(d->reload);
    d->reload = NULL;
}

/* ---- who asks ---- */

void tb_reload_signal(struct tb_daemon *d)
{
    if (d->draining || d->opening) return;
    d->reload_again = d->reload != NULL; /* behind the one that is there */
    if (d->reload_again) return;
    tb_service_manager_reloading(&d->manager);
    struct tb_reload *p = d->config_path != NULL ? plan_new() : NULL;
    if (p != NULL && plan_read(d, p) != TB_OK) {
        plan_free(p);
        p = NULL;
    }
    if (p == NULL) { /* no file, or no memory: the certificates at least */
        tb_certificates_reload(d);
        tb_service_manager_ready(&d->manager);
        return;
    }
    (void)snprintf(p->who, sizeof p->who, "gateway");
    (void)snprintf(p->origin, sizeof p->origin, "SIGHUP");
    d->reload = p;
    tb_daemon_wake(d);
}

static enum tb_status ask_read(struct tb_daemon *d, const json_t *request, struct tb_reload *p, char *error)
{
    const json_t *reason = json_object_get(request, "reason");
    const char *text = json_string_value(reason);
    p->dry_run = json_is_true(json_object_get(request, "dry_run"));
    if (reason != NULL && (text == NULL || strlen(text) >= sizeof p->reason)) {
        (void)snprintf(error, 256, "\"reason\" is a text of less than %zu bytes", sizeof p->reason);
        return TB_BAD_ARGUMENT;
    }
    if (text != NULL) (void)snprintf(p->reason, sizeof p->reason, "%s", text);
    tb_control_operator(d->control, p->who);
    (void)snprintf(p->origin, sizeof p->origin, "control");
    return plan_read(d, p);
}

enum tb_status tb_reload_command(void *daemon, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = daemon;
    if (d->draining || d->reload != NULL || d->config_path == NULL) {
        (void)snprintf(error, 256, "%s",
                       d->config_path == NULL ? "this gateway has no file"
                                              : "another reload, or its end, is under way");
        return TB_BAD_STATE;
    }
    struct tb_reload *p = plan_new();
    enum tb_status status = p != NULL ? ask_read(d, request, p, error) : TB_SITE_NOMEM;
    if (status == TB_OK && !plan_json(p, reply)) status = TB_SITE_NOMEM;
    if (status != TB_OK || p->dry_run) {
        plan_free(p);
        return status;
    }
    tb_service_manager_reloading(&d->manager);
    p->ticket = tb_control_ticket(d->control);
    d->reload = p;
    tb_daemon_wake(d);
    return TB_AGAIN;
}

enum tb_status tb_reload_config_command(void *daemon, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = daemon;
    (void)request, (void)error;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (to == NULL) return TB_SITE_NOMEM;
    tb_config_write(d->config, NULL, true, to);
    bool ok = fclose(to) == 0 && text != NULL;
    ok = ok && json_object_set_new(reply, "document", json_string(text)) == 0;
    ok = ok &&
         json_object_set_new(reply, "file", json_string(d->config_path != NULL ? d->config_path : "")) == 0;
    free(text);
    return ok ? TB_OK : TB_SITE_NOMEM;
}
