#include "intra/client/memory/boxes.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "base/layout/tensor.h"

#define COPY_BYTES ((uint64_t)1 << 20) /* so that the pool's threads end together */
#define COPIES_MAX (1u << 24)
#define DEPTH_MAX  2048u

struct box {
    uint64_t first[TB_RANK_MAX];
    uint64_t count[TB_RANK_MAX];
};

/* One box of a shard that may have some of what is wanted. */
struct candidate {
    const struct tb_tensor *tensor;
    uint32_t shard;
};

struct matching {
    const struct tb_box_question *q;
    const uint16_t *part_max; /* of each shard */
    /* of each: behind the tensor found last. Readers mostly list what they want in that order */
    uint32_t *next;
    struct candidate *candidates;
    uint32_t candidate_count;
    const struct tb_tensor *want;
    uint32_t want_index;
    uint32_t depth;
    struct tb_box_copies *out;
};

/* ---- one box that both have, as rows ---- */

/* In whole bytes: rows of a box are, where it is not all of its tensor (layout.h). */
static uint64_t stride_of(const struct tb_tensor *t, uint32_t axis)
{
    uint64_t bits = tb_tensor_bits(t);
    for (uint32_t i = axis + 1; i < t->rank; i++)
        bits *= t->box_count[i];
    return bits / 8;
}

/* Of the element `first`, in the dense bytes of the tensor's box. */
static uint64_t position_of(const struct tb_tensor *t, const uint64_t *first)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        at = at * t->box_count[i] + (first[i] - t->box_first[i]);
    return at * tb_tensor_bits(t) / 8;
}

static enum tb_status add(struct tb_box_copies *out, const struct tb_box_copy *copy)
{
    TB_ASSERT(copy->rows > 0 && copy->run > 0);
    if (out->count == COPIES_MAX) return TB_TOO_LARGE;
    if (out->count == out->cap) {
        const uint32_t cap = out->cap == 0 ? 256 : out->cap * 2;
        struct tb_box_copy *list = tb_realloc(out->list, cap * sizeof *list);
        if (list == NULL) return TB_SITE_NOMEM;
        out->list = list;
        out->cap = cap;
    }
    out->list[out->count++] = *copy;
    out->bytes += copy->rows * copy->run;
    return TB_OK;
}

static enum tb_status add_in_pieces(struct tb_box_copies *out, struct tb_box_copy copy)
{
    enum tb_status status = TB_OK;
    const uint64_t rows = copy.rows, run = copy.run;
    if (rows == 1) {
        for (uint64_t done = 0; done < run && status == TB_OK; done += COPY_BYTES) {
            struct tb_box_copy piece = copy;
            piece.run = run - done < COPY_BYTES ? run - done : COPY_BYTES;
            piece.from += done;
            piece.to += done;
            status = add(out, &piece);
        }
        return status;
    }
    const uint64_t most = run >= COPY_BYTES ? 1 : COPY_BYTES / run;
    for (uint64_t done = 0; done < rows && status == TB_OK; done += most) {
        struct tb_box_copy piece = copy;
        piece.rows = rows - done < most ? rows - done : most;
        piece.from += done * copy.from_stride;
        piece.to += done * copy.to_stride;
        status = add(out, &piece);
    }
    return status;
}

/* Whether the box has all that both tensors have along the axis: then it goes on without a gap. */
static bool unbroken(const struct matching *m, const struct tb_tensor *from, const struct box *b,
                     uint32_t axis)
{
    return b->count[axis] == from->box_count[axis] && b->count[axis] == m->want->box_count[axis];
}

/* The axes of the box, the last first: those that make up a run, those whose runs stand at one
 * stride, and the others, which are counted through. */
