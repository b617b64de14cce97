/* link_up.c - sessions: accepting, greeting, heartbeats, ends. link_session.h decides; this does. */
#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "wan/link/link.h"
#include <stdio.h>
#include <unistd.h>

/* ---- sessions ---- */

static void session_reset(struct link *l)
{
    link_versions_down(l);
    link_move_down(l);
    /* streams take nothing more; the next tick ends them, behind our BYE */
    tb_feed_session(l->feed, 0, TB_LINK_PROTOCOL_MIN);
    links_busy(l->links);
}

/* Takes the control stream off the link; what moved on it stops. */
static void session_leave(struct link *l)
{
    l->session->is_session = false;
    l->session = NULL;
    session_reset(l);
}

/* The link is down, and the daemon is told. */
void link_be_down(struct link *l, enum tb_status why)
{
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {.peer_fault = why == TB_PEER_GARBLED};
    const struct tb_links_options *o = &l->links->options;
    l->stats.last_why = why;
    if (why == TB_PEER_GARBLED) l->stats.garbled++;
    l->limbo_since = 0;
    link_step(l, TB_LINK_LOST, &ev, &todo);
    link_said_down(l, why);
    if (l->links->closing) return;
    link_log(l, TB_LOG_WARN, "link.down", why, NULL);
    if (o->ops->on_peer != NULL) o->ops->on_peer(o->user, l->index, false, why);
}

void link_session_end(struct link *l, enum tb_status why)
{
    session_leave(l);
    link_be_down(l, why);
}

/* The peer replaced this session by another attempt of ours, whose HELLO is on its way: the two connections are not
 * ordered among each other. The link is not down until that attempt fails. */
void link_session_limbo(struct link *l)
{
    struct tb_link_session_todo todo;
    session_leave(l);
    l->limbo_since = tb_clock_now();
    link_step(l, TB_LINK_QUIET, NULL, &todo);
}

void link_drop(struct link *l, enum tb_status why)
{
    if (!link_is_up(l)) return;
    struct conn *c = l->session;
    link_session_end(l, why);
    link_conn_bye(c, why, 0);
}

void link_session_begin(struct conn *c, const struct tb_frame_hello *hello, const struct tb_id *id,
                        uint32_t protocol)
{
    struct link *l = c->link;
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {
        .dialled_by_us = c->dialled, .incarnation = hello->incarnation, .life = hello->life};
    link_step(l, TB_LINK_GREETED, &ev, &todo);
    bool stalled = false;
    if (l->session != NULL) {
        struct conn *old = l->session;
        stalled = link_segment_replaced(l, old);
        session_leave(l);
        link_conn_bye(old, TB_PEER_DUPLICATE, 0);
    }
    l->session = c;
    l->limbo_since = 0;
    link_said_up(l);
    tb_race_end(&l->race);
    link_dials_end(l);
    c->is_session = true;
    c->greet_by = 0;
    l->session_id = *id;
    l->protocol = protocol;
    l->session_seq++;
    link_life(l, &hello->life);
    link_state_up(l);
    link_versions_up(l);
    l->want_last = 0;
    l->stream_number = 0;
    l->stream_failures = 0;
    l->stream_retry_at = 0;
    l->elsewhere = 0;
    memset(l->gone_numbers, 0, sizeof l->gone_numbers);
    l->beat = (struct link_heartbeat){.heard_floor = tb_clock_now()};
    l->twin = (struct link_twin){0};
    l->control_at = 0;
    l->stats.up_since = tb_clock_now();
    l->stats.sessions++;
    l->path_rtt = c->rtt;
    l->peer_wants = l->told_wants = 0;
    l->told_spent = l->stats.peer_spent = false;
    l->looked_at = 0;
    tb_feed_session(l->feed, l->session_seq, protocol);
    link_log(l, TB_LOG_INFO, todo.replaced ? "link.renewed" : "link.up", TB_OK, c->address_text);
    link_streams_adopt(l);
    if (!c->dialled) link_subscribe(l, c->wire); /* who dials did it behind its HELLO */
    link_segment_up(l, stalled);
    links_busy(l->links);
    const struct tb_links_options *o = &l->links->options;
    if (!todo.replaced && o->ops->on_peer != NULL) o->ops->on_peer(o->user, l->index, true, TB_OK);
    if (todo.replaced && o->ops->on_renewed != NULL) o->ops->on_renewed(o->user, l->index);
}
