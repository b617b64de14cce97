#include "links_world.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bitmap.h"
#include "base/layout/tensor.h"
#include "base/layout/version_key.h"
#include "base/log.h"
#include "check.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_messages.h"
#include "wan/link/links_stats.h"
#include "wan/stream/stream_life.h"

static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void *grab(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    return memory;
}

static void shard_make(struct truth *t, uint32_t s, uint64_t *seed, uint64_t bytes, const char *dtype)
{
    char names[2][32];
    snprintf(names[0], sizeof names[0], "layer%u.weight", s);
    snprintf(names[1], sizeof names[1], "layer%u.bias", s);
    struct tb_tensor tensors[2] = {{.name = names[0], .rank = 1},
                                   {.name = names[1], .rank = 1, .full = {1000}, .box_count = {1000}}};
    assert_true(tb_tensor_set_dtype(&tensors[0], dtype) && tb_tensor_set_dtype(&tensors[1], dtype));
    tensors[0].full[0] = tensors[0].box_count[0] = bytes * 8 / tb_tensor_bits(&tensors[0]);
    const size_t layout_bytes = tb_layout_bytes_for(tensors, 2);
    void *memory = grab(layout_bytes);
    struct tb_layout layout;
    assert_int_equal(tb_layout_build(tensors, 2, memory, layout_bytes, &layout), TB_OK);
    const struct tb_blob blob = {.name = "config.json", .bytes = 777};
    const size_t manifest_bytes = tb_manifest_bytes_for(&layout, &blob, 1);
    t->memories[s] = grab(manifest_bytes);
    struct tb_manifest *m = &t->manifests[s];
    assert_int_equal(tb_manifest_build(&layout, &blob, 1, t->memories[s], manifest_bytes, m), TB_OK);
    free(memory);
    t->bytes[s] = grab(m->bytes);
    for (uint64_t i = 0; i + 8 <= m->bytes; i += 8) {
        /* half of it random, half compressible */
        const uint64_t v = i / 65536 % 2 == 0 ? next_random(seed) : UINT64_C(0x3f803f803f803f80) + i % 7;
        memcpy(t->bytes[s] + i, &v, 8);
    }
    for (uint32_t k = 0; k < m->chunk_count; k++)
        m->digests[k] = tb_digest_of(t->bytes[s] + m->chunks[k].offset, m->chunks[k].bytes);
    m->root = tb_manifest_root(m);
    t->total_bytes += m->bytes;
    t->chunks += m->chunk_count;
}

void truth_make(struct truth *t, uint64_t seed, uint32_t shard_count, uint64_t shard_bytes)
{
    truth_make_of(t, seed, shard_count, shard_bytes, "BF16");
}

void truth_make_of(struct truth *t, uint64_t seed, uint32_t shard_count, uint64_t shard_bytes,
                   const char *dtype)
{
    memset(t, 0, sizeof *t);
    struct tb_digest roots[SHARDS_MAX];
    t->key = (struct tb_version_key){.run_order = 1, .number = seed, .shard_count = shard_count};
    memset(t->key.run.bytes, 7, 16);
    for (int i = 0; i < 16; i += 8) {
        const uint64_t v = next_random(&seed);
        memcpy(t->key.uid.bytes + i, &v, 8);
    }
    assert_int_equal(tb_name_set(&t->key.model, "policy"), TB_OK);
    for (uint32_t s = 0; s < shard_count; s++) {
        shard_make(t, s, &seed, shard_bytes, dtype);
        roots[s] = t->manifests[s].root;
    }
    t->key.root = tb_version_key_root(&t->key, roots);
}

static void manifest_copy(const struct tb_manifest *from, struct tb_manifest *to, void **memory_out)
{
    const size_t head_bytes = tb_manifest_head_bytes(from);
    void *head = grab(head_bytes);
    struct tb_writer w;
    tb_writer_init(&w, head, head_bytes);
    tb_manifest_head_encode(from, &w);
    const size_t bytes = tb_manifest_decode_bytes(head, head_bytes);
    *memory_out = grab(bytes);
    assert_int_equal(tb_manifest_head_decode(head, head_bytes, *memory_out, bytes, to), TB_OK);
    memcpy(to->digests, from->digests, from->chunk_count * sizeof *from->digests);
    struct tb_blake3 proof;
    for (uint32_t k = 0; k < from->chunk_count; k++)
        if (tb_manifest_proof(from, k, &proof)) tb_manifest_set_proof(to, k, &proof);
    free(head);
}

