/* link_streams.c - the data streams of a link, as the main loop sees them: dialled by the side that
 * dialled the session, bound to it by its id, one number each, and spread over the stream loops. */
#include "wan/link/streams/link_streams.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/link_tune.h"
#include "wan/link/streams/stream_numbers.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/streams/streams_ahead.h"
#include "wan/link/traffic/link_landings.h"
#include "wan/link/traffic/link_send.h"
#include "wan/link/traffic/link_traffic_turn.h"
#include "wan/stream/stream_life.h"

void tb_link_streams_end_old(struct tb_link *l)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        struct tb_stream *s = l->traffic.streams.slots[i];
        if (s == NULL || atomic_load(&s->ending)) continue;
        if (!tb_link_is_up(l) || s->plan.session_seq != tb_link_session_seq(l)) tb_link_stream_end(s);
    }
}

/* ---- ours ---- */

static bool dial_one(struct tb_link *l)
{
    TB_ASSERT(tb_link_is_up(l) && tb_link_control(l)->dialled);
    const int slot = tb_link_stream_free_slot(l);
    if (slot < 0) return false;
    struct tb_stream_plan plan = tb_link_stream_dial_plan(l, (uint32_t)slot, &tb_link_control(l)->address);
    plan.number = ++l->traffic.streams.number;
    struct tb_stream *s = tb_stream_new(&plan);
    if (s == NULL) return false;
    TB_ASSERT(l->traffic.streams.slots[slot] == NULL);
    l->traffic.streams.slots[slot] = s;
    tb_links_stream_to_loop(l->links, s);
    return true;
}

static void dial_missing(struct tb_link *l, tb_time_ns now)
{
    if (!tb_link_control(l)->dialled || now < l->traffic.streams.retry_at) return;
    uint32_t count = tb_link_streams_fresh(l);
    while (count < tb_link_streams_wanted(l) && dial_one(l))
        count++;
}

/* ---- the peer's ---- */

static bool number_is_gone(const struct tb_link *l, uint32_t number)
{
    for (uint32_t i = 0; i < LINK_GONE_MAX; i++)
        if (l->traffic.streams.gone_numbers[i] == number) return true;
    return false;
}

static bool number_is_used(const struct tb_link *l, uint32_t number)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const struct tb_stream *s = l->traffic.streams.slots[i];
        if (s != NULL && s->plan.session_seq == tb_link_session_seq(l) && s->plan.number == number)
            return true;
    }
    return false;
}

/* The connection has left the main loop's hands, or was lost on the way. */
static void on_detached(void *user, struct tb_chan *chan)
{
    TB_ASSERT(((struct tb_link_conn *)user)->binding != NULL);
    struct tb_link_conn *c = user;
    struct tb_link *l = c->link;
    struct tb_stream *s = c->binding;
    const bool welcome =
        chan != NULL && !atomic_load(&s->ending) && c->binding_session == tb_link_session_seq(l);
    tb_link_conn_free(c);
    if (welcome) {
        s->plan.chan = chan;
        tb_links_stream_to_loop(l->links, s);
        return;
    }
    if (chan != NULL) tb_chan_discard(chan);
    tb_stream_lost(s, TB_STREAM_CLOSED);
    uv_async_send(&l->links->wake);
}

enum tb_status tb_links_on_bind(struct tb_link_conn *c, struct tb_wire_frame *f)
{
    struct tb_frame_bind m;
    struct tb_link *l = c->link;
    const enum tb_status status = tb_frame_bind_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    const struct tb_id session = tb_link_session_id(l);
    /* A session that ended meanwhile is no mistake; the stream just comes too late. */
    if (!tb_link_is_up(l) || tb_link_control(l)->dialled || !tb_id_equal(&m.session, &session))
        return TB_PEER_TOKEN;
    if (m.stream == 0 || number_is_used(l, m.stream)) return TB_PEER_GARBLED;
    if (number_is_gone(l, m.stream)) return TB_PEER_TOKEN;
    const int slot = tb_link_stream_free_slot(l);
    if (slot < 0) return TB_PEER_GARBLED;
    const struct tb_stream_plan plan = tb_link_stream_plan(l, (uint32_t)slot, m.stream);
    struct tb_stream *s = tb_stream_new(&plan);
    if (s == NULL) return TB_SITE_NOMEM;
    TB_ASSERT(l->traffic.streams.slots[slot] == NULL && c->binding == NULL);
    l->traffic.streams.slots[slot] = s;
    c->binding = s;
    c->binding_session = tb_link_session_seq(l);
    tb_wire_detach(c->wire, on_detached, c);
    return TB_OK;
}

/* ---- ends ---- */

