/* world_check.c - what has to hold at every step, whatever went wrong. */
#include <string.h>

#include "base/layout/version_key.h"
#include "base/log.h"
#include "gateway/catalog/catalog_check.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "wan/link/links_stats.h"
#include "world.h"
#include "world_check.h"
#include "world_clients.h"
#include "world_hostile.h"
#include "world_machine.h"
#include "world_process.h"
#include "world_versions.h"

/* P6: a SEAL is answered within 1 s of its gateway's running time, links or no links */
#define HOLD_STEPS_MAX 200u
/* P7: memory that is given up leaves within a lease time of its gateway's running time: 105 steps
 * seen, of streams that took nothing more. */
#define LEAVING_STEPS_MAX 400u
/* P7: of a gateway with 3 peers, 8 sessions, 3 streams a link. Memory outside of its connections:
 * 4.2 MB seen, of two models and with the manifests of files that are adopted. Tables of one size
 * are 1.8 MB of it: those of audit.c, persist.c, the links and the catalog. Rows for 8 peers and 62
 * models more, which a reload may add, are 1.4 MB.
 *
 * A connection holds a
 * block to send from (64 KiB), one to receive in (4 KiB) and its encoded chunks. Of each peer there
 * may be 12 attempts of ours and 12 of its own, and 3 streams each way. A peer that is not heard is
 * dialled afresh, and each attempt has 5 s. */
#define HEAP_REST       (17u << 18)
#define HEAP_CONNECTION (70u << 10)
#define CONNECTIONS_MAX (3u * (12 + 12 + 6) + 8)
#define HEAP_WORKER     (1u << 18)

/* One look at it all where all of it is held. */
static bool bytes_right(const struct tb_place *place, const struct piece *right, uint32_t *chunk_out)
{
    const uint64_t held = place->held[0];
    if (held == right->held[0] && memcmp(place->bytes, right->bytes, right->manifest.bytes) == 0) return true;
    for (uint32_t k = 0; k < right->manifest.chunk_count; k++) {
        uint32_t bytes;
        if ((held >> k & 1) == 0) continue;
        *chunk_out = k;
        const uint8_t *at = tb_place_chunk(place, k, &bytes);
        if (memcmp(at, tb_place_chunk(&right->place, k, &bytes), bytes) != 0) return false;
    }
    return true;
}

/* P1: a held chunk is what the trainer sealed, byte by byte, at every step. P3: within a life
 * what is held only grows. */
void world_check_place(const struct tb_place *place, uint32_t version, uint32_t shard, uint64_t *seen,
                       const char *where)
{
    uint32_t chunk;
    if (!bytes_right(place, &the->versions[version].shards[shard], &chunk))
        world_fail("P1: v%u chunk %u of shard %u is held at %s and wrong", version + 1, chunk, shard, where);
    if ((*seen & ~place->held[0]) != 0)
        world_fail("P3: v%u lost a held chunk at %s within a life", version + 1, where);
    *seen = place->held[0];
}

static struct worker *worker_of(struct site *s, const struct tb_id *session)
{
    for (uint32_t i = 0; i < s->worker_count; i++)
        if (tb_id_equal(&s->workers[i].c.session, session)) return &s->workers[i];
    return NULL;
}

/* P2: a group never goes back. A version that a member computed from is seen no more once that
 * member has died. */
static void not_older_than_group(const struct site *s, uint32_t version, const char *who)
{
    for (uint32_t i = 0; i < s->group_count; i++) {
        const uint32_t active = s->workers[i].active;
        if (active != NONE && world_version_compare(version, active) < 0)
            world_fail("P2: %s goes to v%u, and %s computes from v%u", who, version + 1,
                       s->workers[i].c.process->name, active + 1);
    }
}

/* P2: a group is told to go when every seat said that it has the version whole, and never back. */
void world_check_go(uint32_t site, const struct tb_id *session, uint32_t version)
{
    struct site *s = &the->sites[site];
    const struct worker *k = worker_of(s, session);
    if (k == NULL || version == NONE) return;
    if (k->solo) {
        if (((k->said_whole | k->lied) >> version & 1) == 0)
            world_fail("P2: %s may go to v%u, which it has not", k->c.process->name, version + 1);
        return;
    }
    for (uint32_t i = 0; i < s->group_count; i++)
        if ((s->workers[i].said_whole >> version & 1) == 0)
            world_fail("P2: %s may go to v%u, which %s has not", k->c.process->name, version + 1,
                       s->workers[i].c.process->name);
    not_older_than_group(s, version, k->c.process->name);
}

