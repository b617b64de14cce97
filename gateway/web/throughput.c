/* throughput.c - see throughput.h. */
#include "gateway/web/throughput.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/web/web_facts.h"

#define SPAN_S (TB_THROUGHPUT_SLOTS * TB_THROUGHPUT_SLOT_S)

static double sum_of(const json_t *links, const char *key)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(links); i++)
        sum += tb_facts_number(json_array_get(links, i), key);
    return sum;
}

static void count(const json_t *status, double counted_out[TB_FLOWS])
{
    const json_t *links = json_object_get(status, "links");
    counted_out[TB_FLOW_LOGICAL] = sum_of(links, "sent_raw_bytes");
    counted_out[TB_FLOW_ENCODED] = counted_out[TB_FLOW_WIRE] = sum_of(links, "sent_bytes");
    counted_out[TB_FLOW_RECEIVED] = sum_of(links, "received_bytes");
}

static struct tb_throughput_slot *slot_at(struct tb_throughput *t, uint64_t number)
{
    struct tb_throughput_slot *slot = &t->slots[number % TB_THROUGHPUT_SLOTS];
    if (slot->number != number + 1) *slot = (struct tb_throughput_slot){.number = number + 1};
    return slot;
}

/* Spreads bytes that were counted from began_s to now_s over the slots between. `looked`: 1 where
 * that is time in which somebody looked. */
static void spread(struct tb_throughput *t, double began_s, double now_s, const double grown[TB_FLOWS],
                   double looked)
{
    const double span_s = now_s - began_s;
    TB_ASSERT(span_s > 0 && span_s <= SPAN_S);
    for (double from_s = began_s; from_s < now_s;) {
        const uint64_t number = (uint64_t)(from_s / TB_THROUGHPUT_SLOT_S);
        const double end_s = (double)(number + 1) * TB_THROUGHPUT_SLOT_S;
        const double to_s = end_s < now_s ? end_s : now_s;
        struct tb_throughput_slot *slot = slot_at(t, number);
        for (int flow = 0; flow < TB_FLOWS; flow++)
            slot->bytes[flow] += grown[flow] * (to_s - from_s) / span_s;
        slot->seconds += (to_s - from_s) * looked;
        if (to_s <= from_s) break; /* a difference below what a double has */
        from_s = to_s;
    }
}

void tb_throughput_see(struct tb_throughput *t, double now_s, const json_t *status)
{
    double counted[TB_FLOWS], grown[TB_FLOWS];
    bool again = !t->begun || now_s <= t->at_s || now_s - t->at_s > SPAN_S;
    count(status, counted);
    for (int flow = 0; flow < TB_FLOWS; flow++) {
        grown[flow] = counted[flow] - t->counted[flow];
        again = again || grown[flow] < 0; /* the gateway began anew */
    }
    if (!again) spread(t, t->at_s, now_s, grown, 1);
    memcpy(t->counted, counted, sizeof counted);
    t->at_s = now_s;
    t->begun = true;
}

void tb_throughput_see_streams(struct tb_throughput *t, double now_s, const json_t *streams)
{
    const json_t *links = json_object_get(streams, "links");
    const double counted = sum_of(links, "retransmitted_bytes");
    const double grown[TB_FLOWS] = {[TB_FLOW_WIRE] = counted - t->retransmitted};
    const bool follows = t->streams_begun && now_s > t->streams_at_s && now_s - t->streams_at_s <= SPAN_S;
    /* It falls with streams that go. */
    if (follows && json_is_array(links) && grown[TB_FLOW_WIRE] > 0)
        spread(t, t->streams_at_s, now_s, grown, 0);
    t->retransmitted = counted;
    t->streams_at_s = now_s;
    t->streams_begun = json_is_array(links);
}

bool tb_throughput_at(const struct tb_throughput *t, double now_s, uint32_t back, double rates_out[TB_FLOWS])
{
    const uint64_t number = (uint64_t)(now_s / TB_THROUGHPUT_SLOT_S);
    TB_ASSERT(back < TB_THROUGHPUT_SLOTS);
    if (number < back) return false;
    const struct tb_throughput_slot *slot = &t->slots[(number - back) % TB_THROUGHPUT_SLOTS];
    if (slot->number != number - back + 1 || !(slot->seconds > 0)) return false;
    for (int flow = 0; flow < TB_FLOWS; flow++)
        rates_out[flow] = slot->bytes[flow] / slot->seconds;
    return true;
}
