/* crossings.c - versions between sites: what the links tell the catalog, and what is asked of the links. */
#include "gateway/daemon/daemon.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/rights.h"

/* ---- asking and landing ---- */

static bool source_listed(const struct tb_copy *copy, const char *site)
{
    for (uint32_t i = 0; i < copy->from_count; i++) {
        if (strcmp(copy->from[i].text, site) == 0) return true;
    }
    return copy->from_count == 0; /* any that has it */
}

static const char *peer_site(const struct tb_daemon *d, uint32_t peer)
{
    return d->config->peers[peer].site.text;
}

static void land_from(struct tb_copy *copy, uint32_t peer)
{
    struct tb_daemon *d = copy->d;
    struct tb_place *places = tb_calloc(copy->key.shard_count, sizeof *places);
    if (places == NULL) return; /* the next announcement tries again */
    for (uint32_t s = 0; s < copy->key.shard_count; s++)
        places[s] = *tb_arena_place(copy->region, s);
    const enum tb_status status = tb_links_land(d->links, peer, &copy->key, places);
    tb_free(places);
    if (status == TB_OK || status == TB_DONE_BEFORE) return;
    tb_log(TB_LOG_WARN, "crossing.land_refused", "peer=%s model=%s number=%llu status=%s", peer_site(d, peer),
           copy->key.model.text, (unsigned long long)copy->key.number, tb_status_name(status));
}

/* Manifests first; TB_NOT_FOUND: that peer has not announced it in this session. */
static enum tb_status ask_from(struct tb_copy *copy, uint32_t peer)
{
    const enum tb_status status = tb_links_ask(copy->d->links, peer, &copy->key.uid);
    if (status != TB_OK && status != TB_DONE_BEFORE) return status;
    copy->asked = true;
    if (copy->asked_at == 0) copy->asked_at = tb_clock_now();
    return TB_OK;
}

static enum tb_status ask_in_order(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    enum tb_status status = TB_NOT_FOUND;
    for (uint32_t i = 0; i < copy->from_count && status != TB_OK; i++) {
        const uint32_t peer = tb_links_peer_find(d->links, copy->from[i].text);
        if (peer != UINT32_MAX) status = ask_from(copy, peer);
    }
    return status;
}

/* From every source that is up, at once: the links divide the chunks among them. */
static void land_from_all(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    uint32_t last = UINT32_MAX;
    bool any = false;
    for (uint32_t i = 0; i < copy->from_count; i++) {
        const uint32_t peer = tb_links_peer_find(d->links, copy->from[i].text);
        static struct tb_links_stats stats; /* large; the main loop's alone */
        if (peer == UINT32_MAX) continue;
        last = peer;
        tb_links_stats(d->links, peer, &stats);
        if (!stats.up) continue;
        land_from(copy, peer);
        any = true;
    }
    if (!any && last != UINT32_MAX) land_from(copy, last);
}

/* P10: it is tried again each second, and told of once for each reason in a row. */
static void crossing_refused(struct tb_copy *copy, enum tb_status why)
{
    copy->asked = false;
    copy->crossing = false;
    if (why != copy->refused_told)
        tb_log(TB_LOG_WARN, "crossing.refused", "model=%s number=%llu status=%s action=retry",
               copy->key.model.text, (unsigned long long)copy->key.number, tb_status_name(why));
    copy->refused_told = why;
    TB_MOOT(tb_catalog_crossing_refused(copy->d->catalog, tb_clock_now(), &copy->key.uid));
}

/* To ask again would bring the same, in this life. */
static void crossing_hopeless(struct tb_copy *copy)
{
    copy->asked = copy->crossing = false;
    TB_MOOT(tb_catalog_crossing_hopeless(copy->d->catalog, tb_clock_now(), &copy->key.uid));
}

static void paused(void *user)
{
    (void)user; /* the places stay */
}

void tb_crossing_pause(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    if (d->links != NULL && !d->links_restarting) {
        copy->link_wire_bytes += tb_links_landed_bytes(d->links, &copy->key.uid);
        TB_MOOT(tb_links_land_stop(d->links, &copy->key.uid, paused, NULL));
    }
    copy->asked = copy->crossing = false;
    TB_MOOT(tb_catalog_crossing_refused(d->catalog, tb_clock_now(), &copy->key.uid));
}

void tb_cross_start(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    if (tb_adopt_holds(d, &todo->key)) { /* it comes out again */
        TB_MOOT(tb_catalog_crossing_refused(d->catalog, tb_clock_now(), &todo->key.uid));
        return;
    }
    struct tb_copy *copy = tb_copy_get(d, &todo->key);
    if (copy == NULL || copy->evicting || d->links == NULL || d->links_restarting) {
        TB_MOOT(tb_catalog_crossing_refused(d->catalog, tb_clock_now(), &todo->key.uid));
        return;
    }
    copy->crossing = true;
    copy->ready = true;
    copy->from_count = todo->from_count;
    memcpy(copy->from, todo->from, sizeof copy->from);
    if (copy->region != NULL &&
        tb_arena_region_complete(copy->region)) { /* begun in an earlier life of this process */
        TB_MOOT(tb_catalog_crossing_begun(d->catalog, tb_clock_now(), &copy->key.uid));
        land_from_all(copy);
        return;
    }
    const enum tb_status status = ask_in_order(copy);
    if (status != TB_OK) crossing_refused(copy, status);
}

