/* config_tree.c - libyaml's events into nodes; what is not a plain tree is refused where it
 * begins. */
#include "gateway/config/config_tree.h"

#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "base/allocate.h"
#include "base/assert.h"

struct building {
    struct config_tree *tree;
    struct config_problem *problem;
    struct config_node *open[TB_CONFIG_DEPTH_MAX]; /* maps and lists that have not ended */
    uint32_t depth;
    struct config_node *key; /* the last scalar was a map's key and waits for its value */
    bool ended;              /* the document */
};

static enum tb_status refuse(struct building *b, yaml_mark_t mark, const char *text)
{
    b->problem->line = (uint32_t)mark.line + 1;
    b->problem->column = (uint32_t)mark.column + 1;
    snprintf(b->problem->text, sizeof b->problem->text, "%s", text);
    return TB_SITE_CONFIG;
}

static enum tb_status node_new(struct building *b, enum config_node_kind kind, yaml_mark_t mark,
                               struct config_node **node_out)
{
    if (++b->tree->nodes > TB_CONFIG_NODES_MAX) return refuse(b, mark, "the file has too many values");
    struct config_node *node = tb_calloc(1, sizeof *node);
    if (node == NULL) return TB_SITE_NOMEM;
    node->kind = kind;
    node->line = (uint32_t)mark.line + 1;
    node->column = (uint32_t)mark.column + 1;
    node->made = b->tree->made;
    b->tree->made = node;
    *node_out = node;
    return TB_OK;
}

static enum tb_status scalar_new(struct building *b, const yaml_event_t *e, struct config_node **node_out)
{
    const size_t bytes = e->data.scalar.length;
    if (memchr(e->data.scalar.value, '\0', bytes) != NULL)
        return refuse(b, e->start_mark, "a value holds a NUL");
    const enum tb_status status = node_new(b, CONFIG_SCALAR, e->start_mark, node_out);
    if (status != TB_OK) return status;
    struct config_node *node = *node_out;
    node->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = tb_malloc(bytes + 1);
    if (node->text == NULL) return TB_SITE_NOMEM;
    memcpy(node->text, e->data.scalar.value, bytes);
    node->text[bytes] = '\0';
    node->text_bytes = bytes;
    return TB_OK;
}

/* Puts a value where it belongs: behind its key, or at the end of its list, or at the root. */
static enum tb_status place(struct building *b, struct config_node *node, yaml_mark_t mark)
{
    if (b->depth == 0) {
        if (node->kind != CONFIG_MAP && !tb_config_node_is_null(node))
            return refuse(b, mark, "the file is not a mapping of keys to values");
        if (node->kind == CONFIG_MAP) b->tree->root = node;
        return TB_OK;
    }
    const uint32_t at = b->depth - 1;
    TB_ASSERT(at < TB_CONFIG_DEPTH_MAX && node->next == NULL);
    struct config_node *parent = b->open[at];
    TB_ASSERT((parent->kind == CONFIG_MAP) == (b->key != NULL)); /* an entry of a map alone has a key */
    node->key = b->key;
    b->key = NULL;
    *(parent->last == NULL ? &parent->first : &parent->last->next) = node;
    parent->last = node;
    return TB_OK;
}

static bool wants_key(const struct building *b)
{
    return b->depth > 0 && b->open[b->depth - 1]->kind == CONFIG_MAP && b->key == NULL;
}

static enum tb_status take_scalar(struct building *b, const yaml_event_t *e)
{
    struct config_node *node = NULL;
    const bool is_key = wants_key(b);
    const enum tb_status status = scalar_new(b, e, &node);
    if (status != TB_OK) return status;
    if (!is_key) return place(b, node, e->start_mark);
    b->key = node;
    return TB_OK;
}

static enum tb_status take_open(struct building *b, const yaml_event_t *e, enum config_node_kind kind)
{
    struct config_node *node = NULL;
    if (wants_key(b)) return refuse(b, e->start_mark, "a key must be one word");
    if (b->depth == TB_CONFIG_DEPTH_MAX) return refuse(b, e->start_mark, "values are nested too deep");
    enum tb_status status = node_new(b, kind, e->start_mark, &node);
    if (status != TB_OK) return status;
    status = place(b, node, e->start_mark);
    if (status != TB_OK) return status;
    b->open[b->depth++] = node;
    return TB_OK;
}

