/* feed_choice.c - the choice of a form for each chunk, and the rates that it rests on. */
#include "base/assert.h"
#include "wan/send/feed_inside.h"

#define CARRIED_EVERY TB_MS(40)
#define CARRIED_STALE TB_SECONDS(1)

void tb_feed_seed(struct tb_feed *f, const struct tb_choice_speed speeds[TB_WAYS])
{
    uv_mutex_lock(&f->lock);
    tb_choice_seed(&f->choice, speeds);
    uv_mutex_unlock(&f->lock);
}

enum tb_choice_way tb_feed_pick(struct tb_feed *f, const struct tb_choice_ask *ask)
{
    TB_ASSERT(ask->kind < TB_KINDS);
    uv_mutex_lock(&f->lock);
    const enum tb_choice_way way = tb_choice_pick(&f->choice, ask);
    uv_mutex_unlock(&f->lock);
    return way;
}

void tb_feed_learn(struct tb_feed *f, const struct tb_choice_sample *sample)
{
    uv_mutex_lock(&f->lock);
    tb_choice_learn(&f->choice, sample);
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_takes(struct tb_feed *f, const struct tb_choice_made *made)
{
    uv_mutex_lock(&f->lock);
    const bool takes = tb_choice_takes(&f->choice, made);
    uv_mutex_unlock(&f->lock);
    return takes;
}

bool tb_feed_chains(struct tb_feed *f, const struct tb_choice_made *joined, unsigned steps)
{
    uv_mutex_lock(&f->lock);
    const bool joins = tb_choice_chains(&f->choice, joined, steps);
    uv_mutex_unlock(&f->lock);
    return joins;
}

void tb_feed_choice(struct tb_feed *f, struct tb_choice *choice_out)
{
    uv_mutex_lock(&f->lock);
    *choice_out = f->choice;
    uv_mutex_unlock(&f->lock);
}

/* Streams that are busy are so together: what all carried, over the part of the time in which
 * the busiest one was. */
static void carry_locked(struct tb_feed *f, bool full, tb_time_ns now)
{
    double bytes_per_s = 0, busy = 0;
    for (uint32_t i = 0; i < TB_FEED_SLOTS_MAX; i++) {
        const struct tb_feed_slot *slot = &f->slots_carried[i];
        if (slot->time == 0 || tb_time_since(slot->at, now) > CARRIED_STALE + 2 * slot->time) continue;
        const double share = (double)slot->busy / (double)slot->time;
        bytes_per_s += (double)slot->acked_bytes * 1e9 / (double)slot->time;
        if (share > busy) busy = share;
    }
    const struct tb_choice_carried carried = {.bytes_per_s = busy > 0 ? bytes_per_s / busy : 0, .full = full};
    tb_choice_carried(&f->choice, &carried);
}

void tb_feed_carry(struct tb_feed *f, uint32_t slot, const struct tb_feed_slot *carried)
{
    TB_ASSERT(slot < TB_FEED_SLOTS_MAX);
    uv_mutex_lock(&f->lock);
    f->slots_carried[slot] = *carried;
    f->carried_full |= carried->full;
    if (tb_time_since(f->carried_at, carried->at) >= CARRIED_EVERY) {
        carry_locked(f, f->carried_full, carried->at);
        f->carried_at = carried->at;
        f->carried_full = false;
    }
    uv_mutex_unlock(&f->lock);
}

void tb_feed_choice_protocol_locked(struct tb_feed *f, uint32_t protocol)
{
    TB_ASSERT(protocol >= TB_LINK_PROTOCOL_MIN && protocol <= TB_LINK_PROTOCOL);
    f->choice.protocol = protocol;
}

void tb_feed_choice_cap_locked(struct tb_feed *f, uint64_t bytes_per_s)
{
    f->choice.cap = (double)bytes_per_s;
}
