/* pause_command.c - tombolo pause and resume: an operator stops what crosses of a model, or to and
 * from a peer, and lets it go on. */
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"

static void print_pause(const struct tb_cli_call *call, const json_t *reply)
{
    TB_ASSERT(call->argument_count == 2);
    const bool paused = json_is_true(json_object_get(reply, "paused"));
    const bool changed = json_is_true(json_object_get(reply, "changed"));
    if (tb_cli_given(call, "quiet")) return;
    (void)printf("%s%s %s: ", tb_cli_dry(reply), call->arguments[0], call->arguments[1]);
    if (!changed && paused)
        (void)printf("paused before, by %s\n", tb_text_of(reply, "who").text);
    else
        (void)printf("%s\n", !changed ? "was not paused" : paused ? "paused" : "resumed");
}

static enum tb_cli_exit act(const struct tb_cli_call *call, const char *cmd)
{
    json_t *reply = NULL;
    TB_ASSERT(call->argument_count == 2); /* the table of commands says so */
    const char *what = call->arguments[0], *name = call->arguments[1];
    if (strcmp(what, "model") != 0 && strcmp(what, "peer") != 0)
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"),
                            "what is paused is a model or a peer, not \"%s\"", what);
    json_t *request = json_pack("{s:s, s:s}", "cmd", cmd, what, name);
    if (request == NULL) return tb_say_failure(call, TB_BAD_ARGUMENT, "the name is not UTF-8");
    const enum tb_cli_exit asked = tb_cli_ask(call, tb_cli_act(call, request), &reply);
    return asked != TB_CLI_DONE ? asked : tb_cli_show(call, reply, print_pause);
}

enum tb_cli_exit tb_cli_pause(const struct tb_cli_call *call)
{
    return act(call, "pause");
}

enum tb_cli_exit tb_cli_resume(const struct tb_cli_call *call)
{
    return act(call, "resume");
}
