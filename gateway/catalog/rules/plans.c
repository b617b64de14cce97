/* plans.c - the source of each worker. It asks intra/planner for one reader at a time and remembers
 * the answers.
 *
 * Promise P6: a reader whose source dies, leaves or fails goes on elsewhere, and no other reader
 * moves for it. A source that failed a reader is avoided until it shows progress; where there is no
 * other it is tried again after retry_ns. A worker that holds up its readers becomes a leaf for
 * this version, and its readers move. A silent worker is chosen only when there is no other, until
 * it speaks again. */
#include "gateway/catalog/rules/plans.h"
#include "base/assert.h"

#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "intra/planner.h"

#define GATEWAY_ID                                                                                           \
    0 /* the planner's id of the gateway; of a session: its row + 1, as a publisher behind these: */
#define PUBLISHER_IDS (UINT64_C(1) << 32)
/* A rate of arrival is measured over at least so many chunks and so long. A worker of a version is
 * judged at most every JUDGE_EVERY: a judgement looks at all workers, and thousands may tell their
 * progress each second. */
#define ARRIVAL_CHUNKS_MIN 8
#define ARRIVAL_NS_MIN     TB_MS(20)
#define JUDGE_EVERY        TB_MS(10)
#define BEGAN_TOGETHER     TB_MS(500) /* a version is told to all at once */
/* So many words in a row that nothing came, though the source had more. The first is of the time
 * before, too. */
#define STANDS_STILL 2

static uint64_t planner_id(const struct tb_catalog *c, uint32_t source)
{
    if (source == GATEWAY) return GATEWAY_ID;
    const struct reference *ref = reference_at(c, source);
    return (uint64_t)ref->owner + 1 + (ref->kind == TB_REFERENCE_PUBLISHER ? PUBLISHER_IDS : 0);
}

/* ---- sources that failed ---- */

static uint32_t source_held(const struct tb_catalog *c, const struct version *v, uint32_t source)
{
    return source == GATEWAY ? v->held_chunks : reference_at(c, source)->held_chunks;
}

#define LEFT UINT32_MAX /* held: its reader was told to leave it, and no progress makes that good */

static void avoid(struct tb_catalog *c, struct reference *ref, uint32_t source, uint32_t held)
{
    TB_ASSERT(source != NONE && ref->avoided_count <= AVOIDED_MAX);
    if (ref->avoided_count == AVOIDED_MAX) {
        for (uint32_t a = 1; a < AVOIDED_MAX; a++)
            ref->avoided[a - 1] = ref->avoided[a];
        ref->avoided_count--;
    }
    ref->avoided[ref->avoided_count++] = (struct avoided){source, held};
    ref->retry_at = tb_time_add(c->now, c->config.retry_ns);
}

static void forgive_progress(const struct tb_catalog *c, struct reference *ref)
{
    uint32_t kept = 0;
    const struct version *v = version_at(c, ref->version);
    for (uint32_t a = 0; a < ref->avoided_count; a++)
        if (source_held(c, v, ref->avoided[a].source) <= ref->avoided[a].held_chunks)
            ref->avoided[kept++] = ref->avoided[a];
    ref->avoided_count = kept;
}

/* ---- asking the planner ---- */

static bool gateway_serves(const struct version *v)
{
    return tb_version_reserved(v) && !tb_version_leaves(v);
}

static struct tb_planner_member worker_member(const struct tb_catalog *c, const struct version *v,
                                              uint32_t row, const struct reference *reader)
{
    const struct reference *ref = reference_at(c, row);
    return (struct tb_planner_member){
        .id = (uint64_t)ref->owner + 1,
        .kind = TB_PLANNER_WORKER,
        .row = row,
        .host = ref->host,
        .rack = ref->rack,
        .fan_out = tb_plan_fan_out(c, v, ref->nic_bytes_per_s),
        .upstream = TB_PLANNER_NONE,
        .readers = c->session_readers[ref->owner],
        .held_chunks = ref->held_chunks,
        .whole = ref->whole,
        .spot = ref->spot,
        .slow = ref->standing > reader->standing || tb_reference_slow(ref),
        .silent = ref->silent,
        .steady = ref->pace.steady,
        .bytes_per_s = ref->bytes_per_s,
    };
}