/* P2: a worker computes from one whole version, right in every byte, and
 * never older than before. */
void world_check_active(struct worker *k, uint32_t version)
{
    const struct staged *st = k->staged;
    while (st != NULL && st->version != version)
        st = st->next;
    for (uint32_t i = 0; i < the->shard_count; i++) {
        const struct piece *right = &the->versions[version].shards[i];
        if (st == NULL || st->bytes[i] == NULL || st->held[i] != right->held[0] ||
            memcmp(st->bytes[i], right->bytes, right->manifest.bytes) != 0)
            world_fail("P2: %s switches to a mix of v%u", k->c.process->name, version + 1);
    }
    if (k->active != NONE && world_version_compare(version, k->active) < 0)
        world_fail("P2: %s goes back from v%u to v%u", k->c.process->name, k->active + 1, version + 1);
    if (k->solo) return;
    not_older_than_group(&the->sites[k->site], version, k->c.process->name);
}

/* A worker that stood still for longer than its lease is gone for its gateway, whatever it
 * holds. A gateway that recovers waits for all. */
static bool has_lease(const struct site *s, const struct client *c)
{
    struct tb_catalog_session_view view;
    const struct tb_catalog *catalog = s->daemon != NULL ? s->daemon->catalog : NULL;
    return catalog == NULL || tb_catalog_recovering(catalog) ||
           tb_catalog_session_get(catalog, &c->session, &view);
}

static uint64_t held_by_workers(const struct site *s, uint32_t version, uint32_t shard)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < s->worker_count; i++) {
        if (!has_lease(s, &s->workers[i].c)) continue;
        for (const struct staged *st = s->workers[i].staged; st != NULL; st = st->next)
            held |= st->version == version ? st->held[shard] : 0;
    }
    return held;
}

/* A link may be up in name, and its path be dead or an end of it have stood still:
 * so nothing was said. */
static bool talked(uint32_t a, uint32_t b)
{
    const struct path *there = &the->paths[a][b], *back = &the->paths[b][a];
    const tb_time_ns until[] = {there->blocked_until,
                                there->clogged_until,
                                back->blocked_until,
                                back->clogged_until,
                                the->sites[a].gateway->paused_until,
                                the->sites[b].gateway->paused_until};
    for (size_t i = 0; i < sizeof until / sizeof until[0]; i++)
        if (tb_time_since(until[i], the->now) <= TB_MS(the->sites[a].config.session_lease_ms)) return false;
    return true;
}

/* How long it may take after a link came up until the first chunk that its peer alone has is here:
 * the peer has the session, tells what it holds, is asked and sends. */
static tb_time_ns first_chunk_after(uint32_t site, uint32_t of)
{
    return 2 * (the->paths[site][of].slowest + the->paths[of][site].slowest);
}

/* Of sites whose link has been up for so long: of others a gateway cannot know what they hold. Home
 * gives what it asks for as the link comes up one lease time: 2 s here, where a path may take half
 * a second, so that alone is too little. */
static bool hears(uint32_t site, uint32_t of)
{
    static struct tb_links_stats stats;
    const struct tb_daemon *d = the->sites[site].daemon;
    if (d == NULL || d->links == NULL || d->links_restarting) return false;
    tb_links_stats(d->links, tb_links_peer_find(d->links, the->sites[of].name.text), &stats);
    return stats.up && talked(site, of) &&
           tb_time_since(stats.up_since, the->now) >
               TB_MS(the->sites[site].config.session_lease_ms) + first_chunk_after(site, of);
}

/* Bytes that are being given up stay until no stream touches them, and count until `site` can know:
 * the GONE is here, or its session is younger, so that it never heard of them. Seen: home hears the
 * GONE of the last copy, and calls the version lost 5 ms before the bytes go. P3 is broken where
 * home says so and no GONE came. */
static bool said_gone(uint32_t site, uint32_t of, uint32_t version)
{
    static struct tb_links_stats stats;
    const struct tb_daemon *d = the->sites[site].daemon;
    const tb_time_ns since = the->sites[of].leaving[version].since,
                     gone_at = the->paths[of][site].gone_at[version];
    if (since == 0) return false;
    if (gone_at >= since && gone_at <= the->now) return true;
    tb_links_stats(d->links, tb_links_peer_find(d->links, the->sites[of].name.text), &stats);
    return stats.up_since > since;
}

