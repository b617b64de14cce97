/* config_explain.c - the table of keys for people: as text with a config's values,
 * and as docs/config.md. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/config/config.h"
#include "gateway/config/config_value.h"

/* docs/config.md shows it, and a test reads it: an example that does not parse is worse than
 * none. */
const char tb_config_example[] = "site: west\n"
                                 "gateway: gw\n"
                                 "session:\n"
                                 "  socket: /run/tombolo/session.sock\n"
                                 "arena:\n"
                                 "  path: /dev/shm/tombolo.arena\n"
                                 "  bytes: 64GiB\n"
                                 "tls:\n"
                                 "  ca: /etc/tombolo/pki/ca.crt\n"
                                 "  cert: /etc/tombolo/pki/gw.crt\n"
                                 "  key: /etc/tombolo/pki/gw.key\n"
                                 "peers:\n"
                                 "  east:\n"
                                 "    address: gw.east.example:7400\n"
                                 "    ca: /etc/tombolo/pki/east-ca.crt\n"
                                 "models:\n"
                                 "  policy:\n"
                                 "    home: east\n"
                                 "    keep: 2\n"
                                 "    read: [\"unix:*\", \"tombolo://west/worker/rollout-*\"]\n"
                                 "subscribe:\n"
                                 "  - model: policy\n"
                                 "    from: [east]\n";

static void print_range(const struct config_key *key, FILE *to)
{
    if (key->type == CONFIG_SIZE) {
        tb_config_print_size(key->min, to);
        fputs(" to ", to);
        tb_config_print_size(key->max, to);
    } else if (key->type == CONFIG_AUTO) {
        fprintf(to, "auto, %" PRIu64 " to %" PRIu64, key->min, key->max);
    } else if (key->type == CONFIG_NUMBER) {
        fprintf(to, "%" PRIu64 " to %" PRIu64, key->min, key->max);
    } else if (key->type == CONFIG_BOOL) {
        fputs("true, false", to);
    } else if (key->type == CONFIG_CODEC) {
        fputs("auto, raw, zstd, planes, sparse", to);
    } else if (key->type == CONFIG_POLICY) {
        fputs("latest, every", to);
    } else if (key->type == CONFIG_LOG_FORMAT) {
        fputs("text, json", to);
    } else if (key->type == CONFIG_RATE) {
        fputs("1Mbit to 10000Gbit, none", to);
    } else if (key->type == CONFIG_LEVEL) {
        fputs("error, warn, info, debug", to);
    }
}

static const char *default_text(const struct config_key *key)
{
    if (key->required) return "required";
    return key->fallback == NULL ? "none" : key->fallback;
}

/* ---- text ---- */

static void explain_key(const struct config_key *key, FILE *to)
{
    fprintf(to, "%s%s\n    %s; default %s", tb_config_scope_prefix(key->scope), key->path,
            tb_config_type_text(key->type), default_text(key));
    if (key->type == CONFIG_NUMBER || key->type == CONFIG_AUTO || key->type == CONFIG_SIZE) {
        fputs("; ", to);
        print_range(key, to);
        if (key->unit != NULL) fprintf(to, " %s", key->unit);
    }
    const struct config_effect effect = tb_config_effect_of(key->scope, key->path);
    fprintf(to, "\n    %s\n    A change %s: %s.\n", key->why,
            effect.effect == TB_CONFIG_LIVE ? "counts by a reload" : "needs a restart", effect.how);
}

/* Each key of one section: `name` is how it is written there. */
typedef void (*key_fn)(void *user, const struct config_key *key, const char *name, const void *base);

static void keys_of(enum config_scope scope, const char *shown, const void *base, key_fn fn, void *user)
{
    char name[256];
    for (uint32_t i = 0; i < config_key_count; i++) {
        if (config_keys[i].scope != scope) continue;
        const int used =
            snprintf(name, sizeof name, "%s%s%s", shown, shown[0] == '\0' ? "" : ".", config_keys[i].path);
        TB_ASSERT(used > 0 && (size_t)used < sizeof name);
        fn(user, &config_keys[i], name, base);
    }
}

