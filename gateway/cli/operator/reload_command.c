/* reload_command.c - tombolo reload: the gateway reads its configuration again, and says what of it
 * counts from now on. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/config_changes.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"

/* "  peers.west.rate: 200Mbit -> 50Mbit (live: at once)". */
static void print_change(const json_t *c, FILE *to)
{
    const char *kind = json_string_value(json_object_get(c, "kind"));
    (void)fprintf(to, "  %s", tb_text_of(c, "key").text);
    if (kind != NULL && strcmp(kind, "changed") == 0)
        (void)fprintf(to, ": %s -> %s", tb_text_of(c, "was").text, tb_text_of(c, "is").text);
    else
        (void)fprintf(to, ": %s", tb_text_of(c, "kind").text);
    (void)fprintf(to, " (%s: %s)\n", tb_text_of(c, "effect").text, tb_text_of(c, "how").text);
}

void tb_config_changes_print(const json_t *changes, FILE *to)
{
    if (json_array_size(changes) == 0) (void)fprintf(to, "nothing differs\n");
    for (size_t i = 0; i < json_array_size(changes); i++)
        print_change(json_array_get(changes, i), to);
}

static void print_errors(const json_t *errors)
{
    for (size_t i = 0; i < json_array_size(errors); i++) {
        const char *text = json_string_value(json_array_get(errors, i));
        char clean[1024];
        tb_show_clean(text != NULL ? text : "?", clean, sizeof clean);
        (void)fprintf(stderr, "%s\n", clean);
    }
}

static void print_reload(const struct tb_cli_call *call, const json_t *reply)
{
    const bool dry = json_is_true(json_object_get(reply, "dry_run"));
    const uint64_t applied = tb_count_of(reply, "applied"), restart = tb_count_of(reply, "restart");
    print_errors(json_object_get(reply, "errors"));
    if (tb_cli_given(call, "quiet")) return;
    tb_config_changes_print(json_object_get(reply, "changes"), stdout);
    if (json_array_size(json_object_get(reply, "errors")) > 0)
        (void)printf("nothing changed: the file is not good\n");
    else if (dry)
        (void)printf("nothing changed: this was a dry run\n");
    else
        (void)printf("%" PRIu64 " applied, %" PRIu64 " need a restart\n", applied, restart);
}

enum tb_cli_exit tb_cli_reload(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 0); /* the table of commands says so */
    json_t *reply = NULL;
    const char *reason = tb_cli_text(call, "reason");
    json_t *request = json_pack("{s:s, s:b}", "cmd", "reload", "dry_run", tb_cli_given(call, "dry-run"));
    if (request != NULL && reason != NULL) (void)json_object_set_new(request, "reason", json_string(reason));
    const enum tb_cli_exit asked = tb_cli_ask(call, request, &reply);
    if (asked != TB_CLI_DONE) return asked;
    const bool refused = json_array_size(json_object_get(reply, "errors")) > 0;
    const bool restart = tb_count_of(reply, "restart") > 0;
    const enum tb_cli_exit said = tb_cli_show(call, reply, print_reload);
    if (said != TB_CLI_DONE) return said;
    return refused ? TB_CLI_REFUSED : restart ? TB_CLI_RESTART : TB_CLI_DONE;
}
