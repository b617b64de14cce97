/* pki_show_command.c - tombolo pki show: certificates as a table. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/net/revoked.h"
#include "base/net/spiffe.h"
#include "base/pki/look.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/path_status.h"
#include "gateway/cli/pki_commands.h"
#include "gateway/config/config.h"
#include "gateway/daemon/rights.h"

#define DAY_S      86400
#define WARN_DAYS  14 /* as a gateway warns (tls.expiring) */
#define FILES_MAX  1024u
#define PATH_BYTES 4096

struct showing {
    const struct tb_cli_call *call;
    struct tb_pki_look *look;
    struct tb_config *config;   /* NULL: no --config */
    struct tb_revoked *revoked; /* that it names */
    struct tb_spiffe *spiffe;   /* that it names */
    char *paths[FILES_MAX];
    uint32_t path_count;
    uint32_t warnings;
};

/* ---- files ---- */

static bool is_certificate_file(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot != name && (strcmp(dot, ".crt") == 0 || strcmp(dot, ".pem") == 0);
}

static enum tb_status keep_path(struct showing *s, const char *path)
{
    if (s->path_count == FILES_MAX) return TB_TOO_LARGE;
    s->paths[s->path_count] = strdup(path);
    if (s->paths[s->path_count] == NULL) return TB_SITE_NOMEM;
    s->path_count++;
    return TB_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum tb_status take_folder(struct showing *s, const char *path)
{
    char full[PATH_BYTES];
    const uint32_t first = s->path_count;
    enum tb_status status = TB_OK;
    DIR *folder = opendir(path);
    if (folder == NULL) return tb_path_status(errno);
    for (struct dirent *e; status == TB_OK && (e = readdir(folder)) != NULL;)
        if (is_certificate_file(e->d_name) &&
            snprintf(full, sizeof full, "%s/%s", path, e->d_name) < PATH_BYTES)
            status = keep_path(s, full);
    closedir(folder);
    qsort(s->paths + first, s->path_count - first, sizeof s->paths[0], by_name);
    return status;
}

static enum tb_cli_exit take_path(struct showing *s, const char *path)
{
    char error[256] = "";
    struct stat st;
    const uint32_t first = s->path_count;
    errno = 0;
    enum tb_status status = stat(path, &st) != 0  ? tb_path_status(errno)
                            : S_ISDIR(st.st_mode) ? take_folder(s, path)
                                                  : keep_path(s, path);
    if (status != TB_OK)
        return tb_say_failure(s->call, status, "%s: %s", path,
                              errno != 0 ? strerror(errno) : tb_status_text(status));
    for (uint32_t i = first; i < s->path_count; i++) {
        status = tb_pki_look_add(s->look, s->paths[i], error);
        if (status != TB_OK) return tb_say_failure(s->call, status, "%s", error);
    }
    return TB_CLI_DONE;
}

/* ---- rights ---- */

static void add_right(json_t *rights, const char *what, const char *of)
{
    char text[TB_NAME_BYTES_MAX + 32];
    (void)snprintf(text, sizeof text, "%s%s%s", what, of[0] != '\0' ? " " : "", of);
    (void)json_array_append_new(rights, json_string(text));
}

static void gateway_rights(const struct tb_config *c, const struct tb_identity *who, json_t *rights)
{
    if (tb_name_equal(&who->site, &c->site) && tb_name_equal(&who->name, &c->gateway))
        add_right(rights, "this gateway", "");
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (tb_name_equal(&who->site, &c->peers[i].of) && tb_name_equal(&who->name, &c->peers[i].gateway))
            add_right(rights, "link", c->peers[i].site.text);
}

/* The rights that the configuration gives that identity, as words; null without one. */
static json_t *rights_of(const struct showing *s, const struct tb_identity *who)
{
    const struct tb_config *c = s->config;
    if (c == NULL) return json_null();
    json_t *rights = json_array();
    if (rights == NULL || who->kind == TB_IDENTITY_NONE) return rights;
    if (who->kind == TB_IDENTITY_GATEWAY) gateway_rights(c, who, rights);
    for (uint32_t i = 0; i < c->model_count; i++) {
        const struct tb_name *model = &c->models[i].name;
        if (tb_rights_may(c, model, who, true)) add_right(rights, "publish", model->text);
        if (tb_rights_may(c, model, who, false)) add_right(rights, "read", model->text);
        if (tb_rights_fence(c, model, who)) add_right(rights, "fence", model->text);
        if (tb_rights_publisher(c, model, who)) add_right(rights, "sign", model->text);
    }
    return rights;
}

/* ---- one certificate ---- */

static const char *kind_text(const struct tb_pki_seen *seen)
{
    if (seen->kind == TB_PKI_ROOT) return "root";
    if (seen->kind == TB_PKI_ISSUING) return "issuing";
    if (seen->kind == TB_PKI_STRANGE) return "other";
    return seen->identity.kind == TB_IDENTITY_WORKER      ? "worker"
           : seen->identity.kind == TB_IDENTITY_PUBLISHER ? "publisher"
                                                          : "gateway";
}

static int64_t days_left(int64_t until_wall_s)
{
    const int64_t left = until_wall_s - (int64_t)(tb_clock_wall_ms() / 1000);
    return left >= 0 ? left / DAY_S : (left - DAY_S + 1) / DAY_S;
}

static const char *time_text(int64_t wall_s, char out[32])
{
    struct tm utc;
    const time_t at = (time_t)wall_s;
    if (gmtime_r(&at, &utc) == NULL || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) return "?";
    return out;
}

/* "" for nothing. */
static const char *warning_of(const struct showing *s, uint32_t index, const struct tb_pki_seen *seen)
{
    if (s->revoked != NULL && tb_pki_look_revoked(s->look, index, s->revoked)) return "revoked";
    const int64_t days = days_left(seen->until_wall_s);
    if (seen->from_wall_s > (int64_t)(tb_clock_wall_ms() / 1000)) return "not-valid-yet";
    if (days < 0) return "expired";
    if (s->config != NULL && seen->unlisted) return "not-listed"; /* the gateway lets it not in */
    return days < WARN_DAYS ? "renew" : "";
}

static void identity_text(const struct tb_pki_seen *seen, char out[TB_URI_BYTES_MAX])
{
    if (seen->identity.kind != TB_IDENTITY_NONE)
        tb_identity_format(&seen->identity, out);
    else
        (void)snprintf(out, TB_URI_BYTES_MAX, "%.*s", (int)TB_URI_BYTES_MAX - 1,
                       seen->spiffe[0] != '\0' ? seen->spiffe : seen->subject);
}

static json_t *row_of(const struct showing *s, uint32_t index, const struct tb_pki_seen *seen)
{
    char print[65], from[32], until[32], identity[TB_URI_BYTES_MAX], clean[TB_URI_BYTES_MAX],
        issuer[TB_PKI_TEXT_BYTES];
    struct tb_pki_seen by = {.path = NULL};
    for (uint32_t i = 0; i < 32; i++)
        (void)snprintf(print + 2 * (size_t)i, 3, "%02x", seen->fingerprint.bytes[i]);
    if (seen->signer >= 0) tb_pki_look_at(s->look, (uint32_t)seen->signer, &by);
    identity_text(seen, identity);
    tb_show_clean(identity, clean, sizeof clean);
    tb_show_clean(seen->issuer, issuer, sizeof issuer);
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:o}", "file",
                     seen->path, "index", (int)seen->index, "kind", kind_text(seen), "identity", clean,
                     "spiffe", seen->spiffe, "signer", issuer, "signer_file", by.path, "serial", seen->serial,
                     "sha256", print, "key", seen->key, "from", time_text(seen->from_wall_s, from), "until",
                     time_text(seen->until_wall_s, until), "days_left",
                     (json_int_t)days_left(seen->until_wall_s), "warning", warning_of(s, index, seen),
                     "rights", rights_of(s, &seen->identity));
}

