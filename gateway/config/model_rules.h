/* model_rules.h - which row of `models` counts for a model: the row of its name, or the first
 * pattern that matches it. Pure.
 *
 * A pattern is a name in which `*` stands for any number of the characters of names, none included.
 * A row behind a pattern that matches it would never count: config_checks.c refuses that, so that
 * the first match in the file's order and the row of the name itself are always one. */
#ifndef TB_CONFIG_MODEL_RULES_H
#define TB_CONFIG_MODEL_RULES_H

#include "gateway/config/config.h"

bool tb_model_pattern_is(const char *text); /* it has a `*` */
/* [A-Za-z0-9._*-], 1 to 64. */
bool tb_model_pattern_valid(const char *text);
/* Of a pattern as `name`: whether all that it matches is matched. */
bool tb_model_pattern_matches(const char *pattern, const char *name);

/* The row that counts for that model, or of that pattern itself. Of a model that left by a reload
 * it is the row without rights. NULL: none; such a name is unknown. */
const struct tb_config_model *tb_config_model_for(const struct tb_config *c, const struct tb_name *model);
/* The subscription to that model: by its name, else the first pattern that matches. NULL: none. */
const struct tb_config_subscribe *tb_config_subscribe_for(const struct tb_config *c,
                                                          const struct tb_name *model);

#endif
