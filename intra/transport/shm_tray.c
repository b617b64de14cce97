#include "intra/transport/shm_tray.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_facts.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop.h"
#include "intra/transport/transport_words.h"

#define PART_ALIGN 256u

_Static_assert(TB_SHM_PARTS_MAX >= TB_HOP_ASKED_MAX && TB_HOP_FILLS_MAX >= TB_HOP_ASKED_MAX,
               "each chunk that is asked for may have a part");
_Static_assert(TB_SHM_PARTS_MAX <= TB_GPU_TRAY_PARTS, "each part may be copied out of at a time");

/* ---- opening ---- */

/* It may outlive its tray, because a driver may stand still in it. One at a time is on the pool
 * (P6): else as many as it has threads would leave none that digests. */
struct tb_shm_tray_opening {
    STAILQ_ENTRY(tb_shm_tray_opening) link; /* in the fabric's */
    struct tb_pool_job job;
    struct tb_fabric_job done;
    struct tb_fabric *fabric;
    struct tb_gpu *gpu;
    struct tb_gpu_offer offer;
    struct tb_gpu_reach *reach; /* NULL: not open yet, refused, or closed again */
    struct tb_shm_tray *tray;   /* NULL: it went meanwhile */
    int lease;                  /* the tray's, where that went; else -1 */
};

static struct tb_shm_tray_opening *of_job(struct tb_pool_job *job)
{
    return (struct tb_shm_tray_opening *)((char *)job - offsetof(struct tb_shm_tray_opening, job));
}

static void run_open(struct tb_pool_job *job, uint32_t thread)
{
    struct tb_shm_tray_opening *o = of_job(job);
    (void)thread;
    if (tb_gpu_reach_open(o->gpu, &o->offer, &o->reach) != TB_OK) o->reach = NULL; /* gpu.failed says why */
    tb_fabric_post(o->fabric, &o->done);
}

static void run_close_unwanted(struct tb_pool_job *job, uint32_t thread)
{
    struct tb_shm_tray_opening *o = of_job(job);
    (void)thread;
    tb_gpu_reach_close(o->reach);
    o->reach = NULL;
    tb_fabric_post(o->fabric, &o->done);
}

/* The first of the fabric's openings begins, if there is one. */
static void run_next(struct tb_fabric *f)
{
    struct tb_shm_tray_opening *next = STAILQ_FIRST(&f->openings);
    if (next == NULL) return;
    if (next->tray != NULL)
        tb_pool_submit(f->pool, &next->job);
    else
        tb_fabric_post(f, &next->done); /* its tray went before its turn came */
}

static void settle(struct tb_shm_tray *t, enum tb_shm_tray_state state, enum tb_transport_why why)
{
    TB_ASSERT(state == TB_SHM_TRAY_OPEN || state == TB_SHM_TRAY_OVER);
    TB_ASSERT(t->state == TB_SHM_TRAY_ASKED || t->state == TB_SHM_TRAY_OPENING);
    t->state = state;
    t->why = why;
    t->on_settled(t->owner);
}

static void opened(struct tb_shm_tray *t, struct tb_gpu_reach *reach)
{
    TB_ASSERT(t->opening != NULL && t->reach == NULL);
    t->opening = NULL;
    t->reach = reach;
    if (t->state == TB_SHM_TRAY_OVER) return; /* too late */
    if (reach != NULL)
        settle(t, TB_SHM_TRAY_OPEN, TB_WHY_GPU);
    else
        settle(t, TB_SHM_TRAY_OVER, TB_WHY_GPU_REFUSED);
}

static void opening_done(struct tb_fabric_job *job)
{
    struct tb_shm_tray_opening *o =
        (struct tb_shm_tray_opening *)((char *)job - offsetof(struct tb_shm_tray_opening, done));
    struct tb_shm_tray *tray = o->tray;
    struct tb_gpu_reach *reach = o->reach;
    if (tray == NULL && reach != NULL) {
        o->job.run = run_close_unwanted;
        tb_pool_submit(o->fabric->pool, &o->job);
        return;
    }
    if (o->lease >= 0) close(o->lease);
    TB_ASSERT(o == STAILQ_FIRST(&o->fabric->openings));
    STAILQ_REMOVE_HEAD(&o->fabric->openings, link);
    run_next(o->fabric);
    tb_free(o);
    if (tray != NULL) opened(tray, reach);
}

