/* links.c - the links as a whole: made, their turn, closed. The files of each part do the work. */
#include "wan/link/links.h"

#include <errno.h>
#include <stdio.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/listen.h"
#include "wan/link/link.h"
#include "wan/link/links_check.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_messages.h"
#include "wan/link/path/link_dial.h"
#include "wan/link/path/link_path.h"
#include "wan/link/path/link_segment.h"
#include "wan/link/session/link_admission.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/session/link_frames.h"
#include "wan/link/session/link_heartbeat.h"
#include "wan/link/session/link_session_life.h"
#include "wan/link/streams/link_streams.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/streams/streams_ahead.h"
#include "wan/link/traffic/link_manifest_pages.h"
#include "wan/link/traffic/link_share.h"
#include "wan/link/traffic/link_state.h"
#include "wan/link/traffic/link_traffic.h"
#include "wan/link/traffic/link_traffic_turn.h"
#include "wan/link/traffic/link_versions.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/stream/stream_loop.h"

#define CEILINGS_EVERY TB_SECONDS(1)

/* ---- the clock ---- */

static void closing_step(struct tb_links *ls);

static bool anything_moves(const struct tb_links *ls)
{
    bool moves = ls->retired != NULL || ls->closing;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        moves |= tb_link_moves(&ls->links[i]);
    return moves;
}

/* An operator raises them while this runs, as the log asks for. */
static void look_at_ceilings(struct tb_links *ls, tb_time_ns now)
{
    if (tb_time_since(ls->ceilings_at, now) < CEILINGS_EVERY) return;
    const struct tb_tcp_ceilings c = tb_tcp_ceilings();
    ls->ceilings_at = now;
    if (c.send_bytes == 0 || c.receive_bytes == 0) return; /* no descriptor, perhaps */
    ls->ceilings = c;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        tb_link_path_ceiling(&ls->links[i], c.send_bytes);
}

static void move(struct tb_link *l, tb_time_ns now)
{
    tb_link_take_notes(l);
    tb_link_streams_tick(l, now);
    if (tb_link_streams_garbled(
            l)) { /* the streams that are left are looked at as those of an earlier session */
        tb_link_drop(l, TB_PEER_GARBLED);
        tb_link_streams_tick(l, now);
    }
    tb_link_segment_tick(l, now);
    tb_link_move_tick(l, now);
}

static void on_clock(uv_timer_t *clock)
{
    struct tb_links *ls = clock->data;
    const tb_time_ns now = tb_clock_now();
    tb_links_offers_tick(ls);
    look_at_ceilings(ls, now);
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct tb_link *l = &ls->links[i];
        /* those of sessions that ended before this tick: a BYE has had its turn of the loop */
        tb_link_streams_end_old(l);
        tb_link_up_tick(l, now);
        tb_link_versions_tick(l);
        tb_link_serves_tick(l);
        tb_link_holdup_tick(l, now);
        move(l, now);
    }
    tb_links_share_tick(ls, now);
    tb_links_conns_tick(ls, now);
    ls->ticked_at = tb_clock_now();
    tb_links_sweep_retired(ls);
    tb_links_check(ls, now);
    tb_links_set_clock(ls, anything_moves(ls) ? LINKS_TICK_BUSY_MS : LINKS_TICK_IDLE_MS);
    if (ls->closing) closing_step(ls);
}

/* A stream took a parcel, wrote a note, changed its phase or let go of a share. */
static void on_wake(uv_async_t *wake)
{
    struct tb_links *ls = wake->data;
    const tb_time_ns now = tb_clock_now();
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        move(&ls->links[i], now);
    tb_links_sweep_retired(ls);
    if (ls->closing) closing_step(ls);
}

/* ---- beginning ---- */

static enum tb_status listen_at(struct tb_links *ls, const char *text, char error_out[256])
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    if (text == NULL) return TB_OK;
    if (tb_endpoint_parse(text, &endpoint) != TB_OK || endpoint.is_unix ||
        tb_endpoint_address(&endpoint, &address) != TB_OK)
        return tb_links_refuse(error_out, "link.listen: not a numeric address like 0.0.0.0:7400", text);
    const enum tb_status status =
        tb_listen(ls->options.loop, &address, 0, tb_links_on_accept, ls, &ls->listener);
    if (status != TB_OK)
        snprintf(error_out, 256, "link.listen: %s: %s", text, tb_endpoint_why(status, errno));
    return status;
}

