/* config_walk.c - walks the tree of a file along the table of keys; every complaint has its place,
 * and none hides another. */
#include "gateway/config/config_value.h"
#include "gateway/config/model_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/networks.h"
#include "base/system_calls.h"

#define KEYS_MAX       128
#define PATH_MAX_CHARS 256

/* Where the walk stands: an instance of a scope, and how deep in it. */
struct walk {
    struct config_reading *r;
    enum config_scope scope;
    void *base;                    /* the struct of the scope */
    const struct config_node *top; /* the instance's map */
    char shown[PATH_MAX_CHARS];    /* "peers.west" or "": how complaints call it */
    bool seen[KEYS_MAX];
};

static const char *dot(const struct walk *w)
{
    return w->shown[0] == '\0' ? "" : ".";
}

static void set_item(struct walk *w, const struct config_key *key, const struct config_node *item)
{
    uint8_t *base = w->base;
    uint32_t *count = (uint32_t *)(void *)(base + key->count_offset);
    const uint32_t max = key->type == CONFIG_NAMES      ? (uint32_t)key->max
                         : key->type == CONFIG_SCHEDULE ? TB_RATE_WINDOWS_MAX
                                                        : TB_CONFIG_LIST_MAX;
    TB_ASSERT(tb_config_is_list(key->type) && key->scope == w->scope && *count <= max);
    if (item->kind != CONFIG_SCALAR || tb_config_node_is_null(item)) {
        tb_config_complain(w->r, item, "%s%s%s: an item is not one word", w->shown, dot(w), key->path);
        return;
    }
    if (*count == max) {
        tb_config_complain(w->r, item, "%s%s%s: more than %" PRIu32 " items", w->shown, dot(w), key->path,
                           max);
        return;
    }
    if (key->type == CONFIG_NAMES) {
        struct tb_name *names = (struct tb_name *)(void *)(base + key->offset);
        if (tb_name_set(&names[*count], item->text) == TB_OK)
            ++*count;
        else
            tb_config_complain(w->r, item, "%s%s%s: \"%.80s\": %s", w->shown, dot(w), key->path, item->text,
                               config_name_rule);
        return;
    }
    if (key->type == CONFIG_SCHEDULE) {
        struct tb_rate_window *windows = (struct tb_rate_window *)(void *)(base + key->offset);
        if (tb_rate_window_parse(item->text, &windows[*count]))
            ++*count;
        else
            tb_config_complain(w->r, item,
                               "%s%s%s: \"%.80s\": is not HH:MM-HH:MM RATE, such as 08:00-18:00 50Mbit",
                               w->shown, dot(w), key->path, item->text);
        return;
    }
    const char **texts = (const char **)(void *)(base + key->offset);
    const bool is_network = key->type == CONFIG_NETWORKS;
    struct tb_network network;
    if (is_network ? tb_network_parse(item->text, &network) : tb_config_identity_valid(item->text))
        texts[(*count)++] = tb_config_keep_text(w->r, item->text);
    else
        tb_config_complain(w->r, item, "%s%s%s: \"%.80s\": %s", w->shown, dot(w), key->path, item->text,
                           is_network ? config_network_rule : config_identity_rule);
}

static void set_list(struct walk *w, const struct config_key *key, const struct config_node *node)
{
    if (node->kind != CONFIG_LIST) {
        tb_config_complain(w->r, node, "%s%s%s: wants a list, such as [a, b]", w->shown, dot(w), key->path);
        return;
    }
    for (const struct config_node *item = node->first; item != NULL; item = item->next)
        set_item(w, key, item);
}

