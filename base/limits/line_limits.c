/* line_limits.c - a bucket for each party and event. */
#include "base/limits/line_limits.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* Of a stranger's own address; all of them together are TB_LINE_STRANGERS. */
static uint32_t times_of(enum tb_line_party kind)
{
    if (kind == TB_LINE_OF_NOBODY) return TB_LINE_NOBODYS;
    return kind == TB_LINE_OF_GATEWAY ? TB_LINE_GATEWAYS : 1;
}

/* A sum that nobody heard yet is kept while it can be. */
static bool is_owed(const void *row, tb_time_ns now)
{
    const struct tb_line_row *r = row;
    return r->suppressed > 0 && tb_time_since(r->suppressed_at, now) < 2 * TB_LINE_TELL_EVERY;
}

static struct tb_line_row *row_get(struct tb_line_limits *l, const char *event, const char *party,
                                   uint32_t per_s, tb_time_ns now)
{
    const uint64_t key = tb_key_join(tb_key_of_text(party), tb_key_of_text(event));
    struct tb_line_row *r = tb_keyed_get(l->rows, TB_LINE_ROWS, sizeof *r, key, now, is_owed);
    if (r == NULL) return NULL;
    if (r->event == NULL) {
        r->event = event;
        (void)snprintf(r->party, sizeof r->party, "%s", party);
        r->told_at = r->leaked_at = now;
    }
    r->milli_used = tb_leak(r->milli_used, per_s, &r->leaked_at, now);
    return r;
}

static bool has_room(const struct tb_line_row *r, uint32_t times)
{
    return r != NULL && r->milli_used + 1000 <= TB_LINE_BURST * times * UINT64_C(1000);
}

bool tb_line_take(struct tb_line_limits *l, const char *event, const char *party, enum tb_line_party kind,
                  tb_time_ns now)
{
    TB_ASSERT(event != NULL && party != NULL);
    const bool stranger = kind == TB_LINE_OF_STRANGER;
    const uint32_t times = times_of(kind);
    /* The row of all strangers comes first: the one of its address may take no place of it. */
    struct tb_line_row *all =
        stranger ? row_get(l, event, "strangers", TB_LINE_STRANGERS * TB_LINE_PER_S, now) : NULL;
    const bool room = !stranger || has_room(all, TB_LINE_STRANGERS);
    struct tb_line_row *one = room ? row_get(l, event, party, times * TB_LINE_PER_S, now) : NULL;
    if (one == NULL && kind == TB_LINE_OF_NOBODY) return true; /* no flood of others hides it */
    if (room && has_room(one, times)) {
        one->milli_used += 1000;
        if (all != NULL) all->milli_used += 1000;
        return true;
    }
    l->suppressed++;
    struct tb_line_row *counts = one != NULL ? one : all;
    if (counts == NULL) return false;
    counts->suppressed++;
    counts->suppressed_at = now;
    return false;
}

bool tb_line_sum_due(struct tb_line_limits *l, tb_time_ns now, struct tb_line_sum *sum_out)
{
    for (uint32_t i = 0; i < TB_LINE_ROWS; i++) {
        struct tb_line_row *r = &l->rows[i];
        if (r->keyed.key == 0 || r->suppressed == 0) continue;
        if (tb_time_since(r->told_at, now) < TB_LINE_TELL_EVERY) continue;
        TB_ASSERT(r->event != NULL); /* a line was held back, so it was counted */
        *sum_out = (struct tb_line_sum){.event = r->event, .lines = r->suppressed};
        memcpy(sum_out->party, r->party, sizeof r->party);
        r->suppressed = 0;
        r->told_at = now;
        return true;
    }
    return false;
}
