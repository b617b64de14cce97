/* link_manifest_pages.c - manifests that the peer asked for, or that follow a PUSH, go to it in
 * pages. */
#include "wan/link/traffic/link_manifest_pages.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/link_dtypes.h"
#include "wan/link/traffic/offer_table.h"

#define SERVES_MAX       TB_LINKS_ASKS_SENT_MAX
#define DIGESTS_PER_PAGE (TB_LINK_PAGE_BYTES / TB_DIGEST_BYTES)

static void serve_free(struct tb_link *l, struct tb_link_serve *s)
{
    struct tb_link_serve **at = &l->traffic.serves;
    while (*at != s) {
        TB_ASSERT(*at != NULL); /* each answer is listed */
        at = &(*at)->next;
    }
    *at = s->next;
    tb_free(s->head);
    tb_free(s);
}

void tb_link_serves_drop(struct tb_link *l, const struct tb_offer *o)
{
    for (struct tb_link_serve *s = l->traffic.serves, *next; s != NULL; s = next) {
        next = s->next;
        if (o == NULL || s->offer == o) serve_free(l, s);
    }
}

static const struct tb_manifest *manifest_of(const struct tb_link_serve *s)
{
    TB_ASSERT(s->shard < s->offer->share->shard_count);
    return s->offer->share->places[s->shard].manifest;
}

static bool encode_head(struct tb_link_serve *s)
{
    struct tb_writer w;
    s->head_bytes = (uint32_t)tb_manifest_head_bytes(manifest_of(s));
    s->head = tb_malloc(s->head_bytes);
    if (s->head == NULL) return false;
    tb_writer_init(&w, s->head, s->head_bytes);
    tb_manifest_head_encode(manifest_of(s), &w);
    TB_ASSERT(!w.full && w.used == s->head_bytes); /* tb_manifest_head_bytes counted the same */
    return true;
}

static void send_head_page(struct tb_link *l, struct tb_link_serve *s)
{
    TB_ASSERT(s->head != NULL && s->at < s->head_bytes);
    const uint32_t left = s->head_bytes - s->at;
    const struct tb_span page = {s->head + s->at, left < TB_LINK_PAGE_BYTES ? left : TB_LINK_PAGE_BYTES};
    LINK_SEND(l, TB_FRAME_HEAD, tb_frame_head, LINK_SMALL + page.count, .uid = s->offer->key.uid,
              .shard = s->shard, .total_bytes = s->head_bytes, .offset = s->at, .page = page);
    s->at += page.count;
    if (s->at < s->head_bytes) return;
    s->head_done = true;
    s->at = 0;
    tb_free(s->head);
    s->head = NULL;
}

static void send_digests_page(struct tb_link *l, struct tb_link_serve *s)
{
    TB_ASSERT(s->head_done && s->at < manifest_of(s)->chunk_count);
    const struct tb_manifest *m = manifest_of(s);
    const uint32_t left = m->chunk_count - s->at;
    const uint32_t count = left < DIGESTS_PER_PAGE ? left : DIGESTS_PER_PAGE;
    const struct tb_span page = {m->digests[s->at].bytes, count * TB_DIGEST_BYTES};
    LINK_SEND(l, TB_FRAME_DIGESTS, tb_frame_digests, LINK_SMALL + page.count, .uid = s->offer->key.uid,
              .shard = s->shard, .first = s->at, .page = page);
    s->at += count;
}

/* One page further. False: all was sent, or there is no memory and the peer was told so. */
static bool serve_step(struct tb_link *l, struct tb_link_serve *s)
{
    if (!s->head_done) {
        if (s->head == NULL && !encode_head(s)) {
            tb_link_send_gone(l, &s->offer->key.uid, TB_SITE_NOMEM);
            return false;
        }
        send_head_page(l, s);
    } else if (s->at < manifest_of(s)->chunk_count) {
        send_digests_page(l, s);
    }
    if (!s->head_done || s->at < manifest_of(s)->chunk_count) return true;
    s->shard++;
    s->at = 0;
    s->head_done = false;
    return s->shard < s->offer->key.shard_count;
}

void tb_link_serves_tick(struct tb_link *l)
{
    while (tb_link_is_up(l) && l->traffic.serves != NULL &&
           tb_wire_queued_bytes(tb_link_control(l)->wire) < LINK_QUEUE_BYTES)
        if (!serve_step(l, l->traffic.serves)) serve_free(l, l->traffic.serves);
}

static uint32_t serve_count(const struct tb_link *l)
{
    uint32_t count = 0;
    for (const struct tb_link_serve *s = l->traffic.serves; s != NULL; s = s->next)
        count += s->asked;
    return count;
}

void tb_link_serve(struct tb_link *l, struct tb_offer *o, bool asked)
{
    struct tb_link_serve *s = tb_calloc(1, sizeof *s);
    if (s == NULL) {
        tb_link_send_gone(l, &o->key.uid, TB_SITE_NOMEM);
        return;
    }
    struct tb_link_serve **at = &l->traffic.serves;
    while (*at != NULL)
        at = &(*at)->next;
    s->offer = o;
    s->asked = asked;
    *at = s;
    tb_links_busy(l->links);
    tb_link_serves_tick(l);
}

enum tb_status tb_link_on_ask(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_ask m;
    const enum tb_status status = tb_frame_ask_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    struct tb_offer *o = tb_offer_find(l->links, &m.uid);
    if (o == NULL || !tb_link_granted(l, &o->key.model)) {
        tb_link_send_gone(l, &m.uid, TB_NOT_FOUND);
        return TB_OK;
    }
    if (!tb_link_may_read(l, o)) {
        tb_link_refuse_dtypes(l, o);
        return TB_OK;
    }
    if (serve_count(l) >= SERVES_MAX) return TB_PEER_GARBLED;
    tb_link_serve(l, o, true);
    return TB_OK;
}
