/* encoded_chunks.c - encoded chunks that are kept are found as they were put, under their budget,
 * and the oldest go first (P7).
 *
 * Covers: wan/send/encoded_chunks.c wan/send/encoded_chunks_chain.c */
#include "wan/send/encoded_chunks.h"

#include <stdio.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/fault.h"
#include "tests/unit/check.h"
#include "wan/send/encoded_chunks_chain.h"

#define CHUNKS 10u

/* A version of two shards; only its name counts. */
static const struct tb_id *version(unsigned n)
{
    static struct tb_id ids[32];
    ids[n].bytes[0] = (uint8_t)(n + 1);
    return &ids[n];
}

static struct tb_encoded_chunk_name name_of(unsigned v, unsigned base, uint32_t shard, uint32_t chunk)
{
    return (struct tb_encoded_chunk_name){.uid = version(v),
                                          .base = version(base),
                                          .shard = shard,
                                          .chunk = chunk,
                                          .shard_count = 2,
                                          .chunk_count = CHUNKS + shard};
}

static void put(struct tb_encoded_chunks *o, unsigned v, unsigned base, uint32_t shard, uint32_t chunk,
                const char *text)
{
    const struct tb_encoded_chunk_name name = name_of(v, base, shard, chunk);
    const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, text, strlen(text)};
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_MADE_HERE, &coded, 0};
    tb_encoded_chunks_put(o, &name, &news);
}

static void put_at(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name, const char *text,
                   tb_time_ns now)
{
    const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, text, text != NULL ? strlen(text) : 0};
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_OF_RANK, text != NULL ? &coded : NULL, now};
    tb_encoded_chunks_put(o, name, &news);
}

static bool finds(struct tb_encoded_chunks *o, unsigned v, unsigned base, uint32_t shard, uint32_t chunk,
                  const char *text)
{
    const struct tb_encoded_chunk_name name = name_of(v, base, shard, chunk);
    struct tb_encoded_chunk *encoded = tb_encoded_chunks_find(o, &name);
    if (encoded == NULL) return false;
    const struct tb_codec_coded coded = tb_encoded_chunk_coded(encoded);
    const bool same = coded.count == strlen(text) && memcmp(coded.bytes, text, coded.count) == 0 &&
                      coded.form.id == TB_CODEC_SPARSE && coded.form.on_base;
    tb_encoded_chunk_unref(o, encoded);
    return same;
}

static struct tb_encoded_chunks_stats stats_of(struct tb_encoded_chunks *o)
{
    struct tb_encoded_chunks_stats s;
    tb_encoded_chunks_stats(o, &s);
    return s;
}

static void an_encoded_chunk_has_a_version_a_base_and_a_chunk(void **state)
{
    (void)state;
    enum { A, B, C };
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    put(o, B, A, 0, CHUNKS - 1, "b on a");
    put(o, B, A, 1, 0, "b on a, other shard");
    put(o, C, A, 0, CHUNKS - 1, "c on a");
    put(o, C, B, 0, CHUNKS - 1, "c on b");
    put(o, C, B, 0, CHUNKS - 1, "again"); /* what is there stays */
    assert_true(finds(o, B, A, 0, CHUNKS - 1, "b on a"));
    assert_true(finds(o, B, A, 1, 0, "b on a, other shard"));
    assert_true(finds(o, C, A, 0, CHUNKS - 1, "c on a"));
    assert_true(finds(o, C, B, 0, CHUNKS - 1, "c on b"));
    assert_false(finds(o, B, A, 0, 0, ""));
    assert_false(finds(o, A, B, 0, CHUNKS - 1, ""));
    assert_int_equal(stats_of(o).count, 4);
    assert_int_equal(stats_of(o).pairs, 3);
    assert_int_equal(stats_of(o).used, 4);
    tb_encoded_chunks_drop(o, version(C));
    assert_int_equal(stats_of(o).count, 2);
    assert_false(finds(o, C, A, 0, CHUNKS - 1, ""));
    tb_encoded_chunks_drop(o, version(B));
    assert_int_equal(stats_of(o).bytes, 0);
    tb_encoded_chunks_free(o);
}

