/* catalog_variants.c - see catalog_variants.h. */
#include "catalog_variants.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/keeping.h"
#include "gateway/catalog/leases.h"

#include <string.h>

#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/workers.h"

const char *const given_sessions[GIVEN_SESSIONS] = {"rank", "w0", "w1", "nobody"};
const uint64_t given_uids[GIVEN_UIDS] = {1, 2, 3, 77};
const char *const given_sites[GIVEN_SITES] = {"east", "west", "north"};
static const uint32_t shards[] = {0, 1, 7};
static const char *const names[] = {"policy", "other"};
#define PICK(list) ((list)[pick(&n, sizeof(list) / sizeof *(list))])

static unsigned pick(unsigned *n, size_t count)
{
    const unsigned at = *n % (unsigned)count;
    *n /= (unsigned)count;
    return at;
}

static enum tb_status do_open_session(struct site *s, unsigned n)
{
    const char *name = PICK(given_sessions);
    const struct tb_catalog_session q = {
        .id = session_of(name), .name = name_of(name), .host = name_of("host")};
    return tb_catalog_session_open(s->c, s->now, &q);
}

static enum tb_status do_resume(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions));
    return tb_catalog_session_resume(s->c, s->now, &id, n % 2 == 0 ? "unix:1000" : "unix:1");
}

static enum tb_status do_detach(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions));
    tb_catalog_session_detach(s->c, s->now, &id);
    return TB_OK;
}

static enum tb_status do_renew(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions));
    return tb_catalog_session_renew(s->c, s->now, &id);
}

static enum tb_status do_close(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions));
    tb_catalog_session_close(s->c, s->now, &id);
    return TB_OK;
}

static enum tb_status do_run(struct site *s, unsigned n)
{
    static const char *const keys[] = {"a", "b", ""};
    const struct tb_catalog_run_request q = {.session = session_of(PICK(given_sessions)),
                                             .model = name_of(PICK(names)),
                                             .key = PICK(keys),
                                             .fresh_id = id_of(950)};
    struct tb_catalog_run info;
    bool joined;
    return tb_catalog_run_open(s->c, s->now, &q, &info, &joined);
}

static enum tb_status do_run_told(struct site *s, unsigned n)
{
    static const uint64_t orders[] = {0, 1, 2, TB_CATALOG_RUN_ORDER_MAX + 1};
    const struct tb_name model = name_of(PICK(names));
    const struct tb_catalog_known_run told = {model, PICK(orders), 5, n % 2 == 0 ? s->run : id_of(1)};
    return tb_catalog_run_told(s->c, s->now, &told, n / 2 % 2 == 0);
}

static enum tb_status do_version(struct site *s, unsigned n)
{
    static const uint32_t counts[] = {0, 1, 2, 1000};
    const struct tb_catalog_version_request q = {.session = session_of(PICK(given_sessions)),
                                                 .model = name_of(PICK(names)),
                                                 .number = PICK(given_uids),
                                                 .shard_count = PICK(counts),
                                                 .run = n % 2 == 0 ? s->run : id_of(1),
                                                 .fresh_uid = id_of(960)};
    struct tb_version_key key;
    return tb_catalog_version_open(s->c, s->now, &q, &key);
}

static enum tb_status do_seal(struct site *s, unsigned n)
{
    const struct tb_catalog_seal q = {.session = session_of(PICK(given_sessions)),
                                      .uid = id_of(PICK(given_uids)),
                                      .shard = PICK(shards),
                                      .root = root_of((uint8_t)(1 + n % 3)),
                                      .chunk_count = SHARD_CHUNKS,
                                      .bytes = SHARD_BYTES,
                                      .manifest_bytes = n / 3 == 2 ? SITE_MANIFEST_BYTES + 1 : 0,
                                      .export_id = 5,
                                      .in_place = n / 3 == 1};
    return tb_catalog_seal(s->c, s->now, &q);
}

static enum tb_status do_unpublish(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    const uint32_t shard = PICK(shards);
    return tb_catalog_unpublish(s->c, s->now, &id, &uid, n % 2 == 0 ? shard : TB_CATALOG_ALL_SHARDS,
                                TB_SECONDS(1));
}

static enum tb_status do_unpublish_gone(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    const uint32_t shard = PICK(shards);
    return tb_catalog_unpublish_gone(s->c, s->now, &id, &uid, n % 2 == 0 ? shard : TB_CATALOG_ALL_SHARDS,
                                     TB_SECONDS(1));
}

