/* reserve.c - memory that is prepared by tasks of the crew, a few pieces at a time, behind all that
 * a call waits for. A taker goes on where the task stands: both take pieces from one counter. */
#include "intra/client/memory/reserve.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"

#define BATCH_EACH 2u /* pieces of a thread in a turn: after it other tasks have theirs */

const char *tb_reserve_kind_name(enum tb_reserve_kind kind)
{
    static const char *const names[TB_RESERVE_KINDS] = {"shadow", "shelf", "copy", "staging"};
    TB_ASSERT(kind < TB_RESERVE_KINDS);
    return names[kind];
}

static const char *memory_name(enum tb_reserve_kind kind)
{
    static const char *const names[TB_RESERVE_KINDS] = {"tombolo-shadow", "tombolo-shelf", "tombolo-copy",
                                                        "tombolo-staging"};
    TB_ASSERT(kind < TB_RESERVE_KINDS);
    return names[kind];
}

const char *tb_reserve_life_name(enum tb_reserve_life life)
{
    static const char *const names[TB_RESERVE_LIVES] = {"asked",  "asked",   "ready", "refused",
                                                        "ending", "dropped", "free"};
    TB_ASSERT(life < TB_RESERVE_LIVES);
    return names[life];
}

uint64_t tb_reserve_ready_bytes(const struct tb_reserve *r)
{
    if (r->life == TB_RESERVE_REFUSED || atomic_load(&r->pieces.failed)) return 0;
    return tb_pieces_made_bytes(&r->pieces);
}

/* ---- the task ---- */

static void work(struct tb_reserve *r)
{
    struct tb_session *s = r->session;
    tb_pieces_fill_between(s->crew, &r->pieces, BATCH_EACH * tb_crew_slots(s->crew));
    if (tb_pieces_left(&r->pieces) > 0 || atomic_load(&r->pieces.failed)) return;
    if (r->pin) tb_gpu_pin(tb_registration_gpu(s, NULL), &r->pieces.memory);
}

static void turn(void *user, uint32_t piece, uint32_t slot);

static enum tb_reserve_event what_now(struct tb_reserve *r)
{
    if (atomic_load(&r->pieces.failed)) return TB_RESERVE_FAILS;
    if (r->life == TB_RESERVE_ENDING || tb_pieces_left(&r->pieces) == 0) return TB_RESERVE_ENDS;
    return tb_crew_submit(r->session->crew, turn, r) == TB_OK ? TB_RESERVE_GIVES_WAY : TB_RESERVE_ENDS;
}

static struct tb_shared_memory take_memory(struct tb_reserve *r)
{
    const struct tb_shared_memory memory = r->pieces.memory;
    r->pieces.memory = (struct tb_shared_memory){.memfd = -1};
    return memory;
}

static void say_refused(const struct tb_reserve_wish *wish)
{
    tb_log(TB_LOG_WARN, "memory.unprepared", "what=%s model=%s shard=%u bytes=%llu action=made_when_needed",
           tb_reserve_kind_name(wish->kind), wish->model->text, wish->shard, (unsigned long long)wish->bytes);
}

/* On a thread of the crew. It may have been taken or dropped while it stood in line: then its row
 * goes. */
static void turn(void *user, uint32_t piece, uint32_t slot)
{
    (void)piece, (void)slot;
    struct tb_reserve *r = user;
    struct tb_session *s = r->session;
    tb_session_lock(s);
    tb_reserve_step(&r->life, TB_RESERVE_TURN);
    const bool ours = r->life == TB_RESERVE_FILLING;
    tb_session_unlock(s);
    if (!ours) {
        tb_free(r);
        return;
    }
    work(r);
    const struct tb_reserve_wish wish = {
        .kind = r->kind, .model = &r->model, .shard = r->shard, .bytes = r->bytes};
    if (atomic_load(&r->pieces.failed)) say_refused(&wish);
    tb_session_lock(s);
    tb_reserve_step(&r->life, what_now(r));
    struct tb_shared_memory memory = {.memfd = -1};
    if (r->life == TB_RESERVE_REFUSED) memory = take_memory(r);
    tb_session_changed(s, false);
    tb_session_unlock(s); /* from here on it may be gone */
    tb_buffer_memory_free(s, &memory);
}

/* ---- asking ---- */

static bool is_like(const struct tb_reserve *r, const struct tb_reserve_wish *wish)
{
    return r->kind == wish->kind && r->shard == wish->shard && tb_name_equal(&r->model, wish->model) &&
           !tb_reserve_is_leaving(r->life);
}

uint32_t tb_reserve_count(const struct tb_session *s, const struct tb_reserve_wish *wish)
{
    TB_ASSERT_LOCKED(s);
    uint32_t count = 0;
    for (const struct tb_reserve *r = s->reserves; r != NULL; r = r->next)
        count += is_like(r, wish);
    return count;
}

void tb_reserve_ask(struct tb_session *s, const struct tb_reserve_wish *wish)
{
    TB_ASSERT_LOCKED(s);
    if (wish->bytes < TB_RESERVE_LEAST) return;
    struct tb_reserve *r = tb_calloc(1, sizeof *r);
    if (r == NULL) goto fail;
    r->session = s;
    r->kind = wish->kind;
    r->model = *wish->model;
    r->shard = wish->shard;
    r->bytes = wish->bytes;
    r->pin = wish->pin;
    r->of = wish->of;
    struct tb_shared_memory *memory = &r->pieces.memory;
    if (tb_buffer_memory_open(s, memory_name(r->kind), r->bytes, memory) != TB_OK) goto undo_row;
    if (tb_crew_submit(s->crew, turn, r) != TB_OK) goto undo_memory; /* it begins behind the lock */
    r->next = s->reserves;
    s->reserves = r;
    return;

undo_memory: /* it has no pages yet */
    if (s->fabric != NULL) tb_fabric_memory_goes(s->fabric, memory->bytes);
    tb_shared_memory_free(memory);
undo_row:
    tb_free(r);
fail:
    say_refused(wish);
}

