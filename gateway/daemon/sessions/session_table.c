/* session_table.c - the rows of workers' sessions and of what they export: found, put and
 * dropped. A leaf: it calls no other room. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/sessions/session_hops.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

/* Ids are random. */
static struct tb_worker_session **bucket_of(struct tb_daemon *d, const struct tb_id *id)
{
    return &d->session_buckets[(id->bytes[0] | (uint32_t)id->bytes[1] << 8) % TB_SESSION_BUCKETS];
}

struct tb_worker_session *tb_worker_find(struct tb_daemon *d, const struct tb_id *id)
{
    for (struct tb_worker_session *s = *bucket_of(d, id); s != NULL; s = s->bucket_next) {
        if (s->welcomed && tb_id_equal(&s->id, id)) return s;
    }
    return NULL;
}

struct tb_worker_session *tb_worker_new(struct tb_daemon *d, bool local)
{
    struct tb_worker_session *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->d = d;
    s->local = local;
    s->since_wall_ms = tb_clock_wall_ms();
    s->next = d->sessions;
    if (s->next != NULL) s->next->previous = s;
    d->sessions = s;
    d->session_count++;
    tb_gauge_add(&d->connections, 1);
    return s;
}

/* It has its id now. */
void tb_worker_enlist(struct tb_worker_session *s)
{
    TB_ASSERT(!s->bucketed && !tb_id_is_zero(&s->id) && tb_worker_find(s->d, &s->id) == NULL);
    struct tb_worker_session **bucket = bucket_of(s->d, &s->id);
    s->bucket_next = *bucket;
    *bucket = s;
    s->bucketed = true;
    s->welcomed = true;
}

static void session_unlist(struct tb_worker_session *s)
{
    struct tb_daemon *d = s->d;
    TB_ASSERT(d->session_count > 0 && (s->previous != NULL || d->sessions == s));
    if (s->next != NULL) s->next->previous = s->previous;
    *(s->previous != NULL ? &s->previous->next : &d->sessions) = s->next;
    d->session_count--;
    d->connections.used--;
    if (!s->bucketed) return;
    struct tb_worker_session **at = bucket_of(d, &s->id);
    while (*at != s)
        at = &(*at)->bucket_next;
    *at = s->bucket_next;
}

bool tb_worker_is_loopback(const char *tcp)
{
    return tcp[0] == '\0' || strncmp(tcp, "127.", 4) == 0 || strncmp(tcp, "[::1]", 5) == 0;
}

struct tb_worker_export *tb_worker_export_find(struct tb_worker_session *s, const struct tb_id *uid,
                                               uint32_t shard)
{
    for (struct tb_worker_export *e = s->exports; e != NULL; e = e->next) {
        if (e->shard == shard && tb_id_equal(&e->uid, uid)) return e;
    }
    return NULL;
}

void tb_worker_export_drop(struct tb_worker_session *s, struct tb_worker_export **at)
{
    struct tb_worker_export *e = *at;
    TB_ASSERT(s->d->worker_exports.used > 0 && s->d->source_bytes.used >= e->source_bytes);
    *at = e->next;
    s->d->worker_exports.used--;
    s->d->source_bytes.used -= e->source_bytes;
    tb_free(e);
}

void tb_worker_exports_drop(struct tb_worker_session *s, const struct tb_id *uid, uint32_t shard)
{
    const bool all = shard == TB_CATALOG_ALL_SHARDS;
    for (struct tb_worker_export **at = &s->exports; *at != NULL;) {
        const struct tb_worker_export *e = *at;
        const bool staging = e->shard == TB_CATALOG_ALL_SHARDS;
        const bool named = !staging && tb_id_equal(&e->uid, uid) && (all || e->shard == shard);
        if (!named || (all && tb_catalog_unpublishing(s->d->catalog, &s->id, uid, e->shard)))
            at = &(*at)->next;
        else
            tb_worker_export_drop(s, at);
    }
}

static uint64_t exports_of(const struct tb_worker_session *s)
{
    uint64_t count = 0;
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
        count++;
    return count;
}

/* P7: each stands for a reference of the catalog, and its worker says how large it is. */
static bool exports_full(struct tb_worker_session *s)
{
    struct tb_daemon *d = s->d;
    return !tb_worker_session_share_room(s, &d->worker_exports, d->bounds.references, 1, exports_of);
}

/* P7: descriptors of where an export's bytes stand. One session may have a quarter of them. */
#define SOURCE_BYTES_MAX         ((uint64_t)8 * TB_MSG_FRAME_BYTES_MAX)
#define SOURCE_SESSION_BYTES_MAX ((uint64_t)2 * TB_MSG_FRAME_BYTES_MAX)

uint64_t tb_worker_sources_max(void)
{
    return SOURCE_BYTES_MAX;
}

static uint64_t sources_of(const struct tb_worker_session *s)
{
    uint64_t bytes = 0;
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
        bytes += e->source_bytes;
    return bytes;
}

static bool sources_full(struct tb_worker_session *s, const struct tb_worker_export *replaced, uint64_t bytes)
{
    struct tb_gauge *g = &s->d->source_bytes;
    const uint64_t left = replaced != NULL ? replaced->source_bytes : 0, own = sources_of(s) + bytes;
    TB_ASSERT(own >= left && g->used >= left);
    if (bytes <= left) return false;
    if (own - left > SOURCE_SESSION_BYTES_MAX) {
        g->refused++;
        g->spent++;
        return true;
    }
    return !tb_worker_session_share_room(s, g, SOURCE_BYTES_MAX, bytes - left, sources_of);
}

/* A new export of the same shard replaces the old one. */
enum tb_status tb_worker_export_put(struct tb_worker_session *s, const struct tb_worker_export *export,
                                    const struct tb_span *source)
{
    const struct tb_worker_export *known = tb_worker_export_find(s, &export->uid, export->shard);
    if (known == NULL && exports_full(s)) return TB_SITE_NOMEM;
    if (sources_full(s, known, source->count)) return TB_SITE_NOMEM;
    struct tb_worker_export *e = tb_malloc(sizeof *e + source->count);
    if (e == NULL) return TB_SITE_NOMEM;
    *e = *export;
    e->source_bytes = source->count;
    memcpy(e->source, source->bytes, source->count);
    for (struct tb_worker_export **at = &s->exports; *at != NULL; at = &(*at)->next) {
        if ((*at)->shard != export->shard || !tb_id_equal(&(*at)->uid, &export->uid)) continue;
        e->again = (*at)->again;
        tb_worker_export_drop(s, at);
        break;
    }
    tb_gauge_add(&s->d->worker_exports, 1);
    tb_gauge_add(&s->d->source_bytes, e->source_bytes);
    e->next = s->exports;
    s->exports = e;
    return TB_OK;
}

void tb_worker_free(struct tb_worker_session *s)
{
    TB_ASSERT(s->wire == NULL);
    tb_worker_session_door_end(s->d, &s->door);
    session_unlist(s);
    if (s->bucketed) tb_session_hops_left(s->d, &s->identity);
    while (s->exports != NULL)
        tb_worker_export_drop(s, &s->exports);
    for (struct tb_pending_wait *w = s->waits, *n; w != NULL; w = n) {
        n = w->next;
        tb_free(w);
    }
    for (struct tb_unpublish_wait *u = s->unpublishes, *n; u != NULL; u = n) {
        n = u->next;
        s->d->unpublish_waits.used--;
        tb_free(u);
    }
    tb_free(s);
}
