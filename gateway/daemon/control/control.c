/* control.c - lines of JSON over a unix socket. It knows no command: the table given at open
 * does. */
#include "gateway/daemon/control/control.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/limits/share_table.h"
#include "base/log.h"
#include "base/net/chan.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "base/net/listen.h"

#define REQUEST_BYTES_MAX (64u << 10)
#define CLIENTS_MAX       TB_CONTROL_CLIENTS_MAX
#define FILES_MAX         TB_CONTROL_FILES_MAX /* of all clients together */

struct client {
    struct tb_control *control;
    struct tb_chan *chan;
    struct client *next;
    uint64_t owner; /* its user: of a share of clients */
    json_t *later;  /* a reply that is not to go out yet; NULL: none */
    uint64_t ticket;
    char *reply; /* what is still to be written; jansson's memory */
    size_t reply_bytes, reply_sent;
    int *files; /* that came with the request that is read; NULL: none */
    uint32_t file_count;
    size_t used;
    bool closing; /* after the reply */
    char line[REQUEST_BYTES_MAX];
};

struct tb_control {
    uv_loop_t *loop;
    struct tb_listener *listener;
    const struct tb_control_command *commands;
    void *user;
    struct client *clients;
    uint32_t client_count, client_most;
    uint32_t file_count;     /* that clients have sent, and no command has taken */
    uint64_t refused, spent; /* clients; spent: of them, for want of their user's share */
    struct tb_share_table shares;
    struct tb_share places[2 * CLIENTS_MAX];
    bool full;             /* told */
    uint64_t tickets;      /* given out */
    struct client *asking; /* whose request is being answered; NULL: none is */
    bool shut;
};

static void control_free_if_idle(struct tb_control *control)
{
    TB_ASSERT((control->clients == NULL) == (control->client_count == 0));
    if (control->shut && control->clients == NULL) tb_free(control);
}

/* A sentence that quotes a request may be cut within a letter, which JSON does not take: then the
 * status speaks for itself. */
static json_t *reply_failed(enum tb_status status, const char *error)
{
    json_t *text = json_string(error[0] != '\0' ? error : tb_status_text(status));
    if (text == NULL) text = json_string(tb_status_text(status));
    return json_pack("{s:i, s:b, s:s, s:o}", "schema", 1, "ok", 0, "status", tb_status_name(status), "error",
                     text);
}

json_t *tb_control_answer(const struct tb_control_command *commands, void *user, const char *line,
                          size_t bytes, bool *later_out)
{
    char error[256] = "";
    json_error_t where;
    *later_out = false;
    json_t *request = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &where);
    if (request == NULL || !json_is_object(request)) {
        json_decref(request);
        return reply_failed(TB_BAD_ARGUMENT, "the request is not one JSON object on one line");
    }
    const char *cmd = json_string_value(json_object_get(request, "cmd"));
    const bool schema = json_integer_value(json_object_get(request, "schema")) == 1;
    json_t *reply = NULL;
    enum tb_status status = TB_NOT_FOUND;
    if (schema && cmd != NULL) {
        for (const struct tb_control_command *c = commands; c->cmd != NULL; c++) {
            if (strcmp(c->cmd, cmd) != 0) continue;
            reply = json_pack("{s:i, s:b}", "schema", 1, "ok", 1);
            status = reply == NULL ? TB_SITE_NOMEM : c->fn(user, request, reply, error);
            break;
        }
    }
    json_decref(request);
    if (!schema || cmd == NULL) {
        return reply_failed(TB_BAD_ARGUMENT, "a request needs \"schema\": 1 and \"cmd\"");
    }
    *later_out = status == TB_AGAIN;
    if (status == TB_OK || status == TB_AGAIN) return reply;
    json_decref(reply);
    if (status == TB_NOT_FOUND && error[0] == '\0') return reply_failed(status, "there is no such cmd");
    return reply_failed(status, error);
}

