/* link_events.c - what links say, and whom they may tell: to the catalog, and to the room that
 * it is for. */
#include "base/allocate.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/views.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "base/fault.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/repair.h"
#include "gateway/daemon/crossing_policy.h"
#include "gateway/daemon/links/crossing_room.h"
#include "gateway/daemon/links/crossings.h"
#include "gateway/daemon/links/link_events.h"
#include "gateway/daemon/links/link_reports.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/proofs.h"
#include "gateway/daemon/links/publisher_words.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/links/statements.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "wan/link/links_messages.h"
#include "wan/link/links_stats.h"

#define UNSIGNED_TOLD_EVERY TB_SECONDS(10)

static bool links_home_of(void *user, const struct tb_name *model, struct tb_name *home_out)
{
    return tb_home_of(user, model, home_out);
}

/* Two homes of one model would give two versions one number: nothing crosses until the configs
 * agree. */
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

static bool links_may_read(void *user, uint32_t peer, const struct tb_name *model, const struct tb_name *home)
{
    struct tb_daemon *d = user;
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_config_peer *p = &d->config->peers[peer];
    if (!homes_agree(d, &p->site, model, home)) {
        tb_audit_peer_denied(d, peer, "subscribe", model->text, "its home is another one here");
        return false;
    }
    if (tb_peer_may_read(d, peer, model)) return true;
    d->counters.denied++;
    tb_log(TB_LOG_WARN, "link.denied",
           "peer=%s model=%s list=models.%s.read lacks=tombolo://%s/%s action=add_it_to_the_list",
           p->site.text, model->text, model->text, p->of.text, p->gateway.text);
    tb_audit_peer_denied(d, peer, "subscribe", model->text, "models.NAME.read does not list it");
    return false;
}

/* Home alone is to send what nobody asked for, where it is asked first, and where neither site
 * has lanes, which have a share each. */
static bool links_expects(void *user, uint32_t peer, const struct tb_name *model)
{
    const struct tb_daemon *d = user;
    const struct tb_config *c = d->config;
    TB_ASSERT(peer < c->peer_count);
    struct tb_name home;
    if (tb_publishers_demanded(d, model)) return false; /* no chunk is taken before its proof */
    if (c->lanes > 1 || !links_home_of(user, model, &home) || !tb_name_equal(&home, &c->peers[peer].site))
        return false;
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (i != peer && tb_name_equal(&c->peers[i].of, &c->peers[peer].of)) return false;
    const struct tb_config_subscribe *s = tb_config_subscribe_for(c, model);
    return s != NULL && s->from_count > 0 && tb_name_equal(&s->from[0], &home);
}

static void links_peer(void *user, uint32_t peer, bool up, enum tb_status why)
{
    struct tb_daemon *d = user;
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_name *site = &d->config->peers[peer].site;
    (void)why; /* the link has said it */
    if (up) {
        d->counters.links_up++;
        d->disbelieved[peer] = false;
        tb_reports_again(d, peer);
        tb_home_runs_up(d, peer);
    } else {
        d->counters.links_down++;
        tb_proofs_peer_down(d, peer);
    }
    /* Chunks that came from a peer that is gone come from another one that has them: the catalog
     * asks again. */
    TB_MOOT(tb_catalog_site_up(d->catalog, tb_clock_now(), site, up));
    tb_site_records_link(d, peer, up);
    tb_daemon_wake(d);
}

/* P3 P10: the holdings of the peer in its arena's life before are gone, and so is what others are
 * told of it. */
static void links_life(void *user, uint32_t peer, const struct tb_id *life)
{
    struct tb_daemon *d = user;
    TB_ASSERT(peer < d->config->peer_count);
    struct tb_id *known = &d->peer_lives[peer];
    const bool another = !tb_id_is_zero(known) && !tb_id_equal(known, life);
    *known = *life;
    if (!another) return;
    d->counters.lives_changed++;
    tb_log(TB_LOG_WARN, "link.new_life", "peer=%s action=forget_what_it_held", tb_peer_site(d, peer));
    tb_catalog_site_forget(d->catalog, tb_clock_now(), &d->config->peers[peer].site);
    tb_daemon_wake(d);
}

