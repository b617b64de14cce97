/* layout.c - a shard's table of tensors: packed order, id, encoding. */
#include "base/layout/layout.h"

#include <string.h>

#include "base/assert.h"
#include "base/carve.h"
#include "base/utf8.h"

/* u8 dtype, u8 rank, u16 length and one byte of name. */
#define TENSOR_WIRE_BYTES_MIN 5u
#define TENSOR_WIRE_BYTES_MAX (10u + TB_DTYPE_NAME_MAX + TB_TENSOR_NAME_MAX + TB_RANK_MAX * 24u)
#define PART_FLAG             0x80u /* in the byte of the rank */

/* ---- names and order ---- */

static bool name_clean(const void *name, size_t count)
{
    return count > 0 && count <= TB_TENSOR_NAME_MAX && tb_utf8_is_clean(name, count);
}

static int compare_packed(const struct tb_tensor *a, const struct tb_tensor *b)
{
    const int by_dtype = tb_tensor_dtype_compare(a, b);
    if (by_dtype != 0) return by_dtype;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int compare_names(const struct tb_tensor *a, const struct tb_tensor *b)
{
    const int by_name = strcmp(a->name, b->name);
    return by_name != 0 ? by_name : (int)a->part - (int)b->part;
}

typedef int (*tensor_compare)(const struct tb_tensor *a, const struct tb_tensor *b);

/* Indexes into a table of tensors, and as many of scratch. qsort of the C library may
 * allocate, a core may not. */
struct order {
    const struct tb_tensor *tensors;
    uint32_t *indexes;
    uint32_t *scratch;
    uint32_t count;
    tensor_compare compare;
};

/* Merges the sorted runs [low, mid) and [mid, high) of indexes. */
static void merge(const struct order *o, uint32_t low, uint32_t mid, uint32_t high)
{
    TB_ASSERT(low < mid && mid < high && high <= o->count);
    if (o->compare(&o->tensors[o->indexes[mid - 1]], &o->tensors[o->indexes[mid]]) <= 0) return;
    memcpy(o->scratch, o->indexes + low, (size_t)(mid - low) * sizeof *o->scratch);
    uint32_t left = 0;
    const uint32_t left_end = mid - low;
    uint32_t right = mid;
    uint32_t to = low;
    while (left < left_end && right < high) {
        const bool take_left = o->compare(&o->tensors[o->scratch[left]], &o->tensors[o->indexes[right]]) <= 0;
        o->indexes[to++] = take_left ? o->scratch[left++] : o->indexes[right++];
    }
    while (left < left_end)
        o->indexes[to++] = o->scratch[left++];
}

static void sort(const struct order *o)
{
    TB_ASSERT(o->count <= TB_TENSORS_MAX); /* places are 32 bits */
    for (uint32_t i = 0; i < o->count; i++)
        o->indexes[i] = i;
    for (uint64_t width = 1; width < o->count; width *= 2) {
        for (uint64_t low = 0; low + width < o->count; low += 2 * width) {
            const uint64_t high = low + 2 * width < o->count ? low + 2 * width : o->count;
            merge(o, (uint32_t)low, (uint32_t)(low + width), (uint32_t)high);
        }
    }
}

/* Equal names of different dtypes are not neighbours in packed order, so the names are
 * sorted on their own. */
static bool names_unique(const struct tb_tensor *tensors, uint32_t count, uint32_t *indexes,
                         uint32_t *scratch)
{
    const struct order o = {tensors, indexes, scratch, count, compare_names};
    sort(&o);
    for (uint32_t i = 1; i < count; i++) {
        if (compare_names(&tensors[indexes[i - 1]], &tensors[indexes[i]]) == 0) return false;
    }
    return true;
}

/* Names are packed one behind another; names_bytes counts their NULs. */
static size_t block_bytes(uint64_t count, uint64_t names_bytes)
{
    return tb_carve_bytes(count * sizeof(struct tb_tensor)) + tb_carve_bytes(names_bytes);
}

static size_t scratch_bytes(uint64_t count)
{
    return 2 * tb_carve_bytes(count * sizeof(uint32_t));
}

struct block {
    struct tb_tensor *tensors;
    char *names;
    uint32_t *indexes; /* after the table and the names, so a copy can do without */
    uint32_t *scratch;
};

static bool block_carve(struct block *b, void *memory, size_t cap, uint64_t count, uint64_t names_bytes)
{
    struct tb_carve c = {memory, cap};
    TB_ASSERT((uintptr_t)memory % 16 == 0);
    b->tensors = tb_carve_take(&c, count * sizeof *b->tensors);
    b->names = tb_carve_take(&c, names_bytes);
    b->indexes = tb_carve_take(&c, count * sizeof *b->indexes);
    b->scratch = tb_carve_take(&c, count * sizeof *b->scratch);
    return b->tensors != NULL && b->names != NULL && b->indexes != NULL && b->scratch != NULL;
}

static uint64_t names_bytes_of(const struct tb_tensor *tensors, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += strnlen(tensors[i].name, TB_TENSOR_NAME_MAX + 1) + 1;
    return bytes;
}

size_t tb_layout_bytes_for(const struct tb_tensor *tensors, uint32_t count)
{
    return block_bytes(count, names_bytes_of(tensors, count)) + scratch_bytes(count);
}

/* A copy with unused axes zeroed, so that equal tensors are equal bytes; the name goes to
 * *names_io. */
static void tensor_copy(struct tb_tensor *to, const struct tb_tensor *from, char **names_io)
{
    const size_t name_bytes = strlen(from->name) + 1;
    TB_ASSERT(from->rank <= TB_RANK_MAX && name_bytes <= TB_TENSOR_NAME_MAX + 1);
    struct tb_tensor t = {.dtype = from->dtype,
                          .rank = from->rank,
                          .part = from->part,
                          .other.bits = from->other.bits,
                          .bytes = from->bytes,
                          .offset = from->offset};
    memcpy(t.full, from->full, from->rank * sizeof t.full[0]);
    memcpy(t.box_first, from->box_first, from->rank * sizeof t.box_first[0]);
    memcpy(t.box_count, from->box_count, from->rank * sizeof t.box_count[0]);
    memcpy(t.other.name, from->other.name, strnlen(from->other.name, TB_DTYPE_NAME_MAX));
    t.name = memcpy(*names_io, from->name, name_bytes);
    *names_io += name_bytes;
    *to = t;
}

/* Offsets and the total of tensors in packed order, whose bytes are known. */
static enum tb_status place_tensors(struct tb_tensor *tensors, uint32_t count, uint64_t *bytes_out)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        tensors[i].offset = at;
        at += tensors[i].bytes; /* each is at most 2^44, so no sum that passes the check below has wrapped */
        if (at > TB_SHARD_BYTES_MAX) return TB_TOO_LARGE;
    }
    TB_ASSERT(count == 0 || tensors[count - 1].offset + tensors[count - 1].bytes == at);
    *bytes_out = at;
    return TB_OK;
}

