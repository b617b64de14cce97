/* link_manifest.c - manifests cross in pages, ahead of the bytes: heads, then digests, shard by shard, in
 * order.
 *
 * Nothing is allocated from a number of the peer's: a head's memory grows with the bytes that came, a
 * manifest's is what its head needs, and the sum over the version stays under manifest_bytes_max (P7). */
#include "base/fault.h"
#include "wan/link/link.h"

#define HEAD_BYTES_MAX   (128u << 20)
#define SERVES_MAX       TB_LINKS_ASKS_MAX
#define DIGESTS_PER_PAGE (TB_LINK_PAGE_BYTES / TB_DIGEST_BYTES)

/* ---- asking ---- */

static void ask_clear(struct ask *a)
{
    for (uint32_t s = 0; a->memories != NULL && s < a->key.shard_count; s++)
        tb_free(a->memories[s]);
    tb_free(a->memories);
    tb_free(a->manifests);
    tb_free(a->head);
    a->memories = NULL;
    a->manifests = NULL;
    a->head = NULL;
    a->shard = a->head_total = a->head_got = a->digests_got = 0;
    a->memory_bytes = 0;
    a->sent = a->complete = false;
}

static struct ask **ask_find(struct link *l, const struct tb_id *uid)
{
    struct ask **at = &l->asks;
    while (*at != NULL && !tb_id_equal(&(*at)->uid, uid))
        at = &(*at)->next;
    return at;
}

static void ask_free(struct ask **at)
{
    struct ask *a = *at;
    *at = a->next;
    ask_clear(a);
    tb_free(a);
}

/* What nobody asked for is not waited for. */
void link_asks_rewind(struct link *l)
{
    struct ask **at = &l->asks;
    while (*at != NULL) {
        if ((*at)->unasked) {
            ask_free(at);
            continue;
        }
        ask_clear(*at);
        at = &(*at)->next;
    }
}

void link_asks_free(struct link *l)
{
    while (l->asks != NULL)
        ask_free(&l->asks);
}

static enum tb_status ask_begin(struct ask *a)
{
    a->manifests = tb_calloc(a->key.shard_count, sizeof *a->manifests);
    a->memories = tb_calloc(a->key.shard_count, sizeof *a->memories);
    return a->manifests != NULL && a->memories != NULL ? TB_OK : TB_SITE_NOMEM;
}

void link_asks_send(struct link *l)
{
    for (struct ask *a = l->asks; a != NULL && link_is_up(l); a = a->next) {
        const struct announced *known = link_announced(l, &a->uid);
        if (a->sent || known == NULL) continue;
        a->key = known->key;
        if (ask_begin(a) != TB_OK) {
            ask_clear(a);
            continue; /* again at the next tick */
        }
        a->sent = true;
        LINK_SEND(l, TB_FRAME_ASK, tb_frame_ask, LINK_SMALL, .uid = a->uid);
    }
}

/* P7: all that nobody asked for, together, is kept within what one version may take. So many are free. */
static uint64_t room_for(const struct link *l, const struct ask *whose)
{
    const uint64_t most = l->links->options.manifest_bytes_max;
    uint64_t used = whose->memory_bytes;
    for (const struct ask *a = l->asks; whose->unasked && a != NULL; a = a->next)
        if (a->unasked && a != whose) used += a->memory_bytes + a->head_total;
    return used < most ? most - used : 0;
}

/* At most TB_FEED_EXPECTED_MAX: each is of a number that is expected. */
enum tb_status link_ask_pushed(struct link *l, const struct tb_version_key *key)
{
    struct ask *a = *ask_find(l, &key->uid);
    const bool fresh = a == NULL;
    if (fresh) a = tb_calloc(1, sizeof *a);
    if (a == NULL) return TB_SITE_NOMEM;
    a->uid = key->uid;
    a->key = *key;
    a->sent = true;
    if (fresh) {
        a->unasked = true;
        a->next = l->asks;
        l->asks = a;
        a->memory_bytes = key->shard_count * (sizeof *a->manifests + sizeof *a->memories);
        if (room_for(l, a) == 0) return TB_TOO_LARGE;
    }
    const enum tb_status status = ask_begin(a);
    if (status != TB_OK && !fresh) ask_clear(a); /* it is sent again */
    return status;
}

void link_ask_declined(struct link *l, const struct tb_id *uid)
{
    struct ask **at = ask_find(l, uid);
    if (*at != NULL && (*at)->unasked) ask_free(at); /* pages that follow are skipped */
}

