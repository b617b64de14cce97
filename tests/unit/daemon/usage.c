/* usage.c - the tables of a gateway that runs for ever: their use returns to where it began (P7),
 * and a full one is told of (P10).
 *
 * Covers: gateway/daemon/control/usage_status.c gateway/daemon/sessions/session_grant.c
 * Covers: gateway/daemon/sessions/session_plan.c gateway/daemon/sessions/session_publish.c
 * Covers: gateway/daemon/sessions/held_reply.c gateway/daemon/sessions/session_table.c
 * Covers: gateway/daemon/copies/copy_table.c gateway/daemon/sessions/sessions_check.c */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/limits/share_table.h"
#include "base/log.h"
#include "gateway/catalog/versions.h"
#include "gateway/daemon/control/usage_status.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_plan.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_exports.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"
#include "wan/send/encoded_chunks.h"

#define MODELS      "{policy: {home: east, publish: [\"unix:*\"], read: [\"unix:*\"]}}"
#define VERSIONS    200u
#define SMALL_BYTES ((uint64_t)4096)

struct scene {
    struct home home;
    struct worker *trainer;
    struct tb_id run;
};

static uint64_t column(const struct home *h, const char *table, const char *key)
{
    return home_table(h, table, key);
}

static uint64_t used(const struct home *h, const char *table)
{
    return home_table(h, table, "used");
}

static void turn_until(const struct home *h, const char *table, uint64_t rows)
{
    home_turn_until(h, table, rows);
}

static struct tb_id version_open(struct scene *s, uint64_t number)
{
    struct tb_reader r;
    struct tb_msg_version m = {.bytes = 0};
    struct tb_msg_version_open q = {.run = s->run, .number = number, .shard_count = 1};
    CHECK_OK(tb_name_set(&q.model, "policy"));
    const uint64_t request = worker_request(s->trainer);
    tb_msg_version_open_encode(&q, worker_begin(s->trainer, TB_MSG_VERSION_OPEN, request, 4096));
    worker_send(s->trainer);
    assert_int_equal(worker_answer(s->trainer, request, &r), TB_MSG_VERSION);
    CHECK_OK(tb_msg_version_decode(&r, &m));
    return m.key.uid;
}

/* The answer to a SEAL of the one shard of that version. */
static enum tb_status seal(struct scene *s, const struct tb_id *uid, const struct version *v)
{
    const struct tb_manifest *m = v->list[0];
    const size_t head_bytes = tb_manifest_head_bytes(m);
    const size_t digest_bytes = (size_t)m->chunk_count * TB_DIGEST_BYTES;
    uint8_t *head = calloc(1, head_bytes);
    struct tb_writer w;
    assert_non_null(head);
    tb_writer_init(&w, head, head_bytes);
    tb_manifest_head_encode(m, &w);
    const struct tb_msg_seal q = {.uid = *uid,
                                  .export_id = 1,
                                  .head = {head, (uint32_t)head_bytes},
                                  .digests = {m->digests[0].bytes, (uint32_t)digest_bytes}};
    const uint64_t request = worker_request(s->trainer);
    tb_msg_seal_encode(&q, worker_begin(s->trainer, TB_MSG_SEAL, request, head_bytes + digest_bytes + 4096));
    worker_send(s->trainer);
    free(head);
    return worker_reply(s->trainer, request);
}

static void begin(struct scene *s)
{
    memset(s, 0, sizeof *s);
    home_new_with(&s->home, MODELS, false);
    s->home.config->session_lease_ms = 60000; /* none ends, however slow the machine */
    home_start(&s->home);
    s->trainer = worker_new(&s->home, "trainer");
    s->run = worker_run_open(s->trainer, "run");
}

static void end(struct scene *s)
{
    worker_free(s->trainer);
    home_end(&s->home);
    home_free(&s->home);
}

