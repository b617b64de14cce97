/* prepared_rank.c - see its header. Linked with the functions that make pages and that submit
 * tasks. */
#include "unit/client/prepared_rank.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a test holds ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static uint32_t hold_piece = PREPARED_NONE, filled, submits_until_refused = PREPARED_NONE;
static bool held;

enum tb_status __real_tb_shared_memory_fill(const struct tb_shared_memory *memory, uint32_t piece);
enum tb_status __wrap_tb_shared_memory_fill(const struct tb_shared_memory *memory, uint32_t piece);
enum tb_status __wrap_tb_shared_memory_fill(const struct tb_shared_memory *memory, uint32_t piece)
{
    pthread_mutex_lock(&gate);
    while (piece == hold_piece && memory->count >= PREPARED_TENSOR) {
        held = true;
        pthread_cond_broadcast(&gate_changed);
        pthread_cond_wait(&gate_changed, &gate);
    }
    pthread_mutex_unlock(&gate);
    const enum tb_status status = __real_tb_shared_memory_fill(memory, piece);
    pthread_mutex_lock(&gate);
    filled++;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
    return status;
}

enum tb_status __real_tb_crew_submit(struct tb_crew *crew, tb_crew_fn fn, void *user);
enum tb_status __wrap_tb_crew_submit(struct tb_crew *crew, tb_crew_fn fn, void *user);
enum tb_status __wrap_tb_crew_submit(struct tb_crew *crew, tb_crew_fn fn, void *user)
{
    pthread_mutex_lock(&gate);
    const bool refused = submits_until_refused == 0;
    if (submits_until_refused != PREPARED_NONE && !refused) submits_until_refused--;
    pthread_mutex_unlock(&gate);
    return refused ? TB_SITE_NOMEM : __real_tb_crew_submit(crew, fn, user);
}

void prepared_hold(uint32_t piece)
{
    pthread_mutex_lock(&gate);
    hold_piece = piece;
    held = false;
    filled = 0;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
}

void prepared_let_go(void)
{
    pthread_mutex_lock(&gate);
    hold_piece = PREPARED_NONE;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
}

void prepared_wait_held(void)
{
    pthread_mutex_lock(&gate);
    while (!held)
        pthread_cond_wait(&gate_changed, &gate);
    pthread_mutex_unlock(&gate);
}

void prepared_wait_filled(uint32_t count)
{
    pthread_mutex_lock(&gate);
    while (filled < count)
        pthread_cond_wait(&gate_changed, &gate);
    pthread_mutex_unlock(&gate);
}

uint32_t prepared_filled_now(void)
{
    pthread_mutex_lock(&gate);
    const uint32_t count = filled;
    pthread_mutex_unlock(&gate);
    return count;
}

void prepared_refuse_submits(uint32_t after)
{
    pthread_mutex_lock(&gate);
    submits_until_refused = after;
    pthread_mutex_unlock(&gate);
}

