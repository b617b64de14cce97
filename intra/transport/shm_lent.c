#include "intra/transport/shm_lent.h"

#include <string.h>

#include "base/assert.h"
#include "intra/fabric/fabric_queue.h"

#define PART_ALIGN 4096u
/* A part that was written last is read next, out of the cache. */
#define USUAL_BYTES ((uint64_t)16 << 20)

/* ---- asking ---- */

/* False: all are taken, and a part that comes free goes on with it. */
static bool give_part(struct tb_shm_lent *l, struct tb_read *read)
{
    bool given = tb_shm_parts_take(&l->parts, &read->part);
    if (!given) {
        atomic_store(&l->waits, true);
        given = tb_shm_parts_take(&l->parts, &read->part); /* one that came free before it could know */
    }
    if (given) atomic_store(&l->waits, false);
    return given;
}

static void ask(struct tb_shm_lent *l)
{
    while (l->asking != NULL && l->owed < TB_HOP_PUTS_MAX) {
        struct tb_read *read = l->asking;
        if (read->asked == 0 && !give_part(l, read)) return;
        const struct tb_source_run run = tb_transport_read_run(read, read->asked);
        const struct tb_pipe_fill fill = {.from = run.buffer,
                                          .bytes = (uint32_t)run.bytes,
                                          .offset = run.offset,
                                          .at = tb_shm_parts_at(&l->parts, read->part) + read->asked};
        TB_ASSERT(run.bytes > 0 && run.bytes <= read->bytes - read->asked);
        tb_pipe_ask_put(l->stream, &fill);
        l->owed++;
        read->asked += (uint32_t)run.bytes;
        if (read->asked == read->bytes) l->asking = read->next;
    }
}

static void part_freed(struct tb_fabric_job *job)
{
    struct tb_shm_lent *l = (struct tb_shm_lent *)((char *)job - offsetof(struct tb_shm_lent, freed));
    atomic_store(&l->freed_posted, false); /* before parts are looked at: the next one posts again */
    if (!l->closing) ask(l);
}

bool tb_shm_lent_takes(const struct tb_shm_lent *l, const struct tb_read *read)
{
    return l->state == TB_SHM_LENT_OPEN && !read->words && read->bytes <= l->parts.each;
}

void tb_shm_lent_read(struct tb_shm_lent *l, struct tb_read *read)
{
    TB_ASSERT(read->bytes > 0 && read->bytes <= l->parts.each);
    read->next = NULL;
    read->asked = read->got = 0;
    if (l->first == NULL)
        l->first = read;
    else
        l->last->next = read;
    l->last = read;
    if (l->asking == NULL) l->asking = read;
    ask(l);
}

void tb_shm_lent_copy(struct tb_shm_lent *l, const struct tb_read *read)
{
    memcpy(read->to, l->memory.bytes + tb_shm_parts_at(&l->parts, read->part), read->bytes);
    tb_shm_parts_give_back(&l->parts, read->part);
    if (atomic_load(&l->waits) && !atomic_exchange(&l->freed_posted, true))
        tb_fabric_post(l->stream->fabric, &l->freed);
}

/* ---- what the door says ---- */

static void give_back(struct tb_shm_lent *l)
{
    tb_lent_memory_close(&l->memory);
    TB_ASSERT(l->stream->fabric->lent_bytes >= l->charged);
    l->stream->fabric->lent_bytes -= l->charged;
    l->charged = 0;
}

static void settle(struct tb_shm_lent *l, enum tb_shm_lent_state state)
{
    TB_ASSERT(state == TB_SHM_LENT_OPEN || state == TB_SHM_LENT_OVER);
    if (state == TB_SHM_LENT_OVER) give_back(l);
    l->state = state;
    l->on_settled(l->owner);
}

