/* log.c - log lines: escaped, bounded, one write(2) each. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/ident.h"
#include "base/limits/line_limits.h"
#include "base/utf8.h"

static _Atomic int log_most = TB_LOG_INFO;
static _Atomic int log_fd = STDERR_FILENO;

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* The party whose lines this thread writes; both NULL: ours. */
static _Thread_local const struct tb_identity *log_identity;
static _Thread_local const char *log_stranger;
static _Thread_local bool log_sums; /* of log.suppressed itself */
static _Atomic bool log_ticks;      /* sums are told: lines of no party have a limit */
static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tb_line_limits limits;

/* Kept free at the end of every line: what says that it was cut, and the newline. */
static const char cut_mark[] = " cut=true\n";

void tb_log_set(enum tb_log_level most, int fd)
{
    TB_ASSERT((size_t)most < sizeof level_names / sizeof level_names[0]);
    atomic_store(&log_most, (int)most);
    atomic_store(&log_fd, fd);
}

bool tb_log_level_parse(const char *text, enum tb_log_level *level_out)
{
    for (int i = 0; i < (int)(sizeof level_names / sizeof level_names[0]); i++) {
        if (strcmp(level_names[i], text) != 0) continue;
        *level_out = (enum tb_log_level)i;
        return true;
    }
    return false;
}

static size_t room(const struct tb_log_line *l)
{
    TB_ASSERT(l->used <= sizeof l->text - sizeof cut_mark);
    return sizeof l->text - sizeof cut_mark - l->used;
}

/* All of it or nothing; false also once the line was cut. */
static bool put(struct tb_log_line *l, const char *bytes, size_t count)
{
    if (l->cut || count > room(l)) {
        l->cut = true;
        return false;
    }
    memcpy(l->text + l->used, bytes, count);
    l->used += count;
    return true;
}

static bool put_text(struct tb_log_line *l, const char *text)
{
    return put(l, text, strlen(text));
}

struct tb_log_party tb_log_party_set(struct tb_log_party party)
{
    const struct tb_log_party before = {log_identity, log_stranger};
    TB_ASSERT(party.identity == NULL || party.stranger == NULL);
    log_identity = party.identity;
    log_stranger = party.stranger;
    return before;
}

void tb_log_of_identity(const struct tb_identity *identity)
{
    (void)tb_log_party_set((struct tb_log_party){.identity = identity});
}

void tb_log_of_stranger(const char *address)
{
    (void)tb_log_party_set((struct tb_log_party){.stranger = address});
}

void tb_log_of_us(void)
{
    (void)tb_log_party_set((struct tb_log_party){NULL, NULL});
}

/* The address without its port. */
static void stranger_text(char out[TB_LINE_TEXT_MAX])
{
    (void)snprintf(out, TB_LINE_TEXT_MAX, "%.*s", (int)TB_LINE_TEXT_MAX - 1, log_stranger);
    char *port = strrchr(out, ':');
    if (port != NULL) *port = '\0';
}

static bool may_write(const char *event)
{
    char party[TB_LINE_TEXT_MAX > TB_URI_BYTES_MAX ? TB_LINE_TEXT_MAX : TB_URI_BYTES_MAX] = "anybody";
    enum tb_line_party kind = TB_LINE_OF_NOBODY;
    if (log_stranger != NULL) {
        kind = TB_LINE_OF_STRANGER;
        stranger_text(party);
    } else if (log_identity != NULL) {
        kind = log_identity->kind == TB_IDENTITY_GATEWAY ? TB_LINE_OF_GATEWAY : TB_LINE_OF_IDENTITY;
        tb_identity_format(log_identity, party);
    } else if (log_sums || !atomic_load_explicit(&log_ticks, memory_order_relaxed))
        return true;
    pthread_mutex_lock(&limits_lock);
    const bool taken = tb_line_take(&limits, event, party, kind, tb_clock_now());
    pthread_mutex_unlock(&limits_lock);
    return taken;
}

static bool sum_due(struct tb_line_sum *sum_out)
{
    pthread_mutex_lock(&limits_lock);
    const bool due = tb_line_sum_due(&limits, tb_clock_now(), sum_out);
    pthread_mutex_unlock(&limits_lock);
    return due;
}

void tb_log_tick(void)
{
    struct tb_line_sum sum;
    atomic_store_explicit(&log_ticks, true, memory_order_relaxed);
    log_sums = true;
    while (sum_due(&sum)) {
        struct tb_log_line l;
        tb_log_begin(&l, TB_LOG_WARN, "log.suppressed");
        tb_log_str(&l, "lines_of", sum.event);
        tb_log_str(&l, "identity", sum.party);
        tb_log_u64(&l, "lines", sum.lines);
        tb_log_end(&l);
    }
    log_sums = false;
}

