/* pin_commands.c - tombolo pin, unpin and rollback: an operator decides which version of a model
 * the readers of a site get. */
#include <inttypes.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"

static void print_pin(const struct tb_cli_call *call, const json_t *reply)
{
    TB_ASSERT(call->argument_count > 0);
    if (tb_cli_given(call, "quiet")) return;
    if (json_object_get(reply, "run") == NULL)
        (void)printf("%s%s: no version was pinned\n", tb_cli_dry(reply), call->arguments[0]);
    else
        (void)printf("%s%s: %s %" PRIu64 ":%" PRIu64 "\n", tb_cli_dry(reply),
                     json_is_true(json_object_get(reply, "pinned")) ? "pinned" : "unpinned",
                     call->arguments[0], tb_count_of(reply, "run"), tb_count_of(reply, "number"));
}

static enum tb_cli_exit show(const struct tb_cli_call *call, json_t *request)
{
    json_t *reply = NULL;
    const enum tb_cli_exit asked = tb_cli_ask(call, tb_cli_act(call, request), &reply);
    return asked != TB_CLI_DONE ? asked : tb_cli_show(call, reply, print_pin);
}

static enum tb_cli_exit ask(const struct tb_cli_call *call, const char *cmd)
{
    TB_ASSERT(call->argument_count == 2); /* the table of commands says so */
    uint64_t run = 0;
    uint64_t number = 0;
    if (!tb_cli_version_of(call->arguments[1], &run, &number))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "a version is N or R:N, not \"%s\"", call->arguments[1]);
    return show(call, json_pack("{s:s, s:s, s:s}", "cmd", cmd, "model", call->arguments[0], "version",
                                call->arguments[1]));
}

enum tb_cli_exit tb_cli_pin(const struct tb_cli_call *call)
{
    return ask(call, "pin");
}

enum tb_cli_exit tb_cli_rollback(const struct tb_cli_call *call)
{
    return ask(call, "rollback");
}

enum tb_cli_exit tb_cli_unpin(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 1);
    return show(call, json_pack("{s:s, s:s}", "cmd", "unpin", "model", call->arguments[0]));
}
