/* buffer_switch.h - how a staged version gets into registered buffers. Calls on a subscription come
 * one at a time. */
#ifndef TB_INTRA_CLIENT_BUFFER_SWITCH_H
#define TB_INTRA_CLIENT_BUFFER_SWITCH_H

#include "intra/client/follow/staged_use.h"
#include "tombolo/tombolo.h"

/* The staged version into the buffers in use, or into the other ones, which are then in use.
 * Neither is suspended. Under the lock, let go meanwhile. */
int tb_use_overwrite(struct tb_subscription *sub, const struct tb_staged_use *use,
                     struct tb_activate_info *info);
int tb_use_flip(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_activate_info *info);
/* TB_UPDATE_SWITCH: the version is in the buffers that are not in use, from now on. Likewise.
 * Nothing while they are suspended. */
int tb_use_fill(struct tb_subscription *sub, const struct tb_staged_use *use);

#endif
