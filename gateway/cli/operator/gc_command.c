/* gc_command.c - tombolo gc: what the gateway keeps for nobody goes now; or what that would be. */
#include <inttypes.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"

static void print_gc(const struct tb_cli_call *call, const json_t *reply)
{
    const json_t *versions = json_object_get(reply, "versions");
    const bool dry = json_is_true(json_object_get(reply, "dry_run"));
    if (tb_cli_given(call, "quiet")) return;
    (void)printf("%s%" PRIu64 " versions (%s) and %" PRIu64 " rows of the audit record %s\n",
                 tb_cli_dry(reply), tb_count_of(reply, "going"), tb_bytes_of(reply, "going_bytes").text,
                 tb_count_of(reply, "audit_rows"), dry ? "would go" : "go");
    for (size_t i = 0; i < json_array_size(versions); i++) {
        const json_t *v = json_array_get(versions, i);
        (void)printf("  %s %s  %s  %s: %s\n", tb_text_of(v, "model").text, tb_text_of(v, "version").text,
                     tb_bytes_of(v, "bytes").text,
                     json_is_true(json_object_get(v, "goes")) ? "goes" : "stays", tb_text_of(v, "why").text);
    }
}

enum tb_cli_exit tb_cli_gc(const struct tb_cli_call *call)
{
    json_t *reply = NULL;
    TB_ASSERT(call->argument_count == 0); /* the table of commands says so */
    const enum tb_cli_exit asked =
        tb_cli_ask(call, tb_cli_act(call, json_pack("{s:s}", "cmd", "gc")), &reply);
    return asked != TB_CLI_DONE ? asked : tb_cli_show(call, reply, print_gc);
}
