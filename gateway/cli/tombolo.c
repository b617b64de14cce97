/* tombolo.c - tombolo: finds the command, parses its options, runs it. */
#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/net/library_faults.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/manual.h"
#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "tombolo/tombolo.h"

static bool has(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0) return true;
    return false;
}

/* `tombolo pki`: the first word of several commands. With --help it is a question. */
static enum tb_cli_exit unknown(const struct tb_cli_command *commands, int argc, char **argv, bool json)
{
    TB_ASSERT(argc >= 2);
    const bool asks = argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
    if ((argc == 2 || asks) && tb_cli_help_group(asks ? stdout : stderr, commands, argv[1]))
        return asks ? TB_CLI_DONE : TB_CLI_USAGE;
    if (argc > 2 && tb_cli_is_group(commands, argv[1]))
        return tb_say_usage("", json, "there is no command \"%.100s %.100s\"; see `tombolo %.100s --help`",
                            argv[1], argv[2], argv[1]);
    const char *meant = tb_cli_meant(commands, argv[1]);
    return tb_say_usage("", json, "there is no command \"%.100s\"; %s%s%s`tombolo help` lists them", argv[1],
                        meant != NULL ? "did you mean \"" : "", meant != NULL ? meant : "",
                        meant != NULL ? "\"? " : "");
}

static enum tb_cli_exit run(const struct tb_cli_command *command, int argc, char **argv)
{
    TB_ASSERT(argc > 0 && command->run != NULL);
    struct tb_cli_call call;
    char error[256];
    bool help = false;
    if (!tb_cli_parse(command, argc, argv, &call, &help, error)) {
        const enum tb_cli_exit code = tb_say_usage(command->name, tb_cli_wants_json(argc, argv),
                                                   "%s; see `tombolo %s --help`", error, command->name);
        const bool monitors = command->run == tb_cli_lag && has(argc, argv, "--check");
        return monitors ? (enum tb_cli_exit)TB_LAG_NOT_KNOWN : code;
    }
    if (help) {
        tb_cli_help_command(stdout, command);
        return TB_CLI_DONE;
    }
    const enum tb_cli_exit code = command->run(&call);
    /* A table that did not reach its reader was not shown. */
    if ((fflush(stdout) == 0 && ferror(stdout) == 0) || code != TB_CLI_DONE) return code;
    (void)fprintf(stderr, "tombolo %s: its output could not be written\n", command->name);
    return TB_CLI_SITE;
}

/* Options may stand before the command, too. */
static enum tb_cli_exit find_and_run(const struct tb_cli_command *commands, int argc, char **argv)
{
    int words = 0;
    const bool json = tb_cli_wants_json(argc, argv);
    const int lead = tb_cli_lead(commands, argc, argv);
    if (lead < 0) {
        const enum tb_cli_exit code =
            tb_say_usage("", json, "unknown option %.100s; `tombolo help` lists commands", argv[-lead]);
        const bool monitors = has(argc, argv, "lag") && has(argc, argv, "--check");
        return monitors ? (enum tb_cli_exit)TB_LAG_NOT_KNOWN : code;
    }
    TB_ASSERT(lead < argc);
    if (lead == argc - 1) return tb_say_usage("", json, "a command is missing; `tombolo help` lists them");
    const char *first = argv[1 + lead];
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        tb_cli_help(stdout, commands);
        return TB_CLI_DONE;
    }
    const struct tb_cli_command *command = tb_cli_find(commands, argc - lead, argv + lead, &words);
    if (command == NULL) return unknown(commands, argc - lead, argv + lead, json);
    tb_cli_lead_move(argv, lead, words);
    return run(command, argc - words, argv + words);
}

int main(int argc, char **argv)
{
    const struct tb_cli_command *commands = tb_cli_commands();
    if (tb_fault_from_env()) {
        tb_net_library_faults();
        json_set_alloc_funcs(tb_library_malloc, tb_free);
    }
    if (argc < 2) {
        tb_cli_help(stderr, commands);
        return TB_CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("tombolo %s\n", tb_library_version());
        return TB_CLI_DONE;
    }
    return find_and_run(commands, argc, argv);
}
