/* log.c - log lines: which are written, and one write(2) for each. log_form.c says how. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/ident.h"
#include "base/limits/line_limits.h"
#include "base/log_form.h"

static _Atomic int log_most = TB_LOG_INFO;
static _Atomic int log_fd = STDERR_FILENO;
static _Atomic(tb_log_keeper) log_keeper;

/* With the priorities of syslog. */
static const struct {
    const char *name;
    int priority;
} levels[] = {{"error", 3}, {"warn", 4}, {"info", 6}, {"debug", 7}};

static _Atomic bool form_json, form_time, form_priority;

/* The party whose lines this thread writes; both NULL: ours. */
static _Thread_local const struct tb_identity *log_identity;
static _Thread_local const char *log_stranger;
static _Thread_local bool log_sums; /* of log.suppressed itself */
static _Atomic bool log_ticks;      /* sums are told: lines of no party have a limit */
static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tb_line_limits limits;

void tb_log_set(enum tb_log_level most, int fd)
{
    TB_ASSERT((size_t)most < sizeof levels / sizeof levels[0]);
    atomic_store(&log_most, (int)most);
    atomic_store(&log_fd, fd);
}

void tb_log_keep(tb_log_keeper keeper)
{
    atomic_store(&log_keeper, keeper);
}

const char *tb_log_level_name(enum tb_log_level level)
{
    TB_ASSERT((size_t)level < sizeof levels / sizeof levels[0]);
    return levels[level].name;
}

bool tb_log_level_parse(const char *text, enum tb_log_level *level_out)
{
    for (int i = 0; i < (int)(sizeof levels / sizeof levels[0]); i++) {
        if (strcmp(levels[i].name, text) != 0) continue;
        *level_out = (enum tb_log_level)i;
        return true;
    }
    return false;
}

void tb_log_set_form(struct tb_log_form form)
{
    atomic_store(&form_json, form.json);
    atomic_store(&form_time, form.time);
    atomic_store(&form_priority, form.priority);
}

struct tb_log_form tb_log_form(void)
{
    return (struct tb_log_form){.json = atomic_load_explicit(&form_json, memory_order_relaxed),
                                .time = atomic_load_explicit(&form_time, memory_order_relaxed),
                                .priority = atomic_load_explicit(&form_priority, memory_order_relaxed)};
}

/* systemd says of which file the journal is the other end: "DEVICE:INODE". A descriptor that was
 * pointed elsewhere since then is another file. */
bool tb_log_is_journal(int fd)
{
    const char *text = getenv("JOURNAL_STREAM");
    char here[64];
    struct stat st;
    if (text == NULL || fstat(fd, &st) != 0) return false;
    (void)snprintf(here, sizeof here, "%llu:%llu", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    return strcmp(text, here) == 0;
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
    TB_ASSERT((size_t)level < sizeof levels / sizeof levels[0]);
    l->level = level;
    l->on = (int)level <= atomic_load_explicit(&log_most, memory_order_relaxed);
    if (l->on && level != TB_LOG_DEBUG) l->on = may_write(event);
    const struct tb_log_head head = {levels[level].name, levels[level].priority, event};
    if (l->on) tb_log_form_begin(l, tb_log_form(), &head);
    l->event = event;
    l->fields = l->on ? l->used : 0;
}

void tb_log_str(struct tb_log_line *l, const char *key, const char *value)
{
    if (l->on) tb_log_form_text(l, key, value);
}

void tb_log_u64(struct tb_log_line *l, const char *key, uint64_t value)
{
    if (l->on) tb_log_form_number(l, key, value);
}

static void keep(struct tb_log_line *l)
{
    const tb_log_keeper keeper = atomic_load(&log_keeper);
    if (keeper == NULL || l->level == TB_LOG_DEBUG) return;
    TB_ASSERT(l->fields <= l->used && l->used < sizeof l->text);
    l->text[l->used] = '\0'; /* the end of the line comes over it */
    keeper(l->level, l->event, l->text + l->fields, l->json);
}

void tb_log_end(struct tb_log_line *l)
{
    if (!l->on) return;
    keep(l);
    const size_t bytes = tb_log_form_end(l);
    /* One write, and its failure is nobody's: a daemon whose log is full goes on replicating. */
    const ssize_t written = write(atomic_load(&log_fd), l->text, bytes);
    (void)written;
    l->on = false;
}

void tb_log(enum tb_log_level level, const char *event, const char *format, ...)
{
    struct tb_log_line l;
    tb_log_begin(&l, level, event);
    if (!l.on) return;
    va_list args;
    va_start(args, format);
    if (format[0] != '\0') tb_log_form_pairs(&l, format, args);
    va_end(args);
    tb_log_end(&l);
}
