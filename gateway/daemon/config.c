/* config.c - walks the tree of a file along the table of keys; every complaint has its place, and none hides another. */
#include "gateway/daemon/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "gateway/daemon/config_keys.h"
#include "gateway/daemon/config_tree.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define COMPLAINTS_MAX 100
#define KEYS_MAX       128
#define PATH_MAX_CHARS 256
#define NAME_CHARS     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

/* Text of the config, in a chain behind it. */
struct text {
    struct text *next;
    char chars[];
};

struct box {
    struct tb_config config; /* first: a config is its box */
    struct text *texts;
};

struct reading {
    const char *name; /* of the file */
    tb_config_complain_fn complain;
    void *user;
    uint32_t complaints;
    bool nomem;
    bool look_at_files;
    struct box *box;
    const struct config_node *root;
};

/* Where the walk stands: an instance of a scope, and how deep in it. */
struct walk {
    struct reading *r;
    enum config_scope scope;
    void *base;                    /* the struct of the scope */
    const struct config_node *top; /* the instance's map */
    char shown[PATH_MAX_CHARS];    /* "peers.west" or "": how complaints call it */
    bool seen[KEYS_MAX];
};

/* ---- complaints ---- */

/* What stands in a file may be anything; a complaint is one clean line. */
static void clean(char *line)
{
    for (; *line != '\0'; line++)
        if ((unsigned char)*line < 0x20 || *line == 0x7f) *line = '?';
}

static void complain_at(struct reading *r, uint32_t line, uint32_t column, const char *text)
{
    char out[1024];
    if (++r->complaints > COMPLAINTS_MAX) return;
    if (r->complaints == COMPLAINTS_MAX) text = "and more: this is the last complaint";
    snprintf(out, sizeof out, "%.300s:%" PRIu32 ":%" PRIu32 ": %s", r->name, line, column, text);
    clean(out);
    if (r->complain != NULL) r->complain(r->user, out);
}

__attribute__((format(printf, 3, 4))) static void complain(struct reading *r, const struct config_node *at,
                                                           const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    complain_at(r, at->line, at->column, text);
}

/* ---- values ---- */

static const char *keep_text(struct reading *r, const char *chars)
{
    const size_t bytes = strlen(chars) + 1;
    struct text *t = tb_malloc(sizeof *t + bytes);
    if (t == NULL) {
        r->nomem = true;
        return NULL;
    }
    memcpy(t->chars, chars, bytes);
    t->next = r->box->texts;
    r->box->texts = t;
    return t->chars;
}

/* Decimal digits; false also when over 2^64. */
static bool parse_digits(const char *text, size_t count, uint64_t *out)
{
    uint64_t n = 0;
    if (count == 0) return false;
    for (size_t i = 0; i < count; i++) {
        const unsigned digit = (unsigned)(text[i] - '0');
        if (digit > 9 || n > (UINT64_MAX - digit) / 10) return false;
        n = n * 10 + digit;
    }
    *out = n;
    return true;
}

static bool parse_size(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    const size_t digits = strspn(text, "0123456789");
    uint64_t n = 0;
    if (!parse_digits(text, digits, &n)) return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + digits, units[i].suffix) != 0) continue;
        if (n > UINT64_MAX >> units[i].shift) return false;
        *out = n << units[i].shift;
        return true;
    }
    return false;
}

/* "host:port", "192.0.2.1:7400", "[2001:db8::1]:7400": a shape; whether it can be reached is not looked at. */
static bool address_valid(const char *text)
{
    const char *colon = strrchr(text, ':');
    uint64_t port = 0;
    if (colon == NULL || colon == text || !parse_digits(colon + 1, strlen(colon + 1), &port) || port > 65535)
        return false;
    const size_t host = (size_t)(colon - text);
    if (text[0] == '[')
        return host > 2 && host < 256 && strspn(text + 1, "0123456789abcdefABCDEF:.%") == host - 2 &&
               text[host - 1] == ']';
    return host < 254 && strspn(text, NAME_CHARS) == host;
}