static void the_oldest_go_first(void **state)
{
    (void)state;
    static char text[4001];
    struct tb_encoded_chunks *o = NULL;
    memset(text, 'x', 4000);
    CHECK_OK(tb_encoded_chunks_new(20000, &o));
    for (uint32_t i = 1; i < 6; i++)
        for (uint32_t k = 0; k < 2; k++) {
            put(o, i, i - 1, 0, k, text);
            assert_true(stats_of(o).bytes <= 20000);
        }
    assert_true(finds(o, 5, 4, 0, 1, text));
    assert_true(finds(o, 4, 3, 0, 0, text));
    assert_false(finds(o, 1, 0, 0, 0, text));
    /* One version alone does not push itself out: what does not fit is not kept. */
    for (uint32_t k = 2; k < CHUNKS; k++)
        put(o, 5, 4, 0, k, text);
    assert_true(stats_of(o).bytes <= 20000);
    assert_int_equal(stats_of(o).pairs, 1);
    assert_true(finds(o, 5, 4, 0, 0, text));
    assert_false(finds(o, 5, 4, 0, CHUNKS - 1, text));
    tb_encoded_chunks_free(o);
}

/* P7: nothing goes for what is larger than all there may be. */
static void a_chunk_that_can_never_fit_pushes_nothing_out(void **state)
{
    (void)state;
    enum { A, B, C };
    static char text[20001];
    struct tb_encoded_chunks *o = NULL;
    memset(text, 'x', 20000);
    CHECK_OK(tb_encoded_chunks_new(20000, &o));
    put(o, B, A, 0, 0, "b on a");
    put(o, C, B, 0, 0, text);
    struct tb_encoded_chunk_name huge = name_of(C, A, 0, 0);
    huge.shard_count = 100000;
    tb_encoded_chunks_coming(o, &huge, true, 0);
    huge = name_of(C, A, 0, 0);
    huge.chunk_count = 100000;
    tb_encoded_chunks_coming(o, &huge, true, 0);
    assert_true(finds(o, B, A, 0, 0, "b on a"));
    tb_encoded_chunks_free(o);
}

/* Sixteen versions, to peers that stand on four of them. */
static void the_last_sixteen_versions_are_kept(void **state)
{
    (void)state;
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    for (unsigned i = 4; i < 24; i++)
        for (unsigned behind = 1; behind <= 4; behind++)
            put(o, i, i - behind, 0, 0, "step");
    assert_int_equal(stats_of(o).pairs, TB_ENCODED_CHUNKS_PAIRS_MAX);
    for (unsigned behind = 1; behind <= 4; behind++) {
        assert_false(finds(o, 7, 7 - behind, 0, 0, "step"));
        assert_true(finds(o, 8, 8 - behind, 0, 0, "step"));
    }
    tb_encoded_chunks_free(o);
}

/* A stream in the middle of sending it keeps it, whatever leaves the table. */
static void a_found_chunk_stays(void **state)
{
    (void)state;
    enum { A, B };
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    put(o, B, A, 0, 3, "in flight");
    const struct tb_encoded_chunk_name name = name_of(B, A, 0, 3);
    struct tb_encoded_chunk *encoded = tb_encoded_chunks_find(o, &name);
    assert_non_null(encoded);
    tb_encoded_chunks_drop(o, version(B));
    assert_int_equal(stats_of(o).count, 1);
    assert_memory_equal(tb_encoded_chunk_coded(encoded).bytes, "in flight", 9);
    tb_encoded_chunk_unref(o, encoded);
    assert_int_equal(stats_of(o).bytes, 0);
    tb_encoded_chunks_free(o);
}

