/* Every event in every state of a catalog: a story brings it through its states, and after each step of the story each event is
 * given with right and wrong arguments. Nothing falls; what is refused changes nothing (catalog.h); what is done leaves tables
 * that agree with each other; what is held is forgotten only by those events that say so (P3); a group goes backwards only when
 * its version was withdrawn (P2). The catalog is its memory, so each state is kept as a copy and put back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "catalog/site.h"
#include "check.h"
#define site catalog_site /* site.h has another */
#include "gateway/catalog/tables.h"
#undef site

#define TODOS_MAX 2000 /* a catalog that always has one more to say would hold its owner up for ever */

static const char *const sessions[] = {"rank", "w0", "w1", "nobody"};
static const uint64_t uids[] = {1, 2, 3, 77};
static const uint32_t shards[] = {0, 1, 7};
static const char *const names[] = {"policy", "other"};
static const char *const sites[] = {"east", "west", "north"};
#define PICK(list) ((list)[pick(&n, sizeof(list) / sizeof *(list))])

static unsigned pick(unsigned *n, size_t count)
{
    const unsigned at = *n % (unsigned)count;
    *n /= (unsigned)count;
    return at;
}

/* ---- events: variant n of each ---- */

typedef enum tb_status (*event_do)(struct site *s, unsigned n);

static enum tb_status do_open_session(struct site *s, unsigned n)
{
    const char *name = PICK(sessions);
    const struct tb_catalog_session q = {
        .id = session_of(name), .name = name_of(name), .host = name_of("host")};
    return tb_catalog_session_open(s->c, s->now, &q);
}

static enum tb_status do_resume(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions));
    return tb_catalog_session_resume(s->c, s->now, &id, n % 2 == 0 ? "unix:1000" : "unix:1");
}

static enum tb_status do_detach(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions));
    tb_catalog_session_detach(s->c, s->now, &id);
    return TB_OK;
}

static enum tb_status do_renew(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions));
    return tb_catalog_session_renew(s->c, s->now, &id);
}

static enum tb_status do_close(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions));
    tb_catalog_session_close(s->c, s->now, &id);
    return TB_OK;
}

static enum tb_status do_run(struct site *s, unsigned n)
{
    static const char *const keys[] = {"a", "b", ""};
    const struct tb_catalog_run_request q = {.session = session_of(PICK(sessions)),
                                             .model = name_of(PICK(names)),
                                             .key = PICK(keys),
                                             .fresh_id = id_of(950)};
    struct tb_catalog_run info;
    bool joined;
    return tb_catalog_run_open(s->c, s->now, &q, &info, &joined);
}

static enum tb_status do_version(struct site *s, unsigned n)
{
    static const uint32_t counts[] = {0, 1, 2, 1000};
    const struct tb_catalog_version_request q = {.session = session_of(PICK(sessions)),
                                                 .model = name_of(PICK(names)),
                                                 .number = PICK(uids),
                                                 .shard_count = PICK(counts),
                                                 .run = n % 2 == 0 ? s->run : id_of(1),
                                                 .fresh_uid = id_of(960)};
    struct tb_version_key key;
    return tb_catalog_version_open(s->c, s->now, &q, &key);
}

static enum tb_status do_seal(struct site *s, unsigned n)
{
    const struct tb_catalog_seal q = {.session = session_of(PICK(sessions)),
                                      .uid = id_of(PICK(uids)),
                                      .shard = PICK(shards),
                                      .root = root_of((uint8_t)(1 + n % 3)),
                                      .chunk_count = SHARD_CHUNKS,
                                      .bytes = SHARD_BYTES,
                                      .export_id = 5};
    return tb_catalog_seal(s->c, s->now, &q);
}

static enum tb_status do_unpublish(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    const uint32_t shard = PICK(shards);
    return tb_catalog_unpublish(s->c, s->now, &id, &uid, n % 2 == 0 ? shard : TB_CATALOG_ALL_SHARDS,
                                TB_SECONDS(1));
}

