/* links.c - the object: made, ticked, asked, closed. What a tick does is in the link_*.c files. */
#include "wan/links.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "wan/choice_trial.h"
#include "wan/link.h"

#define TICK_BUSY_MS   5u /* HELD at most every 10 ms, and a relay looks for held chunks as often */
#define TICK_IDLE_MS   25u
#define CEILINGS_EVERY TB_SECONDS(1)
/* A core encrypts and digests 1 GB/s and more, so 32 fill any NIC of today. Each takes 1.6 MB: 50 MB for all. */
#define THREADS_MOST 32u
/* half of what one key may encrypt: the other half is for the change */
#define RECORDS_MAX (UINT64_C(1) << 22)

_Static_assert(TB_HEDGE_CROSSINGS_MAX >= TB_LINKS_CROSSINGS_MAX, "each crossing may hedge");

uint64_t links_random(void)
{
    uint64_t v = 0;
    tb_random_bytes(&v, sizeof v);
    return v;
}

struct offer *offer_find(struct tb_links *ls, const struct tb_id *uid)
{
    struct offer *o = ls->offers;
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    return o;
}

/* ---- places that were taken back ---- */

static void sweep_shares(struct tb_links *ls)
{
    struct tb_share **at = &ls->retiring;
    while (*at != NULL) {
        struct tb_share *s = *at;
        if (!tb_share_only_ours(s)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->call->left--;
        tb_share_free(s);
    }
}

static void sweep_retired(struct tb_links *ls)
{
    sweep_shares(ls);
    struct retired **at = &ls->retired;
    while (*at != NULL) {
        struct retired *r = *at;
        if (r->left > 0) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (r->done != NULL && !ls->closing) {
            r->done(r->user);
            at = &ls->retired; /* the daemon may have added some */
        }
        tb_free(r);
    }
}

static struct retired *retired_new(struct tb_links *ls, void (*done)(void *user), void *user)
{
    struct retired *r = tb_calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->done = done;
    r->user = user;
    r->next = ls->retired;
    ls->retired = r;
    return r;
}

static void retire(struct tb_links *ls, struct tb_share *share, struct retired *call)
{
    share->call = call;
    share->next = ls->retiring;
    ls->retiring = share;
    call->left++;
    tb_share_revoke(share);
}

void links_fed(struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->loop_count; i++)
        tb_stream_loop_feed(ls->loops[i]);
}

void links_heed(struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->loop_count; i++)
        tb_stream_loop_wake(ls->loops[i]);
}

static void wake_loops(struct tb_links *ls)
{
    links_heed(ls);
    uv_async_send(&ls->wake);
}

/* ---- the clock ---- */

static void closing_step(struct tb_links *ls);

static bool anything_moves(const struct tb_links *ls)
{
    bool moves = ls->retired != NULL || ls->closing;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        moves |= link_moves(&ls->links[i]);
    return moves;
}

static void on_clock(uv_timer_t *clock);

static void set_clock(struct tb_links *ls, uint32_t ms)
{
    if (ls->clock_ms == ms) return;
    ls->clock_ms = ms;
    uv_timer_start(&ls->clock, on_clock, ms, ms);
}

void links_busy(struct tb_links *ls)
{
    set_clock(ls, TICK_BUSY_MS);
}

/* An operator raises them while this runs, as the log asks for. */
static void look_at_ceilings(struct tb_links *ls, tb_time_ns now)
{
    if (tb_time_since(ls->ceilings_at, now) < CEILINGS_EVERY) return;
    const struct tb_tcp_ceilings c = tb_tcp_ceilings();
    ls->ceilings_at = now;
    if (c.send_bytes == 0 || c.receive_bytes == 0) return; /* no descriptor, perhaps */
    ls->ceilings = c;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        atomic_store_explicit(&ls->links[i].path.send_ceiling_bytes, c.send_bytes, memory_order_relaxed);
}

static void move(struct link *l, tb_time_ns now)
{
    link_take_notes(l);
    link_streams_tick(l, now);
    link_move_tick(l, now);
}

