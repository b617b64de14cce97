/* store_restore.h - at start, before there is a writer: what the store knows, into the catalog. */
#ifndef TB_DAEMON_STORE_RESTORE_H
#define TB_DAEMON_STORE_RESTORE_H

#include "tombolo/status.h"

struct tb_daemon;

/* Runs, versions and pins from the store into the catalog; raises and writes the incarnation.
 * Waits for the disk. */
TB_MUST_USE enum tb_status tb_persist_restore(struct tb_daemon *d);

#endif
