/* config_explain.c - the table of keys for people: as text with a config's values,
 * and as docs/config.md. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/config/config.h"
#include "gateway/config/config_keys.h"

/* docs/config.md shows it, and a test reads it: an example that does not parse is worse than
 * none. */
static const char example[] = "site: west\n"
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

/* A size as one would write it. */
static void print_size(uint64_t n, FILE *to)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    uint32_t unit = 0;
    while (n != 0 && n % 1024 == 0 && unit < 4) {
        n /= 1024;
        unit++;
    }
    fprintf(to, "%" PRIu64 "%s", n, units[unit]);
}

static void print_list(const struct config_key *key, const uint8_t *base, FILE *to)
{
    uint32_t count;
    memcpy(&count, base + key->count_offset, sizeof count);
    TB_ASSERT(count <= TB_CONFIG_LIST_MAX);
    fputc('[', to);
    for (uint32_t i = 0; i < count; i++) {
        const void *at = base + key->offset;
        char window[TB_RATE_CHARS];
        if (key->type == CONFIG_SCHEDULE)
            tb_rate_window_format(&((const struct tb_rate_window *)at)[i], window);
        const char *text = key->type == CONFIG_SCHEDULE ? window
                           : key->type == CONFIG_NAMES  ? ((const struct tb_name *)at)[i].text
                                                        : ((const char *const *)at)[i];
        fprintf(to, "%s%s", i == 0 ? "" : ", ", text);
    }
    fputc(']', to);
}

static const char none[] = "(none)"; /* what is not set */

static void print_value(const struct config_key *key, const void *base, FILE *to)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const void *at = (const uint8_t *)base + key->offset;
    const char *text = NULL;
    char rate[TB_RATE_CHARS];
    switch (key->type) {
    case CONFIG_NAME:
        text = ((const struct tb_name *)at)->text;
        break;
    case CONFIG_NUMBER:
        fprintf(to, "%" PRIu32, *(const uint32_t *)at);
        return;
    case CONFIG_AUTO:
        if (*(const uint32_t *)at == 0)
            fputs("auto", to);
        else
            fprintf(to, "%" PRIu32, *(const uint32_t *)at);
        return;
    case CONFIG_SIZE:
        print_size(*(const uint64_t *)at, to);
        return;
    case CONFIG_BOOL:
        text = *(const bool *)at ? "true" : "false";
        break;
    case CONFIG_CODEC:
        text = tb_choice_wish_name(*(const enum tb_choice_wish *)at);
        break;
    case CONFIG_LEVEL:
        TB_ASSERT(*(const enum tb_log_level *)at <= TB_LOG_DEBUG);
        text = levels[*(const enum tb_log_level *)at];
        break;
    case CONFIG_LOG_FORMAT:
        text = *(const bool *)at ? "json" : "text";
        break;
    case CONFIG_POLICY:
        text = *(const bool *)at ? "every" : "latest";
        break;
    case CONFIG_RATE:
        tb_rate_format(*(const uint64_t *)at, rate);
        text = rate;
        break;
    case CONFIG_NAMES:
    case CONFIG_IDENTITIES:
    case CONFIG_NETWORKS:
    case CONFIG_SCHEDULE:
        print_list(key, base, to);
        return;
    default:
        text = *(const char *const *)at;
        break;
    }
    fputs(text == NULL || text[0] == '\0' ? none : text, to);
}

static void print_range(const struct config_key *key, FILE *to)
{
    if (key->type == CONFIG_SIZE) {
        print_size(key->min, to);
        fputs(" to ", to);
        print_size(key->max, to);
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
    fprintf(to, "\n    %s\n", key->why);
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
        snprintf(shown, sizeof shown, "peers.%s", c->peers[i].site.text);
        keys_of(CONFIG_PEER, shown, &c->peers[i], fn, user);
    }
    for (uint32_t i = 0; i < c->model_count; i++) {
        snprintf(shown, sizeof shown, "models.%s", c->models[i].name.text);
        keys_of(CONFIG_MODEL, shown, &c->models[i], fn, user);
    }
    for (uint32_t i = 0; i < c->subscribe_count; i++) {
        snprintf(shown, sizeof shown, "subscribe[%" PRIu32 "]", i);
        keys_of(CONFIG_SUBSCRIBE, shown, &c->subscribe[i], fn, user);
    }
}

static void print_set(void *user, const struct config_key *key, const char *name, const void *base)
{
    FILE *to = user;
    fprintf(to, "%s = ", name);
    print_value(key, base, to);
    fputc('\n', to);
}

/* ---- markdown ---- */

static void markdown_row(const struct config_key *key, FILE *to)
{
    const bool plain = key->required || key->fallback == NULL;
    fprintf(to, "| `%s%s` | %s | %s%s%s | ", tb_config_scope_prefix(key->scope), key->path,
            tb_config_type_text(key->type), plain ? "" : "`", default_text(key), plain ? "" : "`");
    print_range(key, to);
    fprintf(to, " | %s | %s |\n", key->unit == NULL ? "" : key->unit, key->why);
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
            "of the last two with `*` behind it. What no list names may not be done.\n\n"
            "| key | type | default | range | unit | why |\n|---|---|---|---|---|---|\n",
            example);
    for (uint32_t i = 0; i < config_key_count; i++)
        markdown_row(&config_keys[i], to);
}

void tb_config_explain(const struct tb_config *config, bool markdown, FILE *to)
{
    if (markdown) {
        markdown_all(to);
        return;
    }
    if (config != NULL) {
        each_set(config, print_set, to);
        fputc('\n', to);
    }
    for (uint32_t i = 0; i < config_key_count; i++)
        explain_key(&config_keys[i], to);
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
    const int used = snprintf(name, sizeof name, "%s%s", tb_config_scope_prefix(key->scope), key->path);
    TB_ASSERT(used > 0 && (size_t)used < sizeof name);
    const struct tb_config_key_text text = {.key = name,
                                            .type = tb_config_type_text(key->type),
                                            .fallback = key->required ? NULL : key->fallback,
                                            .range = good && range.bytes > 0 ? range.text : NULL,
                                            .unit = key->unit,
                                            .why = key->why,
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
    print_value(key, base, value.to);
    if (written_end(&value))
        t->fn(t->user, name, strcmp(value.text, none) == 0 ? NULL : value.text);
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
