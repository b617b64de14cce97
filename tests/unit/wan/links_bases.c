/* links_bases.c - consecutive versions cross as deltas, bit for bit; where a base is missing, that
 * chunk comes whole.
 *
 * Covers: wan/stream/stream_send.c wan/stream/stream_copy.c wan/link/traffic/link_send.c
 * Covers: wan/link/traffic/link_land.c */
#include "links_world.h"

#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "wan/frame/frame.h"
#include "wan/send/encoded_chunks.h"

/* East publishes v1, v2, ...; west has v1 when a test begins. */
struct steps {
    struct links_world w;
    struct truth v1, v2;
    struct site *east, *west;
    struct copy *east_v1;
};

static void steps_make(struct steps *s, uint32_t shards, uint64_t shard_bytes)
{
    links_world_init(&s->w);
    truth_make(&s->v1, 42, shards, shard_bytes);
    truth_step(&s->v2, &s->v1);
    s->east = site_new(&s->w, "east", true);
    s->west = site_new(&s->w, "west", false);
    s->east->options.codec = s->west->options.codec = TB_CHOICE_SPARSE;
    site_peer(s->east, s->west, false, false);
    site_peer(s->west, s->east, true, true);
}

static void steps_begin(struct steps *s)
{
    site_start(s->east);
    site_start(s->west);
    s->east_v1 = site_publish(s->east, &s->v1);
    WORLD_UNTIL(&s->w.net, s->west->landed == 1 && s->east->peer_held == 1);
    WORLD_UNTIL(&s->w.net, site_stats(s->east, 0).chunks_sent >= s->v1.chunks); /* counted, too */
}

static void steps_free(struct steps *s)
{
    links_world_fini(&s->w);
    truth_free(&s->v1);
    truth_free(&s->v2);
}

/* Half of v2's chunks are those of v1, the others differ in one element of a hundred. */
static void a_step_crosses_as_differences(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 2, 12 << 20);
    steps_begin(&s);
    const struct tb_links_stats before = site_stats(s.east, 0);
    assert_int_equal(before.protocol, TB_LINK_PROTOCOL);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    check_equal(site_copy(s.west, &s.v1), &s.v1); /* never patched */
    uint32_t changed = 0;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < s.v2.manifests[i].chunk_count; k++)
            changed += !tb_digest_equal(&s.v2.manifests[i].digests[k], &s.v1.manifests[i].digests[k]);
    SITE_SENT(&s.w, s.east, before.chunks_sent + changed);
    const struct tb_links_stats after = site_stats(s.east, 0);
    assert_int_equal(after.chunks_on_base - before.chunks_on_base, changed);
    assert_true(after.bytes_sent - before.bytes_sent < s.v2.total_bytes / 50);
    assert_int_equal(after.chunks_no_base, 0);
    assert_int_equal(site_stats(s.west, 0).chunks_bad, 0);
    assert_int_equal(site_stats(s.west, 0).chunks_duplicate, 0);
    assert_false(tb_links_base_used(s.east->links, &s.v1.key.uid));
    assert_false(tb_links_base_used(s.west->links, &s.v1.key.uid));
    steps_free(&s);
}

/* A step's chunks that are late on three streams go again by the fourth: what that comes to is
 * counted as it goes, and not as the whole chunks that it stands for. */
static void what_goes_again_is_counted_as_it_goes(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 96 << 20);
    s.east->options.hedge_permille = 1000;
    steps_begin(&s);
    const struct tb_links_stats before = site_stats(s.east, 0);
    for (uint32_t n = 1; n < 4; n++)
        assert_true(pace_stream(s.east, 0, n, 20000));
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    const struct tb_links_stats after = site_stats(s.east, 0);
    assert_true(after.bytes_hedged > before.bytes_hedged);
    assert_true(after.bytes_hedged - before.bytes_hedged <= after.bytes_sent - before.bytes_sent);
    for (uint32_t n = 1; n < 4; n++)
        assert_true(pace_stream(s.east, 0, n, UINT64_MAX));
    steps_free(&s);
}

static void limit(struct site *s, uint64_t until_bytes)
{
    const struct tb_links_limit l = {.until_bytes = until_bytes};
    tb_links_limit(s->links, 0, &l);
}

