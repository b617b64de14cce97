/* lag.c - a ladder of reasons, and a range of seconds. Pure. */
#include "gateway/daemon/links/lag.h"

#include <stddef.h>

#include "base/assert.h"

static const struct {
    const char *name, *why;
} reasons[] = {
#define TB_LAG_ROW(name, text, why) {text, why},
    TB_LAG_REASONS(TB_LAG_ROW)
#undef TB_LAG_ROW
};

static uint16_t known(uint16_t reason)
{
    return reason < TB_LAG_REASON_END ? reason : TB_LAG_UNKNOWN;
}

const char *tb_lag_name(uint16_t reason)
{
    return reasons[known(reason)].name;
}

const char *tb_lag_why(uint16_t reason)
{
    return reasons[known(reason)].why;
}

/* It has the head. */
static enum tb_lag_reason use(const struct tb_lag_facts *f)
{
    if (f->has_groups) return f->used || !f->whole_for_long ? TB_LAG_UP_TO_DATE : TB_LAG_NOT_ACTIVATING;
    return f->is_home ? TB_LAG_UP_TO_DATE : TB_LAG_NO_SUBSCRIBER;
}

/* Chunks of it move. */
static enum tb_lag_reason pace(const struct tb_lag_facts *f)
{
    static const enum tb_lag_reason by_holdup[TB_HOLDUP_END] = {
        [TB_HOLDUP_NONE] = TB_LAG_CROSSING,     [TB_HOLDUP_RATE] = TB_LAG_RATE,
        [TB_HOLDUP_SENDER] = TB_LAG_SENDER_CPU, [TB_HOLDUP_LOSS] = TB_LAG_LOSS,
        [TB_HOLDUP_WINDOW] = TB_LAG_WINDOW,     [TB_HOLDUP_RECEIVER] = TB_LAG_RECEIVER_CPU,
    };
    TB_ASSERT((int)f->holdup >= 0 && f->holdup < TB_HOLDUP_END); /* wan refuses others from a peer */
    if (f->holdup == TB_HOLDUP_RECEIVER && f->window_small) return TB_LAG_WINDOW;
    if (f->holdup == TB_HOLDUP_NONE && f->mtu) return TB_LAG_MTU;
    return by_holdup[f->holdup];
}

enum tb_lag_reason tb_lag_reason_of(const struct tb_lag_facts *f)
{
    TB_ASSERT(f->link < TB_LAG_REASON_END);
    if (f->store_down) return TB_LAG_STORE;
    if (!f->subscribed) return TB_LAG_NO_SUBSCRIBER;
    if (f->link != TB_LAG_UP_TO_DATE) return f->link;
    if (!f->heard) return TB_LAG_UNKNOWN;
    if (f->awaits_signature) return TB_LAG_UNSIGNED;
    if (f->pinned) return TB_LAG_PINNED;
    if (f->paused) return TB_LAG_PAUSED;
    if (!f->behind) return use(f);
    if (f->table_full) return TB_LAG_TABLE;
    if (f->lacks_room) return TB_LAG_NO_ROOM;
    if (f->unsealed) return TB_LAG_PUBLISHING;
    if (f->bad_chunks) return TB_LAG_VERIFY;
    if (f->no_memory) return TB_LAG_RECEIVER_MEMORY;
    if (f->spent) return TB_LAG_BUDGET;
    if (f->asked) return TB_LAG_MANIFESTS;
    if (f->share_spent) return TB_LAG_SHARE;
    if (!f->begun) return f->base_crosses ? TB_LAG_BASE : TB_LAG_QUEUED;
    if (f->still) return f->mtu ? TB_LAG_MTU : TB_LAG_STALLED;
    return pace(f);
}

bool tb_lag_is_current(uint16_t reason)
{
    return reason == TB_LAG_UP_TO_DATE || reason == TB_LAG_NOT_ACTIVATING || reason == TB_LAG_NO_SUBSCRIBER;
}

bool tb_lag_is_of_link(uint16_t reason)
{
    return (reason >= TB_LAG_LINK_DOWN && reason <= TB_LAG_TWIN) || reason == TB_LAG_CLOCK ||
           reason == TB_LAG_REVOKED;
}

