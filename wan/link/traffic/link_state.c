/* link_state.c - what views of other sites need from links: the life of a peer's
 * arena, STATE and HOLDUP. */
#include "wan/link/traffic/link_state.h"

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_messages.h"
#include "wan/link/links_stats.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/offer_table.h"

#define HOLDUP_EVERY TB_SECONDS(1)
#define LOSS_SHARE   100u /* resent bytes above one in so many: losses hold the path, not its rate */

/* ---- a new life ---- */

void tb_link_life(struct tb_link *l, const struct tb_id *life)
{
    const struct tb_links_options *o = &l->links->options;
    if (!tb_id_equal(&l->traffic.peer_life, life) && !tb_id_is_zero(&l->traffic.peer_life))
        tb_link_peer_forgets(l);
    l->traffic.peer_life = *life;
    if (o->ops->on_life != NULL) o->ops->on_life(o->user, l->index, life);
}

/* ---- STATE ---- */

/* P8: a state names versions. Only those hear it who may read the model, or from
 * whom this site reads it. */
static bool concerns(const struct tb_link *l, const struct tb_name *model)
{
    if (tb_link_granted(l, model)) return true;
    for (uint32_t i = 0; i < l->traffic.models.wanted_count; i++)
        if (tb_name_equal(&l->traffic.models.wanted[i], model)) return true;
    return false;
}

enum tb_status tb_links_tell_state(struct tb_links *links, uint32_t peer, const struct tb_site_state *s)
{
    TB_ASSERT(peer < links->options.peer_count && s->held_count <= TB_SITE_HELD_MAX);
    struct tb_link *l = &links->links[peer];
    uint8_t held[TB_SITE_HELD_MAX * TB_SITE_HELD_BYTES];
    if (!tb_link_is_up(l)) return TB_PEER_UNREACHABLE;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_STATE) return TB_PEER_PROTOCOL;
    if (!concerns(l, &s->model)) return TB_PEER_DENIED;
    tb_frame_site_held_encode(s, held);
    LINK_SEND(l, TB_FRAME_STATE, tb_frame_state, LINK_SMALL + sizeof held, .site = s->site, .model = s->model,
              .hops = s->hops, .incarnation = s->incarnation, .serial = s->serial, .known = s->known,
              .reason = s->reason, .age_ms = s->age_ms, .head_run = s->head.run_order,
              .head_number = s->head.number, .active_run = s->active.run_order,
              .active_number = s->active.number, .versions = s->versions, .left_bytes = s->left_bytes,
              .behind_ms = s->behind_ms, .eta_low_ms = s->eta_low_ms, .eta_high_ms = s->eta_high_ms,
              .held = {held, s->held_count * TB_SITE_HELD_BYTES});
    return TB_OK;
}

static enum tb_status state_of(const struct tb_frame_state *m, struct tb_site_state *s)
{
    *s = (struct tb_site_state){.site = m->site,
                                .model = m->model,
                                .hops = m->hops,
                                .incarnation = m->incarnation,
                                .serial = m->serial,
                                .known = m->known,
                                .reason = m->reason,
                                .age_ms = m->age_ms,
                                .head = {m->head_run, m->head_number},
                                .active = {m->active_run, m->active_number},
                                .versions = m->versions,
                                .left_bytes = m->left_bytes,
                                .behind_ms = m->behind_ms,
                                .eta_low_ms = m->eta_low_ms,
                                .eta_high_ms = m->eta_high_ms};
    if (m->hops > TB_SITE_HOPS_MAX || m->eta_low_ms > m->eta_high_ms) return TB_PEER_GARBLED;
    return tb_frame_site_held_decode(&m->held, s);
}

