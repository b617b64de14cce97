/* links.c - two and three gateways in one process over loopback TLS. */
#include "links_world.h"

#include "check.h"

/* P1: what arrives is what was sealed, bit for bit, also by zstd; and each side knows that it did. */
static void transfer(enum tb_codec_id codec, bool receiver_dials)
{
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 1, 2, 20 << 20);
    struct site *east = site_new(&w, "east", receiver_dials), *west = site_new(&w, "west", !receiver_dials);
    east->options.codec = codec;
    site_peer(east, west, !receiver_dials, false);
    site_peer(west, east, receiver_dials, true);
    site_start(east);
    site_start(west);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, west->landed == 1 && east->peer_held == 1);
    check_equal(site_copy(west, &t), &t);
    assert_int_equal(site_stats(west, 0).chunks_received, t.chunks);
    assert_int_equal(site_stats(west, 0).chunks_duplicate, 0);
    assert_int_equal(site_stats(west, 0).chunks_bad, 0);
    if (codec == TB_CODEC_ZSTD) assert_true(site_stats(east, 0).bytes_sent < t.total_bytes * 3 / 4);
    assert_int_equal(east->ups, 1);
    assert_int_equal(east->downs, 0);
    links_world_fini(&w);
    truth_free(&t);
}

static void a_version_crosses_bit_exact(void **state)
{
    (void)state;
    transfer(TB_CODEC_RAW, true);
}

static void the_side_that_holds_may_dial(void **state)
{
    (void)state;
    transfer(TB_CODEC_RAW, false);
}

static void a_version_crosses_compressed(void **state)
{
    (void)state;
    transfer(TB_CODEC_ZSTD, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_crosses_bit_exact),
        cmocka_unit_test(the_side_that_holds_may_dial),
        cmocka_unit_test(a_version_crosses_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
