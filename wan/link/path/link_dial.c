/* link_dial.c - where a peer is dialled: its name becomes addresses, and these race each
 * other (base/dial_race.h).
 *
 * A name is asked for before each round of dials, when its answer has become old, and when its peer
 * falls silent. A session whose address is in none of the last answers moves to one that is: a
 * fresh connection is dialled there, and the session goes on over it once it is greeted. Until
 * then, and where it fails, the one that works stays. */
#include "wan/link/path/link_dial.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_facts.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_why.h"
#include "wan/link/path/segment_attempt.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/streams/streams_ahead.h"

#define ASK_AGAIN TB_SECONDS(5) /* after a name server did not answer */
#define ASK_LEAST TB_SECONDS(1) /* between two questions, while networks say at once that they lead nowhere */

/* A name with more addresses than an answer holds says others each time: only one that is gone for
 * good is left, and not often. */
#define ELSEWHERE_MIN 2u
#define MOVE_EVERY    TB_SECONDS(30)

struct tb_wire_options tb_links_wire_options(struct tb_links *ls, struct tb_link_conn *c)
{
    const struct tb_wire_options options = {.chan = {.loop = ls->options.loop,
                                                     .tls = ls->options.tls,
                                                     .open_ms = (uint32_t)(LINK_GREET_BY / TB_MS(1))},
                                            .ops = ls->wire_ops,
                                            .user = c,
                                            .frame_bytes_max = TB_LINK_FRAME_BYTES_MAX,
                                            .budget = ls->options.partial};
    return options;
}

/* Nothing came from there: a connection that did not open in time, or was not greeted, or a network
 * that leads nowhere. That is no answer of the peer's, and not waited for like one. */
static void attempt_ended(struct tb_link *l, enum tb_status why, enum tb_chan_reach reach)
{
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {.nowhere = reach == TB_CHAN_NOWHERE};
    const bool unanswered = why == TB_STREAM_IDLE || reach != TB_CHAN_HEARD;
    tb_link_step(l, unanswered ? TB_LINK_UNANSWERED : TB_LINK_FAILED, &ev, &todo);
}

static void give_up(struct tb_link *l, enum tb_status why, enum tb_chan_reach reach)
{
    tb_race_end(&l->path.race);
    attempt_ended(l, why, reach);
}

/* False: not even begun. */
static bool dial_address(struct tb_link *l, const struct tb_address *to, bool racing)
{
    TB_ASSERT(tb_link_can_dial(l)); /* it has an address */
    l->stats.dials++;
    struct tb_link_conn *c = tb_link_conn_new(l->links, l);
    if (c == NULL) return false;
    struct tb_wire_options options = tb_links_wire_options(l->links, c);
    options.chan.expect.identity = l->identity;
    c->racing = racing;
    c->address = *to;
    c->segment_max = tb_link_segment_to_try(l);
    c->path_segment = l->path.segment.bytes_max;
    options.chan.segment_bytes_max = c->segment_max;
    options.chan.source = tb_link_source(l);
    options.chan.dscp = tb_link_tcp_options(l)->dscp;
    tb_address_format(&c->address, c->address_text, sizeof c->address_text);
    if (tb_wire_dial(&options, &c->address, &c->wire) == TB_OK) return true;
    tb_link_conn_free(c);
    return false;
}

/* ---- a race ---- */

static void race_on(struct tb_link *l, tb_time_ns now)
{
    for (uint32_t at; (at = tb_race_due(&l->path.race, now)) != TB_RACE_NONE;) {
        TB_ASSERT(at < l->path.address_count);
        if (dial_address(l, &l->path.addresses[at], true)) continue;
        l->stats.dials_failed++;
        if (!tb_race_failed(&l->path.race, now)) continue;
        give_up(l, TB_SITE_NOMEM, TB_CHAN_HEARD);
        return;
    }
}

/* The address of the last session is tried first. */
static void good_first(struct tb_link *l)
{
    for (uint32_t i = 1; i < l->path.address_count; i++) {
        if (!tb_link_same_address(&l->path.addresses[i], &l->path.good)) continue;
        memmove(&l->path.addresses[1], &l->path.addresses[0], i * sizeof l->path.addresses[0]);
        l->path.addresses[0] = l->path.good;
        return;
    }
}

static void race_begin(struct tb_link *l)
{
    TB_ASSERT(l->path.address_count > 0 && !l->path.race.on);
    const tb_time_ns now = tb_clock_now();
    good_first(l);
    l->path.address_at = 0;
    l->path.race_reach = TB_CHAN_NOWHERE;
    tb_race_begin(&l->path.race, l->path.address_count, now);
    race_on(l, now);
}

/* A dial that opens later would replace the session, and all its streams, for nothing. A
 * connection that is open already stays: the peer may have made it the session. */
static void dials_end(struct tb_link *l)
{
    for (struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next) {
        if (c->link != l || !c->dialled || c->identity.kind != TB_IDENTITY_NONE || c->ended) continue;
        if (c->probe) continue;
        c->outrun = true;
        tb_link_conn_close(c, TB_CANCELLED);
    }
}

