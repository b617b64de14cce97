/* world_links.c - links between sites: sessions that die and come back, messages, streams of chunks. */
#include <string.h>

#include "base/assert.h"
#include "world.h"

struct link *world_link(struct world *w, uint32_t a, uint32_t b)
{
    return a < b ? &w->links[a][b] : &w->links[b][a];
}

/* Over one connection messages keep their order: a delay is the link's, drawn when it came up. */
static struct event *send(struct world *w, enum event_kind kind, uint32_t from, uint32_t to, uint32_t version)
{
    const struct link *l = world_link(w, from, to);
    TB_ASSERT(w->event_count < EVENTS_MAX);
    struct event *e = &w->events[w->event_count++];
    *e = (struct event){.at = w->now + l->delay,
                        .order = w->orders++,
                        .kind = kind,
                        .from = from,
                        .to = to,
                        .version = version,
                        .epoch = l->epoch};
    return e;
}

void world_announce(struct world *w, uint32_t from, uint32_t version)
{
    for (uint32_t to = 0; to < w->site_count; to++)
        if (to != from && world_link(w, from, to)->up) (void)send(w, VERSION_TOLD, from, to, version);
}

void world_gone(struct world *w, uint32_t from, uint32_t version)
{
    for (uint32_t to = 0; to < w->site_count; to++) {
        if (to == from) continue;
        w->crossings[from][to][version].out = false;
        w->crossings[to][from][version].in = false;
        w->crossings[to][from][version].acked = 0; /* the version left as a whole */
        if (world_link(w, from, to)->up) (void)send(w, GONE_TOLD, from, to, version);
    }
}

static void land_from(struct world *w, uint32_t to, uint32_t from, uint32_t version);

void world_ask(struct world *w, uint32_t to, const struct tb_catalog_todo *todo)
{
    const uint32_t version = world_version_find(w, &todo->uid);
    for (uint32_t i = 0; i < todo->from_count; i++) {
        uint32_t from = 0;
        while (from < w->site_count && !tb_name_equal(&w->sites[from].name, &todo->from[i]))
            from++;
        if (from == w->site_count || !world_link(w, from, to)->up) continue;
        if (w->sites[to].copies[version].there) {
            (void)!tb_catalog_crossing_begun(w->sites[to].catalog, w->now, &todo->uid);
            land_from(w, to, from, version);
        } else {
            (void)send(w, ASK, to, from, version);
        }
        return;
    }
    (void)!tb_catalog_crossing_refused(w->sites[to].catalog, w->now, &todo->uid);
}

static void tell_held(struct world *w, uint32_t to, uint32_t from, uint32_t version)
{
    struct crossing *c = &w->crossings[from][to][version];
    struct tb_held_word word;
    uint32_t shard;
    while (tb_landing_differences(&c->landing, &shard, &word, 1) > 0) {
        send(w, HELD, to, from, version)->word = word;
        tb_landing_told(&c->landing, w->now);
        if (!w->on[FAULT_DUPLICATE] || !world_chance(w, 300)) continue;
        send(w, HELD, to, from, version)->word = word;
        w->struck[FAULT_DUPLICATE]++;
    }
}

static void land_from(struct world *w, uint32_t to, uint32_t from, uint32_t version)
{
    struct crossing *c = &w->crossings[from][to][version];
    struct store *s = &w->sites[to].copies[version];
    if (c->in || !world_link(w, from, to)->up) return;
    c->in = true;
    tb_landing_init(&c->landing, &s->place, 1, c->in_memory);
    (void)send(w, WANT, to, from, version);
    tell_held(w, to, from, version);
    (void)send(w, START, to, from, version);
    world_say(w, "%s > wants v%u from %s, holds %u", w->sites[to].name.text, version + 1,
              w->sites[from].name.text, tb_place_held_count(&s->place));
}

static void reserve(struct world *w, uint32_t to, uint32_t from, uint32_t version)
{
    struct site *s = &w->sites[to];
    const struct version *v = &w->versions[version];
    const struct tb_catalog_shard info = {v->manifest.root, v->manifest.layout.id, v->manifest.chunk_count,
                                          v->manifest.bytes};
    if (!s->copies[version].there) world_store_init(w, &s->copies[version], version);
    (void)!tb_catalog_arena_shard(s->catalog, w->now, &v->key.uid, 0, &info);
    (void)!tb_catalog_arena_reserved(s->catalog, w->now, &v->key.uid);
    (void)!tb_catalog_crossing_begun(s->catalog, w->now, &v->key.uid);
    world_announce(w, to, version); /* a relay offers it before the first chunk is here */
    land_from(w, to, from, version);
}

