/* config_box.c - the memory of a config: its texts, and the place of each key in the file. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/config/config_read.h"

/* Text of the config, in a chain behind it. */
struct text {
    struct text *next;
    char chars[];
};

/* Where a key stands, in the same way. */
struct place {
    struct place *next;
    uint32_t line, column;
    char key[];
};

struct box {
    struct tb_config config; /* first: a config is its box */
    struct text *texts;
    struct place *places;
};

static struct box *box_of(struct tb_config *config)
{
    return (struct box *)(void *)config;
}

const char *tb_config_keep_text(struct config_reading *r, const char *chars)
{
    const size_t bytes = strlen(chars) + 1;
    TB_ASSERT(r->config != NULL);
    struct text *t = tb_malloc(sizeof *t + bytes);
    if (t == NULL) {
        r->nomem = true;
        return NULL;
    }
    memcpy(t->chars, chars, bytes);
    t->next = box_of(r->config)->texts;
    box_of(r->config)->texts = t;
    return t->chars;
}

struct tb_config *tb_config_new(void)
{
    struct box *box = tb_calloc(1, sizeof *box);
    return box == NULL ? NULL : &box->config;
}

/* The maps of a list are KEY[0], KEY[1] and so on. */
static void keep_items(struct config_reading *r, const struct config_node *list, const char *key)
{
    uint32_t number = 0;
    for (const struct config_node *item = list->first; item != NULL; item = item->next, number++) {
        char above[64];
        if (item->kind != CONFIG_MAP) return; /* a list of words has one place */
        if (snprintf(above, sizeof above, "%s[%" PRIu32 "]", key, number) < (int)sizeof above)
            tb_config_keep_places(r, item, above);
    }
}

void tb_config_keep_places(struct config_reading *r, const struct config_node *map, const char *above)
{
    TB_ASSERT(map->kind == CONFIG_MAP);
    for (const struct config_node *n = map->first; n != NULL; n = n->next) {
        const struct config_node *at = n->kind == CONFIG_SCALAR ? n : n->key;
        const size_t bytes = strlen(above) + strlen(n->key->text) + 2;
        struct place *p = tb_malloc(sizeof *p + bytes);
        if (p == NULL) {
            r->nomem = true;
            return;
        }
        p->line = at->line;
        p->column = at->column;
        TB_ASSERT(at->line > 0 && at->column > 0);
        snprintf(p->key, bytes, "%s%s%s", above, above[0] != '\0' ? "." : "", n->key->text);
        p->next = box_of(r->config)->places;
        box_of(r->config)->places = p;
        if (n->kind == CONFIG_MAP) tb_config_keep_places(r, n, p->key);
        if (n->kind == CONFIG_LIST) keep_items(r, n, p->key);
    }
}

bool tb_config_written(const struct tb_config *config, const char *key, uint32_t *line_out,
                       uint32_t *column_out)
{
    const struct box *box = (const struct box *)(const void *)config;
    for (const struct place *p = box->places; p != NULL; p = p->next) {
        if (strcmp(p->key, key) != 0) continue;
        *line_out = p->line;
        *column_out = p->column;
        return true;
    }
    return false;
}

void tb_config_place(const struct tb_config *config, const char *key, uint32_t *line_out,
                     uint32_t *column_out)
{
    const struct box *box = (const struct box *)(const void *)config;
    size_t best = 0;
    *line_out = *column_out = 1;
    for (const struct place *p = box->places; p != NULL; p = p->next) {
        const size_t bytes = strlen(p->key);
        if (bytes <= best || strncmp(p->key, key, bytes) != 0) continue;
        if (key[bytes] != '\0' && key[bytes] != '.') continue;
        best = bytes;
        *line_out = p->line;
        *column_out = p->column;
    }
}

void tb_config_free(struct tb_config *config)
{
    if (config == NULL) return;
    struct box *box = box_of(config);
    while (box->texts != NULL) {
        struct text *t = box->texts;
        box->texts = t->next;
        tb_free(t);
    }
    while (box->places != NULL) {
        struct place *p = box->places;
        box->places = p->next;
        tb_free(p);
    }
    tb_free(box);
}
