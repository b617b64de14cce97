/* file_guard.c - see file_guard.h. */
#include "intra/client/memory/file_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/system_calls.h"

#define BLOCK_GUARDS 64u
#define COPY_BYTES   ((uint64_t)64 << 20) /* of one system call */

/* Pages of one mapping. */
struct piece {
    uintptr_t at, end;
    bool last; /* of its mapping */
};

struct tb_guard {
    _Atomic uintptr_t missing;
    _Atomic uint32_t faults; /* each fills twice as many pages as the one before */
    tb_guard_fn fn;
    void *user;
    uint32_t count, cap;
    struct piece *pieces; /* ascending; nothing changes them while it is in the table */
};

/* Never freed: a handler may walk it at any time. */
struct block {
    _Atomic(struct block *) next;
    _Atomic(struct tb_guard *) guards[BLOCK_GUARDS];
};

static struct block first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of a thread that changes the table */
static _Atomic uint32_t handling;
static struct sigaction before;
static _Atomic bool installed;
static _Atomic uintptr_t page;

/* ---- the handler ---- */

static const struct piece *piece_of(const struct tb_guard *g, uintptr_t address)
{
    for (uint32_t low = 0, high = g->count; low < high;) {
        const uint32_t middle = low + (high - low) / 2;
        if (address < g->pieces[middle].at)
            high = middle;
        else if (address >= g->pieces[middle].end)
            low = middle + 1;
        else
            return &g->pieces[middle];
    }
    return NULL;
}

static void note(struct tb_guard *g, uintptr_t address)
{
    uintptr_t none = 0;
    if (atomic_compare_exchange_strong(&g->missing, &none, address) && g->fn != NULL) g->fn(g->user);
}

/* A file that lost its tail lacks all behind the address; a page that a disk cannot read stands
 * alone. So few pages first, and soon many: a page each would be a mapping each, and a process has
 * some 65,000. */
static bool fill(struct tb_guard *g, const struct piece *piece, uintptr_t address)
{
    const uint32_t faults = atomic_fetch_add(&g->faults, 1);
    const uintptr_t at = address / page * page;
    uintptr_t bytes = page << (faults < 24 ? faults : 24);
    if (bytes > piece->end - at) bytes = piece->end - at;
    return syscall(SYS_mmap, at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0) == (long)at;
}

/* Two guards may have a range in common. False: it is nobody's, or stays missing. */
static bool handle(uintptr_t address)
{
    bool ours = false, filled = false;
    for (struct block *b = &first; b != NULL; b = atomic_load(&b->next))
        for (uint32_t i = 0; i < BLOCK_GUARDS; i++) {
            struct tb_guard *g = atomic_load(&b->guards[i]);
            const struct piece *piece = g == NULL ? NULL : piece_of(g, address);
            if (piece == NULL) continue;
            note(g, address);
            if (!ours) filled = fill(g, piece, address);
            ours = true;
        }
    return filled;
}

static void go_on_as_before(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        atomic_store(&installed, false);
        (void)sigaction(SIGBUS, &before, NULL); /* and the fault comes again */
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const int kept = errno;
    atomic_fetch_add(&handling, 1);
    const bool done = handle((uintptr_t)info->si_addr);
    atomic_fetch_sub(&handling, 1);
    errno = kept;
    if (!done) go_on_as_before(number, info, context);
}

/* Under the lock. */
static bool install(void)
{
    if (atomic_load(&installed)) return true;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    const bool done = sigaction(SIGBUS, &action, &before) == 0;
    atomic_store(&installed, done);
    return done;
}

/* ---- what maps a file ---- */

static int compare(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const struct tb_guard_range *)a)->at;
    const uintptr_t y = (uintptr_t)((const struct tb_guard_range *)b)->at;
    return x < y ? -1 : x > y;
}

