/* persist.c - the catalog's durable todos on their way to the store, in order, and what waits
 * until they are there.
 *
 * The loop never waits for a disk. A row is queued and counts as unsaved (todos.h) until its
 * batch is on disk; then what rests on it goes out, and a request that made it is answered. While
 * the store cannot be written, or has not answered for store.slow_ms, rows wait on, new
 * publishing is refused (TB_SITE_STORE), and what is held goes on being served: a full or slow
 * disk stops the new, never the old. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/shutdown.h"
#include "gateway/store/store_backup.h"
#include "gateway/store/store_writer.h"

#define WAITING_MAX 256
#define RECORDS_MAX 32u  /* of a batch: rows of the audit record */
#define HELD_MAX    4096 /* requests that wait for the disk, of all sessions */
#define UNSETTLED   UINT64_MAX
/* P7: each start adds one, so what peers have seen is reached with one word; what one of them makes
 * up leaves room for those to come, and others that had believed it are heard all the same: each
 * word brings us nearer to theirs. */
#define INCARNATION_STEP ((uint64_t)1 << 32)
#define INCARNATION_MAX  ((uint64_t)1 << 62) /* for 2^30 of them, each of which waits for the disk */

struct waiting {
    struct tb_store_row row;
    bool followed; /* what rests on it went out */
    struct tb_name model;
    struct tb_id uid; /* zero: of no version */
    struct tb_name rank;
    uint32_t shard;
    char by[TB_CATALOG_TEXT_MAX];
};

struct tb_persist {
    struct tb_store_writer *writer;
    struct waiting rows[WAITING_MAX];
    uint32_t count;
    uint32_t writing;     /* rows 0 .. writing - 1 are with the writer */
    uint32_t recording;   /* and so many of audit.c's */
    uint32_t landed;      /* rows 0 .. landed - 1 are on disk, and not all of what rests on them went out */
    bool told;            /* by the writer's thread: there is a result to take */
    bool refused;         /* the last batch is not on disk */
    uint64_t incarnation; /* that was written; 0: none, or the dispatcher knows it */
    uint64_t first;       /* the number of rows[0]; each row has one more than that before it */
    uint64_t dropped, recovered;
    tb_time_ns asked_at;
    bool behind;    /* the catalog has rows for which there was no place */
    bool doubt_due; /* of all patterns: there was no place for it */
    bool closing;
    struct tb_held *held, **held_end;
    uint32_t held_count, held_most, rows_most;
    uint64_t held_refused, held_spent, rows_overtaken;
};

/* ---- rows ---- */

/* In the record a version is published, or it ends in another way than by a newer one. */
static void version_name(const struct tb_daemon *d, struct tb_store_row *r,
                         const struct tb_catalog_todo *todo)
{
    static struct tb_catalog_run run; /* large; the main loop's alone */
    struct tb_name home;
    const bool ended = todo->state == TB_VERSION_ENDED_WITHDRAWN || todo->state == TB_VERSION_ENDED_LOST ||
                       todo->state == TB_VERSION_ENDED_BROKEN;
    if (ended) snprintf(r->what, sizeof r->what, "version.%s", tb_catalog_state_name(todo->state));
    if (todo->state != TB_VERSION_READY || !tb_home_of(d, &todo->key.model, &home) ||
        !tb_name_equal(&home, &d->site))
        return;
    snprintf(r->what, sizeof r->what, "publish");
    for (uint32_t cursor = 0; tb_catalog_run_at(d->catalog, &cursor, &run);)
        if (tb_id_equal(&run.id, &todo->key.run)) snprintf(r->who, sizeof r->who, "%s", run.opened_by);
}

