/* fair_queue.c - each flow has a clock that its bytes move on, the slower the more weight it has;
 * the one that is most behind is next. Pure. */
#include "wan/send/fair_queue.h"

#include "base/assert.h"

#define SCALE 1024u /* of virtual time a byte at weight 1: 2^54 bytes fit */

static uint64_t stands(const struct tb_fair *f, uint32_t flow)
{
    TB_ASSERT(flow < TB_FAIR_FLOWS_MAX);
    const uint64_t at = f->flows[flow].at;
    return at > f->now ? at : f->now;
}

uint32_t tb_fair_join(struct tb_fair *f, uint32_t weight)
{
    TB_ASSERT(weight > 0 && weight <= TB_FAIR_WEIGHT_MAX);
    for (uint32_t i = 0; i < TB_FAIR_FLOWS_MAX; i++) {
        if (f->flows[i].weight != 0) continue;
        f->flows[i] = (struct tb_fair_flow){weight, f->now};
        return i;
    }
    return TB_FAIR_NONE;
}

void tb_fair_leave(struct tb_fair *f, uint32_t flow)
{
    TB_ASSERT(flow < TB_FAIR_FLOWS_MAX && f->flows[flow].weight != 0);
    f->flows[flow].weight = 0;
}

uint32_t tb_fair_next(const struct tb_fair *f, uint32_t silent)
{
    uint32_t best = TB_FAIR_NONE;
    for (uint32_t i = 0; i < TB_FAIR_FLOWS_MAX; i++) {
        if (f->flows[i].weight == 0 || (silent >> i & 1) != 0) continue;
        if (best == TB_FAIR_NONE || stands(f, i) < stands(f, best)) best = i;
    }
    return best;
}

void tb_fair_check(const struct tb_fair *f)
{
    for (uint32_t i = 0; i < TB_FAIR_FLOWS_MAX; i++)
        TB_ASSERT(f->flows[i].weight <= TB_FAIR_WEIGHT_MAX);
}

uint64_t tb_fair_owes(struct tb_fair_bill *bill, uint64_t bytes, uint64_t raw_bytes, uint64_t sent_bytes)
{
    const double share = raw_bytes > 0 ? (double)sent_bytes / (double)raw_bytes : 1;
    bill->handed_bytes += bytes;
    const uint64_t all = (uint64_t)((double)bill->handed_bytes * share);
    const uint64_t now = all > bill->paid_bytes ? all - bill->paid_bytes : 0;
    bill->paid_bytes += now;
    TB_ASSERT(bill->paid_bytes >= now);
    return now;
}

uint64_t tb_fair_handed(const struct tb_fair_bill *bill, uint64_t raw_bytes, uint64_t sent_bytes)
{
    if (raw_bytes == 0) return bill->handed_bytes;
    return (uint64_t)((double)bill->handed_bytes * ((double)sent_bytes / (double)raw_bytes));
}

void tb_fair_spend(struct tb_fair *f, uint32_t flow, uint64_t bytes)
{
    TB_ASSERT(flow < TB_FAIR_FLOWS_MAX && f->flows[flow].weight != 0);
    struct tb_fair_flow *w = &f->flows[flow];
    f->now = stands(f, flow);
    w->at = f->now + bytes * SCALE / w->weight;
    TB_ASSERT(w->at >= f->now); /* the clock of a flow goes forward */
}