static enum tb_status emit(struct matching *m, const struct candidate *c, const struct box *b)
{
    const struct tb_tensor *from = c->tensor, *to = m->want;
    uint32_t outer = from->rank;
    struct tb_box_copy copy = {
        .want = m->want_index, .shard = c->shard, .rows = 1, .run = tb_tensor_bits(from)};
    for (bool on = true; on && outer > 0;) {
        outer--;
        copy.run *= b->count[outer];
        on = unbroken(m, from, b, outer);
    }
    copy.run = (copy.run + 7) / 8;
    if (outer > 0) {
        outer--;
        copy.rows = b->count[outer];
        copy.from_stride = stride_of(from, outer);
        copy.to_stride = stride_of(to, outer);
        for (; outer > 0 && unbroken(m, from, b, outer); outer--)
            copy.rows *= b->count[outer - 1];
    }
    uint64_t at[TB_RANK_MAX];
    memcpy(at, b->first, sizeof at);
    for (;;) {
        copy.from = from->offset + position_of(from, at);
        copy.to = position_of(to, at);
        const enum tb_status status = add_in_pieces(m->out, copy);
        if (status != TB_OK) return status;
        uint32_t axis = outer;
        while (axis > 0 && ++at[axis - 1] == b->first[axis - 1] + b->count[axis - 1]) {
            at[axis - 1] = b->first[axis - 1];
            axis--;
        }
        if (axis == 0) return TB_OK;
    }
}

/* ---- covering a wanted box ---- */

static bool same_tensor(const struct tb_tensor *a, const struct tb_tensor *b)
{
    return tb_tensor_dtype_equal(a, b) && a->rank == b->rank &&
           memcmp(a->full, b->full, a->rank * sizeof a->full[0]) == 0;
}

/* False: they have nothing in common. */
static bool intersect(const struct tb_tensor *t, const struct box *b, struct box *both_out)
{
    for (uint32_t i = 0; i < t->rank; i++) {
        const uint64_t t_end = t->box_first[i] + t->box_count[i], b_end = b->first[i] + b->count[i];
        const uint64_t first = b->first[i] > t->box_first[i] ? b->first[i] : t->box_first[i];
        const uint64_t end = b_end < t_end ? b_end : t_end;
        if (end <= first) return false;
        both_out->first[i] = first;
        both_out->count[i] = end - first;
    }
    return true;
}

static bool contains(const struct tb_tensor *t, const struct box *b)
{
    for (uint32_t i = 0; i < t->rank; i++) {
        if (b->first[i] < t->box_first[i]) return false;
        if (b->first[i] + b->count[i] > t->box_first[i] + t->box_count[i]) return false;
    }
    return true;
}

/* Takes what the candidates from `next` on have of the box; what is left of it around the first
 * that has some is asked of those behind it. */
static enum tb_status cover(struct matching *m, struct box b, uint32_t next)
{
    struct box both = {{0}, {0}};
    while (next < m->candidate_count && !intersect(m->candidates[next].tensor, &b, &both))
        next++;
    if (next == m->candidate_count) return TB_LAYOUT_MISMATCH;
    if (m->depth == DEPTH_MAX) return TB_TOO_LARGE;
    m->depth++;
    enum tb_status status = emit(m, &m->candidates[next], &both);
    for (uint32_t i = 0; i < m->want->rank && status == TB_OK; i++) {
        const uint64_t end = b.first[i] + b.count[i], both_end = both.first[i] + both.count[i];
        struct box left = b;
        left.count[i] = both.first[i] - b.first[i];
        if (left.count[i] > 0) status = cover(m, left, next + 1);
        left = b;
        left.first[i] = both_end;
        left.count[i] = end - both_end;
        if (left.count[i] > 0 && status == TB_OK) status = cover(m, left, next + 1);
        b.first[i] = both.first[i];
        b.count[i] = both.count[i];
    }
    m->depth--;
    TB_ASSERT(m->depth < DEPTH_MAX);
    return status;
}

static bool is_wanted(const struct matching *m, const struct tb_tensor *t, uint16_t part)
{
    return t->part == part && tb_tensor_dtype_equal(t, m->want) && strcmp(t->name, m->want->name) == 0;
}

static const struct tb_tensor *find_part(struct matching *m, uint32_t shard, uint16_t part)
{
    const struct tb_layout *layout = m->q->layouts[shard];
    const uint32_t next = m->next[shard];
    const struct tb_tensor like = {
        .name = m->want->name, .dtype = m->want->dtype, .other = m->want->other, .part = part};
    const struct tb_tensor *t = NULL;
    if (next < layout->tensor_count && is_wanted(m, &layout->tensors[next], part))
        t = &layout->tensors[next];
    else
        t = tb_layout_find_like(layout, &like);
    if (t != NULL) m->next[shard] = (uint32_t)(t - layout->tensors) + 1;
    return t;
}

