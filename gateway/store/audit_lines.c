/* audit_lines.c - see audit_lines.h. */
#include "gateway/store/audit_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/private_file.h"
#include "base/system_calls.h"
#include "base/utf8.h"

#define DAY_MS     UINT64_C(86400000)
#define HELD_BYTES (64u << 10)  /* of a file and a batch */
#define LINE_BYTES (6u * 1024u) /* the longest: each byte of a row's texts escaped */

struct file {
    char path[PATH_MAX], before[PATH_MAX];
    int fd;            /* -1: it could not be opened again */
    uint64_t most;     /* bytes of it and of the one before */
    uint64_t used;     /* bytes */
    uint64_t began_ms; /* of its first line; 0: it has none */
    uint32_t held;
    char text[HELD_BYTES]; /* lines of the batch */
};

struct tb_audit_lines {
    uint64_t max_ms;
    bool failing; /* and told */
    struct file files[TB_AUDIT_SHARES];
};

static const char *const suffixes[TB_AUDIT_SHARES] = {"", ".versions", ".denials"};
static const char *const share_names[TB_AUDIT_SHARES] = {"acts", "versions", "denials"};

/* ---- a line ---- */

static void put_text(char *out, size_t *used, const char *key, const char *text)
{
    const size_t left = strlen(text);
    *used += (size_t)snprintf(out + *used, LINE_BYTES - *used, ",\"%s\":\"", key);
    for (size_t at = 0; at < left;) {
        uint32_t code = 0;
        const size_t step = tb_utf8_decode(text + at, left - at, &code);
        if (step == 0)
            out[(*used)++] = '?';
        else if (code < 0x20 || code == '"' || code == '\\' || code == 0x7f)
            *used += (size_t)snprintf(out + *used, LINE_BYTES - *used, "\\u%04x", (unsigned)code);
        else {
            memcpy(out + *used, text + at, step);
            *used += step;
        }
        at += step != 0 ? step : 1;
    }
    out[(*used)++] = '"';
}

static size_t line_of(const struct tb_audit_record *r, char out[LINE_BYTES])
{
    size_t used = (size_t)snprintf(out, LINE_BYTES, "{\"time_ms\":%llu,\"share\":\"%s\"",
                                   (unsigned long long)r->wall_ms, share_names[r->share]);
    put_text(out, &used, "action", r->action);
    put_text(out, &used, "identity", r->identity);
    put_text(out, &used, "object", r->object);
    put_text(out, &used, "origin", r->origin);
    put_text(out, &used, "result", r->result);
    used +=
        (size_t)snprintf(out + used, LINE_BYTES - used, ",\"count\":%llu}\n", (unsigned long long)r->count);
    TB_ASSERT(used < LINE_BYTES);
    return used;
}

_Static_assert(6 * (TB_AUDIT_ACTION_BYTES + TB_URI_BYTES_MAX + TB_AUDIT_OBJECT_BYTES + TB_AUDIT_ORIGIN_BYTES +
                    TB_AUDIT_RESULT_BYTES) +
                       256 <
                   LINE_BYTES,
               "a line fits");

/* ---- files ---- */

/* -1: why_out has the reason. */
static int ours_open(const char *path, int flags, char why_out[TB_PRIVATE_WHY_BYTES])
{
    const int fd = tb_sys_open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    why_out[0] = '\0';
    if (fd < 0) (void)snprintf(why_out, TB_PRIVATE_WHY_BYTES, "%s", strerror(errno));
    if (fd < 0 || tb_private_file(fd, why_out)) return fd;
    (void)close(fd);
    errno = EPERM;
    return -1;
}

static bool file_open(struct file *f, char why_out[TB_PRIVATE_WHY_BYTES])
{
    struct stat st;
    f->fd = ours_open(f->path, O_CREAT, why_out);
    if (f->fd < 0) return false;
    if (fstat(f->fd, &st) != 0) {
        (void)close(f->fd);
        f->fd = -1;
        return false;
    }
    f->used = (uint64_t)st.st_size;
    f->began_ms = f->used != 0 ? (uint64_t)st.st_mtime * 1000 : 0; /* of an earlier start: not before */
    return true;
}

/* P7: by size, and by age. */
static void file_turn(struct file *f, uint64_t more, uint64_t now_ms, uint64_t max_ms)
{
    struct stat st;
    char why[TB_PRIVATE_WHY_BYTES];
    const bool old = f->began_ms != 0 && now_ms > f->began_ms + max_ms / 2;
    if (stat(f->before, &st) == 0 && now_ms > (uint64_t)st.st_mtime * 1000 + max_ms / 2)
        (void)unlink(f->before);
    if (f->used == 0 || (!old && f->used + more <= f->most / 2)) return;
    if (tb_sys_rename(f->path, f->before) != 0) return; /* it grows meanwhile, and is tried again */
    if (f->fd >= 0) (void)close(f->fd);
    (void)file_open(f, why);
}