static void tell_failed(struct link *l, const struct tb_id *uid, enum tb_status why)
{
    const struct tb_links_ops *ops = l->links->options.ops;
    if (ops->on_failed != NULL) ops->on_failed(l->links->options.user, l->index, uid, why);
}

static uint32_t ask_count(const struct link *l)
{
    uint32_t count = 0;
    for (const struct ask *a = l->asks; a != NULL; a = a->next)
        count += !a->unasked;
    return count;
}

/* Asks wait for the peer's next session, and go on in it. What the peer does not announce by then may never be answered: such
 * gives way when there are too many. */
static struct ask **ask_stale(struct link *l)
{
    struct ask **at = &l->asks;
    while (*at != NULL && link_announced(l, &(*at)->uid) != NULL)
        at = &(*at)->next;
    return at;
}

enum tb_status tb_links_ask(struct tb_links *ls, uint32_t peer, const struct tb_id *uid)
{
    struct link *l = &ls->links[peer];
    const struct announced *known = link_announced(l, uid);
    struct ask *pushed = *ask_find(l, uid);
    if (pushed != NULL && pushed->unasked) { /* they are on their way, or here */
        pushed->unasked = false;
        links_busy(ls);
        return TB_OK;
    }
    if (pushed != NULL) return TB_DONE_BEFORE;
    if (known == NULL) return TB_NOT_FOUND;
    struct ask **stale = ask_count(l) >= TB_LINKS_ASKS_MAX ? ask_stale(l) : NULL;
    if (stale != NULL && *stale == NULL) return TB_SITE_NOMEM;
    struct ask *a = tb_calloc(1, sizeof *a);
    if (a == NULL) return TB_SITE_NOMEM;
    a->uid = *uid;
    a->key = known->key;
    const struct tb_id gone = stale != NULL ? (*stale)->uid : (struct tb_id){0};
    if (stale != NULL) ask_free(stale);
    a->next = l->asks;
    l->asks = a;
    link_asks_send(l);
    if (stale != NULL) tell_failed(l, &gone, TB_NOT_FOUND); /* last: who hears it may ask again */
    return TB_OK;
}

void link_ask_fail(struct link *l, const struct tb_id *uid, enum tb_status why)
{
    struct ask **at = ask_find(l, uid);
    const struct tb_id id = *uid;
    if (*at == NULL) return;
    const bool unasked = (*at)->unasked;
    ask_free(at);
    if (!unasked) tell_failed(l, &id, why);
}

static void ask_too_large(struct link *l, struct ask **at)
{
    const struct tb_links_ops *ops = l->links->options.ops;
    const struct tb_id id = (*at)->uid;
    const uint64_t needed_bytes = (*at)->needed_bytes;
    ask_free(at);
    if (ops->on_too_large != NULL) ops->on_too_large(l->links->options.user, l->index, &id, needed_bytes);
}

/* ---- receiving ---- */

/* Grows with what came: at most twice of it. */
static enum tb_status head_append(struct ask *a, const struct tb_span *page)
{
    const uint32_t need = a->head_got + page->count;
    uint8_t *more = tb_realloc(a->head, need < a->head_total / 2 ? (size_t)need * 2 : a->head_total);
    if (more == NULL) return TB_SITE_NOMEM;
    a->head = more;
    memcpy(a->head + a->head_got, page->bytes, page->count);
    a->head_got = need;
    return TB_OK;
}

static enum tb_status head_done(struct link *l, struct ask *a)
{
    const size_t bytes = tb_manifest_decode_bytes(a->head, a->head_total);
    if (bytes == 0) return TB_PEER_GARBLED;
    a->needed_bytes = a->memory_bytes + bytes;
    if (bytes > room_for(l, a)) return TB_TOO_LARGE;
    a->memories[a->shard] = tb_malloc(bytes);
    if (a->memories[a->shard] == NULL) return TB_SITE_NOMEM;
    a->memory_bytes += bytes;
    const enum tb_status status = tb_manifest_head_decode(a->head, a->head_total, a->memories[a->shard],
                                                          bytes, &a->manifests[a->shard]);
    tb_free(a->head);
    a->head = NULL;
    if (status == TB_OK && a->manifests[a->shard].layout.other_dtypes &&
        l->protocol < TB_LINK_PROTOCOL_DTYPES)
        return TB_PEER_GARBLED;
    return status == TB_OK ? TB_OK : TB_PEER_GARBLED;
}

