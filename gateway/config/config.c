/* config.c - a file becomes a config, or complaints. */
#include "gateway/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "gateway/config/config_read.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define COMPLAINTS_MAX 100

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

const char *config_keep_text(struct config_reading *r, const char *chars)
{
    const size_t bytes = strlen(chars) + 1;
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

/* ---- complaints ---- */

/* What stands in a file may be anything; a complaint is one clean line. */
static void clean(char *line)
{
    for (; *line != '\0'; line++)
        if ((unsigned char)*line < 0x20 || *line == 0x7f) *line = '?';
}

static void say_at(const struct config_reading *r, tb_config_complain_fn fn, uint32_t line, uint32_t column,
                   const char *text)
{
    char out[1024];
    snprintf(out, sizeof out, "%.300s:%" PRIu32 ":%" PRIu32 ": %s", r->name, line, column, text);
    clean(out);
    if (fn != NULL) fn(r->user, out);
}

void config_complain_at(struct config_reading *r, uint32_t line, uint32_t column, const char *text)
{
    if (++r->complaints > COMPLAINTS_MAX) return;
    if (r->complaints == COMPLAINTS_MAX) text = "and more: this is the last complaint";
    say_at(r, r->complain, line, column, text);
}

void config_warn(struct config_reading *r, const struct config_node *at, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say_at(r, r->warn, at->line, at->column, text);
}

void config_complain(struct config_reading *r, const struct config_node *at, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    config_complain_at(r, at->line, at->column, text);
}

/* ---- whole files ---- */

/* Of every map, down to the depth that a tree has. */
static void places_keep(struct config_reading *r, const struct config_node *map, const char *above)
{
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
        snprintf(p->key, bytes, "%s%s%s", above, above[0] != '\0' ? "." : "", n->key->text);
        p->next = box_of(r->config)->places;
        box_of(r->config)->places = p;
        if (n->kind == CONFIG_MAP) places_keep(r, n, p->key);
    }
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

static void read_tree(struct config_reading *r, const struct config_tree *tree)
{
    r->root = tree->root;
    config_walk(r);
    config_check(r);
    if (r->warn != NULL) places_keep(r, tree->root, "");
}

static enum tb_status read_text(struct config_reading *r, const char *text, size_t bytes)
{
    struct config_tree tree;
    struct config_problem problem;
    const enum tb_status status = config_tree_read(text, bytes, &tree, &problem);
    if (status == TB_SITE_CONFIG) config_complain_at(r, problem.line, problem.column, problem.text);
    if (status == TB_OK) read_tree(r, &tree);
    config_tree_free(&tree);
    if (status != TB_OK) return status;
    if (r->nomem) return TB_SITE_NOMEM;
    return r->complaints > 0 ? TB_SITE_CONFIG : TB_OK;
}

static enum tb_status read_config(struct config_reading *r, const char *text, size_t bytes,
                                  struct tb_config **config_out)
{
    struct box *box = tb_calloc(1, sizeof *box);
    if (box == NULL) return TB_SITE_NOMEM;
    r->config = &box->config;
    const enum tb_status status = read_text(r, text, bytes);
    if (status == TB_OK)
        *config_out = r->config;
    else
        tb_config_free(r->config);
    return status;
}

enum tb_status tb_config_parse(const char *name, const char *text, size_t bytes,
                               tb_config_complain_fn complain_fn, void *user, struct tb_config **config_out)
{
    struct config_reading r = {.name = name, .complain = complain_fn, .user = user};
    return read_config(&r, text, bytes, config_out);
}

/* Up to FILE_BYTES_MAX + 1 bytes: one more shows that it is too large. */
static ssize_t read_file(const char *path, char *text)
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    size_t used = 0;
    ssize_t got = 1;
    while (got > 0 && used <= FILE_BYTES_MAX) {
        got = tb_sys_pread(fd, text + used, FILE_BYTES_MAX + 1 - used, (off_t)used);
        if (got > 0) used += (size_t)got;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return got < 0 ? -1 : (ssize_t)used;
}

static enum tb_status load(struct config_reading *r, const char *path, struct tb_config **config_out)
{
    char *text = tb_malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) return TB_SITE_NOMEM;
    const ssize_t bytes = read_file(path, text);
    enum tb_status status = TB_SITE_CONFIG;
    if (bytes < 0)
        config_complain_at(r, 1, 1, strerror(errno));
    else if ((size_t)bytes > FILE_BYTES_MAX)
        config_complain_at(r, 1, 1, "the file is larger than 1 MiB");
    else
        status = read_config(r, text, (size_t)bytes, config_out);
    tb_free(text);
    return status;
}

enum tb_status tb_config_load(const char *path, tb_config_complain_fn complain_fn, void *user,
                              struct tb_config **config_out)
{
    struct config_reading r = {.name = path, .complain = complain_fn, .user = user, .look_at_files = true};
    return load(&r, path, config_out);
}

enum tb_status tb_config_load_warned(const char *path, tb_config_complain_fn complain_fn,
                                     tb_config_complain_fn warn, void *user, struct tb_config **config_out)
{
    struct config_reading r = {
        .name = path, .complain = complain_fn, .warn = warn, .user = user, .look_at_files = true};
    return load(&r, path, config_out);
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
