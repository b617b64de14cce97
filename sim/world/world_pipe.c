/* world_pipe.c - bytes one way. TLS over TCP loses and turns round nothing inside a stream, so a
 * lost byte is a broken stream (fault_link.c); what a path does is delay, refuse to take, and hold
 * back. Two things are done to whole frames, as they pass: a HELD or a chunk comes twice, and a
 * byte of a chunk is wrong (memory that went bad before TLS saw it). */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "wan/frame/frame.h"
#include "world_faults.h"
#include "world_hostile.h"
#include "world_machine.h"
#include "world_pipe.h"
#include "world_process.h"
#include "world_versions.h"

struct segment {
    struct segment *next;
    tb_time_ns at;
    size_t count, used;
    uint8_t bytes[];
};

bool world_path_open(uint32_t from, uint32_t to)
{
    return from == to || the->now >= the->paths[from][to].blocked_until;
}

tb_time_ns world_path_delay(uint32_t from, uint32_t to)
{
    if (from == to) return TB_MS(world_random(2));
    const struct path *path = &the->paths[from][to];
    return path->delay + (path->jitter != 0 ? world_random(path->jitter) : 0);
}

size_t world_pipe_room(const struct pipe *p)
{
    if (p->from != p->to && the->now < the->paths[p->from][p->to].clogged_until) return 0;
    const size_t window = p->from == p->to ? (size_t)1 << 20 : the->window_bytes;
    return p->bytes < window ? window - p->bytes : 0;
}

void world_pipe_push(struct pipe *p, const void *bytes, size_t count)
{
    struct segment *s = malloc(sizeof *s + count);
    TB_ASSERT(s != NULL);
    const tb_time_ns at = tb_time_add(the->now, world_path_delay(p->from, p->to));
    p->last_at = at > p->last_at ? at : p->last_at; /* one connection keeps its order */
    *s = (struct segment){.at = p->last_at, .count = count};
    memcpy(s->bytes, bytes, count);
    if (p->first == NULL)
        p->first = s;
    else
        p->last->next = s;
    p->last = s;
    p->bytes += count;
}

/* ---- what passes ---- */

static struct crossing_start *start_of(const struct pipe *p, uint32_t crossing, uint32_t life)
{
    struct path *way = &the->paths[p->to][p->from]; /* chunks go the other way than WANT, HELD and START */
    for (uint32_t i = 0; i < 32; i++)
        if (way->starts[i].crossing == crossing && way->starts[i].receiver_life == life)
            return &way->starts[i];
    return NULL;
}

/* A crossing on which chunks go `way`; what was told before a cut, and is still
 * there, is not to go again. */
static void see_begin(struct path *way, uint32_t receiver, const struct crossing_start *begun)
{
    struct crossing_start *start = &way->starts[0];
    while (start < way->starts + 32 &&
           !(start->crossing == begun->crossing && start->receiver_life == begun->receiver_life))
        start++;
    if (start == way->starts + 32) start = &way->starts[way->start_at++ % 32];
    *start = *begun;
    for (uint32_t s = 0; start->version != NONE && s < SHARDS_MAX; s++)
        start->held[s] =
            way->told[start->version][s] & world_arena_held(&the->sites[receiver].arena, start->version, s);
}

/* It comes from the sender of the chunks. */
static void see_push(const struct pipe *p, struct tb_reader *r)
{
    struct tb_frame_push m;
    if (tb_frame_push_decode(r, &m) != TB_OK) return;
    const struct crossing_start begun = {.crossing = m.crossing,
                                         .receiver_life = the->sites[p->to].gateway->life,
                                         .version = world_version_find(&m.uid),
                                         .pushed = true};
    see_begin(&the->paths[p->from][p->to], p->to, &begun);
}

/* Numbers begin again when a gateway makes its links anew, and a chunk may pass before PUSH says of
 * what: not of what had its number. */
static void see_expect(const struct pipe *p, struct tb_reader *r, uint32_t life)
{
    struct tb_frame_expect m;
    if (tb_frame_expect_decode(r, &m) != TB_OK) return;
    struct crossing_start *start = start_of(p, m.crossing, life);
    if (start != NULL) *start = (struct crossing_start){.version = NONE};
}

static void see_want(const struct pipe *p, struct tb_reader *r, uint32_t life)
{
    struct tb_frame_want m;
    if (tb_frame_want_decode(r, &m) != TB_OK) return;
    const struct crossing_start begun = {
        .crossing = m.crossing, .receiver_life = life, .version = world_version_find(&m.uid)};
    see_begin(&the->paths[p->to][p->from], p->from, &begun);
}

