/* links_ranks.c - deltas that ranks encode: links wait for them, take them as they came, and push a
 * version while they are still made.
 *
 * Covers: wan/stream/stream_send.c wan/send/encoded_chunks.c wan/link/traffic/link_send.c
 * Covers: wan/link/traffic/link_expected.c */
#include "links_versions.h"

#include <string.h>

#include "base/clock.h"
#include "base/layout/version_key.h"
#include "wan/link/links_stats.h"
#include "wan/send/encoded_chunks.h"

/* News of a rank from a time to come: what it still makes is awaited for as long as a test
 * lasts. */
static tb_time_ns for_long(void)
{
    return tb_time_add(tb_clock_now(), TB_SECONDS(3600));
}

static struct tb_encoded_chunk_name encoded_name(const struct two_versions *s, uint32_t chunk)
{
    return (struct tb_encoded_chunk_name){.uid = &s->v2.key.uid,
                                          .base = &s->v1.key.uid,
                                          .chunk = chunk,
                                          .shard_count = 1,
                                          .chunk_count = s->v2.chunks};
}

static void rank_writes(const struct two_versions *s, struct tb_encoded_chunks *encoded_chunks,
                        uint32_t chunk, const struct tb_codec_coded *coded)
{
    const struct tb_encoded_chunk_name name = encoded_name(s, chunk);
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_OF_RANK, coded, for_long()};
    tb_encoded_chunks_put(encoded_chunks, &name, &news);
}

/* As a rank would: an encoded chunk of v2's chunk, as v2's chunk `of` differs from v1. */
static void rank_encodes(const struct two_versions *s, struct tb_encoded_chunks *encoded_chunks,
                         uint32_t chunk, uint32_t of)
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
    rank_writes(s, encoded_chunks, chunk, &coded);
    tb_codec_free(codec);
}

/* P1, P7: a chunk that a rank encoded goes as it is, and is made by nobody else. Of a hostile rank,
 * or one whose memory rots: what decodes to other bytes, or to nothing, costs its chunk a second
 * way and the session nothing; and no other peer gets it. */
static void a_chunk_that_a_rank_encoded_wrong_lands_nowhere(void **state)
{
    (void)state;
    struct two_versions s;
    struct tb_encoded_chunks *encoded_chunks = NULL;
    static uint8_t noise[1 << 16];
    memset(noise, 0xa5, sizeof noise);
    two_versions_make(&s, 1, 24 << 20);
    CHECK_OK(tb_encoded_chunks_new(4 << 20, &encoded_chunks));
    s.east->options.encoded_chunks = encoded_chunks;
    two_versions_begin(&s);
    uint32_t changed = 0;
    for (uint32_t k = 0; k < s.v2.chunks; k++) {
        const bool same = tb_digest_equal(&s.v2.manifests[0].digests[k], &s.v1.manifests[0].digests[k]);
        changed += !same;
        if (!same && k > 7) rank_encodes(&s, encoded_chunks, k, k);
    }
    assert_true(changed > 8);
    rank_encodes(&s, encoded_chunks, 1, 9); /* of another chunk */
    const enum tb_codec_id codecs[] = {TB_CODEC_SPARSE, TB_CODEC_PLANES, TB_CODEC_ZSTD};
    for (uint32_t i = 0; i < 3; i++) {
        const struct tb_codec_coded coded = {{codecs[i], true}, noise, sizeof noise};
        rank_writes(&s, encoded_chunks, 3 + 2 * i, &coded);
    }
    const struct tb_links_stats before = site_stats(s.east, 0);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).chunks_bad, 4);
    assert_int_equal(s.west->ups, 1);
    SITE_SENT(&s.w, s.east, before.chunks_sent + changed + 4);
    struct tb_encoded_chunks_stats stats;
    tb_encoded_chunks_stats(encoded_chunks, &stats);
    assert_int_equal(stats.bad, 4);
    assert_int_equal(stats.used, changed);
    assert_int_equal(stats.from[TB_ENCODED_CHUNK_MADE_HERE].count, 0);
    /* Not by their count: a stream keeps the last one that it sent till it sends another. */
    for (uint32_t k = 1; k < 8; k += 2) {
        const struct tb_encoded_chunk_name name = encoded_name(&s, k);
        assert_null(tb_encoded_chunks_find(encoded_chunks, &name));
    }
    two_versions_free(&s);
    tb_encoded_chunks_free(encoded_chunks);
}

