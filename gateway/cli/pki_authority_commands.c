/* pki_authority_commands.c - tombolo pki intermediate and rollover, over base/pki/pki.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/pki/pki.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/passphrase.h"
#include "gateway/cli/path_status.h"
#include "gateway/cli/pki_commands.h"

#define ROOT_DAYS_DEFAULT    3650u
#define ISSUING_DAYS_DEFAULT 365u
#define DAYS_MAX             36500u

static bool days_of(const struct tb_cli_call *call, uint64_t otherwise, unsigned *days_out)
{
    const uint64_t days = tb_cli_number(call, "days", otherwise);
    *days_out = (unsigned)days;
    return days >= 1 && days <= DAYS_MAX;
}

static enum tb_cli_exit needed(const struct tb_cli_call *call, const char *option)
{
    return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "--%s is needed", option);
}

enum tb_cli_exit tb_cli_pki_intermediate(const struct tb_cli_call *call)
{
    char error[256] = "";
    unsigned days = 0;
    const char *root = tb_cli_text(call, "root"), *dir = tb_cli_text(call, "dir");
    if (root == NULL || dir == NULL) return needed(call, root == NULL ? "root" : "dir");
    if (!days_of(call, ISSUING_DAYS_DEFAULT, &days))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--days is between 1 and %u", DAYS_MAX);
    if (!tb_cli_make_folder(dir))
        return tb_say_failure(call, tb_path_status(errno), "%s: %s", dir, strerror(errno));
    tb_cli_passphrase(call, true);
    const enum tb_status s = tb_pki_intermediate(root, dir, days, error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    return tb_say_result(call, json_pack("{s:s, s:s}", "root", root, "dir", dir),
                         "%s signs from now on (--dir %s); others go on with the root, which %s/root.crt has",
                         dir, dir, dir);
}

enum tb_cli_exit tb_cli_pki_rollover(const struct tb_cli_call *call)
{
    char error[256] = "";
    unsigned days = 0;
    const char *step = call->arguments[0], *dir = tb_cli_text(call, "dir"), *next = "";
    enum tb_status s = TB_BAD_ARGUMENT;
    if (dir == NULL) return needed(call, "dir");
    if (!days_of(call, ROOT_DAYS_DEFAULT, &days))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--days is between 1 and %u", DAYS_MAX);
    tb_cli_passphrase(call, true);
    if (strcmp(step, "begin") == 0) {
        s = tb_pki_rollover_begin(dir, days, error);
        next = "has both roots: copy it over the old one on each machine that has that; then `rollover turn`";
    } else if (strcmp(step, "turn") == 0) {
        s = tb_pki_rollover_turn(dir, error);
        next = "has both roots, and the second one signs: renew each certificate; then `rollover end`";
    } else if (strcmp(step, "end") == 0) {
        s = tb_pki_rollover_end(dir, error);
        next = "has the second root alone: copy it over the old one on each machine that has that";
    } else {
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "STEP is begin, turn or end");
    }
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    return tb_say_result(call, json_pack("{s:s, s:s, s:s}", "step", step, "dir", dir, "next", next),
                         "%s/ca.crt %s", dir, next);
}
