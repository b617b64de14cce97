/* config_difference_rules.c - live changes that this process cannot make, or not without another
 * one that needs a restart: they need one too. */
#include "gateway/config/config_difference_inside.h"

#include <string.h>

#include "base/assert.h"

/* All that a rule looks at. */
struct judged {
    struct tb_config_difference *all;
    const struct tb_config *was, *is;
    const struct tb_config_reach *reach;
    uint32_t peers, models; /* rows that are left */
};

static void needs_restart(struct tb_config_change *c, const char *why)
{
    if (c->effect != TB_CONFIG_LIVE) return;
    c->effect = TB_CONFIG_RESTART;
    c->how = why;
}

static bool is_key(const struct tb_config_change *c, enum config_scope scope, const char *path)
{
    TB_ASSERT(c->row <= config_key_count || c->row == TB_CONFIG_ROW_ORDER);
    return c->scope == (int)scope && c->row < config_key_count && strcmp(config_keys[c->row].path, path) == 0;
}

/* The change of that key of that instance needs a restart. */
static bool waits(const struct judged *j, enum config_scope scope, const char *path, const struct tb_name *of)
{
    for (uint32_t i = 0; i < j->all->count; i++) {
        const struct tb_config_change *c = &j->all->changes[i];
        if (c->effect != TB_CONFIG_LIVE && is_key(c, scope, path) && tb_name_equal(&c->of, of)) return true;
    }
    return false;
}

/* The model as a whole comes or goes at a restart alone. */
static bool model_waits(const struct judged *j, const struct tb_name *of)
{
    for (uint32_t i = 0; i < j->all->count; i++) {
        const struct tb_config_change *c = &j->all->changes[i];
        if (c->effect != TB_CONFIG_LIVE && c->scope == CONFIG_MODEL && c->row == config_key_count &&
            tb_name_equal(&c->of, of))
            return true;
    }
    return false;
}

/* ---- what the process cannot reach ---- */

static const char out_of_reach[] = "the sandbox of this process does not lead to that file";

static bool reaches(const struct judged *j, const char *path)
{
    return path == NULL || j->reach->file == NULL || j->reach->file(j->reach->user, path);
}

/* The file that the change names, of the configuration to come; NULL: none. */
static const char *file_of(const struct judged *j, const struct tb_config_change *c)
{
    const struct tb_config_peer *peer = c->scope == CONFIG_PEER ? tb_config_peer_of(j->is, &c->of) : NULL;
    const struct tb_config_model *model = c->scope == CONFIG_MODEL ? tb_config_model_of(j->is, &c->of) : NULL;
    if (c->row == config_key_count) return peer != NULL ? peer->ca : model != NULL ? model->home_ca : NULL;
    return c->row < config_key_count && config_keys[c->row].type == CONFIG_FILE ? c->is : NULL;
}

/* Tables have a row for each site and model. */
static bool records_fit(const struct judged *j)
{
    const struct tb_bounds *b = j->reach->bounds;
    return b == NULL || (uint64_t)j->is->peer_count * j->is->model_count <= b->records;
}

/* P7: tables have the rows that they were made with. */
static bool fits(const struct judged *j, const struct tb_config_model *m)
{
    const struct tb_bounds *b = j->reach->bounds;
    if (b == NULL) return true;
    return tb_bounds_model_versions(m) <= b->model_versions && tb_bounds_of(j->is).versions <= b->versions &&
           records_fit(j);
}

static void judge_peer(struct judged *j, struct tb_config_change *c)
{
    if (c->kind != TB_CONFIG_ADDED) return;
    if (!j->reach->links)
        needs_restart(c, "this gateway has no links: they open at a start with tls.cert");
    else if (j->peers == 0)
        needs_restart(c, "there is no row left for one more peer");
    else if (!records_fit(j))
        needs_restart(c, "tables have no room for what is known of one more site");
    else if (c->effect == TB_CONFIG_LIVE)
        j->peers--;
}