/* P7: a day's bytes have room for part of a step as it goes, which is less than one whole chunk: so
 * much of it crosses, not a byte goes over, and the rest follows when there is more. */
static void a_days_bytes_hold_what_goes(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 96 << 20);
    steps_begin(&s);
    struct tb_links_stats east = site_stats(s.east, 0);
    const uint64_t until = east.bytes_sent + 100000;
    limit(s.east, until);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).short_bytes > 0);
    east = site_stats(s.east, 0);
    assert_true(east.short_bytes < 50000);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).bytes_sent > until - east.short_bytes);
    world_turns(&s.w.net, 20);
    assert_true(site_stats(s.east, 0).bytes_sent <= until);
    assert_int_equal(s.west->landed, 1);
    limit(s.east, UINT64_MAX);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).chunks_duplicate, 0);
    steps_free(&s);
}

/* P10, P9: who waits for what a day's bytes hold is told so, in each session anew, and when it is
 * over; a peer of the release before hears nothing that it does not know. */
static void who_waits_hears_of_the_day(void **state)
{
    (void)state;
    for (uint32_t protocol = 1; protocol <= 2; protocol++) {
        struct steps s;
        steps_make(&s, 1, 4 << 20);
        s.west->options.protocol_max = protocol;
        steps_begin(&s);
        assert_false(site_stats(s.west, 0).peer_spent);
        limit(s.east, site_stats(s.east, 0).bytes_sent);
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->versions == 2);
        if (protocol == 2) WORLD_UNTIL(&s.w.net, site_stats(s.west, 0).peer_spent);
        assert_false(site_stats(s.east, 0).peer_spent); /* nobody holds what west sends */
        const uint64_t sessions = site_stats(s.west, 0).sessions;
        (void)cut_all(&s.w, s.east->port);
        WORLD_UNTIL(&s.w.net, site_stats(s.west, 0).sessions > sessions && site_stats(s.west, 0).up);
        if (protocol == 2) WORLD_UNTIL(&s.w.net, site_stats(s.west, 0).peer_spent);
        limit(s.east, UINT64_MAX);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && !site_stats(s.west, 0).peer_spent);
        assert_int_equal(site_stats(s.west, 0).garbled, 0);
        steps_free(&s);
    }
}

/* P9: a peer that speaks protocol 1 gets whole chunks, by either side's limit. */
static void a_peer_of_the_release_before_gets_whole_chunks(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct steps s;
        steps_make(&s, 1, 4 << 20);
        (who == 0 ? s.east : s.west)->options.protocol_max = 1;
        steps_begin(&s);
        assert_int_equal(site_stats(s.east, 0).protocol, 1);
        assert_int_equal(site_stats(s.west, 0).protocol, 1);
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        assert_int_equal(site_stats(s.east, 0).chunks_on_base, 0);
        SITE_SENT(&s.w, s.east, s.v1.chunks + s.v2.chunks);
        steps_free(&s);
    }
}

/* The receiver's base cannot be used (a chunk of it failed its re-verification): each such chunk
 * comes whole, by no-base. */
static void chunks_without_a_base_come_whole(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 8 << 20);
    steps_begin(&s);
    atomic_store(&s.west->no_base, true);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    const struct tb_links_stats west = site_stats(s.west, 0), east = site_stats(s.east, 0);
    assert_int_equal(west.chunks_no_base, s.v2.chunks); /* made from it or differing: all of them */
    assert_int_equal(east.chunks_no_base, s.v2.chunks);
    assert_int_equal(west.chunks_bad, 0);
    assert_int_equal(east.chunks_refused, 0);
    assert_int_equal(s.west->failed, 0);
    steps_free(&s);
}

/* The sender's base cannot be used: it sends whole, and says nothing of it. */
static void a_sender_without_a_base_sends_whole(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 8 << 20);
    steps_begin(&s);
    atomic_store(&s.east->no_base, true);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.east, 0).chunks_on_base, 0);
    assert_int_equal(site_stats(s.west, 0).chunks_no_base, 0);
    steps_free(&s);
}

