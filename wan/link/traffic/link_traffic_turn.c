/* link_traffic_turn.c - bytes on their way, both ways: the turn of all that crosses and lands, and
 * what goes for both when a session or a base does. link_send.c and link_landings.c do it. */
#include "wan/link/traffic/link_traffic_turn.h"

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_day_budget.h"
#include "wan/link/traffic/link_landings.h"
#include "wan/link/traffic/link_push.h"
#include "wan/link/traffic/link_send.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/send/feed.h"
#include "wan/send/feed_gifts.h"

void tb_link_base_gone(struct tb_link *l, const struct tb_offer *o, bool deltas_stay)
{
    struct tb_shared_places *base = o->share;
    for (struct tb_link_out *out = l->traffic.crossings.outs; out != NULL; out = out->next) {
        if (out->base != base) continue;
        out->base = deltas_stay ? tb_links_past_new(l->links, &o->key.uid, &o->key.model) : NULL;
    }
    for (struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next)
        if (in->base == base) in->base = NULL;
    tb_feed_base_gone(l->traffic.feed, base);
}

bool tb_link_base_used(const struct tb_link *l, const struct tb_shared_places *base)
{
    bool used = false;
    for (const struct tb_link_out *out = l->traffic.crossings.outs; out != NULL; out = out->next)
        used |= out->base == base;
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next)
        used |= in->base == base;
    return used;
}

void tb_link_take_notes(struct tb_link *l)
{
    static _Thread_local struct tb_note notes[TB_FEED_NOTES_MAX];
    tb_link_take_taken(l);
    const uint32_t count = tb_feed_collect_notes(l->traffic.feed, notes);
    for (uint32_t i = 0; i < count; i++)
        if (notes[i].kind == TB_NOTE_UNSENT)
            tb_link_out_unsent(l, &notes[i]);
        else
            tb_link_in_note(l, &notes[i]);
}

void tb_link_move_tick(struct tb_link *l, tb_time_ns now)
{
    if (tb_feed_gifts_settle(l->traffic.feed))
        tb_links_heed(l->links); /* before what was dropped is asked for again */
    tb_link_ins_tick(l, now);
    tb_link_pushes_tick(l, now);
    tb_link_outs_have(l, now);
    if (!tb_link_is_up(l)) return;
    if (tb_link_refill(l, now)) tb_links_fed(l->links);
    tb_link_spent_tell(l);
}

void tb_link_move_down(struct tb_link *l)
{
    tb_link_outs_drop(l, NULL);
    for (struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next) {
        if (in->crossing != 0)
            in->draining = in->crossing; /* stays listed: what had arrived is landed (P5) */
        in->crossing = 0;
        in->base = NULL;
    }
    TB_ASSERT(l->traffic.crossings.outs == NULL);
}

bool tb_link_moves(const struct tb_link *l)
{
    bool moves = l->traffic.crossings.outs != NULL || l->traffic.serves != NULL || l->traffic.asks != NULL ||
                 l->traffic.pushes.pushed != NULL;
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next)
        moves |= !in->finished;
    return moves;
}
