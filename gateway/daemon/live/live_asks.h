/* live_asks.h - operators ask all workers of a model to prove what they compute from. A room.
 *
 * P7: one question a model, TB_LIVE_ASKS_MAX in all, each with TB_LIVE_ROWS_MAX workers and a
 * deadline at most. */
#ifndef TB_DAEMON_LIVE_ASKS_H
#define TB_DAEMON_LIVE_ASKS_H

#include <jansson.h>

#include "base/net/wire.h"
#include "base/time.h"
#include "gateway/catalog/groups.h"
#include "gateway/daemon/counters.h"

#define TB_LIVE_ASKS_MAX 16u
#define TB_LIVE_ROWS_MAX 16384u

struct tb_daemon;
struct tb_live_ask;
struct tb_worker_session;

/* A member of the daemon. */
struct tb_live_asks {
    struct tb_live_ask *first;
    uint64_t last; /* number of the newest */
    struct tb_gauge gauge;
};

/* The command "verify" of the control socket: its answer comes once all have answered, or at the
 * deadline. */
enum tb_status tb_verify_command(void *user, const json_t *request, json_t *reply, char *error);
/* PROVEN of a worker. Anything but TB_OK ends the session. */
enum tb_status tb_live_asks_proven_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
void tb_live_asks_tick(struct tb_daemon *d, tb_time_ns now);
/* Asserts that the newest question is the first, and that they are counted. */
void tb_live_asks_check(const struct tb_live_asks *live);
void tb_live_asks_close(struct tb_daemon *d);
/* The model of each question, by turns; NULL: that was the last. */
const struct tb_name *tb_live_ask_at(const struct tb_daemon *d, uint32_t *cursor);

#endif
