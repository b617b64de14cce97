/* links_admission.c - who gets how many of the connections that stand at link.listen: a peer its
 * share, an address of a peer its share, and strangers a half (P6, P7).
 *
 * Covers: wan/link/session/link_admission.c wan/link/session/link_conn.c
 * Covers: wan/link/session/link_frames.c wan/link/links_table_counts.c */
#include "links_world.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_table_counts.h"
#include "wan/link/path/link_path.h"
#include "wan/link/session/link_conn.h"

#define OPEN_EACH 32u /* handshakes of one address that is no peer's, where nothing is configured */
#define SOCKETS   (2 * LINK_CONNS_MAX)

struct scene {
    struct links_world w;
    struct site *east, *west, *north;
    int fds[SOCKETS];
    uint32_t count;
};

/* East listens. It dials west where `known`, so that it knows its address; north is a peer. */
static void begin(struct scene *s, bool known)
{
    memset(s, 0, sizeof *s);
    links_world_init(&s->w);
    s->east = site_new(&s->w, "east", true);
    s->west = site_new(&s->w, "west", true);
    s->north = site_new(&s->w, "north", false);
    site_peer(s->east, s->west, known, false);
    site_peer(s->east, s->north, false, false);
    site_peer(s->west, s->east, true, true);
    site_start(s->east);
    struct tb_address here;
    assert_true(tb_links_address(s->east->links, &here)); /* west has the same but for its port */
    if (known) WORLD_UNTIL(&s->w.net, tb_link_path_leads_to(&s->east->links->links[0], &here.any));
}

static void end(struct scene *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        (void)close(s->fds[i]);
    links_world_fini(&s->w);
}

static struct tb_links_usage usage(const struct scene *s)
{
    struct tb_links_usage u;
    tb_links_usage(s->east->links, TB_LINKS_TABLE_CONNS, &u);
    return u;
}

/* Connections without a greeting have all the time that this test takes. */
static void wait_for_greetings(const struct scene *s)
{
    for (struct tb_link_conn *c = s->east->links->conns; c != NULL; c = c->next)
        if (!c->dialled) c->greet_by = tb_time_add(tb_clock_now(), TB_SECONDS(3600));
}

/* One more connection that says nothing. Waits until it is taken or refused. */
static void come_from(struct scene *s, const char *address)
{
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
    const struct tb_links_usage before = usage(s);
    struct tb_address to;
    assert_true(tb_links_address(s->east->links, &to));
    assert_true(s->count < SOCKETS);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    s->fds[s->count++] = fd;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, &to.any, to.bytes), 0);
    WORLD_UNTIL(&s->w.net, usage(s).used > before.used || usage(s).refused > before.refused);
    wait_for_greetings(s);
}

static void an_address_of_a_peer_has_its_share(void **state)
{
    (void)state;
    static struct scene s;
    begin(&s, true);
    for (uint32_t i = 0; i < LINK_CONNS_SHARE + OPEN_EACH + 5; i++)
        come_from(&s, "127.0.0.1");
    assert_int_equal(usage(&s).used, LINK_CONNS_SHARE + OPEN_EACH);
    assert_int_equal(usage(&s).spent, 5);
    come_from(&s, "127.0.0.2");
    assert_int_equal(usage(&s).used, LINK_CONNS_SHARE + OPEN_EACH + 1);
    end(&s);
}

static void strangers_have_half_and_a_peer_comes_in(void **state)
{
    (void)state;
    static struct scene s;
    char address[24];
    begin(&s, true);
    for (uint32_t i = 0; i < LINK_CONNS_MAX; i++) {
        (void)snprintf(address, sizeof address, "127.0.0.%u", 2 + i / OPEN_EACH);
        come_from(&s, address);
    }
    assert_int_equal(usage(&s).used, LINK_CONNS_MAX / 2);
    assert_int_equal(usage(&s).refused, LINK_CONNS_MAX / 2);
    site_start(s.west);
    BOTH_UP(&s.w, s.west, s.east);
    end(&s);
}

/* ---- a peer's own ---- */

struct dialled {
    struct tb_wire *wire;
    bool open, closed;
    enum tb_status why;
};

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w, (void)peer;
    ((struct dialled *)user)->open = true;
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    struct tb_frame_bye bye = {0};
    (void)w;
    assert_int_equal(f->type, TB_FRAME_BYE);
    CHECK_OK(tb_frame_bye_decode(&f->payload, &bye));
    ((struct dialled *)user)->why = tb_frame_status_of(bye.status_negated);
    return TB_OK;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w, (void)why;
    ((struct dialled *)user)->closed = true;
}

static const struct tb_wire_ops wire_ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

/* Shows the certificate of that site, and says nothing. */
static void show(struct scene *s, struct dialled *d, struct tb_tls *tls)
{
    struct tb_address at;
    *d = (struct dialled){.wire = NULL};
    assert_true(tb_links_address(s->east->links, &at));
    const struct tb_wire_options options = {
        .chan = {.loop = &s->w.net.loop, .tls = tls}, .ops = &wire_ops, .user = d};
    CHECK_OK(tb_wire_dial(&options, &at, &d->wire));
    WORLD_UNTIL(&s->w.net, d->open);
}

static struct tb_tls *tls_of(struct scene *s, const char *site)
{
    char why[256];
    struct tb_tls *tls = world_tls(&s->w.net, site, "gw", site);
    CHECK_OK(tb_tls_add_site_ca(tls, &s->east->options.site, world_path(&s->w.net, "east", "ca.crt"), why));
    return tls;
}

/* West's certificate opens connection after connection, as many as a link may need at once. The
 * next one is told that there is no room, and counted as no stranger, and north comes in. */
static void a_peer_has_a_quarter_and_another_comes_in(void **state)
{
    (void)state;
    static struct scene s;
    static struct dialled all[LINK_CONNS_SHARE + 2];
    begin(&s, false);
    struct tb_tls *west = tls_of(&s, "west"), *north = tls_of(&s, "north");
    const struct tb_link *links = s.east->links->links;
    for (uint32_t i = 0; i < LINK_CONNS_SHARE; i++) {
        show(&s, &all[i], west);
        WORLD_UNTIL(&s.w.net, tb_link_conn_accepted(&links[0]) == i + 1);
        wait_for_greetings(&s);
    }
    assert_true(usage(&s).used <= usage(&s).bound / 4);
    show(&s, &all[LINK_CONNS_SHARE], west);
    WORLD_UNTIL(&s.w.net, all[LINK_CONNS_SHARE].closed);
    CHECK_STATUS(all[LINK_CONNS_SHARE].why, TB_SITE_NOMEM);
    assert_int_equal(tb_links_strangers_refused(s.east->links), 0);
    assert_int_equal(usage(&s).spent, 1);
    assert_int_equal(usage(&s).refused, 1);
    show(&s, &all[LINK_CONNS_SHARE + 1], north);
    WORLD_UNTIL(&s.w.net, tb_link_conn_accepted(&links[1]) == 1);
    for (uint32_t i = 0; i < LINK_CONNS_SHARE + 2; i++) {
        if (!all[i].closed) tb_wire_close(all[i].wire, TB_CANCELLED);
        WORLD_UNTIL(&s.w.net, all[i].closed);
    }
    tb_tls_free(west);
    tb_tls_free(north);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_of_a_peer_has_its_share),
        cmocka_unit_test(strangers_have_half_and_a_peer_comes_in),
        cmocka_unit_test(a_peer_has_a_quarter_and_another_comes_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