static void withdraw(struct scene *s, const struct tb_id *uid)
{
    CHECK_OK(tb_catalog_withdraw(s->home.d->catalog, tb_clock_now(), uid, "test"));
    tb_daemon_turn(s->home.d);
}

static struct tb_id sealed(struct scene *s, uint64_t number)
{
    struct version v;
    version_make(&v, 1, 1, SMALL_BYTES);
    const struct tb_id uid = version_open(s, number);
    CHECK_OK(seal(s, &uid, &v));
    version_fini(&v);
    return uid;
}

/* A rank that never unpublishes: what it exported leaves with its version, and so
 * does the gateway's copy. */
static void a_version_published_and_withdrawn_leaves_nothing(void **state)
{
    (void)state;
    static const char *const tables[] = {"worker_exports", "copies",     "exports",
                                         "tokens",         "store_rows", "held_replies"};
    struct scene s;
    struct version v;
    begin(&s);
    version_make(&v, 1, 1, SMALL_BYTES);
    for (uint64_t n = 1; n <= VERSIONS; n++) {
        const struct tb_id uid = version_open(&s, n);
        CHECK_OK(seal(&s, &uid, &v));
        assert_int_equal(used(&s.home, "worker_exports"), 1);
        withdraw(&s, &uid);
        for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
            turn_until(&s.home, tables[t], 0);
    }
    assert_int_equal(column(&s.home, "worker_exports", "most"), 1);
    assert_in_range(column(&s.home, "store_rows", "most"), 1, 16);
    assert_int_equal(column(&s.home, "held_replies", "most"), 1);
    assert_true(used(&s.home, "versions") < 16);
    version_fini(&v);
    end(&s);
}

/* A layout is idle while no version has it: the next version of that layout takes it from there. */
static void a_layout_is_idle_once_at_most(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    uint64_t idle_bytes = 0;
    assert_int_equal(used(&s.home, "idle_layout_bytes"), 0);
    for (uint64_t n = 1; n <= 8; n++) {
        const struct tb_id uid = sealed(&s, n);
        assert_int_equal(used(&s.home, "idle_layout_bytes"), 0);
        withdraw(&s, &uid);
        turn_until(&s.home, "copies", 0);
        if (n == 1) idle_bytes = used(&s.home, "idle_layout_bytes");
        assert_true(idle_bytes > 0);
        assert_int_equal(used(&s.home, "idle_layout_bytes"), idle_bytes);
    }
    assert_int_equal(column(&s.home, "idle_layout_bytes", "most"), idle_bytes);
    end(&s);
}

/* The encoded chunks of a version leave with it. */
static void encoded_chunks_leave_with_their_version(void **state)
{
    (void)state;
    static const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, "a step", 6};
    struct scene s;
    begin(&s);
    struct tb_daemon *d = s.home.d;
    assert_int_equal(used(&s.home, "encoded_bytes"), 0);
    for (uint64_t n = 1; n <= 8; n++) {
        const struct tb_id uid = sealed(&s, n), base = {{1}};
        const struct tb_encoded_chunk_name name = {
            .uid = &uid, .base = &base, .shard_count = 1, .chunk_count = 1};
        const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_MADE_HERE, &coded, 0};
        tb_encoded_chunks_put(d->encoded_chunks, &name, &news);
        assert_true(used(&s.home, "encoded_bytes") > 0);
        withdraw(&s, &uid);
        turn_until(&s.home, "encoded_bytes", 0);
    }
    assert_in_range(column(&s.home, "encoded_bytes", "most"), 1, column(&s.home, "encoded_bytes", "bound"));
    end(&s);
}

static void sessions_come_and_go(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    const uint64_t connections = used(&s.home, "connections"), sessions = used(&s.home, "sessions");
    for (uint32_t n = 0; n < VERSIONS; n++) {
        struct worker *w = worker_new(&s.home, "rollout");
        worker_sync(w);
        assert_int_equal(used(&s.home, "connections"), connections + 1);
        worker_free(w);
        turn_until(&s.home, "connections", connections);
        assert_int_equal(used(&s.home, "sessions"), sessions);
    }
    assert_int_equal(column(&s.home, "connections", "most"), connections + 1);
    end(&s);
}

