#include "sim/yaml_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool tb_yaml_refuse(const struct tb_yaml *y, const yaml_node_t *at, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    for (char *c = what; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    (void)snprintf(y->complaint, y->complaint_bytes, "%.200s:%zu: %s", y->name,
                   at != NULL ? at->start_mark.line + 1 : 1, what);
    return false;
}

yaml_node_t *tb_yaml_node(const struct tb_yaml *y, int index)
{
    return yaml_document_get_node(y->document, index);
}

const char *tb_yaml_text(const yaml_node_t *n)
{
    if (n == NULL || n->type != YAML_SCALAR_NODE ||
        strlen((const char *)n->data.scalar.value) != n->data.scalar.length)
        return NULL;
    return (const char *)n->data.scalar.value;
}

bool tb_yaml_name(const struct tb_yaml *y, const yaml_node_t *n, char *out, size_t bytes_max)
{
    const char *text = tb_yaml_text(n);
    const size_t bytes = text != NULL ? strlen(text) : 0;
    if (bytes == 0 || bytes >= bytes_max || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != bytes)
        return tb_yaml_refuse(y, n, "a name has 1 to %zu of a to z, 0 to 9 and -", bytes_max - 1);
    memcpy(out, text, bytes + 1);
    return true;
}

bool tb_yaml_two(const struct tb_yaml *y, const yaml_node_t *n, const yaml_node_t *out[2])
{
    if (n->type != YAML_SEQUENCE_NODE || n->data.sequence.items.top - n->data.sequence.items.start != 2)
        return tb_yaml_refuse(y, n, "between: is a list of two sites");
    out[0] = tb_yaml_node(y, n->data.sequence.items.start[0]);
    out[1] = tb_yaml_node(y, n->data.sequence.items.start[1]);
    return true;
}

bool tb_yaml_sort(const struct tb_yaml *y, const yaml_node_t *mapping, const char *const *names,
                  unsigned count, const yaml_node_t **found_out)
{
    for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start; p < mapping->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *at = tb_yaml_node(y, p->key);
        const char *key = tb_yaml_text(at);
        unsigned i = 0;
        while (i < count && (key == NULL || strcmp(names[i], key) != 0))
            i++;
        if (i == count)
            return tb_yaml_refuse(y, at, "unknown key %s", key != NULL ? key : "that is not text");
        if (found_out[i] != NULL) return tb_yaml_refuse(y, at, "%s: is there twice", key);
        found_out[i] = tb_yaml_node(y, p->value);
    }
    return true;
}

bool tb_yaml_each(const struct tb_yaml *y, const yaml_node_t *n, const char *refusal,
                  bool (*read)(const struct tb_yaml *y, const yaml_node_t *item))
{
    if (n->type != YAML_SEQUENCE_NODE) return tb_yaml_refuse(y, n, "%s", refusal);
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++)
        if (!read(y, tb_yaml_node(y, *i))) return false;
    return true;
}

enum tb_status tb_yaml_load(const struct tb_yaml *y, const char *text, size_t bytes, size_t bytes_max,
                            bool (*read_root)(const struct tb_yaml *y))
{
    yaml_parser_t parser;
    yaml_document_t document;
    bool good = false;
    y->complaint[0] = '\0';
    if (bytes > bytes_max) {
        (void)tb_yaml_refuse(y, NULL, "over %zu bytes", bytes_max);
        return TB_SITE_CONFIG;
    }
    if (!yaml_parser_initialize(&parser)) return TB_SITE_NOMEM;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    if (yaml_parser_load(&parser, &document)) {
        struct tb_yaml here = *y;
        here.document = &document;
        good = read_root(&here);
        yaml_document_delete(&document);
    } else {
        const yaml_node_t at = {.start_mark = parser.problem_mark};
        (void)tb_yaml_refuse(y, &at, "%s", parser.problem != NULL ? parser.problem : "not YAML");
    }
    yaml_parser_delete(&parser);
    return good ? TB_OK : TB_SITE_CONFIG;
}
