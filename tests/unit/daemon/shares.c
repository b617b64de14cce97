/* shares.c - each table of `status`, and how it is kept from one party (P7). One identity takes as
 * many rows as it gets. Another one finds a row.
 *
 * Covers: gateway/daemon/sessions/session_shares.c gateway/daemon/sessions/session_limits.c
 * Covers: gateway/daemon/sessions/session_table.c gateway/daemon/sessions/session_grant.c
 * Covers: gateway/catalog/rows/reference_rows.c gateway/catalog/versions.c intra/fabric/exports.c
 * Covers: gateway/catalog/catalog_memory.c gateway/daemon/control/usage_status.c */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits/share_table.h"
#include "base/log.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/waiters.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/control/usage_status.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/sessions/held_reply.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_exports.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"

#define MODELS                                                                                               \
    "{policy: {home: east, publish: [\"unix:*\"], read: [\"unix:*\", \"tombolo://east/worker/*\"]},"         \
    " far: {home: west, read: [\"unix:*\"]}}"
#define SESSIONS 64u /* session.max: the smallest table that is divided */
#define EACH_HAS (SESSIONS / 4)

struct party {
    const char *identity;
    struct tb_worker_session *workers[EACH_HAS]; /* connections that say nothing */
    struct tb_id sessions[EACH_HAS];             /* of the catalog */
    uint32_t session_count;
};

struct scene {
    struct home home;
    struct worker *trainer;
    struct tb_id run;
    uint64_t export_id; /* a version that the gateway's door serves */
    struct party greedy, other;
    uint64_t rows; /* so far: a fresh number for each */
    uint8_t *bytes;
};

#define PIECE ((uint32_t)16 << 20)

static struct tb_id fresh(struct scene *s)
{
    struct tb_id id = {{0xaa}};
    s->rows++;
    memcpy(id.bytes + 8, &s->rows, sizeof s->rows);
    return id;
}

static struct tb_catalog *catalog(const struct scene *s)
{
    return s->home.d->catalog;
}

