/* grant_table.c - see grant_table.h. */
#include "gateway/daemon/sessions/grant_table.h"

#include "base/allocate.h"
#include "base/assert.h"

static struct tb_grant_wait **row_of(struct tb_grant_table *t, const struct tb_id *token)
{
    struct tb_grant_wait **at = &t->first;
    while (*at != NULL && !tb_id_equal(&(*at)->token, token))
        at = &(*at)->next;
    return at;
}

enum tb_status tb_grants_put(struct tb_grant_table *t, uint64_t bound, const struct tb_grant_wait *grant)
{
    TB_ASSERT(grant->answer != NULL && !tb_id_is_zero(&grant->owner));
    TB_ASSERT(!tb_id_is_zero(&grant->token) && *row_of(t, &grant->token) == NULL);
    const bool full = t->gauge.used >= bound;
    t->gauge.refused += full;
    struct tb_grant_wait *row = full ? NULL : tb_malloc(sizeof *row);
    if (row == NULL) return TB_SITE_NOMEM;
    *row = *grant;
    row->next = t->first;
    t->first = row;
    tb_gauge_add(&t->gauge, 1);
    return TB_OK;
}

static void take(struct tb_grant_table *t, struct tb_grant_wait **at, struct tb_grant_wait *grant_out)
{
    struct tb_grant_wait *row = *at;
    TB_ASSERT(t->gauge.used > 0);
    *at = row->next;
    *grant_out = *row;
    grant_out->next = NULL;
    t->gauge.used--;
    tb_free(row);
}

bool tb_grants_take(struct tb_grant_table *t, const struct tb_id *owner, const struct tb_id *token,
                    struct tb_grant_wait *grant_out)
{
    struct tb_grant_wait **at = row_of(t, token);
    if (*at == NULL || !tb_id_equal(&(*at)->owner, owner)) return false;
    take(t, at, grant_out);
    return true;
}

bool tb_grants_take_late(struct tb_grant_table *t, tb_time_ns now, struct tb_grant_wait *grant_out)
{
    struct tb_grant_wait **at = &t->first;
    while (*at != NULL && now < (*at)->deadline)
        at = &(*at)->next;
    if (*at == NULL) return false;
    take(t, at, grant_out);
    return true;
}

void tb_grants_drop(struct tb_grant_table *t, const struct tb_id *token)
{
    struct tb_grant_wait dropped, **at = row_of(t, token);
    TB_ASSERT(*at != NULL);
    take(t, at, &dropped);
}

void tb_grants_free(struct tb_grant_table *t)
{
    struct tb_grant_wait freed;
    while (t->first != NULL)
        take(t, &t->first, &freed);
}

void tb_grants_check(const struct tb_grant_table *t)
{
    uint64_t count = 0;
    for (const struct tb_grant_wait *g = t->first; g != NULL; g = g->next, count++) {
        TB_ASSERT(g->answer != NULL && !tb_id_is_zero(&g->token) && !tb_id_is_zero(&g->owner));
        TB_ASSERT((g->plan == 0) == tb_id_is_zero(&g->reader));
    }
    TB_ASSERT(count == t->gauge.used && t->gauge.used <= t->gauge.most);
}