/* ---- all of them ---- */

static const char *text_at(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

static void print_uri(const json_t *row)
{
    const char *uri = text_at(row, "spiffe");
    if (uri[0] != '\0' && strcmp(uri, text_at(row, "identity")) != 0) (void)printf("  by its URI %s\n", uri);
}

static void print_rights(const json_t *row)
{
    const json_t *rights = json_object_get(row, "rights");
    for (size_t i = 0; i < json_array_size(rights); i++)
        (void)printf("%s%s", i == 0 ? "  rights: " : ", ", json_string_value(json_array_get(rights, i)));
    if (json_array_size(rights) > 0) (void)printf("\n");
}

static void print_table(const json_t *rows)
{
    (void)printf("%-10s %-40s %-16s %9s  %-13s %s\n", "KIND", "IDENTITY", "SIGNED BY", "DAYS LEFT", "WARNING",
                 "FILE");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        char file[PATH_BYTES];
        tb_show_clean(text_at(row, "file"), file, sizeof file);
        (void)printf("%-10s %-40s %-16s %9lld  %-13s %s\n", text_at(row, "kind"), text_at(row, "identity"),
                     text_at(row, "signer"), (long long)json_integer_value(json_object_get(row, "days_left")),
                     text_at(row, "warning"), file);
        print_uri(row);
        print_rights(row);
    }
}

