/* bounds.h - how large the tables are that follow from a configuration. Pure: tombolod makes its
 * tables so, and `tombolo config check` states them. */
#ifndef TB_DAEMON_BOUNDS_H
#define TB_DAEMON_BOUNDS_H

#include "gateway/config/config.h"

#define TB_BOUNDS_GREETING 64u /* connections beside session.max that may be about to say HELLO */
/* Beside those: handshakes over TLS that are unfinished, of addresses that are in no network of
 * session.networks. By default an address has a sixth of them. */
#define TB_BOUNDS_STRANGERS 192u
/* Of one session, unpublishes that hide nothing and wait for versions that others hid. */
#define TB_BOUNDS_JOINED 64u

/* Those that follow from the configuration, in rows. */
struct tb_bounds {
    uint32_t models;          /* named ones, and those of patterns that are awake */
    uint32_t versions;        /* of all models */
    uint32_t model_versions;  /* of one model at most */
    uint32_t sites;           /* peers, and sites that peers speak of */
    uint32_t sessions;        /* workers */
    uint32_t groups, members; /* of subscribers */
    uint32_t waits;
    uint32_t references;      /* of workers: shards that they sealed, versions that they stage or hold */
    uint32_t site_references; /* of other sites: versions that they hold */
    uint32_t records;         /* what is known of a site and a model */
    uint64_t encoded_bytes;   /* encoded chunks that are kept; 0: none are */
};

struct tb_bounds tb_bounds_of(const struct tb_config *config);
/* Connections of workers: those that may be welcomed, or are local; unfinished handshakes of
 * session.networks; those of other addresses. */
uint32_t tb_bounds_greeted(uint32_t sessions);
uint32_t tb_bounds_networks(uint32_t sessions);
uint32_t tb_bounds_connections(uint32_t sessions);
/* Rows of versions that one model may come to need. */
uint32_t tb_bounds_model_versions(const struct tb_config_model *model);

/* Of each table of `status`, under its name, and of what has a share of one; by turns. False:
 * that was the last. */
struct tb_bound {
    const char *name; /* static; one that ends in _bytes counts bytes, not rows */
    uint64_t most;
};
bool tb_bounds_at(const struct tb_bounds *bounds, uint32_t *cursor, struct tb_bound *bound_out);

#endif
