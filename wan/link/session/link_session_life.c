/* link_session_life.c - sessions: accepting, greeting, heartbeats, ends. link_session.h
 * decides; this does. */
#include "wan/link/session/link_session_life.h"

#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_dial.h"
#include "wan/link/path/link_path.h"
#include "wan/link/path/link_segment.h"
#include "wan/link/path/link_why.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/streams_ahead.h"
#include "wan/link/traffic/link_rights.h"
#include "wan/link/traffic/link_traffic.h"
#include "wan/link/traffic/link_versions.h"

/* ---- sessions ---- */

/* Takes the control stream off the link; what moved on it stops. */
static void session_leave(struct tb_link *l)
{
    TB_ASSERT(l->session.control != NULL && l->session.control->link == l && l->session.control->is_session);
    l->session.control->is_session = false;
    l->session.control = NULL;
    tb_link_traffic_down(l);
    tb_links_busy(l->links);
}

/* The link is down, and the daemon is told. */
void tb_link_be_down(struct tb_link *l, enum tb_status why)
{
    TB_ASSERT(l->session.control == NULL); /* what moved on it has stopped */
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {.peer_fault = why == TB_PEER_GARBLED};
    const struct tb_links_options *o = &l->links->options;
    l->stats.last_why = why;
    if (why == TB_PEER_GARBLED) l->stats.garbled++;
    l->session.limbo_since = 0;
    tb_link_step(l, TB_LINK_LOST, &ev, &todo);
    tb_link_said_down(l, why);
    if (l->links->closing) return;
    tb_link_log(l, TB_LOG_WARN, "link.down", why, NULL);
    if (o->ops->on_peer != NULL) o->ops->on_peer(o->user, l->index, false, why);
}

void tb_link_session_end(struct tb_link *l, enum tb_status why)
{
    session_leave(l);
    tb_link_be_down(l, why);
}

/* The peer replaced this session by another attempt of ours, whose HELLO is on its way: the two
 * connections are not ordered among each other. The link is not down until that attempt fails. */
void tb_link_session_limbo(struct tb_link *l)
{
    TB_ASSERT(tb_link_is_up(l));
    struct tb_link_session_todo todo;
    session_leave(l);
    l->session.limbo_since = tb_clock_now();
    tb_link_step(l, TB_LINK_QUIET, NULL, &todo);
}

void tb_link_drop(struct tb_link *l, enum tb_status why)
{
    if (!tb_link_is_up(l)) return;
    struct tb_link_conn *c = l->session.control;
    tb_link_session_end(l, why);
    tb_link_conn_bye(c, why, 0);
}

void tb_link_session_begin(struct tb_link_conn *c, const struct tb_frame_hello *hello, const struct tb_id *id,
                           uint32_t protocol)
{
    TB_ASSERT(c->link != NULL && !c->is_session && !c->ended); /* it was greeted just now */
    TB_ASSERT(protocol >= TB_LINK_PROTOCOL_MIN && protocol <= c->links->options.protocol_max);
    struct tb_link *l = c->link;
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {.dialled_by_us = c->dialled,
                                             .incarnation = hello->incarnation,
                                             .life = hello->life,
                                             .process = tb_frame_hello_process(hello)};
    tb_link_step(l, TB_LINK_GREETED, &ev, &todo);
    TB_ASSERT(l->session.life.state == TB_LINK_UP);
    bool stalled = false;
    if (l->session.control != NULL) {
        struct tb_link_conn *old = l->session.control;
        stalled = tb_link_segment_replaced(l, old);
        session_leave(l);
        tb_link_conn_bye(old, TB_PEER_DUPLICATE, 0);
    }
    l->session.control = c;
    l->session.limbo_since = 0;
    tb_link_said_up(l);
    tb_link_race_end(l);
    c->is_session = true;
    c->greet_by = 0;
    l->session.id = *id;
    l->session.protocol = protocol;
    l->session.seq++;
    l->session.beat = (struct tb_link_heartbeat){.heard_floor = tb_clock_now()};
    l->session.twin = (struct tb_link_twin){0};
    l->session.clock.at = tb_frame_hello_clock(hello, &l->session.clock.wall_ms) ? tb_clock_now() : 0;
    l->stats.up_since = tb_clock_now();
    l->stats.sessions++;
    tb_link_path_up(l);
    tb_link_traffic_up(l, &hello->life, c->rtt);
    tb_link_log(l, TB_LOG_INFO, todo.replaced ? "link.renewed" : "link.up", TB_OK, c->address_text);
    tb_link_streams_adopt(l);
    if (!c->dialled || c->opened_at <= tb_link_models_came_at(l)) /* else it did it behind its HELLO */
        tb_link_subscribe(l, c->wire);
    tb_link_segment_up(l, stalled);
    tb_links_busy(l->links);
    const struct tb_links_options *o = &l->links->options;
    if (!todo.replaced && o->ops->on_peer != NULL) o->ops->on_peer(o->user, l->index, true, TB_OK);
    if (todo.replaced && o->ops->on_renewed != NULL) o->ops->on_renewed(o->user, l->index);
}

void tb_link_limbo_end(struct tb_link *l, enum tb_status why)
{
    if (l->session.limbo_since != 0) tb_link_be_down(l, why);
}
