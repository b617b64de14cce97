#include "hostile.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un local(const char *door, socklen_t *bytes_out)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const size_t n = strlen(door);
    memcpy(at.sun_path + 1, door, n);
    *bytes_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return at;
}

/* ---- a reader ---- */

void hostile_say(int fd, const struct tb_hop_request *r)
{
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_request_encode(r, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

struct tb_hop_answer hostile_hear(int fd)
{
    uint8_t bytes[TB_HOP_ANSWER_BYTES];
    struct tb_hop_answer answer = {0};
    struct tb_reader r;
    assert_int_equal(recv(fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    tb_reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(tb_hop_answer_decode(&r, &answer), TB_OK);
    return answer;
}

int hostile_greet(struct scene *s)
{
    socklen_t bytes;
    const struct sockaddr_un to = local(s->owner.endpoint.shm_door, &bytes);
    const struct tb_hop_options o = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, bytes), 0);
    hostile_say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                             .buffer = TB_HOP_WIRE_VERSION,
                                             .a = TB_HOP_WIRE_MAGIC,
                                             .b = EXPORT_ID,
                                             .token = o.token});
    assert_int_equal(hostile_hear(fd).type, TB_HOP_ANSWER_WELCOME);
    return fd;
}

/* ---- a door ---- */

void hostile_door_open(struct hostile_door *d)
{
    socklen_t bytes;
    (void)snprintf(d->name, sizeof d->name, "tombolo-hostile-%d", (int)getpid());
    const struct sockaddr_un at = local(d->name, &bytes);
    d->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(d->listener, (const struct sockaddr *)&at, bytes), 0);
}

void hostile_door_close(struct hostile_door *d)
{
    close(d->listener);
    d->listener = -1;
}

void hostile_answer(int fd, const struct tb_hop_answer *a)
{
    uint8_t bytes[TB_HOP_ANSWER_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_answer_encode(a, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

static void serve(const struct hostile_door *d, int fd, const struct tb_hop_request *r)
{
    struct tb_hop_answer buffer = d->buffer;
    buffer.buffer = r->buffer;
    if (r->type == TB_HOP_REQUEST_HELLO)
        hostile_answer(fd, &d->welcome);
    else if (r->type == TB_HOP_REQUEST_ATTACH)
        hostile_answer(fd, &buffer);
    else if (r->type == TB_HOP_REQUEST_PING)
        hostile_answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PONG, .a = r->a});
    else
        d->on_request(d->user, fd, r);
}

void hostile_door_serve(const struct hostile_door *d)
{
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    const int fd = accept(d->listener, NULL, NULL);
    while (recv(fd, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes) {
        struct tb_hop_request r = {0};
        struct tb_reader reader;
        tb_reader_init(&reader, bytes, sizeof bytes);
        if (tb_hop_request_decode(&reader, &r) == TB_OK) serve(d, fd, &r);
    }
    close(fd);
}

struct tb_hop *hostile_hop(struct scene *s, const struct hostile_door *d, uint32_t idle_ms)
{
    struct tb_hop *hop = NULL;
    struct tb_source_shard shard = s->owner.shard;
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    shard.held_buffer = TB_SOURCE_ALL_HELD;
    options.source = &shard;
    options.idle_ms = idle_ms;
    (void)snprintf(options.from.shm_door, sizeof options.from.shm_door, "%s", d->name);
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    return hop;
}
