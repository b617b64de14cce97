/* fault.c - fault points: armed, counted, hit. */
#include "base/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static struct {
    _Atomic uint64_t calls;
    _Atomic uint64_t nth; /* 0: not armed */
    atomic_bool sticky;
} points[TB_FAULT_COUNT];

/* One bit a point; 0 in every process but a test, and then a wrapper costs this load. */
static _Atomic uint64_t armed;

_Static_assert(TB_FAULT_COUNT <= 64, "one bit a point");

bool tb_fault_hit(enum tb_fault_point point, int error)
{
    if (atomic_load_explicit(&armed, memory_order_relaxed) == 0) return false;
    TB_ASSERT(point < TB_FAULT_COUNT);
    const uint64_t call = atomic_fetch_add(&points[point].calls, 1) + 1;
    const uint64_t nth = atomic_load(&points[point].nth);
    if (nth == 0 || call < nth) return false;
    if (call > nth && !atomic_load(&points[point].sticky)) return false;
    errno = error;
    return true;
}

void tb_fault_arm(enum tb_fault_point point, uint64_t nth, bool sticky)
{
    TB_ASSERT(point < TB_FAULT_COUNT);
    const uint64_t bit = UINT64_C(1) << point;
    atomic_store(&points[point].calls, 0);
    atomic_store(&points[point].sticky, sticky);
    atomic_store(&points[point].nth, nth);
    if (nth > 0) {
        atomic_fetch_or(&armed, bit);
    } else {
        atomic_fetch_and(&armed, ~bit);
    }
}

uint64_t tb_fault_calls(enum tb_fault_point point)
{
    TB_ASSERT(point < TB_FAULT_COUNT);
    return atomic_load(&points[point].calls);
}

static const char *const point_names[] = {
#define FAULT_NAME(name) #name,
    TB_FAULT_POINTS(FAULT_NAME)
#undef FAULT_NAME
};

static bool point_parse(const char *name, size_t count, enum tb_fault_point *point_out)
{
    for (int i = 0; i < TB_FAULT_COUNT; i++) {
        if (strlen(point_names[i]) != count || memcmp(point_names[i], name, count) != 0) continue;
        *point_out = (enum tb_fault_point)i;
        return true;
    }
    return false;
}

/* "NAME:NTH" or "NAME:NTH+" of `count` bytes. */
static bool arm_one(const char *item, size_t count)
{
    enum tb_fault_point point = TB_FAULT_COUNT;
    const char *colon = memchr(item, ':', count);
    if (colon == NULL || !point_parse(item, (size_t)(colon - item), &point)) return false;
    char *end = NULL;
    const unsigned long long nth = strtoull(colon + 1, &end, 10);
    const bool sticky = *end == '+';
    if (nth == 0 || end + sticky != item + count) return false;
    tb_fault_arm(point, nth, sticky);
    return true;
}

static void report_calls(void)
{
    FILE *out = fopen(getenv("TB_FAULT_CALLS"), "we");
    if (out == NULL) return;
    for (int i = 0; i < TB_FAULT_COUNT; i++)
        fprintf(out, "%s %llu\n", point_names[i], (unsigned long long)atomic_load(&points[i].calls));
    (void)fclose(out);
}

bool tb_fault_from_env(void)
{
    const bool counts = getenv("TB_FAULT_CALLS") != NULL;
    if (counts) {
        for (int i = 0; i < TB_FAULT_COUNT; i++)
            tb_fault_arm((enum tb_fault_point)i, UINT64_MAX, false); /* counts, and never fails */
        (void)atexit(report_calls);
    }
    const char *at = getenv("TB_FAULT");
    const bool asked = counts || at != NULL;
    while (at != NULL && *at != '\0') {
        const size_t count = strcspn(at, ",");
        /* A test that asks for a fault which does not exist must not pass. */
        if (!arm_one(at, count)) {
            fprintf(stderr, "error fault.unknown TB_FAULT=\"%.*s\" want=NAME:NTH[+]\n", (int)count, at);
            abort();
        }
        at += count;
        if (*at == ',') at++;
    }
    return asked;
}
