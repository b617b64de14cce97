/* door.c - the owner's end of hops: where it listens, who may come in, and whose
 * export is taken back.
 *
 * A peer that greets late is dropped. Where connections without a token have all places, the oldest
 * of the party with most of them gives way to another party. door_requests.c judges a peer's
 * requests, door_answers.c answers them, and door_ends.c lets it go. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "base/networks.h"
#include "intra/fabric/door.h"
#include "intra/fabric/door_inside.h"
#include "intra/fabric/fabric_queue.h"

#define GREET_WITHIN TB_SECONDS(5)

static void on_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    (void)c, (void)user, (void)peer;
}

static const struct tb_chan_ops peer_ops = {.on_open = on_open,
                                            .on_readable = tb_door_on_readable,
                                            .on_writable = tb_door_on_writable,
                                            .on_closed = tb_door_on_closed};

/* ---- strangers at a full door ---- */

struct party {
    uint64_t key;
    bool tcp;
};

static struct party party_of(int fd, const struct tb_address *from, bool tcp)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    if (tcp) return (struct party){tb_network_key(&from->any), true};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0) return (struct party){0, false};
    return (struct party){(uint64_t)cred.uid + 1, false};
}

static bool is_of(const struct tb_door_peer *p, struct party party)
{
    return p->tcp == party.tcp && p->party == party.key;
}

struct crowd {
    struct tb_door_peer *oldest;
    uint32_t count;
};

/* The crowd of that stranger, behind the others if it is the first of its party. */
static struct crowd *crowd_of(struct crowd *crowds, uint32_t *count, struct tb_door_peer *p)
{
    uint32_t at = 0;
    while (at < *count && !is_of(crowds[at].oldest, (struct party){p->party, p->tcp}))
        at++;
    if (at == *count) crowds[(*count)++] = (struct crowd){p, 0};
    return &crowds[at];
}

/* The oldest stranger of the party that has most of them, if the newcomer's has fewer all the same
 * when it has come in. NULL: nobody gives way. */
static struct tb_door_peer *who_gives_way(const struct tb_door *door, struct party newcomer)
{
    struct crowd crowds[TB_DOOR_STRANGERS_MAX], most = {NULL, 0};
    struct tb_door_peer *p;
    uint32_t count = 0, own = 0;
    LIST_FOREACH(p, &door->peers, link) /* the newest first */
    {
        if (p->gone || p->state != TB_DOOR_GREETING) continue;
        struct crowd *c = crowd_of(crowds, &count, p);
        c->oldest = p;
        c->count++;
        own += is_of(p, newcomer);
    }
    for (uint32_t i = 0; i < count; i++)
        if (crowds[i].count > most.count) most = crowds[i];
    return most.count > own + 1 ? most.oldest : NULL;
}

/* P7: a party that fills the door with connections that show no token keeps out itself alone. */
static bool make_way(struct tb_door *door, struct party newcomer)
{
    if (door->stranger_count < TB_DOOR_STRANGERS_MAX) return true;
    struct tb_door_peer *p = who_gives_way(door, newcomer);
    if (p == NULL) return false;
    atomic_fetch_add_explicit(&door->fabric->readers_refused, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&door->fabric->readers_spent, 1, memory_order_release);
    tb_door_log_refused(p, TB_SITE_NOMEM, "shows no token, and others come");
    p->state = TB_DOOR_ENDING;
    door->stranger_count--;
    tb_door_cut_off(p, TB_SITE_NOMEM);
    return true;
}

/* ---- coming in ---- */

/* A host that dies without a word must not stay a reader: its export could not be
 * closed without cutting. */