/* False: one that has the name has another shape. */
static bool find_candidates(struct matching *m)
{
    m->candidate_count = 0;
    for (uint32_t s = 0; s < m->q->shard_count; s++) {
        for (uint32_t part = 0; part <= m->part_max[s]; part++) {
            const struct tb_tensor *t = find_part(m, s, (uint16_t)part);
            if (t == NULL) continue;
            if (!same_tensor(t, m->want)) return false;
            m->candidates[m->candidate_count++] = (struct candidate){t, s};
            TB_ASSERT(m->next[s] <= m->q->layouts[s]->tensor_count);
        }
    }
    return m->candidate_count > 0;
}

static enum tb_status match_one(struct matching *m)
{
    struct box b = {{0}, {0}};
    memcpy(b.first, m->want->box_first, sizeof b.first);
    memcpy(b.count, m->want->box_count, sizeof b.count);
    if (!find_candidates(m)) return TB_LAYOUT_MISMATCH;
    if (m->want->bytes == 0) return TB_OK;
    for (uint32_t i = 0; i < m->candidate_count; i++)
        if (contains(m->candidates[i].tensor, &b)) return emit(m, &m->candidates[i], &b);
    return cover(m, b, 0);
}

static enum tb_status match_all(struct matching *m, uint32_t *missing_out)
{
    for (uint32_t i = 0; i < m->q->want_count; i++) {
        m->want = &m->q->wants[i];
        m->want_index = i;
        const enum tb_status status = match_one(m);
        if (status == TB_OK) continue;
        *missing_out = i;
        return status;
    }
    return TB_OK;
}

enum tb_status tb_boxes_match(const struct tb_box_question *q, struct tb_box_copies *copies_out,
                              uint32_t *missing_out)
{
    memset(copies_out, 0, sizeof *copies_out);
    *missing_out = 0;
    uint16_t *part_max = tb_calloc((size_t)q->shard_count + 1, sizeof *part_max);
    uint32_t *next = tb_calloc((size_t)q->shard_count + 1, sizeof *next);
    if (part_max == NULL || next == NULL) {
        tb_free(part_max);
        tb_free(next);
        return TB_SITE_NOMEM;
    }
    size_t most = 1;
    for (uint32_t s = 0; s < q->shard_count; s++) {
        part_max[s] = tb_layout_part_max(q->layouts[s]);
        most += part_max[s] + 1u;
    }
    struct matching m = {.q = q, .part_max = part_max, .next = next, .out = copies_out};
    m.candidates = tb_calloc(most, sizeof *m.candidates);
    const enum tb_status status = m.candidates == NULL ? TB_SITE_NOMEM : match_all(&m, missing_out);
    tb_free(m.candidates);
    tb_free(next);
    tb_free(part_max);
    return status;
}

/* ---- chunks ---- */

/* The chunk that has the packed byte. */
static uint32_t chunk_at(const struct tb_chunk *chunks, uint32_t count, uint64_t at)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (chunks[middle].offset <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void tb_boxes_chunks(const struct tb_box_copies *copies, uint32_t shard, const struct tb_chunk *chunks,
                     uint32_t chunk_count, uint64_t *wanted)
{
    for (uint32_t i = 0; i < copies->count; i++) {
        const struct tb_box_copy *c = &copies->list[i];
        if (c->shard != shard) continue;
        TB_ASSERT(chunk_count > 0 && chunks[0].offset <= c->from);
        uint32_t k = chunk_at(chunks, chunk_count, c->from);
        for (uint64_t row = 0; row < c->rows; row++) {
            const uint64_t at = c->from + row * c->from_stride;
            while (chunks[k].offset + chunks[k].bytes <= at)
                k++;
            for (; k < chunk_count && chunks[k].offset < at + c->run; k++)
                (void)tb_bitmap_set(wanted, k);
            k--; /* the next row may begin in the same */
        }
    }
}
