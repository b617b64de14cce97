/* copies_check.c - see copies_check.h. */
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/daemon/copies/copies_check.h"
#include "gateway/daemon/copies/copy_table.h"

static bool is_row(const struct tb_daemon *d, const struct tb_copy *copy)
{
    const struct tb_copy *c = d->copies;
    while (c != NULL && c != copy)
        c = c->next;
    return c != NULL;
}

static bool is_asked(const struct tb_daemon *d, const struct tb_copy_hop *h)
{
    const struct tb_grant_wait *g = d->grants.first;
    while (g != NULL && !tb_id_equal(&g->token, &h->token))
        g = g->next;
    return g != NULL && tb_id_equal(&g->uid, &h->copy->key.uid) && tb_id_equal(&g->owner, &h->session);
}

static void check_hop(const struct tb_daemon *d, const struct tb_copy *copy, const struct tb_copy_hop *h)
{
    TB_ASSERT(h->copy == copy);
    TB_ASSERT(!h->asks || h->hop == NULL);
    TB_ASSERT(!h->asks || is_asked(d, h));
    TB_ASSERT(h->base == NULL || h->hop != NULL); /* one that is closed decodes from nothing */
    TB_ASSERT(h->base == NULL || (h->base != copy && is_row(d, h->base)));
    TB_ASSERT(h->base == NULL || (h->base->used_by & TB_COPY_USED_BY_LANDING) != 0);
}

static void check_shelf(const struct tb_daemon *d, const struct tb_copy *copy)
{
    const struct tb_copy *base = copy->shelf_base;
    TB_ASSERT((copy->shelf_work != NULL) <= (copy->shelf_memory != NULL));
    if (base == NULL) return;
    TB_ASSERT(copy->shelf_memory != NULL && base != copy && is_row(d, base));
    TB_ASSERT(!tb_copy_leaves(base) && base->region != NULL); /* its bytes are read */
    TB_ASSERT(tb_name_equal(&base->key.model, &copy->key.model));
}

static void check_leaving(const struct tb_copy *copy)
{
    TB_ASSERT(copy->evict_waits <= 2);
    if (!tb_copy_leaves(copy)) {
        TB_ASSERT(copy->evict_waits == 0);
        return;
    }
    TB_ASSERT(copy->hops == NULL && copy->export_id == 0 && copy->shelf_memory == NULL);
    TB_ASSERT((copy->used_by & TB_COPY_USED_BY_LANDING) == 0);
    TB_ASSERT(copy->serving != TB_COPY_DUE && copy->serving != TB_COPY_OFFERED);
}

static void check_copy(const struct tb_daemon *d, const struct tb_copy *copy)
{
    TB_ASSERT(copy->d == d);
    TB_ASSERT(copy->life < TB_COPY_LIVES && copy->serving < TB_COPY_SERVINGS);
    TB_ASSERT(!tb_copy_is_whole(copy) || copy->region != NULL);
    TB_ASSERT(copy->life != TB_COPY_CROSSES || copy->region != NULL);
    TB_ASSERT(copy->serving != TB_COPY_DUE); /* the dispatcher has offered it, or could not */
    TB_ASSERT((copy->export_id != 0) <= (copy->source != NULL && copy->region != NULL));
    TB_ASSERT(copy->life != TB_COPY_ASKED || copy->asked_at != 0);
    TB_ASSERT(copy->from_count <= TB_CATALOG_FROM_MAX && copy->told.count <= TB_CROSSING_TOLD_MAX);
    TB_ASSERT(copy->moves.held.count <= TB_LAG_SECONDS && copy->moves.came.count <= TB_LAG_SECONDS);
    TB_ASSERT(copy->swept_bad <= copy->swept_chunks);
    for (const struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next)
        check_hop(d, copy, h);
    check_shelf(d, copy);
    check_leaving(copy);
}

void tb_copies_check(const struct tb_daemon *d)
{
    uint64_t count = 0, to_disk = 0;
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        check_copy(d, c);
        count++;
        to_disk += (c->used_by & TB_COPY_USED_BY_ANCHOR) != 0;
    }
    TB_ASSERT(count == d->copies_used.used && count <= d->copies_used.most);
    TB_ASSERT(to_disk <= 1); /* one anchor is written at a time */
    TB_ASSERT(d->asked_next < TB_DOUBTS_MAX);
}