static void links_renewed(void *user, uint32_t peer)
{
    struct tb_daemon *d = user;
    TB_ASSERT(peer < d->config->peer_count);
    tb_proofs_peer_down(d, peer); /* pages were lost with the session before */
    TB_MOOT(tb_catalog_site_up(d->catalog, tb_clock_now(), &d->config->peers[peer].site, true));
    tb_reports_again(d, peer);
    tb_home_runs_up(d, peer);
    tb_site_records_link(d, peer, true);
}

static void links_granted(void *user, uint32_t peer, const struct tb_name *model)
{
    tb_site_records_tell(user, peer, model);
}

static void links_state(void *user, uint32_t peer, const struct tb_site_state *state)
{
    struct tb_daemon *d = user;
    tb_site_records_state(d, peer, state);
    tb_withdrawn_answer_state(d, peer, state);
    tb_daemon_wake(d); /* who waits for that site */
}

static void links_refused(void *user, uint32_t peer, enum tb_status why, uint64_t detail, bool by_peer)
{
    struct tb_daemon *d = user;
    d->counters.links_refused++;
    d->counters.links_twins += why == TB_PEER_TWIN;
    if (!by_peer)
        tb_audit_peer_denied(d, peer, "connect", "link", tb_status_name(why)); /* the link has said it */
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
    tb_daemon_wake(user);
}

static enum tb_catalog_state state_told(enum tb_links_version_state state, enum tb_status why)
{
    if (state == TB_LINKS_READY) return TB_VERSION_READY;
    if (state == TB_LINKS_WITHDRAWN || why == TB_VERSION_WITHDRAWN) return TB_VERSION_ENDED_WITHDRAWN;
    if (why == TB_VERSION_LOST) return TB_VERSION_ENDED_LOST;
    if (why == TB_VERSION_BROKEN) return TB_VERSION_ENDED_BROKEN;
    return TB_VERSION_RETIRED;
}

/* P10: the first of ten seconds. */
static void unsigned_log(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key)
{
    const tb_time_ns now = tb_clock_now();
    d->counters.versions_unsigned++;
    if (d->unsigned_told_at[peer] != 0 && tb_time_since(d->unsigned_told_at[peer], now) < UNSIGNED_TOLD_EVERY)
        return;
    d->unsigned_told_at[peer] = now;
    tb_log(TB_LOG_WARN, "version.unsigned", "peer=%s model=%s run=%llu number=%llu action=%s",
           tb_peer_site(d, peer), key->model.text, (unsigned long long)key->run_order,
           (unsigned long long)key->number, "wait_for_its_home_to_sign_it");
}

/* A gateway of the release before says nothing that this site could wait for. */
static bool is_home_that_signs(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key)
{
    const uint32_t protocol = tb_site_lag_link(d, peer)->protocol;
    return tb_peer_of_home(d, peer, &key->model) && (protocol == 0 || protocol >= TB_LINKS_PROTOCOL_STATE);
}

/* P2: a version that the catalog has with this root was believed before. Another
 * one counts only with its home's signature: else a relay could name any run and number. */
static bool version_counts(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                           enum tb_links_version_state state)
{
    struct tb_catalog_version_view known;
    if (tb_statements_believed(d, peer, key)) return true;
    if (tb_catalog_version_get(d->catalog, &key->uid, &known))
        return state == TB_LINKS_GONE || tb_digest_equal(&known.key.root, &key->root);
    if (state != TB_LINKS_READY) return false;
    if (is_home_that_signs(d, peer, key) && tb_publishers_said(d, key)) return true; /* see readers_wait */
    struct tb_site_own *own = tb_site_lag_own(d, &key->model);
    if (tb_id_is_zero(&own->unsigned_key.uid) || tb_version_key_compare(&own->unsigned_key, key) < 0) {
        own->unsigned_key = *key;
        own->unsigned_peer = peer;
    }
    unsigned_log(d, peer, key);
    return false;
}

