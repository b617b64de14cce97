/* joining.h - workers that all join one catalog within one lease.
 *
 * The catalog is the shipped core, in virtual time: at even distances over a lease each worker
 * opens a session, subscribes, stages the version that the gateway holds whole and exports it; then
 * it says its progress once a second and renews its lease every third of it. All todos are taken.
 * Left out: sockets, TLS and the decoding of messages.
 *
 * Deterministic; no clock. Heap by base/fault.h. */
#ifndef TB_SIM_FLEET_JOINING_H
#define TB_SIM_FLEET_JOINING_H

#include <stdint.h>

#include "base/time.h"
#include "tombolo/status.h"

#define TB_JOINING_WORKERS_MAX 50000
#define TB_JOINING_LEASE       TB_SECONDS(10)

struct tb_joining_result {
    uint64_t calls; /* of the catalog, beside its ticks */
    uint64_t plans; /* that it made */
};

/* 1 to TB_JOINING_WORKERS_MAX workers. `tick` is called ten times a second with how many have
 * joined; it may be NULL. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_joining_run(uint32_t workers, void (*tick)(uint32_t joined),
                                          struct tb_joining_result *result_out);

#endif
