/* wire.c - frames in, frames out, both bounded.
 *
 * In: bytes are collected in one buffer that doubles only when the bytes that came fill it, so a
 * header that promises much costs nothing. Out: a chain of blocks in which frames lie one behind
 * the other, so many small frames leave in one write. */
#include "base/net/wire.h"

#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"

#define FRAME_BYTES_MAX_DEFAULT (1u << 20)
#define QUEUE_BYTES_MAX_DEFAULT ((uint64_t)64 << 20)
#define BLOCK_BYTES             (64u * 1024)
#define IN_BYTES_MIN            4096u
#define IN_BYTES_KEEP           (64u * 1024) /* a larger buffer is given back once it is empty */
#define WRITES_TURN             32           /* 2 MiB; then the loop's other handles */

struct block {
    struct block *next;
    size_t cap;
    size_t used;
    size_t sent;
    uint8_t bytes[];
};

struct tb_wire {
    struct tb_chan *chan;
    const struct tb_wire_ops *ops;
    void *user;
    uint32_t frame_bytes_max, frame_bytes_now;
    struct tb_wire_budget *budget;
    bool preferred;
    uint64_t queue_bytes_max;
    uint64_t queued_bytes;
    struct block *first;    /* being sent */
    struct block *last;     /* being filled */
    struct block *previous; /* the one before last while a frame is begun in a block of its own; else NULL */
    struct block *spare;
    struct tb_writer writer;
    uint16_t type;
    uint64_t request;
    bool begun;
    bool open;
    bool closing;
    bool finishing; /* what comes is dropped, what is queued goes out, then the end is said */
    bool ended;
    tb_wire_detached_fn detached; /* not NULL: the chan is leaving */
    void *detached_user;
    enum tb_status why;
    uint8_t *in;
    size_t in_used;
    size_t in_cap;
    size_t in_told; /* of in_used: when on_frame or on_part was called last */
    tb_time_ns heard_at, moved_at;
};

/* Ends. */

void tb_wire_close(struct tb_wire *w, enum tb_status why)
{
    if (w->closing || w->detached != NULL) return;
    w->closing = true;
    if (!w->finishing) w->why = why;
    tb_chan_close(w->chan, why);
}

static void end_if_sent(struct tb_wire *w)
{
    TB_ASSERT(!w->ended || w->finishing);
    if (!w->finishing || w->ended || !w->open || w->queued_bytes > 0) return;
    w->ended = true;
    tb_chan_end(w->chan);
}

void tb_wire_finish(struct tb_wire *w, enum tb_status why, uint32_t linger_ms)
{
    if (w->closing || w->finishing || w->detached != NULL) return;
    w->finishing = true;
    w->why = why;
    tb_chan_want_read(w->chan, true); /* the peer's end is what we wait for */
    tb_chan_deadline(w->chan, why, linger_ms);
    end_if_sent(w);
}

/* The buffer for what comes has so many bytes now, 0 for none. False: no memory, or the budget is
 * spent. */
static bool in_resize(struct tb_wire *w, size_t cap)
{
    struct tb_wire_budget *b = w->budget;
    TB_ASSERT(b == NULL || b->used >= w->in_cap);
    const uint64_t used = b != NULL ? b->used - w->in_cap + cap : 0;
    const uint64_t most = b == NULL ? 0 : w->preferred ? b->bound : b->bound / 4 * 3;
    if (b != NULL && cap > w->in_cap && used > most) {
        b->refused++;
        return false;
    }
    uint8_t *in = NULL;
    if (cap == 0)
        tb_free(w->in);
    else
        in = tb_realloc(w->in, cap);
    if (cap != 0 && in == NULL) return false;
    w->in = in;
    w->in_cap = cap;
    if (b == NULL) return true;
    b->used = used;
    if (used > b->most) b->most = used;
    return true;
}

static void wire_free(struct tb_wire *w)
{
    while (w->first != NULL) {
        struct block *next = w->first->next;
        tb_free(w->first);
        w->first = next;
    }
    tb_free(w->spare);
    (void)in_resize(w, 0);
    tb_free(w);
}

static void on_detached(struct tb_chan *c, void *user)
{
    struct tb_wire *w = user;
    TB_ASSERT(w->detached != NULL && !w->begun);
    const bool clean = w->in_used == 0 && w->queued_bytes == 0;
    if (!clean) tb_chan_discard(c);
    w->detached(w->detached_user, clean ? c : NULL);
    wire_free(w);
}

