/* statement_table.c - statements by kind and id, and by model; the oldest of a model give way. */
#include "gateway/daemon/links/statement_table.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/limits/keyed_rows.h"
#include "gateway/store/store.h"

#define SMALL_COUNT 64u

static uint32_t bucket_of(const struct tb_id *id)
{
    return (id->bytes[0] | (uint32_t)id->bytes[1] << 8) % TB_STATEMENT_BUCKETS;
}

static uint32_t bucket_of_model(const struct tb_name *model)
{
    return (uint32_t)(tb_key_of_text(model->text) % TB_STATEMENT_BUCKETS);
}

void tb_said_check(const struct tb_statement_table *t)
{
    uint32_t by_id = 0, by_model = 0;
    TB_ASSERT(t->count <= t->count_most && t->count_most <= TB_SAID_MAX);
    TB_ASSERT(t->most <= TB_STORE_SIGNED_MAX);
    for (uint32_t b = 0; b < TB_STATEMENT_BUCKETS; b++) {
        for (const struct tb_said *s = t->buckets[b]; s != NULL; s = s->next, by_id++) {
            const struct tb_id id = tb_statement_id(&s->what);
            TB_ASSERT(bucket_of(&id) == b && s->count > 0 && s->idle <= TB_SAID_IDLE);
        }
        for (const struct tb_said *s = t->models[b]; s != NULL; s = s->next_of_model, by_model++)
            TB_ASSERT(bucket_of_model(&s->what.model) == b);
    }
    TB_ASSERT(by_id == t->count && by_model == t->count);
}

/* Behind each change, where turns are checked (TB_CHECK_TURNS), of a small table: the walk of a
 * large one takes longer than the change. */
static void changed(const struct tb_statement_table *t)
{
    if (TB_CHECK_TURNS && t->count <= SMALL_COUNT) tb_said_check(t);
}

static bool is_it(const struct tb_said *s, enum tb_statement_kind kind, const struct tb_id *id)
{
    const struct tb_id its = tb_statement_id(&s->what);
    return s->what.kind == kind && tb_id_equal(&its, id);
}

static struct tb_said **place(struct tb_statement_table *t, enum tb_statement_kind kind,
                              const struct tb_id *id)
{
    struct tb_said **at = &t->buckets[bucket_of(id)];
    while (*at != NULL && !is_it(*at, kind, id))
        at = &(*at)->next;
    return at;
}

const struct tb_said *tb_said_find(const struct tb_statement_table *t, enum tb_statement_kind kind,
                                   const struct tb_id *id)
{
    const struct tb_said *s = t->buckets[bucket_of(id)];
    while (s != NULL && !is_it(s, kind, id))
        s = s->next;
    return s;
}

static bool is_older(const struct tb_statement *a, const struct tb_statement *b)
{
    return a->run_order != b->run_order ? a->run_order < b->run_order : a->number < b->number;
}

const struct tb_said *tb_said_newest(const struct tb_statement_table *t, enum tb_statement_kind kind,
                                     const struct tb_name *model)
{
    const struct tb_said *newest = NULL;
    for (const struct tb_said *s = t->models[bucket_of_model(model)]; s != NULL; s = s->next_of_model)
        if (s->what.kind == kind && tb_name_equal(&s->what.model, model) &&
            (newest == NULL || is_older(&newest->what, &s->what)))
            newest = s;
    return newest;
}

static void end(struct tb_statement_table *t, struct tb_said **at)
{
    struct tb_said *gone = *at;
    TB_ASSERT(gone != NULL && t->count > 0);
    struct tb_said **of_model = &t->models[bucket_of_model(&gone->what.model)];
    while (*of_model != gone) {
        TB_ASSERT(*of_model != NULL); /* each is in both */
        of_model = &(*of_model)->next_of_model;
    }
    *of_model = gone->next_of_model;
    *at = gone->next;
    t->count--;
    tb_free(gone);
}

/* A home signs a withdrawal that it has not at its next tick. */
static bool gives_way_first(const struct tb_said *a, const struct tb_said *b)
{
    const bool a_ends = a->what.kind == TB_STATEMENT_WITHDRAWN,
               b_ends = b->what.kind == TB_STATEMENT_WITHDRAWN;
    if (a_ends != b_ends) return b_ends;
    if (a->rests != b->rests) return a->rests;
    return a->what.wall_ms < b->what.wall_ms;
}