static void row_fill(const struct tb_daemon *d, struct waiting *w, const struct tb_catalog_todo *todo)
{
    *w = (struct waiting){.model = todo->model, .rank = todo->name, .shard = todo->shard};
    struct tb_store_row *r = &w->row;
    r->wall_ms = tb_clock_wall_ms();
    const char *by = todo->who != NULL ? todo->who : "";
    snprintf(w->by, sizeof w->by, "%s", by);
    snprintf(r->who, sizeof r->who, "%s", by[0] != '\0' ? by : todo->name.text);
    snprintf(r->why, sizeof r->why, "%s", todo->why != NULL ? todo->why : "");
    switch (todo->kind) {
    case TB_CATALOG_PERSIST_RUN:
        r->kind = TB_STORE_RUN;
        r->run = todo->run;
        snprintf(r->what, sizeof r->what, "run.%s", todo->run.fenced ? "fenced" : "open");
        return;
    case TB_CATALOG_PERSIST_VERSION:
        r->kind = TB_STORE_VERSION;
        r->version = (struct tb_store_version){.key = todo->key,
                                               .state = todo->state,
                                               .bytes = todo->bytes,
                                               .withdrawn_here = todo->withdrawn_here};
        w->uid = todo->key.uid;
        version_name(d, r, todo);
        return;
    default:
        r->kind = TB_STORE_POINTER;
        r->pointer = (struct tb_store_pointer){
            .model = todo->model, .uid = todo->uid, .pin = !todo->head, .pinned = todo->pinned};
        if (!todo->head) w->uid = todo->uid;
    }
}

/* It is on disk, or the disk is given up for now: what rests on it goes out, once. True: a
 * version's state does. */
static bool row_follow(struct tb_daemon *d, struct waiting *w, struct tb_catalog_todo *saved_out)
{
    TB_ASSERT(w >= d->persist->rows && w < d->persist->rows + d->persist->count);
    if (w->followed) return false;
    w->followed = true;
    tb_catalog_saved(d->catalog, &w->model, &w->uid);
    if (w->row.kind != TB_STORE_VERSION) return false;
    *saved_out = (struct tb_catalog_todo){.kind = TB_CATALOG_PERSIST_VERSION,
                                          .key = w->row.version.key,
                                          .state = w->row.version.state,
                                          .withdrawn_here = w->row.version.withdrawn_here,
                                          .why = w->row.why,
                                          .who = w->by,
                                          .name = w->rank,
                                          .shard = w->shard};
    return true;
}

static bool is_question(const struct waiting *w)
{
    return w->row.kind == TB_STORE_MODEL_ASKED;
}

static bool is_doubt_of_all(const struct waiting *w)
{
    return w->row.kind == TB_STORE_DOUBT && w->row.doubt.model.text[0] == '\0';
}

/* Its answer is there. */
static void question_end(struct tb_daemon *d, struct waiting *w)
{
    if (w->followed) return;
    w->followed = true;
    w->row.model->answered = true;
    w->row.model = NULL;
    d->models.answers++;
    tb_daemon_wake(d);
}

static void row_end(struct waiting *w)
{
    if (is_question(w) && w->row.model != NULL) w->row.model->dropped = true;
    if (w->row.kind == TB_STORE_SIGNED) tb_free(w->row.said.bytes);
    if (w->row.kind == TB_STORE_BACKUP) tb_store_backup_let_go(w->row.backup);
}

/* The writer has a batch. */
static bool is_busy(const struct tb_persist *p)
{
    return p->writing != 0 || p->recording != 0;
}

static void rows_remove(struct tb_persist *p, uint32_t count)
{
    TB_ASSERT(count <= p->count && !is_busy(p));
    for (uint32_t i = 0; i < count; i++)
        row_end(&p->rows[i]);
    memmove(p->rows, p->rows + count, (p->count - count) * sizeof p->rows[0]);
    p->count -= count;
    p->first += count;
}

/* The oldest waiting row is the least true by now; a version's later row says it all again. */
static void oldest_drop(struct tb_persist *p)
{
    TB_ASSERT(p->landed == 0 && p->writing < p->count); /* rows in front of it keep their places */
    struct waiting *oldest = &p->rows[p->writing];
    p->doubt_due = p->doubt_due || is_doubt_of_all(oldest);
    row_end(oldest);
    memmove(oldest, oldest + 1, (p->count - p->writing - 1) * sizeof *oldest);
    p->count--;
    p->first++;
    p->dropped++;
    p->rows_overtaken++;
}

