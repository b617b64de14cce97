/* fleet_world.h - a version on its way through a fleet of sites that differ, event by
 * event in virtual time.
 *
 * Shipped code decides. Each site has a catalog (gateway/catalog): it asks intra/planner for the
 * source of a worker, and names the sites to cross from. Each hop is intra/hop: the next chunk, the
 * number in flight, the next look at a bitmap. Each crossing is wan/crossing at the sender and
 * wan/landing at the receiver.
 *
 * A model moves the bytes. A link and a NIC are queues that serve in order at a rate, behind a
 * delay. A TCP starts from ten packets a stream and doubles each round trip. There are no bytes, so
 * nothing is digested or encoded (`hop_s`, `land` stand for that).
 *
 * A few lines here stand for the daemon and the library: asking for a version, granting a hop,
 * telling progress once a second. Workers that share their source's host copy at the host's `shm`
 * rate.
 *
 * A loss strikes once: a site, a rack of one, or a gateway, which comes back after
 * `restart_s` with its arena.
 *
 * Deterministic. Heap by base/fault.h. No clock but for `tick`, which may be NULL. */
#ifndef TB_SIM_FLEET_WORLD_H
#define TB_SIM_FLEET_WORLD_H

#include <stdint.h>

#include "sim/fleet/fleet_scenario.h"

enum tb_fleet_loss_kind {
    TB_FLEET_LOSE_NOTHING,
    TB_FLEET_LOSE_SITE,
    TB_FLEET_LOSE_RACK,
    TB_FLEET_LOSE_GATEWAY
};

struct tb_fleet_loss {
    enum tb_fleet_loss_kind kind;
    unsigned site, rack; /* rack: from 1 */
    double at_s;
};

struct tb_fleet_spread {
    double median, p99, last; /* seconds since the version was held at home; of those who came to hold it */
    unsigned count, never;    /* held; alive and never whole */
};

struct tb_fleet_nic {
    double in, out; /* bytes */
};

struct tb_fleet_site_result {
    double gateway_s; /* negative: never */
    struct tb_fleet_spread workers;
    unsigned fan_out, depth;     /* the largest seen; depth in hosts */
    double control, control_max; /* messages a second: mean over the time, and the most of any second */
    struct tb_fleet_nic *nics;   /* hosts + 1; 0 is the gateway's */
    double *took_s;              /* each worker, from when it began; negative: it is not whole */
};

struct tb_fleet_way {
    double there, back;                 /* bytes on the link, a to b and b to a, headers and all */
    double goodput_there, goodput_back; /* bytes of the version */
};

struct tb_fleet_outcome {
    unsigned chunks;
    double ended_s, events;
    struct tb_fleet_spread gateways, workers; /* of sites that are not home; of all sites */
    struct tb_fleet_spread star, pulls;       /* the two other ways, worked out for the same links and NICs */
    struct tb_fleet_site_result sites[TB_FLEET_FILE_SITES_MAX];
    struct tb_fleet_way links[TB_FLEET_FILE_LINKS_MAX];
};

/* `tick` is called now and then with the share of workers that are done. TB_SITE_NOMEM;
 * TB_TOO_LARGE: chunks over 2 GiB. */
TB_MUST_USE enum tb_status tb_fleet_world_run(const struct tb_fleet_scenario *scenario,
                                              const struct tb_fleet_loss *loss, void (*tick)(double share),
                                              struct tb_fleet_outcome *outcome_out);
void tb_fleet_outcome_fini(struct tb_fleet_outcome *outcome);

#endif
