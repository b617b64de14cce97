/* pki_request_commands.c - tombolo pki request, sign and renew, over base/pki/pki.h. */
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

#define PATH_BYTES        4096
#define SIGN_DAYS_DEFAULT 90u
#define DAYS_MAX          36500u

static enum tb_cli_exit identity_of(const struct tb_cli_call *call, const char *text,
                                    struct tb_identity *identity_out)
{
    if (tb_identity_parse(text, identity_out) == TB_OK && identity_out->kind != TB_IDENTITY_UNIX)
        return TB_CLI_DONE;
    return tb_say_failure(call, TB_BAD_ARGUMENT,
                          "\"%.160s\" is not tombolo://SITE/GATEWAY, tombolo://SITE/worker/NAME or "
                          "tombolo://SITE/publisher/NAME",
                          text);
}

/* FILE with another suffix: gw.crt is beside gw.key. False: it is too long. */
static bool beside(const char *file, const char *suffix, char out[PATH_BYTES])
{
    const char *dot = strrchr(file, '.'), *slash = strrchr(file, '/');
    const bool has = dot != NULL && (slash == NULL || dot > slash + 1);
    const int stem = (int)(has ? (size_t)(dot - file) : strlen(file));
    return snprintf(out, PATH_BYTES, "%.*s%s", stem, file, suffix) < PATH_BYTES;
}

enum tb_cli_exit tb_cli_pki_request(const struct tb_cli_call *call)
{
    char error[256] = "", csr[PATH_BYTES], key[PATH_BYTES], uri[TB_URI_BYTES_MAX];
    struct tb_identity identity;
    const enum tb_cli_exit named = identity_of(call, call->arguments[0], &identity);
    if (named != TB_CLI_DONE) return named;
    const char *dir = tb_cli_given(call, "dir") ? tb_cli_text(call, "dir") : ".";
    const char *stem = tb_cli_given(call, "out") ? tb_cli_text(call, "out") : identity.name.text;
    const char *own = tb_cli_text(call, "key");
    if (!tb_name_valid(stem))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--out: a name is 1 to 64 of A-Z a-z 0-9 . _ -");
    if (snprintf(csr, sizeof csr, "%s/%s.csr", dir, stem) >= PATH_BYTES ||
        snprintf(key, sizeof key, "%s/%s.key", dir, stem) >= PATH_BYTES)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--dir is too long");
    if (!tb_cli_make_folder(dir))
        return tb_say_failure(call, tb_path_status(errno), "%s: %s", dir, strerror(errno));
    const enum tb_status s = tb_pki_request(csr, own != NULL ? own : key, own != NULL, &identity, error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    tb_identity_format(&identity, uri);
    return tb_say_result(
        call, json_pack("{s:s, s:s, s:s}", "identity", uri, "request", csr, "key", own != NULL ? own : key),
        "%s goes to the authority: tombolo pki sign %s.csr %s --dir PKI; the key stays here", csr, stem, uri);
}

enum tb_cli_exit tb_cli_pki_sign(const struct tb_cli_call *call)
{
    char error[256] = "", made[PATH_BYTES], uri[TB_URI_BYTES_MAX];
    struct tb_identity identity;
    const uint64_t days = tb_cli_number(call, "days", SIGN_DAYS_DEFAULT);
    if (!tb_cli_given(call, "dir"))
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "--dir is needed");
    if (days < 1 || days > DAYS_MAX)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--days is between 1 and %u", DAYS_MAX);
    const enum tb_cli_exit named = identity_of(call, call->arguments[1], &identity);
    if (named != TB_CLI_DONE) return named;
    if (!beside(call->arguments[0], ".crt", made))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "the path of the request is too long");
    const char *out = tb_cli_given(call, "out") ? tb_cli_text(call, "out") : made;
    tb_cli_passphrase(call, false);
    const enum tb_status s = tb_pki_sign(tb_cli_text(call, "dir"), call->arguments[0], out, &identity,
                                         (int64_t)days * 86400, error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    tb_identity_format(&identity, uri);
    return tb_say_result(call, json_pack("{s:s, s:s}", "identity", uri, "certificate", out),
                         "%s is a certificate of %s; it goes to the machine that has the key", out, uri);
}

enum tb_cli_exit tb_cli_pki_renew(const struct tb_cli_call *call)
{
    char error[256] = "", key[PATH_BYTES], uri[TB_URI_BYTES_MAX];
    struct tb_identity identity;
    const uint64_t days = tb_cli_number(call, "days", 0);
    if (!tb_cli_given(call, "dir"))
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "--dir is needed");
    if (tb_cli_given(call, "days") && (days < 1 || days > DAYS_MAX))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--days is between 1 and %u", DAYS_MAX);
    if (!beside(call->arguments[0], ".key", key))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "the path of the certificate is too long");
    const struct tb_pki_renewal renewal = {
        .dir = tb_cli_text(call, "dir"),
        .cert_path = call->arguments[0],
        .key_path = tb_cli_given(call, "key") ? tb_cli_text(call, "key") : key,
        .keeps_key = tb_cli_given(call, "keep-key"),
        .valid_s = (int64_t)days * 86400,
    };
    tb_cli_passphrase(call, false);
    const enum tb_status s = tb_pki_renew(&renewal, &identity, error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    tb_identity_format(&identity, uri);
    return tb_say_result(call,
                         json_pack("{s:s, s:s, s:s, s:b}", "identity", uri, "certificate", renewal.cert_path,
                                   "key", renewal.key_path, "new_key", !renewal.keeps_key),
                         "%s of %s is renewed%s; a running gateway takes it within seconds",
                         renewal.cert_path, uri, renewal.keeps_key ? "" : ", with a new key");
}
