/* config_difference.c - see config_difference.h: which keys differ. */
#include "gateway/config/config_difference_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"

/* ---- rows ---- */

/* One instance of a scope in both configurations; NULL: it is not there. */
struct pair {
    enum config_scope scope;
    const struct tb_name *of; /* NULL: the root */
    const void *was, *is;
};

static enum tb_status row_new(struct tb_config_difference *d, struct tb_config_change **row_out)
{
    if (d->count == d->room) {
        const uint32_t room = d->room == 0 ? 16 : 2 * d->room;
        struct tb_config_change *more = tb_realloc(d->changes, room * sizeof *more);
        if (more == NULL) return TB_SITE_NOMEM;
        d->changes = more;
        d->room = room;
    }
    *row_out = &d->changes[d->count++];
    **row_out = (struct tb_config_change){.kind = TB_CONFIG_CHANGED};
    return TB_OK;
}

/* "peers.west", "peers.west.rate"; "subscribe.policy" is the subscription to that model. */
static void name_row(struct tb_config_change *row, const struct pair *p, const char *path)
{
    static const char *const sections[] = {"", "peers.", "models.", "subscribe."};
    const int used =
        snprintf(row->key, sizeof row->key, "%s%s%s%s", sections[p->scope], p->of != NULL ? p->of->text : "",
                 p->of != NULL && path[0] != '\0' ? "." : "", path);
    TB_ASSERT(used > 0 && (size_t)used < sizeof row->key);
    const struct config_effect effect = tb_config_effect_of(p->scope, path);
    row->scope = (int)p->scope;
    row->effect = effect.effect == TB_CONFIG_LIVE ? TB_CONFIG_LIVE : TB_CONFIG_RESTART;
    row->how = effect.how;
    if (p->of != NULL) row->of = *p->of;
}

static enum tb_status whole(struct tb_config_difference *d, const struct pair *p)
{
    TB_ASSERT((p->was == NULL) != (p->is == NULL) && p->of != NULL);
    struct tb_config_change *row;
    const enum tb_status status = row_new(d, &row);
    if (status != TB_OK) return status;
    name_row(row, p, "");
    row->row = config_key_count;
    row->kind = p->was == NULL ? TB_CONFIG_ADDED : TB_CONFIG_REMOVED;
    return TB_OK;
}

static enum tb_status keys_differ(struct tb_config_difference *d, const struct pair *p)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < config_key_count && status == TB_OK; i++) {
        const struct config_key *key = &config_keys[i];
        struct tb_config_change *row;
        if (key->scope != p->scope || tb_config_value_equal(key, p->was, p->is)) continue;
        status = row_new(d, &row);
        if (status != TB_OK) break;
        name_row(row, p, key->path);
        row->row = i;
        status = tb_config_value_text(key, p->was, &row->was);
        if (status == TB_OK) status = tb_config_value_text(key, p->is, &row->is);
    }
    return status;
}

static enum tb_status pair_differs(struct tb_config_difference *d, const struct pair *p)
{
    return p->was != NULL && p->is != NULL ? keys_differ(d, p) : whole(d, p);
}

/* ---- all of two files: what runs in its order, then what is new ---- */

static enum tb_status peers_differ(struct tb_config_difference *d, const struct tb_config *was,
                                   const struct tb_config *is)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < was->peer_count && status == TB_OK; i++) {
        const struct tb_config_peer *p = &was->peers[i];
        if (p->gone) continue;
        status = pair_differs(d, &(struct pair){CONFIG_PEER, &p->site, p, tb_config_peer_of(is, &p->site)});
    }
    for (uint32_t i = 0; i < is->peer_count && status == TB_OK; i++) {
        const struct tb_config_peer *p = &is->peers[i];
        if (p->gone || tb_config_peer_of(was, &p->site) != NULL) continue;
        status = pair_differs(d, &(struct pair){CONFIG_PEER, &p->site, NULL, p});
    }
    return status;
}

/* Which of the patterns that are in both files it is. */
static uint32_t pattern_place(const struct tb_config *c, const struct tb_config *other,
                              const struct tb_config_model *of)
{
    uint32_t place = 1;
    for (uint32_t i = 0; i < c->model_count; i++) {
        const struct tb_config_model *m = &c->models[i];
        if (!m->is_pattern || m->left || m->place >= of->place) continue;
        place += tb_config_model_of(other, &m->name) != NULL;
    }
    return place;
}