void tb_wire_detach(struct tb_wire *w, tb_wire_detached_fn then, void *user)
{
    TB_ASSERT(w->open && !w->closing && !w->finishing && !w->begun && w->detached == NULL);
    w->detached = then;
    w->detached_user = user;
    tb_chan_detach(w->chan, on_detached, w);
}

static void on_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    (void)c;
    struct tb_wire *w = user;
    const bool asked = w->closing || w->finishing;
    w->closing = true;
    w->ops->on_closed(w, w->user, asked ? w->why : why);
    wire_free(w);
}

/* In. */

static uint32_t frame_bytes(const uint8_t *header)
{
    struct tb_reader r;
    tb_reader_init(&r, header, TB_WIRE_HEADER_BYTES);
    return tb_read_u32(&r);
}

/* One whole frame at `at`. */
static enum tb_status take_frame(struct tb_wire *w, const uint8_t *at, uint32_t bytes)
{
    struct tb_wire_frame frame;
    struct tb_reader r;
    TB_ASSERT(bytes <= w->frame_bytes_max);
    tb_reader_init(&r, at, TB_WIRE_HEADER_BYTES);
    (void)tb_read_u32(&r);
    frame.type = tb_read_u16(&r);
    const uint16_t reserved = tb_read_u16(&r);
    frame.request = tb_read_u64(&r);
    if (reserved != 0) return TB_PEER_GARBLED;
    tb_reader_init(&frame.payload, at + TB_WIRE_HEADER_BYTES, bytes);
    return w->ops->on_frame(w, w->user, &frame);
}

/* Every frame that is whole; *used_out: bytes of them. */
static enum tb_status take_frames(struct tb_wire *w, size_t *used_out)
{
    enum tb_status status = TB_OK;
    size_t at = 0;
    while (status == TB_OK && !w->closing && !w->finishing && w->detached == NULL &&
           w->in_used - at >= TB_WIRE_HEADER_BYTES) {
        const uint32_t bytes = frame_bytes(w->in + at);
        if (bytes > w->frame_bytes_max) return TB_PEER_GARBLED;
        if (bytes > w->frame_bytes_now) return TB_TOO_LARGE;
        if (w->in_used - at - TB_WIRE_HEADER_BYTES < bytes) break;
        status = take_frame(w, w->in + at, bytes);
        at += TB_WIRE_HEADER_BYTES + bytes;
    }
    TB_ASSERT(at <= w->in_used);
    *used_out = at;
    return status;
}

/* Room for at least one byte more. No more than twice what came is ever held. */
static bool in_room(struct tb_wire *w)
{
    TB_ASSERT(w->in_used <= w->in_cap);
    if (w->in_used < w->in_cap) return true;
    return in_resize(w, w->in_cap == 0 ? IN_BYTES_MIN : w->in_cap * 2);
}

static void in_settle(struct tb_wire *w, size_t used)
{
    TB_ASSERT(used <= w->in_used);
    w->in_used -= used;
    memmove(w->in, w->in + used, w->in_used);
    if (w->in_used > 0 || w->in_cap <= IN_BYTES_KEEP) return;
    (void)in_resize(w, 0);
}

/* Frames that were whole, or enough of one that is not. */
static void in_tell(struct tb_wire *w, size_t used)
{
    const bool told = used > 0;
    TB_ASSERT(told || w->in_told <= w->in_used);
    if (!told && w->in_used - w->in_told < TB_WIRE_PART_BYTES) return;
    w->in_told = w->in_used;
    w->moved_at = w->heard_at;
    if (!told && w->ops->on_part != NULL) w->ops->on_part(w, w->user);
}

static void on_readable(struct tb_chan *c, void *user)
{
    struct tb_wire *w = user;
    size_t got = 0, used = 0;
    if (!in_room(w)) {
        tb_wire_close(w, TB_SITE_NOMEM);
        return;
    }
    if (tb_chan_read(c, w->in + w->in_used, w->in_cap - w->in_used, &got) != TB_OK)
        return; /* not yet, or closed */
    w->heard_at = tb_clock_now();
    if (w->finishing) return;
    if (w->in_used == 0) w->moved_at = w->heard_at; /* a frame begins */
    w->in_used += got;
    TB_ASSERT(w->in_used <= w->in_cap);
    const enum tb_status status = take_frames(w, &used);
    if (status != TB_OK)
        tb_wire_close(w, status);
    else if (w->finishing)
        w->in_used = 0;
    else {
        in_settle(w, used);
        in_tell(w, used);
    }
}