static void on_clock(uv_timer_t *clock)
{
    struct tb_links *ls = clock->data;
    const tb_time_ns now = tb_clock_now();
    links_offers_tick(ls);
    look_at_ceilings(ls, now);
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct link *l = &ls->links[i];
        /* those of sessions that ended before this tick: a BYE has had its turn of the loop */
        link_streams_end_old(l);
        link_up_tick(l, now);
        link_versions_tick(l);
        link_serves_tick(l);
        move(l, now);
    }
    links_share_tick(ls, now);
    links_conns_tick(ls, now);
    ls->ticked_at = tb_clock_now();
    sweep_retired(ls);
    set_clock(ls, anything_moves(ls) ? TICK_BUSY_MS : TICK_IDLE_MS);
    if (ls->closing) closing_step(ls);
}

/* A stream took a parcel, wrote a note, changed its phase or let go of a share. */
static void on_wake(uv_async_t *wake)
{
    struct tb_links *ls = wake->data;
    const tb_time_ns now = tb_clock_now();
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        move(&ls->links[i], now);
    sweep_retired(ls);
    if (ls->closing) closing_step(ls);
}

/* ---- beginning ---- */

/* What the kernel offers. */
static void path_options(const struct tb_links_options *o, const struct tb_tcp_ceilings *ceilings,
                         struct tb_tcp_path_options *p)
{
    char why[256];
    *p = (struct tb_tcp_path_options){.send_ceiling_bytes = ceilings->send_bytes};
    p->tuning = (struct tb_tuner_options){.streams = o->streams,
                                          .cores = o->threads,
                                          .bbr = tb_tcp_congestion_check("bbr", why) == TB_OK,
                                          .cubic = tb_tcp_congestion_check("cubic", why) == TB_OK};
}

/* "auto" is what there is; a name must be had. */
static enum tb_status check_congestion(const struct tb_links_peer_options *p, char error_out[256])
{
    if (p->congestion == NULL || strcmp(p->congestion, "auto") == 0) return TB_OK;
    return tb_tcp_congestion_check(p->congestion, error_out);
}

static uint32_t or_default(uint32_t value, uint32_t usual)
{
    return value != 0 ? value : usual;
}

uint32_t tb_links_threads(uint32_t cores)
{
    return cores < THREADS_MOST ? cores : THREADS_MOST;
}

static void fill_defaults(struct tb_links_options *o)
{
    const uint32_t cores = uv_available_parallelism();
    o->threads = or_default(o->threads, tb_links_threads(cores));
    o->heartbeat_ms = or_default(o->heartbeat_ms, 1000);
    o->down_ms = or_default(o->down_ms, 3000);
    o->silent_ms = or_default(o->silent_ms, 1000);
    /* Four times a second, and not quite in step with it: TCP repeats the SYN of each earlier dial every second, and twelve of them then ask
     * a silent path every 80 ms or so instead of all at once. */
    o->fresh_dial_ms = or_default(o->fresh_dial_ms, 232);
    o->stream_idle_ms = or_default(o->stream_idle_ms, 5000);
    o->retry_min_ms = or_default(o->retry_min_ms, 100);
    o->retry_max_ms = or_default(o->retry_max_ms, 5000);
    o->push_ms = or_default(o->push_ms, 250);
    o->push_most_ms = or_default(o->push_most_ms, 1000);
    o->push_rest_ms = or_default(o->push_rest_ms, 60000);
    o->push_manifest_bytes = or_default(o->push_manifest_bytes, 64 << 10);
    o->hedge_permille = or_default(o->hedge_permille, TB_HEDGE_PERMILLE);
    o->lane_count = or_default(o->lane_count, 1);
    o->protocol_max = or_default(o->protocol_max, TB_LINK_PROTOCOL);
    if (o->records_max == 0) o->records_max = RECORDS_MAX;
    if (o->manifest_bytes_max == 0) o->manifest_bytes_max = TB_MANIFESTS_BYTES_MAX;
}

static enum tb_status refuse(char error_out[256], const char *what, const char *which)
{
    snprintf(error_out, 256, "%s: %s", what, which);
    return TB_BAD_ARGUMENT;
}

