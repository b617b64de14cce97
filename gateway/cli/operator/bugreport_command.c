/* bugreport_command.c - tombolo bugreport: what somebody elsewhere needs to find a fault, in one
 * folder, without keys.
 *
 * A gateway that does not answer is when it is needed most: what could not be had stands in its
 * file as the reason, and the rest is there. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/machine.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/operator/redact.h"
#include "gateway/cli/options.h"
#include "tombolo/version.h"

#define PATH_BYTES  1024
#define EVENTS_PAGE 256
#define EVENTS_MOST 4096

struct report {
    const struct tb_cli_call *call;
    char folder[PATH_BYTES];
    int folder_fd;
    json_t *files, *missing; /* names */
    bool addresses;          /* are left out */
    bool lacking;            /* memory */
};

static void note(struct report *r, json_t *list, const char *name)
{
    if (json_array_append_new(list, json_string(name)) != 0) r->lacking = true;
}

/* NULL: it cannot be made, and is told of. */
static FILE *file_make(struct report *r, const char *name, enum tb_cli_exit *code)
{
    const int fd = openat(r->folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f != NULL) return f;
    *code = tb_say_failure(r->call, TB_SITE_IO, "%s/%s: %s", r->folder, name, strerror(errno));
    if (fd >= 0) (void)close(fd);
    return NULL;
}

static enum tb_cli_exit file_end(struct report *r, FILE *f, const char *name)
{
    const bool written = ferror(f) == 0;
    if (fclose(f) != 0 || !written)
        return tb_say_failure(r->call, TB_SITE_IO, "%s/%s: %s", r->folder, name, strerror(errno));
    note(r, r->files, name);
    return TB_CLI_DONE;
}

/* ---- what the gateway says ---- */

static json_t *ask(const struct report *r, json_t *request, char error[512])
{
    json_t *reply = NULL;
    const uint64_t seconds = tb_cli_number(r->call, "timeout", 10);
    const uint32_t ms = seconds > 3600 ? 3600000u : (uint32_t)seconds * 1000u;
    error[0] = '\0';
    if (tb_control_client_ask(tb_control_client_path(r->call), request, ms, &reply, error) != TB_OK)
        reply = NULL;
    json_decref(request);
    return reply;
}

/* `key`: of the answer that is text; NULL: all of it, as JSON. */
static enum tb_cli_exit answer_write(struct report *r, const char *cmd, const char *name, const char *key)
{
    enum tb_cli_exit code = TB_CLI_DONE;
    char error[512];
    FILE *f = file_make(r, name, &code);
    if (f == NULL) return code;
    json_t *reply = ask(r, json_pack("{s:s}", "cmd", cmd), error);
    char *text = reply != NULL && key == NULL ? json_dumps(reply, JSON_INDENT(1)) : NULL;
    const char *said = key != NULL ? json_string_value(json_object_get(reply, key)) : text;
    if (said == NULL) note(r, r->missing, name);
    tb_redact(f, said != NULL ? said : error, r->addresses);
    (void)fputc('\n', f);
    free(text);
    json_decref(reply);
    return file_end(r, f, name);
}

/* The newest that are kept, oldest first, a line each. */
static enum tb_cli_exit events_write(struct report *r)
{
    static const char name[] = "events.jsonl";
    enum tb_cli_exit code = TB_CLI_DONE;
    char error[512] = "";
    FILE *f = file_make(r, name, &code);
    if (f == NULL) return code;
    json_int_t after = 0;
    bool more = true, any = false;
    for (int page = 0; more && page < EVENTS_MOST / EVENTS_PAGE; page++) {
        json_t *reply = ask(
            r, json_pack("{s:s, s:I, s:i}", "cmd", "events", "after", after, "limit", EVENTS_PAGE), error);
        const json_t *events = json_object_get(reply, "events");
        any |= reply != NULL;
        more = json_array_size(events) == EVENTS_PAGE;
        for (size_t i = 0; i < json_array_size(events); i++) {
            char *text = json_dumps(json_array_get(events, i), JSON_COMPACT);
            tb_redact(f, text != NULL ? text : "", r->addresses);
            (void)fputc('\n', f);
            free(text);
            after = json_integer_value(json_object_get(json_array_get(events, i), "id"));
        }
        json_decref(reply);
    }
    if (!any) note(r, r->missing, name);
    if (!any) tb_redact(f, error, r->addresses);
    return file_end(r, f, name);
}

/* ---- this machine ---- */

static void line_of(const struct report *r, FILE *f, const char *path)
{
    char line[512];
    const bool read = tb_machine_line(path, line, sizeof line);
    (void)fprintf(f, "%s: ", path);
    tb_redact(f, read ? line : "-", r->addresses);
    (void)fputc('\n', f);
}

static void limit_of(FILE *f, const char *name, int which)
{
    struct rlimit limit;
    if (getrlimit(which, &limit) != 0) return;
    if (limit.rlim_cur == RLIM_INFINITY)
        (void)fprintf(f, "limit %s: unlimited\n", name);
    else
        (void)fprintf(f, "limit %s: %" PRIu64 "\n", name, (uint64_t)limit.rlim_cur);
}

