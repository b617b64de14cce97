/* crossing_table.h - crossings that the peer draws from us. */
#ifndef TB_WAN_CROSSING_TABLE_H
#define TB_WAN_CROSSING_TABLE_H

#include "wan/link/links.h"
#include "wan/send/fair_queue.h"
#include "wan/send/hedge.h"
#include "wan/send/shared_places.h"

struct tb_link;
struct tb_offer;
struct tb_shared_places;

/* A version that the peer draws from us. */
struct tb_link_out {
    struct tb_link_out *next;
    uint32_t crossing;
    struct tb_offer *offer;
    /* of an offer, or ours (tb_links_past_new): what the peer holds whole; NULL: none, or gone
     * here */
    struct tb_shared_places *base;
    bool no_base_told; /* the log says that the peer's base went */
    struct tb_outbound core;
    void *memory;
    tb_time_ns began_at;
    tb_time_ns have_at; /* what is held here was told, in a shared crossing */
    uint32_t flow;      /* of its model, in the link's fair */
    struct tb_fair_bill bill;
};

struct tb_link_crossings {
    struct tb_link_out *outs;
    uint32_t want_last; /* the highest crossing number the peer gave */
    struct tb_fair fair;
    struct tb_hedge hedge;
    uint32_t queued; /* parcels that no stream took, when it was looked last */
    bool full;       /* since the last look there was always something to send */
    bool spent;      /* the day's bytes, when it was looked last */
    bool told_spent; /* as the peer heard of us in this session */
};

/* NULL: there is none. */
struct tb_link_out *tb_link_out_find(const struct tb_link *l, uint32_t crossing);
void tb_link_out_free(struct tb_link *l, struct tb_link_out *out);
/* A session began. */
void tb_link_crossings_up(struct tb_link *l);
void tb_link_outs_drop(struct tb_link *l, const struct tb_offer *o); /* NULL: all */
uint32_t tb_link_out_count(const struct tb_link *l);
enum tb_status tb_link_out_new(struct tb_link *l, uint32_t crossing, struct tb_offer *offer);
/* A crossing that the peer expects begins. */
TB_MUST_USE enum tb_status tb_link_out_push(struct tb_link *l, uint32_t crossing, struct tb_offer *o,
                                            struct tb_shared_places *base);
/* The crossing a message is about. NULL and TB_OK: one that is over, which is no mistake. */
enum tb_status tb_link_out_of(const struct tb_link *l, uint32_t crossing, struct tb_link_out **out_out);

#endif
