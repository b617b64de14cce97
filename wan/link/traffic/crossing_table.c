/* crossing_table.c - crossings that the peer draws from us. */
#include "wan/link/traffic/crossing_table.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/send/feed_parcels.h"

struct tb_link_out *tb_link_out_find(const struct tb_link *l, uint32_t crossing)
{
    struct tb_link_out *o = l->traffic.crossings.outs;
    while (o != NULL && o->crossing != crossing)
        o = o->next;
    return o;
}

/* Crossings of one model are one flow: one begun before is finished before. */
static struct tb_link_out *out_of_model(const struct tb_link *l, const struct tb_name *model)
{
    struct tb_link_out *o = l->traffic.crossings.outs;
    while (o != NULL && !tb_name_equal(&o->offer->key.model, model))
        o = o->next;
    return o;
}

static uint32_t flow_of(struct tb_link *l, const struct tb_name *model)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_link_out *other = out_of_model(l, model);
    if (other != NULL) return other->flow;
    const uint32_t flow = tb_fair_join(&l->traffic.crossings.fair,
                                       o->ops->weight_of != NULL ? o->ops->weight_of(o->user, model) : 1);
    TB_ASSERT(flow != TB_FAIR_NONE); /* as many as crossings */
    return flow;
}

void tb_link_out_free(struct tb_link *l, struct tb_link_out *out)
{
    struct tb_link_out **at = &l->traffic.crossings.outs;
    while (*at != out) {
        TB_ASSERT(*at != NULL); /* each crossing is listed */
        at = &(*at)->next;
    }
    *at = out->next;
    if (out_of_model(l, &out->offer->key.model) == NULL) tb_fair_leave(&l->traffic.crossings.fair, out->flow);
    tb_feed_purge(l->traffic.feed, out->crossing);
    if (out->base != NULL && out->base->known != NULL) tb_links_past_free(l->links, out->base);
    tb_hedge_over(&l->traffic.crossings.hedge, out->crossing);
    tb_free(out->memory);
    tb_free(out);
}

void tb_link_crossings_up(struct tb_link *l)
{
    l->traffic.crossings.want_last = 0;
    l->traffic.crossings.told_spent = l->stats.peer_spent = false;
}

void tb_link_outs_drop(struct tb_link *l, const struct tb_offer *o)
{
    for (struct tb_link_out *out = l->traffic.crossings.outs, *next; out != NULL; out = next) {
        next = out->next;
        if (o == NULL || out->offer == o) tb_link_out_free(l, out);
    }
}

uint32_t tb_link_out_count(const struct tb_link *l)
{
    uint32_t count = 0;
    for (const struct tb_link_out *o = l->traffic.crossings.outs; o != NULL; o = o->next)
        count++;
    return count;
}

enum tb_status tb_link_out_new(struct tb_link *l, uint32_t crossing, struct tb_offer *offer)
{
    TB_ASSERT(crossing != 0 && tb_link_out_find(l, crossing) == NULL); /* a number stands for one crossing */
    TB_ASSERT(tb_link_out_count(l) < TB_LINKS_CROSSINGS_MAX);
    struct tb_link_out *out = tb_calloc(1, sizeof *out);
    if (out == NULL) return TB_SITE_NOMEM;
    out->memory = tb_malloc(tb_outbound_bytes_for(offer->share->places, offer->share->shard_count));
    if (out->memory == NULL) {
        tb_free(out);
        return TB_SITE_NOMEM;
    }
    out->crossing = crossing;
    out->offer = offer;
    out->began_at = tb_clock_now();
    out->flow = flow_of(l, &offer->key.model);
    tb_outbound_init(&out->core, offer->share->places, offer->share->shard_count, out->memory);
    struct tb_link_out **at = &l->traffic.crossings.outs; /* one begun before is finished before */
    while (*at != NULL)
        at = &(*at)->next;
    *at = out;
    const struct tb_links_options *options = &l->links->options;
    if (options->ops->on_drawn != NULL) options->ops->on_drawn(options->user, l->index, &offer->key);
    return TB_OK;
}

enum tb_status tb_link_out_push(struct tb_link *l, uint32_t crossing, struct tb_offer *o,
                                struct tb_shared_places *base)
{
    TB_ASSERT(base != NULL && base != o->share && crossing <= l->traffic.crossings.want_last);
    if (out_of_model(l, &o->key.model) != NULL || tb_link_out_count(l) >= TB_LINKS_CROSSINGS_MAX)
        return TB_AGAIN;
    const enum tb_status status = tb_link_out_new(l, crossing, o);
    if (status != TB_OK) return status;
    struct tb_link_out *out = tb_link_out_find(l, crossing);
    const enum tb_status on_base = tb_outbound_name_base(&out->core);
    TB_ASSERT(on_base == TB_OK); /* of a crossing that begins here */
    out->base = base;
    tb_outbound_base(&out->core, base->places, base->shard_count);
    tb_outbound_push(&out->core);
    tb_links_busy(l->links);
    return TB_OK;
}

/* The crossing a message is about. One that is over is no mistake: our end of it and the
 * peer's words crossed. */
enum tb_status tb_link_out_of(const struct tb_link *l, uint32_t crossing, struct tb_link_out **out_out)
{
    *out_out = tb_link_out_find(l, crossing);
    return crossing == 0 || crossing > l->traffic.crossings.want_last ? TB_PEER_GARBLED : TB_OK;
}