static bool counts(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                   enum tb_links_version_state state, enum tb_status *why)
{
    const bool withdrawn = tb_withdrawal_believed(d, peer, key);
    const bool ended = *why == TB_VERSION_BROKEN || *why == TB_VERSION_LOST;
    if (state == TB_LINKS_GONE && *why == TB_VERSION_WITHDRAWN && !withdrawn) *why = TB_SUPERSEDED;
    /* P2 P3: a relay speaks of its own copy: it is a source no more, and the version stays. */
    if (state == TB_LINKS_GONE && ended && !tb_end_believed(d, peer, &key->model)) *why = TB_SUPERSEDED;
    if (state != TB_LINKS_WITHDRAWN) return version_counts(d, peer, key, state);
    if (!withdrawn) unsigned_log(d, peer, key);
    return withdrawn;
}

/* P1: a version crosses from its home before home has signed it. No reader hears of it until
 * then. */
static void readers_wait(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key)
{
    if (!tb_statements_believed(d, peer, key))
        tb_catalog_version_awaits(d->catalog, tb_clock_now(), &key->uid, true);
}

/* The catalog does not know it. Words on it are heard again when it wakes. */
static bool sleeps(const struct tb_daemon *d, const struct tb_name *model)
{
    const uint32_t row = tb_model_row_of(d, model);
    return row == TB_MODEL_NONE || d->models.rows[row].life == TB_MODEL_READING;
}

static void links_version(void *user, uint32_t peer, const struct tb_version_key *key, uint64_t bytes,
                          enum tb_links_version_state state, enum tb_status why)
{
    (void)bytes;
    struct tb_daemon *d = user;
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_name *site = &d->config->peers[peer].site;
    if (state == TB_LINKS_READY &&
        (tb_withdrawn_answer(d, peer, &key->uid) || tb_withdrawn_here(d, &key->uid)))
        return;
    if (sleeps(d, &key->model)) return;
    if (!counts(d, peer, key, state, &why)) {
        tb_daemon_wake(d);
        return;
    }
    if (state != TB_LINKS_READY) tb_copies_look(d);
    struct tb_catalog_version_view known;
    const bool fresh = !tb_catalog_version_get(d->catalog, &key->uid, &known);
    const enum tb_status status =
        tb_catalog_remote_version(d->catalog, tb_clock_now(), site, key, state_told(state, why));
    d->news_refused |= status == TB_SITE_NOMEM && state == TB_LINKS_READY;
    const bool sound = status == TB_OK || status == TB_SUPERSEDED || status == TB_SITE_NOMEM;
    if (state == TB_LINKS_WITHDRAWN && sound) tb_withdrawn_heard(d, key);
    if (state == TB_LINKS_READY) tb_site_lag_own(d, &key->model)->refused_full = status == TB_SITE_NOMEM;
    if (status == TB_TOO_LARGE)
        tb_log(TB_LOG_WARN, "crossing.refused",
               "peer=%s model=%s number=%llu status=too_large shards=%u of=%u action=not_asked", site->text,
               key->model.text, (unsigned long long)key->number, key->shard_count, TB_CATALOG_SHARDS);
    if (status == TB_CONFLICT) {
        tb_log(TB_LOG_ERROR, "link.conflict", "peer=%s model=%s run=%llu number=%llu action=ignored",
               site->text, key->model.text, (unsigned long long)key->run_order,
               (unsigned long long)key->number);
    }
    if (fresh && status == TB_OK && state == TB_LINKS_READY) readers_wait(d, peer, key);
    struct tb_copy *copy = tb_copy_find(d, &key->uid);
    if (status == TB_OK && state == TB_LINKS_READY && copy != NULL) tb_crossing_go_on(copy, peer);
    tb_adopt_announced(d, &key->model);
    tb_daemon_wake(d);
}

