/* links_chained_deltas.c - a peer that stands on a version which its source has given back gets on
 * by chained deltas that were kept: bit for bit, in a small part of the bytes. Where a delta
 * lacks, or is wrong, the chunk comes whole.
 *
 * Covers: wan/send/encoded_chunks_chain.c wan/stream/stream_send.c
 * Covers: wan/link/traffic/links_known.c */
#include "links_world.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "wan/link/links_stats.h"
#include "wan/send/encoded_chunks.h"
#include "wan/send/encoded_chunks_chain.h"

#define VERSIONS 6u /* of which west holds the first */
#define BYTES    (8u << 20)
#define NOBODY   UINT32_MAX

struct story {
    struct links_world w;
    struct site *east, *west;
    struct tb_encoded_chunks *east_encoded_chunks, *west_encoded_chunks;
    struct tb_codec *codec;
    struct truth versions[VERSIONS];
    uint32_t changed; /* chunks, in each step */
};

static bool changes(const struct story *s, uint32_t k)
{
    return !tb_digest_equal(&s->versions[1].manifests[0].digests[k], &s->versions[0].manifests[0].digests[k]);
}

static int story_up(void **state)
{
    struct story *s = calloc(1, sizeof *s);
    assert_non_null(s);
    links_world_init(&s->w);
    truth_make(&s->versions[0], 42, 1, BYTES);
    for (uint32_t v = 1; v < VERSIONS; v++)
        truth_step(&s->versions[v], &s->versions[v - 1]);
    for (uint32_t k = 0; k < s->versions[0].chunks; k++)
        s->changed += changes(s, k);
    CHECK_OK(tb_encoded_chunks_new(8 << 20, &s->east_encoded_chunks));
    CHECK_OK(tb_encoded_chunks_new(8 << 20, &s->west_encoded_chunks));
    CHECK_OK(tb_codec_new(&s->codec));
    s->east = site_new(&s->w, "east", true);
    s->west = site_new(&s->w, "west", false);
    s->east->options.codec = s->west->options.codec = TB_CHOICE_SPARSE;
    s->east->options.encoded_chunks = s->east_encoded_chunks;
    s->west->options.encoded_chunks = s->west_encoded_chunks;
    site_peer(s->east, s->west, false, false);
    site_peer(s->west, s->east, true, true);
    *state = s;
    return 0;
}

static int story_down(void **state)
{
    struct story *s = *state;
    links_world_fini(&s->w);
    for (uint32_t v = 0; v < VERSIONS; v++)
        truth_free(&s->versions[v]);
    tb_codec_free(s->codec);
    tb_encoded_chunks_free(s->east_encoded_chunks);
    tb_encoded_chunks_free(s->west_encoded_chunks);
    free(s);
    return 0;
}

/* As the rank of version v would encode its chunk k; `as` is the version whose bytes it takes for
 * v's. */
static void rank_encodes(struct story *s, uint32_t v, uint32_t k, uint32_t as)
{
    static uint8_t room[4 << 20];
    const struct tb_manifest *m = &s->versions[v].manifests[0];
    const struct tb_chunk *at = &m->chunks[k];
    struct tb_codec_coded coded;
    const struct tb_codec_input in = {.bytes = s->versions[as].bytes[0] + at->offset,
                                      .count = at->bytes,
                                      .dtype = tb_layout_dtype_at(&m->layout, at->offset),
                                      .base = s->versions[v - 1].bytes[0] + at->offset,
                                      .classes = 8};
    const struct tb_encoded_chunk_name name = {.uid = &s->versions[v].key.uid,
                                               .base = &s->versions[v - 1].key.uid,
                                               .chunk = k,
                                               .shard_count = 1,
                                               .chunk_count = s->versions[v].chunks};
    const struct tb_codec_form form = {.id = TB_CODEC_SPARSE, .on_base = true};
    CHECK_OK(tb_codec_encode(s->codec, form, &in, (struct tb_codec_room){room, sizeof room}, &coded));
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_OF_RANK, &coded, tb_clock_now()};
    tb_encoded_chunks_put(s->east_encoded_chunks, &name, &news);
}

static void note_done(void *user)
{
    ++*(int *)user;
}

static void leaves(struct story *s, struct site *site, uint32_t v, enum tb_status why)
{
    int done = 0;
    struct copy *c = site_copy(site, &s->versions[v]);
    CHECK_OK(tb_links_retract(site->links, &s->versions[v].key.uid, why, note_done, &done));
    WORLD_UNTIL(&s->w.net, done == 1);
    memset(c->places[0].bytes, 0xee, s->versions[v].manifests[0].bytes);
    copy_free(c); /* sanitizers watch */
}

