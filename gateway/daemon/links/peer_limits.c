/* peer_limits.c - how much is sent to each peer: a rate, hours of the day with one of their
 * own, and a day's bytes.
 *
 * Once a second the links are told what holds now. A day's bytes are handed to them as the count at
 * which they stop, so that a fast link cannot overrun the second, nor the day by a byte. Bytes are
 * written down before they are sent (wan/send/budget.h): a kill stretches no budget. */
#include "gateway/daemon/daemon.h"

#include <jansson.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/store/store_load.h"
#include "wan/link/links_stats.h"

#define DAY_MS ((uint64_t)TB_DAY_S * 1000)

static uint64_t today(void)
{
    return tb_clock_wall_ms() / DAY_MS;
}

uint64_t tb_limits_day_ends_s(void)
{
    return (DAY_MS - tb_clock_wall_ms() % DAY_MS) / 1000;
}

static uint32_t second_of_day(void)
{
    return (uint32_t)(tb_clock_wall_ms() % DAY_MS / 1000);
}

static void spent(void *user, const struct tb_store_spent *row)
{
    struct tb_daemon *d = user;
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (tb_name_equal(&d->config->peers[i].site, &row->site))
            tb_budget_restore(&d->limits[i].budget, row->day, row->bytes, today());
}

enum tb_status tb_limits_open(struct tb_daemon *d)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        const struct tb_config_peer *p = &d->config->peers[i];
        d->limits[i] = (struct tb_peer_limit){
            .rate = p->rate, .budget = {.day_bytes = p->day_bytes, .day = today()}, .told = TB_BUDGET_OK};
    }
    const enum tb_status status = tb_store_load_spent(d->store, spent, d);
    if (status != TB_OK) tb_log(TB_LOG_WARN, "limit.forgotten", "why=store action=day_begins_anew");
    return TB_OK;
}

static bool same_plan(const struct tb_rate_plan *a, const struct tb_rate_plan *b)
{
    if (a->bit_per_s != b->bit_per_s || a->window_count != b->window_count) return false;
    return memcmp(a->windows, b->windows, a->window_count * sizeof a->windows[0]) == 0;
}

/* ---- what holds now ---- */

/* P10: one line when a state begins. */
static void tell_state(struct tb_daemon *d, uint32_t peer)
{
    struct tb_peer_limit *l = &d->limits[peer];
    const enum tb_budget_state state = tb_budget_state(&l->budget);
    if (state == l->told) return;
    const bool worse = state > l->told;
    l->told = state;
    if (state == TB_BUDGET_NONE || (state == TB_BUDGET_OK && worse)) return;
    if (state == TB_BUDGET_HELD) d->counters.budgets_held++;
    tb_log(state == TB_BUDGET_OK ? TB_LOG_INFO : TB_LOG_WARN, "limit.day",
           "peer=%s state=%s used_bytes=%llu day_bytes=%llu action=%s", d->config->peers[peer].site.text,
           tb_budget_state_name(state), (unsigned long long)l->budget.used_bytes,
           (unsigned long long)l->budget.day_bytes,
           state == TB_BUDGET_HELD ? "tombolo_limit_or_wait_for_the_day" : "none");
}

static void save(struct tb_daemon *d, uint32_t peer, uint64_t bytes)
{
    const struct tb_store_spent row = {
        .site = d->config->peers[peer].site, .day = d->limits[peer].budget.day, .bytes = bytes};
    if (d->persist != NULL) tb_persist_spent(d, &row);
}

static void count(struct tb_daemon *d, uint32_t peer)
{
    static struct tb_links_stats stats; /* large; the main loop's alone */
    struct tb_peer_limit *l = &d->limits[peer];
    if (d->links == NULL || d->links_restarting) return;
    tb_links_stats(d->links, peer, &stats);
    TB_ASSERT(stats.bytes_sent >= l->counted_bytes); /* new links begin at 0: tb_limits_renewed */
    tb_budget_count(&l->budget, today(), stats.bytes_sent - l->counted_bytes);
    l->budget.short_bytes = stats.short_bytes;
    l->counted_bytes = stats.bytes_sent;
}

static void apply(struct tb_daemon *d, uint32_t peer)
{
    struct tb_peer_limit *l = &d->limits[peer];
    const uint64_t bit_per_s = tb_rate_at(&l->rate, second_of_day());
    const uint64_t left = tb_budget_left(&l->budget);
    if (bit_per_s != l->bit_per_s) {
        char rate[TB_RATE_CHARS];
        tb_rate_format(bit_per_s, rate);
        tb_log(TB_LOG_INFO, "limit.rate", "peer=%s rate=%s", d->config->peers[peer].site.text, rate);
    }
    l->bit_per_s = bit_per_s;
    if (d->links == NULL || d->links_restarting) return;
    const struct tb_links_limit limit = {.bytes_per_s = bit_per_s / 8,
                                         .until_bytes =
                                             left == UINT64_MAX ? UINT64_MAX : l->counted_bytes + left};
    tb_links_limit(d->links, peer, &limit);
}

