/* fleet_model.h - one version on its way from home to every worker of many equal
 * sites, chunk by chunk.
 *
 * The model asks intra/planner for each source, as the catalog does. The bytes move by a
 * recurrence: a chunk leaves a NIC when it is held there, when the NIC has sent the chunk before,
 * and when the reader's NIC has taken its own; it is held one chunk's time later. So a chunk's time
 * is exact for NICs that serve their readers in turn, and no event queue is needed: a site of 1,000
 * hosts and 8,192 chunks is 8 million steps.
 *
 * Left out: losses, TCP, digests, polling, control messages, members that come, go or are slow.
 * Workers of one host share its copy at no cost. All workers follow before the version begins.
 * A star and pulls are the two ways it is compared with: every host from its gateway; every
 * worker over the link.
 *
 * Deterministic; no clock. */
#ifndef TB_SIM_FLEET_MODEL_H
#define TB_SIM_FLEET_MODEL_H

#include <stdint.h>

#include "tombolo/status.h"

#define TB_FLEET_SITES_MAX   64
#define TB_FLEET_HOSTS_MAX   20000 /* of one site */
#define TB_FLEET_WORKERS_MAX 64    /* of one host */
#define TB_FLEET_CHUNKS_MAX  262144

enum tb_fleet_shape {
    TB_FLEET_PLANNED, /* once a site, then as the planner says */
    TB_FLEET_STAR,    /* once a site, then every host from its gateway */
    TB_FLEET_PULLS,   /* every worker for itself over its site's link */
};

struct tb_fleet {
    enum tb_fleet_shape shape;
    uint32_t sites;    /* remote ones; home serves each over a link of its own */
    uint32_t hosts;    /* of each site */
    uint32_t workers;  /* of each host */
    uint32_t racks;    /* of each site; hosts are dealt to them in turn */
    uint32_t fan_out;  /* readers on one NIC; 0: NIC rate over the rate of arrival, to 16 */
    uint32_t chunks;   /* of the version, of equal size */
    double bytes;      /* of the version */
    double link_rate;  /* bytes a second */
    double link_delay; /* seconds, one way */
    double nic_rate;   /* bytes a second, each way, of every host and of the gateway */
};

struct tb_fleet_times {
    double median, p99, last; /* seconds since the version began to cross */
};

struct tb_fleet_result {
    struct tb_fleet_times gateways, workers; /* pulls have no gateways: zeros */
    double floor;                            /* one copy over the slowest of link and NIC, and its delay */
    double link_bytes;                       /* over one site's link */
    double nic_in_bytes, nic_out_bytes;      /* the most of any host's NIC, gateways' not counted */
    double gateway_out_bytes;                /* of one gateway into its site */
    uint32_t fan_out, depth;
};

/* TB_BAD_ARGUMENT: a number is 0, not finite or over its bound. TB_SITE_NOMEM.
 * *result_out is then untouched. */
TB_MUST_USE enum tb_status tb_fleet_run(const struct tb_fleet *fleet, struct tb_fleet_result *result_out);

#endif
