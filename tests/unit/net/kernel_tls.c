/* kernel_tls.c - the kernel encrypts what is sent where it was asked to and can, and nothing else
 * changes. On a machine without kTLS the same tests say that OpenSSL does it; with
 * TB_WANT_KERNEL_TLS=1, in the VM, the kernel has to.
 * Covers: base/net/tls_session.c base/net/tls_bulk.c */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "net_world.h"

#define EAST  "tombolo://east/gw"
#define WEST  "tombolo://west/gw"
#define BYTES (4u << 20)

static uint8_t sent[BYTES];
static int asked; /* the kernel, by this process */

/* In the place of libc's: whether the kernel is asked is seen where it cannot do it, too. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    asked += level == IPPROTO_TCP && name == TCP_ULP;
    return (int)syscall(SYS_setsockopt, fd, level, name, value, bytes);
}

static int setup(void **state)
{
    static struct world w;
    (void)signal(SIGPIPE, SIG_IGN);
    asked = 0;
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (uint8_t)(i * 167 + (i >> 8));
    world_init(&w);
    *state = &w;
    return 0;
}

struct ends {
    bool bulk;      /* the dialler asks for it */
    bool heard;     /* the acceptor heeds that */
    bool no_kernel; /* of both */
    uint64_t key_records;
};

/* The pair of two gateways is open. */
static void open_ends(struct pair *p, struct world *w, const struct ends *ends)
{
    world_issue(w, "east", "gw", EAST);
    world_issue(w, "west", "gw", WEST);
    struct tb_tls *east = world_tls(w, "east", "gw", "west"), *west = world_tls(w, "west", "gw", "east");
    tb_tls_set_key_records(east, ends->key_records);
    tb_tls_set_key_records(west, ends->key_records);
    pair_init(p, w, west, east, false);
    p->client.expect.bulk = ends->bulk;
    p->server.expect.bulk_heard = ends->heard;
    p->client.expect.no_kernel = p->server.expect.no_kernel = ends->no_kernel;
    assert_int_equal(tb_identity_parse(WEST, &p->client.expect.identity), TB_OK);
    assert_int_equal(tb_identity_parse(EAST, &p->server.expect.identity), TB_OK);
    pair_open(p);
    tb_tls_free(east);
    tb_tls_free(west);
}

static void open_pair(struct pair *p, struct world *w, bool bulk, uint64_t key_records)
{
    open_ends(p, w, &(struct ends){.bulk = bulk, .heard = true, .key_records = key_records});
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

/* P8: by either way of encrypting, the peer reads what was sent, and the goodbye is TLS's. */
static void a_dialler_that_asks_gets_the_kernel(void **state)
{
    struct pair p;
    open_pair(&p, *state, true, 1u << 20);
    const bool kernel = tb_chan_kernel_sends(p.c.chan);
    assert_int_equal(tb_chan_kernel_sends(p.s.chan), kernel); /* the acceptor heard of it */
    assert_int_equal(asked, 2);
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

static void a_dialler_that_does_not_ask_gets_openssl(void **state)
{
    struct pair p;
    open_pair(&p, *state, false, 1u << 20);
    assert_false(tb_chan_kernel_sends(p.c.chan));
    assert_false(tb_chan_kernel_sends(p.s.chan));
    assert_int_equal(asked, 0);
    send_both_ways(&p);
    pair_fini(&p);
}

/* A library in somebody's process: a stranger who says the name and is gone must not kill it, and
 * SIGPIPE, which is what the kernel's way of writing raises, has its default action here. */
static void the_bulk_name_alone_changes_nothing(void **state)
{
    struct pair p;
    const struct linger reset = {.l_onoff = 1};
    open_ends(&p, *state, &(struct ends){.bulk = true, .key_records = 1u << 20});
    assert_int_equal(asked, 1); /* by the dialler */
    assert_false(tb_chan_kernel_sends(p.s.chan));
    (void)signal(SIGPIPE, SIG_DFL);
    tb_chan_want_read(p.s.chan, false); /* so that only the write can find out */
    assert_int_equal(setsockopt(tb_chan_fd(p.c.chan), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    tb_chan_close(p.c.chan, TB_OK);
    WORLD_UNTIL(p.world, p.c.closed == 1);
    end_send(&p.s, sent, BYTES);
    WORLD_UNTIL(p.world, p.s.closed == 1);
    assert_true(p.s.why == TB_STREAM_IO || p.s.why == TB_STREAM_CLOSED);
    pair_fini(&p);
}

/* The same of two libraries that may not ask the kernel: their records are their own, each way, and
 * SIGPIPE stays as the process has it. */
static void ends_without_the_kernel_have_their_own_records(void **state)
{
    struct pair p;
    const struct linger reset = {.l_onoff = 1};
    open_ends(&p, *state, &(struct ends){.bulk = true, .heard = true, .no_kernel = true, .key_records = 5});
    assert_int_equal(asked, 0);
    assert_true(tb_chan_own_records(p.c.chan) && tb_chan_own_records(p.s.chan));
    (void)signal(SIGPIPE, SIG_DFL);
    send_both_ways(&p);
    tb_chan_want_read(p.s.chan, false);
    assert_int_equal(setsockopt(tb_chan_fd(p.c.chan), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    tb_chan_close(p.c.chan, TB_OK);
    WORLD_UNTIL(p.world, p.c.closed == 1);
    end_send(&p.s, sent, BYTES);
    WORLD_UNTIL(p.world, p.s.closed == 1);
    pair_fini(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_dialler_that_asks_gets_the_kernel),
        TEST(keys_that_wear_out_garble_nothing),
        TEST(a_dialler_that_does_not_ask_gets_openssl),
        TEST(the_bulk_name_alone_changes_nothing),
        TEST(ends_without_the_kernel_have_their_own_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
