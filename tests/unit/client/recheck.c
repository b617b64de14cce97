/* P1 P7: a reader says that a chunk served here is damaged. The own digest alone decides what
 * becomes of the chunk.
 *
 * Covers: intra/client/publish/chunk_recheck.c. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "intra/client/follow/staging.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"
#include "unit/client/subscriber.h"

static void doubt(struct fake *f, const struct tb_uid *uid, uint32_t shard, uint32_t chunk)
{
    struct tb_msg_doubt m = {.shard = shard, .chunk = chunk};
    memcpy(m.uid.bytes, uid->bytes, sizeof m.uid.bytes);
    fake_doubt(f, 0, &m);
}

/* Returns when the session has heard all that was sent before: this doubt is answered behind it. */
static void sync_with(struct subscriber *w)
{
    const uint32_t before = fake_seen(&w->f, TB_MSG_DOUBTED);
    static uint32_t chunk = 1; /* a good one of shard 1, another each time */
    doubt(&w->f, &w->uid, 1, chunk++ % 2);
    fake_wait_seen(&w->f, TB_MSG_DOUBTED, before + 1);
}

static struct tb_msg_doubted answered(struct fake *f, uint32_t count)
{
    fake_wait_seen(f, TB_MSG_DOUBTED, count);
    pthread_mutex_lock(&f->lock);
    const struct tb_msg_doubted m = f->doubted;
    pthread_mutex_unlock(&f->lock);
    return m;
}

/* Where the first tensor of shard 0 stands in the staging, which the library shows read-only. */
static uint8_t *staged_bytes(const struct subscriber *w)
{
    struct tb_item item = {.struct_bytes = sizeof item};
    CHECK_OK(tb_staged_item(w->sub, &w->uid, 0, &item));
    return (uint8_t *)(uintptr_t)item.bytes;
}

static void staged(struct subscriber *w)
{
    subscriber_open(w, 2, false);
    CHECK_OK(tb_stage(w->sub, &w->uid, 20000));
}

static bool has_right_bytes(const struct subscriber *w)
{
    return memcmp(staged_bytes(w), w->v->shards[0].bytes, SUBSCRIBER_TENSOR_BYTES) == 0;
}

/* The gateway heard that the staging is whole, or that it is not. */
static struct tb_msg_progress heard(struct subscriber *w, bool whole)
{
    for (;;) {
        pthread_mutex_lock(&w->f.lock);
        const struct tb_msg_progress m = w->f.progress;
        const uint32_t seen = w->f.seen[TB_MSG_PROGRESS];
        pthread_mutex_unlock(&w->f.lock);
        if (seen > 0 && m.whole == whole) return m;
        fake_wait_seen(&w->f, TB_MSG_PROGRESS, seen + 1);
    }
}

static void a_damaged_staged_chunk_is_fetched_again(void **state)
{
    (void)state;
    struct subscriber w;
    staged(&w);
    (void)heard(&w, true);
    staged_bytes(&w)[7] ^= 1;
    doubt(&w.f, &w.uid, 0, 0);
    const struct tb_msg_doubted m = answered(&w.f, 1);
    assert_int_equal(m.found, TB_MSG_FOUND_AGAIN);
    assert_int_equal(m.shard | m.chunk, 0);
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 0), TB_AGAIN); /* P1: a damaged version is not activated */
    const struct tb_msg_progress lacks = heard(&w, false);
    assert_int_equal(lacks.held_chunks, lacks.total_chunks - 1);
    fake_plan(&w.f, 0, 1);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    (void)heard(&w, true);
    assert_true(has_right_bytes(&w));
    subscriber_close(&w);
}

/* P7: a reader that lies costs one digest a chunk and second, and nothing is dropped for it. */
static void a_good_chunk_stays(void **state)
{
    (void)state;
    struct subscriber w;
    staged(&w);
    const tb_time_ns began = tb_clock_now();
    for (int i = 0; i < 50; i++)
        doubt(&w.f, &w.uid, 0, 0);
    assert_int_equal(answered(&w.f, 1).found, TB_MSG_FOUND_GOOD);
    sync_with(&w);
    const uint32_t seconds = (uint32_t)(tb_time_since(began, tb_clock_now()) / TB_SECONDS(1));
    assert_in_range(fake_seen(&w.f, TB_MSG_DOUBTED), 2, seconds + 2);
    CHECK_OK(tb_stage(w.sub, &w.uid, 0));
    subscriber_close(&w);
}

/* Numbers that name nothing here, as a reader may say them, are passed over. */
static void a_chunk_that_is_not_here_is_not_looked_at(void **state)
{
    (void)state;
    struct subscriber w;
    staged(&w);
    const struct tb_uid other = {{9}};
    doubt(&w.f, &w.uid, 2, 0);
    doubt(&w.f, &w.uid, UINT32_MAX, 0);
    doubt(&w.f, &w.uid, 0, w.v->shards[0].manifest.chunk_count);
    doubt(&w.f, &w.uid, 0, UINT32_MAX);
    doubt(&w.f, &other, 0, 0);
    sync_with(&w);
    assert_int_equal(fake_seen(&w.f, TB_MSG_DOUBTED), 1);
    CHECK_OK(tb_stage(w.sub, &w.uid, 0));
    subscriber_close(&w);
}

