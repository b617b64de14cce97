/* hop_facts.c - the files of a hop mark and post what happened to it. hop_run.c concludes on a
 * later turn of the fabric's queue.
 *
 * So no file ends a hop in the middle of another file's work: after tb_hop_lose, the hop, its slots
 * and its transport stay until the caller has returned to the loop. */
#include "base/assert.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop_inside.h"

void tb_hop_tell(struct tb_hop *hop, struct tb_hop_event event)
{
    TB_ASSERT(tb_fabric_on_thread(hop->fabric));
    if (tb_hop_life_is_silent(hop->life)) return;
    hop->options.fn(hop->options.user, hop, &event);
}

void tb_hop_conclude_soon(struct tb_hop *hop)
{
    TB_ASSERT(tb_hop_life_ends(hop->life) && hop->life != TB_HOP_LIFE_CLOSED);
    if (hop->conclusion_posted) return;
    hop->conclusion_posted = true;
    tb_fabric_post(hop->fabric, &hop->conclusion);
}

void tb_hop_end(struct tb_hop *hop, enum tb_hop_life_event event)
{
    tb_hop_life_step(&hop->life, event);
    TB_ASSERT(tb_hop_life_ends(hop->life));
    __atomic_store_n(&hop->stop, true, __ATOMIC_RELAXED);
    tb_hop_conclude_soon(hop);
}

void tb_hop_lose(struct tb_hop *hop, enum tb_status why)
{
    TB_ASSERT(why != TB_OK && tb_fabric_on_thread(hop->fabric));
    if (tb_hop_life_ends(hop->life)) return;
    hop->lost = why;
    tb_hop_end(hop, TB_HOP_ON_LOSE);
}
