/* gateway_tls.h - what tls.cert, tls.key and the CAs of a configuration make together: for a start,
 * for files that changed, and for `tombolo config check`. A shell. */
#ifndef TB_DAEMON_GATEWAY_TLS_H
#define TB_DAEMON_GATEWAY_TLS_H

#include "base/net/tls.h"
#include "gateway/config/config.h"

/* For a configuration that has tls.cert. The caller's, by tb_tls_free. TB_SITE_CONFIG: a file does
 * not serve, or the certificate is another gateway's; TB_SITE_NOMEM. error_out gets a sentence. */
TB_MUST_USE enum tb_status tb_gateway_tls(const struct tb_config *config, struct tb_tls **tls_out,
                                          char error_out[512]);

#endif