/* One that is whole and said not where it can be read may never say it. One that still reads does
 * soon: it is planned on before. */
static bool never_serves(const struct reference *ref)
{
    return ref->reads_only || (ref->whole && ref->export_id == 0);
}

/* A rank that published the whole version in place may be read by workers of its own host: there
 * its bytes cost no NIC, and a GPU's come from the GPU. A trainer's NIC is its own. */
static bool rank_serves(const struct reference *ref)
{
    if (ref->kind != TB_REFERENCE_PUBLISHER || ref->shard != 0) return false;
    return ref->followers > 0 || (ref->in_place && !tb_reference_hidden(ref));
}

static uint32_t add_ranks(struct tb_catalog *c, const struct version *v, uint32_t count)
{
    if (v->key.shard_count != 1) return count;
    EACH_HOLDER(c, v, r)
    {
        struct reference *ref = reference_at(c, r);
        if (!rank_serves(ref)) continue;
        ref->question = count;
        c->question[count++] = (struct tb_planner_member){.id = planner_id(c, r),
                                                          .kind = TB_PLANNER_PUBLISHER,
                                                          .row = r,
                                                          .host = ref->host,
                                                          .rack = ref->rack,
                                                          .upstream = TB_PLANNER_NONE,
                                                          .held_chunks = v->chunk_count,
                                                          .whole = true,
                                                          .silent = ref->silent,
                                                          .near_only = true};
    }
    return count;
}

/* Members of the question are the gateway, when it serves, ranks and workers of the version that
 * serve, and the reader; each remembers its place. */
static uint32_t fill_question(struct tb_catalog *c, const struct version *v, const struct reference *reader)
{
    uint32_t count = 0;
    if (gateway_serves(v))
        c->question[count++] = (struct tb_planner_member){.id = GATEWAY_ID,
                                                          .kind = TB_PLANNER_GATEWAY,
                                                          .row = GATEWAY,
                                                          .host = 1,
                                                          .fan_out = tb_plan_fan_out(c, v, c->gateway_nic),
                                                          .upstream = TB_PLANNER_NONE,
                                                          .readers = c->gateway_readers,
                                                          .held_chunks = v->held_chunks,
                                                          .whole = v->whole};
    const uint32_t roots = count = add_ranks(c, v, count);
    const bool gateway_alone = v->unproven && gateway_serves(v);
    EACH_WORKER(c, v, r)
    {
        struct reference *ref = reference_at(c, r);
        if ((never_serves(ref) || gateway_alone) && ref != reader) continue;
        ref->question = count;
        c->question[count++] = worker_member(c, v, r, reader);
    }
    TB_ASSERT(count <= c->limits.references + 1);
    for (uint32_t i = roots; i < count; i++) {
        const uint32_t source = reference_at(c, c->question[i].row)->source;
        if (source == NONE) continue;
        c->question[i].upstream = source == GATEWAY ? 0 : reference_at(c, source)->question;
    }
    return count;
}

/* A NIC feeds as many as it can at the rate at which the model's versions arrive: a wide tree
 * behind a slow link, a chain behind a fast source. The first version of all is spread before a
 * rate is known, as a chain. */
uint32_t tb_plan_fan_out(const struct tb_catalog *c, const struct version *v, uint64_t nic_bytes_per_s)
{
    if (c->config.fan_out != 0) return c->config.fan_out;
    const uint64_t nic = c->config.nic_bytes_per_s != 0 ? c->config.nic_bytes_per_s : nic_bytes_per_s;
    return tb_planner_fan_out(nic, model_at(c, v->model)->arrival_bytes_per_s);
}