static void note_done(void *user)
{
    ++*(int *)user;
}

/* The base goes in the middle of the crossing, at the receiver or at the sender: the rest comes
 * whole, and what was given back is nobody's any more. */
static void a_base_that_goes_is_missed_by_its_chunks_alone(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct steps s;
        int done = 0;
        steps_make(&s, 1, 48 << 20);
        steps_begin(&s);
        struct site *loser = who == 0 ? s.west : s.east;
        /* Some of v2 is not at east yet, so the crossing does not end before the base goes. */
        struct copy *c = site_place(s.east, &s.v2.key, s.v2.manifests);
        memcpy(c->places[0].bytes, s.v2.bytes[0], s.v2.manifests[0].bytes);
        for (uint32_t k = 0; k < s.v2.chunks / 2; k++)
            tb_bitmap_set(c->places[0].held, k);
        CHECK_OK(tb_links_offer(s.east->links, &c->key, c->places));
        WORLD_UNTIL(&s.w.net, site_copy(s.west, &s.v2) != NULL && copy_held(site_copy(s.west, &s.v2)) > 4);
        /* East learns of the base by a frame; west copies what did not change at once. */
        WORLD_UNTIL(&s.w.net, tb_links_base_used(loser->links, &s.v1.key.uid));
        struct copy *base = site_copy(loser, &s.v1);
        CHECK_OK(tb_links_retract(loser->links, &s.v1.key.uid, TB_SUPERSEDED, note_done, &done));
        WORLD_UNTIL(&s.w.net, done == 1);
        assert_false(tb_links_base_used(loser->links, &s.v1.key.uid));
        memset(base->places[0].bytes, 0xee, s.v1.manifests[0].bytes);
        copy_free(base); /* sanitizers watch */
        for (uint32_t k = s.v2.chunks / 2; k < s.v2.chunks; k++)
            tb_bitmap_set(c->places[0].held, k);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        assert_int_equal(site_stats(s.west, 0).chunks_bad, 0);
        if (who == 0) assert_true(site_stats(s.west, 0).chunks_no_base > 0);
        steps_free(&s);
    }
}

/* P1: a difference that decodes to something else (the sender's base went bad in memory) is
 * refused, and comes whole. */
static void a_wrong_difference_is_refused_and_comes_whole(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 8 << 20);
    steps_begin(&s);
    const uint64_t at = s.v1.manifests[0].chunks[5].offset + 77;
    s.east_v1->places[0].bytes[at] ^= 4;
    const struct tb_links_stats before = site_stats(s.east, 0);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).chunks_bad, 1);
    assert_int_equal(s.east->bad.chunk, 5);
    assert_true(tb_id_equal(&s.east->bad.base, &s.v1.key.uid)); /* so its owner looks at the base, too */
    const struct tb_links_stats after = site_stats(s.east, 0);
    const uint64_t whole = s.v2.manifests[0].chunks[5].bytes;
    assert_true(after.bytes_sent - before.bytes_sent > whole / 3);
    steps_free(&s);
}

/* News of a rank from a time to come: what it still makes is awaited for as long as a test
 * lasts. */
static tb_time_ns for_long(void)
{
    return tb_time_add(tb_clock_now(), TB_SECONDS(3600));
}

static struct tb_object_name object_name(const struct steps *s, uint32_t chunk)
{
    return (struct tb_object_name){.uid = &s->v2.key.uid,
                                   .base = &s->v1.key.uid,
                                   .chunk = chunk,
                                   .shard_count = 1,
                                   .chunk_count = s->v2.chunks};
}

static void rank_writes(const struct steps *s, struct tb_objects *objects, uint32_t chunk,
                        const struct tb_codec_coded *coded)
{
    const struct tb_object_name name = object_name(s, chunk);
    const struct tb_object_news news = {TB_OBJECT_OF_RANK, coded, for_long()};
    tb_objects_put(objects, &name, &news);
}

