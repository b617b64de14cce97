/* world_process.c - a process of the world: its heap, its clocks, its log, its randomness, its end.
 *
 * The bodies of base/fault.h, base/clock.h and base/log.h as the shipped code calls them. A killed
 * process leaves nothing: its heap is given back whole, and what of it is looked at later shows
 * under AddressSanitizer. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/system_calls.h"
#include "world.h"
#include "world_check.h"
#include "world_faults.h"
#include "world_machine.h"
#include "world_process.h"

#define WALL_BEGAN_MS UINT64_C(1790000000000)

struct world *the;

/* ---- chance ---- */

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t world_random(uint64_t below)
{
    return splitmix(&the->random) % below;
}

uint64_t world_stream(uint64_t seed, uint32_t number)
{
    uint64_t at = seed;
    at = splitmix(&at) + number;
    return splitmix(&at);
}

uint64_t world_draw(enum fault f, uint64_t below)
{
    return splitmix(&the->chances[f]) % below;
}

void tb_random_bytes(void *out, uint32_t bytes)
{
    uint8_t *at = out;
    for (uint32_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)world_random(256);
}

struct tb_id world_id(void)
{
    struct tb_id id = {{0}};
    tb_random_bytes(id.bytes, sizeof id.bytes);
    return id;
}

/* ---- the trace ---- */

static void hash_line(const char *line)
{
    for (; *line != '\0'; line++)
        the->hash = (the->hash ^ (uint8_t)*line) * UINT64_C(0x100000001b3); /* FNV-1a */
}

static void line_out(const char *text)
{
    char line[640];
    (void)snprintf(line, sizeof line, "[%6llu] %-8s %s",
                   (unsigned long long)((the->now - the->began) / TB_MS(1)),
                   the->current != NULL ? the->current->name : "", text);
    hash_line(line);
    if (the->trace) puts(line);
}

void world_say(const char *format, ...)
{
    char text[480];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    line_out(text);
}

void world_fail(const char *format, ...)
{
    va_list args;
    if (the->failed) return; /* the first is the cause */
    the->failed = true;
    va_start(args, format);
    (void)vsnprintf(the->why, sizeof the->why, format, args);
    va_end(args);
    world_say("FAILED: %s", the->why);
}

/* ---- base/log.h: what gateways and workers log is the trace ---- */

void tb_log_set(enum tb_log_level most, int fd)
{
    (void)most, (void)fd;
}

bool tb_log_level_parse(const char *text, enum tb_log_level *level_out)
{
    (void)text, (void)level_out;
    return false;
}

/* No party is limited here: the checks read all lines. */
struct tb_log_party tb_log_party_set(struct tb_log_party party)
{
    return party;
}

void tb_log_of_identity(const struct tb_identity *identity)
{
    (void)identity;
}

void tb_log_of_stranger(const char *address)
{
    (void)address;
}

void tb_log_of_us(void)
{
}

void tb_log_tick(void)
{
}

uint64_t tb_log_suppressed(void)
{
    return 0;
}

void tb_log_begin(struct tb_log_line *l, enum tb_log_level level, const char *event)
{
    l->level = level;
    l->on = true;
    l->used = (size_t)snprintf(l->text, sizeof l->text, "%s", event);
}

static void append(struct tb_log_line *l, const char *key, const char *value)
{
    if (l->used >= 400) return;
    l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, " %s=%.160s", key, value);
}

void tb_log_str(struct tb_log_line *l, const char *key, const char *value)
{
    append(l, key, value);
}

void tb_log_u64(struct tb_log_line *l, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    append(l, key, text);
}

void tb_log_end(struct tb_log_line *l)
{
    line_out(l->text);
    world_check_log(l->level, l->text, l->text);
}

void tb_log(enum tb_log_level level, const char *event, const char *format, ...)
{
    char text[400];
    va_list args;
    const int n = snprintf(text, sizeof text, "%s ", event);
    va_start(args, format);
    (void)vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    line_out(text);
    world_check_log(level, event, text);
}

/* ---- base/clock.h ---- */

tb_time_ns tb_clock_now(void)
{
    return the->now;
}

uint64_t tb_clock_wall_ms(void)
{
    const int64_t wrong = the->current != NULL ? the->current->wall_ms : 0;
    return WALL_BEGAN_MS + the->now / TB_MS(1) + (uint64_t)wrong;
}

