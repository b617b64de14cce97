/* safetensors_json.c - the JSON of a safetensors header, as a table of what may follow what. */
#include "gateway/disk/safetensors_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/dtype.h"
#include "base/layout/layout.h"
#include "base/layout/tensor.h"

enum state {
    START,
    TOP,
    META_OPEN,
    META,
    META_VALUE,
    TENSOR_OPEN,
    TENSOR,
    DTYPE,
    SHAPE_OPEN,
    SHAPE,
    OFFSETS_OPEN,
    OFFSETS,
    DONE
};
enum event { MAP, END_MAP, ARRAY, END_ARRAY, KEY, STRING, NUMBER, OTHER };
enum field { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELD_ALL = 7 };

struct text {
    const char *bytes;
    size_t count;
};

struct tb_safetensors_shown tb_safetensors_show(const char *bytes, size_t count)
{
    struct tb_safetensors_shown s;
    size_t used = 0;
    for (size_t i = 0; i < count && i < 60; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool plain = c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
        used += (size_t)snprintf(s.text + used, sizeof s.text - used, plain ? "%c" : "\\x%02x", c);
    }
    TB_ASSERT(used + sizeof "..." <= sizeof s.text);
    (void)snprintf(s.text + used, sizeof s.text - used, "%s", count > 60 ? "..." : "");
    return s;
}

bool tb_safetensors_refuse(struct tb_safetensors_parse *p, enum tb_status status, const char *format, ...)
{
    if (p->status != TB_OK) return false;
    TB_ASSERT(status != TB_OK);
    p->status = status;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(p->what, sizeof p->what, format, arguments);
    va_end(arguments);
    return false;
}

static bool refuse_tensor(struct tb_safetensors_parse *p, enum tb_status status,
                          const struct tb_safetensors_tensor *t, const char *why)
{
    return tb_safetensors_refuse(p, status, "tensor \"%s\" %s",
                                 tb_safetensors_show(t->name, strlen(t->name)).text, why);
}

/* ---- the parts of a header ---- */

static const char *keep_name(struct tb_safetensors_parse *p, struct text t)
{
    char *name = p->names + p->names_used;
    TB_ASSERT(t.count < p->names_bytes - p->names_used); /* in the JSON it has two quotes, here one NUL */
    memcpy(name, t.bytes, t.count);
    name[t.count] = '\0';
    p->names_used += t.count + 1;
    return name;
}

static bool name_is_clean(struct text t)
{
    for (size_t i = 0; i < t.count; i++) {
        const unsigned char c = (unsigned char)t.bytes[i];
        if (c < 0x20 || c == 0x7f) return false;
    }
    return t.count > 0;
}

static bool text_is(struct text t, const char *word)
{
    return t.count == strlen(word) && memcmp(t.bytes, word, t.count) == 0;
}

/* Grows a table of `size`-byte rows to hold one more. */
static bool grow(struct tb_safetensors_parse *p, void **rows, uint32_t count, uint32_t *cap, size_t size)
{
    TB_ASSERT(count <= *cap && (*rows != NULL || *cap == 0));
    if (count < *cap) return true;
    const uint32_t more = *cap == 0 ? 64 : *cap * 2;
    void *larger = tb_realloc(*rows, more * size);
    if (larger == NULL)
        return tb_safetensors_refuse(p, TB_SITE_NOMEM, "no memory for a table of %" PRIu32 " entries", more);
    *rows = larger;
    *cap = more;
    return true;
}

static bool on_name(struct tb_safetensors_parse *p, struct text t)
{
    if (text_is(t, "__metadata__")) {
        if (p->meta_seen) return tb_safetensors_refuse(p, TB_BAD_FILE, "__metadata__ stands there twice");
        p->meta_seen = true;
        p->state = META_OPEN;
        return true;
    }
    if (!name_is_clean(t))
        return tb_safetensors_refuse(p, TB_BAD_FILE, "tensor name \"%s\" is empty or has control characters",
                                     tb_safetensors_show(t.bytes, t.count).text);
    if (t.count > TB_TENSOR_NAME_MAX)
        return tb_safetensors_refuse(p, TB_TOO_LARGE,
                                     "tensor name \"%s\" has %zu bytes, at most %d are allowed",
                                     tb_safetensors_show(t.bytes, t.count).text, t.count, TB_TENSOR_NAME_MAX);
    if (p->tensor_count >= TB_TENSORS_MAX)
        return tb_safetensors_refuse(p, TB_TOO_LARGE, "more than %d tensors", TB_TENSORS_MAX);
    memset(&p->now, 0, sizeof p->now);
    p->now.name = keep_name(p, t);
    p->fields = 0;
    p->opaque = false;
    p->offsets_count = 0;
    p->state = TENSOR_OPEN;
    return true;
}

