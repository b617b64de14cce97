/* log.h - one line = one event that a person may act on:  level event key=value ...
 *
 * For shells; cores return facts. Values with a space, quote, backslash, '=' or control character
 * are quoted and escaped (\n, \xNN), so a peer's text can not forge a line or a terminal sequence.
 * A line is cut at 4 KiB and written with one write(2). With tb_log_set_form a line is a JSON
 * object, has the time, or a priority for journald. Threads: any.
 *
 * Values that we format ourselves, such as numbers and names:
 *   tb_log(TB_LOG_WARN, "link.lost", "peer=%s in_flight_chunks=%u", name, n);
 * Values of a stranger:
 *   struct tb_log_line l;
 *   tb_log_begin(&l, TB_LOG_WARN, "session.refused");
 *   tb_log_str(&l, "text", untrusted);
 *   tb_log_end(&l); */
#ifndef TB_BASE_LOG_H
#define TB_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tb_log_level { TB_LOG_ERROR, TB_LOG_WARN, TB_LOG_INFO, TB_LOG_DEBUG };

/* Lines from here on are of that party, on this thread, and few of each event are written
 * (base/limits/line_limits.h). The rest is counted, and told in one line. The pointer is kept until
 * the next of these calls.
 *
 * Once tb_log_tick was called, lines of no party are limited too, each event by itself. So no
 * line is without a limit, also where a caller forgot to name a party. */
struct tb_identity;
struct tb_log_party {
    const struct tb_identity *identity; /* NULL: none */
    const char *stranger;               /* likewise; an address */
};
/* Returns the party of before, to be set again behind lines that another party caused. */
struct tb_log_party tb_log_party_set(struct tb_log_party party);
void tb_log_of_identity(const struct tb_identity *identity);
void tb_log_of_stranger(const char *address); /* with its port, which does not count */
void tb_log_of_us(void);
/* Each second: sums that are due (log.suppressed). */
void tb_log_tick(void);
uint64_t tb_log_suppressed(void); /* lines, ever */

struct tb_log_line {
    char text[4096];
    size_t used;
    size_t fields;     /* where they begin: behind level and event */
    const char *event; /* borrowed until the line ends */
    enum tb_log_level level;
    bool on;
    bool json;
    bool cut; /* something did not fit; the line ends in cut=true */
};

void tb_log_set(enum tb_log_level most, int fd); /* default: INFO to stderr */
/* How lines are written from now on; default: none of these. */
struct tb_log_form {
    bool json;     /* one object a line: "level", "event", then the same keys. Up to 15 digits are a number */
    bool time;     /* UTC with milliseconds, in front */
    bool priority; /* "<4>" in front, which journald takes away and keeps as the priority */
};
void tb_log_set_form(struct tb_log_form form);
struct tb_log_form tb_log_form(void);
/* Whether journald reads what is written there ($JOURNAL_STREAM). */
bool tb_log_is_journal(int fd);
/* Each line that is written at info and above goes there, too. `fields` is " key=value key=value",
 * or ,"key":value,"key":value where lines are JSON. The keeper may be called from any thread, and
 * may not log. NULL: none. */
typedef void (*tb_log_keeper)(enum tb_log_level level, const char *event, const char *fields, bool json);
void tb_log_keep(tb_log_keeper keeper);
const char *tb_log_level_name(enum tb_log_level level);
bool tb_log_level_parse(const char *text, enum tb_log_level *level_out);
void tb_log_begin(struct tb_log_line *l, enum tb_log_level level, const char *event);
void tb_log_str(struct tb_log_line *l, const char *key, const char *value);
void tb_log_u64(struct tb_log_line *l, const char *key, uint64_t value);
void tb_log_end(struct tb_log_line *l);
/* Key=value pairs by printf; every %s must be text of ours that needs no escaping. */
void tb_log(enum tb_log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
