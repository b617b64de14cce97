/* anchor_refill.h - a model's anchor, read back into an arena that a reboot emptied. */
#ifndef TB_DAEMON_ANCHOR_REFILL_H
#define TB_DAEMON_ANCHOR_REFILL_H

#include "base/ident.h"
#include "gateway/disk/anchor_folder.h"

struct tb_daemon;

struct tb_anchor_refill {
    struct tb_daemon *d;
    const struct tb_anchor_folder *folder;
    const struct tb_name *model;
    /* Out. */
    struct tb_anchor_which newest; /* that can be read, or was not looked into; any false: none */
    bool refilled;
    struct tb_id uid; /* refilled: which version */
    bool damaged;     /* that anchor, or a newer one; or it is under disk.key_old */
};

/* Looks for the newest anchor that can be read, where the arena has nothing whole of the model.
 * Takes as long as it takes. TB_SITE_DRAINING: a signal came meanwhile.
 * TB_SITE_CONFIG: an anchor is under none of the keys. */
TB_MUST_USE enum tb_status tb_anchor_refill(struct tb_anchor_refill *r);

#endif
