/* rogue.c - see rogue.h. */
#include "rogue.h"

#include <string.h>

#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "check.h"

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

void rogue_dial(struct rogue *r)
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

void rogue_init(struct rogue *r)
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

void rogue_fini(struct rogue *r)
{
    if (!r->closed) tb_wire_close(r->wire, TB_CANCELLED);
    WORLD_UNTIL(&r->w.net, r->closed);
    tb_tls_free(r->tls);
    links_world_fini(&r->w);
    truth_free(&r->t);
}

void rogue_send(struct rogue *r, uint16_t type, const void *bytes, size_t count)
{
    struct tb_writer *w = tb_wire_begin(r->wire, type, 0, count);
    assert_non_null(w);
    tb_write_bytes(w, bytes, count);
    tb_wire_end(r->wire);
}

struct tb_name rogue_name(const char *text)
{
    struct tb_name name;
    memset(&name, 0, sizeof name);
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

void rogue_hello(struct rogue *r, const char *site)
{
    ROGUE_SEND(r, TB_FRAME_HELLO, tb_frame_hello, .protocol = r->protocol != 0 ? r->protocol : 1,
               .protocol_min = 1, .site = rogue_name(site), .gateway = rogue_name("gw"), .lane_count = 1,
               .incarnation = 1, .more = {(const uint8_t *)"", 0});
}

void rogue_greet(struct rogue *r)
{
    rogue_hello(r, "west");
    WORLD_UNTIL(&r->w.net, r->greeted);
    ROGUE_SEND(r, TB_FRAME_SUBSCRIBE, tb_frame_subscribe, .model = rogue_name("policy"));
}

void rogue_want(struct rogue *r, uint32_t crossing)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = crossing, .uid = r->t.key.uid);
}

void rogue_report(struct rogue *r, uint8_t reached)
{
    ROGUE_SEND(r, TB_FRAME_REPORT, tb_frame_report, .uid = r->t.key.uid, .site = rogue_name("west"),
               .state = reached);
}

void rogue_manifests(struct rogue *r, const struct truth *t, const struct tb_version_key *key)
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

void rogue_dropped(struct rogue *r, enum tb_status why)
{
    WORLD_UNTIL(&r->w.net, r->closed);
    CHECK_STATUS(r->why, why);
}

void rogue_in_session(uint32_t protocol, void (*say)(struct rogue *r))
{
    struct rogue r;
    rogue_init(&r);
    r.protocol = protocol;
    rogue_greet(&r);
    say(&r);
    rogue_dropped(&r, TB_PEER_GARBLED);
    WORLD_UNTIL(&r.w.net, r.east->downs == 1);
    CHECK_STATUS(r.east->last_why, TB_PEER_GARBLED);
    assert_int_equal(site_stats(r.east, 0).garbled, 1);
    /* It may come back and behave. */
    rogue_dial(&r);
    rogue_greet(&r);
    WORLD_UNTIL(&r.w.net, r.east->ups == 2);
    rogue_fini(&r);
}

void rogue_expected(struct rogue *r)
{
    r->east->expects = true;
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = r->t.key, .state = TB_FRAME_VERSION_READY);
    WORLD_UNTIL(&r->w.net, r->expected != 0);
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

void rogue_bind_as(struct rogue *r, uint32_t number, int *phase, struct tb_chan **chan_out)
{
    const uint32_t before = site_stats(r->east, 0).stream_count;
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
    tb_frame_bind_encode(&(struct tb_frame_bind){.session = r->session, .stream = number}, &w);
    CHECK_OK(tb_chan_write(*chan_out, out, w.used, &put));
    assert_int_equal(put, w.used);
    WORLD_UNTIL(&r->w.net, *phase == 2 || site_stats(r->east, 0).stream_count > before);
}

void rogue_bind(struct rogue *r, int *phase, struct tb_chan **chan_out, const void *bytes, size_t count)
{
    size_t put = 0;
    rogue_bind_as(r, 1, phase, chan_out);
    world_turns(&r->w.net, 20);
    if (*phase == 1 && count > 0) CHECK_OK(tb_chan_write(*chan_out, bytes, count, &put));
}
