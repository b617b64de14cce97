#include "intra/fabric/exports.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/fabric/fabric_exports.h"

struct tb_export *tb_exports_find(struct tb_exports *exports, uint64_t id)
{
    struct tb_export *e;
    LIST_FOREACH(e, &exports->all, link)
    if (e->id == id) return e;
    return NULL;
}

enum tb_status tb_exports_add(struct tb_exports *exports, const struct tb_export_options *options)
{
    if (tb_exports_find(exports, options->export_id) != NULL) return TB_CONFLICT;
    struct tb_export *e = tb_calloc(1, sizeof *e);
    if (e == NULL) return TB_SITE_NOMEM;
    e->buffers = tb_calloc(options->buffer_count ? options->buffer_count : 1, sizeof *e->buffers);
    if (e->buffers == NULL) {
        tb_free(e);
        return TB_SITE_NOMEM;
    }
    e->id = options->export_id;
    e->exports = exports;
    e->buffer_count = options->buffer_count;
    if (e->buffer_count > 0) memcpy(e->buffers, options->buffers, e->buffer_count * sizeof *e->buffers);
    e->has_shelf = options->shelf != NULL;
    if (e->has_shelf) e->shelf = *options->shelf;
    TB_ASSERT(!e->has_shelf || e->shelf.buffer < e->buffer_count);
    if (options->origin != NULL) e->origin = *options->origin;
    e->origin_shard = options->origin_shard;
    e->depth = options->chained ? 0 : 1;
    LIST_INIT(&e->grants);
    LIST_INSERT_HEAD(&exports->all, e, link);
    struct tb_fabric_usage *u = &exports->usage;
    if (++u->exports > u->exports_most) u->exports_most = u->exports;
    return TB_OK;
}

static uint64_t start_of(const struct tb_id *token)
{
    uint64_t start;
    memcpy(&start, token->bytes, sizeof start);
    return start;
}

static void grant_remove(struct tb_export *e, struct tb_grant *g)
{
    struct tb_exports *all = e->exports;
    TB_ASSERT(all->usage.tokens > 0 && all->gone_at < TB_TOKENS_GONE);
    all->usage.tokens--;
    all->gone[all->gone_at] = start_of(&g->token);
    all->gone_at = (all->gone_at + 1) % TB_TOKENS_GONE;
    LIST_REMOVE(g, link);
    tb_free(g);
}

void tb_exports_remove(struct tb_export *export)
{
    TB_ASSERT(export->readers == 0);
    TB_ASSERT(export->exports->usage.exports > 0);
    while (!LIST_EMPTY(&export->grants))
        grant_remove(export, LIST_FIRST(&export->grants));
    export->exports->usage.exports--;
    LIST_REMOVE(export, link);
    tb_free(export->buffers);
    tb_free(export);
}

static void drop_lapsed(struct tb_export *e, tb_time_ns now)
{
    struct tb_grant *g = LIST_FIRST(&e->grants);
    while (g != NULL) {
        struct tb_grant *next = LIST_NEXT(g, link);
        if (g->until <= now) grant_remove(e, g);
        g = next;
    }
}

void tb_exports_lapse(struct tb_exports *exports, tb_time_ns now)
{
    struct tb_export *e;
    LIST_FOREACH(e, &exports->all, link) drop_lapsed(e, now);
}

static void drop_owners(struct tb_export *e, uint64_t owner)
{
    struct tb_grant *g = LIST_FIRST(&e->grants);
    while (g != NULL) {
        struct tb_grant *next = LIST_NEXT(g, link);
        if (g->owner == owner) grant_remove(e, g);
        g = next;
    }
}

void tb_exports_forget(struct tb_exports *exports, uint64_t owner)
{
    struct tb_export *e;
    TB_ASSERT(owner != 0);
    LIST_FOREACH(e, &exports->all, link) drop_owners(e, owner);
}

static bool tokens_full(struct tb_exports *exports, tb_time_ns now)
{
    if (exports->usage.tokens < TB_TOKENS_MAX) return false;
    tb_exports_lapse(exports, now);
    return exports->usage.tokens >= TB_TOKENS_MAX;
}

static bool has_its_share(const struct tb_exports *exports, uint64_t owner)
{
    const struct tb_export *e;
    const struct tb_grant *g;
    uint32_t count = 0;
    if (owner == 0 || exports->usage.tokens < TB_TOKENS_MAX / 4) return false;
    LIST_FOREACH(e, &exports->all, link)
    LIST_FOREACH(g, &e->grants, link) count += g->owner == owner;
    return count >= TB_TOKENS_MAX / 4;
}

enum tb_status tb_exports_grant(struct tb_exports *exports, uint64_t id, const struct tb_grant *grant,
                                tb_time_ns now)
{
    struct tb_export *e = tb_exports_find(exports, id);
    if (e == NULL || e->closing) return TB_NOT_FOUND;
    drop_lapsed(e, now);
    struct tb_fabric_usage *u = &exports->usage;
    const bool full = tokens_full(exports, now), spent = !full && has_its_share(exports, grant->owner);
    u->tokens_refused += full || spent;
    u->tokens_spent += spent;
    if (full || spent) return TB_SITE_NOMEM;
    struct tb_grant *g = tb_calloc(1, sizeof *g);
    if (g == NULL) return TB_SITE_NOMEM;
    if (++u->tokens > u->tokens_most) u->tokens_most = u->tokens;
    TB_ASSERT(u->tokens <= TB_TOKENS_MAX);
    *g = *grant;
    g->until = tb_time_add(now, TB_TOKEN_LIFE);
    LIST_INSERT_HEAD(&e->grants, g, link);
    return TB_OK;
}

/* Compares all bytes whatever they are: how long it takes says nothing about the token. */
static bool same_token(const struct tb_id *a, const struct tb_id *b)
{
    uint8_t different = 0;
    for (size_t i = 0; i < sizeof a->bytes; i++)
        different |= a->bytes[i] ^ b->bytes[i];
    return different == 0;
}

enum tb_status tb_exports_enter(struct tb_exports *exports, uint64_t id, const struct tb_bearer *bearer,
                                tb_time_ns now, struct tb_export **export_out, uint64_t *owner_out)
{
    struct tb_export *e = tb_exports_find(exports, id);
    if (e == NULL) return TB_PEER_TOKEN;
    drop_lapsed(e, now);
    struct tb_grant *g;
    LIST_FOREACH(g, &e->grants, link)
    if (same_token(&g->token, bearer->token)) break;
    if (g == NULL) return TB_PEER_TOKEN;
    if (bearer->print != NULL && memcmp(bearer->print, &g->reader, sizeof g->reader) != 0)
        return TB_PEER_IDENTITY;
    if (e->closing) return TB_PEER_REVOKED;
    *owner_out = g->owner;
    grant_remove(e, g);
    e->readers++;
    *export_out = e;
    return TB_OK;
}

bool tb_exports_is_denial(const struct tb_exports *exports, const struct tb_id *token, enum tb_status status)
{
    if (status != TB_PEER_TOKEN) return status == TB_PEER_IDENTITY;
    const uint64_t start = start_of(token);
    for (uint32_t i = 0; i < TB_TOKENS_GONE; i++)
        if (exports->gone[i] == start) return false;
    return true;
}

const uint8_t *tb_export_at(const struct tb_export *export, uint32_t buffer, uint64_t offset, uint64_t bytes)
{
    if (buffer >= export->buffer_count) return NULL;
    const struct tb_export_buffer *b = &export->buffers[buffer];
    if (offset > b->count || bytes > b->count - offset) return NULL;
    return (const uint8_t *)b->bytes + offset;
}
