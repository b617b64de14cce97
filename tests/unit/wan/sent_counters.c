/* sent_counters.c - chunks that go a second time to one peer are told from those that go to two.
 *
 * Covers: wan/send/sent_counters.c */
#include "wan/send/sent_counters.h"

#include <string.h>

#include "tests/unit/check.h"

#define PEERS  3u
#define CHUNKS 70u

static struct tb_sent_sum sum_of(const struct tb_sent *s)
{
    struct tb_sent_sum sum;
    tb_sent_look(s, &sum);
    return sum;
}

static void a_chunk_goes_once_to_each_peer(void **state)
{
    (void)state;
    struct tb_sent *s = tb_sent_new(PEERS, CHUNKS);
    assert_non_null(s);
    for (uint32_t peer = 0; peer < PEERS; peer++)
        for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
            tb_sent_add(s, &(struct tb_sent_chunk){peer, chunk, 1000, 40, TB_WAY_GAPS});
    const struct tb_sent_sum sum = sum_of(s);
    assert_int_equal(sum.bytes, PEERS * CHUNKS * 40);
    assert_int_equal(sum.raw_bytes, PEERS * CHUNKS * 1000);
    assert_int_equal(sum.again_bytes, 0);
    assert_int_equal(sum.chunks[TB_WAY_GAPS], PEERS * CHUNKS);
    assert_int_equal(sum.chunks[TB_WAY_RAW], 0);
    tb_sent_free(s);
}

static void a_hedged_parcel_is_counted_as_it_goes(void **state)
{
    (void)state;
    struct tb_sent *s = tb_sent_new(PEERS, CHUNKS);
    assert_non_null(s);
    tb_sent_add(s, &(struct tb_sent_chunk){1, 69, 1000, 40, TB_WAY_GAPS});
    tb_sent_add(s, &(struct tb_sent_chunk){2, 69, 1000, 40, TB_WAY_GAPS});
    tb_sent_add(s, &(struct tb_sent_chunk){1, 69, 1000, 1036, TB_WAY_RAW}); /* its base went */
    const struct tb_sent_sum sum = sum_of(s);
    assert_int_equal(sum.bytes, 40 + 40 + 1036);
    assert_int_equal(sum.again_bytes, 1036);
    assert_int_equal(sum.chunks[TB_WAY_RAW], 1);
    tb_sent_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_goes_once_to_each_peer),
        cmocka_unit_test(a_hedged_parcel_is_counted_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
