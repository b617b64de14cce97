/* completion.c - see completion.h. */
#include "gateway/cli/completion.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/noun_commands.h"
#include "gateway/cli/options.h"

#define WORDS_MAX 64

struct line {
    FILE *to;
    const struct tb_cli_command *commands;
    int count; /* of words */
    char **words;
    const char *now; /* the last of them */
};

static void offer(const struct line *l, const char *word, const char *meaning)
{
    char clean[256];
    tb_show_clean(word, clean, sizeof clean);
    if (strncmp(clean, l->now, strlen(l->now)) == 0) (void)fprintf(l->to, "%s\t%s\n", clean, meaning);
}

static void offer_files(const struct line *l)
{
    (void)fputs(":files\n", l->to);
}

/* "wide|json|tsv" */
static void offer_choices(const struct line *l, const char *choices)
{
    while (*choices != '\0') {
        char word[32];
        const size_t bytes = strcspn(choices, "|");
        (void)snprintf(word, sizeof word, "%.*s", (int)bytes, choices);
        offer(l, word, "");
        choices += bytes + (choices[bytes] == '|');
    }
}

/* ---- names that the gateway knows ---- */

/* The value of --control, wherever it stands; NULL: it does not. */
static const char *control_of(const struct line *l)
{
    for (int i = 0; i + 1 < l->count; i++) {
        if (strcmp(l->words[i], "--control") == 0) return l->words[i + 1];
        if (strncmp(l->words[i], "--control=", 10) == 0) return l->words[i] + 10;
    }
    return NULL;
}

/* `noun` as its list is called; `key` of its rows. */
static void offer_rows(const struct line *l, const char *noun, const char *model, const char *key)
{
    static const struct tb_cli_option options[] = {{"control", TB_CLI_FILE, "PATH", ""},
                                                   {"timeout", TB_CLI_SECONDS, "TIME", ""},
                                                   {NULL, TB_CLI_FLAG, NULL, NULL}};
    static const struct tb_cli_command asking = {.name = "help", .options = options};
    const struct tb_cli_call call = {.command = &asking, .given = {control_of(l), "1s"}};
    const char *last = "";
    json_t *rows = tb_cli_noun_rows(&call, noun, model);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(rows, i), key));
        if (name == NULL || strcmp(name, last) == 0) continue; /* a chain has a row for each member */
        offer(l, name, noun);
        last = name;
    }
    json_decref(rows);
}

/* ---- words of the table ---- */

static void offer_options(const struct line *l, const struct tb_cli_command *c)
{
    char text[64];
    for (const struct tb_cli_option *o = c->options; o->name != NULL; o++) {
        (void)snprintf(text, sizeof text, "--%s", o->name);
        offer(l, text, o->why);
    }
    offer(l, "--help", "this text");
}

/* First words of commands; behind `group` second words of those that begin with it. */
static void offer_commands(const struct line *l, const char *group)
{
    char word[32], last[32] = "";
    for (const struct tb_cli_command *c = l->commands; c->name != NULL; c++) {
        const size_t first = strcspn(c->name, " ");
        const bool two = c->name[first] == ' ';
        if (group != NULL && (!two || strlen(group) != first || strncmp(c->name, group, first) != 0))
            continue;
        (void)snprintf(word, sizeof word, "%.*s", (int)first, c->name);
        if (group != NULL) (void)snprintf(word, sizeof word, "%s", c->name + first + 1);
        if (strcmp(word, last) != 0)
            offer(l, word, two && group == NULL ? "a group of commands" : c->summary);
        (void)snprintf(last, sizeof last, "%s", word);
    }
}

static void offer_value(const struct line *l, const struct tb_cli_command *c, const struct tb_cli_option *o)
{
    if (o->kind == TB_CLI_CHOICE) offer_choices(l, o->argument);
    if (o->kind == TB_CLI_FILE) offer_files(l);
    if (strcmp(o->name, "wait") == 0 && o->kind == TB_CLI_TEXT) offer_rows(l, "sites", NULL, "name");
    if (strcmp(o->name, "peer") == 0 && strcmp(o->argument, "SITE") == 0)
        offer_rows(l, "peers", NULL, "name");
    if (strcmp(o->name, "sort") != 0 || c == NULL) return;
    const struct tb_column *columns = tb_cli_noun_columns(c->name);
    for (; columns != NULL && columns->key != NULL; columns++)
        offer(l, columns->key, columns->title);
}

