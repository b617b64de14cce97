/* Names, against a name server of sixty lines on loopback.
 * Covers: base/net/resolve.c */
#include "base/net/resolve.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "net_world.h"

/* The name server: "both" has A and AAAA, "four" A alone, "many" forty A; "mute" gets no answer,
 * "half" none to AAAA; anything else does not exist. A name is judged by its first label. Services
 * (SRV) stand in `services`. */
struct server {
    uv_poll_t poll;
    int fd;
    char at[32]; /* "127.0.0.1:port" */
    int asked;
};

struct question {
    char label[64];
    uint16_t type; /* 1: A, 28: AAAA */
    size_t end;    /* bytes up to the end of the question */
};

static bool question_read(const uint8_t *m, size_t count, struct question *q)
{
    size_t at = 12;
    if (count < 17 || m[12] == 0 || m[12] > 63) return false;
    memcpy(q->label, m + 13, m[12]);
    q->label[m[12]] = '\0';
    while (at < count && m[at] != 0)
        at += 1u + m[at];
    if (at + 5 > count) return false;
    q->type = (uint16_t)(m[at + 1] << 8 | m[at + 2]);
    q->end = at + 5;
    return true;
}

static size_t put_record(uint8_t *m, size_t at, uint16_t type, uint8_t number)
{
    const uint8_t bytes = type == 1 ? 4 : 16;
    const uint8_t head[12] = {0xc0, 12, 0, (uint8_t)type, 0, 1, 0, 0, 0, 77, 0, bytes}; /* ttl 77 */
    memcpy(m + at, head, 12);
    memset(m + at + 12, 0, bytes);
    if (type == 1)
        memcpy(m + at + 12, (const uint8_t[]){192, 0, 2, number}, 4);
    else
        memcpy(m + at + 12, (const uint8_t[]){0x20, 1, 0x0d, 0xb8}, 4), m[at + 27] = number;
    return at + 12 + bytes;
}

struct service {
    const char *label;
    uint32_t ttl_s;
    struct {
        uint16_t priority, port;
        const char *host; /* its first label; the rest is .test */
    } targets[4];
};
static const struct service services[] = {
    {"_two", 30, {{20, 7402, "both"}, {10, 7401, "four"}}},
    {"_long", 90000, {{10, 7401, "four"}}},
    {"_brief", 0, {{10, 7401, "four"}}},
    {"_half", 60, {{10, 7401, "nobody"}, {20, 7402, "four"}}},
    {"_dead", 60, {{10, 7401, "nobody"}}},
    {"_no", 60, {{0, 0, ""}}},           /* "." */
    {"_lies", 60, {{10, 7401, "\xc0"}}}, /* a name that points at itself */
};

static size_t put_service(uint8_t *m, size_t at, const struct service *v, uint32_t k)
{
    const char *host = v->targets[k].host;
    const uint8_t length = (uint8_t)strlen(host);
    const bool root = length == 0, lies = host[0] == '\xc0';
    const uint8_t name_bytes = root ? 1 : lies ? 2 : (uint8_t)(length + 7);
    const uint8_t head[18] = {0xc0,
                              12,
                              0,
                              33,
                              0,
                              1,
                              (uint8_t)(v->ttl_s >> 24),
                              (uint8_t)(v->ttl_s >> 16),
                              (uint8_t)(v->ttl_s >> 8),
                              (uint8_t)v->ttl_s,
                              0,
                              (uint8_t)(6 + name_bytes),
                              (uint8_t)(v->targets[k].priority >> 8),
                              (uint8_t)v->targets[k].priority,
                              0,
                              1,
                              (uint8_t)(v->targets[k].port >> 8),
                              (uint8_t)v->targets[k].port};
    memcpy(m + at, head, 18);
    at += 18;
    if (root) {
        m[at] = 0;
    } else if (lies) {
        m[at] = (uint8_t)(0xc0 | at >> 8), m[at + 1] = (uint8_t)at;
    } else {
        m[at] = length;
        memcpy(m + at + 1, host, length);
        memcpy(m + at + 1 + length, "\x04test", 6);
    }
    return at + name_bytes;
}

/* The end of the answer; 0: no such service. */
static size_t put_services(uint8_t *m, const struct question *q, int *records_out)
{
    for (size_t i = 0; i < sizeof services / sizeof *services; i++) {
        const struct service *v = &services[i];
        size_t end = q->end;
        if (q->type != 33 || strcmp(v->label, q->label) != 0) continue;
        for (uint32_t k = 0; k < 4 && v->targets[k].host != NULL; k++, ++*records_out)
            end = put_service(m, end, v, k);
        return end;
    }
    return 0;
}

