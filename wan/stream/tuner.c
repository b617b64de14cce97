/* tuner.c - a search that ends. Pure. */
#include "wan/stream/tuner.h"

#include "base/assert.h"

#include <string.h>

#define RATE_ASSUMED 125000000u /* bytes/s, before one was seen: 1 Gbit/s */
/* To begin with: more than one, so that a stalled one is an eighth. On a near path one a core,
 * and not more than that. */
#define STREAMS_FIRST 8u
#define LOOK_LEAST    TB_SECONDS(1)
#define LOOK_RTTS     10u
#define AGAIN_LEAST   TB_SECONDS(30)
#define SHORT_MOST    TB_SECONDS(5) /* that a stream takes to come up, or it will not */
#define OTHER_LOOKS   3u
#define UNSEEN        TB_SECONDS(1)  /* between looks: nobody knows what was open meanwhile */
#define MORE_LEAST    TB_SECONDS(60) /* until more than came up are tried again; each time twice as long */
#define MORE_MOST     TB_SECONDS(3600)
#define GAIN_PERCENT  2u /* that another number has to bring */

uint32_t tb_tuner_by_window(uint64_t bytes_per_s, tb_time_ns rtt, uint64_t window_bytes)
{
    if (window_bytes == 0) return 1;
    const double needed = (double)bytes_per_s * ((double)rtt / 1e9) / (double)window_bytes;
    if (needed >= TB_TUNER_STREAMS_MAX) return TB_TUNER_STREAMS_MAX;
    const uint32_t whole = (uint32_t)needed;
    return whole < needed ? whole + 1 : whole == 0 ? 1 : whole;
}

static uint32_t by_arithmetic(const struct tb_tuner *t)
{
    const uint32_t cores = t->options.cores > 0 ? t->options.cores : 1;
    const uint64_t rate = t->best_rate > RATE_ASSUMED ? t->best_rate : RATE_ASSUMED;
    const uint32_t least = t->rtt >= TB_TUNER_LONG || cores > STREAMS_FIRST ? STREAMS_FIRST : cores;
    const uint32_t windows = tb_tuner_by_window(rate, t->rtt, t->window_bytes);
    const uint32_t streams = windows > least ? windows : least;
    TB_ASSERT(streams > 0 && t->ceiling > 0);
    return streams < t->ceiling ? streams : t->ceiling;
}

void tb_tuner_init(struct tb_tuner *t, const struct tb_tuner_options *options)
{
    TB_ASSERT(options->streams <= TB_TUNER_STREAMS_MAX);
    memset(t, 0, sizeof *t);
    t->options = *options;
    t->ceiling = TB_TUNER_STREAMS_MAX;
    t->streams = options->streams > 0 ? options->streams : by_arithmetic(t);
}

void tb_tuner_recall(struct tb_tuner *t, uint32_t streams, uint64_t bytes_per_s)
{
    if (t->options.streams > 0 || streams == 0 || streams > TB_TUNER_STREAMS_MAX || bytes_per_s == 0) return;
    t->streams = t->best = streams;
    t->best_rate = bytes_per_s;
    t->searched = true;
}

enum tb_congestion tb_tuner_congestion(const struct tb_tuner_options *options, tb_time_ns rtt)
{
    const bool far = rtt >= TB_TUNER_LONG;
    if (options->bbr && (far || !options->cubic)) return TB_CONGESTION_BBR;
    return options->cubic ? TB_CONGESTION_CUBIC : TB_CONGESTION_SYSTEM;
}

/* goodput / 1.02^n, of two numbers against each other. */
static bool pays(uint64_t rate, uint32_t streams, uint64_t best_rate, uint32_t best)
{
    double ratio = best_rate > 0 ? (double)rate / (double)best_rate : 2;
    for (uint32_t n = best; n < streams; n++)
        ratio /= 1.02;
    for (uint32_t n = streams; n < best; n++)
        ratio *= 1.02;
    return ratio > 1 + GAIN_PERCENT / 100.0;
}

