/* link_share.h - one version from several peers at once. */
#ifndef TB_WAN_LINK_SHARE_H
#define TB_WAN_LINK_SHARE_H

#include "wan/link/links.h"
#include "wan/send/source_division.h"

struct tb_link_in;
struct tb_link;
struct tb_links;
struct tb_wire_frame;

/* A version that several peers send at once. */
struct tb_division {
    struct tb_division *next;
    struct tb_id uid;
    struct tb_divide core;
    void *memory;
    struct tb_place *places; /* in `memory`, too */
    struct {
        struct tb_link *link;         /* NULL: free */
        uint64_t again_bytes;         /* of them, counted for the link */
        uint32_t crossing;            /* of the link's `in` */
    } members[TB_DIVIDE_SOURCES_MAX]; /* by source */
};

void tb_links_share_end(struct tb_links *ls, const struct tb_id *uid); /* NULL: all */
/* May a crossing of this version begin on this link now? Not beside one that cannot be shared. */
bool tb_link_may_begin(const struct tb_link *l, const struct tb_link_in *in);
/* Those beside which it cannot have had their turn: they are stopped, and it begins. */
bool tb_link_take_turn(struct tb_link *l, const struct tb_link_in *in, tb_time_ns now);
void tb_link_share_begin(struct tb_link *l, struct tb_link_in *in, tb_time_ns now); /* before START */
void tb_links_share_tick(struct tb_links *ls, tb_time_ns now);
enum tb_status tb_link_on_have(struct tb_link *l, struct tb_wire_frame *f);

#endif
