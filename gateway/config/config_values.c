/* config_values.c - what one word of a config says, and why it may not say it. */
#include "base/assert.h"
#include "gateway/config/config_read.h"
#include "gateway/config/model_rules.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

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

/* "host:port", "192.0.2.1:7400", "[2001:db8::1]:7400": a shape; whether it can be
 * reached is not looked at. */
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

/* One listens at an address: a name is for others, who dial. */
static bool listen_valid(const char *text)
{
    char host[INET6_ADDRSTRLEN];
    struct in6_addr unused;
    if (!address_valid(text)) return false;
    const bool brackets = text[0] == '[';
    const size_t bytes = (size_t)(strrchr(text, ':') - text) - (brackets ? 2 : 0);
    TB_ASSERT(bytes > 0); /* address_valid has looked */
    if (bytes >= sizeof host) return false;
    memcpy(host, text + brackets, bytes);
    host[bytes] = '\0';
    return inet_pton(brackets ? AF_INET6 : AF_INET, host, &unused) == 1;
}

/* "_tombolo._tcp.west.example": what begins so and has no port is a service. */
static bool service_valid(const char *text)
{
    return text[0] == '_' && strlen(text) < 254 && text[strspn(text, NAME_CHARS)] == '\0';
}

/* One that a socket can have: a link-local address would need its device, too. */
static bool host_valid(const char *text)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1) return v4.s_addr != 0 && !IN_MULTICAST(ntohl(v4.s_addr));
    if (inet_pton(AF_INET6, text, &v6) != 1) return false;
    return !IN6_IS_ADDR_UNSPECIFIED(&v6) && !IN6_IS_ADDR_MULTICAST(&v6) && !IN6_IS_ADDR_LINKLOCAL(&v6) &&
           !IN6_IS_ADDR_V4MAPPED(&v6);
}

static bool word_valid(const char *text)
{
    const size_t bytes = strlen(text);
    return bytes > 0 && bytes <= 15 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") == bytes;
}

/* An identity, or the beginning of one with '*' behind it; the scheme and the site are never
 * open. */
bool tb_config_identity_valid(const char *text)
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

const char config_name_rule[] = "a name is 1 to 64 of A-Z a-z 0-9 . _ -";
const char config_pattern_rule[] = "a name is 1 to 64 of A-Z a-z 0-9 . _ -; one with * in it is a pattern";
const char config_network_rule[] = "a network is ADDRESS/BITS with zeros behind the bits, or one address";
const char config_identity_rule[] = "an identity is unix:UID, unix:*, tombolo://SITE/GATEWAY, "
                                    "tombolo://SITE/worker/NAME, "
                                    "tombolo://SITE/publisher/NAME, or the last three cut short with *";

static void set_number(const struct config_key *key, uint64_t n, void *at)
{
    TB_ASSERT(n <= UINT32_MAX || key->type == CONFIG_SIZE);
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
    TB_ASSERT(key->min <= key->max);
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

static const char *set_log_format(const char *text, bool *json)
{
    *json = strcmp(text, "json") == 0;
    return *json || strcmp(text, "text") == 0 ? NULL : "is neither text nor json";
}

static const char rate_rule[] = "is no rate (1Mbit to 10000Gbit, such as 200Mbit, or none)";

static bool text_valid(enum config_type type, const char *text)
{
    switch (type) {
    case CONFIG_ADDRESS:
        return listen_valid(text);
    case CONFIG_DIAL:
        return address_valid(text) || service_valid(text);
    case CONFIG_WORD:
        return word_valid(text);
    case CONFIG_HOST:
        return host_valid(text);
    default:
        return text[0] != '\0' && strlen(text) < 4096;
    }
}

static const char *set_models(const char *text, struct tb_name *at)
{
    if (tb_name_set(at, text) == TB_OK) return NULL;
    if (!tb_model_pattern_valid(text)) return config_pattern_rule;
    *at = (struct tb_name){.text = ""};
    memcpy(at->text, text, strlen(text));
    return NULL;
}

const char *tb_config_set_scalar(struct config_reading *r, const struct config_key *key, const char *text,
                                 void *at, char why[160])
{
    switch (key->type) {
    case CONFIG_NAME:
        return tb_name_set(at, text) == TB_OK ? NULL : config_name_rule;
    case CONFIG_MODELS:
        return set_models(text, at);
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
    case CONFIG_LOG_FORMAT:
        return set_log_format(text, at);
    case CONFIG_RATE:
        return tb_rate_parse(text, at) ? NULL : rate_rule;
    case CONFIG_LEVEL:
        return tb_log_level_parse(text, at) ? NULL : "is none of error, warn, info, debug";
    default:
        TB_ASSERT(key->type != CONFIG_NAMES && key->type != CONFIG_IDENTITIES &&
                  key->type != CONFIG_NETWORKS && key->type != CONFIG_SCHEDULE);
        if (!text_valid(key->type, text))
            return key->type == CONFIG_ADDRESS ? "is not ADDRESS:PORT, such as 0.0.0.0:7400 or [::]:7400"
                   : key->type == CONFIG_DIAL
                       ? "is neither HOST:PORT nor the name of a service, _SERVICE._tcp.DOMAIN"
                   : key->type == CONFIG_WORD ? "is not one word of a-z 0-9 _ -"
                   : key->type == CONFIG_HOST ? "is no address of a machine, such as 192.0.2.1 or 2001:db8::1"
                                              : "is empty or too long";
        *(const char **)at = tb_config_keep_text(r, text);
        return NULL;
    }
}
