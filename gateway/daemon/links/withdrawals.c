/* withdrawals.c - withdrawals that this gateway knows of, longer than their rows in the catalog.
 *
 * P3: a site that was away comes back with what was withdrawn meanwhile, and says what it has.
 * It is told, however many versions ended since, and whether or not this gateway restarted. Of
 * each model the newest TB_STORE_WITHDRAWN_MAX are known, and of all the newest TB_WITHDRAWN_MAX.
 *
 * A withdrawal for this site alone is in the same list. No peer is told of it, and the version is
 * not taken from one again (tb_withdrawn_here). */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/catalog/records.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/store/store_load.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_messages.h"

static uint32_t rows_of(const struct tb_daemon *d, const struct tb_name *model, uint32_t *oldest_out)
{
    uint32_t rows = 0;
    for (uint32_t i = d->withdrawn.count; i-- > 0;) {
        if (!tb_name_equal(&d->withdrawn.rows[i].key.model, model)) continue;
        *oldest_out = i;
        rows++;
    }
    TB_ASSERT(rows <= d->withdrawn.count && (rows == 0 || *oldest_out < d->withdrawn.count));
    return rows;
}

static struct tb_withdrawal *find(const struct tb_daemon *d, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < d->withdrawn.count; i++)
        if (tb_id_equal(&d->withdrawn.rows[i].key.uid, uid)) return &d->withdrawn.rows[i];
    return NULL;
}

bool tb_withdrawn_here(const struct tb_daemon *d, const struct tb_id *uid)
{
    const struct tb_withdrawal *known = find(d, uid);
    return known != NULL && known->here;
}

static bool room(struct tb_withdrawn *w)
{
    TB_ASSERT(w->count <= w->cap);
    if (w->count < w->cap) return true;
    const uint32_t cap = w->cap == 0 ? 16 : 2 * w->cap;
    struct tb_withdrawal *more = tb_realloc(w->rows, cap * sizeof *more);
    if (more == NULL) return false;
    w->rows = more;
    w->cap = cap;
    return true;
}

static void oldest_ends(struct tb_withdrawn *w, uint32_t oldest)
{
    TB_ASSERT(oldest < w->count);
    w->refused++;
    memmove(w->rows + oldest, w->rows + oldest + 1, (--w->count - oldest) * sizeof *w->rows);
}

void tb_withdrawn_add(struct tb_daemon *d, const struct tb_version_key *key, bool here)
{
    struct tb_withdrawn *w = &d->withdrawn;
    struct tb_withdrawal *known = find(d, &key->uid);
    struct tb_name home;
    uint32_t oldest = 0;
    if (known != NULL) known->here = known->here && here;
    if (!tb_home_of(d, &key->model, &home) || known != NULL) return;
    uint32_t rows = rows_of(d, &key->model, &oldest);
    if (rows == TB_STORE_WITHDRAWN_MAX) {
        oldest_ends(w, oldest);
        rows--;
    } else if (w->count == TB_WITHDRAWN_MAX) { /* P7: names of a pattern have no end */
        rows -= tb_name_equal(&w->rows[0].key.model, &key->model);
        oldest_ends(w, 0);
        w->crowded++;
    }
    if (!room(w)) {
        w->refused++;
        return;
    }
    w->rows[w->count++] = (struct tb_withdrawal){*key, here};
    TB_ASSERT(rows < TB_STORE_WITHDRAWN_MAX && w->count <= w->cap);
    if (rows + 1 > w->most) w->most = rows + 1;
}

static void restore(void *user, const struct tb_store_withdrawal *w)
{
    struct tb_daemon *d = user;
    tb_withdrawn_add(d, &w->key, w->here);
    (void)tb_catalog_restore_withdrawn(d->catalog, &w->key.uid, w->here, w->who); /* or its row is gone */
}

enum tb_status tb_withdrawn_restore(struct tb_daemon *d)
{
    return tb_store_load_withdrawn(d->store, restore, d);
}

bool tb_withdrawn_answer(struct tb_daemon *d, uint32_t peer, const struct tb_id *uid)
{
    const struct tb_withdrawal *w = find(d, uid);
    if (w == NULL || w->here) return false;
    tb_links_tell_withdrawn(d->links, peer, &w->key);
    return true;
}

void tb_withdrawn_answer_state(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *s)
{
    for (uint32_t i = 0; i < d->withdrawn.count; i++) {
        const struct tb_version_key *key = &d->withdrawn.rows[i].key;
        if (d->withdrawn.rows[i].here) continue;
        if (tb_name_equal(&key->model, &s->model) && tb_site_held_find(s, &key->uid) != NULL)
            tb_links_tell_withdrawn(d->links, peer, key);
    }
}

/* The row goes the way of all versions' rows: once it is on disk, the version counts as withdrawn
 * here, and the peers hear of it (catalog_todos.c). */
void tb_withdrawn_heard(struct tb_daemon *d, const struct tb_version_key *key)
{
    struct tb_catalog_version_view known;
    struct tb_name home;
    TB_ASSERT(!tb_id_is_zero(&key->uid) && key->shard_count > 0); /* or the next start refuses the row */
    if (!tb_home_of(d, &key->model, &home) || tb_name_equal(&home, &d->site)) return;
    const struct tb_withdrawal *w = find(d, &key->uid);
    if ((w != NULL && !w->here) || !tb_persist_saved(d, &key->uid)) return;
    if (tb_catalog_version_get(d->catalog, &key->uid, &known)) return;
    const struct tb_catalog_todo todo = {.kind = TB_CATALOG_PERSIST_VERSION,
                                         .key = *key,
                                         .model = key->model,
                                         .uid = key->uid,
                                         .state = TB_VERSION_ENDED_WITHDRAWN,
                                         .why = "said_by_peer"};
    tb_persist_todo(d, &todo);
    tb_daemon_wake(d);
}

void tb_withdrawn_opened(struct tb_daemon *d)
{
    TB_ASSERT(d->links != NULL && !d->links_restarting);
    const struct tb_withdrawn *w = &d->withdrawn;
    for (uint32_t i = w->count < TB_LINKS_WITHDRAWN_MAX ? 0 : w->count - TB_LINKS_WITHDRAWN_MAX; i < w->count;
         i++)
        if (!w->rows[i].here) TB_MOOT(tb_links_withdrawn(d->links, &w->rows[i].key));
}

void tb_withdrawn_free(struct tb_daemon *d)
{
    tb_free(d->withdrawn.rows);
    d->withdrawn = (struct tb_withdrawn){.rows = NULL};
}