uint64_t tb_log_suppressed(void)
{
    pthread_mutex_lock(&limits_lock);
    const uint64_t lines = limits.suppressed;
    pthread_mutex_unlock(&limits_lock);
    return lines;
}

void tb_log_begin(struct tb_log_line *l, enum tb_log_level level, const char *event)
{
    TB_ASSERT((size_t)level < sizeof level_names / sizeof level_names[0]);
    l->used = 0;
    l->level = level;
    l->cut = false;
    l->on = (int)level <= atomic_load_explicit(&log_most, memory_order_relaxed);
    if (l->on && level != TB_LOG_DEBUG) l->on = may_write(event);
    if (!l->on) return;
    put_text(l, level_names[level]);
    put_text(l, " ");
    put_text(l, event);
}

/* How many bytes of `value` can stand as they are in a quoted value: 0 if the first has to be
 * escaped. */
static size_t plain_bytes(const char *value, size_t left)
{
    uint32_t code = 0;
    const size_t count = tb_utf8_decode(value, left, &code);
    if (count == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0)) return 0;
    /* Line and paragraph separators, and the controls that turn the direction of text,
     * can forge what is seen. */
    if (code == 0x2028 || code == 0x2029 || (code >= 0x202a && code <= 0x202e) ||
        (code >= 0x2066 && code <= 0x2069)) {
        return 0;
    }
    return code == '"' || code == '\\' ? 0 : count;
}

static bool put_escaped(struct tb_log_line *l, char c)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char byte = (unsigned char)c;
    switch (c) {
    case '\n':
        return put(l, "\\n", 2);
    case '\t':
        return put(l, "\\t", 2);
    case '\r':
        return put(l, "\\r", 2);
    case '"':
        return put(l, "\\\"", 2);
    case '\\':
        return put(l, "\\\\", 2);
    default:
        return put(l, (const char[]){'\\', 'x', digits[byte >> 4], digits[byte & 15]}, 4);
    }
}

/* True when the value can stand without quotes. */
static bool bare(const char *value, size_t count)
{
    if (count == 0) return false;
    for (size_t at = 0; at < count;) {
        const size_t step = plain_bytes(value + at, count - at);
        if (step == 0 || value[at] == ' ' || value[at] == '=') return false;
        at += step;
    }
    return true;
}

void tb_log_str(struct tb_log_line *l, const char *key, const char *value)
{
    if (!l->on) return;
    const size_t count = strlen(value);
    if (!put_text(l, " ") || !put_text(l, key) || !put_text(l, "=")) return;
    if (bare(value, count)) {
        if (count <= room(l)) {
            put(l, value, count);
            return;
        }
    }
    put_text(l, "\"");
    size_t at = 0;
    while (at < count && room(l) > 4) { /* the longest escape, and the closing quote */
        const size_t step = plain_bytes(value + at, count - at);
        const bool fits = step == 0 ? put_escaped(l, value[at]) : put(l, value + at, step);
        if (!fits) break;
        at += step == 0 ? 1 : step;
    }
    if (room(l) > 0) l->text[l->used++] = '"';
    if (at < count) l->cut = true;
}

void tb_log_u64(struct tb_log_line *l, const char *key, uint64_t value)
{
    char digits[32];
    if (!l->on) return;
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    if (put_text(l, " ") && put_text(l, key) && put_text(l, "=")) put_text(l, digits);
}

void tb_log_end(struct tb_log_line *l)
{
    if (!l->on) return;
    const char *tail = l->cut ? cut_mark : "\n";
    const size_t count = strlen(tail);
    TB_ASSERT(l->used + count <= sizeof l->text);
    memcpy(l->text + l->used, tail, count); /* room() keeps this free */
    /* One write, and its failure is nobody's: a daemon whose log is full goes on replicating. */
    const ssize_t written = write(atomic_load(&log_fd), l->text, l->used + count);
    (void)written;
    l->on = false;
}

void tb_log(enum tb_log_level level, const char *event, const char *format, ...)
{
    struct tb_log_line l;
    tb_log_begin(&l, level, event);
    if (!l.on) return;
    if (format[0] != '\0' && put_text(&l, " ")) {
        va_list args;
        va_start(args, format);
        const int wanted = vsnprintf(l.text + l.used, room(&l) + 1, format, args);
        va_end(args);
        const size_t start = l.used;
        const size_t got = wanted < 0 ? 0 : (size_t)wanted;
        l.cut = got > room(&l);
        l.used += l.cut ? room(&l) : got;
        /* The rule is that only text of ours comes this way; where it is broken, at
         * least no line is forged. */
        for (size_t i = start; i < l.used; i++) {
            if ((unsigned char)l.text[i] < 0x20 || l.text[i] == 0x7f) l.text[i] = '?';
        }
    }
    tb_log_end(&l);
}