/* As a rank would: an object of v2's chunk, as v2's chunk `of` differs from v1. */
static void rank_encodes(const struct steps *s, struct tb_objects *objects, uint32_t chunk, uint32_t of)
{
    static uint8_t room[4 << 20];
    const struct tb_manifest *m = &s->v2.manifests[0];
    const struct tb_chunk *at = &m->chunks[of];
    struct tb_codec *codec = NULL;
    struct tb_codec_coded coded;
    const struct tb_codec_input in = {.bytes = s->v2.bytes[0] + at->offset,
                                      .count = at->bytes,
                                      .dtype = tb_layout_dtype_at(&m->layout, at->offset),
                                      .base = s->v1.bytes[0] + at->offset,
                                      .classes = 8};
    const struct tb_codec_form form = {.id = TB_CODEC_SPARSE, .on_base = true};
    CHECK_OK(tb_codec_new(&codec));
    CHECK_OK(tb_codec_encode(codec, form, &in, (struct tb_codec_room){room, sizeof room}, &coded));
    rank_writes(s, objects, chunk, &coded);
    tb_codec_free(codec);
}

/* P1, P7: what a rank encoded goes as it is, and is made by nobody else. Of a hostile rank, or one
 * whose memory rots: what decodes to other bytes, or to nothing, costs its chunk a second way and
 * the session nothing; and no other peer gets it. */
static void what_a_rank_encoded_wrong_lands_nowhere(void **state)
{
    (void)state;
    struct steps s;
    struct tb_objects *objects = NULL;
    static uint8_t noise[1 << 16];
    memset(noise, 0xa5, sizeof noise);
    steps_make(&s, 1, 24 << 20);
    CHECK_OK(tb_objects_new(4 << 20, &objects));
    s.east->options.objects = objects;
    steps_begin(&s);
    uint32_t changed = 0;
    for (uint32_t k = 0; k < s.v2.chunks; k++) {
        const bool same = tb_digest_equal(&s.v2.manifests[0].digests[k], &s.v1.manifests[0].digests[k]);
        changed += !same;
        if (!same && k > 7) rank_encodes(&s, objects, k, k);
    }
    assert_true(changed > 8);
    rank_encodes(&s, objects, 1, 9); /* of another chunk */
    const enum tb_codec_id codecs[] = {TB_CODEC_SPARSE, TB_CODEC_PLANES, TB_CODEC_ZSTD};
    for (uint32_t i = 0; i < 3; i++) {
        const struct tb_codec_coded coded = {{codecs[i], true}, noise, sizeof noise};
        rank_writes(&s, objects, 3 + 2 * i, &coded);
    }
    const struct tb_links_stats before = site_stats(s.east, 0);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).chunks_bad, 4);
    assert_int_equal(s.west->ups, 1);
    SITE_SENT(&s.w, s.east, before.chunks_sent + changed + 4);
    struct tb_objects_stats stats;
    tb_objects_stats(objects, &stats);
    assert_int_equal(stats.bad, 4);
    assert_int_equal(stats.used, changed);
    assert_int_equal(stats.from[TB_OBJECT_MADE_HERE].count, 0);
    /* Not by their count: a stream keeps the last one that it sent till it sends another. */
    for (uint32_t k = 1; k < 8; k += 2) {
        const struct tb_object_name name = object_name(&s, k);
        assert_null(tb_objects_find(objects, &name));
    }
    steps_free(&s);
    tb_objects_free(objects);
}

/* P7: a chunk that went whole, because the peer lacked its base, came wrong: that says nothing of
 * the object that others get. */
static void a_wrong_whole_chunk_costs_no_object(void **state)
{
    (void)state;
    struct steps s;
    struct tb_objects *objects = NULL;
    struct tb_objects_stats stats;
    steps_make(&s, 1, 8 << 20);
    CHECK_OK(tb_objects_new(4 << 20, &objects));
    s.east->options.objects = objects;
    steps_begin(&s);
    rank_encodes(&s, objects, 5, 5);
    atomic_store(&s.west->no_base, true);
    struct copy *c = site_place(s.east, &s.v2.key, s.v2.manifests);
    memcpy(c->places[0].bytes, s.v2.bytes[0], s.v2.manifests[0].bytes);
    for (uint32_t k = 0; k < s.v2.chunks; k++)
        tb_bitmap_set(c->places[0].held, k);
    s.east->mend = &c->places[0].bytes[s.v2.manifests[0].chunks[5].offset + 77];
    *s.east->mend ^= 1; /* until it was refused once */
    CHECK_OK(tb_links_offer(s.east->links, &c->key, c->places));
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(s.east->bad.chunk, 5);
    assert_int_equal(s.east->bad_ours, 1);
    tb_objects_stats(objects, &stats);
    assert_int_equal(stats.bad, 0);
    steps_free(&s);
    tb_objects_free(objects);
}

