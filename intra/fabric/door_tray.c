#include "intra/fabric/door_tray.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/fabric/fabric_queue.h"

/* tb_export and door hold no more than so many: device memory is what an engine has too little of.
 * Others read the host's copy. */
#define TRAYS_MAX 8u

enum tray_work { OPENING, FILLING, CLOSING };

struct tb_door_tray {
    struct tb_fabric *fabric;
    const struct tb_door_tray_events *events;
    void *user;
    struct tb_gpu_origin origin;
    uint32_t shard;
    uint64_t bytes;

    struct tb_pool_job job;
    struct tb_fabric_job done;
    enum tray_work work;
    bool running, closing, reader_closed;
    enum tb_status status; /* of the last job */

    struct tb_gpu_tray *tray; /* NULL: there is none */
    struct tb_gpu_offer offer;
    uint32_t told; /* TRAY answers that were given */
    bool failed, failure_told;

    struct tb_gpu_fill asked[TB_HOP_FILLS_MAX], batch[TB_HOP_FILLS_MAX];
    uint32_t asked_count, batch_count;
    uint32_t filled; /* and not told */
};

/* ---- jobs ---- */

/* On the pool. */
static void job_run(struct tb_pool_job *job, uint32_t thread)
{
    struct tb_door_tray *t = (struct tb_door_tray *)((char *)job - offsetof(struct tb_door_tray, job));
    (void)thread;
    t->status = TB_OK;
    if (t->work == OPENING)
        t->status = tb_gpu_tray_open(t->origin.memory, t->bytes, &t->tray, &t->offer);
    else if (t->work == FILLING)
        t->status = tb_gpu_tray_fill(t->tray, &t->origin, t->batch, t->batch_count);
    else
        tb_gpu_tray_close(t->tray, t->reader_closed);
    tb_fabric_post(t->fabric, &t->done);
}

static void begin(struct tb_door_tray *t, enum tray_work work)
{
    TB_ASSERT(!t->running);
    t->work = work;
    t->running = true;
    tb_pool_submit(t->fabric->pool, &t->job);
}

static void begin_filling(struct tb_door_tray *t)
{
    if (t->running || t->closing || t->asked_count == 0) return;
    memcpy(t->batch, t->asked, t->asked_count * sizeof t->asked[0]);
    TB_ASSERT(t->tray != NULL && t->batch_count == 0);
    t->batch_count = t->asked_count;
    t->asked_count = 0;
    begin(t, FILLING);
}

static void gone(struct tb_door_tray *t)
{
    const struct tb_door_tray_events *events = t->events;
    void *user = t->user;
    TB_ASSERT(!t->running && t->closing && t->fabric->trays > 0);
    if (t->tray == NULL || t->reader_closed) t->fabric->trays--; /* what is kept counts on */
    tb_free(t);
    events->on_gone(user);
}

static void job_done(struct tb_fabric_job *job)
{
    struct tb_door_tray *t = (struct tb_door_tray *)((char *)job - offsetof(struct tb_door_tray, done));
    TB_ASSERT(t->running);
    t->running = false;
    if (t->work == CLOSING) {
        gone(t);
        return;
    }
    if (t->work == FILLING && t->status == TB_OK) t->filled += t->batch_count;
    if (t->status != TB_OK) t->failed = true; /* its line is written: gpu.failed */
    t->batch_count = 0;
    if (t->closing)
        begin(t, CLOSING);
    else if (!t->failed)
        begin_filling(t);
    t->events->on_turn(t->user);
}

/* ---- what the door says ---- */

enum tb_status tb_door_tray_open(struct tb_fabric *f, const struct tb_export *export, uint64_t bytes,
                                 const struct tb_door_tray_events *events, void *user,
                                 struct tb_door_tray **tray_out)
{
    if (bytes == 0 || bytes > TB_GPU_TRAY_BYTES_MAX) return TB_BAD_ARGUMENT;
    if (f->trays == TRAYS_MAX) return TB_SITE_NOMEM;
    struct tb_door_tray *t = tb_calloc(1, sizeof *t);
    if (t == NULL) return TB_SITE_NOMEM;
    *t = (struct tb_door_tray){.fabric = f,
                               .events = events,
                               .user = user,
                               .origin = export->origin,
                               .shard = export->origin_shard,
                               .bytes = bytes,
                               .job = {.run = job_run},
                               .done = {.run = job_done}};
    f->trays++;
    begin(t, OPENING);
    *tray_out = t;
    return TB_OK;
}

bool tb_door_tray_fill(struct tb_door_tray *t, const struct tb_hop_request *r)
{
    const uint64_t bytes = t->origin.manifest->bytes;
    if (t->told < TB_HOP_TRAY_ANSWERS || r->flags != 0)
        return false; /* before all is told there may be none */
    if (t->asked_count + t->batch_count + t->filled >= TB_HOP_FILLS_MAX) return false;
    if (r->buffer != t->shard || r->bytes == 0 || r->bytes > TB_HOP_READ_BYTES_MAX) return false;
    if (r->a > bytes || r->bytes > bytes - r->a || r->b > t->bytes || r->bytes > t->bytes - r->b)
        return false;
    if (t->failed) return true; /* it was on its way when that was told */
    t->asked[t->asked_count++] = (struct tb_gpu_fill){.offset = r->a, .at = r->b, .bytes = r->bytes};
    TB_ASSERT(t->asked_count + t->batch_count + t->filled <= TB_HOP_FILLS_MAX);
    begin_filling(t);
    return true;
}

/* The device and the size, then the handle, a part each. */
static void describe(const struct tb_door_tray *t, struct tb_hop_answer *answer)
{
    answer->type = TB_HOP_ANSWER_TRAY;
    answer->kind = (uint16_t)t->told;
    if (t->tray == NULL) return;
    if (t->told == 0) {
        answer->id = t->offer.device;
        answer->a = t->bytes;
    } else {
        memcpy(answer->id.bytes, t->offer.handle + (t->told - 1) * sizeof answer->id.bytes,
               sizeof answer->id.bytes);
    }
}

bool tb_door_tray_answer(struct tb_door_tray *t, struct tb_hop_answer *answer_out)
{
    *answer_out = (struct tb_hop_answer){.type = TB_HOP_ANSWER_FILLED};
    if (t->work == OPENING && t->running) return false;
    if (t->told < (t->tray != NULL ? TB_HOP_TRAY_ANSWERS : 1u)) {
        describe(t, answer_out);
        t->told++;
        return true;
    }
    if (t->tray == NULL) return false;
    const bool tells_failure = t->failed && !t->failure_told;
    if (t->filled == 0 && !tells_failure) return false;
    answer_out->bytes = t->filled;
    t->filled = 0;
    if (answer_out->bytes > 0) return true;
    answer_out->kind = 1;
    t->failure_told = true;
    return true;
}

bool tb_door_tray_busy(const struct tb_door_tray *t)
{
    return t->running && t->work != CLOSING;
}

void tb_door_tray_close(struct tb_door_tray *t, bool reader_closed)
{
    TB_ASSERT(!t->closing);
    t->closing = true;
    t->reader_closed = reader_closed;
    if (!t->running) begin(t, CLOSING);
}