static void each_set(const struct tb_config *c, key_fn fn, void *user)
{
    TB_ASSERT(c->peer_count <= TB_CONFIG_LIST_MAX && c->model_count <= TB_CONFIG_LIST_MAX);
    char shown[128];
    keys_of(CONFIG_ROOT, "", c, fn, user);
    for (uint32_t i = 0; i < c->peer_count; i++) {
        if (c->peers[i].gone) continue;
        snprintf(shown, sizeof shown, "peers.%s", c->peers[i].site.text);
        keys_of(CONFIG_PEER, shown, &c->peers[i], fn, user);
    }
    for (uint32_t i = 0; i < c->model_count; i++) {
        if (c->models[i].left) continue;
        snprintf(shown, sizeof shown, "models.%s", c->models[i].name.text);
        keys_of(CONFIG_MODEL, shown, &c->models[i], fn, user);
    }
    for (uint32_t i = 0; i < c->subscribe_count; i++) {
        snprintf(shown, sizeof shown, "subscribe[%" PRIu32 "]", i);
        keys_of(CONFIG_SUBSCRIBE, shown, &c->subscribe[i], fn, user);
    }
}

/* ---- markdown ---- */

static void markdown_row(const struct config_key *key, FILE *to)
{
    const bool plain = key->required || key->fallback == NULL;
    fprintf(to, "| `%s%s` | %s | %s%s%s | ", tb_config_scope_prefix(key->scope), key->path,
            tb_config_type_text(key->type), plain ? "" : "`", default_text(key), plain ? "" : "`");
    print_range(key, to);
    const struct config_effect effect = tb_config_effect_of(key->scope, key->path);
    fprintf(to, " | %s | %s | %s |\n", key->unit == NULL ? "" : key->unit,
            tb_config_effect_name(effect.effect), key->why);
}

static void markdown_all(FILE *to)
{
    fprintf(to,
            "# Configuration of a gateway\n\n"
            "One YAML file. This page is printed by `tombolo config explain --markdown` from the table that "
            "also parses and\n"
            "checks; `tombolo config check FILE` says what is wrong with a file, each with its line and "
            "column.\n\n"
            "```yaml\n%s```\n\n"
            "Sizes are bytes, or have B, KiB, MiB, GiB or TiB behind them; rates are bits a second with "
            "Kbit, Mbit or Gbit. An IPv6 address stands in brackets, and all of it in quotes: "
            "`\"[2001:db8::1]:7400\"`. An identity is `unix:UID` or "
            "`unix:*` for\n"
            "processes on the gateway's host, `tombolo://SITE/GATEWAY`, `tombolo://SITE/worker/NAME`, or the "
            "beginning of one\n"
            "of the last two with `*` behind it. An act that no list names is denied.\n\n"
            "A change of a key that is `live` counts by `tombolo reload` (or SIGHUP), of the others from the "
            "next start on;\n"
            "`tombolo config explain KEY` says more of it. A peer, a model or a subscription may come and go "
            "by a reload.\n\n"
            "| key | type | default | range | unit | change | why |\n|---|---|---|---|---|---|---|\n",
            tb_config_example);
    for (uint32_t i = 0; i < config_key_count; i++)
        markdown_row(&config_keys[i], to);
}

void tb_config_explain(bool markdown, FILE *to)
{
    if (markdown) {
        markdown_all(to);
        return;
    }
    for (uint32_t i = 0; i < config_key_count; i++)
        explain_key(&config_keys[i], to);
}

/* One part of a key, up to the next dot: SITE, NAME and the brackets of a list stand for any. */
static bool part_is(const char *part, size_t bytes, const char *word, size_t word_bytes)
{
    const bool any = strncmp(part, "SITE", bytes) == 0 || strncmp(part, "NAME", bytes) == 0;
    if (bytes == 4 && any) return word_bytes > 0;
    if (bytes > 2 && strncmp(part + bytes - 2, "[]", 2) == 0)
        return word_bytes >= bytes - 2 && strncmp(part, word, bytes - 2) == 0;
    return bytes == word_bytes && strncmp(part, word, bytes) == 0;
}

