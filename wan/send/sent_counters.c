/* sent_counters.c - counters, and a bit for each chunk and peer. */
#include "wan/send/sent_counters.h"

#include <stdatomic.h>

#include "base/allocate.h"
#include "base/assert.h"

struct tb_sent {
    uint32_t peers, chunks;
    atomic_ullong raw_bytes, bytes, again_bytes, ways[TB_WAYS];
    atomic_ullong begun[]; /* bit peer * chunks + chunk */
};

struct tb_sent *tb_sent_new(uint32_t peers, uint32_t chunks)
{
    const uint64_t words = ((uint64_t)peers * chunks + 63) / 64;
    struct tb_sent *s = tb_calloc(1, sizeof *s + words * sizeof s->begun[0]);
    if (s == NULL) return NULL;
    s->peers = peers;
    s->chunks = chunks;
    return s;
}

void tb_sent_free(struct tb_sent *s)
{
    tb_free(s);
}

static void add(atomic_ullong *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

void tb_sent_add(struct tb_sent *s, const struct tb_sent_chunk *c)
{
    TB_ASSERT(c->frame_bytes > 0 && c->raw_bytes > 0);
    TB_ASSERT(c->peer < s->peers && c->chunk < s->chunks && c->way < TB_WAYS);
    const uint64_t at = (uint64_t)c->peer * s->chunks + c->chunk;
    const unsigned long long bit = UINT64_C(1) << at % 64;
    const unsigned long long before = atomic_fetch_or_explicit(&s->begun[at / 64], bit, memory_order_relaxed);
    add(&s->raw_bytes, c->raw_bytes);
    add(&s->bytes, c->frame_bytes);
    add(&s->ways[c->way], 1);
    if ((before & bit) != 0) add(&s->again_bytes, c->frame_bytes);
}

void tb_sent_look(const struct tb_sent *s, struct tb_sent_sum *sum_out)
{
    sum_out->raw_bytes = atomic_load_explicit(&s->raw_bytes, memory_order_relaxed);
    sum_out->bytes = atomic_load_explicit(&s->bytes, memory_order_relaxed);
    sum_out->again_bytes = atomic_load_explicit(&s->again_bytes, memory_order_relaxed);
    for (int way = 0; way < TB_WAYS; way++)
        sum_out->chunks[way] = atomic_load_explicit(&s->ways[way], memory_order_relaxed);
}
