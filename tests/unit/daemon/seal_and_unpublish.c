/* seal_and_unpublish.c - SEAL frames that a gateway cannot take leave nothing behind, and each
 * UNPUBLISH is answered once, with the status of the shards that it asked for (P1, P3).
 *
 * Covers: gateway/daemon/sessions/session_seal.c gateway/daemon/sessions/session_unpublish.c
 * Covers: gateway/daemon/sessions/session_table.c gateway/daemon/sessions/held_reply.c */
#include <string.h>

#include "base/allocate.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/sessions/session_publish.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_unpublish.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"

#define MODELS_AWAY "{policy: {home: north, publish: [\"unix:*\"]}}"
#define MODELS_HERE "{policy: {home: east, publish: [\"unix:*\"]}}"
#define DRAINS_LONG MODELS_HERE "\ndrain_ms: 3600000" /* none ends while a slow machine asks */

/* A worker's session whose connection is away, within its lease. */
static struct tb_worker_session *session_put(struct tb_daemon *d, uint8_t id)
{
    struct tb_catalog_session c = {.id = {{id}}, .identity = "unix:1000"};
    CHECK_OK(tb_name_set(&c.name, "rank"));
    CHECK_OK(tb_name_set(&c.host, "host"));
    CHECK_OK(tb_catalog_session_open(d->catalog, tb_clock_now(), &c));
    struct tb_worker_session *s = tb_worker_new(d, false);
    assert_non_null(s);
    s->id = c.id;
    s->name = c.name;
    s->identity = (struct tb_identity){.kind = TB_IDENTITY_UNIX, .uid = 1000};
    tb_worker_enlist(s);
    return s;
}

/* The payload of a SEAL of that shard. */
static size_t seal_encode(const struct version *v, uint32_t shard, uint8_t *out, size_t cap)
{
    uint8_t head[4096];
    const struct tb_manifest *m = v->list[shard];
    struct tb_writer w;
    tb_writer_init(&w, head, sizeof head);
    tb_manifest_head_encode(m, &w);
    assert_false(w.full);
    const struct tb_msg_seal seal = {
        .uid = v->key.uid,
        .shard = shard,
        .export_id = 1 + shard,
        .head = {head, (uint32_t)w.used},
        .digests = {(const uint8_t *)m->digests, m->chunk_count * TB_DIGEST_BYTES},
    };
    tb_writer_init(&w, out, cap);
    tb_msg_seal_encode(&seal, &w);
    assert_false(w.full);
    return w.used;
}

static void seal_said(struct tb_worker_session *s, const struct version *v, uint32_t shard)
{
    uint8_t bytes[8192];
    struct tb_wire_frame frame = {.type = TB_MSG_SEAL, .request = 1};
    tb_reader_init(&frame.payload, bytes, seal_encode(v, shard, bytes, sizeof bytes));
    CHECK_OK(tb_worker_seal_frame(s, &frame));
}

/* P6: a worker's word about a version of another site's is not believed, not even as far as space
 * goes: the true manifest has to find its place free. */
static void a_seal_away_from_home_reserves_nothing(void **state)
{
    (void)state;
    struct home h;
    struct version v;
    struct tb_name north;
    struct tb_catalog_version_view view;
    home_new_with(&h, MODELS_AWAY, false);
    home_start(&h);
    version_make(&v, 5, 1, (uint64_t)1 << 20);
    v.key.root.bytes[0] = 1;
    CHECK_OK(tb_name_set(&north, "north"));
    CHECK_OK(tb_catalog_remote_version(h.d->catalog, tb_clock_now(), &north, &v.key, TB_VERSION_READY));
    seal_said(session_put(h.d, 7), &v, 0);
    assert_int_equal(h.d->counters.seals_refused, 1);
    assert_null(tb_arena_region(h.d->arena, &v.key.uid));
    assert_null(tb_copy_find(h.d, &v.key.uid));
    assert_true(tb_catalog_version_get(h.d->catalog, &v.key.uid, &view));
    assert_false(view.arriving);
    version_fini(&v);
    home_end(&h);
    home_free(&h);
}