static bool on_meta_key(struct tb_safetensors_parse *p, struct text t)
{
    if (p->meta_count >= TB_SAFETENSORS_METADATA_MAX)
        return tb_safetensors_refuse(p, TB_TOO_LARGE, "more than %d entries in __metadata__",
                                     TB_SAFETENSORS_METADATA_MAX);
    void *rows = p->meta;
    if (!grow(p, &rows, p->meta_count, &p->meta_cap, sizeof *p->meta)) return false;
    p->meta = rows;
    /* A key may hold a NUL; what follows it is then not compared, which can only refuse too
     * much. */
    p->meta[p->meta_count++] = keep_name(p, t);
    p->state = META_VALUE;
    return true;
}

static bool on_field(struct tb_safetensors_parse *p, struct text t)
{
    static const struct {
        const char *word;
        enum field field;
        enum state next;
    } fields[] = {
        {"dtype", FIELD_DTYPE, DTYPE},
        {"shape", FIELD_SHAPE, SHAPE_OPEN},
        {"data_offsets", FIELD_OFFSETS, OFFSETS_OPEN},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!text_is(t, fields[i].word)) continue;
        if (p->fields & fields[i].field)
            return tb_safetensors_refuse(p, TB_BAD_FILE, "tensor \"%s\" has %s twice",
                                         tb_safetensors_show(p->now.name, strlen(p->now.name)).text,
                                         fields[i].word);
        p->fields |= fields[i].field;
        p->state = fields[i].next;
        return true;
    }
    return tb_safetensors_refuse(
        p, TB_BAD_FILE, "tensor \"%s\" has a field \"%s\"; only dtype, shape and data_offsets are known",
        tb_safetensors_show(p->now.name, strlen(p->now.name)).text,
        tb_safetensors_show(t.bytes, t.count).text);
}

static bool on_dtype(struct tb_safetensors_parse *p, struct text t)
{
    char word[TB_DTYPE_NAME_MAX + sizeof ":8"] = "";
    struct tb_tensor known = {0};
    const bool plain = memchr(t.bytes, ':', t.count) == NULL && memchr(t.bytes, '\0', t.count) == NULL;
    if (plain && t.count <= TB_DTYPE_NAME_MAX) memcpy(word, t.bytes, t.count);
    p->opaque = !tb_tensor_set_dtype(&known, word);
    if (p->opaque) memcpy(word + strlen(word), ":8", sizeof ":8");
    if (p->opaque && !tb_tensor_set_dtype(&known, word))
        return tb_safetensors_refuse(
            p, TB_BAD_FILE, "tensor \"%s\" has dtype \"%s\"; a dtype is 1 to %d of A-Z a-z 0-9 . _ -",
            tb_safetensors_show(p->now.name, strlen(p->now.name)).text,
            tb_safetensors_show(t.bytes, t.count).text, TB_DTYPE_NAME_MAX);
    p->now.dtype = known.dtype;
    p->now.other = known.other;
    p->now.dtype_text = keep_name(p, (struct text){word, strlen(word)});
    p->state = TENSOR;
    return true;
}

/* Digits only: no sign, fraction or exponent, and below 2^64. */
static bool number_of(struct text t, uint64_t *value_out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < t.count; i++) {
        if (t.bytes[i] < '0' || t.bytes[i] > '9') return false;
        if (__builtin_mul_overflow(value, 10u, &value)) return false;
        if (__builtin_add_overflow(value, (uint64_t)(t.bytes[i] - '0'), &value)) return false;
    }
    *value_out = value;
    return t.count > 0;
}

static bool on_dimension(struct tb_safetensors_parse *p, struct text t)
{
    TB_ASSERT(p->now.rank <= TB_RANK_MAX);
    if (p->now.rank == TB_RANK_MAX)
        return refuse_tensor(p, TB_TOO_LARGE, &p->now, "has more than 8 dimensions");
    if (!number_of(t, &p->now.shape[p->now.rank]))
        return refuse_tensor(p, TB_BAD_FILE, &p->now,
                             "has a dimension that is not a whole number below 2^64");
    p->now.rank++;
    return true;
}

static bool on_offset(struct tb_safetensors_parse *p, struct text t)
{
    uint64_t value = 0;
    TB_ASSERT(p->offsets_count <= 2);
    if (p->offsets_count == 2)
        return refuse_tensor(p, TB_BAD_FILE, &p->now, "has more than two data_offsets");
    if (!number_of(t, &value))
        return refuse_tensor(p, TB_BAD_FILE, &p->now,
                             "has a data_offset that is not a whole number below 2^64");
    if (p->offsets_count++ == 0)
        p->now.begin = value;
    else
        p->now.end = value;
    return true;
}