static bool add_piece(struct tb_guard *g, struct piece piece)
{
    TB_ASSERT(piece.at < piece.end);
    TB_ASSERT(g->count == 0 || g->pieces[g->count - 1].end <= piece.at); /* a search relies on it */
    if (g->count == g->cap) {
        const uint32_t cap = g->cap == 0 ? 16 : g->cap * 2;
        void *larger = tb_realloc(g->pieces, cap * sizeof *g->pieces);
        if (larger == NULL) return false;
        g->pieces = larger;
        g->cap = cap;
    }
    g->pieces[g->count++] = piece;
    return true;
}

static uintptr_t begin_of(const struct tb_guard_range *r)
{
    return (uintptr_t)r->at / page * page;
}

static uintptr_t end_of(const struct tb_guard_range *r)
{
    return ((uintptr_t)r->at + r->bytes + page - 1) / page * page;
}

/* Ranges that share a page are one. */
static uint32_t join(struct tb_guard_range *ranges, uint32_t count)
{
    uint32_t joined = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct tb_guard_range *last = joined > 0 ? &ranges[joined - 1] : NULL;
        if (ranges[i].bytes == 0) continue;
        if (last == NULL || begin_of(&ranges[i]) > end_of(last))
            ranges[joined++] = ranges[i];
        else if (ranges[i].at + ranges[i].bytes > last->at + last->bytes)
            last->bytes = (uint64_t)(ranges[i].at + ranges[i].bytes - last->at);
    }
    return joined;
}

/* The pages of these ranges in one mapping. */
static bool add_mapping(struct tb_guard *g, const struct tb_guard_range *ranges, uint32_t count,
                        const struct piece *mapping)
{
    const uint32_t had = g->count;
    uint32_t i = 0;
    for (uint32_t high = count; i < high;) {
        const uint32_t middle = i + (high - i) / 2;
        if (end_of(&ranges[middle]) <= mapping->at)
            i = middle + 1;
        else
            high = middle;
    }
    for (; i < count && begin_of(&ranges[i]) < mapping->end; i++) {
        struct piece piece = {.at = begin_of(&ranges[i]), .end = end_of(&ranges[i])};
        if (piece.at < mapping->at) piece.at = mapping->at;
        if (piece.end > mapping->end) piece.end = mapping->end;
        if (!add_piece(g, piece)) return false;
    }
    if (g->count > had) g->pieces[g->count - 1].last = true;
    return true;
}

/* Of a line of /proc/self/maps: "begin-end rights offset device inode path". Devices have no size
 * that changes; what a session maps of its own is sealed. */
