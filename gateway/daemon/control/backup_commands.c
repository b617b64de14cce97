/* backup_commands.c - one copy of the store at a time. Its steps are rows of the store's queue, so
 * the rows of publishers go between them; the operator gets the descriptor of the copy. */
#include "gateway/daemon/control/backup_commands.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/daemon/control/audit_commands.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/store/store_backup.h"

#define ERROR_BYTES 256 /* as control.h has it */

struct tb_backup {
    struct tb_store_backup *copy;
    uint64_t ticket;
    json_t *reply; /* the control socket's too */
    bool asked;    /* a step of it is in the queue */
};

static void backup_free(struct tb_daemon *d)
{
    struct tb_backup *b = d->backup;
    d->backup = NULL;
    if (b == NULL) return;
    TB_ASSERT(!b->asked);
    tb_store_backup_free(b->copy);
    json_decref(b->reply);
    tb_free(b);
}

static void answer(struct tb_daemon *d, struct tb_backup *b)
{
    struct stat st;
    char error[ERROR_BYTES];
    int fd = -1;
    const enum tb_status status = tb_store_backup_take(b->copy, &fd, error);
    if (status != TB_OK) {
        struct tb_log_line l;
        tb_log_begin(&l, TB_LOG_WARN, "store.backup_failed");
        tb_log_str(&l, "path", d->config->store_path);
        tb_log_str(&l, "why", error);
        tb_log_end(&l);
        tb_control_release(d->control, b->ticket, status);
    } else if (fstat(fd, &st) != 0 || json_object_set_new(b->reply, "bytes", json_integer(st.st_size)) != 0) {
        tb_control_release(d->control, b->ticket, TB_SITE_NOMEM);
    } else {
        tb_control_release_file(d->control, b->ticket, fd);
    }
    if (fd >= 0) (void)close(fd);
    backup_free(d);
}

void tb_backup_commands_follow(struct tb_daemon *d)
{
    struct tb_backup *b = d->backup;
    if (b == NULL) return;
    if (tb_store_backup_is_due(b->copy)) b->asked = false;
    if (b->asked) return;
    if (tb_store_backup_is_over(b->copy))
        answer(d, b);
    else
        b->asked = tb_persist_backup(d, b->copy); /* no place: with the next turn */
}

/* A restore needs the files that the configuration names, too: they are the operator's to read. */
static enum tb_status reply_fill(const struct tb_daemon *d, json_t *reply)
{
    json_t *file = d->config_path != NULL ? json_string(d->config_path) : json_null();
    const bool good = json_object_set_new(reply, "file", file) == 0 &&
                      json_object_set_new(reply, "site", json_string(d->site.text)) == 0 &&
                      json_object_set_new(reply, "gateway", json_string(d->gateway.text)) == 0 &&
                      json_object_set_new(reply, "store", json_string(d->config->store_path)) == 0;
    return good ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status backup_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    (void)request;
    if (d->backup != NULL) {
        (void)snprintf(error, ERROR_BYTES, "another backup is being made; try again when it has ended");
        return TB_CONFLICT;
    }
    if (d->store_down || d->draining) {
        (void)snprintf(error, ERROR_BYTES, "the store does not answer, or this gateway ends; see its log");
        return TB_SITE_STORE;
    }
    enum tb_status status = reply_fill(d, reply);
    if (status != TB_OK) return status;
    struct tb_backup *b = tb_calloc(1, sizeof *b);
    if (b == NULL) return TB_SITE_NOMEM;
    status = tb_store_backup_new(d->config->store_path, &b->copy);
    if (status != TB_OK) {
        tb_free(b);
        return status;
    }
    b->ticket = tb_control_ticket(d->control);
    b->reply = json_incref(reply);
    d->backup = b;
    tb_daemon_wake(d);
    return TB_AGAIN;
}

enum tb_status tb_audited_backup(void *user, const json_t *request, json_t *reply, char *error)
{
    if (json_is_true(json_object_get(request, "dry_run"))) { /* P10: an act that is tried has no row */
        (void)snprintf(error, ERROR_BYTES, "backup cannot be tried: it hands out the store");
        return TB_BAD_ARGUMENT;
    }
    return tb_audited("backup", backup_command, user, request, reply, error);
}

void tb_backup_commands_close(struct tb_daemon *d)
{
    struct tb_backup *b = d->backup;
    if (b == NULL) return;
    if (tb_store_backup_is_due(b->copy)) b->asked = false;
    if (b->asked) { /* a thread waits for a disk that does not answer, and keeps it */
        json_decref(b->reply);
        d->backup = NULL;
        return;
    }
    backup_free(d);
}
