/* config_value.h - one value of a configuration: compared, copied, said. Inside gateway/config
 * only. */
#ifndef TB_DAEMON_CONFIG_VALUE_H
#define TB_DAEMON_CONFIG_VALUE_H

#include "gateway/config/config_read.h"

bool tb_config_is_list(enum config_type type);
/* base: the struct of the key's scope. */
bool tb_config_value_equal(const struct config_key *key, const void *a, const void *b);
/* Texts become the config's of `r`; r->nomem where there was no memory. */
void tb_config_value_copy(struct config_reading *r, const struct config_key *key, const void *from, void *to);
/* As one would write it; "(none)" of what is not set. */
void tb_config_value_print(const struct config_key *key, const void *base, FILE *to);
extern const char tb_config_none[];
void tb_config_print_size(uint64_t n, FILE *to); /* bytes, as 64GiB */
/* An item of a list, as text. False: it has no more. */
#define TB_CONFIG_ITEM_CHARS 4096
bool tb_config_value_item(const struct config_key *key, const void *base, uint32_t at,
                          char out[TB_CONFIG_ITEM_CHARS]);
/* The same on the heap, by malloc; *text_out NULL: not set. TB_SITE_NOMEM. */
enum tb_status tb_config_value_text(const struct config_key *key, const void *base, char **text_out);

#endif