static enum tb_status check_peer(const struct tb_links_options *o, const struct tb_links_peer_options *p,
                                 char error_out[256])
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    if (!tb_name_valid(p->site.text) || !tb_name_valid(p->gateway.text))
        return refuse(error_out, "a peer's site or gateway is no name", p->site.text);
    if (p->model_count > TB_LINKS_MODELS_MAX)
        return refuse(error_out, "too many models are wanted from", p->site.text);
    if (strlen(p->congestion != NULL ? p->congestion : "") >= TB_TCP_CONGESTION_BYTES)
        return refuse(error_out, "not a congestion control", p->congestion);
    if (check_congestion(p, error_out) != TB_OK) return TB_SITE_CONFIG;
    if (p->address == NULL) return TB_OK;
    if (tb_endpoint_parse(p->address, &endpoint) != TB_OK || endpoint.is_unix)
        return refuse(error_out, "not an address like host:port", p->address);
    if (o->resolver == NULL && tb_endpoint_address(&endpoint, &address) != TB_OK)
        return refuse(error_out, "a name needs a resolver", p->address);
    return TB_OK;
}

static enum tb_status check(const struct tb_links_options *o, char error_out[256])
{
    const struct tb_identity *own = tb_tls_identity(o->tls);
    if (own->kind != TB_IDENTITY_GATEWAY || !tb_name_equal(&own->site, &o->site) ||
        !tb_name_equal(&own->name, &o->gateway))
        return refuse(error_out, "the certificate is not of this gateway", o->gateway.text);
    if (o->peer_count > TB_LINKS_PEERS_MAX || o->streams > TB_LINKS_STREAMS_MAX ||
        o->threads > TB_LINKS_THREADS_MAX)
        return refuse(error_out, "too many peers, streams or threads", o->site.text);
    if (o->lane > 0 && o->lane >= o->lane_count)
        return refuse(error_out, "the lane is not one of its site's", o->site.text);
    if (o->protocol_max > TB_LINK_PROTOCOL)
        return refuse(error_out, "protocol_max is over what this release speaks", o->site.text);
    if (o->retry_min_ms > o->retry_max_ms)
        return refuse(error_out, "retry_min_ms is over retry_max_ms", o->site.text);
    for (uint32_t i = 0; i < o->peer_count; i++) {
        const enum tb_status status = check_peer(o, &o->peers[i], error_out);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

/* Once a process: a machine's speeds do not change with its links. */
static const struct tb_choice_speed *machine_speeds(void)
{
    static struct tb_choice_speed speeds[TB_WAYS];
    static bool tried;
    if (!tried) tb_choice_trial(speeds);
    tried = true;
    return speeds;
}

static enum tb_status link_init(struct tb_links *ls, struct link *l, const struct tb_links_peer_options *p)
{
    const struct tb_links_options *o = &ls->options;
    l->links = ls;
    l->index = (uint32_t)(l - ls->links);
    l->identity = (struct tb_identity){.kind = TB_IDENTITY_GATEWAY, .site = p->site, .name = p->gateway};
    l->label = p->label.text[0] != '\0' ? p->label : p->site;
    l->has_address = p->address != NULL && tb_endpoint_parse(p->address, &l->endpoint) == TB_OK;
    if (tb_feed_init(&l->feed, o->codec, o->threads) != TB_OK) return TB_SITE_NOMEM;
    if (o->codec == TB_CHOICE_AUTO) tb_choice_seed(&l->feed.choice, machine_speeds());
    l->models = tb_calloc(p->model_count + 1, sizeof *l->models);
    if (l->models == NULL) {
        tb_feed_fini(&l->feed);
        return TB_SITE_NOMEM;
    }
    memcpy(l->models, p->models, p->model_count * sizeof *l->models);
    l->model_count = p->model_count;
    const struct tb_link_session_config config = {.self = ls->identity,
                                                  .peer = l->identity,
                                                  .peer_lane = p->lane,
                                                  .protocol_max = o->protocol_max,
                                                  .can_dial = l->has_address,
                                                  .retry_min = TB_MS(o->retry_min_ms),
                                                  .retry_max = TB_MS(o->retry_max_ms),
                                                  .fresh_dial = TB_MS(o->fresh_dial_ms),
                                                  .silent = TB_MS(o->silent_ms)};
    tb_link_session_init(&l->life, &config, tb_clock_now());
    tb_hedge_init(&l->hedge, o->hedge_permille == TB_LINKS_HEDGE_NONE ? 0 : o->hedge_permille);
    tb_tuner_init(&l->tuner, &ls->path.tuning);
    tb_tuner_recall(&l->tuner, p->streams_found, p->found_bytes_per_s);
    l->stats.streams_found = l->tuner.searched ? p->streams_found : 0;
    l->stats.found_bytes_per_s = p->found_bytes_per_s;
    l->path = ls->path;
    if (p->congestion != NULL) {
        snprintf(l->congestion, sizeof l->congestion, "%s", p->congestion);
        l->path.congestion = l->congestion;
    }
    return TB_OK;
}

static void link_fini(struct link *l)
{
    link_forget_resolving(l);
    link_pushes_down(l);
    link_pushes_forget(l);
    link_asks_free(l);
    link_serves_drop(l, NULL);
    link_outs_drop(l, NULL);
    while (l->ins != NULL) {
        tb_share_free(l->ins->share);
        link_in_free(l, l->ins);
    }
    tb_feed_fini(&l->feed);
    tb_free(l->announced);
    tb_free(l->models);
}

static enum tb_status listen_at(struct tb_links *ls, const char *text, char error_out[256])
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    if (text == NULL) return TB_OK;
    if (tb_endpoint_parse(text, &endpoint) != TB_OK || endpoint.is_unix ||
        tb_endpoint_address(&endpoint, &address) != TB_OK)
        return refuse(error_out, "link.listen: not a numeric address like 0.0.0.0:7400", text);
    const enum tb_status status =
        tb_listen(ls->options.loop, &address, 0, links_on_accept, ls, &ls->listener);
    if (status != TB_OK)
        snprintf(error_out, 256, "link.listen: %s: %s", text, tb_endpoint_why(status, errno));
    return status;
}

static enum tb_status loops_new(struct tb_links *ls)
{
    for (; ls->loop_count < ls->options.threads; ls->loop_count++) {
        const enum tb_status status = tb_stream_loop_new(&ls->wake, &ls->loops[ls->loop_count]);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

static void loops_free(struct tb_links *ls)
{
    while (ls->loop_count > 0)
        tb_stream_loop_free(ls->loops[--ls->loop_count]);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct tb_links *ls = handle->data;
    if (--ls->handles > 0) return;
    void (*closed)(void *) = ls->closed;
    void *user = ls->closed_user;
    tb_tls_free(ls->options.tls);
    tb_free(ls->links);
    tb_free(ls);
    if (closed != NULL) closed(user);
}

static void handles_close(struct tb_links *ls)
{
    uv_close((uv_handle_t *)&ls->wake, on_handle_closed);
    uv_close((uv_handle_t *)&ls->clock, on_handle_closed);
}

/* Everything that tb_links_new makes and closing ends: links, threads, the listening socket. */
static enum tb_status open_up(struct tb_links *ls, const struct tb_links_options *options,
                              char error_out[256])
{
    uint32_t made = 0;
    enum tb_status status = TB_OK;
    for (; made < options->peer_count && status == TB_OK; made += status == TB_OK)
        status = link_init(ls, &ls->links[made], &options->peers[made]);
    if (status != TB_OK) goto undo_links;
    status = loops_new(ls);
    if (status != TB_OK) goto undo_loops;
    status = listen_at(ls, options->listen, error_out);
    if (status == TB_OK) return TB_OK;

undo_loops:
    loops_free(ls);
undo_links:
    while (made > 0)
        link_fini(&ls->links[--made]);
    return status;
}

enum tb_status tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                            char error_out[256])
{
    error_out[0] = '\0';
    enum tb_status status = check(options, error_out);
    if (status != TB_OK) return status;
    snprintf(error_out, 256, "no memory, or no thread, for the links");
    struct tb_links *ls = tb_calloc(1, sizeof *ls);
    if (ls == NULL) return TB_SITE_NOMEM;
    ls->options = *options;
    fill_defaults(&ls->options);
    ls->options.peers = NULL;
    ls->options.listen = NULL;
    ls->options.tls = tb_tls_ref(options->tls);
    ls->identity = *tb_tls_identity(options->tls);
    ls->ceilings = tb_tcp_ceilings();
    path_options(&ls->options, &ls->ceilings, &ls->path);
    ls->ticked_at = ls->ceilings_at = tb_clock_now();
    status = TB_SITE_NOMEM;
    ls->links = tb_calloc(options->peer_count + 1, sizeof *ls->links);
    if (ls->links == NULL || uv_async_init(options->loop, &ls->wake, on_wake) != 0) goto undo_memory;
    uv_timer_init(options->loop, &ls->clock);
    ls->wake.data = ls->clock.data = ls;
    ls->handles = 2;
    status = open_up(ls, options, error_out);
    if (status != TB_OK) {
        handles_close(ls); /* frees it on the next turn */
        return status;
    }
    set_clock(ls, TICK_BUSY_MS);
    error_out[0] = '\0';
    *links_out = ls;
    return TB_OK;

undo_memory:
    tb_tls_free(ls->options.tls);
    tb_free(ls->links);
    tb_free(ls);
    return status;
}

/* ---- end ---- */

static bool streams_left(const struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        if (link_streams_count(&ls->links[i]) > 0) return true;
    return false;
}

static void offers_free(struct tb_links *ls)
{
    while (ls->offers != NULL) {
        struct offer *o = ls->offers;
        ls->offers = o->next;
        tb_share_free(o->share);
        tb_free(o);
    }
}

static void closing_step(struct tb_links *ls)
{
    if (ls->conns != NULL || streams_left(ls) || uv_is_closing((uv_handle_t *)&ls->wake)) return;
    loops_free(ls);
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        tb_feed_gifts_drop(&ls->links[i].feed);
    sweep_retired(ls);
    TB_ASSERT(ls->retired == NULL);
    links_share_end(ls, NULL);
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        link_fini(&ls->links[i]);
    offers_free(ls);
    handles_close(ls);
}

void tb_links_close(struct tb_links *links, void (*done)(void *user), void *user)
{
    TB_ASSERT(!links->closing);
    links->closing = true;
    links->closed = done;
    links->closed_user = user;
    if (links->listener != NULL) tb_listener_close(links->listener);
    links->listener = NULL;
    for (uint32_t i = 0; i < links->options.peer_count; i++)
        link_up_stop(&links->links[i]);
    links_busy(links);
}

/* ---- what we hold ---- */

static uint64_t chunks_of(const struct tb_place *places, uint32_t shard_count, uint64_t *bytes_out)
{
    uint64_t chunks = 0;
    *bytes_out = 0;
    for (uint32_t s = 0; s < shard_count; s++) {
        chunks += places[s].manifest->chunk_count;
        *bytes_out += places[s].manifest->bytes;
    }
    return chunks;
}

static struct tb_share *share_of_offer(struct tb_links *ls, const struct tb_version_key *key,
                                       const struct tb_place *places, uint32_t chunks)
{
    struct tb_share *share = tb_share_new(&key->uid, places, key->shard_count, &ls->wake);
    if (share == NULL) return NULL;
    share->sent = tb_sent_new(ls->options.peer_count, chunks);
    if (share->sent != NULL) return share;
    tb_share_free(share);
    return NULL;
}

enum tb_status tb_links_offer(struct tb_links *ls, const struct tb_version_key *key,
                              const struct tb_place *places)
{
    const struct tb_digest zero = {{0}};
    uint64_t bytes = 0;
    if (offer_find(ls, &key->uid) != NULL) return TB_DONE_BEFORE;
    const uint64_t chunks = chunks_of(places, key->shard_count, &bytes);
    if (tb_digest_equal(&key->root, &zero) || chunks > UINT32_MAX) return TB_BAD_ARGUMENT;
    if (ls->offer_count >= TB_LINKS_OFFERS_MAX) return TB_SITE_NOMEM;
    struct offer *o = tb_calloc(1, sizeof *o + ls->options.peer_count * sizeof o->peers[0]);
    if (o == NULL) return TB_SITE_NOMEM;
    o->share = share_of_offer(ls, key, places, (uint32_t)chunks);
    if (o->share == NULL) {
        tb_free(o);
        return TB_SITE_NOMEM;
    }
    o->key = *key;
    o->bytes = bytes;
    o->chunks = (uint32_t)chunks;
    struct offer **at = &ls->offers;
    while (*at != NULL)
        at = &(*at)->next;
    *at = o;
    ls->offer_count++;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        link_announce(&ls->links[i], o);
    return TB_OK;
}

enum tb_status tb_links_retract(struct tb_links *ls, const struct tb_id *uid, enum tb_status why,
                                void (*done)(void *user), void *user)
{
    struct offer **at = &ls->offers;
    while (*at != NULL && !tb_id_equal(&(*at)->key.uid, uid))
        at = &(*at)->next;
    struct offer *o = *at;
    if (o == NULL) return TB_NOT_FOUND;
    struct retired *call = retired_new(ls, done, user);
    if (call == NULL) return TB_SITE_NOMEM;
    *at = o->next;
    ls->offer_count--;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct link *l = &ls->links[i];
        link_outs_drop(l, o);
        link_serves_drop(l, o);
        link_base_gone(l, o->share);
        if (link_is_up(l) && o->peers[i].announced == l->session_seq)
            link_send_gone(l, &o->key.uid, (int)why < 0 ? why : TB_NOT_FOUND);
    }
    if (ls->options.objects != NULL) tb_objects_drop(ls->options.objects, uid);
    retire(ls, o->share, call);
    tb_free(o);
    wake_loops(ls);
    return TB_OK;
}

enum tb_status tb_links_withdrawn(struct tb_links *ls, const struct tb_version_key *key)
{
    bool known = false;
    for (uint32_t i = 0; i < ls->withdrawn_count; i++)
        known |= tb_id_equal(&ls->withdrawn[i].uid, &key->uid);
    if (known) return TB_DONE_BEFORE;
    ls->withdrawn[ls->withdrawn_at++ % TB_LINKS_WITHDRAWN_MAX] = *key;
    if (ls->withdrawn_count < TB_LINKS_WITHDRAWN_MAX) ls->withdrawn_count++;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        link_tell_withdrawn(&ls->links[i], key);
    return TB_OK;
}

/* ---- what we want ---- */

enum tb_status tb_links_land_stop(struct tb_links *ls, const struct tb_id *uid, void (*done)(void *user),
                                  void *user)
{
    struct retired *call = retired_new(ls, done, user);
    if (call == NULL) return TB_SITE_NOMEM;
    links_share_end(ls, uid);
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct link *l = &ls->links[i];
        for (struct in *in = l->ins, *next; in != NULL; in = next) {
            next = in->next;
            if (!tb_id_equal(&in->key.uid, uid)) continue;
            link_in_stop(l, in);
            retire(ls, in->share, call);
            link_in_free(l, in);
        }
    }
    wake_loops(ls);
    return TB_OK;
}

