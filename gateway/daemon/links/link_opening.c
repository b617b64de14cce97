/* link_opening.c - links are opened at start, and opened anew under a new life of the arena; the
 * incarnation that they say. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/link_events.h"
#include "gateway/daemon/links/link_opening.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/models/model_table.h"
#include "wan/link/links_known.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_peers.h"

#define LIFE_NS TB_SECONDS(1)

/* Models that are wanted from this peer: those of `subscribe` that list its site, and those whose
 * home is here: a chunk that rots here comes back from a site that has it. P8: a peer that may not
 * read such a model has none of it, and does not hear its name. */
static bool is_wanted(const struct tb_config *config, uint32_t peer, const struct tb_name *model)
{
    const struct tb_config_model *m = tb_config_model_for(config, model);
    if (m != NULL && tb_name_equal(&m->home, &config->label)) return tb_peer_may_read_by(config, peer, model);
    const struct tb_config_subscribe *s = tb_config_subscribe_for(config, model);
    for (uint32_t k = 0; s != NULL && k < s->from_count; k++)
        if (tb_name_equal(&s->from[k], &config->peers[peer].site)) return true;
    return false;
}

/* Those that the configuration names, and those of its patterns that are awake. */
static uint32_t models_wanted(const struct tb_daemon *d, const struct tb_config *config, uint32_t peer,
                              struct tb_name *models)
{
    uint32_t count = 0;
    TB_ASSERT(TB_CONFIG_MODELS_MAX <= TB_LINKS_MODELS_MAX);
    for (uint32_t i = 0; i < config->model_count; i++)
        if (!config->models[i].is_pattern && is_wanted(config, peer, &config->models[i].name))
            models[count++] = config->models[i].name;
    for (uint32_t i = tb_model_row_next(d, TB_CONFIG_LIST_MAX); i != TB_MODEL_NONE;
         i = tb_model_row_next(d, i + 1))
        if (is_wanted(config, peer, tb_model_name(d, i))) models[count++] = *tb_model_name(d, i);
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

/* P3: a home that restarts knows of no other site what it has, and after one lease time calls
 * lost what nobody has. Half of that is for a peer that comes back, as the sites have one lease
 * time; the rest is for its handshakes and its word. */
static uint32_t retry_max_ms(const struct tb_config *c)
{
    const uint32_t half = c->session_lease_ms / 2;
    const uint32_t most = half < c->link_retry_max_ms ? half : c->link_retry_max_ms;
    return most > c->link_retry_min_ms ? most : c->link_retry_min_ms;
}

/* `models` has room for TB_LINKS_MODELS_MAX. */
static struct tb_links_peer_options peer_options(const struct tb_daemon *d, const struct tb_config *config,
                                                 uint32_t peer, struct tb_name *models)
{
    const struct tb_config_peer *p = &config->peers[peer];
    if (p->gone) return (struct tb_links_peer_options){.gone = true};
    return (struct tb_links_peer_options){.site = p->of,
                                          .label = p->site,
                                          .lane = p->lane,
                                          .gateway = p->gateway,
                                          .address = p->address,
                                          .source = p->source,
                                          .dscp = p->dscp,
                                          .congestion = peer_congestion(config, p),
                                          .streams_found = d->found[peer].streams,
                                          .found_bytes_per_s = d->found[peer].bytes_per_s,
                                          .models = models,
                                          .model_count = models_wanted(d, config, peer, models)};
}

static enum tb_status links_open(struct tb_daemon *d, struct tb_links_peer_options *peers,
                                 struct tb_name *models)
{
    const struct tb_config *config = d->config;
    for (uint32_t i = 0; i < config->peer_count; i++)
        peers[i] = peer_options(d, config, i, models + (size_t)i * TB_LINKS_MODELS_MAX);
    const struct tb_links_options options = {
        .loop = &d->loop,
        .site = config->site,
        .gateway = d->gateway,
        .life = tb_arena_life(d->arena),
        .process = d->process,
        .incarnation = d->incarnation,
        .lane = config->lane,
        .lane_count = config->lanes,
        .tls = d->tls,
        .listen = config->link_listen,
        .peers = peers,
        .peer_count = config->peer_count,
        .ops = &tb_link_events,
        .user = d,
        .streams = config->link_streams,
        .threads = config->link_threads,
        .heartbeat_ms = config->link_heartbeat_ms,
        .down_ms = config->link_down_ms,
        .stream_idle_ms = config->link_stream_idle_ms,
        .retry_min_ms = config->link_retry_min_ms,
        .retry_max_ms = retry_max_ms(config),
        .codec = config->link_codec,
        .encoded_chunks = d->encoded_chunks,
        .partial = &d->session_limits.partial,
        .handshakes_open = config->handshakes_open,
        .handshakes_failed = config->handshakes_failed,
        .garbled_frames = config->garbled_frames,
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
    TB_ASSERT(d->links == NULL && !d->links_restarting && d->tls != NULL);
    const size_t count = d->config->peer_count;
    struct tb_links_peer_options *peers = tb_calloc(count + 1, sizeof *peers);
    struct tb_name *models = tb_calloc((count + 1) * TB_LINKS_MODELS_MAX, sizeof *models);
    const enum tb_status status =
        peers != NULL && models != NULL ? links_open(d, peers, models) : TB_SITE_NOMEM;
    tb_free(peers);
    tb_free(models);
    if (status != TB_OK) return status;
    tb_limits_renewed(d);
    tb_pauses_apply(d);
    tb_withdrawn_opened(d);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        tb_copy_serve(c);
    return TB_OK;
}

/* P6: nobody answers any more what the old links asked, and to the catalog no site went: so it
 * hears that it was not to be had, and tries again. */
static void asking_ended(struct tb_copy *copy)
{
    if (copy->life != TB_COPY_ASKED) return;
    tb_copy_life_step(&copy->life, TB_COPY_STOPS);
    TB_MOOT(tb_catalog_crossing_refused(copy->d->catalog, tb_clock_now(), &copy->key.uid));
}

static void restart_closed(void *user)
{
    struct tb_daemon *d = user;
    TB_ASSERT(d->links_restarting);
    d->links = NULL;
    d->links_restarting = false;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        asking_ended(c);
        tb_copy_serving_step(&c->serving, TB_COPY_IS_RETRACTED);
        if (tb_copy_leaves(c)) c->evict_waits = 0;
    }
    if (d->draining) return;
    if (tb_crossings_open(d) != TB_OK) {
        d->fault = true; /* what worked at start does not any more: an operator's restart says why */
        uv_stop(&d->loop);
        return;
    }
    tb_daemon_wake(d);
}

void tb_crossings_incarnation(struct tb_daemon *d, uint64_t incarnation)
{
    TB_ASSERT(incarnation >= d->incarnation);
    d->incarnation = incarnation;
    if (d->links == NULL || d->links_restarting) return; /* those to come begin with it */
    tb_log(TB_LOG_WARN, "links.incarnation", "incarnation=%llu", (unsigned long long)incarnation);
    tb_links_set_incarnation(d->links, incarnation);
}

static void restart(struct tb_daemon *d)
{
    if (d->links == NULL || d->links_restarting || d->draining) return;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        c->link_wire_bytes += tb_links_landed_bytes(d->links, &c->key.uid);
    tb_limits_tick(d);
    d->links_restarting = true;
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        tb_site_records_link(d, i, false);
    tb_log(TB_LOG_WARN, "links.restart", "incarnation=%llu", (unsigned long long)d->incarnation);
    tb_links_close(d->links, restart_closed, d);
}

void tb_crossings_life_tell(struct tb_daemon *d)
{
    const tb_time_ns now = tb_clock_now();
    if (!d->life_untold || d->links_restarting) return;
    if (d->life_told_at != 0 && tb_time_since(d->life_told_at, now) < LIFE_NS) return;
    d->life_untold = false;
    d->life_told_at = now;
    restart(d);
}

/* ---- a reload ---- */

static void come_refused(enum tb_status status, const char error[256])
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "reload.refused");
    tb_log_str(&l, "why", error[0] != '\0' ? error : tb_status_name(status));
    tb_log_str(&l, "action", "nothing_changed");
    tb_log_end(&l);
}

