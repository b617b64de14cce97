/* link_streams.c - the data streams of a link, as the main loop sees them: dialled by the side that dialled
 * the session, bound to it by its id, one number each, and spread over the stream loops. */
#include <stdio.h>

#include "base/fault.h"
#include "base/log.h"
#include "wan/link/link.h"

/* they bring the first chunks; whatever else is wanted is dialled once the peer is greeted */
#define AHEAD_MAX 4u

uint32_t link_streams_count(const struct link *l)
{
    uint32_t count = l->ahead_count;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        count += l->streams[i] != NULL;
    return count;
}

bool link_streams_old(const struct link *l)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        if (l->streams[i] != NULL && l->streams[i]->plan.session_seq != l->session_seq) return true;
    return false;
}

void link_stream_end(struct tb_stream *s)
{
    if (s->loop != NULL)
        tb_stream_end(s);
    else
        atomic_store(&s->ending, true); /* still on its way to a loop */
}

void link_streams_end_old(struct link *l)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        struct tb_stream *s = l->streams[i];
        if (s == NULL || atomic_load(&s->ending)) continue;
        if (!link_is_up(l) || s->plan.session_seq != l->session_seq) link_stream_end(s);
    }
}

static int free_slot(const struct link *l)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        if (l->streams[i] == NULL) return (int)i;
    return -1;
}

static void to_loop(struct tb_links *ls, struct tb_stream *s)
{
    tb_stream_loop_add(ls->loops[ls->loop_at++ % ls->loop_count], s);
}

static struct tb_stream_plan plan_for(struct link *l, uint32_t slot, uint32_t number)
{
    const struct tb_links_options *o = &l->links->options;
    return (struct tb_stream_plan){.feed = l->feed,
                                   .session_seq = l->session_seq,
                                   .session = l->session_id,
                                   .number = number,
                                   .slot = slot,
                                   .protocol = l->protocol,
                                   .peer = l->index,
                                   .trust = {o->ops->base_good, o->user},
                                   .objects = l->links->options.objects,
                                   .path = &l->path,
                                   .records_max = o->records_max,
                                   .idle = TB_MS(o->stream_idle_ms)};
}

/* ---- ours ---- */

static struct tb_stream_plan dial_plan(struct link *l, uint32_t slot, const struct tb_address *to)
{
    struct tb_stream_plan plan = plan_for(l, slot, 0);
    plan.dialled = true;
    plan.address = *to;
    plan.segment_bytes_max = l->segment.bytes_max;
    plan.tls = l->links->options.tls;
    plan.expect = l->identity;
    return plan;
}

static bool dial_one(struct link *l)
{
    const int slot = free_slot(l);
    if (slot < 0) return false;
    struct tb_stream_plan plan = dial_plan(l, (uint32_t)slot, &l->session->address);
    plan.number = ++l->stream_number;
    struct tb_stream *s = tb_stream_new(&plan);
    if (s == NULL) return false;
    l->streams[slot] = s;
    to_loop(l->links, s);
    return true;
}

static void dial_missing(struct link *l, tb_time_ns now)
{
    if (!l->session->dialled || now < l->stream_retry_at) return;
    uint32_t count = link_streams_fresh(l);
    while (count < link_streams_wanted(l) && dial_one(l))
        count++;
}

/* ---- ahead of their session ---- */

void link_streams_ahead(struct link *l, const struct tb_address *to)
{
    const uint32_t all = link_streams_wanted(l), wanted = all < AHEAD_MAX ? all : AHEAD_MAX;
    const struct tb_stream_plan plan = dial_plan(l, 0, to);
    while (l->ahead_count < wanted) {
        struct tb_stream *s = tb_stream_new_ahead(&plan);
        if (s == NULL) return;
        l->ahead[l->ahead_count++] = s;
        to_loop(l->links, s);
    }
}

void link_streams_ahead_end(struct link *l)
{
    for (uint32_t i = 0; i < l->ahead_count; i++)
        if (!atomic_load(&l->ahead[i]->ending)) tb_stream_end(l->ahead[i]);
}

/* The session's now, unless it went elsewhere. */
static bool adopt(struct link *l, struct tb_stream *s)
{
    const int slot = free_slot(l);
    if (slot < 0 || tb_stream_phase(s) == TB_STREAM_GONE || atomic_load(&s->ending)) return false;
    if (!link_same_address(&s->plan.address, &l->session->address)) return false;
    const struct tb_stream_plan plan = plan_for(l, (uint32_t)slot, ++l->stream_number);
    l->streams[slot] = s;
    tb_stream_bind(s, &plan);
    return true;
}