/* P6: a version announced while a table was full is announced no more in this session: it is
 * taken from the links' own list. */
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

/* Peers announced it, or serve it, before its signature came. */
static void version_signed(struct tb_daemon *d, const struct tb_statement *what)
{
    struct tb_version_key key;
    uint64_t bytes;
    for (uint32_t peer = 0; peer < d->config->peer_count; peer++) {
        for (uint32_t cursor = 0; tb_links_announced_at(d->links, peer, &cursor, &key, &bytes);)
            if (tb_id_equal(&key.uid, &what->uid)) links_version(d, peer, &key, bytes, TB_LINKS_READY, TB_OK);
    }
}

static void links_statement(void *user, uint32_t peer, const struct tb_span *said)
{
    struct tb_daemon *d = user;
    struct tb_statement what;
    if (!tb_statements_heard(d, peer, said, &what)) return;
    const bool of_version = what.kind == TB_STATEMENT_VERSION || what.kind == TB_STATEMENT_SHARD;
    if (of_version) version_signed(d, &what);
    if (what.kind == TB_STATEMENT_VERSION) {
        tb_catalog_version_awaits(d->catalog, tb_clock_now(), &what.uid, false);
        tb_proofs_signed(d, &what.uid);
    }
    const bool offered = of_version && tb_copy_find(d, &what.uid) != NULL;
    if (offered) tb_links_tell_statement(d->links, &what.model, said);
    tb_daemon_wake(d);
}

static void links_failed(void *user, uint32_t peer, const struct tb_id *uid, enum tb_status why)
{
    struct tb_daemon *d = user;
    struct tb_copy *copy = tb_copy_find(d, uid);
    tb_adopt_failed(d, uid);
    if (copy == NULL || tb_copy_leaves(copy)) return;
    d->counters.crossings_failed++;
    if (tb_crossing_tell(&copy->told, TB_CROSSING_LINE_FAILED, peer, why))
        tb_log(TB_LOG_WARN, "crossing.failed", "peer=%s model=%s number=%llu status=%s",
               tb_peer_site(d, peer), copy->key.model.text, (unsigned long long)copy->key.number,
               tb_status_name(why));
    copy->failed = why;
    copy->failed_lately = true;
    if (!tb_copy_is_whole(copy)) tb_crossing_refused(copy, why);
    tb_daemon_wake(d);
}

/* P1: they hash to the root that VERSION named, and not to the one that home signed. */
static bool root_counts(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                        const struct tb_manifest *manifests)
{
    if (tb_proofs_fit(d, peer, key, manifests)) return true;
    d->counters.roots_refused++;
    tb_log(TB_LOG_ERROR, "crossing.root_refused", "peer=%s model=%s run=%llu number=%llu action=ask_again",
           tb_peer_site(d, peer), key->model.text, (unsigned long long)key->run_order,
           (unsigned long long)key->number);
    links_failed(d, peer, &key->uid, TB_CHUNK_DIGEST);
    return false;
}

static void links_manifests(void *user, uint32_t peer, const struct tb_version_key *key,
                            const struct tb_manifest *manifests)
{
    struct tb_daemon *d = user;
    if (!root_counts(d, peer, key, manifests)) return;
    tb_adopt_manifests(d, key, manifests);
    tb_crossing_manifests(d, peer, key, manifests);
    struct tb_copy *copy = tb_copy_find(d, &key->uid);
    if (copy != NULL) tb_proofs_take(copy, peer, manifests);
    tb_daemon_wake(d);
}

static void links_landed(void *user, uint32_t peer, const struct tb_version_key *key)
{
    (void)user, (void)peer, (void)key; /* the tick sees it in the bitmaps, from any sender */
}