enum tb_status tb_peers_come(struct tb_daemon *d, const struct tb_config *next)
{
    static struct tb_name models[TB_LINKS_MODELS_MAX]; /* the main loop's alone */
    struct tb_links *links = tb_peer_links(d);
    enum tb_status status = TB_OK;
    uint32_t at = d->config->peer_count;
    char error[256] = "";
    TB_ASSERT(links == NULL || tb_links_peer_count(links) == d->config->peer_count);
    for (; links != NULL && status == TB_OK && at < next->peer_count; at += status == TB_OK) {
        d->found[at] = (struct tb_store_path){.streams = 0};
        const struct tb_links_peer_options options = peer_options(d, next, at, models);
        status = tb_links_peer_add(links, &options, error);
    }
    if (status == TB_OK) return TB_OK; /* links that open anew meanwhile open with them */
    come_refused(status, error);
    for (; at > d->config->peer_count; at--)
        tb_links_peer_undo(links);
    return status;
}

void tb_peer_leaves(struct tb_daemon *d, uint32_t peer)
{
    TB_ASSERT(peer < d->config->peer_count && !d->config->peers[peer].gone);
    tb_log(TB_LOG_INFO, "peer.left", "peer=%s", tb_peer_site(d, peer));
    if (tb_peer_links(d) != NULL) tb_links_peer_remove(d->links, peer);
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* P8: each name that was refused is looked at once: one that is refused again, since the peer says
 * another home, has another place in the list. */
static void rights_given(struct tb_daemon *d, const struct tb_config *was, uint32_t peer)
{
    static struct tb_name refused[TB_LINKS_REFUSED_MAX]; /* the main loop's alone */
    uint32_t count = 0;
    const struct tb_name *name;
    while ((name = tb_links_refused_at(d->links, peer, count)) != NULL)
        refused[count++] = *name;
    TB_ASSERT(count <= TB_LINKS_REFUSED_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (tb_peer_may_read(d, peer, &refused[i]) && !tb_peer_may_read_by(was, peer, &refused[i]))
            tb_links_right_changed(d->links, peer, &refused[i], true);
}

/* P8: a model of a pattern may rest here that the peer asked for: so names count that it was
 * granted. Only what changed is said: a refusal is a line and a row of the audit record. */
static void rights_change(struct tb_daemon *d, const struct tb_config *was, uint32_t peer)
{
    const struct tb_name *name;
    for (uint32_t at = 0; (name = tb_links_granted_at(d->links, peer, at)) != NULL;) {
        const struct tb_name model = *name;
        if (tb_peer_may_read(d, peer, &model))
            at++;
        else
            tb_links_right_changed(d->links, peer, &model, false); /* another one has its place now */
    }
    rights_given(d, was, peer);
}

void tb_link_opening_wanted(struct tb_daemon *d)
{
    static struct tb_name models[TB_LINKS_MODELS_MAX]; /* the main loop's alone */
    if (tb_peer_links(d) == NULL) return;              /* those to come begin with it */
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (!d->config->peers[i].gone)
            tb_links_peer_models(d->links, i, models, models_wanted(d, d->config, i, models));
}

void tb_link_opening_changed(struct tb_daemon *d, const struct tb_config *was)
{
    static struct tb_name models[TB_LINKS_MODELS_MAX]; /* the main loop's alone */
    const struct tb_config *c = d->config;
    if (tb_peer_links(d) == NULL) return; /* those to come begin with it */
    tb_links_admission(d->links, c->handshakes_open, c->handshakes_failed, c->garbled_frames);
    for (uint32_t i = 0; i < was->peer_count; i++) {
        if (c->peers[i].gone) continue;
        TB_ASSERT(tb_name_equal(&c->peers[i].site, &was->peers[i].site)); /* rows stay */
        if (!same_text(c->peers[i].address, was->peers[i].address))
            tb_links_peer_address(d->links, i, c->peers[i].address);
        tb_links_peer_models(d->links, i, models, models_wanted(d, c, i, models));
        rights_change(d, was, i);
    }
    tb_pauses_apply(d); /* also to peers that came */
}
