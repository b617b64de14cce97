#include "intra/hop/heartbeat.h"

#include "base/assert.h"

void tb_heartbeat_init(struct tb_heartbeat *h, uint32_t idle_ms, uint32_t open_ms, tb_time_ns now)
{
    TB_ASSERT(idle_ms >= TB_HEARTBEAT_MISSED && open_ms > 0);
    *h = (struct tb_heartbeat){.every = TB_MS(idle_ms) / TB_HEARTBEAT_MISSED,
                               .open = TB_MS(open_ms),
                               .heard_at = now,
                               .look_at = now};
}

void tb_heartbeat_heard(struct tb_heartbeat *h, tb_time_ns now)
{
    h->heard_at = now;
}

/* The next thing to do, and in look_at when to look again. */
static enum tb_heartbeat_do judge(struct tb_heartbeat *h, tb_time_ns now)
{
    const tb_time_ns silent = tb_time_since(h->heard_at, now);
    const tb_time_ns most = h->greeted ? h->every * TB_HEARTBEAT_MISSED : h->open;
    if (silent >= most) return TB_HEARTBEAT_LOST;
    h->look_at = tb_time_add(h->heard_at, most);
    if (!h->greeted || h->asked) return TB_HEARTBEAT_WAIT;
    if (silent < h->every) {
        h->look_at = tb_time_add(h->heard_at, h->every);
        return TB_HEARTBEAT_WAIT;
    }
    TB_ASSERT(h->greeted && !h->asked);
    h->asked = true;
    return TB_HEARTBEAT_ASK;
}

enum tb_heartbeat_do tb_heartbeat_look(struct tb_heartbeat *h, tb_time_ns now, tb_time_ns *next_out)
{
    if (now > tb_time_add(h->look_at, h->every)) h->heard_at = now;
    const enum tb_heartbeat_do what = judge(h, now);
    if (what != TB_HEARTBEAT_LOST) *next_out = h->look_at;
    return what;
}
