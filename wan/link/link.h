/* link.h - one link: its path, its session and its traffic. Internal to wan/link.
 *
 * Each part has a folder, and each room of a part a header. The files of a part read and write the
 * fields of their own part, and ask the other parts by calls: `fence.link_parts` holds that. One
 * thread: the main loop's.
 *
 * links.c has the turn: it calls the parts of each link in order, and ends a session of
 * which a stream said so. */
#ifndef TB_WAN_LINK_H
#define TB_WAN_LINK_H

#include "wan/link/links.h"
#include "wan/link/links_stats.h"
#include "wan/link/path/link_path.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/link_traffic.h"

struct tb_link {
    struct tb_links *links;
    uint32_t index;
    struct tb_identity identity;
    struct tb_name label; /* in the log */
    struct tb_link_path path;
    struct tb_link_session_part session;
    struct tb_link_traffic traffic;
    struct tb_links_stats stats; /* what is not counted elsewhere; streams add theirs when they go */
};

#endif