/* No memory: nothing is kept, and that is all. */
static void without_memory_nothing_is_kept(void **state)
{
    (void)state;
    enum { A, B };
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    /* a pair; behind it the shard's table; and an encoded chunk */
    static const uint64_t calls[] = {0, 1, 2, 2};
    for (uint64_t at = 1; at < 4; at++) {
        tb_fault_arm(TB_FAULT_malloc, calls[at], false);
        put(o, B, A, 0, (uint32_t)at, "step");
        tb_fault_arm(TB_FAULT_malloc, 0, false);
        assert_false(finds(o, B, A, 0, (uint32_t)at, "step"));
    }
    put(o, B, A, 0, 3, "step");
    assert_true(finds(o, B, A, 0, 3, "step"));
    tb_encoded_chunks_free(o);
}

/* Chunks whose encoded chunks somebody makes are waited for while they come, and
 * then no more (P6). */
static void a_chunk_on_its_way_is_waited_for(void **state)
{
    (void)state;
    enum { A, B };
    struct tb_encoded_chunks *o = NULL;
    const struct tb_encoded_chunk_name shard = name_of(B, A, 0, 0), other = name_of(B, A, 1, 0);
    const struct tb_encoded_chunk_name third = name_of(B, A, 0, 2), none = name_of(B, A, 0, 3);
    uint64_t words[TB_BITMAP_WORDS(CHUNKS)] = {0};
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    assert_false(tb_encoded_chunks_awaited(o, &shard, 0, words));
    tb_encoded_chunks_coming(o, &shard, true, TB_MS(100));
    assert_true(tb_encoded_chunks_awaited(o, &shard, TB_MS(100), words));
    assert_int_equal(words[0], (1u << CHUNKS) - 1);
    assert_true(tb_encoded_chunks_awaits(o, &third, TB_MS(100)));
    assert_false(tb_encoded_chunks_awaited(o, &other, TB_MS(100), words)); /* nobody said so of it */
    put_at(o, &third, "step", TB_MS(200));
    put_at(o, &none, NULL, TB_MS(200)); /* it is known that there is none */
    assert_true(tb_encoded_chunks_awaited(o, &shard, TB_MS(699), words));
    assert_int_equal(words[0], ((1u << CHUNKS) - 1) & ~0xcu);
    assert_false(tb_encoded_chunks_awaits(o, &third, TB_MS(200)));
    assert_false(tb_encoded_chunks_awaits(o, &none, TB_MS(200)));
    assert_true(finds(o, B, A, 0, 2, "step"));
    assert_false(finds(o, B, A, 0, 3, ""));
    assert_false(tb_encoded_chunks_awaited(o, &shard, TB_MS(700), words)); /* 500 ms without news */
    put_at(o, &shard, "step", TB_MS(800));
    assert_true(tb_encoded_chunks_awaited(o, &shard, TB_MS(900), words));
    tb_encoded_chunks_coming(o, &shard, false, TB_MS(900));
    assert_false(tb_encoded_chunks_awaited(o, &shard, TB_MS(900), words));
    tb_encoded_chunks_drop(o, version(B));
    assert_int_equal(stats_of(o).bytes, 0);
    tb_encoded_chunks_free(o);
}

/* P6: encoded chunks that were said to come do not. One that is made here in the meantime does not
 * make a link wait again. */
static void a_chunk_that_does_not_come_is_not_waited_for_again(void **state)
{
    (void)state;
    enum { A, B };
    static const enum tb_encoded_chunk_from others[] = {TB_ENCODED_CHUNK_MADE_HERE, TB_ENCODED_CHUNK_OF_LINK};
    for (uint32_t i = 0; i < 2; i++) {
        struct tb_encoded_chunks *o = NULL;
        const struct tb_encoded_chunk_name shard = name_of(B, A, 0, 0), third = name_of(B, A, 0, 2);
        const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, "step", 4};
        const struct tb_encoded_chunk_news news = {others[i], &coded, TB_MS(600)};
        uint64_t words[TB_BITMAP_WORDS(CHUNKS)];
        CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
        tb_encoded_chunks_coming(o, &shard, true, 0);
        assert_true(tb_encoded_chunks_awaits(o, &shard, TB_MS(499)));
        assert_false(tb_encoded_chunks_awaits(o, &shard, TB_MS(600)));
        tb_encoded_chunks_put(o, &third, &news);
        assert_false(tb_encoded_chunks_awaits(o, &shard, TB_MS(601)));
        assert_false(tb_encoded_chunks_awaited(o, &shard, TB_MS(601), words));
        tb_encoded_chunks_free(o);
    }
}

