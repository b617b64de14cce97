/* home_runs.h - a home whose store is new or restored asks which runs other sites remember. */
#ifndef TB_DAEMON_HOME_RUNS_H
#define TB_DAEMON_HOME_RUNS_H

#include "base/ident.h"
#include "base/net/signed.h"
#include "base/net/wire.h"
#include "base/time.h"
#include "gateway/catalog/models.h"
#include "wan/link/links.h"

struct tb_config;
struct tb_daemon;
struct tb_worker_session;

/* The store is open, its rows are not read. TB_SITE_STORE is logged. */
TB_MUST_USE enum tb_status tb_home_runs_open(struct tb_daemon *d);
/* After a reload: new models, and peers that are asked, or not any more. */
void tb_home_runs_changed(struct tb_daemon *d, const struct tb_config *was);
void tb_home_runs_close(struct tb_daemon *d);
void tb_home_runs_up(struct tb_daemon *d, uint32_t peer); /* a session with it began */
/* A peer has seen a later life of this store, so a copy was put back: every model here is
 * doubted from now on. */
void tb_home_runs_doubt(struct tb_daemon *d);
void tb_home_runs_asked(struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
void tb_home_runs_told(struct tb_daemon *d, uint32_t peer, const struct tb_links_run *run);
/* A worker says that it computes with a version of that run and number. */
void tb_home_runs_worker(struct tb_daemon *d, const struct tb_name *worker,
                         const struct tb_catalog_known_run *said);
/* Wakes a model of a pattern. True: the request is not to be handled now. It was refused, or it
 * waits for the store or for peers and is handled again. `frame` is as it came. */
bool tb_home_runs_holds(struct tb_worker_session *s, const struct tb_name *model,
                        const struct tb_wire_frame *frame);
/* The same of the store alone: for a request that asks nothing of peers. */
bool tb_home_runs_holds_for_store(struct tb_worker_session *s, const struct tb_name *model,
                                  const struct tb_wire_frame *frame);
void tb_home_runs_opened(struct tb_daemon *d, const struct tb_name *name); /* or joined */
void tb_home_runs_tick(struct tb_daemon *d, tb_time_ns now);
/* Calls `each` with the session of each request that waits for peers. */
void tb_home_runs_waits(const struct tb_daemon *d, void (*each)(void *user, const struct tb_id *session),
                        void *user);
/* A model of a pattern has a row (model_table.h) that the catalog knows; doubted: by the store. */
void tb_home_runs_row_begins(struct tb_daemon *d, uint32_t row, bool doubted);
void tb_home_runs_row_ends(struct tb_daemon *d, uint32_t row); /* no request waits for it */
bool tb_home_runs_row_waits(const struct tb_daemon *d, uint32_t row);
void tb_home_runs_check(const struct tb_daemon *d); /* asserts that requests that wait are counted */
/* A request that waited, as it came. */
#define TB_WAITING_PAYLOAD_BYTES (TB_SIGNED_BYTES_MAX + 1024u) /* SUBSCRIBE may show a statement */

struct tb_waiting_request {
    struct tb_waiting_request *next;
    struct tb_id session;
    uint32_t model;
    uint64_t request;
    uint16_t type;
    uint32_t bytes;
    uint8_t payload[];
};

/* The next that need wait no longer, as the caller's own; NULL: none. */
struct tb_waiting_request *tb_home_runs_ready(struct tb_daemon *d);

#endif
