/* crossing_policy.h - each model's crossing is weighed against newer versions, once a second. */
#ifndef TB_DAEMON_CROSSING_POLICY_H
#define TB_DAEMON_CROSSING_POLICY_H

#include "base/ident.h"
#include "gateway/catalog/crossing_abandonment.h"

struct tb_daemon;

/* A model's crossing, as it is weighed against newer ones. */
struct tb_policy {
    struct tb_abandon abandon;
    struct tb_id uid;    /* of the version that crosses; zero: none */
    uint64_t wire_bytes; /* that came for it, as counted last */
};

void tb_policy_tick(struct tb_daemon *d);
uint32_t tb_policy_weight(void *daemon, const struct tb_name *model);

#endif