bool tb_config_key_named(const char *key, const char *word)
{
    while (*word != '\0') {
        const size_t part = strcspn(key, "."), of_word = strcspn(word, ".");
        if (part == 0 || !part_is(key, part, word, of_word)) return false;
        key += part + (key[part] == '.');
        word += of_word + (word[of_word] == '.');
    }
    return true; /* all of it, or a section */
}

uint32_t tb_config_explain_key(const char *word, FILE *to)
{
    uint32_t count = 0;
    char name[TB_CONFIG_KEY_CHARS];
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        (void)snprintf(name, sizeof name, "%s%s", tb_config_scope_prefix(key->scope), key->path);
        if (!tb_config_key_named(name, word)) continue;
        explain_key(key, to);
        count++;
    }
    return count;
}

/* ---- for programs ---- */

/* Text that is printed into memory. */
struct written {
    FILE *to;
    char *text;
    size_t bytes;
};

static bool written_begin(struct written *w)
{
    *w = (struct written){0};
    w->to = open_memstream(&w->text, &w->bytes);
    return w->to != NULL;
}

static bool written_end(struct written *w)
{
    return fclose(w->to) == 0 && w->text != NULL;
}

static enum tb_status tell_key(const struct config_key *key, tb_config_key_fn fn, void *user)
{
    char name[128];
    struct written range;
    if (!written_begin(&range)) return TB_SITE_NOMEM;
    print_range(key, range.to);
    const bool good = written_end(&range);
    const struct config_effect effect = tb_config_effect_of(key->scope, key->path);
    const int used = snprintf(name, sizeof name, "%s%s", tb_config_scope_prefix(key->scope), key->path);
    TB_ASSERT(used > 0 && (size_t)used < sizeof name);
    const struct tb_config_key_text text = {.key = name,
                                            .type = tb_config_type_text(key->type),
                                            .fallback = key->required ? NULL : key->fallback,
                                            .range = good && range.bytes > 0 ? range.text : NULL,
                                            .unit = key->unit,
                                            .why = key->why,
                                            .live = effect.effect == TB_CONFIG_LIVE,
                                            .how = effect.how,
                                            .required = key->required};
    if (good) fn(user, &text);
    free(range.text);
    return good ? TB_OK : TB_SITE_NOMEM;
}

enum tb_status tb_config_each_key(tb_config_key_fn fn, void *user)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; status == TB_OK && i < config_key_count; i++)
        status = tell_key(&config_keys[i], fn, user);
    return status;
}

struct telling {
    tb_config_value_fn fn;
    void *user;
    enum tb_status status;
};

static void tell_set(void *user, const struct config_key *key, const char *name, const void *base)
{
    struct telling *t = user;
    struct written value;
    if (t->status == TB_OK && !written_begin(&value)) t->status = TB_SITE_NOMEM;
    if (t->status != TB_OK) return;
    tb_config_value_print(key, base, value.to);
    if (written_end(&value))
        t->fn(t->user, name, strcmp(value.text, tb_config_none) == 0 ? NULL : value.text);
    else
        t->status = TB_SITE_NOMEM;
    free(value.text);
}

enum tb_status tb_config_each_value(const struct tb_config *config, tb_config_value_fn fn, void *user)
{
    struct telling t = {.fn = fn, .user = user};
    each_set(config, tell_set, &t);
    return t.status;
}

enum tb_status tb_config_each_value_of_model(const struct tb_config_model *model, tb_config_value_fn fn,
                                             void *user)
{
    struct telling t = {.fn = fn, .user = user};
    char shown[128];
    snprintf(shown, sizeof shown, "models.%s", model->name.text);
    keys_of(CONFIG_MODEL, shown, model, tell_set, &t);
    return t.status;
}
