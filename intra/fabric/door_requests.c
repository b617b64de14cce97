/* door_requests.c - what a reader at the door says: HELLO with its token, and what it asks for
 * then.
 *
 * It is believed nothing: a request has one size, READs are bounded in number and size and checked
 * against the export before a byte is touched. */
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "intra/fabric/door_inside.h"
#include "intra/fabric/lent_memory.h"

static void greet(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    TB_ASSERT(p->state == TB_DOOR_GREETING && p->export == NULL);
    struct tb_fabric *f = p->door->fabric;
    if (r->type != TB_HOP_REQUEST_HELLO || r->a != TB_HOP_WIRE_MAGIC || r->flags != 0 || r->zero != 0) {
        tb_door_log_refused(p, TB_PEER_GARBLED, "does not greet like a reader");
        tb_door_cut_off(p, TB_PEER_GARBLED);
        return;
    }
    if (r->buffer != TB_HOP_WIRE_VERSION) {
        tb_door_refuse(p, TB_PEER_PROTOCOL, "speaks another version");
        return;
    }
    const bool known = p->tcp && !f->trusted;
    const struct tb_bearer bearer = {.token = &r->token,
                                     .print = known ? &tb_chan_peer(p->chan)->fingerprint : NULL};
    pthread_mutex_lock(&f->lock);
    const enum tb_status status =
        tb_exports_enter(&f->exports, r->b, &bearer, tb_clock_now(), &p->export, &p->owner);
    const uint32_t depth = status == TB_OK ? p->export->depth : 0;
    const bool denied = tb_exports_is_denial(&f->exports, &r->token, status);
    pthread_mutex_unlock(&f->lock);
    if (status != TB_OK) {
        if (denied) atomic_fetch_add_explicit(&f->readers_denied, 1, memory_order_relaxed);
        tb_door_refuse(p, status, "the token does not open the export");
        return;
    }
    if (tb_door_share_spent(p)) {
        tb_door_refuse(p, TB_SITE_NOMEM, "its identity has its share of the readers");
        return;
    }
    p->door->stranger_count--;
    p->state = TB_DOOR_SERVING;
    p->deadline = TB_TIME_NEVER;
    struct tb_hop_answer answer = {.type = TB_HOP_ANSWER_WELCOME,
                                   .kind =
                                       (p->tcp ? f->verbs != NULL : p->export->origin.memory != NULL) ? 1 : 0,
                                   .buffer = p->export->has_shelf ? p->export->shelf.buffer + 1 : 0,
                                   .b = p->export->shelf.offset,
                                   .bytes = depth,
                                   .a = (uint64_t)(uintptr_t)p->door->nonce};
    memcpy(answer.id.bytes, p->door->nonce, sizeof p->door->nonce);
    tb_door_put_answer(p, &answer);
}

static void accept_read(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    const bool words = (r->flags & TB_HOP_READ_WORDS) != 0;
    if (p->run_count == TB_HOP_READS_MAX) {
        tb_door_refuse(p, TB_PEER_GARBLED, "more reads than allowed");
        return;
    }
    const uint32_t bytes_max = words ? TB_HOP_WORDS_BYTES_MAX : TB_HOP_READ_BYTES_MAX;
    if (r->bytes == 0 || r->bytes > bytes_max || (r->flags & ~TB_HOP_READ_WORDS) != 0) {
        tb_door_refuse(p, TB_PEER_GARBLED, "a read of a forbidden size");
        return;
    }
    const uint8_t *at = tb_export_at(p->export, r->buffer, r->a, r->bytes);
    if (at == NULL || (words && (((uintptr_t)at | r->bytes) & 7u) != 0)) {
        tb_door_refuse(p, TB_PEER_GARBLED, "a read outside the export");
        return;
    }
    p->runs[(p->run_first + p->run_count++) % TB_HOP_READS_MAX] =
        (struct tb_door_run){.at = at, .bytes = r->bytes, .words = words};
    p->run_bytes += r->bytes;
}

static void accept_attach(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    const bool may = !p->tcp || p->verbs_asked;
    if (!may || r->buffer >= p->export->buffer_count || p->attach_count == TB_DOOR_ATTACHES_MAX) {
        tb_door_refuse(p, TB_PEER_GARBLED, "a buffer that cannot be attached");
        return;
    }
    p->attaches[(p->attach_first + p->attach_count++) % TB_DOOR_ATTACHES_MAX] = r->buffer;
}

/* Again, where its path failed or rested: what it had is of no use to it any more. */
static void accept_verbs(struct tb_door_peer *p)
{
    if (!p->tcp || p->door->fabric->verbs == NULL || p->verbs_due || p->verbs_again) {
        tb_door_refuse(p, TB_PEER_GARBLED, "asks for RDMA where there is none, or before it was answered");
        return;
    }
    p->verbs_asked = true;
    if (p->guest == NULL) {
        tb_door_offer_verbs(p);
        return;
    }
    p->verbs_again = true;
    tb_verbs_guest_end(p->guest); /* on_guest_gone goes on */
}

