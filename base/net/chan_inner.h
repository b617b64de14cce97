/* chan_inner.h - one channel, for chan.c and chan_bytes.c alone. */
#ifndef TB_BASE_NET_CHAN_INNER_H
#define TB_BASE_NET_CHAN_INNER_H

#include "base/net/chan.h"
#include "base/net/chan_facts.h"
#include "base/net/tls_session.h"

enum chan_state { CONNECTING, HANDSHAKING, OPENING, OPEN, DETACHED, CLOSING };

struct tb_chan {
    uv_poll_t poll;
    uv_timer_t timer;
    uv_idle_t again;
    uint32_t handles; /* that have not closed */
    enum chan_state state;
    enum tb_chan_reach reach;
    int fd;
    int polled; /* events that uv_poll watches */
    bool want_read;
    bool want_write;
    bool read_needs_room;   /* TLS: reading goes on when the socket takes bytes (a key update) */
    bool write_needs_bytes; /* TLS: and the reverse */
    bool ending;            /* tb_chan_end was called and is not done */
    bool broken;  /* the poll failed: what the socket still holds comes by `again`, then the error */
    bool hung_up; /* the peer did, as the kernel says */
    bool secure;
    struct tb_tls_session tls;
    const struct tb_chan_ops *ops;
    void *user;
    tb_chan_detached_fn detached; /* DETACHED: gets it once the handles are closed */
    uint64_t open_by_ms;          /* loop time; UINT64_MAX: none */
    uint64_t close_by_ms;         /* likewise; then it closes with close_why */
    enum tb_status close_why;
    enum tb_status why;
    char reason[TB_TLS_REASON_BYTES];
    struct tb_chan_peer peer;
};

/* Makes the handles watch what the state wants; due after every change. */
void tb_chan_update(struct tb_chan *c);
/* Closes the chan with `why`, unless it closes already. reason: for the log; NULL: none. */
void tb_chan_fail(struct tb_chan *c, enum tb_status why, const char *reason);
/* The same, with the reason that TLS gives. */
void tb_chan_fail_tls(struct tb_chan *c, enum tb_status why);

#endif