/* ---- reserving ---- */

static uint64_t manifests_bytes(const struct tb_version_key *key, const struct tb_manifest *manifests)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < key->shard_count; s++)
        bytes += manifests[s].bytes;
    return bytes;
}

/* What the arena said of a version that has no place there. */
struct no_room {
    const char *why, *action;
    uint64_t needed_bytes;
    struct tb_catalog_room room;
};

/* P10: counted each time, told when something of it is another than it was. */
static void tell_no_room(struct tb_copy *copy, const struct no_room *n)
{
    struct tb_arena_budget budget;
    char text[TB_ARENA_ERROR_BYTES + 128];
    tb_arena_budget(copy->d->arena, &budget);
    const int used = snprintf(text, sizeof text, "%llu %llu %llu %s", (unsigned long long)n->room.evictable,
                              (unsigned long long)n->room.heads, (unsigned long long)n->room.pinned, n->why);
    const struct tb_digest told = tb_digest_of(text, (size_t)used);
    copy->d->counters.arena_refused++;
    if (tb_digest_equal(&told, &copy->room_told)) return;
    copy->room_told = told;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "arena.refused");
    tb_log_str(&l, "model", copy->key.model.text);
    tb_log_u64(&l, "number", copy->key.number);
    tb_log_u64(&l, "needed_bytes", n->needed_bytes);
    tb_log_u64(&l, "evictable_bytes", n->room.evictable);
    tb_log_u64(&l, "heads_bytes", n->room.heads);
    tb_log_u64(&l, "pinned_bytes", n->room.pinned);
    tb_log_u64(&l, "needed_slots", (uint64_t)copy->key.shard_count + 1);
    tb_log_u64(&l, "free_slots", budget.slots_free);
    tb_log_u64(&l, "slots", budget.slots);
    tb_log_str(&l, "why", n->why);
    tb_log_str(&l, "action", n->action);
    tb_log_end(&l);
}

/* TB_AGAIN: something is being evicted for it. */
static enum tb_status make_room(struct tb_copy *copy, struct no_room *n)
{
    const enum tb_status status = tb_copies_make_room(copy->d, n->needed_bytes, &n->room);
    if (status == TB_SITE_NOMEM) tell_no_room(copy, n);
    return status;
}

static enum tb_status reserve(struct tb_copy *copy, const struct tb_manifest *manifests, char *error)
{
    struct tb_daemon *d = copy->d;
    const uint32_t count = copy->key.shard_count;
    const struct tb_manifest **pointers = tb_calloc(count, sizeof *pointers);
    if (pointers == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < count; s++)
        pointers[s] = &manifests[s];
    const enum tb_status status =
        tb_arena_reserve(d->arena, &copy->key, pointers, count, &copy->region, error);
    tb_free(pointers);
    return status == TB_DONE_BEFORE ? TB_OK : status;
}

static void catalog_shards(struct tb_copy *copy, const struct tb_manifest *manifests)
{
    struct tb_daemon *d = copy->d;
    const tb_time_ns now = tb_clock_now();
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        const struct tb_manifest *m = &manifests[s];
        const struct tb_catalog_shard info = {m->root, m->layout.id, m->chunk_count, m->bytes,
                                              tb_manifest_decoded_bytes(m)};
        TB_MOOT(tb_catalog_arena_shard(d->catalog, now, &copy->key.uid, s, &info));
    }
    TB_MOOT(tb_catalog_arena_reserved(d->catalog, now, &copy->key.uid));
    TB_MOOT(tb_catalog_crossing_begun(d->catalog, now, &copy->key.uid));
}

enum tb_status tb_crossing_reserve(struct tb_copy *copy, const struct tb_manifest *manifests)
{
    char error[TB_ARENA_ERROR_BYTES] = "";
    enum tb_status status = reserve(copy, manifests, error);
    struct no_room n = {.why = error, .needed_bytes = manifests_bytes(&copy->key, manifests)};
    copy->lacks_room = status == TB_TOO_LARGE || status == TB_SITE_NOMEM;
    copy->room_bytes = n.needed_bytes;
    if (status == TB_TOO_LARGE) {
        n.action = "begin with a new file of more arena.bytes, or publish in fewer shards";
        tell_no_room(copy, &n);
    } else if (status == TB_SITE_NOMEM) {
        n.action = "raise arena.bytes or lower models.keep";
        status = make_room(copy, &n);
    }
    if (status != TB_OK) return status;
    if (copy->region == NULL) return TB_SITE_NOMEM;
    if (copy->landing_at == 0) copy->landing_at = tb_clock_now();
    copy->refused_told = TB_OK;
    copy->room_told = (struct tb_digest){{0}};
    catalog_shards(copy, manifests);
    tb_copy_serve(copy); /* a relay offers it before the first chunk is here */
    return TB_OK;
}