static enum tb_cli_exit show(struct showing *s)
{
    json_t *rows = json_array();
    bool all = rows != NULL;
    TB_ASSERT(s->look != NULL);
    for (uint32_t i = 0; all && i < tb_pki_look_count(s->look); i++) {
        struct tb_pki_seen seen;
        tb_pki_look_at(s->look, i, &seen);
        s->warnings += warning_of(s, i, &seen)[0] != '\0';
        all = json_array_append_new(rows, row_of(s, i, &seen)) == 0;
    }
    if (!all) {
        json_decref(rows);
        return tb_say_failure(s->call, TB_SITE_NOMEM, "no memory");
    }
    if (!tb_cli_given(s->call, "json") && !tb_cli_given(s->call, "quiet")) print_table(rows);
    if (s->warnings > 0 && !tb_cli_given(s->call, "json"))
        tb_say_note(s->call, "%u of %u certificates ask for something: see WARNING", s->warnings,
                    tb_pki_look_count(s->look));
    if (tb_cli_given(s->call, "json"))
        return tb_say_result(s->call, json_pack("{s:o}", "certificates", rows), "%s", "");
    json_decref(rows);
    return TB_CLI_DONE;
}

static void complain(void *user, const char *line)
{
    char *first = user;
    if (first[0] == '\0') tb_show_clean(line, first, 300);
}

static enum tb_cli_exit take_config(struct showing *s)
{
    char first[300] = "", error[256] = "";
    const char *path = tb_cli_text(s->call, "config");
    if (path == NULL) return TB_CLI_DONE;
    const enum tb_status status = tb_config_load(path, complain, first, &s->config);
    if (status != TB_OK) return tb_say_failure(s->call, TB_BAD_ARGUMENT, "%s", first);
    const struct tb_config *c = s->config;
    enum tb_status listed = TB_OK;
    if (c->tls_revoked != NULL) listed = tb_revoked_read(c->tls_revoked, &s->revoked, error);
    if (listed == TB_OK && c->tls_spiffe != NULL) listed = tb_spiffe_read(c->tls_spiffe, &s->spiffe, error);
    if (listed != TB_OK) return tb_say_failure(s->call, listed, "%s", error);
    tb_pki_look_spiffe(s->look, s->spiffe);
    return TB_CLI_DONE;
}

/* Without a path: those that the configuration names. */
static enum tb_cli_exit take_paths(struct showing *s)
{
    const struct tb_config *c = s->config;
    enum tb_cli_exit code = TB_CLI_DONE;
    for (int i = 0; code == TB_CLI_DONE && i < s->call->argument_count; i++)
        code = take_path(s, s->call->arguments[i]);
    if (s->call->argument_count > 0) return code;
    if (c == NULL)
        return tb_say_usage(s->call->command->name, tb_cli_given(s->call, "json"),
                            "PATH or --config is needed");
    if (c->tls_ca != NULL) code = take_path(s, c->tls_ca);
    if (code == TB_CLI_DONE && c->tls_cert != NULL) code = take_path(s, c->tls_cert);
    for (uint32_t i = 0; code == TB_CLI_DONE && i < c->peer_count; i++)
        if (c->peers[i].ca != NULL) code = take_path(s, c->peers[i].ca);
    return code;
}

enum tb_cli_exit tb_cli_pki_show(const struct tb_cli_call *call)
{
    static struct showing s; /* large */
    s = (struct showing){.call = call, .look = tb_pki_look_new()};
    if (s.look == NULL) return tb_say_failure(call, TB_SITE_NOMEM, "no memory");
    enum tb_cli_exit code = take_config(&s);
    if (code == TB_CLI_DONE) code = take_paths(&s);
    if (code == TB_CLI_DONE) code = show(&s);
    tb_pki_look_free(s.look);
    tb_config_free(s.config);
    tb_revoked_free(s.revoked);
    tb_spiffe_free(s.spiffe);
    for (uint32_t i = 0; i < s.path_count; i++)
        free(s.paths[i]);
    return code;
}
