/* backup_command.c - tombolo backup: the gateway gives a copy of its store, and this command reads
 * the files that the configuration names, with the rights of its user. One file comes of them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/system_calls.h"
#include "base/system_names.h"
#include "gateway/cli/backup/backup_lock.h"
#include "gateway/cli/backup/backup_rows.h"
#include "gateway/cli/backup/backup_source.h"
#include "gateway/cli/backup/backup_stream.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/path_status.h"
#include "gateway/config/config.h"
#include "gateway/disk/disk_io.h"

#define PATH_BYTES    4096
#define TIMEOUT_S     300u
#define TIMEOUT_S_MAX 86400u
#define PIECE         (256u << 10)
#define CREDENTIAL    "credential:"
#define PARTLY        ".partial"
#define IS_THERE      "is there already; --overwrite replaces it"

const struct tb_cli_option tb_cli_backup_options[] = {
    {"keys", TB_CLI_FLAG, NULL, "also keys; needs one of the next three"},
    {"key-file", TB_CLI_TEXT, "FILE|credential:NAME",
     "encrypt the backup under this key, of 32 bytes as disk.key"},
    {"passphrase", TB_CLI_FLAG, NULL, "encrypt it under a passphrase, which is asked on the terminal"},
    {"passphrase-file", TB_CLI_TEXT, "FILE|credential:NAME", "encrypt it under the first line of this file"},
    {"overwrite", TB_CLI_FLAG, NULL, "replace FILE where it is there"},
    {"control", TB_CLI_FILE, "PATH", "the gateway's control socket; default /run/tombolo/control.sock"},
    {"timeout", TB_CLI_SECONDS, "TIME", "give up after so long; default 5m"},
    {"json", TB_CLI_FLAG, NULL, "one JSON object a result on standard output, also for a failure"},
    {"quiet", TB_CLI_FLAG, NULL, "nothing but errors"},
    {NULL, TB_CLI_FLAG, NULL, NULL},
};

/* The files of a backup but for the store, in their order. Texts are the configuration's. */
struct list {
    struct {
        enum tb_backup_role role;
        char path[TB_BACKUP_PATH_BYTES];
    } files[TB_BACKUP_ENTRIES_MAX];
    uint32_t count;
    bool long_path, many;
};

struct making {
    const struct tb_cli_call *call;
    struct tb_backup_head head;
    struct tb_disk_key *key;
    json_t *reply; /* the gateway's */
    int store;     /* its copy */
    struct list *list;
    struct tb_backup_stream *out;
    uint64_t bytes;
    char error[1024];
};

static enum tb_status refuse(struct making *m, enum tb_status status, const char *path, const char *why)
{
    (void)snprintf(m->error, sizeof m->error, "%.500s: %.400s", path, why);
    return status;
}

/* ---- which files ---- */

static void list_add(struct list *l, enum tb_backup_role role, const char *path)
{
    if (path == NULL || strncmp(path, CREDENTIAL, sizeof CREDENTIAL - 1) == 0) return;
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->files[i].path, path) == 0) return;
    l->long_path |= strlen(path) >= TB_BACKUP_PATH_BYTES;
    l->many |= l->count == TB_BACKUP_ENTRIES_MAX;
    if (l->long_path || l->many) return;
    l->files[l->count].role = role;
    (void)snprintf(l->files[l->count++].path, TB_BACKUP_PATH_BYTES, "%s", path);
}

/* An authority's key is named nowhere: `tombolo init` puts it beside the gateway's. */
static void list_authority(struct list *l, const char *tls_key)
{
    char path[PATH_BYTES];
    const char *slash = tls_key != NULL ? strrchr(tls_key, '/') : NULL;
    if (slash == NULL) return;
    (void)snprintf(path, sizeof path, "%.*s/ca.key", (int)(slash - tls_key), tls_key);
    if (access(path, F_OK) == 0) list_add(l, TB_BACKUP_AUTHORITY, path);
}

/* P8: keys come first, so that a file which is named as both is a key. */
static void list_fill(struct list *l, const struct tb_config *c, const char *file, bool keys)
{
    list_add(l, TB_BACKUP_CONFIG, file);
    if (keys) {
        list_add(l, TB_BACKUP_KEY, c->tls_key);
        list_add(l, TB_BACKUP_KEY, c->disk_key);
        if (c->disk_key_old != NULL && strcmp(c->disk_key_old, TB_DISK_KEY_PLAIN) != 0)
            list_add(l, TB_BACKUP_KEY, c->disk_key_old);
        list_authority(l, c->tls_key);
    }
    list_add(l, TB_BACKUP_FILE, c->tls_ca);
    list_add(l, TB_BACKUP_FILE, c->tls_cert);
    list_add(l, TB_BACKUP_FILE, c->tls_revoked);
    list_add(l, TB_BACKUP_FILE, c->tls_spiffe);
    for (uint32_t i = 0; i < c->peer_count; i++)
        list_add(l, TB_BACKUP_FILE, c->peers[i].ca);
    for (uint32_t i = 0; i < c->model_count; i++)
        list_add(l, TB_BACKUP_FILE, c->models[i].home_ca);
}