/* Out. */

/* The sent block leaves; one of the usual size is kept for the next. */
static void pop(struct tb_wire *w)
{
    struct block *b = w->first;
    TB_ASSERT(b->sent == b->used);
    if (b == w->last && b->cap == BLOCK_BYTES) {
        b->used = b->sent = 0;
        return;
    }
    w->first = b->next;
    if (w->first == NULL) w->last = NULL;
    TB_ASSERT((w->first == NULL) == (w->last == NULL));
    if (w->spare == NULL && b->cap == BLOCK_BYTES)
        w->spare = b;
    else
        tb_free(b);
}

static void on_writable(struct tb_chan *c, void *user)
{
    struct tb_wire *w = user;
    enum tb_status status = TB_OK;
    for (int i = 0; i < WRITES_TURN && status == TB_OK && w->queued_bytes > 0; i++) {
        struct block *b = w->first; /* empty where a frame too large for it came next */
        size_t put = 0;
        if (b->sent < b->used) status = tb_chan_write(c, b->bytes + b->sent, b->used - b->sent, &put);
        TB_ASSERT(put <= b->used - b->sent && put <= w->queued_bytes);
        b->sent += put;
        w->queued_bytes -= put;
        if (b->sent == b->used) pop(w);
    }
    if (w->queued_bytes > 0) return;
    tb_chan_want_write(c, false);
    end_if_sent(w);
}

static struct block *block_new(struct tb_wire *w, size_t bytes)
{
    struct block *b = w->spare;
    if (b != NULL && bytes <= b->cap) {
        w->spare = NULL;
    } else {
        const size_t cap = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = tb_malloc(sizeof *b + cap);
        if (b == NULL) return NULL;
        b->cap = cap;
    }
    TB_ASSERT(b->cap >= bytes);
    b->next = NULL;
    b->used = b->sent = 0;
    return b;
}

/* Makes `last` a block with room for `bytes` more. */
static bool out_room(struct tb_wire *w, size_t bytes)
{
    w->previous = NULL;
    if (w->last != NULL && w->last->cap - w->last->used >= bytes) return true;
    struct block *b = block_new(w, bytes);
    if (b == NULL) return false;
    w->previous = w->last;
    if (w->last == NULL)
        w->first = b;
    else
        w->last->next = b;
    w->last = b;
    TB_ASSERT(b->cap >= bytes && b->next == NULL && w->first != NULL);
    return true;
}

struct tb_writer *tb_wire_begin(struct tb_wire *w, uint16_t type, uint64_t request, size_t payload_max)
{
    TB_ASSERT(!w->begun);
    const size_t bytes = TB_WIRE_HEADER_BYTES + payload_max;
    if (w->closing || w->finishing || w->detached != NULL) return NULL;
    if (bytes < payload_max || bytes > w->queue_bytes_max || w->queued_bytes > w->queue_bytes_max - bytes ||
        !out_room(w, bytes)) {
        tb_wire_close(w, TB_SITE_NOMEM);
        return NULL;
    }
    w->begun = true;
    w->type = type;
    w->request = request;
    tb_writer_init(&w->writer, w->last->bytes + w->last->used + TB_WIRE_HEADER_BYTES, payload_max);
    return &w->writer;
}

/* A frame that turned out small goes back into the block before its own, and a large block that it
 * leaves nearly empty is cut: otherwise ten bytes announced as a megabyte would hold a megabyte,
 * which the bound does not count. */
static void tighten(struct tb_wire *w)
{
    struct block *own = w->last, *before = w->previous;
    TB_ASSERT(before == NULL || before->next == own);
    w->previous = NULL;
    if (own->used > own->cap / 2 || own->cap <= BLOCK_BYTES) return;
    if (before != NULL && before->cap - before->used >= own->used) {
        memcpy(before->bytes + before->used, own->bytes, own->used);
        before->used += own->used;
        before->next = NULL;
        w->last = before;
        tb_free(own);
        return;
    }
    const size_t cap = own->used > BLOCK_BYTES ? own->used : BLOCK_BYTES;
    struct block *cut = tb_realloc(own, sizeof *own + cap);
    if (cut == NULL) return; /* it stays as large as it is until it is sent */
    cut->cap = cap;
    w->last = cut;
    if (before != NULL)
        before->next = cut;
    else
        w->first = cut;
}