static void links_manifests(void *user, uint32_t peer, const struct tb_version_key *key,
                            const struct tb_manifest *manifests)
{
    struct tb_daemon *d = user;
    tb_adopt_manifests(d, key, manifests);
    struct tb_copy *copy = tb_copy_find(d, &key->uid);
    if (copy == NULL || copy->evicting || !copy->asked) return;
    copy->asked = false;
    if (!tb_catalog_crossing_wanted(d->catalog, &key->uid)) { /* a newer one was told of meanwhile */
        copy->crossing = false;
        return;
    }
    copy->key = *key;
    const enum tb_status status = tb_crossing_reserve(copy, manifests);
    copy->wants_room = status == TB_AGAIN;
    if (status == TB_OK) {
        land_from(copy, peer);
        land_from_all(copy);
        tb_log(TB_LOG_INFO, "crossing.begun", "model=%s run=%llu number=%llu from=%s bytes=%llu",
               key->model.text, (unsigned long long)key->run_order, (unsigned long long)key->number,
               peer_site(d, peer), (unsigned long long)manifests_bytes(key, manifests));
    } else if (status == TB_TOO_LARGE) {
        tb_log(TB_LOG_WARN, "crossing.refused",
               "peer=%s model=%s number=%llu status=too_large action=not_asked_again", peer_site(d, peer),
               key->model.text, (unsigned long long)key->number);
        crossing_hopeless(copy);
    } else if (!copy->wants_room) {
        crossing_refused(copy, status);
    }
    (void)tb_daemon_settle(d);
}

void tb_crossing_retry(struct tb_copy *copy)
{
    if (!copy->wants_room || copy->evicting) return;
    copy->wants_room = false;
    if (ask_in_order(copy) != TB_OK) crossing_refused(copy, TB_PEER_UNREACHABLE);
}

/* ---- what links say ---- */

bool tb_home_of(const struct tb_daemon *d, const struct tb_name *model, struct tb_name *home_out)
{
    for (uint32_t i = 0; i < d->config->model_count; i++) {
        if (!tb_name_equal(&d->config->models[i].name, model)) continue;
        *home_out = d->config->models[i].home;
        return true;
    }
    return false;
}

static bool links_home_of(void *user, const struct tb_name *model, struct tb_name *home_out)
{
    return tb_home_of(user, model, home_out);
}

/* Two homes of one model would give two versions one number: nothing crosses until the configs agree. */
static bool homes_agree(struct tb_daemon *d, const struct tb_name *peer, const struct tb_name *model,
                        const struct tb_name *home)
{
    struct tb_name ours;
    if (home->text[0] == '\0' || !links_home_of(d, model, &ours) || tb_name_equal(home, &ours)) return true;
    d->counters.denied++;
    tb_log(TB_LOG_ERROR, "link.home_differs",
           "peer=%s model=%s home_there=%s home_here=%s action=make_models.%s.home_agree", peer->text,
           model->text, home->text, ours.text, model->text);
    return false;
}

bool tb_peer_may_read(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    const struct tb_config_peer *p = &d->config->peers[peer];
    const struct tb_identity identity = {.kind = TB_IDENTITY_GATEWAY, .site = p->of, .name = p->gateway};
    struct tb_name home;
    if (tb_name_equal(&p->of, &d->config->site))
        return true; /* another gateway of this site: what is here is its, too */
    if (tb_home_of(d, model, &home) && tb_name_equal(&home, &p->site)) return true; /* its own bytes, back */
    return tb_rights_may(d->config, model, &identity, false);
}

static bool links_may_read(void *user, uint32_t peer, const struct tb_name *model, const struct tb_name *home)
{
    struct tb_daemon *d = user;
    const struct tb_config_peer *p = &d->config->peers[peer];
    if (!homes_agree(d, &p->site, model, home)) return false;
    if (tb_peer_may_read(d, peer, model)) return true;
    d->counters.denied++;
    tb_log(TB_LOG_WARN, "link.denied",
           "peer=%s model=%s list=models.%s.read lacks=tombolo://%s/%s action=add_it_to_the_list",
           p->site.text, model->text, model->text, p->of.text, p->gateway.text);
    return false;
}