static enum tb_status do_chunk_bad(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    return tb_catalog_chunk_bad(s->c, s->now, &uid, PICK(shards), n % 2 == 0 ? 3 : UINT32_MAX, &id);
}

static enum tb_status do_arena_shard(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    const uint32_t shard = PICK(shards);
    const struct tb_catalog_shard info = {
        .root = root_of((uint8_t)(n % 2 == 0 ? 7 : 1)), .chunk_count = SHARD_CHUNKS, .bytes = SHARD_BYTES};
    return tb_catalog_arena_shard(s->c, s->now, &uid, shard, &info);
}

static enum tb_status do_reserved(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_arena_reserved(s->c, s->now, &uid);
}

static const uint32_t helds[] = {0, 4, SHARD_CHUNKS, SHARD_CHUNKS + 1, UINT32_MAX};

static enum tb_status do_arena_progress(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    const uint32_t shard = PICK(shards);
    return tb_catalog_arena_progress(s->c, s->now, &uid, shard, PICK(helds));
}

static enum tb_status do_arena_came(struct site *s, unsigned n)
{
    static const uint64_t bytes[] = {0, 1, UINT64_MAX};
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_arena_came(s->c, s->now, &uid, PICK(bytes));
}

static enum tb_status do_arena_shrunk(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    const uint32_t shard = PICK(shards);
    return tb_catalog_arena_shrunk(s->c, s->now, &uid, shard, PICK(helds));
}

static enum tb_status do_evicted(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_evicted(s->c, s->now, &uid);
}

static enum tb_status do_make_room(struct site *s, unsigned n)
{
    static const uint64_t needs[] = {0, 1, SHARD_BYTES, UINT64_MAX};
    struct tb_catalog_room room;
    return tb_catalog_make_room(s->c, s->now, PICK(needs), &room);
}

static enum tb_status do_clear(struct site *s, unsigned n)
{
    uint32_t count = n;
    return tb_catalog_clear(s->c, s->now, &count);
}

static enum tb_status do_site_up(struct site *s, unsigned n)
{
    const struct tb_name site = name_of(PICK(given_sites));
    return tb_catalog_site_up(s->c, s->now, &site, n % 2 == 0);
}

static enum tb_status do_forget(struct site *s, unsigned n)
{
    const struct tb_name site = name_of(PICK(given_sites));
    tb_catalog_site_forget(s->c, s->now, &site);
    return TB_OK;
}

static enum tb_status do_leaves(struct site *s, unsigned n)
{
    const struct tb_name site = name_of(PICK(given_sites));
    tb_catalog_site_leaves(s->c, s->now, &site);
    return TB_OK;
}

static enum tb_status do_dropped(struct site *s, unsigned n)
{
    const struct tb_name site = name_of(PICK(given_sites));
    const struct tb_id uid = id_of(PICK(given_uids));
    tb_catalog_site_dropped(s->c, s->now, &site, &uid);
    return TB_OK;
}

static enum tb_status do_awaits(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    tb_catalog_version_awaits(s->c, s->now, &uid, n % 2 == 0);
    return TB_OK;
}

static enum tb_status do_unproven(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    tb_catalog_version_unproven(s->c, s->now, &uid, n % 2 == 0);
    return TB_OK;
}

static enum tb_status do_remote(struct site *s, unsigned n)
{
    const char *from = PICK(given_sites);
    const uint64_t number = PICK(given_uids);
    return hear(s, from, number, (enum tb_catalog_state)(n % (TB_CATALOG_STATE_END + 1)));
}

/* Of any model, number and size, and of a uid that may be another version's. */
static enum tb_status do_remote_strange(struct site *s, unsigned n)
{
    static const uint32_t counts[] = {0, 1, 2, 1000};
    const struct tb_name from = name_of("east");
    const struct tb_version_key key = {.uid = id_of(PICK(given_uids)),
                                       .model = name_of(PICK(names)),
                                       .run = id_of(900),
                                       .run_order = 1,
                                       .number = PICK(given_uids),
                                       .shard_count = PICK(counts)};
    return tb_catalog_remote_version(s->c, s->now, &from, &key,
                                     n % 2 == 0 ? TB_VERSION_OPEN : TB_VERSION_ENDED_BROKEN);
}

static enum tb_status do_site_progress(struct site *s, unsigned n)
{
    const struct tb_catalog_site_progress p = {.site = name_of(PICK(given_sites)),
                                               .uid = id_of(PICK(given_uids)),
                                               .held_chunks = PICK(helds),
                                               .whole = n % 2 == 1,
                                               .activated = n / 2 % 2 == 1};
    return tb_catalog_site_progress(s->c, s->now, &p);
}

