/* config_keys.h - the table of keys: type, default, range, unit, why. The one truth of parsing,
 * checking, explaining and docs. Inside gateway/config only; more keys go into the table of
 * config_keys.c and nowhere else. */
#ifndef TB_DAEMON_CONFIG_KEYS_H
#define TB_DAEMON_CONFIG_KEYS_H

#include <stddef.h>

#include "gateway/config/config.h"
#include "gateway/config/config_difference.h"

/* Which struct a key's offset is in. */
enum config_scope {
    CONFIG_ROOT,      /* struct tb_config */
    CONFIG_PEER,      /* struct tb_config_peer, under peers.SITE */
    CONFIG_MODEL,     /* struct tb_config_model, under models.NAME */
    CONFIG_SUBSCRIBE, /* struct tb_config_subscribe, an item of subscribe */
};

enum config_type {
    CONFIG_NAME,       /* struct tb_name */
    CONFIG_MODELS,     /* struct tb_name; a name, or a pattern of model_rules.h */
    CONFIG_TEXT,       /* const char * */
    CONFIG_PATH,       /* const char *; a file or socket that we make */
    CONFIG_FILE,       /* const char *; a file that must be readable */
    CONFIG_ADDRESS,    /* const char *; address:port, numeric */
    CONFIG_DIAL,       /* const char *; host:port, or the name of a service */
    CONFIG_HOST,       /* const char *; a numeric address, without a port */
    CONFIG_WORD,       /* const char *; [a-z0-9_], 1 to 15 */
    CONFIG_NUMBER,     /* uint32_t */
    CONFIG_AUTO,       /* uint32_t; "auto" is 0 */
    CONFIG_SIZE,       /* uint64_t; 4096, 512MiB */
    CONFIG_BOOL,       /* bool */
    CONFIG_CODEC,      /* enum tb_codec_id */
    CONFIG_LEVEL,      /* enum tb_log_level */
    CONFIG_LOG_FORMAT, /* bool: json, or text */
    CONFIG_NAMES,      /* struct tb_name[max], count behind */
    CONFIG_IDENTITIES, /* const char *[TB_CONFIG_LIST_MAX], count behind */
    CONFIG_NETWORKS,   /* likewise; base/networks.h parses them */
    CONFIG_POLICY,     /* bool: every, or latest */
    CONFIG_RATE,       /* uint64_t, bits a second; 200Mbit, none */
    CONFIG_SCHEDULE,   /* struct tb_rate_window[TB_RATE_WINDOWS_MAX], count behind */
};

struct config_key {
    enum config_scope scope;
    const char *path; /* inside its scope: "arena.bytes", "keep" */
    enum config_type type;
    size_t offset;
    size_t count_offset; /* lists */
    bool required;
    const char *fallback; /* as it would be written; NULL: none */
    uint64_t min, max;    /* NUMBER, SIZE; NAMES: max, of items */
    const char *unit;
    const char *why;
};

extern const struct config_key config_keys[];
extern const uint32_t config_key_count;

/* When a change of a key counts (config_effects.c); the path "" is a whole peer, model or
 * subscription. */
struct config_effect {
    const char *path;
    enum tb_config_effect effect;
    const char *how;
};
/* A path without a row: TB_CONFIG_UNSAID. */
struct config_effect tb_config_effect_of(enum config_scope scope, const char *path);
/* By turns; NULL behind the last. */
const struct config_effect *tb_config_effect_at(enum config_scope scope, uint32_t at);

/* "", "peers.SITE.", "models.NAME.", "subscribe[]." */
const char *tb_config_scope_prefix(enum config_scope scope);
const char *tb_config_type_text(enum config_type type); /* "name", "size", ... */

#endif