/* Home alone is to send what nobody asked for, where it is asked first, and where neither site has lanes, which have a share each. */
static bool links_expects(void *user, uint32_t peer, const struct tb_name *model)
{
    const struct tb_daemon *d = user;
    const struct tb_config *c = d->config;
    struct tb_name home;
    if (c->lanes > 1 || !links_home_of(user, model, &home) || !tb_name_equal(&home, &c->peers[peer].site))
        return false;
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (i != peer && tb_name_equal(&c->peers[i].of, &c->peers[peer].of)) return false;
    for (uint32_t i = 0; i < c->subscribe_count; i++) {
        const struct tb_config_subscribe *s = &c->subscribe[i];
        if (tb_name_equal(&s->model, model)) return s->from_count > 0 && tb_name_equal(&s->from[0], &home);
    }
    return false;
}

/* To every peer but the one that said it and the one it speaks of. */
static void report_pass(struct tb_daemon *d, uint32_t from, const struct tb_links_report *report)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        if (i == from || tb_name_equal(&d->config->peers[i].site, &report->site)) continue;
        TB_MOOT(tb_links_tell(d->links, i, report)); /* down: told by reports_again */
    }
}

/* What a session begins with: what this site holds and activated, and what the sites behind it do. Reports made while the link was
 * down, or in flight when it broke, reach home by this; and a home that lost its arena hears who has what it called its own. */
static void reports_again(struct tb_daemon *d, uint32_t peer)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        struct tb_links_report report = {c->key.uid, d->site, TB_LINKS_REPORT_HELD};
        if (c->whole && !c->evicting) TB_MOOT(tb_links_tell(d->links, peer, &report));
        report.state = TB_LINKS_REPORT_ACTIVATED;
        if (c->activated) TB_MOOT(tb_links_tell(d->links, peer, &report));
    }
    struct tb_catalog_reference_view view;
    for (uint32_t cursor = 0; tb_catalog_reference_at(d->catalog, &cursor, &view);) {
        if (view.kind != TB_REFERENCE_SITE || tb_name_equal(&view.name, &d->config->peers[peer].site))
            continue;
        if (tb_copy_find(d, &view.uid) == NULL) continue; /* bounds what is said by what is here */
        struct tb_links_report report = {view.uid, view.name, TB_LINKS_REPORT_HELD};
        if (view.whole) TB_MOOT(tb_links_tell(d->links, peer, &report));
        report.state = TB_LINKS_REPORT_ACTIVATED;
        if (view.activated) TB_MOOT(tb_links_tell(d->links, peer, &report));
    }
}

static void links_peer(void *user, uint32_t peer, bool up, enum tb_status why)
{
    struct tb_daemon *d = user;
    const struct tb_name *site = &d->config->peers[peer].site;
    (void)why; /* the link has said it */
    if (up) {
        d->counters.links_up++;
        reports_again(d, peer);
        tb_home_runs_up(d, peer);
    } else {
        d->counters.links_down++;
    }
    /* What came from a peer that is gone comes from another that has it: the catalog asks again. */
    TB_MOOT(tb_catalog_site_up(d->catalog, tb_clock_now(), site, up));
    tb_records_link(d, peer, up);
    (void)tb_daemon_settle(d);
}

/* P3 P10: what the peer held in its arena's life before is gone, and so is what others are told of it. */
static void links_life(void *user, uint32_t peer, const struct tb_id *life)
{
    struct tb_daemon *d = user;
    struct tb_id *known = &d->peer_lives[peer];
    const bool another = !tb_id_is_zero(known) && !tb_id_equal(known, life);
    *known = *life;
    if (!another) return;
    d->counters.lives_changed++;
    tb_log(TB_LOG_WARN, "link.new_life", "peer=%s action=forget_what_it_held", peer_site(d, peer));
    tb_catalog_site_forget(d->catalog, tb_clock_now(), &d->config->peers[peer].site);
    (void)tb_daemon_settle(d);
}

static void links_renewed(void *user, uint32_t peer)
{
    struct tb_daemon *d = user;
    TB_MOOT(tb_catalog_site_up(d->catalog, tb_clock_now(), &d->config->peers[peer].site, true));
    reports_again(d, peer);
    tb_home_runs_up(d, peer);
    tb_records_link(d, peer, true);
}

static void links_granted(void *user, uint32_t peer, const struct tb_name *model)
{
    tb_records_tell(user, peer, model);
}

static void links_state(void *user, uint32_t peer, const struct tb_site_state *state)
{
    struct tb_daemon *d = user;
    tb_records_state(d, peer, state);
    (void)tb_daemon_settle(d); /* who waits for that site */
}

static void links_refused(void *user, uint32_t peer, enum tb_status why, uint64_t detail, bool by_peer)
{
    struct tb_daemon *d = user;
    d->counters.links_refused++;
    d->counters.links_twins += why == TB_PEER_TWIN;
    (void)peer; /* the link has said it */
    if (why != TB_PEER_STALE || !by_peer || detail < d->incarnation) return;
    /* The store is younger than what the peer has seen of us: speak above it. */
    tb_persist_incarnation(d, detail);
    tb_home_runs_doubt(d);
}

static void links_runs_asked(void *user, uint32_t peer, const struct tb_name *model)
{
    tb_home_runs_asked(user, peer, model);
}