static enum tb_status do_begun(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_crossing_begun(s->c, s->now, &uid);
}

static enum tb_status do_refused(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_crossing_refused(s->c, s->now, &uid);
}

static enum tb_status do_hopeless(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_crossing_hopeless(s->c, s->now, &uid);
}

static enum tb_status do_abandon(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_crossing_abandon(s->c, s->now, &uid);
}

static enum tb_status do_base(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_base(s->c, s->now, &uid, n % 2 == 0);
}

static enum tb_status do_withdraw(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_withdraw(s->c, s->now, &uid, "operator");
}

static enum tb_status do_restore_withdrawn(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_restore_withdrawn(s->c, &uid, n % 2 == 0, "ann") ? TB_OK : TB_NOT_FOUND;
}

static enum tb_status do_restore_pinned_by(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_restore_pinned_by(s->c, &uid, "bob") ? TB_OK : TB_NOT_FOUND;
}

static enum tb_status do_pin(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(given_uids));
    return tb_catalog_pin(s->c, s->now, &uid, n % 2 == 0, "ann");
}

static enum tb_status do_subscribe(struct site *s, unsigned n)
{
    static const uint32_t counts[] = {0, 1, 2, UINT32_MAX};
    const struct tb_catalog_member m = {.session = session_of(PICK(given_sessions)),
                                        .model = name_of(PICK(names)),
                                        .count = PICK(counts),
                                        .index = pick(&n, 3),
                                        .subscription = pick(&n, 3),
                                        .group = name_of(n % 2 == 0 ? "g" : "h"),
                                        .active = {.uid = n / 2 % 2 == 0 ? id_of(0) : id_of(1)}};
    return tb_catalog_subscribe(s->c, s->now, &m);
}

static enum tb_status do_unsubscribe(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions));
    return tb_catalog_unsubscribe(s->c, s->now, &id, n % 3);
}

static enum tb_status do_stage(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    struct tb_id instead;
    return tb_catalog_stage(s->c, s->now, &id, n % 3, &uid, &instead);
}

static enum tb_status do_export(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    const uint32_t held = PICK(helds);
    return tb_catalog_export(s->c, s->now, &id, &uid, n / 2 % 2 == 0 ? 9 : 0, held, n % 2 == 1);
}

static enum tb_status do_progress(struct site *s, unsigned n)
{
    const struct tb_catalog_progress p = {.session = session_of(PICK(given_sessions)),
                                          .uid = id_of(PICK(given_uids)),
                                          .held_chunks = PICK(helds),
                                          .total_chunks = SHARD_CHUNKS,
                                          .whole = n % 2 == 1};
    return tb_catalog_progress(s->c, s->now, &p);
}

static enum tb_status do_hop_lost(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    return tb_catalog_hop_lost(s->c, s->now, &id, &uid, n % 4);
}

static enum tb_status do_plan_told(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    return tb_catalog_plan_told(s->c, s->now, &id, &uid, n % 4);
}

static enum tb_status do_silent(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions));
    tb_catalog_session_silent(s->c, s->now, &id);
    return TB_OK;
}

static enum tb_status do_activate(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    return tb_catalog_activate(s->c, s->now, &id, n % 3, &uid);
}

static enum tb_status do_activated(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    const struct tb_catalog_active active = {.uid = uid};
    return tb_catalog_activated(s->c, s->now, &id, n % 3, &active);
}

static enum tb_status do_updated(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    const struct tb_catalog_update update = {.uid = uid, .way = 3, .stall_ns = 1};
    return tb_catalog_updated(s->c, &id, n % 3, &update);
}

static enum tb_status do_proven(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    const struct tb_catalog_proof proof = {.uid = uid, .at = 1, .verdict = 1};
    bool alarms;
    return tb_catalog_proven(s->c, &id, n % 3, &proof, &alarms);
}

static enum tb_status do_release(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(given_sessions)), uid = id_of(PICK(given_uids));
    return tb_catalog_release(s->c, s->now, &id, &uid);
}