static tb_time_ns look_for(const struct tb_tuner *t)
{
    const tb_time_ns by_rtt = LOOK_RTTS * t->rtt;
    return by_rtt > LOOK_LEAST ? by_rtt : LOOK_LEAST;
}

static void begin(struct tb_tuner *t, enum tb_tuner_state state, const struct tb_tuner_seen *seen)
{
    t->state = state;
    t->from = seen->now;
    t->from_bytes = seen->bytes;
    t->until = tb_time_add(seen->now, look_for(t));
}

static void settle(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    TB_ASSERT(t->best > 0); /* it was looked at */
    t->streams = t->best;
    t->searched = true;
    t->settled_at = seen->now;
    t->other = 0;
    begin(t, TB_TUNER_SETTLED, seen);
}

static uint32_t step(uint32_t streams, int direction)
{
    TB_ASSERT(streams > 0);
    const uint32_t half = streams / 2 > 0 ? streams / 2 : 1;
    if (direction > 0) return streams + half < TB_TUNER_STREAMS_MAX ? streams + half : TB_TUNER_STREAMS_MAX;
    return streams > half ? streams - streams / 3 - (streams < 3) : 1;
}

/* Tries the next number in the direction; false: there is none. */
static bool try_next(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    uint32_t next = step(t->best, t->direction);
    if (next > t->ceiling) next = t->ceiling;
    if (next == t->best || (t->direction > 0) != (next > t->best)) return false;
    TB_ASSERT(next > 0 && next <= TB_TUNER_STREAMS_MAX);
    t->streams = next;
    begin(t, TB_TUNER_WARMING, seen);
    return true;
}

static void turn(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    TB_ASSERT(t->direction == 1 || t->direction == -1);
    if (!t->turned) {
        t->turned = true;
        t->direction = -t->direction;
        if (try_next(t, seen)) return;
    }
    settle(t, seen);
}

/* The number that was tried brought so much. */
static void judge(struct tb_tuner *t, const struct tb_tuner_seen *seen, uint64_t rate)
{
    TB_ASSERT(t->state == TB_TUNER_LOOKING);
    if (t->best == 0) {
        t->best = t->streams;
        t->best_rate = rate;
        t->direction = 1;
        t->turned = false;
    } else if (pays(rate, t->streams, t->best_rate, t->best)) {
        t->best = t->streams;
        t->best_rate = rate;
        t->turned = true; /* the number before lies on the other side, and was worse */
    } else {
        turn(t, seen);
        return;
    }
    if (!try_next(t, seen)) turn(t, seen);
}

/* A settled number that brings much less than it did, or much more: what was found when the path,
 * or an operator's limit, held all of them is not enough for a wider one. */
static void watch(struct tb_tuner *t, const struct tb_tuner_seen *seen, uint64_t rate)
{
    TB_ASSERT(t->state == TB_TUNER_SETTLED && t->searched);
    const bool other = rate < t->best_rate / 4 * 3 || rate / 4 * 3 > t->best_rate;
    t->other = other ? t->other + 1 : 0;
    begin(t, TB_TUNER_SETTLED, seen);
    if (t->other < OTHER_LOOKS || tb_time_since(t->settled_at, seen->now) < AGAIN_LEAST) return;
    t->best = 0;
    begin(t, TB_TUNER_LOOKING, seen);
}

static void looked(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    const tb_time_ns took = tb_time_since(t->from, seen->now);
    const uint64_t rate =
        took > 0 ? (uint64_t)((double)(seen->bytes - t->from_bytes) * 1e9 / (double)took) : 0;
    if (t->state == TB_TUNER_WARMING)
        begin(t, TB_TUNER_LOOKING, seen);
    else if (t->state == TB_TUNER_LOOKING)
        judge(t, seen, rate);
    else if (t->searched)
        watch(t, seen, rate);
    else
        begin(t, TB_TUNER_WARMING, seen); /* the first full copy on this path */
}

