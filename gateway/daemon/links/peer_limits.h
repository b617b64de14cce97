/* peer_limits.h - how much is sent to each peer: rates, hours, a day's bytes. */
#ifndef TB_DAEMON_PEER_LIMITS_H
#define TB_DAEMON_PEER_LIMITS_H

#include <jansson.h>

#include "base/rate.h"
#include "gateway/config/config.h"
#include "wan/send/budget.h"

struct tb_config;
struct tb_daemon;

/* The rate and the day's bytes to a peer: those of the config, until an operator says otherwise. */
struct tb_peer_limit {
    struct tb_rate_plan rate;
    struct tb_budget budget;
    uint64_t bit_per_s;     /* now */
    uint64_t counted_bytes; /* of the links' bytes_sent */
    enum tb_budget_state told;
};

TB_MUST_USE enum tb_status tb_limits_open(struct tb_daemon *d);
void tb_limits_renewed(struct tb_daemon *d); /* the links were opened anew: they have sent nothing yet */
/* After a reload. A limit of an operator stays where the file says of it what it said before. */
void tb_limits_changed(struct tb_daemon *d, const struct tb_config *was);
void tb_limits_tick(struct tb_daemon *d);
uint64_t tb_limits_day_ends_s(void);       /* UTC */
void tb_limits_close(struct tb_daemon *d); /* what was sent is written down as it is */

enum tb_status tb_limits_command(void *daemon, const json_t *request, json_t *reply, char *error);
/* TB_NOT_FOUND: no peer has that name, and `error` names those that there are. */
enum tb_status tb_limits_peer_find(const struct tb_daemon *d, const char *site, char *error);
json_t *tb_limits_json(const struct tb_peer_limit *limit); /* NULL: no memory */

#endif
