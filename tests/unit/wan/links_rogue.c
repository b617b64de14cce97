/* links_rogue.c - a peer with a good certificate that breaks the protocol, and a path that goes silent.
 * P7, P10: it is dropped, counted, and nobody else notices. */
#include "links_world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "wan/frame.h"
#include "wan/landing.h"

/* West's certificate in the hands of a test. */
struct rogue {
    struct links_world w;
    struct truth t;
    struct site *east, *west;
    struct tb_tls *tls;
    struct tb_wire *wire;
    bool open, closed, greeted, by_bye;
    enum tb_status why;
    struct tb_id session;
    uint32_t manifests_seen, asked;           /* HEAD and ASK */
    uint32_t frames, held_at, stream_gone_at; /* counted from 1; of the first of each */
    uint32_t wanted;                          /* the crossing of the newest WANT */
    uint32_t lost_said;                       /* REFUSED with TB_REFUSAL_LOST */
    uint32_t expected, stopped;               /* the crossing of the newest EXPECT, STOP */
    uint32_t protocol;                        /* 0: 1, as the release before */
};

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w, (void)peer;
    ((struct rogue *)user)->open = true;
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    (void)w;
    struct rogue *r = user;
    struct tb_frame_hello hello = {0};
    struct tb_frame_bye bye = {0};
    struct tb_frame_want want = {0};
    struct tb_frame_refused refused = {0};
    struct tb_frame_expect expect = {0};
    struct tb_frame_stop stop = {0};
    r->frames++;
    r->manifests_seen += f->type == TB_FRAME_HEAD;
    r->asked += f->type == TB_FRAME_ASK;
    if (f->type == TB_FRAME_HELD && r->held_at == 0) r->held_at = r->frames;
    if (f->type == TB_FRAME_STREAM_GONE && r->stream_gone_at == 0) r->stream_gone_at = r->frames;
    if (f->type == TB_FRAME_WANT) {
        CHECK_OK(tb_frame_want_decode(&f->payload, &want));
        r->wanted = want.crossing;
    }
    if (f->type == TB_FRAME_EXPECT) {
        CHECK_OK(tb_frame_expect_decode(&f->payload, &expect));
        r->expected = expect.crossing;
    }
    if (f->type == TB_FRAME_STOP) {
        CHECK_OK(tb_frame_stop_decode(&f->payload, &stop));
        r->stopped = stop.crossing;
    }
    if (f->type == TB_FRAME_REFUSED) {
        CHECK_OK(tb_frame_refused_decode(&f->payload, &refused));
        r->lost_said += refused.why == TB_REFUSAL_LOST;
    }
    if (f->type == TB_FRAME_HELLO) {
        CHECK_OK(tb_frame_hello_decode(&f->payload, &hello));
        r->session = hello.session;
        r->greeted = true;
    }
    if (f->type == TB_FRAME_BYE) {
        CHECK_OK(tb_frame_bye_decode(&f->payload, &bye));
        r->by_bye = true;
        r->why = tb_frame_status_of(bye.status_negated);
    }
    return TB_OK;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    struct rogue *r = user;
    r->closed = true;
    if (!r->by_bye) r->why = why;
}

static const struct tb_wire_ops wire_ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

static void rogue_dial(struct rogue *r)
{
    struct tb_address at;
    assert_true(tb_links_address(r->east->links, &at));
    const struct tb_wire_options options = {.chan = {.loop = &r->w.net.loop, .tls = r->tls},
                                            .ops = &wire_ops,
                                            .user = r,
                                            .frame_bytes_max = 16 << 20};
    r->open = r->closed = r->greeted = r->by_bye = false;
    CHECK_OK(tb_wire_dial(&options, &at, &r->wire));
    WORLD_UNTIL(&r->w.net, r->open);
}

static void rogue_init(struct rogue *r)
{
    char why[256];
    memset(r, 0, sizeof *r);
    links_world_init(&r->w);
    truth_make(&r->t, 8, 1, 4 << 20);
    r->east = site_new(&r->w, "east", true);
    r->west = site_new(&r->w, "west", false);
    site_peer(r->east, r->west, false, true);
    site_start(r->east);
    site_publish(r->east, &r->t);
    r->tls = world_tls(&r->w.net, "west", "gw", "west");
    CHECK_OK(
        tb_tls_add_site_ca(r->tls, &r->east->options.site, world_path(&r->w.net, "east", "ca.crt"), why));
    rogue_dial(r);
}

static void rogue_fini(struct rogue *r)
{
    if (!r->closed) tb_wire_close(r->wire, TB_CANCELLED);
    WORLD_UNTIL(&r->w.net, r->closed);
    tb_tls_free(r->tls);
    links_world_fini(&r->w);
    truth_free(&r->t);
}

static void send_bytes(struct rogue *r, uint16_t type, const void *bytes, size_t count)
{
    struct tb_writer *w = tb_wire_begin(r->wire, type, 0, count);
    assert_non_null(w);
    tb_write_bytes(w, bytes, count);
    tb_wire_end(r->wire);
}

