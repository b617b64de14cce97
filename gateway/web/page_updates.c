/* page_updates.c - see page_updates.h. */
#include "gateway/web/page_updates.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"

/* A client that has a page open. */
struct watcher {
    struct tb_page_updates *updates;
    struct MHD_Connection *connection;
    struct tb_page_place place;
    char *text; /* of open_memstream: what is to be sent */
    size_t count, sent;
    uint64_t number; /* of the update in `text` */
    bool waits;      /* its connection is suspended */
    struct watcher *next;
};

struct tb_page_updates {
    struct tb_web_answers *answers;
    pthread_mutex_t *lock; /* of all that follows, too */
    pthread_cond_t changed;
    pthread_t thread;
    struct watcher *watchers;
    uint32_t watcher_count;
    uint32_t instance;
    uint64_t number; /* of the newest update; 0: there was none */
    uint64_t kept;   /* the answers that it shows: see web_answers.h */
    bool closing;
};

/* ---- one event ---- */

static void write_lines(FILE *out, const char *text)
{
    while (*text != '\0') {
        const size_t count = strcspn(text, "\n");
        (void)fprintf(out, "data: %.*s\n", (int)count, text);
        text += count + (text[count] == '\n');
    }
    (void)fputc('\n', out);
}

/* NULL: no memory. The caller's. */
static char *body_of(const struct tb_page_updates *u, struct tb_page_place place)
{
    struct tb_web_facts facts;
    char *text = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&text, &count);
    if (out == NULL) return NULL;
    tb_web_answers_facts(u->answers, tb_page_needs(place.view), &facts);
    tb_page_body_write(out, &facts, place);
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed) return text;
    free(text);
    return NULL;
}

/* False: no memory, and the client's stream ends: it comes again. */
static bool compose(struct watcher *w)
{
    const struct tb_page_updates *u = w->updates;
    char *body = body_of(u, w->place);
    free(w->text);
    w->text = NULL;
    w->count = w->sent = 0;
    FILE *out = body != NULL ? open_memstream(&w->text, &w->count) : NULL;
    if (out != NULL) {
        (void)fprintf(out, "id: %08" PRIx32 "-%" PRIu64 "\nevent: page\n", u->instance, u->number);
        write_lines(out, body);
    }
    free(body);
    w->number = u->number;
    return out != NULL && fclose(out) == 0;
}

/* ---- libmicrohttpd's calls ---- */

static ssize_t next_bytes(struct watcher *w, char *buffer, size_t most)
{
    struct tb_page_updates *u = w->updates;
    if (u->closing) return MHD_CONTENT_READER_END_OF_STREAM;
    if (w->sent == w->count) {
        if (w->number == u->number) {
            w->waits = true;
            MHD_suspend_connection(w->connection);
            return 0;
        }
        if (!compose(w)) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left = w->count - w->sent, count = left < most ? left : most;
    memcpy(buffer, w->text + w->sent, count);
    w->sent += count;
    return (ssize_t)count;
}

static ssize_t on_read(void *user, uint64_t position, char *buffer, size_t most)
{
    struct watcher *w = user;
    (void)position;
    (void)pthread_mutex_lock(w->updates->lock);
    const ssize_t count = next_bytes(w, buffer, most);
    (void)pthread_mutex_unlock(w->updates->lock);
    return count;
}

static void on_end(void *user)
{
    struct watcher *w = user;
    struct tb_page_updates *u = w->updates;
    (void)pthread_mutex_lock(u->lock);
    struct watcher **at = &u->watchers;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    u->watcher_count--;
    (void)pthread_mutex_unlock(u->lock);
    free(w->text);
    tb_free(w);
}

static struct watcher *watcher_new(struct tb_page_updates *u, struct MHD_Connection *connection,
                                   struct tb_page_place place)
{
    struct watcher *w = NULL;
    (void)pthread_mutex_lock(u->lock);
    if (u->watcher_count < TB_WATCHERS_MAX && !u->closing) w = tb_calloc(1, sizeof *w);
    if (w != NULL) {
        *w = (struct watcher){.updates = u, .connection = connection, .place = place, .next = u->watchers};
        u->watchers = w;
        u->watcher_count++;
        (void)pthread_cond_signal(&u->changed);
    }
    (void)pthread_mutex_unlock(u->lock);
    return w;
}

struct MHD_Response *tb_page_updates_to(struct tb_page_updates *u, struct MHD_Connection *connection,
                                        struct tb_page_place place)
{
    struct watcher *w = watcher_new(u, connection, place);
    if (w == NULL) return NULL;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, (size_t)32 << 10, on_read, w, on_end);
    if (response == NULL) on_end(w);
    return response;
}

/* ---- the thread ---- */

static void resume_all(struct tb_page_updates *u)
{
    for (struct watcher *w = u->watchers; w != NULL; w = w->next) {
        if (!w->waits) continue;
        w->waits = false;
        MHD_resume_connection(w->connection);
    }
}

static unsigned needs_of(const struct tb_page_updates *u)
{
    unsigned needs = 0;
    for (const struct watcher *w = u->watchers; w != NULL; w = w->next)
        needs |= tb_page_needs(w->place.view);
    return needs;
}

static void wait_a_second(struct tb_page_updates *u)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    while (!u->closing && pthread_cond_timedwait(&u->changed, u->lock, &until) == 0)
        ;
}

/* An answer is new, or none came: whichever page, scrape or probe asked. */
static void update(struct tb_page_updates *u)
{
    tb_web_answers_refresh(u->answers, needs_of(u));
    if (u->kept == u->answers->kept && u->number > 0) return;
    u->kept = u->answers->kept;
    u->number++;
}

static void *run(void *user)
{
    struct tb_page_updates *u = user;
    (void)pthread_mutex_lock(u->lock);
    while (!u->closing) {
        if (u->watchers == NULL) {
            (void)pthread_cond_wait(&u->changed, u->lock);
            continue;
        }
        update(u);
        resume_all(u);
        wait_a_second(u);
    }
    (void)pthread_mutex_unlock(u->lock);
    return NULL;
}

/* ---- life ---- */

enum tb_status tb_page_updates_open(struct tb_web_answers *answers, pthread_mutex_t *lock,
                                    struct tb_page_updates **updates_out)
{
    pthread_condattr_t monotonic;
    struct tb_page_updates *u = tb_calloc(1, sizeof *u);
    if (u == NULL) return TB_SITE_NOMEM;
    *u = (struct tb_page_updates){.answers = answers, .lock = lock};
    tb_random_bytes(&u->instance, sizeof u->instance);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&u->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (pthread_create(&u->thread, NULL, run, u) != 0) {
        (void)pthread_cond_destroy(&u->changed);
        tb_free(u);
        return TB_SITE_NOMEM;
    }
    *updates_out = u;
    return TB_OK;
}

void tb_page_updates_end(struct tb_page_updates *u)
{
    (void)pthread_mutex_lock(u->lock);
    u->closing = true;
    resume_all(u);
    (void)pthread_cond_signal(&u->changed);
    (void)pthread_mutex_unlock(u->lock);
    (void)pthread_join(u->thread, NULL);
}

void tb_page_updates_free(struct tb_page_updates *u)
{
    TB_ASSERT(u->closing && u->watchers == NULL);
    (void)pthread_cond_destroy(&u->changed);
    tb_free(u);
}