/* P6: a rank's objects are on their way, and this link writes chunks in a way of its
 * own: it does not wait. */
static void a_link_waits_for_no_object_that_it_would_not_take(void **state)
{
    (void)state;
    static const enum tb_choice_wish wishes[] = {TB_CHOICE_RAW, TB_CHOICE_ZSTD, TB_CHOICE_PLANES};
    for (uint32_t i = 0; i < 3; i++) {
        struct steps s;
        struct tb_objects *objects = NULL;
        steps_make(&s, 1, 8 << 20);
        CHECK_OK(tb_objects_new(4 << 20, &objects));
        s.east->options.objects = objects;
        s.east->options.codec = wishes[i];
        steps_begin(&s);
        const struct tb_object_name name = object_name(&s, 0);
        tb_objects_coming(objects, &name, true, for_long());
        assert_true(tb_objects_awaits(objects, &name, tb_clock_now()));
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        steps_free(&s);
        tb_objects_free(objects);
    }
}

/* Of the chunks that v2 left as they were, every element goes up by one or two. */
static void change_the_others_whole(struct steps *s)
{
    struct tb_manifest *m = &s->v2.manifests[0];
    for (uint32_t k = 0; k < m->chunk_count; k += 2) {
        uint8_t *chunk = s->v2.bytes[0] + m->chunks[k].offset;
        for (uint32_t i = 0; i + 2 <= m->chunks[k].bytes; i += 2)
            chunk[i] = (uint8_t)(chunk[i] + 1 + i * 2654435761u % 7 / 5);
        m->digests[k] = tb_digest_of(chunk, m->chunks[k].bytes);
    }
    m->root = tb_manifest_root(m);
    s->v2.key.root = tb_version_root(&s->v2.key, &m->root);
}

/* Some tensors of a step changed everywhere, others hardly: over a thin link each chunk goes in the
 * form for its own changes. */
static void each_chunk_goes_in_a_form_of_its_own(void **state)
{
    (void)state;
    struct steps s;
    struct tb_choice c;
    steps_make(&s, 1, 8 << 20);
    change_the_others_whole(&s);
    s.east->options.codec = TB_CHOICE_AUTO;
    steps_begin(&s);
    tb_links_limit(s.east->links, 0,
                   &(struct tb_links_limit){.bytes_per_s = 1000000, .until_bytes = UINT64_MAX});
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    tb_links_choice(s.east->links, 0, &c);
    assert_true(c.picks[TB_KIND_BF16][1] >= s.v2.chunks / 2 - 1);
    assert_true(c.picks[TB_KIND_BF16_MOST][1] >= s.v2.chunks / 2 - 1);
    assert_int_equal(c.last[TB_KIND_BF16][1], TB_WAY_CLASSES);
    assert_int_equal(c.last[TB_KIND_BF16_MOST][1], TB_WAY_DENSE);
    steps_free(&s);
}

/* West takes v2 unasked, once it has v1. */
static void steps_begin_expected(struct steps *s)
{
    s->west->expects = true;
    s->west->options.push_ms = s->west->options.push_most_ms = 3600000;
    steps_begin(s);
    WORLD_UNTIL(&s->w.net, site_stats(s->east, 0).expected == 1);
}

static bool is_changed(const struct steps *s, uint32_t k)
{
    return !tb_digest_equal(&s->v2.manifests[0].digests[k], &s->v1.manifests[0].digests[k]);
}

/* Whether exactly the first so many of the chunks that changed are at west. */
static bool first_are_there(struct steps *s, uint64_t count)
{
    const struct copy *c = site_copy(s->west, &s->v2);
    uint64_t before = 0;
    for (uint32_t k = 0; k < s->v2.chunks; k++)
        if (is_changed(s, k) && tb_place_held(&c->places[0], k) != (before++ < count)) return false;
    return true;
}

