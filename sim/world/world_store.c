/* world_store.c - gateway/store/store.h and store_writer.h over rows in memory: durable when a call
 * returns, unless the disk lied about its last writes (world_store_write_lost) or is full. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/store/store_audit.h"
#include "gateway/store/store_load.h"
#include "gateway/store/store_writer.h"
#include "world.h"
#include "world_check.h"
#include "world_machine.h"

struct tb_store {
    struct store_file *file;
};

enum tb_status tb_store_open(const char *path, const struct tb_disk_keys *keys, struct tb_store **store_out,
                             char error_out[256])
{
    (void)path, (void)keys;
    error_out[0] = '\0';
    struct tb_store *s = tb_calloc(1, sizeof *s);
    s->file = &the->sites[the->current->site].store;
    *store_out = s;
    return TB_OK;
}

void tb_store_close(struct tb_store *store)
{
    tb_free(store);
}

const char *tb_store_error(const struct tb_store *store)
{
    (void)store;
    return "the disk is full";
}

static enum tb_status begin(struct tb_store *s)
{
    struct store_file *f = s->file;
    if (the->now < f->full_until) return TB_SITE_STORE;
    for (uint32_t i = DISK_PAST - 1; i > 0; i--)
        f->past[i] = f->past[i - 1];
    f->past[0] = f->now;
    f->writes++;
    return TB_OK;
}

void world_store_write_lost(struct store_file *f, uint32_t writes)
{
    const uint32_t most = f->writes < DISK_PAST ? (uint32_t)f->writes : DISK_PAST;
    const uint32_t lost = writes < most ? writes : most;
    if (lost > 0) f->now = f->past[lost - 1];
    f->writes = 0;
}

enum tb_status tb_store_incarnation(struct tb_store *s, uint64_t at_least, uint64_t *incarnation_out)
{
    const enum tb_status status = begin(s);
    if (status != TB_OK) return status;
    const uint64_t next = s->file->now.incarnation + 1;
    *incarnation_out = s->file->now.incarnation = next > at_least ? next : at_least;
    return TB_OK;
}

/* That a copy was put back shows in what peers have seen of the store, not in its file. */
enum tb_store_origin tb_store_origin(const struct tb_store *store)
{
    (void)store;
    return TB_STORE_SAME;
}

enum tb_status tb_store_own(struct tb_store *s, const struct tb_name *doubted, uint32_t count, bool first)
{
    (void)s, (void)doubted, (void)first;
    TB_ASSERT(count == 0);
    return TB_OK;
}

enum tb_status tb_store_doubt(struct tb_store *s, const struct tb_store_doubt *doubt)
{
    const enum tb_status status = begin(s);
    if (status != TB_OK) return status;
    struct disk *d = &s->file->now;
    uint32_t i = 0;
    while (i < d->doubt_count && !tb_name_equal(&d->doubts[i], &doubt->model))
        i++;
    if (doubt->doubted && i == d->doubt_count) {
        TB_ASSERT(i < DISK_DOUBTS);
        d->doubts[d->doubt_count++] = doubt->model;
    } else if (!doubt->doubted && i < d->doubt_count) {
        d->doubts[i] = d->doubts[--d->doubt_count];
    }
    return TB_OK;
}

enum tb_status tb_store_signed(struct tb_store *s, const struct tb_store_signed *said)
{
    struct disk_said *d = &s->file->said[s->file->said_count % DISK_SAID];
    if (the->now < s->file->full_until) return TB_SITE_STORE;
    TB_ASSERT(said->count <= sizeof d->bytes);
    d->count = said->count;
    memcpy(d->bytes, said->bytes, said->count);
    s->file->said_count++;
    return TB_OK;
}

enum tb_status tb_store_load_signed(struct tb_store *s, tb_store_signed_fn said, void *user)
{
    for (uint32_t i = 0; i < s->file->said_count && i < DISK_SAID; i++)
        said(user, s->file->said[i].bytes, s->file->said[i].count);
    return TB_OK;
}