static void on_question(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct server *s = poll->data;
    uint8_t m[1500];
    struct sockaddr_in from;
    socklen_t bytes = sizeof from;
    struct question q;
    const ssize_t got = recvfrom(s->fd, m, 512, 0, (struct sockaddr *)&from, &bytes);
    if (got < 0 || !question_read(m, (size_t)got, &q)) return;
    s->asked++;
    const bool both = strcmp(q.label, "both") == 0, four = strcmp(q.label, "four") == 0;
    const bool many = strcmp(q.label, "many") == 0, half = strcmp(q.label, "half") == 0;
    if (strcmp(q.label, "mute") == 0 || (half && q.type == 28)) return;
    const bool known = both || four || many || half;
    int records = (q.type == 1 && known) || (q.type == 28 && both) ? 1 : 0;
    if (both && records) records = 2;
    if (many && records) records = 30;
    const size_t service_end = put_services(m, &q, &records);
    size_t end = service_end > 0 ? service_end : q.end;
    for (int i = 0; service_end == 0 && i < records; i++)
        end = put_record(m, end, q.type, (uint8_t)(i + 1));
    m[2] = 0x85; /* answer, authoritative */
    m[3] = known || service_end > 0 ? 0 : 3;
    m[6] = 0, m[7] = (uint8_t)records;
    memset(m + 8, 0, 4);
    (void)!sendto(s->fd, m, end, 0, (struct sockaddr *)&from, bytes);
}

static void server_init(struct server *s, struct world *w)
{
    struct tb_address at = loopback(0);
    *s = (struct server){.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    assert_int_equal(bind(s->fd, &at.any, at.bytes), 0);
    assert_int_equal(getsockname(s->fd, &at.any, &at.bytes), 0);
    tb_address_format(&at, s->at, sizeof s->at);
    assert_int_equal(uv_poll_init(&w->loop, &s->poll, s->fd), 0);
    s->poll.data = s;
    uv_poll_start(&s->poll, UV_READABLE, on_question);
}

static void server_fini(struct server *s, struct world *w)
{
    uv_close((uv_handle_t *)&s->poll, NULL);
    world_turns(w, 2);
    close(s->fd);
}

struct reply {
    int calls;
    enum tb_status status;
    uint32_t count, ttl_s;
    struct tb_address addresses[TB_ADDRESSES_MAX];
    struct tb_resolver *close; /* inside the callback */
    struct tb_resolver *again;
};

static void on_reply(void *user, enum tb_status status, const struct tb_address *addresses, uint32_t count,
                     uint32_t ttl_s)
{
    struct reply *r = user;
    TB_ASSERT(count <= TB_ADDRESSES_MAX && (status == TB_OK) == (count > 0));
    r->calls++;
    r->status = status;
    r->count = count;
    r->ttl_s = ttl_s;
    if (count > 0) memcpy(r->addresses, addresses, count * sizeof *addresses);
    if (r->close != NULL) tb_resolver_close(r->close);
    struct tb_resolver *again = r->again;
    const struct tb_endpoint e = {.host = "192.0.2.9", .port = 1};
    r->again = NULL;
    if (again != NULL) tb_resolve(again, &e, on_reply, r);
}

static struct tb_resolver *resolver(struct world *w, const struct server *s, uint32_t timeout_ms)
{
    const struct tb_resolver_options o = {.servers = s->at, .timeout_ms = timeout_ms};
    struct tb_resolver *r = NULL;
    assert_int_equal(tb_resolver_new(&w->loop, &o, &r), TB_OK);
    return r;
}

static void ask(struct world *w, struct tb_resolver *resolver_, const char *host, struct reply *r)
{
    struct tb_endpoint e = {.port = 7400};
    snprintf(e.host, sizeof e.host, "%s", host);
    e.is_service = host[0] == '_';
    *r = (struct reply){0};
    tb_resolve(resolver_, &e, on_reply, r);
    assert_int_equal(r->calls, 0); /* never inside the call */
    WORLD_UNTIL(w, r->calls > 0);
    world_turns(w, 3);
    assert_int_equal(r->calls, 1);
}

static void says(const struct reply *r, uint32_t index, const char *text)
{
    char is[128];
    assert_true(index < r->count);
    tb_address_format(&r->addresses[index], is, sizeof is);
    assert_string_equal(is, text);
}

static void both_families_come_in_turn(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 5000);
    ask(w, resolver_, "both.test.", &r);
    assert_int_equal(r.status, TB_OK);
    assert_int_equal(r.count, 4);
    says(&r, 0, "[2001:db8::1]:7400");
    says(&r, 1, "192.0.2.1:7400");
    says(&r, 2, "[2001:db8::2]:7400");
    says(&r, 3, "192.0.2.2:7400");
    assert_int_equal(r.ttl_s, 77);
    ask(w, resolver_, "four.test.", &r);
    assert_int_equal(r.status, TB_OK);
    assert_int_equal(r.count, 1);
    says(&r, 0, "192.0.2.1:7400");
    tb_resolver_close(resolver_);
    server_fini(&s, w);
}