void link_streams_adopt(struct link *l)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < l->ahead_count; i++)
        if (!l->session->dialled || !adopt(l, l->ahead[i])) l->ahead[left++] = l->ahead[i];
    l->ahead_count = left;
    link_streams_ahead_end(l);
}

static void ahead_gone(struct link *l)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < l->ahead_count; i++) {
        struct tb_stream *s = l->ahead[i];
        if (tb_stream_phase(s) == TB_STREAM_GONE)
            tb_stream_free(s);
        else
            l->ahead[left++] = s;
    }
    l->ahead_count = left;
}

/* ---- the peer's ---- */

static bool number_is_gone(const struct link *l, uint32_t number)
{
    for (uint32_t i = 0; i < LINK_GONE_MAX; i++)
        if (l->gone_numbers[i] == number) return true;
    return false;
}

static bool number_is_used(const struct link *l, uint32_t number)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const struct tb_stream *s = l->streams[i];
        if (s != NULL && s->plan.session_seq == l->session_seq && s->plan.number == number) return true;
    }
    return false;
}

/* The connection has left the main loop's hands, or was lost on the way. */
static void on_detached(void *user, struct tb_chan *chan)
{
    struct conn *c = user;
    struct link *l = c->link;
    struct tb_stream *s = c->binding;
    const bool welcome = chan != NULL && !atomic_load(&s->ending) && c->binding_session == l->session_seq;
    link_conn_free(c);
    if (welcome) {
        s->plan.chan = chan;
        to_loop(l->links, s);
        return;
    }
    if (chan != NULL) tb_chan_discard(chan);
    atomic_store(&s->why, (int)TB_STREAM_CLOSED);
    atomic_store(&s->phase, TB_STREAM_GONE);
    uv_async_send(&l->links->wake);
}

enum tb_status links_on_bind(struct conn *c, struct tb_wire_frame *f)
{
    struct tb_frame_bind m;
    struct link *l = c->link;
    const enum tb_status status = tb_frame_bind_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    /* A session that ended meanwhile is no mistake; the stream just comes too late. */
    if (!link_is_up(l) || l->session->dialled || !tb_id_equal(&m.session, &l->session_id))
        return TB_PEER_TOKEN;
    if (m.stream == 0 || number_is_used(l, m.stream)) return TB_PEER_GARBLED;
    if (number_is_gone(l, m.stream)) return TB_PEER_TOKEN;
    const int slot = free_slot(l);
    if (slot < 0) return TB_PEER_GARBLED;
    const struct tb_stream_plan plan = plan_for(l, (uint32_t)slot, m.stream);
    struct tb_stream *s = tb_stream_new(&plan);
    if (s == NULL) return TB_SITE_NOMEM;
    l->streams[slot] = s;
    c->binding = s;
    c->binding_session = l->session_seq;
    tb_wire_detach(c->wire, on_detached, c);
    return TB_OK;
}

/* ---- ends ---- */

static struct tb_stream *by_number(const struct link *l, uint32_t number)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        struct tb_stream *s = l->streams[i];
        if (s != NULL && s->plan.session_seq == l->session_seq && s->plan.number == number) return s;
    }
    return NULL;
}

enum tb_status link_on_stream_gone(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_stream_gone m;
    const enum tb_status status = tb_frame_stream_gone_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    l->gone_numbers[l->gone_at++ % LINK_GONE_MAX] = m.stream;
    struct tb_stream *s = by_number(l, m.stream);
    if (s == NULL) return TB_OK;
    s->peer_gone = true;
    link_stream_end(s);
    return TB_OK;
}

static void add_stats(struct tb_links_stats *to, const struct tb_stream *s)
{
    to->bytes_sent += atomic_load_explicit(&s->bytes_sent, memory_order_relaxed);
    to->bytes_received += atomic_load_explicit(&s->bytes_received, memory_order_relaxed);
    to->bytes_retransmitted += atomic_load_explicit(&s->retransmitted_bytes, memory_order_relaxed);
    to->chunks_sent += atomic_load_explicit(&s->chunks_sent, memory_order_relaxed);
    to->chunks_received += atomic_load_explicit(&s->chunks_received, memory_order_relaxed);
    to->chunks_duplicate += atomic_load_explicit(&s->chunks_duplicate, memory_order_relaxed);
    to->chunks_bad += atomic_load_explicit(&s->chunks_bad, memory_order_relaxed);
    to->chunks_on_base += atomic_load_explicit(&s->chunks_on_base, memory_order_relaxed);
    to->raw_bytes_sent += atomic_load_explicit(&s->raw_bytes, memory_order_relaxed);
    to->bytes_hedged += atomic_load_explicit(&s->hedged_bytes, memory_order_relaxed);
}