static void memory_lines(FILE *f)
{
    static const char *const wanted[] = {"MemTotal",       "MemAvailable", "SwapTotal", "HugePages_Total",
                                         "HugePages_Free", "Hugepagesize", "Shmem:"};
    char line[256];
    FILE *memory = fopen("/proc/meminfo", "re");
    while (memory != NULL && fgets(line, sizeof line, memory) != NULL)
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0) (void)fputs(line, f);
    if (memory != NULL) (void)fclose(memory);
}

static enum tb_cli_exit machine_write(struct report *r)
{
    static const char name[] = "machine.txt";
    static const char *const lines[] = {"/proc/version",
                                        "/proc/loadavg",
                                        "/proc/sys/net/ipv4/tcp_rmem",
                                        "/proc/sys/net/ipv4/tcp_wmem",
                                        "/proc/sys/net/core/rmem_max",
                                        "/proc/sys/net/core/wmem_max",
                                        "/proc/sys/net/ipv4/tcp_congestion_control",
                                        "/proc/sys/net/ipv4/tcp_available_congestion_control",
                                        "/proc/sys/net/ipv4/tcp_mtu_probing",
                                        "/proc/sys/vm/overcommit_memory",
                                        "/proc/sys/vm/nr_hugepages",
                                        "/sys/kernel/mm/transparent_hugepage/enabled",
                                        "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                                        "/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/cpu.max"};
    enum tb_cli_exit code = TB_CLI_DONE;
    struct utsname system;
    FILE *f = file_make(r, name, &code);
    if (f == NULL) return code;
    (void)fprintf(f, "tombolo: %s\ncores: %u\n", TB_VERSION_TEXT, tb_cores_allowed());
    if (uname(&system) == 0)
        (void)fprintf(f, "kernel: %s %s %s\n", system.sysname, system.release, system.machine);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        line_of(r, f, lines[i]);
    memory_lines(f);
    limit_of(f, "memlock", RLIMIT_MEMLOCK);
    limit_of(f, "nofile", RLIMIT_NOFILE);
    return file_end(r, f, name);
}

/* ---- the folder ---- */

static enum tb_cli_exit folder_make(struct report *r)
{
    char when[32] = "";
    struct tm tm;
    const time_t now = time(NULL);
    const char *dir = tb_cli_text(r->call, "into");
    if (gmtime_r(&now, &tm) != NULL) (void)strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &tm);
    const int used = snprintf(r->folder, sizeof r->folder, "%s/tombolo-bugreport-%s-%d",
                              dir != NULL ? dir : ".", when, (int)getpid());
    if (used < 0 || (size_t)used >= sizeof r->folder)
        return tb_say_failure(r->call, TB_BAD_ARGUMENT, "--into is too long");
    if (mkdir(r->folder, 0700) != 0)
        return tb_say_failure(r->call, TB_SITE_IO, "%s: %s", r->folder, strerror(errno));
    r->folder_fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->folder_fd >= 0) return TB_CLI_DONE;
    return tb_say_failure(r->call, TB_SITE_IO, "%s: %s", r->folder, strerror(errno));
}

static enum tb_cli_exit parts_write(struct report *r)
{
    static const struct {
        const char *cmd, *name, *key;
    } answers[] = {
        {"status", "status.json", NULL},     {"lag", "lag.json", NULL},
        {"versions", "versions.json", NULL}, {"streams", "streams.json", NULL},
        {"chains", "chains.json", NULL},     {"config", "config.yaml", "document"},
    };
    enum tb_cli_exit code = machine_write(r);
    for (size_t i = 0; code == TB_CLI_DONE && i < sizeof answers / sizeof *answers; i++)
        code = answer_write(r, answers[i].cmd, answers[i].name, answers[i].key);
    return code == TB_CLI_DONE ? events_write(r) : code;
}

static enum tb_cli_exit say(const struct report *r)
{
    const size_t missing = json_array_size(r->missing);
    if (r->lacking) return tb_say_failure(r->call, TB_SITE_NOMEM, "no memory to list the files");
    if (missing > 0)
        tb_say_note(r->call, "the gateway did not answer for %zu of the files: they say why", missing);
    return tb_say_result(r->call,
                         json_pack("{s:s, s:O, s:O, s:b}", "folder", r->folder, "files", r->files, "missing",
                                   r->missing, "addresses_hidden", r->addresses),
                         "%s\nread it before you send it; then: tar --zstd -cf %s.tar.zst %s", r->folder,
                         r->folder, r->folder);
}

enum tb_cli_exit tb_cli_bugreport(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 0); /* the table of commands says so */
    struct report r = {.call = call,
                       .folder_fd = -1,
                       .files = json_array(),
                       .missing = json_array(),
                       .addresses = tb_cli_given(call, "no-addresses")};
    enum tb_cli_exit code = folder_make(&r);
    if (code == TB_CLI_DONE) code = parts_write(&r);
    if (code == TB_CLI_DONE) code = say(&r);
    if (r.folder_fd >= 0) (void)close(r.folder_fd);
    json_decref(r.files);
    json_decref(r.missing);
    return code;
}