static struct tb_stream *by_number(const struct tb_link *l, uint32_t number)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        struct tb_stream *s = l->traffic.streams.slots[i];
        if (s != NULL && s->plan.session_seq == tb_link_session_seq(l) && s->plan.number == number) return s;
    }
    return NULL;
}

enum tb_status tb_link_on_stream_gone(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_stream_gone m;
    const enum tb_status status = tb_frame_stream_gone_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    l->traffic.streams.gone_numbers[l->traffic.streams.gone_at++ % LINK_GONE_MAX] = m.stream;
    struct tb_stream *s = by_number(l, m.stream);
    if (s == NULL) return TB_OK;
    const bool legal = tb_stream_farewell_step(&s->farewell, TB_STREAM_WORD_HEAR);
    TB_ASSERT(legal);
    tb_link_stream_end(s);
    return TB_OK;
}

static void forget_stream(struct tb_link *l, uint32_t slot)
{
    TB_ASSERT(l->traffic.streams.slots[slot] != NULL);
    tb_link_stream_add_stats(&l->stats, l->traffic.streams.slots[slot]);
    tb_stream_free(l->traffic.streams.slots[slot]);
    l->traffic.streams.slots[slot] = NULL;
}

/* A stream of this session is gone here. The end that sees it first says so. Chunks that were on
 * it are sent again once both ends are closed and the peer has told which arrived. */
static void tell_gone(struct tb_link *l, struct tb_stream *s, tb_time_ns now)
{
    const enum tb_status why = (enum tb_status)atomic_load(&s->why);
    const bool legal = tb_stream_farewell_step(&s->farewell, TB_STREAM_WORD_TELL);
    TB_ASSERT(legal);
    const bool heard = tb_stream_farewell_heard(s->farewell);
    tb_link_take_notes(l);
    if (!tb_link_is_up(l)) return;
    tb_link_tell_held(l, now);
    LINK_SEND(l, TB_FRAME_STREAM_GONE, tb_frame_stream_gone, LINK_SMALL, .stream = s->plan.number);
    if (heard && why == TB_CANCELLED)
        return; /* the peer closed what is not needed, or lost it and counts it */
    l->stats.streams_lost++;
    const struct tb_log_party before = tb_log_party_set((struct tb_log_party){.identity = &l->identity});
    if (!heard && why != TB_CANCELLED)
        tb_log(TB_LOG_WARN, "stream.lost", "peer=%s stream=%u status=%s", l->label.text, s->plan.number,
               tb_status_name(why));
    (void)tb_log_party_set(before);
    if (why == TB_PEER_GARBLED) l->traffic.streams.garbled = true;
}

static void note_failure(struct tb_link *l, const struct tb_stream *s, tb_time_ns now)
{
    const struct tb_links_options *o = &l->links->options;
    if (atomic_load(&s->was_bound)) l->traffic.streams.failures = 0;
    const uint32_t doublings = l->traffic.streams.failures < 10 ? l->traffic.streams.failures++ : 10;
    uint64_t bound = (uint64_t)o->retry_min_ms << doublings;
    if (bound > o->retry_max_ms) bound = o->retry_max_ms;
    l->traffic.streams.retry_at = now + TB_MS(tb_links_random() % (bound + 1));
}

static void stream_gone(struct tb_link *l, uint32_t slot, tb_time_ns now)
{
    TB_ASSERT(tb_stream_phase(l->traffic.streams.slots[slot]) == TB_STREAM_GONE);
    struct tb_stream *s = l->traffic.streams.slots[slot];
    if (s->plan.session_seq != tb_link_session_seq(l) || !tb_link_is_up(l)) {
        forget_stream(l, slot);
        return;
    }
    if (!tb_stream_farewell_told(s->farewell)) {
        note_failure(l, s, now);
        tell_gone(l, s, now);
    }
    /* Never bound: nothing was sent on it, so there is no word of the peer to wait for. */
    if (tb_link_is_up(l) && !tb_stream_farewell_heard(s->farewell) && atomic_load(&s->was_bound)) return;
    tb_link_out_stream_gone(l, slot);
    forget_stream(l, slot);
}

bool tb_link_streams_garbled(const struct tb_link *l)
{
    return l->traffic.streams.garbled;
}

void tb_link_streams_tick(struct tb_link *l, tb_time_ns now)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX && !l->traffic.streams.garbled; i++)
        if (l->traffic.streams.slots[i] != NULL &&
            tb_stream_phase(l->traffic.streams.slots[i]) == TB_STREAM_GONE)
            stream_gone(l, i, now);
    if (l->traffic.streams.garbled) return; /* the turn ends the session, and calls again */
    tb_link_streams_ahead_gone(l);
    tb_link_tune(l, now);
    if (tb_link_is_up(l) && !l->links->closing) dial_missing(l, now);
}