/* East is at the last but one, and of those before it only steps are left; west holds the first. */
static void west_falls_behind(struct story *s, uint32_t without_step, uint32_t without_chunk)
{
    site_start(s->east);
    site_start(s->west);
    site_publish(s->east, &s->versions[0]);
    WORLD_UNTIL(&s->w.net, s->west->landed == 1 && s->east->peer_held == 1);
    s->west->no_land = true;
    for (uint32_t v = 1; v < VERSIONS - 1; v++) {
        site_publish(s->east, &s->versions[v]);
        for (uint32_t k = 0; k < s->versions[v].chunks; k++)
            if (changes(s, k) && !(v == without_step && k == without_chunk)) rank_encodes(s, v, k, v);
        if (v > 1) leaves(s, s->east, v - 2, TB_SUPERSEDED);
    }
    WORLD_UNTIL(&s->w.net, s->west->versions == VERSIONS - 1 && s->west->gone == VERSIONS - 3);
}

static void last_is_published(struct story *s)
{
    const uint32_t v = VERSIONS - 1;
    leaves(s, s->east, v - 2, TB_SUPERSEDED);
    for (uint32_t k = 0; k < s->versions[v].chunks; k++)
        if (changes(s, k)) rank_encodes(s, v, k, v);
    s->west->no_land = false;
    site_publish(s->east, &s->versions[v]);
}

static void last_lands(struct story *s)
{
    WORLD_UNTIL(&s->w.net, s->west->landed == 2 && s->east->peer_held == 2);
    check_equal(site_copy(s->west, &s->versions[VERSIONS - 1]), &s->versions[VERSIONS - 1]);
    check_equal(site_copy(s->west, &s->versions[0]), &s->versions[0]);
    assert_int_equal(s->west->failed, 0);
}

static uint64_t by_chained(const struct story *s)
{
    struct tb_choice c;
    tb_links_choice(s->east->links, 0, &c);
    return c.chunks[TB_WAY_CHAINED];
}

/* P4, P5: five steps behind, of which home keeps two versions. Each chunk crosses once, as the five
 * steps that ranks encoded. */
static void a_peer_that_is_behind_gets_chained_deltas(void **state)
{
    struct story *s = *state;
    west_falls_behind(s, NOBODY, 0);
    const struct tb_links_stats before = site_stats(s->east, 0);
    last_is_published(s);
    last_lands(s);
    struct tb_encoded_chunks_stats encoded_chunks;
    tb_encoded_chunks_stats(s->east_encoded_chunks, &encoded_chunks);
    assert_int_equal(by_chained(s), s->changed);
    assert_int_equal(encoded_chunks.chained, s->changed);
    assert_int_equal(encoded_chunks.from[TB_ENCODED_CHUNK_MADE_HERE].count, 0);
    const struct tb_links_stats after = site_stats(s->east, 0);
    assert_int_equal(after.delta_chunks - before.delta_chunks, s->changed);
    assert_true(after.bytes_sent - before.bytes_sent < BYTES / 12);
    assert_int_equal(site_stats(s->west, 0).chunks_bad, 0);
    assert_int_equal(site_stats(s->west, 0).chunks_no_base, 0);
}

/* Chained deltas are kept as they came: they lead from the first version to the last, for a peer
 * behind. */
static void a_relay_keeps_deltas_as_they_came(void **state)
{
    struct story *s = *state;
    west_falls_behind(s, NOBODY, 0);
    last_is_published(s);
    last_lands(s);
    const struct tb_encoded_chunk_name name = {.uid = &s->versions[VERSIONS - 1].key.uid,
                                               .base = &s->versions[0].key.uid,
                                               .chunk = 1,
                                               .shard_count = 1,
                                               .chunk_count = s->versions[0].chunks};
    struct tb_encoded_chunk *direct = tb_encoded_chunks_find(s->west_encoded_chunks, &name),
                            *way[TB_CODEC_CHAINED_MAX];
    assert_non_null(direct);
    const struct tb_codec_coded coded = tb_encoded_chunk_coded(direct);
    assert_int_equal(tb_codec_deltas(&coded), VERSIONS - 1);
    assert_int_equal(tb_encoded_chunks_chain(s->west_encoded_chunks, &name, way), 1);
    assert_ptr_equal(way[0], direct);
    tb_encoded_chunk_unref(s->west_encoded_chunks, way[0]);
    tb_encoded_chunk_unref(s->west_encoded_chunks, direct);
}

/* P6: a step of one chunk was never encoded, or its room was needed: that chunk comes whole. */
static void a_missing_delta_costs_its_chunk_alone(void **state)
{
    struct story *s = *state;
    west_falls_behind(s, 2, 3);
    last_is_published(s);
    last_lands(s);
    assert_int_equal(by_chained(s), s->changed - 1);
}

/* P1: a step that a rank encoded wrong is refused with its chunk, which comes whole; and the
 * encoded chunk leads nobody astray again. */