static enum tb_status do_chunk_bad(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    return tb_catalog_chunk_bad(s->c, s->now, &uid, PICK(shards), n % 2 == 0 ? 3 : UINT32_MAX, &id);
}

static enum tb_status do_arena_shard(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    const uint32_t shard = PICK(shards);
    const struct tb_catalog_shard info = {
        .root = root_of((uint8_t)(n % 2 == 0 ? 7 : 1)), .chunk_count = SHARD_CHUNKS, .bytes = SHARD_BYTES};
    return tb_catalog_arena_shard(s->c, s->now, &uid, shard, &info);
}

static enum tb_status do_reserved(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    return tb_catalog_arena_reserved(s->c, s->now, &uid);
}

static const uint32_t helds[] = {0, 4, SHARD_CHUNKS, SHARD_CHUNKS + 1, UINT32_MAX};

static enum tb_status do_arena_progress(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    const uint32_t shard = PICK(shards);
    return tb_catalog_arena_progress(s->c, s->now, &uid, shard, PICK(helds));
}

static enum tb_status do_arena_shrunk(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    const uint32_t shard = PICK(shards);
    return tb_catalog_arena_shrunk(s->c, s->now, &uid, shard, PICK(helds));
}

static enum tb_status do_evicted(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    return tb_catalog_evicted(s->c, s->now, &uid);
}

static enum tb_status do_make_room(struct site *s, unsigned n)
{
    static const uint64_t needs[] = {0, 1, SHARD_BYTES, UINT64_MAX};
    struct tb_catalog_room room;
    return tb_catalog_make_room(s->c, s->now, PICK(needs), &room);
}

static enum tb_status do_site_up(struct site *s, unsigned n)
{
    const struct tb_name site = name_of(PICK(sites));
    return tb_catalog_site_up(s->c, s->now, &site, n % 2 == 0);
}

static enum tb_status do_forget(struct site *s, unsigned n)
{
    const struct tb_name site = name_of(PICK(sites));
    tb_catalog_site_forget(s->c, s->now, &site);
    return TB_OK;
}

static enum tb_status do_remote(struct site *s, unsigned n)
{
    const char *from = PICK(sites);
    const uint64_t number = PICK(uids);
    return hear(s, from, number, (enum tb_catalog_state)(n % (TB_CATALOG_STATE_END + 1)));
}

static enum tb_status do_site_progress(struct site *s, unsigned n)
{
    const struct tb_catalog_site_progress p = {.site = name_of(PICK(sites)),
                                               .uid = id_of(PICK(uids)),
                                               .held_chunks = PICK(helds),
                                               .whole = n % 2 == 1,
                                               .activated = n / 2 % 2 == 1};
    return tb_catalog_site_progress(s->c, s->now, &p);
}

static enum tb_status do_begun(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    return tb_catalog_crossing_begun(s->c, s->now, &uid);
}

static enum tb_status do_refused(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    return tb_catalog_crossing_refused(s->c, s->now, &uid);
}

static enum tb_status do_withdraw(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    return tb_catalog_withdraw(s->c, s->now, &uid, "operator");
}

static enum tb_status do_pin(struct site *s, unsigned n)
{
    const struct tb_id uid = id_of(PICK(uids));
    return tb_catalog_pin(s->c, s->now, &uid, n % 2 == 0);
}

