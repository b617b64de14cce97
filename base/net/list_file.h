/* list_file.h - files that an operator writes as lists, a line each: read whole, and taken apart
 * into words. A shell. */
#ifndef TB_BASE_NET_LIST_FILE_H
#define TB_BASE_NET_LIST_FILE_H

#include <stddef.h>
#include <stdint.h>

/* The caller's, by tb_free. NULL: `error_out` says why, with the file's name. */
char *tb_list_file_read(const char *path, size_t bytes_max, size_t *bytes_out, char error_out[256]);

uint32_t tb_list_lines(const char *text, size_t bytes);
/* Of the first line, without its end. */
size_t tb_list_line_bytes(const char *text, size_t bytes);

struct tb_list_word {
    const char *text; /* borrowed */
    size_t bytes;     /* 0: the line has no more, or the rest is for people ('#') */
};
/* The next word of a line; how many bytes there are up to its end. */
size_t tb_list_word(const char *line, size_t bytes, struct tb_list_word *word_out);

#endif