static enum tb_status loops_new(struct tb_links *ls)
{
    for (; ls->loop_count < ls->options.threads; ls->loop_count++) {
        const enum tb_status status = tb_stream_loop_new(&ls->wake, &ls->loops[ls->loop_count]);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

static void loops_free(struct tb_links *ls)
{
    while (ls->loop_count > 0)
        tb_stream_loop_free(ls->loops[--ls->loop_count]);
}

static void on_handle_closed(uv_handle_t *handle)
{
    TB_ASSERT(((struct tb_links *)handle->data)->handles > 0);
    struct tb_links *ls = handle->data;
    if (--ls->handles > 0) return;
    void (*closed)(void *) = ls->closed;
    void *user = ls->closed_user;
    tb_tls_free(ls->options.tls);
    tb_free(ls->admission);
    tb_free(ls->links);
    tb_free(ls);
    if (closed != NULL) closed(user);
}

static void handles_close(struct tb_links *ls)
{
    uv_close((uv_handle_t *)&ls->wake, on_handle_closed);
    uv_close((uv_handle_t *)&ls->clock, on_handle_closed);
}

/* Everything that tb_links_new makes and closing ends: links, threads, the listening socket. */
static enum tb_status open_up(struct tb_links *ls, const struct tb_links_options *options,
                              char error_out[256])
{
    uint32_t made = 0;
    enum tb_status status = TB_OK;
    for (; made < options->peer_count && status == TB_OK; made += status == TB_OK)
        status = tb_link_init(ls, &ls->links[made], &options->peers[made]);
    if (status != TB_OK) goto undo_links;
    status = loops_new(ls);
    if (status != TB_OK) goto undo_loops;
    status = listen_at(ls, options->listen, error_out);
    if (status == TB_OK) return TB_OK;

undo_loops:
    loops_free(ls);
undo_links:
    while (made > 0)
        tb_link_fini(&ls->links[--made]);
    return status;
}

enum tb_status tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                            char error_out[256])
{
    error_out[0] = '\0';
    enum tb_status status = tb_links_options_check(options, error_out);
    if (status != TB_OK) return status;
    snprintf(error_out, 256, "no memory, or no thread, for the links");
    struct tb_links *ls = tb_calloc(1, sizeof *ls);
    if (ls == NULL) return TB_SITE_NOMEM;
    ls->options = *options;
    tb_links_options_fill(&ls->options);
    ls->options.peers = NULL;
    ls->options.listen = NULL;
    ls->options.tls = tb_tls_ref(options->tls);
    ls->identity = *tb_tls_identity(options->tls);
    ls->ceilings = tb_tcp_ceilings();
    tb_links_path_options(&ls->options, &ls->ceilings, &ls->tcp);
    ls->ticked_at = ls->ceilings_at = tb_clock_now();
    status = TB_SITE_NOMEM;
    ls->peer_room = options->peer_count + TB_LINKS_PEERS_SPARE;
    if (ls->peer_room > TB_LINKS_PEERS_MAX) ls->peer_room = TB_LINKS_PEERS_MAX;
    ls->links = tb_calloc(ls->peer_room, sizeof *ls->links);
    ls->admission = tb_link_admission_new(&ls->options);
    if (ls->links == NULL || ls->admission == NULL || uv_async_init(options->loop, &ls->wake, on_wake) != 0)
        goto undo_memory;
    uv_timer_init(options->loop, &ls->clock);
    ls->on_clock = on_clock;
    ls->wire_ops = &tb_links_wire_ops;
    ls->wake.data = ls->clock.data = ls;
    ls->handles = 2;
    status = open_up(ls, options, error_out);
    if (status != TB_OK) {
        handles_close(ls); /* frees it on the next turn */
        return status;
    }
    tb_links_busy(ls);
    error_out[0] = '\0';
    *links_out = ls;
    return TB_OK;

undo_memory:
    tb_tls_free(ls->options.tls);
    tb_free(ls->admission);
    tb_free(ls->links);
    tb_free(ls);
    return status;
}

/* ---- end ---- */

static bool streams_left(const struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        if (tb_link_streams_count(&ls->links[i]) > 0) return true;
    return false;
}

static void closing_step(struct tb_links *ls)
{
    TB_ASSERT(ls->closing);
    if (ls->conns != NULL || streams_left(ls) || uv_is_closing((uv_handle_t *)&ls->wake)) return;
    loops_free(ls);
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        tb_link_traffic_end(&ls->links[i]);
    tb_links_sweep_retired(ls);
    TB_ASSERT(ls->retired == NULL);
    tb_links_share_end(ls, NULL);
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        tb_link_fini(&ls->links[i]);
    tb_links_offers_free(ls);
    TB_ASSERT(ls->offers == NULL && ls->divisions == NULL && ls->retiring == NULL);
    handles_close(ls);
}

void tb_links_close(struct tb_links *links, void (*done)(void *user), void *user)
{
    TB_ASSERT(!links->closing);
    links->closing = true;
    links->closed = done;
    links->closed_user = user;
    if (links->listener != NULL) tb_listener_close(links->listener);
    links->listener = NULL;
    for (uint32_t i = 0; i < links->options.peer_count; i++)
        tb_link_up_stop(&links->links[i]);
    tb_links_busy(links);
}

/* ---- what is said ---- */

void tb_links_limit(struct tb_links *links, uint32_t peer, const struct tb_links_limit *limit)
{
    TB_ASSERT(peer < links->options.peer_count);
    tb_link_traffic_limit(&links->links[peer], limit);
}

enum tb_status tb_links_tell(struct tb_links *ls, uint32_t peer, const struct tb_links_report *report)
{
    TB_ASSERT(peer < ls->options.peer_count);
    struct tb_link *l = &ls->links[peer];
    if (!tb_link_is_up(l)) return TB_PEER_UNREACHABLE;
    LINK_SEND(l, TB_FRAME_REPORT, tb_frame_report, LINK_SMALL, .uid = report->uid, .site = report->site,
              .state = (uint8_t)report->state);
    return TB_OK;
}

void tb_links_set_incarnation(struct tb_links *links, uint64_t incarnation)
{
    links->options.incarnation = incarnation;
}

/* The peer showed a chain that is trusted now, too. */
static bool is_trusted(const struct tb_links *ls, const struct tb_link *l)
{
    const struct tb_link_conn *c = tb_link_is_up(l) ? tb_link_control(l) : NULL;
    return c != NULL && c->wire != NULL && tb_chan_is_trusted(tb_wire_chan(c->wire), ls->options.tls);
}

/* P8: sessions that are trusted no more end. Nor does anything that began under the old trust
 * become a session: what is in TLS or before HELLO, what a link in limbo waits for, and data
 * streams that were dialled ahead. One that is bound already belongs to a session, and ends with
 * it. */
static void end_distrusted(struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        if (!is_trusted(ls, &ls->links[i])) tb_link_drop(&ls->links[i], TB_PEER_IDENTITY);
        tb_link_streams_ahead_end(&ls->links[i]);
    }
    for (struct tb_link_conn *c = ls->conns; c != NULL; c = c->next)
        if (!c->is_session && c->binding == NULL) tb_link_conn_close(c, TB_PEER_IDENTITY);
}

enum tb_status tb_links_set_tls(struct tb_links *ls, struct tb_tls *tls)
{
    if (!tb_identity_equal(tb_tls_identity(tls), &ls->identity)) return TB_BAD_ARGUMENT;
    struct tb_tls *before = ls->options.tls;
    const struct tb_digest trust[] = {tb_tls_trust(before), tb_tls_trust(tls)};
    ls->options.tls = tb_tls_ref(tls);
    if (!tb_digest_equal(&trust[0], &trust[1])) end_distrusted(ls);
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        if (tb_link_is_up(&ls->links[i])) tb_link_renew(&ls->links[i], tb_clock_now());
    tb_tls_free(before);
    return TB_OK;
}
