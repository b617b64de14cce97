/* door_guests.c - readers at the door that read by RDMA: their queue pair is made, breaks, and is
 * made again. */
#include "base/assert.h"
#include "base/net/chan_bytes.h"
#include "intra/fabric/door_inside.h"

static void on_attachable(void *user)
{
    struct tb_door_peer *p = user;
    if (!p->gone) tb_chan_want_write(p->chan, true);
}

/* It disconnected, or asked for what its key does not open: what it still wants goes
 * over the connection. */
static void on_guest_broken(void *user)
{
    tb_verbs_guest_end(((struct tb_door_peer *)user)->guest);
}

static void on_guest_gone(void *user);

static const struct tb_verbs_guest_events guest_events = {
    .on_attachable = on_attachable, .on_broken = on_guest_broken, .on_gone = on_guest_gone};

void tb_door_offer_verbs(struct tb_door_peer *p)
{
    TB_ASSERT(p->guest == NULL && p->tcp);
    p->verbs_due = true;
    p->verbs_again = false;
    if (tb_verbs_guest_open(p->door->fabric->verbs, p->export, &guest_events, p, &p->guest) != TB_OK)
        p->guest = NULL; /* no rails */
}

static void on_guest_gone(void *user)
{
    struct tb_door_peer *p = user;
    p->guest = NULL;
    TB_ASSERT(p->tcp);
    if (p->chan_gone) {
        tb_door_leave(p);
        return;
    }
    if (p->verbs_again && p->state == TB_DOOR_SERVING) tb_door_offer_verbs(p);
    on_attachable(p);
}
