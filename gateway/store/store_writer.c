/* store_writer.c - the store's thread: one batch in, one result out, under one mutex that is
 * never held over a write. */
#include "gateway/store/store_writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"

enum stage { IDLE, GIVEN, WRITING, DONE, CLOSED };

struct tb_store_writer {
    struct tb_store *store;
    void (*done)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given, finished;
    /* Under the lock. */
    enum stage stage;
    bool stop;
    struct tb_store_written written;
    /* The owner's while IDLE, else the thread's. */
    uint32_t count;
    struct tb_store_row rows[TB_STORE_BATCH_MAX];
};

static void batch_write(struct tb_store_writer *w, struct tb_store_written *out)
{
    *out = (struct tb_store_written){.count = w->count};
    out->status = tb_store_rows(w->store, w->rows, w->count);
    if (out->status != TB_OK) {
        snprintf(out->error, sizeof out->error, "%s", tb_store_error(w->store));
        return;
    }
    for (uint32_t i = 0; i < w->count; i++)
        if (w->rows[i].kind == TB_STORE_INCARNATION) out->incarnation = w->rows[i].incarnation;
}

static void *writer_main(void *user)
{
    struct tb_store_writer *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->stage != GIVEN && !w->stop)
            pthread_cond_wait(&w->given, &w->lock);
        if (w->stage != GIVEN) break;
        TB_ASSERT(w->count > 0 && w->count <= TB_STORE_BATCH_MAX);
        w->stage = WRITING;
        pthread_mutex_unlock(&w->lock);
        struct tb_store_written written;
        batch_write(w, &written);
        pthread_mutex_lock(&w->lock);
        TB_ASSERT(w->stage == WRITING);
        w->written = written;
        w->stage = DONE;
        pthread_cond_broadcast(&w->finished);
        w->done(w->user); /* under the lock: after close nobody is woken any more */
    }
    pthread_mutex_unlock(&w->lock);
    tb_store_close(w->store); /* its log is folded into its file: that waits for the disk as well */
    pthread_mutex_lock(&w->lock);
    w->stage = CLOSED;
    pthread_cond_broadcast(&w->finished);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static enum tb_status conditions_init(struct tb_store_writer *w)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0) return TB_SITE_NOMEM;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    const bool ok = pthread_mutex_init(&w->lock, NULL) == 0 && pthread_cond_init(&w->given, NULL) == 0 &&
                    pthread_cond_init(&w->finished, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    return ok ? TB_OK : TB_SITE_NOMEM;
}

static void writer_free(struct tb_store_writer *w)
{
    pthread_cond_destroy(&w->finished);
    pthread_cond_destroy(&w->given);
    pthread_mutex_destroy(&w->lock);
    tb_free(w);
}

enum tb_status tb_store_writer_open(struct tb_store *store, void (*done)(void *user), void *user,
                                    struct tb_store_writer **writer_out)
{
    struct tb_store_writer *w = tb_calloc(1, sizeof *w);
    if (w == NULL) return TB_SITE_NOMEM;
    w->store = store;
    w->done = done;
    w->user = user;
    enum tb_status status = conditions_init(w);
    if (status != TB_OK) {
        tb_free(w);
        return status;
    }
    if (tb_fault_hit(TB_FAULT_thread, EAGAIN) || pthread_create(&w->thread, NULL, writer_main, w) != 0) {
        writer_free(w);
        return TB_SITE_NOMEM;
    }
    *writer_out = w;
    return TB_OK;
}

void tb_store_writer_submit(struct tb_store_writer *w, const struct tb_store_row *const *rows, uint32_t count)
{
    TB_ASSERT(count != 0 && count <= TB_STORE_BATCH_MAX);
    pthread_mutex_lock(&w->lock);
    TB_ASSERT(w->stage == IDLE);
    for (uint32_t i = 0; i < count; i++)
        w->rows[i] = *rows[i];
    w->count = count;
    w->stage = GIVEN;
    pthread_cond_signal(&w->given);
    pthread_mutex_unlock(&w->lock);
}

bool tb_store_writer_take(struct tb_store_writer *w, struct tb_store_written *written_out)
{
    pthread_mutex_lock(&w->lock);
    const bool done = w->stage == DONE;
    TB_ASSERT(w->stage != CLOSED && !w->stop);
    if (done) {
        *written_out = w->written;
        w->stage = IDLE;
    }
    pthread_mutex_unlock(&w->lock);
    return done;
}

static struct timespec end_of(uint32_t ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / 1000;
    end.tv_nsec += (long)(ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    return end;
}

bool tb_store_writer_wait(struct tb_store_writer *w, uint32_t ms)
{
    const struct timespec end = end_of(ms);
    pthread_mutex_lock(&w->lock);
    int timed_out = 0;
    while (timed_out == 0 && (w->stage == GIVEN || w->stage == WRITING))
        timed_out = pthread_cond_timedwait(&w->finished, &w->lock, &end);
    const bool still = w->stage == GIVEN || w->stage == WRITING;
    pthread_mutex_unlock(&w->lock);
    return !still;
}

static void nobody(void *user)
{
    (void)user;
}

bool tb_store_writer_close(struct tb_store_writer *w, uint32_t ms)
{
    const struct timespec end = end_of(ms);
    pthread_mutex_lock(&w->lock);
    TB_ASSERT(!w->stop);
    w->stop = true;
    w->done = nobody;
    pthread_cond_signal(&w->given);
    int timed_out = 0;
    while (timed_out == 0 && w->stage != CLOSED)
        timed_out = pthread_cond_timedwait(&w->finished, &w->lock, &end);
    const bool closed = w->stage == CLOSED;
    pthread_mutex_unlock(&w->lock);
    if (!closed) {
        pthread_detach(w->thread);
        return false;
    }
    pthread_join(w->thread, NULL);
    writer_free(w);
    return true;
}
