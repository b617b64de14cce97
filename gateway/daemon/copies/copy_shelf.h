/* copy_shelf.h - encoded chunks beside a copy, for workers that hold the version before. */
#ifndef TB_DAEMON_COPY_SHELF_H
#define TB_DAEMON_COPY_SHELF_H

#include "base/ident.h"
#include "intra/fabric/fabric_exports.h"

struct tb_copy;
struct tb_daemon;

/* As it is exported: memory for encoded chunks, and the buffer that it is. False: it gets none. */
bool tb_copy_shelf_make(struct tb_copy *copy, struct tb_export_buffer *buffer_out);
void tb_copy_shelf_begin(struct tb_copy *copy);
/* It goes: nobody reads its shelf any more, and nothing is encoded on it. */
void tb_copy_shelf_end(struct tb_copy *copy);
/* Workers of other hosts read here, by tcp, or some patch their buffers with that model. */
bool tb_copy_read_encoded(const struct tb_daemon *d, const struct tb_name *model);

#endif
