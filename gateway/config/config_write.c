/* config_write.c - a config as a file that says the same: each value, and where it came from. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/config/config_value.h"

struct writing {
    const struct tb_config *config;
    const char *file; /* of the places; NULL: none are said */
    bool effective;   /* also what the file does not say */
    FILE *to;
};

static bool is_plain(enum config_type type)
{
    return type == CONFIG_NUMBER || type == CONFIG_AUTO || type == CONFIG_SIZE || type == CONFIG_BOOL;
}

/* In quotes, as YAML has them. */
static void put_text(const char *text, FILE *to)
{
    (void)fputc('"', to);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') (void)fputc('\\', to);
        if ((unsigned char)*text < 0x20)
            (void)fprintf(to, "\\x%02x", (unsigned)(unsigned char)*text);
        else
            (void)fputc(*text, to);
    }
    (void)fputc('"', to);
}

static void put_list(const struct config_key *key, const void *base, FILE *to)
{
    (void)fputc('[', to);
    char item[TB_CONFIG_ITEM_CHARS];
    for (uint32_t i = 0; tb_config_value_item(key, base, i, item); i++) {
        if (i > 0) (void)fputs(", ", to);
        put_text(item, to);
    }
    (void)fputc(']', to);
}

/* "  # w.yaml:12" or "  # default". */
static void put_place(const struct writing *w, const char *name)
{
    uint32_t line, column;
    if (w->file == NULL) return;
    if (tb_config_written(w->config, name, &line, &column))
        (void)fprintf(w->to, "  # %s:%" PRIu32, w->file, line);
    else
        (void)fputs("  # default", w->to);
}

static bool is_shown(const struct writing *w, const char *name)
{
    uint32_t line, column;
    return w->effective || tb_config_written(w->config, name, &line, &column);
}

/* One key behind `indent`. False: it has no value, or is not shown. */
static bool put_key(const struct writing *w, const struct config_key *key, const void *base, const char *name,
                    const char *indent)
{
    char *text = NULL;
    const char *last = strrchr(key->path, '.');
    if (!is_shown(w, name) || tb_config_value_text(key, base, &text) != TB_OK) return false;
    if (text == NULL) return false;
    (void)fprintf(w->to, "%s%s: ", indent, last != NULL ? last + 1 : key->path);
    if (is_plain(key->type))
        (void)fputs(text, w->to);
    else if (tb_config_is_list(key->type))
        put_list(key, base, w->to);
    else
        put_text(text, w->to);
    free(text);
    put_place(w, name);
    (void)fputc('\n', w->to);
    return true;
}

/* Keys of a section stand together in the table. */
static void put_root(const struct writing *w)
{
    char section[64] = "";
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        const char *dot = strchr(key->path, '.');
        const size_t bytes = dot != NULL ? (size_t)(dot - key->path) : 0;
        char *text = NULL;
        if (key->scope != CONFIG_ROOT || !is_shown(w, key->path)) continue;
        if (tb_config_value_text(key, w->config, &text) != TB_OK || text == NULL) continue;
        free(text);
        TB_ASSERT(bytes < sizeof section);
        if (dot != NULL && (strncmp(section, key->path, bytes) != 0 || section[bytes] != '\0')) {
            (void)snprintf(section, sizeof section, "%.*s", (int)bytes, key->path);
            (void)fprintf(w->to, "%s:\n", section);
        }
        (void)put_key(w, key, w->config, key->path, dot != NULL ? "  " : "");
    }
}

/* Of a key such as quota.versions: the line of its section, before the first of them that is
 * shown. */
static void put_section(const struct writing *w, const struct config_key *key, const char *name,
                        char section[64])
{
    const size_t bytes = strcspn(key->path, ".");
    TB_ASSERT(bytes < 64);
    if (key->path[bytes] == '\0' || !is_shown(w, name)) return;
    if (strncmp(section, key->path, bytes) == 0 && section[bytes] == '\0') return;
    (void)snprintf(section, 64, "%.*s", (int)bytes, key->path);
    (void)fprintf(w->to, "    %s:\n", section);
}

/* The keys of one peer, model or subscription; `name`: how they are called. */
static void put_instance(const struct writing *w, enum config_scope scope, const void *base, const char *name,
                         const char *indent)
{
    char section[64] = "";
    for (uint32_t i = 0, count = 0; i < config_key_count; i++) {
        char key[TB_CONFIG_KEY_CHARS];
        if (config_keys[i].scope != scope) continue;
        const int chars = snprintf(key, sizeof key, "%s.%s", name, config_keys[i].path);
        TB_ASSERT(chars > 0 && (size_t)chars < sizeof key); /* names are short */
        put_section(w, &config_keys[i], key, section);
        const char *before = strchr(config_keys[i].path, '.') != NULL  ? "      "
                             : count == 0 && scope == CONFIG_SUBSCRIBE ? "  - "
                                                                       : indent;
        count += put_key(w, &config_keys[i], base, key, before);
    }
}

static void put_named(const struct writing *w, enum config_scope scope, const struct tb_name *name,
                      const void *base)
{
    char key[TB_CONFIG_KEY_CHARS];
    (void)snprintf(key, sizeof key, "%s.%s", scope == CONFIG_PEER ? "peers" : "models", name->text);
    (void)fputs("  ", w->to);
    put_text(name->text, w->to);
    (void)fputs(":\n", w->to);
    put_instance(w, scope, base, key, "    ");
}

static void put_peers(const struct writing *w)
{
    const struct tb_config *c = w->config;
    for (uint32_t i = 0, count = 0; i < c->peer_count; i++) {
        if (c->peers[i].gone) continue;
        if (count++ == 0) (void)fputs("peers:\n", w->to);
        put_named(w, CONFIG_PEER, &c->peers[i].site, &c->peers[i]);
    }
}

/* In the order of their places, in which patterns match: after a reload it is not that of the rows.
 * NULL: `last` was the last. */
static const struct tb_config_model *model_after(const struct tb_config *c,
                                                 const struct tb_config_model *last)
{
    const struct tb_config_model *next = NULL;
    for (uint32_t i = 0; i < c->model_count; i++) {
        const struct tb_config_model *m = &c->models[i];
        const bool behind = last == NULL || m->place > last->place || (m->place == last->place && m > last);
        if (!m->left && behind && (next == NULL || m->place < next->place)) next = m;
    }
    return next;
}

static void put_models(const struct writing *w)
{
    const struct tb_config *c = w->config;
    const struct tb_config_model *m = NULL;
    for (uint32_t count = 0; (m = model_after(c, m)) != NULL; count++) {
        if (count == 0) (void)fputs("models:\n", w->to);
        put_named(w, CONFIG_MODEL, &m->name, m);
    }
}

void tb_config_write(const struct tb_config *config, const char *file, bool effective, FILE *to)
{
    const struct writing w = {config, file, effective, to};
    put_root(&w);
    put_peers(&w);
    put_models(&w);
    for (uint32_t i = 0; i < config->subscribe_count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "subscribe[%" PRIu32 "]", i);
        if (i == 0) (void)fputs("subscribe:\n", to);
        put_instance(&w, CONFIG_SUBSCRIBE, &config->subscribe[i], name, "    ");
    }
}
