/* away.c - P3: nobody stays away from a home for so long that what only it holds is called lost
 * there.
 *
 * Covers: gateway/daemon/links/link_opening.c */

#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

static uint32_t retry_min_ms, retry_max_ms; /* of the links, as they were opened last */

enum tb_status __real_tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                                   char error_out[256]);
enum tb_status __wrap_tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                                   char error_out[256]);
enum tb_status __wrap_tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                                   char error_out[256])
{
    retry_min_ms = options->retry_min_ms;
    retry_max_ms = options->retry_max_ms;
    return __real_tb_links_new(options, links_out, error_out);
}

static void a_peer_is_dialled_within_half_a_lease(void **state)
{
    static const struct {
        uint32_t lease_ms, min_ms, max_ms, most_ms;
    } cases[] = {{10000, 100, 5000, 5000},      {3000, 100, 5000, 1500},
                 {500, 100, 5000, 250},         {10000, 100, 800, 800},
                 {600000, 100, 600000, 300000}, {500, 900, 5000, 900} /* as an operator wants it */};
    struct world world;
    struct home home;
    (void)state;
    world_init(&world);
    linked_home_new(&home, &world,
                    "{policy: {home: west}}\nsubscribe: [{model: policy, from: [west]}]\n" LINKED_WEST);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        home.config->session_lease_ms = cases[i].lease_ms;
        home.config->link_retry_min_ms = cases[i].min_ms;
        home.config->link_retry_max_ms = cases[i].max_ms;
        home_start(&home);
        assert_int_equal(retry_min_ms, cases[i].min_ms);
        assert_int_equal(retry_max_ms, cases[i].most_ms);
        home_end(&home);
    }
    home_free(&home);
    world_fini(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_is_dialled_within_half_a_lease),
    };
    return cmocka_run_group_tests_name("daemon.away", tests, NULL, NULL);
}
