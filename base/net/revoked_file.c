/* revoked_file.c - the file of revoked certificates: read whole, and one line more. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/list_file.h"
#include "base/net/revoked.h"
#include "base/system_calls.h"

__attribute__((format(printf, 2, 3))) static enum tb_status say(char error_out[256], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_out, 256, format, args);
    va_end(args);
    return TB_SITE_CONFIG;
}

enum tb_status tb_revoked_read(const char *path, struct tb_revoked **revoked_out, char error_out[256])
{
    static const struct tb_list_kind kind = {
        "sha256:HEX, serial:HEX, tombolo://SITE/GATEWAY or tombolo://SITE/worker/NAME", "entries",
        TB_REVOKED_MAX};
    size_t bytes = 0;
    uint32_t line = 0;
    char *text = tb_list_file_read(path, TB_REVOKED_BYTES_MAX, &bytes, error_out);
    if (text == NULL) return TB_SITE_CONFIG;
    const enum tb_status status = tb_revoked_parse(text, bytes, revoked_out, &line);
    tb_free(text);
    return status == TB_OK ? TB_OK : tb_list_refused(&kind, path, status, line, error_out);
}

/* One line, in one write: two commands at once lose none, and the gateway reads it whole. */
static enum tb_status line_add(int fd, const char *path, const char *line, char error_out[256])
{
    struct stat st;
    char last = '\n', all[TB_REVOKED_TEXT_BYTES + TB_REVOKED_NOTE_BYTES + 4];
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return say(error_out, "%.150s: is no regular file", path);
    if (st.st_size > 0 && tb_sys_pread(fd, &last, 1, st.st_size - 1) != 1)
        return say(error_out, "%.150s: %s", path, strerror(errno));
    const int count = snprintf(all, sizeof all, "%s%s", last == '\n' ? "" : "\n", line);
    TB_ASSERT(count > 0 && (size_t)count < sizeof all);
    if (tb_sys_pwrite(fd, all, (size_t)count, st.st_size) != (ssize_t)count || tb_sys_fsync(fd) != 0)
        return say(error_out, "%.150s: %s", path, strerror(errno));
    return TB_OK;
}

enum tb_status tb_revoked_add(const char *path, const struct tb_revoked_entry *entry, const char *note,
                              char error_out[256])
{
    struct tb_revoked *now = NULL;
    char text[TB_REVOKED_TEXT_BYTES], line[TB_REVOKED_TEXT_BYTES + TB_REVOKED_NOTE_BYTES + 3];
    const int fd = tb_sys_open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return say(error_out, "%.150s: %s", path, strerror(errno));
    enum tb_status status = tb_revoked_read(path, &now, error_out);
    if (status != TB_OK) goto undo_open;
    status = TB_DONE_BEFORE;
    if (tb_revoked_has_entry(now, entry)) goto undo_list;
    status = say(error_out, "%.150s: has %u entries, and takes no more", path, TB_REVOKED_MAX);
    if (tb_revoked_count(now) == TB_REVOKED_MAX) goto undo_list;
    tb_revoked_entry_format(entry, text);
    snprintf(line, sizeof line, "%s  %.*s\n", text, (int)TB_REVOKED_NOTE_BYTES - 1, note);
    status = line_add(fd, path, line, error_out);

undo_list:
    tb_revoked_free(now);
undo_open:
    close(fd);
    return status;
}
