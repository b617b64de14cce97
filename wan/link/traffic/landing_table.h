/* landing_table.h - landings that we draw from the peer. */
#ifndef TB_WAN_LANDING_TABLE_H
#define TB_WAN_LANDING_TABLE_H

#include "wan/link/links.h"
#include "wan/send/inbound.h"
#include "wan/send/sender_turn.h"
#include "wan/send/shared_places.h"

struct tb_link;
struct tb_shared_places;

/* A version that lands here from the peer. */
struct tb_link_in {
    struct tb_link_in *next;
    struct tb_version_key key;
    struct tb_shared_places *share;
    struct tb_shared_places *base; /* of an offer: what we told the peer that we hold; NULL: none, or gone */
    struct tb_inbound core;
    void *memory;
    uint32_t crossing; /* 0: not under way */
    uint32_t draining; /* of an ended session, whose streams still bring what had arrived; 0: none */
    bool finished;     /* landed or failed; waits for land_stop */
    bool no_base_told; /* the log says that its base went */
    struct tb_turn turn;
};

/* NULL: there is none. */
struct tb_link_in *tb_link_in_find(const struct tb_link *l, uint32_t crossing);
struct tb_link_in *tb_link_in_of(const struct tb_link *l, const struct tb_id *uid);
/* No stream begins to land a chunk of it any more. */
void tb_link_in_unlist(struct tb_link *l, struct tb_link_in *in);
void tb_link_in_stop(struct tb_link *l, struct tb_link_in *in); /* the crossing ends; `in` stays */
void tb_link_in_free(struct tb_link *l,
                     struct tb_link_in *in); /* takes it off the list; its share is the caller's */
/* All, with their shares: the links close. */
void tb_link_ins_free(struct tb_link *l);
bool tb_link_in_all_held(const struct tb_link_in *in);
/* With those that are over: they stay until the daemon takes their places back. */
uint32_t tb_link_in_count(const struct tb_link *l);
/* Landings that are under way. */
uint32_t tb_link_in_crossings(const struct tb_link *l);
/* TB_OK: landed. The daemon is told. */
void tb_link_in_end(struct tb_link *l, struct tb_link_in *in, enum tb_status why);
void tb_link_in_fail(struct tb_link *l, const struct tb_id *uid, enum tb_status why);

#endif
