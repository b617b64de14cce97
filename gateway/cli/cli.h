/* cli.h - commands as rows of one table: what a row is, a call of one, and the exit codes.
 *
 * commands.h has the table. options.h parses the command line by it, and manual.h makes help, man
 * page and completion from the same words. Threads: one. */
#ifndef TB_GATEWAY_CLI_CLI_H
#define TB_GATEWAY_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

/* Exit codes, on which a script may rely. The list is the documentation too. */
#define TB_CLI_EXIT_LIST(X)                                                                                  \
    X(TB_CLI_DONE, 0, "done")                                                                                \
    X(TB_CLI_REFUSED, 1, "refused: a file, a configuration or the request itself is not acceptable")         \
    X(TB_CLI_USAGE, 2, "the command line is not understood")                                                 \
    X(TB_CLI_AWAY, 3, "the gateway cannot be reached, or the connection to it broke")                        \
    X(TB_CLI_TIMEOUT, 4, "the time given has passed")                                                        \
    X(TB_CLI_DENIED, 5, "this identity has no right to do that, or the gateway is not who it should be")     \
    X(TB_CLI_VERSION, 6, "the version is lost, broken, withdrawn or was abandoned")                          \
    X(TB_CLI_SITE, 7,                                                                                        \
      "this machine or the gateway's failed: memory, disk, a system call, or an error of ours")              \
    X(TB_CLI_DIFFERS, 8, "bytes that should be equal differ, or configurations that were compared")          \
    X(TB_CLI_RESTART, 9, "done, but for what needs a restart of the gateway")                                \
    X(TB_CLI_INTERRUPTED, 130, "interrupted")

enum tb_cli_exit {
#define TB_CLI_EXIT_ENUM(name, number, text) name = (number),
    TB_CLI_EXIT_LIST(TB_CLI_EXIT_ENUM)
#undef TB_CLI_EXIT_ENUM
};

enum tb_cli_exit tb_cli_exit_of(int status);

enum tb_cli_kind {
    TB_CLI_FLAG,
    TB_CLI_TEXT,
    TB_CLI_COUNT,   /* a whole number below 2^63 */
    TB_CLI_SIGNED,  /* a whole number between -2^31 and 2^31 */
    TB_CLI_SECONDS, /* a whole number of seconds, or with s, m, h or d behind it */
    TB_CLI_FILE,    /* a path: completion offers files */
    TB_CLI_CHOICE   /* one of the words of `argument`, which has | between them */
};

struct tb_cli_option {
    const char *name; /* without "--"; NULL ends a list */
    enum tb_cli_kind kind;
    const char *argument; /* "N" in "--version N"; NULL for a flag */
    const char *why;
};

#define TB_CLI_OPTIONS_MAX 24 /* of one command */

struct tb_cli_call;
typedef enum tb_cli_exit (*tb_cli_run)(const struct tb_cli_call *call);

struct tb_cli_command {
    const char *name;      /* one or two words: "pki init" */
    const char *arguments; /* "MODEL PATH..." */
    const char *summary;   /* one line, lower case, no full stop */
    const char *text;      /* for the manual: sentences, lines of any length */
    const char *example;
    const struct tb_cli_option *options;
    int arguments_min;
    int arguments_max;
    tb_cli_run run;
};

struct tb_cli_call {
    const struct tb_cli_command *command;
    /* In the order of the command's options; "" for a flag; NULL: not given. */
    const char *given[TB_CLI_OPTIONS_MAX];
    int argument_count;
    char **arguments; /* borrowed from argv */
};

#endif
