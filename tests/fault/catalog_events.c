/* catalog_events.c - every event in every state of a catalog. Stories bring it through its states.
 * After each step each event is given with right and wrong arguments, and so it is in each new kind
 * of state that one of them led to.
 *
 * No assert fails. A refused event changes nothing (catalog.h). After an event that is done, the
 * tables agree with each other. Held bytes are forgotten only by events that say so (P3). A group
 * goes backwards only when its version was withdrawn, or an older one was pinned (P2).
 *
 * The catalog is its memory, so each state is kept as a copy and put back. tests/fence/events.py
 * sees that no event is missing, and the last test here that no kind of state is.
 *
 * Covers: gateway/catalog/catalog_check.c gateway/catalog/groups.c gateway/catalog/versions.c
 * Covers: gateway/catalog/sites.c gateway/catalog/workers.c gateway/catalog/arena_copy.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "catalog_kinds.h"
#include "catalog_stories.h"
#include "catalog_variants.h"
#include "check.h"
#include "gateway/catalog/catalog_check.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/views.h"

#define GROUPS_MAX   4
#define EVENT_STRIDE 17   /* shares no divisor with how many events there are */
#define STATES_MAX   1000 /* around one story, in full */
#define TODOS_MAX    2000 /* a catalog that always has one more to say would hold its owner up for ever */

/* ---- what holds in every state ---- */

static struct {
    const struct event *event; /* NULL before the first */
    unsigned variant, state;
} trying;

#define WRONG(what)                                                                                          \
    fail_msg("%s variant %u, given in state %u: %s", trying.event->name, trying.variant, trying.state, what)
#define HOLDS(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) WRONG(#condition);                                                                 \
    } while (0)

static bool at_home(const struct site *s, const struct tb_catalog_version_view *v)
{
    return model_at(s->c, tb_catalog_model_find(s->c, &v->key.model))->config.is_home;
}

static void check_versions(const struct site *s)
{
    struct tb_catalog_version_view v;
    for (uint32_t at = 0; tb_catalog_version_at(s->c, &at, &v);) {
        HOLDS(v.state >= TB_VERSION_OPEN && v.state < TB_CATALOG_STATE_END);
        HOLDS(v.held_chunks <= v.chunk_count);
        HOLDS(!v.whole || v.held_chunks == v.chunk_count); /* P1: no lie about what is held */
        HOLDS(!(v.whole && v.arriving));
        HOLDS(v.sealed_count <= v.key.shard_count);
        HOLDS(v.state != TB_VERSION_KEPT || v.sealed_count == v.key.shard_count || v.sites > 0 || v.whole ||
              v.workers > 0 || tb_catalog_recovering(s->c) || !at_home(s, &v));
    }
}

static void check_groups(const struct site *s)
{
    struct tb_catalog_group_view g;
    struct tb_catalog_member_view m;
    for (uint32_t at = 0; tb_catalog_group_at(s->c, &at, &g);)
        HOLDS(g.present > 0 && g.present <= g.count && g.staged_whole <= g.present &&
              g.activated <= g.present);
    for (uint32_t at = 0; tb_catalog_member_at(s->c, &at, &m);) {
        struct tb_catalog_session_view session;
        HOLDS(tb_catalog_session_get(s->c, &m.session, &session)); /* no member without its session */
    }
}

static void check_references(const struct site *s)
{
    struct tb_catalog_reference_view r;
    for (uint32_t at = 0; tb_catalog_reference_at(s->c, &at, &r);) {
        struct tb_catalog_session_view session;
        HOLDS(r.kind == TB_REFERENCE_SITE || tb_catalog_session_get(s->c, &r.session, &session));
        HOLDS(!(r.from_gateway && !tb_id_equal(&r.upstream, &(struct tb_id){{0}})));
    }
}

static void drain_all(struct site *s)
{
    struct tb_catalog_todo todo;
    unsigned count = 0;
    while (tb_catalog_next(s->c, &todo)) {
        HOLDS(todo.kind >= TB_CATALOG_PERSIST_RUN && todo.kind <= TB_CATALOG_UNPUBLISHED);
        HOLDS(++count < TODOS_MAX);
    }
}

