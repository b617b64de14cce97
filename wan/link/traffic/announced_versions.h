/* announced_versions.h - models that a link is asked for and asks for, and versions that the peer
 * announced. */
#ifndef TB_WAN_ANNOUNCED_VERSIONS_H
#define TB_WAN_ANNOUNCED_VERSIONS_H

#include "wan/link/links.h"
#include "wan/link/links_limits.h"

struct tb_link;

/* A version the peer announced in this session. */
struct tb_announced {
    struct tb_version_key key;
    uint64_t bytes;
    bool unwanted; /* its model has no row of `wanted` any more: kept for the time when it has one again */
};

/* A model that the peer may read and wants. Rows are found by the name's bucket, of which there are
 * as many as rows: row i has the first of bucket i. Places are plus one; 0: none. */
struct tb_granted {
    struct tb_name model;
    uint32_t first, next;
};

struct tb_link_models {
    struct tb_name wanted[TB_LINKS_MODELS_MAX]; /* from the peer */
    uint32_t wanted_count;
    tb_time_ns came_at;               /* to `wanted` while the links were open, last; 0: never */
    bool renamed;                     /* a row of `wanted` became another model's */
    bool left[TB_LINKS_MODELS_MAX];   /* of `wanted`: no more; what is said of it in this session is heard */
    bool denied[TB_LINKS_MODELS_MAX]; /* of `wanted`: the peer said in this session that we may not read it */
    bool paused[TB_LINKS_MODELS_MAX]; /* of `wanted`: likewise, its operator paused it */
    /* Models this peer may read and wants; while it is down, did. */
    struct tb_granted *granted;
    uint32_t granted_count;
    uint32_t granted_cap; /* 0, or a power of 2 */
    uint64_t salt;        /* random: a peer chooses the names, and no bucket gets all of them */
    /* Models that it asked for in this session and may not read. */
    struct tb_name refused[TB_LINKS_REFUSED_MAX];
    struct tb_name refused_home[TB_LINKS_REFUSED_MAX]; /* that it said with it; empty: none */
    uint32_t refused_count;
    uint32_t missed; /* versions, of all models, that came since its session ended */
    struct tb_announced *announced;
    uint32_t announced_count, announced_cap;
    uint64_t told_dtypes; /* the session in which the log named a model that this peer cannot read */
    struct tb_name told_dtypes_of;
};

/* Room for one more that is granted; the table grows with what the peer really asks for. P7:
 * TB_TOO_LARGE: it has as many as it may have. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_link_granted_room(struct tb_link *l);
/* One that is not granted; there is room. */
void tb_link_granted_put(struct tb_link *l, const struct tb_name *model);
/* False: it was not granted. */
bool tb_link_granted_end(struct tb_link *l, const struct tb_name *model);
void tb_link_granted_clear(struct tb_link *l);
bool tb_link_granted(const struct tb_link *l, const struct tb_name *model);
/* One whose model is wanted. */
const struct tb_announced *tb_link_announced(const struct tb_link *l, const struct tb_id *uid);
/* Versions of this model are wanted from the peer. */
bool tb_link_wants(const struct tb_link *l, const struct tb_name *model);
void tb_link_send_version(struct tb_link *l, const struct tb_version_key *key, uint64_t bytes, uint8_t state);
void tb_link_send_gone(struct tb_link *l, const struct tb_id *uid, enum tb_status why);

#endif