static struct waiting *row_new(struct tb_persist *p)
{
    TB_ASSERT(p->count < WAITING_MAX);
    struct waiting *w = &p->rows[p->count++];
    if (p->count > p->rows_most) p->rows_most = p->count;
    return w;
}

/* ---- requests that wait for their rows ---- */

enum tb_status tb_persist_then(struct tb_daemon *d, struct tb_held *held)
{
    struct tb_persist *p = d->persist;
    TB_ASSERT(held->fn != NULL);
    if (p->held_count >= HELD_MAX) {
        p->held_refused++;
        return TB_SITE_NOMEM;
    }
    held->after = UNSETTLED;
    tb_daemon_wake(d);
    held->next = NULL;
    *p->held_end = held;
    p->held_end = &held->next;
    if (++p->held_count > p->held_most) p->held_most = p->held_count;
    return TB_OK;
}

/* Those whose rows are on disk; all, if the disk is given up for now. */
static void held_release(struct tb_daemon *d, enum tb_status status)
{
    struct tb_persist *p = d->persist;
    while (p->held != NULL && (status != TB_OK || p->held->after <= p->first)) {
        struct tb_held *held = p->held;
        p->held = held->next;
        if (p->held == NULL) p->held_end = &p->held;
        TB_ASSERT(p->held_count > 0);
        p->held_count--;
        held->fn(d, held, status);
    }
}

/* ---- the writer ---- */

/* Rows of the record go first: what is answered is in it. */
static void writer_feed(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    if (is_busy(p) || p->landed != 0 || (p->count == 0 && !tb_audit_waits(d))) return;
    const struct tb_store_row *rows[TB_STORE_BATCH_MAX];
    p->recording = tb_audit_rows(d, rows, RECORDS_MAX);
    TB_ASSERT(p->recording <= RECORDS_MAX);
    const uint32_t room = TB_STORE_BATCH_MAX - p->recording;
    p->writing = p->count < room ? p->count : room;
    for (uint32_t i = 0; i < p->writing; i++)
        rows[p->recording + i] = &p->rows[i].row;
    TB_ASSERT(is_busy(p) && p->writing <= p->count);
    p->asked_at = tb_clock_now();
    tb_store_writer_submit(p->writer, rows, p->recording + p->writing);
}

void tb_persist_down_log(struct tb_daemon *d, const char *why)
{
    d->counters.store_failed++;
    if (d->store_down) return; /* one line a time, not one a row */
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "store.failed");
    tb_log_str(&l, "path", d->config->store_path);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "publishing is refused until it can be written");
    tb_log_end(&l);
}

/* Rows wait on; what rests on them does not. */
static void store_fails(struct tb_daemon *d, const char *why)
{
    tb_persist_down_log(d, why);
    d->store_down = true;
    tb_daemon_wake(d);
}

static void store_recovers(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    if (!d->store_down || p->count != 0) return;
    d->store_down = false;
    tb_log(TB_LOG_INFO, "store.recovered", "rows=%llu dropped=%llu", (unsigned long long)p->recovered,
           (unsigned long long)p->dropped);
    p->recovered = p->dropped = 0;
}

static void batch_take(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    struct tb_store_written written;
    if (!p->told || !tb_store_writer_take(p->writer, &written)) return;
    TB_ASSERT(p->landed == 0 && written.count == p->writing + p->recording);
    const uint32_t landed = p->writing, recorded = p->recording;
    p->told = false;
    p->writing = p->recording = 0;
    p->refused = written.status != TB_OK;
    p->landed = p->refused ? 0 : landed;
    tb_audit_written(d, recorded, written.status);
    if (p->refused) {
        store_fails(d, written.error);
        return;
    }
    if (landed == 0) {
        store_recovers(d);
        if (!d->store_down) writer_feed(d);
    }
    if (written.incarnation != 0) p->incarnation = written.incarnation;
}