static void see_held(const struct pipe *p, struct tb_reader *r, uint32_t life)
{
    struct tb_frame_held m;
    if (tb_frame_held_decode(r, &m) != TB_OK) return;
    struct crossing_start *start = start_of(p, m.crossing, life);
    if (start == NULL || start->version == NONE || m.shard >= SHARDS_MAX) return;
    for (uint32_t i = 0; i < m.words.count / TB_HELD_WORD_BYTES; i++) {
        const uint64_t word = tb_held_words_at(&m.words, i).word;
        the->paths[p->to][p->from].told[start->version][m.shard] |=
            word & world_arena_held(&the->sites[p->from].arena, start->version,
                                    m.shard); /* it may have rotted since */
        /* A sender that pushes does not wait for it: chunks that others brought meanwhile may be
         * on their way then. */
        if (!start->complete && !start->pushed) start->held[m.shard] |= word;
    }
}

static void see_start(const struct pipe *p, struct tb_reader *r, uint32_t life)
{
    struct tb_frame_start m;
    if (tb_frame_start_decode(r, &m) != TB_OK) return;
    struct crossing_start *start = start_of(p, m.crossing, life);
    if (start == NULL) return;
    start->complete = true;
    the->went[WAY_PUSH] += start->pushed;
}

static void see_gone(const struct pipe *p, struct tb_reader *r)
{
    struct tb_frame_gone m;
    if (tb_frame_gone_decode(r, &m) != TB_OK) return;
    const uint32_t version = world_version_find(&m.uid);
    if (version != NONE) the->paths[p->from][p->to].gone_at[version] = p->last_at;
}

static void see_message(struct pipe *p)
{
    struct tb_reader r;
    tb_reader_init(&r, p->tap.frame + 4, 2);
    const uint16_t type = tb_read_u16(&r);
    const uint32_t life = the->sites[p->from].gateway->life;
    tb_reader_init(&r, p->tap.frame + TB_WIRE_HEADER_BYTES, p->tap.need - TB_WIRE_HEADER_BYTES);
    if (type == TB_FRAME_BIND || type == TB_FRAME_BOUND) p->tap.chunks = true;
    if (type == TB_FRAME_EXPECT) see_expect(p, &r, life);
    if (type == TB_FRAME_PUSH) see_push(p, &r);
    if (type == TB_FRAME_WANT) see_want(p, &r, life);
    if (type == TB_FRAME_START) see_start(p, &r, life);
    if (type == TB_FRAME_GONE) see_gone(p, &r);
    if (type != TB_FRAME_HELD) return;
    see_held(p, &r, life);
    if (world_strikes(FAULT_DUPLICATE, 10000)) world_pipe_push(p, p->tap.frame, p->tap.need);
}

/* A chunk frame's header is complete: P5 is looked at, and its body may be hit. */
static void see_chunk_header(struct pipe *p)
{
    struct tb_chunk_frame frame;
    struct tb_reader r;
    tb_reader_init(&r, p->tap.frame, TB_CHUNK_FRAME_HEADER_BYTES);
    if (tb_chunk_frame_decode(&r, TB_LINK_PROTOCOL, &frame) != TB_OK) {
        world_fail("a gateway sent a chunk frame that is none");
        return;
    }
    p->tap.need = TB_CHUNK_FRAME_HEADER_BYTES + frame.wire_bytes;
    p->tap.corrupt = world_strikes(FAULT_CORRUPT, 4000);
    const struct path *way = &the->paths[p->from][p->to];
    for (uint32_t i = 0; i < 32; i++) {
        const struct crossing_start *s = &way->starts[i];
        if (s->crossing != frame.crossing || s->receiver_life != p->receiver_life ||
            frame.shard >= SHARDS_MAX)
            continue;
        if ((s->held[frame.shard] >> frame.chunk & 1) != 0 && p->from != the->hostile)
            world_fail("P5: v%u chunk %u of shard %u goes to %s again, which said it held it", s->version + 1,
                       frame.chunk, frame.shard, the->sites[p->to].name.text);
    }
}

static void see_header(struct pipe *p)
{
    struct tb_reader r;
    if (p->tap.chunks) {
        see_chunk_header(p);
        return;
    }
    tb_reader_init(&r, p->tap.frame, 4);
    p->tap.need = TB_WIRE_HEADER_BYTES + tb_read_u32(&r);
}