static bool is_file(const char *line, struct piece *mapping_out)
{
    char *at = NULL;
    const unsigned long long begin = strtoull(line, &at, 16);
    if (*at != '-') return false;
    const unsigned long long end = strtoull(at + 1, &at, 16);
    for (int field = 0; field < 3; field++) { /* rights, offset, device */
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    if (strtoull(at, &at, 10) == 0) return false; /* the inode: no file */
    const char *name = at + strspn(at, " ");
    const bool device = strncmp(name, "/dev/", 5) == 0 && strncmp(name, "/dev/shm/", 9) != 0;
    if (name[0] != '/' || device || strncmp(name, "/memfd:tombolo", 14) == 0) return false;
    *mapping_out = (struct piece){.at = (uintptr_t)begin, .end = (uintptr_t)end};
    return true;
}

/* Where the list cannot be read all of it may map files. */
static enum tb_status find_pieces(struct tb_guard *g, struct tb_guard_range *ranges, uint32_t count)
{
    char line[4352];
    struct piece mapping = {.at = 0, .end = UINTPTR_MAX};
    bool all = true;
    const int fd = tb_sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    FILE *maps = fd < 0 ? NULL : fdopen(fd, "re");
    if (maps == NULL) {
        if (fd >= 0) (void)close(fd);
        return add_mapping(g, ranges, count, &mapping) ? TB_OK : TB_SITE_NOMEM;
    }
    while (all && fgets(line, sizeof line, maps) != NULL)
        if (is_file(line, &mapping)) all = add_mapping(g, ranges, count, &mapping);
    (void)fclose(maps);
    return all ? TB_OK : TB_SITE_NOMEM;
}

/* ---- the table ---- */

/* Under the lock. NULL: no memory. */
static _Atomic(struct tb_guard *) *free_slot(void)
{
    struct block *b = &first;
    for (;;) {
        for (uint32_t i = 0; i < BLOCK_GUARDS; i++)
            if (atomic_load(&b->guards[i]) == NULL) return &b->guards[i];
        struct block *next = atomic_load(&b->next);
        if (next == NULL) {
            next = tb_calloc(1, sizeof *next);
            if (next == NULL) return NULL;
            atomic_store(&b->next, next);
        }
        b = next;
    }
}

static enum tb_status enter(struct tb_guard *g)
{
    pthread_mutex_lock(&lock);
    _Atomic(struct tb_guard *) *slot = free_slot();
    const bool ready = slot != NULL && install();
    if (ready) atomic_store(slot, g);
    pthread_mutex_unlock(&lock);
    return ready ? TB_OK : TB_SITE_NOMEM;
}

static void discard(struct tb_guard *g)
{
    tb_free(g->pieces);
    tb_free(g);
}

enum tb_status tb_guard_new(struct tb_guard_range *ranges, uint32_t count, tb_guard_fn fn, void *user,
                            struct tb_guard **guard_out)
{
    struct tb_guard *g = tb_calloc(1, sizeof *g);
    if (g == NULL) return TB_SITE_NOMEM;
    g->fn = fn;
    g->user = user;
    atomic_store(&page, (uintptr_t)sysconf(_SC_PAGESIZE));
    if (count > 0) qsort(ranges, count, sizeof *ranges, compare);
    enum tb_status status = find_pieces(g, ranges, join(ranges, count));
    const bool any = g->count > 0;
    if (status == TB_OK && any) status = enter(g);
    if (status == TB_OK) *guard_out = any ? g : NULL;
    if (status != TB_OK || !any) discard(g);
    return status;
}

void tb_guard_end(struct tb_guard *g)
{
    if (g == NULL) return;
    pthread_mutex_lock(&lock);
    for (struct block *b = &first; b != NULL; b = atomic_load(&b->next))
        for (uint32_t i = 0; i < BLOCK_GUARDS; i++)
            if (atomic_load(&b->guards[i]) == g) atomic_store(&b->guards[i], NULL);
    while (atomic_load(&handling) > 0)
        (void)sched_yield(); /* one that found it a moment ago */
    pthread_mutex_unlock(&lock);
    discard(g);
}

/* ---- looking ---- */

/* A sandbox may forbid the call: then nothing is known, and a load is what tells. */
static bool is_missing(const void *from, void *to, uint64_t bytes)
{
    const struct iovec here = {.iov_base = to, .iov_len = bytes};
    const struct iovec there = {.iov_base = (void *)(uintptr_t)from, .iov_len = bytes};
    const ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return (got < 0 && errno == EFAULT) || (got >= 0 && (uint64_t)got < bytes);
}

void tb_guard_look(struct tb_guard *g)
{
    uint8_t byte;
    for (uint32_t i = 0; g != NULL && i < g->count && atomic_load(&g->missing) == 0; i++) {
        if (!g->pieces[i].last) continue;
        const uintptr_t last = g->pieces[i].end - 1;
        if (is_missing((const void *)last, &byte, 1)) note(g, last);
    }
}

const uint8_t *tb_guard_missing(const struct tb_guard *g)
{
    return g == NULL ? NULL : (const uint8_t *)atomic_load(&((struct tb_guard *)(uintptr_t)g)->missing);
}

bool tb_guard_copy(void *to, const void *from, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t step = bytes - done < COPY_BYTES ? bytes - done : COPY_BYTES;
        const struct iovec here = {.iov_base = (uint8_t *)to + done, .iov_len = step};
        const struct iovec there = {.iov_base = (uint8_t *)(uintptr_t)from + done, .iov_len = step};
        const ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
        if (got < 0 && errno != EFAULT) { /* a sandbox forbids it */
            memcpy((uint8_t *)to + done, (const uint8_t *)from + done, step);
        } else if (got < 0 || (uint64_t)got < step) {
            return false;
        }
        done += step;
    }
    return true;
}
