/* safetensors.c - the header of a safetensors file, as a table of what may follow
 * what. See safetensors.h. */
#include "gateway/disk/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "base/bytes.h"
#include "base/fault.h"

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

struct parse {
    enum state state;
    enum tb_status status; /* TB_OK until something is wrong */
    char what[TB_SAFETENSORS_ERROR_BYTES - 128];
    char *names; /* as large as the header: no name can take more */
    size_t names_used;
    struct tb_safetensors_tensor *tensors;
    uint32_t tensor_count;
    uint32_t tensor_cap;
    const char **meta; /* keys of __metadata__ */
    uint32_t meta_count;
    uint32_t meta_cap;
    bool meta_seen;
    struct tb_safetensors_tensor now; /* the tensor whose object is open */
    unsigned fields;                  /* of it, seen so far */
    bool opaque;                      /* its dtype is not known */
    uint32_t offsets_count;
};

/* ---- saying what is wrong ---- */

/* A stranger's text for a person: at most 60 bytes, control characters and quotes as \xNN. */
struct shown {
    char text[256];
};

static struct shown show(const char *bytes, size_t count)
{
    struct shown s;
    size_t used = 0;
    for (size_t i = 0; i < count && i < 60; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool plain = c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
        used += (size_t)snprintf(s.text + used, sizeof s.text - used, plain ? "%c" : "\\x%02x", c);
    }
    (void)snprintf(s.text + used, sizeof s.text - used, "%s", count > 60 ? "..." : "");
    return s;
}

/* The first complaint stays. Always false, so that handlers can return it. */
__attribute__((format(printf, 3, 4))) static bool refuse(struct parse *p, enum tb_status status,
                                                         const char *format, ...)
{
    if (p->status != TB_OK) return false;
    p->status = status;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(p->what, sizeof p->what, format, arguments);
    va_end(arguments);
    return false;
}

static bool refuse_tensor(struct parse *p, enum tb_status status, const struct tb_safetensors_tensor *t,
                          const char *why)
{
    return refuse(p, status, "tensor \"%s\" %s", show(t->name, strlen(t->name)).text, why);
}

/* ---- the parts of a header ---- */

static const char *keep_name(struct parse *p, struct text t)
{
    char *name = p->names + p->names_used;
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
static bool grow(struct parse *p, void **rows, uint32_t count, uint32_t *cap, size_t size)
{
    if (count < *cap) return true;
    const uint32_t more = *cap == 0 ? 64 : *cap * 2;
    void *larger = tb_realloc(*rows, more * size);
    if (larger == NULL) return refuse(p, TB_SITE_NOMEM, "no memory for a table of %" PRIu32 " entries", more);
    *rows = larger;
    *cap = more;
    return true;
}

static bool on_name(struct parse *p, struct text t)
{
    if (text_is(t, "__metadata__")) {
        if (p->meta_seen) return refuse(p, TB_BAD_FILE, "__metadata__ stands there twice");
        p->meta_seen = true;
        p->state = META_OPEN;
        return true;
    }
    if (!name_is_clean(t))
        return refuse(p, TB_BAD_FILE, "tensor name \"%s\" is empty or has control characters",
                      show(t.bytes, t.count).text);
    if (t.count > TB_TENSOR_NAME_MAX)
        return refuse(p, TB_TOO_LARGE, "tensor name \"%s\" has %zu bytes, at most %d are allowed",
                      show(t.bytes, t.count).text, t.count, TB_TENSOR_NAME_MAX);
    if (p->tensor_count >= TB_TENSORS_MAX)
        return refuse(p, TB_TOO_LARGE, "more than %d tensors", TB_TENSORS_MAX);
    memset(&p->now, 0, sizeof p->now);
    p->now.name = keep_name(p, t);
    p->fields = 0;
    p->opaque = false;
    p->offsets_count = 0;
    p->state = TENSOR_OPEN;
    return true;
}

static bool on_meta_key(struct parse *p, struct text t)
{
    if (p->meta_count >= TB_SAFETENSORS_METADATA_MAX)
        return refuse(p, TB_TOO_LARGE, "more than %d entries in __metadata__", TB_SAFETENSORS_METADATA_MAX);
    void *rows = p->meta;
    if (!grow(p, &rows, p->meta_count, &p->meta_cap, sizeof *p->meta)) return false;
    p->meta = rows;
    /* A key may hold a NUL; what follows it is then not compared, which can only refuse too
     * much. */
    p->meta[p->meta_count++] = keep_name(p, t);
    p->state = META_VALUE;
    return true;
}

static bool on_field(struct parse *p, struct text t)
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
            return refuse(p, TB_BAD_FILE, "tensor \"%s\" has %s twice",
                          show(p->now.name, strlen(p->now.name)).text, fields[i].word);
        p->fields |= fields[i].field;
        p->state = fields[i].next;
        return true;
    }
    return refuse(p, TB_BAD_FILE,
                  "tensor \"%s\" has a field \"%s\"; only dtype, shape and data_offsets are known",
                  show(p->now.name, strlen(p->now.name)).text, show(t.bytes, t.count).text);
}

