/* model_table.c - see model_table.h. */
#include "gateway/daemon/models/model_table.h"

#include "base/assert.h"
#include "base/limits/keyed_rows.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/daemon.h"

static uint32_t bucket_of(const struct tb_model_table *t, const struct tb_name *name)
{
    return (uint32_t)(tb_key_of_salted(name->text, t->salt) % TB_MODEL_BUCKETS);
}

uint32_t tb_model_row_of(const struct tb_daemon *d, const struct tb_name *name)
{
    const struct tb_model_table *t = &d->models;
    uint32_t i = t->buckets[bucket_of(t, name)] - 1; /* 0 becomes TB_MODEL_NONE */
    while (i != TB_MODEL_NONE && !tb_name_equal(&t->rows[i].name, name))
        i = t->rows[i].next;
    return i;
}

uint32_t tb_model_row_next(const struct tb_daemon *d, uint32_t from)
{
    for (; from < TB_CONFIG_MODELS_MAX; from++)
        if (d->models.rows[from].life >= TB_MODEL_AWAKE) return from;
    return TB_MODEL_NONE;
}

const struct tb_name *tb_model_name(const struct tb_daemon *d, uint32_t row)
{
    TB_ASSERT(row < TB_CONFIG_MODELS_MAX && d->models.rows[row].life != TB_MODEL_FREE);
    return &d->models.rows[row].name;
}

const struct tb_config_model *tb_model_config(const struct tb_daemon *d, uint32_t row)
{
    const struct tb_config_model *m = tb_config_model_for(d->config, tb_model_name(d, row));
    TB_ASSERT(m != NULL); /* a reload leaves the row of a pattern, as one that left */
    return m;
}

static void row_begin(struct tb_daemon *d, uint32_t row, const struct tb_name *name, enum tb_model_life life)
{
    uint32_t *first = &d->models.buckets[bucket_of(&d->models, name)];
    TB_ASSERT(d->models.rows[row].life == TB_MODEL_FREE && tb_model_row_of(d, name) == TB_MODEL_NONE);
    d->models.rows[row] = (struct tb_model_row){.name = *name, .life = life, .next = *first - 1};
    *first = row + 1;
}

void tb_model_rows_named(struct tb_daemon *d)
{
    for (uint32_t i = 0; i < d->config->model_count; i++) {
        const struct tb_config_model *m = &d->config->models[i];
        if (!m->is_pattern && d->models.rows[i].life == TB_MODEL_FREE)
            row_begin(d, i, &m->name, TB_MODEL_NAMED);
    }
}

uint32_t tb_model_row_new(struct tb_daemon *d, const struct tb_name *name, uint64_t owner)
{
    uint32_t row = TB_CONFIG_LIST_MAX;
    while (row < TB_CONFIG_MODELS_MAX && d->models.rows[row].life != TB_MODEL_FREE)
        row++;
    if (row == TB_CONFIG_MODELS_MAX) return TB_MODEL_NONE;
    row_begin(d, row, name, TB_MODEL_READING);
    d->models.rows[row].owner = owner;
    tb_gauge_add(&d->models.awake, 1);
    return row;
}

void tb_model_row_free(struct tb_daemon *d, uint32_t row)
{
    struct tb_model_table *t = &d->models;
    TB_ASSERT(tb_model_is_of_pattern(row) && t->awake.used > 0 && t->rows[row].store == NULL);
    uint32_t *first = &t->buckets[bucket_of(t, &t->rows[row].name)];
    if (*first == row + 1) {
        *first = t->rows[row].next + 1;
    } else {
        uint32_t before = *first - 1;
        while (t->rows[before].next != row)
            before = t->rows[before].next;
        t->rows[before].next = t->rows[row].next;
    }
    t->rows[row].life = TB_MODEL_FREE;
    t->awake.used--;
}

uint32_t tb_model_rows_of(const struct tb_daemon *d, uint64_t owner)
{
    uint32_t count = 0;
    for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++)
        count += d->models.rows[i].life != TB_MODEL_FREE && d->models.rows[i].owner == owner;
    return count;
}

void tb_model_table_check(const struct tb_daemon *d)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < TB_CONFIG_MODELS_MAX; i++) {
        const struct tb_model_row *r = &d->models.rows[i];
        if (r->life == TB_MODEL_FREE) continue;
        TB_ASSERT(tb_model_row_of(d, &r->name) == i);
        TB_ASSERT(tb_model_is_of_pattern(i) == (r->life != TB_MODEL_NAMED));
        TB_ASSERT((r->store != NULL) == (r->life == TB_MODEL_READING && r->failed_at == 0));
        used += r->life != TB_MODEL_NAMED;
    }
    TB_ASSERT(used == d->models.awake.used && used <= TB_CONFIG_AWAKE_MAX);
}