static void forget_stream(struct link *l, uint32_t slot)
{
    add_stats(&l->stats, l->streams[slot]);
    tb_stream_free(l->streams[slot]);
    l->streams[slot] = NULL;
}

/* A stream of this session is gone here. Whoever sees it first says so; what it had on its way is sent again
 * once both ends are closed and the peer has told what arrived. */
static void tell_gone(struct link *l, struct tb_stream *s, tb_time_ns now)
{
    const enum tb_status why = (enum tb_status)atomic_load(&s->why);
    s->told_gone = true;
    link_take_notes(l);
    if (!link_is_up(l)) return;
    link_tell_held(l, now);
    LINK_SEND(l, TB_FRAME_STREAM_GONE, tb_frame_stream_gone, LINK_SMALL, .stream = s->plan.number);
    if (s->peer_gone && why == TB_CANCELLED)
        return; /* the peer closed what is not needed, or lost it and counts it */
    l->stats.streams_lost++;
    if (!s->peer_gone && why != TB_CANCELLED)
        tb_log(TB_LOG_WARN, "stream.lost", "peer=%s stream=%u status=%s", l->label.text, s->plan.number,
               tb_status_name(why));
    if (why == TB_PEER_GARBLED) link_drop(l, TB_PEER_GARBLED);
}

static void note_failure(struct link *l, const struct tb_stream *s, tb_time_ns now)
{
    const struct tb_links_options *o = &l->links->options;
    if (atomic_load(&s->was_bound)) l->stream_failures = 0;
    const uint32_t doublings = l->stream_failures < 10 ? l->stream_failures++ : 10;
    uint64_t bound = (uint64_t)o->retry_min_ms << doublings;
    if (bound > o->retry_max_ms) bound = o->retry_max_ms;
    l->stream_retry_at = now + TB_MS(links_random() % (bound + 1));
}

static void stream_gone(struct link *l, uint32_t slot, tb_time_ns now)
{
    struct tb_stream *s = l->streams[slot];
    if (s->plan.session_seq != l->session_seq || !link_is_up(l)) {
        forget_stream(l, slot);
        return;
    }
    if (!s->told_gone) {
        note_failure(l, s, now);
        tell_gone(l, s, now);
    }
    /* Never bound: nothing was sent on it, so there is no word of the peer to wait for. */
    if (link_is_up(l) && !s->peer_gone && atomic_load(&s->was_bound)) return;
    link_out_stream_gone(l, slot);
    forget_stream(l, slot);
}

void link_streams_tick(struct link *l, tb_time_ns now)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        if (l->streams[i] != NULL && tb_stream_phase(l->streams[i]) == TB_STREAM_GONE) stream_gone(l, i, now);
    ahead_gone(l);
    link_tune(l, now);
    if (link_is_up(l) && !l->links->closing) dial_missing(l, now);
}

uint64_t link_sent_bytes(const struct link *l)
{
    uint64_t bytes = l->stats.bytes_sent;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        if (l->streams[i] != NULL)
            bytes += atomic_load_explicit(&l->streams[i]->bytes_sent, memory_order_relaxed);
    return bytes;
}

static uint64_t seen(const atomic_ullong *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void one_stream(const struct tb_stream *s, struct tb_links_stream_stats *to)
{
    *to = (struct tb_links_stream_stats){
        .stream = s->plan.number,
        .open = tb_stream_phase(s) == TB_STREAM_BOUND,
        .bytes_sent = seen(&s->bytes_sent),
        .bytes_received = seen(&s->bytes_received),
        .rtt = seen(&s->rtt),
        .sent_per_s = seen(&s->sent_per_s),
        .received_per_s = seen(&s->received_per_s),
        .retransmitted_bytes = seen(&s->retransmitted_bytes),
        .unsent_bytes = seen(&s->unsent_bytes),
        .window_bytes = seen(&s->window_bytes),
        .records = seen(&s->records),
        .limit = (enum tb_limit)atomic_load_explicit(&s->limit, memory_order_relaxed)};
    to->kernel_sends = to->open && s->kernel_sends;
    to->own_records = to->open && s->own_records;
    if (to->open) snprintf(to->congestion, sizeof to->congestion, "%s", s->congestion);
}

void link_stream_stats(const struct link *l, struct tb_links_stats *stats)
{
    stats->stream_count = 0;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const struct tb_stream *s = l->streams[i];
        if (s == NULL) continue;
        add_stats(stats, s);
        one_stream(s, &stats->streams[stats->stream_count++]);
    }
    stats->streams_wanted = link_streams_wanted(l);
    stats->streams_used = l->usable;
    stats->searching = l->tuner.state != TB_TUNER_SETTLED;
}