/* P7: of all models. One look at each is less than the check of a signature, which came before. */
static void make_room_of_all(struct tb_statement_table *t)
{
    struct tb_said *first = NULL;
    TB_ASSERT(t->count <= TB_SAID_MAX);
    if (t->count < TB_SAID_MAX) return;
    for (uint32_t b = 0; b < TB_STATEMENT_BUCKETS; b++)
        for (struct tb_said *s = t->buckets[b]; s != NULL; s = s->next)
            if (first == NULL || gives_way_first(s, first)) first = s;
    const struct tb_id id = tb_statement_id(&first->what);
    end(t, place(t, first->what.kind, &id));
    t->crowded++;
}

/* P7: true: there is room for it among those of its kind and model. */
static bool make_room(struct tb_statement_table *t, const struct tb_statement *what)
{
    struct tb_said *oldest = NULL;
    uint32_t count = 0;
    for (struct tb_said *s = t->models[bucket_of_model(&what->model)]; s != NULL; s = s->next_of_model) {
        if (s->what.kind != what->kind || !tb_name_equal(&s->what.model, &what->model)) continue;
        count++;
        if (oldest == NULL || is_older(&s->what, &oldest->what)) oldest = s;
    }
    if (count < TB_STORE_SIGNED_MAX) {
        if (count + 1 > t->most) t->most = count + 1;
        return true;
    }
    t->refused++;
    if (is_older(what, &oldest->what)) return false;
    const struct tb_id id = tb_statement_id(&oldest->what);
    end(t, place(t, oldest->what.kind, &id));
    return true;
}

const struct tb_said *tb_said_put(struct tb_statement_table *t, const struct tb_statement *what,
                                  const struct tb_identity *by, const uint8_t *bytes, uint32_t count)
{
    TB_ASSERT(count > 0);
    struct tb_said *s = tb_malloc(sizeof *s + count);
    if (s == NULL) return NULL;
    const struct tb_id id = tb_statement_id(what);
    struct tb_said **at = place(t, what->kind, &id);
    if (*at != NULL) {
        end(t, at);
    } else if (!make_room(t, what)) {
        tb_free(s);
        return NULL;
    }
    make_room_of_all(t);
    *s = (struct tb_said){.what = *what, .by = *by, .count = count};
    memcpy(s->bytes, bytes, count);
    struct tb_said **first = &t->buckets[bucket_of(&id)];
    s->next = *first;
    *first = s;
    first = &t->models[bucket_of_model(&what->model)];
    s->next_of_model = *first;
    *first = s;
    if (++t->count > t->count_most) t->count_most = t->count;
    changed(t);
    return s;
}

void tb_said_filter(struct tb_statement_table *t, bool (*stays)(void *user, const struct tb_said *said),
                    void *user)
{
    for (uint32_t b = 0; b < TB_STATEMENT_BUCKETS; b++)
        for (struct tb_said **at = &t->buckets[b]; *at != NULL;) {
            if (stays(user, *at))
                at = &(*at)->next;
            else
                end(t, at);
        }
    changed(t);
}

static bool none_stays(void *user, const struct tb_said *said)
{
    (void)user, (void)said;
    return false;
}

void tb_said_age(struct tb_statement_table *t,
                 enum tb_said_need (*need)(void *user, const struct tb_said *said), void *user)
{
    for (uint32_t b = 0; b < TB_STATEMENT_BUCKETS; b++)
        for (struct tb_said **at = &t->buckets[b]; *at != NULL;) {
            const enum tb_said_need is = need(user, *at);
            (*at)->rests = is == TB_SAID_RESTS;
            (*at)->idle = is == TB_SAID_OVER ? (*at)->idle + 1 : 0;
            if ((*at)->idle > TB_SAID_IDLE)
                end(t, at);
            else
                at = &(*at)->next;
        }
    changed(t);
}

void tb_said_free(struct tb_statement_table *t)
{
    tb_said_filter(t, none_stays, NULL);
    TB_ASSERT(t->count == 0);
}
