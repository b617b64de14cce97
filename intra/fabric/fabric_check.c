/* fabric_check.c - asserts what holds of the fabric between two turns of its loop: lists agree with
 * the sums that other files keep of them. Changes nothing. */
#include "base/assert.h"
#include "intra/fabric/door_inside.h"
#include "intra/fabric/fabric_queue.h"

static void check_peer(const struct tb_door_peer *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->run_count; i++)
        bytes += p->runs[(p->run_first + i) % TB_HOP_READS_MAX].bytes;
    TB_ASSERT(p->run_count <= TB_HOP_READS_MAX && bytes == p->run_bytes + p->run_done);
    TB_ASSERT(p->data_left <= p->run_bytes);
    TB_ASSERT(p->out_at <= p->out_used && p->out_used <= TB_DOOR_OUT_BYTES);
    TB_ASSERT(p->attach_count <= TB_DOOR_ATTACHES_MAX && p->ping_count <= TB_DOOR_PINGS_MAX);
    TB_ASSERT(p->state != TB_DOOR_GREETING || p->export == NULL);
    TB_ASSERT(p->state != TB_DOOR_SERVING || p->export != NULL || p->chan_gone);
    TB_ASSERT(!p->lingers || p->tray != NULL);
    TB_ASSERT(!p->chan_gone || p->guest != NULL || p->tray != NULL || p->lent != NULL); /* else it has left */
    TB_ASSERT(!p->lend_due || p->lent == NULL);
}

/* Readers of all exports, as the door sees them. */
static uint32_t check_door(const struct tb_door *door)
{
    const struct tb_door_peer *p;
    uint32_t peers = 0, strangers = 0, readers = 0;
    LIST_FOREACH(p, &door->peers, link)
    {
        check_peer(p);
        peers += !p->chan_gone;
        strangers += !p->chan_gone && p->state == TB_DOOR_GREETING;
        readers += p->export != NULL;
    }
    TB_ASSERT(peers == door->peer_count && peers <= TB_DOOR_PEERS_MAX);
    TB_ASSERT(strangers == door->stranger_count);
    return readers;
}

/* Under the lock. */
static void check_exports(const struct tb_exports *exports, uint32_t readers)
{
    const struct tb_export *e;
    const struct tb_grant *g;
    uint32_t count = 0, tokens = 0, entered = 0;
    LIST_FOREACH(e, &exports->all, link)
    {
        count++;
        entered += e->readers;
        LIST_FOREACH(g, &e->grants, link) tokens++;
    }
    TB_ASSERT(count == exports->usage.exports && count <= exports->usage.exports_most);
    TB_ASSERT(tokens == exports->usage.tokens && tokens <= TB_TOKENS_MAX);
    TB_ASSERT(entered == readers);
}

static void check_gate(const struct tb_pace_gate *gate)
{
    const struct tb_pace_waiter *w;
    TAILQ_FOREACH(w, &gate->line, link) TB_ASSERT(w->waiting);
}

void tb_fabric_check(struct tb_fabric *f)
{
    const struct tb_hop *hop;
    TB_ASSERT(tb_fabric_on_thread(f));
    for (hop = LIST_FIRST(&f->hops); hop != NULL; hop = tb_hop_after((struct tb_hop *)hop))
        tb_hop_check(hop);
    const uint32_t readers = f->door != NULL ? check_door(f->door) : 0;
    pthread_mutex_lock(&f->lock);
    check_exports(&f->exports, readers);
    pthread_mutex_unlock(&f->lock);
    check_gate(&f->in);
    check_gate(&f->out);
}
