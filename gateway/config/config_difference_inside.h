/* config_difference_inside.h - what the files of the difference share. Inside gateway/config
 * only. */
#ifndef TB_CONFIG_DIFFERENCE_INSIDE_H
#define TB_CONFIG_DIFFERENCE_INSIDE_H

#include "gateway/config/config_difference.h"
#include "gateway/config/config_value.h"

/* `row` of a change that is the place of a pattern among patterns, and no key. */
#define TB_CONFIG_ROW_ORDER UINT32_MAX

/* Rows that a reload took out are none. NULL: there is none of that name. */
const struct tb_config_peer *tb_config_peer_of(const struct tb_config *c, const struct tb_name *site);
const struct tb_config_model *tb_config_model_of(const struct tb_config *c, const struct tb_name *name);
const struct tb_config_subscribe *tb_config_subscribe_of(const struct tb_config *c,
                                                         const struct tb_name *model);

/* config_difference_rules.c: live changes that this process cannot make need a restart. */
void tb_config_difference_judge(struct tb_config_difference *difference, const struct tb_config *was,
                                const struct tb_config *is, const struct tb_config_reach *reach);

#endif
