/* config_man.c - tombolo.yaml(5), of the table of keys. */
#include <string.h>

#include "gateway/config/config_value.h"

#define LINE_MOST 76u /* a line of source that mandoc says nothing about */

/* One word; a dash is one to copy. */
static void put_word(const char *word, size_t bytes, FILE *to)
{
    for (size_t i = 0; i < bytes; i++) {
        if (word[i] == '\\')
            (void)fputs("\\e", to);
        else if (word[i] == '-')
            (void)fputs("\\-", to);
        else
            (void)fputc(word[i], to);
    }
}

static bool ends_sentence(const char *word, size_t bytes)
{
    return bytes > 1 && (word[bytes - 1] == '.' || word[bytes - 1] == '!' || word[bytes - 1] == '?');
}

/* Words in lines; each sentence begins a line. No line begins as a request. */
static void put_text(const char *text, FILE *to)
{
    size_t column = 0;
    bool fresh = true;
    for (const char *at = text + strspn(text, " \n"); *at != '\0';) {
        const size_t word = strcspn(at, " \n");
        if (!fresh && column + 1 + 2 * word > LINE_MOST) {
            (void)fputc('\n', to);
            fresh = true;
        }
        if (!fresh) (void)fputc(' ', to);
        if (fresh && (*at == '.' || *at == '\'')) (void)fputs("\\&", to);
        column = fresh ? 2 * word : column + 1 + 2 * word;
        put_word(at, word, to);
        fresh = ends_sentence(at, word);
        at += word + strspn(at + word, " \n");
        if (fresh && *at != '\0') (void)fputc('\n', to);
    }
    (void)fputc('\n', to);
}

static void put_key(const struct tb_config_key_text *k, FILE *to)
{
    (void)fputs(".TP\n.B ", to);
    put_word(k->key, strlen(k->key), to);
    (void)fputc('\n', to);
    (void)fprintf(to, "A %s; ", k->type);
    if (k->required)
        (void)fputs("required", to);
    else if (k->fallback == NULL)
        (void)fputs("not set unless it is given", to);
    else
        (void)fputs("default ", to);
    if (!k->required && k->fallback != NULL) put_word(k->fallback, strlen(k->fallback), to);
    (void)fputc('.', to);
    if (k->range != NULL) {
        (void)fputs("\nRange: ", to);
        put_word(k->range, strlen(k->range), to);
        (void)fprintf(to, "%s%s.", k->unit != NULL ? " " : "", k->unit != NULL ? k->unit : "");
    } else if (k->unit != NULL) {
        (void)fprintf(to, "\nIn %s.", k->unit);
    }
    (void)fputc('\n', to);
    put_text(k->why, to);
    (void)fprintf(to, "A change %s:\n", k->live ? "counts by a reload" : "needs a restart");
    put_text(k->how, to);
}

static void each_key(void *user, const struct tb_config_key_text *k)
{
    put_key(k, user);
}

static const char intro[] =
    "One YAML file says what a gateway of Tombolo is and does. "
    "Sizes are bytes, or have B, KiB, MiB, GiB or TiB behind them. "
    "Rates are bits a second with Kbit, Mbit or Gbit. "
    "An IPv6 address stands in brackets, and all of it in quotes. "
    "An identity is unix:UID or unix:* for processes on the gateway's host, tombolo://SITE/GATEWAY, "
    "tombolo://SITE/worker/NAME, or the beginning of one of the last two with * behind it. "
    "An act that no list names is denied.";

static const char changes[] =
    "tombolo reload, or SIGHUP, reads the file again and checks all of it. "
    "On an error nothing changes. "
    "Else each change that a reload can make counts, and those that need a restart are named. "
    "Below stands for each key which of the two it is.";

enum tb_status tb_config_man(FILE *to)
{
    (void)fputs(".TH TOMBOLO.YAML 5 \"November 27, 2026\" \"Tombolo\" \"Configuration of a gateway\"\n"
                ".SH NAME\ntombolo.yaml \\- configuration of a gateway\n.SH DESCRIPTION\n",
                to);
    put_text(intro, to);
    (void)fputs(".SH CHANGES\n", to);
    put_text(changes, to);
    (void)fputs(".SH KEYS\n", to);
    const enum tb_status status = tb_config_each_key(each_key, to);
    (void)fputs(".SH EXAMPLE\n.nf\n", to);
    for (const char *at = tb_config_example; *at != '\0'; at += strcspn(at, "\n") + 1) {
        put_word(at, strcspn(at, "\n"), to);
        (void)fputc('\n', to);
    }
    (void)fputs(".fi\n.SH SEE ALSO\n.BR tombolo (1)\n", to);
    return status;
}