static void open_version(struct home *h, const struct tb_worker_session *s, const struct version *v)
{
    struct tb_catalog_run_request run = {.session = s->id, .key = "a", .fresh_id = v->key.run};
    struct tb_catalog_version_request open = {.session = s->id,
                                              .run = v->key.run,
                                              .number = v->key.number,
                                              .shard_count = v->key.shard_count,
                                              .fresh_uid = v->key.uid};
    CHECK_OK(tb_name_set(&run.model, "policy"));
    CHECK_OK(tb_name_set(&open.model, "policy"));
    struct tb_catalog_run opened;
    struct tb_version_key key;
    bool joined;
    CHECK_OK(tb_catalog_run_open(h->d->catalog, tb_clock_now(), &run, &opened, &joined));
    CHECK_OK(tb_catalog_version_open(h->d->catalog, tb_clock_now(), &open, &key));
}

/* A gateway with a run and a version that a session of this process opened; shard 0 has all the
 * room but `left` bytes. */
static void sealed_large(struct home *h, const struct version *v, uint64_t left)
{
    struct tb_worker_session *s = session_put(h->d, 7);
    open_version(h, s, v);
    const struct tb_catalog_seal seal = {.session = s->id,
                                         .uid = v->key.uid,
                                         .root = v->list[0]->root,
                                         .layout_id = v->list[0]->layout.id,
                                         .chunk_count = v->list[0]->chunk_count,
                                         .bytes = v->list[0]->bytes,
                                         .manifest_bytes = TB_MANIFESTS_BYTES_MAX - left,
                                         .export_id = 1};
    CHECK_OK(tb_catalog_seal(h->d->catalog, tb_clock_now(), &seal));
}

/* P7, P10: manifests that no site could take are refused at the seal: the rank hears how many bytes
 * are too many and what to do, and goes on; nothing is reserved. One byte fewer is sealed. */
static void manifests_over_the_limit_are_refused(void **state)
{
    (void)state;
    for (uint64_t fits = 0; fits < 2; fits++) {
        struct home h;
        struct version v;
        uint8_t bytes[8192];
        home_new_with(&h, DRAINS_LONG, false);
        h.config->session_lease_ms = 60000;
        home_start(&h);
        version_make(&v, 5, 2, (uint64_t)1 << 20);
        sealed_large(&h, &v, tb_manifest_decoded_bytes(v.list[1]) - 1 + fits);
        struct worker *w = worker_new(&h, "trainer");
        const uint64_t request = worker_request(w);
        const size_t count = seal_encode(&v, 1, bytes, sizeof bytes);
        tb_write_bytes(worker_begin(w, TB_MSG_SEAL, request, sizeof bytes), bytes, count);
        worker_send(w);
        struct tb_reader r;
        struct tb_msg_reply reply;
        assert_int_equal(worker_answer(w, request, &r), TB_MSG_REPLY);
        CHECK_OK(tb_msg_reply_decode(&r, &reply));
        assert_int_equal(h.d->counters.seals_refused, 1 - fits);
        assert_int_equal(tb_msg_status_get(reply.status_negated), fits == 1 ? TB_OK : TB_TOO_LARGE);
        if (fits == 0) {
            assert_null(tb_arena_region(h.d->arena, &v.key.uid));
            assert_null(tb_copy_find(h.d, &v.key.uid));
            assert_non_null(strstr(reply.why.text,
                                   "policy version 5: the manifests of its shards need 268435457 "
                                   "bytes with this one, of 268435456: fewer"));
            assert_non_null(strstr(reply.why.text, "more shards do not help"));
            worker_sync(w); /* its session goes on */
        }
        worker_free(w);
        version_fini(&v);
        home_end(&h);
        home_free(&h);
    }
}

/* A client that does not ask the library: what subscribe could not write is refused, and
 * nothing is reserved for it. */
