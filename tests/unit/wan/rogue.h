/* rogue.h - a peer with a good certificate whose every frame is the test's: it may break the
 * protocol. */
#ifndef TB_TESTS_ROGUE_H
#define TB_TESTS_ROGUE_H

#include "links_world.h"

#include "wan/frame/frame.h"

/* West's certificate in the hands of a test. */
struct rogue {
    struct links_world w;
    struct truth t;
    struct site *east, *west;
    struct tb_tls *tls;
    struct tb_wire *wire;
    bool open, closed, greeted, by_bye;
    enum tb_status why;
    struct tb_id session;
    uint32_t manifests_seen, asked;           /* HEAD and ASK */
    uint32_t frames, held_at, stream_gone_at; /* counted from 1; of the first of each */
    uint32_t wanted;                          /* the crossing of the newest WANT */
    uint32_t lost_said;                       /* REFUSED with TB_REFUSAL_LOST */
    uint32_t expected, stopped;               /* the crossing of the newest EXPECT, STOP */
    uint32_t protocol;                        /* 0: 1, as the release before */
};

/* East publishes `t`, and the rogue has dialled; nothing is said yet. */
void rogue_init(struct rogue *r);
void rogue_fini(struct rogue *r);
void rogue_dial(struct rogue *r); /* again, once it is closed */

void rogue_send(struct rogue *r, uint16_t type, const void *bytes, size_t count);

#define ROGUE_SEND(r, TYPE, message, ...)                                                                    \
    do {                                                                                                     \
        uint8_t bytes_[2048];                                                                                \
        struct tb_writer w_;                                                                                 \
        tb_writer_init(&w_, bytes_, sizeof bytes_);                                                          \
        message##_encode(&(const struct message){__VA_ARGS__}, &w_);                                         \
        assert_false(w_.full);                                                                               \
        rogue_send(r, TYPE, bytes_, w_.used);                                                                \
    } while (0)

struct tb_name rogue_name(const char *text);
void rogue_hello(struct rogue *r, const char *site);
/* Says HELLO as west, hears east's, and subscribes. */
void rogue_greet(struct rogue *r);
void rogue_want(struct rogue *r, uint32_t crossing); /* of `t` */
void rogue_report(struct rogue *r, uint8_t reached); /* of `t` */
/* Of the version under that key, with the manifests of `t`. */
void rogue_manifests(struct rogue *r, const struct truth *t, const struct tb_version_key *key);

/* Waits until its connection ends for that: BYE said so, or nothing and the wire did. */
void rogue_dropped(struct rogue *r, enum tb_status why);
/* A session of that protocol is dropped for what is said in it; the rogue may come back and
 * behave. */
void rogue_in_session(uint32_t protocol, void (*say)(struct rogue *r));

/* The rogue offers `t` to an east that expects what comes after it: its EXPECT is there. */
void rogue_expected(struct rogue *r);

/* A data stream: BIND with the session's id, then `count` bytes that are to be chunk frames.
 * *phase: 1, open; 2, closed. */
/* The same, of that number and with nothing behind it; returns once it is bound or closed. */
void rogue_bind_as(struct rogue *r, uint32_t number, int *phase, struct tb_chan **chan_out);
void rogue_bind(struct rogue *r, int *phase, struct tb_chan **chan_out, const void *bytes, size_t count);

#endif
