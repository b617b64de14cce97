/* fair.h - models share a link by weight: which of them sends the next parcel (start-time fair queueing).
 *
 * Pure. A flow's share counts from when it has something to send: one that was silent has no claim on what the others used
 * meanwhile, and one that is alone has all. Weights count wire bytes, so large and small chunks are equals. */
#ifndef TB_WAN_FAIR_H
#define TB_WAN_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#define TB_FAIR_FLOWS_MAX  16u
#define TB_FAIR_NONE       UINT32_MAX
#define TB_FAIR_WEIGHT_MAX 1000u

struct tb_fair {
    uint64_t now; /* virtual: where the flow stood that was served last */
    struct tb_fair_flow {
        uint32_t weight; /* 0: free */
        uint64_t at;     /* virtual: what it has used over its weight */
    } flows[TB_FAIR_FLOWS_MAX];
};

/* A flow of weight 1 to TB_FAIR_WEIGHT_MAX; TB_FAIR_NONE: no room. */
uint32_t tb_fair_join(struct tb_fair *f, uint32_t weight);
void tb_fair_leave(struct tb_fair *f, uint32_t flow);
/* Who is next; bit k of `silent`: flow k has nothing to send. TB_FAIR_NONE: nobody. */
uint32_t tb_fair_next(const struct tb_fair *f, uint32_t silent);
/* The flow sends so many bytes. */
void tb_fair_spend(struct tb_fair *f, uint32_t flow, uint64_t bytes);

#endif