/* ---- what the word is ---- */

/* "VERSION" for 1 of "MODEL VERSION"; the last one goes on where it ends with dots. */
static void argument_kind(const char *arguments, int index, char kind_out[32])
{
    kind_out[0] = '\0';
    for (int i = 0; *arguments != '\0'; i++) {
        const size_t bytes = strcspn(arguments, " ");
        const char *next = arguments + bytes + strspn(arguments + bytes, " ");
        const bool goes_on = *next == '\0' && memchr(arguments, '.', bytes) != NULL;
        if (i == index || goes_on) {
            const size_t at = strspn(arguments, "[");
            const size_t length = strcspn(arguments + at, " ].[");
            (void)snprintf(kind_out, 32, "%.*s", (int)length, arguments + at);
            return;
        }
        arguments = next;
    }
}

static void offer_argument(const struct line *l, const struct tb_cli_command *c, int index, const char *first)
{
    static const char *const files[] = {"PATH", "FILE", "DIR", "REQUEST", "CERTIFICATE"};
    char kind[32];
    argument_kind(c->arguments, index, kind);
    if (strcmp(kind, "MODEL") == 0) offer_rows(l, "models", NULL, "name");
    if (strcmp(kind, "PEER") == 0) offer_rows(l, "peers", NULL, "name");
    if (strcmp(kind, "VERSION") == 0) offer_rows(l, "versions", first, "version");
    if (strcmp(kind, "NOUN") == 0) offer_choices(l, "site|peer|model|version|worker|group|stream|chain");
    if (strcmp(kind, "model|peer") == 0) offer_choices(l, kind);
    if (strcmp(kind, "NAME") == 0 && first != NULL) offer_rows(l, first, NULL, "name");
    if (strcmp(kind, "STEP") == 0) offer_choices(l, "begin|turn|end");
    if (strcmp(kind, "COMMAND") == 0) offer_commands(l, index > 0 ? first : NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(kind, files[i]) == 0) offer_files(l);
}

/* The option whose value the next word is; NULL: the word needs none. */
static const struct tb_cli_option *option_that_waits(const struct tb_cli_option *options, const char *word)
{
    if (strcmp(word, "-o") == 0) word = "--output";
    if (strncmp(word, "--", 2) != 0) return NULL;
    for (const struct tb_cli_option *o = options; o->name != NULL; o++)
        if (strcmp(o->name, word + 2) == 0) return o->kind == TB_CLI_FLAG ? NULL : o;
    return NULL;
}

static void offer_of_command(const struct line *l, const struct tb_cli_command *c, int begin)
{
    int arguments = 0;
    const char *first = NULL;
    const struct tb_cli_option *waits = NULL;
    for (int i = begin; i + 1 < l->count; i++) {
        const char *word = l->words[i];
        const bool is_value = waits != NULL;
        waits = is_value ? NULL : option_that_waits(c->options, word);
        if (is_value || word[0] == '-') continue;
        if (arguments++ == 0) first = word;
    }
    if (waits != NULL)
        offer_value(l, c, waits);
    else if (l->now[0] == '-')
        offer_options(l, c);
    else
        offer_argument(l, c, arguments, first);
}

/* Before there is a command, words of the table and options of any row. */
static void offer_first(const struct line *l, const char *group)
{
    if (l->now[0] != '-') offer_commands(l, group);
    for (const struct tb_cli_command *c = l->commands; l->now[0] == '-' && c->name != NULL; c++)
        if (strcmp(c->name, "lag") == 0) offer_options(l, c); /* it has those that most have */
}

/* The value of an option before the command, where that is what is written now. */
static bool offer_lead_value(const struct line *l)
{
    const struct tb_cli_option *waits = NULL;
    for (int i = 0; i + 1 < l->count; i++) {
        const bool is_value = waits != NULL;
        waits = NULL;
        if (is_value) continue;
        if (l->words[i][0] != '-') return false;
        for (const struct tb_cli_command *c = l->commands; waits == NULL && c->name != NULL; c++)
            waits = option_that_waits(c->options, l->words[i]);
    }
    if (waits != NULL) offer_value(l, NULL, waits);
    return waits != NULL;
}

