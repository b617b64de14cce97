/* link_frames.h - what comes on connections. */
#ifndef TB_WAN_LINK_FRAMES_H
#define TB_WAN_LINK_FRAMES_H

#include "base/net/wire.h"
#include "wan/link/links.h"

extern const struct tb_wire_ops tb_links_wire_ops;

void tb_links_on_accept(void *user, int fd, const struct tb_address *from);

#endif