static uint32_t count_of(int log, const char *words)
{
    static char text[1 << 16];
    const ssize_t bytes = pread(log, text, sizeof text - 1, 0);
    uint32_t count = 0;
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        count++;
    return count;
}

/* The one line that told of a table so far has these words; the counter rose with it. */
static void check_told(struct scene *s, int log, const char *table, const char *words)
{
    char begins[128];
    (void)snprintf(begins, sizeof begins, "table.full table=%s ", table);
    for (int round = 0; round < 3; round++)
        tb_usage_tick(s->home.d);
    assert_int_equal(count_of(log, begins), 1);
    assert_int_equal(count_of(log, words), 1);
    assert_int_equal(s->home.d->counters.tables_full, 1);
    assert_true(column(&s->home, table, "refused") >= 1);
    assert_true(column(&s->home, table, "most") <= column(&s->home, table, "bound"));
}

static int begin_logged(struct scene *s)
{
    begin(s);
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    return log;
}

static void end_logged(struct scene *s, int log)
{
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    (void)close(log);
    end(s);
}

/* Its identity and its rows, as the line ends. */
static const char *ours(uint64_t rows)
{
    static char words[128];
    (void)snprintf(words, sizeof words, "most_used_by=unix:%u its_rows=%" PRIu64 "\n", (unsigned)getuid(),
                   rows);
    return words;
}

/* A session that says more exports than there can be: one line, one counter, and the
 * identity that has most. */
static void a_full_table_is_told_of_once(void **state)
{
    (void)state;
    struct scene s;
    const int log = begin_logged(&s);
    struct tb_daemon *d = s.home.d;
    struct tb_worker_session *session = d->sessions;
    const uint64_t bound = d->bounds.references;
    d->bounds.sessions = TB_SHARE_LEAST - 1; /* a small site's tables have no shares */
    const struct tb_span none = {(const uint8_t *)"", 0};
    for (uint64_t n = 0; n < bound; n++) {
        const struct tb_worker_export e = {.uid = {{1, (uint8_t)n, (uint8_t)(n >> 8)}}, .export_id = n + 1};
        CHECK_OK(tb_worker_export_put(session, &e, &none));
    }
    const struct tb_worker_export more = {.uid = {{2}}, .export_id = 1};
    for (int round = 0; round < 3; round++) {
        CHECK_STATUS(tb_worker_export_put(session, &more, &none), TB_SITE_NOMEM);
        tb_usage_tick(d);
    }
    check_told(&s, log, "worker_exports", ours(bound));
    assert_int_equal(column(&s.home, "worker_exports", "refused"), 3);
    end_logged(&s, log);
}

static void full_copies_name_the_model(void **state)
{
    (void)state;
    struct scene s;
    const int log = begin_logged(&s);
    struct tb_daemon *d = s.home.d;
    d->bounds.versions = 8;
    struct tb_version_key key = {.shard_count = 1};
    CHECK_OK(tb_name_set(&key.model, "policy"));
    for (uint8_t n = 1; n <= d->bounds.versions; n++) {
        key.uid.bytes[0] = n;
        assert_non_null(tb_copy_get(d, &key));
    }
    key.uid.bytes[0] = 0xff;
    assert_null(tb_copy_get(d, &key));
    check_told(&s, log, "copies", "most_used_by=policy its_rows=8\n");
    end_logged(&s, log);
}