static void look(struct tb_daemon *d, uint32_t peer)
{
    uint64_t bytes = 0;
    TB_ASSERT(peer < d->config->peer_count);
    count(d, peer);
    apply(d, peer);
    tell_state(d, peer);
    if (tb_budget_save(&d->limits[peer].budget, &bytes)) save(d, peer, bytes);
}

void tb_limits_tick(struct tb_daemon *d)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        look(d, i);
}

void tb_limits_renewed(struct tb_daemon *d)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        d->limits[i].counted_bytes = 0;
        look(d, i);
    }
}

void tb_limits_close(struct tb_daemon *d)
{
    for (uint32_t i = 0; d->persist != NULL && i < d->config->peer_count; i++) {
        count(d, i);
        if (d->limits[i].budget.day_bytes != 0) save(d, i, d->limits[i].budget.used_bytes);
    }
}

void tb_limits_changed(struct tb_daemon *d, const struct tb_config *was)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        const struct tb_config_peer *p = &d->config->peers[i];
        struct tb_peer_limit *l = &d->limits[i];
        if (p->gone) *l = (struct tb_peer_limit){.told = TB_BUDGET_NONE};
        if (p->gone) continue;
        if (i >= was->peer_count)
            *l = (struct tb_peer_limit){
                .rate = p->rate, .budget = {.day_bytes = p->day_bytes, .day = today()}, .told = TB_BUDGET_OK};
        else if (!same_plan(&p->rate, &was->peers[i].rate))
            l->rate = p->rate;
        if (i < was->peer_count && p->day_bytes != was->peers[i].day_bytes)
            l->budget.day_bytes = p->day_bytes;
        look(d, i);
    }
}

/* ---- an operator ---- */

/* An operator's word, until the next start. Fields that are not given stay. */
struct limit_change {
    const char *rate; /* NULL: as it is */
    bool has_windows;
    uint32_t window_count;
    struct tb_rate_window windows[TB_RATE_WINDOWS_MAX];
    bool has_day_bytes;
    uint64_t day_bytes;
};

/* False: the rate is none. */
static bool change_take(struct tb_peer_limit *l, const struct limit_change *c)
{
    uint64_t bit_per_s = l->rate.bit_per_s;
    TB_ASSERT(c->has_windows || c->window_count == 0);
    if (c->rate != NULL && !tb_rate_parse(c->rate, &bit_per_s)) return false;
    l->rate.bit_per_s = bit_per_s;
    if (c->has_windows) {
        TB_ASSERT(c->window_count <= TB_RATE_WINDOWS_MAX);
        l->rate.window_count = c->window_count;
        memcpy(l->rate.windows, c->windows, sizeof c->windows);
    }
    if (c->has_day_bytes) l->budget.day_bytes = c->day_bytes;
    return true;
}

static enum tb_status limits_change(struct tb_daemon *d, uint32_t peer, const struct limit_change *c)
{
    TB_ASSERT(peer < d->config->peer_count);
    if (!change_take(&d->limits[peer], c)) return TB_BAD_ARGUMENT;
    tb_log(TB_LOG_INFO, "limit.changed", "peer=%s by=operator until=restart",
           d->config->peers[peer].site.text);
    look(d, peer);
    return TB_OK;
}

static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

json_t *tb_limits_json(const struct tb_peer_limit *l)
{
    TB_ASSERT(l->rate.window_count <= TB_RATE_WINDOWS_MAX);
    char text[TB_RATE_CHARS];
    json_t *o = json_object(), *hours = json_array();
    bool ok = o != NULL && hours != NULL;
    for (uint32_t i = 0; i < l->rate.window_count; i++) {
        tb_rate_window_format(&l->rate.windows[i], text);
        ok = ok && json_array_append_new(hours, json_string(text)) == 0;
    }
    const enum tb_budget_state state = tb_budget_state(&l->budget);
    ok = ok && put(o, "schedule", json_incref(hours));
    tb_rate_format(l->rate.bit_per_s, text);
    ok = ok && put(o, "rate", json_string(text));
    ok = ok && put(o, "bit_per_s", json_integer((json_int_t)l->bit_per_s));
    ok = ok && put(o, "day_state", json_string(tb_budget_state_name(state)));
    ok = ok && put(o, "day_bytes", json_integer((json_int_t)l->budget.day_bytes));
    ok = ok && put(o, "day_used_bytes", json_integer((json_int_t)l->budget.used_bytes));
    ok = ok && put(o, "day_ends_s", json_integer((json_int_t)tb_limits_day_ends_s()));
    json_decref(hours);
    if (ok) return o;
    json_decref(o);
    return NULL;
}

