/* output.c - results, failures and progress. See output.h. */
#include "gateway/cli/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/options.h"

#define PROGRESS_EVERY TB_MS(100)
#define LINES_EVERY    TB_SECONDS(1) /* for a program */

struct tb_shown tb_show_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    struct tb_shown s;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    (void)snprintf(s.text, sizeof s.text, "%.*f %s", digits, value, units[unit]);
    return s;
}

struct tb_shown tb_show_seconds(double seconds)
{
    struct tb_shown s;
    const uint64_t whole = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 0;
    if (seconds < 10)
        (void)snprintf(s.text, sizeof s.text, "%.2f s", seconds);
    else if (whole < 60)
        (void)snprintf(s.text, sizeof s.text, "%d s", (int)whole);
    else if (whole < 3600)
        (void)snprintf(s.text, sizeof s.text, "%d:%02d", (int)(whole / 60), (int)(whole % 60));
    else
        (void)snprintf(s.text, sizeof s.text, "%d:%02d:%02d", (int)(whole / 3600), (int)(whole / 60 % 60),
                       (int)(whole % 60));
    return s;
}

/* How many bytes at the end may be the beginning of a letter that was cut: of UTF-8, the last byte
 * that does not go on with 10xxxxxx, and those behind it. */
static size_t letter_begun(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 4 && back <= bytes; back++) {
        const unsigned char c = (unsigned char)text[bytes - back];
        if ((c & 0xc0) == 0x80) continue;
        return c < 0x80 ? 0 : back;
    }
    return 0;
}

void tb_show_clean(const char *text, char *out, size_t cap)
{
    size_t used = 0;
    TB_ASSERT(cap > 0);
    for (; *text != '\0' && used + 1 < cap; text++) {
        const unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];
        const bool is_c1 = c == 0xc2 && next >= 0x80 && next <= 0x9f; /* UTF-8 of U+0080 to U+009F */
        out[used++] = c < 0x20 || c == 0x7f || is_c1 ? '?' : (char)c;
        text += is_c1;
    }
    TB_ASSERT(used < cap);
    if (*text != '\0') used -= letter_begun(out, used);
    out[used] = '\0';
}

static bool asked_for(const struct tb_cli_call *call, const char *flag)
{
    return tb_cli_has(call, flag) && tb_cli_given(call, flag);
}

static enum tb_cli_exit flushed(void)
{
    if (fflush(stdout) == 0) return TB_CLI_DONE;
    (void)fprintf(stderr, "tombolo: the answer cannot be written: %s\n", strerror(errno));
    return TB_CLI_SITE;
}

/* Half of an object would be worse than none. */
enum tb_cli_exit tb_say_object(json_t *object)
{
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (text == NULL) {
        (void)fputs("tombolo: no memory to print the answer\n", stderr);
        return TB_CLI_SITE;
    }
    (void)printf("%s\n", text);
    free(text);
    return flushed();
}

#define SAID_BYTES 1024

/* The text that printf would make, fit for a terminal. */
static void say_clean(char clean_out[SAID_BYTES], const char *format, va_list arguments)
{
    char text[SAID_BYTES];
    (void)vsnprintf(text, sizeof text, format, arguments);
    tb_show_clean(text, clean_out, SAID_BYTES);
}

static void say_error_object(int status, const char *clean)
{
    TB_ASSERT(status != TB_OK);
    (void)tb_say_object(json_pack("{s:i, s:b, s:s, s:s}", "schema", 1, "ok", 0, "status",
                                  tb_status_name(status), "error", clean));
}

enum tb_cli_exit tb_say_failure(const struct tb_cli_call *call, int status, const char *format, ...)
{
    TB_ASSERT(status != TB_OK); /* or its exit code would be that of success */
    char clean[SAID_BYTES];
    va_list arguments;
    va_start(arguments, format);
    say_clean(clean, format, arguments);
    va_end(arguments);
    const char *name = tb_status_name(status);
    if (!asked_for(call, "json")) {
        /* The library's sentence names its status already. */
        const bool named = strstr(clean, name) != NULL;
        (void)fprintf(stderr, "tombolo %s: %s%s%s%s\n", call->command->name, clean, named ? "" : " (",
                      named ? "" : name, named ? "" : ")");
    } else {
        say_error_object(status, clean);
    }
    return tb_cli_exit_of(status);
}

void tb_say_note(const struct tb_cli_call *call, const char *format, ...)
{
    char clean[SAID_BYTES];
    va_list arguments;
    va_start(arguments, format);
    say_clean(clean, format, arguments);
    va_end(arguments);
    if (!asked_for(call, "quiet")) (void)fprintf(stderr, "tombolo %s: %s\n", call->command->name, clean);
}