static void look_at_file(struct walk *w, const struct config_key *key, const struct config_node *node)
{
    TB_ASSERT(key->type == CONFIG_FILE && node->kind == CONFIG_SCALAR);
    const int fd = tb_sys_open(node->text, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        tb_config_complain(w->r, node, "%s%s%s: cannot read \"%.200s\": %s", w->shown, dot(w), key->path,
                           node->text, strerror(errno));
    else
        close(fd);
}

static void set_value(struct walk *w, const struct config_key *key, const struct config_node *node)
{
    char why[160];
    void *at = (uint8_t *)w->base + key->offset;
    TB_ASSERT(key->scope == w->scope && !w->seen[key - config_keys]); /* is_duplicate has looked */
    w->seen[key - config_keys] = true;
    if (tb_config_is_list(key->type)) {
        set_list(w, key, node);
        return;
    }
    if (node->kind != CONFIG_SCALAR || tb_config_node_is_null(node)) {
        tb_config_complain(w->r, node, "%s%s%s: wants a %s, %s", w->shown, dot(w), key->path,
                           tb_config_type_text(key->type),
                           node->kind == CONFIG_SCALAR ? "has no value" : "not a list or a section");
        return;
    }
    const bool plain = key->type == CONFIG_NUMBER || key->type == CONFIG_AUTO || key->type == CONFIG_SIZE ||
                       key->type == CONFIG_BOOL;
    const char *wrong = plain && node->quoted ? "is text: write it without quotes"
                                              : tb_config_set_scalar(w->r, key, node->text, at, why);
    if (wrong != NULL)
        tb_config_complain(w->r, node, "%s%s%s: \"%.80s\": %s", w->shown, dot(w), key->path, node->text,
                           wrong);
    else if (key->type == CONFIG_FILE && w->r->look_at_files)
        look_at_file(w, key, node);
}

static const struct config_key *find_key(enum config_scope scope, const char *path)
{
    for (uint32_t i = 0; i < config_key_count; i++)
        if (config_keys[i].scope == scope && strcmp(config_keys[i].path, path) == 0) return &config_keys[i];
    return NULL;
}

/* Some key stands under it. */
static bool is_section(enum config_scope scope, const char *path)
{
    const size_t bytes = strlen(path);
    for (uint32_t i = 0; i < config_key_count; i++)
        if (config_keys[i].scope == scope && strncmp(config_keys[i].path, path, bytes) == 0 &&
            config_keys[i].path[bytes] == '.')
            return true;
    return false;
}

/* How many letters have to change, for words of up to 31; more is "very many". */
static uint32_t distance(const char *a, const char *b)
{
    uint32_t row[32];
    const size_t bytes_a = strlen(a);
    const size_t bytes_b = strlen(b);
    if (bytes_a > 31 || bytes_b > 31) return 99;
    for (uint32_t j = 0; j <= bytes_b; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= bytes_a; i++) {
        uint32_t corner = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= bytes_b; j++) {
            const uint32_t change = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
            corner = row[j];
            const uint32_t gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < gap ? change : gap;
        }
    }
    return row[bytes_b];
}

static void nearer(const char *word, const char *candidate, uint32_t *least, char near_out[64])
{
    const uint32_t d = distance(word, candidate);
    if (d >= *least) return;
    *least = d;
    snprintf(near_out, 64, "%s", candidate);
}

/* The known word at this level that is nearest: "" when none is near. */
static void suggest(enum config_scope scope, const char *section, const char *word, char near_out[64])
{
    const size_t bytes = strlen(section);
    uint32_t least = strlen(word) < 5 ? 2 : 4;
    near_out[0] = '\0';
    for (uint32_t i = 0; i < config_key_count; i++) {
        char candidate[64];
        if (config_keys[i].scope != scope || strncmp(config_keys[i].path, section, bytes) != 0) continue;
        snprintf(candidate, sizeof candidate, "%s", config_keys[i].path + bytes);
        candidate[strcspn(candidate, ".")] = '\0';
        nearer(word, candidate, &least, near_out);
    }
    static const char *const containers[] = {"peers", "models", "subscribe"};
    for (uint32_t i = 0; i < 3 && scope == CONFIG_ROOT && bytes == 0; i++)
        nearer(word, containers[i], &least, near_out);
}

static void unknown(struct walk *w, const char *section, const struct config_node *entry)
{
    char near[64];
    suggest(w->scope, section, entry->key->text, near);
    tb_config_complain(w->r, entry->key, "%s%s%s%.80s: unknown key%s%s%s", w->shown, dot(w), section,
                       entry->key->text, near[0] == '\0' ? "" : "; did you mean ", near,
                       near[0] == '\0' ? "" : "?");
}

