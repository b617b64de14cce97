/* config_difference.h - two configurations, key by key: what differs, and when a change of it
 * counts in a gateway that runs. Pure.
 *
 * A change is live or needs a restart. The table of config_effects.c says which, for each key. The
 * reach of the process (struct tb_config_reach) may turn a live one into one that needs a
 * restart, and so may another change that it belongs to: config_difference_rules.c.
 *
 * tb_config_merge makes of a difference the configuration that runs after it: live changes as the
 * new file says, all else as before. Peers and models keep their rows, as others know them by
 * index. */
#ifndef TB_CONFIG_DIFFERENCE_H
#define TB_CONFIG_DIFFERENCE_H

#include "gateway/config/bounds.h"
#include "gateway/config/config.h"

enum tb_config_effect {
    TB_CONFIG_UNSAID,  /* no row says it: counts as restart, and a test fails */
    TB_CONFIG_LIVE,    /* by a reload */
    TB_CONFIG_RESTART, /* from the next start on */
};

enum tb_config_change_kind { TB_CONFIG_ADDED, TB_CONFIG_REMOVED, TB_CONFIG_CHANGED };

#define TB_CONFIG_KEY_CHARS 256

struct tb_config_change {
    char key[TB_CONFIG_KEY_CHARS]; /* "peers.west.rate"; "peers.west" of one that came or went */
    enum tb_config_change_kind kind;
    enum tb_config_effect effect;
    const char *how; /* static: when a live one counts; why a restart is needed */
    char *was, *is;  /* NULL: none */
    /* Where it is: a row of the table of keys, or key_count of it for a whole instance. */
    int scope;
    uint32_t row;
    struct tb_name of; /* the peer, the model; empty at the root */
};

struct tb_config_difference {
    struct tb_config_change *changes;
    uint32_t count, room;
    uint32_t live, restart; /* of count */
};

/* Changes that a process can take without a restart. */
struct tb_config_reach {
    bool links;                     /* it has some: there was tls.cert at its start */
    uint32_t peers;                 /* rows that are left for new ones */
    uint32_t models;                /* likewise */
    const struct tb_bounds *bounds; /* of its tables; NULL: any */
    /* Whether it can open that file. NULL: any. */
    bool (*file)(void *user, const char *path);
    /* Whether it knows nothing of that model from before its start. NULL: of none. */
    bool (*model)(void *user, const struct tb_name *model);
    void *user;
};

/* From `was`, which runs, to `is`. reach NULL: as if nothing stood in the way. TB_SITE_NOMEM:
 * nothing is to be freed. */
TB_MUST_USE enum tb_status tb_config_differ(const struct tb_config *was, const struct tb_config *is,
                                            const struct tb_config_reach *reach,
                                            struct tb_config_difference *difference_out);
void tb_config_difference_free(struct tb_config_difference *difference);

/* `was` with the live changes of the difference. A peer that went is a row that is `gone`; a model
 * that went is one that has `left`, without rights. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_config_merge(const struct tb_config *was, const struct tb_config *is,
                                           const struct tb_config_difference *difference,
                                           struct tb_config **merged_out);

const char *tb_config_effect_name(enum tb_config_effect effect);    /* "live", "restart" */
const char *tb_config_change_name(enum tb_config_change_kind kind); /* "added", ... */

#endif
