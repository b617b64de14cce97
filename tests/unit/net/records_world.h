/* records_world.h - two TLS sessions whose records are ours or OpenSSL's, and between them the
 * test, which carries their bytes: in pieces, or with a bit that falls over. */
#ifndef TB_TESTS_RECORDS_WORLD_H
#define TB_TESTS_RECORDS_WORLD_H

#include "base/net/tls_bulk.h"
#include "base/net/tls_session.h"
#include "net_world.h"

#define EAST  "tombolo://east/gw"
#define WEST  "tombolo://west/gw"
#define BYTES ((3u << 20) + 77)

extern uint8_t sent[BYTES], got[BYTES];

/* Two sessions and between them what carries their bytes: the test. */
struct records {
    struct tb_tls *east, *west;
    struct tb_tls_session c, s; /* the dialler and the acceptor */
    int c_far, s_far;           /* the other ends of their sockets */
    size_t piece;               /* that is carried at once; 0: what there is */
    uint64_t carried;           /* from c to s */
    uint64_t flip_at;           /* of these the bit that falls over; 0: none */
};

struct records_way {
    bool asks, heeds;   /* for bulk */
    bool off;           /* at the acceptor: the operator's switch */
    const char *suite;  /* NULL: the first */
    const char *expect; /* by s; NULL: east's gateway */
};

void records_init(struct records *w, struct world *world, const struct records_way *way);
void records_fini(struct records *w);
void records_carry(struct records *w);
void records_shake(struct records *w);
void records_open(struct records *w, struct world *world, const struct records_way *way);
/* Writes as a stream does: what did not fit is tried again, and not fewer bytes. */
void records_write_some(struct tb_tls_session *s, size_t most, size_t *at);
void records_read_some(struct tb_tls_session *s, size_t most, size_t *at);
/* All bytes from one to the other, written and read in pieces that fit no record. */
void records_send_all(struct records *w, struct tb_tls_session *from, struct tb_tls_session *to);
void records_send_both_ways(struct records *w);
/* P10: the peer, whatever it has, hears by its alert what was wrong. */
void records_hear(struct records *w, const char *what);
/* As where the kernel sends: OpenSSL does in its place, and nothing of ours may be sealed. */
void records_leave_sending(struct tb_tls_session *s);
uint64_t records_waiting(int fd);

/* A world with the certificates of both ends, and `sent` filled. */
int records_setup(void **state);

#define RECORDS_TEST(name) cmocka_unit_test_setup_teardown(name, records_setup, world_teardown)

#endif
