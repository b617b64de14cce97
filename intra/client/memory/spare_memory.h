/* spare_memory.h - memory that a version leaves to the next one of its model. */
#ifndef TB_INTRA_CLIENT_SPARE_MEMORY_H
#define TB_INTRA_CLIENT_SPARE_MEMORY_H

#include "base/ident.h"
#include "intra/fabric/shared_memory.h"

struct tb_session;

/* Memory of a version that has ended here, kept for the next one of its model: its pages stand, are
 * mapped and, where that is done, pinned, which is four fifths of what staging a version costs. One
 * a session, of what was staged, goes with the model's last subscription; one a registration, of
 * copies of a GPU's memory that was published in place, with that. Only of the same model: a reader
 * of the old version may have it mapped still. */
struct tb_spare {
    struct tb_shared_memory memory;
    struct tb_name model;
};

/* Memory that was prepared for a version is a little larger than the version turns out to be. */
#define TB_SPARE_MOST(bytes) ((bytes) + (bytes) / 4)

struct tb_spare_wish {
    const struct tb_name *model;
    uint64_t bytes;
};

/* Under the lock. Takes the memory; what was kept before is the caller's to free, without the
 * lock. */
struct tb_shared_memory tb_spare_keep(struct tb_spare *spare, const struct tb_name *model,
                                      struct tb_shared_memory *memory);
/* Without the lock. False: none of that size, or a little more, is there, and one of the model but
 * of another size is there no more. Its bytes are what they were. */
bool tb_spare_take(struct tb_session *s, struct tb_spare *spare, const struct tb_spare_wish *wish,
                   struct tb_shared_memory *memory_out);
/* Under the lock, let go meanwhile. */
void tb_spare_drop(struct tb_session *s, struct tb_spare *spare);

#endif
