/* door_answers.c - what a reader at the door is sent: READs straight from the export's memory,
 * buffers, rails, its tray, its end.
 *
 * Answers are written in turns of at most 1 MiB, so one reader does not hold up the others. Small
 * runs and bitmap words are gathered in `out`, large runs go from the export's memory straight to
 * the socket. An end (revocation, refusal) comes between two DATA answers. */
#include <string.h>

#include "base/assert.h"
#include "base/bitmap.h"
#include "base/net/chan_bytes.h"
#include "intra/fabric/door_inside.h"
#include "intra/fabric/pace_gate.h"

#define SMALL_RUN_BYTES ((uint32_t)16 << 10) /* below this a copy is cheaper than a system call */
#define TURN_BYTES      ((size_t)1 << 20)

_Static_assert(TB_HOP_WORDS_BYTES_MAX <= TB_DOOR_OUT_BYTES, "words of one READ fit into out at once");

void tb_door_put_answer(struct tb_door_peer *p, const struct tb_hop_answer *answer)
{
    struct tb_writer w;
    tb_writer_init(&w, p->out + p->out_used, TB_DOOR_OUT_BYTES - p->out_used);
    tb_hop_answer_encode(answer, &w);
    TB_ASSERT(!w.full && w.used == TB_HOP_ANSWER_BYTES);
    p->out_used += TB_HOP_ANSWER_BYTES;
}

static void describe_local(struct tb_door_peer *p, const struct tb_export_buffer *b,
                           struct tb_hop_answer *answer)
{
    TB_ASSERT(!p->tcp && p->memfd_due < 0); /* the one before has gone with its answer */
    answer->kind = TB_HOP_BUFFER_ADDRESS;
    answer->bytes = TB_HOP_TAKES_LENT;
    answer->b = (uint64_t)(uintptr_t)b->bytes;
    if (b->memfd >= 0) {
        answer->kind = TB_HOP_BUFFER_MEMFD;
        answer->bytes = 0;
        answer->b = b->memfd_offset;
        p->memfd_due = b->memfd;
    }
}

/* A buffer that no NIC reaches is read over the connection. TB_AGAIN: it is being registered. */
static enum tb_status describe_remote(struct tb_door_peer *p, uint32_t index, struct tb_hop_answer *answer)
{
    struct tb_verbs_window window = {0};
    const enum tb_status status =
        p->guest != NULL ? tb_verbs_guest_window(p->guest, index, &window) : TB_BAD_STATE;
    answer->kind = status == TB_OK ? TB_HOP_BUFFER_VERBS : TB_HOP_BUFFER_STREAM;
    answer->b = window.address;
    answer->bytes = window.key;
    return status;
}

/* False: the buffer is not known yet. */
static bool put_buffer(struct tb_door_peer *p)
{
    TB_ASSERT(p->attach_count > 0 && p->export != NULL);
    const uint32_t index = p->attaches[p->attach_first];
    const struct tb_export_buffer *b = &p->export->buffers[index];
    struct tb_hop_answer answer = {.type = TB_HOP_ANSWER_BUFFER, .buffer = index, .a = b->count};
    if (!p->tcp)
        describe_local(p, b, &answer);
    else if (describe_remote(p, index, &answer) == TB_AGAIN)
        return false;
    p->attach_first = (p->attach_first + 1) % TB_DOOR_ATTACHES_MAX;
    p->attach_count--;
    tb_door_put_answer(p, &answer);
    return true;
}

static void put_rails(struct tb_door_peer *p)
{
    struct tb_rail rails[TB_RAILS_MAX] = {0};
    struct tb_hop_answer last = {.type = TB_HOP_ANSWER_VERBS, .a = TB_HOP_VERBS_AGAIN};
    uint16_t port = 0;
    p->verbs_due = false;
    if (p->guest != NULL) {
        last.kind = (uint16_t)tb_verbs_rails(p->door->fabric->verbs, p->export, rails, &port);
        last.id = *tb_verbs_guest_secret(p->guest);
        TB_ASSERT(last.kind <= TB_RAILS_MAX);
    }
    for (uint32_t i = 0; i < last.kind; i++) {
        struct tb_hop_answer answer = {
            .type = TB_HOP_ANSWER_RAIL,
            .kind = (uint16_t)((rails[i].far ? TB_HOP_RAIL_FAR : 0) | (rails[i].down ? TB_HOP_RAIL_DOWN : 0)),
            .buffer = rails[i].load,
            .bytes = port,
            .a = rails[i].bytes_per_s};
        memcpy(answer.id.bytes, rails[i].address.bytes, sizeof answer.id.bytes);
        tb_door_put_answer(p, &answer);
    }
    tb_door_put_answer(p, &last);
}

