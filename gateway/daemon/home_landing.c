/* home_landing.c - at home the gateway is a version's first reader: hops from the ranks that sealed into its
 * region. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/fault.h"
#include "intra/source.h"

#define HOP_RETRY_NS TB_MS(200)

/* On the fabric's thread: note and wake. */
static void hop_told(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    (void)hop;
    const struct tb_copy_hop *h = user; /* stays until tb_hop_close has returned, and so does its serial */
    struct tb_daemon *d = h->copy->d;
    pthread_mutex_lock(&d->hop_lock);
    if (d->hop_note_count < TB_HOP_NOTES_MAX) {
        d->hop_notes[d->hop_note_count++] = (struct tb_hop_note){h->serial, *event};
    } else {
        d->hop_notes_lost = true;
    }
    pthread_mutex_unlock(&d->hop_lock);
    uv_async_send(&d->hop_wake);
}

static uint32_t shard_places(struct tb_copy *copy, uint32_t shard, struct tb_hop_place *places)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        if (shard != TB_CATALOG_ALL_SHARDS && shard != s) continue;
        if (!tb_arena_place_ready(copy->region, s)) continue;
        places[count++] = (struct tb_hop_place){s, tb_arena_place(copy->region, s)};
    }
    return count;
}

static enum tb_status source_open(struct tb_copy_hop *h, struct tb_worker_session *s,
                                  const struct tb_worker_export *export, void *memory, size_t cap)
{
    struct tb_copy *copy = h->copy;
    struct tb_daemon *d = copy->d;
    const struct tb_source_shard *shards;
    uint32_t count;
    enum tb_status status =
        tb_source_decode(export->source, export->source_bytes, memory, cap, &shards, &count);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < count; i++) {
        if (shards[i].shard >= copy->key.shard_count) return TB_PEER_GARBLED;
        const struct tb_place *place = tb_arena_place(copy->region, shards[i].shard);
        if (place == NULL) continue;
        status = tb_source_check(&shards[i], place->manifest);
        if (status != TB_OK) return status;
    }
    struct tb_hop_place *places = tb_calloc(copy->key.shard_count, sizeof *places);
    if (places == NULL) return TB_SITE_NOMEM;
    struct tb_hop_options options = {.export_id = export->export_id,
                                     .token = h->token,
                                     .from = s->endpoint,
                                     .source = shards,
                                     .source_count = count,
                                     .places = places,
                                     .place_count = shard_places(copy, h->shard, places),
                                     .fn = hop_told,
                                     .user = h};
    status = tb_hop_open(d->fabric, &options, &h->hop);
    tb_free(places);
    return status;
}

/* The rank's export of the shard, while both ends are there. */
static const struct tb_worker_export *hop_source(const struct tb_copy_hop *h, struct tb_worker_session *s)
{
    if (s == NULL || s->wire == NULL || h->copy->region == NULL || h->copy->evicting) return NULL;
    return tb_session_export_find(s, &h->copy->key.uid, h->shard);
}

/* Asks the rank to let us in; its answer opens the hop. */
static void hop_start(struct tb_copy_hop *h)
{
    struct tb_daemon *d = h->copy->d;
    struct tb_worker_session *s = tb_session_find(d, &h->session);
    const struct tb_worker_export *export = hop_source(h, s);
    h->retry_at = tb_time_add(tb_clock_now(), export != NULL ? TB_GRANT_WAIT_NS : HOP_RETRY_NS);
    if (export == NULL) return;
    tb_random_bytes(&h->token, sizeof h->token);
    const struct tb_session_grant grant = {
        .export_id = export->export_id, .token = h->token, .reader = d->endpoint.fingerprint};
    TB_SESSION_SEND(s, TB_SESSION_GRANT, 0, &grant, TB_SESSION_SMALL, tb_session_grant_encode);
}

static enum tb_status hop_open(struct tb_copy_hop *h, struct tb_worker_session *s)
{
    const struct tb_worker_export *export = hop_source(h, s);
    if (export == NULL) return TB_NOT_FOUND;
    const size_t cap = tb_source_decode_bytes(export->source, export->source_bytes);
    if (cap == 0) return TB_PEER_GARBLED;
    void *memory = tb_malloc(cap);
    if (memory == NULL) return TB_SITE_NOMEM;
    h->serial = ++h->copy->d->next_hop;
    const enum tb_status status = source_open(h, s, export, memory, cap);
    tb_free(memory);
    if (status != TB_OK) h->hop = NULL;
    return status;
}

static struct tb_copy_hop *hop_of_token(struct tb_worker_session *s, const struct tb_id *token)
{
    for (struct tb_copy *c = s->d->copies; c != NULL; c = c->next) {
        for (struct tb_copy_hop *h = c->hops; h != NULL; h = h->next) {
            if (h->hop == NULL && tb_id_equal(&h->token, token) && tb_id_equal(&h->session, &s->id)) return h;
        }
    }
    return NULL;
}

void tb_landing_granted(struct tb_worker_session *s, const struct tb_id *token, enum tb_status status)
{
    struct tb_copy_hop *h = hop_of_token(s, token);
    if (h == NULL) return; /* given up meanwhile, or asked again */
    h->retry_at = tb_time_add(tb_clock_now(), HOP_RETRY_NS);
    if (status == TB_OK) status = hop_open(h, s);
    if (status == TB_OK) return;
    tb_log(TB_LOG_WARN, "landing.refused", "worker=%s shard=%u status=%s action=retry", s->name.text,
           h->shard, tb_status_name(status));
}

