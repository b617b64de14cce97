/* staging_table.c - the table of versions that are staged here: its rows, what they hold, and how
 * one fails. */
#include "intra/client/follow/staging_table.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/session/session.h"
#include "intra/fabric/fabric_hops.h"

struct tb_staging *tb_staging_find(struct tb_session *s, const struct tb_id *uid)
{
    TB_ASSERT_LOCKED(s);
    for (struct tb_staging *st = s->stagings; st != NULL; st = st->next)
        if (tb_id_equal(&st->uid, uid)) return st;
    return NULL;
}

struct tb_staging *tb_staging_new(struct tb_session *s, const struct tb_id *uid)
{
    TB_ASSERT(tb_staging_find(s, uid) == NULL);
    TB_ASSERT_LOCKED(s);
    struct tb_staging *st = tb_calloc(1, sizeof *st);
    if (st == NULL) return NULL;
    st->session = s;
    st->uid = *uid;
    st->memory.memfd = -1;
    pthread_mutex_init(&st->note_lock, NULL);
    st->next = s->stagings;
    s->stagings = st;
    return st;
}

/* ---- what a row says of itself ---- */

bool tb_staging_has_manifests(const struct tb_staging *st)
{
    return st->key.shard_count > 0 && st->manifests_here == st->key.shard_count;
}

uint32_t tb_staging_held_chunks(const struct tb_staging *st)
{
    if (!tb_staging_is_open(st->life)) return 0;
    uint32_t held = 0;
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        held += tb_place_held_count(&st->shards[i].place);
    return held;
}

bool tb_staging_reads_only(const struct tb_staging *st)
{
    return st->patch != NULL || st->wanted != NULL || st->stage != NULL;
}

uint64_t tb_staging_bytes(const struct tb_staging *st)
{
    if (st->wanted != NULL) return st->wanted_bytes;
    if (st->stage != NULL) return st->stage_bytes + st->memory.count;
    return st->patch != NULL ? tb_patch_staged_bytes(st->patch) : st->memory.count;
}

bool tb_staging_is_whole(const struct tb_staging *st)
{
    TB_ASSERT(st->key.shard_count > 0 && !tb_staging_is_preparing(st->life));
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        if (!tb_place_whole(&st->shards[i].place)) return false;
    return true;
}

/* ---- how its hop ends ---- */

void tb_staging_close_hop(struct tb_staging *st)
{
    TB_ASSERT_LOCKED(st->session);
    struct tb_hop_stats last;
    if (st->hop == NULL) return;
    tb_hop_close_counted(st->hop, &last);
    st->hop = NULL;
    st->hop_opened = false;
    st->base = NULL;
    st->read.bytes_read += last.bytes_read;
    st->read.bytes_wasted += last.bytes_wasted;
    st->read.bytes_encoded += last.bytes_encoded;
    st->read.chunks_encoded += last.chunks_encoded;
    pthread_mutex_lock(&st->note_lock);
    memset(&st->note, 0, sizeof st->note);
    pthread_mutex_unlock(&st->note_lock);
}

void tb_staging_fail(struct tb_staging *st, enum tb_status status, const char *why)
{
    TB_ASSERT_LOCKED(st->session);
    tb_staging_close_hop(st);
    tb_staging_step(&st->life, TB_STAGING_FAILS);
    st->status = status;
    snprintf(st->why, sizeof st->why, "%s", why);
    tb_session_changed(st->session, true);
}

/* ---- invariants ---- */

static bool is_in_table(const struct tb_session *s, const struct tb_staging *wanted)
{
    const struct tb_staging *st = s->stagings;
    while (st != NULL && st != wanted)
        st = st->next;
    return st != NULL;
}

static uint32_t count_uses(const struct tb_session *s, const struct tb_staging *st)
{
    uint32_t count = 0;
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next)
        for (const struct tb_staged_use *use = sub->uses; use != NULL; use = use->next)
            count += use->staging == st;
    return count;
}

static void check_description(const struct tb_staging *st)
{
    TB_ASSERT(st->manifests_here <= st->key.shard_count);
    if (st->life == TB_STAGING_ASKED) TB_ASSERT(st->shards == NULL);
    if (st->life == TB_STAGING_MANIFESTS) TB_ASSERT(st->manifests_here < st->key.shard_count);
    if (!tb_staging_has_places(st->life)) return;
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        chunks += st->shards[i].manifest.chunk_count;
    TB_ASSERT(tb_staging_has_manifests(st));
    /* of slices the chunks that are wanted */
    TB_ASSERT(st->total_chunks == chunks || (st->wanted != NULL && st->total_chunks < chunks));
    TB_ASSERT(st->told_chunks <= st->total_chunks || st->told_chunks == UINT32_MAX);
}

/* A hop and its base: both or the hop alone, and only while chunks are missing. */
static void check_hop(const struct tb_session *s, const struct tb_staging *st)
{
    if (st->hop != NULL) TB_ASSERT(st->life == TB_STAGING_READING);
    if (st->hop == NULL) TB_ASSERT(!st->hop_opened && st->base == NULL);
    if (st->base != NULL) TB_ASSERT(st->base != st && is_in_table(s, st->base));
}

/* Either others may read it, or it is for this process alone. */
static void check_export(const struct tb_staging *st)
{
    if (tb_staging_is_open(st->life)) TB_ASSERT((st->export_id != 0) == !tb_staging_reads_only(st));
    if (tb_staging_is_preparing(st->life)) return; /* the task writes what follows */
    if (st->stage == NULL) TB_ASSERT(st->stage_bytes == 0);
    if (st->patch != NULL) TB_ASSERT(st->patch_for != NULL && st->export_id == 0);
}

void tb_stagings_check(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_staging *st = s->stagings; st != NULL; st = st->next) {
        TB_ASSERT(st->session == s);
        TB_ASSERT(st->uses > 0 && st->uses == count_uses(s, st));
        check_description(st);
        check_hop(s, st);
        check_export(st);
    }
}
