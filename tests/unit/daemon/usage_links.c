/* usage_links.c - the tables of a gateway's links are bounded (P7), and a full one is told of
 * (P10).
 *
 * Covers: gateway/daemon/control/usage_status.c */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "gateway/daemon/control/usage_status.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"
#include "tests/unit/daemon/linked_home.h"
#include "tests/unit/wan/links_world.h"

struct scene {
    struct world world;
    struct home home;
    struct truth made;
    struct tb_place place; /* of each version here */
    uint64_t held[1], claimed[1];
};

static void begin(struct scene *s)
{
    memset(s, 0, sizeof *s);
    world_init(&s->world);
    linked_home_new(&s->home, &s->world,
                    "{policy: {home: east, publish: [\"unix:*\"], read: [\"tombolo://west/gw\"]}}\n"
                    "link: {listen: \"127.0.0.1:0\"}\n" LINKED_WEST);
    s->home.config->session_max = 16;
    s->home.config->session_lease_ms = 60000; /* none ends, however slow the machine */
    home_start(&s->home);
    truth_make(&s->made, 1, 1, 4096);
    s->place = (struct tb_place){
        .manifest = &s->made.manifests[0], .bytes = s->made.bytes[0], .held = s->held, .claimed = s->claimed};
}

static void end(struct scene *s)
{
    linked_home_end(&s->home, &s->world);
    truth_free(&s->made);
}

static uint64_t column(const struct scene *s, const char *table, const char *key)
{
    return home_table(&s->home, table, key);
}

static struct tb_version_key numbered(uint32_t number)
{
    struct tb_version_key key = {.run_order = 1, .number = number, .shard_count = 1, .root = {{1}}};
    memcpy(key.uid.bytes, &number, sizeof number);
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

static void check_line(int log, const char *event, const char *words)
{
    static char text[1 << 16];
    const ssize_t bytes = pread(log, text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    const char *at = strstr(text, event);
    assert_non_null(at);
    assert_non_null(strstr(at, words));
    assert_null(strstr(at + 1, event));
}

static void full_offers_name_the_model(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct tb_daemon *d = s.home.d;
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    const uint64_t bound = column(&s, "offers", "bound");
    assert_int_equal(column(&s, "offers", "used"), 0);
    for (uint32_t n = 1; n <= bound; n++) {
        const struct tb_version_key key = numbered(n);
        CHECK_OK(tb_links_offer(d->links, &key, &s.place));
    }
    const struct tb_version_key more = numbered(UINT32_MAX);
    for (int round = 0; round < 3; round++) {
        CHECK_STATUS(tb_links_offer(d->links, &more, &s.place), TB_SITE_NOMEM);
        tb_usage_tick(d);
    }
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    char words[128];
    snprintf(words, sizeof words, "table=offers used=%u bound=%u most_used_by=policy its_rows=%u\n",
             (unsigned)bound, (unsigned)bound, (unsigned)bound);
    check_line(log, "table.full ", words);
    (void)close(log);
    assert_int_equal(d->counters.tables_full, 1);
    assert_int_equal(column(&s, "offers", "refused"), 3);
    for (uint32_t n = 1; n <= bound; n++) {
        const struct tb_version_key key = numbered(n);
        CHECK_OK(tb_links_retract(d->links, &key.uid, TB_SUPERSEDED, NULL, NULL));
    }
    assert_int_equal(column(&s, "offers", "used"), 0);
    end(&s);
}

static void full_landings_name_the_peer(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct tb_daemon *d = s.home.d;
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    const uint64_t bound = column(&s, "landings", "bound");
    for (uint32_t n = 1; n <= bound; n++) {
        const struct tb_version_key key = numbered(n);
        CHECK_OK(tb_links_land(d->links, 0, &key, &s.place));
    }
    const struct tb_version_key more = numbered(UINT32_MAX);
    CHECK_STATUS(tb_links_land(d->links, 0, &more, &s.place), TB_SITE_NOMEM);
    tb_usage_tick(d);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    check_line(log, "table.full ", "table=landings ");
    check_line(log, "table.full ", "most_used_by=west ");
    (void)close(log);
    assert_int_equal(d->counters.tables_full, 1);
    assert_int_equal(column(&s, "landings", "most"), bound);
    for (uint32_t n = 1; n <= bound; n++) {
        const struct tb_version_key key = numbered(n);
        CHECK_OK(tb_links_land_stop(d->links, &key.uid, NULL, NULL));
    }
    assert_int_equal(column(&s, "landings", "used"), 0);
    end(&s);
}

/* Connections that say nothing, from the address of a peer: it has its share of the port, and what
 * is beyond that is told. */
static void a_port_with_a_crowd_is_told_of(void **state)
{
    (void)state;
    struct scene s;
    static int fds[305];
    struct tb_address at;
    begin(&s);
    struct tb_daemon *d = s.home.d;
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    const uint64_t bound = column(&s, "link_connections", "bound");
    assert_int_equal(bound, 304);
    assert_true(tb_links_address(d->links, &at));
    for (uint64_t n = 0; n <= bound; n++) {
        fds[n] = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fds[n] >= 0);
        assert_int_equal(connect(fds[n], &at.any, at.bytes), 0);
        (void)uv_run(&d->loop, UV_RUN_NOWAIT);
    }
    while (column(&s, "link_connections", "shares_spent") == 0)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    tb_usage_tick(d);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    check_line(log, "share.spent ", "table=link_connections ");
    (void)close(log);
    assert_true(column(&s, "link_connections", "most") <= bound / 2);
    for (uint64_t n = 0; n <= bound; n++)
        (void)close(fds[n]);
    home_turn_until(&s.home, "link_connections", 0);
    end(&s);
}

/* A home whose store is new asks its peers, and requests to open a run wait for them: those of a
 * session go with it. */
static void runs_wait_within_a_bound(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct tb_daemon *d = s.home.d;
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    struct worker *w[3];
    for (uint32_t i = 0; i < 3; i++)
        w[i] = worker_new(&s.home, "trainer");
    for (uint32_t n = 0; n < 20; n++) {
        struct worker *asks = w[n / 8];
        struct tb_msg_run_open q = {.key.text = "run"};
        CHECK_OK(tb_name_set(&q.model, "policy"));
        tb_msg_run_open_encode(&q, worker_begin(asks, TB_MSG_RUN_OPEN, worker_request(asks), 4096));
        worker_send(asks);
        worker_sync(asks);
        assert_int_equal(column(&s, "run_waits", "used"), n < 16 ? n + 1 : 16);
    }
    tb_usage_tick(d);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    check_line(log, "table.full ", "table=run_waits used=16 bound=16 most_used_by=unix:");
    (void)close(log);
    assert_int_equal(column(&s, "run_waits", "refused"), 4);
    for (uint32_t i = 0; i < 3; i++)
        worker_free(w[i]);
    home_turn_until(&s.home, "run_waits", 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_offers_name_the_model),
        cmocka_unit_test(full_landings_name_the_peer),
        cmocka_unit_test(a_port_with_a_crowd_is_told_of),
        cmocka_unit_test(runs_wait_within_a_bound),
    };
    return cmocka_run_group_tests_name("daemon.usage_links", tests, NULL, NULL);
}