void tb_cli_candidates(FILE *to, const struct tb_cli_command *commands, int count, char **words)
{
    char program[] = "tombolo";
    char *argv[WORDS_MAX + 1] = {program};
    if (count < 1 || count > WORDS_MAX) return;
    memcpy(argv + 1, words, (size_t)count * sizeof *argv);
    const struct line l = {to, commands, count, words, words[count - 1]};
    if (offer_lead_value(&l)) return;
    int found = 0;
    const int lead = tb_cli_lead(commands, count, argv); /* the last word is not finished */
    if (lead < 0) return;
    const struct tb_cli_command *c = tb_cli_find(commands, count - lead, argv + lead, &found);
    TB_ASSERT(lead + found < count || c == NULL);
    if (c != NULL)
        offer_of_command(&l, c, lead + found);
    else if (lead + 1 == count)
        offer_first(&l, NULL);
    else if (lead + 2 == count)
        offer_first(&l, argv[lead + 1]);
}

/* ---- scripts ---- */

/* A word is all up to a blank: bash breaks words at colons, too, and wants what is behind the last
 * one. */
void tb_cli_completion_bash(FILE *to)
{
    (void)fputs(
        "# bash completion for tombolo; made by `tombolo help --completion`\n"
        "_tombolo() {\n"
        "    local line=${COMP_LINE:0:${COMP_POINT:-0}} now candidate\n"
        "    local -a words\n"
        "    if [ -n \"$line\" ]; then\n"
        "        read -ra words <<<\"$line\"\n"
        "        [[ $line == *[[:space:]] ]] && words+=(\"\")\n"
        "    else\n"
        "        words=(\"${COMP_WORDS[@]:0:COMP_CWORD+1}\")\n"
        "    fi\n"
        "    now=${words[${#words[@]}-1]}\n"
        "    COMPREPLY=()\n"
        "    while IFS= read -r candidate; do\n"
        "        if [ \"$candidate\" = :files ]; then\n"
        "            compopt -o filenames 2>/dev/null\n"
        "            while IFS= read -r candidate; do COMPREPLY+=(\"$candidate\"); done "
        "< <(compgen -f -- \"$now\")\n"
        "        else\n"
        "            COMPREPLY+=(\"${candidate%%$'\\t'*}\")\n"
        "        fi\n"
        "    done < <(\"${words[0]}\" help --candidates -- \"${words[@]:1}\" 2>/dev/null)\n"
        "    [[ -n $line && $now == *:* ]] && COMPREPLY=(\"${COMPREPLY[@]#\"${now%\"${now##*:}\"}\"}\")\n"
        "    return 0\n"
        "}\n"
        "complete -F _tombolo tombolo\n",
        to);
}

void tb_cli_completion_zsh(FILE *to)
{
    (void)fputs(
        "#compdef tombolo\n"
        "# zsh completion for tombolo; made by `tombolo help --completion-zsh`\n"
        "_tombolo() {\n"
        "    local -a candidates\n"
        "    local line files=\n"
        "    for line in \"${(@f)$(\"${words[1]}\" help --candidates -- \"${(@)words[2,CURRENT]}\" "
        "2>/dev/null)}\"; do\n"
        "        if [[ $line == :files ]]; then\n"
        "            files=1\n"
        "        elif [[ -n $line ]]; then\n"
        "            candidates+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\")\n"
        "        fi\n"
        "    done\n"
        "    (( ${#candidates} )) && _describe -t tombolo tombolo candidates\n"
        "    [[ -n $files ]] && _files\n"
        "    return 0\n"
        "}\n"
        "if [[ $funcstack[1] == _tombolo ]]; then _tombolo \"$@\"; else compdef _tombolo tombolo; fi\n",
        to);
}

void tb_cli_completion_fish(FILE *to)
{
    (void)fputs("# fish completion for tombolo; made by `tombolo help --completion-fish`\n"
                "function __tombolo_candidates\n"
                "    set -l now (commandline -ct)\n"
                "    set -l words (commandline -opc)\n"
                "    set -l program $words[1]\n"
                "    set -e words[1]\n"
                "    for line in ($program help --candidates -- $words \"$now\" 2>/dev/null)\n"
                "        if test \"$line\" = :files\n"
                "            __fish_complete_path \"$now\"\n"
                "        else\n"
                "            echo $line\n"
                "        end\n"
                "    end\n"
                "end\n"
                "complete -c tombolo -f -a '(__tombolo_candidates)'\n",
                to);
}
