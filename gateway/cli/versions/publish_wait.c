/* publish_wait.c - see publish_wait.h. */
#include "gateway/cli/versions/publish_wait.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/options.h"

#define ASK_MS     500u
#define SHOW_EVERY TB_SECONDS(1) /* a line of progress for a program */

/* ---- what is asked for ---- */

static bool site_named(const struct tb_publish_wait *w, const char *site)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (strcmp(w->sites[i].site.text, site) == 0) return true;
    return false;
}

static bool add(const char *word, size_t bytes, struct tb_publish_wait *w)
{
    char text[TB_NAME_BYTES_MAX + 16];
    if (bytes >= sizeof text || w->count == TB_WAITED_SITES_MAX) return false;
    memcpy(text, word, bytes);
    text[bytes] = '\0';
    struct tb_waited_site site = {.active = false};
    char *state = strchr(text, ':');
    if (state != NULL) *state++ = '\0';
    if (state != NULL && strcmp(state, "held") != 0 && strcmp(state, "active") != 0) return false;
    site.active = state != NULL && strcmp(state, "active") == 0;
    if (site_named(w, text) || tb_name_set(&site.site, text) != TB_OK) return false;
    w->sites[w->count++] = site;
    return true;
}

/* True where `text` is SITE, SITE:held or SITE:active, with commas between, and each site once. */
static bool parse(const char *text, struct tb_publish_wait *out)
{
    out->count = 0;
    for (;;) {
        const size_t bytes = strcspn(text, ",");
        if (!add(text, bytes, out)) return false;
        if (text[bytes] == '\0') return true;
        text += bytes + 1;
    }
}

/* The gateway's answer; NULL: it does not say. Takes the request. */
static json_t *ask(const struct tb_cli_call *call, json_t *request)
{
    json_t *reply = NULL;
    char error[512];
    const enum tb_status s =
        tb_control_client_ask(tb_control_client_path(call), request, ASK_MS, &reply, error);
    json_decref(request);
    return s == TB_OK ? reply : NULL;
}

/* NULL: none is of that site. */
static const json_t *row_of(const json_t *rows, const char *site)
{
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (strcmp(tb_text_of(json_array_get(rows, i), "site").text, site) == 0)
            return json_array_get(rows, i);
    return NULL;
}

/* Each peer is linked, and has said what it has of the model, and of sites behind it. */
static bool all_have_spoken(const struct tb_cli_call *call, const json_t *rows)
{
    json_t *status = ask(call, json_pack("{s:s}", "cmd", "status"));
    const json_t *links = json_object_get(status, "links");
    bool all = json_is_array(links);
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i);
        all &= strcmp(tb_text_of(l, "state").text, "up") == 0;
        all &= json_is_true(json_object_get(row_of(rows, tb_text_of(l, "site").text), "known"));
    }
    json_decref(status);
    return all;
}

static enum tb_cli_exit refuse_unknown(const struct tb_publish_wait *w, const json_t *rows)
{
    char names[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(rows) && used + 80 < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%.64s", used > 0 ? ", " : "",
                                 tb_text_of(json_array_get(rows, i), "site").text);
    for (uint32_t i = 0; i < w->count; i++) {
        const char *site = w->sites[i].site.text;
        if (row_of(rows, site) != NULL) continue;
        if (all_have_spoken(w->call, rows))
            return tb_say_failure(w->call, TB_NOT_FOUND,
                                  "--wait: there is no site \"%s\"; the gateway knows %s", site, names);
        tb_say_note(w->call,
                    "the gateway has not heard of the site \"%s\" yet, as not each of its peers has spoken; "
                    "it knows %s",
                    site, names);
    }
    return TB_CLI_DONE;
}

enum tb_cli_exit tb_publish_wait_read(const struct tb_cli_call *call, struct tb_publish_wait *out)
{
    const char *text = tb_cli_text(call, "wait");
    *out = (struct tb_publish_wait){.call = call};
    TB_ASSERT(call->argument_count > 0); /* the table of commands says so */
    if (text == NULL) return TB_CLI_DONE;
    if (!parse(text, out))
        return tb_say_usage(
            call->command->name, tb_cli_given(call, "json"),
            "--wait takes SITE, SITE:held or SITE:active, with commas between, and each site once");
    json_t *reply = ask(call, json_pack("{s:s, s:s}", "cmd", "lag", "model", call->arguments[0]));
    const json_t *rows = json_object_get(reply, "lag"); /* its own is the first */
    if (tb_name_set(&out->own, tb_text_of(json_array_get(rows, 0), "site").text) != TB_OK)
        out->own = (struct tb_name){""};
    const enum tb_cli_exit code = json_array_size(rows) > 0 ? refuse_unknown(out, rows) : TB_CLI_DONE;
    json_decref(reply);
    return code;
}

/* ---- how far they are ---- */

/* `sites` of a version has the others: what the gateway's own holds is the version's. */
static void take_held(struct tb_publish_wait *w, const json_t *version)
{
    for (uint32_t i = 0; i < w->count; i++) {
        struct tb_waited_site *site = &w->sites[i];
        const bool own = tb_name_equal(&site->site, &w->own);
        const json_t *row = own ? version : row_of(json_object_get(version, "sites"), site->site.text);
        if (row != NULL) site->held_bytes = tb_count_of(row, "held_bytes");
    }
}