#define ROGUE_SEND(r, TYPE, message, ...)                                                                    \
    do {                                                                                                     \
        uint8_t bytes_[2048];                                                                                \
        struct tb_writer w_;                                                                                 \
        tb_writer_init(&w_, bytes_, sizeof bytes_);                                                          \
        message##_encode(&(const struct message){__VA_ARGS__}, &w_);                                         \
        assert_false(w_.full);                                                                               \
        send_bytes(r, TYPE, bytes_, w_.used);                                                                \
    } while (0)

static struct tb_name named(const char *text)
{
    struct tb_name name;
    memset(&name, 0, sizeof name);
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

static void say_hello(struct rogue *r, const char *site)
{
    ROGUE_SEND(r, TB_FRAME_HELLO, tb_frame_hello, .protocol = r->protocol != 0 ? r->protocol : 1,
               .protocol_min = 1, .site = named(site), .gateway = named("gw"), .lane_count = 1,
               .incarnation = 1, .more = {(const uint8_t *)"", 0});
}

static void greet(struct rogue *r)
{
    say_hello(r, "west");
    WORLD_UNTIL(&r->w.net, r->greeted);
    ROGUE_SEND(r, TB_FRAME_SUBSCRIBE, tb_frame_subscribe, .model = named("policy"));
}

/* Said wrong before the session: the connection ends. Said wrong in it: the session ends, with one count. */
static void check_dropped(struct rogue *r, enum tb_status why)
{
    WORLD_UNTIL(&r->w.net, r->closed);
    CHECK_STATUS(r->why, why);
}

static void before_hello(void (*say)(struct rogue *r), enum tb_status why)
{
    struct rogue r;
    rogue_init(&r);
    say(&r);
    check_dropped(&r, why);
    assert_int_equal(r.east->ups, 0);
    rogue_fini(&r);
}

static void ping_first(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_PING, tb_frame_ping, .stamp = 1);
}

static void hello_of_another(struct rogue *r)
{
    say_hello(r, "north");
}

static void half_a_hello(struct rogue *r)
{
    send_bytes(r, TB_FRAME_HELLO, "\1\0\0\0\1\0", 6);
}

static void bind_nothing(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_BIND, tb_frame_bind, .stream = 1);
}

static void a_megabyte_and_more(struct rogue *r)
{
    static uint8_t bytes[(1 << 20) + 1];
    send_bytes(r, TB_FRAME_HELLO, bytes, sizeof bytes);
}

static void what_is_no_greeting_is_refused(void **state)
{
    (void)state;
    before_hello(ping_first, TB_PEER_GARBLED);
    before_hello(hello_of_another, TB_PEER_IDENTITY);
    before_hello(half_a_hello, TB_PEER_GARBLED);
    before_hello(bind_nothing, TB_PEER_TOKEN);
}

/* P7: refused from its header. What had been sent may be cut off, so the end is all the rogue sees. */
static void a_frame_over_the_limit_is_refused(void **state)
{
    (void)state;
    struct rogue r;
    rogue_init(&r);
    a_megabyte_and_more(&r);
    WORLD_UNTIL(&r.w.net, r.closed);
    assert_int_equal(r.east->ups, 0);
    rogue_fini(&r);
}

static void in_session_of(uint32_t protocol, void (*say)(struct rogue *r))
{
    struct rogue r;
    rogue_init(&r);
    r.protocol = protocol;
    greet(&r);
    say(&r);
    check_dropped(&r, TB_PEER_GARBLED);
    WORLD_UNTIL(&r.w.net, r.east->downs == 1);
    CHECK_STATUS(r.east->last_why, TB_PEER_GARBLED);
    assert_int_equal(site_stats(r.east, 0).garbled, 1);
    /* It may come back and behave. */
    rogue_dial(&r);
    greet(&r);
    WORLD_UNTIL(&r.w.net, r.east->ups == 2);
    rogue_fini(&r);
}

static void in_session(void (*say)(struct rogue *r))
{
    in_session_of(1, say);
    in_session_of(2, say);
}

static void say_unknown_type(struct rogue *r)
{
    send_bytes(r, 999, "", 0);
}

static void say_hello_again(struct rogue *r)
{
    say_hello(r, "west");
}

static void say_want_zero(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 0, .uid = r->t.key.uid);
}

static void say_want_backwards(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 5, .uid = r->t.key.uid);
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 5, .uid = r->t.key.uid);
}

static void say_held_of_nothing(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_HELD, tb_frame_held, .crossing = 7,
               .words = {(const uint8_t *)"0123456789ab", 12});
}

static void say_held_past_the_end(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 1, .uid = r->t.key.uid);
    ROGUE_SEND(r, TB_FRAME_HELD, tb_frame_held, .crossing = 1,
               .words = {(const uint8_t *)"\0\0\0\0\0\0\0\0\0\0\0\x80", 12});
}

static void say_refused_of_no_chunk(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 1, .uid = r->t.key.uid);
    ROGUE_SEND(r, TB_FRAME_REFUSED, tb_frame_refused, .crossing = 1, .chunk = 1000000,
               .why = TB_REFUSAL_DIGEST);
}

static void say_report(struct rogue *r, uint8_t reached)
{
    ROGUE_SEND(r, TB_FRAME_REPORT, tb_frame_report, .uid = r->t.key.uid, .site = named("west"),
               .state = reached);
}

static void say_report_of_no_state(struct rogue *r)
{
    say_report(r, 3);
}

static void say_version_of_no_model_of_ours(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.model = named("other");
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
}