enum tb_status tb_store_load_doubts(struct tb_store *s, tb_store_doubt_fn doubt, void *user)
{
    for (uint32_t i = 0; i < s->file->now.doubt_count; i++)
        doubt(user, &s->file->now.doubts[i]);
    return TB_OK;
}

/* The record is no part of what the world asks for. */
void tb_store_audit_bounds(struct tb_store *s, uint64_t bytes, uint32_t days)
{
    (void)s, (void)bytes, (void)days;
}

void tb_store_audit_file(struct tb_store *s, struct tb_audit_lines *lines)
{
    (void)s, (void)lines;
}

enum tb_status tb_store_settings(struct tb_store *s, const struct tb_store_setting *settings, uint32_t count,
                                 tb_store_changed_fn changed, void *user)
{
    (void)s, (void)settings, (void)count, (void)changed, (void)user;
    return TB_OK;
}

enum tb_status tb_store_run(struct tb_store *s, const struct tb_catalog_run *run,
                            const struct tb_store_audit *audit)
{
    (void)audit;
    const enum tb_status status = begin(s);
    if (status != TB_OK) return status;
    struct disk *d = &s->file->now;
    uint32_t i = 0;
    while (i < d->run_count && !tb_id_equal(&d->runs[i].id, &run->id))
        i++;
    TB_ASSERT(i < DISK_RUNS);
    d->runs[i] = *run;
    if (i == d->run_count) d->run_count++;
    return TB_OK;
}

static struct tb_store_version *row_of(struct disk *d, const struct tb_id *uid)
{
    uint32_t i = 0;
    while (i < d->version_count && !tb_id_equal(&d->versions[i].key.uid, uid))
        i++;
    TB_ASSERT(i < DISK_VERSIONS);
    if (i == d->version_count) d->versions[d->version_count++] = (struct tb_store_version){.state = 0};
    return &d->versions[i];
}

static uint32_t state_of(const struct disk *d, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < d->version_count; i++)
        if (tb_id_equal(&d->versions[i].key.uid, uid)) return d->versions[i].state;
    return 0;
}

enum tb_status tb_store_version(struct tb_store *s, const struct tb_store_version *version,
                                const struct tb_store_audit *audit)
{
    (void)audit;
    /* Judged as it is said first: with a full disk it is written later, when who was gone may be
     * back. */
    world_check_ended(the->current->site, version, state_of(&s->file->now, &version->key.uid));
    const enum tb_status status = begin(s);
    if (status != TB_OK) return status;
    *row_of(&s->file->now, &version->key.uid) = *version;
    return TB_OK;
}

enum tb_status tb_store_pointer(struct tb_store *s, const struct tb_store_pointer *pointer,
                                const struct tb_store_audit *audit)
{
    (void)audit;
    const enum tb_status status = begin(s);
    if (status != TB_OK || !pointer->pin) return status;
    struct disk *d = &s->file->now;
    for (uint32_t i = 0; pointer->pinned && i < d->version_count; i++)
        if (tb_name_equal(&d->versions[i].key.model, &pointer->model)) d->versions[i].pinned = false;
    row_of(d, &pointer->uid)->pinned = pointer->pinned;
    return TB_OK;
}

enum tb_status tb_store_load(struct tb_store *s, tb_store_run_fn run, tb_store_version_fn version, void *user)
{
    const struct disk *d = &s->file->now;
    enum tb_status status = TB_OK;
    for (uint64_t order = 1; order <= DISK_RUNS; order++)
        for (uint32_t i = 0; status == TB_OK && i < d->run_count; i++)
            if (d->runs[i].order == order) status = run(user, &d->runs[i]);
    for (uint32_t i = 0; status == TB_OK && i < d->version_count; i++)
        status = version(user, &d->versions[i]);
    return status;
}

