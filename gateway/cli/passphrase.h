/* passphrase.h - where the passphrase of an authority's key comes from: the terminal, a file, or a
 * credential of systemd. Never the command line, which every process may read, and never the
 * environment. */
#ifndef TB_GATEWAY_CLI_PASSPHRASE_H
#define TB_GATEWAY_CLI_PASSPHRASE_H

#include "gateway/cli/cli.h"

/* By --passphrase and --passphrase-file of the call: tb_pki_set_secret (base/pki/pki.h). `makes`:
 * the command makes a key of an authority, which gets the passphrase. */
void tb_cli_passphrase(const struct tb_cli_call *call, bool makes);

#endif