/* NULL: no memory. */
static char *place_text(uint32_t place)
{
    char *text = malloc(32);
    if (text != NULL) (void)snprintf(text, 32, "pattern %" PRIu32, place);
    return text;
}

/* Of two patterns that match one name the first counts: so their order is a value, too. */
static enum tb_status order_differs(struct tb_config_difference *d, const struct tb_config *was,
                                    const struct tb_config *is, const struct tb_config_model *m)
{
    const struct tb_config_model *now = tb_config_model_of(is, &m->name);
    if (!m->is_pattern || now == NULL) return TB_OK;
    const uint32_t before = pattern_place(was, is, m), after = pattern_place(is, was, now);
    if (before == after) return TB_OK;
    struct tb_config_change *row;
    const enum tb_status status = row_new(d, &row);
    if (status != TB_OK) return status;
    name_row(row, &(struct pair){CONFIG_MODEL, &m->name, m, now}, "");
    row->row = TB_CONFIG_ROW_ORDER;
    row->how = "with the next request";
    row->was = place_text(before);
    row->is = place_text(after);
    return row->was != NULL && row->is != NULL ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status models_differ(struct tb_config_difference *d, const struct tb_config *was,
                                    const struct tb_config *is)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < was->model_count && status == TB_OK; i++) {
        const struct tb_config_model *m = &was->models[i];
        if (m->left) continue;
        status = pair_differs(d, &(struct pair){CONFIG_MODEL, &m->name, m, tb_config_model_of(is, &m->name)});
        if (status == TB_OK) status = order_differs(d, was, is, m);
    }
    for (uint32_t i = 0; i < is->model_count && status == TB_OK; i++) {
        const struct tb_config_model *m = &is->models[i];
        if (m->left || tb_config_model_of(was, &m->name) != NULL) continue;
        status = pair_differs(d, &(struct pair){CONFIG_MODEL, &m->name, NULL, m});
    }
    return status;
}

static enum tb_status subscriptions_differ(struct tb_config_difference *d, const struct tb_config *was,
                                           const struct tb_config *is)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < was->subscribe_count && status == TB_OK; i++) {
        const struct tb_config_subscribe *s = &was->subscribe[i];
        status = pair_differs(
            d, &(struct pair){CONFIG_SUBSCRIBE, &s->model, s, tb_config_subscribe_of(is, &s->model)});
    }
    for (uint32_t i = 0; i < is->subscribe_count && status == TB_OK; i++) {
        const struct tb_config_subscribe *s = &is->subscribe[i];
        if (tb_config_subscribe_of(was, &s->model) != NULL) continue;
        status = pair_differs(d, &(struct pair){CONFIG_SUBSCRIBE, &s->model, NULL, s});
    }
    return status;
}

enum tb_status tb_config_differ(const struct tb_config *was, const struct tb_config *is,
                                const struct tb_config_reach *reach,
                                struct tb_config_difference *difference_out)
{
    struct tb_config_difference d = {.changes = NULL};
    enum tb_status status = keys_differ(&d, &(struct pair){CONFIG_ROOT, NULL, was, is});
    if (status == TB_OK) status = peers_differ(&d, was, is);
    if (status == TB_OK) status = models_differ(&d, was, is);
    if (status == TB_OK) status = subscriptions_differ(&d, was, is);
    if (status != TB_OK) {
        tb_config_difference_free(&d);
        return status;
    }
    tb_config_difference_judge(&d, was, is, reach);
    for (uint32_t i = 0; i < d.count; i++)
        *(d.changes[i].effect == TB_CONFIG_LIVE ? &d.live : &d.restart) += 1;
    *difference_out = d;
    return TB_OK;
}

void tb_config_difference_free(struct tb_config_difference *difference)
{
    for (uint32_t i = 0; i < difference->count; i++) {
        free(difference->changes[i].was);
        free(difference->changes[i].is);
    }
    tb_free(difference->changes);
    *difference = (struct tb_config_difference){.changes = NULL};
}
