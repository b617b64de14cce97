/* offer_table.h - versions that are offered here, and places that are taken back. */
#ifndef TB_WAN_OFFER_TABLE_H
#define TB_WAN_OFFER_TABLE_H

#include "wan/link/links.h"
#include "wan/send/shared_places.h"

struct tb_link;
struct tb_links;
struct tb_shared_places;

/* A version that is offered here. */
struct tb_offer_peer {
    uint64_t announced;  /* in this session_seq; 0: never */
    uint64_t told_whole; /* we told the peer that it is whole here, in this session_seq */
    uint64_t told_held;  /* we told the daemon that the peer holds it, in this session_seq */
    uint32_t held_chunks;
    bool whole;
};
struct tb_offer {
    struct tb_offer *next;
    struct tb_version_key key;
    struct tb_shared_places *share;
    uint64_t bytes;
    uint32_t chunks;
    bool whole; /* here */
    struct tb_offer_peer peers[];
};

/* A call that took places back; `done` comes when no stream touches them any more. */
struct tb_retired {
    struct tb_retired *next;
    uint32_t left; /* shares */
    void (*done)(void *user);
    void *user;
};

struct tb_offer *tb_offer_find(struct tb_links *ls, const struct tb_id *uid);
void tb_links_sweep_retired(
    struct tb_links *ls); /* calls `done` of those whose places no stream touches any more */
/* A call that takes places back. NULL: no memory. */
struct tb_retired *tb_links_retired_new(struct tb_links *ls, void (*done)(void *user), void *user);
/* The share goes once no stream has a hand on it. */
void tb_links_retire(struct tb_links *ls, struct tb_shared_places *share, struct tb_retired *call);
/* A version that left, while its chunks are known (encoded_chunks.h): a peer holds it, and deltas
 * may lead from it. NULL: it is not known, or no memory. */
struct tb_shared_places *tb_links_past_new(struct tb_links *ls, const struct tb_id *uid,
                                           const struct tb_name *model);
void tb_links_past_free(struct tb_links *ls,
                        struct tb_shared_places *past); /* once no stream has a hand on it */
void tb_links_offers_free(struct tb_links *ls);
void tb_link_peer_held(struct tb_link *l, struct tb_offer *o);
void tb_links_offers_tick(struct tb_links *ls);
/* The version left the peer, and is news once it comes back. */
void tb_link_peer_dropped(struct tb_link *l, const struct tb_id *uid);
/* The peer lost all that it held. */
void tb_link_peer_forgets(struct tb_link *l);

#endif