static void a_blob_that_nobody_could_write_is_refused(void **state)
{
    (void)state;
    struct home h;
    struct version v;
    struct tb_layout none;
    struct tb_manifest m;
    static _Alignas(16) uint8_t memory[4096], empty[64];
    const struct tb_blob blob = {.name = "STABLE", .bytes = 3};
    home_new_with(&h, DRAINS_LONG, false);
    home_start(&h);
    version_make(&v, 5, 1, (uint64_t)1 << 20);
    CHECK_OK(tb_layout_build(NULL, 0, empty, sizeof empty, &none));
    CHECK_OK(tb_manifest_build(&none, &blob, 1, memory, sizeof memory, &m));
    m.root = tb_manifest_root(&m);
    const struct tb_manifest *good = v.list[0];
    struct tb_worker_session *s = session_put(h.d, 7);
    open_version(&h, s, &v);
    v.list[0] = &m;
    seal_said(s, &v, 0);
    assert_int_equal(h.d->counters.seals_refused, 1);
    assert_null(tb_arena_region(h.d->arena, &v.key.uid));
    v.list[0] = good;
    seal_said(s, &v, 0);
    assert_int_equal(h.d->counters.seals_refused, 1);
    assert_non_null(tb_arena_region(h.d->arena, &v.key.uid));
    version_fini(&v);
    home_end(&h);
    home_free(&h);
}

/* As one that waits for room. */
static void parked_put(struct home *h, const struct tb_id *session, const struct version *v, uint32_t shard)
{
    uint8_t bytes[8192];
    const size_t count = seal_encode(v, shard, bytes, sizeof bytes);
    struct tb_parked_seal *p = tb_malloc(sizeof *p + count);
    assert_non_null(p);
    *p = (struct tb_parked_seal){.next = h->d->parked,
                                 .session = *session,
                                 .uid = v->key.uid,
                                 .shard = shard,
                                 .request = 1,
                                 .deadline = TB_TIME_NEVER,
                                 .bytes = (uint32_t)count};
    memcpy(p->payload, bytes, count);
    h->d->parked = p;
    tb_gauge_add(&h->d->parked_bytes, p->bytes);
}

/* A seal that waits for room outlives its session: the lease ends in the turn in which there is
 * room. The sanitizers look on. */
static void a_parked_seal_whose_session_ends_is_not_answered(void **state)
{
    (void)state;
    struct home h;
    struct version v;
    home_new_with(&h, MODELS_HERE, false);
    home_start(&h);
    version_make(&v, 5, 1, (uint64_t)1 << 20);
    const struct tb_id id = session_put(h.d, 7)->id;
    parked_put(&h, &id, &v, 0);
    const tb_time_ns now = tb_clock_now();
    struct tb_catalog_session_view view;
    for (uint32_t i = 1; i <= 20; i++) /* its lease is half a second; none of these is a pause */
        tb_catalog_tick(h.d->catalog, tb_time_add(now, TB_MS(100) * i));
    assert_false(tb_catalog_session_get(h.d->catalog, &id, &view));
    assert_non_null(tb_worker_find(h.d, &id));
    h.d->room_freed = true;
    tb_daemon_turn(h.d);
    assert_null(tb_worker_find(h.d, &id));
    assert_null(h.d->parked);
    assert_int_equal(h.d->counters.sessions_lost, 1);
    assert_int_equal(h.d->counters.seals_refused, 0); /* nobody is there to whom it was */
    version_fini(&v);
    home_end(&h);
    home_free(&h);
}

/* Version 5, its shards sealed by that session, with nothing of it landed. */
static void sealed_put(struct home *h, struct tb_worker_session *s, const struct version *v)
{
    open_version(h, s, v);
    for (uint32_t shard = 0; shard < v->key.shard_count; shard++)
        seal_said(s, v, shard);
}

static void unpublish_asked(struct tb_worker_session *s, uint64_t request, const struct version *v,
                            uint32_t shard, uint32_t drain_ms)
{
    uint8_t bytes[64];
    const struct tb_msg_unpublish m = {.uid = v->key.uid, .shard = shard, .drain_ms = drain_ms};
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_msg_unpublish_encode(&m, &w);
    struct tb_wire_frame frame = {.type = TB_MSG_UNPUBLISH, .request = request};
    tb_reader_init(&frame.payload, bytes, w.used);
    CHECK_OK(tb_worker_unpublish_frame(s, &frame));
    tb_daemon_turn(s->d);
}

