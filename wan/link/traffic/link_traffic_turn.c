/* link_traffic_turn.c - bytes on their way, both ways: the turn of all that crosses and lands, and
 * what goes for both when a session or a base does. link_send.c and link_landings.c do it. */
#include "wan/link/traffic/link_traffic_turn.h"

#include <string.h>

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_pause.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_day_budget.h"
#include "wan/link/traffic/link_landings.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/link_push.h"
#include "wan/link/traffic/link_send.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/send/feed.h"
#include "wan/send/feed_gifts.h"
#include "wan/send/feed_parcels.h"
#include "wan/send/outbound_parcels.h"

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
    if (tb_link_is_up(l)) tb_link_outs_yield(l);
    tb_link_ins_tick(l, now);
    tb_link_pushes_tick(l, now);
    tb_link_outs_have(l, now);
    if (!tb_link_is_up(l)) return;
    if (tb_link_refill(l, now)) tb_links_fed(l->links);
    tb_link_spent_tell(l);
    tb_link_pause_tell(l);
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

/* A crossing that is paused may be so for days: no turn is quick for it. */
bool tb_link_moves(const struct tb_link *l)
{
    bool moves = l->traffic.serves != NULL || l->traffic.asks != NULL || l->traffic.pushes.pushed != NULL;
    for (const struct tb_link_out *out = l->traffic.crossings.outs; out != NULL; out = out->next)
        moves |= !tb_link_is_paused(l, &out->offer->key.model);
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next)
        moves |= !in->finished && (in->crossing != 0 || (!tb_link_is_paused(l, &in->key.model) &&
                                                         !tb_link_paused_there(l, &in->key.model)));
    return moves;
}

/* ---- paused ---- */

static bool listed(const struct tb_name *names, uint32_t count, const struct tb_name *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (tb_name_equal(&names[i], name)) return true;
    return false;
}

/* Parcels that wait for a stream go back. Those that streams took were noted before. */
static void hold_back(struct tb_link *l, struct tb_link_out *out)
{
    struct tb_feed_parcel p;
    while (tb_feed_take_back(l->traffic.feed, out->crossing, &p)) {
        tb_outbound_unqueued(&out->core, &p.parcel);
        if (p.again) tb_hedge_unqueued(&l->traffic.crossings.hedge, out->crossing, &p.parcel);
    }
}

/* Landings stop in their turn (link_landings.c). */
static void pause_stop(struct tb_link *l)
{
    tb_link_take_taken(l);
    for (struct tb_link_out *out = l->traffic.crossings.outs; out != NULL; out = out->next)
        if (tb_link_is_paused(l, &out->offer->key.model)) hold_back(l, out);
    tb_link_expect_paused(l);
}

void tb_links_pause_models(struct tb_links *ls, const struct tb_name *models, uint32_t count)
{
    struct tb_name was[TB_LINKS_PAUSED_MAX];
    const uint32_t was_count = ls->paused_count;
    TB_ASSERT(count <= TB_LINKS_PAUSED_MAX && !ls->closing);
    memcpy(was, ls->paused, sizeof was);
    if (count > 0) memcpy(ls->paused, models, count * sizeof *models);
    ls->paused_count = count;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct tb_link *l = &ls->links[i];
        for (uint32_t k = 0; k < was_count; k++)
            if (!listed(models, count, &was[k]) && tb_link_granted(l, &was[k]))
                tb_link_pause_say(l, &was[k], false);
        for (uint32_t k = 0; k < count; k++)
            if (!listed(was, was_count, &models[k]) && tb_link_granted(l, &models[k]))
                tb_link_pause_say(l, &models[k], true);
        pause_stop(l);
    }
    tb_links_busy(ls);
}

void tb_links_pause_peer(struct tb_links *ls, uint32_t peer, bool paused)
{
    TB_ASSERT(peer < ls->options.peer_count && !ls->closing);
    struct tb_link *l = &ls->links[peer];
    if (l->traffic.pause.ours == paused) return;
    l->traffic.pause.ours = paused;
    pause_stop(l);
    tb_links_busy(ls);
}