/* Rows that are on disk leave; their waiters are answered, and the next are written. */
static void landed_end(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    if (p->landed == 0) return;
    rows_remove(p, p->landed);
    if (d->store_down) p->recovered += p->landed;
    p->landed = 0;
    store_recovers(d);
    held_release(d, TB_OK);
    writer_feed(d);
}

static void writer_done(void *user)
{
    struct tb_daemon *d = user;
    uv_async_send(&d->store_wake);
}

void tb_persist_wake(uv_async_t *async)
{
    struct tb_daemon *d = async->data;
    if (d->persist == NULL) return;
    d->persist->told = true;
    tb_daemon_wake(d);
}

/* ---- what the dispatcher asks ---- */

bool tb_persist_next(struct tb_daemon *d, struct tb_catalog_todo *saved_out)
{
    struct tb_persist *p = d->persist;
    batch_take(d);
    for (uint32_t i = 0; i < p->landed; i++)
        if (is_question(&p->rows[i])) question_end(d, &p->rows[i]);
    for (uint32_t i = 0; i < p->count && (i < p->landed || d->store_down); i++)
        if (!is_question(&p->rows[i]) && row_follow(d, &p->rows[i], saved_out)) return true;
    landed_end(d);
    return false;
}

uint64_t tb_persist_incarnation_written(struct tb_daemon *d)
{
    const uint64_t incarnation = d->persist->incarnation;
    d->persist->incarnation = 0;
    return incarnation;
}

bool tb_persist_room(struct tb_daemon *d)
{
    return d->persist->count < WAITING_MAX || d->store_down;
}

void tb_persist_todo(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_persist *p = d->persist;
    TB_ASSERT(todo->kind == TB_CATALOG_PERSIST_RUN || todo->kind == TB_CATALOG_PERSIST_VERSION ||
              todo->kind == TB_CATALOG_PERSIST_POINTER);
    if (p->count == WAITING_MAX) oldest_drop(p);
    struct waiting *w = row_new(p);
    row_fill(d, w, todo);
    tb_catalog_unsaved(d->catalog, &w->model, &w->uid);
}

void tb_persist_settled(struct tb_daemon *d, bool all)
{
    struct tb_persist *p = d->persist;
    p->behind = !all;
    if (!d->store_down) writer_feed(d); /* else the tick tries again */
    if (!all) return;
    for (struct tb_held *held = p->held; held != NULL; held = held->next)
        if (held->after == UNSETTLED) held->after = p->first + p->count;
    held_release(d, d->store_down && p->count != 0 ? TB_SITE_STORE : TB_OK);
}

uint32_t tb_persist_waiting(const struct tb_daemon *d)
{
    return d->persist != NULL ? d->persist->count : 0;
}

void tb_persist_refused(struct tb_daemon *d)
{
    d->persist->held_refused++;
    d->persist->held_spent++;
}

const char *tb_persist_waiting_at(const struct tb_daemon *d, uint32_t *cursor)
{
    const struct tb_persist *p = d->persist;
    return p != NULL && *cursor < p->count ? p->rows[(*cursor)++].model.text : NULL;
}

void tb_persist_usage(const struct tb_daemon *d, struct tb_persist_usage *usage_out)
{
    static const struct tb_persist none;
    const struct tb_persist *p = d->persist != NULL ? d->persist : &none;
    *usage_out = (struct tb_persist_usage){
        .rows = {.used = p->count, .most = p->rows_most, .refused = p->rows_overtaken},
        .held = {.used = p->held_count,
                 .most = p->held_most,
                 .refused = p->held_refused,
                 .spent = p->held_spent},
        .rows_max = WAITING_MAX,
        .held_max = HELD_MAX};
}

void tb_persist_check(const struct tb_daemon *d)
{
    const struct tb_persist *p = d->persist;
    uint32_t held = 0;
    TB_ASSERT(p->count <= WAITING_MAX && p->count <= p->rows_most);
    TB_ASSERT(p->writing <= p->count && p->writing <= TB_STORE_BATCH_MAX);
    TB_ASSERT(p->landed <= p->count && (p->landed == 0 || !is_busy(p)));
    TB_ASSERT(p->recording <= RECORDS_MAX);
    struct tb_held *const *end = &p->held;
    for (; *end != NULL; end = &(*end)->next, held++)
        TB_ASSERT((*end)->after == UNSETTLED || (*end)->after <= p->first + p->count);
    TB_ASSERT(held == p->held_count && held <= HELD_MAX && p->held_end == end);
}