static bool begin(struct tb_shm_tray *t)
{
    TB_ASSERT(t->opening == NULL && t->lease >= 0);
    struct tb_shm_tray_opening *o = tb_malloc(sizeof *o);
    if (o == NULL) return false;
    *o = (struct tb_shm_tray_opening){.job = {.run = run_open},
                                      .done = {.run = opening_done},
                                      .fabric = t->stream->fabric,
                                      .gpu = t->gpu,
                                      .offer = t->offer,
                                      .tray = t,
                                      .lease = -1};
    t->opening = o;
    const bool alone = STAILQ_EMPTY(&o->fabric->openings);
    STAILQ_INSERT_TAIL(&o->fabric->openings, o, link);
    if (alone) run_next(o->fabric);
    return true;
}

/* ---- beginning ---- */

static void run_close(struct tb_pool_job *job, uint32_t thread)
{
    struct tb_shm_tray *t = (struct tb_shm_tray *)((char *)job - offsetof(struct tb_shm_tray, close_job));
    (void)thread;
    tb_gpu_reach_close(t->reach);
    tb_fabric_post(t->stream->fabric, &t->close_done);
}

static void closed(struct tb_fabric_job *job)
{
    struct tb_shm_tray *t = (struct tb_shm_tray *)((char *)job - offsetof(struct tb_shm_tray, close_done));
    if (t->lease >= 0) close(t->lease);
    t->on_closed(t->owner);
}

void tb_shm_tray_init(struct tb_shm_tray *t, const struct tb_shm_tray_options *options)
{
    *t = (struct tb_shm_tray){.stream = options->stream,
                              .gpu = options->upstream->hop->gpu,
                              .on_settled = options->on_settled,
                              .on_closed = options->on_closed,
                              .owner = options->owner,
                              .lease = -1,
                              .late_ms = options->upstream->idle_ms,
                              .close_job = {.run = run_close},
                              .close_done = {.run = closed}};
    if (t->gpu == NULL) return;
    /* Where chunks are so large that a tray has room for few, few are in flight. */
    const struct tb_shm_parts_limits limits = {.align = PART_ALIGN, .room = TB_GPU_TRAY_BYTES_MAX};
    tb_shm_parts_divide(&t->parts, options->upstream, &limits);
    t->bytes = tb_shm_parts_bytes(&t->parts);
    TB_ASSERT(t->bytes <= TB_GPU_TRAY_BYTES_MAX);
}

static tb_time_ns late_at(const struct tb_shm_tray *t)
{
    return tb_time_add(t->heard_at, TB_MS(t->late_ms));
}

void tb_shm_tray_ask(struct tb_shm_tray *t)
{
    TB_ASSERT(t->bytes > 0 && t->answers == 0);
    t->state = TB_SHM_TRAY_ASKED;
    t->heard_at = tb_clock_now();
    tb_pipe_ask_tray(t->stream, t->bytes);
    tb_fabric_wake_at(t->stream->fabric, late_at(t));
}

/* ---- what the door says ---- */

static bool offered(struct tb_shm_tray *t, const struct tb_hop_answer *answer)
{
    const bool late = t->state == TB_SHM_TRAY_OVER && t->answers < TB_HOP_TRAY_ANSWERS && !t->none;
    if ((t->state != TB_SHM_TRAY_ASKED && !late) || answer->kind != t->answers) return false;
    t->none = t->answers++ == 0 && answer->a == 0;
    if (late) return true;
    if (answer->kind == 0) {
        if (t->none) {
            settle(t, TB_SHM_TRAY_OVER, TB_WHY_GPU_NO_TRAY);
            return true;
        }
        t->offer = (struct tb_gpu_offer){.device = answer->id, .bytes = t->bytes};
        return answer->a == t->bytes;
    }
    memcpy(t->offer.handle + (answer->kind - 1u) * sizeof answer->id.bytes, answer->id.bytes,
           sizeof answer->id.bytes);
    if (t->answers < TB_HOP_TRAY_ANSWERS) return true;
    t->lease = fcntl(tb_chan_fd(t->stream->chan), F_DUPFD_CLOEXEC, 0);
    if (t->lease < 0 || !begin(t))
        settle(t, TB_SHM_TRAY_OVER, TB_WHY_GPU_REFUSED);
    else
        t->state = TB_SHM_TRAY_OPENING;
    return true;
}

