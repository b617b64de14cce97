/* certificates.h - certificate, key, CAs and revoked certificates of this gateway: at start; when
 * the operator says SIGHUP; once a second. */
#ifndef TB_DAEMON_CERTIFICATES_H
#define TB_DAEMON_CERTIFICATES_H

#include <stdint.h>

#include "tombolo/status.h"

struct tb_daemon;
struct tb_tls;

/* At start; when the operator says SIGHUP; once a second. */
TB_MUST_USE enum tb_status tb_certificates_open(struct tb_daemon *d, char error[512]);
void tb_certificates_reload(struct tb_daemon *d);
/* Those that a reload of the configuration has read; the daemon's from here on. */
void tb_certificates_take(struct tb_daemon *d, struct tb_tls *tls);
void tb_certificates_tick(struct tb_daemon *d);

#define TB_CERTIFICATE_WARN_DAYS 14
/* Whole days until then; below zero: it has passed. */
int64_t tb_certificates_days_left(uint64_t expires_wall_s);

#endif