/* East asks for its manifests, and the head is not one. */
static void say_version_with_a_bad_head(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= 1;
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
    ROGUE_SEND(r, TB_FRAME_HEAD, tb_frame_head, .uid = key.uid, .total_bytes = 5,
               .page = {(const uint8_t *)"hello", 5});
}

/* P7: a head that promises 128 MiB and more. */
static void say_version_with_a_huge_head(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= 1;
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
    ROGUE_SEND(r, TB_FRAME_HEAD, tb_frame_head, .uid = key.uid, .total_bytes = UINT32_MAX,
               .page = {(const uint8_t *)"h", 1});
}

static void say_manifests(struct rogue *r, const struct truth *t, const struct tb_version_key *key)
{
    static uint8_t head[1 << 16];
    struct tb_writer w;
    for (uint32_t s = 0; s < key->shard_count; s++) {
        const struct tb_manifest *m = &t->manifests[s];
        tb_writer_init(&w, head, sizeof head);
        tb_manifest_head_encode(m, &w);
        ROGUE_SEND(r, TB_FRAME_HEAD, tb_frame_head, .uid = key->uid, .shard = s,
                   .total_bytes = (uint32_t)w.used, .page = {head, (uint32_t)w.used});
        ROGUE_SEND(r, TB_FRAME_DIGESTS, tb_frame_digests, .uid = key->uid, .shard = s,
                   .page = {m->digests[0].bytes, m->chunk_count * TB_DIGEST_BYTES});
    }
}

/* A good manifest under another root: the daemon never sees it. */
static void say_version_with_another_root(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= 1; /* the root is over the uid too */
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
    say_manifests(r, &r->t, &key);
}

static void say_want(struct rogue *r, uint32_t crossing)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = crossing, .uid = r->t.key.uid);
}

static void say_base(struct rogue *r, uint32_t crossing)
{
    ROGUE_SEND(r, TB_FRAME_BASE, tb_frame_base, .crossing = crossing, .uid = r->t.key.uid);
}

static void say_no_base(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_REFUSED, tb_frame_refused, .crossing = 1, .why = TB_REFUSAL_NO_BASE);
}

static void say_base_to_who_has_none(struct rogue *r)
{
    say_want(r, 1);
    say_base(r, 1);
}

static void say_base_of_no_crossing(struct rogue *r)
{
    say_base(r, 1);
}

static void say_two_bases(struct rogue *r)
{
    say_base_to_who_has_none(r);
    say_base(r, 1);
}

static void say_base_too_late(struct rogue *r)
{
    say_want(r, 1);
    ROGUE_SEND(r, TB_FRAME_START, tb_frame_start, .crossing = 1);
    say_base(r, 1);
}

static void say_no_base_without_one(struct rogue *r)
{
    say_want(r, 1);
    say_no_base(r);
}

static void say_a_refusal_of_no_reason(struct rogue *r)
{
    say_base_to_who_has_none(r);
    ROGUE_SEND(r, TB_FRAME_REFUSED, tb_frame_refused, .crossing = 1, .why = TB_REFUSAL_NO_BASE + 1);
}

/* P9: what protocol 2 added is no word of protocol 1. */
static void bases_have_an_order(void **state)
{
    (void)state;
    in_session_of(1, say_base_to_who_has_none);
    in_session_of(1, say_no_base_without_one);
    in_session_of(2, say_base_of_no_crossing);
    in_session_of(2, say_two_bases);
    in_session_of(2, say_base_too_late);
    in_session_of(2, say_no_base_without_one);
    in_session_of(2, say_a_refusal_of_no_reason);
}

static void say_expect(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_EXPECT, tb_frame_expect, .crossing = 1, .model = named("policy"),
               .base = r->t.key.uid);
}

static void say_expect_backwards(struct rogue *r)
{
    say_want(r, 1);
    say_expect(r);
}

static void say_push(struct rogue *r, uint8_t number)
{
    struct tb_id uid = r->t.key.uid;
    uid.bytes[0] ^= number;
    ROGUE_SEND(r, TB_FRAME_PUSH, tb_frame_push, .crossing = r->expected != 0 ? r->expected : 1, .uid = uid);
}

static void say_push_unexpected(struct rogue *r)
{
    say_push(r, 1);
}

static void be_expected(struct rogue *r)
{
    r->east->expects = true;
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = r->t.key, .state = TB_FRAME_VERSION_READY);
    WORLD_UNTIL(&r->w.net, r->expected != 0);
}

static void say_push_behind_version(struct rogue *r)
{
    be_expected(r);
    say_push(r, 0);
}

static void say_push_twice(struct rogue *r)
{
    be_expected(r);
    say_push(r, 1);
    say_push(r, 1);
}

/* A number serves once: else manifests of as many versions as it likes were kept. */
static void say_push_of_a_used_number(struct rogue *r)
{
    be_expected(r);
    say_push(r, 1);
    say_push(r, 2);
}

/* P9, P7: what is sent unasked is bounded, and no word of protocol 1. */
static void pushes_have_an_order(void **state)
{
    (void)state;
    in_session_of(1, say_expect);
    in_session_of(1, say_push_unexpected);
    in_session_of(2, say_expect_backwards);
    in_session_of(2, say_push_unexpected);
    in_session_of(2, say_push_behind_version);
    in_session_of(2, say_push_twice);
    in_session_of(2, say_push_of_a_used_number);
}