static void links_run_told(void *user, uint32_t peer, const struct tb_links_run *run)
{
    tb_home_runs_told(user, peer, run);
    (void)tb_daemon_settle(user);
}

static void report_refused(struct tb_daemon *d, uint32_t peer, const struct tb_name *site, enum tb_status why)
{
    d->counters.reports_refused++;
    tb_log(TB_LOG_WARN, "link.report_refused", "peer=%s site=%s status=%s", peer_site(d, peer), site->text,
           tb_status_name(why));
}

/* P10. What has no place is asked about again at each tick: one line a time. */
static void place_refused(struct tb_daemon *d, uint32_t peer)
{
    if (!d->places_refused && !d->places_told)
        report_refused(d, peer, &d->config->peers[peer].site, TB_SITE_NOMEM);
    d->places_refused = true;
}

static enum tb_catalog_state state_told(enum tb_links_version_state state, enum tb_status why)
{
    if (state == TB_LINKS_READY) return TB_VERSION_READY;
    if (state == TB_LINKS_WITHDRAWN || why == TB_VERSION_WITHDRAWN) return TB_VERSION_ENDED_WITHDRAWN;
    if (why == TB_VERSION_LOST) return TB_VERSION_ENDED_LOST;
    if (why == TB_VERSION_BROKEN) return TB_VERSION_ENDED_BROKEN;
    return TB_VERSION_RETIRED;
}

static void links_version(void *user, uint32_t peer, const struct tb_version_key *key, uint64_t bytes,
                          enum tb_links_version_state state, enum tb_status why)
{
    (void)bytes;
    struct tb_daemon *d = user;
    const struct tb_name *site = &d->config->peers[peer].site;
    if (state != TB_LINKS_READY) tb_copies_look(d);
    const enum tb_status status =
        tb_catalog_remote_version(d->catalog, tb_clock_now(), site, key, state_told(state, why));
    d->news_refused |= status == TB_SITE_NOMEM && state == TB_LINKS_READY;
    if (state == TB_LINKS_READY) tb_site_own(d, &key->model)->refused_full = status == TB_SITE_NOMEM;
    if (status == TB_TOO_LARGE)
        tb_log(TB_LOG_WARN, "crossing.refused",
               "peer=%s model=%s number=%llu status=too_large shards=%u of=%u action=not_asked", site->text,
               key->model.text, (unsigned long long)key->number, key->shard_count, TB_CATALOG_SHARDS);
    if (status == TB_CONFLICT) {
        tb_log(TB_LOG_ERROR, "link.conflict", "peer=%s model=%s run=%llu number=%llu action=ignored",
               site->text, key->model.text, (unsigned long long)key->run_order,
               (unsigned long long)key->number);
    }
    struct tb_copy *copy = tb_copy_find(d, &key->uid);
    /* Begun before, by this process or the one before it: go on with what is held. */
    if (status == TB_OK && state == TB_LINKS_READY && copy != NULL && copy->region != NULL && !copy->whole &&
        !copy->evicting && tb_arena_region_complete(copy->region) && source_listed(copy, site->text) &&
        copy->crossing) {
        land_from(copy, peer);
    }
    tb_adopt_announced(d, &key->model);
    (void)tb_daemon_settle(d);
}

/* P6: what was announced while a table was full is announced no more in this session: it is taken from the links' own list. */
void tb_crossings_hear_again(struct tb_daemon *d)
{
    if (!d->news_refused || d->links == NULL || d->links_restarting) return;
    d->news_refused = false;
    for (uint32_t peer = 0; peer < d->config->peer_count; peer++) {
        struct tb_version_key key;
        uint64_t bytes;
        struct tb_catalog_version_view known;
        for (uint32_t cursor = 0; tb_links_announced_at(d->links, peer, &cursor, &key, &bytes);)
            if (!tb_catalog_version_get(d->catalog, &key.uid, &known))
                links_version(d, peer, &key, bytes, TB_LINKS_READY, TB_OK);
    }
}

static void links_landed(void *user, uint32_t peer, const struct tb_version_key *key)
{
    (void)user, (void)peer, (void)key; /* the tick sees it in the bitmaps, whoever brought the last chunk */
}

static void links_failed(void *user, uint32_t peer, const struct tb_id *uid, enum tb_status why)
{
    struct tb_daemon *d = user;
    struct tb_copy *copy = tb_copy_find(d, uid);
    tb_adopt_failed(d, uid);
    if (copy == NULL || copy->evicting) return;
    tb_log(TB_LOG_WARN, "crossing.failed", "peer=%s model=%s number=%llu status=%s", peer_site(d, peer),
           copy->key.model.text, (unsigned long long)copy->key.number, tb_status_name(why));
    copy->failed = why;
    copy->failed_lately = true;
    if (!copy->whole) crossing_refused(copy, why);
    (void)tb_daemon_settle(d);
}