static struct tb_name name_of(const char *text)
{
    struct tb_name name = {.text = ""};
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

static enum tb_status session_open(struct scene *s, struct party *p, bool publishes)
{
    struct tb_catalog_session q = {
        .id = fresh(s), .name = name_of("w"), .host = name_of("host"), .publishes = publishes};
    (void)snprintf(q.identity, sizeof q.identity, "%s", p->identity);
    const enum tb_status status = tb_catalog_session_open(catalog(s), tb_clock_now(), &q);
    if (status == TB_OK && p->session_count < EACH_HAS) p->sessions[p->session_count++] = q.id;
    return status;
}

static void party_open(struct scene *s, struct party *p, const char *identity, uint32_t sessions)
{
    p->identity = identity;
    for (uint32_t i = 0; i < EACH_HAS; i++) {
        struct tb_worker_session *w = tb_worker_new(s->home.d, false);
        assert_non_null(w);
        CHECK_OK(tb_identity_parse(identity, &w->identity));
        w->id = fresh(s);
        tb_worker_enlist(w);
        p->workers[i] = w;
    }
    while (p->session_count < sessions)
        CHECK_OK(session_open(s, p, false));
}

/* The one that has a connection: it may publish. */
static struct tb_worker_session *trainer_of(const struct scene *s)
{
    struct tb_worker_session *w = s->home.d->sessions;
    while (w->wire == NULL)
        w = w->next;
    return w;
}

static struct tb_id opened(struct scene *s, uint64_t number)
{
    struct tb_version_key key;
    const struct tb_catalog_version_request q = {.session = trainer_of(s)->id,
                                                 .model = name_of("policy"),
                                                 .run = s->run,
                                                 .number = number,
                                                 .shard_count = 1,
                                                 .fresh_uid = fresh(s)};
    CHECK_OK(tb_catalog_version_open(catalog(s), tb_clock_now(), &q, &key));
    return key.uid;
}

static void begin_with_lease(struct scene *s, uint32_t lease_ms)
{
    memset(s, 0, sizeof *s);
    home_new_with(&s->home, MODELS, false);
    s->home.config->session_lease_ms = lease_ms;
    s->home.config->session_max = SESSIONS;
    home_start(&s->home);
    s->trainer = worker_new(&s->home, "trainer");
    s->run = worker_run_open(s->trainer, "run");
    s->bytes = calloc(1, PIECE);
    assert_non_null(s->bytes);
    s->export_id = 77;
    const struct tb_export_buffer buffer = {.bytes = s->bytes, .count = PIECE, .memfd = -1};
    const struct tb_export_options options = {
        .export_id = s->export_id, .buffers = &buffer, .buffer_count = 1};
    CHECK_OK(tb_export_open(s->home.d->fabric, &options));
}

static void begin(struct scene *s)
{
    begin_with_lease(s, 60000);
}

static void party_free(struct party *p)
{
    for (uint32_t i = 0; i < EACH_HAS; i++)
        if (p->workers[i] != NULL) tb_worker_free(p->workers[i]);
}

static void end(struct scene *s)
{
    party_free(&s->greedy);
    party_free(&s->other);
    tb_export_close(s->home.d->fabric, s->export_id, 0);
    worker_free(s->trainer);
    home_end(&s->home);
    home_free(&s->home);
    free(s->bytes);
}

/* ---- one row more of a table, for the n-th time ---- */

static enum tb_status take_session(struct scene *s, struct party *p, uint64_t n)
{
    (void)n;
    return session_open(s, p, false);
}

static enum tb_status take_member(struct scene *s, struct party *p, uint64_t n)
{
    struct tb_catalog_member m = {.session = p->sessions[n % p->session_count],
                                  .subscription = (uint32_t)++s->rows,
                                  .model = name_of("policy"),
                                  .count = 1000,
                                  .index = (uint32_t)n};
    m.group = name_of(p->identity + strlen("tombolo://east/worker/"));
    (void)snprintf(m.owner, sizeof m.owner, "%s", p->identity);
    return tb_catalog_subscribe(catalog(s), tb_clock_now(), &m);
}

static enum tb_status take_wait(struct scene *s, struct party *p, uint64_t n)
{
    const struct tb_catalog_wait w = {.handle = ++s->rows + 1000,
                                      .session = p->sessions[n % p->session_count],
                                      .kind = TB_CATALOG_WAIT_LATEST,
                                      .model = name_of("policy"),
                                      .deadline = TB_TIME_NEVER};
    return tb_catalog_wait(catalog(s), tb_clock_now(), &w);
}

/* An identity that may publish opens versions, and seals none. */
static enum tb_status take_version(struct scene *s, struct party *p, uint64_t n)
{
    struct tb_version_key key;
    (void)n;
    const struct tb_catalog_version_request q = {.session = p->sessions[0],
                                                 .model = name_of("policy"),
                                                 .run = s->run,
                                                 .number = ++s->rows,
                                                 .shard_count = 1,
                                                 .fresh_uid = fresh(s)};
    return tb_catalog_version_open(catalog(s), tb_clock_now(), &q, &key);
}

/* Its sessions say that they open versions that are open already: a reference each. */
static enum tb_status take_reference(struct scene *s, struct party *p, uint64_t n)
{
    struct tb_version_key key;
    const uint64_t number = 100 + n / p->session_count;
    if (n % p->session_count == 0 && p == &s->greedy) (void)opened(s, number);
    const struct tb_catalog_version_request q = {.session = p->sessions[n % p->session_count],
                                                 .model = name_of("policy"),
                                                 .run = s->run,
                                                 .number = number,
                                                 .shard_count = 1,
                                                 .fresh_uid = fresh(s)};
    return tb_catalog_version_open(catalog(s), tb_clock_now(), &q, &key);
}

static enum tb_status export_put(struct scene *s, struct party *p, uint64_t n, uint32_t bytes)
{
    const struct tb_span source = {s->bytes, bytes};
    const struct tb_worker_export e = {.uid = fresh(s), .export_id = ++s->rows};
    return tb_worker_export_put(p->workers[n % EACH_HAS], &e, &source);
}

static enum tb_status take_export(struct scene *s, struct party *p, uint64_t n)
{
    return export_put(s, p, n, 0);
}

static enum tb_status take_source(struct scene *s, struct party *p, uint64_t n)
{
    return export_put(s, p, n, PIECE);
}

static void granted(struct tb_daemon *d, const struct tb_grant_wait *grant, enum tb_status status)
{
    (void)d, (void)grant, (void)status;
}

static enum tb_status take_grant(struct scene *s, struct party *p, uint64_t n)
{
    struct tb_worker_session *owner = trainer_of(s);
    struct tb_grant_wait grant = {.answer = granted,
                                  .token = fresh(s),
                                  .reader = p->workers[n % EACH_HAS]->id,
                                  .export_id = 1,
                                  .plan = 1};
    return tb_grant_ask(owner, &grant, &owner->endpoint.fingerprint);
}

static enum tb_status take_token(struct scene *s, struct party *p, uint64_t n)
{
    const struct tb_id token = fresh(s);
    const struct tb_worker_session *w = p->workers[n % EACH_HAS];
    return tb_export_grant_of(s->home.d->fabric, s->export_id, &token, &w->endpoint.fingerprint,
                              tb_worker_session_owner(&w->identity));
}

static void unsent(struct tb_worker_session *w, const struct tb_held_reply *h)
{
    (void)w, (void)h;
}

static enum tb_status take_reply(struct scene *s, struct party *p, uint64_t n)
{
    const uint64_t before = home_table(&s->home, "held_replies", "used");
    const struct tb_held_reply reply = {.request = ++s->rows, .send = unsent};
    tb_reply_when_saved(p->workers[n % EACH_HAS], &reply);
    return home_table(&s->home, "held_replies", "used") > before ? TB_OK : TB_SITE_NOMEM;
}

/* ---- the tables ---- */

/* How a table is kept from one party. */
enum keeper {
    SHARES,    /* one identity has a quarter: tried here */
    ELSEWHERE, /* likewise, and tried by the test that is named */
    OWN,       /* each peer, model or share of the record has its own */
    CONFIG,    /* as many as the configuration makes, whatever parties say */
    FOLLOWS,   /* each row stands for one of a table that is divided */
    YIELDS     /* never refuses: the oldest, or one that says nothing any more, gives way */
};

static const struct {
    const char *table;
    enum keeper keeper;
    enum tb_status (*take)(struct scene *s, struct party *p, uint64_t n);
    uint32_t sessions; /* of the catalog that the greedy party has first */
    const char *why;   /* not tried here: the test, or the reason */
} tables[] = {
    {"sessions", SHARES, take_session, 0, NULL},
    {"groups", FOLLOWS, NULL, 0, "a group has a member, and ends with the last: groups.h"},
    {"members", SHARES, take_member, EACH_HAS, NULL},
    {"waits", SHARES, take_wait, EACH_HAS, NULL},
    {"references", SHARES, take_reference, EACH_HAS, NULL},
    {"versions", SHARES, take_version, 1, NULL},
    {"worker_exports", SHARES, take_export, 0, NULL},
    {"export_source_bytes", SHARES, take_source, 0, NULL},
    {"grants", SHARES, take_grant, 0, NULL},
    {"tokens", SHARES, take_token, 0, NULL},
    {"held_replies", SHARES, take_reply, 0, NULL},
    {"connections", ELSEWHERE, NULL, 0, "attack.strangers_on_the_socket_leave_places"},
    {"door_readers", ELSEWHERE, NULL, 0, "daemon.door_owners: one_identity_has_its_share"},
    {"run_waits", ELSEWHERE, NULL, 0, "a_share_is_a_quarter_over_all_sessions"},
    {"models_awake", ELSEWHERE, NULL, 0, "daemon.models_by_pattern: a_party_has_a_quarter_of_the_table"},
    {"parked_seal_bytes", ELSEWHERE, NULL, 0, "a_share_is_a_quarter_over_all_sessions"},
    {"partial_frame_bytes", ELSEWHERE, NULL, 0, "one_publisher_has_its_share_of_partial_frames"},
    {"control_clients", ELSEWHERE, NULL, 0, "daemon.usage: full_control_clients_name_the_user"},
    {"control_read_clients", ELSEWHERE, NULL, 0, "the code of control_clients"},
    {"link_connections", ELSEWHERE, NULL, 0, "wan.links_admission: a peer, an address of a peer, strangers"},
    {"audit_sums", ELSEWHERE, NULL, 0, "attack.denials_push_out_no_act: 32 of an identity a minute"},
    {"audit_rows", OWN, NULL, 0, "attack.denials_push_out_no_act: acts, versions and denials"},
    {"models", CONFIG, NULL, 0, "the models of the configuration, and models_awake"},
    {"sites", CONFIG, NULL, 0, "peers, and speaks_for of each: attack.a_peer_speaks_for_no_other_site"},
    {"records", CONFIG, NULL, 0, "as sites, by models; a peer's own takes the place of hearsay"},
    {"runs", YIELDS, NULL, 0, "a model has one that is not fenced; catalog.models: old_runs_are_forgotten"},
    {"unpublish_waits", FOLLOWS, NULL, 0, "references, and 64 of a session"},
    {"copies", FOLLOWS, NULL, 0, "versions"},
    {"exports", FOLLOWS, NULL, 0, "copies"},
    {"offers", FOLLOWS, NULL, 0, "copies"},
    {"live_asks", CONFIG, NULL, 0, "one a model, by operators"},
    {"store_rows", FOLLOWS, NULL, 0, "a row is one of a run, a version or a model; the dispatcher waits"},
    {"withdrawals", OWN, NULL, 0, "a model's"},
    {"statements", OWN, NULL, 0, "a model's, of each kind"},
    {"withdrawals_in_all", YIELDS, NULL, 0, "the oldest; home alone withdraws"},
    {"statements_in_all", YIELDS, NULL, 0,
     "daemon.statement_table: the oldest of a model that rests; home alone signs"},
    {"announced", OWN, NULL, 0, "a peer's"},
    {"granted", OWN, NULL, 0, "a peer's"},
    {"landings", OWN, NULL, 0, "a peer's"},
    {"asks", OWN, NULL, 0, "a peer's"},
    {"idle_layout_bytes", YIELDS, NULL, 0, "the oldest"},
    {"encoded_bytes", YIELDS, NULL, 0, "the oldest"},
    {"lent_bytes", YIELDS, NULL, 0, "what is beyond goes by a socket: intra.lent"},
    {"borrowed_bytes", YIELDS, NULL, 0, "likewise"},
};
#define TABLES (sizeof tables / sizeof tables[0])

static bool is_listed(const char *table)
{
    for (size_t i = 0; i < TABLES; i++)
        if (strcmp(tables[i].table, table) == 0) return true;
    return false;
}

/* A new table has to say how it is kept. */
static void each_table_says_how_it_is_kept(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    json_t *rows = tb_status_tables(s.home.d), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const char *table = json_string_value(json_object_get(row, "table"));
        if (!is_listed(table)) fail_msg("%s: how is it kept from one party?", table);
    }
    json_decref(rows);
    for (i = 0; i < TABLES; i++)
        assert_true((tables[i].keeper == SHARES) == (tables[i].take != NULL && tables[i].why == NULL));
    end(&s);
}