/* A copy that came to another site less than a lease time ago (from files, say) need not be
 * known here. A chunk that lands here in the very step in which home's patience ends comes too
 * late: the threads have not told the catalog of it. */
static uint64_t heard_held(uint32_t site, uint32_t of, uint32_t version, uint32_t shard)
{
    const struct arena_file *arena = &the->sites[of].arena;
    if (site == of) return world_arena_held_for(arena, version, shard, STEP);
    if (of == the->hostile || of == the->twin_of) return 0; /* whatever is heard of them */
    if (!hears(site, of) || said_gone(site, of, version)) return 0;
    return world_arena_held_for(arena, version, shard, TB_MS(the->sites[site].config.session_lease_ms));
}

/* Home takes a version that it called lost from no trainer that comes back: other sites may hear
 * of it after that. */
static bool refused_at_home(uint32_t site, const struct version *made)
{
    return site != made->model && (made->lost_at >> made->model & 1) != 0;
}

/* P3: home gives up what its disk calls open. Where its arena has all of what was
 * kept, it knows better. */
static void not_whole_at_home(uint32_t site, uint32_t version)
{
    const struct version *made = &the->versions[version];
    bool whole = site == made->model && made->kept_once;
    for (uint32_t i = 0; i < made->shard_count; i++)
        whole = whole && world_arena_held(&the->sites[site].arena, version, i) == made->shards[i].held[0];
    if (whole)
        world_fail("P3: v%u is given up at %s, which holds it", version + 1, the->sites[site].name.text);
}

/* A version is lost only when nobody that is heard of holds some chunk: no gateway, no worker of
 * that site, not the trainer. One that was never ready, as this site's disk has it, may fail
 * before. And nobody here writes to sealed bytes, so none is broken. */
void world_check_ended(uint32_t site, const struct tb_store_version *v, uint32_t before)
{
    const uint32_t version = world_version_find(&v->key.uid);
    if (version == NONE) return;
    if (v->state == TB_VERSION_KEPT) the->versions[version].kept_once = true;
    if (v->state == TB_VERSION_ENDED_WITHDRAWN) world_fail("v%u is withdrawn, by nobody", version + 1);
    if (v->state == TB_VERSION_ENDED_BROKEN) world_fail("v%u is called broken", version + 1);
    if (v->state == TB_VERSION_ENDED_ABANDONED) not_whole_at_home(site, version);
    if (v->state != TB_VERSION_ENDED_LOST || (the->versions[version].lost_at >> site & 1) != 0) return;
    the->versions[version].lost_at |= 1u << site;
    const struct version *made = &the->versions[version];
    const bool ready = made->kept_once || before == TB_VERSION_READY || before == TB_VERSION_KEPT;
    bool there = true;
    for (uint32_t i = 0; i < made->shard_count; i++) {
        uint64_t held = held_by_workers(&the->sites[site], version, i);
        for (uint32_t s = 0; s < the->site_count; s++)
            held |= heard_held(site, s, version, i);
        if (world_trainer_holds(version) && !refused_at_home(site, made) &&
            has_lease(&the->sites[made->model], &the->trainers[made->model].c))
            held = made->shards[i].held[0];
        there &= held == made->shards[i].held[0];
    }
    if (there && ready)
        world_fail("v%u is called lost at %s, and every chunk of it is held", version + 1,
                   the->sites[site].name.text);
}

/* A rank has its memory back: what retention needs of its version is elsewhere, all of it. (Who was
 * lost, and what rotted, is heard of a while later.) */
void world_check_unpublished(uint32_t site, const struct tb_id *uid)
{
    struct tb_catalog_version_view view;
    const uint32_t version = world_version_find(uid);
    if (version != NONE) world_trainer_released(version);
    const bool lives = version != NONE &&
                       tb_catalog_version_get(the->sites[site].daemon->catalog, uid, &view) &&
                       (view.state == TB_VERSION_READY || view.state == TB_VERSION_KEPT);
    if (!lives || !view.head || tb_time_since(the->forgot_at, the->now) < TB_SECONDS(4)) return;
    for (uint32_t i = 0; i < the->shard_count; i++) {
        uint64_t held = held_by_workers(&the->sites[site], version, i);
        for (uint32_t s = 0; s < the->site_count; s++)
            held |= s == the->hostile ? 0 : world_arena_held(&the->sites[s].arena, version, i);
        if (held != world_version_all(version, i))
            world_fail("v%u is unpublished, and some chunk of it is held by nobody else", version + 1);
    }
}