static enum tb_status do_subscribe(struct site *s, unsigned n)
{
    static const uint32_t counts[] = {0, 1, 2, UINT32_MAX};
    const struct tb_catalog_member m = {.session = session_of(PICK(sessions)),
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
    const struct tb_id id = session_of(PICK(sessions));
    return tb_catalog_unsubscribe(s->c, s->now, &id, n % 3);
}

static enum tb_status do_stage(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    struct tb_id instead;
    return tb_catalog_stage(s->c, s->now, &id, n % 3, &uid, &instead);
}

static enum tb_status do_export(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    const uint32_t held = PICK(helds);
    return tb_catalog_export(s->c, s->now, &id, &uid, 9, held, n % 2 == 1);
}

static enum tb_status do_progress(struct site *s, unsigned n)
{
    const struct tb_catalog_progress p = {.session = session_of(PICK(sessions)),
                                          .uid = id_of(PICK(uids)),
                                          .held_chunks = PICK(helds),
                                          .total_chunks = SHARD_CHUNKS,
                                          .whole = n % 2 == 1};
    return tb_catalog_progress(s->c, s->now, &p);
}

static enum tb_status do_hop_lost(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    return tb_catalog_hop_lost(s->c, s->now, &id, &uid, n % 4);
}

static enum tb_status do_plan_told(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    return tb_catalog_plan_told(s->c, s->now, &id, &uid, n % 4);
}

static enum tb_status do_silent(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions));
    tb_catalog_session_silent(s->c, s->now, &id);
    return TB_OK;
}

static enum tb_status do_activate(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    return tb_catalog_activate(s->c, s->now, &id, n % 3, &uid);
}

static enum tb_status do_activated(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    const struct tb_catalog_active active = {.uid = uid};
    return tb_catalog_activated(s->c, s->now, &id, n % 3, &active);
}

static enum tb_status do_release(struct site *s, unsigned n)
{
    const struct tb_id id = session_of(PICK(sessions)), uid = id_of(PICK(uids));
    return tb_catalog_release(s->c, s->now, &id, &uid);
}

static enum tb_status do_wait(struct site *s, unsigned n)
{
    static const char *const askers[] = {"w0", "nobody", ""};
    const struct tb_catalog_wait q = {
        .session = session_of(PICK(askers)),
        .model = name_of(PICK(names)),
        .kind = (enum tb_catalog_wait_kind)pick(&n, TB_CATALOG_WAIT_SITE_ACTIVATED + 1),
        .uid = id_of(uids[n % 4]),
        .number = PICK(uids),
        .site = name_of(PICK(sites)),
        .handle = 1000,
        .deadline = n % 2 == 0 ? s->now : TB_TIME_NEVER};
    return tb_catalog_wait(s->c, s->now, &q);
}

static enum tb_status do_cancel(struct site *s, unsigned n)
{
    tb_catalog_cancel(s->c, s->now, n % 3);
    return TB_OK;
}

static enum tb_status do_model(struct site *s, unsigned n)
{
    const struct tb_catalog_model m = {
        .name = name_of(PICK(names)), .home = name_of(PICK(sites)), .keep = n % 3};
    return tb_catalog_model_add(s->c, &m);
}

static enum tb_status do_tick(struct site *s, unsigned n)
{
    static const tb_time_ns later[] = {0, TB_MS(50), TB_SECONDS(3), TB_SECONDS(11), TB_SECONDS(4000)};
    s->now += PICK(later);
    tb_catalog_tick(s->c, s->now);
    return TB_OK;
}

#define CHANGES 1u /* also when it is refused: the status tells of what it did */
#define FORGETS 2u /* what is held here may be less afterwards */

