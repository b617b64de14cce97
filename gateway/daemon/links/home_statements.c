/* home_statements.c - RUN, VERSION and WITHDRAWN are signed as their rows go to the store. So no
 * peer hears of a run or a withdrawal before it is signed. A version is signed when its chunks are
 * all proven, as a rule when it is whole here. Peers fetch it from home before that; their readers
 * hear of it then, and so do those of home.
 *
 * The signature takes less than 1 ms (Ed25519, ECDSA) and the root some 0.3 ms for each 1 MiB of
 * manifest heads: both are done in the loop. */
#include "gateway/daemon/links/home_statements.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/statements.h"
#include "wan/link/links_messages.h"

#define TICK_MAX   16u /* signatures of one tick */
#define TOLD_EVERY TB_SECONDS(10)

static bool is_home(const struct tb_daemon *d, const struct tb_name *model)
{
    struct tb_name home;
    return d->tls != NULL && tb_home_of(d, model, &home) && tb_name_equal(&home, &d->site);
}

/* P10: the first of ten seconds. */
static void unsigned_log(struct tb_daemon *d, const struct tb_statement *what, const char *why)
{
    const tb_time_ns now = tb_clock_now();
    d->counters.statements_unsigned++;
    if (d->unsigned_said_at != 0 && tb_time_since(d->unsigned_said_at, now) < TOLD_EVERY) return;
    d->unsigned_said_at = now;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "statement.unsigned");
    tb_log_str(&l, "model", what->model.text);
    tb_log_u64(&l, "run", what->run_order);
    tb_log_u64(&l, "number", what->number);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "try_again");
    tb_log_end(&l);
}

/* NULL: no memory, a chain of certificates that is too long, or a clock outside the certificate's
 * dates: a statement with such a date would count nowhere. */
static const struct tb_said *say(struct tb_daemon *d, struct tb_statement *what)
{
    static uint8_t bytes[TB_SIGNED_BYTES_MAX]; /* the main loop's alone */
    struct tb_writer w;
    char why[256] = "";
    what->wall_ms = tb_clock_wall_ms();
    tb_writer_init(&w, bytes, sizeof bytes);
    const enum tb_status status = tb_signed_write(d->tls, what, &w);
    const struct tb_said *said = NULL;
    if (status != TB_OK)
        snprintf(why, sizeof why, "%s", tb_status_text(status));
    else if (tb_statements_counts(d, bytes, (uint32_t)w.used, why))
        said = tb_statements_keep(d, what, tb_tls_identity(d->tls), bytes, (uint32_t)w.used);
    if (said != NULL)
        d->counters.statements_signed++;
    else
        unsigned_log(d, what, why);
    return said;
}

/* False: its manifests are not here, or not all proofs, or no memory. */
static bool root_of(struct tb_daemon *d, const struct tb_version_key *key, struct tb_blake3 *root_out)
{
    const struct tb_copy *copy = tb_copy_find(d, &key->uid);
    if (copy == NULL || copy->region == NULL || !tb_arena_region_proven(copy->region)) return false;
    tb_arena_proofs_keep(copy->region);
    const struct tb_manifest **manifests = tb_calloc(key->shard_count, sizeof *manifests);
    if (manifests == NULL) return false;
    for (uint32_t s = 0; s < key->shard_count; s++)
        manifests[s] = tb_arena_place(copy->region, s)->manifest;
    const size_t bytes = tb_proof_scratch_bytes(manifests, key->shard_count);
    void *scratch = tb_malloc(bytes);
    if (scratch != NULL) *root_out = tb_proof_root(manifests, key->shard_count, scratch, bytes);
    tb_free(scratch);
    tb_free(manifests);
    return scratch != NULL;
}

static const struct tb_said *say_version(struct tb_daemon *d, const struct tb_version_key *key)
{
    struct tb_statement what = tb_statement_of(TB_STATEMENT_VERSION, key);
    if (tb_said_find(&d->said, TB_STATEMENT_VERSION, &key->uid) != NULL) return NULL;
    if (!root_of(d, key, &what.root)) return NULL;
    tb_catalog_version_awaits(d->catalog, tb_clock_now(), &key->uid, false);
    return say(d, &what);
}

