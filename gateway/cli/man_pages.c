/* man_pages.c - see man_pages.h. mandoc has nothing to say of what is written here. */
#include "gateway/cli/man_pages.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"

#define DATE      "November 27, 2026" /* of the text, not of the build, which is the same again */
#define LINE_MOST 76u

const struct tb_cli_variable tb_cli_environment[] = {
    {"TOMBOLO_GATEWAY", "where the gateway listens for workers, when --gateway is not given"},
    {"TOMBOLO_CONTROL", "the gateway's control socket, when --control is not given"},
    {"TOMBOLO_CA, TOMBOLO_CERT, TOMBOLO_KEY",
     "PEM files for a gateway on another host, when --ca, --cert and --key are not given"},
    {NULL, NULL},
};

/* ---- words ---- */

/* A line that begins with a dot or a quote would be a macro, and a backslash an escape. */
static void put_word(FILE *to, const char *word, size_t bytes, bool begins)
{
    if (begins && (*word == '.' || *word == '\'')) (void)fputs("\\&", to);
    for (size_t i = 0; i < bytes; i++) {
        if (word[i] == '\\')
            (void)fputs("\\e", to);
        else if (word[i] == '-')
            (void)fputs("\\-", to);
        else if (word[i] == '"')
            (void)fputs("\\(dq", to);
        else
            (void)fputc(word[i], to);
    }
}

/* How long the word is once it is written. */
static size_t width_of(const char *word, size_t bytes)
{
    size_t width = bytes + 2;
    for (size_t i = 0; i < bytes; i++)
        width += word[i] == '"' ? 3 : word[i] == '-' || word[i] == '\\';
    return width;
}

/* Words on lines from `column` on, each line short enough to be read as a file; `joins` stands at
 * the end of one that goes on. */
static void put_words(FILE *to, const char *text, size_t column, const char *joins)
{
    for (bool first = true; *text != '\0'; first = false) {
        const size_t bytes = strcspn(text, " "), width = width_of(text, bytes);
        const bool breaks = !first && column + width > LINE_MOST;
        if (breaks) (void)fprintf(to, "%s\n", joins);
        if (breaks) column = 0;
        if (!first && column > 0) (void)fputc(' ', to);
        put_word(to, text, bytes, column == 0);
        column += width;
        text += bytes + strspn(text + bytes, " ");
    }
    (void)fputc('\n', to);
}

static void put_text(FILE *to, const char *text)
{
    put_words(to, text, 0, "");
}

/* The rest of a macro's line, as it is. */
static void put_rest(FILE *to, const char *text)
{
    put_word(to, text, strlen(text), false);
}

static void put_term(FILE *to, const char *term, const char *text)
{
    (void)fputs(".TP\n.B ", to);
    put_rest(to, term);
    (void)fputc('\n', to);
    put_text(to, text);
}

/* ---- a command ---- */

static void put_options(FILE *to, const struct tb_cli_command *c)
{
    char text[96];
    for (const struct tb_cli_option *o = c->options; o->name != NULL; o++) {
        (void)snprintf(text, sizeof text, "--%s%s%s", o->name, o->argument == NULL ? "" : " ",
                       o->argument == NULL ? "" : o->argument);
        put_term(to, text, o->why);
    }
}

static void put_example(FILE *to, const struct tb_cli_command *c)
{
    (void)fputs(".EX\n", to);
    put_words(to, c->example, 0, " \\"); /* one line of output */
    (void)fputs(".EE\n", to);
}

static void put_exit_codes(FILE *to)
{
    char number[16];
    (void)fputs(".SH EXIT STATUS\n", to);
#define ROW(name, value, text)                                                                               \
    (void)snprintf(number, sizeof number, "%d", value);                                                      \
    put_term(to, number, text);
    TB_CLI_EXIT_LIST(ROW)
#undef ROW
}

static void put_environment(FILE *to)
{
    (void)fputs(".SH ENVIRONMENT\n", to);
    for (const struct tb_cli_variable *v = tb_cli_environment; v->name != NULL; v++)
        put_term(to, v->name, v->why);
}

void tb_cli_man_page(FILE *to, const struct tb_cli_command *commands)
{
    (void)fputs(".TH TOMBOLO 1 \"" DATE "\" \"Tombolo\"\n.SH NAME\n"
                "tombolo \\- publish and follow the weights of a model\n"
                ".SH SYNOPSIS\n.B tombolo\n.I COMMAND\n[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n",
                to);
    put_text(to, tb_cli_intro);
    (void)fputs(".SH COMMANDS\n", to);
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++) {
        (void)fputs(".SS \"", to);
        put_rest(to, c->name);
        (void)fputs(c->arguments[0] != '\0' ? " " : "", to);
        put_rest(to, c->arguments);
        (void)fputs("\"\n", to);
        put_text(to, c->text);
        put_options(to, c);
        (void)fputs(".PP\nExample:\n.PP\n", to);
        put_example(to, c);
    }
    put_exit_codes(to);
    put_environment(to);
}

/* "pki-init", or in capitals. */
static void page_name(const struct tb_cli_command *c, bool capitals, char out[64])
{
    const int used = snprintf(out, 64, "tombolo-%s", c->name);
    TB_ASSERT(used > 0 && used < 64);
    for (char *at = out; *at != '\0'; at++) {
        if (*at == ' ') *at = '-';
        if (capitals) *at = (char)toupper((unsigned char)*at);
    }
}

static void command_page(FILE *to, const struct tb_cli_command *c)
{
    char name[64];
    page_name(c, true, name);
    (void)fprintf(to, ".TH %s 1 \"" DATE "\" \"Tombolo\"\n.SH NAME\n", name);
    page_name(c, false, name);
    put_rest(to, name);
    (void)fputs(" \\- ", to);
    put_words(to, c->summary, strlen(name) + 6, "");
    (void)fputs(".SH SYNOPSIS\n.B tombolo ", to);
    put_rest(to, c->name);
    if (c->arguments[0] != '\0') {
        (void)fputs("\n.I ", to);
        put_rest(to, c->arguments);
    }
    (void)fputs("\n[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n", to);
    put_text(to, c->text);
    if (c->options->name != NULL) (void)fputs(".SH OPTIONS\n", to);
    put_options(to, c);
    (void)fputs(".SH EXAMPLES\n", to);
    put_example(to, c);
    put_exit_codes(to);
    put_environment(to);
    (void)fputs(".SH SEE ALSO\n.BR tombolo (1),\n.BR tombolod (8)\n", to);
}

bool tb_cli_man_pages(const char *folder, const struct tb_cli_command *commands)
{
    for (const struct tb_cli_command *c = commands; c->name != NULL; c++) {
        char name[64], path[4096];
        page_name(c, false, name);
        const int used = snprintf(path, sizeof path, "%s/%s.1", folder, name);
        if (used < 0 || (size_t)used >= sizeof path) {
            errno = ENAMETOOLONG;
            return false;
        }
        FILE *to = fopen(path, "we");
        if (to == NULL) return false;
        command_page(to, c);
        const bool good = ferror(to) == 0;
        if (fclose(to) != 0 || !good) return false;
    }
    return true;
}