static uint32_t held_of(const struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    struct tb_catalog_version_view v;
    return tb_catalog_version_get(s->c, &id, &v) ? v.held_chunks : 0;
}

/* (run, number) of what a group goes by; 0: nothing, or an operator withdrew it or pinned it. */
static uint64_t order_of(const struct site *s, const struct tb_catalog_group_view *g)
{
    struct tb_catalog_version_view v;
    if (!tb_catalog_version_get(s->c, &g->uid, &v) || v.state == TB_VERSION_ENDED_WITHDRAWN || v.pinned)
        return 0;
    return v.key.run_order << 32 | v.key.number;
}

struct orders {
    struct tb_catalog_group_view groups[GROUPS_MAX];
    uint64_t orders[GROUPS_MAX];
    unsigned count;
};

static struct orders orders_of(const struct site *s)
{
    struct orders o = {.count = 0};
    for (uint32_t at = 0; o.count < GROUPS_MAX && tb_catalog_group_at(s->c, &at, &o.groups[o.count]);
         o.count++)
        o.orders[o.count] = order_of(s, &o.groups[o.count]);
    return o;
}

static bool same_group(const struct tb_catalog_group_view *a, const struct tb_catalog_group_view *b)
{
    return tb_catalog_same_name(&a->model, &b->model) && tb_catalog_same_name(&a->name, &b->name);
}

/* P2. */
static bool went_backwards(const struct orders *before, const struct orders *after)
{
    for (unsigned i = 0; i < after->count; i++)
        for (unsigned k = 0; k < before->count; k++)
            if (same_group(&after->groups[i], &before->groups[k]) && after->orders[i] != 0 &&
                after->orders[i] < before->orders[k])
                return true;
    return false;
}

static bool same_rows(const struct table *a, const struct table *b)
{
    for (uint32_t i = 0; i < a->high || i < b->high; i++) {
        const struct row *ra = i < a->high ? tb_table_row(a, i) : NULL;
        const struct row *rb = i < b->high ? tb_table_row(b, i) : NULL;
        const bool live = ra != NULL && ra->live;
        if (live != (rb != NULL && rb->live)) return false;
        if (live && memcmp(ra, rb, a->row_bytes) != 0) return false;
    }
    return true;
}

/* A table of a copy of the catalog, which points into the original. */
static struct table copied(const struct tb_catalog *c, const uint8_t *copy, size_t offset)
{
    struct table t = *(const struct table *)(const void *)(copy + offset);
    t.rows = (uint8_t *)(uintptr_t)copy + (t.rows - (const uint8_t *)c);
    return t;
}

static bool same_head(const struct tb_catalog *a, const struct tb_catalog *b)
{
    return a->recovering == b->recovering && a->recovers_until == b->recovers_until &&
           a->last_tick == b->last_tick && a->unsettled == b->unsettled && a->plans == b->plans &&
           a->unsaved == b->unsaved && a->gateway_readers == b->gateway_readers &&
           a->worker_references == b->worker_references && a->site_references == b->site_references;
}

/* All but a row that was taken and given back. */
static bool same_state(const struct tb_catalog *c, const uint8_t *copy)
{
    const size_t tables[] = {offsetof(struct tb_catalog, models),     offsetof(struct tb_catalog, runs),
                             offsetof(struct tb_catalog, versions),   offsetof(struct tb_catalog, sessions),
                             offsetof(struct tb_catalog, references), offsetof(struct tb_catalog, groups),
                             offsetof(struct tb_catalog, members),    offsetof(struct tb_catalog, waits),
                             offsetof(struct tb_catalog, sites)};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const struct table *now = (const struct table *)(const void *)((const uint8_t *)c + tables[i]);
        const struct table was = copied(c, copy, tables[i]);
        if (now->dirty_first != was.dirty_first || now->dirty_last != was.dirty_last || !same_rows(now, &was))
            return false;
    }
    return same_head(c, (const struct tb_catalog *)(const void *)copy);
}