static bool file_flush(struct file *f)
{
    char why[TB_PRIVATE_WHY_BYTES];
    bool good = f->fd >= 0 || file_open(f, why);
    for (uint32_t at = 0; good && at < f->held;) {
        const ssize_t wrote = write(f->fd, f->text + at, f->held - at);
        if (wrote < 0 && errno == EINTR) continue;
        good = wrote > 0;
        if (good) at += (uint32_t)wrote;
        /* Half a line would spoil the next one. */
        if (!good) (void)!ftruncate(f->fd, (off_t)f->used);
    }
    if (good) f->used += f->held;
    f->held = 0;
    return good;
}

/* P10: once, until it can be written again. */
static void tell(struct tb_audit_lines *l, const char *path, bool good)
{
    if (l->failing == !good) return;
    l->failing = !good;
    struct tb_log_line line;
    tb_log_begin(&line, good ? TB_LOG_INFO : TB_LOG_WARN, "audit.file");
    tb_log_str(&line, "path", path);
    tb_log_str(&line, "state", good ? "written again" : "lines are lost; the table has them");
    tb_log_end(&line);
}

/* ---- the batch ---- */

void tb_audit_lines_put(struct tb_audit_lines *l, const struct tb_audit_record *row, uint64_t now_ms)
{
    struct file *f = &l->files[row->share];
    char line[LINE_BYTES];
    const size_t bytes = line_of(row, line);
    file_turn(f, f->held + bytes, now_ms, l->max_ms);
    if (f->began_ms == 0) f->began_ms = now_ms;
    if (f->held + bytes > sizeof f->text) { /* a batch has 64 rows at most: only where all are long */
        tell(l, f->path, false);
        return;
    }
    memcpy(f->text + f->held, line, bytes);
    f->held += (uint32_t)bytes;
}

void tb_audit_lines_end(struct tb_audit_lines *l, bool saved)
{
    for (int share = 0; share < TB_AUDIT_SHARES; share++) {
        struct file *f = &l->files[share];
        if (f->held == 0) continue;
        if (saved)
            tell(l, f->path, file_flush(f));
        else
            f->held = 0;
    }
}

/* False: it is too long. */
static bool path_of(const char *path, int share, char out[PATH_MAX])
{
    const int bytes = snprintf(out, PATH_MAX - 2, "%s%s", path, suffixes[share]); /* ".1" behind it fits */
    return bytes > 0 && bytes < PATH_MAX - 2;
}

static bool would_open(const char *path, char why_out[TB_PRIVATE_WHY_BYTES])
{
    const int fd = ours_open(path, 0, why_out);
    if (fd >= 0) return close(fd) == 0;
    if (errno != ENOENT) return false;
    if (tb_private_can_make(path)) return true;
    (void)snprintf(why_out, TB_PRIVATE_WHY_BYTES, "%s", strerror(errno));
    return false;
}

enum tb_status tb_audit_lines_check(const char *path, char error_out[TB_AUDIT_LINES_ERROR])
{
    char file[PATH_MAX], why[TB_PRIVATE_WHY_BYTES] = "its name is too long";
    for (int share = 0; share < TB_AUDIT_SHARES; share++) {
        if (path_of(path, share, file) && would_open(file, why)) continue;
        (void)snprintf(error_out, TB_AUDIT_LINES_ERROR, "%.80s: %.150s", file, why);
        return TB_SITE_STORE;
    }
    return TB_OK;
}

enum tb_status tb_audit_lines_open(const char *path, uint64_t bytes, uint32_t days,
                                   struct tb_audit_lines **lines_out, char error_out[TB_AUDIT_LINES_ERROR])
{
    struct tb_audit_lines *l = tb_calloc(1, sizeof *l);
    char why[TB_PRIVATE_WHY_BYTES] = "its name is too long";
    if (l == NULL) return TB_SITE_NOMEM;
    l->max_ms = days * DAY_MS;
    for (int share = 0; share < TB_AUDIT_SHARES; share++)
        l->files[share].fd = -1;
    for (int share = 0; share < TB_AUDIT_SHARES; share++) {
        struct file *f = &l->files[share];
        f->most = share == TB_AUDIT_ACTS ? bytes / 2 : bytes / 4;
        const bool fits = path_of(path, share, f->path);
        (void)snprintf(f->before, sizeof f->before, "%s%s.1", path, suffixes[share]);
        if (fits && file_open(f, why)) continue;
        (void)snprintf(error_out, TB_AUDIT_LINES_ERROR, "%.80s: %.150s", f->path, why);
        tb_audit_lines_close(l);
        return TB_SITE_STORE;
    }
    *lines_out = l;
    return TB_OK;
}

void tb_audit_lines_close(struct tb_audit_lines *l)
{
    if (l == NULL) return;
    for (int share = 0; share < TB_AUDIT_SHARES; share++)
        if (l->files[share].fd >= 0) (void)close(l->files[share].fd);
    tb_free(l);
}