void tb_landing_from(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_copy *copy = tb_copy_find(d, &todo->uid);
    if (copy == NULL || copy->evicting) return;
    for (struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next) {
        if (h->shard == todo->shard && tb_id_equal(&h->session, &todo->session)) return; /* under way */
    }
    struct tb_copy_hop *h = tb_calloc(1, sizeof *h);
    if (h == NULL) return; /* no memory: other ranks' replicas and the next seal are told of again */
    *h = (struct tb_copy_hop){.next = copy->hops,
                              .copy = copy,
                              .session = todo->session,
                              .shard = todo->shard,
                              .export_id = todo->export_id};
    copy->hops = h;
    hop_start(h);
}

static void hop_close(struct tb_copy_hop *h)
{
    if (h->hop == NULL) return;
    struct tb_hop *hop = h->hop;
    struct tb_hop_stats last;
    h->hop = NULL;
    tb_hop_close_counted(hop, &last);
    h->copy->hop_wire_bytes += last.bytes_read;
}

static void hop_free(struct tb_copy_hop *h)
{
    struct tb_copy_hop **at = &h->copy->hops;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    hop_close(h);
    tb_free(h);
}

void tb_landing_end(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_copy *copy = tb_copy_find(d, &todo->uid);
    for (struct tb_copy_hop *h = copy != NULL ? copy->hops : NULL, *next; h != NULL; h = next) {
        next = h->next;
        if (h->shard == todo->shard && tb_id_equal(&h->session, &todo->session)) hop_free(h);
    }
}

void tb_landing_stop(struct tb_copy *copy)
{
    while (copy->hops != NULL)
        hop_free(copy->hops);
}

void tb_landing_retry(struct tb_copy *copy, tb_time_ns now)
{
    for (struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next) {
        if (h->hop == NULL && now >= h->retry_at) hop_start(h);
    }
}

/* Not those whose rank was just asked to let us in. */
void tb_landing_anew(struct tb_copy *copy, tb_time_ns now)
{
    for (struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next) {
        if (h->hop == NULL && h->retry_at != TB_TIME_NEVER) continue;
        hop_close(h);
        h->retry_at = now;
    }
}

static struct tb_copy_hop *hop_find(struct tb_daemon *d, uint64_t serial)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        for (struct tb_copy_hop *h = c->hops; h != NULL; h = h->next) {
            if (h->hop != NULL && h->serial == serial) return h;
        }
    }
    return NULL;
}

static const char *action_of(enum tb_status status)
{
    if (status == TB_VERSION_BROKEN) return "break_version";
    /* It holds the version without having published it: its own copy is bad, which says nothing about the version. */
    return status == TB_NOT_FOUND ? "not_read_from_it" : "read_again";
}

/* A chunk whose digest failed although its rank still had the hop open: somebody wrote to sealed bytes. */
static void chunk_bad(struct tb_copy_hop *h, const struct tb_hop_event *event)
{
    struct tb_daemon *d = h->copy->d;
    const struct tb_worker_session *s = tb_session_find(d, &h->session);
    struct tb_name rank = {.text = "gone"};
    if (s != NULL) rank = s->name;
    d->counters.chunks_bad++;
    const struct tb_id uid = h->copy->key.uid, session = h->session;
    enum tb_status status =
        tb_catalog_chunk_bad(d->catalog, tb_clock_now(), &uid, event->shard, event->chunk, &session);
    if (event->twice && status == TB_AGAIN) { /* the hop told only of the second time */
        status = tb_catalog_chunk_bad(d->catalog, tb_clock_now(), &uid, event->shard, event->chunk, &session);
    }
    tb_log(TB_LOG_WARN, "landing.chunk_bad", "rank=%s shard=%u chunk=%u times=%u action=%s", rank.text,
           event->shard, event->chunk, event->twice ? 2u : 1u, action_of(status));
}

static void hop_event(struct tb_daemon *d, const struct tb_hop_note *note)
{
    struct tb_copy_hop *h = hop_find(d, note->serial);
    if (h == NULL) return; /* closed meanwhile */
    switch (note->event.kind) {
    case TB_HOP_OPENED:
        break;
    case TB_HOP_WHOLE:
        hop_close(h);
        h->retry_at = TB_TIME_NEVER;
        break;
    case TB_HOP_CHUNK_BAD:
        chunk_bad(h, &note->event);
        break;
    case TB_HOP_LOST: {
        const struct tb_worker_session *s = tb_session_find(d, &h->session);
        d->counters.hops_lost++;
        tb_log(TB_LOG_WARN, "landing.hop_lost", "rank=%s shard=%u status=%s action=retry",
               s != NULL ? s->name.text : "gone", h->shard, tb_status_name(note->event.why));
        hop_close(h);
        break;
    }
    }
}

void tb_landing_wake(uv_async_t *async)
{
    struct tb_daemon *d = async->data;
    static struct tb_hop_note notes[TB_HOP_NOTES_MAX]; /* the main loop's alone */
    pthread_mutex_lock(&d->hop_lock);
    const uint32_t count = d->hop_note_count;
    memcpy(notes, d->hop_notes, count * sizeof notes[0]);
    d->hop_note_count = 0;
    const bool lost = d->hop_notes_lost;
    d->hop_notes_lost = false;
    pthread_mutex_unlock(&d->hop_lock);
    for (uint32_t i = 0; i < count; i++)
        hop_event(d, &notes[i]);
    for (struct tb_copy *c = lost ? d->copies : NULL; c != NULL; c = c->next) {
        for (struct tb_copy_hop *h = c->hops; h != NULL; h = h->next)
            hop_close(h); /* and tried again */
    }
    (void)tb_daemon_settle(d);
}
