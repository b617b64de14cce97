/* restore_command.c - tombolo restore: a backup is read twice. The first time all of it is checked
 * and nothing is made; the second time files are written beside their places, and take them once
 * the backup was right again. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/private_file.h"
#include "base/system_calls.h"
#include "gateway/cli/backup/backup_lock.h"
#include "gateway/cli/backup/backup_rows.h"
#include "gateway/cli/backup/backup_stream.h"
#include "gateway/cli/backup/restore_place.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/path_status.h"
#include "gateway/disk/disk_io.h"

#define PIECE (256u << 10)

const struct tb_cli_option tb_cli_restore_options[] = {
    {"dry-run", TB_CLI_FLAG, NULL, "read and check all of it, list its files, and write nothing"},
    {"under", TB_CLI_FILE, "DIR", "its files belong below this folder, in place of the package's two"},
    {"overwrite", TB_CLI_FLAG, NULL, "replace files that are there; each is kept as NAME.before-restore"},
    {"key-file", TB_CLI_TEXT, "FILE|credential:NAME", "the key that it is encrypted under"},
    {"passphrase-file", TB_CLI_TEXT, "FILE|credential:NAME",
     "its passphrase is the first line; default: asked on the terminal"},
    {"in-clear", TB_CLI_FLAG, NULL, "it is not encrypted: nothing proves that this is the backup you made"},
    {"json", TB_CLI_FLAG, NULL, "one JSON object a result on standard output, also for a failure"},
    {"quiet", TB_CLI_FLAG, NULL, "nothing but errors"},
    {NULL, TB_CLI_FLAG, NULL, NULL},
};

struct restored {
    struct tb_backup_entry entry;
    struct tb_restore_file file;
    bool replaces;
};

struct restoring {
    const struct tb_cli_call *call;
    int fd; /* of the backup */
    struct tb_backup_head head;
    struct tb_disk_key *key;
    struct tb_restore_places places;
    struct restored *rows;
    uint32_t count, begun; /* rows that were seen; of them those with a file to close */
    bool writes;
    char store[TB_BACKUP_PATH_BYTES]; /* its path; places.store */
    char error[1024];
};

static enum tb_status refuse(struct restoring *r, enum tb_status status, const char *path, const char *why)
{
    (void)snprintf(r->error, sizeof r->error, "%.400s: %.500s", path, why);
    return status;
}

static enum tb_status bad(struct restoring *r, enum tb_status status)
{
    const char *why = status == TB_BAD_FILE  ? "it is no whole backup: cut short, damaged, or changed"
                      : status == TB_SITE_IO ? strerror(errno)
                                             : tb_status_text(status);
    return refuse(r, status, r->call->arguments[0], why);
}

/* ---- its key ---- */

static enum tb_status open_file(struct restoring *r)
{
    char why[TB_PRIVATE_WHY_BYTES];
    const char *path = r->call->arguments[0];
    r->fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (r->fd < 0) return refuse(r, tb_path_status(errno), path, strerror(errno));
    if (!tb_trusted_file(r->fd, why)) return refuse(r, TB_PEER_DENIED, path, why);
    const enum tb_status status = tb_backup_head_read(r->fd, &r->head);
    if (status == TB_BAD_FILE) return refuse(r, status, path, "it is no backup, or one of a later release");
    return status == TB_OK ? TB_OK : bad(r, status);
}

/* P8: a backup in clear that somebody put in the place of an encrypted one is noticed. A passphrase
 * may be typed, so a call without a key does not say that the operator expects none. */
static enum tb_status lock_look(struct restoring *r)
{
    const enum tb_backup_lock given = tb_backup_lock_given(r->call);
    const bool in_clear = tb_cli_given(r->call, "in-clear");
    const char *path = r->call->arguments[0];
    if (r->head.lock == TB_BACKUP_CLEAR && given != TB_BACKUP_CLEAR)
        return refuse(r, TB_BAD_ARGUMENT, path, "it stands in clear, and a key or passphrase was given");
    if (r->head.lock == TB_BACKUP_CLEAR && !in_clear)
        return refuse(r, TB_BAD_ARGUMENT, path,
                      "it stands in clear, so anybody may have written it: say --in-clear if you made it so");
    if (r->head.lock != TB_BACKUP_CLEAR && in_clear)
        return refuse(r, TB_BAD_ARGUMENT, path, "it is encrypted, and --in-clear was given");
    if (r->head.lock == TB_BACKUP_KEY_FILE && given != TB_BACKUP_KEY_FILE)
        return refuse(r, TB_BAD_ARGUMENT, path, "it is under a key: say --key-file");
    if (r->head.lock == TB_BACKUP_PASSPHRASE && given == TB_BACKUP_KEY_FILE)
        return refuse(r, TB_BAD_ARGUMENT, path, "it is under a passphrase, not under a key file");
    return TB_OK;
}

