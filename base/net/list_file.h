/* list_file.h - files that an operator writes as lists, a line each: read whole, and taken apart
 * into words. A shell. */
#ifndef TB_BASE_NET_LIST_FILE_H
#define TB_BASE_NET_LIST_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tombolo/status.h"

/* The caller's, by tb_free. NULL: `error_out` says why, with the file's name. */
char *tb_list_file_read(const char *path, size_t bytes_max, size_t *bytes_out, char error_out[256]);

uint32_t tb_list_lines(const char *text, size_t bytes);

/* Where a reader of a list is. Begins with `text`, `bytes` and zeros. */
struct tb_list_walk {
    const char *text; /* borrowed */
    size_t bytes, at;
    uint32_t line;   /* of the row; from 1 on */
    const char *row; /* without its end */
    size_t row_bytes;
};
/* To the next line that has a word. False: there is none. */
bool tb_list_next(struct tb_list_walk *w);

struct tb_list_word {
    const char *text; /* borrowed */
    size_t bytes;     /* 0: the line has no more, or the rest is for people ('#') */
};
/* The next word of a line; how many bytes there are up to its end. */
size_t tb_list_word(const char *line, size_t bytes, struct tb_list_word *word_out);

struct tb_list_kind {
    const char *row;  /* "KIND:NAME": a line's shape, for people */
    const char *rows; /* "entries" */
    uint32_t rows_max;
};
/* Says in `error_out` why a list was refused: TB_BAD_FILE (line `line`), TB_TOO_LARGE or
 * TB_SITE_NOMEM. TB_SITE_NOMEM, else TB_SITE_CONFIG. */
enum tb_status tb_list_refused(const struct tb_list_kind *kind, const char *path, enum tb_status status,
                               uint32_t line, char error_out[256]);

#endif
