/* link_move.c - bytes on their way, both ways: the turn of all that crosses and lands, and what goes for both when a session or a base
 * does. link_send.c and link_land.c do it. */
#include "wan/link/link.h"

void link_base_gone(struct link *l, const struct offer *o, bool steps_stay)
{
    struct tb_share *base = o->share;
    for (struct out *out = l->outs; out != NULL; out = out->next) {
        if (out->base != base) continue;
        out->base = steps_stay ? links_past_new(l->links, &o->key.uid, &o->key.model) : NULL;
    }
    for (struct in *in = l->ins; in != NULL; in = in->next)
        if (in->base == base) in->base = NULL;
    tb_feed_base_gone(l->feed, base);
}

bool link_base_used(const struct link *l, const struct tb_share *base)
{
    bool used = false;
    for (const struct out *out = l->outs; out != NULL; out = out->next)
        used |= out->base == base;
    for (const struct in *in = l->ins; in != NULL; in = in->next)
        used |= in->base == base;
    return used;
}

void link_take_notes(struct link *l)
{
    static _Thread_local struct tb_note notes[TB_FEED_NOTES_MAX];
    link_take_taken(l);
    const uint32_t count = tb_feed_collect_notes(l->feed, notes);
    for (uint32_t i = 0; i < count; i++)
        if (notes[i].kind == TB_NOTE_UNSENT)
            link_out_unsent(l, &notes[i]);
        else
            link_in_note(l, &notes[i]);
}

void link_move_tick(struct link *l, tb_time_ns now)
{
    if (tb_feed_gifts_settle(l->feed)) links_heed(l->links); /* before what was dropped is asked for again */
    link_ins_tick(l, now);
    link_pushes_tick(l, now);
    link_outs_have(l, now);
    if (!link_is_up(l)) return;
    if (link_refill(l, now)) links_fed(l->links);
    link_spent_tell(l);
}

void link_move_down(struct link *l)
{
    l->stream_garbled = false;
    link_outs_drop(l, NULL);
    for (struct in *in = l->ins; in != NULL; in = in->next) {
        if (in->crossing != 0)
            in->draining = in->crossing; /* stays listed: what had arrived is landed (P5) */
        in->crossing = 0;
        in->base = NULL;
    }
}

bool link_moves(const struct link *l)
{
    bool moves = l->outs != NULL || l->serves != NULL || l->asks != NULL || l->pushed != NULL;
    for (const struct in *in = l->ins; in != NULL; in = in->next)
        moves |= !in->finished;
    return moves;
}