/* "_tombolo._tcp.west.example": what begins so and has no port is a service. */
static bool service_valid(const char *text)
{
    return text[0] == '_' && strlen(text) < 254 && text[strspn(text, NAME_CHARS)] == '\0';
}

static bool word_valid(const char *text)
{
    const size_t bytes = strlen(text);
    return bytes > 0 && bytes <= 15 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") == bytes;
}

/* An identity, or the beginning of one with '*' behind it; the scheme and the site are never open. */
static bool identity_valid(const char *text)
{
    struct tb_identity identity;
    char whole[TB_URI_BYTES_MAX];
    const size_t bytes = strlen(text);
    if (bytes == 0 || bytes >= sizeof whole) return false;
    if (tb_identity_parse(text, &identity) == TB_OK || strcmp(text, "unix:*") == 0) return true;
    if (strncmp(text, "tombolo://", 10) != 0 || text[bytes - 1] != '*') return false;
    memcpy(whole, text, bytes + 1);
    whole[bytes - 1] = 'x'; /* some name that begins so */
    return tb_identity_parse(whole, &identity) == TB_OK;
}

static const char name_rule[] = "a name is 1 to 64 of A-Z a-z 0-9 . _ -";
static const char identity_rule[] = "an identity is unix:UID, unix:*, tombolo://SITE/GATEWAY, "
                                    "tombolo://SITE/worker/NAME, or the last two cut short with *";

static void set_number(const struct config_key *key, uint64_t n, void *at)
{
    if (key->type == CONFIG_NUMBER || key->type == CONFIG_AUTO)
        *(uint32_t *)at = (uint32_t)n;
    else
        *(uint64_t *)at = n;
}

static const char *range_text(const struct config_key *key, char out[96])
{
    const char *unit = key->unit == NULL ? "" : key->unit;
    snprintf(out, 96, "%" PRIu64 " to %" PRIu64 "%s%s", key->min, key->max, *unit == '\0' ? "" : " ", unit);
    return out;
}

/* NULL when it fits, else why it does not. `text` outlives the call. */
static const char *set_numeric(const struct config_key *key, const char *text, void *at, char why[160])
{
    char range[96];
    uint64_t n = 0;
    const bool is_size = key->type == CONFIG_SIZE, is_auto = key->type == CONFIG_AUTO;
    if (is_auto && strcmp(text, "auto") == 0) {
        set_number(key, 0, at);
        return NULL;
    }
    if (is_size ? !parse_size(text, &n) : !parse_digits(text, strlen(text), &n))
        return is_size   ? "is not a size (such as 4096, 512MiB, 2TiB)"
               : is_auto ? "is neither auto nor a whole number"
                         : "is not a whole number";
    if (n < key->min || n > key->max) {
        snprintf(why, 160, "is not in its range, %s", range_text(key, range));
        return why;
    }
    set_number(key, n, at);
    return NULL;
}

static const char *set_bool(const char *text, bool *at)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return "is neither true nor false";
    *at = text[0] == 't';
    return NULL;
}

static const char *set_policy(const char *text, bool *every)
{
    *every = strcmp(text, "every") == 0;
    return *every || strcmp(text, "latest") == 0 ? NULL : "is neither latest nor every";
}

static const char rate_rule[] = "is no rate (1Mbit to 10000Gbit, such as 200Mbit, or none)";

static bool text_valid(enum config_type type, const char *text)
{
    switch (type) {
    case CONFIG_ADDRESS:
        return address_valid(text);
    case CONFIG_DIAL:
        return address_valid(text) || service_valid(text);
    case CONFIG_WORD:
        return word_valid(text);
    default:
        return text[0] != '\0' && strlen(text) < 4096;
    }
}