void tb_plan_arrival(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (v->arriving_since == 0) {
        v->arriving_since = c->now;
        v->arriving_from = v->held_chunks;
        return;
    }
    const tb_time_ns passed = tb_time_since(v->arriving_since, c->now);
    if (passed < ARRIVAL_NS_MIN || v->held_chunks < v->arriving_from + ARRIVAL_CHUNKS_MIN) return;
    const double share = (double)(v->held_chunks - v->arriving_from) / v->chunk_count;
    model_at(c, v->model)->arrival_bytes_per_s =
        (uint64_t)(share * (double)v->bytes / ((double)passed / 1e9));
}

/* First those whose hop was lost, so many; then those that it was told to leave, which
 * others may read from. */
static uint32_t list_avoided(const struct tb_catalog *c, const struct reference *ref,
                             uint64_t ids[AVOIDED_MAX])
{
    uint32_t first = 0, last = ref->avoided_count;
    for (uint32_t a = 0; a < ref->avoided_count; a++) {
        const bool left = ref->avoided[a].held_chunks == LEFT;
        ids[left ? --last : first++] = planner_id(c, ref->avoided[a].source);
    }
    return first;
}

static uint32_t pick(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    const struct version *v = version_at(c, ref->version);
    uint64_t avoided[AVOIDED_MAX];
    forgive_progress(c, ref);
    const uint32_t failed = list_avoided(c, ref, avoided);
    struct tb_planner_question question = {.members = c->question,
                                           .count = fill_question(c, v, ref),
                                           .avoid = avoided,
                                           .avoid_count = ref->avoided_count,
                                           .failed_count = failed};
    question.reader = ref->question;
    uint32_t place;
    if (tb_planner_upstream(&question, &place) != TB_OK) return NONE;
    return c->question[place].row;
}

static void plan(struct tb_catalog *c, uint32_t reference)
{
    const uint32_t source = pick(c, reference);
    if (source == NONE) return;
    TB_ASSERT(source == GATEWAY || !never_serves(reference_at(c, source)));
    tb_reference_standing_moves(reference_at(c, reference), TB_STANDING_IS_PLANNED);
    tb_plan_set_source(c, reference, source);
    tb_plan_tell(c, reference);
}

/* Readers are planned oldest first, so that early ones stand near the source; the list begins with
 * the youngest. Workers that keep up come first, then those put aside, then slow ones: else a slow
 * one would take back the place that it has just given up. Mostly none or one asks: with 10,000
 * workers each walk of the list costs. */
void tb_plans_settle(struct tb_catalog *c, uint32_t version)
{
    const struct version *v = version_at(c, version);
    if (v->asking_count == 0 || (!tb_version_lives(v) && tb_version_state(v) != TB_VERSION_RETIRED)) return;
    const struct reference *last = reference_at(c, v->asking_last);
    if (v->asking_count == 1 && last->reading == TB_READING_ASKS && last->version == version) {
        plan(c, v->asking_last);
        return;
    }
    uint32_t oldest = v->workers;
    EACH_WORKER(c, v, r) oldest = r;
    uint32_t asking[TB_STANDING_END] = {0};
    for (uint32_t r = oldest; r != NONE; r = reference_at(c, r)->previous)
        asking[reference_at(c, r)->standing] += reference_at(c, r)->reading == TB_READING_ASKS;
    for (uint32_t standing = 0; standing < TB_STANDING_END; standing++)
        for (uint32_t r = oldest; asking[standing] > 0 && r != NONE; r = reference_at(c, r)->previous)
            if (reference_at(c, r)->reading == TB_READING_ASKS && reference_at(c, r)->standing == standing)
                plan(c, r);
}

/* ---- who holds up those behind it ---- */

/* Nothing came, and what it reads from held no more: it waits as that does. */
static bool waited(const struct tb_catalog *c, const struct reference *ref)
{
    if (ref->bytes_per_s > 0 || ref->whole) return false;
    if (ref->source == NONE) return true;
    if (ref->source != GATEWAY && reference_at(c, ref->source)->kind == TB_REFERENCE_PUBLISHER) return false;
    return source_held(c, version_at(c, ref->version), ref->source) <= ref->held_chunks;
}

/* Could be: others are twice as fast, and what it reads from gives more. Saves the look at all
 * workers where it could not. */