/* P7: a rank that shows an encoded chunk now and then, and says again and again that more come, is
 * not waited for in all of them. */
static void a_slow_rank_is_not_waited_for(void **state)
{
    (void)state;
    enum { A, B };
    struct tb_encoded_chunks *o = NULL;
    const struct tb_encoded_chunk_name last = name_of(B, A, 1, CHUNKS);
    const tb_time_ns all = TB_ENCODED_CHUNKS_PATIENCE_WHOLE + CHUNKS * TB_ENCODED_CHUNKS_PATIENCE_EACH;
    tb_time_ns now = 0, waited = 0;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    for (uint32_t k = 0; k < CHUNKS; k++, now += TB_MS(450)) {
        const struct tb_encoded_chunk_name name = name_of(B, A, 1, k);
        tb_encoded_chunks_coming(o, &last, true, now);
        put_at(o, &name, "step", now);
        if (tb_encoded_chunks_awaits(o, &last, now + TB_MS(449))) waited = now + TB_MS(449);
    }
    assert_true(waited > TB_ENCODED_CHUNKS_PATIENCE_WHOLE - TB_MS(500) && waited < all);
    assert_true(now > all);
    tb_encoded_chunks_free(o);
}

/* A large shard takes a rank longer than the 2 s, and it is as fast as was asked. P7: to say one
 * again does not count. */
static void a_rank_that_keeps_up_is_waited_for(void **state)
{
    (void)state;
    enum { A, B };
    struct tb_encoded_chunks *o = NULL;
    const struct tb_encoded_chunk_name last = name_of(B, A, 1, CHUNKS);
    const tb_time_ns said = TB_ENCODED_CHUNKS_PATIENCE_WHOLE - TB_MS(10);
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    tb_encoded_chunks_coming(o, &last, true, 0);
    for (uint32_t k = 0; k < 3 * CHUNKS; k++) {
        const struct tb_encoded_chunk_name name = name_of(B, A, 1, k % CHUNKS);
        put_at(o, &name, k % CHUNKS != 0 ? "step" : NULL, said);
    }
    const tb_time_ns until = TB_ENCODED_CHUNKS_PATIENCE_WHOLE + CHUNKS * TB_ENCODED_CHUNKS_PATIENCE_EACH;
    assert_true(tb_encoded_chunks_awaits(o, &last, until - 1));
    assert_false(tb_encoded_chunks_awaits(o, &last, until));
    tb_encoded_chunks_free(o);
}

/* P1: one that somebody decoded to something else is given to nobody any more, but by a maker of
 * it. */