static void more_addresses_than_the_bound_are_cut(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 5000);
    ask(w, resolver_, "many.test.", &r);
    assert_int_equal(r.status, TB_OK);
    assert_int_equal(r.count, TB_ADDRESSES_MAX);
    tb_resolver_close(resolver_);
    server_fini(&s, w);
}

static void a_name_that_does_not_exist_is_told_from_silence(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 400);
    ask(w, resolver_, "nobody.test.", &r);
    assert_int_equal(r.status, TB_NOT_FOUND);
    const tb_time_ns from = tb_clock_now();
    ask(w, resolver_, "mute.test.", &r);
    assert_int_equal(r.status, TB_PEER_UNREACHABLE);
    const tb_time_ns took = tb_clock_now() - from;
    assert_true(took >= TB_MS(200)); /* it did try */
    assert_true(took < TB_SECONDS(20));
    tb_resolver_close(resolver_);
    server_fini(&s, w);
}

/* P7: c-ares would ask three silent servers in turn for 1.75 times as long; the deadline is
 * ours. An answer of c-ares after it is dropped. */
static void the_deadline_holds_for_several_servers(void **state)
{
    struct world *w = *state;
    struct server s, t, u;
    struct reply r;
    server_init(&s, w);
    server_init(&t, w);
    server_init(&u, w);
    char servers[120];
    snprintf(servers, sizeof servers, "%s,%s,%s", s.at, t.at, u.at);
    for (uint32_t timeout_ms = 400; timeout_ms <= 6000; timeout_ms += 5600) {
        const struct tb_resolver_options o = {.servers = servers, .timeout_ms = timeout_ms};
        struct tb_resolver *resolver_ = NULL;
        assert_int_equal(tb_resolver_new(&w->loop, &o, &resolver_), TB_OK);
        const tb_time_ns from = tb_clock_now();
        ask(w, resolver_, "mute.test.", &r);
        assert_int_equal(r.status, TB_PEER_UNREACHABLE);
        if (timeout_ms == 400)
            WORLD_UNTIL(w, tb_clock_now() > from + TB_MS(1000)); /* c-ares ends, too */
        else
            assert_true(tb_clock_now() - from <
                        TB_MS(10000)); /* c-ares: 10.5 s; four late are no fault of ours */
        assert_int_equal(r.calls, 1);
        tb_resolver_close(resolver_);
    }
    server_fini(&s, w);
    server_fini(&t, w);
    server_fini(&u, w);
}

/* P6: a server that drops AAAA, as some do, costs time but not the name. */
static void a_server_that_answers_half_is_bounded(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 3600);
    ask(w, resolver_, "half.test.", &r);
    assert_int_equal(r.status, TB_OK);
    assert_int_equal(r.count, 1);
    says(&r, 0, "192.0.2.1:7400");
    tb_resolver_close(resolver_);
    server_fini(&s, w);
}

static void no_server_at_all_is_unreachable(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 400);
    server_fini(&s, w); /* its port answers with ICMP */
    ask(w, resolver_, "both.test.", &r);
    assert_int_equal(r.status, TB_PEER_UNREACHABLE);
    tb_resolver_close(resolver_);
}

static void numbers_and_paths_need_no_server(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 400);
    ask(w, resolver_, "192.0.2.7", &r);
    assert_int_equal(r.status, TB_OK);
    says(&r, 0, "192.0.2.7:7400");
    ask(w, resolver_, "2001:db8::7", &r);
    says(&r, 0, "[2001:db8::7]:7400");
    ask(w, resolver_, "localhost", &r); /* /etc/hosts */
    assert_int_equal(r.status, TB_OK);
    assert_true(r.ttl_s > 0);
    assert_int_equal(s.asked, 0);
    tb_resolver_close(resolver_);
    server_fini(&s, w);
}

/* Targets by priority, each with its own port, and the answer is good for as long as the
 * least of its records. */
