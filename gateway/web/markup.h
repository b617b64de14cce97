/* markup.h - HTML of texts, numbers and tables. Every text of a peer, a worker or a file comes onto
 * the page through here, and is escaped here and nowhere else.
 *
 * Pure but for the stream. A number that is not known is the word "unknown", never 0. */
#ifndef TB_GATEWAY_WEB_MARKUP_H
#define TB_GATEWAY_WEB_MARKUP_H

#include <jansson.h>
#include <stdio.h>

/* For a text between tags, and for a value in double quotes. Control characters, and those that
 * change the direction of what follows, become U+FFFD. */
void tb_markup_text(FILE *out, const char *text);
/* <b>TEXT</b>: a name inside a sentence. */
void tb_markup_name(FILE *out, const char *text);
void tb_markup_bytes(FILE *out, double bytes);
void tb_markup_bit_rate(FILE *out, double bytes_per_s);
void tb_markup_seconds(FILE *out, double seconds);
/* "as of 0.3 s ago", which the script counts on. */
void tb_markup_age(FILE *out, double age_s);

/* ---- cells ---- */

/* The text between <td class="CLASS"> and </td>; an empty one is a dash. `class` NULL: none. */
void tb_markup_cell(FILE *out, const char *class, const char *text);
__attribute__((format(printf, 2, 3))) void tb_markup_number_cell(FILE *out, const char *format, ...);
/* Of a field; "unknown" where there is none. */
void tb_markup_bytes_cell(FILE *out, const json_t *row, const char *key);
void tb_markup_bit_rate_cell(FILE *out, const json_t *row, const char *key);
void tb_markup_seconds_cell(FILE *out, const json_t *row, const char *key);
void tb_markup_count_cell(FILE *out, const json_t *row, const char *key);

/* ---- tables ---- */

/* `name` says what the table is, to those who do not see it. `heads` ends with NULL; that of a
 * column of numbers begins with #. */
void tb_markup_table_begin(FILE *out, const char *name, const char *const *heads);
void tb_markup_table_end(FILE *out);

#endif