static void want(struct world *w, const struct event *e)
{
    struct crossing *c = &w->crossings[e->to][e->from][e->version];
    struct store *s = &w->sites[e->to].copies[e->version];
    if (!s->there) {
        (void)send(w, GONE_TOLD, e->to, e->from, e->version);
        return;
    }
    c->out = true;
    c->epoch = e->epoch;
    memset(c->stream_busy, 0, sizeof c->stream_busy);
    tb_crossing_init(&c->core, &s->place, 1, c->out_memory);
}

static void take_held(struct world *w, const struct event *e)
{
    struct crossing *c = &w->crossings[e->to][e->from][e->version];
    uint8_t bytes[TB_HELD_WORD_BYTES];
    struct tb_writer writer;
    if (!c->out) return;
    tb_writer_init(&writer, bytes, sizeof bytes);
    tb_held_words_encode(&e->word, 1, &writer);
    const struct tb_span span = {bytes, sizeof bytes};
    if (tb_crossing_held(&c->core, 0, &span) != TB_OK) world_fail(w, "P4: a HELD was refused");
    c->acked |= e->word.word;
    const struct tb_catalog_site_progress p = {.site = w->sites[e->from].name,
                                               .uid = w->versions[e->version].key.uid,
                                               .held_chunks = (uint32_t)c->core.peer_held,
                                               .whole = tb_crossing_whole(&c->core)};
    (void)!tb_catalog_site_progress(w->sites[e->to].catalog, w->now, &p);
    if (p.whole) c->out = false;
}

static void take_chunk(struct world *w, const struct event *e)
{
    struct crossing *c = &w->crossings[e->from][e->to][e->version];
    struct store *to = &w->sites[e->to].copies[e->version];
    const struct store *from = &w->sites[e->from].copies[e->version];
    uint32_t bytes;
    if (!c->in || e->life != c->stream_life[e->slot] || !to->there || !from->there) return;
    if (!tb_place_claim(&to->place, e->chunk)) return;
    uint8_t *at = tb_place_chunk(&to->place, e->chunk, &bytes);
    memcpy(at, tb_place_chunk(&from->place, e->chunk, &bytes), bytes);
    if (e->garbled) at[0] ^= 1;
    if (tb_place_finish(&to->place, e->chunk) == TB_OK) return;
    c->stream_life[e->slot]++; /* the stream brought rot: it is closed, and what it brought is told first */
    tell_held(w, e->to, e->from, e->version);
    send(w, STREAM_GONE, e->to, e->from, e->version)->slot = e->slot;
}

static void stream_end(struct world *w, const struct event *e)
{
    struct crossing *c = &w->crossings[e->from][e->to][e->version];
    if (!c->in || e->life != c->stream_life[e->slot]) return;
    c->stream_life[e->slot]++;
    tell_held(w, e->to, e->from, e->version);
    send(w, STREAM_GONE, e->to, e->from, e->version)->slot = e->slot;
}

static void version_told(struct world *w, const struct event *e)
{
    struct site *s = &w->sites[e->to];
    const struct tb_version_key *key = &w->versions[e->version].key;
    const enum tb_catalog_state state = e->kind == GONE_TOLD ? TB_VERSION_RETIRED : TB_VERSION_READY;
    const enum tb_status status =
        tb_catalog_remote_version(s->catalog, w->now, &w->sites[e->from].name, key, state);
    if (status != TB_OK && status != TB_DONE_BEFORE)
        world_say(w, "%s > %s", s->name.text, tb_status_name(status));
    if (e->kind == GONE_TOLD) {
        w->crossings[e->from][e->to][e->version].in = false;
        return;
    }
    struct store *copy = &s->copies[e->version];
    if (e->to != 0 && copy->there && !tb_place_whole(&copy->place)) land_from(w, e->to, e->from, e->version);
}