/* Home sealed the version under another limit: to ask again would bring the same. */
static void links_too_large(void *user, uint32_t peer, const struct tb_id *uid, uint64_t needed_bytes)
{
    struct tb_daemon *d = user;
    struct tb_copy *copy = tb_copy_find(d, uid);
    tb_adopt_failed(d, uid);
    if (copy == NULL || tb_copy_leaves(copy) || tb_copy_is_whole(copy)) return;
    tb_log(TB_LOG_WARN, "crossing.refused",
           "peer=%s model=%s number=%llu status=too_large manifests_at_least=%llu of=%llu "
           "action=not_asked_again",
           tb_peer_site(d, peer), copy->key.model.text, (unsigned long long)copy->key.number,
           (unsigned long long)needed_bytes, (unsigned long long)TB_MANIFESTS_BYTES_MAX);
    copy->failed = TB_TOO_LARGE;
    tb_crossing_hopeless(copy);
    tb_daemon_wake(d);
}

static void links_peer_held(void *user, uint32_t peer, const struct tb_id *uid)
{
    struct tb_daemon *d = user;
    struct tb_links_progress p = {0};
    if (tb_links_peer_progress(d->links, peer, uid, &p) != TB_OK) return;
    p.whole = true;
    tb_reports_progress(d, peer, uid, &p);
    tb_daemon_wake(d);
}

/* A version begins to leave this site. */
static void links_drawn(void *user, uint32_t peer, const struct tb_version_key *key)
{
    struct tb_daemon *d = user;
    char identity[TB_URI_BYTES_MAX], version[TB_AUDIT_VERSION_BYTES];
    tb_audit_peer_text(d, peer, identity);
    tb_audit_version_text(key, version);
    tb_audit_version(d, &(struct tb_audit_event){"leave", identity, version, "link", "begun"});
}

static void links_peer_dropped(void *user, uint32_t peer, const struct tb_id *uid)
{
    struct tb_daemon *d = user;
    TB_ASSERT(peer < d->config->peer_count);
    tb_catalog_site_dropped(d->catalog, tb_clock_now(), &d->config->peers[peer].site, uid);
    tb_daemon_wake(d);
}

/* The chunk, and where that is right and it went as a delta, the same chunk of its base. */
static enum tb_status look_at_own(struct tb_daemon *d, uint32_t peer, const struct tb_links_bad_chunk *bad)
{
    TB_ASSERT(bad->ours && !tb_id_is_zero(&bad->uid));
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
           tb_peer_site(d, peer), uid, bad->shard, bad->chunk, bad->times, bad->ours ? "us" : "peer", action);
    struct tb_copy *copy = tb_copy_find(d, &bad->uid);
    if (copy == NULL || bad->ours) return;
    copy->failed = TB_CHUNK_DIGEST;
    copy->bad.peer = peer;
    copy->bad.shard = bad->shard;
    copy->bad.chunk = bad->chunk;
    copy->bad.times = bad->times;
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

static void links_report(void *user, uint32_t peer, const struct tb_links_report *report)
{
    struct tb_daemon *d = user;
    if (tb_withdrawn_answer(d, peer, &report->uid)) return;
    tb_reports_heard(d, peer, report);
    tb_daemon_wake(d);
}

const struct tb_links_ops tb_link_events = {
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
    .is_foreign = tb_proofs_foreign,
    .on_proofs = tb_proofs_heard,
    .on_landed = links_landed,
    .on_failed = links_failed,
    .on_too_large = links_too_large,
    .on_peer_held = links_peer_held,
    .on_drawn = links_drawn,
    .on_peer_dropped = links_peer_dropped,
    .on_report = links_report,
    .on_chunk_bad = links_chunk_bad,
    .on_runs_asked = links_runs_asked,
    .on_run_told = links_run_told,
    .statement_of = tb_statements_to_say,
    .on_statement = links_statement,
    .base_good = links_base_good,
};