static void say_head(struct rogue *r, const struct truth *t, const struct tb_span *head, uint32_t from,
                     uint32_t count)
{
    ROGUE_SEND(r, TB_FRAME_HEAD, tb_frame_head, .uid = t->key.uid, .total_bytes = head->count, .offset = from,
               .page = {head->bytes + from, count});
}

/* An honest one: its PUSH is declined before its VERSION comes, and its manifests are under way when they are asked for. What comes of
 * them is passed over; the answer that was asked for follows. */
static void manifests_of_a_declined_push_are_passed_over(void **state)
{
    (void)state;
    struct rogue r;
    struct truth next;
    static uint8_t bytes[2048];
    struct tb_writer w;
    rogue_init(&r);
    r.protocol = 2;
    greet(&r);
    be_expected(&r);
    truth_step(&next, &r.t);
    const struct tb_manifest *m = &next.manifests[0];
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_manifest_head_encode(m, &w);
    assert_false(w.full);
    const struct tb_span head = {bytes, (uint32_t)w.used};
    r.east->no_land = true;
    ROGUE_SEND(&r, TB_FRAME_PUSH, tb_frame_push, .crossing = r.expected, .uid = next.key.uid);
    WORLD_UNTIL(&r.w.net, r.stopped == r.expected);
    ROGUE_SEND(&r, TB_FRAME_VERSION, tb_frame_version, .key = next.key, .state = TB_FRAME_VERSION_READY);
    say_head(&r, &next, &head, 0, 100);
    say_report(&r, TB_LINKS_REPORT_ACTIVATED);
    WORLD_UNTIL(&r.w.net, r.east->reports == 1);
    CHECK_OK(tb_links_ask(r.east->links, 0, &next.key.uid));
    WORLD_UNTIL(&r.w.net, r.asked == 1);
    for (int answer = 0; answer < 2; answer++) {
        if (answer == 1) say_head(&r, &next, &head, 0, 100);
        say_head(&r, &next, &head, 100, head.count - 100);
        ROGUE_SEND(&r, TB_FRAME_DIGESTS, tb_frame_digests, .uid = next.key.uid,
                   .page = {m->digests[0].bytes, m->chunk_count * TB_DIGEST_BYTES});
    }
    WORLD_UNTIL(&r.w.net, r.east->manifests == 1);
    assert_int_equal(site_stats(r.east, 0).garbled, 0);
    assert_false(r.closed);
    rogue_fini(&r);
    truth_free(&next);
}

static void who_breaks_the_protocol_is_dropped(void **state)
{
    (void)state;
    in_session(say_unknown_type);
    in_session(say_hello_again);
    in_session(say_want_zero);
    in_session(say_want_backwards);
    in_session(say_held_of_nothing);
    in_session(say_held_past_the_end);
    in_session(say_refused_of_no_chunk);
    in_session(say_report_of_no_state);
    in_session(say_version_of_no_model_of_ours);
    in_session(say_version_with_a_bad_head);
    in_session(say_version_with_a_huge_head);
    in_session(say_version_with_another_root);
}

/* ---- data streams ---- */

static void chan_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    (void)c, (void)peer;
    *(int *)user = 1;
}

static void chan_readable(struct tb_chan *c, void *user)
{
    uint8_t bytes[4096];
    size_t count = 0;
    (void)user;
    while (tb_chan_read(c, bytes, sizeof bytes, &count) == TB_OK) {
    }
}

static void chan_writable(struct tb_chan *c, void *user)
{
    (void)user;
    tb_chan_want_write(c, false);
}

static void chan_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    (void)c, (void)why;
    *(int *)user = 2;
}

static const struct tb_chan_ops chan_ops = {.on_open = chan_open,
                                            .on_readable = chan_readable,
                                            .on_writable = chan_writable,
                                            .on_closed = chan_closed};

/* BIND with the session's id, then `count` bytes that are to be chunk frames. */
static void bind_and_write(struct rogue *r, int *phase, struct tb_chan **chan_out, const void *bytes,
                           size_t count)
{
    struct tb_address at;
    uint8_t out[4096];
    struct tb_writer w;
    size_t put = 0;
    assert_true(tb_links_address(r->east->links, &at));
    const struct tb_chan_options options = {
        .loop = &r->w.net.loop, .tls = r->tls, .ops = &chan_ops, .user = phase};
    *phase = 0;
    CHECK_OK(tb_chan_dial(&options, &at, chan_out));
    WORLD_UNTIL(&r->w.net, *phase == 1);
    tb_writer_init(&w, out, sizeof out);
    tb_write_u32(&w, 20);
    tb_write_u16(&w, TB_FRAME_BIND);
    tb_write_u16(&w, 0);
    tb_write_u64(&w, 0);
    tb_frame_bind_encode(&(struct tb_frame_bind){.session = r->session, .stream = 1}, &w);
    CHECK_OK(tb_chan_write(*chan_out, out, w.used, &put));
    assert_int_equal(put, w.used);
    WORLD_UNTIL(&r->w.net, *phase == 2 || site_stats(r->east, 0).stream_count == 1);
    world_turns(&r->w.net, 20);
    if (*phase == 1 && count > 0) CHECK_OK(tb_chan_write(*chan_out, bytes, count, &put));
}

