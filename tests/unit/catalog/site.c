/* site.c - see site.h. */
#include "site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"

struct tb_id id_of(uint64_t number)
{
    struct tb_id id = {{0}};
    memcpy(id.bytes, &number, sizeof number);
    return id;
}

static uint64_t number_of(const struct tb_id *id)
{
    uint64_t number;
    memcpy(&number, id->bytes, sizeof number);
    return number;
}

struct tb_name name_of(const char *text)
{
    struct tb_name name = {{0}};
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

struct tb_digest root_of(uint8_t number)
{
    struct tb_digest d = {{0}};
    d.bytes[0] = number;
    return d;
}

struct tb_id session_of(const char *name)
{
    struct tb_id id = {{0}};
    memcpy(id.bytes, name, strlen(name) < sizeof id.bytes ? strlen(name) : sizeof id.bytes);
    return id;
}

/* ---- opening ---- */

static const struct tb_catalog_limits limits = {.models = 2,
                                                .records = 4,
                                                .runs = 4,
                                                .versions = 16,
                                                .shards = 4,
                                                .sessions = SITE_SESSIONS,
                                                .references = 64,
                                                .site_references = 12,
                                                .groups = 4,
                                                .members = 12,
                                                .waits = 16,
                                                .sites = 4,
                                                .manifest_bytes = SITE_MANIFEST_BYTES};

static void open_site(struct site *s, const char *site, bool is_home, uint32_t keep)
{
    const struct tb_catalog_config config = {.site = name_of(site),
                                             .host = name_of("gateway-host"),
                                             .lease_ns = TB_SECONDS(10),
                                             .tick_ns = TB_MS(100),
                                             .turn_ns = TB_SECONDS(3),
                                             .nic_bytes_per_s = s->nic_bytes_per_s};
    s->c = tb_catalog_init(s->memory, &limits, &config, s->now);
    struct tb_catalog_model model = {.name = name_of("policy"),
                                     .home = name_of("east"),
                                     .is_home = is_home,
                                     .subscribed = !is_home,
                                     .keep = keep};
    CHECK_OK(tb_catalog_model_add(s->c, &model));
}

void name_durable(struct site *s, const char *gateway)
{
    struct tb_catalog_model model;
    uint32_t cursor = 0;
    assert_true(tb_catalog_model_at(s->c, &cursor, &model));
    model.durable[model.durable_count++] = name_of(gateway);
    CHECK_OK(tb_catalog_model_add(s->c, &model));
}

static void begin(struct site *s)
{
    memset(s, 0, sizeof *s);
    s->memory = malloc(tb_catalog_bytes(&limits));
    assert_non_null(s->memory);
    memset(s->memory, 0xa5, tb_catalog_bytes(&limits)); /* init owes nothing to what was there */
}

/* So that traces begin at 0 with recovery behind. */
static void recover(struct site *s)
{
    s->now = TB_SECONDS(1000) - TB_SECONDS(10);
    s->c = NULL;
}

static void past_recovery(struct site *s)
{
    while (tb_catalog_recovering(s->c)) {
        s->now += TB_MS(50);
        tb_catalog_tick(s->c, s->now);
    }
    s->now = TB_SECONDS(1000);
    tb_catalog_tick(s->c, s->now);
    hush(s);
}

void east_open(struct site *s, uint32_t keep)
{
    begin(s);
    recover(s);
    open_site(s, "east", true, keep);
    past_recovery(s);
}

void west_open_wide(struct site *s, uint32_t keep, uint64_t nic_bytes_per_s)
{
    begin(s);
    recover(s);
    s->nic_bytes_per_s = nic_bytes_per_s;
    open_site(s, "west", false, keep);
    past_recovery(s);
}

void west_open(struct site *s, uint32_t keep)
{
    west_open_wide(s, keep, 0);
}

void east_reopen(struct site *s, uint32_t keep)
{
    memset(s->memory, 0x5a, tb_catalog_bytes(&limits));
    open_site(s, "east", true, keep);
}

void site_close(struct site *s)
{
    free(s->memory);
}

/* ---- time ---- */

void pass_ms(struct site *s, uint64_t ms, const char *const *renewing)
{
    for (uint64_t passed = 0; passed < ms; passed += 50) {
        s->now += TB_MS(ms - passed < 50 ? ms - passed : 50);
        for (uint32_t i = 0; renewing != NULL && renewing[i] != NULL; i++) {
            const struct tb_id id = session_of(renewing[i]);
            CHECK_OK(tb_catalog_session_renew(s->c, s->now, &id));
        }
        tb_catalog_tick(s->c, s->now);
        drain(s);
    }
}

void pause_ms(struct site *s, uint64_t ms)
{
    s->now += TB_MS(ms);
}

/* ---- what happens ---- */

void come_from(struct site *s, const char *name, const char *host, bool spot)
{
    struct tb_catalog_session q = {.id = session_of(name),
                                   .name = name_of(name),
                                   .host = name_of(host),
                                   .spot = spot,
                                   .nic_bytes_per_s = s->hosts_nic};
    strcpy(q.identity, "unix:1000");
    CHECK_OK(tb_catalog_session_open(s->c, s->now, &q));
}

void come(struct site *s, const char *name)
{
    char host[80];
    (void)snprintf(host, sizeof host, "host-of-%s", name);
    come_from(s, name, host, false);
}

enum tb_status run_open(struct site *s, const char *rank, const char *key, uint64_t run)
{
    const struct tb_catalog_run_request q = {
        .session = session_of(rank), .model = name_of("policy"), .key = key, .fresh_id = id_of(run)};
    struct tb_catalog_run info;
    bool joined;
    const enum tb_status status = tb_catalog_run_open(s->c, s->now, &q, &info, &joined);
    if (status == TB_OK) s->run = info.id;
    return status;
}

void rank_begins(struct site *s)
{
    come(s, "rank");
    CHECK_OK(run_open(s, "rank", "k", 100));
}

enum tb_status version_open(struct site *s, const char *rank, uint64_t number, uint32_t shards, uint64_t uid)
{
    const struct tb_catalog_version_request q = {.session = session_of(rank),
                                                 .model = name_of("policy"),
                                                 .run = s->run,
                                                 .number = number,
                                                 .shard_count = shards,
                                                 .fresh_uid = id_of(uid)};
    struct tb_version_key key;
    return tb_catalog_version_open(s->c, s->now, &q, &key);
}

enum tb_status seal(struct site *s, const char *rank, uint64_t uid, uint32_t shard, uint8_t root)
{
    const struct tb_catalog_seal q = {.session = session_of(rank),
                                      .uid = id_of(uid),
                                      .shard = shard,
                                      .root = root_of(root),
                                      .chunk_count = SHARD_CHUNKS,
                                      .bytes = SHARD_BYTES,
                                      .export_id = 1,
                                      .retry = s->retry};
    return tb_catalog_seal(s->c, s->now, &q);
}

void land(struct site *s, uint64_t uid, uint32_t shard, uint32_t chunks)
{
    const struct tb_id id = id_of(uid);
    const enum tb_status status = tb_catalog_arena_reserved(s->c, s->now, &id);
    assert_true(status == TB_OK || status == TB_DONE_BEFORE);
    CHECK_OK(tb_catalog_arena_progress(s->c, s->now, &id, shard, chunks));
}

void publish_whole(struct site *s, const char *rank, uint64_t number)
{
    CHECK_OK(version_open(s, rank, number, 1, number));
    CHECK_OK(seal(s, rank, number, 0, (uint8_t)number));
    land(s, number, 0, SHARD_CHUNKS);
}

enum tb_status hear(struct site *s, const char *from, uint64_t number, enum tb_catalog_state state)
{
    const struct tb_version_key key = {.uid = id_of(number),
                                       .model = name_of("policy"),
                                       .run = id_of(900),
                                       .run_order = 1,
                                       .number = number,
                                       .shard_count = 1,
                                       .root = root_of((uint8_t)(number + 1))};
    const struct tb_name site = name_of(from);
    return tb_catalog_remote_version(s->c, s->now, &site, &key, state);
}

void cross_begin(struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    const struct tb_catalog_shard info = {
        .root = root_of(7), .chunk_count = SHARD_CHUNKS, .bytes = SHARD_BYTES};
    CHECK_OK(tb_catalog_arena_shard(s->c, s->now, &id, 0, &info));
    CHECK_OK(tb_catalog_arena_reserved(s->c, s->now, &id));
    CHECK_OK(tb_catalog_crossing_begun(s->c, s->now, &id));
}

void cross_whole(struct site *s, uint64_t uid)
{
    cross_begin(s, uid);
    land(s, uid, 0, SHARD_CHUNKS);
}

enum tb_status join_active(struct site *s, const char *worker, const char *group, uint32_t index,
                           uint32_t count, uint64_t active)
{
    const struct tb_catalog_member q = {
        .session = session_of(worker),
        .subscription = 1,
        .model = name_of("policy"),
        .group = name_of(group),
        .index = index,
        .count = count,
        .active = {.uid = id_of(active), .run_order = active == 0 ? 0 : 1, .number = active}};
    return tb_catalog_subscribe(s->c, s->now, &q);
}

enum tb_status join(struct site *s, const char *worker, const char *group, uint32_t index, uint32_t count)
{
    return join_active(s, worker, group, index, count, 0);
}

enum tb_status join_as(struct site *s, const char *worker, const char *group, uint32_t index, uint32_t count,
                       const char *owner)
{
    struct tb_catalog_member q = {.session = session_of(worker),
                                  .subscription = 1,
                                  .model = name_of("policy"),
                                  .group = name_of(group),
                                  .index = index,
                                  .count = count};
    (void)snprintf(q.owner, sizeof q.owner, "%s", owner);
    return tb_catalog_subscribe(s->c, s->now, &q);
}

enum tb_status stage(struct site *s, const char *worker, uint64_t uid)
{
    const struct tb_id session = session_of(worker), id = id_of(uid);
    struct tb_id instead;
    return tb_catalog_stage(s->c, s->now, &session, 1, &id, &instead);
}

enum tb_status progress_at(struct site *s, const char *worker, uint64_t uid, uint32_t held,
                           uint64_t bytes_per_s)
{
    const struct tb_catalog_progress p = {.session = session_of(worker),
                                          .uid = id_of(uid),
                                          .held_chunks = held,
                                          .total_chunks = SHARD_CHUNKS,
                                          .whole = held == SHARD_CHUNKS,
                                          .bytes_per_s = bytes_per_s};
    return tb_catalog_progress(s->c, s->now, &p);
}

enum tb_status progress(struct site *s, const char *worker, uint64_t uid, uint32_t held)
{
    return progress_at(s, worker, uid, held, 0);
}

enum tb_status export_of(struct site *s, const char *worker, uint64_t uid, uint32_t held)
{
    const struct tb_id session = session_of(worker), id = id_of(uid);
    return tb_catalog_export(s->c, s->now, &session, &id, ++s->exports, held, held == SHARD_CHUNKS);
}

enum tb_status staged(struct site *s, const char *worker, uint64_t uid)
{
    CHECK_OK(stage(s, worker, uid));
    CHECK_OK(export_of(s, worker, uid, 0));
    return progress(s, worker, uid, SHARD_CHUNKS);
}

enum tb_status activate(struct site *s, const char *worker, uint64_t uid)
{
    const struct tb_id session = session_of(worker), id = id_of(uid);
    return tb_catalog_activate(s->c, s->now, &session, 1, &id);
}

enum tb_status activated(struct site *s, const char *worker, uint64_t uid)
{
    const struct tb_id session = session_of(worker), id = id_of(uid);
    const struct tb_catalog_active active = {.uid = id, .run_order = 1, .number = uid};
    return tb_catalog_activated(s->c, s->now, &session, 1, &active);
}

void switch_to(struct site *s, const char *worker, uint64_t uid)
{
    CHECK_OK(activate(s, worker, uid));
    CHECK_OK(activated(s, worker, uid));
}

uint64_t wait_for(struct site *s, const char *worker, enum tb_catalog_wait_kind kind, uint64_t number,
                  uint64_t after, uint64_t timeout_ms)
{
    struct tb_catalog_wait q = {.handle = ++s->waits,
                                .kind = kind,
                                .model = name_of("policy"),
                                .number = number,
                                .after = id_of(after),
                                .uid = id_of(number),
                                .deadline = s->now + TB_MS(timeout_ms)};
    if (worker != NULL) q.session = session_of(worker);
    CHECK_OK(tb_catalog_wait(s->c, s->now, &q));
    return q.handle;
}

/* ---- the trace ---- */

static void say(struct site *s, const char *text)
{
    const size_t used = strlen(s->trace);
    (void)snprintf(s->trace + used, sizeof s->trace - used, "[%4llu] %s\n",
                   (unsigned long long)((s->now - TB_SECONDS(1000)) / TB_MS(1)), text);
}

static void blamed(const struct tb_catalog_todo *t, char *out, size_t cap)
{
    *out = 0;
    if (t->name.text[0] != 0 && t->shard != TB_CATALOG_NONE)
        (void)snprintf(out, cap, ", %s shard %u", t->name.text, t->shard);
    else if (t->name.text[0] != 0)
        (void)snprintf(out, cap, ", %s", t->name.text);
    else if (t->who[0] != 0)
        (void)snprintf(out, cap, ", %s", t->who);
}

static void shard_text(const struct tb_catalog_todo *t, char *out, size_t cap)
{
    if (t->shard == TB_CATALOG_ALL_SHARDS)
        (void)snprintf(out, cap, "all");
    else
        (void)snprintf(out, cap, "shard %u", t->shard);
}

static void from_text(const struct tb_catalog_todo *t, char *out, size_t cap)
{
    *out = 0;
    for (uint32_t i = 0; i < t->from_count; i++) {
        const size_t used = strlen(out);
        (void)snprintf(out + used, cap - used, " %s", t->from[i].text);
    }
}

static const char *upstream_text(const struct tb_catalog *c, const struct tb_catalog_todo *t)
{
    static struct tb_catalog_session_view view;
    if (t->from_gateway) return "gateway";
    return tb_catalog_session_get(c, &t->source_session, &view) ? view.session.name.text : "nobody";
}

/* One line for each kind: the table of what a catalog can say. */
static void todo_text(const struct tb_catalog *c, const struct tb_catalog_todo *t, char *out, size_t cap)
{
    const unsigned long long v = number_of(&t->uid);
    char more[128];
    switch (t->kind) {
    case TB_CATALOG_PERSIST_RUN:
        (void)snprintf(out, cap, "store run %s %s, last %llu", t->run.key, t->why,
                       (unsigned long long)t->run.last_number);
        return;
    case TB_CATALOG_PERSIST_VERSION:
        blamed(t, more, sizeof more);
        (void)snprintf(out, cap, "store v%llu %s: %s%s", v, tb_catalog_state_name(t->state), t->why, more);
        return;
    case TB_CATALOG_PERSIST_POINTER:
        (void)snprintf(out, cap, "store %s v%llu", t->head ? "head" : t->pinned ? "pin" : "unpin", v);
        return;
    case TB_CATALOG_LAND_FROM:
    case TB_CATALOG_LAND_END:
        shard_text(t, more, sizeof more);
        (void)snprintf(out, cap, "%s v%llu %s of %s", t->kind == TB_CATALOG_LAND_FROM ? "land" : "leave", v,
                       more, t->name.text);
        return;
    case TB_CATALOG_CROSS:
        from_text(t, more, sizeof more);
        (void)snprintf(out, cap, "cross v%llu from%s", v, more);
        return;
    case TB_CATALOG_EVICT:
        (void)snprintf(out, cap, "evict v%llu: %s", v, tb_status_name(t->status));
        return;
    case TB_CATALOG_SITE_STATE:
        (void)snprintf(out, cap, "peers v%llu%s%s", v, t->whole ? " whole" : "",
                       t->activated ? " activated" : "");
        return;
    case TB_CATALOG_SESSION_LOST:
        (void)snprintf(out, cap, "lost %s", t->name.text);
        return;
    case TB_CATALOG_TELL:
        (void)snprintf(out, cap, "tell %s v%llu %s", t->name.text, v,
                       t->status == TB_OK ? "kept" : tb_status_name(t->status));
        return;
    case TB_CATALOG_GO:
        (void)snprintf(out, cap, "go %s v%llu", t->name.text, v);
        return;
    case TB_CATALOG_PLAN:
        (void)snprintf(out, cap, "plan %s v%llu from %s", t->name.text, v, upstream_text(c, t));
        return;
    case TB_CATALOG_PLAN_END:
        (void)snprintf(out, cap, "plan %s v%llu from nobody", t->name.text, v);
        return;
    case TB_CATALOG_ANSWER:
        if (t->status == TB_OK && v != 0)
            (void)snprintf(out, cap, "answer %llu: v%llu%s", (unsigned long long)t->wait, v,
                           t->whole ? " whole" : "");
        else
            (void)snprintf(out, cap, "answer %llu: %s", (unsigned long long)t->wait,
                           tb_status_name(t->status));
        return;
    case TB_CATALOG_UNPUBLISHED:
        if (t->shard == TB_CATALOG_ALL_SHARDS)
            (void)snprintf(out, cap, "unpublished %s v%llu: %s", t->name.text, v, tb_status_name(t->status));
        else
            (void)snprintf(out, cap, "unpublished %s v%llu shard %u: %s", t->name.text, v, t->shard,
                           tb_status_name(t->status));
        return;
    }
    fail_msg("a todo of kind %d", (int)t->kind);
}

/* Each source takes its readers in at once, but the one that has stopped. */
static void take_in(struct site *s, const struct tb_catalog_todo *t)
{
    if (s->stopped != NULL && strcmp(upstream_text(s->c, t), s->stopped) == 0) return;
    CHECK_OK(tb_catalog_plan_told(s->c, s->now, &t->session, &t->uid, t->plan));
}

void drain(struct site *s)
{
    struct tb_catalog_todo t;
    while (tb_catalog_next(s->c, &t)) {
        char line[512];
        todo_text(s->c, &t, line, sizeof line);
        if ((s->left_out & (1u << t.kind)) == 0) say(s, line);
        if (t.kind == TB_CATALOG_PLAN) take_in(s, &t);
        if (s->listener != NULL) s->listener(s->world, &t);
    }
}

void said_at(struct site *s, const char *expected, const char *file, int line)
{
    drain(s);
    if (strcmp(s->trace, expected) != 0)
        print_message("%s:%d: the catalog said\n%sand was to say\n%s", file, line, s->trace, expected);
    assert_true(strcmp(s->trace, expected) == 0);
    s->trace[0] = 0;
}

void hush(struct site *s)
{
    drain(s);
    s->trace[0] = 0;
}

const char *state_of(struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    struct tb_catalog_version_view view;
    return tb_catalog_version_get(s->c, &id, &view) ? tb_catalog_state_name(view.state) : "unknown";
}

void up(struct site *s, const char *site, bool is_up)
{
    const struct tb_name name = name_of(site);
    CHECK_OK(tb_catalog_site_up(s->c, s->now, &name, is_up));
}

void west_follows(struct site *s)
{
    west_open(s, 4);
    s->left_out = NOT_STORE | NOT_PEERS | NOT_PLANS;
    up(s, "east", true);
}