static void a_service_gives_its_targets_in_order(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 5000);
    ask(w, resolver_, "_two._tcp.test", &r);
    assert_int_equal(r.status, TB_OK);
    assert_int_equal(r.count, 5);
    says(&r, 0, "192.0.2.1:7401");
    says(&r, 1, "[2001:db8::1]:7402");
    says(&r, 2, "192.0.2.1:7402");
    assert_int_equal(r.ttl_s, 30);
    ask(w, resolver_, "_long._tcp.test", &r);
    assert_int_equal(r.ttl_s, 77); /* of the A record */
    ask(w, resolver_, "_brief._tcp.test", &r);
    assert_int_equal(r.ttl_s, 5);
    ask(w, resolver_, "_half._tcp.test", &r); /* one target does not exist: the other does */
    assert_int_equal(r.count, 1);
    says(&r, 0, "192.0.2.1:7402");
    tb_resolver_close(resolver_);
    server_fini(&s, w);
}

/* P7 P10: a name without a service, or without an answer, is a status. */
static void a_service_that_is_none_is_refused(void **state)
{
    static const struct {
        const char *name;
        enum tb_status status;
    } cases[] = {{"_nowhere._tcp.test", TB_NOT_FOUND},
                 {"_dead._tcp.test", TB_NOT_FOUND},
                 {"_no._tcp.test", TB_NOT_FOUND},
                 {"_lies._tcp.test", TB_PEER_GARBLED},
                 {"_mute._tcp.test", TB_NOT_FOUND}};
    struct world *w = *state;
    struct server s;
    struct reply r;
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 5000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ask(w, resolver_, cases[i].name, &r);
        if (r.status != cases[i].status) fail_msg("%s: %d", cases[i].name, r.status);
    }
    tb_resolver_close(resolver_);
    server_fini(&s, w);
}

static void closing_ends_open_queries(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r[3] = {0};
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 60000);
    const struct tb_endpoint mute = {.host = "mute.test.", .port = 1},
                             service = {.host = "mute._tcp.test", .is_service = true},
                             number = {.host = "192.0.2.7", .port = 1};
    tb_resolve(resolver_, &service, on_reply, &r[0]);
    tb_resolve(resolver_, &mute, on_reply, &r[1]);
    WORLD_UNTIL(w, s.asked >= 2);
    tb_resolve(resolver_, &number, on_reply, &r[2]); /* has its answer, and nobody heard it */
    tb_resolver_close(resolver_);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r[i].calls, 1);
        assert_int_equal(r[i].status, TB_CANCELLED);
    }
    server_fini(&s, w);
}

static void a_callback_may_close_or_ask_again(void **state)
{
    struct world *w = *state;
    struct server s;
    struct reply r = {0}, other = {0};
    server_init(&s, w);
    struct tb_resolver *resolver_ = resolver(w, &s, 5000);
    const struct tb_endpoint both = {.host = "both.test.", .port = 1},
                             mute = {.host = "mute.test.", .port = 1};
    r.again = resolver_;
    tb_resolve(resolver_, &both, on_reply, &r);
    WORLD_UNTIL(w, r.calls == 2);
    r = (struct reply){.close = resolver_};
    tb_resolve(resolver_, &mute, on_reply, &other);
    tb_resolve(resolver_, &both, on_reply, &r);
    WORLD_UNTIL(w, r.calls == 1);
    assert_int_equal(r.status, TB_OK);
    assert_int_equal(other.calls, 1);
    assert_int_equal(other.status, TB_CANCELLED);
    server_fini(&s, w);
}

static void a_server_list_that_is_none_is_refused(void **state)
{
    struct world *w = *state;
    const struct tb_resolver_options o = {.servers = "not a server list"};
    struct tb_resolver *r = NULL;
    assert_int_equal(tb_resolver_new(&w->loop, &o, &r), TB_BAD_ARGUMENT);
    assert_null(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(both_families_come_in_turn),
        WORLD_TEST(more_addresses_than_the_bound_are_cut),
        WORLD_TEST(a_name_that_does_not_exist_is_told_from_silence),
        WORLD_TEST(the_deadline_holds_for_several_servers),
        WORLD_TEST(a_server_that_answers_half_is_bounded),
        WORLD_TEST(no_server_at_all_is_unreachable),
        WORLD_TEST(numbers_and_paths_need_no_server),
        WORLD_TEST(a_service_gives_its_targets_in_order),
        WORLD_TEST(a_service_that_is_none_is_refused),
        WORLD_TEST(closing_ends_open_queries),
        WORLD_TEST(a_callback_may_close_or_ask_again),
        WORLD_TEST(a_server_list_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
