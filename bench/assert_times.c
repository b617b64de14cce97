/* assert_times.c - see assert_times.h. It asserts nothing, as its own asserts would be timed. */
#include "bench/assert_times.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define CALIBRATED_NS 2000000 /* to compare the counter with the clock */
#define STAMP_NS      50000000
#define BATCHES       64
#define BATCH         64 /* empty asserts, of which the fastest batch counts */
#define FILES_MAX     8  /* of one process */

_Thread_local unsigned tb_assert_walks;

static struct tb_assert_times *times; /* NULL: nothing is kept */
static pid_t owner;                   /* a process forked from it has the same file */
static uint64_t long_ticks, stamp_ticks;
static _Atomic uint64_t stamp_at; /* ticks; CPU time is written again from then on */

static uint64_t ns_of(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void stamp(void)
{
    struct rusage usage;
    if (times == NULL || getpid() != owner || getrusage(RUSAGE_SELF, &usage) != 0) return;
    atomic_store(&times->user_ns,
                 (uint64_t)usage.ru_utime.tv_sec * 1000000000 + (uint64_t)usage.ru_utime.tv_usec * 1000);
    atomic_store(&times->cpu_ns, ns_of(CLOCK_PROCESS_CPUTIME_ID));
}

/* One thread of those that come when it is due. */
static void stamp_if_due(uint64_t now)
{
    uint64_t due = atomic_load_explicit(&stamp_at, memory_order_relaxed);
    if (now < due || !atomic_compare_exchange_strong(&stamp_at, &due, now + stamp_ticks)) return;
    stamp();
}

/* ---- rows ---- */

/* The end of a long one: folders are alike. */
static void keep_end(char text_out[TB_ASSERT_TEXT_BYTES], const char *text)
{
    const size_t count = strlen(text), room = TB_ASSERT_TEXT_BYTES - 1;
    memcpy(text_out, text + (count > room ? count - room : 0), count > room ? room : count);
}

static struct tb_assert_row *new_row(const struct tb_assert_place *place)
{
    const uint64_t at = atomic_fetch_add(&times->used, 1);
    if (at >= TB_ASSERT_ROWS - 1) return &times->rows[TB_ASSERT_ROWS - 1];
    struct tb_assert_row *row = &times->rows[at];
    char text[4096];
    (void)snprintf(text, sizeof text, "%s:%d", place->file, place->line);
    keep_end(row->place, text);
    (void)snprintf(row->expression, sizeof row->expression, "%s", place->expression);
    return row;
}

/* Two threads that come first at once make two rows; one stays empty. */
static struct tb_assert_row *row_of(struct tb_assert_place *place)
{
    struct tb_assert_row *row = atomic_load_explicit(&place->row, memory_order_acquire);
    if (row != NULL) return row;
    struct tb_assert_row *mine = new_row(place);
    return atomic_compare_exchange_strong(&place->row, &row, mine) ? mine : row;
}

static void add(_Atomic uint64_t *sum, uint64_t more)
{
    atomic_fetch_add_explicit(sum, more, memory_order_relaxed);
}

void tb_assert_took(struct tb_assert_place *place, uint64_t began, uint64_t ended)
{
    if (times == NULL) return;
    struct tb_assert_row *row = row_of(place);
    const uint64_t ticks = ended > began ? ended - began : 0;
    const bool is_long = ticks > long_ticks;
    add(is_long ? &row->long_count : &row->count, 1);
    add(is_long ? &row->long_ticks : &row->ticks, ticks);
    stamp_if_due(ended);
}

uint64_t tb_assert_walk_begins(void)
{
    tb_assert_walks++;
    return ns_of(CLOCK_THREAD_CPUTIME_ID);
}

void tb_assert_walk_ends(struct tb_assert_place *place, uint64_t began)
{
    const uint64_t ended = ns_of(CLOCK_THREAD_CPUTIME_ID);
    if (--tb_assert_walks > 0 || times == NULL) return; /* the outer one has its time */
    struct tb_assert_row *row = row_of(place);
    row->is_walk = 1;
    add(&row->count, 1);
    add(&row->ticks, ended - began);
    stamp_if_due(tb_assert_ticks());
}

/* ---- the file ---- */

static int new_file(const char *folder)
{
    char path[4096];
    for (int i = 0; i < FILES_MAX; i++) {
        const int count = i == 0 ? snprintf(path, sizeof path, "%s/%d", folder, (int)getpid())
                                 : snprintf(path, sizeof path, "%s/%d.%d", folder, (int)getpid(), i);
        if (count < 0 || (size_t)count >= sizeof path) return -1;
        const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

static struct tb_assert_times *mapped(const char *folder)
{
    const int fd = new_file(folder);
    if (fd < 0) return NULL;
    void *memory = MAP_FAILED;
    if (ftruncate(fd, sizeof *times) == 0)
        memory = mmap(NULL, sizeof *times, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t counter_per_s(void)
{
    const uint64_t clock = ns_of(CLOCK_MONOTONIC_RAW), ticks = tb_assert_ticks();
    uint64_t passed = 0;
    while (passed < CALIBRATED_NS)
        passed = ns_of(CLOCK_MONOTONIC_RAW) - clock;
    return (uint64_t)((double)(tb_assert_ticks() - ticks) * 1e9 / (double)passed);
}

/* An assert that has nothing to evaluate: its own reading, and all that it takes. */
static void measure_readings(struct tb_assert_times *t)
{
    static struct tb_assert_row row;
    static struct tb_assert_place place = {.file = "", .expression = ""};
    uint64_t least_inside = UINT64_MAX, least_whole = UINT64_MAX;
    atomic_store(&place.row, &row);
    for (int batch = 0; batch < BATCHES; batch++) {
        const uint64_t first = tb_assert_ticks();
        for (int i = 0; i < BATCH; i++) {
            const uint64_t began = tb_assert_ticks(), ended = tb_assert_ticks();
            tb_assert_took(&place, began, ended);
            if (ended - began < least_inside) least_inside = ended - began;
        }
        const uint64_t whole = tb_assert_ticks() - first;
        if (whole < least_whole) least_whole = whole;
    }
    t->inside_ticks = least_inside;
    t->whole_ps = (uint64_t)((double)least_whole * 1e12 / (double)t->ticks_per_s / BATCH);
}

__attribute__((constructor)) static void begin(void)
{
    const char *folder = getenv("TB_ASSERTS_DIR");
    struct tb_assert_times *t = folder != NULL ? mapped(folder) : NULL;
    if (t == NULL) return;
    (void)snprintf(t->program, sizeof t->program, "%s", program_invocation_short_name);
    t->ticks_per_s = counter_per_s();
    long_ticks = t->ticks_per_s / 1000 * TB_ASSERT_LONG_NS / 1000000;
    stamp_ticks = t->ticks_per_s / 1000 * STAMP_NS / 1000000;
    atomic_store(&stamp_at, tb_assert_ticks() + stamp_ticks);
    owner = getpid();
    times = t;
    measure_readings(t);
}

__attribute__((destructor)) static void end(void)
{
    stamp();
}