/* ---- what is allowed ---- */

void tb_links_limit(struct tb_links *links, uint32_t peer, const struct tb_links_limit *limit)
{
    TB_ASSERT(peer < links->options.peer_count);
    struct link *l = &links->links[peer];
    tb_feed_cap(&l->feed, limit->bytes_per_s);
    tb_feed_until(&l->feed, limit->until_bytes);
    if (l->outs != NULL) links_busy(links);
}

/* ---- what is known ---- */

uint64_t tb_links_announced_bytes(const struct tb_links *links, const struct tb_id *uid)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < links->options.peer_count; i++) {
        const struct announced *a = link_announced(&links->links[i], uid);
        if (a != NULL && a->bytes > bytes) bytes = a->bytes;
    }
    return bytes;
}

uint64_t tb_links_landed_bytes(const struct tb_links *ls, const struct tb_id *uid)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        for (const struct in *in = ls->links[i].ins; in != NULL; in = in->next) {
            if (!tb_id_equal(&in->key.uid, uid)) continue;
            bytes += atomic_load_explicit(&in->share->received_bytes, memory_order_relaxed);
        }
    }
    return bytes;
}

enum tb_status tb_links_sent(const struct tb_links *ls, const struct tb_id *uid, struct tb_sent_sum *sent_out)
{
    const struct offer *o = ls->offers;
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    if (o == NULL) return TB_NOT_FOUND;
    tb_sent_look(o->share->sent, sent_out);
    return TB_OK;
}

