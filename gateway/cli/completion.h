/* completion.h - words that may come next on a command line, by the table of commands; names of
 * models, peers, versions and the other nouns by the gateway. And the scripts by which bash, zsh
 * and fish ask for them. */
#ifndef TB_GATEWAY_CLI_COMPLETION_H
#define TB_GATEWAY_CLI_COMPLETION_H

#include <stdio.h>

#include "gateway/cli/cli.h"

/* `words` are those behind "tombolo", the last of them as far as it is written (it may be empty).
 * A candidate a line, with a tab and its meaning behind it; ":files" where a path is meant. A
 * gateway that does not answer within a second has no names. */
void tb_cli_candidates(FILE *to, const struct tb_cli_command *commands, int count, char **words);

void tb_cli_completion_bash(FILE *to);
void tb_cli_completion_zsh(FILE *to);
void tb_cli_completion_fish(FILE *to);

#endif
