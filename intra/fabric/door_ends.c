/* door_ends.c - how a reader leaves the door: refused, its export taken back, or gone by itself.
 * Each refusal leaves one line.
 *
 * A peer that does not take its END within a second is cut off, and counts as a reader until its
 * connection is gone; one that reads by RDMA until its queue pair is.
 *
 * One that has a tray of a GPU's is not cut off: its connection's end is its word that the tray is
 * closed. Where it stands still, it lingers: nothing is sent or read for it any more, the export's
 * memory is its owner's, and the tray waits for the word. */
#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "intra/fabric/door_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/fabric/pace_gate.h"

#define END_WITHIN TB_SECONDS(1)

void tb_door_count(struct tb_door *door, int more)
{
    struct tb_fabric *f = door->fabric;
    TB_ASSERT(more == 1 || (more == -1 && door->peer_count > 0));
    door->peer_count += (uint32_t)more;
    atomic_store_explicit(&f->readers, door->peer_count, memory_order_relaxed);
    if (door->peer_count > atomic_load_explicit(&f->readers_most, memory_order_relaxed))
        atomic_store_explicit(&f->readers_most, door->peer_count, memory_order_relaxed);
    TB_ASSERT(door->peer_count <= TB_DOOR_PEERS_MAX && door->stranger_count <= door->peer_count);
    if (door->peer_count <= TB_DOOR_PEERS_MAX / 4 * 3 &&
        door->stranger_count <= TB_DOOR_STRANGERS_MAX / 4 * 3)
        door->full_told = false;
}

/* P7: one identity has a quarter of the door's readers at most. */
bool tb_door_share_spent(struct tb_door_peer *p)
{
    struct tb_fabric *f = p->door->fabric;
    const struct tb_door_peer *other;
    uint32_t count = 0;
    if (p->owner == 0 || p->door->peer_count <= TB_DOOR_PEERS_MAX / 4) return false;
    LIST_FOREACH(other, &p->door->peers, link) count += other->owner == p->owner;
    if (count <= TB_DOOR_PEERS_MAX / 4) return false;
    atomic_fetch_add_explicit(&f->readers_refused, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->readers_spent, 1, memory_order_release);
    return true;
}

/* Lines are of that reader's; returns the party of before, which is to be set again. */
static struct tb_log_party log_of(const struct tb_door_peer *p)
{
    const struct tb_chan_peer *peer = tb_chan_peer(p->chan);
    struct tb_log_party party = {.identity = &peer->identity};
    if (peer->identity.kind == TB_IDENTITY_NONE) party = (struct tb_log_party){.stranger = peer->address};
    return tb_log_party_set(party);
}

/* P7: the gateway counts what an identity garbles. */
static void note_garbled(const struct tb_door_peer *p)
{
    struct tb_fabric *f = p->door->fabric;
    if (p->owner == 0) return;
    pthread_mutex_lock(&f->lock);
    if (f->garbled_count < TB_FABRIC_GARBLED_MAX) f->garbled[f->garbled_count++] = p->owner;
    pthread_mutex_unlock(&f->lock);
}

void tb_door_log_refused(const struct tb_door_peer *p, enum tb_status why, const char *what)
{
    struct tb_log_line l;
    if (why == TB_PEER_GARBLED) note_garbled(p);
    const struct tb_log_party before = log_of(p);
    tb_log_begin(&l, TB_LOG_WARN, "door.refused");
    tb_log_str(&l, "peer", tb_chan_peer(p->chan)->address);
    tb_log_str(&l, "door", p->tcp ? "tcp" : "shm");
    if (p->export != NULL) tb_log_u64(&l, "export", p->export->id);
    tb_log_str(&l, "status", tb_status_name(why));
    tb_log_str(&l, "reason", what);
    tb_log_end(&l);
    (void)tb_log_party_set(before);
}

void tb_door_cut_off(struct tb_door_peer *p, enum tb_status why)
{
    if (p->gone) return;
    p->gone = true;
    tb_chan_close(p->chan, why);
}

void tb_door_end(struct tb_door_peer *p, enum tb_status why)
{
    if (p->state == TB_DOOR_ENDING || p->chan_gone) return;
    if (p->guest != NULL) tb_verbs_guest_end(p->guest);
    if (p->state == TB_DOOR_GREETING) p->door->stranger_count--;
    if (p->lent != NULL) tb_door_lent_stop(p->lent);
    p->state = TB_DOOR_ENDING;
    p->end_why = why;
    p->deadline = tb_clock_now() + END_WITHIN;
    tb_fabric_wake_at(p->door->fabric, p->deadline);
    tb_chan_want_write(p->chan, true);
}