static bool put_tray(struct tb_door_peer *p)
{
    struct tb_hop_answer answer = {.type = TB_HOP_ANSWER_TRAY};
    const bool refused = p->tray_refused;
    if (!refused && (p->tray == NULL || !tb_door_tray_answer(p->tray, &answer))) return false;
    p->tray_refused = false;
    tb_door_put_answer(p, &answer);
    return true;
}

static bool put_lent(struct tb_door_peer *p)
{
    struct tb_hop_answer answer = {.type = TB_HOP_ANSWER_LENT, .kind = 1};
    const bool refused = p->lend_refused;
    if (!refused && (p->lent == NULL || !tb_door_lent_answer(p->lent, &answer))) return false;
    p->lend_refused = false;
    tb_door_put_answer(p, &answer);
    return true;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* How much the next DATA carries: never a part of a bitmap's words. */
static uint32_t next_data_bytes(const struct tb_door_peer *p)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < p->run_count && bytes < TB_HOP_DATA_BYTES_MAX; i++) {
        const struct tb_door_run *run = &p->runs[(p->run_first + i) % TB_HOP_READS_MAX];
        const uint32_t left = run->bytes - (i == 0 ? p->run_done : 0);
        const uint32_t room = TB_HOP_DATA_BYTES_MAX - bytes;
        if (run->words && left > room) break;
        bytes += min_u32(left, room);
    }
    return bytes;
}

/* Begins the next answer. False: there is nothing to say. Once it ends, pings and attaches that
 * wait get none: a PONG would say that the memory may be read. */
static bool begin_answer(struct tb_door_peer *p)
{
    TB_ASSERT(p->out_used == 0 && p->data_left == 0 && !p->lingers);
    if (p->state == TB_DOOR_ENDING) {
        if (p->end_sent) return false;
        tb_door_put_answer(
            p, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_END, .bytes = (uint32_t)-p->end_why});
        p->end_sent = true;
        return true;
    }
    if (p->ping_count > 0) {
        tb_door_put_answer(p, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PONG, .a = p->pings[0]});
        memmove(p->pings, p->pings + 1, --p->ping_count * sizeof p->pings[0]);
        return true;
    }
    if (p->verbs_due) {
        put_rails(p);
        return true;
    }
    if (p->attach_count > 0 && put_buffer(p)) return true;
    if (put_tray(p) || put_lent(p)) return true;
    if (p->run_bytes == 0) return false;
    p->data_left = next_data_bytes(p);
    TB_ASSERT(p->data_left > 0 && p->data_left <= TB_HOP_DATA_BYTES_MAX && p->export != NULL);
    tb_door_put_answer(p, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_DATA, .bytes = p->data_left});
    return true;
}

static void run_advance(struct tb_door_peer *p, uint32_t bytes)
{
    TB_ASSERT(p->run_count > 0 && bytes <= p->data_left && bytes <= p->run_bytes);
    TB_ASSERT(bytes <= p->runs[p->run_first].bytes - p->run_done);
    p->run_done += bytes;
    p->run_bytes -= bytes;
    p->data_left -= bytes;
    if (p->run_done < p->runs[p->run_first].bytes) return;
    p->run_first = (p->run_first + 1) % TB_HOP_READS_MAX;
    p->run_count--;
    p->run_done = 0;
}

/* Copies the next small run, or a part of it, into out. False: out has to go first,
 * or the run is large. */