/* The rows that one party may have. Of versions they are a model's, of references the workers'. */
static uint64_t share_of(const struct scene *s, const char *table)
{
    const struct tb_bounds *b = &s->home.d->bounds;
    if (strcmp(table, "versions") == 0) return b->model_versions / 4;
    if (strcmp(table, "references") == 0) return b->references / 4;
    return home_table(&s->home, table, "bound") / 4;
}

static void fill(size_t at)
{
    struct scene s;
    begin(&s);
    const int log = caught_log_new();
    const char *table = tables[at].table;
    party_open(&s, &s.greedy, "tombolo://east/worker/greedy", tables[at].sessions);
    party_open(&s, &s.other, "tombolo://east/worker/other", tables[at].sessions != 0);
    tb_log_set(TB_LOG_WARN, log);
    const uint64_t share = share_of(&s, table);
    const uint64_t unit = strcmp(table, "export_source_bytes") == 0 ? PIECE : 1;
    uint64_t n = 0;
    while (n <= 2 * share / unit && tables[at].take(&s, &s.greedy, n) == TB_OK)
        n++;
    if (n * unit != share)
        fail_msg("%s: one party has %llu rows, and its share is %llu", table, (unsigned long long)(n * unit),
                 (unsigned long long)share);
    if (home_table(&s.home, table, "shares_spent") == 0) fail_msg("%s counts no share", table);
    if (tables[at].take(&s, &s.other, 0) != TB_OK) fail_msg("%s: another party finds no row", table);
    tb_usage_tick(s.home.d);
    assert_int_equal(s.home.d->counters.shares_spent, home_table(&s.home, table, "shares_spent"));
    char words[64], text[4096] = "";
    (void)snprintf(words, sizeof words, "share.spent table=%s ", table);
    assert_true(pread(log, text, sizeof text - 1, 0) > 0);
    if (strstr(text, words) == NULL) fail_msg("%s: no line: %s", table, text);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    (void)close(log);
    end(&s);
}