/* What home sealed under another limit: to ask again would bring the same. */
static void links_too_large(void *user, uint32_t peer, const struct tb_id *uid, uint64_t needed_bytes)
{
    struct tb_daemon *d = user;
    struct tb_copy *copy = tb_copy_find(d, uid);
    tb_adopt_failed(d, uid);
    if (copy == NULL || copy->evicting || copy->whole) return;
    tb_log(TB_LOG_WARN, "crossing.refused",
           "peer=%s model=%s number=%llu status=too_large manifests_at_least=%llu of=%llu "
           "action=not_asked_again",
           peer_site(d, peer), copy->key.model.text, (unsigned long long)copy->key.number,
           (unsigned long long)needed_bytes, (unsigned long long)TB_MANIFESTS_BYTES_MAX);
    copy->failed = TB_TOO_LARGE;
    crossing_hopeless(copy);
    (void)tb_daemon_settle(d);
}

/* A peer's progress to the catalog; that it is whole now also to the other peers, who may be nearer to home. */
static void peer_progress(struct tb_daemon *d, uint32_t peer, const struct tb_id *uid,
                          const struct tb_links_progress *p)
{
    const struct tb_name *site = &d->config->peers[peer].site;
    const struct tb_catalog_site_progress progress = {
        .site = *site, .uid = *uid, .held_chunks = p->held_chunks, .whole = p->whole, .itself = true};
    const enum tb_status status = tb_catalog_site_progress(d->catalog, tb_clock_now(), &progress);
    if (status == TB_SITE_NOMEM) place_refused(d, peer);
    if (status != TB_OK || !p->whole) return;
    const struct tb_links_report report = {*uid, *site, TB_LINKS_REPORT_HELD};
    report_pass(d, peer, &report);
}

static void links_peer_held(void *user, uint32_t peer, const struct tb_id *uid)
{
    struct tb_daemon *d = user;
    struct tb_links_progress p = {0};
    if (tb_links_peer_progress(d->links, peer, uid, &p) != TB_OK) return;
    p.whole = true;
    peer_progress(d, peer, uid, &p);
    (void)tb_daemon_settle(d);
}

static void links_peer_dropped(void *user, uint32_t peer, const struct tb_id *uid)
{
    struct tb_daemon *d = user;
    tb_catalog_site_dropped(d->catalog, tb_clock_now(), &d->config->peers[peer].site, uid);
    (void)tb_daemon_settle(d);
}

/* Reports are passed on once: only when they told the catalog something new. A site says ACTIVATED also of what it skipped, as its
 * groups are beyond it: that is no copy, and the last one anywhere must not go for it (P3). */
static void links_report(void *user, uint32_t peer, const struct tb_links_report *report)
{
    struct tb_daemon *d = user;
    const struct tb_catalog_site_progress progress = {
        .site = report->site,
        .uid = report->uid,
        .via = d->config->peers[peer].site,
        .itself = tb_name_equal(&report->site, &d->config->peers[peer].site),
        .whole = report->state == TB_LINKS_REPORT_HELD,
        .activated = report->state == TB_LINKS_REPORT_ACTIVATED};
    const enum tb_status status = tb_catalog_site_progress(d->catalog, tb_clock_now(), &progress);
    if (status == TB_OK) report_pass(d, peer, report);
    if (status == TB_BAD_ARGUMENT || status == TB_SITE_NOMEM) report_refused(d, peer, &report->site, status);
    (void)tb_daemon_settle(d);
}

/* The chunk, and where that is right and it went as a difference, the same chunk of its base. */
static enum tb_status look_at_own(struct tb_daemon *d, uint32_t peer, const struct tb_links_bad_chunk *bad)
{
    struct tb_report report = {.uid = bad->uid, .shard = bad->shard, .chunk = bad->chunk, .reporter = peer};
    const enum tb_status status = tb_repair_arena(d, &report);
    if (status != TB_OK || tb_id_is_zero(&bad->base)) return status;
    report.uid = bad->base;
    return tb_repair_arena(d, &report);
}

static void links_chunk_bad(void *user, uint32_t peer, const struct tb_links_bad_chunk *bad)
{
    struct tb_daemon *d = user;
    d->counters.chunks_bad++;
    char uid[TB_HEX_CHARS];
    tb_id_format(&bad->uid, uid);
    const char *action = bad->ours ? tb_repair_action(look_at_own(d, peer, bad)) : "ask_again";
    tb_log(TB_LOG_WARN, "link.chunk_bad", "peer=%s uid=%s shard=%u chunk=%u times=%u sent_by=%s action=%s",
           peer_site(d, peer), uid, bad->shard, bad->chunk, bad->times, bad->ours ? "us" : "peer", action);
    struct tb_copy *copy = tb_copy_find(d, &bad->uid);
    if (copy == NULL || bad->ours) return;
    copy->failed = TB_CHUNK_DIGEST;
    copy->failed_lately = true;
}

