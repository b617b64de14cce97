/* catalog_kinds.c - see catalog_kinds.h. */
#include "catalog_kinds.h"

#include <stddef.h>

#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#define site catalog_site /* site.h has another */
#include "gateway/catalog/rows/site_rows.h"
#undef site

/* clang-format off */
#define VERSION_KINDS(X)                                                            \
    X(open, tb_version_state(v) == TB_VERSION_OPEN)                                 \
    X(ready, tb_version_state(v) == TB_VERSION_READY)                               \
    X(kept, tb_version_state(v) == TB_VERSION_KEPT)                                 \
    X(retired, tb_version_state(v) == TB_VERSION_RETIRED)                           \
    X(lost, tb_version_state(v) == TB_VERSION_ENDED_LOST)                           \
    X(broken, tb_version_state(v) == TB_VERSION_ENDED_BROKEN)                       \
    X(withdrawn, tb_version_state(v) == TB_VERSION_ENDED_WITHDRAWN)                 \
    X(abandoned, tb_version_state(v) == TB_VERSION_ENDED_ABANDONED)                 \
    X(arriving, tb_version_reserved(v) && !v->whole) X(whole, v->whole)             \
    X(evicting, tb_version_leaves(v)) X(pinned, v->pinned) X(base, v->base)         \
    X(restored_open, v->restored_open) X(cross_asked, tb_version_cross_asked(v))    \
    X(cross_begun, tb_version_cross_begun(v)) X(refused, v->refused_until > c->now) \
    X(hopeless, v->refused_until == TB_TIME_NEVER) X(wanted, v->wanted)             \
    X(lost_at_home, v->lost_at_home) X(lacks, v->lacks) X(had_more, v->had_more)    \
    X(activated_here, v->activated_here) X(unsaved, v->unsaved > 0)
#define REFERENCE_KINDS(X)                                                                \
    X(opened, RANK && r->shard == NONE)                                                   \
    X(sealed, RANK && r->shard != NONE && !tb_reference_hidden(r))                        \
    X(hidden, tb_reference_hidden(r) && r->sight != TB_SIGHT_GOES)                        \
    X(going, r->sight == TB_SIGHT_GOES) X(read_from_rank, RANK && r->landing)             \
    X(read_from_worker, WORKER && r->landing) X(begins, WORKER && r->held_chunks == 0)    \
    X(has_part, WORKER && r->held_chunks > 0 && !r->whole) X(has_all, WORKER && r->whole) \
    X(serves, WORKER && r->export_id != 0) X(reads_only, r->reads_only)                   \
    X(behind_gateway, WORKER && r->source == GATEWAY)                                     \
    X(behind_worker, WORKER && r->source < GATEWAY)                                       \
    X(behind_nobody, WORKER && r->source == NONE && !r->whole)                            \
    X(site_has, r->kind == TB_REFERENCE_SITE && r->has)                                   \
    X(site_whole, r->kind == TB_REFERENCE_SITE && r->whole)
#define SESSION_KINDS(X)                                                    \
    X(attached, q->attached) X(detached, !q->attached) X(silent, q->silent) \
    X(reads, q->references != NONE) X(member, q->members != NONE)
#define GROUP_KINDS(X)                                                        \
    X(attempting, !tb_id_is_zero(&g.attempt)) X(went, !tb_id_is_zero(&g.uid)) \
    X(incomplete, g.present < g.count) X(staged, g.staged_whole == g.count)   \
    X(switched, g.activated == g.count)
#define SITE_KINDS(X)                                                                       \
    X(up, p->up) X(down, p->is_peer && !p->up) X(hearsay, !p->is_peer) X(unsure, p->unsure)
#define CATALOG_KINDS(X)                                         \
    X(recovering, c->recovering) X(unsaved_rows, c->unsaved > 0) \
    X(waiting, tb_table_next(&c->waits, 0) != NONE)
#define RANK   (r->kind == TB_REFERENCE_PUBLISHER)
#define WORKER (r->kind == TB_REFERENCE_WORKER)
/* clang-format on */