/* One scalar into the struct; why not, or NULL. */
static const char *set_scalar(struct reading *r, const struct config_key *key, const char *text, void *at,
                              char why[160])
{
    switch (key->type) {
    case CONFIG_NAME:
        return tb_name_set(at, text) == TB_OK ? NULL : name_rule;
    case CONFIG_NUMBER:
    case CONFIG_AUTO:
    case CONFIG_SIZE:
        return set_numeric(key, text, at, why);
    case CONFIG_BOOL:
        return set_bool(text, at);
    case CONFIG_CODEC:
        return tb_choice_wish_parse(text, at) == TB_OK ? NULL : "is none of auto, raw, zstd, planes, sparse";
    case CONFIG_POLICY:
        return set_policy(text, at);
    case CONFIG_RATE:
        return tb_rate_parse(text, at) ? NULL : rate_rule;
    case CONFIG_LEVEL:
        return tb_log_level_parse(text, at) ? NULL : "is none of error, warn, info, debug";
    default:
        if (!text_valid(key->type, text))
            return key->type == CONFIG_ADDRESS ? "is not HOST:PORT"
                   : key->type == CONFIG_DIAL
                       ? "is neither HOST:PORT nor the name of a service, _SERVICE._tcp.DOMAIN"
                   : key->type == CONFIG_WORD ? "is not one word of a-z 0-9 _ -"
                                              : "is empty or too long";
        *(const char **)at = keep_text(r, text);
        return NULL;
    }
}

static bool is_list(enum config_type type)
{
    return type == CONFIG_NAMES || type == CONFIG_IDENTITIES || type == CONFIG_SCHEDULE;
}

/* ---- walking ---- */

static const char *dot(const struct walk *w)
{
    return w->shown[0] == '\0' ? "" : ".";
}

static void set_item(struct walk *w, const struct config_key *key, const struct config_node *item)
{
    uint8_t *base = w->base;
    uint32_t *count = (uint32_t *)(void *)(base + key->count_offset);
    const uint32_t max = key->type == CONFIG_NAMES      ? TB_CONFIG_FROM_MAX
                         : key->type == CONFIG_SCHEDULE ? TB_RATE_WINDOWS_MAX
                                                        : TB_CONFIG_LIST_MAX;
    if (item->kind != CONFIG_SCALAR || config_node_is_null(item)) {
        complain(w->r, item, "%s%s%s: an item is not one word", w->shown, dot(w), key->path);
        return;
    }
    if (*count == max) {
        complain(w->r, item, "%s%s%s: more than %" PRIu32 " items", w->shown, dot(w), key->path, max);
        return;
    }
    if (key->type == CONFIG_NAMES) {
        struct tb_name *names = (struct tb_name *)(void *)(base + key->offset);
        if (tb_name_set(&names[*count], item->text) == TB_OK)
            ++*count;
        else
            complain(w->r, item, "%s%s%s: \"%.80s\": %s", w->shown, dot(w), key->path, item->text, name_rule);
        return;
    }
    if (key->type == CONFIG_SCHEDULE) {
        struct tb_rate_window *windows = (struct tb_rate_window *)(void *)(base + key->offset);
        if (tb_rate_window_parse(item->text, &windows[*count]))
            ++*count;
        else
            complain(w->r, item, "%s%s%s: \"%.80s\": is not HH:MM-HH:MM RATE, such as 08:00-18:00 50Mbit",
                     w->shown, dot(w), key->path, item->text);
        return;
    }
    const char **texts = (const char **)(void *)(base + key->offset);
    if (identity_valid(item->text))
        texts[(*count)++] = keep_text(w->r, item->text);
    else
        complain(w->r, item, "%s%s%s: \"%.80s\": %s", w->shown, dot(w), key->path, item->text, identity_rule);
}

static void set_list(struct walk *w, const struct config_key *key, const struct config_node *node)
{
    if (node->kind != CONFIG_LIST) {
        complain(w->r, node, "%s%s%s: wants a list, such as [a, b]", w->shown, dot(w), key->path);
        return;
    }
    for (const struct config_node *item = node->first; item != NULL; item = item->next)
        set_item(w, key, item);
}

