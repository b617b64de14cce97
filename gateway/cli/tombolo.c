/* tombolo.c - tombolo: finds the command, parses its options, runs it. */
#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "base/fault.h"
#include "base/net/library_faults.h"
#include "gateway/cli/cli.h"
#include "tombolo/tombolo.h"

static enum tb_cli_exit unknown(const char *word)
{
    (void)fprintf(stderr, "tombolo: there is no command \"%.100s\"; `tombolo help` lists them\n", word);
    return TB_CLI_USAGE;
}

static enum tb_cli_exit run(const struct tb_cli_command *command, int argc, char **argv)
{
    struct tb_cli_call call;
    char error[256];
    bool help = false;
    if (!tb_cli_parse(command, argc, argv, &call, &help, error)) {
        (void)fprintf(stderr, "tombolo %s: %s; see `tombolo %s --help`\n", command->name, error,
                      command->name);
        return TB_CLI_USAGE;
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

int main(int argc, char **argv)
{
    const struct tb_cli_command *commands = tb_cli_commands();
    int words = 0;
    if (tb_fault_from_env()) {
        tb_net_library_faults();
        json_set_alloc_funcs(tb_library_malloc, tb_free);
    }
    if (argc < 2) {
        tb_cli_help(stderr, commands);
        return TB_CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        tb_cli_help(stdout, commands);
        return TB_CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("tombolo %s\n", tb_library_version());
        return TB_CLI_DONE;
    }
    const struct tb_cli_command *command = tb_cli_find(commands, argc, argv, &words);
    if (command == NULL) return unknown(argv[1]);
    return run(command, argc - words, argv + words);
}