/* True when an earlier entry of the map has the same key; told at the later one. */
static bool is_duplicate(struct walk *w, const char *section, const struct config_node *map,
                         const struct config_node *entry)
{
    const struct config_node *first = tb_config_node_find(map, entry->key->text);
    if (first == entry) return false;
    tb_config_complain(w->r, entry->key, "%s%s%s%.80s: given before, in line %" PRIu32, w->shown, dot(w),
                       section, entry->key->text, first->key->line);
    return true;
}

static void walk_map(struct walk *w, const char *section, const struct config_node *map);
static void walk_container(struct config_reading *r, const struct config_node *entry);

static bool is_container(const char *key)
{
    return strcmp(key, "peers") == 0 || strcmp(key, "models") == 0 || strcmp(key, "subscribe") == 0;
}

static void walk_entry(struct walk *w, const char *section, const struct config_node *entry)
{
    char path[PATH_MAX_CHARS];
    const int used = snprintf(path, sizeof path, "%s%s", section, entry->key->text);
    /* "arena.bytes: 1" in one line is not a second way to write arena's bytes. */
    const bool sound = used < (int)sizeof path - 1 && strchr(entry->key->text, '.') == NULL;
    const struct config_key *key = sound ? find_key(w->scope, path) : NULL;
    if (w->scope == CONFIG_ROOT && section[0] == '\0' && is_container(entry->key->text)) {
        walk_container(w->r, entry);
    } else if (key != NULL) {
        set_value(w, key, entry);
    } else if (sound && is_section(w->scope, path)) {
        if (entry->kind == CONFIG_MAP) {
            snprintf(path + used, sizeof path - (size_t)used, ".");
            walk_map(w, path, entry);
        } else if (!tb_config_node_is_null(entry)) { /* a section whose keys are all commented out is empty */
            tb_config_complain(w->r, entry, "%s%s%s: wants a section of keys", w->shown, dot(w), path);
        }
    } else {
        unknown(w, section, entry);
    }
}

static void walk_map(struct walk *w, const char *section, const struct config_node *map)
{
    TB_ASSERT(map->kind == CONFIG_MAP);
    for (const struct config_node *entry = map->first; entry != NULL; entry = entry->next)
        if (!is_duplicate(w, section, map, entry)) walk_entry(w, section, entry);
}

/* The place to name for a key that is missing: its section where there is one. */
static const struct config_node *missing_at(const struct walk *w, const struct config_key *key)
{
    TB_ASSERT(key->required && key->scope == w->scope);
    char section[64];
    snprintf(section, sizeof section, "%s", key->path);
    char *end = strchr(section, '.');
    if (end == NULL) return w->top;
    *end = '\0';
    const struct config_node *node = tb_config_node_find(w->top, section);
    return node == NULL ? w->top : node->key;
}

/* A whole instance of a scope: defaults, what the map says, what it should have said. */
static void walk_scope(struct walk *w)
{
    char why[160];
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->scope != w->scope || key->fallback == NULL) continue;
        const char *wrong =
            tb_config_set_scalar(w->r, key, key->fallback, (uint8_t *)w->base + key->offset, why);
        TB_ASSERT(wrong == NULL);
    }
    walk_map(w, "", w->top);
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->scope == w->scope && key->required && !w->seen[i])
            tb_config_complain(w->r, missing_at(w, key), "%s%s%s: is required", w->shown, dot(w), key->path);
    }
}

/* ---- peers, models, subscribe ---- */

/* Names are checked here, so that every instance has a good one; the struct is zero before. */
static void walk_instance(struct config_reading *r, enum config_scope scope, void *base,
                          const struct config_node *map, const char *shown)
{
    struct walk w = {.r = r, .scope = scope, .base = base, .top = map};
    TB_ASSERT(map->kind == CONFIG_MAP && strlen(shown) < sizeof w.shown);
    snprintf(w.shown, sizeof w.shown, "%s", shown);
    walk_scope(&w);
}

