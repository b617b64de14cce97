/* home_landing.h - at home: hops from the ranks that sealed into a version's region. */
#ifndef TB_DAEMON_HOME_LANDING_H
#define TB_DAEMON_HOME_LANDING_H

#include <uv.h>

#include "gateway/catalog/todos.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/session_msg.h"

struct tb_copy;
struct tb_daemon;
struct tb_worker_session;

/* From the fabric's thread to ours. */
struct tb_home_hop_note {
    uint64_t serial; /* not the hop's address: the next hop may stand where a closed one stood */
    struct tb_hop_event event;
};

#define TB_HOP_NOTES_MAX 256

void tb_home_landing_from(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_home_landing_end(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_home_landing_stop(struct tb_copy *copy);
void tb_home_landing_retry(struct tb_copy *copy, tb_time_ns now);
/* More proofs are known: workers may be asked for those chunks. */
void tb_home_landing_proven(struct tb_copy *copy);
/* A chunk that is held no more may be one that a hop has passed: they begin anew. */
void tb_home_landing_anew(struct tb_copy *copy, tb_time_ns now);
void tb_home_landing_wake(uv_async_t *async);
/* A rank or a worker digested its own copy of a chunk that it was asked about. */
void tb_home_landing_looked(struct tb_worker_session *s, const struct tb_msg_doubted *m);
/* It is whole: hops that read chunks end, those that still bring encoded chunks go on. */
void tb_home_landing_done(struct tb_copy *copy);
/* By the dispatcher, of a copy that leaves: hops that decode from it begin again without. */
void tb_home_landing_base_goes(struct tb_copy *base);
/* The rank's encoded chunks of this shard are on their way. */
void tb_home_landing_expects(struct tb_copy *copy, uint32_t shard, const struct tb_id *base);
/* In how many classes ranks had best encode deltas of the model; 0: no reader takes them. */
uint8_t tb_home_landing_classes(struct tb_daemon *d, const struct tb_name *model);

#endif