static bool on_dtype(struct parse *p, struct text t)
{
    char word[TB_DTYPE_NAME_MAX + sizeof ":8"] = "";
    struct tb_tensor known = {0};
    const bool plain = memchr(t.bytes, ':', t.count) == NULL && memchr(t.bytes, '\0', t.count) == NULL;
    if (plain && t.count <= TB_DTYPE_NAME_MAX) memcpy(word, t.bytes, t.count);
    p->opaque = !tb_tensor_set_dtype(&known, word);
    if (p->opaque) memcpy(word + strlen(word), ":8", sizeof ":8");
    if (p->opaque && !tb_tensor_set_dtype(&known, word))
        return refuse(
            p, TB_BAD_FILE, "tensor \"%s\" has dtype \"%s\"; a dtype is 1 to %d of A-Z a-z 0-9 . _ -",
            show(p->now.name, strlen(p->now.name)).text, show(t.bytes, t.count).text, TB_DTYPE_NAME_MAX);
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

static bool on_dimension(struct parse *p, struct text t)
{
    if (p->now.rank == TB_RANK_MAX)
        return refuse_tensor(p, TB_TOO_LARGE, &p->now, "has more than 8 dimensions");
    if (!number_of(t, &p->now.shape[p->now.rank]))
        return refuse_tensor(p, TB_BAD_FILE, &p->now,
                             "has a dimension that is not a whole number below 2^64");
    p->now.rank++;
    return true;
}

static bool on_offset(struct parse *p, struct text t)
{
    uint64_t value = 0;
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

static bool on_offsets_end(struct parse *p, struct text t)
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
    memset(t->shape, 0, sizeof t->shape);
    t->rank = 1;
    t->shape[0] = t->end - t->begin;
}

static bool on_tensor_end(struct parse *p, struct text t)
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
        return refuse(p, TB_BAD_FILE,
                      "tensor \"%s\" takes %" PRIu64 " bytes by shape and dtype, but %" PRIu64
                      " by data_offsets",
                      show(now->name, strlen(now->name)).text, bytes, now->end - now->begin);
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
    bool (*act)(struct parse *p, struct text t);
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

static int step(struct parse *p, enum event event, struct text t)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].in != p->state || rows[i].on != event) continue;
        if (rows[i].act != NULL) return rows[i].act(p, t);
        p->state = rows[i].then;
        return 1;
    }
    return refuse(p, TB_BAD_FILE, "expected %s", expected[p->state]);
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

/* ---- the whole ---- */

