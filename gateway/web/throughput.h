/* throughput.h - fifteen minutes of bytes between this site and others, in slots of 5 s.
 *
 * The gateway counts bytes since its start; what was counted between two answers is spread evenly
 * over the time between them. So nothing is gathered while nobody looks, and a monitoring system
 * that scrapes each 15 s is enough for a whole picture.
 *
 * Pure; time comes in seconds on a clock that never steps back. */
#ifndef TB_GATEWAY_WEB_THROUGHPUT_H
#define TB_GATEWAY_WEB_THROUGHPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define TB_THROUGHPUT_SLOTS  180u
#define TB_THROUGHPUT_SLOT_S 5.0

enum tb_flow {
    TB_FLOW_LOGICAL, /* chunks that were sent, when decoded */
    TB_FLOW_ENCODED, /* the same as they went */
    TB_FLOW_WIRE,    /* and what TCP sent again */
    TB_FLOW_RECEIVED,
    TB_FLOWS
};

struct tb_throughput_slot {
    uint64_t number; /* of the slot since the clock's zero, and 1: 0 is an empty slot */
    double bytes[TB_FLOWS], seconds;
};

/* Zeroed: nothing was seen. */
struct tb_throughput {
    struct tb_throughput_slot slots[TB_THROUGHPUT_SLOTS];
    double counted[TB_FLOWS], at_s;     /* of the newest "status" */
    double retransmitted, streams_at_s; /* of the newest "streams" */
    bool begun, streams_begun;
};

/* `status` is an answer that is new at now_s. */
void tb_throughput_see(struct tb_throughput *t, double now_s, const json_t *status);
/* So is `streams`: TCP's count comes seldom, and of hours at once when it comes first. Its growth
 * between two such answers belongs to the time between them. */
void tb_throughput_see_streams(struct tb_throughput *t, double now_s, const json_t *streams);
/* Bytes a second in the slot that is `back` slots before that of `now_s`. False: nobody looked. */
bool tb_throughput_at(const struct tb_throughput *t, double now_s, uint32_t back, double rates_out[TB_FLOWS]);

#endif
