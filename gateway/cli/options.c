/* options.c - from argv to a call, by the command's own row. See options.h. */
#include "gateway/cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum tb_cli_exit tb_cli_exit_of(int status)
{
    /* Where the scope alone would send a script the wrong way. */
    static const struct {
        int status;
        enum tb_cli_exit code;
    } exceptions[] = {
        {TB_AGAIN, TB_CLI_TIMEOUT},         {TB_TIMEOUT, TB_CLI_TIMEOUT},
        {TB_CANCELLED, TB_CLI_INTERRUPTED}, {TB_END, TB_CLI_SITE},
        {TB_PEER_IDENTITY, TB_CLI_DENIED},  {TB_PEER_DENIED, TB_CLI_DENIED},
        {TB_PEER_TOKEN, TB_CLI_DENIED},     {TB_SITE_CONFIG, TB_CLI_REFUSED},
        {TB_FORKED, TB_CLI_SITE},           {TB_SITE_DRAINING, TB_CLI_AWAY},
    };
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++)
        if (exceptions[i].status == status) return exceptions[i].code;
    switch (tb_status_scope(status)) {
    case TB_SCOPE_NONE:
        return TB_CLI_DONE;
    case TB_SCOPE_CHUNK:
        return TB_CLI_SITE;
    case TB_SCOPE_STREAM:
    case TB_SCOPE_PEER:
        return TB_CLI_AWAY;
    case TB_SCOPE_SITE:
        return TB_CLI_SITE;
    case TB_SCOPE_REQUEST:
        return TB_CLI_REFUSED;
    case TB_SCOPE_VERSION:
        return TB_CLI_VERSION;
    }
    return TB_CLI_SITE;
}

static int option_count(const struct tb_cli_command *command)
{
    int count = 0;
    while (command->options[count].name != NULL)
        count++;
    TB_ASSERT(count <= TB_CLI_OPTIONS_MAX);
    return count;
}

static int option_index(const struct tb_cli_command *command, const char *name)
{
    for (int i = 0; command->options[i].name != NULL; i++)
        if (strcmp(command->options[i].name, name) == 0) return i;
    return -1;
}

/* Digits only; false past INT64_MAX, so that a value fits every type it is used as. */
static bool digits_of(const char *text, size_t count, uint64_t *value_out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (value > (INT64_MAX - (uint64_t)(text[i] - '0')) / 10) return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *value_out = value;
    return count > 0;
}

static bool seconds_of(const char *text, uint64_t *seconds_out)
{
    static const struct {
        char unit;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    size_t count = strlen(text);
    uint64_t scale = 1;
    for (size_t i = 0; i < sizeof units / sizeof units[0] && count > 0; i++) {
        if (text[count - 1] != units[i].unit) continue;
        scale = units[i].seconds;
        count--;
        break;
    }
    uint64_t value = 0;
    if (!digits_of(text, count, &value) || value > UINT32_MAX) return false;
    *seconds_out = value * scale;
    return true;
}

static bool signed_of(const char *text, int64_t *value_out)
{
    uint64_t value = 0;
    const bool minus = text[0] == '-';
    if (!digits_of(text + minus, strlen(text + minus), &value) || value > INT32_MAX) return false;
    *value_out = minus ? -(int64_t)value : (int64_t)value;
    return true;
}

bool tb_cli_version_of(const char *text, uint64_t *run_out, uint64_t *number_out)
{
    const char *colon = strchr(text, ':');
    *run_out = 0;
    if (colon == NULL) return digits_of(text, strlen(text), number_out);
    return digits_of(text, (size_t)(colon - text), run_out) && *run_out > 0 &&
           digits_of(colon + 1, strlen(colon + 1), number_out);
}

/* One of "wide|json|tsv". */
static bool choice_good(const char *choices, const char *value)
{
    const size_t bytes = strlen(value);
    for (const char *at = choices; bytes > 0; at++) {
        const size_t word = strcspn(at, "|");
        if (word == bytes && strncmp(at, value, bytes) == 0) return true;
        at += word;
        if (*at == '\0') break;
    }
    return false;
}

static bool value_good(const struct tb_cli_option *option, const char *value)
{
    TB_ASSERT((option->kind == TB_CLI_FLAG) == (option->argument == NULL));
    uint64_t number = 0;
    int64_t either = 0;
    switch (option->kind) {
    case TB_CLI_COUNT:
        return digits_of(value, strlen(value), &number);
    case TB_CLI_SIGNED:
        return signed_of(value, &either);
    case TB_CLI_SECONDS:
        return seconds_of(value, &number);
    case TB_CLI_CHOICE:
        return choice_good(option->argument, value);
    case TB_CLI_FLAG:
    case TB_CLI_TEXT:
    case TB_CLI_FILE:
        break;
    }
    return value[0] != '\0' || option->kind == TB_CLI_FLAG;
}

const struct tb_cli_command *tb_cli_find(const struct tb_cli_command *commands, int argc, char **argv,
                                         int *words_out)
{
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++) {
        const char *space = strchr(c->name, ' ');
        const size_t first = space == NULL ? strlen(c->name) : (size_t)(space - c->name);
        if (argc < 2 || strlen(argv[1]) != first || strncmp(argv[1], c->name, first) != 0) continue;
        if (space != NULL && (argc < 3 || strcmp(argv[2], space + 1) != 0)) continue;
        *words_out = space == NULL ? 1 : 2;
        TB_ASSERT(*words_out < argc);
        return c;
    }
    return NULL;
}

