/* bottleneck.c - shares of time, and rate x RTT. Pure. */
#include "wan/stream/bottleneck.h"

#include "base/assert.h"

#include <stddef.h>

const char *tb_bottleneck_name(enum tb_limit limit)
{
    static const char *const names[] = {
#define TB_LIMIT_NAME(name, text, why) text,
        TB_LIMIT_LIST(TB_LIMIT_NAME)
#undef TB_LIMIT_NAME
    };
    return (size_t)limit < sizeof names / sizeof names[0] ? names[limit] : "unknown";
}

enum tb_limit tb_bottleneck_of(const struct tb_limit_seen *s)
{
    TB_ASSERT(s->time > 0); /* counters grew over some time */
    /* However busy: what is paced is under way most of the time. */
    if (s->capped > s->time / 3) return TB_LIMIT_CAP;
    const tb_time_ns wanted = s->wanted > s->busy ? s->wanted : s->busy;
    if (wanted < s->time / 10) return TB_LIMIT_IDLE;
    /* The kernel had nothing to send for most of the time. A late writer fills a window at once. */
    if (s->busy < wanted / 2) return TB_LIMIT_SENDER;
    if (s->peer > s->busy / 3) return TB_LIMIT_PEER_WINDOW;
    /* The kernel calls it a full buffer, too, when the writer is late to fill it again. */
    const bool grown = s->send_ceiling_bytes > 0 && s->window_bytes >= s->send_ceiling_bytes / 5 * 2;
    if (s->buffer > s->busy / 3) return grown ? TB_LIMIT_SEND_BUFFER : TB_LIMIT_SENDER;
    return TB_LIMIT_NETWORK;
}

/* A sender is woken when a third of its buffer is free, so one that is full has 0.7 to 1.0 of the
 * ceiling under way from one look to the next; and a rate is smoothed over a second, as long as a
 * small version takes. Not by the kernel's word alone: it calls a buffer full also when the writer
 * is late to fill it again, however little is under way. */
static bool holds(const struct tb_window_seen *s, double needed)
{
    TB_ASSERT(s->streams > 0 && s->held <= s->streams);
    const double ceiling = (double)s->ceiling_bytes;
    return needed >= (2 * s->held > s->streams ? 0.5 : 0.8) * ceiling;
}

uint64_t tb_window_wanted(const struct tb_window_seen *s)
{
    if (s->streams == 0 || s->ceiling_bytes == 0 || s->rtt == 0) return 0;
    const double under_way = (double)s->bytes_per_s * ((double)s->rtt / 1e9) / s->streams;
    double needed = s->receives ? 2 * under_way : under_way;
    if (!holds(s, needed)) return 0;
    if (needed < (double)s->ceiling_bytes) needed = (double)s->ceiling_bytes;
    uint64_t wanted = 1 << 20;
    while ((double)wanted < 2 * needed && wanted < (uint64_t)1 << 40)
        wanted *= 2; /* twice, because what is seen is what the ceiling lets through */
    TB_ASSERT(wanted >= 1 << 20);
    return wanted > s->ceiling_bytes ? wanted : 0;
}

bool tb_window_look(uint64_t *wanted_bytes, const struct tb_window_seen *s)
{
    const uint64_t wanted = tb_window_wanted(s);
    if (s->ceiling_bytes >= *wanted_bytes) *wanted_bytes = 0;
    if (wanted <= *wanted_bytes) return false;
    *wanted_bytes = wanted;
    return true;
}
