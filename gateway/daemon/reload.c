/* reload.c - see reload.h. The sandbox holds the paths of the start: a new one is out of reach
 * until the next. */
#include "gateway/daemon/reload.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gateway/daemon/audit.h"
#include "gateway/daemon/certificates.h"
#include "gateway/daemon/daemon.h"

struct differing {
    json_t *had;    /* key to value, of the start; those that are the same are taken out */
    char keys[512]; /* that differ, as many as fit */
    uint32_t count;
};

static void put(void *user, const char *key, const char *value)
{
    struct differing *d = user;
    (void)json_object_set_new(d->had, key, value != NULL ? json_string(value) : json_null());
}

static void say(struct differing *d, const char *key)
{
    const size_t used = strlen(d->keys);
    d->count++;
    if (used + strlen(key) + 3 < sizeof d->keys)
        (void)snprintf(d->keys + used, sizeof d->keys - used, "%s%s", used > 0 ? " " : "", key);
}

static void compare(void *user, const char *key, const char *value)
{
    struct differing *d = user;
    const json_t *had = json_object_get(d->had, key);
    const char *text = json_string_value(had);
    const bool same =
        had != NULL && (text == NULL) == (value == NULL) && (text == NULL || strcmp(text, value) == 0);
    if (!same) say(d, key);
    (void)json_object_del(d->had, key);
}

static void complain(void *user, const char *line)
{
    struct tb_log_line l;
    (void)user;
    tb_log_begin(&l, TB_LOG_WARN, "reload.refused");
    tb_log_str(&l, "why", line);
    tb_log_str(&l, "action", "kept_the_configuration_of_the_start");
    tb_log_end(&l);
}

static void look(struct tb_daemon *d)
{
    struct tb_config *now = NULL;
    struct differing differs = {.had = json_object()};
    if (differs.had == NULL || tb_config_load(d->config_path, complain, NULL, &now) != TB_OK) goto done;
    if (tb_config_each_value(d->config, put, &differs) != TB_OK) goto done;
    if (tb_config_each_value(now, compare, &differs) != TB_OK) goto done;
    for (void *at = json_object_iter(differs.had); at != NULL; at = json_object_iter_next(differs.had, at))
        say(&differs, json_object_iter_key(at));
    if (differs.count == 0) goto done;
    tb_audit_act(d, &(struct tb_audit_event){"reload", "gateway", differs.keys, "SIGHUP", "needs a restart"});
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "reload.needs_restart");
    tb_log_str(&l, "keys", differs.keys);
    tb_log_u64(&l, "count", differs.count);
    tb_log_end(&l);

done:
    tb_config_free(now);
    json_decref(differs.had);
}

void tb_reload(struct tb_daemon *d)
{
    if (d->draining) return;
    tb_service_manager_reloading(&d->manager);
    if (d->config_path != NULL) look(d);
    tb_certificates_reload(d);
    tb_service_manager_ready(&d->manager);
}