/* On a stream's thread. The links keep the version's places meanwhile, and so its region. */
static bool links_base_good(void *user, const struct tb_id *uid, uint32_t shard, uint32_t chunk)
{
    struct tb_daemon *d = user;
    struct tb_arena_region *region = tb_arena_region(d->arena, uid);
    const enum tb_status status =
        region != NULL ? tb_arena_chunk_verify(region, shard, chunk) : TB_CHUNK_ABSENT;
    if (status == TB_CHUNK_DIGEST) { /* a new life: as the verifier does */
        atomic_fetch_add(&d->verify_bad, 1);
        uv_async_send(&d->verify_wake);
    }
    return status == TB_OK;
}

static const struct tb_links_ops links_ops = {
    .may_read = links_may_read,
    .home_of = links_home_of,
    .expects = links_expects,
    .weight_of = tb_policy_weight,
    .on_peer = links_peer,
    .on_life = links_life,
    .on_granted = links_granted,
    .on_state = links_state,
    .on_renewed = links_renewed,
    .on_refused = links_refused,
    .on_version = links_version,
    .on_manifests = links_manifests,
    .on_landed = links_landed,
    .on_failed = links_failed,
    .on_too_large = links_too_large,
    .on_peer_held = links_peer_held,
    .on_peer_dropped = links_peer_dropped,
    .on_report = links_report,
    .on_chunk_bad = links_chunk_bad,
    .on_runs_asked = links_runs_asked,
    .on_run_told = links_run_told,
    .base_good = links_base_good,
};

/* ---- what we say ---- */

struct tb_links *tb_links_now(const struct tb_daemon *d)
{
    return d->links_restarting ? NULL : d->links;
}

void tb_crossing_offer(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    if (copy->offered || d->links == NULL || d->links_restarting || d->draining) return;
    struct tb_place *places = tb_calloc(copy->key.shard_count, sizeof *places);
    if (places == NULL) return;
    for (uint32_t s = 0; s < copy->key.shard_count; s++)
        places[s] = *tb_arena_place(copy->region, s);
    const enum tb_status status = tb_links_offer(d->links, &copy->key, places);
    tb_free(places);
    copy->offered = status == TB_OK || status == TB_DONE_BEFORE;
    if (!copy->offered) {
        tb_log(TB_LOG_ERROR, "link.offer_failed", "model=%s number=%llu status=%s", copy->key.model.text,
               (unsigned long long)copy->key.number, tb_status_name(status));
    }
}

void tb_crossing_site_state(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_copy *copy = tb_copy_find(d, &todo->uid);
    if (copy != NULL && todo->activated && !copy->activated) copy->activated_at = tb_clock_now();
    if (copy != NULL && todo->activated) copy->activated = true;
    if (d->links == NULL || d->links_restarting) return;
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        struct tb_links_report report = {todo->uid, d->site, TB_LINKS_REPORT_HELD};
        if (todo->whole) TB_MOOT(tb_links_tell(d->links, i, &report));
        report.state = TB_LINKS_REPORT_ACTIVATED;
        if (todo->activated) TB_MOOT(tb_links_tell(d->links, i, &report));
    }
}

void tb_crossings_poll(struct tb_daemon *d)
{
    if (d->links == NULL || d->links_restarting) return;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        for (uint32_t i = 0; c->offered && i < d->config->peer_count; i++) {
            struct tb_links_progress p;
            if (tb_links_peer_progress(d->links, i, &c->key.uid, &p) != TB_OK || p.held_chunks == 0) continue;
            peer_progress(d, i, &c->key.uid, &p);
        }
    }
    d->places_told = d->places_refused;
    d->places_refused = false;
}

/* ---- opening ---- */

/* Models that are wanted from this peer: those of `subscribe` that list its site, and those whose home is here: what rots
 * here comes back from whoever has it. */
static uint32_t models_wanted(const struct tb_config *config, const struct tb_name *site,
                              struct tb_name *models)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->subscribe_count; i++) {
        const struct tb_config_subscribe *s = &config->subscribe[i];
        for (uint32_t k = 0; k < s->from_count && count < TB_LINKS_MODELS_MAX; k++) {
            if (!tb_name_equal(&s->from[k], site)) continue;
            models[count++] = s->model;
            break;
        }
    }
    for (uint32_t i = 0; i < config->model_count && count < TB_LINKS_MODELS_MAX; i++)
        if (tb_name_equal(&config->models[i].home, &config->label)) models[count++] = config->models[i].name;
    return count;
}

/* NULL: what the system does. */
static const char *congestion_of(const char *word)
{
    return strcmp(word, "system") == 0 ? NULL : word;
}

static const char *peer_congestion(const struct tb_config *config, const struct tb_config_peer *peer)
{
    return congestion_of(peer->congestion != NULL ? peer->congestion : config->link_congestion);
}

/* P3: a home that restarts knows of no other site what it has, and after one lease time calls lost what nobody has. Half of that is for
 * whoever comes back, as the sites have one lease time; the rest is for its handshakes and its word. */
