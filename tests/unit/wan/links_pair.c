/* links_pair.c - a fixture: east has a version, west lands it. */
#include "links_pair.h"

#include <string.h>

int pair_setup(void **state)
{
    static struct pair_of_sites pair;
    memset(&pair, 0, sizeof pair);
    links_world_init(&pair.w);
    pair.east = site_new(&pair.w, "east", true);
    pair.west = site_new(&pair.w, "west", false);
    site_peer(pair.east, pair.west, false, false);
    site_peer(pair.west, pair.east, true, true);
    *state = &pair;
    return 0;
}

int pair_teardown(void **state)
{
    struct pair_of_sites *p = *state;
    links_world_fini(&p->w);
    truth_free(&p->t);
    return 0;
}

struct pair_of_sites *pair_of(void **state, uint32_t shards, uint64_t shard_bytes)
{
    struct pair_of_sites *p = *state;
    truth_make(&p->t, 42, shards, shard_bytes);
    return p;
}

void pair_start(struct pair_of_sites *p)
{
    site_start(p->east);
    site_start(p->west);
}

void pair_up(struct pair_of_sites *p)
{
    pair_start(p);
    BOTH_UP(&p->w, p->west, p->east);
}

struct copy *pair_publish(struct pair_of_sites *p)
{
    pair_start(p);
    return site_publish(p->east, &p->t);
}

struct copy *pair_place(struct pair_of_sites *p)
{
    assert_int_equal(p->t.key.shard_count, 1);
    struct copy *c = site_place(p->east, &p->t.key, p->t.manifests);
    memcpy(c->places[0].bytes, p->t.bytes[0], p->t.manifests[0].bytes);
    for (uint32_t k = 0; k < p->t.chunks; k++)
        tb_bitmap_set(c->places[0].held, k);
    return c;
}

void pair_landed(struct pair_of_sites *p)
{
    WORLD_UNTIL(&p->w.net, p->west->landed == 1 && p->east->peer_held == 1);
    check_equal(site_copy(p->west, &p->t), &p->t);
}

uint32_t held_at(struct site *s, const struct truth *t)
{
    const struct copy *c = site_copy(s, t);
    return c != NULL ? copy_held(c) : 0;
}