static void shard_step(struct truth *t, const struct truth *from, uint32_t s)
{
    const struct tb_manifest *old = &from->manifests[s];
    manifest_copy(old, &t->manifests[s], &t->memories[s]);
    struct tb_manifest *m = &t->manifests[s];
    t->bytes[s] = grab(m->bytes);
    memcpy(t->bytes[s], from->bytes[s], m->bytes);
    for (uint32_t k = 1; k < m->chunk_count; k += 2) {
        uint8_t *chunk = t->bytes[s] + m->chunks[k].offset;
        for (uint32_t i = 0; i + 2 <= m->chunks[k].bytes; i += 200)
            chunk[i] = (uint8_t)(chunk[i] + 1);
        m->digests[k] = tb_digest_of(chunk, m->chunks[k].bytes);
    }
    m->root = tb_manifest_root(m);
    t->total_bytes += m->bytes;
    t->chunks += m->chunk_count;
}

void truth_step(struct truth *t, const struct truth *from)
{
    struct tb_digest roots[SHARDS_MAX];
    memset(t, 0, sizeof *t);
    t->key = from->key;
    t->key.number++;
    t->key.uid.bytes[15]++;
    for (uint32_t s = 0; s < t->key.shard_count; s++) {
        shard_step(t, from, s);
        roots[s] = t->manifests[s].root;
    }
    t->key.root = tb_version_key_root(&t->key, roots);
}

void truth_free(struct truth *t)
{
    for (uint32_t s = 0; s < t->key.shard_count; s++) {
        free(t->memories[s]);
        free(t->bytes[s]);
    }
}

/* ---- copies ---- */

struct copy *site_place(struct site *s, const struct tb_version_key *key, const struct tb_manifest *manifests)
{
    struct copy *c = s->copies;
    while (c->used)
        c++;
    assert_true(c < s->copies + VERSIONS_MAX);
    memset(c, 0, sizeof *c);
    c->used = true;
    c->key = *key;
    for (uint32_t i = 0; i < key->shard_count; i++) {
        manifest_copy(&manifests[i], &c->manifests[i], &c->memories[i]);
        const size_t words = TB_BITMAP_WORDS(manifests[i].chunk_count);
        c->places[i] = (struct tb_place){.manifest = &c->manifests[i],
                                         .bytes = grab(manifests[i].bytes),
                                         .held = calloc(words, 8),
                                         .claimed = calloc(words, 8)};
    }
    return c;
}

void copy_free(struct copy *c)
{
    for (uint32_t i = 0; c->used && i < c->key.shard_count; i++) {
        free(c->memories[i]);
        free(c->places[i].bytes);
        free(c->places[i].held);
        free(c->places[i].claimed);
    }
    c->used = false;
}

struct copy *site_copy(struct site *s, const struct truth *t)
{
    for (int i = 0; i < VERSIONS_MAX; i++)
        if (s->copies[i].used && tb_id_equal(&s->copies[i].key.uid, &t->key.uid)) return &s->copies[i];
    return NULL;
}

struct copy *site_publish(struct site *s, const struct truth *t)
{
    struct copy *c = site_place(s, &t->key, t->manifests);
    for (uint32_t i = 0; i < t->key.shard_count; i++) {
        memcpy(c->places[i].bytes, t->bytes[i], t->manifests[i].bytes);
        for (uint32_t k = 0; k < t->manifests[i].chunk_count; k++)
            tb_bitmap_set(c->places[i].held, k);
    }
    assert_int_equal(tb_links_offer(s->links, &c->key, c->places), TB_OK);
    return c;
}

uint32_t copy_held(const struct copy *c)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < c->key.shard_count; i++)
        held += tb_place_held_count(&c->places[i]);
    return held;
}

bool copy_whole(const struct copy *c)
{
    for (uint32_t i = 0; i < c->key.shard_count; i++)
        if (!tb_place_whole(&c->places[i])) return false;
    return true;
}

