/* repair.h - reports that a chunk is damaged where it stands: its holder digests its own copy. */
#ifndef TB_DAEMON_REPAIR_H
#define TB_DAEMON_REPAIR_H

#include "base/ident.h"
#include "intra/session_msg.h"

struct tb_daemon;
struct tb_worker_session;

/* A worker was asked to digest its copy of a chunk, and has not answered. */
struct tb_asked_look {
    struct tb_id holder, uid;
    uint32_t shard, chunk;
};

struct tb_report { /* that a chunk is damaged where it stands */
    struct tb_id uid;
    uint32_t shard, chunk; /* as said: bounded by repair.c */
    uint64_t reporter;     /* equal for reports that share a part of the looks (base/damage_reports.h) */
    bool encoded;          /* not the chunk: its encoded form, on the holder's shelf */
};

uint64_t tb_repair_reporter(const struct tb_worker_session *s);
/* Digests the chunk of this gateway's own copy. TB_OK: it is good. TB_CHUNK_DIGEST: it is not,
 * is not held any more, and is fetched again. TB_CHUNK_ABSENT: it is not here. TB_AGAIN: not
 * looked at, as it was lately, or too many were. */
TB_MUST_USE enum tb_status tb_repair_arena(struct tb_daemon *d, const struct tb_report *r);
/* Digests the encoded chunk of this gateway's own shelf, likewise; TB_CHUNK_DIGEST: it is shown
 * to nobody any more. */
TB_MUST_USE enum tb_status tb_repair_shelf(struct tb_daemon *d, const struct tb_report *r);
/* That holder was asked about that chunk. P7: an answer counts once, and only where it was asked
 * for. */
bool tb_repair_asked(struct tb_daemon *d, const struct tb_id *holder, const struct tb_msg_doubted *m);
const char *tb_repair_action(enum tb_status found); /* for the log */
/* Asks a worker to digest the chunk of its copy. False: it is away, or is not asked, as it was
 * lately, or too many were. */
bool tb_repair_ask(struct tb_daemon *d, const struct tb_id *holder, const struct tb_report *r);

#endif