enum tb_cli_exit tb_say_usage(const char *command, bool json, const char *format, ...)
{
    char clean[SAID_BYTES];
    va_list arguments;
    va_start(arguments, format);
    say_clean(clean, format, arguments);
    va_end(arguments);
    if (json)
        say_error_object(TB_BAD_ARGUMENT, clean);
    else
        (void)fprintf(stderr, "tombolo%s%s: %s\n", command[0] == '\0' ? "" : " ", command, clean);
    return TB_CLI_USAGE;
}

enum tb_cli_exit tb_say_result(const struct tb_cli_call *call, json_t *fields, const char *format, ...)
{
    if (asked_for(call, "json")) {
        json_t *object = json_pack("{s:i, s:b}", "schema", 1, "ok", 1);
        if (object != NULL && json_object_update(object, fields) != 0) {
            json_decref(object);
            object = NULL;
        }
        json_decref(fields);
        return tb_say_object(object);
    }
    json_decref(fields);
    if (asked_for(call, "quiet")) return TB_CLI_DONE;
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stdout, format, arguments);
    va_end(arguments);
    (void)putchar('\n');
    return flushed();
}

/* ---- progress ---- */

void tb_progress_start(struct tb_progress *p, const struct tb_cli_call *call)
{
    memset(p, 0, sizeof *p);
    p->on = isatty(STDERR_FILENO) && !asked_for(call, "json") && !asked_for(call, "quiet");
    p->started = tb_clock_now();
}

void tb_progress_line(char out[160], const char *what, uint64_t done, uint64_t total, uint64_t moved,
                      double elapsed_s)
{
    const double rate = elapsed_s > 0.2 ? (double)moved / elapsed_s : 0;
    if (total == 0) {
        (void)snprintf(out, 160, "%.60s  %s", what, tb_show_seconds(elapsed_s).text);
        return;
    }
    int used =
        snprintf(out, 160, "%.60s  %3d %%  %s of %s", what, (int)((double)done * 100.0 / (double)total),
                 tb_show_bytes(done).text, tb_show_bytes(total).text);
    TB_ASSERT(used > 0 && used < 160);
    if (rate < 1 || done > total) return;
    used += snprintf(out + used, 160 - (size_t)used, "  %s/s", tb_show_bytes((uint64_t)rate).text);
    if (done < total)
        (void)snprintf(out + used, 160 - (size_t)used, "  %s left",
                       tb_show_seconds((double)(total - done) / rate).text);
}

void tb_progress_start_lines(struct tb_progress *p, const struct tb_cli_call *call)
{
    tb_progress_start(p, call);
    p->lines = asked_for(call, "json");
}

bool tb_progress_is_shown(const struct tb_progress *p)
{
    return p->on || p->lines;
}

static void show_line(struct tb_progress *p, const char *what, uint64_t done, uint64_t total)
{
    const tb_time_ns now = tb_clock_now();
    const tb_time_ns since = p->shown > p->started ? p->shown : p->started;
    if (total == 0 || tb_time_since(since, now) < LINES_EVERY) return;
    const double elapsed_s = (double)tb_time_since(p->started, now) / 1e9;
    const double rate = done > p->first_done ? (double)(done - p->first_done) / elapsed_s : 0;
    const bool known = rate > 0 && done <= total;
    p->shown = now;
    json_t *line = json_pack("{s:s, s:I, s:I, s:f, s:o, s:o}", "what", what, "done_bytes", (json_int_t)done,
                             "bytes", (json_int_t)total, "percent", (double)done * 100 / (double)total,
                             "bytes_per_s", known ? json_integer((json_int_t)rate) : json_null(), "eta_s",
                             known ? json_real((double)(total - done) / rate) : json_null());
    (void)tb_say_object(json_pack("{s:i, s:b, s:o}", "schema", 1, "ok", 1, "progress", line));
}

void tb_progress_show(struct tb_progress *p, const char *what, uint64_t done, uint64_t total)
{
    if (!tb_progress_is_shown(p)) return;
    const tb_time_ns now = tb_clock_now();
    if (p->any && total != p->total) p->started = now;
    if (!p->any || total != p->total) p->first_done = done;
    p->total = total;
    if (p->lines) {
        p->any = true;
        show_line(p, what, done, total);
        return;
    }
    if (p->any && tb_time_since(p->shown, now) < PROGRESS_EVERY) return;
    char line[160];
    tb_progress_line(line, what, done, total, done - (p->first_done < done ? p->first_done : done),
                     (double)tb_time_since(p->started, now) / 1e9);
    (void)fprintf(stderr, "\r%s\x1b[K", line);
    (void)fflush(stderr);
    p->shown = now;
    p->any = true;
}

void tb_progress_end(struct tb_progress *p)
{
    if (p->on && p->any) (void)fputs("\r\x1b[K", stderr);
    p->any = false;
    p->started = tb_clock_now();
}