static void chunk_garbage_on_a_stream_ends_the_session(void **state)
{
    (void)state;
    struct rogue r;
    int phase = 0;
    struct tb_chan *chan = NULL;
    rogue_init(&r);
    greet(&r);
    bind_and_write(&r, &phase, &chan, "this is no chunk frame at all, is it?", 37);
    check_dropped(&r, TB_PEER_GARBLED);
    WORLD_UNTIL(&r.w.net, phase == 2 && r.east->downs == 1);
    assert_int_equal(site_stats(r.east, 0).garbled, 1);
    rogue_fini(&r);
}

/* A chunk frame of a crossing that was never begun. */
static void a_chunk_nobody_wanted_ends_the_session(void **state)
{
    (void)state;
    struct rogue r;
    int phase = 0;
    struct tb_chan *chan = NULL;
    uint8_t header[TB_CHUNK_FRAME_HEADER_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, header, sizeof header);
    tb_chunk_frame_encode(&(struct tb_chunk_frame){{TB_CODEC_RAW, false}, 1, 0, 0, 100, 100}, &w);
    rogue_init(&r);
    greet(&r);
    bind_and_write(&r, &phase, &chan, header, sizeof header);
    check_dropped(&r, TB_PEER_GARBLED);
    WORLD_UNTIL(&r.w.net, phase == 2);
    rogue_fini(&r);
}

/* P6: a chunk waits for the PUSH of its number, which is over before it comes: the stream reads on. */
static void what_waits_for_a_push_that_is_over_is_dropped(void **state)
{
    (void)state;
    struct rogue r;
    struct truth next;
    int phase = 0;
    struct tb_chan *chan = NULL;
    uint8_t frame[TB_CHUNK_FRAME_HEADER_BYTES + 100] = {0};
    struct tb_writer w;
    rogue_init(&r);
    r.protocol = 2;
    greet(&r);
    be_expected(&r);
    truth_step(&next, &r.t);
    const uint32_t first = r.expected;
    tb_writer_init(&w, frame, sizeof frame);
    tb_chunk_frame_encode(&(struct tb_chunk_frame){{TB_CODEC_RAW, false}, first, 0, 0, 100, 100}, &w);
    bind_and_write(&r, &phase, &chan, frame, sizeof frame);
    WORLD_UNTIL(&r.w.net, site_stats(r.east, 0).bytes_received >= TB_CHUNK_FRAME_HEADER_BYTES);
    assert_int_equal(site_stats(r.east, 0).chunks_received, 0);
    site_publish(r.east, &next);
    ROGUE_SEND(&r, TB_FRAME_VERSION, tb_frame_version, .key = next.key, .state = TB_FRAME_VERSION_READY);
    WORLD_UNTIL(&r.w.net, r.expected != first); /* in the first one's place */
    WORLD_UNTIL(&r.w.net, site_stats(r.east, 0).chunks_received == 1);
    tb_chan_close(chan, TB_CANCELLED);
    WORLD_UNTIL(&r.w.net, phase == 2);
    rogue_fini(&r);
    truth_free(&next);
}

/* P8: a binding is one use, and only of the live session. */
static void a_binding_is_used_once(void **state)
{
    (void)state;
    struct rogue r;
    int first = 0, second = 0;
    struct tb_chan *chan = NULL, *again = NULL;
    rogue_init(&r);
    greet(&r);
    bind_and_write(&r, &first, &chan, "", 0);
    assert_int_equal(first, 1);
    bind_and_write(&r, &second, &again, "", 0);
    WORLD_UNTIL(&r.w.net, second == 2);
    assert_int_equal(first, 1);
    assert_int_equal(site_stats(r.east, 0).stream_count, 1);
    r.session.bytes[3] ^= 1;
    bind_and_write(&r, &second, &again, "", 0);
    WORLD_UNTIL(&r.w.net, second == 2);
    tb_chan_close(chan, TB_CANCELLED);
    WORLD_UNTIL(&r.w.net, first == 2);
    rogue_fini(&r);
}

/* P8: manifests and bytes of a model that was not granted, or not asked for, are not given. */
static void nothing_is_given_without_a_subscription(void **state)
{
    (void)state;
    struct rogue r;
    rogue_init(&r);
    say_hello(&r, "west");
    WORLD_UNTIL(&r.w.net, r.greeted);
    ROGUE_SEND(&r, TB_FRAME_ASK, tb_frame_ask, .uid = r.t.key.uid);
    ROGUE_SEND(&r, TB_FRAME_WANT, tb_frame_want, .crossing = 1, .uid = r.t.key.uid);
    world_turns(&r.w.net, 50);
    assert_int_equal(r.manifests_seen, 0);
    assert_int_equal(site_stats(r.east, 0).crossings, 0);
    ROGUE_SEND(&r, TB_FRAME_SUBSCRIBE, tb_frame_subscribe, .model = named("policy"));
    ROGUE_SEND(&r, TB_FRAME_ASK, tb_frame_ask, .uid = r.t.key.uid);
    WORLD_UNTIL(&r.w.net, r.manifests_seen == 1);
    rogue_fini(&r);
}