static void let_go(const struct tb_catalog *c, const struct trainer *t)
{
    struct tb_catalog_session_view session;
    struct tb_catalog_version_view view;
    struct tb_catalog_reference_view r;
    if (t->unpublish_id == 0 || !tb_catalog_session_get(c, &t->c.session, &session)) return;
    const struct tb_id *uid = &the->versions[t->unpublishing].key.uid;
    if (!tb_catalog_version_get(c, uid, &view) || tb_catalog_state_status(view.state) != TB_OK) return;
    bool asked = false;
    for (uint32_t at = 0; tb_catalog_reference_at(c, &at, &r);)
        if (r.kind == TB_REFERENCE_PUBLISHER && tb_id_equal(&r.uid, uid)) return;
    for (uint32_t s = 0; s < the->shard_count; s++)
        asked = asked || tb_catalog_unpublishing(c, &t->c.session, uid, s);
    if (asked) world_trainer_released(t->unpublishing);
}

/* The catalog ends a rank's reference at once, and says so when the disk has what that rests on.
 * A chunk that rots between the two is not with the rank any more. In the same step a version
 * may go that retention has no use for, of which home lacks a chunk: it is lost by that. A
 * version that is called lost takes its references along after that: it lets go of nothing. */
void world_check_let_go(const struct tb_catalog *c)
{
    for (uint32_t m = 0; m < the->model_count; m++) {
        const struct tb_daemon *d = the->sites[m].daemon;
        if (d != NULL && d->catalog == c) let_go(c, &the->trainers[m]);
    }
}

/* P7: nothing stays in the table of versions that nobody holds, waits for or has to be told of. */
void world_check_rows(const struct tb_catalog *c)
{
    struct tb_id uid;
    if (!tb_catalog_reasons(c, &uid))
        world_fail("P7: v%u has a row and no reason for it", world_version_find(&uid) + 1);
}

/* Hold never waits for a link: a SEAL is answered by its gateway alone, however the links are. */
void world_check_hold(struct trainer *t)
{
    const struct site *home = &the->sites[t->model];
    if (t->seal_id == 0) {
        t->hold_steps = 0;
        return;
    }
    /* A catalog that recovers evicts nothing: with a full arena that, and no link, is waited
     * for. */
    if (world_process_runs(home->gateway) && !tb_catalog_recovering(home->daemon->catalog)) t->hold_steps++;
    if (t->hold_steps > HOLD_STEPS_MAX)
        world_fail("P6: the trainer's SEAL of v%u was not answered in 1 s", t->making + 1);
}

/* P7: heaps, the arena, what connections hold. */
static void check_gateway_memory(const struct process *p)
{
    if (p->heap_bytes <= HEAP_REST) return; /* so many connections would be more */
    const uint32_t count = world_chan_count(p);
    if (count > CONNECTIONS_MAX) world_fail("P7: %s has %u connections", p->name, count);
    if (p->heap_bytes > HEAP_REST + (size_t)count * HEAP_CONNECTION)
        world_fail("P7: the heap of %s is %zu bytes, with %u connections", p->name, p->heap_bytes, count);
}

void world_check_memory(void)
{
    for (uint32_t i = 0; i < the->process_count; i++) {
        const struct process *p = &the->processes[i];
        if (p->kind == PROCESS_GATEWAY)
            check_gateway_memory(p);
        else if (p->heap_bytes > HEAP_WORKER)
            world_fail("P7: the heap of %s is %zu bytes", p->name, p->heap_bytes);
    }
}

/* ---- what leaves an arena ---- */

static bool others_ever_had(uint32_t site, uint32_t version)
{
    bool had = (the->versions[version].whole_at & ~(1u << site)) != 0;
    for (uint32_t s = 0; s < the->site_count; s++)
        for (uint32_t k = 0; k < the->sites[s].worker_count; k++)
            had |= (the->sites[s].workers[k].said_whole >> version & 1) != 0;
    return had;
}

