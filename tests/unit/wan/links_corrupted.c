/* links_corrupted.c - a chunk that changed after it was sealed is refused, and asked for again.
 *
 * Covers: wan/link/traffic/link_landings.c wan/stream/stream_receive.c */
#include "check.h"
#include "links_pair.h"
#include "wan/link/links_limits.h"

/* P1, P10: bytes that changed after their digest are refused, counted and asked for again; when
 * that does not help the landing fails. */
static void a_corrupted_chunk_is_refused(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 16 << 20);
    p->west->stop_on_failure = true;
    pair_up(p);
    struct copy *c = pair_place(p);
    c->places[0].bytes[c->manifests[0].chunks[5].offset + 99] ^= 1;
    CHECK_OK(tb_links_offer(p->east->links, &c->key, c->places));
    WORLD_UNTIL(&p->w.net, p->west->failed == 1 && p->east->bad_ours == TB_LINKS_REFUSALS_MAX);
    CHECK_STATUS(p->west->failed_why, TB_CHUNK_DIGEST);
    assert_int_equal(p->west->bad_theirs, TB_LINKS_REFUSALS_MAX);
    assert_int_equal(p->west->bad.chunk, 5);
    assert_int_equal(p->east->bad.chunk, 5);
    assert_true(tb_id_is_zero(&p->east->bad.base));
    assert_int_equal(site_stats(p->west, 0).chunks_bad, TB_LINKS_REFUSALS_MAX);
    assert_int_equal(site_stats(p->east, 0).chunks_refused, TB_LINKS_REFUSALS_MAX);
    assert_false(tb_place_held(&site_copy(p->west, &p->t)->places[0], 5));
}

/* P6: a version that failed may be landed again from the same peer, with what is held: found
 * by the seeded world. */
static void a_landing_that_failed_begins_again(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 16 << 20);
    pair_up(p);
    struct copy *c = pair_place(p);
    uint8_t *spoiled = &c->places[0].bytes[c->manifests[0].chunks[5].offset + 99];
    *spoiled ^= 1;
    CHECK_OK(tb_links_offer(p->east->links, &c->key, c->places));
    WORLD_UNTIL(&p->w.net, p->west->failed == 1 && p->east->bad_ours == TB_LINKS_REFUSALS_MAX);
    *spoiled ^= 1;
    CHECK_OK(tb_links_land(p->west->links, 0, &p->t.key, site_copy(p->west, &p->t)->places));
    CHECK_STATUS(tb_links_land(p->west->links, 0, &p->t.key, site_copy(p->west, &p->t)->places),
                 TB_DONE_BEFORE);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1);
}

/* And its twin: bytes that are mended before the last try land. */
static void a_corrupted_chunk_is_asked_for_again(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 16 << 20);
    pair_up(p);
    struct copy *c = pair_place(p);
    p->east->mend = c->places[0].bytes + c->manifests[0].chunks[5].offset + 99; /* at the first refusal */
    *p->east->mend ^= 1;
    CHECK_OK(tb_links_offer(p->east->links, &c->key, c->places));
    WORLD_UNTIL(&p->w.net, p->west->landed == 1);
    check_equal(site_copy(p->west, &p->t), &p->t);
    assert_int_equal(site_stats(p->west, 0).chunks_bad, 1);
    assert_int_equal(p->east->bad_ours, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(a_corrupted_chunk_is_refused),
        PAIR_TEST(a_landing_that_failed_begins_again),
        PAIR_TEST(a_corrupted_chunk_is_asked_for_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