enum tb_status tb_links_tell(struct tb_links *ls, uint32_t peer, const struct tb_links_report *report)
{
    TB_ASSERT(peer < ls->options.peer_count);
    struct link *l = &ls->links[peer];
    if (!link_is_up(l)) return TB_PEER_UNREACHABLE;
    LINK_SEND(l, TB_FRAME_REPORT, tb_frame_report, LINK_SMALL, .uid = report->uid, .site = report->site,
              .state = (uint8_t)report->state);
    return TB_OK;
}

enum tb_status tb_links_peer_progress(const struct tb_links *ls, uint32_t peer, const struct tb_id *uid,
                                      struct tb_links_progress *progress_out)
{
    const struct offer *o = ls->offers;
    TB_ASSERT(peer < ls->options.peer_count);
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    if (o == NULL) return TB_NOT_FOUND;
    const struct offer_peer *p = &o->peers[peer];
    *progress_out =
        (struct tb_links_progress){.chunks = o->chunks, .held_chunks = p->held_chunks, .whole = p->whole};
    for (const struct out *out = ls->links[peer].outs; out != NULL; out = out->next)
        progress_out->crossing |= out->offer == o;
    return TB_OK;
}

void tb_links_choice(const struct tb_links *links, uint32_t peer, struct tb_choice *choice_out)
{
    TB_ASSERT(peer < links->options.peer_count);
    tb_feed_choice(&links->links[peer].feed, choice_out);
}