/* In packed order, so that equal ones follow one another within a unit. False: there are too
 * many. */
static bool others_count(const struct tb_tensor *tensors, uint32_t count, bool *any_out)
{
    uint32_t different = 0;
    const struct tb_tensor *last = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].dtype != TB_DTYPE_OTHER) continue;
        if (last == NULL || tb_tensor_dtype_compare(last, &tensors[i]) != 0) different++;
        last = &tensors[i];
    }
    *any_out = different > 0;
    return different <= TB_DTYPES_OTHER_MAX;
}

static void tensor_encode(const struct tb_tensor *t, struct tb_writer *w)
{
    TB_ASSERT(t->rank <= TB_RANK_MAX && (t->dtype != TB_DTYPE_OTHER || t->other.bits > 0));
    tb_write_u8(w, (uint8_t)t->dtype);
    tb_write_u8(w, (uint8_t)(t->rank | (t->part != 0 ? PART_FLAG : 0)));
    if (t->part != 0) tb_write_u16(w, t->part);
    if (t->dtype == TB_DTYPE_OTHER) {
        tb_write_u16(w, t->other.bits);
        tb_write_str(w, t->other.name);
    }
    tb_write_str(w, t->name);
    for (uint8_t i = 0; i < t->rank; i++) {
        tb_write_u64(w, t->full[i]);
        tb_write_u64(w, t->box_first[i]);
        tb_write_u64(w, t->box_count[i]);
    }
}