/* A version that east lands from the rogue, over one stream. */
struct landing_scene {
    struct rogue r;
    struct truth t;
    int phase;
    struct tb_chan *chan;
};

static void landing_open_with(struct landing_scene *s, uint32_t protocol)
{
    memset(s, 0, sizeof *s);
    rogue_init(&s->r);
    s->r.protocol = protocol;
    truth_make(&s->t, 9, 2, 1 << 10);
    greet(&s->r);
    ROGUE_SEND(&s->r, TB_FRAME_VERSION, tb_frame_version, .key = s->t.key, .bytes = s->t.total_bytes,
               .state = TB_FRAME_VERSION_READY);
    say_manifests(&s->r, &s->t, &s->t.key);
    WORLD_UNTIL(&s->r.w.net, s->r.wanted != 0);
    bind_and_write(&s->r, &s->phase, &s->chan, "", 0);
}

static void landing_open(struct landing_scene *s)
{
    landing_open_with(s, 1);
}

static void landing_close(struct landing_scene *s)
{
    if (s->phase != 2) tb_chan_close(s->chan, TB_CANCELLED);
    WORLD_UNTIL(&s->r.w.net, s->phase == 2);
    rogue_fini(&s->r);
    truth_free(&s->t);
}

/* A difference, where no base was named: that peer makes things up. */
static void a_difference_to_nothing_ends_the_session(void **state)
{
    (void)state;
    struct landing_scene s;
    uint8_t header[TB_CHUNK_FRAME_HEADER_BYTES];
    struct tb_writer w;
    size_t put = 0;
    landing_open_with(&s, 2);
    tb_writer_init(&w, header, sizeof header);
    const uint32_t bytes = s.t.manifests[0].chunks[0].bytes;
    tb_chunk_frame_encode(
        &(struct tb_chunk_frame){{TB_CODEC_SPARSE, true}, s.r.wanted, 0, 0, bytes, bytes / 2}, &w);
    CHECK_OK(tb_chan_write(s.chan, header, sizeof header, &put));
    check_dropped(&s.r, TB_PEER_GARBLED);
    WORLD_UNTIL(&s.r.w.net, s.phase == 2);
    landing_close(&s);
}

/* Chunk 0 of shard 0. */
static void send_chunk(struct landing_scene *s)
{
    uint8_t out[4096];
    struct tb_writer w;
    const uint32_t bytes = s->t.manifests[0].chunks[0].bytes;
    tb_writer_init(&w, out, sizeof out);
    tb_chunk_frame_encode(&(struct tb_chunk_frame){{TB_CODEC_RAW, false}, s->r.wanted, 0, 0, bytes, bytes},
                          &w);
    tb_write_bytes(&w, s->t.bytes[0] + s->t.manifests[0].chunks[0].offset, bytes);
    assert_false(w.full);
    for (size_t sent = 0, put = 0; sent < w.used; sent += put) {
        const enum tb_status status = tb_chan_write(s->chan, out + sent, w.used - sent, &put);
        assert_true(status == TB_OK || status == TB_AGAIN);
        if (status == TB_AGAIN) world_turns(&s->r.w.net, 1);
    }
}

/* P5: a stream brings a chunk and is gone before the main loop turns: that the chunk is held is said before that the
 * stream is gone, so the peer does not send it again. */
static void what_a_lost_stream_brought_is_told_first(void **state)
{
    (void)state;
    struct landing_scene s;
    landing_open(&s);
    struct rogue *r = &s.r;
    send_chunk(&s);
    assert_int_equal(shutdown(tb_chan_fd(s.chan), SHUT_RDWR), 0);
    const tb_time_ns end = tb_clock_now() + TB_SECONDS(WORLD_WAIT_S);
    while (copy_held(site_copy(r->east, &s.t)) == 0 ||
           site_stats(r->east, 0).streams[0].open) /* the loop stands */
        assert_true(tb_clock_now() < end);
    assert_int_equal(r->held_at, 0);
    WORLD_UNTIL(&r->w.net, r->stream_gone_at != 0);
    assert_true(r->held_at != 0 && r->held_at < r->stream_gone_at);
    WORLD_UNTIL(&r->w.net, s.phase == 2);
    landing_close(&s);
}

/* P4, P6: a chunk that another writer has claimed lands beside the place, and is moved there when that writer gives up. What comes a third
 * time is dropped, and where too many are dropped to be remembered the peer is told at once. */
static void what_another_writer_claimed_lands_beside_it(void **state)
{
    (void)state;
    struct landing_scene s;
    landing_open(&s);
    struct rogue *r = &s.r;
    struct tb_place *place = &site_copy(r->east, &s.t)->places[0];
    assert_true(tb_place_claim(place, 0));
    for (uint32_t i = 0; i < TB_LANDING_DROPPED_MAX + 1; i++) /* the first is kept */
        send_chunk(&s);
    WORLD_UNTIL(&r->w.net, site_stats(r->east, 0).chunks_duplicate == TB_LANDING_DROPPED_MAX);
    world_turns(&r->w.net, 20);
    assert_int_equal(r->lost_said, 0);
    send_chunk(&s);
    WORLD_UNTIL(&r->w.net, r->lost_said == 1);
    assert_int_equal(r->held_at, 0);
    tb_place_unclaim(place, 0);
    WORLD_UNTIL(&r->w.net, r->held_at != 0);
    assert_int_equal(r->lost_said, 1);
    assert_memory_equal(place->bytes, s.t.bytes[0], s.t.manifests[0].chunks[0].bytes);
    landing_close(&s);
}