static enum tb_status do_wait(struct site *s, unsigned n)
{
    static const char *const askers[] = {"w0", "nobody", ""};
    const struct tb_catalog_wait q = {
        .session = session_of(PICK(askers)),
        .model = name_of(PICK(names)),
        .kind = (enum tb_catalog_wait_kind)pick(&n, TB_CATALOG_WAIT_SITE_ACTIVATED + 1),
        .uid = id_of(given_uids[n % GIVEN_UIDS]),
        .number = PICK(given_uids),
        .site = name_of(PICK(given_sites)),
        .handle = 1000,
        .deadline = n % 2 == 0 ? s->now : TB_TIME_NEVER};
    return tb_catalog_wait(s->c, s->now, &q);
}

static enum tb_status do_cancel(struct site *s, unsigned n)
{
    tb_catalog_cancel(s->c, s->now, n % 3);
    return TB_OK;
}

static enum tb_status do_nic(struct site *s, unsigned n)
{
    static const uint64_t rates[] = {0, 1, UINT64_MAX};
    tb_catalog_nic(s->c, rates[n]);
    return TB_OK;
}

static enum tb_status do_model(struct site *s, unsigned n)
{
    const struct tb_catalog_model m = {.name = name_of(PICK(names)),
                                       .home = name_of(PICK(given_sites)),
                                       .is_home = pick(&n, 2) == 1,
                                       .subscribed = pick(&n, 2) == 1,
                                       .every = pick(&n, 2) == 1,
                                       .keep = n % 3};
    return tb_catalog_model_add(s->c, &m);
}

static enum tb_status do_model_forget(struct site *s, unsigned n)
{
    const struct tb_name model = name_of(PICK(names));
    return tb_catalog_model_forget(s->c, s->now, &model);
}

/* ---- of the owner's store ---- */

/* A run, or the head: zero. */
static const uint64_t durable[] = {0, 1, 2, 3, 77};

static enum tb_status do_unsaved(struct site *s, unsigned n)
{
    const struct tb_name model = name_of(PICK(names));
    const struct tb_id uid = id_of(PICK(durable));
    tb_catalog_unsaved(s->c, &model, &uid);
    return TB_OK;
}

/* Said of what was said to be unsaved: else there is no such event. */
static enum tb_status do_saved(struct site *s, unsigned n)
{
    const struct tb_name model = name_of(PICK(names));
    const struct tb_id uid = id_of(PICK(durable));
    const uint32_t m = tb_catalog_model_find(s->c, &model), v = tb_version_find(s->c, &uid);
    if (m == NONE || model_at(s->c, m)->unsaved == 0) return TB_BAD_STATE;
    if (v != NONE && version_at(s->c, v)->unsaved == 0) return TB_BAD_STATE;
    tb_catalog_saved(s->c, &model, &uid);
    return TB_OK;
}

/* The store speaks before anything else: later there is no such event. */
static bool nobody_came(const struct site *s)
{
    return tb_table_next(&s->c->sessions, 0) == NONE && tb_table_next(&s->c->sites, 0) == NONE;
}

static enum tb_status do_first_start(struct site *s, unsigned n)
{
    (void)n;
    if (!nobody_came(s)) return TB_BAD_STATE;
    tb_catalog_first_start(s->c, s->now);
    return TB_OK;
}

static enum tb_status do_restore_run(struct site *s, unsigned n)
{
    static const uint64_t runs[] = {0, 900, 950};
    static const char *const keys[] = {"a", "b"};
    if (!nobody_came(s)) return TB_BAD_STATE;
    struct tb_catalog_run run = {
        .model = name_of(PICK(names)), .id = id_of(PICK(runs)), .order = pick(&n, 3), .has_last = true};
    strcpy(run.key, PICK(keys));
    run.last_number = n % 3;
    return tb_catalog_restore_run(s->c, &run);
}

static enum tb_status do_restore_version(struct site *s, unsigned n)
{
    static const uint32_t counts[] = {0, 1, 1000};
    if (!nobody_came(s)) return TB_BAD_STATE;
    const uint64_t number = PICK(given_uids);
    struct tb_version_key key = {.uid = id_of(number),
                                 .model = name_of(PICK(names)),
                                 .run = id_of(900),
                                 .run_order = 1,
                                 .number = number,
                                 .shard_count = PICK(counts)};
    if (pick(&n, 2) == 1) key.root = root_of(9);
    const bool pinned = pick(&n, 2) == 1;
    return tb_catalog_restore_version(s->c, &key, (enum tb_catalog_state)(n % (TB_CATALOG_STATE_END + 1)),
                                      SHARD_BYTES, pinned);
}

static enum tb_status do_tick(struct site *s, unsigned n)
{
    static const tb_time_ns later[] = {0, TB_MS(50), TB_SECONDS(3), TB_SECONDS(11), TB_SECONDS(4000)};
    s->now += PICK(later);
    tb_catalog_tick(s->c, s->now);
    return TB_OK;
}