static int by_place(const void *left, const void *right)
{
    const struct tb_safetensors_tensor *a = left;
    const struct tb_safetensors_tensor *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Every byte of the data belongs to exactly one tensor. */
static bool check_places(struct parse *p, uint64_t *data_bytes)
{
    if (p->tensor_count > 0) qsort(p->tensors, p->tensor_count, sizeof *p->tensors, by_place);
    const bool known = *data_bytes != TB_SAFETENSORS_BYTES_UNKNOWN;
    uint64_t at = 0;
    for (uint32_t i = 0; i < p->tensor_count; i++) {
        const struct tb_safetensors_tensor *t = &p->tensors[i];
        if (known && t->end > *data_bytes)
            return refuse(p, TB_BAD_FILE,
                          "tensor \"%s\" ends at data byte %" PRIu64 ", but there are %" PRIu64
                          " (is the file cut short?)",
                          show(t->name, strlen(t->name)).text, t->end, *data_bytes);
        if (t->begin < at)
            return refuse(p, TB_BAD_FILE, "tensors \"%s\" and \"%s\" overlap at data byte %" PRIu64,
                          show(p->tensors[i - 1].name, strlen(p->tensors[i - 1].name)).text,
                          show(t->name, strlen(t->name)).text, t->begin);
        if (t->begin > at)
            return refuse(p, TB_BAD_FILE,
                          "data bytes %" PRIu64 " to %" PRIu64 " before tensor \"%s\" belong to no tensor",
                          at, t->begin, show(t->name, strlen(t->name)).text);
        at = t->end;
    }
    if (!known) *data_bytes = at;
    if (at != *data_bytes)
        return refuse(p, TB_BAD_FILE, "%" PRIu64 " bytes behind the last tensor belong to no tensor",
                      *data_bytes - at);
    if (*data_bytes > TB_SHARD_BYTES_MAX)
        return refuse(p, TB_TOO_LARGE, "%" PRIu64 " bytes of tensors are more than a shard may have",
                      *data_bytes);
    return true;
}

static bool check_unique(struct parse *p, const char **names, uint32_t count, const char *what)
{
    if (count > 0) qsort(names, count, sizeof *names, by_text);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return refuse(p, TB_BAD_FILE, "%s \"%s\" stands there twice", what,
                          show(names[i], strlen(names[i])).text);
    return true;
}

static bool check_names(struct parse *p)
{
    if (!check_unique(p, p->meta, p->meta_count, "__metadata__ key")) return false;
    const char **names = tb_calloc(p->tensor_count + 1u, sizeof *names);
    if (names == NULL) return refuse(p, TB_SITE_NOMEM, "no memory for %" PRIu32 " names", p->tensor_count);
    for (uint32_t i = 0; i < p->tensor_count; i++)
        names[i] = p->tensors[i].name;
    const bool unique = check_unique(p, names, p->tensor_count, "tensor");
    tb_free(names);
    return unique;
}

/* yajl's own check lets overlong forms pass. */
static bool check_utf8(struct parse *p, const uint8_t *json, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        const size_t length = tb_utf8_decode(json + at, bytes - at, &code);
        if (length == 0)
            return refuse(p, TB_BAD_FILE, "byte %zu of the file is not UTF-8",
                          at + TB_SAFETENSORS_PREFIX_BYTES);
        at += length;
    }
    return true;
}

/* yajl's first line, without its own "parse error: " and the newline. */
static void refuse_json(struct parse *p, yajl_handle yajl)
{
    unsigned char *why = yajl_get_error(yajl, 0, NULL, 0);
    const char *text = why == NULL                        ? "not JSON"
                       : strchr((char *)why, ':') != NULL ? strchr((char *)why, ':') + 2
                                                          : (char *)why;
    (void)refuse(p, TB_BAD_FILE, "not JSON: %.*s", (int)strcspn(text, "\n"), text);
    yajl_free_error(yajl, why);
}

/* Where in the file the parser stopped goes to *at_out. */
static bool run_yajl(struct parse *p, const uint8_t *json, size_t bytes, uint64_t *at_out)
{
    /* yajl takes memory past our fault points, because it does not look whether it got any. What it
     * takes is bounded by the longest string of the header. */
    yajl_handle yajl = yajl_alloc(&callbacks, NULL, p);
    if (yajl == NULL) return refuse(p, TB_SITE_NOMEM, "no memory for the parser");
    yajl_status said = yajl_parse(yajl, json, bytes);
    *at_out = yajl_get_bytes_consumed(yajl) + TB_SAFETENSORS_PREFIX_BYTES;
    if (said == yajl_status_ok) said = yajl_complete_parse(yajl);
    if (said != yajl_status_ok && p->status == TB_OK) refuse_json(p, yajl);
    yajl_free(yajl);
    return p->status == TB_OK;
}

