/* live_plan.c - see live_plan.h.
 *
 * A copy of boxes.h says where bytes of a shard went. Copies that are one range of packed bytes are
 * sorted by where they begin; a chunk is covered when they fill it without a hole. A copy becomes a
 * box unless covered chunks took all of it. */
#include "intra/client/live/live_plan.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/follow/staging.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/thread_crew.h"
#include "intra/client/session/session.h"

/* One copy that is one range of packed bytes. */
struct range {
    uint32_t shard, copy;
    uint64_t from, bytes;
};

/* A unit that is one, and the copy that it is of. */
struct box {
    uint32_t unit, copy;
};

struct making {
    const struct tb_staging *st;
    const struct tb_registration *r;
    const struct tb_box_copies *copies;
    struct range *ranges;
    uint32_t range_count;
    uint64_t *used; /* of each copy: bytes that chunks took */
    struct box *boxes;
    uint32_t box_count;
    atomic_bool failed; /* some box has no digest */
    struct tb_live_plan *plan;
};

/* ---- pieces ---- */

static bool add_piece(struct making *m, const struct tb_box_copy *c, uint64_t to, uint64_t run, uint64_t rows)
{
    struct tb_live_plan *plan = m->plan;
    if (plan->piece_count == plan->piece_cap) {
        const uint32_t cap = plan->piece_cap == 0 ? 256 : plan->piece_cap * 2;
        struct tb_live_piece *larger = tb_realloc(plan->pieces, cap * sizeof *larger);
        if (larger == NULL) return false;
        plan->pieces = larger;
        plan->piece_cap = cap;
    }
    TB_ASSERT(run > 0 && rows > 0);
    plan->pieces[plan->piece_count++] =
        (struct tb_live_piece){.want = c->want,
                               .on_device = tb_gpu_memory_has(m->r->gpu, c->want),
                               .to = to,
                               .run = run,
                               .rows = rows,
                               .stride = rows > 1 ? c->to_stride : run};
    return true;
}

/* `bytes` of a copy from byte `skip` on: the end of a row, whole rows, the beginning of one. */
static bool add_pieces(struct making *m, const struct tb_box_copy *c, uint64_t skip, uint64_t bytes)
{
    TB_ASSERT(bytes > 0 && skip + bytes <= c->rows * c->run);
    while (bytes > 0) {
        const uint64_t row = skip / c->run, within = skip % c->run;
        uint64_t run = c->run - within, rows = 1;
        if (run > bytes) run = bytes;
        if (within == 0 && bytes >= c->run) rows = bytes / c->run;
        if (!add_piece(m, c, c->to + row * c->to_stride + within, run, rows)) return false;
        skip += run * rows;
        bytes -= run * rows;
    }
    return true;
}

/* ---- chunks ---- */

static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->copy < y->copy ? -1 : x->copy > y->copy;
}

static void list_ranges(struct making *m)
{
    for (uint32_t i = 0; i < m->copies->count; i++) {
        const struct tb_box_copy *c = &m->copies->list[i];
        if (c->rows > 1 && c->from_stride != c->run) continue;
        m->ranges[m->range_count++] = (struct range){c->shard, i, c->from, c->rows * c->run};
    }
    qsort(m->ranges, m->range_count, sizeof *m->ranges, by_place);
}

/* The ranges that fill the chunk, from *at_io on. False: there is a hole. */
static bool fills(const struct making *m, uint32_t shard, const struct tb_chunk *chunk, uint32_t first)
{
    uint64_t cursor = chunk->offset;
    const uint64_t end = chunk->offset + chunk->bytes;
    for (uint32_t i = first; i < m->range_count && m->ranges[i].shard == shard && cursor < end; i++) {
        const struct range *g = &m->ranges[i];
        if (g->from > cursor) return false;
        if (g->from + g->bytes > cursor) cursor = g->from + g->bytes;
    }
    return cursor >= end;
}

static struct tb_live_unit *add_unit(struct making *m, uint32_t shard, uint32_t chunk, uint64_t bytes)
{
    struct tb_live_plan *plan = m->plan;
    struct tb_live_unit *unit = &plan->units[plan->unit_count++];
    *unit = (struct tb_live_unit){.shard = shard, .chunk = chunk, .first = plan->piece_count, .bytes = bytes};
    plan->bytes += bytes;
    return unit;
}