static bool may_be_slow(const struct tb_catalog *c, const struct reference *ref)
{
    const struct version *v = version_at(c, ref->version);
    if (tb_reference_slow(ref) || ref->whole || ref->source == NONE) return false;
    if (v->chunk_count == 0 || v->fastest / 2 <= ref->bytes_per_s) return false;
    if (ref->source == GATEWAY) return true;
    const struct reference *source = reference_at(c, ref->source);
    return source->whole || source->kind == TB_REFERENCE_PUBLISHER ||
           source->bytes_per_s / 2 > ref->bytes_per_s;
}

/* The gateway is at least so many chunks ahead of it, and there is enough left for a trial to
 * pay. */
static bool lags(const struct tb_catalog *c, const struct reference *ref)
{
    const struct version *v = version_at(c, ref->version);
    const uint32_t held = ref->held_chunks + TB_PLANNER_SLOW_CHUNKS;
    return ref->pace.steady && v->held_chunks >= held && v->chunk_count >= held + TB_PLANNER_SLOW_CHUNKS;
}

/* A steady reader on another host that is not known to be slow reads from it. Only where all began
 * at about the same time: a worker that joined later holds much less, and the first would wait
 * behind it for what it has already. */
static bool leads_a_chain(const struct tb_catalog *c, uint32_t reference)
{
    const struct reference *ref = reference_at(c, reference);
    const struct version *v = version_at(c, ref->version);
    bool feeds = false;
    EACH_WORKER(c, v, r)
    {
        const struct reference *other = reference_at(c, r);
        if (!other->whole && other->since > tb_time_add(ref->since, BEGAN_TOGETHER)) return false;
        /* A worker that was put aside reads behind the others now. First it is seen whether it
         * reads slowly there. */
        if (v->trials > 0 && !other->whole && !other->pace.steady) return false;
        feeds |= other->source == reference && other->source_loads && other->pace.steady &&
                 !tb_reference_slow(other);
    }
    return feeds;
}

/* Nothing at all comes to it, and its readers wait: neither has a rate. Whenever they began
 * and however little is left, waiting on behind it brings nothing. */
static bool feeds_nothing(const struct tb_catalog *c, uint32_t reference)
{
    EACH_WORKER(c, version_at(c, reference_at(c, reference)->version), r)
    {
        const struct reference *other = reference_at(c, r);
        if (other->source == reference && other->source_loads && other->pace.waited &&
            !tb_reference_slow(other))
            return true;
    }
    return false;
}

/* The first of a chain, which reads from the gateway: may it hold up those behind it? */
static bool may_hold_up(struct tb_catalog *c, uint32_t first)
{
    const struct reference *ref = reference_at(c, first);
    struct version *v = version_at(c, ref->version);
    const bool stands = ref->pace.nothing == STANDS_STILL;
    if (ref->standing != TB_STANDING_KEEPS_UP || ref->whole || ref->source != GATEWAY || !ref->source_loads)
        return false;
    if (!stands && !lags(c, ref)) return false;
    if (tb_time_since(v->looked_at, c->now) < JUDGE_EVERY) return false;
    v->looked_at = c->now;
    return (stands && feeds_nothing(c, first)) || (lags(c, ref) && leads_a_chain(c, first));
}

/* Whether the first of a chain reads at what is known to be had: half of it is not slow. */
static bool reads_as_proven(struct tb_catalog *c, const struct reference *ref)
{
    struct model *m = model_at(c, version_at(c, ref->version)->model);
    if (m->proven_bytes_per_s == 0 || ref->bytes_per_s < m->proven_bytes_per_s / 2) return false;
    if (ref->bytes_per_s > m->proven_bytes_per_s) m->proven_bytes_per_s = ref->bytes_per_s;
    return true;
}

/* Workers of one version are judged at most every JUDGE_EVERY. A worker that comes between is
 * judged by its next word, and by the time of that word alone. */