bool tb_persist_saved(const struct tb_daemon *d, const struct tb_id *uid)
{
    const struct tb_persist *p = d->persist;
    for (uint32_t i = 0; p != NULL && i < p->count; i++)
        if (tb_id_equal(&p->rows[i].uid, uid)) return false;
    return true;
}

/* P2: no model of a pattern is ever read without it. Questions that wait have their places before
 * it, and are answered without it. */
static void doubt_all(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    p->doubt_due = p->count == WAITING_MAX;
    if (p->doubt_due) return;
    *row_new(p) =
        (struct waiting){.row = {.kind = TB_STORE_DOUBT, .doubt = {.doubted = true}}, .followed = true};
    for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++)
        d->models.rows[i].doubted |= d->models.rows[i].life == TB_MODEL_READING;
    if (!d->store_down) writer_feed(d);
}

void tb_persist_tick(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    if (p->doubt_due) doubt_all(d);
    if (!is_busy(p)) {
        writer_feed(d);
        if (!is_busy(p) && p->landed == 0) store_recovers(d); /* nothing is left that could fail */
    } else if (!d->store_down && tb_time_since(p->asked_at, tb_clock_now()) > TB_MS(d->config->store_slow_ms))
        store_fails(d, "its disk has not answered within store.slow_ms");
}

void tb_persist_incarnation(struct tb_daemon *d, uint64_t seen)
{
    struct tb_persist *p = d->persist;
    if (d->incarnation >= INCARNATION_MAX) return;
    const uint64_t most = d->incarnation + INCARNATION_STEP;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->rows[i].row.kind == TB_STORE_INCARNATION)
            return; /* asked for already; a peer will say it again */
    if (p->count == WAITING_MAX) return;
    *row_new(p) =
        (struct waiting){.row = {.kind = TB_STORE_INCARNATION, .incarnation = seen < most ? seen + 1 : most},
                         .followed = true};
    writer_feed(d);
}

/* One that is still waiting is overtaken: the newest says all. */
void tb_persist_spent(struct tb_daemon *d, const struct tb_store_spent *spent)
{
    struct tb_persist *p = d->persist;
    for (uint32_t i = p->writing; i < p->count; i++) {
        struct tb_store_row *row = &p->rows[i].row;
        if (row->kind != TB_STORE_SPENT || !tb_name_equal(&row->spent.site, &spent->site)) continue;
        row->spent = *spent;
        return;
    }
    if (p->count == WAITING_MAX) return; /* the next one says it */
    *row_new(p) = (struct waiting){.row = {.kind = TB_STORE_SPENT, .spent = *spent}, .followed = true};
    if (!d->store_down) writer_feed(d);
}

/* One a search, which takes seconds: lost where the queue is full, and then the next
 * start searches again. */
void tb_persist_path(struct tb_daemon *d, const struct tb_store_path *path)
{
    struct tb_persist *p = d->persist;
    if (p->count == WAITING_MAX) return;
    *row_new(p) = (struct waiting){.row = {.kind = TB_STORE_PATH, .path = *path}, .followed = true};
    if (!d->store_down) writer_feed(d);
}

bool tb_persist_pause(struct tb_daemon *d, const struct tb_store_pause *pause)
{
    struct tb_persist *p = d->persist;
    if (p->count + 1 >= WAITING_MAX) return false; /* the last place is a change's */
    *row_new(p) = (struct waiting){.row = {.kind = TB_STORE_PAUSE, .pause = *pause}, .followed = true};
    if (!d->store_down) writer_feed(d);
    return true;
}

/* Behind the row of the run that ended the doubt. Where the queue is full the model stays doubted,
 * and the next start asks again. That of all patterns waits for a place. */