/* ---- a path that goes silent ---- */

struct pipe_end {
    uv_tcp_t tcp;
    struct pipe_end *other;
    struct proxy *proxy;
    bool frozen;
    bool closing;
};

struct proxy {
    uv_loop_t *loop;
    uv_tcp_t listener;
    struct sockaddr_in to;
    struct pipe_end ends[128];
    uint32_t count, open;
    bool listener_open;
};

struct pipe_write {
    uv_write_t request;
    char bytes[];
};

static void on_pipe_closed(uv_handle_t *h)
{
    struct pipe_end *e = h->data;
    e->proxy->open--;
}

static void pipe_close(struct pipe_end *e)
{
    if (e->closing) return;
    e->closing = true;
    uv_close((uv_handle_t *)&e->tcp, on_pipe_closed);
    if (!e->frozen) pipe_close(e->other);
}

static void on_pipe_written(uv_write_t *request, int status)
{
    (void)status;
    free(request->data);
}

static void on_pipe_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    (void)h;
    buf->base = malloc(suggested);
    buf->len = suggested;
}

static void on_pipe_read(uv_stream_t *s, ssize_t got, const uv_buf_t *buf)
{
    struct pipe_end *e = s->data;
    if (got > 0 && !e->other->closing) {
        struct pipe_write *w = malloc(sizeof *w + (size_t)got);
        memcpy(w->bytes, buf->base, (size_t)got);
        w->request.data = w;
        const uv_buf_t out = {.base = w->bytes, .len = (size_t)got};
        if (uv_write(&w->request, (uv_stream_t *)&e->other->tcp, &out, 1, on_pipe_written) != 0) free(w);
    }
    free(buf->base);
    if (got < 0) pipe_close(e);
}

static void on_pipe_connected(uv_connect_t *c, int status)
{
    struct pipe_end *e = c->data;
    free(c);
    if (status != 0) {
        pipe_close(e);
        return;
    }
    uv_read_start((uv_stream_t *)&e->tcp, on_pipe_alloc, on_pipe_read);
    uv_read_start((uv_stream_t *)&e->other->tcp, on_pipe_alloc, on_pipe_read);
}

static struct pipe_end *pipe_end_new(struct proxy *p)
{
    assert_true(p->count < 128);
    struct pipe_end *e = &p->ends[p->count++];
    uv_tcp_init(p->loop, &e->tcp);
    e->tcp.data = e;
    e->proxy = p;
    p->open++;
    return e;
}

static void on_proxy_connection(uv_stream_t *listener, int status)
{
    struct proxy *p = listener->data;
    assert_int_equal(status, 0);
    struct pipe_end *a = pipe_end_new(p), *b = pipe_end_new(p);
    a->other = b;
    b->other = a;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&a->tcp), 0);
    uv_connect_t *c = malloc(sizeof *c);
    c->data = b;
    assert_int_equal(uv_tcp_connect(c, &b->tcp, (struct sockaddr *)&p->to, on_pipe_connected), 0);
}

static void on_listener_closed(uv_handle_t *h)
{
    ((struct proxy *)h->data)->listener_open = false;
}

static uint16_t proxy_start(struct proxy *p, uv_loop_t *loop, uint16_t to_port)
{
    struct sockaddr_in at;
    int bytes = sizeof at;
    memset(p, 0, sizeof *p);
    p->loop = loop;
    uv_ip4_addr("127.0.0.1", to_port, &p->to);
    uv_ip4_addr("127.0.0.1", 0, &at);
    uv_tcp_init(loop, &p->listener);
    p->listener.data = p;
    p->listener_open = true;
    assert_int_equal(uv_tcp_bind(&p->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&p->listener, 64, on_proxy_connection), 0);
    uv_tcp_getsockname(&p->listener, (struct sockaddr *)&at, &bytes);
    return ntohs(at.sin_port);
}

/* What goes through now goes nowhere from here on, without a word to either end. New connections go through. */
static void proxy_freeze(struct proxy *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        p->ends[i].frozen = true;
        if (!p->ends[i].closing) uv_read_stop((uv_stream_t *)&p->ends[i].tcp);
    }
}

static void proxy_stop(struct proxy *p)
{
    uv_close((uv_handle_t *)&p->listener, on_listener_closed);
    for (uint32_t i = 0; i < p->count; i++)
        pipe_close(&p->ends[i]);
}

/* P6: a path goes silent in the middle of a version: long before TCP would give up, or the session is down, a fresh
 * session takes over and the version arrives. The daemon hears only that it may say again what went into the silence. */