static void complain(void *user, const char *line)
{
    struct making *m = user;
    if (m->error[0] == '\0') (void)snprintf(m->error, sizeof m->error, "%.1000s", line);
}

static enum tb_status list_make(struct making *m)
{
    struct tb_config *config = NULL;
    const char *file = json_string_value(json_object_get(m->reply, "file"));
    if (file == NULL)
        return refuse(m, TB_BAD_ARGUMENT, "this gateway", "it runs without a configuration file");
    m->error[0] = '\0';
    const enum tb_status status = tb_config_load(file, complain, m, &config);
    if (status != TB_OK) return status;
    list_fill(m->list, config, file, tb_cli_given(m->call, "keys"));
    tb_config_free(config);
    for (uint32_t i = 0; i < m->list->count; i++)
        if (!tb_backup_path_good(m->list->files[i].path))
            return refuse(
                m, TB_BAD_ARGUMENT, m->list->files[i].path,
                "a backup has absolute paths without . and .. alone: write it so in the configuration, "
                "and start the gateway with it so");
    if (m->list->long_path || m->list->many)
        return refuse(m, TB_BAD_ARGUMENT, file,
                      "it names too many files, or one with a path over 1000 characters");
    return TB_OK;
}

/* ---- writing ---- */

static enum tb_status refuse_out(struct making *m, enum tb_status status)
{
    return refuse(m, status, m->call->arguments[0],
                  status == TB_SITE_IO ? strerror(errno) : tb_status_text(status));
}

static enum tb_status put_bytes(struct making *m, const char *path, int fd, uint64_t bytes)
{
    static uint8_t piece[PIECE];
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t count = bytes - at < PIECE ? bytes - at : PIECE;
        if (!tb_disk_read(fd, at, count, piece))
            return refuse(m, TB_SITE_IO, path, errno != 0 ? strerror(errno) : "it became shorter meanwhile");
        const enum tb_status status = tb_backup_put(m->out, piece, count);
        if (status != TB_OK) return refuse_out(m, status);
        at += count;
    }
    return TB_OK;
}

static enum tb_status put_entry(struct making *m, enum tb_backup_role role, const char *path, int fd)
{
    const char *why = "";
    struct stat seen;
    uint8_t head[TB_BACKUP_ENTRY_BYTES];
    struct tb_backup_entry entry = {.role = role};
    enum tb_status status = tb_backup_source_look(fd, role, &seen, &why);
    if (status != TB_OK) return refuse(m, status, path, why);
    entry.bytes = (uint64_t)seen.st_size;
    (void)snprintf(entry.path, sizeof entry.path, "%s", path);
    tb_backup_entry_encode(&entry, head);
    status = tb_backup_put(m->out, head, sizeof head);
    if (status != TB_OK) return refuse_out(m, status);
    m->bytes += entry.bytes;
    status = put_bytes(m, path, fd, entry.bytes);
    if (status != TB_OK) return status;
    if (tb_backup_source_same(fd, &seen)) return TB_OK;
    return refuse(m, TB_CONFLICT, path, "it changed while it was read: try again");
}

static enum tb_status put_path(struct making *m, enum tb_backup_role role, const char *path)
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) return refuse(m, tb_path_status(errno), path, strerror(errno));
    const enum tb_status status = put_entry(m, role, path, fd);
    (void)close(fd);
    return status;
}

static enum tb_status put_all(struct making *m, int fd)
{
    const char *store = json_string_value(json_object_get(m->reply, "store"));
    if (store == NULL || !tb_backup_path_good(store))
        return refuse(m, TB_BAD_ARGUMENT, "store.path", "a backup has absolute paths without . and .. alone");
    enum tb_status status = tb_backup_create(fd, &m->head, m->key, &m->out);
    if (status != TB_OK) return refuse_out(m, status);
    for (uint32_t i = 0; status == TB_OK && i < m->list->count; i++)
        status = put_path(m, m->list->files[i].role, m->list->files[i].path);
    if (status == TB_OK) status = put_entry(m, TB_BACKUP_STORE, store, m->store);
    if (status != TB_OK) return status;
    status = tb_backup_finish(m->out);
    return status == TB_OK ? TB_OK : refuse_out(m, status);
}

