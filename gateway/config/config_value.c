/* config_value.c - one value of a configuration, by the type of its key. */
#include "gateway/config/config_value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

const char tb_config_none[] = "(none)";

bool tb_config_is_list(enum config_type type)
{
    return type == CONFIG_NAMES || type == CONFIG_IDENTITIES || type == CONFIG_NETWORKS ||
           type == CONFIG_SCHEDULE;
}

static bool is_text(enum config_type type)
{
    return type == CONFIG_TEXT || type == CONFIG_PATH || type == CONFIG_FILE || type == CONFIG_ADDRESS ||
           type == CONFIG_DIAL || type == CONFIG_HOST || type == CONFIG_WORD;
}

/* Of one value; of a list, of one item. */
static size_t bytes_of(enum config_type type)
{
    switch (type) {
    case CONFIG_NAME:
    case CONFIG_MODELS:
    case CONFIG_NAMES:
        return sizeof(struct tb_name);
    case CONFIG_NUMBER:
    case CONFIG_AUTO:
        return sizeof(uint32_t);
    case CONFIG_SIZE:
    case CONFIG_RATE:
        return sizeof(uint64_t);
    case CONFIG_BOOL:
    case CONFIG_POLICY:
        return sizeof(bool);
    case CONFIG_CODEC:
        return sizeof(enum tb_choice_wish);
    case CONFIG_LEVEL:
        return sizeof(enum tb_log_level);
    case CONFIG_LOG_FORMAT:
        return sizeof(bool);
    case CONFIG_SCHEDULE:
        return sizeof(struct tb_rate_window);
    default:
        return sizeof(const char *);
    }
}

static uint32_t count_of(const struct config_key *key, const void *base)
{
    uint32_t count;
    memcpy(&count, (const uint8_t *)base + key->count_offset, sizeof count);
    TB_ASSERT(count <= TB_CONFIG_LIST_MAX);
    return count;
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_window(const struct tb_rate_window *a, const struct tb_rate_window *b)
{
    char x[TB_RATE_CHARS], y[TB_RATE_CHARS];
    tb_rate_window_format(a, x);
    tb_rate_window_format(b, y);
    return strcmp(x, y) == 0;
}

static bool same_item(enum config_type type, const void *a, const void *b)
{
    if (type == CONFIG_NAME || type == CONFIG_MODELS || type == CONFIG_NAMES) return tb_name_equal(a, b);
    if (type == CONFIG_SCHEDULE) return same_window(a, b);
    if (is_text(type) || tb_config_is_list(type))
        return same_text(*(const char *const *)a, *(const char *const *)b);
    return memcmp(a, b, bytes_of(type)) == 0;
}

bool tb_config_value_equal(const struct config_key *key, const void *a, const void *b)
{
    const uint8_t *x = (const uint8_t *)a + key->offset, *y = (const uint8_t *)b + key->offset;
    if (!tb_config_is_list(key->type)) return same_item(key->type, x, y);
    const uint32_t count = count_of(key, a);
    if (count != count_of(key, b)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!same_item(key->type, x + i * bytes_of(key->type), y + i * bytes_of(key->type))) return false;
    return true;
}

static void copy_text(struct config_reading *r, const void *from, void *to)
{
    const char *text = *(const char *const *)from;
    *(const char **)to = text != NULL ? tb_config_keep_text(r, text) : NULL;
}

void tb_config_value_copy(struct config_reading *r, const struct config_key *key, const void *from, void *to)
{
    const uint8_t *x = (const uint8_t *)from + key->offset;
    uint8_t *y = (uint8_t *)to + key->offset;
    const bool list = tb_config_is_list(key->type);
    const uint32_t count = list ? count_of(key, from) : 1;
    const size_t bytes = bytes_of(key->type);
    const bool texts = is_text(key->type) || key->type == CONFIG_IDENTITIES || key->type == CONFIG_NETWORKS;
    for (uint32_t i = 0; i < count; i++)
        if (texts)
            copy_text(r, x + i * bytes, y + i * bytes);
        else
            memcpy(y + i * bytes, x + i * bytes, bytes);
    if (list) memcpy((uint8_t *)to + key->count_offset, &count, sizeof count);
}

/* ---- as text ---- */

/* A size as one would write it. */
void tb_config_print_size(uint64_t n, FILE *to)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    uint32_t unit = 0;
    while (n != 0 && n % 1024 == 0 && unit < 4) {
        n /= 1024;
        unit++;
    }
    fprintf(to, "%" PRIu64 "%s", n, units[unit]);
}

bool tb_config_value_item(const struct config_key *key, const void *base, uint32_t at,
                          char out[TB_CONFIG_ITEM_CHARS])
{
    TB_ASSERT(tb_config_is_list(key->type));
    const void *all = (const uint8_t *)base + key->offset;
    char window[TB_RATE_CHARS];
    if (at >= count_of(key, base)) return false;
    if (key->type == CONFIG_SCHEDULE)
        tb_rate_window_format(&((const struct tb_rate_window *)all)[at], window);
    (void)snprintf(out, TB_CONFIG_ITEM_CHARS, "%s",
                   key->type == CONFIG_SCHEDULE ? window
                   : key->type == CONFIG_NAMES  ? ((const struct tb_name *)all)[at].text
                                                : ((const char *const *)all)[at]);
    return true;
}

static void print_list(const struct config_key *key, const void *base, FILE *to)
{
    char item[TB_CONFIG_ITEM_CHARS];
    fputc('[', to);
    for (uint32_t i = 0; tb_config_value_item(key, base, i, item); i++)
        fprintf(to, "%s%s", i == 0 ? "" : ", ", item);
    fputc(']', to);
}

void tb_config_value_print(const struct config_key *key, const void *base, FILE *to)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const void *at = (const uint8_t *)base + key->offset;
    const char *text = NULL;
    char rate[TB_RATE_CHARS];
    switch (key->type) {
    case CONFIG_NAME:
    case CONFIG_MODELS:
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
        tb_config_print_size(*(const uint64_t *)at, to);
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
    fputs(text == NULL || text[0] == '\0' ? tb_config_none : text, to);
}

enum tb_status tb_config_value_text(const struct config_key *key, const void *base, char **text_out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    *text_out = NULL;
    if (to == NULL) return TB_SITE_NOMEM;
    tb_config_value_print(key, base, to);
    if (fclose(to) != 0 || text == NULL) {
        free(text);
        return TB_SITE_NOMEM;
    }
    if (strcmp(text, tb_config_none) != 0)
        *text_out = text;
    else
        free(text);
    return TB_OK;
}