/* Of readers that never come: the tokens go with the version. */
static void full_tokens_name_the_reader(void **state)
{
    (void)state;
    struct scene s;
    const int log = begin_logged(&s);
    struct tb_daemon *d = s.home.d;
    const struct tb_id uid = sealed(&s, 1);
    const struct tb_copy *copy = tb_copy_find(d, &uid);
    assert_true(copy != NULL && copy->export_id != 0);
    const struct tb_fingerprint *reader = &d->sessions->endpoint.fingerprint;
    const uint64_t bound = column(&s.home, "tokens", "bound");
    enum tb_status status = TB_OK;
    for (uint64_t n = 1; n <= bound + 1 && status == TB_OK; n++) {
        struct tb_id token = {{1}};
        memcpy(token.bytes + 8, &n, sizeof n);
        status = tb_export_grant(d->fabric, copy->export_id, &token, reader);
    }
    CHECK_STATUS(status, TB_SITE_NOMEM);
    check_told(&s, log, "tokens", ours(bound));
    withdraw(&s, &uid);
    turn_until(&s.home, "tokens", 0);
    end_logged(&s, log);
}

/* The source does not answer GRANT: each row goes at its deadline. */
static void full_grants_name_the_reader(void **state)
{
    (void)state;
    struct scene s;
    const int log = begin_logged(&s);
    struct tb_daemon *d = s.home.d;
    const struct tb_id uid = sealed(&s, 1);
    const struct tb_catalog_todo todo = {
        .session = d->sessions->id, .source_session = d->sessions->id, .uid = uid, .export_id = 1, .plan = 1};
    d->bounds.references = 8;
    assert_int_equal(used(&s.home, "grants"), 1); /* the gateway reads what was sealed */
    tb_grants_tick(d, tb_time_add(tb_clock_now(), TB_SECONDS(60)));
    assert_int_equal(used(&s.home, "grants"), 0);
    tb_worker_plan(d, &todo);
    assert_int_equal(used(&s.home, "grants"), 1);
    tb_grants_tick(d, tb_time_add(tb_clock_now(), TB_SECONDS(60)));
    assert_int_equal(used(&s.home, "grants"), 0);
    for (uint32_t n = 0; n <= d->bounds.references; n++)
        tb_worker_plan(d, &todo);
    check_told(&s, log, "grants", ours(8));
    tb_grants_tick(d, tb_time_add(tb_clock_now(), TB_SECONDS(60)));
    assert_int_equal(used(&s.home, "grants"), 0);
    end_logged(&s, log);
}

/* While the disk fails the oldest row gives way; once it is back they all go. */
static void full_store_rows_name_the_model(void **state)
{
    (void)state;
    struct scene s;
    const int log = begin_logged(&s);
    struct tb_daemon *d = s.home.d;
    turn_until(&s.home, "store_rows", 0);
    struct tb_catalog_todo todo = {.kind = TB_CATALOG_PERSIST_POINTER, .head = true};
    CHECK_OK(tb_name_set(&todo.model, "policy"));
    const uint64_t bound = column(&s.home, "store_rows", "bound");
    char words[64];
    (void)snprintf(words, sizeof words, "most_used_by=policy its_rows=%" PRIu64 "\n", bound);
    d->store_down = true;
    for (uint64_t n = 0; n <= bound; n++)
        tb_persist_todo(d, &todo);
    check_told(&s, log, "store_rows", words);
    d->store_down = false;
    tb_persist_settled(d, true);
    turn_until(&s.home, "store_rows", 0);
    end_logged(&s, log);
}

/* Of the model that has more than are remembered the oldest give way. */
static void full_withdrawals_name_the_model(void **state)
{
    (void)state;
    struct scene s;
    const int log = begin_logged(&s);
    struct tb_daemon *d = s.home.d;
    struct tb_version_key key = {.shard_count = 1};
    CHECK_OK(tb_name_set(&key.model, "policy"));
    const uint64_t bound = column(&s.home, "withdrawals", "bound");
    char words[64];
    (void)snprintf(words, sizeof words, "most_used_by=policy its_rows=%" PRIu64 "\n", bound);
    for (uint64_t n = 1; n <= bound + 1; n++) {
        memcpy(key.uid.bytes, &n, sizeof n);
        tb_withdrawn_add(d, &key, false);
        tb_withdrawn_add(d, &key, false); /* twice is once */
    }
    check_told(&s, log, "withdrawals", words);
    assert_int_equal(column(&s.home, "withdrawals", "refused"), 1);
    assert_int_equal(d->withdrawn.rows[0].key.uid.bytes[0], 2);
    assert_true(tb_id_equal(&d->withdrawn.rows[bound - 1].key.uid, &key.uid));
    end_logged(&s, log);
}