static enum tb_status name_file(struct making *m, const char *partly, const char *path)
{
    const bool replaces = tb_cli_given(m->call, "overwrite");
    const bool good = replaces ? tb_sys_rename(partly, path) == 0 : tb_sys_rename_new(AT_FDCWD, partly, path);
    if (!good && errno == EEXIST) return refuse(m, TB_CONFLICT, path, IS_THERE);
    return good && tb_sys_sync_folder(path) ? TB_OK : refuse(m, TB_SITE_IO, path, strerror(errno));
}

/* It has its name once it is whole. */
static enum tb_status write_file(struct making *m)
{
    char partly[PATH_BYTES];
    const char *path = m->call->arguments[0];
    if (snprintf(partly, sizeof partly, "%s" PARTLY, path) >= (int)sizeof partly)
        return refuse(m, TB_BAD_ARGUMENT, path, strerror(ENAMETOOLONG));
    if (!tb_cli_given(m->call, "overwrite") && access(path, F_OK) == 0)
        return refuse(m, TB_CONFLICT, path, IS_THERE);
    (void)unlink(partly); /* of a backup that was killed */
    const int fd = tb_sys_open(partly, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return refuse(m, tb_path_status(errno), partly, strerror(errno));
    enum tb_status status = put_all(m, fd);
    (void)close(fd);
    if (status == TB_OK) status = name_file(m, partly, path);
    if (status != TB_OK) (void)unlink(partly);
    return status;
}

/* ---- the command ---- */

static enum tb_status ask_gateway(struct making *m)
{
    char error[512] = "";
    json_t *request = json_pack("{s:s}", "cmd", "backup");
    const uint64_t seconds = tb_cli_number(m->call, "timeout", TIMEOUT_S);
    const uint32_t ms = seconds > TIMEOUT_S_MAX ? TIMEOUT_S_MAX * 1000u : (uint32_t)seconds * 1000u;
    const enum tb_status status =
        tb_control_client_ask_file(tb_control_client_path(m->call), request, ms, &m->reply, &m->store, error);
    json_decref(request);
    if (status == TB_SITE_STORE)
        (void)snprintf(m->error, sizeof m->error, "%s; the gateway's log says more: store.backup_failed",
                       error);
    else
        (void)snprintf(m->error, sizeof m->error, "%s", error);
    return status;
}

static enum tb_status lock_make(struct making *m)
{
    char error[TB_DISK_KEY_ERROR_BYTES] = "";
    m->head.lock = tb_backup_lock_given(m->call);
    if (m->head.lock == TB_BACKUP_CLEAR && tb_cli_given(m->call, "keys"))
        return refuse(m, TB_BAD_ARGUMENT, "--keys",
                      "keys are never in clear: say --key-file, --passphrase or --passphrase-file, too");
    tb_random_bytes(m->head.salt, sizeof m->head.salt);
    const enum tb_status status = tb_backup_key(m->call, &m->head, true, &m->key, error);
    if (status != TB_OK) (void)snprintf(m->error, sizeof m->error, "%s", error);
    return status;
}

static enum tb_status make(struct making *m)
{
    enum tb_status status = lock_make(m);
    if (status == TB_OK) status = ask_gateway(m);
    if (status != TB_OK) return status;
    status = list_make(m);
    return status == TB_OK ? write_file(m) : status;
}

static enum tb_cli_exit say(const struct making *m)
{
    char file[512];
    tb_show_clean(m->call->arguments[0], file, sizeof file);
    const bool keys = tb_cli_given(m->call, "keys"), locked = m->key != NULL;
    const char *site = json_string_value(json_object_get(m->reply, "site"));
    return tb_say_result(m->call,
                         json_pack("{s:s, s:s, s:I, s:I, s:b, s:b}", "file", m->call->arguments[0], "site",
                                   site != NULL ? site : "?", "files", (json_int_t)m->list->count + 1,
                                   "bytes", (json_int_t)m->bytes, "keys", keys, "encrypted", locked),
                         "wrote %s: the store and %u files, %s, %s%s", file, m->list->count,
                         tb_show_bytes(m->bytes).text, locked ? "encrypted" : "in clear",
                         keys ? "" : "; keys are not in it (--keys)");
}

enum tb_cli_exit tb_cli_backup(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 1); /* the table of commands says so */
    struct making m = {.call = call, .store = -1};
    m.list = tb_calloc(1, sizeof *m.list);
    if (m.list == NULL) return tb_say_failure(call, TB_SITE_NOMEM, "no memory");
    const enum tb_status status = make(&m);
    const enum tb_cli_exit code = status == TB_OK ? say(&m) : tb_say_failure(call, status, "%s", m.error);
    tb_backup_free(m.out);
    tb_disk_key_free(m.key);
    if (m.store >= 0) (void)close(m.store);
    json_decref(m.reply);
    tb_free(m.list);
    return code;
}