/* P7: a chunk that went whole, because the peer lacked its base, came wrong: that says nothing of
 * the encoded chunk that others get. */
static void a_wrong_whole_chunk_costs_no_encoded_chunk(void **state)
{
    (void)state;
    struct two_versions s;
    struct tb_encoded_chunks *encoded_chunks = NULL;
    struct tb_encoded_chunks_stats stats;
    two_versions_make(&s, 1, 8 << 20);
    CHECK_OK(tb_encoded_chunks_new(4 << 20, &encoded_chunks));
    s.east->options.encoded_chunks = encoded_chunks;
    two_versions_begin(&s);
    rank_encodes(&s, encoded_chunks, 5, 5);
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
    tb_encoded_chunks_stats(encoded_chunks, &stats);
    assert_int_equal(stats.bad, 0);
    two_versions_free(&s);
    tb_encoded_chunks_free(encoded_chunks);
}

/* P6: a rank's encoded chunks are on their way, and this link writes chunks in a way of its
 * own: it does not wait. */
static void a_link_waits_for_no_encoded_chunk_that_it_would_not_take(void **state)
{
    (void)state;
    static const enum tb_choice_wish wishes[] = {TB_CHOICE_RAW, TB_CHOICE_ZSTD, TB_CHOICE_PLANES};
    for (uint32_t i = 0; i < 3; i++) {
        struct two_versions s;
        struct tb_encoded_chunks *encoded_chunks = NULL;
        two_versions_make(&s, 1, 8 << 20);
        CHECK_OK(tb_encoded_chunks_new(4 << 20, &encoded_chunks));
        s.east->options.encoded_chunks = encoded_chunks;
        s.east->options.codec = wishes[i];
        two_versions_begin(&s);
        const struct tb_encoded_chunk_name name = encoded_name(&s, 0);
        tb_encoded_chunks_coming(encoded_chunks, &name, true, for_long());
        assert_true(tb_encoded_chunks_awaits(encoded_chunks, &name, tb_clock_now()));
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        two_versions_free(&s);
        tb_encoded_chunks_free(encoded_chunks);
    }
}

/* Of the chunks that v2 left as they were, every element goes up by one or two. */
static void change_the_others_whole(struct two_versions *s)
{
    struct tb_manifest *m = &s->v2.manifests[0];
    for (uint32_t k = 0; k < m->chunk_count; k += 2) {
        uint8_t *chunk = s->v2.bytes[0] + m->chunks[k].offset;
        for (uint32_t i = 0; i + 2 <= m->chunks[k].bytes; i += 2)
            chunk[i] = (uint8_t)(chunk[i] + 1 + i * 2654435761u % 7 / 5);
        m->digests[k] = tb_digest_of(chunk, m->chunks[k].bytes);
    }
    m->root = tb_manifest_root(m);
    s->v2.key.root = tb_version_key_root(&s->v2.key, &m->root);
}

/* Some tensors of a step changed everywhere, others hardly: over a thin link each chunk goes in the
 * form for its own changes. */
static void each_chunk_goes_in_a_form_of_its_own(void **state)
{
    (void)state;
    struct two_versions s;
    struct tb_choice c;
    two_versions_make(&s, 1, 8 << 20);
    change_the_others_whole(&s);
    s.east->options.codec = TB_CHOICE_AUTO;
    two_versions_begin(&s);
    tb_links_limit(s.east->links, 0,
                   &(struct tb_links_limit){.bytes_per_s = 1000000, .until_bytes = UINT64_MAX});
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    tb_links_choice(s.east->links, 0, &c);
    assert_true(c.picks[TB_KIND_BF16][1] >= s.v2.chunks / 2 - 1);
    assert_true(c.picks[TB_KIND_BF16_MOST][1] >= s.v2.chunks / 2 - 1);
    /* Sparse; the number of classes depends on how fast this machine encodes at the moment. */
    const enum tb_choice_way few = c.last[TB_KIND_BF16][1];
    assert_true(few == TB_WAY_CLASSES || few == TB_WAY_GAPS);
    assert_int_equal(c.last[TB_KIND_BF16_MOST][1], TB_WAY_DENSE);
    two_versions_free(&s);
}