/* P1, P9: of one shard the highest bit of the drain says that its memory is gone; a drain of that
 * length of all shards, which a caller of tb_unpublish may give, says no such thing, nor does one
 * shard without the bit, as the release before says it. */
static void memory_that_is_gone_is_no_reference(void **state)
{
    (void)state;
    const struct {
        uint32_t shard, drain_ms;
        bool gone, waits;
    } rows[] = {
        {0, TB_MSG_UNPUBLISH_GONE, true, false},
        {0, TB_MSG_UNPUBLISH_GONE | 3600000, false, true}, /* not yet */
        {0, 0, false, false},
        {TB_CATALOG_ALL_SHARDS, UINT32_MAX, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct home h;
        struct version v;
        struct tb_catalog_version_view view;
        home_new_with(&h, MODELS_HERE, false);
        home_start(&h);
        version_make(&v, 5, 1, (uint64_t)1 << 20);
        struct tb_worker_session *s = session_put(h.d, 7);
        sealed_put(&h, s, &v);
        assert_int_equal(h.d->counters.seals_refused, 0);
        assert_non_null(s->exports);
        unpublish_asked(s, 2, &v, rows[i].shard, rows[i].drain_ms);
        assert_true(tb_catalog_version_get(h.d->catalog, &v.key.uid, &view));
        assert_int_equal(view.state == TB_VERSION_ENDED_LOST, rows[i].gone);
        if (rows[i].waits) assert_non_null(s->unpublishes); /* else its answer may wait for the disk */
        version_fini(&v);
        home_end(&h);
        home_free(&h);
    }
}

/* P3: a rank gives up a publish whose seal waits for room. It is not sealed when there is some: its
 * export is closed, and its memory the caller's. Those of another shard or session wait on. */
static void a_parked_seal_that_is_taken_back_is_not_sealed(void **state)
{
    (void)state;
    for (uint32_t all = 0; all < 2; all++) {
        struct home h;
        struct version v;
        home_new_with(&h, MODELS_HERE, false);
        home_start(&h);
        version_make(&v, 5, 2, (uint64_t)1 << 20);
        struct tb_worker_session *s = session_put(h.d, 7);
        const struct tb_id other = session_put(h.d, 8)->id;
        parked_put(&h, &other, &v, 0);
        parked_put(&h, &s->id, &v, 1);
        parked_put(&h, &s->id, &v, 0);
        unpublish_asked(s, 2, &v, all == 1 ? TB_CATALOG_ALL_SHARDS : 0, TB_MSG_UNPUBLISH_GONE | 10000);
        const struct tb_parked_seal *p = h.d->parked;
        assert_non_null(p);
        if (all == 0) {
            assert_int_equal(p->shard, 1);
            p = p->next;
        }
        assert_non_null(p);
        assert_true(tb_id_equal(&p->session, &other));
        assert_null(p->next);
        version_fini(&v);
        home_end(&h);
        home_free(&h);
    }
}

static uint32_t waiting(const struct tb_worker_session *s)
{
    uint32_t count = 0;
    for (const struct tb_unpublish_wait *u = s->unpublishes; u != NULL; u = u->next)
        count++;
    return count;
}

/* Until no more than `most` of its requests wait: what they are told rests on the disk. NULL: that
 * took longer than the lease, and nobody is there to be answered. */
static struct tb_worker_session *left_waiting(struct tb_worker_session *s, uint32_t most)
{
    struct tb_daemon *d = s->d;
    const struct tb_id id = s->id;
    while (s != NULL && waiting(s) > most) {
        for (struct tb_worker_session *each = d->sessions; each != NULL; each = each->next)
            if (tb_catalog_session_renew(d->catalog, tb_clock_now(), &each->id) != TB_OK)
                break; /* it is over */
        (void)uv_run(&d->loop, UV_RUN_ONCE);
        s = tb_worker_find(d, &id);
    }
    return s;
}

/* P1: that a reference is hidden already is no answer. Until its drain ends it is read, so a rank
 * that asks again (its connection was cut), or asks for what another request hid, waits for that
 * end, and the export stays as long. */
static void a_rank_that_asks_again_waits_for_the_drain(void **state)
{
    (void)state;
    struct home h;
    struct version v;
    home_new_with(&h, DRAINS_LONG, false);
    home_start(&h);
    version_make(&v, 5, 1, (uint64_t)1 << 20);
    struct tb_worker_session *s = session_put(h.d, 7);
    sealed_put(&h, s, &v);
    unpublish_asked(s, 2, &v, TB_CATALOG_ALL_SHARDS, 3600000);
    unpublish_asked(s, 2, &v, TB_CATALOG_ALL_SHARDS, 3600000);
    assert_int_equal(waiting(s), 1);
    unpublish_asked(s, 3, &v, 0, 3600000);
    assert_int_equal(waiting(s), 2);
    assert_non_null(s->exports);
    for (uint64_t request = 4; request < 200; request++) /* P7 */
        unpublish_asked(s, request, &v, 0, 3600000);
    assert_int_equal(waiting(s), 64);
    unpublish_asked(s, 2, &v, 0, TB_MSG_UNPUBLISH_GONE); /* and now it is away: all of them are answered */
    s = left_waiting(s, 0);
    if (s != NULL) assert_null(s->exports);
    version_fini(&v);
    home_end(&h);
    home_free(&h);
}

static bool has_export(const struct tb_worker_session *s, uint32_t shard)
{
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
        if (e->shard == shard) return true;
    return false;
}

/* P1: two shards were hidden together and one of them goes by itself. That the other has ended is
 * no answer to a rank that asked for both, and takes no export of the one that is still read. */
static void a_rank_that_asks_for_all_waits_for_each(void **state)
{
    (void)state;
    struct home h;
    struct version v;
    home_new_with(&h, DRAINS_LONG, false);
    home_start(&h);
    version_make(&v, 5, 2, (uint64_t)1 << 20);
    struct tb_worker_session *s = session_put(h.d, 7);
    sealed_put(&h, s, &v);
    unpublish_asked(s, 2, &v, TB_CATALOG_ALL_SHARDS, 3600000);
    unpublish_asked(s, 3, &v, 0, 3600000);
    assert_int_equal(waiting(s), 2);
    unpublish_asked(s, 4, &v, 1, TB_MSG_UNPUBLISH_GONE | 3600000);
    /* Shard 0 is safe once all of it is here. */
    (void)!tb_catalog_arena_reserved(h.d->catalog, tb_clock_now(), &v.key.uid);
    CHECK_OK(tb_catalog_arena_progress(h.d->catalog, tb_clock_now(), &v.key.uid, 0, v.list[0]->chunk_count));
    s = left_waiting(s, 2);
    if (s != NULL) {
        assert_int_equal(waiting(s), 2); /* all, and shard 1 */
        assert_false(has_export(s, 0));
        assert_true(has_export(s, 1));
        unpublish_asked(s, 5, &v, 1, TB_MSG_UNPUBLISH_GONE);
        s = left_waiting(s, 0);
        if (s != NULL) assert_null(s->exports);
    }
    version_fini(&v);
    home_end(&h);
    home_free(&h);
}

/* That one shard went by itself is told to its rank, and is no answer to one that asked for all:
 * the rank would keep what has ended. */
static void a_shard_that_went_is_no_answer_for_all(void **state)
{
    (void)state;
    struct home h;
    struct version v;
    home_new_with(&h, DRAINS_LONG, false);
    home_start(&h);
    version_make(&v, 5, 2, (uint64_t)1 << 20);
    struct tb_worker_session *s = session_put(h.d, 7);
    sealed_put(&h, s, &v);
    unpublish_asked(s, 2, &v, TB_CATALOG_ALL_SHARDS, 3600000);
    assert_int_equal(waiting(s), 1);
    struct tb_catalog_todo todo = {
        .kind = TB_CATALOG_UNPUBLISHED, .session = s->id, .uid = v.key.uid, .status = TB_PEER_REVOKED};
    tb_worker_unpublished(h.d, &todo);
    assert_int_equal(waiting(s), 1);
    assert_int_equal(s->unpublishes->status, TB_OK);
    todo.status = TB_TIMEOUT;
    tb_worker_unpublished(h.d, &todo);
    assert_int_equal(s->unpublishes->status, TB_TIMEOUT);
    version_fini(&v);
    home_end(&h);
    home_free(&h);
}

/* Until its request is told something, or the session's lease is over (NULL). */
static struct tb_worker_session *told(struct tb_worker_session *s, uint64_t request, enum tb_status status)
{
    struct tb_daemon *d = s->d;
    const struct tb_id id = s->id;
    for (; s != NULL; s = tb_worker_find(d, &id)) {
        const struct tb_unpublish_wait *u = s->unpublishes;
        while (u != NULL && u->request != request)
            u = u->next;
        assert_non_null(u);
        if (u->status == status) return s;
        if (tb_catalog_session_renew(d->catalog, tb_clock_now(), &id) == TB_OK)
            (void)uv_run(&d->loop, UV_RUN_ONCE);
    }
    return NULL;
}

static enum tb_status status_of(const struct tb_worker_session *s, uint64_t request)
{
    const struct tb_unpublish_wait *u = s->unpublishes;
    while (u->request != request)
        u = u->next;
    return u->status;
}

/* One shard came back into sight while another drains on. A rank that asks again for both then has
 * it hidden anew, and the earlier status of it is over. Asked once more, nothing is hidden by that,
 * and the earlier status stays. */
static void a_rank_that_asks_again_is_told_the_same(void **state)
{
    (void)state;
    struct home h;
    struct version v;
    home_new_with(&h, DRAINS_LONG, false);
    home_start(&h);
    version_make(&v, 5, 2, (uint64_t)1 << 20);
    struct tb_worker_session *s = session_put(h.d, 7);
    sealed_put(&h, s, &v);
    unpublish_asked(s, 3, &v, 1, 3600000);
    unpublish_asked(s, 2, &v, TB_CATALOG_ALL_SHARDS, 0);
    s = told(s, 2, TB_TIMEOUT);
    if (s != NULL) {
        unpublish_asked(s, 2, &v, TB_CATALOG_ALL_SHARDS, 3600000);
        assert_int_equal(status_of(s, 2), TB_OK);
        const struct tb_catalog_todo todo = {
            .kind = TB_CATALOG_UNPUBLISHED, .session = s->id, .uid = v.key.uid, .status = TB_TIMEOUT};
        tb_worker_unpublished(h.d, &todo);
        unpublish_asked(s, 2, &v, TB_CATALOG_ALL_SHARDS, 3600000);
        assert_int_equal(status_of(s, 2), TB_TIMEOUT);
    }
    version_fini(&v);
    home_end(&h);
    home_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seal_away_from_home_reserves_nothing),
        cmocka_unit_test(a_blob_that_nobody_could_write_is_refused),
        cmocka_unit_test(manifests_over_the_limit_are_refused),
        cmocka_unit_test(memory_that_is_gone_is_no_reference),
        cmocka_unit_test(a_parked_seal_that_is_taken_back_is_not_sealed),
        cmocka_unit_test(a_rank_that_asks_again_waits_for_the_drain),
        cmocka_unit_test(a_rank_that_asks_for_all_waits_for_each),
        cmocka_unit_test(a_shard_that_went_is_no_answer_for_all),
        cmocka_unit_test(a_rank_that_asks_again_is_told_the_same),
        cmocka_unit_test(a_parked_seal_whose_session_ends_is_not_answered),
    };
    return cmocka_run_group_tests_name("seal_and_unpublish", tests, NULL, NULL);
}
