#include "intra/client/memory/seal_protection.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"

#define BLOCK_PAGES 256u

/* Pages next to each other. A slot is filled while `owner` is NULL, and is the handler's to read
 * once it is not. */
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
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of a thread that changes the table */
static _Atomic uint32_t handling;
static struct sigaction before;
static _Atomic bool installed;
static _Atomic uint64_t ended; /* how many protections have */
/* The value of `ended` when this thread's fault was last tried again. The TLS model needs no memory
 * in a handler. */
static _Thread_local uint64_t tried_at __attribute__((tls_model("initial-exec")));

/* ---- the handler ---- */

/* Every version that is sealed there is noted. False: it is nobody's, or stays as it is. By a fault
 * in a thread of the process, at any moment. */
static bool note_write(uintptr_t address)
{
    bool ours = false, opened = true;
    for (struct block *b = &first; b != NULL; b = atomic_load(&b->next)) {
        for (uint32_t i = 0; i < BLOCK_PAGES; i++) {
            struct slot *slot = &b->slots[i];
            struct tb_protection *p = atomic_load(&slot->owner);
            if (p == NULL || address < slot->at || address >= slot->end) continue;
            uintptr_t none = 0;
            (void)atomic_compare_exchange_strong(&p->written, &none, address);
            if (mprotect((void *)slot->at, slot->end - slot->at, PROT_READ | PROT_WRITE) != 0) opened = false;
            p->fn(p->user);
            ours = true;
        }
    }
    return ours && opened;
}

static void go_on_as_before(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        atomic_store(&installed, false);
        (void)sigaction(SIGSEGV, &before, NULL); /* and the fault comes again */
    }
}

/* Its protection may have ended between the fault and us: then it does not come again. Once for
 * each end and thread. */
static bool may_be_over(const siginfo_t *info)
{
    const uint64_t now = atomic_load(&ended);
    if (info->si_code != SEGV_ACCERR || tried_at == now) return false;
    tried_at = now;
    return true;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const int kept = errno;
    atomic_fetch_add(&handling, 1);
    const bool ours = note_write((uintptr_t)info->si_addr);
    atomic_fetch_sub(&handling, 1);
    const bool done = ours || may_be_over(info);
    errno = kept;
    if (!done) go_on_as_before(number, info, context);
}

/* Under the lock. */
static bool install(void)
{
    if (atomic_load(&installed)) return true;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    const bool done = sigaction(SIGSEGV, &action, &before) == 0;
    atomic_store(&installed, done);
    return done;
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

/* False: they are not protected. */
static bool add_pages(struct tb_protection *p, uintptr_t at, uintptr_t end)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    at = (at + page - 1) / page * page;
    end = end / page * page;
    if (end <= at) return true;
    struct slot *slot = free_slot();
    if (slot == NULL) return false;
    TB_ASSERT(at < end && at % page == 0 && end % page == 0);
    slot->at = at;
    slot->end = end;
    atomic_store(&slot->owner, p);
    return mprotect((void *)at, end - at, PROT_READ) == 0; /* or in part: the end takes it back */
}

static int compare(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const struct tb_protect_stretch *)a)->at;
    const uintptr_t y = (uintptr_t)((const struct tb_protect_stretch *)b)->at;
    return x < y ? -1 : x > y;
}

/* Tensors that follow one another share pages that belong to none of them alone. */
static bool add_all(struct tb_protection *p, const struct tb_protect_stretch *stretches, uint32_t count)
{
    uintptr_t at = 0, end = 0;
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        const uintptr_t next = (uintptr_t)stretches[i].at;
        if (next > end) {
            all = add_pages(p, at, end) && all;
            at = next;
        }
        if (next + stretches[i].bytes > end) end = next + stretches[i].bytes;
    }
    return add_pages(p, at, end) && all;
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
    const bool ready = install() && add_all(p, stretches, count);
    pthread_mutex_unlock(&lock);
    if (ready) return p;
    tb_protection_end(p);
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
    atomic_fetch_add(&ended, 1); /* before its slots are nobody's: a thread that finds them so tries again */
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