static bool gather_one(struct tb_door_peer *p)
{
    const struct tb_door_run *run = &p->runs[p->run_first];
    const uint32_t left = min_u32(run->bytes - p->run_done, p->data_left);
    uint32_t n = min_u32(left, TB_DOOR_OUT_BYTES - p->out_used);
    if (!run->words && run->bytes - p->run_done >= SMALL_RUN_BYTES) return false;
    if (run->words && (p->out_used % 8 != 0 || n < left)) return false;
    if (n == 0) return false;
    if (run->words)
        tb_bitmap_copy((uint64_t *)(void *)(p->out + p->out_used),
                       (const uint64_t *)(const void *)(run->at + p->run_done), n * 8);
    else
        memcpy(p->out + p->out_used, run->at + p->run_done, n);
    p->out_used += n;
    run_advance(p, n);
    return true;
}

static void gather(struct tb_door_peer *p)
{
    while (p->data_left > 0 && gather_one(p))
        continue;
}

/* Offers bytes to the socket; how many were taken. A write that was cut short is offered again with
 * the same length: TLS wants that. */
static enum tb_status offer(struct tb_door_peer *p, const void *bytes, size_t count, size_t *taken_out)
{
    struct tb_fabric *f = p->door->fabric;
    *taken_out = 0;
    size_t n = p->offered;
    if (n == 0) n = p->tcp ? tb_pace_gate_take(f, &f->out, &p->pace, count) : count;
    if (n == 0) {
        tb_chan_want_write(p->chan, false); /* until its turn comes */
        return TB_AGAIN;
    }
    const enum tb_status status = tb_chan_write(p->chan, bytes, n, taken_out);
    TB_ASSERT(*taken_out <= n && n <= count);
    p->offered = n - *taken_out;
    if (status == TB_AGAIN) tb_chan_want_write(p->chan, true);
    return status;
}

static enum tb_status send_memfd(struct tb_door_peer *p)
{
    const enum tb_status status = tb_chan_send_fds(p->chan, &p->memfd_due, 1);
    if (status == TB_OK) p->memfd_due = -1;
    if (status == TB_AGAIN) tb_chan_want_write(p->chan, true);
    return status;
}

static enum tb_status send_out(struct tb_door_peer *p, size_t *sent)
{
    size_t taken = 0;
    const enum tb_status status = offer(p, p->out + p->out_at, p->out_used - p->out_at, &taken);
    p->out_at += (uint32_t)taken;
    *sent += taken;
    if (p->out_at == p->out_used) p->out_at = p->out_used = 0;
    return status;
}

static enum tb_status send_direct(struct tb_door_peer *p, size_t *sent)
{
    size_t taken = 0;
    const struct tb_door_run *run = &p->runs[p->run_first];
    const uint32_t count = min_u32(run->bytes - p->run_done, p->data_left);
    const enum tb_status status = offer(p, run->at + p->run_done, count, &taken);
    if (taken > 0) run_advance(p, (uint32_t)taken);
    *sent += taken;
    return status;
}

/* One step. TB_END: nothing to send. */
static enum tb_status send_some(struct tb_door_peer *p, size_t *sent)
{
    if (p->out_used > 0) return send_out(p, sent);
    if (p->memfd_due >= 0) return send_memfd(p);
    if (p->data_left > 0 && p->offered == 0) gather(p);
    if (p->out_used > 0) return TB_OK;
    if (p->data_left > 0) return send_direct(p, sent);
    return begin_answer(p) ? TB_OK : TB_END;
}

void tb_door_on_writable(struct tb_chan *c, void *user)
{
    struct tb_door_peer *p = user;
    size_t sent = 0;
    enum tb_status status = TB_OK;
    if (p->lingers) return;
    while (status == TB_OK && sent < TURN_BYTES && !p->gone)
        status = send_some(p, &sent);
    if (p->gone || status == TB_AGAIN) return;
    if (status == TB_OK) {
        tb_chan_want_write(c, true); /* another turn, after the others */
    } else if (status == TB_END) {
        tb_chan_want_write(c, false);
    } else {
        tb_door_cut_off(p, status);
    }
}

void tb_door_on_paced(struct tb_pace_waiter *waiter)
{
    struct tb_door_peer *p = (struct tb_door_peer *)((char *)waiter - offsetof(struct tb_door_peer, pace));
    if (!p->gone) tb_chan_want_write(p->chan, true);
}
