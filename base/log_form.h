/* log_form.h - how a log line is written: as text or as one JSON object, with what could forge a
 * line escaped. Inside log.c.
 *
 *   <4>2026-11-27T13:07:20.123Z warn link.lost peer=west after_ms=412
 *   <4>{"time":"2026-11-27T13:07:20.123Z","level":"warn","event":"link.lost","after_ms":412}
 *
 * The line is never longer than its 4 KiB. Values that do not fit are left out, and the line says
 * so. */
#ifndef TB_BASE_LOG_FORM_H
#define TB_BASE_LOG_FORM_H

#include <stdarg.h>

#include "base/log.h"

struct tb_log_head {
    const char *level;
    int priority; /* of syslog */
    const char *event;
};
/* The priority of syslog and the wall clock's time, where the form has them; level and event. */
void tb_log_form_begin(struct tb_log_line *l, struct tb_log_form form, const struct tb_log_head *head);
/* A stranger's text. */
void tb_log_form_text(struct tb_log_line *l, const char *key, const char *value);
void tb_log_form_number(struct tb_log_line *l, const char *key, uint64_t value);
/* Text of ours: "key=value key=\"two words\"". Control characters become '?'. */
void tb_log_form_pairs(struct tb_log_line *l, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* The end of the line, with its newline. Returns the bytes of the whole line. */
size_t tb_log_form_end(struct tb_log_line *l);

#endif