void check_equal(const struct copy *c, const struct truth *t)
{
    assert_non_null(c);
    for (uint32_t i = 0; i < t->key.shard_count; i++)
        assert_int_equal(memcmp(c->places[i].bytes, t->bytes[i], t->manifests[i].bytes), 0);
}

/* ---- what the daemon would do ---- */

static bool may_read(void *user, uint32_t peer, const struct tb_name *model, const struct tb_name *home)
{
    (void)home;
    const struct site *s = user;
    (void)peer;
    return !s->deny && strncmp(model->text, "policy", 6) == 0;
}

static bool is_foreign(void *user, uint32_t peer, const struct tb_version_key *key)
{
    const struct site *s = user;
    (void)peer, (void)key;
    return s->distrusts;
}

static void on_proofs(void *user, uint32_t peer, const struct tb_links_proofs *page)
{
    struct site *s = user;
    (void)peer;
    s->proof_pages++;
    s->proofs_said += page->count;
}

static bool expects(void *user, uint32_t peer, const struct tb_name *model)
{
    const struct site *s = user;
    (void)peer, (void)model;
    return s->expects;
}

static void on_peer(void *user, uint32_t peer, bool up, enum tb_status why)
{
    struct site *s = user;
    (void)peer;
    if (up)
        s->ups++;
    else
        s->downs++, s->last_why = why;
}

static void on_renewed(void *user, uint32_t peer)
{
    struct site *s = user;
    s->renewals++;
    if (s->tells_again) assert_int_equal(tb_links_tell(s->links, peer, &s->told), TB_OK);
}

static void on_refused(void *user, uint32_t peer, enum tb_status why, uint64_t detail, bool by_peer)
{
    struct site *s = user;
    (void)peer;
    s->refused++;
    s->refused_by_peer += by_peer;
    s->refused_why = why;
    s->refused_detail = detail;
}

/* True: done, or done before. Memory may be short where the test made it so; the
 * test tries again then. */
static bool fine(struct site *s, enum tb_status status)
{
    if (s->forgiving && status == TB_SITE_NOMEM) {
        s->again = true;
        return false;
    }
    assert_true(status == TB_OK || status == TB_DONE_BEFORE);
    return true;
}

static struct copy *by_uid(struct site *s, const struct tb_id *uid)
{
    for (int i = 0; i < VERSIONS_MAX; i++)
        if (s->copies[i].used && tb_id_equal(&s->copies[i].key.uid, uid)) return &s->copies[i];
    return NULL;
}

static void on_version(void *user, uint32_t peer, const struct tb_version_key *key, uint64_t bytes,
                       enum tb_links_version_state state, enum tb_status why)
{
    struct site *s = user;
    (void)bytes;
    s->versions += state == TB_LINKS_READY;
    s->withdrawn += state == TB_LINKS_WITHDRAWN;
    s->gone += state == TB_LINKS_GONE;
    if (state == TB_LINKS_GONE) s->gone_why = why;
    if (state != TB_LINKS_READY || s->no_land || by_uid(s, &key->uid) != NULL) return;
    (void)fine(s, tb_links_ask(s->links, peer, &key->uid));
}

static void on_manifests(void *user, uint32_t peer, const struct tb_version_key *key,
                         const struct tb_manifest *manifests)
{
    struct site *s = user;
    s->manifests++;
    struct copy *c = by_uid(s, &key->uid);
    if (c == NULL) {
        c = site_place(s, key, manifests);
        (void)fine(s, tb_links_offer(s->links, &c->key, c->places));
    }
    (void)fine(s, tb_links_land(s->links, peer, &c->key, c->places));
}

static void on_landed(void *user, uint32_t peer, const struct tb_version_key *key)
{
    struct site *s = user;
    (void)peer;
    s->landed++;
    assert_true(copy_whole(by_uid(s, &key->uid)));
    if (!s->keeps_landings) (void)fine(s, tb_links_land_stop(s->links, &key->uid, NULL, NULL));
}

static void on_too_large(void *user, uint32_t peer, const struct tb_id *uid, uint64_t needed_bytes)
{
    struct site *s = user;
    (void)peer, (void)uid;
    s->too_large++;
    s->too_large_bytes = needed_bytes;
}

