#include "scene.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"

bool over_network(const struct way *way)
{
    return way->transport != TB_TRANSPORT_SHM;
}

void scene_open(struct scene *s, const struct way *way, uint32_t tensors, uint64_t tensor_bytes,
                uint64_t pace)
{
    memset(s, 0, sizeof *s);
    s->way = way;
    cargo_make(&s->cargo, tensors, tensor_bytes);
    owner_open(&s->owner, way, &s->cargo, pace);
    hold_make(&s->hold, &s->cargo);
    s->place = (struct tb_hop_place){.shard = 3, .place = &s->hold.place};
    s->reader = fabric_make(way, pace);
    tale_init(&s->tale);
}

struct tb_hop *scene_hop(struct scene *s)
{
    struct tb_hop *hop = NULL;
    const struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    return hop;
}

void scene_close(struct scene *s)
{
    hold_check(&s->hold, &s->cargo); /* P1, in every test */
    tb_fabric_close(s->reader);
    owner_close(&s->owner);
    hold_free(&s->hold);
    cargo_free(&s->cargo);
    tale_fini(&s->tale);
}

size_t read_to_end(int fd)
{
    char bytes[65536];
    size_t total = 0;
    const struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (;;) {
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0) assert_true(errno != EAGAIN && errno != EWOULDBLOCK);
        if (n <= 0) return total;
        total += (size_t)n;
    }
}
