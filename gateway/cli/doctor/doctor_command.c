/* doctor_command.c - tombolo doctor: which configuration, who may look, and the checks. */
#include "gateway/cli/doctor/doctor_command.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "gateway/cli/doctor/doctor_run.h"
#include "gateway/cli/doctor/doctor_show.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/options.h"

#define ASK_MS     3000u
#define FOLDER     "/etc/tombolo"
#define PATH_BYTES 4096

const struct tb_cli_option tb_doctor_options[] = {
    {"peer", TB_CLI_TEXT, "SITE", "of the peers, this one alone"},
    {"pre", TB_CLI_FLAG, NULL, "before the first start: no gateway is asked"},
    {"config", TB_CLI_FILE, "FILE",
     "the configuration; default: what the gateway runs with, or the only one in /etc/tombolo"},
    {"control", TB_CLI_FILE, "PATH", "the gateway's control socket; default /run/tombolo/control.sock"},
    {"json", TB_CLI_FLAG, NULL, "one JSON object a result on standard output, also for a failure"},
    {"quiet", TB_CLI_FLAG, NULL, "nothing but what is wrong or could be better"},
    {NULL, TB_CLI_FLAG, NULL, NULL},
};

struct doctor_asked {
    json_t *status, *running; /* of the gateway: "status" and "config"; NULL: it did not answer */
    char why_not[600];
    bool denied;
    json_t *complaints;
    struct tb_config *config;
    char path[PATH_BYTES], no_files[256];
};

/* ---- the gateway ---- */

static void ask_gateway(const struct tb_cli_call *call, struct doctor_asked *a)
{
    char error[512] = "";
    const char *path = tb_control_client_path(call);
    json_t *request = json_pack("{s:s}", "cmd", "status");
    enum tb_status s = tb_control_client_ask(path, request, ASK_MS, &a->status, error);
    json_decref(request);
    if (s != TB_OK) {
        (void)snprintf(a->why_not, sizeof a->why_not, "%s", error);
        a->denied = s == TB_PEER_DENIED;
        return;
    }
    request = json_pack("{s:s}", "cmd", "config");
    s = tb_control_client_ask(path, request, ASK_MS, &a->running, error);
    json_decref(request);
    if (s != TB_OK) a->running = NULL;
}

/* ---- the configuration ---- */

/* The only file of the folder that is one; false: there is none, or there are several. */
static bool only_file(char path_out[PATH_BYTES])
{
    DIR *folder = opendir(FOLDER);
    uint32_t count = 0;
    if (folder == NULL) return false;
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        const size_t bytes = strlen(e->d_name);
        if (bytes < 6 || e->d_name[0] == '.' || strcmp(e->d_name + bytes - 5, ".yaml") != 0) continue;
        (void)snprintf(path_out, PATH_BYTES, FOLDER "/%s", e->d_name);
        count++;
    }
    (void)closedir(folder);
    return count == 1;
}

static bool find_file(const struct tb_cli_call *call, struct doctor_asked *a)
{
    const char *given = tb_cli_text(call, "config");
    const char *running = json_string_value(json_object_get(a->running, "file"));
    if (given == NULL && running == NULL) return only_file(a->path);
    (void)snprintf(a->path, sizeof a->path, "%s", given != NULL ? given : running);
    return true;
}

static void complain(void *user, const char *line)
{
    struct doctor_asked *a = user;
    char clean[1024];
    tb_show_clean(line, clean, sizeof clean);
    (void)json_array_append_new(a->complaints, json_string(clean));
}

/* A user who is neither root nor the gateway's may not read the gateway's files. */
static void look_who(struct doctor_asked *a, const char *store_path)
{
    char folder[PATH_BYTES];
    struct stat st;
    struct passwd row, *user = NULL;
    char room[1024];
    (void)snprintf(folder, sizeof folder, "%s", store_path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder) return;
    *slash = '\0';
    if (geteuid() == 0 || stat(folder, &st) != 0 || st.st_uid == geteuid()) return;
    if (getpwuid_r(st.st_uid, &row, room, sizeof room, &user) != 0) user = NULL;
    (void)snprintf(a->no_files, sizeof a->no_files,
                   "the gateway's files belong to %.60s: run it as root, or as that user",
                   user != NULL ? user->pw_name : "another user");
}