static bool has_turn(struct version *v, struct tb_planner_pace *pace, tb_time_ns now)
{
    if (tb_time_since(v->judged_at, now) >= JUDGE_EVERY) {
        v->judged_at = now;
        return true;
    }
    tb_planner_heard(pace, now);
    return false;
}

static struct tb_planner_question question_of(struct tb_catalog *c, const struct reference *ref)
{
    const struct version *v = version_at(c, ref->version);
    const uint32_t count = fill_question(c, v, ref);
    TB_ASSERT(v->chunk_count > 0);
    return (struct tb_planner_question){.members = c->question,
                                        .count = count,
                                        .reader = ref->question,
                                        .now = c->now,
                                        .chunk_bytes = v->bytes / v->chunk_count};
}

/* It comes behind all others, and where it was the first of a chain, before the slow. */
void tb_plan_yield_place(struct tb_catalog *c, uint32_t reference)
{
    const struct reference *ref = reference_at(c, reference);
    TB_ASSERT(ref->source != NONE);
    tb_plan_lose_source(c, reference);
    if (ref->standing != TB_STANDING_ASIDE) return;
    EACH_WORKER(c, version_at(c, ref->version), r)
    {
        if (tb_reference_slow(reference_at(c, r)) && reference_at(c, r)->source_loads)
            tb_plan_lose_source(c, r);
    }
}

/* A reader that finds nobody better stays. Once all are away it gives its own place up too, which
 * feeds another better; settling plans it behind those, where it holds up nobody. But not before
 * one of them may read there: what it reads from may have stopped, and answers nobody. Then what it
 * says of that source is needed, and behind them it would wait as they do. */
static void make_leaf(struct tb_catalog *c, uint32_t slow)
{
    struct reference *ref = reference_at(c, slow);
    TB_ASSERT(ref->standing != TB_STANDING_KEEPS_UP);
    EACH_WORKER(c, version_at(c, ref->version), r)
    {
        if (reference_at(c, r)->source != slow) continue;
        const uint32_t better = pick(c, r);
        if (better != NONE && better != slow) tb_plan_lose_source(c, r);
    }
    if (ref->followers > 0 || !ref->source_loads) return;
    if (ref->bytes_per_s == 0)
        tb_plan_yield_place(c, slow); /* it has nothing to lose there */
    else
        tb_plan_yields(c, slow);
}

/* The first of a chain cannot be compared with workers that depend on it. It gives its place up to
 * one of them and comes behind them all. If the others then read over twice as fast, it held them
 * up, and is judged slow beside them. The next first may hold them up too, and is tried next.
 *
 * The rate after TB_PLANNER_TRIALS_MAX trials is what can be had. This version is not troubled
 * again, and no other until a first reads at under half of that rate. A first that gets nothing
 * loses nothing by a trial: each is tried once. */
static void try_another(struct tb_catalog *c, uint32_t first)
{
    struct reference *ref = reference_at(c, first);
    struct version *v = version_at(c, ref->version);
    const bool stands = ref->bytes_per_s == 0;
    if ((stands ? ref->stood : v->search == TB_VERSION_SEARCH_DONE) || !may_hold_up(c, first) ||
        reads_as_proven(c, ref))
        return;
    const struct tb_planner_question question = question_of(c, ref);
    if (!tb_planner_alone(&question)) return;
    if (!stands && v->trials >= TB_PLANNER_TRIALS_MAX) {
        model_at(c, v->model)->proven_bytes_per_s = ref->bytes_per_s;
        tb_version_search_moves(v, TB_VERSION_SEARCH_IS_ENOUGH);
        return;
    }
    tb_version_search_moves(v, TB_VERSION_SEARCH_TRIES);
    v->trials++;
    ref->stood |= stands;
    tb_reference_standing_moves(ref, TB_STANDING_IS_PUT_ASIDE);
    make_leaf(c, first);
}

/* A slow worker is a leaf of the next version from its beginning: that may be over before a rate is
 * told. It is forgiven in a version in which it is half as fast as the fastest. */
static void remember(struct tb_catalog *c, const struct reference *ref, bool slow)
{
    session_at(c, ref->owner)->slow = slow;
}