/* All manifests are here: do they make up the version that was announced? */
static bool roots_agree(const struct ask *a)
{
    struct tb_digest *roots = tb_malloc(a->key.shard_count * sizeof *roots);
    if (roots == NULL) return false;
    for (uint32_t s = 0; s < a->key.shard_count; s++)
        roots[s] = a->manifests[s].root;
    const struct tb_digest root = tb_version_root(&a->key, roots);
    tb_free(roots);
    return tb_digest_equal(&root, &a->key.root);
}

static void deliver(struct link *l, struct ask **at)
{
    struct ask *a = *at;
    *at = a->next; /* the daemon may ask again from inside the callback */
    if (l->links->options.ops->on_manifests != NULL)
        l->links->options.ops->on_manifests(l->links->options.user, l->index, &a->key, a->manifests);
    ask_clear(a);
    tb_free(a);
}

static enum tb_status all_done(struct link *l, struct ask **at)
{
    if (!roots_agree(*at)) return TB_PEER_GARBLED;
    (*at)->complete = true;
    if (!(*at)->unasked) deliver(l, at);
    return TB_OK;
}

/* Those that followed a PUSH, and were asked for since. */
static struct ask **ask_over(struct link *l)
{
    struct ask **at = &l->asks;
    while (*at != NULL && (!(*at)->complete || (*at)->unasked))
        at = &(*at)->next;
    return at;
}

void link_asks_tick(struct link *l)
{
    for (struct ask **at; *(at = ask_over(l)) != NULL;)
        deliver(l, at);
}

static enum tb_status shard_done(struct link *l, struct ask **at)
{
    struct ask *a = *at;
    const struct tb_digest root = tb_manifest_root(&a->manifests[a->shard]);
    if (!tb_digest_equal(&root, &a->manifests[a->shard].root)) return TB_PEER_GARBLED;
    a->shard++;
    a->head_total = a->head_got = a->digests_got = 0;
    return a->shard == a->key.shard_count ? all_done(l, at) : TB_OK;
}

/* What cannot be helped by dropping the peer ends the ask alone; the rest of its answer is skipped. */
static enum tb_status judge(struct link *l, const struct tb_id *uid, enum tb_status status)
{
    if (status != TB_TOO_LARGE && status != TB_SITE_NOMEM) return status;
    struct ask **at = ask_find(l, uid);
    if (*at != NULL && (*at)->unasked)
        link_push_too_much(l, uid);
    else if (*at != NULL && status == TB_TOO_LARGE)
        ask_too_large(l, at);
    else
        link_ask_fail(l, uid, status);
    return TB_OK;
}

/* Answers to one uid follow one another, each from its first page to its last: what comes before a first page is the rest of an answer
 * that was given up, or came with a PUSH that was declined. */
static bool is_rest(const struct ask *a, bool first_page)
{
    return a->shard == 0 && a->head_got == 0 && a->memories[0] == NULL && !first_page;
}

enum tb_status link_on_head(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_head m;
    enum tb_status status = tb_frame_head_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    struct ask **at = ask_find(l, &m.uid), *a = *at;
    if (a == NULL || !a->sent) return TB_OK; /* given up meanwhile */
    if (is_rest(a, m.shard == 0 && m.offset == 0)) return TB_OK;
    link_push_moved(l, &m.uid);
    if (m.shard != a->shard || m.shard >= a->key.shard_count || m.offset != a->head_got)
        return TB_PEER_GARBLED;
    if (a->memories[a->shard] != NULL || m.page.count == 0) return TB_PEER_GARBLED;
    if (m.total_bytes == 0 || m.total_bytes > HEAD_BYTES_MAX) return TB_PEER_GARBLED;
    if (m.offset > 0 && m.total_bytes != a->head_total) return TB_PEER_GARBLED;
    if (m.page.count > m.total_bytes - m.offset) return TB_PEER_GARBLED;
    if (a->unasked && m.total_bytes > room_for(l, a)) return judge(l, &m.uid, TB_TOO_LARGE);
    a->head_total = m.total_bytes;
    status = head_append(a, &m.page);
    if (status == TB_OK && a->head_got == a->head_total) {
        status = head_done(l, a);
        if (status == TB_OK && a->manifests[a->shard].chunk_count == 0) status = shard_done(l, at);
    }
    return judge(l, &m.uid, status);
}