/* P2: nothing lands in memory that the rollout computes from. The chunk stays, and nobody
 * is sent there for it. */
static void a_version_that_is_computed_from_is_served_no_more(void **state)
{
    (void)state;
    struct subscriber w;
    staged(&w);
    fake_go(&w.f, 1);
    CHECK_OK(tb_activate(w.sub, &w.uid, NULL));
    const uint32_t exports = fake_seen(&w.f, TB_MSG_EXPORT);
    staged_bytes(&w)[7] ^= 1;
    doubt(&w.f, &w.uid, 0, 0);
    assert_int_equal(answered(&w.f, 1).found, TB_MSG_FOUND_GONE);
    fake_wait_seen(&w.f, TB_MSG_EXPORT, exports + 1);
    pthread_mutex_lock(&w.f.lock);
    assert_int_equal(w.f.exported.export_id, 0);
    pthread_mutex_unlock(&w.f.lock);
    assert_false(has_right_bytes(&w));
    subscriber_close(&w);
}

/* An encoded chunk beside the staging: what it decodes to is the reader's to judge, whether it is
 * damaged its holder's. */
static void a_damaged_encoded_chunk_is_shown_to_nobody(void **state)
{
    (void)state;
    struct subscriber w;
    staged(&w);
    struct tb_shelf *shelf = &w.s->stagings->shelf;
    const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, "object", 6};
    struct tb_msg_doubt m = {.shard = 1, .encoded = true};
    memcpy(m.uid.bytes, w.uid.bytes, sizeof m.uid.bytes);
    const uint32_t line = w.v->shards[0].manifest.chunk_count;
    tb_shelf_put(shelf, line, &coded);
    memcpy(shelf->room + TB_DIGEST_BYTES, "abject", 6);
    fake_doubt(&w.f, 0, &m);
    assert_int_equal(answered(&w.f, 1).found, TB_MSG_FOUND_GONE);
    assert_true(tb_shelf_recheck(shelf, line)); /* it has none */
    CHECK_OK(tb_stage(w.sub, &w.uid, 0));       /* its chunk is whole */
    m.shard = 0;
    tb_shelf_put(shelf, 0, &coded);
    fake_doubt(&w.f, 0, &m);
    assert_int_equal(answered(&w.f, 2).found, TB_MSG_FOUND_GOOD);
    subscriber_close(&w);
}

/* ---- what is sealed ---- */

#define SEALED_BYTES 100000u

struct publisher {
    struct fake f;
    struct tb_session *s;
    uint8_t *memory;
    struct tb_uid uid;
};

static void published(struct publisher *p, enum tb_publish_mode mode)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    struct tb_registration *r;
    const uint64_t shape[] = {SEALED_BYTES};
    memset(p, 0, sizeof *p);
    fake_open(&p->f);
    p->s = fake_session_open(&p->f, "rank0", NULL);
    p->memory = calloc(1, SEALED_BYTES);
    const struct tb_tensor_desc t = {
        .name = "t0", .dtype = "U8", .rank = 1, .shape = shape, .memory = p->memory};
    CHECK_OK(tb_register(p->s, &t, 1, &r));
    CHECK_OK(tb_run_open(p->s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = (uint32_t)mode,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = 1,
                                         .shard_count = 1,
                                         .registration = r,
                                         .timeout_ms = 20000};
    CHECK_OK(tb_publish(p->s, &o, NULL));
    p->uid = fake_uid(fake_version(&p->f, 1));
}

static void publisher_close(struct publisher *p)
{
    tb_session_close(p->s);
    fake_close(&p->f);
    free(p->memory);
}

static uint8_t found_of(struct publisher *p)
{
    doubt(&p->f, &p->uid, 0, 0);
    return answered(&p->f, 1).found;
}

static void memory_in_place_that_the_trainer_wrote_to_is_told(void **state)
{
    (void)state;
    struct publisher p;
    published(&p, TB_PUBLISH_IN_PLACE);
    p.memory[7] ^= 1;
    assert_int_equal(found_of(&p), TB_MSG_FOUND_SPOILED);
    assert_true(fake_read(&p.f, fake_version(&p.f, 1), 0) != TB_OK); /* no reader is let in any more */
    publisher_close(&p);
}

/* A shadow is what is served: the trainer has its memory back. */
static void a_write_of_the_trainer_beside_a_shadow_is_no_damage(void **state)
{
    (void)state;
    struct publisher p;
    published(&p, TB_PUBLISH_SHADOW);
    p.memory[7] ^= 1;
    assert_int_equal(found_of(&p), TB_MSG_FOUND_GOOD);
    CHECK_OK(fake_read(&p.f, fake_version(&p.f, 1), 0));
    publisher_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_staged_chunk_is_fetched_again),
        cmocka_unit_test(a_good_chunk_stays),
        cmocka_unit_test(a_chunk_that_is_not_here_is_not_looked_at),
        cmocka_unit_test(a_version_that_is_computed_from_is_served_no_more),
        cmocka_unit_test(a_damaged_encoded_chunk_is_shown_to_nobody),
        cmocka_unit_test(memory_in_place_that_the_trainer_wrote_to_is_told),
        cmocka_unit_test(a_write_of_the_trainer_beside_a_shadow_is_no_damage),
    };
    return cmocka_run_group_tests_name("client.recheck", tests, NULL, NULL);
}
