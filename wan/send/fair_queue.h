/* fair_queue.h - models share a link by weight: which of them sends the next parcel
 * (start-time fair queueing).
 *
 * Pure. A flow's share counts from when it has something to send: one that was silent has no claim
 * on what the others used meanwhile, and one that is alone has all. Weights count wire bytes, so
 * large and small chunks are equals. */
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
/* Asserts what holds of the table between two calls. */
void tb_fair_check(const struct tb_fair *f);
/* The account of a flow whose parcels are handed out before their bytes on the wire are known. It
 * pays by the ratio of the chunks that went so far. It pays the rest with the next parcels, once
 * more chunks have gone. */
struct tb_fair_bill {
    uint64_t handed_bytes, paid_bytes; /* of chunks, as they stand in the version; as they were reckoned */
};
/* For so many bytes more: what to spend now, where `raw_bytes` went so far as `sent_bytes`. */
uint64_t tb_fair_owes(struct tb_fair_bill *bill, uint64_t bytes, uint64_t raw_bytes, uint64_t sent_bytes);

/* The bytes on the wire of all that was handed out, by the ratio of the chunks that went so far;
 * while none did, the bytes of the version. */
uint64_t tb_fair_handed(const struct tb_fair_bill *bill, uint64_t raw_bytes, uint64_t sent_bytes);

/* The flow whose turn it is; bit k of `silent`: flow k has nothing to send. TB_FAIR_NONE: none
 * has. */
uint32_t tb_fair_next(const struct tb_fair *f, uint32_t silent);
/* The flow sends so many bytes. */
void tb_fair_spend(struct tb_fair *f, uint32_t flow, uint64_t bytes);

#endif
