/* kernel_tls.c - the kernel encrypts what is sent where it was asked to and can, and nothing else changes. On a machine without kTLS the same
 * tests say that OpenSSL does it; with TB_WANT_KERNEL_TLS=1, in the VM, the kernel has to. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "net_world.h"

#define EAST  "tombolo://east/gw"
#define WEST  "tombolo://west/gw"
#define BYTES (4u << 20)

static uint8_t sent[BYTES];

static int setup(void **state)
{
    static struct world w;
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (uint8_t)(i * 167 + (i >> 8));
    world_init(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

/* Two gateways whose dialler asks for it, or not; the pair is open. */
static void open_pair(struct pair *p, struct world *w, bool bulk, uint64_t key_records)
{
    world_issue(w, "east", "gw", EAST);
    world_issue(w, "west", "gw", WEST);
    struct tb_tls *east = world_tls(w, "east", "gw", "west"), *west = world_tls(w, "west", "gw", "east");
    tb_tls_set_key_records(east, key_records);
    tb_tls_set_key_records(west, key_records);
    pair_init(p, w, west, east, false);
    p->client.expect.bulk = bulk;
    assert_int_equal(tb_identity_parse(WEST, &p->client.expect.identity), TB_OK);
    assert_int_equal(tb_identity_parse(EAST, &p->server.expect.identity), TB_OK);
    pair_open(p);
    tb_tls_free(east);
    tb_tls_free(west);
}

static void send_both_ways(struct pair *p)
{
    end_send(&p->c, sent, BYTES);
    end_send(&p->s, sent, BYTES);
    WORLD_UNTIL(p->world, p->s.got == BYTES && p->c.got == BYTES);
    assert_memory_equal(p->s.in, sent, BYTES);
    assert_memory_equal(p->c.in, sent, BYTES);
    assert_true(tb_chan_records(p->c.chan) >= BYTES / 16384);
}

/* P8: whoever encrypts, the peer reads what was sent, and the goodbye is TLS's. */
static void who_asks_is_served_by_the_kernel(void **state)
{
    struct pair p;
    open_pair(&p, *state, true, 1u << 20);
    const bool kernel = tb_chan_kernel_sends(p.c.chan);
    assert_int_equal(tb_chan_kernel_sends(p.s.chan), kernel); /* the acceptor heard of it */
    if (getenv("TB_WANT_KERNEL_TLS") != NULL) assert_true(kernel);
    print_message("the %s encrypts\n", kernel ? "kernel" : "library");
    send_both_ways(&p);
    tb_chan_end(p.c.chan);
    WORLD_UNTIL(p.world, p.s.closed == 1);
    assert_int_equal(p.s.why, TB_STREAM_CLOSED);
    pair_fini(&p);
}

/* The kernel goes on with its key: no change of keys is told that did not happen. */
static void keys_that_wear_out_garble_nothing(void **state)
{
    struct pair p;
    open_pair(&p, *state, true, 5);
    send_both_ways(&p);
    pair_fini(&p);
}

static void who_does_not_ask_is_served_by_openssl(void **state)
{
    struct pair p;
    open_pair(&p, *state, false, 1u << 20);
    assert_false(tb_chan_kernel_sends(p.c.chan));
    assert_false(tb_chan_kernel_sends(p.s.chan));
    send_both_ways(&p);
    pair_fini(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_asks_is_served_by_the_kernel),
        TEST(keys_that_wear_out_garble_nothing),
        TEST(who_does_not_ask_is_served_by_openssl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