/* ---- base/fault.h: a heap a process ---- */

struct block {
    _Alignas(16) struct block *next;
    struct block *previous;
    struct process *owner;
    size_t bytes;
};

static void link_block(struct block *b, size_t bytes)
{
    struct process *p = the->current;
    TB_ASSERT(p != NULL && p->alive);
    *b = (struct block){p->heap, NULL, p, bytes};
    if (p->heap != NULL) p->heap->previous = b;
    p->heap = b;
    p->heap_bytes += bytes;
    if (p->heap_bytes > p->heap_most) p->heap_most = p->heap_bytes;
}

static void unlink_block(struct block *b)
{
    if (b->next != NULL) b->next->previous = b->previous;
    if (b->previous != NULL)
        b->previous->next = b->next;
    else
        b->owner->heap = b->next;
    b->owner->heap_bytes -= b->bytes;
}

void *tb_malloc(size_t bytes)
{
    struct block *b = malloc(sizeof *b + bytes);
    TB_ASSERT(b != NULL);
    link_block(b, bytes);
    return b + 1;
}

void *tb_calloc(size_t count, size_t bytes)
{
    if (bytes != 0 && count > SIZE_MAX / bytes) return NULL;
    struct block *b = calloc(1, sizeof *b + count * bytes);
    TB_ASSERT(b != NULL);
    link_block(b, count * bytes);
    return b + 1;
}

void tb_free(void *memory)
{
    if (memory == NULL) return;
    struct block *b = (struct block *)memory - 1;
    unlink_block(b);
    free(b);
}

void *tb_realloc(void *old, size_t bytes)
{
    void *fresh = tb_malloc(bytes);
    if (old == NULL) return fresh;
    const struct block *b = (const struct block *)old - 1;
    memcpy(fresh, old, b->bytes < bytes ? b->bytes : bytes);
    tb_free(old);
    return fresh;
}

char *tb_strdup(const char *text)
{
    char *copy = tb_malloc(strlen(text) + 1);
    return memcpy(copy, text, strlen(text) + 1);
}

bool tb_fault_hit(enum tb_fault_point point, int error)
{
    (void)point, (void)error;
    return false;
}

int tb_sys_open_beneath(int folder, const char *name, int flags, uint64_t resolve)
{
    (void)folder, (void)name, (void)flags, (void)resolve;
    return -1;
}

int tb_sys_open(const char *path, int flags, mode_t mode)
{
    (void)path, (void)flags, (void)mode;
    return -1;
}

/* No file is opened here, so none of these is reached. */
ssize_t tb_sys_pread(int fd, void *out, size_t count, off_t offset)
{
    (void)fd, (void)out, (void)count, (void)offset;
    return -1;
}

ssize_t tb_sys_pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    (void)fd, (void)bytes, (void)count, (void)offset;
    return -1;
}

int tb_sys_fsync(int fd)
{
    (void)fd;
    return -1;
}

int tb_sys_rename(const char *from, const char *to)
{
    (void)from, (void)to;
    return -1;
}

/* ---- beginning and end ---- */

struct process *world_process_new(enum process_kind kind, uint32_t site, const char *name)
{
    TB_ASSERT(the->process_count < PROCESSES_MAX);
    struct process *p = &the->processes[the->process_count];
    *p = (struct process){.kind = kind, .index = the->process_count++, .site = site};
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    return p;
}

void world_process_start(struct process *p)
{
    TB_ASSERT(!p->alive && p->heap == NULL);
    p->alive = true;
    p->life++;
    p->paused_until = 0;
    p->handles = NULL;
    p->fabrics = NULL;
    p->shelves = NULL;
    p->threads = NULL;
}

void world_process_end(struct process *p, bool machine)
{
    p->alive = false;
    world_chan_process_ended(p, p->life, machine);
    while (p->heap != NULL) {
        struct block *b = p->heap;
        p->heap = b->next;
        free(b);
    }
    p->heap_bytes = 0;
    p->handles = NULL;
    p->fabrics = NULL;
    p->shelves = NULL;
    p->threads = NULL;
}

bool world_process_runs(const struct process *p)
{
    return p->alive && the->now >= p->paused_until;
}