void tb_wire_end(struct tb_wire *w)
{
    TB_ASSERT(w->begun);
    w->begun = false;
    if (w->closing) return;
    if (w->writer.full || w->writer.used > w->frame_bytes_max) {
        tb_wire_close(w, TB_TOO_LARGE);
        return;
    }
    struct block *b = w->last;
    const bool alone = b->used == 0;
    struct tb_writer header;
    tb_writer_init(&header, b->bytes + b->used, TB_WIRE_HEADER_BYTES);
    tb_write_u32(&header, (uint32_t)w->writer.used);
    tb_write_u16(&header, w->type);
    tb_write_u16(&header, 0);
    tb_write_u64(&header, w->request);
    TB_ASSERT(TB_WIRE_HEADER_BYTES + w->writer.used <= b->cap - b->used);
    b->used += TB_WIRE_HEADER_BYTES + w->writer.used;
    w->queued_bytes += TB_WIRE_HEADER_BYTES + w->writer.used;
    TB_ASSERT(w->queued_bytes <= w->queue_bytes_max); /* tb_wire_begin has looked */
    if (alone) tighten(w);
    tb_chan_want_write(w->chan, true);
}

/* Beginnings. */

static void on_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    (void)c;
    struct tb_wire *w = user;
    TB_ASSERT(!w->open);
    w->open = true;
    w->heard_at = tb_clock_now();
    if (!w->finishing) w->ops->on_open(w, w->user, peer);
    end_if_sent(w);
}

static const struct tb_chan_ops chan_ops = {
    .on_open = on_open, .on_readable = on_readable, .on_writable = on_writable, .on_closed = on_closed};

static struct tb_wire *wire_new(const struct tb_wire_options *options, struct tb_chan_options *chan_out)
{
    TB_ASSERT(options->ops->on_open != NULL && options->ops->on_closed != NULL);
    struct tb_wire *w = tb_calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->ops = options->ops;
    w->user = options->user;
    w->frame_bytes_max = options->frame_bytes_max != 0 ? options->frame_bytes_max : FRAME_BYTES_MAX_DEFAULT;
    w->frame_bytes_now = w->frame_bytes_max;
    if (options->frame_bytes_now != 0) tb_wire_allow(w, options->frame_bytes_now, false);
    w->budget = options->budget;
    w->queue_bytes_max = options->queue_bytes_max != 0 ? options->queue_bytes_max : QUEUE_BYTES_MAX_DEFAULT;
    w->heard_at = tb_clock_now();
    *chan_out = options->chan;
    chan_out->ops = &chan_ops;
    chan_out->user = w;
    return w;
}

enum tb_status tb_wire_dial(const struct tb_wire_options *options, const struct tb_address *to,
                            struct tb_wire **wire_out)
{
    struct tb_chan_options chan;
    struct tb_wire *w = wire_new(options, &chan);
    if (w == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = tb_chan_dial(&chan, to, &w->chan);
    if (status == TB_OK)
        *wire_out = w;
    else
        wire_free(w);
    return status;
}

enum tb_status tb_wire_accept(const struct tb_wire_options *options, int fd, struct tb_wire **wire_out)
{
    struct tb_chan_options chan;
    struct tb_wire *w = wire_new(options, &chan);
    if (w == NULL) {
        close(fd);
        return TB_SITE_NOMEM;
    }
    const enum tb_status status = tb_chan_accept(&chan, fd, &w->chan);
    if (status == TB_OK)
        *wire_out = w;
    else
        wire_free(w);
    return status;
}

uint64_t tb_wire_in_bytes(const struct tb_wire *w)
{
    return w->in_cap;
}

uint64_t tb_wire_queued_bytes(const struct tb_wire *w)
{
    return w->queued_bytes;
}

void tb_wire_allow(struct tb_wire *w, uint32_t frame_bytes, bool preferred)
{
    w->preferred = preferred;
    w->frame_bytes_now = frame_bytes < w->frame_bytes_max ? frame_bytes : w->frame_bytes_max;
}

tb_time_ns tb_wire_moved_at(const struct tb_wire *w)
{
    return w->in_used > 0 ? w->moved_at : 0;
}

tb_time_ns tb_wire_heard_at(const struct tb_wire *w)
{
    return w->heard_at;
}

struct tb_chan *tb_wire_chan(struct tb_wire *w)
{
    return w->chan;
}
