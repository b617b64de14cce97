/* push_table.c - models whose next version may come unasked, either way. */
#include "wan/link/traffic/push_table.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/version_key.h"
#include "wan/link/link.h"
#include "wan/send/feed_landings.h"

struct tb_push **tb_push_find_model(struct tb_push **at, const struct tb_name *model)
{
    while (*at != NULL && !tb_name_equal(&(*at)->model, model))
        at = &(*at)->next;
    return at;
}

struct tb_push **tb_push_find_uid(struct tb_push **at, const struct tb_id *uid)
{
    while (*at != NULL && !tb_id_equal(&(*at)->uid, uid))
        at = &(*at)->next;
    return at;
}

struct tb_push *tb_push_take_out(struct tb_push **at)
{
    TB_ASSERT(*at != NULL);
    struct tb_push *p = *at;
    *at = p->next;
    return p;
}

static void free_all(struct tb_push **at)
{
    while (*at != NULL)
        tb_free(tb_push_take_out(at));
}

void tb_link_pushes_down(struct tb_link *l)
{
    free_all(&l->traffic.pushes.expecting);
    free_all(&l->traffic.pushes.pushed);
    free_all(&l->traffic.pushes.expected);
    memset(l->traffic.pushes.given, 0, sizeof l->traffic.pushes.given);
    tb_feed_unexpect(l->traffic.feed, 0); /* streams hear of it as they end */
}

void tb_link_pushes_forget(struct tb_link *l)
{
    free_all(&l->traffic.pushes.resting);
}

bool tb_push_is_newer(const struct tb_version_key *key, const struct tb_version_key *than)
{
    return tb_name_equal(&key->model, &than->model) && tb_version_key_compare(key, than) > 0;
}

bool tb_link_is_pushed(const struct tb_link *l, const struct tb_id *uid)
{
    const struct tb_push *p = l->traffic.pushes.pushed;
    while (p != NULL && !tb_id_equal(&p->uid, uid))
        p = p->next;
    return p != NULL;
}

void tb_link_push_moved(struct tb_link *l, const struct tb_id *uid)
{
    struct tb_push *p = *tb_push_find_uid(&l->traffic.pushes.pushed, uid);
    if (p != NULL) p->came = tb_clock_now();
}

void tb_link_expected_ends(struct tb_link *l, const struct tb_name *model)
{
    struct tb_push **at = tb_push_find_model(&l->traffic.pushes.expected, model);
    if (*at != NULL) tb_free(tb_push_take_out(at));
}
