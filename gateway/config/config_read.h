/* config_read.h - a file on its way to a config: its values, the walk through it, and what keys say
 * of one another. Inside gateway/config only. */
#ifndef TB_DAEMON_CONFIG_READ_H
#define TB_DAEMON_CONFIG_READ_H

#include "gateway/config/config_keys.h"
#include "gateway/config/config_tree.h"

/* One file as it is read. */
struct config_reading {
    const char *name; /* of the file */
    tb_config_complain_fn complain;
    tb_config_complain_fn warn; /* NULL: nobody wants to hear of it */
    void *user;
    uint32_t complaints;
    bool nomem;
    bool look_at_files;
    bool runs; /* a gateway wrote it: keys are not checked against one another */
    struct tb_config *config;
    const struct config_node *root;
};

/* config_complaints.c */
void tb_config_complain_at(struct config_reading *r, uint32_t line, uint32_t column, const char *text);
__attribute__((format(printf, 3, 4))) void tb_config_complain(struct config_reading *r,
                                                              const struct config_node *at,
                                                              const char *format, ...);
__attribute__((format(printf, 3, 4))) void tb_config_warn(struct config_reading *r,
                                                          const struct config_node *at, const char *format,
                                                          ...);

/* config_box.c */
struct tb_config *tb_config_new(void); /* empty; NULL: there is no memory */
/* As long as the config. NULL: there is no memory, and r->nomem says so. */
const char *tb_config_keep_text(struct config_reading *r, const char *chars);
/* The places of a map's keys, and of the maps in it, down to the depth that a tree has.
 * `above`: the map's own key. */
void tb_config_keep_places(struct config_reading *r, const struct config_node *map, const char *above);

/* config_values.c */
extern const char config_name_rule[], config_identity_rule[], config_pattern_rule[];
extern const char config_network_rule[]; /* what complaints say of them */
bool tb_config_identity_valid(const char *text);
/* One scalar into the struct; why not, or NULL. */
const char *tb_config_set_scalar(struct config_reading *r, const struct config_key *key, const char *text,
                                 void *at, char why[160]);

/* config_walk.c: defaults, what the file says, and what it should have said. */
void tb_config_walk(struct config_reading *r);

/* config_checks.c: what no key is wrong in by itself. */
void tb_config_check(struct config_reading *r);

#endif