static void client_flush(struct client *c)
{
    while (c->reply_sent < c->reply_bytes) {
        size_t taken = 0;
        const enum tb_status s =
            tb_chan_write(c->chan, c->reply + c->reply_sent, c->reply_bytes - c->reply_sent, &taken);
        if (s == TB_AGAIN) {
            tb_chan_want_write(c->chan, true);
            return;
        }
        if (s != TB_OK) {
            tb_chan_close(c->chan, s);
            return;
        }
        c->reply_sent += taken;
        TB_ASSERT(c->reply_sent <= c->reply_bytes);
    }
    free(c->reply);
    c->reply = NULL;
    c->reply_bytes = c->reply_sent = 0;
    tb_chan_want_write(c->chan, false);
    tb_chan_want_read(c->chan, true);
    if (c->closing) tb_chan_close(c->chan, TB_OK);
}

/* One request at a time: nothing more is read until its reply is out. */
static void client_reply(struct client *c, json_t *reply)
{
    char *text = reply == NULL ? NULL : json_dumps(reply, JSON_COMPACT);
    json_decref(reply);
    if (text == NULL) {
        tb_chan_close(c->chan, TB_SITE_NOMEM);
        return;
    }
    TB_ASSERT(c->reply == NULL && c->later == NULL); /* one request at a time */
    const size_t bytes = strlen(text);
    text[bytes] = '\n'; /* over the NUL: the length is what counts from here on */
    c->reply = text;
    c->reply_bytes = bytes + 1;
    TB_ASSERT(c->reply_sent == 0);
    tb_chan_want_read(c->chan, false);
    client_flush(c);
}

/* ---- descriptors ---- */

static void files_close(struct client *c)
{
    TB_ASSERT(c->control->file_count >= c->file_count);
    for (uint32_t i = 0; i < c->file_count; i++)
        (void)close(c->files[i]);
    c->control->file_count -= c->file_count;
    c->file_count = 0;
    tb_free(c->files);
    c->files = NULL;
}

/* Those for which there is no room are closed: the command finds fewer than it has names. */
static void files_keep(struct client *c, const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (c->files == NULL) c->files = tb_calloc(FILES_MAX, sizeof *c->files);
        if (c->files == NULL || c->control->file_count == FILES_MAX) {
            (void)close(fds[i]);
            continue;
        }
        c->files[c->file_count++] = fds[i];
        c->control->file_count++;
    }
}

uint32_t tb_control_files(struct tb_control *control, int fds_out[TB_CONTROL_FILES_MAX])
{
    if (control == NULL || control->asking == NULL) return 0;
    struct client *c = control->asking;
    const uint32_t count = c->file_count;
    if (count > 0) memcpy(fds_out, c->files, count * sizeof *fds_out);
    control->file_count -= count;
    c->file_count = 0; /* taken: not closed */
    return count;
}

static void client_lines(struct client *c)
{
    while (c->reply == NULL && c->later == NULL) {
        char *end = memchr(c->line, '\n', c->used);
        if (end == NULL) break;
        bool later = false;
        TB_ASSERT(c->control->asking == NULL);
        c->control->asking = c;
        json_t *reply = tb_control_answer(c->control->commands, c->control->user, c->line,
                                          (size_t)(end - c->line), &later);
        c->control->asking = NULL;
        files_close(c);
        TB_ASSERT(!later || reply != NULL);
        const size_t rest = c->used - (size_t)(end + 1 - c->line);
        memmove(c->line, end + 1, rest);
        c->used = rest;
        if (!later) {
            client_reply(c, reply);
            continue;
        }
        c->later = reply;
        c->ticket = c->control->tickets;
        tb_chan_want_read(c->chan, false);
    }
    if (c->reply == NULL && c->later == NULL && c->used == sizeof c->line) {
        tb_log(TB_LOG_WARN, "control.refused", "reason=request_too_long bytes_max=%u", REQUEST_BYTES_MAX);
        c->closing = true;
        c->used = 0;
        client_reply(c, reply_failed(TB_TOO_LARGE, "a request is at most 64 KiB"));
    }
}

static void client_readable(struct tb_chan *chan, void *user)
{
    struct client *c = user;
    size_t got = 0;
    int fds[TB_CHAN_FDS_MAX];
    uint32_t fd_count = 0;
    const enum tb_status s =
        tb_chan_read_fds(chan, c->line + c->used, sizeof c->line - c->used, &got, fds, &fd_count);
    files_keep(c, fds, fd_count);
    if (s == TB_AGAIN) return;
    if (s != TB_OK) {
        tb_chan_close(chan, s);
        return;
    }
    c->used += got;
    TB_ASSERT(c->used <= sizeof c->line);
    client_lines(c);
}

