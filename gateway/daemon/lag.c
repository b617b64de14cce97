/* lag.c - a ladder of reasons, and a range of seconds. Pure. */
#include "gateway/daemon/lag.h"

#include <stddef.h>

static const struct {
    const char *name, *why;
} reasons[] = {
#define TB_LAG_ROW(name, text, why) {text, why},
    TB_LAG_REASONS(TB_LAG_ROW)
#undef TB_LAG_ROW
};

const char *tb_lag_name(enum tb_lag_reason reason)
{
    return reasons[reason].name;
}

const char *tb_lag_why(enum tb_lag_reason reason)
{
    return reasons[reason].why;
}

enum tb_lag_reason tb_lag_reason_of(const struct tb_lag_facts *f)
{
    if (!f->heard) return TB_LAG_UNHEARD;
    if (!f->behind) return TB_LAG_NONE;
    if (f->store_down) return TB_LAG_STORE;
    if (!f->linked) return TB_LAG_LINK_DOWN;
    if (f->lacks_room) return TB_LAG_NO_ROOM;
    if (f->unsealed) return TB_LAG_UNSEALED;
    if (f->spent) return TB_LAG_DAY_SPENT;
    if (f->asked) return TB_LAG_MANIFESTS;
    if (!f->begun) return TB_LAG_QUEUED;
    return f->still ? TB_LAG_STALLED : TB_LAG_CROSSING;
}

void tb_lag_look(struct tb_lag_pace *p, uint64_t bytes)
{
    p->per_s[p->at++ % TB_LAG_SECONDS] = bytes > p->bytes ? bytes - p->bytes : 0;
    p->bytes = bytes;
    if (p->count < TB_LAG_SECONDS) p->count++;
}

bool tb_lag_still(const struct tb_lag_pace *p)
{
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
    if (least == 0) return false;
    *eta_out = (struct tb_lag_eta){(double)left_bytes / (double)most, (double)left_bytes / (double)least};
    return true;
}
