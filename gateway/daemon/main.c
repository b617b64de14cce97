/* main.c - tombolod: foreground, logs to stderr, ends with 0 after SIGTERM has drained. */
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/fault.h"
#include "base/net/library_faults.h"
#include "base/net/secret_memory.h"
#include "gateway/config/disk_files.h"
#include "gateway/daemon/control/event_ring.h"
#include "gateway/daemon/daemon.h"
#include "gateway/sandbox/sandbox.h"
#include "tombolo/version.h"
#include "wan/frame/frame.h"

static const char usage[] =
    "Usage: tombolod --config FILE [--log json] [--protocol-max N] [--new-home]\n"
    "\n"
    "The gateway of a site: holds versions of models in memory, gets them from other sites over TLS,\n"
    "and serves them to the workers here. Runs in the foreground and logs to stderr.\n"
    "\n"
    "  -c, --config FILE   YAML; `tombolo config explain` lists the keys, `tombolo config check FILE` checks "
    "it\n"
    "      --protocol-max N  at most this protocol on links, whatever link.protocol_max says: 1 is that of "
    "the release "
    "before\n"
    "      --new-home      once, for a first installation: opens runs of a new or restored store without the "
    "word of\n"
    "                      the peers, of which none remembers a run that this home has lost; also of models "
    "of\n"
    "                      patterns that are still to come\n"
    "      --log FORMAT    text or json, whatever log.format says, from the first line on: json is one "
    "object "
    "a line\n"
    "      --explain       prints every key of the configuration: type, default, range, unit, why\n"
    "      --version       prints the version\n"
    "      --help          this text\n"
    "\n"
    "SIGTERM and SIGINT drain for at most drain_ms and end with exit code 0.\n"
    "Exit codes: 0 drained, 1 the configuration or what it names cannot be used, 2 wrong command line.\n"
    "\n"
    "Example: tombolod --config /etc/tombolo/tombolod.yaml\n";

static void library_faults(void)
{
    tb_net_library_faults();
    tb_store_library_faults();
    json_set_alloc_funcs(tb_library_malloc, tb_free);
}

/* For a person as it is; in a log that a program reads it is an event like others. */
static void complain(void *user, const char *line)
{
    struct tb_log_line l;
    (void)user;
    if (!tb_log_form().json) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    tb_log_begin(&l, TB_LOG_ERROR, "config.refused");
    tb_log_str(&l, "why", line);
    tb_log_end(&l);
}

/* The word of the command line goes before the configuration's; NULL: there is none. */
static void log_open(const char *format, const struct tb_config *config)
{
    const struct tb_log_form form = {.json = format != NULL ? strcmp(format, "json") == 0
                                                            : config != NULL && config->log_json,
                                     .time = config != NULL && config->log_time,
                                     .priority = tb_log_is_journal(STDERR_FILENO)};
    tb_log_set_form(form);
    if (config != NULL) tb_log_set(config->log_level, STDERR_FILENO);
}

static void sandbox_log(const struct tb_sandbox *s)
{
    struct tb_log_line l;
    tb_log_begin(&l, s->lacks[0] == '\0' ? TB_LOG_INFO : TB_LOG_WARN, "sandbox.entered");
    tb_log_str(&l, "no_new_privileges", s->no_new_privileges ? "on" : "off");
    tb_log_str(&l, "seccomp", s->filter ? "on" : "off");
    tb_log_u64(&l, "landlock_abi", s->landlock ? (uint64_t)s->landlock_abi : 0);
    if (s->lacks[0] != '\0') tb_log_str(&l, "lacks", s->lacks);
    tb_log_end(&l);
}

/* Before anything of a stranger is read, and before the first thread. */
static enum tb_status sandbox(struct tb_daemon *d, const struct tb_config *config, const char *config_path)
{
    struct tb_sandbox_path *paths = NULL;
    uint32_t count = 0;
    if (!config->sandbox) {
        tb_log(TB_LOG_WARN, "sandbox.off", "reason=sandbox_is_false_in_the_config action=set_it_true_again");
        return TB_OK;
    }
    const enum tb_status status = tb_sandbox_paths(config, config_path, &paths, &count);
    if (status != TB_OK) return status;
    tb_sandbox_enter(paths, count, &d->sandbox);
    tb_free(paths);
    sandbox_log(&d->sandbox);
    return TB_OK;
}

static void disk_key_log(const struct tb_config *config, const struct tb_disk_files *files)
{
    struct tb_log_line l;
    if (config->disk_key == NULL && config->disk_key_old == NULL) return;
    tb_log_begin(&l, TB_LOG_INFO, "disk.key.in_use");
    tb_log_str(&l, "files", config->disk_key != NULL ? "encrypted" : "in_clear");
    if (config->disk_key_old != NULL) tb_log_u64(&l, "old_files", files->old_count);
    if (config->disk_key_old != NULL)
        tb_log_str(&l, "action",
                   files->old_count == 0 ? "take_disk.key_old_out" : "none_they_are_written_anew");
    tb_log_end(&l);
}

