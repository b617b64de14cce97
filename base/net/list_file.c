#include "base/net/list_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/system_calls.h"

char *tb_list_file_read(const char *path, size_t bytes_max, size_t *bytes_out, char error_out[256])
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    struct stat st;
    char *bytes = NULL;
    ssize_t got = -1;
    if (fd < 0) {
        (void)snprintf(error_out, 256, "%.150s: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)bytes_max)
        (void)snprintf(error_out, 256, "%.150s: is no regular file of at most %zu KiB", path,
                       bytes_max >> 10);
    else if ((bytes = tb_malloc((size_t)st.st_size + 1)) == NULL)
        (void)snprintf(error_out, 256, "%.150s: no memory", path);
    else if ((got = tb_sys_pread(fd, bytes, (size_t)st.st_size + 1, 0)) != (ssize_t)st.st_size)
        (void)snprintf(error_out, 256, "%.150s: %s", path,
                       got < 0 ? strerror(errno) : "it changes while it is read");
    close(fd);
    if (bytes != NULL && got == (ssize_t)st.st_size) {
        *bytes_out = (size_t)got;
        return bytes;
    }
    tb_free(bytes);
    return NULL;
}

uint32_t tb_list_lines(const char *text, size_t bytes)
{
    uint32_t lines = 1;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    return lines;
}

static size_t line_bytes(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end != NULL ? (size_t)(end - text) : bytes;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

size_t tb_list_word(const char *line, size_t bytes, struct tb_list_word *word_out)
{
    size_t from = 0;
    while (from < bytes && is_blank(line[from]))
        from++;
    size_t to = from;
    while (to < bytes && !is_blank(line[to]))
        to++;
    const bool remark = from < bytes && line[from] == '#';
    *word_out = (struct tb_list_word){line + from, remark ? 0 : to - from};
    return to;
}

bool tb_list_next(struct tb_list_walk *w)
{
    struct tb_list_word first;
    while (w->at < w->bytes) {
        w->row = w->text + w->at;
        w->row_bytes = line_bytes(w->row, w->bytes - w->at);
        w->at += w->row_bytes + 1;
        w->line++;
        (void)tb_list_word(w->row, w->row_bytes, &first);
        if (first.bytes > 0) return true;
    }
    return false;
}

enum tb_status tb_list_refused(const struct tb_list_kind *kind, const char *path, enum tb_status status,
                               uint32_t line, char error_out[256])
{
    TB_ASSERT(status == TB_BAD_FILE || status == TB_TOO_LARGE || status == TB_SITE_NOMEM);
    if (status == TB_SITE_NOMEM) {
        (void)snprintf(error_out, 256, "%.150s: no memory", path);
        return status;
    }
    if (status == TB_TOO_LARGE)
        (void)snprintf(error_out, 256, "%.150s: has over %u %s", path, kind->rows_max, kind->rows);
    else
        (void)snprintf(error_out, 256, "%.120s:%u: is not %s", path, line, kind->row);
    return TB_SITE_CONFIG;
}