/* It left by a reload, and its row is there still. */
static bool had_another_home(const struct judged *j, const struct tb_config_model *m)
{
    for (uint32_t i = 0; i < j->was->model_count; i++) {
        const struct tb_config_model *had = &j->was->models[i];
        if (tb_name_equal(&had->name, &m->name) && !tb_name_equal(&had->home, &m->home)) return true;
    }
    return false;
}

static void judge_model(struct judged *j, struct tb_config_change *c)
{
    const struct tb_config_model *m = tb_config_model_of(j->is, &c->of);
    const bool comes = c->kind == TB_CONFIG_ADDED;
    if (m != NULL && (comes || is_key(c, CONFIG_MODEL, "keep")) && !fits(j, m))
        needs_restart(c, "tables have no room for as many versions");
    if (comes && had_another_home(j, m)) needs_restart(c, "it had another home since the start");
    if (!comes || c->effect != TB_CONFIG_LIVE) return;
    if (j->models == 0)
        needs_restart(c, "there is no row left for one more model");
    else if (j->reach->model != NULL && !j->reach->model(j->reach->user, &c->of))
        needs_restart(c, "the store has its runs and versions, which are read at the start");
    else
        j->models--;
}

/* ---- what belongs together ---- */

/* A gateway of another name is another gateway. */
static bool renamed(const struct judged *j)
{
    static const char *const names[] = {"site", "gateway", "lane", "lanes"};
    const struct tb_name root = {.text = ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (waits(j, CONFIG_ROOT, names[i], &root)) return true;
    return false;
}

static void together_tls(struct judged *j, struct tb_config_change *c)
{
    static const char *const keys[] = {"tls.ca", "tls.cert", "tls.key", "tls.revoked", "tls.spiffe"};
    const struct tb_name root = {.text = ""};
    bool one = false, any = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        one |= is_key(c, CONFIG_ROOT, keys[i]);
        any |= waits(j, CONFIG_ROOT, keys[i], &root);
    }
    if (!one) return;
    if (j->was->tls_cert == NULL || j->is->tls_cert == NULL)
        needs_restart(c, "what opens by it opens at the start");
    else if (any)
        needs_restart(c, "another of tls.* needs one, and they are taken together");
}

static void together(struct judged *j, struct tb_config_change *c)
{
    if (c->scope == CONFIG_PEER &&
        (waits(j, CONFIG_PEER, "gateway", &c->of) || waits(j, CONFIG_PEER, "lane", &c->of)))
        needs_restart(c, "its gateway or lane is another one, and its keys are taken together");
    if (c->scope == CONFIG_MODEL && waits(j, CONFIG_MODEL, "home", &c->of))
        needs_restart(c, "its home is another one, and its keys are taken together");
    if (c->scope == CONFIG_SUBSCRIBE && (waits(j, CONFIG_MODEL, "home", &c->of) || model_waits(j, &c->of)))
        needs_restart(c, "its model needs one");
    if (c->scope == CONFIG_ROOT) together_tls(j, c);
}

void tb_config_difference_judge(struct tb_config_difference *difference, const struct tb_config *was,
                                const struct tb_config *is, const struct tb_config_reach *reach)
{
    static const struct tb_config_reach all = {
        .links = true, .peers = TB_CONFIG_LIST_MAX, .models = TB_CONFIG_LIST_MAX};
    struct judged j = {difference, was, is, reach != NULL ? reach : &all, 0, 0};
    j.peers = j.reach->peers;
    j.models = j.reach->models;
    const bool other = renamed(&j);
    TB_ASSERT(j.peers <= TB_CONFIG_LIST_MAX && j.models <= TB_CONFIG_LIST_MAX);
    for (uint32_t i = 0; i < difference->count; i++) {
        struct tb_config_change *c = &difference->changes[i];
        if (other) needs_restart(c, "the gateway's name is another one, and all counts with it");
        if (!reaches(&j, file_of(&j, c))) needs_restart(c, out_of_reach);
        if (c->scope == CONFIG_PEER) judge_peer(&j, c);
        if (c->scope == CONFIG_MODEL) judge_model(&j, c);
    }
    for (uint32_t i = 0; i < difference->count; i++)
        together(&j, &difference->changes[i]);
}