static void happen(struct world *w, const struct event *e)
{
    struct crossing *out = &w->crossings[e->to][e->from][e->version];
    switch (e->kind) {
    case VERSION_TOLD:
    case GONE_TOLD:
        version_told(w, e);
        break;
    case ASK:
        (void)send(w, w->sites[e->to].copies[e->version].there ? MANIFEST : GONE_TOLD, e->to, e->from,
                   e->version);
        break;
    case MANIFEST:
        reserve(w, e->to, e->from, e->version);
        break;
    case WANT:
        want(w, e);
        break;
    case HELD:
        take_held(w, e);
        break;
    case START:
        if (out->out && tb_crossing_start(&out->core) != TB_OK) world_fail(w, "P4: START was refused");
        break;
    case CHUNK:
        take_chunk(w, e);
        break;
    case CHUNK_END:
        stream_end(w, e);
        break;
    case STREAM_GONE:
        out->stream_busy[e->slot] = false;
        if (out->out) (void)tb_crossing_stream_gone(&out->core, e->slot);
        break;
    }
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void world_events_run(struct world *w)
{
    for (;;) {
        uint32_t first = UINT32_MAX;
        for (uint32_t i = 0; i < w->event_count; i++) {
            if (w->events[i].at > w->now) continue;
            if (first == UINT32_MAX || before(&w->events[i], &w->events[first])) first = i;
        }
        if (first == UINT32_MAX) return;
        const struct event e = w->events[first];
        w->events[first] = w->events[--w->event_count];
        if (e.epoch != world_link(w, e.from, e.to)->epoch) continue; /* its connection died */
        happen(w, &e);
        world_settle(w, &w->sites[e.to]);
    }
}

/* A parcel is a stream's until its last chunk is read; chunks arrive one after another. */
static void send_parcel(struct world *w, uint32_t from, uint32_t to, uint32_t version, uint32_t slot)
{
    struct crossing *c = &w->crossings[from][to][version];
    struct tb_parcel p;
    if (!tb_crossing_next(&c->core, &p)) return;
    tb_crossing_taken(&c->core, &p, slot);
    c->stream_busy[slot] = true;
    const bool dies = w->on[FAULT_STREAM] && world_chance(w, 200);
    const uint32_t count = dies ? (uint32_t)world_random(w, p.count + 1) : p.count;
    w->struck[FAULT_STREAM] += dies;
    for (uint32_t i = 0; i < p.count; i++) {
        if ((c->acked >> (p.first + i) & 1) != 0)
            world_fail(w, "P5: v%u chunk %u again", version + 1, p.first + i);
        if (i >= count) continue;
        struct event *e = send(w, CHUNK, from, to, version);
        e->at += i * TB_MS(2);
        e->chunk = p.first + i;
        e->slot = slot;
        e->life = c->stream_life[slot];
        e->garbled = w->on[FAULT_CORRUPT] && world_chance(w, 50);
        w->struck[FAULT_CORRUPT] += e->garbled;
    }
    struct event *end = send(w, CHUNK_END, from, to, version);
    end->at += count * TB_MS(2);
    end->slot = slot;
    end->life = c->stream_life[slot];
}

static void way_step(struct world *w, uint32_t from, uint32_t to)
{
    for (uint32_t v = 0; v < w->published; v++) {
        struct crossing *c = &w->crossings[from][to][v];
        for (uint32_t slot = 0; c->out && c->core.started && slot < STREAMS; slot++)
            if (!c->stream_busy[slot]) send_parcel(w, from, to, v, slot);
        if (c->in && tb_landing_due(&c->landing, w->now)) tell_held(w, to, from, v);
    }
}

static void session_end(struct world *w, uint32_t a, uint32_t b)
{
    for (uint32_t v = 0; v < VERSIONS_MAX; v++) {
        w->crossings[a][b][v].in = w->crossings[a][b][v].out = false;
        w->crossings[b][a][v].in = w->crossings[b][a][v].out = false;
    }
}

static void link_turn(struct world *w, uint32_t a, uint32_t b)
{
    struct link *l = world_link(w, a, b);
    l->up = !l->up;
    l->epoch++;
    session_end(w, a, b);
    const uint32_t most_ms = w->on[FAULT_DELAY] ? 300 : 20;
    l->delay = TB_MS(1 + world_random(w, most_ms));
    w->struck[FAULT_DELAY] += l->up && l->delay > TB_MS(20);
    world_say(w, "%s - %s %s", w->sites[a].name.text, w->sites[b].name.text, l->up ? "up" : "cut");
    const uint32_t ends[2][2] = {{a, b}, {b, a}};
    for (uint32_t i = 0; i < 2; i++) {
        struct site *s = &w->sites[ends[i][0]];
        (void)!tb_catalog_site_up(s->catalog, w->now, &w->sites[ends[i][1]].name, l->up);
        for (uint32_t v = 0; l->up && v < w->published; v++)
            if (s->copies[v].there && w->versions[v].ready)
                (void)send(w, VERSION_TOLD, ends[i][0], ends[i][1], v);
        world_settle(w, s);
    }
}

void world_links_step(struct world *w)
{
    for (uint32_t a = 0; a < w->site_count; a++) {
        for (uint32_t b = a + 1; b < w->site_count; b++) {
            struct link *l = &w->links[a][b];
            if (!l->up && w->now >= l->back_at) {
                link_turn(w, a, b);
            } else if (l->up && w->on[FAULT_CUT] && world_chance(w, 3)) {
                w->struck[FAULT_CUT]++;
                l->back_at = w->now + TB_MS(10 + world_random(w, 1500));
                link_turn(w, a, b);
            }
            way_step(w, a, b);
            way_step(w, b, a);
        }
    }
}