static void look_at_file(struct walk *w, const struct config_key *key, const struct config_node *node)
{
    const int fd = tb_sys_open(node->text, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        complain(w->r, node, "%s%s%s: cannot read \"%.200s\": %s", w->shown, dot(w), key->path, node->text,
                 strerror(errno));
    else
        close(fd);
}

static void set_value(struct walk *w, const struct config_key *key, const struct config_node *node)
{
    char why[160];
    void *at = (uint8_t *)w->base + key->offset;
    w->seen[key - config_keys] = true;
    if (is_list(key->type)) {
        set_list(w, key, node);
        return;
    }
    if (node->kind != CONFIG_SCALAR || config_node_is_null(node)) {
        complain(w->r, node, "%s%s%s: wants a %s, %s", w->shown, dot(w), key->path,
                 config_type_text(key->type),
                 node->kind == CONFIG_SCALAR ? "has no value" : "not a list or a section");
        return;
    }
    const bool plain = key->type == CONFIG_NUMBER || key->type == CONFIG_AUTO || key->type == CONFIG_SIZE ||
                       key->type == CONFIG_BOOL;
    const char *wrong = plain && node->quoted ? "is text: write it without quotes"
                                              : set_scalar(w->r, key, node->text, at, why);
    if (wrong != NULL)
        complain(w->r, node, "%s%s%s: \"%.80s\": %s", w->shown, dot(w), key->path, node->text, wrong);
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
    complain(w->r, entry->key, "%s%s%s%.80s: unknown key%s%s%s", w->shown, dot(w), section, entry->key->text,
             near[0] == '\0' ? "" : "; did you mean ", near, near[0] == '\0' ? "" : "?");
}

/* True when an earlier entry of the map has the same key; told at the later one. */
static bool is_duplicate(struct walk *w, const char *section, const struct config_node *map,
                         const struct config_node *entry)
{
    const struct config_node *first = config_node_find(map, entry->key->text);
    if (first == entry) return false;
    complain(w->r, entry->key, "%s%s%s%.80s: given before, in line %" PRIu32, w->shown, dot(w), section,
             entry->key->text, first->key->line);
    return true;
}

static void walk_map(struct walk *w, const char *section, const struct config_node *map);
static void walk_container(struct reading *r, const struct config_node *entry);

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
        } else if (!config_node_is_null(entry)) { /* a section whose keys are all commented out is empty */
            complain(w->r, entry, "%s%s%s: wants a section of keys", w->shown, dot(w), path);
        }
    } else {
        unknown(w, section, entry);
    }
}

static void walk_map(struct walk *w, const char *section, const struct config_node *map)
{
    for (const struct config_node *entry = map->first; entry != NULL; entry = entry->next)
        if (!is_duplicate(w, section, map, entry)) walk_entry(w, section, entry);
}

/* The place to name for a key that is missing: its section where there is one. */
static const struct config_node *missing_at(const struct walk *w, const struct config_key *key)
{
    char section[64];
    snprintf(section, sizeof section, "%s", key->path);
    char *end = strchr(section, '.');
    if (end == NULL) return w->top;
    *end = '\0';
    const struct config_node *node = config_node_find(w->top, section);
    return node == NULL ? w->top : node->key;
}

/* A whole instance of a scope: defaults, what the map says, what it should have said. */
static void walk_scope(struct walk *w)
{
    char why[160];
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->scope != w->scope || key->fallback == NULL) continue;
        const char *wrong = set_scalar(w->r, key, key->fallback, (uint8_t *)w->base + key->offset, why);
        TB_ASSERT(wrong == NULL);
    }
    walk_map(w, "", w->top);
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->scope == w->scope && key->required && !w->seen[i])
            complain(w->r, missing_at(w, key), "%s%s%s: is required", w->shown, dot(w), key->path);
    }
}