static const struct event {
    const char *name;
    event_do run;
    unsigned variants, flags;
} events[] = {
    {"session_open", do_open_session, 4, 0},
    {"session_resume", do_resume, 8, 0},
    {"session_detach", do_detach, 4, 0},
    {"session_renew", do_renew, 4, 0},
    {"session_silent", do_silent, 4, 0},
    {"session_close", do_close, 4, 0},
    {"run_open", do_run, 4 * 2 * 3, 0},
    {"version_open", do_version, 4 * 2 * 4 * 4 * 2, 0},
    {"seal", do_seal, 4 * 4 * 3 * 3, CHANGES},
    {"unpublish", do_unpublish, 4 * 4 * 3 * 2, 0},
    {"chunk_bad", do_chunk_bad, 4 * 4 * 3 * 2, CHANGES},
    {"arena_shard", do_arena_shard, 4 * 3 * 2, 0},
    {"arena_reserved", do_reserved, 4, 0},
    {"arena_progress", do_arena_progress, 4 * 3 * 5, 0},
    {"arena_shrunk", do_arena_shrunk, 4 * 3 * 5, FORGETS},
    {"evicted", do_evicted, 4, FORGETS},
    {"make_room", do_make_room, 4, 0},
    {"site_up", do_site_up, 6, 0},
    {"site_forget", do_forget, 3, 0},
    {"remote_version", do_remote, 3 * 4 * (TB_CATALOG_STATE_END + 1), 0},
    {"site_progress", do_site_progress, 3 * 4 * 5 * 4, 0},
    {"crossing_begun", do_begun, 4, 0},
    {"crossing_refused", do_refused, 4, 0},
    {"withdraw", do_withdraw, 4, 0},
    {"pin", do_pin, 8, 0},
    {"subscribe", do_subscribe, 4 * 2 * 4 * 3 * 3 * 4, 0},
    {"unsubscribe", do_unsubscribe, 12, 0},
    {"stage", do_stage, 4 * 4 * 3, 0},
    {"export", do_export, 4 * 4 * 5 * 2, 0},
    {"progress", do_progress, 4 * 4 * 5 * 2, 0},
    {"plan_told", do_plan_told, 4 * 4 * 4, 0},
    {"hop_lost", do_hop_lost, 4 * 4 * 4, 0},
    {"activate", do_activate, 4 * 4 * 3, 0},
    {"activated", do_activated, 4 * 4 * 3, 0},
    {"release", do_release, 4 * 4, 0},
    {"wait", do_wait, 3 * 2 * 6 * 4 * 3 * 2, 0},
    {"cancel", do_cancel, 3, 0},
    {"model_add", do_model, 2 * 3 * 3, 0},
    {"tick", do_tick, 5, 0},
};
#define EVENTS (sizeof events / sizeof *events)

/* ---- what holds in every state ---- */

static void check_versions(const struct site *s)
{
    struct tb_catalog_version_view v;
    for (uint32_t at = 0; tb_catalog_version_at(s->c, &at, &v);) {
        assert_true(v.state >= TB_VERSION_OPEN && v.state < TB_CATALOG_STATE_END);
        assert_true(v.held_chunks <= v.chunk_count);
        assert_true(!v.whole || v.held_chunks == v.chunk_count); /* P1: no lie about what is held */
        assert_true(!(v.whole && v.arriving));
        assert_true(v.sealed_count <= v.key.shard_count);
        assert_true(v.state != TB_VERSION_KEPT || v.sealed_count == v.key.shard_count || v.sites > 0 ||
                    v.whole);
    }
}

static void check_groups(const struct site *s)
{
    struct tb_catalog_group_view g;
    struct tb_catalog_member_view m;
    for (uint32_t at = 0; tb_catalog_group_at(s->c, &at, &g);)
        assert_true(g.present > 0 && g.present <= g.count && g.staged_whole <= g.present &&
                    g.activated <= g.present);
    for (uint32_t at = 0; tb_catalog_member_at(s->c, &at, &m);) {
        struct tb_catalog_session_view session;
        assert_true(tb_catalog_session_get(s->c, &m.session, &session)); /* no member without its session */
    }
}

static void check_references(const struct site *s)
{
    struct tb_catalog_reference_view r;
    for (uint32_t at = 0; tb_catalog_reference_at(s->c, &at, &r);) {
        struct tb_catalog_session_view session;
        assert_true(r.kind == TB_REFERENCE_SITE || tb_catalog_session_get(s->c, &r.session, &session));
        assert_true(!(r.from_gateway && !tb_id_equal(&r.upstream, &(struct tb_id){{0}})));
    }
}

static void drain_all(struct site *s)
{
    struct tb_catalog_todo todo;
    unsigned count = 0;
    while (tb_catalog_next(s->c, &todo)) {
        assert_in_range(todo.kind, TB_CATALOG_PERSIST_RUN, TB_CATALOG_UNPUBLISHED);
        assert_true(++count < TODOS_MAX);
    }
}