/* Nothing is left to send, or streams that were asked for are not there yet: the look says nothing
 * of the number. */
static void interrupted(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    if (t->state == TB_TUNER_LOOKING) t->state = TB_TUNER_WARMING;
    begin(t, t->state, seen);
}

/* The peer does not let more come up (its own limit, its descriptors): what there is will
 * have to do, for a while. */
static void lower(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    const uint32_t open = seen->usable > 0 ? seen->usable : 1;
    const bool as_before = t->low_ceiling != 0 && open >= t->low_streams;
    t->more_after = t->more_after == 0 ? MORE_LEAST : tb_time_min(2 * t->more_after, MORE_MOST);
    t->more_at = tb_time_add(seen->now, t->more_after);
    if (t->streams > t->high_streams) t->high_streams = t->streams;
    t->ceiling = as_before ? t->low_ceiling : open;
    t->streams = as_before ? t->low_streams : open;
    if (!as_before) t->best = 0;
    t->low_ceiling = 0;
    t->short_since = 0;
    begin(t, as_before ? t->state : TB_TUNER_WARMING, seen);
    TB_ASSERT(t->streams > 0 && t->ceiling > 0);
}

/* The reason for the shortage may be over: a path that was broken for some seconds, a peer that
 * has descriptors again. */
static void try_more(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    if (t->ceiling == TB_TUNER_STREAMS_MAX || seen->now < t->more_at) return;
    t->low_ceiling = t->ceiling;
    t->low_streams = t->streams;
    t->ceiling = TB_TUNER_STREAMS_MAX;
    t->streams = t->high_streams;
    t->short_since = 0;
    TB_ASSERT(t->streams > 0);
}

static void enough(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    t->short_since = 0;
    if (t->low_ceiling == 0) return;
    t->low_ceiling = t->high_streams = 0;
    t->more_after = 0;
    t->best = 0; /* what was found among the few says nothing */
    begin(t, TB_TUNER_WARMING, seen);
}

static bool too_few(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    if (seen->usable > t->ceiling) t->ceiling = seen->usable;
    if (seen->usable >= t->streams) {
        enough(t, seen);
        return false;
    }
    if (tb_time_since(t->seen_at, seen->now) >= UNSEEN) t->short_since = 0;
    if (t->short_since == 0) t->short_since = seen->now;
    if (tb_time_since(t->short_since, seen->now) >= SHORT_MOST) lower(t, seen);
    return true;
}

void tb_tuner_check(const struct tb_tuner *t)
{
    TB_ASSERT(t->streams > 0 && t->streams <= TB_TUNER_STREAMS_MAX);
    TB_ASSERT(t->options.streams == 0 || t->streams == t->options.streams);
    TB_ASSERT(t->best <= TB_TUNER_STREAMS_MAX && t->ceiling > 0 && t->ceiling <= TB_TUNER_STREAMS_MAX);
    TB_ASSERT(t->state <= TB_TUNER_LOOKING && t->direction >= -1 && t->direction <= 1);
    TB_ASSERT((t->low_ceiling == 0) || t->low_streams > 0);
}

uint32_t tb_tuner_look(struct tb_tuner *t, const struct tb_tuner_seen *seen)
{
    if (t->options.streams > 0) return t->streams;
    const bool nearer = seen->rtt != 0 && (t->rtt == 0 || seen->rtt < t->rtt);
    const bool resized = seen->window_bytes != t->window_bytes;
    if (nearer) t->rtt = seen->rtt;
    t->window_bytes = seen->window_bytes;
    if ((nearer || resized) && !t->searched && t->best == 0) t->streams = by_arithmetic(t);
    try_more(t, seen);
    const bool short_of = too_few(t, seen);
    t->seen_at = seen->now;
    if (short_of || !seen->full)
        interrupted(t, seen);
    else if (seen->now >= t->until)
        looked(t, seen);
    return t->streams;
}