static void see_end(struct pipe *p)
{
    struct tap *t = &p->tap;
    const bool chunks = t->chunks;
    if (t->need <= TAP_BYTES && !chunks) see_message(p);
    if (t->held_back) world_hostile_pass(p, chunks);
    if (t->need <= TAP_BYTES && chunks && world_strikes(FAULT_DUPLICATE, 3000))
        world_pipe_push(p, t->frame, t->need);
    t->got = t->need = 0;
    t->corrupt = t->held_back = false;
}

/* Of a member that forges: a frame leaves when all of it is there. One too large for the tap
 * leaves as it is. */
static size_t pass_forged(struct pipe *p, size_t n, uint32_t header)
{
    struct tap *t = &p->tap;
    t->got += (uint32_t)n;
    if (t->got == header && t->need == 0) see_header(p);
    if (t->got == header && t->need > TAP_BYTES) {
        t->held_back = false;
        world_pipe_push(p, t->frame, header);
    }
    if (t->got >= header && t->got == t->need) see_end(p);
    return n;
}

/* Passes at most to the end of a header or a frame; how many bytes. */
static size_t pass(struct pipe *p, const uint8_t *bytes, size_t count)
{
    struct tap *t = &p->tap;
    const uint32_t header = t->chunks ? TB_CHUNK_FRAME_HEADER_BYTES : TB_WIRE_HEADER_BYTES;
    const uint32_t end = t->got < header ? header : t->need;
    const size_t n = count < end - t->got ? count : end - t->got;
    const size_t keep = t->got >= TAP_BYTES ? 0 : n < TAP_BYTES - t->got ? n : TAP_BYTES - t->got;
    uint8_t hit[1] = {n > 0 ? bytes[0] ^ 1u : 0};
    memcpy(t->frame + (t->got < TAP_BYTES ? t->got : 0), bytes, keep);
    if (t->got == 0) t->held_back = p->from == the->hostile;
    if (t->held_back) return pass_forged(p, n, header);
    const bool flip = t->corrupt && t->got == header && n > 0;
    if (flip) world_pipe_push(p, hit, 1);
    if (n > flip) world_pipe_push(p, bytes + flip, n - flip);
    t->got += (uint32_t)n;
    if (t->got == header && t->need == 0) see_header(p);
    if (t->got >= header && t->got == t->need) see_end(p);
    return n;
}

size_t world_pipe_write(struct pipe *p, const void *bytes, size_t count)
{
    const size_t room = world_pipe_room(p);
    const size_t n = count < room ? count : room;
    if (!p->link) {
        if (n > 0) world_pipe_push(p, bytes, n);
        return n;
    }
    for (size_t done = 0; done < n;)
        done += pass(p, (const uint8_t *)bytes + done, n - done);
    return n;
}

/* ---- the reading end ---- */

bool world_pipe_ready(const struct pipe *p)
{
    return p->first != NULL && p->first->at <= the->now && world_path_open(p->from, p->to);
}

bool world_pipe_over(const struct pipe *p)
{
    return p->first == NULL && p->ended && the->now >= p->last_at && world_path_open(p->from, p->to);
}

static void drop_first(struct pipe *p)
{
    struct segment *s = p->first;
    p->first = s->next;
    p->bytes -= s->count - s->used;
    free(s);
}

size_t world_pipe_read(struct pipe *p, void *out, size_t cap)
{
    size_t done = 0;
    if (p->link && world_strength(FAULT_SLOW) != 0 && cap > 0) { /* a reader that takes little at a time */
        if (world_strikes(FAULT_SLOW, 20000)) return 0;
        if (cap > 64) cap = 64;
    }
    while (done < cap && world_pipe_ready(p)) {
        struct segment *s = p->first;
        const size_t n = s->count - s->used < cap - done ? s->count - s->used : cap - done;
        memcpy((uint8_t *)out + done, s->bytes + s->used, n);
        s->used += n;
        p->bytes -= n;
        done += n;
        if (s->used == s->count) drop_first(p);
    }
    return done;
}

void world_pipe_drop(struct pipe *p, bool arrived_too)
{
    struct segment **at = &p->first;
    while (*at != NULL && !arrived_too && (*at)->at <= the->now)
        at = &(*at)->next;
    while (*at != NULL) {
        struct segment *s = *at;
        *at = s->next;
        p->bytes -= s->count - s->used;
        free(s);
    }
    p->last = NULL;
    for (struct segment *s = p->first; s != NULL; s = s->next)
        p->last = s;
}