void tb_persist_doubt(struct tb_daemon *d, const struct tb_store_doubt *doubt)
{
    struct tb_persist *p = d->persist;
    if (doubt->model.text[0] == '\0') {
        doubt_all(d);
        return;
    }
    if (p->count == WAITING_MAX) return;
    *row_new(p) = (struct waiting){.row = {.kind = TB_STORE_DOUBT, .doubt = *doubt}, .followed = true};
    if (!d->store_down) writer_feed(d);
}

bool tb_persist_model(struct tb_daemon *d, struct tb_store_model *model)
{
    struct tb_persist *p = d->persist;
    if (p == NULL || d->store_down || p->doubt_due) return false;
    if (p->count + 1 >= WAITING_MAX) return false; /* the last place is a change's */
    *row_new(p) =
        (struct waiting){.row = {.kind = TB_STORE_MODEL_ASKED, .model = model}, .model = model->name};
    if (!d->store_down) writer_feed(d);
    return true;
}

/* Where the queue is full, or memory is short, it is not in the store: its home says it again after
 * a restart. */
void tb_persist_signed(struct tb_daemon *d, const struct tb_statement *what, const uint8_t *bytes,
                       uint32_t count)
{
    struct tb_persist *p = d->persist;
    TB_ASSERT(count > 0);
    const bool room = p != NULL && p->count + 1 < WAITING_MAX; /* the last place is the row's */
    uint8_t *copy = room ? tb_malloc(count) : NULL;
    if (copy == NULL) return;
    memcpy(copy, bytes, count);
    const struct tb_store_signed said = {*what, copy, count};
    *row_new(p) = (struct waiting){.row = {.kind = TB_STORE_SIGNED, .said = said}, .followed = true};
    if (!d->store_down) writer_feed(d);
}

bool tb_persist_backup(struct tb_daemon *d, struct tb_store_backup *backup)
{
    struct tb_persist *p = d->persist;
    TB_ASSERT(backup != NULL);
    if (p == NULL || d->store_down || p->count + 1 >= WAITING_MAX)
        return false; /* the last place is a change's */
    *row_new(p) = (struct waiting){.row = {.kind = TB_STORE_BACKUP, .backup = backup}, .followed = true};
    writer_feed(d);
    return true;
}

/* ---- opening and closing ---- */

enum tb_status tb_persist_open(struct tb_daemon *d)
{
    TB_ASSERT(d->persist == NULL && d->store != NULL);
    struct tb_persist *p = tb_calloc(1, sizeof *p);
    if (p == NULL) return TB_SITE_NOMEM;
    p->held_end = &p->held;
    const enum tb_status status = tb_store_writer_open(d->store, writer_done, d, &p->writer);
    if (status != TB_OK) {
        tb_free(p);
        return status;
    }
    d->persist = p;
    return TB_OK;
}

bool tb_persist_flush(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    if (p == NULL || (p->closing && p->refused)) return false;
    p->closing = true;
    p->refused = false;
    tb_audit_sums_end(d);
    writer_feed(d);
    if (!is_busy(p)) return false;
    tb_closing_grant(d);
    p->told = tb_store_writer_wait(p->writer, tb_closing_ms(d));
    return p->told;
}

void tb_persist_close(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    if (p == NULL) return;
    held_release(d, TB_SITE_DRAINING);
    TB_ASSERT(p->held == NULL && p->held_count == 0);
    if (p->count != 0) {
        tb_log(TB_LOG_ERROR, "store.unwritten", "rows=%u action=versions_are_found_again_in_the_arena",
               p->count);
    }
    if (!is_busy(p)) tb_closing_grant(d);
    const bool closed = tb_store_writer_close(p->writer, tb_closing_ms(d));
    if (!closed) tb_closing_left(d, "store", d->config->store_path);
    for (uint32_t i = 0; closed && i < p->count; i++)
        row_end(&p->rows[i]);
    d->store = NULL; /* closed, or in a write that does not end */
    tb_free(p);
    d->persist = NULL;
}