static bool take_chunk(struct making *m, uint32_t shard, uint32_t k, uint32_t first)
{
    const struct tb_manifest *manifest = &m->st->shards[shard].manifest;
    const struct tb_chunk *chunk = &manifest->chunks[k];
    struct tb_live_unit *unit = add_unit(m, shard, k, chunk->bytes);
    uint64_t cursor = chunk->offset;
    const uint64_t end = chunk->offset + chunk->bytes;
    for (uint32_t i = first; cursor < end; i++) {
        TB_ASSERT(i < m->range_count && m->ranges[i].shard == shard);
        const struct range *g = &m->ranges[i];
        const uint64_t stop = g->from + g->bytes < end ? g->from + g->bytes : end;
        if (stop <= cursor) continue;
        if (!add_pieces(m, &m->copies->list[g->copy], cursor - g->from, stop - cursor)) return false;
        m->used[g->copy] += stop - cursor;
        cursor = stop;
    }
    unit->count = m->plan->piece_count - unit->first;
    unit->sum = tb_live_sum_of(manifest, k);
    return true;
}

/* Ranges that end before the chunk are behind us; a long one reaches into several chunks. */
static bool take_shard(struct making *m, uint32_t shard, uint32_t first)
{
    const struct tb_manifest *manifest = &m->st->shards[shard].manifest;
    for (uint32_t k = 0; k < manifest->chunk_count; k++) {
        const struct tb_chunk *chunk = &manifest->chunks[k];
        if (chunk->offset >= manifest->layout.bytes) break; /* blobs: nobody computes from them */
        while (first < m->range_count && m->ranges[first].shard == shard &&
               m->ranges[first].from + m->ranges[first].bytes <= chunk->offset)
            first++;
        if (fills(m, shard, chunk, first) && !take_chunk(m, shard, k, first)) return false;
    }
    return true;
}

static bool take_chunks(struct making *m)
{
    uint32_t first = 0;
    for (uint32_t shard = 0; shard < m->st->key.shard_count; shard++) {
        while (first < m->range_count && m->ranges[first].shard < shard)
            first++;
        if (!take_shard(m, shard, first)) return false;
    }
    return true;
}

/* ---- boxes ---- */

