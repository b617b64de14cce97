/* world_uv.c - libuv's timers, asyncs and threads in virtual time. Loops are names only: what is
 * due of a process runs in the order in which it was made, and an async of another thread's loop
 * comes up to 3 ms late. A turn ends with what the process starts before its loop waits. */
#include <uv.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "world.h"
#include "world_machine.h"
#include "world_process.h"

struct handle {
    struct handle *next;
    uv_handle_t *uv;
    uv_timer_cb timer;
    uv_async_cb async;
    uv_prepare_cb before_wait;
    uv_close_cb closed;
    tb_time_ns due, every;
    bool armed, closing;
};

struct thread { /* what a thread would run; its loop's handles run with all others */
    uv_thread_cb entry;
    void *arg;
};

static struct handle *record_of(const void *uv)
{
    return ((const uv_handle_t *)uv)->u.reserved[0];
}

static struct handle *add(uv_loop_t *loop, uv_handle_t *uv)
{
    struct handle *h = tb_calloc(1, sizeof *h);
    struct handle **at = &the->current->handles;
    while (*at != NULL)
        at = &(*at)->next;
    *at = h;
    h->uv = uv;
    uv->loop = loop;
    uv->u.reserved[0] = h;
    return h;
}

int uv_loop_init(uv_loop_t *loop)
{
    loop->data = NULL;
    return 0;
}

int uv_loop_close(uv_loop_t *loop)
{
    (void)loop;
    return 0;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    (void)add(loop, (uv_handle_t *)timer);
    return 0;
}

void uv_update_time(uv_loop_t *loop)
{
    (void)loop; /* there is one time */
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout_ms, uint64_t repeat_ms)
{
    struct handle *h = record_of(timer);
    h->timer = cb;
    h->due = the->now + TB_MS(timeout_ms);
    h->every = TB_MS(repeat_ms);
    h->armed = true;
    return 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
    record_of(timer)->armed = false;
    return 0;
}

int uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb cb)
{
    add(loop, (uv_handle_t *)async)->async = cb;
    return 0;
}

int uv_async_send(uv_async_t *async)
{
    struct handle *h = record_of(async);
    if (h->armed) return 0;
    h->armed = true;
    h->due = the->now + TB_MS(world_random(4));
    return 0;
}

/* Of a loop that never waits, before and behind the waiting are one: the end of a turn. */
int uv_prepare_init(uv_loop_t *loop, uv_prepare_t *prepare)
{
    (void)add(loop, (uv_handle_t *)prepare);
    return 0;
}

int uv_prepare_start(uv_prepare_t *prepare, uv_prepare_cb cb)
{
    record_of(prepare)->before_wait = cb;
    return 0;
}

int uv_check_init(uv_loop_t *loop, uv_check_t *check)
{
    (void)add(loop, (uv_handle_t *)check);
    return 0;
}

int uv_check_start(uv_check_t *check, uv_check_cb cb)
{
    (void)check, (void)cb;
    return 0;
}

int uv_signal_init(uv_loop_t *loop, uv_signal_t *handle)
{
    (void)add(loop, (uv_handle_t *)handle);
    return 0;
}

int uv_signal_start(uv_signal_t *handle, uv_signal_cb cb, int number)
{
    (void)handle, (void)cb, (void)number; /* processes here end by SIGKILL */
    return 0;
}

void uv_close(uv_handle_t *uv, uv_close_cb cb)
{
    struct handle *h = record_of(uv);
    TB_ASSERT(!h->closing);
    h->closing = h->armed = true;
    h->closed = cb;
    h->due = the->now;
}

int uv_is_closing(const uv_handle_t *uv)
{
    return record_of(uv)->closing;
}

void uv_walk(uv_loop_t *loop, uv_walk_cb cb, void *arg)
{
    (void)loop, (void)cb, (void)arg;
}

void uv_stop(uv_loop_t *loop)
{
    (void)loop;
    world_fail("a gateway ended by itself");
}

static void fire(struct handle *h)
{
    if (h->closing) {
        struct handle **at = &the->current->handles;
        while (*at != h)
            at = &(*at)->next;
        *at = h->next;
        uv_handle_t *uv = h->uv;
        const uv_close_cb closed = h->closed;
        tb_free(h);
        if (closed != NULL) closed(uv);
        return;
    }
    h->armed = h->every != 0;
    h->due = the->now + h->every;
    if (h->timer != NULL)
        h->timer((uv_timer_t *)h->uv);
    else if (h->async != NULL)
        h->async((uv_async_t *)h->uv);
}

static struct handle *first_due(const struct process *p, const uv_loop_t *loop)
{
    for (struct handle *h = p->handles; h != NULL; h = h->next)
        if (h->armed && (loop == NULL ? h->due <= the->now : h->uv->loop == loop && h->timer == NULL))
            return h;
    return NULL;
}

static void turn_end(const struct process *p)
{
    for (struct handle *h = p->handles, *next; h != NULL; h = next) {
        next = h->next;
        if (h->before_wait != NULL) h->before_wait((uv_prepare_t *)h->uv);
    }
}

/* A turn: all that is due, then what follows from it, and what is due by that. */
bool world_uv_run(struct process *p)
{
    struct handle *h = NULL;
    uint32_t fired = 0;
    do {
        for (; p->alive && fired < 64 && (h = first_due(p, NULL)) != NULL; fired++)
            fire(h);
        if (p->alive) turn_end(p);
    } while (p->alive && fired < 64 && first_due(p, NULL) != NULL);
    return fired > 0;
}

/* Only for a thread that is being joined: what is pending on its loop, to the end. */
int uv_run(uv_loop_t *loop, uv_run_mode mode)
{
    struct handle *h = NULL;
    (void)mode;
    while ((h = first_due(the->current, loop)) != NULL)
        fire(h);
    return 0;
}

int uv_thread_create(uv_thread_t *thread, uv_thread_cb entry, void *arg)
{
    struct thread *t = tb_malloc(sizeof *t);
    *t = (struct thread){entry, arg};
    *thread = (uv_thread_t)(uintptr_t)t;
    return 0;
}

int uv_thread_join(uv_thread_t *thread)
{
    struct thread *t = (struct thread *)(uintptr_t)*thread; // NOLINT(performance-no-int-to-ptr)
    t->entry(t->arg);
    tb_free(t);
    return 0;
}

unsigned uv_available_parallelism(void)
{
    return 1;
}

uv_pid_t uv_os_getpid(void)
{
    return (uv_pid_t)the->current->index;
}

int uv_mutex_init(uv_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

void uv_mutex_destroy(uv_mutex_t *mutex)
{
    (void)mutex;
}

void uv_mutex_lock(uv_mutex_t *mutex)
{
    (void)mutex;
}

void uv_mutex_unlock(uv_mutex_t *mutex)
{
    (void)mutex;
}
