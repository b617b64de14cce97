/* gateway_user.h - as whom root checks a configuration: a gateway of the package runs as its own
 * user. */
#ifndef TB_CLI_GATEWAY_USER_H
#define TB_CLI_GATEWAY_USER_H

#include <stdbool.h>

#define TB_CLI_USER_BYTES 64

/* Where this process is root and the folder of `store_path` belongs to another user, it becomes
 * that user until it ends: a file is then readable, or another's, as the gateway will find it.
 * `name_out` gets that user; "": nothing changed. False: the kernel refused, by errno. */
bool tb_cli_be_gateway(const char *store_path, char name_out[TB_CLI_USER_BYTES]);

/* Why the folder of `store_path` does not say as whom the gateway runs; NULL: it does. It is not
 * there; or it is root's before a start, and this machine has the user of the package, to whom the
 * unit gives the folder. */
const char *tb_cli_gateway_unknown(const char *store_path, bool runs);

#endif