static void a_bad_encoded_goes(void **state)
{
    (void)state;
    enum { A, B };
    struct tb_encoded_chunks *o = NULL;
    const struct tb_encoded_chunk_name third = name_of(B, A, 0, 2), none = name_of(B, A, 0, 3);
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    tb_encoded_chunks_bad(o, &third); /* nothing is known of it */
    put_at(o, &third, "rotten", 0);
    tb_encoded_chunks_bad(o, &none);
    assert_int_equal(stats_of(o).bad, 0);
    struct tb_encoded_chunk *in_hand = tb_encoded_chunks_find(o, &third);
    tb_encoded_chunks_bad(o, &third);
    tb_encoded_chunks_bad(o, &third); /* by a second peer */
    assert_int_equal(stats_of(o).bad, 1);
    assert_false(finds(o, B, A, 0, 2, "rotten"));
    assert_memory_equal(tb_encoded_chunk_coded(in_hand).bytes, "rotten", 6);
    tb_encoded_chunk_unref(o, in_hand);
    assert_int_equal(stats_of(o).count, 0);
    put(o, B, A, 0, 2, "sound");
    assert_true(finds(o, B, A, 0, 2, "sound"));
    tb_encoded_chunks_bad(o, &third); /* P7: made here, whatever a peer says */
    assert_true(finds(o, B, A, 0, 2, "sound"));
    assert_int_equal(stats_of(o).bad, 1);
    assert_int_equal(stats_of(o).from[TB_ENCODED_CHUNK_OF_RANK].count, 1);
    assert_int_equal(stats_of(o).from[TB_ENCODED_CHUNK_OF_RANK].bytes, 6);
    assert_int_equal(stats_of(o).from[TB_ENCODED_CHUNK_MADE_HERE].count, 1);
    tb_encoded_chunks_free(o);
}

/* P1: memory failed under an encoded chunk that was made here. A report makes its holder look,
 * and it is made again. */
static void an_encoded_chunk_that_is_damaged_where_it_stands_goes(void **state)
{
    (void)state;
    enum { A, B };
    struct tb_encoded_chunks *o = NULL;
    const struct tb_encoded_chunk_name third = name_of(B, A, 0, 2);
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    put(o, B, A, 0, 2, "sound");
    struct tb_encoded_chunk *encoded = tb_encoded_chunks_find(o, &third);
    ((uint8_t *)(uintptr_t)tb_encoded_chunk_coded(encoded).bytes)[1] ^= 1;
    tb_encoded_chunk_unref(o, encoded);
    tb_encoded_chunks_bad(o, &third);
    assert_null(tb_encoded_chunks_find(o, &third));
    assert_int_equal(stats_of(o).damaged, 1);
    put(o, B, A, 0, 2, "sound");
    tb_encoded_chunks_bad(o, &third);
    assert_true(finds(o, B, A, 0, 2, "sound"));
    assert_int_equal(stats_of(o).damaged, 1);
    tb_encoded_chunks_free(o);
}

/* ---- steps ---- */

/* The digest of chunk k of version v: chunk 0 changes in each version, chunk 1 in every second
 * one. */
static struct tb_digest digest_of(unsigned v, uint32_t k)
{
    struct tb_digest d = {{0}};
    d.bytes[0] = (uint8_t)(k == 1 ? v / 2 + 1 : v + 1);
    d.bytes[1] = (uint8_t)k;
    return d;
}

/* Two shards as name_of says, of one layout. */
static void know_as(struct tb_encoded_chunks *o, unsigned v, const char *model)
{
    static struct tb_chunk chunks[CHUNKS + 1];
    static struct tb_digest digests[2][CHUNKS + 1];
    struct tb_manifest manifests[2];
    struct tb_place places[2];
    struct tb_version_key key = {.uid = *version(v), .shard_count = 2};
    snprintf(key.model.text, sizeof key.model.text, "%s", model);
    for (uint32_t s = 0; s < 2; s++) {
        for (uint32_t k = 0; k < CHUNKS + s; k++) {
            chunks[k] = (struct tb_chunk){.offset = k * 100u, .bytes = 100};
            digests[s][k] = digest_of(v, k);
        }
        manifests[s] = (struct tb_manifest){
            .chunk_count = CHUNKS + s, .chunks = chunks, .digests = digests[s], .bytes = 100 * CHUNKS};
        places[s] = (struct tb_place){.manifest = &manifests[s]};
    }
    tb_encoded_chunks_know(o, &key, places);
}

static void know(struct tb_encoded_chunks *o, unsigned v)
{
    know_as(o, v, "policy");
}

