/* man_pages.h - the table of commands as manual pages: tombolo(1), and one for each command. */
#ifndef TB_GATEWAY_CLI_MAN_PAGES_H
#define TB_GATEWAY_CLI_MAN_PAGES_H

#include <stdbool.h>
#include <stdio.h>

#include "gateway/cli/cli.h"

/* tombolo(1): every command. */
void tb_cli_man_page(FILE *to, const struct tb_cli_command *commands);
/* tombolo-lag(1), tombolo-pki-init(1) and so on, each in a file of the folder, which has to be
 * there. False: errno says why not. */
bool tb_cli_man_pages(const char *folder, const struct tb_cli_command *commands);

/* Texts that the help has, too. */
extern const char tb_cli_intro[];
struct tb_cli_variable {
    const char *name; /* NULL ends the list */
    const char *why;
};
extern const struct tb_cli_variable tb_cli_environment[];

#endif