/* West takes v2 unasked, once it has v1. */
static void steps_begin_expected(struct two_versions *s)
{
    s->west->expects = true;
    s->west->options.push_ms = s->west->options.push_most_ms = 3600000;
    two_versions_begin(s);
    WORLD_UNTIL(&s->w.net, site_stats(s->east, 0).expected == 1);
}

static bool is_changed(const struct two_versions *s, uint32_t k)
{
    return !tb_digest_equal(&s->v2.manifests[0].digests[k], &s->v1.manifests[0].digests[k]);
}

/* Whether exactly the first so many of the chunks that changed are at west. */
static bool first_are_there(struct two_versions *s, uint64_t count)
{
    const struct copy *c = site_copy(s->west, &s->v2);
    uint64_t before = 0;
    for (uint32_t k = 0; k < s->v2.chunks; k++)
        if (is_changed(s, k) && tb_place_held(&c->places[0], k) != (before++ < count)) return false;
    return true;
}

/* Since it was published at the soonest; of what does not cross now nothing began. */
static void check_begun(const struct two_versions *s, tb_time_ns published)
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
static void a_version_is_pushed_while_its_rank_encodes(void **state)
{
    (void)state;
    struct two_versions s;
    struct tb_encoded_chunks *encoded_chunks = NULL;
    struct tb_encoded_chunks_stats stats;
    uint64_t count = 0;
    two_versions_make(&s, 1, 12 << 20);
    CHECK_OK(tb_encoded_chunks_new(4 << 20, &encoded_chunks));
    s.east->options.encoded_chunks = encoded_chunks;
    steps_begin_expected(&s);
    const struct tb_encoded_chunk_name name = encoded_name(&s, 0);
    tb_encoded_chunks_coming(encoded_chunks, &name, true, for_long());
    const tb_time_ns published = tb_clock_now();
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, site_copy(s.west, &s.v2) != NULL);
    check_begun(&s, published);
    for (uint32_t k = 0; k < s.v2.chunks; k++) {
        if (!is_changed(&s, k)) continue;
        assert_true(first_are_there(&s, count));
        rank_encodes(&s, encoded_chunks, k, k);
        WORLD_UNTIL(&s.w.net, tb_place_held(&site_copy(s.west, &s.v2)->places[0], k));
        count++;
        SITE_SENT(&s.w, s.east, s.v1.chunks + count);
    }
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).pushed, 1);
    tb_encoded_chunks_stats(encoded_chunks, &stats);
    assert_int_equal(stats.from[TB_ENCODED_CHUNK_MADE_HERE].count, 0);
    two_versions_free(&s);
    tb_encoded_chunks_free(encoded_chunks);
}

/* And it goes in the order of its tensors: what a day's bytes have room for are the first ones. By
 * one stream, as several are in hand at once. */
static void a_pushed_version_begins_with_its_first_tensors(void **state)
{
    (void)state;
    struct two_versions s;
    uint32_t changed = 0;
    two_versions_make(&s, 1, 40 << 20);
    s.east->options.streams = s.west->options.streams = 1;
    steps_begin_expected(&s);
    for (uint32_t k = 0; k < s.v2.chunks; k++)
        changed += is_changed(&s, k);
    const struct tb_links_stats before = site_stats(s.east, 0);
    two_versions_limit(s.east, before.bytes_sent + 50000);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).short_bytes > 0);
    const uint64_t count = site_stats(s.east, 0).chunks_sent - before.chunks_sent;
    assert_in_range(count, 2, changed - 2);
    WORLD_UNTIL(&s.w.net, site_copy(s.west, &s.v2) != NULL && first_are_there(&s, count));
    two_versions_limit(s.east, UINT64_MAX);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).pushed, 1);
    two_versions_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_that_a_rank_encoded_wrong_lands_nowhere),
        cmocka_unit_test(a_wrong_whole_chunk_costs_no_encoded_chunk),
        cmocka_unit_test(a_link_waits_for_no_encoded_chunk_that_it_would_not_take),
        cmocka_unit_test(each_chunk_goes_in_a_form_of_its_own),
        cmocka_unit_test(a_version_is_pushed_while_its_rank_encodes),
        cmocka_unit_test(a_pushed_version_begins_with_its_first_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
