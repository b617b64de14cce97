/* Bytes that a stranger writes into a socket before it is known: frames of any header and length
 * come whole, in order, and within the bound, or end the connection. First byte: in how many
 * pieces the bytes come.
 *
 * Covers: base/net/wire.c base/net/chan.c */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/chan_facts.h"
#include "base/net/wire.h"
#include "tests/fuzz/fuzz.h"

#define FRAME_MAX 4096u
#define INPUT_MAX 60000u /* what a socket takes at once */

struct end {
    struct tb_wire *wire;
    const uint8_t *bytes; /* what is to come */
    size_t at, count;
    bool closed;
};

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w, (void)user, (void)peer;
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *frame)
{
    (void)w;
    struct end *e = user;
    const size_t payload = frame->payload.left;
    FUZZ_REQUIRE(payload <= FRAME_MAX && e->at + TB_WIRE_HEADER_BYTES + payload <= e->count);
    struct tb_reader r;
    tb_reader_init(&r, e->bytes + e->at, TB_WIRE_HEADER_BYTES);
    FUZZ_REQUIRE(tb_read_u32(&r) == payload && tb_read_u16(&r) == frame->type);
    FUZZ_REQUIRE(payload == 0 ||
                 memcmp(frame->payload.at, e->bytes + e->at + TB_WIRE_HEADER_BYTES, payload) == 0);
    e->at += TB_WIRE_HEADER_BYTES + payload;
    return TB_OK;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    struct end *e = user;
    FUZZ_REQUIRE(!e->closed && why != TB_OK && why != TB_AGAIN);
    e->closed = true;
    e->wire = NULL;
}

static const struct tb_wire_ops ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static uv_loop_t loop;
    static bool begun;
    int fds[2];
    if (count == 0 || count > INPUT_MAX) return 0;
    if (!begun) FUZZ_REQUIRE(uv_loop_init(&loop) == 0);
    begun = true;
    FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    struct end e = {.bytes = bytes + 1, .count = count - 1};
    const struct tb_wire_options options = {
        .chan = {.loop = &loop, .open_ms = 1000}, .ops = &ops, .user = &e, .frame_bytes_max = FRAME_MAX};
    FUZZ_REQUIRE(tb_wire_accept(&options, fds[0], &e.wire) == TB_OK);
    const size_t piece = 1 + e.count / (1 + bytes[0] % 8u);
    for (size_t at = 0; at < e.count && !e.closed; at += piece) {
        const size_t n = piece < e.count - at ? piece : e.count - at;
        FUZZ_REQUIRE(send(fds[1], e.bytes + at, n, MSG_NOSIGNAL) == (ssize_t)n || errno == EPIPE);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    close(fds[1]);
    while (!e.closed)
        (void)uv_run(&loop, UV_RUN_ONCE);
    while (uv_run(&loop, UV_RUN_NOWAIT) != 0) {
    }
    return 0;
}