static struct tb_digest layout_id(const struct tb_layout *layout)
{
    struct tb_digest_state s;
    uint8_t bytes[TENSOR_WIRE_BYTES_MAX];
    struct tb_writer w;
    tb_digest_begin(&s);
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, layout->tensor_count);
    tb_digest_update(&s, bytes, w.used);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        tb_writer_init(&w, bytes, sizeof bytes);
        tensor_encode(&layout->tensors[i], &w);
        TB_ASSERT(!w.full);
        tb_digest_update(&s, bytes, w.used);
    }
    return tb_digest_end(&s);
}

/* Refuses what can be refused tensor by tensor, before anything is copied. */
static enum tb_status check_tensors(const struct tb_tensor *tensors, uint32_t count)
{
    if (count > TB_TENSORS_MAX) return TB_TOO_LARGE;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        if (!name_clean(tensors[i].name, strnlen(tensors[i].name, TB_TENSOR_NAME_MAX + 1)))
            return TB_BAD_ARGUMENT;
        const enum tb_status status = tb_tensor_measure(&tensors[i], &bytes);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

enum tb_status tb_layout_build(const struct tb_tensor *tensors, uint32_t count, void *memory, size_t cap,
                               struct tb_layout *layout_out)
{
    struct block b;
    enum tb_status status = check_tensors(tensors, count);
    if (status != TB_OK) return status;
    if (!block_carve(&b, memory, cap, count, names_bytes_of(tensors, count))) return TB_SITE_NOMEM;
    if (!names_unique(tensors, count, b.indexes, b.scratch)) return TB_BAD_ARGUMENT;