static void watch_for_death(int fd)
{
    const int on = 1, idle_s = 10, every_s = 3, tries = 3;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

/* A unix socket's buffer does not tune itself; the kernel takes of this what its limit allows. */
static void make_room(int fd)
{
    const int bytes = 4 << 20;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

const uint32_t tb_door_readers_max = TB_DOOR_PEERS_MAX;

/* P10: told once, as a reader that is turned away tries again. */
static void turn_away(struct tb_door *door, bool tcp)
{
    atomic_fetch_add_explicit(&door->fabric->readers_refused, 1, memory_order_relaxed);
    if (!door->full_told)
        tb_log(TB_LOG_WARN, "door.refused", "door=%s status=site_nomem peers=%u strangers=%u reason=full",
               tcp ? "tcp" : "shm", door->peer_count, door->stranger_count);
    door->full_told = true;
}

static void come_in(struct tb_door *door, int fd, struct party party)
{
    const bool tcp = party.tcp;
    struct tb_door_peer *p = NULL;
    if (door->closed || door->peer_count >= TB_DOOR_PEERS_MAX || !make_way(door, party)) goto undo_fd;
    p = tb_calloc(1, sizeof *p);
    if (p == NULL) goto undo_fd;
    p->door = door;
    p->tcp = tcp;
    p->party = party.key;
    p->memfd_due = -1;
    p->pace.ready = tb_door_on_paced;
    p->deadline = tb_clock_now() + GREET_WITHIN;
    if (tcp)
        watch_for_death(fd);
    else
        make_room(fd);
    const struct tb_chan_options options = {
        .loop = &door->fabric->loop,
        .tls = tcp && !door->fabric->trusted ? door->fabric->tls : NULL,
        .expect = {.any_fingerprint = true, .bulk_heard = true, .no_kernel = true},
        .ops = &peer_ops,
        .user = p,
        .open_ms = 5000};
    if (tb_chan_accept(&options, fd, &p->chan) != TB_OK) { /* took fd */
        tb_free(p);
        tb_log(TB_LOG_WARN, "door.refused", "door=%s status=site_nomem reason=no_channel",
               tcp ? "tcp" : "shm");
        return;
    }
    LIST_INSERT_HEAD(&door->peers, p, link);
    door->stranger_count++;
    tb_door_count(door, 1);
    tb_fabric_wake_at(door->fabric, p->deadline);
    return;

undo_fd:
    close(fd);
    if (!door->closed) turn_away(door, tcp);
}

static void on_tcp(void *user, int fd, const struct tb_address *from)
{
    come_in(user, fd, party_of(fd, from, true));
}

static void on_local(void *user, int fd, const struct tb_address *from)
{
    come_in(user, fd, party_of(fd, from, false));
}

static enum tb_status listen_at(struct tb_door *door, const char *text, tb_accept_fn fn,
                                struct tb_listener **listener_out)
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    enum tb_status status = tb_endpoint_parse(text, &endpoint);
    if (status == TB_OK) status = tb_endpoint_address(&endpoint, &address);
    if (status == TB_OK) status = tb_listen(&door->fabric->loop, &address, 0, fn, door, listener_out);
    return status;
}

static enum tb_status listen_local(struct tb_door *door)
{
    struct tb_id id;
    char hex[TB_HEX_CHARS], text[128];
    struct tb_fabric_endpoint *e = &door->fabric->endpoint;
    tb_random_bytes(id.bytes, sizeof id.bytes);
    tb_id_format(&id, hex);
    snprintf(e->shm_door, sizeof e->shm_door, "tombolo-%s", hex);
    snprintf(text, sizeof text, "unix:@%s", e->shm_door);
    return listen_at(door, text, on_local, &door->local);
}

static enum tb_status listen_tcp(struct tb_door *door, const char *at)
{
    const enum tb_status status = listen_at(door, at, on_tcp, &door->tcp);
    if (status != TB_OK) return status;
    const struct tb_address address = tb_listener_address(door->tcp);
    tb_address_format(&address, door->fabric->endpoint.tcp, sizeof door->fabric->endpoint.tcp);
    return TB_OK;
}

enum tb_status tb_door_open(struct tb_fabric *f, const char *tcp_address, struct tb_door **door_out)
{
    struct tb_door *door = tb_calloc(1, sizeof *door);
    if (door == NULL) return TB_SITE_NOMEM;
    *door_out = door; /* the caller frees it after the loop has turned, whatever we answer */
    door->fabric = f;
    LIST_INIT(&door->peers);
    tb_random_bytes(door->nonce, sizeof door->nonce);
    enum tb_status status = listen_local(door);
    if (status == TB_OK && tcp_address != NULL) status = listen_tcp(door, tcp_address);
    const int error = errno;
    if (status != TB_OK) tb_door_close(door);
    errno = error; /* of listening */
    return status;
}

void tb_door_close(struct tb_door *door)
{
    door->closed = true;
    if (door->tcp != NULL) tb_listener_close(door->tcp);
    if (door->local != NULL) tb_listener_close(door->local);
    door->tcp = door->local = NULL;
    struct tb_door_peer *p;
    LIST_FOREACH(p, &door->peers, link)
    if (p->tray != NULL && !p->lingers)
        tb_door_end(p, TB_SITE_DRAINING); /* its tray is freed when it has closed it */
    else
        tb_door_cut_off(p, TB_SITE_DRAINING);
}

bool tb_door_quiet(const struct tb_door *door)
{
    return LIST_EMPTY(&door->peers);
}

void tb_door_free(struct tb_door *door)
{
    tb_free(door);
}

static bool is_one_of(uint64_t owner, const uint64_t *owners, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (owners[i] == owner) return true;
    return false;
}

void tb_door_owners_leave(struct tb_door *door, const uint64_t *owners, uint32_t count)
{
    struct tb_door_peer *p;
    LIST_FOREACH(p, &door->peers, link)
    if (p->owner != 0 && is_one_of(p->owner, owners, count)) tb_door_end(p, TB_PEER_REVOKED);
}

void tb_door_revoke(struct tb_door *door, const struct tb_export *export)
{
    struct tb_door_peer *p;
    LIST_FOREACH(p, &door->peers, link)
    if (p->export == export) tb_door_end(p, TB_PEER_REVOKED);
}

tb_time_ns tb_door_poll(struct tb_door *door, tb_time_ns now)
{
    tb_time_ns next = TB_TIME_NEVER;
    struct tb_door_peer *p;
    LIST_FOREACH(p, &door->peers, link)
    {
        if (p->gone || p->state == TB_DOOR_SERVING) continue;
        if (p->deadline > now) {
            next = tb_time_min(next, p->deadline);
            continue;
        }
        if (p->state == TB_DOOR_GREETING) tb_door_log_refused(p, TB_STREAM_IDLE, "did not greet in time");
        if (p->tray != NULL && !door->closed)
            tb_door_linger(p);
        else
            tb_door_cut_off(p, TB_STREAM_IDLE);
    }
    return next;
}
