/* config_changes.h - what differs between two configurations, as lines for a person. */
#ifndef TB_GATEWAY_CLI_CONFIG_CHANGES_H
#define TB_GATEWAY_CLI_CONFIG_CHANGES_H

#include <jansson.h>
#include <stdio.h>

/* `changes` as docs/control.md has them ("reload"); a stranger's. A line each, "nothing differs"
 * where there is none. */
void tb_config_changes_print(const json_t *changes, FILE *to);

#endif