/* Since it was published at the soonest; of what does not cross now nothing began. */
static void check_begun(const struct steps *s, tb_time_ns published)
{
    struct tb_links_progress p;
    CHECK_OK(tb_links_peer_progress(s->east->links, 0, &s->v2.key.uid, &p));
    assert_true(p.crossing);
    assert_in_range(p.begun_for, 1, tb_time_since(published, tb_clock_now()));
    CHECK_OK(tb_links_peer_progress(s->east->links, 0, &s->v1.key.uid, &p));
    assert_false(p.crossing);
    assert_int_equal(p.begun_for, 0);
}

/* A step is pushed while its rank still compares and encodes: each chunk goes as soon as its
 * difference is there, and waits for none that comes later. */
static void a_step_is_pushed_while_its_rank_encodes(void **state)
{
    (void)state;
    struct steps s;
    struct tb_objects *objects = NULL;
    struct tb_objects_stats stats;
    uint64_t count = 0;
    steps_make(&s, 1, 12 << 20);
    CHECK_OK(tb_objects_new(4 << 20, &objects));
    s.east->options.objects = objects;
    steps_begin_expected(&s);
    const struct tb_object_name name = object_name(&s, 0);
    tb_objects_coming(objects, &name, true, for_long());
    const tb_time_ns published = tb_clock_now();
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, site_copy(s.west, &s.v2) != NULL);
    check_begun(&s, published);
    for (uint32_t k = 0; k < s.v2.chunks; k++) {
        if (!is_changed(&s, k)) continue;
        assert_true(first_are_there(&s, count));
        rank_encodes(&s, objects, k, k);
        WORLD_UNTIL(&s.w.net, tb_place_held(&site_copy(s.west, &s.v2)->places[0], k));
        count++;
        SITE_SENT(&s.w, s.east, s.v1.chunks + count);
    }
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).pushed, 1);
    tb_objects_stats(objects, &stats);
    assert_int_equal(stats.from[TB_OBJECT_MADE_HERE].count, 0);
    steps_free(&s);
    tb_objects_free(objects);
}

/* And it goes in the order of its tensors: what a day's bytes have room for are the first ones. By
 * one stream, as several are in hand at once. */
static void a_pushed_step_begins_with_its_first_tensors(void **state)
{
    (void)state;
    struct steps s;
    uint32_t changed = 0;
    steps_make(&s, 1, 40 << 20);
    s.east->options.streams = s.west->options.streams = 1;
    steps_begin_expected(&s);
    for (uint32_t k = 0; k < s.v2.chunks; k++)
        changed += is_changed(&s, k);
    const struct tb_links_stats before = site_stats(s.east, 0);
    limit(s.east, before.bytes_sent + 50000);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).short_bytes > 0);
    const uint64_t count = site_stats(s.east, 0).chunks_sent - before.chunks_sent;
    assert_in_range(count, 2, changed - 2);
    WORLD_UNTIL(&s.w.net, site_copy(s.west, &s.v2) != NULL && first_are_there(&s, count));
    limit(s.east, UINT64_MAX);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).pushed, 1);
    steps_free(&s);
}

/* P5: streams are cut again and again while differences cross; nothing that was
 * acknowledged is sent again. */
static void cuts_repeat_no_difference(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 48 << 20);
    steps_begin(&s);
    const struct tb_links_stats before = site_stats(s.west, 0);
    site_publish(s.east, &s.v2);
    for (uint32_t at = 4; at < 40; at += 6) {
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 || (site_copy(s.west, &s.v2) != NULL &&
                                                      copy_held(site_copy(s.west, &s.v2)) >= at));
        (void)cut_streams(at % 12 == 4 ? s.east : s.west, 0, 2);
    }
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    const struct tb_links_stats after = site_stats(s.west, 0);
    assert_int_equal(after.chunks_duplicate, before.chunks_duplicate);
    assert_true(after.chunks_received - before.chunks_received <= s.v2.chunks / 2 + 1);
    steps_free(&s);
}

/* A gateway that restarts names its base again: the links begin anew, and the step still
 * crosses as differences. */
