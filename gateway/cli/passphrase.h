/* passphrase.h - where the passphrase of an authority's key, or of a backup, comes from: the
 * terminal, a file, or a credential of systemd. Never the command line, which every process may
 * read, and never the environment. */
#ifndef TB_GATEWAY_CLI_PASSPHRASE_H
#define TB_GATEWAY_CLI_PASSPHRASE_H

#include "gateway/cli/cli.h"

/* By --passphrase and --passphrase-file of the call: tb_pki_set_secret (base/pki/pki.h). `makes`:
 * the command makes a key of an authority, which gets the passphrase. */
void tb_cli_passphrase(const struct tb_cli_call *call, bool makes);
/* The same at once, for `what`, from --passphrase-file or the terminal: how many characters `out`
 * has, at most cap - 1. Below 0: error_out says why there is none. */
int tb_cli_passphrase_ask(const struct tb_cli_call *call, const char *what, bool is_new, char *out, int cap,
                          char error_out[256]);

#endif
