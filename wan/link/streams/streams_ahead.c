/* streams_ahead.c - data streams that are dialled before their session is greeted. */
#include "wan/link/streams/streams_ahead.h"

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_table.h"
#include "wan/stream/stream_life.h"

/* they bring the first chunks; whatever else is wanted is dialled once the peer is greeted */
#define AHEAD_MAX 4u

void tb_link_streams_ahead(struct tb_link *l, const struct tb_address *to)
{
    TB_ASSERT(!tb_link_is_up(l) || tb_link_life_state(l) == TB_LINK_SILENT);
    const uint32_t all = tb_link_streams_wanted(l), wanted = all < AHEAD_MAX ? all : AHEAD_MAX;
    const struct tb_stream_plan plan = tb_link_stream_dial_plan(l, 0, to);
    while (l->traffic.streams.ahead_count < wanted) {
        struct tb_stream *s = tb_stream_new_ahead(&plan);
        if (s == NULL) return;
        l->traffic.streams.ahead[l->traffic.streams.ahead_count++] = s;
        tb_links_stream_to_loop(l->links, s);
    }
}

void tb_link_streams_ahead_end(struct tb_link *l)
{
    for (uint32_t i = 0; i < l->traffic.streams.ahead_count; i++)
        if (!atomic_load(&l->traffic.streams.ahead[i]->ending)) tb_stream_end(l->traffic.streams.ahead[i]);
}

/* The session's now, unless it went elsewhere. */
static bool adopt(struct tb_link *l, struct tb_stream *s)
{
    const int slot = tb_link_stream_free_slot(l);
    if (slot < 0 || tb_stream_phase(s) == TB_STREAM_GONE || atomic_load(&s->ending)) return false;
    if (!tb_link_same_address(&s->plan.address, &tb_link_control(l)->address)) return false;
    const struct tb_stream_plan plan = tb_link_stream_plan(l, (uint32_t)slot, ++l->traffic.streams.number);
    TB_ASSERT(l->traffic.streams.slots[slot] == NULL);
    l->traffic.streams.slots[slot] = s;
    tb_stream_bind(s, &plan);
    return true;
}

void tb_link_streams_adopt(struct tb_link *l)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < l->traffic.streams.ahead_count; i++)
        if (!tb_link_control(l)->dialled || !adopt(l, l->traffic.streams.ahead[i]))
            l->traffic.streams.ahead[left++] = l->traffic.streams.ahead[i];
    l->traffic.streams.ahead_count = left;
    tb_link_streams_ahead_end(l);
}

void tb_link_streams_ahead_gone(struct tb_link *l)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < l->traffic.streams.ahead_count; i++) {
        struct tb_stream *s = l->traffic.streams.ahead[i];
        if (tb_stream_phase(s) == TB_STREAM_GONE)
            tb_stream_free(s);
        else
            l->traffic.streams.ahead[left++] = s;
    }
    l->traffic.streams.ahead_count = left;
}