static void a_receiver_that_restarts_keeps_its_base(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 16 << 20);
    steps_begin(&s);
    struct copy *mine = site_copy(s.west, &s.v1);
    site_close(s.west);
    s.west->options.incarnation = 2;
    site_start(s.west);
    CHECK_OK(tb_links_offer(s.west->links, &mine->key, mine->places));
    WORLD_UNTIL(&s.w.net, s.west->ups == 2);
    const uint64_t before = site_stats(s.west, 0).bytes_received;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_true(site_stats(s.west, 0).bytes_received - before < s.v2.total_bytes / 50);
    steps_free(&s);
}

/* k versions behind: the base is whatever the peer holds, so what crosses is the k steps merged. */
static void a_peer_that_missed_a_step_gets_both_at_once(void **state)
{
    (void)state;
    struct steps s;
    struct truth v3;
    steps_make(&s, 1, 8 << 20);
    truth_step(&v3, &s.v2);
    steps_begin(&s);
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->versions == 2);
    s.west->no_land = false;
    const uint64_t before = site_stats(s.west, 0).bytes_received;
    site_publish(s.east, &v3);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2);
    check_equal(site_copy(s.west, &v3), &v3);
    assert_true(site_stats(s.west, 0).bytes_received - before < v3.total_bytes / 50);
    steps_free(&s);
    truth_free(&v3);
}

/* P6: two chunks that are the same in the base are being written by another way when their turn
 * to be copied comes. One of its writers gives up: that chunk is asked for. The other ends
 * well: its chunk is not. */
static void a_copy_that_another_writer_stood_for_is_asked_for_if_it_gives_up(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 1, 16 << 20);
    steps_begin(&s);
    struct copy *c = site_place(s.west, &s.v2.key, s.v2.manifests);
    struct tb_place *place = &c->places[0];
    assert_true(tb_place_claim(place, 0) && tb_place_claim(place, 2));
    CHECK_OK(tb_links_offer(s.west->links, &c->key, c->places));
    CHECK_OK(tb_links_land(s.west->links, 0, &c->key, c->places));
    const struct tb_links_stats before = site_stats(s.east, 0);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, copy_held(c) == s.v2.chunks - 2);
    const struct tb_chunk *second = &s.v2.manifests[0].chunks[2];
    memcpy(place->bytes + second->offset, s.v2.bytes[0] + second->offset, second->bytes);
    CHECK_OK(tb_place_finish(place, 2));
    tb_place_unclaim(place, 0);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(c, &s.v2);
    SITE_SENT(&s.w, s.east, before.chunks_sent + s.v2.chunks / 2 + 1);
    steps_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_crosses_as_differences),
        cmocka_unit_test(what_goes_again_is_counted_as_it_goes),
        cmocka_unit_test(a_days_bytes_hold_what_goes),
        cmocka_unit_test(who_waits_hears_of_the_day),
        cmocka_unit_test(a_peer_of_the_release_before_gets_whole_chunks),
        cmocka_unit_test(chunks_without_a_base_come_whole),
        cmocka_unit_test(a_sender_without_a_base_sends_whole),
        cmocka_unit_test(a_base_that_goes_is_missed_by_its_chunks_alone),
        cmocka_unit_test(a_wrong_difference_is_refused_and_comes_whole),
        cmocka_unit_test(what_a_rank_encoded_wrong_lands_nowhere),
        cmocka_unit_test(a_wrong_whole_chunk_costs_no_object),
        cmocka_unit_test(a_link_waits_for_no_object_that_it_would_not_take),
        cmocka_unit_test(each_chunk_goes_in_a_form_of_its_own),
        cmocka_unit_test(a_step_is_pushed_while_its_rank_encodes),
        cmocka_unit_test(a_pushed_step_begins_with_its_first_tensors),
        cmocka_unit_test(cuts_repeat_no_difference),
        cmocka_unit_test(a_receiver_that_restarts_keeps_its_base),
        cmocka_unit_test(a_peer_that_missed_a_step_gets_both_at_once),
        cmocka_unit_test(a_copy_that_another_writer_stood_for_is_asked_for_if_it_gives_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