/* ---- peers, models, subscribe ---- */

/* Names are checked here, so that every instance has a good one; the struct is zero before. */
static void walk_instance(struct reading *r, enum config_scope scope, void *base,
                          const struct config_node *map, const char *shown)
{
    struct walk w = {.r = r, .scope = scope, .base = base, .top = map};
    snprintf(w.shown, sizeof w.shown, "%s", shown);
    walk_scope(&w);
}

static void *named_instance(struct reading *r, enum config_scope scope, const struct config_node *entry)
{
    struct tb_config *c = &r->box->config;
    struct tb_name name;
    if (tb_name_set(&name, entry->key->text) != TB_OK) {
        complain(r, entry->key, "\"%.80s\": %s", entry->key->text, name_rule);
        return NULL;
    }
    uint32_t *count = scope == CONFIG_PEER ? &c->peer_count : &c->model_count;
    if (*count == TB_CONFIG_LIST_MAX) {
        complain(r, entry->key, "%s: more than %d", entry->key->text, TB_CONFIG_LIST_MAX);
        return NULL;
    }
    if (scope == CONFIG_PEER) {
        c->peers[*count].site = name;
        return &c->peers[(*count)++];
    }
    c->models[*count].name = name;
    return &c->models[(*count)++];
}

static void walk_named(struct reading *r, enum config_scope scope, const struct config_node *container)
{
    struct walk outer = {.r = r, .scope = scope, .top = container};
    snprintf(outer.shown, sizeof outer.shown, "%s", container->key->text);
    for (const struct config_node *entry = container->first; entry != NULL; entry = entry->next) {
        char shown[PATH_MAX_CHARS];
        if (is_duplicate(&outer, "", container, entry)) continue;
        snprintf(shown, sizeof shown, "%s.%.100s", container->key->text, entry->key->text);
        if (entry->kind != CONFIG_MAP) {
            complain(r, entry, "%s: wants a section of keys", shown);
            continue;
        }
        void *base = named_instance(r, scope, entry);
        if (base != NULL) walk_instance(r, scope, base, entry, shown);
    }
}

static void walk_subscribe(struct reading *r, const struct config_node *list)
{
    struct tb_config *c = &r->box->config;
    uint32_t number = 0;
    for (const struct config_node *item = list->first; item != NULL; item = item->next) {
        char shown[PATH_MAX_CHARS];
        snprintf(shown, sizeof shown, "subscribe[%" PRIu32 "]", number++);
        if (item->kind != CONFIG_MAP)
            complain(r, item, "%s: wants {model: NAME, from: [SITE]}", shown);
        else if (c->subscribe_count == TB_CONFIG_LIST_MAX)
            complain(r, item, "%s: more than %d", shown, TB_CONFIG_LIST_MAX);
        else
            walk_instance(r, CONFIG_SUBSCRIBE, &c->subscribe[c->subscribe_count++], item, shown);
    }
}

static void walk_container(struct reading *r, const struct config_node *entry)
{
    const bool is_subscribe = strcmp(entry->key->text, "subscribe") == 0;
    if (config_node_is_null(entry)) return;
    if (entry->kind != (is_subscribe ? CONFIG_LIST : CONFIG_MAP))
        complain(r, entry, "%s: wants a %s", entry->key->text, is_subscribe ? "list" : "section of names");
    else if (is_subscribe)
        walk_subscribe(r, entry);
    else
        walk_named(r, entry->key->text[0] == 'p' ? CONFIG_PEER : CONFIG_MODEL, entry);
}

/* ---- what keys say of one another ---- */

/* The node of a path; the nearest one above it where it is not there. */
static const struct config_node *node_at(const struct reading *r, const char *a, const char *b, const char *c)
{
    const char *steps[] = {a, b, c};
    const struct config_node *at = r->root;
    for (uint32_t i = 0; i < 3 && steps[i] != NULL; i++) {
        const struct config_node *next = config_node_find(at, steps[i]);
        if (next == NULL) break;
        at = next;
    }
    return at;
}