enum tb_status tb_store_load_withdrawn(struct tb_store *s, tb_store_withdrawn_fn withdrawn, void *user)
{
    const struct disk *d = &s->file->now;
    for (uint32_t i = 0; i < d->version_count; i++)
        if (d->versions[i].state == TB_VERSION_ENDED_WITHDRAWN)
            withdrawn(user, &(struct tb_store_withdrawal){.key = d->versions[i].key,
                                                          .here = d->versions[i].withdrawn_here});
    return TB_OK;
}

enum tb_status tb_store_load_spent(struct tb_store *s, tb_store_spent_fn spent, void *user)
{
    (void)s, (void)spent, (void)user; /* no site of this world has a budget */
    return TB_OK;
}

enum tb_status tb_store_load_paths(struct tb_store *s, tb_store_path_fn path, void *user)
{
    (void)s, (void)path, (void)user; /* a gateway may forget what its paths bear */
    return TB_OK;
}

enum tb_status tb_store_load_pauses(struct tb_store *s, tb_store_pause_fn pause, void *user)
{
    (void)s, (void)pause, (void)user; /* no operator of this world pauses anything */
    return TB_OK;
}

/* ---- gateway/store/store_writer.h: durable at once, and known when the loop comes to it ---- */

struct tb_store_writer {
    struct tb_store *store;
    void (*done)(void *user);
    void *user;
    bool has_result;
    struct tb_store_written written;
};

enum tb_status tb_store_writer_open(struct tb_store *store, void (*done)(void *user), void *user,
                                    struct tb_store_writer **writer_out)
{
    struct tb_store_writer *w = tb_calloc(1, sizeof *w);
    w->store = store;
    w->done = done;
    w->user = user;
    *writer_out = w;
    return TB_OK;
}

static enum tb_status row_write(struct tb_store *s, const struct tb_store_row *row, uint64_t *incarnation_out)
{
    const struct tb_store_audit audit = {row->what, row->who, row->why, row->wall_ms};
    if (row->kind == TB_STORE_RUN) return tb_store_run(s, &row->run, &audit);
    if (row->kind == TB_STORE_VERSION) return tb_store_version(s, &row->version, &audit);
    if (row->kind == TB_STORE_POINTER) return tb_store_pointer(s, &row->pointer, &audit);
    if (row->kind == TB_STORE_DOUBT) return tb_store_doubt(s, &row->doubt);
    if (row->kind == TB_STORE_PATH) return TB_OK; /* forgotten */
    if (row->kind == TB_STORE_RECORD || row->kind == TB_STORE_RECORDS_ASKED) return TB_OK;
    if (row->kind == TB_STORE_SIGNED) return tb_store_signed(s, &row->said);
    return tb_store_incarnation(s, row->incarnation, incarnation_out);
}

void tb_store_writer_submit(struct tb_store_writer *w, const struct tb_store_row *const *rows, uint32_t count)
{
    TB_ASSERT(!w->has_result);
    w->written = (struct tb_store_written){.count = count};
    for (uint32_t i = 0; w->written.status == TB_OK && i < count; i++)
        w->written.status =
            row_write(w->store, rows[i], &w->written.incarnation); /* full: from the first on */
    if (w->written.status != TB_OK) strcpy(w->written.error, "the disk is full");
    w->has_result = true;
    w->done(w->user);
}

bool tb_store_writer_take(struct tb_store_writer *w, struct tb_store_written *written_out)
{
    const bool has = w->has_result;
    if (has) *written_out = w->written;
    w->has_result = false;
    return has;
}

bool tb_store_writer_wait(struct tb_store_writer *w, uint32_t ms)
{
    (void)w, (void)ms;
    return true;
}

bool tb_store_writer_close(struct tb_store_writer *w, uint32_t ms)
{
    (void)ms;
    tb_store_close(w->store);
    tb_free(w);
    return true;
}