    const struct order o = {tensors, b.indexes, b.scratch, count, compare_packed};
    sort(&o);
    char *names = b.names;
    for (uint32_t i = 0; i < count; i++) {
        tensor_copy(&b.tensors[i], &tensors[b.indexes[i]], &names);
        status = tb_tensor_measure(&b.tensors[i], &b.tensors[i].bytes);
        TB_ASSERT(status == TB_OK); /* check_tensors said so */
    }
    TB_ASSERT((uint64_t)(names - b.names) == names_bytes_of(tensors, count));
    struct tb_layout layout = {.tensor_count = count, .tensors = b.tensors};
    if (!others_count(b.tensors, count, &layout.other_dtypes)) return TB_TOO_LARGE;
    status = place_tensors(b.tensors, count, &layout.bytes);
    if (status != TB_OK) return status;
    layout.id = layout_id(&layout);
    *layout_out = layout;
    return TB_OK;
}

const struct tb_tensor *tb_layout_find_like(const struct tb_layout *layout, const struct tb_tensor *like)
{
    uint32_t low = 0;
    uint32_t high = layout->tensor_count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const int c = compare_packed(&layout->tensors[mid], like);
        if (c == 0) return &layout->tensors[mid];
        if (c < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

uint16_t tb_layout_part_max(const struct tb_layout *layout)
{
    uint16_t most = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].part > most) most = layout->tensors[i].part;
    return most;
}

/* Index of the first tensor behind those that have the dtype of tensor i. */
static uint32_t dtype_end(const struct tb_layout *layout, uint32_t i)
{
    TB_ASSERT(i < layout->tensor_count);
    uint32_t low = i + 1, high = layout->tensor_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (tb_tensor_dtype_compare(&layout->tensors[middle], &layout->tensors[i]) == 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct tb_tensor *tb_layout_find(const struct tb_layout *layout, const char *name)
{
    /* Names are sorted inside a dtype only: one search for each of the few dtypes. */
    for (uint32_t i = 0; i < layout->tensor_count; i = dtype_end(layout, i)) {
        const struct tb_tensor wanted = {
            .name = name, .dtype = layout->tensors[i].dtype, .other = layout->tensors[i].other};
        const struct tb_tensor *t = tb_layout_find_like(layout, &wanted);
        if (t != NULL) return t;
    }
    return NULL;
}

uint32_t tb_layout_tensor_at(const struct tb_layout *layout, uint64_t offset)
{
    uint32_t low = 0, high = layout->tensor_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct tb_tensor *t = &layout->tensors[middle];
        if (t->offset + t->bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    TB_ASSERT(low == layout->tensor_count || layout->tensors[low].offset <= offset);
    return low;
}

enum tb_dtype tb_layout_dtype_at(const struct tb_layout *layout, uint64_t offset)
{
    const uint32_t i = tb_layout_tensor_at(layout, offset);
    return i < layout->tensor_count ? tb_tensor_codec_dtype(&layout->tensors[i]) : TB_DTYPE_U8;
}

size_t tb_layout_copy_bytes(const struct tb_layout *layout)
{
    return block_bytes(layout->tensor_count, names_bytes_of(layout->tensors, layout->tensor_count));
}

enum tb_status tb_layout_copy(const struct tb_layout *layout, void *memory, size_t cap,
                              struct tb_layout *layout_out)
{
    struct tb_carve c = {memory, cap};
    TB_ASSERT((uintptr_t)memory % 16 == 0);
    struct tb_tensor *tensors = tb_carve_take(&c, layout->tensor_count * sizeof *tensors);
    char *names = tb_carve_take(&c, names_bytes_of(layout->tensors, layout->tensor_count));
    if (tensors == NULL || names == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < layout->tensor_count; i++)
        tensor_copy(&tensors[i], &layout->tensors[i], &names);
    *layout_out = *layout;
    layout_out->tensors = tensors;
    layout_out->encoded = NULL; /* it may go with the one that was copied */
    layout_out->encoded_bytes = 0;
    layout_out->cut = NULL;
    layout_out->cut_count = 0;
    return TB_OK;
}

size_t tb_layout_encoded_bytes(const struct tb_layout *layout)
{
    if (layout->encoded != NULL) return layout->encoded_bytes;
    size_t bytes = 4;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct tb_tensor *t = &layout->tensors[i];
        bytes += (t->part != 0 ? 6 : 4) + strlen(t->name) + (size_t)t->rank * 24;
        if (t->dtype == TB_DTYPE_OTHER) bytes += 4 + strlen(t->other.name);
    }
    return bytes;
}

void tb_layout_encode(const struct tb_layout *layout, struct tb_writer *w)
{
    if (layout->encoded != NULL) {
        tb_write_bytes(w, layout->encoded, layout->encoded_bytes);
        return;
    }
    const size_t before = w->used;
    tb_write_u32(w, layout->tensor_count);
    for (uint32_t i = 0; i < layout->tensor_count; i++)
        tensor_encode(&layout->tensors[i], w);
    TB_ASSERT(w->full || w->used - before == tb_layout_encoded_bytes(layout));
}

/* The count, if as many tensors can stand in what is left. */
static bool count_decode(struct tb_reader *r, uint32_t *count_out)
{
    const uint32_t count = tb_read_u32(r);
    if (r->bad || count > TB_TENSORS_MAX || count > r->left / TENSOR_WIRE_BYTES_MIN) return false;
    *count_out = count;
    return true;
}

/* A tensor as it stands on the wire, where its name has no NUL. */
struct wire_tensor {
    struct tb_tensor tensor; /* all but name and offset */
    const uint8_t *name;     /* borrowed */
    uint16_t name_bytes;
};

/* Whether it is a dtype is measure's to say. */
static bool other_decode(struct tb_reader *r, struct tb_dtype_other *o)
{
    o->bits = tb_read_u16(r);
    const uint16_t count = tb_read_u16(r);
    const uint8_t *name = tb_read_span(r, count);
    if (r->bad || count > TB_DTYPE_NAME_MAX || memchr(name, '\0', count) != NULL) return false;
    memcpy(o->name, name, count);
    return true;
}

static bool tensor_decode(struct tb_reader *r, struct wire_tensor *w_out)
{
    struct tb_tensor t = {.dtype = (enum tb_dtype)tb_read_u8(r)};
    t.rank = tb_read_u8(r);
    if (t.rank & PART_FLAG) {
        t.rank &= (uint8_t)~PART_FLAG;
        t.part = tb_read_u16(r);
        if (t.part == 0) return false;
    }
    if (t.dtype == TB_DTYPE_OTHER && !other_decode(r, &t.other)) return false;
    w_out->name_bytes = tb_read_u16(r);
    w_out->name = tb_read_span(r, w_out->name_bytes);
    if (r->bad || t.rank > TB_RANK_MAX || !name_clean(w_out->name, w_out->name_bytes)) return false;
    for (uint8_t i = 0; i < t.rank; i++) {
        t.full[i] = tb_read_u64(r);
        t.box_first[i] = tb_read_u64(r);
        t.box_count[i] = tb_read_u64(r);
    }
    if (r->bad || tb_tensor_measure(&t, &t.bytes) != TB_OK) return false;
    w_out->tensor = t;
    return true;
}

struct survey {
    uint32_t count;
    uint64_t names_bytes; /* with a NUL each */
    uint64_t bytes;       /* of the tensors */
};

/* False when this is no layout. */
static bool survey(const void *encoded, size_t encoded_bytes, struct survey *s_out)
{
    struct tb_reader r;
    struct wire_tensor t;
    struct survey s = {0, 0, 0};
    tb_reader_init(&r, encoded, encoded_bytes);
    if (!count_decode(&r, &s.count)) return false;
    for (uint32_t i = 0; i < s.count; i++) {
        if (!tensor_decode(&r, &t)) return false;
        s.names_bytes += (uint64_t)t.name_bytes + 1;
        s.bytes += t.tensor.bytes;
        if (s.bytes > TB_SHARD_BYTES_MAX) return false;
    }
    *s_out = s;
    return tb_reader_ended(&r);
}

bool tb_layout_survey(const void *encoded, size_t encoded_bytes, uint32_t *tensor_count_out,
                      uint64_t *bytes_out)
{
    struct survey s;
    if (!survey(encoded, encoded_bytes, &s)) return false;
    *tensor_count_out = s.count;
    *bytes_out = s.bytes;
    return true;
}

size_t tb_layout_decode_bytes(const void *encoded, size_t encoded_bytes)
{
    struct survey s;
    if (!survey(encoded, encoded_bytes, &s)) return 0;
    const size_t bytes = block_bytes(s.count, s.names_bytes) + scratch_bytes(s.count);
    return bytes > 0 ? bytes : 16; /* 0 says "not a layout", and the empty layout is one */
}

/* The tensors into the block, in the order in which they came. */
static void fill(struct block *b, const void *encoded, size_t encoded_bytes)
{
    struct tb_reader r;
    struct wire_tensor t;
    uint32_t count = 0;
    char *names = b->names;
    tb_reader_init(&r, encoded, encoded_bytes);
    bool good = count_decode(&r, &count);
    TB_ASSERT(good); /* survey has been here */
    for (uint32_t i = 0; i < count; i++) {
        good = tensor_decode(&r, &t);
        TB_ASSERT(good);
        t.tensor.name = memcpy(names, t.name, t.name_bytes);
        names[t.name_bytes] = '\0';
        names += (size_t)t.name_bytes + 1;
        b->tensors[i] = t.tensor;
    }
}

static bool in_packed_order(const struct tb_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (compare_packed(&tensors[i - 1], &tensors[i]) >= 0) return false;
    }
    return true;
}

enum tb_status tb_layout_decode(const void *encoded, size_t encoded_bytes, void *memory, size_t cap,
                                struct tb_layout *layout_out)
{
    struct block b;
    struct survey s;
    if (!survey(encoded, encoded_bytes, &s)) return TB_PEER_GARBLED;
    if (!block_carve(&b, memory, cap, s.count, s.names_bytes)) return TB_SITE_NOMEM;
    struct tb_layout layout = {.tensor_count = s.count};
    fill(&b, encoded, encoded_bytes);
    if (!in_packed_order(b.tensors, layout.tensor_count)) return TB_PEER_GARBLED;
    if (!names_unique(b.tensors, layout.tensor_count, b.indexes, b.scratch)) return TB_PEER_GARBLED;
    if (!others_count(b.tensors, layout.tensor_count, &layout.other_dtypes)) return TB_PEER_GARBLED;
    if (place_tensors(b.tensors, layout.tensor_count, &layout.bytes) != TB_OK) return TB_PEER_GARBLED;
    TB_ASSERT(layout.bytes == s.bytes); /* which survey has bounded */
    layout.tensors = b.tensors;
    layout.id = tb_digest_of(encoded, encoded_bytes); /* what was decoded is what encode would write */
    *layout_out = layout;
    return TB_OK;
}