/* One identity may use 128 MiB, which takes nothing from others. A row that takes a place is
 * counted once. */
static void full_export_sources_name_the_worker(void **state)
{
    (void)state;
    enum { PIECES = 4 };
    const uint32_t bytes = 2 * TB_MSG_FRAME_BYTES_MAX / PIECES;
    struct scene s;
    const int log = begin_logged(&s);
    struct tb_worker_session *session = s.home.d->sessions;
    uint8_t *source = calloc(1, bytes);
    assert_non_null(source);
    const struct tb_span span = {source, bytes};
    struct tb_worker_export e = {.export_id = 1};
    for (uint8_t n = 1; n <= PIECES; n++) {
        e.uid.bytes[0] = n;
        CHECK_OK(tb_worker_export_put(session, &e, &span));
        CHECK_OK(tb_worker_export_put(session, &e, &span)); /* instead of it */
        assert_int_equal(used(&s.home, "export_source_bytes"), (uint64_t)n * bytes);
    }
    e.uid.bytes[0] = PIECES + 1;
    CHECK_STATUS(tb_worker_export_put(session, &e, &span), TB_SITE_NOMEM);
    tb_usage_tick(s.home.d);
    assert_int_equal(count_of(log, "share.spent table=export_source_bytes "), 1);
    assert_int_equal(count_of(log, ours((uint64_t)PIECES * bytes)), 1);
    assert_int_equal(s.home.d->counters.shares_spent, 1);
    for (uint8_t n = 1; n <= PIECES; n++) {
        const struct tb_id uid = {{n}};
        tb_worker_exports_drop(session, &uid, 0);
    }
    assert_int_equal(used(&s.home, "export_source_bytes"), 0);
    free(source);
    end_logged(&s, log);
}

/* A rank that takes back what the gateway lacks waits for it; once the version ends it waits no
 * more. */
static void unpublishes_do_not_wait_for_ever(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    for (uint64_t n = 1; n <= 8; n++) {
        const struct tb_id uid = sealed(&s, n);
        const struct tb_msg_unpublish q = {
            .uid = uid, .shard = TB_CATALOG_ALL_SHARDS, .drain_ms = TB_MSG_DRAIN_MS_MAX};
        const uint64_t request = worker_request(s.trainer);
        tb_msg_unpublish_encode(&q, worker_begin(s.trainer, TB_MSG_UNPUBLISH, request, 4096));
        worker_send(s.trainer);
        worker_sync(s.trainer);
        assert_int_equal(used(&s.home, "unpublish_waits"), 1);
        withdraw(&s, &uid);
        (void)worker_reply(s.trainer, request);
        assert_int_equal(used(&s.home, "unpublish_waits"), 0);
    }
    assert_int_equal(column(&s.home, "unpublish_waits", "most"), 1);
    end(&s);
}

/* `tombolo config check` states the bounds that the tables have: each of them, and of the links'
 * too. */
static void each_table_has_the_bound_that_is_stated(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    const struct tb_bounds bounds = tb_bounds_of(s.home.config);
    json_t *tables = tb_status_tables(s.home.d), *row;
    size_t i;
    json_array_foreach(tables, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "table"));
        struct tb_bound bound;
        bool stated = false;
        for (uint32_t cursor = 0; !stated && tb_bounds_at(&bounds, &cursor, &bound);)
            stated = strcmp(bound.name, name) == 0;
        if (!stated) fail_msg("the bound of table %s is not stated", name);
        if ((uint64_t)json_integer_value(json_object_get(row, "bound")) != bound.most)
            fail_msg("table %s has another bound than is stated", name);
    }
    json_decref(tables);
    end(&s);
}