void tb_link_race_end(struct tb_link *l)
{
    tb_race_end(&l->path.race);
    dials_end(l);
}

void tb_link_dial_won(struct tb_link_conn *won)
{
    TB_ASSERT(won->dialled && won->link != NULL); /* an attempt of ours */
    struct tb_link *l = won->link;
    l->path.good = won->address;
    tb_link_segment_won(won);
    dials_end(l);
    if (!l->path.race.on) return;
    if (won->racing)
        tb_race_won(&l->path.race);
    else
        tb_race_end(
            &l->path.race); /* its addresses are closed: should this one fail, the name is asked again */
}

void tb_link_dial_ended(struct tb_link *l, bool racing, enum tb_status why, enum tb_chan_reach reach)
{
    const tb_time_ns now = tb_clock_now();
    l->stats.dials_failed++;
    if (reach > l->path.race_reach)
        l->path.race_reach = reach; /* one of its addresses that answers is an answer */
    if (!racing || !l->path.race.on) {
        attempt_ended(l, why, reach);
    } else if (why == TB_PEER_DUPLICATE || tb_race_failed(&l->path.race, now)) {
        give_up(l, why, l->path.race_reach); /* the peer is there and says no, or no address is left */
    } else {
        race_on(l, now);
    }
}

/* ---- names ---- */

struct tb_link_resolving {
    struct tb_link *link; /* NULL: nobody waits for the answer any more */
};

void tb_link_forget_resolving(struct tb_link *l)
{
    if (l->path.resolving != NULL) l->path.resolving->link = NULL;
    l->path.resolving = NULL;
}

void tb_link_renew(struct tb_link *l, tb_time_ns now)
{
    if (tb_link_life_state(l) != TB_LINK_UP || !tb_link_control(l)->dialled || l->path.race.on ||
        l->path.address_count == 0)
        return;
    l->path.renewed_at = now;
    race_begin(l);
}

static bool is_elsewhere(const struct tb_link *l)
{
    if (!tb_link_is_up(l) || !tb_link_control(l)->dialled) return false;
    for (uint32_t i = 0; i < l->path.address_count; i++)
        if (tb_link_same_address(&l->path.addresses[i], &tb_link_control(l)->address)) return false;
    return true;
}

/* The session's address is none of the name's any more. */
static void follow_the_name(struct tb_link *l, tb_time_ns now)
{
    l->path.elsewhere = is_elsewhere(l) ? l->path.elsewhere + 1 : 0;
    if (l->path.elsewhere == 1)
        tb_link_log(l, TB_LOG_INFO, "link.address_moved", TB_OK, tb_link_control(l)->address_text);
    if (l->path.elsewhere < ELSEWHERE_MIN) return;
    if (l->path.renewed_at == 0 || tb_time_since(l->path.renewed_at, now) >= MOVE_EVERY)
        tb_link_renew(l, now);
}

void tb_link_take_addresses(struct tb_link *l, const struct tb_address *addresses, uint32_t count,
                            tb_time_ns now)
{
    TB_ASSERT(!l->path.race.on); /* a race counts addresses */
    const uint32_t before = l->path.address_count;
    const uint32_t after = count < TB_ADDRESSES_MAX ? count : TB_ADDRESSES_MAX;
    const bool same = before == after && memcmp(l->path.addresses, addresses, after * sizeof *addresses) == 0;
    if (!same) {
        l->path.address_count = after;
        l->path.address_at = 0;
        memcpy(l->path.addresses, addresses, after * sizeof *addresses);
    }
    follow_the_name(l, now);
    TB_ASSERT(l->path.address_count <= TB_ADDRESSES_MAX);
}

static void on_resolved(void *user, enum tb_status status, const struct tb_address *addresses, uint32_t count,
                        uint32_t ttl_s)
{
    struct tb_link_resolving *r = user;
    struct tb_link *l = r->link;
    TB_ASSERT(l == NULL || l->path.resolving == r); /* one query at a time */
    tb_free(r);
    if (l == NULL) return;
    l->path.resolving = NULL;
    const bool dialling = tb_link_life_state(l) == TB_LINK_DIALLING && !l->path.race.on;
    const bool good = status == TB_OK && count > 0;
    l->path.fresh_until = tb_clock_now() + (good ? TB_SECONDS(ttl_s) : ASK_AGAIN);
    if (good && !l->path.race.on) tb_link_take_addresses(l, addresses, count, tb_clock_now());
    if (!dialling) return;
    if (good) {
        race_begin(l);
        return;
    }
    tb_link_log(l, tb_link_attempts(l) == 0 ? TB_LOG_WARN : TB_LOG_DEBUG, "link.resolve_failed", status,
                l->path.endpoint.host);
    tb_link_said_unresolved(l, status);
    l->stats.dials_failed++;
    give_up(l, TB_PEER_UNREACHABLE, TB_CHAN_HEARD);
}