/* The texts that lead there, behind each other; "" where nothing does. */
static const char *way(struct tb_encoded_chunks *o, unsigned v, unsigned base, uint32_t chunk)
{
    static char text[512];
    struct tb_encoded_chunk *encoded_chunks[TB_CODEC_CHAINED_MAX];
    const struct tb_encoded_chunk_name name = name_of(v, base, 0, chunk);
    const unsigned count = tb_encoded_chunks_chain(o, &name, encoded_chunks);
    text[0] = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct tb_codec_coded coded = tb_encoded_chunk_coded(encoded_chunks[i]);
        strncat(text, coded.bytes, coded.count);
        strcat(text, i + 1 < count ? " " : "");
        tb_encoded_chunk_unref(o, encoded_chunks[i]);
    }
    return text;
}

static void chained_deltas_lead_from_one_version_to_another(void **state)
{
    (void)state;
    enum { A, B, C, D, E };
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    for (unsigned v = A; v <= E; v++)
        know(o, v);
    put(o, B, A, 0, 0, "a-b");
    put(o, C, B, 0, 0, "b-c");
    put(o, D, C, 0, 0, "c-d");
    assert_string_equal(way(o, D, A, 0), "a-b b-c c-d");
    assert_string_equal(way(o, C, B, 0), "b-c");
    assert_string_equal(way(o, A, D, 0), "");
    assert_string_equal(way(o, E, A, 0), "");
    put(o, E, C, 0, 0, "c-e");
    assert_string_equal(way(o, E, A, 0), "a-b b-c c-e");
    put(o, D, B, 0, 0, "b-d as many bytes as two");
    assert_string_equal(way(o, D, A, 0), "a-b b-c c-d");
    put(o, C, A, 0, 0, "a-c"); /* of fewer bytes than the two */
    assert_string_equal(way(o, D, A, 0), "a-c c-d");
    put(o, C, B, 0, 1, "1: b-c"); /* A and B are the same there, and so are C and D */
    assert_string_equal(way(o, D, A, 1), "1: b-c");
    assert_string_equal(way(o, D, A, 2), "");
    tb_encoded_chunks_free(o);
}

/* A version that leaves of itself stays known; one that was withdrawn leads nowhere. */
static void only_what_is_known_leads_anywhere(void **state)
{
    (void)state;
    enum { A, B, C };
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    put(o, B, A, 0, 0, "a-b");
    put(o, C, B, 0, 0, "b-c");
    know(o, A);
    know(o, C);
    assert_string_equal(way(o, C, A, 0), "");
    know(o, B);
    know(o, B);
    assert_int_equal(stats_of(o).known, 3);
    assert_string_equal(way(o, C, A, 0), "a-b b-c");
    tb_encoded_chunks_drop(o, version(B));
    assert_string_equal(way(o, C, A, 0), "");
    assert_int_equal(stats_of(o).known, 2);
    tb_encoded_chunks_free(o);
}

/* P8: another model's versions are no way, though their chunks be the same. */
static void no_way_leads_over_another_model(void **state)
{
    (void)state;
    enum { A, B, C };
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    know(o, A);
    know(o, C);
    know_as(o, B, "other");
    put(o, B, A, 0, 0, "a-b");
    put(o, C, B, 0, 0, "b-c");
    assert_string_equal(way(o, C, A, 0), "");
    const struct tb_name policy = {"policy"}, other = {"other"};
    assert_null(tb_encoded_chunks_recall(o, version(B), &policy));
    assert_null(tb_encoded_chunks_recall(o, version(A), &other));
    tb_encoded_chunks_free(o);
}

/* P7: at most sixteen, whatever way they lie. */
static void chained_deltas_are_bounded(void **state)
{
    (void)state;
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    for (unsigned v = 0; v < 20; v++) {
        know(o, v);
        if (v > 0) put(o, v, v - 1, 0, 0, "s");
    }
    assert_string_equal(way(o, 16, 0, 0), "s s s s s s s s s s s s s s s s");
    assert_string_equal(way(o, 17, 0, 0), "");
    put(o, 17, 4, 0, 0, "fourteen are one of many bytes");
    assert_string_equal(way(o, 17, 0, 0), "s s s s fourteen are one of many bytes");
    tb_encoded_chunks_free(o);
}

