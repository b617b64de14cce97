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
#define PROOFS_PER_PAGE  (TB_LINK_PAGE_BYTES / TB_BLAKE3_BYTES)

static void take_out(struct tb_link_serve **at, const struct tb_link_serve *s)
{
    while (*at != s) {
        TB_ASSERT(*at != NULL); /* each answer is listed */
        at = &(*at)->next;
    }
    *at = s->next;
}

static void add(struct tb_link_serve **at, struct tb_link_serve *s)
{
    while (*at != NULL)
        at = &(*at)->next;
    s->next = NULL;
    *at = s;
}

static void serve_free(struct tb_link_serve **list, struct tb_link_serve *s)
{
    take_out(list, s);
    tb_free(s->head);
    tb_free(s);
}

static void drop(struct tb_link_serve **list, const struct tb_offer *o)
{
    for (struct tb_link_serve *s = *list, *next; s != NULL; s = next) {
        next = s->next;
        if (o == NULL || s->offer == o) serve_free(list, s);
    }
}

void tb_link_serves_drop(struct tb_link *l, const struct tb_offer *o)
{
    drop(&l->traffic.serves, o);
    drop(&l->traffic.unproven, o);
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

static void send_proofs_page(struct tb_link *l, struct tb_link_serve *s)
{
    const struct tb_manifest *m = manifest_of(s);
    TB_ASSERT(s->proving && s->at < m->chunk_count);
    const uint32_t left = m->chunk_count - s->at;
    const uint32_t count = left < PROOFS_PER_PAGE ? left : PROOFS_PER_PAGE;
    const struct tb_span page = {m->proofs[s->at].bytes, count * TB_BLAKE3_BYTES};
    LINK_SEND(l, TB_FRAME_PROOFS, tb_frame_proofs, LINK_SMALL + page.count, .uid = s->offer->key.uid,
              .shard = s->shard, .first = s->at, .page = page);
    s->at += count;
}

static bool all_proven(const struct tb_offer *o)
{
    for (uint32_t i = 0; i < o->share->shard_count; i++)
        if (!tb_manifest_all_proven(o->share->places[i].manifest)) return false;
    return true;
}

/* To the next shard, and behind the last one to the first, for proofs. False: all was sent. */
static bool next_shard(struct tb_link *l, struct tb_link_serve *s)
{
    s->shard++;
    s->at = 0;
    s->head_done = false;
    if (s->shard < s->offer->key.shard_count) return true;
    if (s->proving || tb_link_protocol(l) < TB_LINK_PROTOCOL_PROOFS) return false;
    s->proving = true;
    s->shard = 0;
    return true;
}

/* One page further. False: all was sent. */
static bool proofs_step(struct tb_link *l, struct tb_link_serve *s)
{
    if (s->at < manifest_of(s)->chunk_count) send_proofs_page(l, s);
    return s->at < manifest_of(s)->chunk_count || next_shard(l, s);
}

/* One page further. False: all was sent, or there is no memory and the peer was told so. */
static bool serve_step(struct tb_link *l, struct tb_link_serve *s)
{
    if (s->proving) return proofs_step(l, s);
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
    return next_shard(l, s);
}

/* P7: one for each offer, however often its manifests are asked for. */
static void put_aside(struct tb_link *l, struct tb_link_serve *s)
{
    take_out(&l->traffic.serves, s);
    drop(&l->traffic.unproven, s->offer);
    add(&l->traffic.unproven, s);
}

void tb_link_serves_tick(struct tb_link *l)
{
    struct tb_link_serve *s;
    while (tb_link_is_up(l) && (s = l->traffic.serves) != NULL &&
           tb_wire_queued_bytes(tb_link_control(l)->wire) < LINK_QUEUE_BYTES) {
        if (s->proving && !all_proven(s->offer))
            put_aside(l, s);
        else if (!serve_step(l, s))
            serve_free(&l->traffic.serves, s);
    }
}

void tb_link_serve_proofs(struct tb_link *l, const struct tb_offer *o)
{
    struct tb_link_serve *s = l->traffic.unproven;
    while (s != NULL && s->offer != o)
        s = s->next;
    if (s == NULL) return;
    take_out(&l->traffic.unproven, s);
    s->asked = false; /* its answer was given: the peer may ask for others */
    add(&l->traffic.serves, s);
    tb_links_busy(l->links);
    tb_link_serves_tick(l);
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
    s->offer = o;
    s->asked = asked;
    add(&l->traffic.serves, s);
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