unsigned tb_links_classes(const struct tb_links *links, const struct tb_name *model,
                          const struct tb_choice_pace *pace)
{
    static struct tb_choice choice; /* large; the main loop's alone */
    unsigned most = 0;
    for (uint32_t i = 0; i < links->options.peer_count; i++) {
        struct link *l = &links->links[i];
        if (!link_is_up(l) || !link_granted(l, model)) continue;
        tb_feed_choice(&l->feed, &choice);
        const unsigned classes = tb_choice_classes(&choice, pace);
        if (classes > most) most = classes;
    }
    return most;
}

bool tb_links_base_used(const struct tb_links *ls, const struct tb_id *uid)
{
    const struct offer *o = ls->offers;
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    for (uint32_t i = 0; o != NULL && i < ls->options.peer_count; i++)
        if (link_base_used(&ls->links[i], o->share)) return true;
    return false;
}

void tb_links_set_incarnation(struct tb_links *links, uint64_t incarnation)
{
    links->options.incarnation = incarnation;
}

/* P8: nor does anything that began under the old trust become a session: what is in TLS or before HELLO, what a link in limbo waits
 * for, and data streams that were dialled ahead. One that is bound already belongs to a session that ended, and ends with it. */
static void end_all(struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        link_drop(&ls->links[i], TB_PEER_IDENTITY);
        link_streams_ahead_end(&ls->links[i]);
    }
    for (struct conn *c = ls->conns; c != NULL; c = c->next)
        if (!c->is_session && c->binding == NULL) link_conn_close(c, TB_PEER_IDENTITY);
}