static void client_writable(struct tb_chan *chan, void *user)
{
    (void)chan;
    struct client *c = user;
    client_flush(c);
    if (c->reply == NULL && !c->closing) client_lines(c);
}

static void client_open(struct tb_chan *chan, void *user, const struct tb_chan_peer *peer)
{
    (void)chan, (void)user, (void)peer;
}

static void client_closed(struct tb_chan *chan, void *user, enum tb_status why)
{
    (void)chan, (void)why;
    struct client *c = user;
    struct tb_control *control = c->control;
    struct client **at = &control->clients;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    TB_ASSERT(control->client_count > 0);
    control->client_count--;
    tb_share_give(&control->shares, c->owner);
    files_close(c);
    free(c->reply);
    json_decref(c->later);
    tb_free(c);
    control_free_if_idle(control);
}

void tb_control_check(const struct tb_control *control)
{
    uint32_t clients = 0, files = 0;
    for (const struct client *c = control->clients; c != NULL; c = c->next, clients++) {
        TB_ASSERT(c->used <= sizeof c->line && c->reply_sent <= c->reply_bytes);
        TB_ASSERT(c->file_count == 0 || c->files != NULL);
        TB_ASSERT(c->reply == NULL || c->later == NULL); /* one request at a time */
        files += c->file_count;
    }
    TB_ASSERT(clients == control->client_count && clients <= CLIENTS_MAX);
    TB_ASSERT(files == control->file_count && files <= FILES_MAX);
}

static const struct tb_chan_ops client_ops = {client_open, client_readable, client_writable, client_closed};

/* P10. One line a time: a client that dials again and again is not written down each time. */
static bool clients_refuse(struct tb_control *control)
{
    TB_ASSERT(control->client_count <= CLIENTS_MAX);
    const bool full = control->client_count >= CLIENTS_MAX;
    control->refused += full;
    if (full && !control->full)
        tb_log(TB_LOG_WARN, "control.refused", "reason=too_many_clients clients=%u", control->client_count);
    control->full = full || (control->full && control->client_count >= CLIENTS_MAX / 4);
    return full;
}

/* P7: one user has a quarter of the clients. The last quarter is for root and for the gateway's
 * own user. */
static bool share_refuse(struct tb_control *control, int fd, uint64_t *owner_out)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    *owner_out = TB_SHARE_OURS;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0) return true;
    *owner_out = (uint64_t)cred.uid + 1;
    if (tb_share_room(&control->shares, *owner_out, cred.uid == geteuid() || cred.uid == 0)) return false;
    control->refused++;
    control->spent++;
    if (!control->full)
        tb_log(TB_LOG_WARN, "control.refused", "reason=share_spent uid=%u", (unsigned)cred.uid);
    control->full = true;
    return true;
}

static void control_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct tb_control *control = user;
    uint64_t owner;
    const bool refused = clients_refuse(control) || share_refuse(control, fd, &owner);
    struct client *c = refused ? NULL : tb_calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return;
    }
    c->control = control;
    const struct tb_chan_options options = {.loop = control->loop, .ops = &client_ops, .user = c};
    if (tb_chan_accept(&options, fd, &c->chan) != TB_OK) {
        tb_free(c);
        return;
    }
    c->owner = owner;
    tb_share_take(&control->shares, owner);
    c->next = control->clients;
    control->clients = c;
    if (++control->client_count > control->client_most) control->client_most = control->client_count;
}

enum tb_status tb_control_open(uv_loop_t *loop, const char *path, const struct tb_control_command *commands,
                               void *user, struct tb_control **control_out)
{
    struct tb_endpoint endpoint = {.is_unix = true};
    const size_t bytes = strlen(path) + 1;
    if (bytes > sizeof endpoint.host) return TB_BAD_ARGUMENT;
    memcpy(endpoint.host, path, bytes);
    struct tb_address address;
    enum tb_status s = tb_endpoint_address(&endpoint, &address);
    if (s != TB_OK) return s;
    struct tb_control *control = tb_calloc(1, sizeof *control);
    if (control == NULL) return TB_SITE_NOMEM;
    control->loop = loop;
    control->commands = commands;
    control->user = user;
    TB_ASSERT(tb_share_places(CLIENTS_MAX) == 2 * CLIENTS_MAX);
    tb_share_init(&control->shares, control->places, CLIENTS_MAX);
    s = tb_listen(loop, &address, 0660, control_accept, control, &control->listener);
    if (s != TB_OK) {
        const int error = errno;
        tb_free(control);
        errno = error;
        return s;
    }
    *control_out = control;
    return TB_OK;
}

