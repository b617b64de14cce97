/* group_facts.h - reader groups of "status", each with what the sessions of its members say: the
 * worst of their last updates, and how many of them compute from what was sealed. Pure. */
#ifndef TB_GATEWAY_WEB_GROUP_FACTS_H
#define TB_GATEWAY_WEB_GROUP_FACTS_H

#include <jansson.h>

#define TB_GROUP_FACTS_MAX 128u /* groups; each one walks the sessions */

/* Copies of the groups, the caller's, each with `worst` (an object: the highest `stall_ms` and
 * `staged_bytes`), `proven`, `differs` and `unproven` (members). NULL: no memory. */
json_t *tb_group_facts(const json_t *status);

#endif