/* One letter too many, too few or another, or two that changed places. */
static bool one_slip(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    if (*a == '\0' || *b == '\0') return strlen(a) + strlen(b) == 1;
    return strcmp(a + 1, b) == 0 || strcmp(a, b + 1) == 0 || strcmp(a + 1, b + 1) == 0 ||
           (a[0] == b[1] && a[1] == b[0] && strcmp(a + 2, b + 2) == 0);
}

const char *tb_cli_meant(const struct tb_cli_command *commands, const char *word)
{
    const char *found = NULL;
    const size_t length = strlen(word);
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++) {
        char first[32];
        const size_t bytes = strcspn(c->name, " ");
        TB_ASSERT(bytes < sizeof first);
        (void)snprintf(first, sizeof first, "%.*s", (int)bytes, c->name);
        if (!one_slip(word, first) && (length < 2 || strncmp(word, first, length) != 0)) continue;
        const bool again = found != NULL && strncmp(found, c->name, bytes) == 0 && found[bytes] == ' ';
        if (found != NULL && !again) return NULL;
        if (!again) found = c->name;
    }
    return found;
}

/* ---- options before the command ---- */

/* "name" of "--name" and "--name=value". -o is "output". NULL: it is no option. */
static const char *option_name(const char *word, size_t *bytes_out)
{
    if (word[0] != '-' || word[1] == '\0') return NULL;
    if (word[1] == 'o') {
        *bytes_out = strlen("output");
        return "output";
    }
    if (word[1] != '-' || word[2] == '\0') return NULL;
    *bytes_out = strcspn(word + 2, "=");
    return word + 2;
}

static const struct tb_cli_option *option_anywhere(const struct tb_cli_command *commands, const char *name,
                                                   size_t bytes)
{
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++)
        for (const struct tb_cli_option *o = c->options; o->name != NULL; o++)
            if (strlen(o->name) == bytes && strncmp(o->name, name, bytes) == 0) return o;
    return NULL;
}

int tb_cli_lead(const struct tb_cli_command *commands, int argc, char **argv)
{
    int at = 1;
    while (at < argc && argv[at][0] == '-') {
        const char *word = argv[at];
        size_t bytes = 0;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) break;
        const char *name = option_name(word, &bytes);
        const struct tb_cli_option *o = name == NULL ? NULL : option_anywhere(commands, name, bytes);
        if (o == NULL) return -at;
        const bool holds_value = word[1] == 'o' ? word[2] != '\0' : word[2 + bytes] == '=';
        at += o->kind == TB_CLI_FLAG || holds_value ? 1 : 2;
    }
    return (at < argc ? at : argc) - 1;
}

void tb_cli_lead_move(char **argv, int lead, int words)
{
    TB_ASSERT(lead >= 0 && words >= 0 && words <= 2);
    char *command[2] = {NULL, NULL};
    for (int i = 0; i < words; i++)
        command[i] = argv[1 + lead + i];
    memmove(argv + 1 + words, argv + 1, (size_t)lead * sizeof *argv);
    for (int i = 0; i < words; i++)
        argv[1 + i] = command[i];
}

bool tb_cli_wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-ojson") == 0) return true;
        if (strcmp(argv[i], "--output=json") == 0) return true;
        const bool output = strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0;
        if (output && i + 1 < argc && strcmp(argv[i + 1], "json") == 0) return true;
    }
    return false;
}

/* ---- options of a command ---- */

struct known {
    struct option rows[TB_CLI_OPTIONS_MAX + 2];
    int help; /* index of --help */
};

static struct known known_of(const struct tb_cli_command *command)
{
    struct known k;
    memset(&k, 0, sizeof k);
    k.help = option_count(command);
    for (int i = 0; i < k.help; i++) {
        k.rows[i].name = command->options[i].name;
        k.rows[i].has_arg = command->options[i].kind == TB_CLI_FLAG ? no_argument : required_argument;
    }
    k.rows[k.help].name = "help";
    return k;
}