static void on_failed(void *user, uint32_t peer, const struct tb_id *uid, enum tb_status why)
{
    struct site *s = user;
    (void)peer;
    s->failed++;
    s->failed_why = why;
    s->again |= s->forgiving;
    if (s->stop_on_failure) assert_int_equal(tb_links_land_stop(s->links, uid, NULL, NULL), TB_OK);
}

static void on_peer_held(void *user, uint32_t peer, const struct tb_id *uid)
{
    struct site *s = user;
    struct tb_links_progress progress;
    s->peer_held++;
    assert_int_equal(tb_links_peer_progress(s->links, peer, uid, &progress), TB_OK);
    assert_true(progress.whole);
    assert_int_equal(progress.held_chunks, progress.chunks);
}

static void on_report(void *user, uint32_t peer, const struct tb_links_report *report)
{
    struct site *s = user;
    (void)peer;
    s->reports++;
    s->report = *report;
}

static void on_chunk_bad(void *user, uint32_t peer, const struct tb_links_bad_chunk *bad)
{
    struct site *s = user;
    (void)peer;
    s->bad_ours += bad->ours;
    s->bad_theirs += !bad->ours;
    s->bad = *bad;
    if (bad->ours && s->mend != NULL) *s->mend ^= 1;
    if (bad->ours) s->mend = NULL;
}

static bool base_good(void *user, const struct tb_id *uid, uint32_t shard, uint32_t chunk)
{
    struct site *s = user;
    (void)uid, (void)shard, (void)chunk;
    return !atomic_load(&s->no_base);
}

static const struct tb_links_ops site_ops = {.may_read = may_read,
                                             .expects = expects,
                                             .is_foreign = is_foreign,
                                             .on_proofs = on_proofs,
                                             .base_good = base_good,
                                             .on_peer = on_peer,
                                             .on_renewed = on_renewed,
                                             .on_refused = on_refused,
                                             .on_version = on_version,
                                             .on_manifests = on_manifests,
                                             .on_landed = on_landed,
                                             .on_failed = on_failed,
                                             .on_too_large = on_too_large,
                                             .on_peer_held = on_peer_held,
                                             .on_report = on_report,
                                             .on_chunk_bad = on_chunk_bad};

/* ---- sites ---- */

void links_world_init(struct links_world *w)
{
    memset(w, 0, sizeof *w);
    tb_log_set(getenv("TB_TEST_LOG") != NULL ? TB_LOG_DEBUG : TB_LOG_ERROR, 2);
    world_init(&w->net);
    assert_int_equal(tb_name_set(&w->model, "policy"), TB_OK);
}

void links_world_fini(struct links_world *w)
{
    for (int i = 0; i < SITES_MAX; i++) {
        struct site *s = &w->sites[i];
        if (s->name == NULL) continue;
        if (s->links != NULL) site_close(s);
        for (int v = 0; v < VERSIONS_MAX; v++)
            copy_free(&s->copies[v]);
        tb_tls_free(s->tls);
    }
    world_fini(&w->net);
}

/* A port that is free now; the kernel does not give it out again soon. */
static uint16_t free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

struct site *site_new(struct links_world *w, const char *name, bool listens)
{
    struct site *s = w->sites;
    char uri[64];
    while (s->name != NULL)
        s++;
    s->world = w;
    s->name = name;
    snprintf(uri, sizeof uri, "tombolo://%s/gw", name);
    world_issue(&w->net, name, "gw", uri);
    s->port = listens ? free_port() : 0;
    s->options = (struct tb_links_options){.loop = &w->net.loop,
                                           .incarnation = 1,
                                           .lane_count = 1,
                                           .ops = &site_ops,
                                           .user = s,
                                           .streams = 4,
                                           .threads = 2,
                                           .hedge_permille = TB_LINKS_HEDGE_NONE, /* they count chunks */
                                           .retry_min_ms = 10,
                                           .retry_max_ms = 200};
    assert_int_equal(tb_name_set(&s->options.site, name), TB_OK);
    assert_int_equal(tb_name_set(&s->options.gateway, "gw"), TB_OK);
    return s;
}

void site_peer(struct site *from, struct site *to, bool dials, bool wants)
{
    const uint32_t at = from->options.peer_count++;
    struct tb_links_peer_options *p = &from->peers[at];
    p->site = to->options.site;
    p->gateway = to->options.gateway;
    snprintf(from->addresses[at], sizeof from->addresses[at], "127.0.0.1:%u", to->port);
    p->address = dials ? from->addresses[at] : NULL;
    p->models = &from->world->model;
    p->model_count = wants ? 1 : 0;
}

