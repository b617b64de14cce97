/* stream_thread.c - the thread of a loop on which streams live: begun, its turns, ended. */
#include <errno.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/codec/codec.h"
#include "base/fault.h"
#include "wan/stream/stream_loop_inside.h"
#include "wan/stream/stream_send.h"

#define TICK_MS 250

static void on_due(uv_timer_t *due)
{
    struct tb_stream_loop *l = due->data;
    const tb_time_ns now = tb_clock_now();
    l->due_at = TB_TIME_NEVER;
    for (struct tb_stream *s = l->streams, *next; s != NULL; s = next) {
        next = s->next;
        tb_stream_send_due(s, now);
    }
}

static void take_added(struct tb_stream_loop *l)
{
    uv_mutex_lock(&l->lock);
    struct tb_stream *s = l->added;
    struct tb_stream_copy *copy = l->copy_added;
    l->added = NULL;
    l->copy_added = NULL;
    uv_mutex_unlock(&l->lock);
    while (copy != NULL) {
        struct tb_stream_copy *next = copy->next;
        copy->next = l->copies;
        l->copies = copy;
        copy = next;
    }
    while (s != NULL) {
        struct tb_stream *next = s->next;
        s->next = l->streams;
        l->streams = s;
        tb_stream_begin(s);
        s = next;
    }
}

static void copies_free(struct tb_stream_loop *l)
{
    while (l->copies != NULL) {
        struct tb_stream_copy *copy = l->copies;
        l->copies = copy->next;
        tb_stream_copy_free(copy);
    }
}

/* Places that were taken back wait for nobody's turn. */
static void copies_heed(struct tb_stream_loop *l)
{
    struct tb_stream_copy **at = &l->copies;
    while (*at != NULL) {
        struct tb_stream_copy *copy = *at;
        if (!tb_shared_places_revoked(copy->share)) {
            at = &copy->next;
            continue;
        }
        *at = copy->next;
        tb_stream_copy_free(copy);
    }
}

/* One turn of the first; the streams have theirs before the next. */
static void copies_step(struct tb_stream_loop *l)
{
    copies_heed(l);
    struct tb_stream_copy *copy = l->copies;
    if (copy == NULL) return;
    const enum tb_stream_copied copied = tb_stream_copy_step(copy, TB_STREAM_TURN_BYTES);
    tb_stream_loop_tell(l);
    if (copied == TB_STREAM_COPIED) {
        l->copies = copy->next;
        tb_stream_copy_free(copy);
    }
    if (l->copies != NULL && copied != TB_STREAM_COPY_WAITS) uv_async_send(&l->wake);
}

static void stop(struct tb_stream_loop *l)
{
    TB_ASSERT(l->streams == NULL);
    copies_free(l);
    uv_close((uv_handle_t *)&l->wake, NULL);
    uv_close((uv_handle_t *)&l->tick, NULL);
    uv_close((uv_handle_t *)&l->due, NULL);
}

static void on_wake(uv_async_t *wake)
{
    struct tb_stream_loop *l = wake->data;
    take_added(l);
    for (struct tb_stream *s = l->streams, *next; s != NULL; s = next) {
        next = s->next;
        tb_stream_look(s);
    }
    copies_step(l);
    if (atomic_load_explicit(&l->quit, memory_order_acquire)) stop(l);
}

static void on_tick(uv_timer_t *tick)
{
    struct tb_stream_loop *l = tick->data;
    const tb_time_ns now = tb_clock_now();
    for (struct tb_stream *s = l->streams, *next; s != NULL; s = next) {
        next = s->next;
        tb_stream_tick(s, now);
    }
    copies_step(l);
}

static void run(void *arg)
{
    struct tb_stream_loop *l = arg;
    uv_run(&l->loop, UV_RUN_DEFAULT);
}

enum tb_status tb_stream_loop_new(uv_async_t *wake, struct tb_stream_loop **loop_out)
{
    struct tb_stream_loop *l = tb_calloc(1, sizeof *l);
    if (l == NULL) return TB_SITE_NOMEM;
    l->main_wake = wake;
    l->wake.data = l->tick.data = l->due.data = l;
    enum tb_status status = tb_codec_new(&l->codec);
    if (status != TB_OK) goto undo_memory;
    status = TB_SITE_NOMEM;
    if (uv_mutex_init(&l->lock) != 0) goto undo_codec;
    if (uv_loop_init(&l->loop) != 0) goto undo_lock;
    if (uv_async_init(&l->loop, &l->wake, on_wake) != 0) goto undo_loop;
    uv_timer_init(&l->loop, &l->tick);
    uv_timer_init(&l->loop, &l->due);
    l->on_due = on_due;
    l->due_at = TB_TIME_NEVER;
    uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
    if (tb_fault_hit(TB_FAULT_thread, EAGAIN) || uv_thread_create(&l->thread, run, l) != 0) goto undo_handles;
    *loop_out = l;
    return TB_OK;

undo_handles:
    stop(l);
    uv_run(&l->loop, UV_RUN_DEFAULT);
undo_loop:
    uv_loop_close(&l->loop);
undo_lock:
    uv_mutex_destroy(&l->lock);
undo_codec:
    tb_codec_free(l->codec);
undo_memory:
    tb_free(l);
    return status;
}

void tb_stream_loop_free(struct tb_stream_loop *l)
{
    atomic_store_explicit(&l->quit, true, memory_order_release);
    uv_async_send(&l->wake);
    uv_thread_join(&l->thread);
    const int left = uv_loop_close(&l->loop);
    TB_ASSERT(left == 0);
    uv_mutex_destroy(&l->lock);
    tb_codec_free(l->codec);
    tb_free(l);
}
