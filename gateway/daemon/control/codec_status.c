/* codec_status.c - what the operator's socket says of codecs: which way chunks go to a peer, and
 * why. */
#include "gateway/daemon/daemon.h"

#include <jansson.h>

#include "base/assert.h"
#include "gateway/daemon/control/codec_status.h"
#include "wan/send/encoded_chunks.h"

/* The kind that most chunks had: with a base (1) or without. */
static enum tb_choice_kind main_kind(const struct tb_choice *c, int on_base)
{
    TB_ASSERT(on_base == 0 || on_base == 1);
    enum tb_choice_kind most = TB_KIND_BYTES;
    for (int k = 0; k < TB_KINDS; k++)
        if (c->picks[k][on_base] > c->picks[most][on_base]) most = (enum tb_choice_kind)k;
    return most;
}

/* "classes", and what bounds it: encode, link or decode. */
static json_t *kind_json(const struct tb_choice *c, enum tb_choice_kind kind, int on_base)
{
    const enum tb_choice_way way = c->last[kind][on_base];
    TB_ASSERT((unsigned)kind < TB_KINDS && (unsigned)way < TB_WAYS);
    const char *bound = "";
    const double rate = tb_choice_rate(c, kind, way, &bound);
    return json_pack("{s:s, s:s, s:I, s:s, s:f, s:f, s:f}", "kind", tb_choice_kind_name(kind), "way",
                     tb_choice_way_name(way), "chunks", (json_int_t)c->picks[kind][on_base], "bound_by",
                     c->wish == TB_CHOICE_AUTO ? bound : "config", "saving", c->ways[kind][way].saving,
                     "encode_bytes_per_s", c->ways[kind][way].encode, "bytes_per_s",
                     rate < 1e14 ? rate : 0.0);
}

/* Of the kind of which most went; null until a chunk did. */
static json_t *way_json(const struct tb_choice *c, int on_base)
{
    const enum tb_choice_kind kind = main_kind(c, on_base);
    return c->picks[kind][on_base] > 0 ? kind_json(c, kind, on_base) : json_null();
}

/* Of every kind of which a chunk went. */
static json_t *ways_json(const struct tb_choice *c, int on_base)
{
    json_t *list = json_array();
    for (int k = 0; k < TB_KINDS; k++) {
        if (c->picks[k][on_base] == 0) continue;
        if (json_array_append_new(list, kind_json(c, (enum tb_choice_kind)k, on_base)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *mix_json(const struct tb_choice *c)
{
    json_t *o = json_object();
    for (int w = 0; w < TB_WAYS; w++) {
        if (c->chunks[w] == 0) continue;
        json_t *count = json_integer((json_int_t)c->chunks[w]);
        if (json_object_set_new(o, tb_choice_way_name((enum tb_choice_way)w), count) == 0) continue;
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *tb_status_encoded(struct tb_daemon *d)
{
    struct tb_encoded_chunks_stats s;
    tb_encoded_chunks_stats(d->encoded_chunks, &s);
    const struct tb_encoded_chunk_sum *ranks = &s.from[TB_ENCODED_CHUNK_OF_RANK];
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)s.bytes,
                     "budget_bytes", (json_int_t)s.budget_bytes, "count", (json_int_t)s.count, "used",
                     (json_int_t)s.used, "from_ranks", (json_int_t)ranks->count, "from_ranks_bytes",
                     (json_int_t)ranks->bytes, "from_links",
                     (json_int_t)s.from[TB_ENCODED_CHUNK_OF_LINK].count, "made_here",
                     (json_int_t)s.from[TB_ENCODED_CHUNK_MADE_HERE].count, "bad", (json_int_t)s.bad, "known",
                     (json_int_t)s.known, "chained", (json_int_t)s.chained);
}

json_t *tb_status_choice(const struct tb_choice *c)
{
    return json_pack("{s:s, s:f, s:o, s:o, s:o, s:o, s:o}", "asked", tb_choice_wish_name(c->wish),
                     "link_bytes_per_s", c->goodput, "full", way_json(c, 0), "delta", way_json(c, 1),
                     "full_kinds", ways_json(c, 0), "delta_kinds", ways_json(c, 1), "chunks", mix_json(c));
}

json_t *tb_status_codec(struct tb_daemon *d, uint32_t peer)
{
    TB_ASSERT(peer < d->config->peer_count);
    static struct tb_choice c; /* the main loop's alone */
    tb_choice_init(&c, d->config->link_codec, 1);
    if (d->links != NULL && !d->links_restarting) tb_links_choice(d->links, peer, &c);
    return tb_status_choice(&c);
}
