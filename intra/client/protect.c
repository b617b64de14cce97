#include "intra/client/protect.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"

#define BLOCK_PAGES 256u

/* Pages next to each other. A slot is filled while `owner` is NULL, and is the handler's to read once it is not. */
struct slot {
    _Atomic(struct tb_protection *) owner;
    uintptr_t at, end;
};

/* Never freed: a handler may walk it at any time. */
struct block {
    _Atomic(struct block *) next;
    struct slot slots[BLOCK_PAGES];
};

struct tb_protection {
    _Atomic uintptr_t written;
    tb_protect_fn fn;
    void *user;
};

static struct block first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of whoever changes the table */
static _Atomic uint32_t handling;
static struct sigaction before;
static bool installed;

/* ---- the handler ---- */

/* False: not ours. By a fault in a thread of the process, at any moment. */
static bool note_write(uintptr_t address)
{
    for (struct block *b = &first; b != NULL; b = atomic_load(&b->next)) {
        for (uint32_t i = 0; i < BLOCK_PAGES; i++) {
            struct slot *slot = &b->slots[i];
            struct tb_protection *p = atomic_load(&slot->owner);
            if (p == NULL || address < slot->at || address >= slot->end) continue;
            uintptr_t none = 0;
            (void)atomic_compare_exchange_strong(&p->written, &none, address);
            (void)mprotect((void *)slot->at, slot->end - slot->at, PROT_READ | PROT_WRITE);
            p->fn(p->user);
            return true;
        }
    }
    return false;
}

static void go_on_as_before(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        (void)sigaction(SIGSEGV, &before, NULL); /* and the fault comes again */
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    atomic_fetch_add(&handling, 1);
    const bool ours = note_write((uintptr_t)info->si_addr);
    atomic_fetch_sub(&handling, 1);
    if (!ours) go_on_as_before(number, info, context);
}

/* Under the lock. */
static bool install(void)
{
    if (installed) return true;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    installed = sigaction(SIGSEGV, &action, &before) == 0;
    return installed;
}

/* ---- the table ---- */

/* Under the lock. NULL: no memory. */
static struct slot *free_slot(void)
{
    struct block *b = &first;
    for (;;) {
        for (uint32_t i = 0; i < BLOCK_PAGES; i++)
            if (atomic_load(&b->slots[i].owner) == NULL) return &b->slots[i];
        struct block *next = atomic_load(&b->next);
        if (next == NULL) {
            next = tb_calloc(1, sizeof *next);
            if (next == NULL) return NULL;
            atomic_store(&b->next, next);
        }
        b = next;
    }
}

static void add_pages(struct tb_protection *p, uintptr_t at, uintptr_t end)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    at = (at + page - 1) / page * page;
    end = end / page * page;
    struct slot *slot = end > at ? free_slot() : NULL;
    if (slot == NULL) return;
    slot->at = at;
    slot->end = end;
    atomic_store(&slot->owner, p);
    if (mprotect((void *)at, end - at, PROT_READ) != 0) atomic_store(&slot->owner, NULL);
}

static int compare(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const struct tb_protect_stretch *)a)->at;
    const uintptr_t y = (uintptr_t)((const struct tb_protect_stretch *)b)->at;
    return x < y ? -1 : x > y;
}

/* Tensors that follow one another share pages that belong to none of them alone. */
static void add_all(struct tb_protection *p, const struct tb_protect_stretch *stretches, uint32_t count)
{
    uintptr_t at = 0, end = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uintptr_t next = (uintptr_t)stretches[i].at;
        if (next > end) {
            add_pages(p, at, end);
            at = next;
        }
        if (next + stretches[i].bytes > end) end = next + stretches[i].bytes;
    }
    add_pages(p, at, end);
}

struct tb_protection *tb_protect(struct tb_protect_stretch *stretches, uint32_t count, tb_protect_fn fn,
                                 void *user)
{
    struct tb_protection *p = tb_calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->fn = fn;
    p->user = user;
    qsort(stretches, count, sizeof *stretches, compare);
    pthread_mutex_lock(&lock);
    const bool ready = install();
    if (ready) add_all(p, stretches, count);
    pthread_mutex_unlock(&lock);
    if (ready) return p;
    tb_free(p);
    return NULL;
}

const uint8_t *tb_protection_written(const struct tb_protection *p)
{
    return (const uint8_t *)atomic_load(&p->written);
}

/* Another version may be sealed in the same pages. */
static void protect_again(uintptr_t at, uintptr_t end)
{
    for (struct block *b = &first; b != NULL; b = atomic_load(&b->next))
        for (uint32_t i = 0; i < BLOCK_PAGES; i++) {
            const struct slot *s = &b->slots[i];
            if (atomic_load(&s->owner) != NULL && s->at < end && s->end > at)
                (void)mprotect((void *)s->at, s->end - s->at, PROT_READ);
        }
}

void tb_protection_end(struct tb_protection *p)
{
    if (p == NULL) return;
    pthread_mutex_lock(&lock);
    for (struct block *b = &first; b != NULL; b = atomic_load(&b->next)) {
        for (uint32_t i = 0; i < BLOCK_PAGES; i++) {
            struct slot *s = &b->slots[i];
            if (atomic_load(&s->owner) != p) continue;
            /* Writable before it is nobody's: a write in between is no fault of the program's. */
            (void)mprotect((void *)s->at, s->end - s->at, PROT_READ | PROT_WRITE);
            atomic_store(&s->owner, NULL);
            protect_again(s->at, s->end);
        }
    }
    while (atomic_load(&handling) > 0)
        (void)sched_yield(); /* one that found it a moment ago */
    pthread_mutex_unlock(&lock);
    tb_free(p);
}
