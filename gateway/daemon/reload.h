/* reload.h - SIGHUP: certificates are read again; what else the configuration says by now needs a
 * restart, and the log names it. */
#ifndef TB_DAEMON_RELOAD_H
#define TB_DAEMON_RELOAD_H

struct tb_daemon;

void tb_reload(struct tb_daemon *d);

#endif