/* Where proofs are made behind the landing, a version is whole here before it is proven. A reader
 * that demands the signature would be told of a version that nobody has signed. */
static void readers_wait(struct tb_daemon *d, const struct tb_version_key *key)
{
    const struct tb_copy *copy = tb_copy_find(d, &key->uid);
    if (!d->prover.runs || (copy != NULL && copy->region != NULL && tb_arena_region_proven(copy->region)))
        return;
    if (tb_said_find(&d->said, TB_STATEMENT_VERSION, &key->uid) != NULL) return; /* it is signed */
    tb_catalog_version_awaits(d->catalog, tb_clock_now(), &key->uid, true);
    tb_arena_prover_due(d);
}

static const struct tb_said *say_withdrawn(struct tb_daemon *d, const struct tb_version_key *key)
{
    struct tb_statement what = tb_statement_of(TB_STATEMENT_WITHDRAWN, key);
    return tb_said_find(&d->said, TB_STATEMENT_WITHDRAWN, &key->uid) != NULL ? NULL : say(d, &what);
}

static const struct tb_said *say_run(struct tb_daemon *d, const struct tb_catalog_run *run)
{
    struct tb_statement what = {
        .kind = TB_STATEMENT_RUN, .model = run->model, .run = run->id, .run_order = run->order};
    if (run->order == 0 || run->order > TB_STATEMENT_ORDER_MAX) return NULL;
    return tb_said_find(&d->said, TB_STATEMENT_RUN, &run->id) != NULL ? NULL : say(d, &what);
}

static uint32_t tell(struct tb_daemon *d, const struct tb_said *said)
{
    if (said == NULL) return 0;
    const struct tb_span span = {.bytes = said->bytes, .count = said->count};
    if (tb_peer_links(d) == NULL) return 1;
    tb_links_tell_statement(d->links, &said->what.model, &span);
    if (said->what.kind == TB_STATEMENT_VERSION) tb_links_proven(d->links, &said->what.uid);
    return 1;
}

void tb_home_says(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    if (todo->kind == TB_CATALOG_PERSIST_RUN && !todo->run.fenced && is_home(d, &todo->run.model))
        (void)say_run(d, &todo->run);
    if (todo->kind != TB_CATALOG_PERSIST_VERSION || !is_home(d, &todo->key.model)) return;
    if (todo->state == TB_VERSION_READY || todo->state == TB_VERSION_KEPT) {
        (void)tell(d, say_version(d, &todo->key));
        /* One that is here at once has one row, and that says kept. */
        if (todo->state == TB_VERSION_READY || tb_copy_find(d, &todo->key.uid) != NULL)
            readers_wait(d, &todo->key);
    }
    if (todo->state == TB_VERSION_ENDED_WITHDRAWN) (void)say_withdrawn(d, &todo->key);
}

static uint32_t sign_runs(struct tb_daemon *d)
{
    uint32_t done = 0;
    static struct tb_catalog_run run; /* large; the main loop's alone */
    for (uint32_t cursor = 0; done < TICK_MAX && tb_catalog_run_at(d->catalog, &cursor, &run);)
        if (!run.fenced && is_home(d, &run.model)) done += tell(d, say_run(d, &run));
    return done;
}

static uint32_t sign_versions(struct tb_daemon *d, uint32_t most)
{
    static struct tb_catalog_version_view v; /* large; the main loop's alone */
    uint32_t done = 0;
    for (uint32_t cursor = 0; done < most && tb_catalog_version_at(d->catalog, &cursor, &v);)
        if ((v.state == TB_VERSION_READY || v.state == TB_VERSION_KEPT) && is_home(d, &v.key.model))
            done += tell(d, say_version(d, &v.key));
    return done;
}

void tb_home_says_tick(struct tb_daemon *d)
{
    if (d->tls == NULL || d->draining) return;
    uint32_t done = sign_runs(d);
    done += sign_versions(d, TICK_MAX);
    for (uint32_t i = 0; done < TICK_MAX && i < d->withdrawn.count; i++) {
        const struct tb_withdrawal *w = &d->withdrawn.rows[i];
        if (!w->here && is_home(d, &w->key.model)) done += tell(d, say_withdrawn(d, &w->key));
    }
}
