/* usage.c - how full the tables are, and which owner fills them. Changes nothing. */
#include "gateway/catalog/usage.h"

#include <string.h>

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/record_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"

/* The owner of a row. NULL: it has none. */
typedef const char *(*owner_fn)(const struct tb_catalog *c, uint32_t row);

static const char *model_of_run(const struct tb_catalog *c, uint32_t i)
{
    return model_at(c, run_at(c, i)->model)->config.name.text;
}

static const char *model_of_version(const struct tb_catalog *c, uint32_t i)
{
    return version_at(c, i)->key.model.text;
}

static const char *identity_of_session(const struct tb_catalog *c, uint32_t i)
{
    return session_at(c, i)->info.identity;
}

static const char *owner_of_reference(const struct tb_catalog *c, uint32_t i)
{
    const struct reference *ref = reference_at(c, i);
    if (ref->kind == TB_REFERENCE_SITE) return ref->name.text;
    return ref->owner == NONE ? NULL : identity_of_session(c, ref->owner);
}

static const char *model_of_group(const struct tb_catalog *c, uint32_t i)
{
    return model_at(c, group_at(c, i)->model)->config.name.text;
}

static const char *identity_of_member(const struct tb_catalog *c, uint32_t i)
{
    return identity_of_session(c, member_at(c, i)->session);
}

static const char *identity_of_wait(const struct tb_catalog *c, uint32_t i)
{
    const uint32_t session = wait_at(c, i)->session;
    return session == NONE ? NULL : identity_of_session(c, session);
}

static const char *peer_of_record(const struct tb_catalog *c, uint32_t i)
{
    return record_at(c, i)->info.via.text;
}

static const struct {
    size_t table;
    owner_fn owner;
} usages[] = {
    {offsetof(struct tb_catalog, models), NULL},
    {offsetof(struct tb_catalog, runs), model_of_run},
    {offsetof(struct tb_catalog, versions), model_of_version},
    {offsetof(struct tb_catalog, sessions), identity_of_session},
    {offsetof(struct tb_catalog, references), owner_of_reference},
    {offsetof(struct tb_catalog, groups), model_of_group},
    {offsetof(struct tb_catalog, members), identity_of_member},
    {offsetof(struct tb_catalog, waits), identity_of_wait},
    {offsetof(struct tb_catalog, sites), NULL},
    {offsetof(struct tb_catalog, records), peer_of_record},
};
#define USAGES (sizeof usages / sizeof usages[0])

static const struct table *table_at(const struct tb_catalog *c, size_t usage)
{
    return (const struct table *)(const void *)((const uint8_t *)c + usages[usage].table);
}

bool tb_catalog_table_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_table *out)
{
    if (*cursor >= USAGES) return false;
    const struct table *t = table_at(c, (*cursor)++);
    *out = (struct tb_catalog_table){.name = t->name,
                                     .used = t->used,
                                     .most = t->most,
                                     .bound = t->cap,
                                     .refused = t->refused,
                                     .spent = t->spent};
    return true;
}

static uint32_t count_of(const struct tb_catalog *c, size_t usage, const char *who)
{
    const struct table *t = table_at(c, usage);
    uint32_t count = 0;
    EACH(*t, i)
    {
        const char *owner = usages[usage].owner(c, i);
        count += owner != NULL && strcmp(owner, who) == 0;
    }
    return count;
}

/* By candidates that may yet win, one pass over the table each: of rows with few owners, as full
 * tables are, there are few passes. */
static uint32_t most_of(const struct tb_catalog *c, size_t usage, char who_out[TB_CATALOG_TEXT_MAX])
{
    const struct table *t = table_at(c, usage);
    uint32_t most = 0, left = t->used;
    const char *last = NULL;
    EACH(*t, i)
    {
        const char *owner = usages[usage].owner(c, i);
        if (left-- <= most) break;
        if (owner == NULL || (last != NULL && strcmp(owner, last) == 0)) continue;
        last = owner;
        const uint32_t count = count_of(c, usage, owner);
        if (count <= most) continue;
        most = count;
        (void)tb_catalog_copy_text(who_out, owner);
    }
    return most;
}

uint32_t tb_catalog_table_most(const struct tb_catalog *c, const char *table,
                               char who_out[TB_CATALOG_TEXT_MAX])
{
    who_out[0] = 0;
    for (size_t u = 0; u < USAGES; u++)
        if (usages[u].owner != NULL && strcmp(table_at(c, u)->name, table) == 0)
            return most_of(c, u, who_out);
    return 0;
}