/* ---- each event in the state that is here ---- */

/* A state that an event led to, of a kind that was not there before. */
struct further {
    struct further *next;
    struct site site;
    uint8_t memory[];
};

struct keep {
    uint8_t *memory; /* the state */
    size_t bytes;
    struct site site;
    unsigned done, refused;
    struct kinds *seen;
    unsigned seen_count;
    struct further *first, **last;
    unsigned states, stories; /* tried; of them those of the story */
    bool taken;               /* this one led to another */
    bool full;
    uint64_t turn;
};

static struct kinds_reached reached; /* in stories */

static void put_back(struct site *s, const struct keep *k)
{
    memcpy(s->memory, k->memory, k->bytes);
    *s = k->site;
}

/* False: there was one of this kind. */
static bool note_kind(struct keep *k, const struct kinds *kinds)
{
    for (unsigned i = 0; i < k->seen_count; i++)
        if (memcmp(&k->seen[i], kinds, sizeof *kinds) == 0) return false;
    if (k->seen_count == STATES_MAX) return false;
    k->seen[k->seen_count++] = *kinds;
    return true;
}

/* In full: all that are of a new kind, those nearest to the story first. Else one for each state of
 * the story, by another event each, and by others at each commit. */
static void note_further(const struct site *s, struct keep *k, size_t event)
{
    const size_t first = (k->turn + k->states * EVENT_STRIDE) % given_event_count;
    if (!k->full && (k->taken || k->states > k->stories || event < first)) return;
    const struct kinds kinds = kinds_of(s->c);
    if (!note_kind(k, &kinds)) return;
    struct further *f = malloc(sizeof *f + k->bytes);
    assert_non_null(f);
    f->next = NULL;
    f->site = *s;
    memcpy(f->memory, s->memory, k->bytes);
    *k->last = f;
    k->last = &f->next;
    k->taken = true;
}

static void check_all(const struct site *s)
{
    tb_catalog_check(s->c);
    check_versions(s);
    check_groups(s);
    check_references(s);
}

/* Not part of the state: the table that refused, and the row that asked last, where plans.c
 * looks before it searches. */
static void put_back_hints(const struct site *s, const struct keep *k)
{
    s->c->full = ((const struct tb_catalog *)(const void *)k->memory)->full;
    const struct table was = copied(s->c, k->memory, offsetof(struct tb_catalog, versions));
    for (uint32_t i = 0; i < was.high; i++)
        version_at(s->c, i)->asking_last =
            ((const struct version *)(const void *)tb_table_row(&was, i))->asking_last;
}

static void check_refused(const struct site *s, struct keep *k)
{
    put_back_hints(s, k);
    if (memcmp(s->memory, k->memory, k->bytes) != 0 && !same_state(s->c, k->memory))
        WRONG("it was refused, and changed something");
    k->refused++;
}

static void try_event(struct site *s, struct keep *k, const struct event *e, unsigned n)
{
    uint32_t held[GIVEN_UIDS];
    trying.event = e;
    trying.variant = n;
    trying.state = k->states;
    for (int i = 0; i < GIVEN_UIDS; i++)
        held[i] = held_of(s, given_uids[i]);
    const struct orders before = orders_of(s);
    const enum tb_status status = e->run(s, n);
    HOLDS(strcmp(tb_status_name(status), "unknown") != 0);
    if (status < 0 && (e->flags & CHANGES) == 0) {
        check_refused(s, k);
        return;
    }
    k->done++;
    for (int i = 0; i < GIVEN_UIDS && (e->flags & FORGETS) == 0; i++)
        if (held_of(s, given_uids[i]) < held[i]) WRONG("less is held");
    const struct orders after = orders_of(s);
    if (went_backwards(&before, &after)) WRONG("a group went backwards");
    check_all(s);
    drain_all(s);
    note_further(s, k, (size_t)(e - given_events));
    s->now += TB_SECONDS(11); /* every lease, drain and retry ends */
    tb_catalog_tick(s->c, s->now);
    drain_all(s);
    check_all(s);
}