/* P3: before anything is opened. P8: and before the sandbox, which leads to no key. */
static enum tb_status disk_files_open(const struct tb_config *config, struct tb_disk_files *files)
{
    struct tb_disk_problem problem = {.key = "disk.key"};
    enum tb_status status = tb_disk_files_read(config, files, &problem);
    if (status == TB_OK) status = tb_disk_files_look(config, files, &problem);
    if (status == TB_OK) {
        disk_key_log(config, files);
        return TB_OK;
    }
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "start.failed");
    tb_log_str(&l, "what", problem.key);
    tb_log_str(&l, "why", problem.text);
    tb_log_str(&l, "action", "nothing_was_changed: mend disk.key or disk.key_old and start again");
    tb_log_end(&l);
    return status;
}

static int run(struct tb_config *config, const char *config_path, uint32_t protocol_max, bool new_home)
{
    static struct tb_daemon d;
    static struct tb_disk_files files;
    d.new_home = new_home;
    d.config_path = config_path;
    d.protocol_max = protocol_max;
    if (protocol_max != 0) config->link_protocol_max = protocol_max;
    tb_service_manager_open(&d.manager); /* its socket may be outside of the sandbox */
    if (disk_files_open(config, &files) != TB_OK || sandbox(&d, config, config_path) != TB_OK) {
        tb_disk_files_close(&files);
        return 1;
    }
    d.disk_keys = files.keys;
    const enum tb_status status = tb_daemon_open(&d, config);
    if (status == TB_OK)
        tb_daemon_run(&d);
    else if (status != TB_SITE_DRAINING)
        tb_log(TB_LOG_ERROR, "start.stopped", "status=%s", tb_status_name(status));
    tb_daemon_close(&d);
    tb_service_manager_close(&d.manager);
    const bool good = status == TB_OK || status == TB_SITE_DRAINING; /* or stopped before it had opened */
    if (good) tb_log(TB_LOG_INFO, "stop", "fault=%d", d.fault);
    if (d.left) _exit(1); /* a thread that may come back uses what an orderly exit would free under it */
    tb_disk_files_close(&files);
    return good && !d.fault ? 0 : 1;
}

/* 0: none that this release speaks. */
static uint32_t protocol_of(const char *text)
{
    for (uint32_t p = TB_LINK_PROTOCOL_MIN; p <= TB_LINK_PROTOCOL; p++)
        if (text[0] == (char)('0' + p) && text[1] == '\0') return p;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'}, {"protocol-max", required_argument, NULL, 'p'},
        {"new-home", no_argument, NULL, 'n'},     {"log", required_argument, NULL, 'l'},
        {"explain", no_argument, NULL, 'e'},      {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    const char *path = NULL, *format = NULL;
    bool new_home = false;
    uint32_t protocol_max = 0;
    for (int o; (o = getopt_long(argc, argv, "c:h", options, NULL)) != -1;) {
        if (o == 'c') path = optarg;
        if (o == 'n') new_home = true;
        if (o == 'l') format = optarg;
        if (o == 'l' && strcmp(optarg, "json") != 0 && strcmp(optarg, "text") != 0)
            return fputs(usage, stderr), 2;
        if (o == 'p') protocol_max = protocol_of(optarg);
        if (o == 'p' && protocol_max == 0) return fputs(usage, stderr), 2;
        if (o == 'e') return tb_config_explain(false, stdout), fflush(stdout) == 0 ? 0 : 1;
        if (o == 'v') return printf("tombolod %s\n", TB_VERSION_TEXT), 0;
        if (o == 'h') return fputs(usage, stdout), 0;
        if (o == '?') return fputs(usage, stderr), 2;
    }
    if (path == NULL || optind != argc) return fputs(usage, stderr), 2;
    if (tb_fault_from_env()) library_faults();
    signal(SIGPIPE, SIG_IGN);
    log_open(format, NULL);
    /* Keys and weights of all models are in this memory: no core file, no ptrace by
     * others of this user (P8). */
    prctl(PR_SET_DUMPABLE, 0);
    if (tb_secret_memory_open() < TB_SECRET_LOCKED)
        tb_log(TB_LOG_WARN, "secrets.not_locked", "action=raise_the_limit_of_locked_memory");
    struct tb_config *config = NULL;
    const enum tb_status loaded = tb_config_load(path, complain, NULL, &config);
    if (loaded != TB_OK) {
        tb_log(TB_LOG_ERROR, "start.stopped", "status=%s config=%s", tb_status_name(loaded), path);
        return 1;
    }
    log_open(format, config);
    const enum tb_status kept = tb_events_open();
    if (kept != TB_OK) tb_log(TB_LOG_ERROR, "start.stopped", "status=%s", tb_status_name(kept));
    const int code = kept == TB_OK ? run(config, path, protocol_max, new_home) : 1;
    tb_events_close();
    tb_config_free(config);
    return code;
}