static void one_identity_takes_its_share_of_each_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < TABLES; i++)
        if (tables[i].keeper == SHARES) fill(i);
}

static uint64_t pretended;

static uint64_t pretended_uses(const struct tb_worker_session *w)
{
    (void)w;
    return pretended;
}

/* The rule by which run_waits and parked_seal_bytes are kept, too. */
static void a_share_is_a_quarter_over_all_sessions(void **state)
{
    (void)state;
    struct scene s;
    struct tb_gauge g = {.used = 0};
    begin(&s);
    party_open(&s, &s.greedy, "tombolo://east/worker/greedy", 0);
    const struct tb_worker_session *w = s.greedy.workers[0];
    pretended = 5; /* of each of its 16 connections */
    /* there is room for all */
    assert_true(tb_worker_session_share_room(w, &g, 1000, 250, pretended_uses));
    g.used = 700;
    assert_true(tb_worker_session_share_room(w, &g, 1000, 50, pretended_uses));
    assert_false(tb_worker_session_share_room(w, &g, 1000, 51, pretended_uses)); /* for publishers */
    pretended = 20;
    g.used = 320;
    assert_false(tb_worker_session_share_room(w, &g, 1000, 1, pretended_uses));
    assert_int_equal(g.refused, 2);
    assert_int_equal(g.spent, 2);
    const struct tb_worker_session *publisher = trainer_of(&s);
    pretended = 0;
    g.used = 990;
    assert_true(tb_worker_session_share_room(publisher, &g, 1000, 10, pretended_uses));
    assert_false(tb_worker_session_share_room(publisher, &g, 1000, 11, pretended_uses));
    assert_int_equal(g.refused, 3);
    assert_int_equal(g.spent, 2);
    end(&s);
}

