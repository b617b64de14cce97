/* pki_commands.c - tombolo pki init, issue and revoke, over base/pki/pki.h and
 * base/net/revoked.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/net/revoked.h"
#include "base/pki/pki.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/passphrase.h"
#include "gateway/cli/path_status.h"
#include "gateway/cli/pki_commands.h"

#define CA_DAYS_DEFAULT    3650u
#define ISSUE_DAYS_DEFAULT 90u
#define DAYS_MAX           36500u

static enum tb_cli_exit need(const struct tb_cli_call *call, const char *option)
{
    if (tb_cli_given(call, option)) return TB_CLI_DONE;
    return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "--%s is needed", option);
}

/* Certificates are issued again and again: what stands in the way is said with a way around it. */
static enum tb_cli_exit refused(const struct tb_cli_call *call, enum tb_status status, const char *why,
                                const char *way_around)
{
    TB_ASSERT(status != TB_OK);
    const bool in_the_way = status == TB_CONFLICT;
    return tb_say_failure(call, status, "%s%s%s", why, in_the_way ? "; " : "", in_the_way ? way_around : "");
}

bool tb_cli_make_folder(const char *path)
{
    char part[4096];
    const size_t length = strlen(path);
    if (length >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) return false;
    }
    return true;
}

enum tb_cli_exit tb_cli_pki_init(const struct tb_cli_call *call)
{
    char error[256] = "";
    if (need(call, "dir") != TB_CLI_DONE || need(call, "site") != TB_CLI_DONE) return TB_CLI_USAGE;
    const char *dir = tb_cli_text(call, "dir");
    const char *site = tb_cli_text(call, "site");
    const uint64_t days = tb_cli_number(call, "days", CA_DAYS_DEFAULT);
    if (days < 1 || days > DAYS_MAX)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--days is between 1 and %u", DAYS_MAX);
    if (!tb_cli_make_folder(dir))
        return tb_say_failure(call, tb_path_status(errno), "%s: %s", dir, strerror(errno));
    tb_cli_passphrase(call, true);
    const enum tb_status s = tb_pki_init(dir, site, (unsigned)days, error);
    if (s != TB_OK) return refused(call, s, error, "say another --dir");
    return tb_say_result(call, json_pack("{s:s, s:s}", "site", site, "dir", dir),
                         "%s/ca.crt goes to every gateway and worker that talks to %s; keep %s/ca.key", dir,
                         site, dir);
}

/* Of the argument, or of --publisher at the site whose CA stands in DIR. */
static enum tb_cli_exit identity_of(const struct tb_cli_call *call, const char *dir,
                                    struct tb_identity *identity_out)
{
    char error[256] = "";
    const char *publisher = tb_cli_text(call, "publisher");
    if ((publisher != NULL) == (call->argument_count == 1))
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"),
                            "IDENTITY or --publisher NAME is needed, and one of them alone");
    if (publisher == NULL) {
        if (tb_identity_parse(call->arguments[0], identity_out) == TB_OK &&
            identity_out->kind != TB_IDENTITY_UNIX)
            return TB_CLI_DONE;
        return tb_say_failure(call, TB_BAD_ARGUMENT,
                              "\"%s\" is not tombolo://SITE/GATEWAY, tombolo://SITE/worker/NAME or "
                              "tombolo://SITE/publisher/NAME",
                              call->arguments[0]);
    }
    *identity_out = (struct tb_identity){.kind = TB_IDENTITY_PUBLISHER};
    if (tb_name_set(&identity_out->name, publisher) != TB_OK)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--publisher: a name is 1 to 64 of A-Z a-z 0-9 . _ -");
    const enum tb_status s = tb_pki_site(dir, &identity_out->site, error);
    return s == TB_OK ? TB_CLI_DONE : tb_say_failure(call, s, "%s", error);
}

enum tb_cli_exit tb_cli_pki_issue(const struct tb_cli_call *call)
{
    char error[256] = "", uri[TB_URI_BYTES_MAX];
    struct tb_identity identity;
    if (need(call, "dir") != TB_CLI_DONE) return TB_CLI_USAGE;
    const char *dir = tb_cli_text(call, "dir");
    const uint64_t days = tb_cli_number(call, "days", ISSUE_DAYS_DEFAULT);
    if (days < 1 || days > DAYS_MAX)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--days is between 1 and %u", DAYS_MAX);
    tb_cli_passphrase(call, false);
    const enum tb_cli_exit named = identity_of(call, dir, &identity);
    if (named != TB_CLI_DONE) return named;
    tb_identity_format(&identity, uri);
    const int64_t start_s = tb_cli_signed(call, "start-days", 0) * 86400;
    const char *stem = tb_cli_given(call, "out") ? tb_cli_text(call, "out") : identity.name.text;
    const enum tb_status s = tb_pki_issue(dir, stem, &identity, start_s, (int64_t)days * 86400, error);
    if (s != TB_OK)
        return refused(call, s, error, "`tombolo pki renew` replaces a certificate; or say --out NAME");
    return tb_say_result(call, json_pack("{s:s, s:s, s:s}", "identity", uri, "dir", dir, "name", stem),
                         "%s/%s.crt and %s/%s.key", dir, stem, dir, stem);
}

/* One line of text for people. */
static void note_of(const struct tb_cli_call *call, const char *identity, char out[TB_REVOKED_NOTE_BYTES])
{
    const char *given = tb_cli_given(call, "note") ? tb_cli_text(call, "note") : "";
    char line[TB_REVOKED_NOTE_BYTES];
    snprintf(line, sizeof line, "%s%s%s", identity, identity[0] != '\0' && given[0] != '\0' ? " " : "",
             given);
    tb_show_clean(line, out, TB_REVOKED_NOTE_BYTES);
}

enum tb_cli_exit tb_cli_pki_revoke(const struct tb_cli_call *call)
{
    char error[256] = "", identity[TB_URI_BYTES_MAX] = "", note[TB_REVOKED_NOTE_BYTES];
    char text[TB_REVOKED_TEXT_BYTES];
    struct tb_revoked_entry entry;
    const char *what = call->arguments[0];
    if (need(call, "list") != TB_CLI_DONE) return TB_CLI_USAGE;
    const char *list = tb_cli_text(call, "list");
    enum tb_status s = tb_revoked_entry_parse(what, strlen(what), &entry);
    if (s != TB_OK) s = tb_revoked_of_file(what, &entry, identity, error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    note_of(call, identity, note);
    s = tb_revoked_add(list, &entry, note, error);
    if (s != TB_OK && s != TB_DONE_BEFORE) return tb_say_failure(call, s, "%s", error);
    tb_revoked_entry_format(&entry, text);
    return tb_say_result(call, json_pack("{s:s, s:s, s:b}", "entry", text, "list", list, "added", s == TB_OK),
                         "%s %s %s", list, s == TB_OK ? "lists" : "listed before:", text);
}