/* False: the control socket does not say it. */
static bool ask_progress(struct tb_publish_wait *w, const struct tb_publish_waited *v, uint64_t *bytes_out)
{
    char uid[TB_HEX_CHARS];
    struct tb_id id;
    bool found = false;
    memcpy(id.bytes, v->uid.bytes, sizeof id.bytes);
    tb_id_format(&id, uid);
    json_t *reply = ask(w->call, json_pack("{s:s, s:s}", "cmd", "versions", "model", v->model));
    const json_t *versions = json_object_get(reply, "versions");
    for (size_t i = 0; i < json_array_size(versions); i++) {
        const json_t *row = json_array_get(versions, i);
        if (strcmp(tb_text_of(row, "uid").text, uid) != 0) continue;
        *bytes_out = tb_count_of(row, "bytes");
        take_held(w, row);
        found = true;
    }
    json_decref(reply);
    return found;
}

static json_t *sites_json(const struct tb_publish_wait *w)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < w->count && list != NULL; i++) {
        const struct tb_waited_site *s = &w->sites[i];
        json_t *row =
            json_pack("{s:s, s:s, s:b, s:I}", "site", s->site.text, "for", s->active ? "active" : "held",
                      "done", s->done, "held_bytes", (json_int_t)s->held_bytes);
        if (row != NULL && s->done && json_object_set_new(row, "took_s", json_real(s->took_s)) != 0) {
            json_decref(row);
            row = NULL;
        }
        if (json_array_append_new(list, row) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* The line that is written over shows the site that is waited for now. */
static void show(struct tb_progress *line, const struct tb_publish_wait *w, const struct tb_waited_site *s,
                 uint64_t bytes)
{
    char what[TB_NAME_BYTES_MAX + 64];
    uint32_t done = 0;
    for (uint32_t i = 0; i < w->count; i++)
        done += w->sites[i].done;
    const bool all_held = bytes > 0 && s->held_bytes >= bytes;
    (void)snprintf(what, sizeof what, "%u of %u sites; %s%s", done, w->count, s->site.text,
                   s->active && all_held ? ": its workers" : "");
    tb_progress_show(line, what, s->held_bytes, all_held ? 0 : bytes);
}

/* ---- the wait ---- */

struct watch {
    struct tb_progress line;
    tb_time_ns began, shown;
    bool json;
};

static enum tb_cli_exit tell(struct watch *t, struct tb_publish_wait *w, const struct tb_publish_waited *v,
                             const struct tb_waited_site *now)
{
    uint64_t bytes = 0;
    const bool due = now->done || t->shown == 0 || tb_time_since(t->shown, tb_clock_now()) >= SHOW_EVERY;
    if (!t->line.on && !(t->json && due)) return TB_CLI_DONE;
    (void)ask_progress(w, v, &bytes);
    if (!t->json) {
        show(&t->line, w, now, bytes);
        return TB_CLI_DONE;
    }
    t->shown = tb_clock_now();
    return tb_say_object(json_pack("{s:i, s:b, s:o, s:I}", "schema", 1, "ok", 1, "waiting", sites_json(w),
                                   "bytes", (json_int_t)bytes));
}

static enum tb_cli_exit wait_one(struct watch *t, struct tb_publish_wait *w,
                                 const struct tb_publish_waited *v, struct tb_waited_site *s)
{
    int status = TB_OK;
    enum tb_cli_exit told = TB_CLI_DONE;
    const uint32_t state = s->active ? TB_SITE_ACTIVATED : TB_SITE_HOLDS;
    do {
        status = tb_wait_site(v->session, &v->uid, s->site.text, state, TB_SLICE_MS);
        s->done = status == TB_OK;
        s->took_s = (double)tb_time_since(t->began, tb_clock_now()) / 1e9;
        told = tell(t, w, v, s);
    } while (told == TB_CLI_DONE && tb_slice_again(v->deadline, &status));
    if (told != TB_CLI_DONE || status == TB_OK) return told;
    tb_progress_end(&t->line);
    return tb_say_failure(w->call, status, "the version is kept; waiting until %s %s it: %s", s->site.text,
                          s->active ? "uses" : "holds",
                          status == TB_TIMEOUT     ? "not within --timeout; `tombolo lag --why` says why"
                          : status == TB_CANCELLED ? "interrupted"
                                                   : tb_last_error());
}

enum tb_cli_exit tb_publish_wait(struct tb_publish_wait *w, const struct tb_publish_waited *version)
{
    struct watch t = {.began = tb_clock_now(), .json = tb_cli_given(w->call, "json")};
    enum tb_cli_exit code = TB_CLI_DONE;
    tb_progress_start(&t.line, w->call);
    for (uint32_t i = 0; i < w->count && code == TB_CLI_DONE; i++) {
        struct tb_waited_site *s = &w->sites[i];
        code = wait_one(&t, w, version, s);
        if (code != TB_CLI_DONE || t.json || tb_cli_given(w->call, "quiet")) continue;
        tb_progress_end(&t.line);
        (void)printf("%s %s it after %s\n", s->site.text, s->active ? "uses" : "holds",
                     tb_show_seconds(s->took_s).text);
        if (fflush(stdout) != 0) code = TB_CLI_SITE;
    }
    return code;
}
