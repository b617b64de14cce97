/* tensors_status.h - which tensors a version has, for a reader that compares them with its own. */
#ifndef TB_DAEMON_TENSORS_STATUS_H
#define TB_DAEMON_TENSORS_STATUS_H

#include <jansson.h>
#include <stdint.h>

struct tb_layout;

/* Rows of one answer: 65,536 take the main loop some 100 ms. */
#define TB_STATUS_TENSORS_MAX 65536u

/* {"schema": 1, "tensors": [[name, dtype without bits, [axes of the whole tensor]], ...]} of a
 * version's shards. A name that stands in several boxes may have several rows, which are alike.
 * `tensors` is null where there are more than TB_STATUS_TENSORS_MAX. NULL: no memory. */
json_t *tb_status_tensors(const struct tb_layout *const *shards, uint32_t shard_count);

#endif