static void accept_tray(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->tcp || p->export->origin.memory == NULL || p->tray_asked) {
        tb_door_refuse(p, TB_PEER_GARBLED, "asks for a tray where there is none, or twice");
        return;
    }
    p->tray_asked = true;
    const enum tb_status status =
        tb_door_tray_open(p->door->fabric, p->export, r->a, &tb_door_peer_tray_events, p, &p->tray);
    if (status == TB_BAD_ARGUMENT)
        tb_door_refuse(p, TB_PEER_GARBLED, "asks for a tray of a forbidden size");
    else
        p->tray_refused = status != TB_OK;
}

static void accept_fill(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->tray == NULL || !tb_door_tray_fill(p->tray, r))
        tb_door_refuse(p, TB_PEER_GARBLED, "a fill outside the export or its tray");
}

static void accept_lend(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->tcp || p->lend_asked || r->a == 0 || r->a > TB_LENT_BYTES_MAX) {
        tb_door_refuse(p, TB_PEER_GARBLED, "lends memory twice, or of a forbidden size");
        return;
    }
    p->lend_asked = p->lend_due = true;
    p->lend_bytes = r->a;
}

/* The descriptor behind LEND. */
static enum tb_status take_lent(struct tb_door_peer *p)
{
    int fd = -1;
    uint32_t count = 0;
    const enum tb_status status = tb_chan_recv_fds(p->chan, &fd, 1, &count);
    if (status == TB_PEER_GARBLED) tb_door_log_refused(p, status, "lends no descriptor");
    if (status != TB_OK) return status;
    TB_ASSERT(count == 1 && p->lend_due && p->lent == NULL);
    p->lend_due = false;
    if (p->state == TB_DOOR_ENDING) {
        close(fd);
        return TB_OK;
    }
    p->lend_refused = tb_door_lent_open(p->door->fabric, fd, p->lend_bytes, &tb_door_peer_lent_events, p,
                                        &p->lent) != TB_OK;
    return TB_OK;
}

static void accept_put(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    const bool sized = r->bytes > 0 && r->bytes <= TB_HOP_READ_BYTES_MAX && r->flags == 0;
    const uint8_t *at = sized ? tb_export_at(p->export, r->buffer, r->a, r->bytes) : NULL;
    if (at == NULL || p->lent == NULL || !tb_door_lent_put(p->lent, at, r))
        tb_door_refuse(p, TB_PEER_GARBLED, "a put outside the export or what it lends");
}

static void accept_ping(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->ping_count == TB_DOOR_PINGS_MAX) {
        tb_door_refuse(p, TB_PEER_GARBLED, "more pings than allowed");
        return;
    }
    p->pings[p->ping_count++] = r->a;
}

static void accept_request(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->state == TB_DOOR_ENDING) return; /* was on its way */
    TB_ASSERT(p->state == TB_DOOR_GREETING || p->export != NULL);
    if (p->state == TB_DOOR_GREETING)
        greet(p, r);
    else if (r->type == TB_HOP_REQUEST_READ)
        accept_read(p, r);
    else if (r->type == TB_HOP_REQUEST_ATTACH)
        accept_attach(p, r);
    else if (r->type == TB_HOP_REQUEST_PING)
        accept_ping(p, r);
    else if (r->type == TB_HOP_REQUEST_VERBS)
        accept_verbs(p);
    else if (r->type == TB_HOP_REQUEST_TRAY)
        accept_tray(p, r);
    else if (r->type == TB_HOP_REQUEST_FILL)
        accept_fill(p, r);
    else if (r->type == TB_HOP_REQUEST_LEND)
        accept_lend(p, r);
    else if (r->type == TB_HOP_REQUEST_PUT)
        accept_put(p, r);
    else
        tb_door_refuse(p, TB_PEER_GARBLED, "an unknown request");
}

static void take_request(struct tb_door_peer *p)
{
    struct tb_reader r;
    struct tb_hop_request request;
    tb_reader_init(&r, p->in, sizeof p->in);
    p->in_used = 0;
    const enum tb_status status = tb_hop_request_decode(&r, &request);
    TB_ASSERT(status == TB_OK); /* every field is a number: all 48 bytes are a request */
    accept_request(p, &request);
}

static enum tb_status take_some(struct tb_door_peer *p)
{
    size_t got = 0;
    if (p->lend_due) return take_lent(p);
    const enum tb_status status = tb_chan_read(p->chan, p->in + p->in_used, sizeof p->in - p->in_used, &got);
    if (status != TB_OK) return status;
    p->in_used += (uint32_t)got;
    if (p->in_used == sizeof p->in) take_request(p);
    return TB_OK;
}

void tb_door_on_readable(struct tb_chan *c, void *user)
{
    struct tb_door_peer *p = user;
    for (uint32_t i = 0; i < 2 * TB_HOP_READS_MAX && !p->gone; i++) {
        const enum tb_status status = take_some(p);
        if (status == TB_AGAIN) break;
        if (status != TB_OK) {
            p->gone = true; /* the chan closes itself */
            return;
        }
    }
    if (!p->gone && !p->lingers && !p->pace.waiting) tb_chan_want_write(c, true);
}