static enum tb_status key_read(struct restoring *r)
{
    char error[TB_DISK_KEY_ERROR_BYTES] = "";
    const enum tb_status status = tb_backup_key(r->call, &r->head, false, &r->key, error);
    if (status != TB_OK) (void)snprintf(r->error, sizeof r->error, "%s", error);
    return status;
}

/* ---- one reading ---- */

static enum tb_status bytes_take(struct restoring *r, struct tb_backup_stream *s, const struct restored *row)
{
    static uint8_t piece[PIECE];
    for (uint64_t at = 0; at < row->entry.bytes;) {
        const uint64_t left = row->entry.bytes - at, count = left < PIECE ? left : PIECE;
        const enum tb_status status = tb_backup_get(s, piece, count);
        if (status != TB_OK) return bad(r, status);
        if (r->writes && !tb_disk_write(row->file.fd, at, piece, count))
            return refuse(r, TB_SITE_IO, row->entry.path, strerror(errno));
        at += count;
    }
    return TB_OK;
}

/* Two files of one path, or two stores, are nobody's backup. */
static bool is_new(const struct restoring *r, const struct tb_backup_entry *e)
{
    const bool one = e->role == TB_BACKUP_STORE || e->role == TB_BACKUP_CONFIG;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct tb_backup_entry *other = &r->rows[i].entry;
        if (strcmp(other->path, e->path) == 0 || (one && other->role == e->role)) return false;
    }
    return r->count < TB_BACKUP_ENTRIES_MAX;
}

static enum tb_status entry_take(struct restoring *r, struct tb_backup_stream *s,
                                 const struct tb_backup_entry *entry)
{
    char why[TB_RESTORE_WHY_BYTES] = "";
    if (!is_new(r, entry)) return bad(r, TB_BAD_FILE);
    struct restored *row = &r->rows[r->count++];
    *row = (struct restored){.entry = *entry, .file = {.folder = -1, .fd = -1, .lock = -1}};
    enum tb_status status;
    if (r->writes) {
        r->begun = r->count;
        status = tb_restore_begin(&r->places, entry, &row->file, why);
        row->replaces = row->file.replaces;
    } else {
        status = tb_restore_look(&r->places, entry, &row->replaces, why);
    }
    if (status == TB_OK) status = bytes_take(r, s, row);
    if (status == TB_OK && r->writes) status = tb_restore_written(&r->places, &row->file, why);
    if (status != TB_OK && why[0] != '\0') (void)snprintf(r->error, sizeof r->error, "%s", why);
    return status;
}

static enum tb_status entries_take(struct restoring *r, struct tb_backup_stream *s)
{
    struct tb_backup_entry entry;
    r->count = 0;
    for (;;) {
        enum tb_status status = tb_backup_next(s, &entry);
        if (status != TB_OK) return bad(r, status);
        if (entry.role == TB_BACKUP_END) break;
        status = entry_take(r, s, &entry);
        if (status != TB_OK) return status;
    }
    const enum tb_status status = tb_backup_end(s);
    return status == TB_OK && r->count > 0 ? TB_OK : bad(r, status == TB_OK ? TB_BAD_FILE : status);
}

static enum tb_status read_once(struct restoring *r, bool writes)
{
    struct tb_backup_stream *s = NULL;
    r->writes = writes;
    enum tb_status status = tb_backup_open(r->fd, r->key, &s);
    if (status == TB_NOT_FOUND)
        return refuse(r, TB_PEER_DENIED, r->call->arguments[0], "it is under another key or passphrase");
    if (status != TB_OK) return bad(r, status);
    status = entries_take(r, s);
    tb_backup_free(s);
    return status;
}

/* ---- the command ---- */

/* As `tombolo init` gives them: root gives the files to the package's user, where there is one. */
static void places_fill(struct restoring *r)
{
    const char *under = tb_cli_text(r->call, "under");
    struct passwd row, *user = NULL;
    char room[1024];
    if (geteuid() != 0 || getpwnam_r("tombolo", &row, room, sizeof room, &user) != 0) user = NULL;
    r->places = (struct tb_restore_places){.under = {"/etc/tombolo", "/var/lib/tombolo"},
                                           .under_count = 2,
                                           .overwrites = tb_cli_given(r->call, "overwrite"),
                                           .looks = tb_cli_given(r->call, "dry-run"),
                                           .gives = user != NULL};
    if (user != NULL) {
        r->places.gateway = user->pw_uid;
        r->places.group = user->pw_gid;
    }
    if (under == NULL) return;
    r->places.under[0] = under;
    r->places.under_count = 1;
}