static void a_silent_path_is_replaced(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    static struct proxy proxy;
    links_world_init(&w);
    truth_make(&t, 9, 1, 64 << 20);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(west, east, true, true);
    snprintf(west->addresses[0], sizeof west->addresses[0], "127.0.0.1:%u",
             proxy_start(&proxy, &w.net.loop, east->port));
    east->options.heartbeat_ms = west->options.heartbeat_ms = 100;
    east->options.silent_ms = west->options.silent_ms = 300;
    east->options.fresh_dial_ms = west->options.fresh_dial_ms = 100;
    east->options.down_ms = west->options.down_ms = 30000;
    site_start(east);
    site_start(west);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, site_copy(west, &t) != NULL && copy_held(site_copy(west, &t)) >= 8);
    proxy_freeze(&proxy);
    west->told = (struct tb_links_report){t.key.uid, west->options.site, TB_LINKS_REPORT_ACTIVATED};
    west->tells_again = true;
    assert_int_equal(tb_links_tell(west->links, 0, &west->told), TB_OK);
    WORLD_UNTIL(&w.net, site_stats(west, 0).sessions >= 2);
    WORLD_UNTIL(&w.net, west->landed == 1 && east->peer_held == 1);
    check_equal(site_copy(west, &t), &t);
    WORLD_UNTIL(&w.net, east->reports >= 1);
    assert_true(west->renewals >= 1 && east->renewals >= 1);
    assert_int_equal(west->ups, 1);
    assert_int_equal(west->downs + east->downs, 0);
    site_close(west);
    site_close(east);
    proxy_stop(&proxy);
    WORLD_UNTIL(&w.net, proxy.open == 0 && !proxy.listener_open);
    links_world_fini(&w);
    truth_free(&t);
}

/* And its twin: nothing gets through any more: the session is down after down_ms, and the daemon is told why. */
static void a_path_that_stays_silent_is_down(void **state)
{
    (void)state;
    struct links_world w;
    static struct proxy proxy;
    links_world_init(&w);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(west, east, true, true);
    snprintf(west->addresses[0], sizeof west->addresses[0], "127.0.0.1:%u",
             proxy_start(&proxy, &w.net.loop, east->port));
    west->options.heartbeat_ms = east->options.heartbeat_ms = 100;
    west->options.silent_ms = east->options.silent_ms = 60000;
    west->options.down_ms = east->options.down_ms = 500;
    site_start(east);
    site_start(west);
    BOTH_UP(&w, east, west);
    proxy_freeze(&proxy);
    /* On a busy machine the session that follows may fall silent too. */
    WORLD_UNTIL(&w.net, west->downs >= 1 && east->downs >= 1);
    CHECK_STATUS(west->last_why, TB_STREAM_IDLE);
    CHECK_STATUS(east->last_why, TB_STREAM_IDLE);
    site_close(west);
    site_close(east);
    proxy_stop(&proxy);
    WORLD_UNTIL(&w.net, proxy.open == 0 && !proxy.listener_open);
    links_world_fini(&w);
}

/* libuv writes without MSG_NOSIGNAL: the proxy of this test would die of it. Ours never does. */
static void announce(struct rogue *r, uint8_t number)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= number;
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
}

/* P6, P7: so many asks there may be, and those of a session before, which nobody may answer, give way to new ones. Who asked hears it. */
static void asks_that_nobody_will_answer_give_way(void **state)
{
    (void)state;
    struct rogue r;
    rogue_init(&r);
    r.east->forgiving = true;
    greet(&r);
    for (uint8_t i = 1; i <= TB_LINKS_ASKS_MAX; i++)
        announce(&r, i);
    WORLD_UNTIL(&r.w.net, r.east->versions == TB_LINKS_ASKS_MAX);
    assert_false(r.east->again);
    announce(&r, TB_LINKS_ASKS_MAX + 1); /* all may be answered yet */
    WORLD_UNTIL(&r.w.net, r.east->again);
    tb_wire_close(r.wire, TB_CANCELLED);
    WORLD_UNTIL(&r.w.net, r.closed && r.east->downs == 1);
    r.east->again = false;
    rogue_dial(&r);
    greet(&r);
    announce(&r, TB_LINKS_ASKS_MAX);
    announce(&r, TB_LINKS_ASKS_MAX + 2);
    WORLD_UNTIL(&r.w.net, r.asked == TB_LINKS_ASKS_MAX + 2);
    assert_int_equal(r.east->failed, 1);
    CHECK_STATUS(r.east->failed_why, TB_NOT_FOUND);
    rogue_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_greeting_is_refused),
        cmocka_unit_test(a_frame_over_the_limit_is_refused),
        cmocka_unit_test(who_breaks_the_protocol_is_dropped),
        cmocka_unit_test(bases_have_an_order),
        cmocka_unit_test(pushes_have_an_order),
        cmocka_unit_test(manifests_of_a_declined_push_are_passed_over),
        cmocka_unit_test(a_difference_to_nothing_ends_the_session),
        cmocka_unit_test(chunk_garbage_on_a_stream_ends_the_session),
        cmocka_unit_test(a_chunk_nobody_wanted_ends_the_session),
        cmocka_unit_test(what_waits_for_a_push_that_is_over_is_dropped),
        cmocka_unit_test(a_binding_is_used_once),
        cmocka_unit_test(nothing_is_given_without_a_subscription),
        cmocka_unit_test(what_a_lost_stream_brought_is_told_first),
        cmocka_unit_test(what_another_writer_claimed_lands_beside_it),
        cmocka_unit_test(asks_that_nobody_will_answer_give_way),
        cmocka_unit_test(a_silent_path_is_replaced),
        cmocka_unit_test(a_path_that_stays_silent_is_down),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
