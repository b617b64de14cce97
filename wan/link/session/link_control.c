/* link_control.c - the control stream of a link: is it up, what is written to it,
 * and a step of its life. */
#include "wan/link/session/link_control.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_stats.h"
#include "wan/link/path/link_path.h"
#include "wan/link/session/link_conn.h"

void tb_link_control_init(struct tb_link *l, uint32_t lane)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_link_session_config config = {.self = l->links->identity,
                                                  .peer = l->identity,
                                                  .peer_lane = lane,
                                                  .protocol_max = o->protocol_max,
                                                  .can_dial = tb_link_can_dial(l),
                                                  .retry_min = TB_MS(o->retry_min_ms),
                                                  .retry_max = TB_MS(o->retry_max_ms),
                                                  .fresh_dial = TB_MS(o->fresh_dial_ms),
                                                  .silent = TB_MS(o->silent_ms)};
    tb_link_session_init(&l->session.life, &config, tb_clock_now());
}

void tb_link_control_may_dial(struct tb_link *l)
{
    tb_link_session_may_dial(&l->session.life, tb_link_can_dial(l), tb_clock_now());
}

struct tb_link_conn *tb_link_control(const struct tb_link *l)
{
    return l->session.control;
}

uint32_t tb_link_protocol(const struct tb_link *l)
{
    return l->session.protocol;
}

uint64_t tb_link_session_seq(const struct tb_link *l)
{
    return l->session.seq;
}

struct tb_id tb_link_session_id(const struct tb_link *l)
{
    return l->session.id;
}

enum tb_link_session_state tb_link_life_state(const struct tb_link *l)
{
    return l->session.life.state;
}

uint32_t tb_link_attempts(const struct tb_link *l)
{
    return l->session.life.attempts;
}

tb_time_ns tb_link_silent_after(const struct tb_link *l)
{
    return l->session.life.config.silent;
}

tb_time_ns tb_link_answered_at(const struct tb_link *l)
{
    return l->session.beat.answered;
}

tb_time_ns tb_link_heard_at(const struct tb_link *l)
{
    return l->session.control != NULL ? tb_wire_heard_at(l->session.control->wire) : 0;
}

/* By the peer's clock as it is by now, if nobody set it since its HELLO. */
static int64_t clock_ahead_ms(const struct tb_link *l)
{
    const tb_time_ns since = tb_time_since(l->session.clock.at, tb_clock_now());
    return (int64_t)(l->session.clock.wall_ms + since / TB_MS(1)) - (int64_t)tb_clock_wall_ms();
}

void tb_link_session_show(const struct tb_link *l, struct tb_links_stats *stats_out)
{
    const struct tb_link_conn *c = l->session.control;
    stats_out->up = c != NULL;
    stats_out->clock_known = c != NULL && l->session.clock.at != 0;
    stats_out->clock_ahead_ms = stats_out->clock_known ? clock_ahead_ms(l) : 0;
    if (c == NULL) {
        stats_out->up_since = 0;
        return;
    }
    stats_out->dialled_by_us = c->dialled;
    stats_out->protocol = l->session.protocol;
    stats_out->identity = c->identity;
    stats_out->expires_wall_s = c->expires_wall_s;
    snprintf(stats_out->address, sizeof stats_out->address, "%s", c->address_text);
}

bool tb_link_is_up(const struct tb_link *l)
{
    return l->session.control != NULL;
}

struct tb_writer *tb_link_begin(struct tb_link *l, enum tb_frame_type type, size_t payload_max)
{
    return l->session.control != NULL
               ? tb_wire_begin(l->session.control->wire, (uint16_t)type, 0, payload_max)
               : NULL;
}

void tb_link_end(struct tb_link *l)
{
    TB_ASSERT(l->session.control != NULL); /* tb_link_begin gave a writer */
    tb_wire_end(l->session.control->wire);
}

void tb_link_log(const struct tb_link *l, enum tb_log_level level, const char *event, enum tb_status why,
                 const char *address)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&l->identity, uri);
    const struct tb_log_party before = tb_log_party_set((struct tb_log_party){.identity = &l->identity});
    tb_log_begin(&line, level, event);
    tb_log_str(&line, "peer", uri);
    if (address != NULL && address[0] != '\0') tb_log_str(&line, "address", address);
    if (why != TB_OK) tb_log_str(&line, "status", tb_status_name(why));
    tb_log_end(&line);
    (void)tb_log_party_set(before);
}

void tb_link_step(struct tb_link *l, enum tb_link_session_event_kind kind,
                  const struct tb_link_session_event *more, struct tb_link_session_todo *todo_out)
{
    TB_ASSERT(kind < TB_LINK_EVENT_COUNT);
    struct tb_link_session_event ev = {0};
    if (more != NULL) ev = *more;
    ev.kind = kind;
    ev.now = tb_clock_now();
    ev.random = tb_links_random();
    if (tb_link_session_step(&l->session.life, &ev, todo_out) != TB_OK) memset(todo_out, 0, sizeof *todo_out);
}