static void try_all(struct site *s, struct keep *k)
{
    memcpy(k->memory, s->memory, k->bytes);
    k->site = *s;
    k->taken = false;
    k->states++;
    for (size_t i = 0; i < given_event_count; i++) {
        for (unsigned n = 0; n < given_events[i].variants; n++) {
            try_event(s, k, &given_events[i], n);
            put_back(s, k);
        }
    }
}

static void try_state_of_story(struct site *s, struct keep *k)
{
    const struct kinds kinds = kinds_of(s->c);
    kinds_note(&reached, &kinds);
    (void)note_kind(k, &kinds);
    k->stories++;
    try_all(s, k);
}

static void try_further(struct site *s, struct keep *k)
{
    while (k->first != NULL) {
        struct further *f = k->first;
        memcpy(s->memory, f->memory, k->bytes);
        *s = f->site;
        k->first = f->next;
        if (k->first == NULL) k->last = &k->first;
        free(f);
        try_all(s, k);
    }
}

/* ---- each story ---- */

static void tell_story(struct site *s, void (*story)(struct site *, unsigned), unsigned steps)
{
    const size_t bytes = tb_catalog_bytes(&s->c->limits);
    const char *turn = getenv("TB_FAULT_TURN"); /* tests/run takes it from the commit */
    struct keep k = {.memory = malloc(bytes),
                     .bytes = bytes,
                     .seen = calloc(STATES_MAX, sizeof *k.seen),
                     .full = getenv("TB_FAULT_ALL") != NULL,
                     .turn = turn != NULL ? strtoull(turn, NULL, 10) : 0};
    assert_true(k.memory != NULL && k.seen != NULL);
    k.last = &k.first;
    for (unsigned step = 0; step < steps; step++) {
        try_state_of_story(s, &k);
        story(s, step);
        drain_all(s); /* as its owner does after each call */
    }
    try_state_of_story(s, &k);
    try_further(s, &k);
    printf("%u states, %u of the story, %u events done, %u refused\n", k.states, k.stories, k.done,
           k.refused);
    assert_true(k.done > 1000 && k.refused > 1000);
    free(k.memory);
    free(k.seen);
    site_close(s);
}

/* P2 P3 P4 P7. */
static void every_event_in_every_state_at_home(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    tell_story(&s, home_story, HOME_STEPS);
    east_open(&s, 2);
    tell_story(&s, ends_story, ENDS_STEPS);
    east_open(&s, 2);
    tell_story(&s, room_story, ROOM_STEPS);
    east_open(&s, 2);
    tell_story(&s, rot_story, ROT_STEPS);
    east_open(&s, 2);
    tell_story(&s, unpublish_story, UNPUBLISH_STEPS);
}

static void every_event_in_every_state_elsewhere(void **state)
{
    (void)state;
    struct site s;
    west_open(&s, 2);
    tell_story(&s, remote_story, REMOTE_STEPS);
    west_open(&s, 2);
    tell_story(&s, crossing_story, CROSSING_STEPS);
}

static void every_event_while_it_recovers(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    east_reopen(&s, 2);
    tell_story(&s, restart_story, RESTART_STEPS);
    east_open(&s, 2);
    east_reopen(&s, 2);
    tell_story(&s, home_story, 3);
}

/* After the others: a kind of state in which nobody gave the events would be passed over in
 * silence. */
static void stories_reach_every_kind_of_state(void **state)
{
    (void)state;
    const char *missing = kinds_missing(&reached);
    if (missing != NULL) fail_msg("no state of a story is %s", missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_at_home),
        cmocka_unit_test(every_event_in_every_state_elsewhere),
        cmocka_unit_test(every_event_while_it_recovers),
        cmocka_unit_test(stories_reach_every_kind_of_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