const struct event given_events[] = {
    {"session_open", do_open_session, 4, 0},
    {"session_resume", do_resume, 8, 0},
    {"session_detach", do_detach, 4, 0},
    {"session_renew", do_renew, 4, 0},
    {"session_silent", do_silent, 4, 0},
    {"session_close", do_close, 4, 0},
    {"nic", do_nic, 3, 0},
    {"run_open", do_run, 4 * 2 * 3, 0},
    {"run_told", do_run_told, 2 * 4 * 4, 0},
    {"version_open", do_version, 4 * 2 * 4 * 4 * 2, 0},
    {"seal", do_seal, 4 * 4 * 3 * 9, CHANGES},
    {"unpublish", do_unpublish, 4 * 4 * 3 * 2, 0},
    {"unpublish_gone", do_unpublish_gone, 4 * 4 * 3 * 2, 0},
    {"chunk_bad", do_chunk_bad, 4 * 4 * 3 * 2, CHANGES},
    {"arena_shard", do_arena_shard, 4 * 3 * 2, 0},
    {"arena_reserved", do_reserved, 4, 0},
    {"arena_progress", do_arena_progress, 4 * 3 * 5, 0},
    {"arena_came", do_arena_came, 4 * 3, 0},
    {"arena_shrunk", do_arena_shrunk, 4 * 3 * 5, FORGETS},
    {"evicted", do_evicted, 4, FORGETS},
    {"make_room", do_make_room, 4, 0},
    {"clear", do_clear, 1, 0},
    {"site_up", do_site_up, 6, 0},
    {"site_forget", do_forget, 3, 0},
    {"site_dropped", do_dropped, 12, 0},
    {"site_leaves", do_leaves, 3, 0},
    {"version_awaits", do_awaits, 8, 0},
    {"version_unproven", do_unproven, 8, 0},
    {"remote_version", do_remote, 3 * 4 * (TB_CATALOG_STATE_END + 1), 0},
    {"remote_strange", do_remote_strange, 4 * 2 * 4 * 4 * 2, 0},
    {"site_progress", do_site_progress, 3 * 4 * 5 * 4, 0},
    {"crossing_begun", do_begun, 4, 0},
    {"crossing_refused", do_refused, 4, 0},
    {"crossing_hopeless", do_hopeless, 4, 0},
    {"crossing_abandon", do_abandon, 4, 0},
    {"base", do_base, 8, 0},
    {"withdraw", do_withdraw, 4, 0},
    {"pin", do_pin, 8, 0},
    {"restore_withdrawn", do_restore_withdrawn, 8, 0},
    {"restore_pinned_by", do_restore_pinned_by, 4, 0},
    {"subscribe", do_subscribe, 4 * 2 * 4 * 3 * 3 * 4, 0},
    {"unsubscribe", do_unsubscribe, 12, 0},
    {"stage", do_stage, 4 * 4 * 3, 0},
    {"export", do_export, 4 * 4 * 5 * 4, 0},
    {"progress", do_progress, 4 * 4 * 5 * 2, 0},
    {"plan_told", do_plan_told, 4 * 4 * 4, 0},
    {"hop_lost", do_hop_lost, 4 * 4 * 4, 0},
    {"activate", do_activate, 4 * 4 * 3, 0},
    {"activated", do_activated, 4 * 4 * 3, 0},
    {"updated", do_updated, 4 * 4 * 3, 0},
    {"proven", do_proven, 4 * 4 * 3, 0},
    {"release", do_release, 4 * 4, 0},
    {"wait", do_wait, 3 * 2 * 6 * 4 * 3 * 2, 0},
    {"cancel", do_cancel, 3, 0},
    {"model_add", do_model, 2 * 3 * 2 * 2 * 2 * 3, 0},
    {"model_forget", do_model_forget, 2, 0},
    {"unsaved", do_unsaved, 2 * 5, 0},
    {"saved", do_saved, 2 * 5, 0},
    {"first_start", do_first_start, 1, 0},
    {"restore_run", do_restore_run, 2 * 3 * 3 * 2 * 3, 0},
    {"restore_version", do_restore_version, 4 * 2 * 3 * 2 * 2 * (TB_CATALOG_STATE_END + 1), 0},
    {"tick", do_tick, 5, 0},
};
const size_t given_event_count = sizeof given_events / sizeof *given_events;