static bool lent(struct tb_shm_lent *l, const struct tb_hop_answer *answer)
{
    if (l->state != TB_SHM_LENT_ASKED || answer->kind > 1) return false;
    if (answer->kind == 0 && tb_lent_memory_hold(&l->memory) == TB_OK)
        settle(l, TB_SHM_LENT_OPEN);
    else
        settle(l, TB_SHM_LENT_OVER);
    return true;
}

/* One PUT of the oldest READ is done. */
static void came(struct tb_shm_lent *l)
{
    struct tb_read *read = l->first;
    TB_ASSERT(read != NULL && l->owed > 0 && read->got < read->asked);
    l->owed--;
    read->got += (uint32_t)tb_transport_read_run(read, read->got).bytes;
    if (read->got < read->bytes) return;
    l->first = read->next;
    if (l->first == NULL) l->last = NULL;
    read->staged = true;
    l->stream->events->on_read(l->stream->events_user, read);
}

bool tb_shm_lent_answer(struct tb_shm_lent *l, const struct tb_hop_answer *answer)
{
    if (answer->type == TB_HOP_ANSWER_LENT) return lent(l, answer);
    if (answer->bytes == 0 || answer->bytes > l->owed) return false;
    for (uint32_t i = 0; i < answer->bytes; i++)
        came(l);
    ask(l);
    return true;
}

/* ---- beginning and end ---- */

static void run_make(struct tb_pool_job *job, uint32_t thread)
{
    struct tb_shm_lent *l = (struct tb_shm_lent *)((char *)job - offsetof(struct tb_shm_lent, make));
    (void)thread;
    if (tb_lent_memory_make(l->bytes, &l->memory) != TB_OK) l->memory.bytes = NULL;
    tb_fabric_post(l->stream->fabric, &l->made);
}

static void close_memory(struct tb_shm_lent *l)
{
    give_back(l);
    l->state = TB_SHM_LENT_NONE;
    l->on_closed(l->owner);
}

static void made(struct tb_fabric_job *job)
{
    struct tb_shm_lent *l = (struct tb_shm_lent *)((char *)job - offsetof(struct tb_shm_lent, made));
    TB_ASSERT(l->state == TB_SHM_LENT_MAKING);
    l->state = TB_SHM_LENT_ASKED;
    if (l->closing)
        close_memory(l);
    else if (l->memory.bytes == NULL)
        settle(l, TB_SHM_LENT_OVER);
    else
        tb_pipe_lend(l->stream, l->memory.fd, l->bytes);
}

void tb_shm_lent_init(struct tb_shm_lent *l, const struct tb_shm_lent_options *options)
{
    *l = (struct tb_shm_lent){.stream = options->stream,
                              .on_settled = options->on_settled,
                              .on_closed = options->on_closed,
                              .owner = options->owner,
                              .memory = {.fd = -1},
                              .make = {.run = run_make},
                              .made = {.run = made},
                              .freed = {.run = part_freed}};
    const struct tb_shm_parts_limits limits = {.align = PART_ALIGN, .least = 2, .room = USUAL_BYTES};
    tb_shm_parts_divide(&l->parts, options->upstream, &limits);
    l->bytes = tb_shm_parts_bytes(&l->parts);
}

void tb_shm_lent_begin(struct tb_shm_lent *l)
{
    struct tb_fabric *f = l->stream->fabric;
    TB_ASSERT(l->state == TB_SHM_LENT_NONE && !l->closing);
    if (l->bytes == 0 || l->bytes > TB_LENT_BYTES_MAX || f->lent_bytes + l->bytes > TB_LENT_ALL_MAX) {
        l->on_settled(l->owner);
        return;
    }
    l->charged = l->bytes;
    tb_fabric_lent_add(&f->lent_bytes, &f->lent_most, l->bytes);
    l->state = TB_SHM_LENT_MAKING;
    tb_pool_submit(f->pool, &l->make);
}

void tb_shm_lent_close(struct tb_shm_lent *l)
{
    TB_ASSERT(!l->closing);
    l->closing = true;
    if (l->state != TB_SHM_LENT_MAKING) close_memory(l);
}