static bool resolve(struct tb_link *l)
{
    TB_ASSERT(l->path.resolving == NULL);
    struct tb_link_resolving *r = tb_malloc(sizeof *r);
    if (r == NULL) return false;
    r->link = l;
    l->path.resolving = r;
    l->path.asked_at = tb_clock_now();
    tb_resolve(l->links->options.resolver, &l->path.endpoint, on_resolved, r);
    return true;
}

void tb_link_names_doubt(struct tb_link *l)
{
    if (l->path.fresh_until != TB_TIME_NEVER) l->path.fresh_until = 0;
}

/* ---- dialling ---- */

static bool is_number(struct tb_link *l)
{
    struct tb_address numeric;
    if (tb_endpoint_address(&l->path.endpoint, &numeric) != TB_OK) return false;
    l->path.addresses[0] = numeric;
    l->path.address_count = 1;
    l->path.fresh_until = TB_TIME_NEVER;
    return true;
}

/* A path that opens again is mostly found by a SYN that TCP repeats, of a dial of seconds ago: what
 * counts is when that was answered. */
static void note_connected(const struct tb_link *l, tb_time_ns now)
{
    for (struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next)
        if (c->link == l && c->dialled && c->connected_at == 0 && !c->ended && c->wire != NULL &&
            tb_chan_connected(tb_wire_chan(c->wire)))
            c->connected_at = now;
}

/* True: the dial still makes progress. It waits for TLS and the peer, or for HELLO once it is
 * open. A dial that has taken as long as a silent session counts as silent. So does one with less
 * time than that left. */
static bool moves(const struct tb_link_conn *c, tb_time_ns now)
{
    const tb_time_ns silent = tb_link_silent_after(c->link);
    if (c->opened_at != 0) return tb_time_since(c->opened_at, now) < silent;
    if (c->connected_at == 0 || c->greet_by < tb_time_add(c->connected_at, silent)) return false;
    return tb_time_since(c->connected_at, now) < silent;
}

/* One of the last attempts that has come as far as TCP: another attempt would not be sooner. NULL:
 * none. */
static struct tb_link_conn *answered(const struct tb_link *l)
{
    const tb_time_ns now = tb_clock_now();
    for (struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next)
        if (c->link == l && c->dialled && !c->is_session && !c->ended && moves(c, now)) return c;
    return NULL;
}

/* A fresh dial. Where as many are under way as may be, each of them still asks. */
static void dial_next(struct tb_link *l)
{
    const uint32_t count = l->path.address_count;
    if (count == 0 || tb_link_conn_count(l) >= LINK_CONNS_PER_PEER || answered(l) != NULL) return;
    TB_ASSERT(l->path.address_count <= TB_ADDRESSES_MAX);
    if (dial_address(l, &l->path.addresses[l->path.address_at++ % count], false)) return;
    tb_link_dial_ended(l, false, TB_SITE_NOMEM, TB_CHAN_HEARD);
}

/* And since then nobody but a network has said no. */
static bool asked_lately(const struct tb_link *l)
{
    if (l->path.asked_at == 0 || l->path.resolving != NULL || l->path.race_reach == TB_CHAN_HEARD)
        return false;
    return tb_time_since(l->path.asked_at, tb_clock_now()) < ASK_LEAST;
}

/* A fresh dial to a peer that says nothing goes to an address that is known, each time to the next
 * one: waiting for a name server would be silence too. Otherwise the name is asked for first, since
 * the peer may have moved. */
void tb_link_dial(struct tb_link *l)
{
    const bool raced = l->path.race.on && l->path.race.next == l->path.race.count;
    if ((tb_link_life_state(l) == TB_LINK_SILENT && l->path.address_count > 0) || raced) {
        dial_next(l);
    } else if (l->path.race.on) {
        return; /* it has addresses of its own to dial */
    } else if (is_number(l) || (l->path.address_count > 0 && asked_lately(l))) {
        race_begin(l);
    } else if (l->path.resolving == NULL && !resolve(l)) {
        l->stats.dials_failed++;
        give_up(l, TB_SITE_NOMEM, TB_CHAN_HEARD);
    }
}

/* A peer that was here before, and whose machine answers again: its data streams need not wait for
 * HELLO. Two round trips less until chunks move again. */
static void dial_ahead(struct tb_link *l)
{
    const bool seeks = tb_link_life_state(l) == TB_LINK_SILENT || tb_link_life_state(l) == TB_LINK_DIALLING;
    struct tb_link_conn *c = seeks && tb_link_session_seq(l) > 0 ? answered(l) : NULL;
    if (c == NULL) {
        tb_link_streams_ahead_end(l);
    } else if (!tb_link_streams_are_ahead(l) && !c->ahead) {
        c->ahead = true;
        tb_link_streams_ahead(l, &c->address);
    }
}

void tb_link_dial_tick(struct tb_link *l, tb_time_ns now)
{
    race_on(l, now);
    note_connected(l, now);
    dial_ahead(l);
    if (!l->path.has_address || l->path.fresh_until == TB_TIME_NEVER || now < l->path.fresh_until) return;
    if (tb_link_is_up(l) && l->path.address_count > 0 && l->path.resolving == NULL) (void)resolve(l);
}
