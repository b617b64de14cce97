/* start_checks.h - what this machine says of a configuration before a gateway starts with it. A
 * shell; nothing is made or changed.
 *
 * Each look is the one that the start itself takes (gateway_tls.h, store.h, arena.h,
 * anchor_folder.h, chan.h, tcp.h), so a finding that would end the start is an error here. A
 * file that another process holds now is a warning: as a rule that is the gateway which runs
 * with this configuration. */
#ifndef TB_DAEMON_START_CHECKS_H
#define TB_DAEMON_START_CHECKS_H

#include "gateway/config/config.h"

#define TB_START_EXPIRES_SOON_S (7 * 24 * 3600u) /* a certificate that ends sooner is a warning */

struct tb_start_finding {
    const char *key;  /* "arena.bytes", for tb_config_place */
    bool refuses;     /* a start with this file, here and now, ends with it; else a warning */
    const char *text; /* a sentence */
};
/* Borrowed for the call. */
typedef void (*tb_start_find_fn)(void *user, const struct tb_start_finding *finding);
void tb_start_check(const struct tb_config *config, tb_start_find_fn find, void *user);

#endif