/* A file that root alone may read is no fault of the file. */
static void look_denied(struct doctor_asked *a)
{
    for (size_t i = 0; geteuid() != 0 && i < json_array_size(a->complaints); i++) {
        const char *line = json_string_value(json_array_get(a->complaints, i));
        if (line == NULL || strstr(line, strerror(EACCES)) == NULL) continue;
        (void)snprintf(a->no_files, sizeof a->no_files, "%.200s: run it as root", line);
        return;
    }
}

/* The file; or, where this user may not read what it names, what the gateway runs with. */
static void load(struct doctor_asked *a)
{
    const char *document = json_string_value(json_object_get(a->running, "document"));
    struct tb_config *config = NULL;
    struct doctor_asked unheard = {.complaints = json_array()};
    if (document != NULL &&
        tb_config_parse_running(document, strlen(document), complain, &unheard, &config) == TB_OK)
        look_who(a, config->store_path);
    json_decref(unheard.complaints);
    if (a->no_files[0] != '\0') {
        a->config = config;
        return;
    }
    tb_config_free(config);
    if (tb_config_load_warned(a->path, complain, complain, a, &a->config) != TB_OK) a->config = NULL;
    if (a->config != NULL)
        look_who(a, a->config->store_path);
    else
        look_denied(a);
}

static uint32_t peer_index(const struct tb_config *c, const char *site)
{
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (strcmp(c->peers[i].site.text, site) == 0) return i;
    return UINT32_MAX;
}

/* ---- all of it ---- */

/* For a machine that is slow, as one under a sanitizer (docs/operations.md). */
static uint32_t limit_times(void)
{
    const char *text = getenv("TOMBOLO_DOCTOR_TIMES");
    const unsigned long times = text != NULL ? strtoul(text, NULL, 10) : 1;
    return times >= 1 && times <= 100 ? (uint32_t)times : 1;
}

static enum tb_cli_exit examine(const struct tb_cli_call *call, const struct doctor_asked *a)
{
    const char *site = tb_cli_text(call, "peer");
    const uint32_t only = site != NULL && a->config != NULL ? peer_index(a->config, site) : UINT32_MAX;
    const struct tb_doctor d = {.file = a->path,
                                .config = a->config,
                                .complaints = a->complaints,
                                .status = a->status,
                                .no_gateway = a->why_not,
                                .gateway_denied = a->denied,
                                .no_files = a->no_files[0] != '\0' ? a->no_files : NULL,
                                .limit_times = limit_times(),
                                .before_start = tb_cli_given(call, "pre")};
    struct tb_doctor_show show;
    if (site != NULL && a->config != NULL && only == UINT32_MAX)
        return tb_say_failure(call, TB_NOT_FOUND, "%s has no peer \"%.100s\"", a->path, site);
    if (!tb_doctor_show_begin(&show, call, &d)) return tb_say_failure(call, TB_SITE_NOMEM, "no memory");
    const struct tb_doctor_watch watch = {tb_doctor_show_row, tb_doctor_show_progress, &show};
    const enum tb_status status = tb_doctor_run(tb_doctor_checks(), &d, only, &watch);
    if (status == TB_OK) return tb_doctor_show_end(&show);
    json_decref(show.rows);
    return tb_say_failure(call, status, "no memory");
}

enum tb_cli_exit tb_cli_doctor(const struct tb_cli_call *call)
{
    struct doctor_asked a = {.complaints = json_array()};
    enum tb_cli_exit code = TB_CLI_SITE;
    TB_ASSERT(call->argument_count == 0); /* the table of commands says so */
    if (!tb_cli_given(call, "pre")) ask_gateway(call, &a);
    if (!find_file(call, &a)) {
        code = tb_say_usage(call->command->name, tb_cli_given(call, "json"),
                            "--config FILE is needed: %s, and " FOLDER " has not exactly one *.yaml",
                            a.why_not[0] != '\0' ? a.why_not : "no gateway was asked");
    } else if (a.complaints != NULL) {
        load(&a);
        code = examine(call, &a);
    } else {
        code = tb_say_failure(call, TB_SITE_NOMEM, "no memory");
    }
    tb_config_free(a.config);
    json_decref(a.complaints);
    json_decref(a.running);
    json_decref(a.status);
    return code;
}