static uint32_t held_of(const struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    struct tb_catalog_version_view v;
    return tb_catalog_version_get(s->c, &id, &v) ? v.held_chunks : 0;
}

/* (run, number) of what the first group goes by; 0 without one. */
static uint64_t group_order(const struct site *s)
{
    struct tb_catalog_group_view g;
    struct tb_catalog_version_view v;
    uint32_t at = 0;
    if (!tb_catalog_group_at(s->c, &at, &g) || !tb_catalog_version_get(s->c, &g.uid, &v)) return 0;
    return v.state == TB_VERSION_ENDED_WITHDRAWN ? 0 : v.key.run_order << 32 | v.key.number;
}

/* ---- each event in the state that is here ---- */

struct keep {
    uint8_t *memory; /* the state */
    size_t bytes;
    struct site site;
    unsigned done, refused;
};

static void put_back(struct site *s, const struct keep *k)
{
    memcpy(s->memory, k->memory, k->bytes);
    *s = k->site;
}

static void try_event(struct site *s, struct keep *k, const struct event *e, unsigned n)
{
    uint32_t held[4];
    for (int i = 0; i < 4; i++)
        held[i] = held_of(s, uids[i]);
    const uint64_t order = group_order(s);
    const enum tb_status status = e->run(s, n);
    assert_true(strcmp(tb_status_name(status), "unknown") != 0);
    if (status < 0 && (e->flags & CHANGES) == 0) {
        s->c->full =
            ((const struct tb_catalog *)(const void *)k->memory)->full; /* which table refused; not a state */
        if (memcmp(s->memory, k->memory, k->bytes) != 0)
            fail_msg("%s variant %u was refused with %s and changed something", e->name, n,
                     tb_status_name(status));
        k->refused++;
        return;
    }
    k->done++;
    for (int i = 0; i < 4 && (e->flags & FORGETS) == 0; i++)
        if (held_of(s, uids[i]) < held[i])
            fail_msg("%s variant %u made v%d hold less", e->name, n, (int)uids[i]);
    if (group_order(s) != 0 && group_order(s) < order)
        fail_msg("%s variant %u: a group went backwards", e->name, n);
    check_versions(s);
    check_groups(s);
    check_references(s);
    drain_all(s);
    s->now += TB_SECONDS(11); /* every lease, drain and retry ends */
    tb_catalog_tick(s->c, s->now);
    drain_all(s);
    check_versions(s);
    check_groups(s);
    check_references(s);
}

static void try_all(struct site *s, struct keep *k)
{
    memcpy(k->memory, s->memory, k->bytes);
    k->site = *s;
    for (size_t i = 0; i < EVENTS; i++) {
        for (unsigned n = 0; n < events[i].variants; n++) {
            try_event(s, k, &events[i], n);
            put_back(s, k);
        }
    }
}

/* ---- stories ---- */

static void home_story(struct site *s, unsigned step)
{
    const struct tb_id v2 = id_of(2);
    switch (step) {
    case 0:
        come(s, "rank");
        break;
    case 1:
        CHECK_OK(run_open(s, "rank", "a", 900));
        break;
    case 2:
        CHECK_OK(version_open(s, "rank", 1, 2, 1));
        break;
    case 3:
        CHECK_OK(seal(s, "rank", 1, 0, 1));
        break;
    case 4:
        land(s, 1, 0, 4);
        break;
    case 5:
        CHECK_OK(seal(s, "rank", 1, 1, 2));
        break;
    case 6:
        come(s, "w0");
        come(s, "w1");
        break;
    case 7:
        CHECK_OK(join(s, "w0", "g", 0, 2));
        break;
    case 8:
        CHECK_OK(join(s, "w1", "g", 1, 2));
        (void)wait_for(s, "w0", TB_CATALOG_WAIT_EXACT, 2, 0, 60000);
        break;
    case 9:
        CHECK_OK(stage(s, "w0", 1));
        break;
    case 10:
        land(s, 1, 0, SHARD_CHUNKS);
        land(s, 1, 1, SHARD_CHUNKS);
        break; /* kept */
    case 11:
        (void)staged(s, "w0", 1);
        break;
    case 12:
        (void)staged(s, "w1", 1);
        break; /* go */
    case 13:
        CHECK_OK(activate(s, "w0", 1));
        break;
    case 14:
        CHECK_OK(activated(s, "w0", 1));
        break;
    case 15:
        switch_to(s, "w1", 1);
        publish_whole(s, "rank", 2);
        break;
    case 16:
        CHECK_OK(stage(s, "w1", 2));
        break; /* a second attempt */
    case 17:
        CHECK_OK(tb_catalog_withdraw(s->c, s->now, &v2, "operator"));
        break;
    default:
        publish_whole(s, "rank", 3);
        break;
    }
}

