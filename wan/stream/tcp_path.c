/* tcp_path.c - options set, counters read, rates made of them. */
#include "wan/stream/tcp_path.h"

#include "base/assert.h"

#include <string.h>

#define LOOKS_A_SECOND 50u

/* Bytes that may wait unsent at that rate: a power of two. */
static uint32_t unsent_for(uint64_t bytes_per_s)
{
    uint32_t bytes = TB_TCP_UNSENT_BYTES_MIN;
    while (bytes < bytes_per_s / LOOKS_A_SECOND && bytes < TB_TCP_UNSENT_BYTES_MAX)
        bytes *= 2;
    return bytes;
}

static const char *congestion_for(const struct tb_tcp_path_options *o, tb_time_ns rtt)
{
    if (o->congestion == NULL || strcmp(o->congestion, "auto") != 0) return o->congestion;
    switch (tb_tuner_congestion(&o->tuning, rtt)) {
    case TB_CONGESTION_BBR:
        return "bbr";
    case TB_CONGESTION_CUBIC:
        return "cubic";
    default:
        return NULL;
    }
}

void tb_tcp_path_open(struct tb_tcp_path *p, const struct tb_tcp_path_options *options, int fd, bool bulk)
{
    TB_ASSERT(fd >= 0);
    *p = (struct tb_tcp_path){.options = options, .unsent_max = TB_TCP_UNSENT_BYTES};
    const bool known = tb_tcp_look(fd, &p->seen);
    const char *congestion = congestion_for(options, known ? p->seen.rtt_min : 0);
    tb_tcp_keep_alive(fd);
    if (options->dscp != 0) tb_tcp_dscp_set(fd, options->dscp); /* for one that the peer dialled */
    /* It was tried when the links were opened: what fails now is a connection that is
     * ending, which others see. */
    if (congestion != NULL) (void)tb_tcp_congestion_set(fd, congestion);
    if (bulk) tb_tcp_unsent_max(fd, p->unsent_max);
}

static void bound_unsent(struct tb_tcp_path *p, int fd)
{
    const uint32_t bytes = unsent_for(p->sent_per_s);
    if (p->limit == TB_LIMIT_IDLE || bytes == p->unsent_max) return;
    p->unsent_max = bytes;
    tb_tcp_unsent_max(fd, bytes);
    TB_ASSERT(p->unsent_max >= TB_TCP_UNSENT_BYTES_MIN && p->unsent_max <= TB_TCP_UNSENT_BYTES_MAX);
}

static uint64_t per_s(uint64_t before, uint64_t bytes, tb_time_ns time)
{
    TB_ASSERT(time > 0);
    const uint64_t now = (uint64_t)((double)bytes * 1e9 / (double)time);
    return before == 0 ? now : (3 * before + now) / 4;
}

void tb_tcp_path_look(struct tb_tcp_path *p, int fd, tb_time_ns now, const struct tb_tcp_writer *writer)
{
    struct tb_tcp_seen seen;
    const struct tb_tcp_seen *last = &p->seen;
    const tb_time_ns time = p->seen_at != 0 ? tb_time_since(p->seen_at, now) : 0;
    if (!tb_tcp_look(fd, &seen)) return;
    if (time > 0) {
        const struct tb_limit_seen limit = {
            .time = time,
            .busy = seen.busy - last->busy,
            .peer = seen.peer - last->peer,
            .buffer = seen.buffer - last->buffer,
            .window_bytes = seen.window_bytes,
            .send_ceiling_bytes = atomic_load_explicit(&p->options->send_ceiling_bytes, memory_order_relaxed),
            .wanted = writer->wanted - p->wanted,
            .capped = writer->capped - p->capped};
        p->limit = tb_bottleneck_of(&limit);
        p->sent_per_s = per_s(p->sent_per_s, seen.bytes_acked - last->bytes_acked, time);
        p->received_per_s = per_s(p->received_per_s, seen.bytes_received - last->bytes_received, time);
        bound_unsent(p, fd);
    }
    p->seen = seen;
    p->seen_at = now;
    p->wanted = writer->wanted;
    p->capped = writer->capped;
}