static void block(void *user, uint32_t piece, uint32_t slot)
{
    (void)piece, (void)slot;
    struct prepared_blocker *b = user;
    pthread_mutex_lock(&b->lock);
    b->runs = true;
    pthread_cond_broadcast(&b->changed);
    while (!b->ends)
        pthread_cond_wait(&b->changed, &b->lock);
    b->gone = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

void prepared_block_worker(struct tb_session *s, struct prepared_blocker *b)
{
    *b = (struct prepared_blocker){.runs = false};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    CHECK_OK(tb_crew_submit(s->crew, block, b));
    pthread_mutex_lock(&b->lock);
    while (!b->runs)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void prepared_unblock_worker(struct prepared_blocker *b)
{
    pthread_mutex_lock(&b->lock);
    b->ends = true;
    pthread_cond_broadcast(&b->changed);
    while (!b->gone)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
}

/* ---- a rank ---- */

struct tb_session *prepared_session_of(struct fake *f, bool no_prepare)
{
    const struct tb_session_options o = {.struct_bytes = sizeof o,
                                         .threads = 2,
                                         .gateway = f->path,
                                         .name = "rank",
                                         .host = "host-a",
                                         .no_prepare = no_prepare};
    struct tb_session *s = NULL;
    CHECK_OK(tb_session_open(&o, &s));
    return s;
}

static struct tb_registration *register_one(struct tb_session *s, void *memory)
{
    const uint64_t shape[] = {PREPARED_TENSOR / 2};
    const struct tb_tensor_desc t = {
        .name = "t0", .dtype = "BF16", .rank = 1, .shape = shape, .memory = memory};
    struct tb_registration *r = NULL;
    CHECK_OK(tb_register(s, &t, 1, &r));
    return r;
}

void prepared_rank_open(struct prepared_rank *k, bool no_prepare)
{
    memset(k, 0, sizeof *k);
    prepared_let_go();
    fake_open(&k->f);
    k->s = prepared_session_of(&k->f, no_prepare);
    k->memory = malloc(PREPARED_TENSOR);
    memset(k->memory, 0x5a, PREPARED_TENSOR);
    k->r = register_one(k->s, k->memory);
    k->run.struct_bytes = sizeof k->run;
    CHECK_OK(tb_run_open(k->s, "policy", "k", &k->run));
}

void prepared_rank_close(struct prepared_rank *k)
{
    tb_session_close(k->s);
    free(k->memory);
    fake_close(&k->f);
}

struct tb_publish_options prepared_options_of(struct prepared_rank *k, uint64_t number)
{
    return (struct tb_publish_options){.struct_bytes = sizeof(struct tb_publish_options),
                                       .model = "policy",
                                       .run = &k->run.run,
                                       .number = number,
                                       .shard_count = 1,
                                       .registration = k->r,
                                       .timeout_ms = 60000};
}

void prepared_prepare(struct prepared_rank *k)
{
    struct tb_publish_options o = prepared_options_of(k, 0);
    o.run = NULL; /* it is not looked at */
    CHECK_OK(tb_publish_prepare(k->s, &o));
}

int prepared_publish(struct prepared_rank *k, uint64_t number)
{
    memset(k->memory, (int)number, 4096);
    const struct tb_publish_options o = prepared_options_of(k, number);
    return tb_publish(k->s, &o, NULL);
}

void *prepared_publish_one(void *user)
{
    struct prepared_rank *k = user;
    k->published = prepared_publish(k, 1);
    return NULL;
}

void *prepared_unregister_it(void *user)
{
    struct prepared_rank *k = user;
    CHECK_OK(tb_unregister(k->r));
    return NULL;
}

static bool any_in(const struct tb_session *s, enum tb_reserve_life life)
{
    for (const struct tb_reserve *r = s->reserves; r != NULL; r = r->next)
        if (r->life == life) return true;
    return false;
}

/* Until no reserve of the session is at work. */
void prepared_wait_prepared(struct tb_session *s)
{
    tb_session_lock(s);
    while (any_in(s, TB_RESERVE_QUEUED) || any_in(s, TB_RESERVE_FILLING))
        tb_session_wait_unbounded(s);
    tb_session_unlock(s);
}

void prepared_wait_ending(struct tb_session *s)
{
    bool ending = false;
    while (!ending) {
        tb_session_lock(s);
        ending = any_in(s, TB_RESERVE_ENDING);
        tb_session_unlock(s);
        sched_yield();
    }
}

struct tb_reserve_counts prepared_counts_of(struct tb_session *s)
{
    tb_session_lock(s);
    const struct tb_reserve_counts counts = s->reserve_counts;
    tb_session_unlock(s);
    return counts;
}

uint32_t prepared_reserves_of(struct tb_session *s)
{
    uint32_t count = 0;
    tb_session_lock(s);
    for (const struct tb_reserve *r = s->reserves; r != NULL; r = r->next)
        count++;
    tb_session_unlock(s);
    return count;
}

void prepared_must_say(struct tb_session *s, const char *words)
{
    static char text[8192];
    CHECK_OK(tb_status(s, "session", text, sizeof text, NULL));
    if (strstr(text, words) == NULL) fail_msg("no %s in %s", words, text);
}

/* The gateway has read the version, and it is the rank's. */
void prepared_must_land(struct prepared_rank *k, uint64_t number)
{
    fake_land(&k->f, number);
    assert_memory_equal(fake_version(&k->f, number)->shards[0].bytes, k->memory, PREPARED_TENSOR);
}
