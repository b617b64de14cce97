/* links_versions.c - a fixture: two versions of one model, of which west has the first. */
#include "links_versions.h"

void two_versions_make(struct two_versions *s, uint32_t shards, uint64_t shard_bytes)
{
    links_world_init(&s->w);
    truth_make(&s->v1, 42, shards, shard_bytes);
    truth_step(&s->v2, &s->v1);
    s->east = site_new(&s->w, "east", true);
    s->west = site_new(&s->w, "west", false);
    s->east->options.codec = s->west->options.codec = TB_CHOICE_SPARSE;
    site_peer(s->east, s->west, false, false);
    site_peer(s->west, s->east, true, true);
}

void two_versions_begin(struct two_versions *s)
{
    site_start(s->east);
    site_start(s->west);
    s->east_v1 = site_publish(s->east, &s->v1);
    WORLD_UNTIL(&s->w.net, s->west->landed == 1 && s->east->peer_held == 1);
    WORLD_UNTIL(&s->w.net, site_stats(s->east, 0).chunks_sent >= s->v1.chunks); /* counted, too */
}

void two_versions_free(struct two_versions *s)
{
    links_world_fini(&s->w);
    truth_free(&s->v1);
    truth_free(&s->v2);
}

void two_versions_limit(struct site *s, uint64_t until_bytes)
{
    const struct tb_links_limit limit = {.until_bytes = until_bytes};
    tb_links_limit(s->links, 0, &limit);
}
