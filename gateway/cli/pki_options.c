/* pki_options.c - the options of each command `tombolo pki`. */
#include "gateway/cli/pki_options.h"

#include <stddef.h>

/* The options that all of them have, and the end of a list. */
#define COMMON_OPTIONS                                                                                       \
    {"json", TB_CLI_FLAG, NULL, "one JSON object a result on standard output, also for a failure"},          \
        {"quiet", TB_CLI_FLAG, NULL, "nothing but errors"},                                                  \
    {                                                                                                        \
        NULL, TB_CLI_FLAG, NULL, NULL                                                                        \
    }

#define PASSPHRASE_FILE                                                                                      \
    {                                                                                                        \
        "passphrase-file", TB_CLI_TEXT, "FILE|credential:NAME",                                              \
            "the passphrase of ca.key is its first line; default: asked on the terminal"                     \
    }

#define NEW_PASSPHRASE                                                                                       \
    {"passphrase", TB_CLI_FLAG, NULL, "ca.key gets a passphrase, which is asked on the terminal"},           \
    {                                                                                                        \
        "passphrase-file", TB_CLI_TEXT, "FILE|credential:NAME",                                              \
            "ca.key gets the first line of this file as its passphrase"                                      \
    }

const struct tb_cli_option tb_cli_pki_init_options[] = {
    {"dir", TB_CLI_FILE, "DIR", "where ca.crt and ca.key go (needed)"},
    {"site", TB_CLI_TEXT, "SITE", "the site that this authority speaks for (needed)"},
    {"days", TB_CLI_COUNT, "N", "how long it is valid; default 3650"},
    NEW_PASSPHRASE,
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_issue_options[] = {
    {"publisher", TB_CLI_TEXT, "NAME",
     "for a publisher of this site, in place of IDENTITY: it signs versions"},
    {"dir", TB_CLI_FILE, "DIR", "where ca.crt and ca.key are and the new files go (needed)"},
    {"out", TB_CLI_TEXT, "STEM", "STEM.crt and STEM.key in DIR; default: the last part of the identity"},
    {"days", TB_CLI_COUNT, "N", "how long it is valid; default 90"},
    {"start-days", TB_CLI_SIGNED, "N", "when it begins to be valid, in days from now; default 0"},
    PASSPHRASE_FILE,
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_show_options[] = {
    {"config", TB_CLI_FILE, "FILE",
     "a gateway's configuration: what it lets each identity do, which certificates it has revoked, and which "
     "identity a SPIFFE URI has"},
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_request_options[] = {
    {"dir", TB_CLI_FILE, "DIR", "where the request and the new key go; default: here"},
    {"out", TB_CLI_TEXT, "STEM", "STEM.csr and STEM.key; default: the last part of the identity"},
    {"key", TB_CLI_FILE, "FILE", "a key that is there, in place of a new one"},
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_sign_options[] = {
    {"dir", TB_CLI_FILE, "DIR", "where ca.crt and ca.key are (needed)"},
    {"out", TB_CLI_FILE, "FILE", "where the certificate goes; default: beside the request, as .crt"},
    {"days", TB_CLI_COUNT, "N", "how long it is valid; default 90"},
    PASSPHRASE_FILE,
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_renew_options[] = {
    {"dir", TB_CLI_FILE, "DIR", "where ca.crt and ca.key are (needed)"},
    {"key", TB_CLI_FILE, "FILE", "the certificate's key; default: beside it, as .key"},
    {"keep-key", TB_CLI_FLAG, NULL, "the key stays; default: a new one"},
    {"days", TB_CLI_COUNT, "N", "how long it is valid; default: as long as the one before"},
    PASSPHRASE_FILE,
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_intermediate_options[] = {
    {"root", TB_CLI_FILE, "DIR", "where the root's ca.crt and ca.key are (needed)"},
    {"dir", TB_CLI_FILE, "DIR", "where the issuing authority goes (needed)"},
    {"days", TB_CLI_COUNT, "N", "how long it is valid; default 365"},
    NEW_PASSPHRASE,
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_rollover_options[] = {
    {"dir", TB_CLI_FILE, "DIR", "where ca.crt and ca.key are (needed)"},
    {"days", TB_CLI_COUNT, "N", "begin: how long the second root is valid; default 3650"},
    NEW_PASSPHRASE,
    COMMON_OPTIONS,
};

const struct tb_cli_option tb_cli_pki_revoke_options[] = {
    {"list", TB_CLI_FILE, "FILE", "the file that tls.revoked names (needed); it is made where there is none"},
    {"note", TB_CLI_TEXT, "TEXT", "why, for those who read the file"},
    COMMON_OPTIONS,
};