/* /etc/passwd alone: a directory over the network may take seconds, and the main loop waits for
 * nobody. */
static bool user_name(uint32_t uid, char name_out[TB_NAME_BYTES_MAX + 1])
{
    FILE *f = fopen("/etc/passwd", "re");
    char room[1024];
    struct passwd row = {.pw_uid = 0}, *found = NULL;
    while (f != NULL && fgetpwent_r(f, &row, room, sizeof room, &found) == 0)
        if (row.pw_uid == uid) break;
    if (f != NULL) (void)fclose(f);
    if (found == NULL) return false;
    (void)snprintf(name_out, TB_NAME_BYTES_MAX + 1, "%s", row.pw_name);
    return true;
}

void tb_control_operator(const struct tb_control *control, char who_out[TB_OPERATOR_BYTES])
{
    char name[TB_NAME_BYTES_MAX + 1];
    who_out[0] = '\0';
    if (control == NULL || control->asking == NULL) return;
    const uint32_t uid = tb_chan_peer(control->asking->chan)->identity.uid;
    if (user_name(uid, name))
        (void)snprintf(who_out, TB_OPERATOR_BYTES, "%s (uid %u)", name, uid);
    else
        (void)snprintf(who_out, TB_OPERATOR_BYTES, "uid %u", uid);
}

uint64_t tb_control_ticket(struct tb_control *control)
{
    return ++control->tickets;
}

/* NULL: it is gone. */
static struct client *asked_by(const struct tb_control *control, uint64_t ticket)
{
    TB_ASSERT(ticket > 0 && (control == NULL || ticket <= control->tickets));
    for (struct client *c = control != NULL ? control->clients : NULL; c != NULL; c = c->next)
        if (c->later != NULL && c->ticket == ticket) return c;
    return NULL;
}

static void client_release(struct client *c, enum tb_status status)
{
    json_t *reply = c->later;
    c->later = NULL;
    if (status != TB_OK) {
        json_decref(reply);
        reply = reply_failed(status, "");
    }
    client_reply(c, reply);
    if (c->reply == NULL && !c->closing) client_lines(c); /* what came meanwhile */
}

void tb_control_release(struct tb_control *control, uint64_t ticket, enum tb_status status)
{
    struct client *c = asked_by(control, ticket);
    if (c != NULL) client_release(c, status);
}

/* A client that reads has room for a byte: nothing else is on its way to it. */
void tb_control_release_file(struct tb_control *control, uint64_t ticket, int fd)
{
    struct client *c = asked_by(control, ticket);
    TB_ASSERT(fd >= 0);
    if (c != NULL) client_release(c, tb_chan_send_fds(c->chan, &fd, 1) == TB_OK ? TB_OK : TB_SITE_IO);
}

void tb_control_usage(const struct tb_control *control, struct tb_control_usage *usage_out)
{
    *usage_out = (struct tb_control_usage){.clients = control->client_count,
                                           .most = control->client_most,
                                           .max = CLIENTS_MAX,
                                           .refused = control->refused,
                                           .spent = control->spent};
}

const struct tb_identity *tb_control_asker_at(const struct tb_control *control, uint32_t *cursor)
{
    const struct client *c = control->clients;
    for (uint32_t i = 0; c != NULL && i < *cursor; i++)
        c = c->next;
    if (c == NULL) return NULL;
    ++*cursor;
    return &tb_chan_peer(c->chan)->identity;
}

void tb_control_close(struct tb_control *control)
{
    if (control == NULL) return;
    tb_listener_close(control->listener);
    control->shut = true;
    for (struct client *c = control->clients; c != NULL; c = c->next)
        tb_chan_close(c->chan, TB_SITE_DRAINING);
    control_free_if_idle(control);
}