static void a_wrong_chained_delta_is_refused_and_its_chunk_comes_whole(void **state)
{
    struct story *s = *state;
    struct tb_encoded_chunks_stats encoded_chunks;
    west_falls_behind(s, 2, 3);
    rank_encodes(s, 2, 3, 3); /* the version behind it */
    last_is_published(s);
    last_lands(s);
    assert_int_equal(site_stats(s->west, 0).chunks_bad, 1);
    assert_int_equal(s->east->bad.chunk, 3);
    tb_encoded_chunks_stats(s->east_encoded_chunks, &encoded_chunks);
    assert_int_equal(encoded_chunks.bad, VERSIONS - 1); /* which of them it was, nobody can tell */
}

/* A version that was broken or withdrawn is forgotten with all that was encoded of it:
 * nothing leads over it. */
static void nothing_leads_over_what_was_withdrawn(void **state)
{
    struct story *s = *state;
    west_falls_behind(s, NOBODY, 0);
    tb_encoded_chunks_drop(s->east_encoded_chunks, &s->versions[2].key.uid);
    last_is_published(s);
    last_lands(s);
    assert_int_equal(by_chained(s), 0);
}

/* The base goes at the sender while its difference crosses: the rest goes by the steps
 * that it was made of. */
static void a_base_that_leaves_in_mid_crossing_leaves_its_deltas(void **state)
{
    struct story *s = *state;
    const struct truth *first = &s->versions[0], *second = &s->versions[1];
    site_start(s->east);
    site_start(s->west);
    site_publish(s->east, first);
    WORLD_UNTIL(&s->w.net, s->west->landed == 1 && s->east->peer_held == 1);
    struct copy *c = site_place(s->east, &second->key, second->manifests); /* half of it is there */
    memcpy(c->places[0].bytes, second->bytes[0], second->manifests[0].bytes);
    for (uint32_t k = 0; k < second->chunks; k++) {
        if (k < second->chunks / 2) tb_bitmap_set(c->places[0].held, k);
        if (changes(s, k)) rank_encodes(s, 1, k, 1);
    }
    CHECK_OK(tb_links_offer(s->east->links, &c->key, c->places));
    WORLD_UNTIL(&s->w.net, tb_links_base_used(s->east->links, &first->key.uid));
    leaves(s, s->east, 0, TB_SUPERSEDED);
    const struct tb_links_stats before = site_stats(s->east, 0);
    for (uint32_t k = second->chunks / 2; k < second->chunks; k++)
        tb_bitmap_set(c->places[0].held, k);
    WORLD_UNTIL(&s->w.net, s->west->landed == 2 && s->east->peer_held == 2);
    check_equal(site_copy(s->west, second), second);
    const struct tb_links_stats after = site_stats(s->east, 0);
    assert_true(after.bytes_sent - before.bytes_sent < BYTES / 50);
    assert_int_equal(site_stats(s->west, 0).chunks_bad, 0);
}

/* Deltas are encoded for a peer that went away: for as many versions as may be chained, and no
 * longer (P7). */
static void a_peer_that_went_away_is_thought_of_for_a_while(void **state)
{
    struct story *s = *state;
    const struct tb_choice_pace pace = {.classes = 0};
    const struct tb_name *model = &s->versions[0].key.model;
    site_start(s->east);
    assert_int_equal(tb_links_classes(s->east->links, model, &pace), 0);
    site_start(s->west);
    site_publish(s->east, &s->versions[0]);
    WORLD_UNTIL(&s->w.net, s->west->landed == 1 && s->east->peer_held == 1);
    assert_true(tb_links_classes(s->east->links, model, &pace) > 0);
    site_close(s->west);
    WORLD_UNTIL(&s->w.net, !site_stats(s->east, 0).up);
    struct truth t = s->versions[1];
    for (uint32_t missed = 0; missed < TB_CODEC_CHAINED_MAX; missed++) {
        assert_true(tb_links_classes(s->east->links, model, &pace) > 0);
        struct copy *c = site_publish(s->east, &t);
        int done = 0;
        CHECK_OK(tb_links_retract(s->east->links, &t.key.uid, TB_SUPERSEDED, note_done, &done));
        WORLD_UNTIL(&s->w.net, done == 1);
        copy_free(c);
        t.key.uid.bytes[0]++;
    }
    assert_int_equal(tb_links_classes(s->east->links, model, &pace), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_STORY(test) cmocka_unit_test_setup_teardown(test, story_up, story_down)
        WITH_STORY(a_peer_that_is_behind_gets_chained_deltas),
        WITH_STORY(a_relay_keeps_deltas_as_they_came),
        WITH_STORY(a_missing_delta_costs_its_chunk_alone),
        WITH_STORY(a_wrong_chained_delta_is_refused_and_its_chunk_comes_whole),
        WITH_STORY(nothing_leads_over_what_was_withdrawn),
        WITH_STORY(a_base_that_leaves_in_mid_crossing_leaves_its_deltas),
        WITH_STORY(a_peer_that_went_away_is_thought_of_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
