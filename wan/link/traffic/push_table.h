/* push_table.h - models whose next version may come unasked, either way. */
#ifndef TB_WAN_PUSH_TABLE_H
#define TB_WAN_PUSH_TABLE_H

#include "wan/link/links.h"

struct tb_link;

#define LINK_GIVEN_MAX 64u /* of the last numbers that EXPECT gave out */

/* A version that is sent unasked. */
struct tb_push {
    struct tb_push *next;
    struct tb_name model;
    uint32_t crossing;
    struct tb_id base; /* the receiver has it whole */
    struct tb_id uid;  /* PUSH came: which it is */
    tb_time_ns began;  /* PUSH came; of one that rests: since when */
    tb_time_ns came;   /* it, or the last page of its manifests */
};

struct tb_link_pushes {
    uint32_t given[LINK_GIVEN_MAX]; /* by EXPECT in this session, and not used by PUSH; 0: none */
    uint32_t given_at;
    struct tb_push *expecting; /* of the peer; PUSH has not come */
    struct tb_push *pushed;    /* PUSH came, and it is not decided */
    struct tb_push *expected;  /* of us */
    /* Models: the peer's were too long in coming, and none is expected for a while. */
    struct tb_push *resting;
};

/* Each points to NULL where there is none. */
struct tb_push **tb_push_find_model(struct tb_push **at, const struct tb_name *model);
struct tb_push **tb_push_find_uid(struct tb_push **at, const struct tb_id *uid);
struct tb_push *tb_push_take_out(struct tb_push **at);
void tb_link_pushes_down(struct tb_link *l);
void tb_link_pushes_forget(struct tb_link *l); /* for good */
/* Of one model, and newer. */
bool tb_push_is_newer(const struct tb_version_key *key, const struct tb_version_key *than);
bool tb_link_is_pushed(const struct tb_link *l, const struct tb_id *uid);
void tb_link_push_moved(struct tb_link *l, const struct tb_id *uid);        /* a page of its manifests came */
void tb_link_expected_ends(struct tb_link *l, const struct tb_name *model); /* WANT came */

#endif