/* P7: digests are kept of so many versions, and in a quarter of the budget; one in use counts
 * until it is given back. */
static void the_memory_of_forms_is_bounded(void **state)
{
    (void)state;
    static const struct tb_name policy = {"policy"};
    struct tb_encoded_chunks *o = NULL;
    CHECK_OK(tb_encoded_chunks_new(16000, &o));
    for (unsigned v = 0; v < 30; v++)
        know(o, v);
    const struct tb_encoded_chunks_stats stats = stats_of(o);
    assert_in_range(stats.known, 2, 10);
    assert_in_range(stats.bytes, 1, 4000);
    struct tb_known *known = tb_encoded_chunks_recall(o, version(29), &policy);
    uint32_t shards = 0;
    assert_non_null(known);
    const struct tb_place *places = tb_known_places(known, &shards);
    assert_int_equal(shards, 2);
    assert_int_equal(places[1].manifest->chunk_count, CHUNKS + 1);
    assert_false(tb_place_held(&places[1], CHUNKS));
    assert_int_equal(places[1].manifest->digests[CHUNKS].bytes[0], 30);
    tb_encoded_chunks_drop(o, version(29));
    assert_int_equal(stats_of(o).bytes, stats.bytes);
    assert_int_equal(places[1].manifest->digests[CHUNKS].bytes[0], 30);
    tb_known_unref(o, known);
    assert_true(stats_of(o).bytes < stats.bytes);
    tb_encoded_chunks_free(o);
}

/* P1: a way of which somebody says that it leads to something else is none any more; what was made
 * here is not to blame. */
static void a_wrong_way_goes(void **state)
{
    (void)state;
    enum { A, B, C };
    struct tb_encoded_chunks *o = NULL;
    const struct tb_encoded_chunk_name first = name_of(B, A, 0, 0), all = name_of(C, A, 0, 0);
    CHECK_OK(tb_encoded_chunks_new(1 << 20, &o));
    for (unsigned v = A; v <= C; v++)
        know(o, v);
    put_at(o, &first, "a-b", 0);
    put(o, C, B, 0, 0, "b-c");
    tb_encoded_chunks_bad(o, &all);
    assert_int_equal(stats_of(o).bad, 1);
    assert_false(finds(o, B, A, 0, 0, "a-b"));
    assert_true(finds(o, C, B, 0, 0, "b-c"));
    tb_encoded_chunks_bad(o, &all);
    assert_int_equal(stats_of(o).bad, 1);
    tb_encoded_chunks_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_encoded_chunk_has_a_version_a_base_and_a_chunk),
        cmocka_unit_test(the_oldest_go_first),
        cmocka_unit_test(a_chunk_that_can_never_fit_pushes_nothing_out),
        cmocka_unit_test(the_last_sixteen_versions_are_kept),
        cmocka_unit_test(a_found_chunk_stays),
        cmocka_unit_test(without_memory_nothing_is_kept),
        cmocka_unit_test(a_chunk_on_its_way_is_waited_for),
        cmocka_unit_test(a_chunk_that_does_not_come_is_not_waited_for_again),
        cmocka_unit_test(a_slow_rank_is_not_waited_for),
        cmocka_unit_test(a_rank_that_keeps_up_is_waited_for),
        cmocka_unit_test(a_bad_encoded_goes),
        cmocka_unit_test(an_encoded_chunk_that_is_damaged_where_it_stands_goes),
        cmocka_unit_test(chained_deltas_lead_from_one_version_to_another),
        cmocka_unit_test(only_what_is_known_leads_anywhere),
        cmocka_unit_test(no_way_leads_over_another_model),
        cmocka_unit_test(chained_deltas_are_bounded),
        cmocka_unit_test(the_memory_of_forms_is_bounded),
        cmocka_unit_test(a_wrong_way_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
