#include "intra/fabric/door_lent.h"

#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/fabric/lent_memory.h"

#define JOBS_MAX  8u
#define JOB_BYTES ((uint64_t)1 << 20) /* small PUTs share a job until it has so many */

/* One PUT: not told yet. */
struct put {
    const uint8_t *from;
    uint64_t at;
    uint32_t bytes;
};

/* PUTs that follow one another, from `first` on in the ring. */
struct put_job {
    struct tb_pool_job job;
    struct tb_fabric_job done;
    struct tb_door_lent *lent;
    uint32_t first, count;
    bool runs;
};

struct tb_door_lent {
    struct tb_fabric *fabric;
    const struct tb_door_lent_events *events;
    void *user;
    uint64_t bytes;
    int fd; /* until it is taken; -1: none */
    struct tb_lent_memory memory;
    enum tb_status status; /* of taking it */
    bool taking, told, stopped;
    struct tb_pool_job take;
    struct tb_fabric_job taken;

    struct put puts[TB_HOP_PUTS_MAX]; /* a ring: those in jobs come first */
    uint32_t put_first, put_count, put_given;
    struct put_job jobs[JOBS_MAX]; /* a ring too, in the order of the PUTs */
    uint32_t job_first, job_count;
    uint32_t running;
    uint32_t copied; /* PUTs that are done and not told */
};

/* ---- taking it ---- */

/* On the pool: pages that are not there are made. */
static void run_take(struct tb_pool_job *job, uint32_t thread)
{
    struct tb_door_lent *l = (struct tb_door_lent *)((char *)job - offsetof(struct tb_door_lent, take));
    (void)thread;
    l->status = tb_lent_memory_take(l->fd, l->bytes, &l->memory);
    tb_fabric_post(l->fabric, &l->taken);
}

static void taken(struct tb_fabric_job *job)
{
    struct tb_door_lent *l = (struct tb_door_lent *)((char *)job - offsetof(struct tb_door_lent, taken));
    TB_ASSERT(l->taking && l->fd >= 0);
    l->taking = false;
    close(l->fd);
    l->fd = -1;
    l->events->on_turn(l->user);
}

/* ---- copying ---- */

static void run_puts(struct tb_pool_job *job, uint32_t thread)
{
    struct put_job *j = (struct put_job *)((char *)job - offsetof(struct put_job, job));
    struct tb_door_lent *l = j->lent;
    (void)thread;
    for (uint32_t i = 0; i < j->count; i++) {
        const struct put *put = &l->puts[(j->first + i) % TB_HOP_PUTS_MAX];
        memcpy(l->memory.bytes + put->at, put->from, put->bytes);
    }
    tb_fabric_post(l->fabric, &j->done);
}

/* The next job takes PUTs until it has enough. */
static void begin_job(struct tb_door_lent *l)
{
    struct put_job *j = &l->jobs[(l->job_first + l->job_count++) % JOBS_MAX];
    TB_ASSERT(!j->runs && l->put_given < l->put_count);
    j->first = (l->put_first + l->put_given) % TB_HOP_PUTS_MAX;
    j->count = 0;
    for (uint64_t bytes = 0; bytes < JOB_BYTES && l->put_given < l->put_count; l->put_given++)
        bytes += l->puts[(j->first + j->count++) % TB_HOP_PUTS_MAX].bytes;
    j->runs = true;
    l->running++;
    tb_pool_submit(l->fabric->pool, &j->job);
}

static void begin_jobs(struct tb_door_lent *l)
{
    while (!l->stopped && l->job_count < JOBS_MAX && l->put_given < l->put_count)
        begin_job(l);
}

/* Jobs end in any order; PUTs are told in theirs. */
static void puts_done(struct tb_fabric_job *job)
{
    struct put_job *done = (struct put_job *)((char *)job - offsetof(struct put_job, done));
    struct tb_door_lent *l = done->lent;
    TB_ASSERT(done->runs && l->running > 0);
    done->runs = false;
    l->running--;
    for (; l->job_count > 0 && !l->jobs[l->job_first].runs; l->job_count--) {
        const uint32_t count = l->jobs[l->job_first].count;
        TB_ASSERT(count <= l->put_given && l->put_given <= l->put_count);
        l->put_first = (l->put_first + count) % TB_HOP_PUTS_MAX;
        l->put_count -= count;
        l->put_given -= count;
        l->copied += count;
        l->job_first = (l->job_first + 1) % JOBS_MAX;
    }
    begin_jobs(l);
    l->events->on_turn(l->user);
}

/* ---- what the door says ---- */

enum tb_status tb_door_lent_open(struct tb_fabric *f, int fd, uint64_t bytes,
                                 const struct tb_door_lent_events *events, void *user,
                                 struct tb_door_lent **lent_out)
{
    enum tb_status status = TB_SITE_NOMEM;
    struct tb_door_lent *l = NULL;
    if (bytes == 0 || bytes > TB_LENT_BYTES_MAX) {
        status = TB_BAD_ARGUMENT;
        goto undo;
    }
    if (f->borrowed_bytes + bytes > TB_LENT_ALL_MAX) goto undo;
    l = tb_calloc(1, sizeof *l);
    if (l == NULL) goto undo;
    l->fabric = f;
    l->events = events;
    l->user = user;
    l->bytes = bytes;
    l->fd = fd;
    l->memory.fd = -1;
    l->take.run = run_take;
    l->taken.run = taken;
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        l->jobs[i].lent = l;
        l->jobs[i].job.run = run_puts;
        l->jobs[i].done.run = puts_done;
    }
    tb_fabric_lent_add(&f->borrowed_bytes, &f->borrowed_most, bytes);
    l->taking = true;
    tb_pool_submit(f->pool, &l->take);
    *lent_out = l;
    return TB_OK;

undo:
    close(fd);
    return status;
}

bool tb_door_lent_put(struct tb_door_lent *l, const uint8_t *from, const struct tb_hop_request *r)
{
    if (!l->told || l->memory.bytes == NULL || l->put_count + l->copied >= TB_HOP_PUTS_MAX) return false;
    if (r->bytes == 0 || r->b > l->bytes || r->bytes > l->bytes - r->b) return false;
    l->puts[(l->put_first + l->put_count++) % TB_HOP_PUTS_MAX] =
        (struct put){.from = from, .at = r->b, .bytes = r->bytes};
    begin_jobs(l);
    return true;
}

bool tb_door_lent_answer(struct tb_door_lent *l, struct tb_hop_answer *answer_out)
{
    if (l->taking || (l->told && l->copied == 0)) return false;
    *answer_out = (struct tb_hop_answer){.type = TB_HOP_ANSWER_LENT, .kind = l->memory.bytes != NULL ? 0 : 1};
    if (l->told) *answer_out = (struct tb_hop_answer){.type = TB_HOP_ANSWER_PUT, .bytes = l->copied};
    l->told = true;
    l->copied = 0;
    return true;
}

bool tb_door_lent_is_bad(const struct tb_door_lent *l)
{
    return !l->taking && l->status == TB_PEER_GARBLED;
}

bool tb_door_lent_busy(const struct tb_door_lent *l)
{
    return l->taking || l->running > 0;
}

void tb_door_lent_stop(struct tb_door_lent *l)
{
    l->stopped = true;
}

void tb_door_lent_free(struct tb_door_lent *l)
{
    TB_ASSERT(!tb_door_lent_busy(l) && l->fd < 0 && l->fabric->borrowed_bytes >= l->bytes);
    l->fabric->borrowed_bytes -= l->bytes;
    tb_lent_memory_close(&l->memory);
    tb_free(l);
}
