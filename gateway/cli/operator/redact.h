/* redact.h - text of a gateway without what is secret, for somebody elsewhere. Pure but for the
 * file that it writes to. */
#ifndef TB_GATEWAY_CLI_REDACT_H
#define TB_GATEWAY_CLI_REDACT_H

#include <stdbool.h>
#include <stdio.h>

/* Writes `text` with TB_REDACTED in the place of: PEM blocks; 64 hexadecimal digits or more (keys;
 * ids have 32); base64 of 40 characters or more, also of URLs; signed tokens (JWT); what stands
 * between "://" and '@'; and values of keys whose name ends with passphrase, password, secret,
 * token or authorization in any case, in YAML, JSON and `key=value`: to the end of the line, where
 * no quote begins it. `addresses`: also numeric addresses, and the values of address, listen and
 * source. */
#define TB_REDACTED "[redacted]"
void tb_redact(FILE *to, const char *text, bool addresses);

#endif