/* Complaints about an entry point at its key. */
static const struct config_node *key_at(const struct reading *r, const char *a, const char *b)
{
    const struct config_node *node = node_at(r, a, b, NULL);
    return node->key != NULL ? node->key : node;
}

static void check_numbers(struct reading *r)
{
    const struct tb_config *c = &r->box->config;
    if (c->link_down_ms <= c->link_heartbeat_ms)
        complain(r, node_at(r, "link", "down_ms", NULL),
                 "link.down_ms: %" PRIu32 " is not above heartbeat_ms, %" PRIu32, c->link_down_ms,
                 c->link_heartbeat_ms);
    if (c->link_retry_max_ms < c->link_retry_min_ms)
        complain(r, node_at(r, "link", "retry_max_ms", NULL),
                 "link.retry_max_ms: %" PRIu32 " is below retry_min_ms, %" PRIu32, c->link_retry_max_ms,
                 c->link_retry_min_ms);
    if (strcmp(c->gateway.text, "worker") == 0)
        complain(r, node_at(r, "gateway", NULL, NULL), "gateway: \"worker\" begins the names of workers");
}

static void check_tls(struct reading *r)
{
    const struct tb_config *c = &r->box->config;
    const struct {
        const char *key, *value;
    } files[] = {{"ca", c->tls_ca}, {"cert", c->tls_cert}, {"key", c->tls_key}};
    const bool needed = c->peer_count > 0 || c->session_listen != NULL || c->link_listen != NULL;
    for (uint32_t i = 0; i < 3; i++) {
        const struct config_node *section = node_at(r, "tls", NULL, NULL);
        if (files[i].value != NULL || config_node_find(section, files[i].key) != NULL) continue;
        if (needed || c->tls_ca != NULL || c->tls_cert != NULL || c->tls_key != NULL)
            complain(r, key_at(r, "tls", NULL),
                     "tls.%s: is required where there are peers, link.listen or session.listen",
                     files[i].key);
    }
}

/* What the gateway of a lane is known by; false: it is no name. */
static bool label_of(const struct tb_name *site, uint32_t lane, struct tb_name *label_out)
{
    char text[TB_NAME_BYTES_MAX + 16];
    if (lane == 0)
        snprintf(text, sizeof text, "%s", site->text);
    else
        snprintf(text, sizeof text, "%s.%" PRIu32, site->text, lane);
    return tb_name_set(label_out, text) == TB_OK;
}

/* The site that SITE.LANE speaks of; false: it is not named so. */
static bool site_of(struct tb_config_peer *p)
{
    char end[16];
    const int bytes = snprintf(end, sizeof end, ".%" PRIu32, p->lane);
    struct tb_name of = p->site;
    const size_t all = strlen(of.text);
    if (p->lane > 0 && (all <= (size_t)bytes || strcmp(of.text + all - bytes, end) != 0)) return false;
    if (p->lane > 0) of.text[all - (size_t)bytes] = '\0';
    return tb_name_set(&p->of, of.text) == TB_OK;
}

static void check_lanes(struct reading *r)
{
    struct tb_config *c = &r->box->config;
    if (c->lane >= c->lanes)
        complain(r, node_at(r, "lane", NULL, NULL), "lane: %" PRIu32 " is not below lanes, %" PRIu32, c->lane,
                 c->lanes);
    if (!label_of(&c->site, c->lane, &c->label) && c->site.text[0] != '\0')
        complain(r, node_at(r, "site", NULL, NULL), "site: \"%s.%" PRIu32 "\" is too long for a name",
                 c->site.text, c->lane);
    for (uint32_t i = 0; i < c->peer_count; i++) {
        struct tb_config_peer *p = &c->peers[i];
        if (!site_of(p))
            complain(r, key_at(r, "peers", p->site.text),
                     "peers.%s: a gateway of lane %" PRIu32 " is named SITE.%" PRIu32, p->site.text, p->lane,
                     p->lane);
        else if (tb_name_equal(&p->of, &c->site) && p->lane >= c->lanes)
            complain(r, key_at(r, "peers", p->site.text), "peers.%s: lanes says that this site has %" PRIu32,
                     p->site.text, c->lanes);
    }
}