/* Each site has a CA of its own, which may speak for that site alone. */
static void trust(struct site *s)
{
    char why[256];
    if (s->tls != NULL) return;
    s->tls = world_tls(&s->world->net, s->name, "gw", s->name);
    for (int i = 0; i < SITES_MAX && s->world->sites[i].name != NULL; i++) {
        const struct site *other = &s->world->sites[i];
        if (other == s) continue;
        const char *ca = world_path(&s->world->net, other->name, "ca.crt");
        assert_int_equal(tb_tls_add_site_ca(s->tls, &other->options.site, ca, why), TB_OK);
    }
}

struct site *links_acceptor(struct links_world *w, tb_accept_fn on_accept, void *user,
                            struct tb_tls **tls_out, struct tb_listener **listener_out)
{
    char why[256];
    links_world_init(w);
    struct site *east = site_new(w, "east", false), *west = site_new(w, "west", false);
    *tls_out = world_tls(&w->net, "east", "gw", "east");
    CHECK_OK(tb_tls_add_site_ca(*tls_out, &west->options.site, world_path(&w->net, "west", "ca.crt"), why));
    const struct tb_address any = loopback(0);
    CHECK_OK(tb_listen(&w->net.loop, &any, 0, on_accept, user, listener_out));
    site_peer(west, east, true, true);
    const struct tb_address at = tb_listener_address(*listener_out);
    (void)snprintf(west->addresses[0], sizeof west->addresses[0], "127.0.0.1:%u", ntohs(at.v4.sin_port));
    west->options.streams = 1;
    return west;
}

void site_start(struct site *s)
{
    char error[256], listen_at[64];
    snprintf(listen_at, sizeof listen_at, "127.0.0.1:%u", s->port);
    trust(s);
    s->options.listen = s->port != 0 ? listen_at : NULL;
    s->options.peers = s->peers;
    s->options.tls = s->tls;
    const enum tb_status status = tb_links_new(&s->options, &s->links, error);
    if (status != TB_OK) fail_msg("tb_links_new: %s", error);
    s->closed = false;
}

static void on_site_closed(void *user)
{
    struct site *s = user;
    s->closed = true;
}

void site_close(struct site *s)
{
    tb_links_close(s->links, on_site_closed, s);
    WORLD_UNTIL(&s->world->net, s->closed);
    s->links = NULL;
}

struct tb_links_stats site_stats(const struct site *s, uint32_t peer)
{
    struct tb_links_stats stats;
    tb_links_stats(s->links, peer, &stats);
    return stats;
}

int cut_streams(struct site *s, uint32_t peer, uint32_t count)
{
    int cut = 0;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX && count > 0; i++) {
        struct tb_stream *stream = s->links->links[peer].traffic.streams.slots[i];
        if (stream == NULL || tb_stream_phase(stream) != TB_STREAM_BOUND) continue;
        const int fd = atomic_load(&stream->fd);
        if (fd < 0 || shutdown(fd, SHUT_RDWR) != 0) continue;
        cut++;
        count--;
    }
    return cut;
}

bool pace_stream(struct site *s, uint32_t peer, uint32_t n, uint64_t bytes_per_s)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        struct tb_stream *stream = s->links->links[peer].traffic.streams.slots[i];
        if (stream == NULL || tb_stream_phase(stream) != TB_STREAM_BOUND || n-- > 0) continue;
        const int fd = atomic_load(&stream->fd);
        return fd >= 0 &&
               setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s, sizeof bytes_per_s) == 0;
    }
    return false;
}

int cut_all(struct links_world *w, uint16_t port)
{
    (void)w;
    int cut = 0;
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in here, there;
        socklen_t a = sizeof here, b = sizeof there;
        if (getsockname(fd, (struct sockaddr *)&here, &a) != 0 ||
            getpeername(fd, (struct sockaddr *)&there, &b) != 0)
            continue;
        if (here.sin_family != AF_INET || (ntohs(here.sin_port) != port && ntohs(there.sin_port) != port))
            continue;
        cut += shutdown(fd, SHUT_RDWR) == 0;
    }
    return cut;
}