/* Nothing comes, while others read: it may be its source's NIC and not its own. It tries another
 * one, where there is one, and what the source gets meanwhile is no reason to come back to it. */
static void leave_source(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    const uint32_t source = ref->source;
    TB_ASSERT(tb_reference_slow(ref) && source != NONE);
    avoid(c, ref, source, LEFT);
    if (pick(c, reference) == NONE)
        tb_plan_forgive(ref, source);
    else if (ref->followers == 0)
        tb_plan_lose_source(c, reference);
}

static void judge(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    if (waited(c, ref)) {
        tb_planner_waited(&ref->pace, c->now);
        return;
    }
    if (ref->bytes_per_s > 0)
        ref->pace.nothing = 0;
    else if (ref->pace.nothing < STANDS_STILL)
        ref->pace.nothing++;
    if (!may_be_slow(c, ref)) {
        tb_planner_heard(&ref->pace, c->now);
        ref->pace.under = false;
        return;
    }
    if (!has_turn(version_at(c, ref->version), &ref->pace, c->now)) return;
    const struct tb_planner_question question = question_of(c, ref);
    if (!tb_planner_slow(&question, &ref->pace)) return;
    tb_reference_standing_moves(ref, TB_STANDING_IS_SLOW);
    remember(c, ref, true);
    if (ref->bytes_per_s == 0) leave_source(c, reference);
    if (ref->followers > 0) make_leaf(c, reference);
}

void tb_plan_judge(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    struct version *v = version_at(c, ref->version);
    if (ref->bytes_per_s > v->fastest) v->fastest = ref->bytes_per_s;
    const bool keeps_up = ref->bytes_per_s > 0 && ref->bytes_per_s >= v->fastest / 2;
    if (tb_reference_slow(ref) && ref->pace.heard && !ref->whole && keeps_up) remember(c, ref, false);
    judge(c, reference);
    if (ref->source < GATEWAY)
        try_another(c, ref->source);
    else if (ref->source == GATEWAY)
        try_another(c, reference);
}

/* The first of a chain cannot read from the gateway and there is nobody else but those who depend
 * on it: one of them may reach further. Where something had come it waits and tries again, as it
 * may hold much more than they. */
static void step_aside(struct tb_catalog *c, uint32_t first)
{
    tb_reference_standing_moves(reference_at(c, first), TB_STANDING_IS_PUT_ASIDE);
    make_leaf(c, first);
}

void tb_plan_unproven(struct tb_catalog *c, uint32_t version)
{
    if (!gateway_serves(version_at(c, version))) return;
    EACH_WORKER(c, version_at(c, version), r)
    {
        const uint32_t source = reference_at(c, r)->source;
        if (source < GATEWAY && reference_at(c, source)->kind == TB_REFERENCE_WORKER)
            tb_plan_lose_source(c, r);
    }
}

void tb_plan_source_failed(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    TB_ASSERT(ref->source != NONE && ref->held_chunks >= ref->source_from);
    const bool nothing_came = ref->held_chunks == ref->source_from;
    avoid(c, ref, ref->source, source_held(c, version_at(c, ref->version), ref->source));
    tb_plan_set_source(c, reference, NONE);
    if (nothing_came && ref->followers > 0 && pick(c, reference) == NONE) step_aside(c, reference);
    tb_catalog_touch_version(c, ref->version);
}

static tb_time_ns next_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = TB_TIME_NEVER;
    EACH(c->references, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (tb_plan_wanted(ref) && ref->avoided_count > 0) at = tb_time_min(at, ref->retry_at);
    }
    return at;
}

/* Readers with no source, and only failed ones to choose from. */
void tb_plans_tick(struct tb_catalog *c)
{
    if (next_deadline(c) > c->now) return;
    EACH(c->references, r)
    {
        struct reference *ref = reference_at(c, r);
        if (!tb_plan_wanted(ref) || ref->avoided_count == 0 || ref->retry_at > c->now) continue;
        ref->avoided_count = 0;
        tb_catalog_touch_version(c, ref->version);
    }
}