static bool on_offsets_end(struct tb_safetensors_parse *p, struct text t)
{
    (void)t;
    if (p->offsets_count != 2)
        return refuse_tensor(p, TB_BAD_FILE, &p->now, "has fewer than two data_offsets");
    p->state = TENSOR;
    return true;
}

/* Bytes of the shape; false on overflow. A dimension of 0 makes it 0 whatever the others are. */
static bool shape_bytes(const struct tb_safetensors_tensor *t, uint64_t *bytes_out)
{
    const struct tb_tensor dtype = {.dtype = t->dtype, .other = t->other};
    const uint32_t bits = tb_tensor_bits(&dtype);
    uint64_t units = bits % 8 == 0 ? bits / 8 : bits; /* bytes, or bits where an element is no whole byte */
    bool overflow = false;
    for (uint8_t i = 0; i < t->rank; i++) {
        if (t->shape[i] == 0) {
            *bytes_out = 0;
            return true;
        }
        overflow |= __builtin_mul_overflow(units, t->shape[i], &units);
    }
    *bytes_out = bits % 8 == 0 ? units : units / 8 + (units % 8 != 0);
    return !overflow;
}

/* All that is known of an opaque tensor is how many bytes it has. */
static void make_opaque(struct tb_safetensors_tensor *t)
{
    TB_ASSERT(t->end >= t->begin);
    memset(t->shape, 0, sizeof t->shape);
    t->rank = 1;
    t->shape[0] = t->end - t->begin;
}

static bool on_tensor_end(struct tb_safetensors_parse *p, struct text t)
{
    (void)t;
    uint64_t bytes = 0;
    struct tb_safetensors_tensor *now = &p->now;
    if (p->fields != FIELD_ALL)
        return refuse_tensor(p, TB_BAD_FILE, now, "lacks dtype, shape or data_offsets");
    if (now->end < now->begin) return refuse_tensor(p, TB_BAD_FILE, now, "ends before it begins");
    if (p->opaque) make_opaque(now);
    if (!shape_bytes(now, &bytes))
        return refuse_tensor(p, TB_BAD_FILE, now, "has a shape whose size is over 2^64 bytes");
    if (bytes != now->end - now->begin)
        return tb_safetensors_refuse(
            p, TB_BAD_FILE,
            "tensor \"%s\" takes %" PRIu64 " bytes by shape and dtype, but %" PRIu64 " by data_offsets",
            tb_safetensors_show(now->name, strlen(now->name)).text, bytes, now->end - now->begin);
    void *rows = p->tensors;
    if (!grow(p, &rows, p->tensor_count, &p->tensor_cap, sizeof *p->tensors)) return false;
    p->tensors = rows;
    p->tensors[p->tensor_count++] = *now;
    p->state = TOP;
    return true;
}

/* ---- what may follow what ---- */

/* The table is the whole truth: a pair that is not here is the file's fault, and since no row nests
 * deeper than three, neither can a file. A row without a function only moves on; a function moves
 * itself where the text decides. */
#define ROWS(ROW)                                                                                            \
    /*  in state      on event   do              then    */                                                  \
    ROW(START, MAP, NULL, TOP)                                                                               \
    ROW(TOP, KEY, on_name, TOP)                                                                              \
    ROW(TOP, END_MAP, NULL, DONE)                                                                            \
    ROW(META_OPEN, MAP, NULL, META)                                                                          \
    ROW(META, KEY, on_meta_key, META)                                                                        \
    ROW(META_VALUE, STRING, NULL, META)                                                                      \
    ROW(META, END_MAP, NULL, TOP)                                                                            \
    ROW(TENSOR_OPEN, MAP, NULL, TENSOR)                                                                      \
    ROW(TENSOR, KEY, on_field, TENSOR)                                                                       \
    ROW(DTYPE, STRING, on_dtype, TENSOR)                                                                     \
    ROW(SHAPE_OPEN, ARRAY, NULL, SHAPE)                                                                      \
    ROW(SHAPE, NUMBER, on_dimension, SHAPE)                                                                  \
    ROW(SHAPE, END_ARRAY, NULL, TENSOR)                                                                      \
    ROW(OFFSETS_OPEN, ARRAY, NULL, OFFSETS)                                                                  \
    ROW(OFFSETS, NUMBER, on_offset, OFFSETS)                                                                 \
    ROW(OFFSETS, END_ARRAY, on_offsets_end, TENSOR)                                                          \
    ROW(TENSOR, END_MAP, on_tensor_end, TOP)

