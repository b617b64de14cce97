/* tensors_status.h - which tensors a version has, for a reader that compares them with its own. */
#ifndef TB_DAEMON_TENSORS_STATUS_H
#define TB_DAEMON_TENSORS_STATUS_H

#include <jansson.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/ident.h"

struct tb_layout;

/* Rows of one answer: 65,536 take the main loop some 100 ms. */
#define TB_STATUS_TENSORS_MAX 65536u
/* Tensors of all shards that are looked at for them: where ranks share each tensor, each of them
 * has its name. */
#define TB_STATUS_TENSORS_LOOKED (1u << 20)

/* {"schema": 1, "tensors": [[name, dtype without bits, [axes of the whole tensor]], ...]} of a
 * version's shards. A name that stands in several boxes may have several rows, which are alike.
 * `tensors` is null where there are more than TB_STATUS_TENSORS_MAX, and where more than
 * TB_STATUS_TENSORS_LOOKED would have to be looked at. NULL: no memory. */
json_t *tb_status_tensors(const struct tb_layout *const *shards, uint32_t shard_count);
/* The same with `tensors` null. */
json_t *tb_status_tensors_untold(void);

/* P6: a version's readers ask all at once, so the last answers are kept, unless they are larger
 * than that. They do not change: a uid and a root stand for the same bytes. */
#define TB_TENSORS_KEPT       4u
#define TB_TENSORS_KEPT_BYTES (4u << 20)
struct tb_tensors_kept {
    struct {
        struct tb_id uid;
        struct tb_digest root;
        char *text; /* NULL: the row is free */
    } rows[TB_TENSORS_KEPT];
    uint32_t next; /* that gives way */
};
/* NULL: it is not kept. */
const char *tb_tensors_kept(const struct tb_tensors_kept *kept, const struct tb_id *uid,
                            const struct tb_digest *root);
/* Of json_dumps; it is the table's now. */
void tb_tensors_keep(struct tb_tensors_kept *kept, const struct tb_id *uid, const struct tb_digest *root,
                     char *text);
void tb_tensors_kept_free(struct tb_tensors_kept *kept);

#endif
