/* verify_command.c - tombolo verify MODEL --live: the gateway asks each worker of this site to
 * compare the tensors that it computes from with what was sealed, and shows what they say. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"

#define TIMEOUT_S     60u    /* for the workers */
#define TIMEOUT_S_MAX 600u   /* as the gateway takes it */
#define MORE_MS       10000u /* for the gateway's own answer */

static const char *why_text(const char *why)
{
    static const struct {
        const char *why, *text;
    } rows[] = {{"repacked", "the engine says that it repacks the weights"},
                {"idle", "no version is active"},
                {"released", "it computed from staging, which it released"},
                {"written", "a switch is under way, or the memory was suspended since"},
                {"undigested", "its boxes were staged as a patch"},
                {"refused", "memory or a device refused: see its log"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].why, why) == 0) return rows[i].text;
    return why;
}

static void print_proof(const json_t *row)
{
    const json_t *proof = json_object_get(row, "proof");
    const char *state = json_string_value(json_object_get(row, "state"));
    if (!json_is_object(proof) || state == NULL) return;
    if (strcmp(state, "differs") == 0)
        (void)printf(": tensor %s, shard %" PRIu64 ", chunk %" PRIu64 ", %" PRIu64 " differ in all",
                     tb_text_of(proof, "tensor").text, tb_count_of(proof, "shard"),
                     tb_count_of(proof, "chunk"), tb_count_of(proof, "bad"));
    else if (strcmp(state, "not provable") == 0)
        (void)printf(": %s", why_text(tb_text_of(proof, "why").text));
    else
        (void)printf(" %s ago, %s", tb_show_seconds(tb_number_of(proof, "age_s")).text,
                     tb_bytes_of(proof, "bytes").text);
    if (tb_count_of(proof, "left_bytes") > 0)
        (void)printf(", %s not looked at", tb_bytes_of(proof, "left_bytes").text);
}

static void print_row(const json_t *row)
{
    char version[64] = "-";
    if (json_is_integer(json_object_get(row, "run")))
        (void)snprintf(version, sizeof version, "%" PRIu64 ":%" PRIu64, tb_count_of(row, "run"),
                       tb_count_of(row, "number"));
    (void)printf("%-24s %-16s %4" PRIu64 "  %-12s %s", tb_text_of(row, "worker").text,
                 tb_text_of(row, "group").text, tb_count_of(row, "rank"), version,
                 tb_text_of(row, "state").text);
    print_proof(row);
    (void)putchar('\n');
}

static void print_verified(const struct tb_cli_call *call, const json_t *reply)
{
    TB_ASSERT(call->argument_count == 1);
    const json_t *workers = json_object_get(reply, "workers");
    const bool quiet = tb_cli_given(call, "quiet");
    if (!quiet && json_array_size(workers) > 0)
        (void)printf("%-24s %-16s %4s  %-12s %s\n", "worker", "group", "rank", "version", "state");
    for (size_t i = 0; i < json_array_size(workers) && !quiet; i++)
        print_row(json_array_get(workers, i));
    if (!quiet)
        (void)printf("%s: %" PRIu64 " proven, %" PRIu64 " differ, %" PRIu64 " not provable, %" PRIu64
                     " without an answer\n",
                     call->arguments[0], tb_count_of(reply, "proven"), tb_count_of(reply, "differs"),
                     tb_count_of(reply, "not_provable"), tb_count_of(reply, "silent"));
}

enum tb_cli_exit tb_cli_verify(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 1); /* the table of commands says so */
    const uint64_t seconds = tb_cli_number(call, "timeout", TIMEOUT_S);
    json_t *reply = NULL;
    char error[512] = "";
    if (!tb_cli_given(call, "live"))
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"),
                            "--live is needed: the workers' memory is what is looked at");
    if (seconds == 0 || seconds > TIMEOUT_S_MAX)
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "--timeout takes 1 s to %u s",
                            TIMEOUT_S_MAX);
    const uint32_t ms = (uint32_t)seconds * 1000u;
    json_t *request = json_pack("{s:s, s:s, s:I}", "cmd", "verify", "model", call->arguments[0], "timeout_ms",
                                (json_int_t)ms);
    const enum tb_status s =
        tb_control_client_ask(tb_control_client_path(call), request, ms + MORE_MS, &reply, error);
    json_decref(request);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    const bool differs = tb_count_of(reply, "differs") > 0;
    const bool silent = tb_count_of(reply, "silent") + tb_count_of(reply, "left_out") > 0;
    const enum tb_cli_exit shown = tb_cli_show(call, reply, print_verified);
    if (shown != TB_CLI_DONE || (!differs && !silent)) return shown;
    return differs ? TB_CLI_DIFFERS : TB_CLI_TIMEOUT;
}