/* A certificate says which peer it is. */
static void check_identity(struct reading *r, uint32_t index)
{
    const struct tb_config *c = &r->box->config;
    const struct tb_config_peer *p = &c->peers[index];
    const struct config_node *at = node_at(r, "peers", p->site.text, "gateway");
    if (p->of.text[0] == '\0') return; /* said already */
    if (tb_name_equal(&p->of, &c->site) && tb_name_equal(&p->gateway, &c->gateway))
        complain(r, at, "peers.%s.gateway: \"%s\" is this gateway's own name", p->site.text, p->gateway.text);
    for (uint32_t i = 0; i < index; i++)
        if (tb_name_equal(&p->of, &c->peers[i].of) && tb_name_equal(&p->gateway, &c->peers[i].gateway))
            complain(r, at, "peers.%s.gateway: \"%s\" is also that of peers.%s", p->site.text,
                     p->gateway.text, c->peers[i].site.text);
}

static void check_peers(struct reading *r)
{
    const struct tb_config *c = &r->box->config;
    for (uint32_t i = 0; i < c->peer_count; i++) {
        const struct tb_config_peer *p = &c->peers[i];
        if (tb_name_equal(&p->site, &c->label))
            complain(r, key_at(r, "peers", p->site.text),
                     c->lane == 0 ? "peers.%s: is this site itself" : "peers.%s: is this gateway itself",
                     p->site.text);
        else
            check_identity(r, i);
        if (strcmp(p->gateway.text, "worker") == 0)
            complain(r, node_at(r, "peers", p->site.text, "gateway"),
                     "peers.%s.gateway: \"worker\" begins the names of workers", p->site.text);
        if (p->address == NULL && c->link_listen == NULL &&
            config_node_find(node_at(r, "peers", p->site.text, NULL), "address") == NULL)
            complain(r, key_at(r, "peers", p->site.text),
                     "peers.%s: nobody can dial: give its address here, or link.listen so that it can dial",
                     p->site.text);
    }
}

static const struct tb_config_model *find_model(const struct tb_config *c, const struct tb_name *name)
{
    for (uint32_t i = 0; i < c->model_count; i++)
        if (tb_name_equal(&c->models[i].name, name)) return &c->models[i];
    return NULL;
}

static bool is_peer(const struct tb_config *c, const struct tb_name *site)
{
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (tb_name_equal(&c->peers[i].site, site)) return true;
    return false;
}

/* `item` is the list's node for this subscription. A name that was refused before is empty: nothing more is said of it. */
static void check_from(struct reading *r, const struct config_node *item)
{
    const struct tb_config *c = &r->box->config;
    const struct config_node *from = config_node_find(item, "from");
    if (from == NULL || from->kind != CONFIG_LIST) return;
    if (from->first == NULL) complain(r, from, "subscribe: from names no site");
    for (const struct config_node *n = from->first; n != NULL; n = n->next) {
        struct tb_name site;
        if (n->kind != CONFIG_SCALAR || tb_name_set(&site, n->text) != TB_OK) continue;
        if (!is_peer(c, &site)) complain(r, n, "subscribe: from \"%s\": is not one of peers", site.text);
        for (const struct config_node *m = from->first; m != n; m = m->next)
            if (m->kind == CONFIG_SCALAR && strcmp(m->text, n->text) == 0)
                complain(r, n, "subscribe: from \"%s\": is named twice", site.text);
    }
}