static bool take_option(const struct tb_cli_command *command, int index, struct tb_cli_call *call,
                        char error[256])
{
    TB_ASSERT(index >= 0 && index < option_count(command));
    const struct tb_cli_option *o = &command->options[index];
    const char *value = o->kind == TB_CLI_FLAG ? "" : optarg;
    if (call->given[index] != NULL) {
        (void)snprintf(error, 256, "--%s stands there twice", o->name);
        return false;
    }
    if (!value_good(o, value)) {
        (void)snprintf(error, 256, "--%s takes %s, not \"%.100s\"", o->name,
                       o->kind == TB_CLI_COUNT || o->kind == TB_CLI_SIGNED ? "a whole number"
                       : o->kind == TB_CLI_SECONDS                         ? "a time like 30s, 5m or 2h"
                       : o->kind == TB_CLI_CHOICE                          ? o->argument
                                                                           : "a text",
                       value);
        return false;
    }
    call->given[index] = value;
    return true;
}

/* "-o json" is "--json". */
static void take_output(const struct tb_cli_command *command, struct tb_cli_call *call)
{
    const int output = option_index(command, "output"), json = option_index(command, "json");
    if (output < 0 || json < 0) return;
    const char *form = call->given[output];
    if (form != NULL && strcmp(form, "json") == 0) call->given[json] = "";
}

static bool take_arguments(const struct tb_cli_command *command, struct tb_cli_call *call, char error[256])
{
    TB_ASSERT(call->argument_count >= 0 && call->command == command);
    if (call->argument_count < command->arguments_min)
        (void)snprintf(error, 256, "something is missing: %s takes %s", command->name, command->arguments);
    else if (call->argument_count > command->arguments_max)
        (void)snprintf(error, 256, "\"%.100s\" is too much: %s takes %s",
                       call->arguments[command->arguments_max], command->name,
                       command->arguments[0] == '\0' ? "no arguments" : command->arguments);
    else
        return true;
    return false;
}

bool tb_cli_parse(const struct tb_cli_command *command, int argc, char **argv, struct tb_cli_call *call_out,
                  bool *help_out, char error[256])
{
    const struct known known = known_of(command);
    TB_ASSERT(command->arguments_min <= command->arguments_max);
    struct tb_cli_call call = {.command = command};
    optind = 0; /* glibc: forget what was parsed before */
    opterr = 0;
    *help_out = false;
    const int output = option_index(command, "output");
    const char *shorts = output >= 0 ? ":ho:" : ":h";
    for (int c, index = 0; (c = getopt_long(argc, argv, shorts, known.rows, &index)) != -1;) {
        if (c == 'h' || (c == 0 && index == known.help)) {
            *help_out = true;
            return true;
        }
        if (c == 0 || c == 'o') {
            if (!take_option(command, c == 'o' ? output : index, &call, error)) return false;
            continue;
        }
        (void)snprintf(error, 256, c == ':' ? "%.100s needs a value" : "unknown option %.100s",
                       argv[optind - 1]);
        return false;
    }
    TB_ASSERT(optind <= argc);
    call.argument_count = argc - optind;
    call.arguments = argv + optind;
    take_output(command, &call);
    *call_out = call;
    return take_arguments(command, &call, error);
}

bool tb_cli_has(const struct tb_cli_call *call, const char *name)
{
    return option_index(call->command, name) >= 0;
}

const char *tb_cli_text(const struct tb_cli_call *call, const char *name)
{
    const int index = option_index(call->command, name);
    TB_ASSERT(index >= 0);
    TB_ASSERT(index < TB_CLI_OPTIONS_MAX);
    return call->given[index];
}

bool tb_cli_given(const struct tb_cli_call *call, const char *name)
{
    return tb_cli_text(call, name) != NULL;
}

uint64_t tb_cli_number(const struct tb_cli_call *call, const char *name, uint64_t otherwise)
{
    const char *text = tb_cli_text(call, name);
    uint64_t value = otherwise;
    if (text == NULL) return otherwise;
    const enum tb_cli_kind kind = call->command->options[option_index(call->command, name)].kind;
    TB_ASSERT(kind == TB_CLI_SECONDS || kind == TB_CLI_COUNT);
    const bool seconds = kind == TB_CLI_SECONDS;
    const bool good = seconds ? seconds_of(text, &value) : digits_of(text, strlen(text), &value);
    TB_ASSERT(good); /* looked at when it was parsed */
    return value;
}

int64_t tb_cli_signed(const struct tb_cli_call *call, const char *name, int64_t otherwise)
{
    const char *text = tb_cli_text(call, name);
    int64_t value = otherwise;
    if (text == NULL) return otherwise;
    const bool good = signed_of(text, &value);
    TB_ASSERT(good); /* looked at when it was parsed */
    return value;
}
