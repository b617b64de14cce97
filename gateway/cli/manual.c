/* manual.c - what the table of commands says, as help. */
#include "gateway/cli/manual.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/completion.h"
#include "gateway/cli/man_pages.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "tombolo/status.h"

const char tb_cli_intro[] = "Tombolo keeps the newest weights of a model, as its trainer publishes them, in "
                            "every datacenter where rollouts run.";

static void exit_codes(FILE *to, const char *format)
{
#define ROW(name, number, text) (void)fprintf(to, format, number, text);
    TB_CLI_EXIT_LIST(ROW)
#undef ROW
}

void tb_cli_help(FILE *to, const struct tb_cli_command *commands)
{
    (void)fprintf(to, "%s\n\nusage: tombolo COMMAND [OPTION...]\n\n", tb_cli_intro);
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++)
        (void)fprintf(to, "  %-17s %s\n", c->name, c->summary);
    (void)fprintf(to, "\n`tombolo COMMAND --help` says more, with an example. Exit codes:\n\n");
    exit_codes(to, "  %3d  %s\n");
    (void)fprintf(to, "\nEnvironment:\n\n");
    for (const struct tb_cli_variable *v = tb_cli_environment; v->name != NULL; v++)
        (void)fprintf(to, "  %s\n      %s\n", v->name, v->why);
}

/* Prints words of `text`, broken at 100 columns, each line behind `indent`. */
static void wrapped(FILE *to, const char *indent, const char *text)
{
    size_t column = 0;
    for (const char *at = text; *at != '\0';) {
        const size_t word = strcspn(at, " ");
        if (column > 0 && column + 1 + word > 100) {
            (void)fputc('\n', to);
            column = 0;
        }
        (void)fprintf(to, "%s%.*s", column == 0 ? indent : " ", (int)word, at);
        column += word + (column == 0 ? strlen(indent) : 1);
        at += word + strspn(at + word, " ");
    }
    (void)fputc('\n', to);
}

static void option_text(char *out, size_t cap, const struct tb_cli_option *o)
{
    const int used = snprintf(out, cap, "--%s%s%s", o->name, o->argument == NULL ? "" : " ",
                              o->argument == NULL ? "" : o->argument);
    TB_ASSERT(used > 0 && (size_t)used < cap);
}

void tb_cli_help_command(FILE *to, const struct tb_cli_command *command)
{
    (void)fprintf(to, "usage: tombolo %s %s%s[OPTION...]\n\n", command->name, command->arguments,
                  command->arguments[0] == '\0' ? "" : " ");
    wrapped(to, "", command->text);
    (void)fputc('\n', to);
    for (const struct tb_cli_option *o = command->options; o->name != NULL; o++) {
        char text[64];
        option_text(text, sizeof text, o);
        (void)fprintf(to, "  %-20s %s\n", text, o->why);
    }
    (void)fprintf(to, "  %-20s %s\n\nExample:\n  %s\n", "--help", "this text", command->example);
}

static bool is_of_group(const struct tb_cli_command *c, const char *word)
{
    const size_t length = strlen(word);
    return strncmp(c->name, word, length) == 0 && c->name[length] == ' ';
}

bool tb_cli_is_group(const struct tb_cli_command *commands, const char *word)
{
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++)
        if (is_of_group(c, word)) return true;
    return false;
}

bool tb_cli_help_group(FILE *to, const struct tb_cli_command *commands, const char *word)
{
    bool any = false;
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++) {
        if (!is_of_group(c, word)) continue;
        if (any) (void)fputc('\n', to);
        tb_cli_help_command(to, c);
        any = true;
    }
    return any;
}

/* Forms for programs; false: none was asked for. */
static bool for_programs(const struct tb_cli_call *call, const struct tb_cli_command *commands)
{
    if (tb_cli_given(call, "man"))
        tb_cli_man_page(stdout, commands);
    else if (tb_cli_given(call, "candidates"))
        tb_cli_candidates(stdout, commands, call->argument_count, call->arguments);
    else if (tb_cli_given(call, "completion"))
        tb_cli_completion_bash(stdout);
    else if (tb_cli_given(call, "completion-zsh"))
        tb_cli_completion_zsh(stdout);
    else if (tb_cli_given(call, "completion-fish"))
        tb_cli_completion_fish(stdout);
    else
        return false;
    return true;
}

enum tb_cli_exit tb_cli_manual(const struct tb_cli_call *call)
{
    const struct tb_cli_command *commands = tb_cli_commands();
    const char *folder = tb_cli_text(call, "man-pages");
    if (folder != NULL && !tb_cli_man_pages(folder, commands))
        return tb_say_usage("help", false, "the pages cannot be written into %.200s: %s", folder,
                            strerror(errno));
    if (folder != NULL || for_programs(call, commands)) return TB_CLI_DONE;
    if (call->argument_count > 2) return tb_say_usage("help", false, "a command has two words at most");
    if (call->argument_count == 0) {
        tb_cli_help(stdout, commands);
    } else {
        char none[] = "";
        char *words[] = {none, call->arguments[0], call->argument_count > 1 ? call->arguments[1] : none,
                         NULL};
        int used = 0;
        const struct tb_cli_command *c = tb_cli_find(commands, 3, words, &used);
        if (call->argument_count == 1 && tb_cli_help_group(stdout, commands, words[1])) return TB_CLI_DONE;
        if (c == NULL || used < call->argument_count)
            return tb_say_usage("help", false,
                                "there is no command \"%.100s%s%.100s\"; `tombolo help` lists them", words[1],
                                *words[2] != '\0' ? " " : "", words[2]);
        TB_ASSERT(used == call->argument_count);
        tb_cli_help_command(stdout, c);
    }
    return TB_CLI_DONE;
}
