/* landing_table.c - landings that are drawn from the peer: wanted, begun, over. */
#include "wan/link/traffic/landing_table.h"

#include "base/allocate.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_control.h"
#include "wan/send/feed_landings.h"
#include "wan/send/inbound.h"

struct tb_link_in *tb_link_in_find(const struct tb_link *l, uint32_t crossing)
{
    struct tb_link_in *in = l->traffic.ins;
    while (in != NULL && (crossing == 0 || in->crossing != crossing))
        in = in->next;
    return in;
}

struct tb_link_in *tb_link_in_of(const struct tb_link *l, const struct tb_id *uid)
{
    struct tb_link_in *in = l->traffic.ins;
    while (in != NULL && !tb_id_equal(&in->key.uid, uid))
        in = in->next;
    return in;
}

/* No stream begins to land a chunk of it any more. */
void tb_link_in_unlist(struct tb_link *l, struct tb_link_in *in)
{
    if (in->crossing != 0) tb_feed_landing_remove(l->traffic.feed, in->crossing);
    if (in->draining != 0) tb_feed_landing_remove(l->traffic.feed, in->draining);
    in->draining = 0;
}

void tb_link_in_stop(struct tb_link *l, struct tb_link_in *in)
{
    tb_link_in_unlist(l, in);
    if (in->crossing != 0) LINK_SEND(l, TB_FRAME_STOP, tb_frame_stop, LINK_SMALL, .crossing = in->crossing);
    in->crossing = 0;
    in->base = NULL;
}

void tb_link_in_free(struct tb_link *l, struct tb_link_in *in)
{
    struct tb_link_in **at = &l->traffic.ins;
    while (*at != in)
        at = &(*at)->next;
    *at = in->next;
    tb_free(in->memory);
    tb_free(in);
}

void tb_link_ins_free(struct tb_link *l)
{
    while (l->traffic.ins != NULL) {
        tb_shared_places_free(l->traffic.ins->share);
        tb_link_in_free(l, l->traffic.ins);
    }
}

bool tb_link_in_all_held(const struct tb_link_in *in)
{
    for (uint32_t s = 0; s < in->share->shard_count; s++)
        if (!tb_place_whole(&in->share->places[s])) return false;
    return true;
}

/* P6: one that failed begins anew, in the same places and with what is held there; else a
 * chunk that came wrong three times would keep its version, and all that wait behind it,
 * from this peer for ever. */
static enum tb_status land_again(struct tb_link *l, struct tb_link_in *in)
{
    if (!in->finished || tb_link_in_all_held(in)) return TB_DONE_BEFORE;
    tb_inbound_init(&in->core, in->share->places, in->share->shard_count, in->memory);
    in->finished = false;
    tb_links_busy(l->links);
    return TB_OK;
}

uint32_t tb_link_in_count(const struct tb_link *l)
{
    uint32_t count = 0;
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next)
        count++;
    return count;
}

uint32_t tb_link_in_crossings(const struct tb_link *l)
{
    uint32_t count = 0;
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next)
        count += in->crossing != 0;
    return count;
}

enum tb_status tb_links_land(struct tb_links *ls, uint32_t peer, const struct tb_version_key *key,
                             const struct tb_place *places)
{
    struct tb_link *l = &ls->links[peer];
    struct tb_link_in *known = tb_link_in_of(l, &key->uid);
    if (known != NULL) return land_again(l, known);
    const uint32_t count = tb_link_in_count(l);
    if (count >= TB_LINKS_OFFERS_MAX) {
        tb_links_table_refused(ls, TB_LINKS_TABLE_LANDINGS, l);
        return TB_SITE_NOMEM;
    }
    struct tb_link_in *in = tb_calloc(1, sizeof *in);
    if (in == NULL) return TB_SITE_NOMEM;
    in->share = tb_shared_places_new(&key->uid, places, key->shard_count, &ls->wake);
    if (in->share == NULL) goto undo_in;
    in->memory = tb_malloc(tb_inbound_bytes_for(places, key->shard_count));
    if (in->memory == NULL) goto undo_share;
    in->key = *key;
    tb_inbound_init(&in->core, in->share->places, key->shard_count, in->memory);
    struct tb_link_in **at = &l->traffic.ins;
    while (*at != NULL)
        at = &(*at)->next;
    *at = in;
    tb_links_table_took(ls, TB_LINKS_TABLE_LANDINGS, count + 1);
    tb_links_busy(ls);
    return TB_OK;

undo_share:
    tb_shared_places_free(in->share);
undo_in:
    tb_free(in);
    return TB_SITE_NOMEM;
}

void tb_link_in_end(struct tb_link *l, struct tb_link_in *in, enum tb_status why)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_version_key key = in->key;
    if (why != TB_OK)
        tb_link_in_stop(l, in);
    else
        tb_link_in_unlist(l, in); /* the peer knows by HELD that it is over */
    in->crossing = 0;
    in->base = NULL;
    in->finished = true;
    if (why == TB_OK && o->ops->on_landed != NULL) o->ops->on_landed(o->user, l->index, &key);
    if (why != TB_OK && o->ops->on_failed != NULL) o->ops->on_failed(o->user, l->index, &key.uid, why);
}

void tb_link_in_fail(struct tb_link *l, const struct tb_id *uid, enum tb_status why)
{
    struct tb_link_in *in = tb_link_in_of(l, uid);
    if (in != NULL && !in->finished) tb_link_in_end(l, in, why);
}