static void remote_story(struct site *s, unsigned step)
{
    const struct tb_name east = name_of("east"), north = name_of("north");
    const struct tb_id v1 = id_of(1), rank = session_of("w1");
    switch (step) {
    case 0:
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &east, true));
        break;
    case 1:
        CHECK_OK(hear(s, "east", 1, TB_VERSION_OPEN));
        break;
    case 2:
        CHECK_OK(hear(s, "east", 1, TB_VERSION_READY));
        break;
    case 3:
        cross_begin(s, 1);
        break;
    case 4:
        come(s, "w0");
        come(s, "w1");
        CHECK_OK(join(s, "w0", "g", 0, 2));
        CHECK_OK(join(s, "w1", "g", 1, 2));
        break;
    case 5:
        CHECK_OK(stage(s, "w0", 1));
        land(s, 1, 0, 4);
        break;
    case 6:
        land(s, 1, 0, SHARD_CHUNKS);
        break;
    case 7:
        (void)staged(s, "w0", 1);
        (void)staged(s, "w1", 1);
        break;
    case 8:
        switch_to(s, "w0", 1);
        switch_to(s, "w1", 1);
        break;
    case 9:
        CHECK_OK(hear(s, "east", 2, TB_VERSION_KEPT));
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &north, true));
        break;
    case 10:
        cross_whole(s, 2);
        break;
    case 11:
        CHECK_OK(stage(s, "w0", 2));
        break;
    case 12:
        tb_catalog_session_detach(s->c, s->now, &rank);
        break;
    case 13:
        CHECK_OK(hear(s, "east", 2, TB_VERSION_ENDED_WITHDRAWN));
        break;
    default:
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &east, false));
        (void)!tb_catalog_pin(s->c, s->now, &v1, true);
        break;
    }
}

static void tell_story(struct site *s, void (*story)(struct site *, unsigned), unsigned steps, size_t bytes)
{
    struct keep k = {.memory = malloc(bytes), .bytes = bytes};
    assert_non_null(k.memory);
    for (unsigned step = 0; step < steps; step++) {
        try_all(s, &k); /* with what is still to be said, and after it was */
        drain_all(s);
        story(s, step);
        drain_all(s);
    }
    try_all(s, &k);
    printf("%u states, %u events done, %u refused\n", steps + 1, k.done, k.refused);
    assert_true(k.done > 1000 && k.refused > 1000);
    free(k.memory);
}

/* P2 P3 P4 P7. */
static void every_event_in_every_state_at_home(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    tell_story(&s, home_story, 19, tb_catalog_bytes(&s.c->limits));
    site_close(&s);
}

static void every_event_in_every_state_elsewhere(void **state)
{
    (void)state;
    struct site s;
    west_open(&s, 2);
    tell_story(&s, remote_story, 15, tb_catalog_bytes(&s.c->limits));
    site_close(&s);
}

static void every_event_while_it_recovers(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    east_reopen(&s, 2);
    tell_story(&s, home_story, 3, tb_catalog_bytes(&s.c->limits));
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_at_home),
        cmocka_unit_test(every_event_in_every_state_elsewhere),
        cmocka_unit_test(every_event_while_it_recovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
