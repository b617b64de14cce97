/* parked_seals_bounded.c - seals that wait for room are memory beside the arena, and bounded
 * (P7): a session that has too many is refused.
 *
 * Covers: gateway/daemon/sessions/session_seal.c */
#include <stdlib.h>
#include <string.h>

#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/versions.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_unpublish.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"
#include "tests/unit/daemon/sealed_version.h"

#define SEAL_BYTES (24u << 20) /* of each SEAL: nearly all of it where its bytes are to be read */
#define SEALS      4u

/* The version before was taken back, but for a reader that has it still: so its space is on its
 * way, and seals wait for it. */
static void begin(struct sealed *s)
{
    /* Making what is sent may take longer than the shortest lease, and nobody renews it
     * meanwhile. */
    sealed_begin_with(s, "{policy: {home: east, publish: [\"unix:*\"], may_fence: [\"unix:*\"]}}", 60000);
    tb_arena_region_ref(s->copy->region);
    CHECK_OK(tb_catalog_withdraw(s->home.d->catalog, tb_clock_now(), &s->made.key.uid, "test"));
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (!tb_copy_leaves(s->copy) && tb_clock_now() < until)
        (void)uv_run(&s->home.d->loop, UV_RUN_ONCE);
    assert_true(tb_copy_leaves(s->copy));
}

/* The reader is gone: there is room. */
static void room_comes(struct sealed *s)
{
    tb_arena_region_unref(s->copy->region);
}

static void end(struct sealed *s)
{
    room_comes(s);
    sealed_end(s);
}

static struct tb_id version_open(struct worker *w, const struct tb_id *run, uint64_t number)
{
    struct tb_reader r;
    struct tb_msg_version m = {.bytes = 0};
    struct tb_msg_version_open q = {.run = *run, .number = number, .shard_count = 1};
    CHECK_OK(tb_name_set(&q.model, "policy"));
    const uint64_t request = worker_request(w);
    tb_msg_version_open_encode(&q, worker_begin(w, TB_MSG_VERSION_OPEN, request, 4096));
    worker_send(w);
    assert_int_equal(worker_answer(w, request, &r), TB_MSG_VERSION);
    CHECK_OK(tb_msg_version_decode(&r, &m));
    return m.key.uid;
}

/* Of a shard as large as the one whose space is still taken. */
static uint64_t say_seal(struct worker *w, const struct version *made, const struct tb_id *uid)
{
    const struct tb_manifest *m = made->list[0];
    const size_t head_bytes = tb_manifest_head_bytes(m);
    uint8_t *head = calloc(1, head_bytes), *source = calloc(1, SEAL_BYTES);
    struct tb_writer writer;
    assert_true(head != NULL && source != NULL);
    tb_writer_init(&writer, head, head_bytes);
    tb_manifest_head_encode(m, &writer);
    const struct tb_msg_seal seal = {.uid = *uid,
                                     .export_id = 1,
                                     .head = {head, (uint32_t)head_bytes},
                                     .digests = {m->digests[0].bytes, m->chunk_count * TB_DIGEST_BYTES},
                                     .source = {source, SEAL_BYTES}};
    const uint64_t request = worker_request(w);
    tb_msg_seal_encode(&seal, worker_begin(w, TB_MSG_SEAL, request, SEAL_BYTES + head_bytes + 65536));
    worker_send(w);
    free(head);
    free(source);
    return request;
}

static uint64_t parked_bytes(const struct tb_daemon *d)
{
    uint64_t bytes = 0;
    for (const struct tb_parked_seal *p = d->parked; p != NULL; p = p->next)
        bytes += p->bytes;
    return bytes;
}

static void a_session_parks_no_more_than_one_large_seal(void **state)
{
    struct sealed s;
    struct version next;
    uint64_t most = 0, last = 0;
    (void)state;
    begin(&s);
    version_make(&next, 2, 1, SEALED_SHARD_BYTES);
    struct worker *w = worker_new(&s.home, "trainer");
    const struct tb_id run = worker_run_open(w, "another");
    const struct tb_id uid = version_open(w, &run, 1);
    for (uint32_t i = 0; i < SEALS; i++) {
        last = say_seal(w, &next, &uid);
        if (i < SEALS - 1) worker_sync(w);
        /* Looked at each time: on a slow machine the first is over before the last is said. */
        if (parked_bytes(s.home.d) > most) most = parked_bytes(s.home.d);
    }
    CHECK_STATUS(worker_reply(w, last), TB_SITE_NOMEM);
    assert_true(most >= SEAL_BYTES); /* the first ones wait */
    assert_true(most <= TB_MSG_FRAME_BYTES_MAX);
    worker_free(w);
    version_fini(&next);
    end(&s);
}

/* A seal that waits leaves with room, which takes it in, and with its session. */
static void seals_do_not_wait_for_ever(void **state)
{
    struct sealed s;
    struct version next;
    (void)state;
    begin(&s);
    version_make(&next, 2, 1, SEALED_SHARD_BYTES);
    struct worker *gone = worker_new(&s.home, "gone"), *w = worker_new(&s.home, "trainer");
    const struct tb_id run = worker_run_open(w, "another");
    const struct tb_id uid = version_open(w, &run, 1);
    assert_int_equal(home_table(&s.home, "parked_seal_bytes", "used"), 0);
    (void)say_seal(gone, &next, &uid);
    worker_sync(gone);
    const uint64_t bytes = home_table(&s.home, "parked_seal_bytes", "used");
    assert_true(bytes >= SEAL_BYTES);
    worker_free(gone);
    home_turn_until(&s.home, "parked_seal_bytes", 0);
    const uint64_t request = say_seal(w, &next, &uid);
    worker_sync(w);
    assert_int_equal(home_table(&s.home, "parked_seal_bytes", "used"), bytes);
    room_comes(&s);
    CHECK_OK(worker_reply(w, request));
    assert_int_equal(home_table(&s.home, "parked_seal_bytes", "used"), 0);
    assert_int_equal(home_table(&s.home, "parked_seal_bytes", "most"), bytes);
    worker_free(w);
    version_fini(&next);
    sealed_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_parks_no_more_than_one_large_seal),
        cmocka_unit_test(seals_do_not_wait_for_ever),
    };
    return cmocka_run_group_tests_name("parked_seals_bounded", tests, NULL, NULL);
}