/* One that goes in the same breath, as others have it, still counts. */
static uint32_t newer_whole(uint32_t site, const struct tb_version_key *key)
{
    uint32_t count = 0;
    struct tb_catalog_version_view v;
    for (uint32_t at = 0; tb_catalog_version_at(the->sites[site].daemon->catalog, &at, &v);) {
        const uint32_t version = world_version_find(&v.key.uid);
        if (version == NONE || !tb_name_equal(&v.key.model, &key->model) || !v.whole) continue;
        if (tb_catalog_state_status(v.state) != TB_OK || tb_version_key_compare(&v.key, key) <= 0) continue;
        count += !v.evicting || others_ever_had(site, version);
    }
    return count;
}

/* P3: of the newest `keep` that are whole at a gateway none goes while nobody else ever had all of
 * it. */
static void check_evicted(uint32_t site, const struct tb_copy *c)
{
    struct tb_catalog_version_view v;
    const struct tb_catalog *catalog = the->sites[site].daemon->catalog;
    const uint32_t version = world_version_find(&c->key.uid);
    if (version == NONE || !tb_catalog_version_get(catalog, &c->key.uid, &v) || !v.whole) return;
    if (tb_catalog_state_status(v.state) != TB_OK || others_ever_had(site, version)) return;
    if (newer_whole(site, &c->key) < the->keep)
        world_fail("P3: v%u leaves %s, and nobody else ever had all of it", version + 1,
                   the->sites[site].name.text);
}

static void look_at_leaving(struct site *s)
{
    bool leaves[VERSIONS_MAX] = {false};
    for (const struct tb_copy *c = s->daemon != NULL ? s->daemon->copies : NULL; c != NULL; c = c->next) {
        const uint32_t version = world_version_find(&c->key.uid);
        if (version != NONE && tb_copy_leaves(c)) leaves[version] = true;
    }
    for (uint32_t v = 0; v < the->version_count; v++) {
        struct leaving *l = &s->leaving[v];
        if (!leaves[v]) *l = (struct leaving){0};
        if (!leaves[v]) continue;
        if (l->since == 0) l->since = the->now;
        l->steps += world_process_runs(s->gateway);
        if (l->steps > LEAVING_STEPS_MAX) world_fail("P7: v%u does not leave %s", v + 1, s->name.text);
    }
}

/* The one that the line is about still has its export. */
static void check_evictions(uint32_t site)
{
    const struct tb_daemon *d = the->sites[site].daemon; /* NULL: it starts */
    for (const struct tb_copy *c = d != NULL ? d->copies : NULL; c != NULL; c = c->next)
        if (tb_copy_leaves(c) && c->export_id != 0) check_evicted(site, c);
    look_at_leaving(&the->sites[site]);
}

void world_check_leaving(void)
{
    for (uint32_t i = 0; i < the->site_count; i++)
        look_at_leaving(&the->sites[i]);
}

/* Nobody here speaks wrongly, and TLS lets no byte be changed: a party that is called garbled is
 * wronged (P4). */
void world_check_log(enum tb_log_level level, const char *event, const char *line)
{
    static const char *const never[] = {"link.garbled",       "session.garbled",   "link.conflict",
                                        "copy.root_conflict", "link.home_differs", "session.denied",
                                        "link.denied"};
    (void)level;
    if (strcmp(event, "copy.evict") == 0) check_evictions(the->current->site);
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        if (strncmp(event, never[i], strlen(never[i])) == 0 && !world_is_about_liar(line))
            world_fail("P4: %s", line);
}

static bool converged(uint32_t model)
{
    const uint32_t last = world_version_last(model);
    if (!the->trainers[model].last_made || the->trainers[model].making != NONE) return false;
    for (uint32_t i = 0; i < the->site_count; i++) {
        const struct site *s = &the->sites[i];
        if (i == the->hostile || (the->twin_stays && i == the->twin_of)) continue;
        for (uint32_t k = 0; k < the->shard_count; k++)
            if (world_arena_held(&s->arena, last, k) != world_version_all(last, k)) return false;
        for (uint32_t k = 0; k < s->worker_count; k++)
            if (s->workers[k].model == model && s->workers[k].active != last) return false;
    }
    return true;
}

/* P6: every honest gateway holds the last version of every model, every worker computes
 * from its model's. */
bool world_converged(void)
{
    bool all = true;
    for (uint32_t m = 0; m < the->model_count; m++)
        all = all && converged(m);
    return all;
}
