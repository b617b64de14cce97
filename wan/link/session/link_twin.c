/* link_twin.c - two gateways with one identity: who is asked, who is refused, and what
 * an operator is told.
 *
 * Without this the two take the session from each other for ever. link_session.h decides; a session
 * that answers for another process than the newcomer's stays. */
#include "wan/link/session/link_twin.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_why.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"

#define VOUCHED_FOR  TB_SECONDS(10) /* more than the longest wait between two dials of a twin */
#define REMEMBER_FOR TB_SECONDS(30)

void tb_link_twin_ask(struct tb_link *l)
{
    TB_ASSERT(tb_link_is_up(l));
    const tb_time_ns now = tb_clock_now();
    tb_link_session_vouch(&l->session.life, false);
    l->session.twin.asked_at = now;
    l->session.beat.sent_at = now;
    if (l->session.beat.waiting_since == 0) l->session.beat.waiting_since = now;
    LINK_SEND(l, TB_FRAME_PING, tb_frame_ping, LINK_SMALL, .stamp = now);
}

void tb_link_twin_answered(struct tb_link *l, tb_time_ns stamp, tb_time_ns now)
{
    if (l->session.twin.asked_at == 0 || stamp < l->session.twin.asked_at) return;
    l->session.twin.asked_at = 0;
    l->session.twin.vouched_at = now;
    tb_link_session_vouch(&l->session.life, true);
}

/* P10: one line for each twin in a session. It comes again every few seconds. */
void tb_link_twin_found(struct tb_link *l, const struct tb_link_conn *twin,
                        const struct tb_frame_hello *hello)
{
    TB_ASSERT(tb_link_is_up(l) && tb_link_control(l) != twin); /* the session stays */
    const struct tb_id process = tb_frame_hello_process(hello);
    const bool same =
        tb_id_equal(&l->session.twin.life, &hello->life) && tb_id_equal(&l->session.twin.process, &process);
    const bool known = l->session.twin.seen_at != 0 && same;
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX], hex[TB_HEX_CHARS];
    l->session.twin.seen_at = tb_clock_now();
    l->session.twin.life = hello->life;
    l->session.twin.process = process;
    tb_link_said_twin(l, twin);
    if (known) return;
    tb_identity_format(&l->identity, uri);
    tb_log_begin(&line, TB_LOG_WARN, "link.twin");
    tb_log_str(&line, "peer", uri);
    tb_log_str(&line, "by", "us");
    tb_log_str(&line, "address", l->session.control->address_text);
    tb_id_format(&l->session.life.life, hex);
    tb_log_str(&line, "life", hex);
    tb_log_str(&line, "twin", twin->address_text);
    tb_id_format(&hello->life, hex);
    tb_log_str(&line, "twin_life", hex);
    tb_log_end(&line);
}

/* One line until a session comes up. */
void tb_link_twin_is_us(struct tb_link *l)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX], hex[TB_HEX_CHARS];
    if (tb_link_why(l) == TB_LINKS_WHY_TWIN) return;
    tb_identity_format(&l->identity, uri);
    tb_log_begin(&line, TB_LOG_WARN, "link.twin");
    tb_log_str(&line, "peer", uri);
    tb_log_str(&line, "by", "peer");
    tb_identity_format(&l->links->identity, uri);
    tb_log_str(&line, "identity", uri);
    tb_id_format(&l->links->options.life, hex);
    tb_log_str(&line, "life", hex);
    tb_log_str(&line, "action", "stop_one_of_the_two");
    tb_log_end(&line);
}

void tb_link_twin_forget(struct tb_link *l, tb_time_ns now)
{
    struct tb_link_twin *t = &l->session.twin;
    if (l->session.life.vouched && tb_time_since(t->vouched_at, now) >= VOUCHED_FOR)
        tb_link_session_vouch(&l->session.life, false);
    if (t->seen_at == 0 || tb_time_since(t->seen_at, now) < REMEMBER_FOR) return;
    t->seen_at = 0;
    tb_link_said_no_twin(l);
}