bool tb_lag_is_of_lack(uint16_t reason)
{
    switch (reason) {
    case TB_LAG_TABLE:
    case TB_LAG_NO_ROOM:
    case TB_LAG_PUBLISHING:
    case TB_LAG_VERIFY:
    case TB_LAG_RECEIVER_MEMORY:
    case TB_LAG_BUDGET:
    case TB_LAG_MANIFESTS:
    case TB_LAG_SHARE:
    case TB_LAG_BASE:
    case TB_LAG_QUEUED:
    case TB_LAG_STALLED:
        return true;
    default:
        return tb_lag_moves(reason);
    }
}

bool tb_lag_moves(uint16_t reason)
{
    return reason == TB_LAG_CROSSING || reason == TB_LAG_RATE || reason == TB_LAG_SENDER_CPU ||
           reason == TB_LAG_LOSS || reason == TB_LAG_WINDOW || reason == TB_LAG_RECEIVER_CPU ||
           reason == TB_LAG_MTU;
}

void tb_lag_look(struct tb_lag_pace *p, uint64_t bytes)
{
    p->per_s[p->at++ % TB_LAG_SECONDS] = bytes > p->bytes ? bytes - p->bytes : 0;
    p->bytes = bytes;
    if (p->count < TB_LAG_SECONDS) p->count++;
    TB_ASSERT(p->count <= p->at);
}

bool tb_lag_still(const struct tb_lag_pace *p)
{
    TB_ASSERT(p->count <= TB_LAG_SECONDS && p->count <= p->at);
    if (p->count < 2) return false;
    return p->per_s[(p->at - 1) % TB_LAG_SECONDS] == 0 && p->per_s[(p->at - 2) % TB_LAG_SECONDS] == 0;
}

bool tb_lag_stands(const struct tb_lag_pace *p, tb_time_ns begun_for)
{
    return begun_for >= TB_SECONDS(3) && tb_lag_still(p);
}

bool tb_lag_estimate(const struct tb_lag_pace *p, uint64_t left_bytes, struct tb_lag_eta *eta_out)
{
    uint64_t least = UINT64_MAX, most = 0;
    if (p->count < 2) return false;
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->per_s[i] < least) least = p->per_s[i];
        if (p->per_s[i] > most) most = p->per_s[i];
    }
    TB_ASSERT(least <= most);
    if (least == 0) return false;
    *eta_out = (struct tb_lag_eta){(double)left_bytes / (double)most, (double)left_bytes / (double)least};
    return true;
}

/* At the first look nothing has come yet: what is held then is from the process before. */
void tb_lag_landing_look(struct tb_lag_landing *l, uint64_t held, uint64_t came)
{
    if (!l->begun) *l = (struct tb_lag_landing){.begun = true, .held_first = came == 0 ? held : 0};
    if (held <= l->held || held <= l->held_first) return;
    l->held = held;
    l->came = came;
}

bool tb_lag_estimate_rest(const struct tb_lag_moves *m, uint64_t left_bytes, struct tb_lag_eta *eta_out)
{
    const struct tb_lag_landing *l = &m->landing;
    if (tb_lag_estimate(&m->held, left_bytes, eta_out)) return true;
    if (l->held <= l->held_first) return false; /* nobody knows how much the codecs shrink it */
    const double landed = (double)(l->held - l->held_first);
    /* A chunk that codecs do not shrink goes as it is. More came than that: bytes were wasted, as
     * by streams that were cut, or chunks were under way beside it. Nobody knows which, so those
     * since the last landing alone count as under way. */
    const double encoded = l->came < l->held - l->held_first ? (double)l->came / landed : 1;
    const double rest = (double)left_bytes * encoded;
    const double under_way = m->came.bytes > l->came ? (double)(m->came.bytes - l->came) : 0;
    if (under_way >= rest) return false; /* some of it was wasted */
    return tb_lag_estimate(&m->came, (uint64_t)(rest - under_way), eta_out);
}