/* All versions of a model that a site holds fit into its quarter of the references of sites. */
static void a_sites_share_fits_its_versions(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    assert_true(s.home.d->bounds.site_references / 4 > s.home.d->bounds.model_versions);
    end(&s);
}

static void begin_frame(const struct worker *w, uint32_t bytes)
{
    struct tb_writer head;
    uint8_t out[16];
    tb_writer_init(&head, out, sizeof out);
    tb_write_u32(&head, bytes);
    tb_write_u16(&head, TB_MSG_SEAL);
    tb_write_u16(&head, 0);
    tb_write_u64(&head, 9);
    assert_int_equal(send(w->fd, out, sizeof out, 0), (ssize_t)sizeof out);
}

/* A publisher may send long frames. It begins one that takes more than a quarter of the memory for
 * such frames, and its connection ends. */
static void one_publisher_has_its_share_of_partial_frames(void **state)
{
    (void)state;
    enum { KEPT = 1 << 20 };
    struct scene s;
    begin(&s);
    s.home.d->session_limits.partial.bound = KEPT;
    begin_frame(s.trainer, KEPT);
    for (uint32_t sent = 0; home_table(&s.home, "partial_frame_bytes", "shares_spent") == 0;) {
        const ssize_t more = send(s.trainer->fd, s.bytes, 4096, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (more > 0) sent += (uint32_t)more;
        assert_true(sent < KEPT);
        (void)uv_run(&s.home.d->loop, UV_RUN_NOWAIT);
    }
    assert_true(home_table(&s.home, "partial_frame_bytes", "most") <= KEPT / 2);
    home_turn_until(&s.home, "partial_frame_bytes", 0);
    end(&s);
}

/* A frame whose bytes drip makes no progress: it renews no lease, and its connection ends. */
static void a_frame_that_drips_ends_its_connection(void **state)
{
    (void)state;
    struct scene s;
    begin_with_lease(&s, 500);
    begin_frame(s.trainer, 1 << 20);
    for (uint32_t sent = 0; s.home.d->counters.sessions_lost == 0;) {
        sent += send(s.trainer->fd, s.bytes, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
        assert_true(sent < 4000); /* eight leases, at least */
        (void)uv_run(&s.home.d->loop, UV_RUN_NOWAIT);
        (void)usleep(1000);
    }
    home_turn_until(&s.home, "partial_frame_bytes", 0);
    end(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_table_says_how_it_is_kept),
        cmocka_unit_test(one_identity_takes_its_share_of_each_table),
        cmocka_unit_test(a_share_is_a_quarter_over_all_sessions),
        cmocka_unit_test(a_sites_share_fits_its_versions),
        cmocka_unit_test(one_publisher_has_its_share_of_partial_frames),
        cmocka_unit_test(a_frame_that_drips_ends_its_connection),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("daemon.shares", tests, NULL, NULL);
}