static int unix_dial(const struct sockaddr_un *to, size_t path_bytes)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path_bytes);
    assert_int_equal(connect(fd, (const struct sockaddr *)to, bytes), 0);
    return fd;
}

/* Readers that show no token: the door takes so many of them. */
static void a_full_door_is_told_of(void **state)
{
    (void)state;
    enum { STRANGERS = 128 };
    struct scene s;
    const int log = begin_logged(&s);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fds[STRANGERS + 1];
    const char *name = s.home.d->endpoint.shm_door;
    memcpy(to.sun_path + 1, name, strlen(name));
    for (int i = 0; i <= STRANGERS; i++)
        fds[i] = unix_dial(&to, 1 + strlen(name));
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (column(&s.home, "door_readers", "refused") == 0 && tb_clock_now() < until)
        uv_sleep(1);
    check_told(&s, log, "door_readers", "table.full table=door_readers");
    assert_int_equal(column(&s.home, "door_readers", "most"), STRANGERS);
    for (int i = 0; i <= STRANGERS; i++)
        (void)close(fds[i]);
    turn_until(&s.home, "door_readers", 0);
    end_logged(&s, log);
}

static int control_dial(const struct scene *s)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s/control", s->home.dir);
    return unix_dial(&to, strlen(to.sun_path) + 1);
}

static void full_control_clients_name_the_user(void **state)
{
    (void)state;
    struct scene s;
    int fds[17];
    const int log = begin_logged(&s);
    const uint64_t bound = column(&s.home, "control_clients", "bound");
    assert_int_equal(bound, 64);
    const uint64_t share = bound / 4;
    for (uint64_t n = 0; n < share; n++) {
        fds[n] = control_dial(&s);
        turn_until(&s.home, "control_clients", n + 1);
    }
    fds[share] = control_dial(&s);
    while (column(&s.home, "control_clients", "refused") == 0)
        (void)uv_run(&s.home.d->loop, UV_RUN_ONCE);
    for (int round = 0; round < 3; round++)
        tb_usage_tick(s.home.d);
    assert_int_equal(count_of(log, "share.spent table=control_clients "), 1);
    assert_int_equal(count_of(log, ours(share)), 1);
    assert_int_equal(s.home.d->counters.shares_spent, 1);
    assert_int_equal(s.home.d->counters.tables_full, 0);
    for (uint64_t n = 0; n <= share; n++)
        (void)close(fds[n]);
    turn_until(&s.home, "control_clients", 0);
    end_logged(&s, log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_published_and_withdrawn_leaves_nothing),
        cmocka_unit_test(a_layout_is_idle_once_at_most),
        cmocka_unit_test(encoded_chunks_leave_with_their_version),
        cmocka_unit_test(sessions_come_and_go),
        cmocka_unit_test(a_full_table_is_told_of_once),
        cmocka_unit_test(full_copies_name_the_model),
        cmocka_unit_test(full_tokens_name_the_reader),
        cmocka_unit_test(full_grants_name_the_reader),
        cmocka_unit_test(full_store_rows_name_the_model),
        cmocka_unit_test(full_export_sources_name_the_worker),
        cmocka_unit_test(unpublishes_do_not_wait_for_ever),
        cmocka_unit_test(each_table_has_the_bound_that_is_stated),
        cmocka_unit_test(a_full_door_is_told_of),
        cmocka_unit_test(full_withdrawals_name_the_model),
        cmocka_unit_test(full_control_clients_name_the_user),
    };
    return cmocka_run_group_tests_name("daemon.usage", tests, NULL, NULL);
}