enum tb_status tb_link_on_state(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_state m;
    static struct tb_site_state s; /* large; the main loop's alone */
    const struct tb_links_options *o = &l->links->options;
    enum tb_status status = tb_frame_state_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    status = tb_link_protocol(l) < TB_LINK_PROTOCOL_STATE ? TB_PEER_GARBLED : state_of(&m, &s);
    if (status != TB_OK) return status;
    if (!concerns(l, &s.model) || o->ops->on_state == NULL) return TB_OK;
    /* A peer is believed about itself under the name that it has here, and as a
     * relay about others. */
    if (s.hops == 0) s.site = l->label;
    if (s.hops > 0 && tb_name_equal(&s.site, &l->label)) return TB_OK;
    o->ops->on_state(o->user, l->index, &s);
    return TB_OK;
}

/* ---- HOLDUP ---- */

static enum tb_holdup holdup_of(enum tb_limit limit, bool lossy)
{
    switch (limit) {
    case TB_LIMIT_CAP:
        return TB_HOLDUP_RATE;
    case TB_LIMIT_SENDER:
        return TB_HOLDUP_SENDER;
    case TB_LIMIT_NETWORK:
        return lossy ? TB_HOLDUP_LOSS : TB_HOLDUP_NONE;
    case TB_LIMIT_SEND_BUFFER:
        return TB_HOLDUP_WINDOW;
    case TB_LIMIT_PEER_WINDOW:
        return TB_HOLDUP_RECEIVER;
    default:
        return TB_HOLDUP_NONE;
    }
}

enum tb_limit tb_links_most_limit(const struct tb_links_stats *stats)
{
    uint32_t counts[TB_LIMITS] = {0};
    uint32_t most = TB_LIMIT_IDLE;
    for (uint32_t i = 0; i < stats->stream_count; i++)
        counts[stats->streams[i].limit]++;
    for (uint32_t l = TB_LIMIT_IDLE + 1; l < TB_LIMITS; l++)
        if (counts[l] > 0 && (most == TB_LIMIT_IDLE || counts[l] > counts[most])) most = l;
    return (enum tb_limit)most;
}

/* The growth since the last look. A counter that fell was begun anew. */
static uint64_t grew(uint64_t *before, uint64_t now)
{
    const uint64_t by = now > *before ? now - *before : 0;
    *before = now;
    return by;
}

void tb_link_holdup_tick(struct tb_link *l, tb_time_ns now)
{
    static struct tb_links_stats stats; /* large; the main loop's alone */
    if (!tb_link_is_up(l) || tb_time_since(l->traffic.holdup.at, now) < HOLDUP_EVERY) return;
    l->traffic.holdup.at = now;
    tb_links_stats(l->links, l->index, &stats);
    const uint64_t sent = grew(&l->traffic.holdup.sent, stats.bytes_sent);
    const uint64_t resent = grew(&l->traffic.holdup.resent, stats.bytes_retransmitted);
    const enum tb_limit limit =
        l->traffic.crossings.outs != NULL ? tb_links_most_limit(&stats) : TB_LIMIT_IDLE;
    enum tb_holdup holdup = holdup_of(limit, resent > sent / LOSS_SHARE);
    if (limit == TB_LIMIT_NETWORK && stats.send_wanted_bytes > 0) holdup = TB_HOLDUP_WINDOW;
    l->stats.holdup = holdup;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_STATE || l->traffic.holdup.told == holdup) return;
    l->traffic.holdup.told = holdup;
    LINK_SEND(l, TB_FRAME_HOLDUP, tb_frame_holdup, LINK_SMALL, .holdup = (uint8_t)holdup);
}

enum tb_status tb_link_on_holdup(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_holdup m;
    const enum tb_status status = tb_frame_holdup_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_STATE || m.holdup >= TB_HOLDUP_END) return TB_PEER_GARBLED;
    l->stats.peer_holdup = (enum tb_holdup)m.holdup;
    return TB_OK;
}

void tb_link_state_up(struct tb_link *l)
{
    l->traffic.holdup.told = l->stats.holdup = l->stats.peer_holdup = TB_HOLDUP_NONE;
    l->traffic.holdup.at = 0;
}