static bool has_extras(const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return e->data.scalar.anchor != NULL || e->data.scalar.tag != NULL;
    case YAML_MAPPING_START_EVENT:
        return e->data.mapping_start.anchor != NULL || e->data.mapping_start.tag != NULL;
    case YAML_SEQUENCE_START_EVENT:
        return e->data.sequence_start.anchor != NULL || e->data.sequence_start.tag != NULL;
    default:
        return e->type == YAML_ALIAS_EVENT;
    }
}

static enum tb_status take(struct building *b, const yaml_event_t *e)
{
    if (has_extras(e)) return refuse(b, e->start_mark, "anchors, aliases and tags are not used here");
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return take_scalar(b, e);
    case YAML_MAPPING_START_EVENT:
        return take_open(b, e, CONFIG_MAP);
    case YAML_SEQUENCE_START_EVENT:
        return take_open(b, e, CONFIG_LIST);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        TB_ASSERT(b->depth > 0 && b->key == NULL); /* libyaml pairs them, and gives each key a value */
        b->depth--;
        return TB_OK;
    case YAML_DOCUMENT_START_EVENT:
        return b->ended ? refuse(b, e->start_mark, "a second document begins here") : TB_OK;
    case YAML_DOCUMENT_END_EVENT:
        b->ended = true;
        return TB_OK;
    default:
        return TB_OK;
    }
}

static enum tb_status refuse_syntax(struct building *b, const yaml_parser_t *parser)
{
    char text[TB_CONFIG_PROBLEM_BYTES];
    if (parser->error == YAML_MEMORY_ERROR) return TB_SITE_NOMEM;
    snprintf(text, sizeof text, "not YAML: %s%s%s",
             parser->problem != NULL ? parser->problem : "it can not be read",
             parser->context != NULL ? ", " : "", parser->context != NULL ? parser->context : "");
    return refuse(b, parser->problem_mark, text);
}

static enum tb_status read_events(struct building *b, yaml_parser_t *parser)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) return refuse_syntax(b, parser);
        more = event.type != YAML_STREAM_END_EVENT;
        const enum tb_status status = take(b, &event);
        yaml_event_delete(&event);
        if (status != TB_OK) return status;
    }
    TB_ASSERT(b->depth == 0 && b->key == NULL);
    if (b->tree->root != NULL) return TB_OK;
    /* an empty file misses what is required */
    return node_new(b, CONFIG_MAP, (yaml_mark_t){0}, &b->tree->root);
}

enum tb_status tb_config_tree_read(const char *text, size_t bytes, struct config_tree *tree_out,
                                   struct config_problem *problem_out)
{
    yaml_parser_t parser;
    struct building b = {.tree = tree_out, .problem = problem_out};
    *tree_out = (struct config_tree){0};
    *problem_out = (struct config_problem){.line = 1, .column = 1};
    if (!yaml_parser_initialize(&parser)) return TB_SITE_NOMEM;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    const enum tb_status status = read_events(&b, &parser);
    yaml_parser_delete(&parser);
    return status;
}

void tb_config_tree_free(struct config_tree *tree)
{
    while (tree->made != NULL) {
        struct config_node *node = tree->made;
        tree->made = node->made;
        tb_free(node->text);
        tb_free(node);
    }
    tree->root = NULL;
}

const struct config_node *tb_config_node_find(const struct config_node *map, const char *key)
{
    if (map == NULL || map->kind != CONFIG_MAP) return NULL;
    TB_ASSERT(map->first == NULL || map->first->key != NULL);
    for (const struct config_node *n = map->first; n != NULL; n = n->next)
        if (strcmp(n->key->text, key) == 0) return n;
    return NULL;
}

bool tb_config_node_is_null(const struct config_node *node)
{
    if (node->kind != CONFIG_SCALAR || node->quoted) return false;
    return node->text_bytes == 0 || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0;
}