static uint32_t retry_max_ms(const struct tb_config *c)
{
    const uint32_t half = c->session_lease_ms / 2;
    const uint32_t most = half < c->link_retry_max_ms ? half : c->link_retry_max_ms;
    return most > c->link_retry_min_ms ? most : c->link_retry_min_ms;
}

static enum tb_status links_open(struct tb_daemon *d, struct tb_links_peer_options *peers,
                                 struct tb_name *models)
{
    const struct tb_config *config = d->config;
    for (uint32_t i = 0; i < config->peer_count; i++) {
        struct tb_name *mine = models + (size_t)i * TB_LINKS_MODELS_MAX;
        peers[i] = (struct tb_links_peer_options){.site = config->peers[i].of,
                                                  .label = config->peers[i].site,
                                                  .lane = config->peers[i].lane,
                                                  .gateway = config->peers[i].gateway,
                                                  .address = config->peers[i].address,
                                                  .congestion = peer_congestion(config, &config->peers[i]),
                                                  .streams_found = d->found[i].streams,
                                                  .found_bytes_per_s = d->found[i].bytes_per_s,
                                                  .models = mine,
                                                  .model_count =
                                                      models_wanted(config, &config->peers[i].site, mine)};
    }
    const struct tb_links_options options = {
        .loop = &d->loop,
        .site = config->site,
        .gateway = d->gateway,
        .life = tb_arena_life(d->arena),
        .incarnation = d->incarnation,
        .lane = config->lane,
        .lane_count = config->lanes,
        .tls = d->tls,
        .listen = config->link_listen,
        .peers = peers,
        .peer_count = config->peer_count,
        .ops = &links_ops,
        .user = d,
        .streams = config->link_streams,
        .threads = config->link_threads,
        .heartbeat_ms = config->link_heartbeat_ms,
        .down_ms = config->link_down_ms,
        .stream_idle_ms = config->link_stream_idle_ms,
        .retry_min_ms = config->link_retry_min_ms,
        .retry_max_ms = retry_max_ms(config),
        .codec = config->link_codec,
        .objects = d->objects,
        .protocol_max = config->link_protocol_max,
        .resolver = d->resolver,
    };
    char error[256] = "";
    const enum tb_status status = tb_links_new(&options, &d->links, error);
    if (status == TB_OK) return TB_OK;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "links.open_failed");
    tb_log_str(&l, "status", tb_status_name(status));
    tb_log_str(&l, "why", error);
    tb_log_end(&l);
    return status;
}

enum tb_status tb_crossings_open(struct tb_daemon *d)
{
    const size_t count = d->config->peer_count;
    struct tb_links_peer_options *peers = tb_calloc(count + 1, sizeof *peers);
    struct tb_name *models = tb_calloc((count + 1) * TB_LINKS_MODELS_MAX, sizeof *models);
    const enum tb_status status =
        peers != NULL && models != NULL ? links_open(d, peers, models) : TB_SITE_NOMEM;
    tb_free(peers);
    tb_free(models);
    if (status != TB_OK) return status;
    tb_limits_renewed(d);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        tb_copy_serve(c);
    return TB_OK;
}

/* P6: nobody answers any more what the old links asked, and to the catalog no site went: so it hears that it was not to be had, and
 * tries again. */
static void asking_ended(struct tb_copy *copy)
{
    if (!copy->asked) return;
    copy->asked = copy->crossing = false;
    TB_MOOT(tb_catalog_crossing_refused(copy->d->catalog, tb_clock_now(), &copy->key.uid));
}

static void restart_closed(void *user)
{
    struct tb_daemon *d = user;
    d->links = NULL;
    d->links_restarting = false;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        asking_ended(c);
        c->offered = false;
        if (c->evicting) c->evict_waits = 0;
    }
    if (d->draining) return;
    if (tb_crossings_open(d) != TB_OK) {
        d->fault = true; /* what worked at start does not any more: an operator's restart says why */
        uv_stop(&d->loop);
        return;
    }
    (void)tb_daemon_settle(d);
}

void tb_crossings_incarnation(struct tb_daemon *d, uint64_t incarnation)
{
    d->incarnation = incarnation;
    if (d->links == NULL || d->links_restarting) return; /* those to come begin with it */
    tb_log(TB_LOG_WARN, "links.incarnation", "incarnation=%llu", (unsigned long long)incarnation);
    tb_links_set_incarnation(d->links, incarnation);
}

void tb_crossings_restart(struct tb_daemon *d)
{
    if (d->links == NULL || d->links_restarting || d->draining) return;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        c->link_wire_bytes += tb_links_landed_bytes(d->links, &c->key.uid);
    tb_limits_tick(d);
    d->links_restarting = true;
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        tb_records_link(d, i, false);
    tb_log(TB_LOG_WARN, "links.restart", "incarnation=%llu", (unsigned long long)d->incarnation);
    tb_links_close(d->links, restart_closed, d);
}