struct row {
    enum state in;
    enum event on;
    bool (*act)(struct tb_safetensors_parse *p, struct text t);
    enum state then;
};

static const struct row rows[] = {
#define ROW_ENTRY(in, on, act, then) {in, on, act, then},
    ROWS(ROW_ENTRY)
#undef ROW_ENTRY
};

static const char *const expected[] = {
    [START] = "an object",
    [TOP] = "a tensor's name",
    [META_OPEN] = "an object of strings for __metadata__",
    [META] = "a key of __metadata__",
    [META_VALUE] = "a string for a key of __metadata__",
    [TENSOR_OPEN] = "an object for a tensor",
    [TENSOR] = "dtype, shape or data_offsets",
    [DTYPE] = "a string for dtype",
    [SHAPE_OPEN] = "a list of numbers for shape",
    [SHAPE] = "a number in shape",
    [OFFSETS_OPEN] = "a list of two numbers for data_offsets",
    [OFFSETS] = "a number in data_offsets",
    [DONE] = "the end of the header",
};

static int step(struct tb_safetensors_parse *p, enum event event, struct text t)
{
    TB_ASSERT(p->state <= DONE);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].in != p->state || rows[i].on != event) continue;
        if (rows[i].act != NULL) return rows[i].act(p, t);
        p->state = rows[i].then;
        return 1;
    }
    return tb_safetensors_refuse(p, TB_BAD_FILE, "expected %s", expected[p->state]);
}

static int on_null(void *ctx)
{
    return step(ctx, OTHER, (struct text){"", 0});
}
static int on_boolean(void *ctx, int value)
{
    (void)value;
    return step(ctx, OTHER, (struct text){"", 0});
}
static int on_number(void *ctx, const char *bytes, size_t count)
{
    return step(ctx, NUMBER, (struct text){bytes, count});
}
static int on_string(void *ctx, const unsigned char *bytes, size_t count)
{
    return step(ctx, STRING, (struct text){(const char *)bytes, count});
}
static int on_key(void *ctx, const unsigned char *bytes, size_t count)
{
    return step(ctx, KEY, (struct text){(const char *)bytes, count});
}
static int on_map(void *ctx)
{
    return step(ctx, MAP, (struct text){"", 0});
}
static int on_end_map(void *ctx)
{
    return step(ctx, END_MAP, (struct text){"", 0});
}
static int on_array(void *ctx)
{
    return step(ctx, ARRAY, (struct text){"", 0});
}
static int on_end_array(void *ctx)
{
    return step(ctx, END_ARRAY, (struct text){"", 0});
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_number = on_number, /* as text: no double in between */
    .yajl_string = on_string,
    .yajl_start_map = on_map,
    .yajl_map_key = on_key,
    .yajl_end_map = on_end_map,
    .yajl_start_array = on_array,
    .yajl_end_array = on_end_array,
};

/* yajl's first line, without its own "parse error: " and the newline. */
static void refuse_json(struct tb_safetensors_parse *p, yajl_handle yajl)
{
    unsigned char *why = yajl_get_error(yajl, 0, NULL, 0);
    const char *text = why == NULL                        ? "not JSON"
                       : strchr((char *)why, ':') != NULL ? strchr((char *)why, ':') + 2
                                                          : (char *)why;
    (void)tb_safetensors_refuse(p, TB_BAD_FILE, "not JSON: %.*s", (int)strcspn(text, "\n"), text);
    yajl_free_error(yajl, why);
}

bool tb_safetensors_read(struct tb_safetensors_parse *p, const uint8_t *json, size_t bytes, uint64_t *at_out)
{
    /* yajl takes memory past our fault points, because it does not look whether it got any. The
     * longest string of the header bounds that memory. */
    yajl_handle yajl = yajl_alloc(&callbacks, NULL, p);
    if (yajl == NULL) return tb_safetensors_refuse(p, TB_SITE_NOMEM, "no memory for the parser");
    yajl_status said = yajl_parse(yajl, json, bytes);
    *at_out = yajl_get_bytes_consumed(yajl) + TB_SAFETENSORS_PREFIX_BYTES;
    if (said == yajl_status_ok) said = yajl_complete_parse(yajl);
    if (said != yajl_status_ok && p->status == TB_OK) refuse_json(p, yajl);
    yajl_free(yajl);
    if (p->status == TB_OK && p->state != DONE) {
        *at_out = 0; /* it is not about a byte */
        return tb_safetensors_refuse(p, TB_BAD_FILE, "the header ends too early");
    }
    return p->status == TB_OK;
}
