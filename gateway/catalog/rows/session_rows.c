/* session_rows.c - sessions as rows: found by a hint, placed on a host and a rack, ended with all
 * that is theirs.
 *
 * Promise P6: a lease ends only in a tick, and a tick first forgives the pause of its own process
 * (catalog_clock.c). */
#include "gateway/catalog/rows/session_rows.h"

#include <string.h>

#include "base/assert.h"
#include "base/limits/keyed_rows.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/wait_rows.h"

/* Ids of sessions and names of hosts share the hints. */
static uint32_t *hint_of(const struct tb_catalog *c, uint64_t hash)
{
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return &c->session_hints[(uint32_t)(hash >> 32) & (c->session_hint_count - 1)];
}

static uint32_t *session_hint(const struct tb_catalog *c, const struct tb_id *id)
{
    uint64_t hash;
    memcpy(&hash, id->bytes, sizeof hash);
    return hint_of(c, hash);
}

static uint32_t *host_hint(const struct tb_catalog *c, const struct tb_name *host)
{
    uint64_t hash = 0;
    for (const char *at = host->text; *at != 0; at++)
        hash = hash * 31 + (uint8_t)*at;
    return hint_of(c, hash);
}

static bool session_is(const struct tb_catalog *c, uint32_t i, const struct tb_id *id)
{
    const struct session *s = session_at(c, i);
    return s->row.live && !s->row.dead && tb_id_equal(&s->info.id, id);
}

/* Each request of each worker asks: a hint saves it from looking through all rows. Hints are never
 * taken back; the row says whether one is still true. */
uint32_t tb_catalog_session_find(const struct tb_catalog *c, const struct tb_id *id)
{
    const uint32_t hint = *session_hint(c, id);
    if (hint < c->sessions.high && session_is(c, hint, id)) return hint;
    EACH(c->sessions, i) if (tb_id_equal(&session_at(c, i)->info.id, id)) return i;
    return NONE;
}

/* Equal names get equal numbers while one of their sessions lives; the gateway's own host is 1. */
static uint32_t host_number(const struct tb_catalog *c, const struct tb_name *host, uint32_t own)
{
    if (tb_catalog_same_name(host, &c->config.host)) return 1;
    const uint32_t hint = *host_hint(c, host);
    if (hint != own && hint < c->sessions.high && session_at(c, hint)->row.live &&
        !session_at(c, hint)->row.dead && tb_catalog_same_name(&session_at(c, hint)->info.host, host))
        return session_at(c, hint)->host;
    EACH(c->sessions, i)
    if (i != own && tb_catalog_same_name(&session_at(c, i)->info.host, host)) return session_at(c, i)->host;
    return own + 2;
}

static uint32_t rack_number(const struct tb_catalog *c, const struct tb_name *rack, uint32_t own)
{
    if (rack->text[0] == 0) return 0;
    EACH(c->sessions, i)
    if (i != own && tb_catalog_same_name(&session_at(c, i)->info.rack, rack)) return session_at(c, i)->rack;
    return own + 1;
}

/* A number outlives the session whose row gave it; a newcomer in that row must not get
 * it for another name. */
static bool number_taken(const struct tb_catalog *c, uint32_t own, uint32_t host, uint32_t rack)
{
    EACH(c->sessions, i)
    {
        if (i == own) continue;
        if (host != 0 && session_at(c, i)->host == host) return true;
        if (rack != 0 && session_at(c, i)->rack == rack) return true;
    }
    return false;
}

static void place_session(struct tb_catalog *c, uint32_t i)
{
    struct session *s = session_at(c, i);
    s->host = host_number(c, &s->info.host, i);
    s->rack = rack_number(c, &s->info.rack, i);
    *host_hint(c, &s->info.host) = i;
    if (s->host == i + 2)
        while (number_taken(c, i, s->host, 0))
            s->host += c->limits.sessions + 1;
    if (s->rack == i + 1)
        while (number_taken(c, i, 0, s->rack))
            s->rack += c->limits.sessions + 1;
}

uint32_t tb_catalog_session_row_new(struct tb_catalog *c, const struct tb_catalog_session *info)
{
    const uint32_t i = tb_table_new_of(&c->sessions, tb_identity_owner(info->identity), info->publishes);
    if (i == NONE) return NONE;
    struct session *s = session_at(c, i);
    s->info = *info;
    s->lease_until = tb_time_add(c->now, c->config.lease_ns);
    s->attached = true;
    s->references = s->members = NONE;
    c->session_readers[i] = 0;
    *session_hint(c, &info->id) = i;
    place_session(c, i);
    TB_ASSERT(s->host > 0); /* equal to none, else */
    return i;
}

void tb_catalog_session_end(struct tb_catalog *c, uint32_t session, bool tell)
{
    TB_ASSERT(session_at(c, session)->row.live && !session_at(c, session)->row.dead);
    tb_waits_end_session(c, session);
    while (session_at(c, session)->members != NONE)
        tb_member_end(c, session_at(c, session)->members);
    while (session_at(c, session)->references != NONE)
        tb_reference_lost(c, session_at(c, session)->references);
    /* Rows of ended references that were for this session alone have nobody to be told to. */
    for (uint32_t r = 0; r < c->references.high; r++) {
        struct reference *ref = reference_at(c, r);
        if (!ref->row.live || ref->kind == TB_REFERENCE_SITE || ref->owner != session) continue;
        tb_table_unmark(&c->references, r, TB_CATALOG_TELL);
        tb_table_unmark(&c->references, r, TB_CATALOG_PLAN);
        tb_table_unmark(&c->references, r, TB_CATALOG_PLAN_END);
        tb_table_unmark(&c->references, r, TB_CATALOG_UNPUBLISHED);
        ref->owner = NONE;
        if (ref->row.todos == 0) tb_table_free(&c->references, r);
    }
    TB_ASSERT(c->session_readers[session] == 0); /* its readers were moved */
    if (!tell) {
        tb_table_free(&c->sessions, session);
        return;
    }
    session_at(c, session)->row.dead = true;
    tb_table_mark(&c->sessions, session, TB_CATALOG_SESSION_LOST);
}

void tb_leases_tick(struct tb_catalog *c)
{
    EACH(c->sessions, i) if (session_at(c, i)->lease_until <= c->now) tb_catalog_session_end(c, i, true);
}
