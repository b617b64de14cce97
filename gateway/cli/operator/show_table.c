/* show_table.c - see show_table.h. */
#include "gateway/cli/operator/show_table.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"

#define WATCH_EVERY_MS 2000u

static uint32_t terminal_width(void)
{
    struct winsize size = {0};
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}

static bool asks(const struct tb_cli_call *call, const char *flag)
{
    return tb_cli_has(call, flag) && tb_cli_given(call, flag);
}

static enum tb_table_form form_of(const struct tb_cli_call *call)
{
    const char *form = tb_cli_text(call, "output");
    if (form == NULL) return TB_TABLE_FIT;
    return strcmp(form, "tsv") == 0 ? TB_TABLE_TSV : TB_TABLE_WIDE;
}

struct tb_table_style tb_cli_table_style(const struct tb_cli_call *call)
{
    const bool headers = !asks(call, "no-headers") && !asks(call, "quiet");
    return (struct tb_table_style){form_of(call), headers, terminal_width()};
}

enum tb_cli_exit tb_cli_table_sort(const struct tb_cli_call *call, json_t *rows,
                                   const struct tb_column *columns)
{
    char names[512] = "";
    size_t used = 0;
    const char *by = tb_cli_text(call, "sort");
    if (by == NULL || tb_columns_sort(rows, columns, by)) return TB_CLI_DONE;
    for (const struct tb_column *c = columns; c->key != NULL && used < sizeof names; c++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", c->key);
    return tb_say_usage(call->command->name, tb_cli_given(call, "json"),
                        "there is no column \"%.60s\": --sort takes one of %s", by, names);
}

enum tb_cli_exit tb_cli_table_show(const struct tb_cli_call *call, struct tb_rows rows,
                                   const struct tb_column *columns)
{
    if (rows.lacking) {
        json_decref(rows.list);
        return tb_say_failure(call, TB_SITE_NOMEM, "no memory for the table");
    }
    const struct tb_table_style style = tb_cli_table_style(call);
    const enum tb_cli_exit sorted = tb_cli_table_sort(call, rows.list, columns);
    if (sorted == TB_CLI_DONE) tb_columns_print(stdout, columns, rows.list, &style);
    json_decref(rows.list);
    return sorted;
}

/* ---- --watch ---- */

static volatile sig_atomic_t ended;

static void end(int number)
{
    (void)number;
    ended = 1;
}

void tb_cli_end_on_signals(void)
{
    struct sigaction action = {.sa_handler = end};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool tb_cli_sleep(uint32_t ms)
{
    if (!ended) (void)poll(NULL, 0, (int)ms);
    return !ended;
}

/* A terminal shows the newest alone; what is read by a program stays. */
static void clear(const struct tb_cli_call *call)
{
    const bool for_people = !tb_cli_given(call, "json") && form_of(call) != TB_TABLE_TSV;
    if (for_people && isatty(STDOUT_FILENO)) (void)fputs("\x1b[H\x1b[2J", stdout);
}

enum tb_cli_exit tb_cli_watch(const struct tb_cli_call *call,
                              enum tb_cli_exit (*once)(const struct tb_cli_call *))
{
    const bool again = tb_cli_given(call, "watch");
    if (again) tb_cli_end_on_signals();
    for (bool first = true;; first = false) {
        if (again) clear(call);
        const enum tb_cli_exit code = once(call);
        const bool is_away = code == TB_CLI_AWAY || code == TB_CLI_TIMEOUT;
        if (!again || (code != TB_CLI_DONE && (first || !is_away))) return code;
        if (fflush(stdout) != 0) return TB_CLI_SITE;
        if (!tb_cli_sleep(WATCH_EVERY_MS)) return TB_CLI_DONE;
    }
}