static void *named_instance(struct config_reading *r, enum config_scope scope,
                            const struct config_node *entry)
{
    struct tb_config *c = r->config;
    struct tb_name name = {.text = ""};
    const bool is_pattern = scope == CONFIG_MODEL && tb_model_pattern_valid(entry->key->text);
    if (!is_pattern && tb_name_set(&name, entry->key->text) != TB_OK) {
        tb_config_complain(r, entry->key, "\"%.80s\": %s", entry->key->text,
                           scope == CONFIG_MODEL ? config_pattern_rule : config_name_rule);
        return NULL;
    }
    if (is_pattern) memcpy(name.text, entry->key->text, strlen(entry->key->text));
    uint32_t *count = scope == CONFIG_PEER ? &c->peer_count : &c->model_count;
    TB_ASSERT(scope == CONFIG_PEER || scope == CONFIG_MODEL);
    if (*count == TB_CONFIG_LIST_MAX) {
        tb_config_complain(r, entry->key, "%s: more than %d", entry->key->text, TB_CONFIG_LIST_MAX);
        return NULL;
    }
    if (scope == CONFIG_PEER) {
        c->peers[*count].site = name;
        return &c->peers[(*count)++];
    }
    c->models[*count].name = name;
    c->models[*count].is_pattern = is_pattern;
    c->models[*count].place = *count;
    return &c->models[(*count)++];
}

static void walk_named(struct config_reading *r, enum config_scope scope, const struct config_node *container)
{
    struct walk outer = {.r = r, .scope = scope, .top = container};
    snprintf(outer.shown, sizeof outer.shown, "%s", container->key->text);
    for (const struct config_node *entry = container->first; entry != NULL; entry = entry->next) {
        char shown[PATH_MAX_CHARS];
        if (is_duplicate(&outer, "", container, entry)) continue;
        snprintf(shown, sizeof shown, "%s.%.100s", container->key->text, entry->key->text);
        if (entry->kind != CONFIG_MAP) {
            tb_config_complain(r, entry, "%s: wants a section of keys", shown);
            continue;
        }
        void *base = named_instance(r, scope, entry);
        if (base != NULL) walk_instance(r, scope, base, entry, shown);
    }
}

static void walk_subscribe(struct config_reading *r, const struct config_node *list)
{
    TB_ASSERT(list->kind == CONFIG_LIST);
    struct tb_config *c = r->config;
    uint32_t number = 0;
    for (const struct config_node *item = list->first; item != NULL; item = item->next) {
        char shown[PATH_MAX_CHARS];
        snprintf(shown, sizeof shown, "subscribe[%" PRIu32 "]", number++);
        if (item->kind != CONFIG_MAP)
            tb_config_complain(r, item, "%s: wants {model: NAME, from: [SITE]}", shown);
        else if (c->subscribe_count == TB_CONFIG_LIST_MAX)
            tb_config_complain(r, item, "%s: more than %d", shown, TB_CONFIG_LIST_MAX);
        else
            walk_instance(r, CONFIG_SUBSCRIBE, &c->subscribe[c->subscribe_count++], item, shown);
    }
}

static void walk_container(struct config_reading *r, const struct config_node *entry)
{
    const bool is_subscribe = strcmp(entry->key->text, "subscribe") == 0;
    if (tb_config_node_is_null(entry)) return;
    if (entry->kind != (is_subscribe ? CONFIG_LIST : CONFIG_MAP))
        tb_config_complain(r, entry, "%s: wants a %s", entry->key->text,
                           is_subscribe ? "list" : "section of names");
    else if (is_subscribe)
        walk_subscribe(r, entry);
    else
        walk_named(r, entry->key->text[0] == 'p' ? CONFIG_PEER : CONFIG_MODEL, entry);
}

void tb_config_walk(struct config_reading *r)
{
    TB_ASSERT(config_key_count <= KEYS_MAX);
    walk_instance(r, CONFIG_ROOT, r->config, r->root, "");
}