enum tb_status link_on_digests(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_digests m;
    const enum tb_status status = tb_frame_digests_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    struct ask **at = ask_find(l, &m.uid), *a = *at;
    if (a == NULL || !a->sent || is_rest(a, false)) return TB_OK;
    link_push_moved(l, &m.uid);
    if (m.shard != a->shard || m.shard >= a->key.shard_count || a->memories[a->shard] == NULL)
        return TB_PEER_GARBLED;
    struct tb_manifest *manifest = &a->manifests[a->shard];
    const uint32_t count = m.page.count / TB_DIGEST_BYTES;
    if (count == 0 || m.page.count % TB_DIGEST_BYTES != 0 || m.first != a->digests_got)
        return TB_PEER_GARBLED;
    if (count > manifest->chunk_count - a->digests_got) return TB_PEER_GARBLED;
    memcpy(manifest->digests + a->digests_got, m.page.bytes, m.page.count);
    a->digests_got += count;
    return a->digests_got == manifest->chunk_count ? judge(l, &m.uid, shard_done(l, at)) : TB_OK;
}

/* ---- serving ---- */

static void serve_free(struct link *l, struct serve *s)
{
    struct serve **at = &l->serves;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    tb_free(s->head);
    tb_free(s);
}

void link_serves_drop(struct link *l, const struct offer *o)
{
    for (struct serve *s = l->serves, *next; s != NULL; s = next) {
        next = s->next;
        if (o == NULL || s->offer == o) serve_free(l, s);
    }
}

static const struct tb_manifest *manifest_of(const struct serve *s)
{
    return s->offer->share->places[s->shard].manifest;
}

static bool encode_head(struct serve *s)
{
    struct tb_writer w;
    s->head_bytes = (uint32_t)tb_manifest_head_bytes(manifest_of(s));
    s->head = tb_malloc(s->head_bytes);
    if (s->head == NULL) return false;
    tb_writer_init(&w, s->head, s->head_bytes);
    tb_manifest_head_encode(manifest_of(s), &w);
    return true;
}

static void send_head_page(struct link *l, struct serve *s)
{
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

static void send_digests_page(struct link *l, struct serve *s)
{
    const struct tb_manifest *m = manifest_of(s);
    const uint32_t left = m->chunk_count - s->at;
    const uint32_t count = left < DIGESTS_PER_PAGE ? left : DIGESTS_PER_PAGE;
    const struct tb_span page = {m->digests[s->at].bytes, count * TB_DIGEST_BYTES};
    LINK_SEND(l, TB_FRAME_DIGESTS, tb_frame_digests, LINK_SMALL + page.count, .uid = s->offer->key.uid,
              .shard = s->shard, .first = s->at, .page = page);
    s->at += count;
}

/* One page further. False: all was sent, or there is no memory and the peer was told so. */
static bool serve_step(struct link *l, struct serve *s)
{
    if (!s->head_done) {
        if (s->head == NULL && !encode_head(s)) {
            link_send_gone(l, &s->offer->key.uid, TB_SITE_NOMEM);
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

void link_serves_tick(struct link *l)
{
    while (link_is_up(l) && l->serves != NULL && tb_wire_queued_bytes(l->session->wire) < LINK_QUEUE_BYTES)
        if (!serve_step(l, l->serves)) serve_free(l, l->serves);
}

static uint32_t serve_count(const struct link *l)
{
    uint32_t count = 0;
    for (const struct serve *s = l->serves; s != NULL; s = s->next)
        count += s->asked;
    return count;
}

void link_serve(struct link *l, struct offer *o, bool asked)
{
    struct serve *s = tb_calloc(1, sizeof *s);
    if (s == NULL) {
        link_send_gone(l, &o->key.uid, TB_SITE_NOMEM);
        return;
    }
    struct serve **at = &l->serves;
    while (*at != NULL)
        at = &(*at)->next;
    s->offer = o;
    s->asked = asked;
    *at = s;
    links_busy(l->links);
    link_serves_tick(l);
}

enum tb_status link_on_ask(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_ask m;
    const enum tb_status status = tb_frame_ask_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    struct offer *o = offer_find(l->links, &m.uid);
    if (o == NULL || !link_granted(l, &o->key.model)) {
        link_send_gone(l, &m.uid, TB_NOT_FOUND);
        return TB_OK;
    }
    if (!link_may_read(l, o)) {
        link_refuse_dtypes(l, o);
        return TB_OK;
    }
    if (serve_count(l) >= SERVES_MAX) return TB_PEER_GARBLED;
    link_serve(l, o, true);
    return TB_OK;
}