void tb_door_refuse(struct tb_door_peer *p, enum tb_status why, const char *what)
{
    tb_door_log_refused(p, why, what);
    tb_door_end(p, why);
}

/* Nothing of the peer's touches the export any more. */
static void leave_export(struct tb_door_peer *p)
{
    struct tb_fabric *f = p->door->fabric;
    if (p->export == NULL) return;
    pthread_mutex_lock(&f->lock);
    TB_ASSERT(p->export->readers > 0);
    p->export->readers--;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    p->export = NULL;
}

/* No job on the pool looks at it. */
static void leave_export_if_idle(struct tb_door_peer *p)
{
    const bool tray = p->tray != NULL && tb_door_tray_busy(p->tray);
    const bool lent = p->lent != NULL && tb_door_lent_busy(p->lent);
    if (!tray && !lent) leave_export(p);
}

void tb_door_leave(struct tb_door_peer *p)
{
    TB_ASSERT(p->chan_gone && p->guest == NULL && p->tray == NULL);
    if (p->lent != NULL && tb_door_lent_busy(p->lent)) return; /* on_lent_turn goes on */
    if (p->lent != NULL) tb_door_lent_free(p->lent);
    leave_export(p);
    LIST_REMOVE(p, link);
    tb_free(p);
}

void tb_door_on_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    (void)why;
    struct tb_door_peer *p = user;
    TB_ASSERT(!p->chan_gone);
    if (p->state == TB_DOOR_GREETING) p->door->stranger_count--;
    tb_door_count(p->door, -1);
    tb_pace_gate_leave(&p->door->fabric->out, &p->pace);
    p->gone = p->chan_gone = true;
    if (p->lent != NULL) tb_door_lent_stop(p->lent);
    if (p->guest != NULL) {
        tb_verbs_guest_end(p->guest); /* on_guest_gone goes on */
    } else if (p->tray != NULL) {
        leave_export_if_idle(p);
        tb_door_tray_close(p->tray, tb_chan_hung_up(c)); /* on_tray_gone goes on */
    } else {
        tb_door_leave(p);
    }
}

/* ---- readers with a tray ---- */

static void on_tray_turn(void *user)
{
    struct tb_door_peer *p = user;
    if (p->chan_gone || p->lingers) leave_export_if_idle(p);
    if (!p->gone && !p->lingers) tb_chan_want_write(p->chan, true);
}

static void on_tray_gone(void *user)
{
    struct tb_door_peer *p = user;
    p->tray = NULL;
    tb_door_leave(p); /* it closes behind the connection's end alone */
}

const struct tb_door_tray_events tb_door_peer_tray_events = {.on_turn = on_tray_turn,
                                                             .on_gone = on_tray_gone};

void tb_door_linger(struct tb_door_peer *p)
{
    TB_ASSERT(p->tray != NULL && !p->lingers && p->state == TB_DOOR_ENDING);
    const struct tb_log_party before = log_of(p);
    tb_log(TB_LOG_WARN, "door.reader_stands_still", "peer=%s export=%llu action=memory_is_the_owners",
           tb_chan_peer(p->chan)->address, (unsigned long long)(p->export != NULL ? p->export->id : 0));
    (void)tb_log_party_set(before);
    p->lingers = true;
    p->deadline = TB_TIME_NEVER;
    tb_chan_want_write(p->chan, false);
    tb_chan_end(p->chan); /* what it finds when it goes on */
    leave_export_if_idle(p);
}

/* ---- readers that lend memory ---- */

static void on_lent_turn(void *user)
{
    struct tb_door_peer *p = user;
    if (p->chan_gone && p->tray == NULL) {
        tb_door_leave(p);
        return;
    }
    if (p->chan_gone || p->lingers) leave_export_if_idle(p);
    if (p->gone || p->lingers) return; /* on_closed comes, or came */
    if (tb_door_lent_is_bad(p->lent) && p->state != TB_DOOR_ENDING)
        tb_door_refuse(p, TB_PEER_GARBLED, "lends memory that is not sealed as it should be");
    tb_chan_want_write(p->chan, true);
}

const struct tb_door_lent_events tb_door_peer_lent_events = {.on_turn = on_lent_turn};
