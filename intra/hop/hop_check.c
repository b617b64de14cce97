/* hop_check.c - asserts what holds of a hop between two turns of the loop. Changes nothing. */
#include "base/assert.h"
#include "intra/hop/hop_inside.h"

/* Slots are what the core counts as in flight, each once. */
static void check_slots(const struct tb_hop *hop)
{
    uint32_t taken = 0, working = 0, came = 0;
    uint64_t bytes = 0, came_bytes = 0;
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++) {
        const struct tb_hop_slot *slot = &hop->slots[i];
        if (slot->state == TB_SLOT_FREE) continue;
        TB_ASSERT(slot->aim.came == (slot->state != TB_SLOT_READING));
        TB_ASSERT(slot->aim.shard_index < hop->state.shard_count);
        taken++;
        bytes += slot->aim.bytes;
        working += slot->state == TB_SLOT_WORKING;
        came += slot->aim.came;
        came_bytes += slot->aim.came ? slot->aim.bytes : 0;
    }
    TB_ASSERT(taken == hop->state.in_flight_chunks && bytes == hop->state.in_flight_bytes);
    TB_ASSERT(came == hop->state.came_chunks && came_bytes == hop->state.came_bytes);
    TB_ASSERT(working == hop->jobs);
}

static void check_life(const struct tb_hop *hop)
{
    const bool open = tb_hop_life_is_open(hop->life);
    TB_ASSERT(!open || (hop->upstream != NULL && !hop->upstream_closing));
    TB_ASSERT(hop->life != TB_HOP_LIFE_REDIALLING || hop->upstream_closing);
    TB_ASSERT(!hop->upstream_closing || hop->upstream != NULL);
    TB_ASSERT(hop->life != TB_HOP_LIFE_CLOSED); /* it is on no list */
    TB_ASSERT(hop->life != TB_HOP_LIFE_LOSING || hop->lost != TB_OK);
    TB_ASSERT(hop->stop == tb_hop_life_ends(hop->life));
    TB_ASSERT(hop->snapshots_owed <= hop->state.shard_count + 1);
    TB_ASSERT(hop->snapshots_owed == 0 || hop->round_running);
    if (hop->life != TB_HOP_LIFE_LOST) return;
    TB_ASSERT(hop->jobs == 0 && hop->upstream == NULL && hop->state.in_flight_chunks == 0);
}

void tb_hop_check(const struct tb_hop *hop)
{
    tb_hop_state_check(&hop->state);
    check_slots(hop);
    check_life(hop);
}