static uint32_t chunk_at(const struct tb_manifest *m, uint64_t offset)
{
    uint32_t low = 0, high = m->chunk_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (m->chunks[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* All chunks that the copy's bytes stand in are held, so their digests were compared. */
static bool is_proven(const struct tb_staged_shard *sh, const struct tb_box_copy *c)
{
    const uint64_t end = c->from + (c->rows - 1) * c->from_stride + c->run;
    for (uint32_t k = chunk_at(&sh->manifest, c->from);
         k < sh->manifest.chunk_count && sh->manifest.chunks[k].offset < end; k++)
        if (!tb_place_held(&sh->place, k)) return false;
    return true;
}

/* Of the staged bytes, in the order of the pieces. */
static enum tb_status staged_sum(const struct making *m, const struct tb_box_copy *c, bool kind,
                                 struct tb_live_sum *sum_out)
{
    const struct tb_staged_shard *sh = &m->st->shards[c->shard];
    const bool far = tb_place_is_far(&sh->place, chunk_at(&sh->manifest, c->from));
    const struct tb_live_piece piece = {.on_device = far,
                                        .to = c->from,
                                        .run = c->run,
                                        .rows = c->rows,
                                        .stride = c->rows > 1 ? c->from_stride : c->run};
    uint8_t *const memory[] = {sh->place.bytes};
    const struct tb_live_bytes from = {
        .memory = memory, .gpu = m->r->gpu, .pieces = &piece, .count = 1, .bytes = c->rows * c->run};
    return tb_live_sum_pieces(&from, kind, sum_out);
}

static bool take_box(struct making *m, uint32_t copy)
{
    const struct tb_box_copy *c = &m->copies->list[copy];
    const struct tb_staged_shard *sh = &m->st->shards[c->shard];
    const uint32_t k = chunk_at(&sh->manifest, c->from);
    if (m->st->patch != NULL || !is_proven(sh, c)) { /* the staging has deltas, not the bytes */
        m->plan->left_bytes += c->rows * c->run;
        return true;
    }
    struct tb_live_unit *unit = add_unit(m, c->shard, k, c->rows * c->run);
    unit->box = true;
    m->plan->box_bytes += unit->bytes;
    if (!add_pieces(m, c, 0, unit->bytes)) return false;
    unit->count = m->plan->piece_count - unit->first;
    m->boxes[m->box_count++] = (struct box){m->plan->unit_count - 1, copy};
    return true;
}

static void digest_box(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    struct making *m = user;
    const struct box *b = &m->boxes[piece];
    struct tb_live_unit *unit = &m->plan->units[b->unit];
    const bool kind = tb_live_sum_of(&m->st->shards[unit->shard].manifest, unit->chunk).proof;
    if (staged_sum(m, &m->copies->list[b->copy], kind, &unit->sum) != TB_OK) atomic_store(&m->failed, true);
}

static bool take_boxes(struct making *m)
{
    for (uint32_t i = 0; i < m->copies->count; i++) {
        const struct tb_box_copy *c = &m->copies->list[i];
        if (m->used[i] < c->rows * c->run && !take_box(m, i)) return false;
    }
    if (m->box_count > 0) tb_crew_run(m->st->session->crew, m->box_count, digest_box, m);
    return !atomic_load(&m->failed);
}

/* ---- a plan ---- */

static uint64_t chunks_of(const struct tb_staging *st)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        count += st->shards[i].manifest.chunk_count;
    return count;
}

static bool of_registration(struct making *m)
{
    m->ranges = tb_calloc((size_t)m->copies->count + 1, sizeof *m->ranges);
    m->used = tb_calloc((size_t)m->copies->count + 1, sizeof *m->used);
    m->boxes = tb_calloc((size_t)m->copies->count + 1, sizeof *m->boxes);
    const bool room = m->ranges != NULL && m->used != NULL && m->boxes != NULL;
    if (room) list_ranges(m);
    const bool made = room && take_chunks(m) && take_boxes(m);
    tb_free(m->ranges);
    tb_free(m->used);
    tb_free(m->boxes);
    return made;
}

static void of_staging(struct making *m)
{
    m->plan->staging = m->st;
    for (uint32_t i = 0; i < m->st->key.shard_count; i++) {
        const struct tb_manifest *manifest = &m->st->shards[i].manifest;
        for (uint32_t k = 0; k < manifest->chunk_count; k++)
            add_unit(m, i, k, manifest->chunks[k].bytes)->sum = tb_live_sum_of(manifest, k);
    }
}

struct tb_live_plan *tb_live_plan_new(const struct tb_staging *st, const struct tb_registration *r,
                                      const struct tb_box_copies *copies)
{
    TB_ASSERT(r == NULL || copies != NULL);
    struct making m = {.st = st, .r = r, .copies = copies, .plan = tb_calloc(1, sizeof *m.plan)};
    if (m.plan == NULL) return NULL;
    m.plan->refs = 1;
    m.plan->uid = st->uid;
    const uint64_t boxes = r != NULL ? copies->count : 0;
    m.plan->units = tb_calloc(chunks_of(st) + boxes + 1, sizeof *m.plan->units);
    bool made = m.plan->units != NULL;
    if (made && r == NULL)
        of_staging(&m);
    else if (made)
        made = of_registration(&m);
    if (made) return m.plan;
    tb_live_plan_drop(m.plan);
    return NULL;
}

void tb_live_plan_drop(struct tb_live_plan *plan)
{
    if (plan == NULL) return;
    TB_ASSERT(plan->refs > 0);
    if (--plan->refs > 0) return;
    tb_free(plan->units);
    tb_free(plan->pieces);
    tb_free(plan);
}

/* ---- names ---- */

struct names {
    char *out;
    size_t cap, used;
    uint32_t left; /* that did not fit */
    const char *last;
};

#define MORE_BYTES 24u /* ", and 4294967295 more" */

/* Whole letters of UTF-8, and room for MORE_BYTES behind them. */
static void add_name(struct names *n, const char *name)
{
    if (n->last != NULL && strcmp(n->last, name) == 0) return;
    size_t count = strlen(name);
    const size_t comma = n->last != NULL ? 2 : 0, room = n->cap - MORE_BYTES - n->used;
    if (n->left > 0 || (comma > 0 && comma + count > room)) {
        n->left++;
        return;
    }
    if (count > room) count = room; /* the first alone is cut */
    while (count < strlen(name) && count > 0 && ((unsigned char)name[count] & 0xc0) == 0x80)
        count--;
    memcpy(n->out + n->used, ", ", comma);
    memcpy(n->out + n->used + comma, name, count);
    n->used += comma + count;
    n->last = name;
}

static void add_staged(struct names *n, const struct tb_live_plan *plan, const struct tb_live_unit *unit)
{
    const struct tb_manifest *m = &plan->staging->shards[unit->shard].manifest;
    const struct tb_chunk *chunk = &m->chunks[unit->chunk];
    const struct tb_layout *layout = &m->layout;
    if (chunk->offset >= layout->bytes) add_name(n, "(blobs)");
    for (uint32_t i = tb_layout_tensor_at(layout, chunk->offset);
         i < layout->tensor_count && layout->tensors[i].offset < chunk->offset + chunk->bytes; i++)
        add_name(n, layout->tensors[i].name);
}

void tb_live_unit_names(const struct tb_live_plan *plan, const struct tb_live_unit *unit, char *out,
                        size_t cap)
{
    TB_ASSERT(cap > 2 * MORE_BYTES);
    struct names n = {.out = out, .cap = cap};
    if (plan->staging != NULL) add_staged(&n, plan, unit);
    for (uint32_t i = unit->first; i < unit->first + unit->count; i++)
        add_name(&n, plan->registration->wants[plan->pieces[i].want].name);
    out[n.used] = '\0';
    if (n.left > 0) (void)snprintf(out + n.used, cap - n.used, ", and %u more", n.left);
}
