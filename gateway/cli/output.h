/* output.h - how a command speaks: results and failures as text or JSON, progress on a
 * terminal, silence elsewhere.
 *
 * Text from files and peers is printed with control characters replaced, so that no name
 * can drive a terminal. */
#ifndef TB_GATEWAY_CLI_SAY_H
#define TB_GATEWAY_CLI_SAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"
#include "gateway/cli/cli.h"

/* "1.4 GB", "12 B": powers of 1000, three digits. */
struct tb_shown {
    char text[32];
};
struct tb_shown tb_show_bytes(uint64_t bytes);
struct tb_shown tb_show_seconds(double seconds); /* "0.42 s", "3:07", "2:03:07" */
void tb_show_clean(const char *text, char *out, size_t cap);

/* Says why a command ends: "tombolo publish: TEXT (fenced)" on standard error, or with --json an
 * object with ok, status and error on standard output. Returns the exit code of the status. */
enum tb_cli_exit tb_say_failure(const struct tb_cli_call *call, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a command line that is not understood, before there is a call: `json` says
 * whether --json stands in it. Its status is bad_argument and its exit code TB_CLI_USAGE.
 * `command` may be "". */
enum tb_cli_exit tb_say_usage(const char *command, bool json, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints the object as one line; takes it. NULL, or no memory for the line: nothing on standard
 * output, and TB_CLI_SITE. */
enum tb_cli_exit tb_say_object(json_t *object);

/* Prints the object as one line under --json, else `text` unless --quiet. Adds "schema" and
 * "ok" in front. Takes `fields`, which may be NULL: then there was no memory for it, and
 * TB_CLI_SITE is the result. */
enum tb_cli_exit tb_say_result(const struct tb_cli_call *call, json_t *fields, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Something that happened on the way, "tombolo subscribe: TEXT" on standard error;
 * nothing under --quiet. */
void tb_say_note(const struct tb_cli_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One line that is written over itself at most ten times a second; or, for a program, a line of
 * JSON a second. */
struct tb_progress {
    bool on;
    bool lines; /* for a program, on standard output */
    tb_time_ns started;
    tb_time_ns shown;
    uint64_t first_done; /* what was there when it began: not our rate */
    uint64_t total;      /* of what is shown: another one begins anew */
    bool any;
};

void tb_progress_start(struct tb_progress *p, const struct tb_cli_call *call);
/* The same, and under --json lines with "progress": `what`, `done_bytes`, `bytes`, `percent`,
 * `bytes_per_s` and `eta_s` (null: not known yet). The first comes after a second. */
void tb_progress_start_lines(struct tb_progress *p, const struct tb_cli_call *call);
/* Somebody is shown it. */
bool tb_progress_is_shown(const struct tb_progress *p);
/* `total` 0: unknown, of which a program gets no line. */
void tb_progress_show(struct tb_progress *p, const char *what, uint64_t done, uint64_t total);
void tb_progress_end(struct tb_progress *p); /* clears the line */
/* The line itself: "staging 12   45 %  1.2 of 2.7 GB  310 MB/s  5 s left". Pure. */
void tb_progress_line(char out[160], const char *what, uint64_t done, uint64_t total, uint64_t moved,
                      double elapsed_s);

#endif