static void check_subscription(struct reading *r, uint32_t index, const struct config_node *item)
{
    const struct tb_config *c = &r->box->config;
    const struct tb_config_subscribe *s = &c->subscribe[index];
    const struct config_node *at = config_node_find(item, "model");
    if (at == NULL || s->model.text[0] == '\0') return;
    const struct tb_config_model *model = find_model(c, &s->model);
    if (model == NULL)
        complain(r, at, "subscribe: model \"%s\": is not one of models", s->model.text);
    else if (tb_name_equal(&model->home, &c->label))
        complain(r, at, "subscribe: model \"%s\": this site is its home", s->model.text);
    for (uint32_t i = 0; i < index; i++)
        if (tb_name_equal(&c->subscribe[i].model, &s->model))
            complain(r, at, "subscribe: model \"%s\": is subscribed before", s->model.text);
    check_from(r, item);
}

static void check_subscribe(struct reading *r)
{
    const struct config_node *list = config_node_find(r->root, "subscribe");
    uint32_t index = 0;
    if (list == NULL || list->kind != CONFIG_LIST) return;
    for (const struct config_node *item = list->first; item != NULL; item = item->next)
        if (item->kind == CONFIG_MAP && index < r->box->config.subscribe_count)
            check_subscription(r, index++, item);
}

/* ---- whole files ---- */

static void read_tree(struct reading *r, const struct config_tree *tree)
{
    r->root = tree->root;
    walk_instance(r, CONFIG_ROOT, &r->box->config, tree->root, "");
    check_numbers(r);
    check_tls(r);
    check_lanes(r);
    check_peers(r);
    check_subscribe(r);
}

static enum tb_status read_text(struct reading *r, const char *text, size_t bytes)
{
    struct config_tree tree;
    struct config_problem problem;
    const enum tb_status status = config_tree_read(text, bytes, &tree, &problem);
    if (status == TB_SITE_CONFIG) complain_at(r, problem.line, problem.column, problem.text);
    if (status == TB_OK) read_tree(r, &tree);
    config_tree_free(&tree);
    if (status != TB_OK) return status;
    if (r->nomem) return TB_SITE_NOMEM;
    return r->complaints > 0 ? TB_SITE_CONFIG : TB_OK;
}

static enum tb_status read_config(struct reading *r, const char *text, size_t bytes,
                                  struct tb_config **config_out)
{
    TB_ASSERT(config_key_count <= KEYS_MAX);
    r->box = tb_calloc(1, sizeof *r->box);
    if (r->box == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = read_text(r, text, bytes);
    if (status == TB_OK)
        *config_out = &r->box->config;
    else
        tb_config_free(&r->box->config);
    return status;
}

enum tb_status tb_config_parse(const char *name, const char *text, size_t bytes,
                               tb_config_complain_fn complain_fn, void *user, struct tb_config **config_out)
{
    struct reading r = {.name = name, .complain = complain_fn, .user = user};
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

enum tb_status tb_config_load(const char *path, tb_config_complain_fn complain_fn, void *user,
                              struct tb_config **config_out)
{
    struct reading r = {.name = path, .complain = complain_fn, .user = user, .look_at_files = true};
    char *text = tb_malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) return TB_SITE_NOMEM;
    const ssize_t bytes = read_file(path, text);
    enum tb_status status = TB_SITE_CONFIG;
    if (bytes < 0)
        complain_at(&r, 1, 1, strerror(errno));
    else if ((size_t)bytes > FILE_BYTES_MAX)
        complain_at(&r, 1, 1, "the file is larger than 1 MiB");
    else
        status = read_config(&r, text, (size_t)bytes, config_out);
    tb_free(text);
    return status;
}

void tb_config_free(struct tb_config *config)
{
    if (config == NULL) return;
    struct box *box = (struct box *)(void *)config;
    while (box->texts != NULL) {
        struct text *t = box->texts;
        box->texts = t->next;
        tb_free(t);
    }
    tb_free(box);
}