/* ---- the control socket ---- */

static enum tb_status read_hours(const json_t *list, struct limit_change *c, char *error)
{
    c->has_windows = true;
    if (!json_is_array(list) || json_array_size(list) > TB_RATE_WINDOWS_MAX) {
        snprintf(error, 256, "\"schedule\" is a list of at most %d hours", TB_RATE_WINDOWS_MAX);
        return TB_BAD_ARGUMENT;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        TB_ASSERT(c->window_count == i && i < TB_RATE_WINDOWS_MAX);
        const char *text = json_string_value(json_array_get(list, i));
        if (text != NULL && tb_rate_window_parse(text, &c->windows[c->window_count])) {
            c->window_count++;
            continue;
        }
        snprintf(error, 256, "\"%.40s\" is not HH:MM-HH:MM RATE, such as 08:00-18:00 50Mbit",
                 text != NULL ? text : "?");
        return TB_BAD_ARGUMENT;
    }
    return TB_OK;
}

static enum tb_status read_change(const json_t *request, struct limit_change *c, char *error)
{
    const json_t *hours = json_object_get(request, "schedule");
    const json_t *day = json_object_get(request, "day_bytes");
    const json_t *rate = json_object_get(request, "rate");
    uint64_t unused;
    c->rate = json_string_value(rate);
    if (rate != NULL && (c->rate == NULL || !tb_rate_parse(c->rate, &unused))) {
        snprintf(error, 256, "\"rate\" is no rate (1Mbit to 10000Gbit, such as 200Mbit, or none)");
        return TB_BAD_ARGUMENT;
    }
    if (day != NULL && (!json_is_integer(day) || json_integer_value(day) < 0)) {
        snprintf(error, 256, "\"day_bytes\" is a number of bytes, 0 for no limit");
        return TB_BAD_ARGUMENT;
    }
    c->has_day_bytes = day != NULL;
    c->day_bytes = day != NULL ? (uint64_t)json_integer_value(day) : 0;
    return hours != NULL ? read_hours(hours, c, error) : TB_OK;
}

/* "there is no peer "nroth"; this gateway's are east, north". */
static enum tb_status no_such_peer(const struct tb_daemon *d, const char *site, char *error)
{
    int used =
        snprintf(error, 256, "there is no peer \"%.64s\"; this gateway%s", site,
                 d->config->peer_count > 0 ? "'s are" : " has none: `peers` of its configuration is empty");
    for (uint32_t i = 0, named = 0; i < d->config->peer_count && used < 256; i++)
        if (!d->config->peers[i].gone)
            used += snprintf(error + used, 256 - (size_t)used, "%s %s", named++ > 0 ? "," : "",
                             d->config->peers[i].site.text);
    return TB_NOT_FOUND;
}

enum tb_status tb_limits_peer_find(const struct tb_daemon *d, const char *site, char *error)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (!d->config->peers[i].gone && strcmp(d->config->peers[i].site.text, site) == 0) return TB_OK;
    return no_such_peer(d, site, error);
}

/* The limits as they would be. */
static struct tb_peer_limit changed(const struct tb_peer_limit *l, const struct limit_change *c)
{
    struct tb_peer_limit would = *l;
    const bool good = change_take(&would, c);
    TB_ASSERT(good); /* read_change looked at it */
    would.bit_per_s = tb_rate_at(&would.rate, second_of_day());
    return would;
}

enum tb_status tb_limits_command(void *daemon, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = daemon;
    const char *site = json_string_value(json_object_get(request, "peer"));
    struct limit_change change = {0};
    uint32_t peer = 0;
    if (site == NULL || site[0] == '\0') {
        snprintf(error, 256, "limit needs \"peer\", the site of one of `peers`");
        return TB_BAD_ARGUMENT;
    }
    while (peer < d->config->peer_count && strcmp(d->config->peers[peer].site.text, site) != 0)
        peer++;
    if (peer == d->config->peer_count) return no_such_peer(d, site, error);
    enum tb_status status = read_change(request, &change, error);
    const bool changes = change.rate != NULL || change.has_windows || change.has_day_bytes;
    const bool dry = json_is_true(json_object_get(request, "dry_run"));
    if (status == TB_OK && changes && !dry) status = limits_change(d, peer, &change);
    if (status != TB_OK) return status;
    const struct tb_peer_limit shown = dry ? changed(&d->limits[peer], &change) : d->limits[peer];
    json_t *limit = tb_limits_json(&shown);
    const bool told = !dry || put(reply, "dry_run", json_true());
    if (limit == NULL || !told || !put(reply, "peer", json_string(site))) {
        json_decref(limit);
        return TB_SITE_NOMEM;
    }
    return put(reply, "limit", limit) ? TB_OK : TB_SITE_NOMEM;
}
