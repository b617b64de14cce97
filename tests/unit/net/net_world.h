/* net_world.h - what the tests of base/net share: a loop that must end empty, a folder of
 * certificates, and a chan whose life is written down. */
#ifndef TB_TESTS_NET_WORLD_H
#define TB_TESTS_NET_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/net/chan.h"
#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "base/net/wire.h"
#include "base/pki/pki.h"
#include "tests/unit/scratch.h"

#define WORLD_WAIT_S 30 /* sanitizers on two busy cores are slow; a healthy run needs milliseconds */

struct world {
    uv_loop_t loop;
    uv_timer_t tick; /* so that a turn of the loop ends even when nothing happens */
    char dir[SCRATCH_BYTES];
};

void world_init(struct world *w);
/* Fails the test unless every handle is gone. */
void world_fini(struct world *w);
/* The same as a fixture of cmocka: *state is the world of the test. */
int world_setup(void **state);
int world_teardown(void **state);

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

/* Turns the loop until the condition holds; fails the test after WORLD_WAIT_S. */
#define WORLD_UNTIL(w, condition)                                                                            \
    do {                                                                                                     \
        const tb_time_ns end_ = tb_clock_now() + TB_SECONDS(WORLD_WAIT_S);                                   \
        while (!(condition)) {                                                                               \
            if (tb_clock_now() > end_) fail_msg("never came: %s", #condition);                               \
            uv_run(&(w)->loop, UV_RUN_ONCE);                                                                 \
        }                                                                                                    \
    } while (0)

void world_turns(struct world *w, int turns);

/* DIR/SITE is a CA folder; makes it when it is not there. Then SITE/STEM.{crt,key} for the
 * identity. */
void world_issue(struct world *w, const char *site, const char *stem, const char *uri);
void world_issue_for(struct world *w, const char *site, const char *stem, const char *uri, int64_t start_s,
                     int64_t valid_s);
/* "DIR/A/B" in one of 64 static buffers. */
const char *world_path(const struct world *w, const char *a, const char *b);
size_t world_file_read(const char *path, char *bytes_out, size_t bytes_max);
/* how: as of fopen. */
void world_file_write(const char *path, const char *how, const char *bytes, size_t count);
/* Context with SITE/STEM and the CA of ca_site. */
struct tb_tls *world_tls(struct world *w, const char *site, const char *stem, const char *ca_site);
/* The same with a certificate of its own, which expires in a few seconds: a context refuses
 * what has expired when it is made, so on a machine that takes longer to make it the
 * certificate gets a longer life. */
struct tb_tls *world_tls_expiring(struct world *w, const char *site, const char *stem, const char *uri,
                                  const char *ca_site);

/* The peer has to prove `uri`; NULL: no identity is expected. */
struct tb_tls_expect world_expect(const char *uri);

/* A chan and what happened to it. */
struct end {
    struct tb_chan *chan; /* NULL once closed */
    int opened, closed;
    int readable; /* calls of on_readable */
    enum tb_status why;
    struct tb_chan_peer peer;
    char reason[256];
    struct tb_tls_refusal refusal; /* when it closed */
    enum tb_chan_reach reach;      /* when it closed */
    size_t read_bytes;             /* a read asks for; 0: 64 KiB */
    bool read_not;                 /* on_readable does not read */
    uint8_t *in;                   /* grows; what came */
    size_t got, cap;
    const uint8_t *check; /* instead of keeping what comes it is compared with this */
    const uint8_t *out;   /* what is to be sent */
    size_t out_bytes, sent;
    enum tb_status read_status;
    bool close_in_open, close_in_readable, close_in_writable;
};

extern const struct tb_chan_ops end_ops;
void end_fini(struct end *e);

/* Two ends over a listener on loopback or a unix path. */
struct pair {
    struct world *world;
    struct tb_listener *listener;
    struct tb_address at;
    struct tb_chan_options server, client; /* filled by pair_init; change before pair_dial */
    struct end s, c;
    int accepted;
};

/* tls NULL: plain. */
void pair_init(struct pair *p, struct world *w, struct tb_tls *server, struct tb_tls *client, bool local);
void pair_dial(struct pair *p);
void pair_open(struct pair *p); /* dial, and both are open */
void pair_fini(struct pair *p); /* closes what is open */
void end_send(struct end *e, const void *bytes, size_t count);

/* A plain blocking socket connected to the address; and a raw listening socket. */
int raw_connect(const struct tb_address *at);
struct tb_address loopback(uint16_t port);

int open_fds(void); /* of this process */

#endif