/* ---- taking and dropping ---- */

static void unlink_row(struct tb_session *s, const struct tb_reserve *r)
{
    for (struct tb_reserve **at = &s->reserves; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            return;
        }
    }
}

/* Under the lock, let go while a task has it: the row is the caller's no more. `fill`: the caller
 * helps the task meanwhile, and what it gets may lack pieces all the same. */
static void leave(struct tb_session *s, struct tb_reserve *r, bool fill, struct tb_memory_pieces *rest_out)
{
    TB_ASSERT_LOCKED(s);
    tb_reserve_step(&r->life, TB_RESERVE_LEAVES);
    if (r->life == TB_RESERVE_ENDING) {
        atomic_store(&r->pieces.stop, !fill);
        tb_session_unlock(s);
        if (fill) tb_pieces_fill(s->crew, &r->pieces);
        tb_session_lock(s);
        while (r->life == TB_RESERVE_ENDING)
            tb_session_wait_unbounded(s);
    }
    unlink_row(s, r);
    rest_out->memory = take_memory(r);
    atomic_init(&rest_out->next, atomic_load(&r->pieces.next));
    atomic_init(&rest_out->failed, atomic_load(&r->pieces.failed));
    atomic_init(&rest_out->stop, false);
    if (r->life == TB_RESERVE_FREE) tb_free(r); /* else its task does */
}

static void drop_row(struct tb_session *s, struct tb_reserve *r)
{
    struct tb_memory_pieces rest;
    leave(s, r, false, &rest);
    tb_session_unlock(s);
    tb_buffer_memory_free(s, &rest.memory);
    tb_session_lock(s);
}

static struct tb_reserve *find_like(const struct tb_session *s, const struct tb_reserve_wish *wish)
{
    struct tb_reserve *r = s->reserves;
    while (r != NULL && !is_like(r, wish))
        r = r->next;
    return r;
}

/* One that is too small goes: what is made instead takes its place. */
static bool take_prepared(struct tb_session *s, const struct tb_reserve_wish *wish,
                          struct tb_shared_memory *memory_out)
{
    tb_session_lock(s);
    struct tb_reserve *r = find_like(s, wish);
    if (r != NULL && (r->bytes < wish->bytes || r->life == TB_RESERVE_REFUSED)) {
        drop_row(s, r);
        r = NULL;
    }
    if (r == NULL) {
        tb_session_unlock(s);
        return false;
    }
    struct tb_memory_pieces rest;
    s->reserve_counts.taken_bytes += r->bytes;
    s->reserve_counts.taken_ready_bytes += tb_reserve_ready_bytes(r);
    leave(s, r, true, &rest);
    tb_session_unlock(s);
    tb_pieces_fill(s->crew, &rest);
    if (atomic_load(&rest.failed)) {
        tb_buffer_memory_free(s, &rest.memory);
        return false;
    }
    *memory_out = rest.memory;
    return true;
}

enum tb_status tb_reserve_take(struct tb_session *s, const struct tb_reserve_wish *wish,
                               struct tb_shared_memory *memory_out)
{
    TB_ASSERT_UNLOCKED(s);
    TB_ASSERT(wish->bytes > 0);
    if (take_prepared(s, wish, memory_out)) return TB_OK;
    const enum tb_status status = tb_buffer_memory_new(s, memory_name(wish->kind), wish->bytes, memory_out);
    if (status != TB_OK) return status;
    tb_session_lock(s);
    s->reserve_counts.made_bytes += wish->bytes;
    tb_session_unlock(s);
    return TB_OK;
}

void tb_reserve_drop_of(struct tb_session *s, const struct tb_registration *of)
{
    TB_ASSERT_LOCKED(s);
    struct tb_reserve *r = s->reserves;
    while (r != NULL) {
        if (r->of != of || tb_reserve_is_leaving(r->life)) {
            r = r->next;
            continue;
        }
        drop_row(s, r);
        r = s->reserves;
    }
}

void tb_reserve_drop(struct tb_session *s, enum tb_reserve_kind kind, const struct tb_name *model)
{
    TB_ASSERT_LOCKED(s);
    const struct tb_reserve_wish wish = {.kind = kind, .model = model};
    struct tb_reserve *r;
    while ((r = find_like(s, &wish)) != NULL)
        drop_row(s, r);
}

void tb_reserves_end(struct tb_session *s)
{
    tb_session_lock(s);
    while (s->reserves != NULL)
        drop_row(s, s->reserves);
    tb_session_unlock(s);
}

/* ---- invariants ---- */

void tb_reserves_check(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_reserve *r = s->reserves; r != NULL; r = r->next) {
        TB_ASSERT(r->session == s && r->kind < TB_RESERVE_KINDS);
        TB_ASSERT(r->life != TB_RESERVE_DROPPED); /* such a row is in no list */
        TB_ASSERT((r->pieces.memory.bytes == NULL) == (r->life == TB_RESERVE_REFUSED));
    }
}
