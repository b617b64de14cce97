/* safetensors.c - the header of a safetensors file: its length, and what holds of all its
 * tensors together. Its JSON is in safetensors_json.c. */
#include "gateway/disk/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/layout.h"
#include "base/utf8.h"
#include "gateway/disk/safetensors_json.h"

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
static bool check_places(struct tb_safetensors_parse *p, uint64_t *data_bytes)
{
    if (p->tensor_count > 0) qsort(p->tensors, p->tensor_count, sizeof *p->tensors, by_place);
    const bool known = *data_bytes != TB_SAFETENSORS_BYTES_UNKNOWN;
    uint64_t at = 0;
    for (uint32_t i = 0; i < p->tensor_count; i++) {
        const struct tb_safetensors_tensor *t = &p->tensors[i];
        if (known && t->end > *data_bytes)
            return tb_safetensors_refuse(p, TB_BAD_FILE,
                                         "tensor \"%s\" ends at data byte %" PRIu64 ", but there are %" PRIu64
                                         " (is the file cut short?)",
                                         tb_safetensors_show(t->name, strlen(t->name)).text, t->end,
                                         *data_bytes);
        if (t->begin < at)
            return tb_safetensors_refuse(
                p, TB_BAD_FILE, "tensors \"%s\" and \"%s\" overlap at data byte %" PRIu64,
                tb_safetensors_show(p->tensors[i - 1].name, strlen(p->tensors[i - 1].name)).text,
                tb_safetensors_show(t->name, strlen(t->name)).text, t->begin);
        if (t->begin > at)
            return tb_safetensors_refuse(p, TB_BAD_FILE,
                                         "data bytes %" PRIu64 " to %" PRIu64
                                         " before tensor \"%s\" belong to no tensor",
                                         at, t->begin, tb_safetensors_show(t->name, strlen(t->name)).text);
        TB_ASSERT(t->end >= t->begin); /* on_tensor_end has looked */
        at = t->end;
    }
    if (!known) *data_bytes = at;
    if (at != *data_bytes)
        return tb_safetensors_refuse(
            p, TB_BAD_FILE, "%" PRIu64 " bytes behind the last tensor belong to no tensor", *data_bytes - at);
    if (*data_bytes > TB_SHARD_BYTES_MAX)
        return tb_safetensors_refuse(
            p, TB_TOO_LARGE, "%" PRIu64 " bytes of tensors are more than a shard may have", *data_bytes);
    return true;
}

static bool check_unique(struct tb_safetensors_parse *p, const char **names, uint32_t count, const char *what)
{
    TB_ASSERT(names != NULL || count == 0);
    if (count > 0) qsort(names, count, sizeof *names, by_text);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return tb_safetensors_refuse(p, TB_BAD_FILE, "%s \"%s\" stands there twice", what,
                                         tb_safetensors_show(names[i], strlen(names[i])).text);
    return true;
}

static bool check_names(struct tb_safetensors_parse *p)
{
    if (!check_unique(p, p->meta, p->meta_count, "__metadata__ key")) return false;
    const char **names = tb_calloc(p->tensor_count + 1u, sizeof *names);
    if (names == NULL)
        return tb_safetensors_refuse(p, TB_SITE_NOMEM, "no memory for %" PRIu32 " names", p->tensor_count);
    for (uint32_t i = 0; i < p->tensor_count; i++)
        names[i] = p->tensors[i].name;
    const bool unique = check_unique(p, names, p->tensor_count, "tensor");
    tb_free(names);
    return unique;
}

/* yajl's own check lets overlong forms pass. */
static bool check_utf8(struct tb_safetensors_parse *p, const uint8_t *json, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        const size_t length = tb_utf8_decode(json + at, bytes - at, &code);
        if (length == 0)
            return tb_safetensors_refuse(p, TB_BAD_FILE, "byte %zu of the file is not UTF-8",
                                         at + TB_SAFETENSORS_PREFIX_BYTES);
        at += length;
    }
    return true;
}

static bool parse_header(struct tb_safetensors_parse *p, const uint8_t *json, size_t bytes,
                         uint64_t *data_bytes, uint64_t *at_out)
{
    if (!check_utf8(p, json, bytes)) return false;
    if (bytes == 0 || json[0] != '{')
        return tb_safetensors_refuse(p, TB_BAD_FILE, "the header does not begin with '{'");
    /* A name takes its bytes and a NUL where the JSON has at least two quotes around them. */
    p->names_bytes = bytes + 1;
    p->names = tb_malloc(p->names_bytes);
    if (p->names == NULL)
        return tb_safetensors_refuse(p, TB_SITE_NOMEM, "no memory for a header of %zu bytes", bytes);
    if (!tb_safetensors_read(p, json, bytes, at_out)) return false;
    *at_out = 0; /* what follows is about tensors, not about a byte of the header */
    return check_names(p) && check_places(p, data_bytes);
}

static enum tb_status say(struct tb_safetensors_error *error_out, enum tb_status status, const char *file,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
static enum tb_status say(struct tb_safetensors_error *error_out, enum tb_status status, const char *file,
                          const char *format, ...)
{
    const int used = snprintf(error_out->text, sizeof error_out->text, "%.200s: ", file);
    TB_ASSERT(used > 0 && (size_t)used < sizeof error_out->text);
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

    struct tb_safetensors_parse p = {.status = TB_OK};
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