#define KIND_ENUM(name, is) KIND_##name,
#define KIND_NAME(name, is) #name,
#define KIND_IF(name, is)   kinds |= (is) ? UINT64_C(1) << KIND_##name : 0;
enum version_kind { VERSION_KINDS(KIND_ENUM) REFERENCE_KINDS(KIND_ENUM) VERSION_KINDS_END };
enum other_kind {
    SESSION_KINDS(KIND_ENUM) GROUP_KINDS(KIND_ENUM) SITE_KINDS(KIND_ENUM) CATALOG_KINDS(KIND_ENUM)
        OTHER_KINDS_END
};
static const char *const version_kind_names[] = {VERSION_KINDS(KIND_NAME) REFERENCE_KINDS(KIND_NAME)};
static const char *const other_kind_names[] = {SESSION_KINDS(KIND_NAME) GROUP_KINDS(KIND_NAME)
                                                   SITE_KINDS(KIND_NAME) CATALOG_KINDS(KIND_NAME)};
static uint64_t version_kinds(const struct tb_catalog *c, const struct version *v)
{
    uint64_t kinds = 0;
    VERSION_KINDS(KIND_IF)
    EACH_REFERENCE(c, v, i)
    {
        const struct reference *r = reference_at(c, i);
        REFERENCE_KINDS(KIND_IF)
    }
    return kinds;
}

static uint64_t session_kinds(const struct tb_catalog *c, const char *name)
{
    const struct tb_id id = session_of(name);
    const uint32_t i = tb_catalog_session_find(c, &id);
    uint64_t kinds = 0;
    if (i == NONE) return 0;
    const struct session *q = session_at(c, i);
    SESSION_KINDS(KIND_IF)
    return kinds;
}

static uint64_t site_kinds(const struct tb_catalog *c, const char *text)
{
    const struct tb_name name = name_of(text);
    const uint32_t i = tb_catalog_site_find(c, &name);
    uint64_t kinds = 0;
    if (i == NONE) return 0;
    const struct catalog_site *p = site_at(c, i);
    SITE_KINDS(KIND_IF)
    return kinds;
}

static void group_kinds(const struct tb_catalog *c, uint64_t out[KIND_GROUPS_MAX])
{
    struct tb_catalog_group_view g;
    uint32_t at = 0;
    for (unsigned n = 0; n < KIND_GROUPS_MAX && tb_catalog_group_at(c, &at, &g); n++) {
        uint64_t kinds = 0;
        GROUP_KINDS(KIND_IF)
        out[n] = kinds;
    }
}

struct kinds kinds_of(const struct tb_catalog *c)
{
    struct kinds k = {.catalog = 0};
    for (unsigned n = 0; n < GIVEN_UIDS; n++) {
        const struct tb_id uid = id_of(given_uids[n]);
        const uint32_t i = tb_version_find(c, &uid);
        if (i != NONE) k.versions[n] = version_kinds(c, version_at(c, i));
    }
    for (unsigned n = 0; n < GIVEN_SESSIONS; n++)
        k.sessions[n] = session_kinds(c, given_sessions[n]);
    for (unsigned n = 0; n < GIVEN_SITES; n++)
        k.sites[n] = site_kinds(c, given_sites[n]);
    group_kinds(c, k.groups);
    uint64_t kinds = 0;
    CATALOG_KINDS(KIND_IF)
    k.catalog = kinds;
    return k;
}

void kinds_note(struct kinds_reached *reached, const struct kinds *k)
{
    for (unsigned n = 0; n < GIVEN_UIDS; n++)
        reached->versions |= k->versions[n];
    for (unsigned n = 0; n < GIVEN_SESSIONS; n++)
        reached->others |= k->sessions[n];
    for (unsigned n = 0; n < KIND_GROUPS_MAX; n++)
        reached->others |= k->groups[n];
    for (unsigned n = 0; n < GIVEN_SITES; n++)
        reached->others |= k->sites[n];
    reached->others |= k->catalog;
}

const char *kinds_missing(const struct kinds_reached *reached)
{
    for (unsigned i = 0; i < VERSION_KINDS_END; i++)
        if ((reached->versions >> i & 1) == 0) return version_kind_names[i];
    for (unsigned i = 0; i < OTHER_KINDS_END; i++)
        if ((reached->others >> i & 1) == 0) return other_kind_names[i];
    return NULL;
}
