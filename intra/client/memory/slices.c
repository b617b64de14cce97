/* slices.c - boxes of tensors, registered: what a rank has of a model that is spread over several.
 *
 * As a publisher's, each is one tensor of the shard's layout, or several where readers split it;
 * those of one name differ in their part (slice_parts.h). As a reader's, each is a box to be
 * filled, from whatever boxes the version's shards have. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/tensor.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/slice_parts.h"
#include "intra/client/session/session.h"

/* One tensor of the layout that a registration is to have. */
struct piece {
    uint32_t given;
    uint64_t offset;
    struct tb_spread_rows rows;
};

struct slicing {
    struct tb_registration *r;
    const struct tb_slice_desc *slices; /* the first of them */
    uint32_t count;
    struct tb_tensor *tensors; /* pieces, not yet in packed order; names are the wants' */
    struct piece *pieces;
    uint32_t piece_count;
    uint32_t cap;
};

/* A program built before the struct grew has smaller ones. */
static struct tb_slice_desc slice_at(const struct slicing *g, uint32_t i)
{
    struct tb_slice_desc d = {0};
    const size_t stride = g->slices->struct_bytes;
    memcpy(&d, (const char *)g->slices + i * stride, stride < sizeof d ? stride : sizeof d);
    return d;
}

/* ---- what the caller listed ---- */

static int describe_box(const struct tb_slice_desc *d, struct tb_tensor *t)
{
    for (uint32_t i = 0; i < d->rank; i++) {
        t->full[i] = d->shape[i];
        t->box_first[i] = d->first == NULL ? 0 : d->first[i];
        if (t->box_first[i] > t->full[i])
            return tb_fail(TB_BAD_ARGUMENT,
                           "slice of \"%.200s\": axis %u has %llu, and the slice begins at %llu", d->name, i,
                           (unsigned long long)t->full[i], (unsigned long long)t->box_first[i]);
        t->box_count[i] = d->count == NULL ? t->full[i] - t->box_first[i] : d->count[i];
        if (t->box_count[i] > t->full[i] - t->box_first[i])
            return tb_fail(TB_BAD_ARGUMENT,
                           "slice of \"%.200s\": axis %u has %llu, and the slice has %llu from %llu on",
                           d->name, i, (unsigned long long)t->full[i], (unsigned long long)t->box_count[i],
                           (unsigned long long)t->box_first[i]);
    }
    return TB_OK;
}

