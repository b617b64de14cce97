/* stream_table.h - the data streams of a link, by slot. */
#ifndef TB_WAN_STREAM_TABLE_H
#define TB_WAN_STREAM_TABLE_H

#include "wan/link/links.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_stats.h"
#include "wan/stream/stream.h"
#include "wan/stream/tuner.h"

struct tb_link;
struct tb_links;
struct tb_stream;

#define LINK_GONE_MAX 64u /* stream numbers that may not be bound any more */

struct tb_link_streams {
    struct tb_stream *slots[TB_LINKS_STREAMS_MAX];
    uint32_t number; /* the last one dialled, or the highest bound */
    /* Dialled beside a control stream that is not greeted yet. */
    struct tb_stream *ahead[TB_LINKS_STREAMS_MAX];
    uint32_t ahead_count;
    tb_time_ns rtt;        /* as the control stream's TCP saw it first; 0: not known */
    struct tb_tuner tuner; /* lives as long as the link: a path is remembered */
    uint32_t usable;       /* streams that are used to send */
    uint32_t peer_wants;   /* streams, for what it sends; 0: it did not say */
    uint32_t told_wants;   /* that the peer heard of us in this session; 0: nothing */
    tb_time_ns looked_at;
    uint32_t failures; /* in a row */
    tb_time_ns retry_at;
    uint32_t gone_numbers[LINK_GONE_MAX];
    uint32_t gone_at;
    bool garbled; /* a stream of the session ended so: the turn ends the session */
};

uint32_t tb_link_streams_count(const struct tb_link *l);
bool tb_link_streams_old(const struct tb_link *l); /* some of an earlier session are not gone yet */
/* NULL: the slot is free. */
struct tb_stream *tb_link_stream_at(const struct tb_link *l, uint32_t slot);
bool tb_link_streams_are_ahead(const struct tb_link *l);
/* A session began; the RTT of its control stream. */
void tb_link_streams_up(struct tb_link *l, tb_time_ns rtt);
void tb_link_stream_end(struct tb_stream *s);
/* -1: all are taken. */
int tb_link_stream_free_slot(const struct tb_link *l);
/* Gives it to the next loop. */
void tb_links_stream_to_loop(struct tb_links *ls, struct tb_stream *s);
struct tb_stream_plan tb_link_stream_plan(struct tb_link *l, uint32_t slot, uint32_t number);
struct tb_stream_plan tb_link_stream_dial_plan(struct tb_link *l, uint32_t slot, const struct tb_address *to);
/* Under its keys as many records went as may. */
bool tb_link_stream_is_worn(const struct tb_link *l, const struct tb_stream *s);
/* Bound in this session, and the peer has not ended it. */
bool tb_link_stream_is_bound(const struct tb_link *l, const struct tb_stream *s);
uint32_t tb_link_streams_wanted(const struct tb_link *l); /* that are to be open, where we dial */
uint32_t tb_link_streams_fresh(const struct tb_link *l); /* that are, or are on their way, and are not worn */

#endif