static void came(struct tb_shm_tray *t)
{
    struct tb_read *read = t->first;
    TB_ASSERT(read != NULL && t->owed > 0);
    t->first = read->next;
    if (t->first == NULL) t->last = NULL;
    t->owed--;
    read->staged = true;
    t->stream->events->on_read(t->stream->events_user, read);
}

/* READs on their way are told as staged, and are then read another way. */
static void give_up(struct tb_shm_tray *t)
{
    atomic_store(&t->broken, true);
    t->state = TB_SHM_TRAY_OVER;
    while (t->first != NULL)
        came(t);
}

bool tb_shm_tray_answer(struct tb_shm_tray *t, const struct tb_hop_answer *answer)
{
    if (answer->type == TB_HOP_ANSWER_TRAY) return offered(t, answer);
    if (t->state == TB_SHM_TRAY_OVER && t->asked_fills) return true; /* too late */
    if (t->state != TB_SHM_TRAY_OPEN || answer->kind > 1) return false;
    t->heard_at = tb_clock_now();
    if (answer->kind == 1) {
        give_up(t);
        return true;
    }
    if (answer->bytes == 0 || answer->bytes > t->owed) return false;
    for (uint32_t i = 0; i < answer->bytes; i++)
        came(t);
    return true;
}

/* ---- READs ---- */

bool tb_shm_tray_takes(const struct tb_shm_tray *t, const struct tb_read *read)
{
    if (t->state != TB_SHM_TRAY_OPEN || atomic_load(&t->broken)) return false;
    if (read->source == NULL || read->words || t->owed == TB_HOP_FILLS_MAX) return false;
    return read->bytes <= t->parts.each && tb_shm_parts_left(&t->parts);
}

void tb_shm_tray_read(struct tb_shm_tray *t, struct tb_read *read)
{
    const bool taken = tb_shm_parts_take(&t->parts, &read->part);
    TB_ASSERT(taken && read->bytes <= t->parts.each); /* others only give parts back meanwhile */
    read->next = NULL;
    if (t->first == NULL) {
        t->first = read;
        t->heard_at = tb_clock_now();
    } else {
        t->last->next = read;
    }
    t->last = read;
    t->owed++;
    t->asked_fills = true;
    const struct tb_pipe_fill fill = {.from = read->source->shard,
                                      .bytes = read->bytes,
                                      .offset = read->offset,
                                      .at = tb_shm_parts_at(&t->parts, read->part)};
    tb_pipe_ask_fill(t->stream, &fill);
}

bool tb_shm_tray_copy(struct tb_shm_tray *t, const struct tb_read *read)
{
    const uint64_t at = tb_shm_parts_at(&t->parts, read->part);
    const bool came = !atomic_load(&t->broken) &&
                      tb_gpu_reach_copy(t->reach, read->part, at, read->to, read->bytes) == TB_OK;
    if (!came) atomic_store(&t->broken, true);
    tb_shm_parts_give_back(&t->parts, read->part);
    return came;
}

tb_time_ns tb_shm_tray_poll(struct tb_shm_tray *t, tb_time_ns now)
{
    const bool begins = t->state == TB_SHM_TRAY_ASKED || t->state == TB_SHM_TRAY_OPENING;
    if (!begins && (t->first == NULL || t->state != TB_SHM_TRAY_OPEN)) return TB_TIME_NEVER;
    if (now < late_at(t)) return late_at(t);
    if (begins)
        settle(t, TB_SHM_TRAY_OVER, t->state == TB_SHM_TRAY_ASKED ? TB_WHY_GPU_NO_TRAY : TB_WHY_GPU_REFUSED);
    else
        give_up(t);
    return TB_TIME_NEVER;
}

/* ---- the end ---- */

void tb_shm_tray_close(struct tb_shm_tray *t)
{
    TB_ASSERT(!t->closing);
    t->closing = true;
    if (t->opening != NULL) {
        t->opening->tray = NULL;
        t->opening->lease = t->lease;
        t->opening = NULL;
        t->lease = -1;
    }
    if (t->reach != NULL)
        tb_pool_submit(t->stream->fabric->pool, &t->close_job);
    else
        tb_fabric_post(t->stream->fabric, &t->close_done);
}