enum tb_status tb_links_set_tls(struct tb_links *ls, struct tb_tls *tls)
{
    if (!tb_identity_equal(tb_tls_identity(tls), &ls->identity)) return TB_BAD_ARGUMENT;
    const struct tb_digest before = tb_tls_trust(ls->options.tls), after = tb_tls_trust(tls);
    tb_tls_free(ls->options.tls);
    ls->options.tls = tb_tls_ref(tls);
    if (!tb_digest_equal(&before, &after)) {
        end_all(ls);
        return TB_OK;
    }
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        if (link_is_up(&ls->links[i])) link_renew(&ls->links[i], tb_clock_now());
    return TB_OK;
}

bool tb_links_address(const struct tb_links *ls, struct tb_address *address_out)
{
    if (ls->listener == NULL) return false;
    *address_out = tb_listener_address(ls->listener);
    return true;
}

uint32_t tb_links_peer_find(const struct tb_links *links, const char *label)
{
    for (uint32_t i = 0; i < links->options.peer_count; i++)
        if (strcmp(links->links[i].label.text, label) == 0) return i;
    return UINT32_MAX;
}

void tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out)
{
    TB_ASSERT(peer < links->options.peer_count);
    const struct link *l = &links->links[peer];
    *stats_out = l->stats;
    stats_out->queued_parcels = l->queued;
    (void)tb_feed_spent(&links->links[peer].feed, &stats_out->short_bytes);
    for (const struct push *p = l->expected; p != NULL; p = p->next)
        stats_out->expected++;
    link_stream_stats(l, stats_out);
    for (const struct out *o = l->outs; o != NULL; o = o->next)
        stats_out->crossings++;
    for (const struct in *in = l->ins; in != NULL; in = in->next)
        stats_out->landings += !in->finished;
    stats_out->up = link_is_up(l);
    if (!stats_out->up) {
        stats_out->up_since = 0;
        return;
    }
    stats_out->dialled_by_us = l->session->dialled;
    stats_out->protocol = l->protocol;
    stats_out->identity = l->session->identity;
    snprintf(stats_out->address, sizeof stats_out->address, "%s", l->session->address_text);
}

uint64_t tb_links_strangers_refused(const struct tb_links *links)
{
    return links->strangers;
}
