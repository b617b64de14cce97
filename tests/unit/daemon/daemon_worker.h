/* daemon_worker.h - a worker's connection to a gateway in this process, frame by frame: what a
 * library would not say can be said. */
#ifndef TB_TESTS_UNIT_DAEMON_WORKER_H
#define TB_TESTS_UNIT_DAEMON_WORKER_H

#include "intra/session_msg.h"
#include "tests/unit/daemon/daemon_home.h"

struct worker {
    struct home *home;
    int fd;
    uint64_t requests;
    uint32_t plans;     /* PLAN frames that came */
    uint8_t plan[4096]; /* the payload of the last one */
    uint32_t plan_bytes;
    uint32_t used;
    uint8_t in[1u << 20];
    struct tb_writer w;
    uint8_t *out;
};

/* Says HELLO under that name and has heard WELCOME. Over the unix socket: its identity is this
 * process's user. */
struct worker *worker_new(struct home *h, const char *name);
void worker_free(struct worker *w);

/* A frame of at most payload_max bytes: written to the writer, then sent whole, while the
 * gateway's loop turns. */
struct tb_writer *worker_begin(struct worker *w, uint16_t type, uint64_t request, size_t payload_max);
void worker_send(struct worker *w);
uint64_t worker_request(struct worker *w); /* a fresh number */
/* The type of the frame that answers; its payload, borrowed until the next call. */
uint16_t worker_answer(struct worker *w, uint64_t request, struct tb_reader *r_out);
/* The next frame: the one that answers, or a notice before it. */
uint16_t worker_notice(struct worker *w, uint64_t request, struct tb_reader *r_out);
/* The status of a REPLY that answers. */
enum tb_status worker_reply(struct worker *w, uint64_t request);
/* Opens a run of the model "policy" under that key. */
struct tb_id worker_run_open(struct worker *w, const char *key);
/* Everything said before has been heard. */
void worker_sync(struct worker *w);

#endif