static bool parse_header(struct parse *p, const uint8_t *json, size_t bytes, uint64_t *data_bytes,
                         uint64_t *at_out)
{
    if (!check_utf8(p, json, bytes)) return false;
    if (bytes == 0 || json[0] != '{') return refuse(p, TB_BAD_FILE, "the header does not begin with '{'");
    /* A name takes its bytes and a NUL where the JSON has at least two quotes around them. */
    p->names = tb_malloc(bytes + 1);
    if (p->names == NULL) return refuse(p, TB_SITE_NOMEM, "no memory for a header of %zu bytes", bytes);
    if (!run_yajl(p, json, bytes, at_out)) return false;
    *at_out = 0; /* what follows is about tensors, not about a byte of the header */
    if (p->state != DONE) return refuse(p, TB_BAD_FILE, "the header ends too early");
    return check_names(p) && check_places(p, data_bytes);
}

static enum tb_status say(struct tb_safetensors_error *error_out, enum tb_status status, const char *file,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
static enum tb_status say(struct tb_safetensors_error *error_out, enum tb_status status, const char *file,
                          const char *format, ...)
{
    const int used = snprintf(error_out->text, sizeof error_out->text, "%.200s: ", file);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error_out->text + used, sizeof error_out->text - (size_t)used, format, arguments);
    va_end(arguments);
    return status;
}

enum tb_status tb_safetensors_header_bytes(const char *file, const uint8_t *prefix, uint64_t file_bytes,
                                           uint64_t *header_bytes_out, struct tb_safetensors_error *error_out)
{
    if (file_bytes < TB_SAFETENSORS_PREFIX_BYTES)
        return say(error_out, TB_BAD_FILE, file, "%" PRIu64 " bytes are too few for a safetensors file",
                   file_bytes);
    uint64_t json_bytes = 0;
    for (int i = TB_SAFETENSORS_PREFIX_BYTES - 1; i >= 0; i--)
        json_bytes = json_bytes << 8 | prefix[i];
    if (json_bytes > TB_SAFETENSORS_HEADER_BYTES_MAX)
        return say(error_out, TB_TOO_LARGE, file,
                   "byte 0: a header of %" PRIu64 " bytes; at most %" PRIu64
                   " are allowed (is this a safetensors file?)",
                   json_bytes, TB_SAFETENSORS_HEADER_BYTES_MAX);
    if (json_bytes > file_bytes - TB_SAFETENSORS_PREFIX_BYTES)
        return say(error_out, TB_BAD_FILE, file,
                   "byte 0: a header of %" PRIu64 " bytes in a file of %" PRIu64 " (is it cut short?)",
                   json_bytes, file_bytes);
    *header_bytes_out = TB_SAFETENSORS_PREFIX_BYTES + json_bytes;
    return TB_OK;
}

enum tb_status tb_safetensors_parse(const char *file, const uint8_t *header, uint64_t header_bytes,
                                    uint64_t file_bytes, struct tb_safetensors *parsed_out,
                                    struct tb_safetensors_error *error_out)
{
    uint64_t expected_bytes = 0;
    const enum tb_status prefix = tb_safetensors_header_bytes(
        file, header, header_bytes < file_bytes ? header_bytes : file_bytes, &expected_bytes, error_out);
    if (prefix != TB_OK) return prefix;
    if (expected_bytes != header_bytes)
        return say(error_out, TB_BAD_FILE, file, "the header has %" PRIu64 " bytes, not %" PRIu64,
                   expected_bytes, header_bytes);

    struct parse p = {.state = START, .status = TB_OK};
    uint64_t at = 0;
    uint64_t data_bytes = file_bytes == TB_SAFETENSORS_BYTES_UNKNOWN ? file_bytes : file_bytes - header_bytes;
    const bool good = parse_header(&p, header + TB_SAFETENSORS_PREFIX_BYTES,
                                   header_bytes - TB_SAFETENSORS_PREFIX_BYTES, &data_bytes, &at);
    tb_free(p.meta);
    if (!good) {
        tb_free(p.tensors);
        tb_free(p.names);
        if (at > 0) return say(error_out, p.status, file, "byte %" PRIu64 ": %s", at, p.what);
        return say(error_out, p.status, file, "%s", p.what);
    }
    *parsed_out = (struct tb_safetensors){.header_bytes = header_bytes,
                                          .data_bytes = data_bytes,
                                          .tensor_count = p.tensor_count,
                                          .tensors = p.tensors,
                                          .names = p.names};
    return TB_OK;
}

void tb_safetensors_fini(struct tb_safetensors *parsed)
{
    tb_free(parsed->tensors);
    tb_free(parsed->names);
    memset(parsed, 0, sizeof *parsed);
}
