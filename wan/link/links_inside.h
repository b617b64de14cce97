/* links_inside.h - all links of a gateway, as one struct. Internal to wan/link.
 *
 * One thread: the main loop's. */
#ifndef TB_WAN_LINKS_INSIDE_H
#define TB_WAN_LINKS_INSIDE_H

#include "base/clock.h"
#include "wan/link/links.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_table_counts.h"
#include "wan/stream/stream.h"

struct tb_link_admission;
struct tb_link_conn;
struct tb_division;
struct tb_link;
struct tb_offer;
struct tb_retired;
struct tb_links;
struct tb_shared_places;

#define LINKS_TICK_BUSY_MS 5u /* HELD at most every 10 ms, and a relay looks for held chunks as often */
#define LINKS_TICK_IDLE_MS 25u

/* The counters of one table. */
struct tb_links_table_use {
    uint32_t most;
    uint64_t refused, spent; /* spent: of them, for want of a share */
    struct tb_name full;     /* the peer that was refused last; of offers: none */
};

struct tb_links {
    struct tb_links_options options; /* pointers in it are ours or static */
    struct tb_tcp_path_options tcp;
    struct tb_tcp_ceilings ceilings; /* of the kernel, as they were seen last */
    tb_time_ns ceilings_at;
    struct tb_identity identity;
    uv_async_t wake;
    uv_timer_t clock;
    uint32_t handles;
    uint32_t clock_ms; /* 0: stopped */
    void (*on_clock)(uv_timer_t *clock);
    const struct tb_wire_ops *wire_ops; /* of connections that may become control streams */
    tb_time_ns ticked_at;
    tb_time_ns checked_at; /* all tables, small or not */
    struct tb_listener *listener;
    struct tb_link_conn *conns;
    uint32_t accepted_count; /* of them */
    struct tb_stream_loop *loops[TB_LINKS_THREADS_MAX];
    uint32_t loop_count, loop_at;
    struct tb_link *links; /* peer_count, and room for more */
    uint32_t peer_room;
    struct tb_offer *offers;
    uint32_t offer_count;
    struct tb_links_table_use tables[TB_LINKS_TABLES_COUNT];
    struct tb_version_key withdrawn[TB_LINKS_WITHDRAWN_MAX];
    uint32_t withdrawn_count, withdrawn_at;
    struct tb_name paused[TB_LINKS_PAUSED_MAX]; /* models, by an operator here */
    uint32_t paused_count;
    struct tb_division *divisions;
    struct tb_shared_places *retiring; /* shares on which some stream may still have a hand */
    struct tb_retired *retired;
    uint64_t strangers;
    struct tb_link_admission *admission;
    tb_time_ns full_told_at; /* that a connection was not accepted, for want of room; 0: never */
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

uint64_t tb_links_random(void);
void tb_links_fed(struct tb_links *ls);  /* loops whose streams found nothing to send look again */
void tb_links_heed(struct tb_links *ls); /* every stream looks at what it has in hand */
void tb_links_table_took(struct tb_links *ls, enum tb_links_table table, uint32_t used); /* a row */
/* A row; l: whose it would be, or NULL. */
void tb_links_table_refused(struct tb_links *ls, enum tb_links_table table, const struct tb_link *l);
/* The turn comes each `ms` milliseconds. */
void tb_links_set_clock(struct tb_links *ls, uint32_t ms);
void tb_links_busy(struct tb_links *ls); /* something moves: tick fast */
/* The ceilings and congestion controls of the kernel. */
void tb_links_path_options(const struct tb_links_options *o, const struct tb_tcp_ceilings *ceilings,
                           struct tb_tcp_path_options *p);
/* links_peers.c */
enum tb_status tb_link_init(struct tb_links *ls, struct tb_link *l, const struct tb_links_peer_options *p);
void tb_link_fini(struct tb_link *l);
/* links_options.c */
enum tb_status tb_links_peer_check(const struct tb_links_options *o, const struct tb_links_peer_options *p,
                                   char error_out[256]);
void tb_links_options_fill(struct tb_links_options *o); /* what is usual, where nothing was said */
enum tb_status tb_links_refuse(char error_out[256], const char *what, const char *which);
enum tb_status tb_links_options_check(const struct tb_links_options *o, char error_out[256]);

#endif