/* By the layout's own rules; it also tells the bytes. */
static enum tb_status measure(const struct tb_tensor *t, uint64_t *bytes_out)
{
    struct tb_layout one;
    const size_t bytes = tb_layout_bytes_for(t, 1);
    void *memory = tb_malloc(bytes);
    if (memory == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = tb_layout_build(t, 1, memory, bytes, &one);
    if (status == TB_OK) *bytes_out = one.bytes;
    tb_free(memory);
    return status;
}

static int describe(const struct tb_slice_desc *d, uint32_t index, struct tb_tensor *t)
{
    if (d->name == NULL || d->dtype == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "slice %u has no name or dtype", index);
    t->name = d->name;
    if (!tb_tensor_set_dtype(t, d->dtype))
        return tb_fail(TB_BAD_ARGUMENT, "slice of \"%.200s\": " TB_DTYPE_UNKNOWN, d->name, d->dtype);
    if (d->rank > TB_RANK_MAX || (d->rank > 0 && d->shape == NULL))
        return tb_fail(TB_BAD_ARGUMENT, "slice of \"%.200s\": rank %u, at most %d, and a shape", d->name,
                       d->rank, TB_RANK_MAX);
    t->rank = (uint8_t)d->rank;
    if (d->split_count > TB_PARTS_MAX || (d->split_count > 1 && d->split_axis >= d->rank))
        return tb_fail(TB_BAD_ARGUMENT, "slice of \"%.200s\": axis %u split into %u; at most %d", d->name,
                       d->split_axis, d->split_count, TB_PARTS_MAX);
    const int status = describe_box(d, t);
    if (status != TB_OK) return status;
    if (!tb_tensor_box_on_bytes(t))
        return tb_fail(TB_BAD_ARGUMENT, "slice %u, of \"%.200s\": " TB_OFF_BYTES, index, d->name,
                       tb_tensor_dtype_name(t), tb_tensor_bits(t));
    const enum tb_status measured = measure(t, &t->bytes);
    if (measured != TB_OK)
        return tb_fail(measured, "slice %u, of \"%.200s\", cannot be registered", index, d->name);
    if (d->memory == NULL && t->bytes > 0)
        return tb_fail(TB_BAD_ARGUMENT, "slice of \"%.200s\" has no memory", d->name);
    return TB_OK;
}

static int list_wants(struct slicing *g)
{
    struct tb_registration *r = g->r;
    size_t names = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        const struct tb_slice_desc d = slice_at(g, i);
        const int status = describe(&d, i, &r->slices[i]);
        if (status != TB_OK) return status;
        r->given[i] = d.memory;
        r->want_bytes += r->slices[i].bytes;
        names += strlen(d.name) + 1;
    }
    r->slice_names = tb_malloc(names);
    if (r->slice_names == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for %u names", g->count);
    char *at = r->slice_names;
    for (uint32_t i = 0; i < g->count; i++) {
        const size_t bytes = strlen(r->slices[i].name) + 1;
        r->slices[i].name = memcpy(at, r->slices[i].name, bytes);
        at += bytes;
    }
    return TB_OK;
}

/* ---- the same as tensors of a shard ---- */

static bool add_piece(struct slicing *g, const struct tb_tensor *t, const struct piece *piece)
{
    if (g->piece_count == g->cap) {
        const uint32_t cap = g->cap == 0 ? g->count : g->cap * 2;
        struct tb_tensor *tensors = tb_realloc(g->tensors, cap * sizeof *tensors);
        if (tensors == NULL) return false;
        g->tensors = tensors;
        struct piece *pieces = tb_realloc(g->pieces, cap * sizeof *pieces);
        if (pieces == NULL) return false;
        g->pieces = pieces;
        g->cap = cap;
    }
    g->tensors[g->piece_count] = *t;
    g->pieces[g->piece_count++] = *piece;
    return true;
}

/* Bits of one step along the axis in the box's dense memory. */
static uint64_t step_of(const struct tb_tensor *t, uint32_t axis)
{
    uint64_t bits = tb_tensor_bits(t);
    for (uint32_t i = axis + 1; i < t->rank; i++)
        bits *= t->box_count[i];
    return bits;
}

struct part_of {
    uint64_t index, count;
};

/* Of a dtype with fractions of a byte, parts along the last axis begin on whole bytes. */
static int check_splits(const struct slicing *g)
{
    for (uint32_t i = 0; i < g->count; i++) {
        const struct tb_slice_desc d = slice_at(g, i);
        const struct tb_tensor *t = &g->r->slices[i];
        if (d.split_count < 2 || t->bytes == 0 || tb_tensor_bits(t) % 8 == 0) continue;
        for (uint64_t p = 0; p < d.split_count; p++) {
            struct tb_tensor part = *t;
            const uint64_t length = t->full[d.split_axis];
            part.box_first[d.split_axis] = p * length / d.split_count;
            part.box_count[d.split_axis] = (p + 1) * length / d.split_count - part.box_first[d.split_axis];
            if (!tb_tensor_box_on_bytes(&part))
                return tb_fail(TB_BAD_ARGUMENT, "part %llu of slice %u, of \"%.200s\": " TB_OFF_BYTES,
                               (unsigned long long)p, i, d.name, tb_tensor_dtype_name(t), tb_tensor_bits(t));
        }
    }
    return TB_OK;
}

/* Adds the piece that a slice has in one of the parts of its axis. If it has nothing there, no
 * piece is added. */
static bool add_part(struct slicing *g, uint32_t given, uint32_t axis, struct part_of split)
{
    const struct tb_tensor *whole = &g->r->slices[given];
    const uint64_t length = whole->full[axis], box_end = whole->box_first[axis] + whole->box_count[axis];
    uint64_t first = split.index * length / split.count, end = (split.index + 1) * length / split.count;
    if (first < whole->box_first[axis]) first = whole->box_first[axis];
    if (end > box_end) end = box_end;
    if (end <= first) return true;
    const uint64_t step = step_of(whole, axis);
    struct tb_tensor t = *whole;
    t.part = (uint16_t)(split.index + 1);
    t.box_first[axis] = first;
    t.box_count[axis] = end - first;
    const struct piece piece = {.given = given,
                                .offset = (first - whole->box_first[axis]) * step / 8,
                                .rows = {(end - first) * step / 8, whole->box_count[axis] * step / 8}};
    return add_piece(g, &t, &piece);
}

static bool add_pieces(struct slicing *g, uint32_t given)
{
    const struct tb_slice_desc d = slice_at(g, given);
    const struct tb_tensor *t = &g->r->slices[given];
    const struct piece dense = {.given = given, .rows = {t->bytes, t->bytes}};
    if (d.split_count < 2 || t->bytes == 0) return add_piece(g, t, &dense);
    for (uint32_t p = 0; p < d.split_count; p++)
        if (!add_part(g, given, d.split_axis, (struct part_of){p, d.split_count})) return false;
    return true;
}

static bool new_tables(struct slicing *g)
{
    struct tb_registration *r = g->r;
    r->memory = tb_calloc(g->piece_count, sizeof *r->memory);
    r->rows = tb_calloc(g->piece_count, sizeof *r->rows);
    r->given_of = tb_calloc(g->piece_count, sizeof *r->given_of);
    r->given_offset = tb_calloc(g->piece_count, sizeof *r->given_offset);
    return r->memory != NULL && r->rows != NULL && r->given_of != NULL && r->given_offset != NULL;
}

/* Pieces in the order of the layout. Its rows are dense unless a part has less than its slice along
 * an inner axis. */
static void fill_tables(struct slicing *g)
{
    struct tb_registration *r = g->r;
    for (uint32_t i = 0; i < g->piece_count; i++) {
        const struct tb_tensor *t = tb_layout_find_like(&r->layout, &g->tensors[i]);
        TB_ASSERT(t != NULL);
        const size_t at = (size_t)(t - r->layout.tensors);
        r->rows[at] = g->pieces[i].rows;
        r->given_of[at] = g->pieces[i].given;
        r->given_offset[at] = g->pieces[i].offset;
        r->scattered |= r->rows[at].run < t->bytes;
    }
    tb_registration_place(r);
}

/* Kept for tb_publish: a reader needs no layout. */
static void say_unpublishable(struct slicing *g, const struct tb_slice_parts *p)
{
    struct tb_registration *r = g->r;
    char *why = r->unpublishable;
    const size_t cap = sizeof r->unpublishable;
    const uint32_t a = p->slices[0], b = p->slices[1];
    const char *name = r->slices[a].name;
    if (p->fault == TB_SLICE_PARTS_DIFFER)
        (void)snprintf(why, cap, "slices %u and %u of \"%.200s\" have different dtypes or shapes", a, b,
                       name);
    else if (p->fault == TB_SLICE_PARTS_OVERLAP)
        (void)snprintf(why, cap, "slices %u and %u of \"%.200s\" overlap", a, b, name);
    else
        (void)snprintf(why, cap, "the boxes of \"%.200s\" come to more parts than the %d of a shard", name,
                       TB_PARTS_MAX);
}

/* False: no memory. */
static bool number_pieces(struct slicing *g, struct tb_slice_parts *p)
{
    uint32_t *slice_of = tb_calloc(g->piece_count, sizeof *slice_of);
    if (slice_of == NULL) return false;
    for (uint32_t i = 0; i < g->piece_count; i++)
        slice_of[i] = g->pieces[i].given;
    *p = (struct tb_slice_parts){.tensors = g->tensors, .slice_of = slice_of, .count = g->piece_count};
    const enum tb_status status = tb_slice_parts_number(p);
    tb_free(slice_of);
    return status == TB_OK;
}

static int build_layout(struct slicing *g)
{
    struct tb_registration *r = g->r;
    struct tb_slice_parts parts;
    const int aligned = check_splits(g);
    if (aligned != TB_OK) return aligned;
    for (uint32_t i = 0; i < g->count; i++)
        if (!add_pieces(g, i))
            return tb_fail(TB_SITE_NOMEM, "no memory for the parts of %u slices", g->count);
    if (!number_pieces(g, &parts))
        return tb_fail(TB_SITE_NOMEM, "no memory for the numbers of %u slices", g->count);
    if (parts.fault != TB_SLICE_PARTS_FINE) {
        say_unpublishable(g, &parts);
        return TB_OK;
    }
    const size_t bytes = tb_layout_bytes_for(g->tensors, g->piece_count);
    r->layout_memory = tb_malloc(bytes);
    if (r->layout_memory == NULL || !new_tables(g))
        return tb_fail(TB_SITE_NOMEM, "no memory for a layout of %u tensors", g->piece_count);
    const enum tb_status status =
        tb_layout_build(g->tensors, g->piece_count, r->layout_memory, bytes, &r->layout);
    if (status != TB_OK) return tb_fail(status, "the %u slices are too large together", g->count);
    fill_tables(g);
    return TB_OK;
}

static int build(struct slicing *g)
{
    struct tb_registration *r = g->r;
    r->slices = tb_calloc(g->count, sizeof *r->slices);
    r->given = tb_calloc(g->count, sizeof *r->given);
    if (r->slices == NULL || r->given == NULL)
        return tb_fail(TB_SITE_NOMEM, "no memory for %u slices", g->count);
    r->given_count = r->want_count = g->count;
    r->wants = r->slices;
    r->want_memory = r->given;
    int status = list_wants(g);
    if (status == TB_OK) status = build_layout(g);
    tb_free(g->tensors);
    tb_free(g->pieces);
    return status;
}

static int new_slices(struct slicing *g, struct tb_session *s, struct tb_registration **registration_out)
{
    if (g->slices == NULL || g->count == 0 || g->count > TB_TENSORS_MAX || registration_out == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "a registration has 1 to %d slices", TB_TENSORS_MAX);
    if (g->slices->struct_bytes < sizeof *g->slices)
        return tb_fail(TB_BAD_ARGUMENT, "slices[0].struct_bytes must be sizeof(struct tb_slice_desc), %zu",
                       sizeof *g->slices);
    g->r = tb_registration_new(s);
    if (g->r == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for a registration");
    int status = build(g);
    if (status == TB_OK) status = tb_registration_complete(s, g->r);
    if (status != TB_OK) {
        tb_registration_discard(g->r);
        return status;
    }
    tb_registration_enter(g->r);
    *registration_out = g->r;
    return TB_OK;
}

int tb_register_slices(struct tb_session *session, const struct tb_slice_desc *slices, uint32_t count,
                       struct tb_registration **registration_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct slicing g = {.slices = slices, .count = count};
    status = new_slices(&g, session, registration_out);
    tb_session_leave(session);
    return status;
}