static enum tb_status place_all(struct restoring *r)
{
    char why[TB_RESTORE_WHY_BYTES] = "";
    for (uint32_t i = 0; i < r->count; i++) {
        const enum tb_status status = tb_restore_rename(&r->rows[i].file, why);
        if (status == TB_OK) continue;
        (void)snprintf(r->error, sizeof r->error, "%s; %u of %u files are in place", why, i, r->count);
        return status;
    }
    return TB_OK;
}

/* The rows are read once more: a folder's owner is as the first reading had the store. */
static void store_note(struct restoring *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->rows[i].entry.role != TB_BACKUP_STORE) continue;
        (void)snprintf(r->store, sizeof r->store, "%s", r->rows[i].entry.path);
        r->places.store = r->store;
    }
}

static enum tb_status restore(struct restoring *r)
{
    const char *under = r->places.under[0];
    if (!tb_backup_path_good(under))
        return refuse(r, TB_BAD_ARGUMENT, under,
                      "--under is an absolute path without . and .. and a / at its end");
    enum tb_status status = open_file(r);
    if (status == TB_OK) status = lock_look(r);
    if (status == TB_OK) status = key_read(r);
    if (status != TB_OK) return status;
    status = read_once(r, false);
    if (status != TB_OK || tb_cli_given(r->call, "dry-run")) return status;
    store_note(r);
    status = read_once(r, true);
    return status == TB_OK ? place_all(r) : status;
}

static bool has_role(const struct restoring *r, enum tb_backup_role role)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->rows[i].entry.role == role) return true;
    return false;
}

static json_t *files_json(const struct restoring *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->count; i++) {
        const struct restored *row = &r->rows[i];
        json_t *one = json_pack("{s:s, s:s, s:I, s:b}", "path", row->entry.path, "kind",
                                tb_backup_role_name(row->entry.role), "bytes", (json_int_t)row->entry.bytes,
                                "replaced", row->replaces);
        (void)json_array_append_new(list, one);
    }
    return list;
}

static void print_files(const struct restoring *r)
{
    char path[TB_BACKUP_PATH_BYTES];
    const char *replaced = r->places.overwrites ? "  (replaces a file)" : "  (is there: --overwrite)";
    if (tb_cli_given(r->call, "json") || tb_cli_given(r->call, "quiet")) return;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct restored *row = &r->rows[i];
        tb_show_clean(row->entry.path, path, sizeof path);
        (void)printf("%-9s %9s  %s%s\n", tb_backup_role_name(row->entry.role),
                     tb_show_bytes(row->entry.bytes).text, path, row->replaces ? replaced : "");
    }
}

static enum tb_cli_exit say(const struct restoring *r)
{
    const bool dry = tb_cli_given(r->call, "dry-run"), keys = has_role(r, TB_BACKUP_KEY);
    const char *config = "?";
    char clean[TB_BACKUP_PATH_BYTES];
    for (uint32_t i = 0; i < r->count; i++)
        if (r->rows[i].entry.role == TB_BACKUP_CONFIG) config = r->rows[i].entry.path;
    tb_show_clean(config, clean, sizeof clean);
    print_files(r);
    return tb_say_result(
        r->call,
        json_pack("{s:o, s:s, s:b, s:b}", "files", files_json(r), "config", config, "keys", keys, "dry_run",
                  dry),
        "%s%s\nthen: tombolo config check %s, and start the gateway: it asks its peers which "
        "runs they remember",
        dry ? "nothing was written (--dry-run)" : "restored",
        keys ? "" : "; no keys are in it: put those that the configuration names in place", clean);
}

enum tb_cli_exit tb_cli_restore(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 1); /* the table of commands says so */
    struct restoring r = {.call = call, .fd = -1};
    r.rows = tb_calloc(TB_BACKUP_ENTRIES_MAX, sizeof *r.rows);
    if (r.rows == NULL) return tb_say_failure(call, TB_SITE_NOMEM, "no memory");
    places_fill(&r);
    const enum tb_status status = restore(&r);
    const enum tb_cli_exit code = status == TB_OK ? say(&r) : tb_say_failure(call, status, "%s", r.error);
    for (uint32_t i = 0; i < r.begun; i++)
        tb_restore_close(&r.rows[i].file);
    tb_disk_key_free(r.key);
    if (r.fd >= 0) (void)close(r.fd);
    tb_free(r.rows);
    return code;
}
