/* model_waiting.c - see model_waiting.h. */
#include "gateway/daemon/models/model_waiting.h"

#include <stddef.h>

#include "base/assert.h"
#include "gateway/catalog/records.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/models/model_table.h"

#define SILENT_NS TB_SECONDS(30) /* three times what a home may take to say it again */
#define LOOK_NS   TB_SECONDS(1)  /* so seldom is each place's model looked up for one that has a row */

static bool is_named(const struct tb_model_waiting *w)
{
    return w->said_at != 0 && tb_time_since(w->said_at, tb_clock_now()) < SILENT_NS;
}

static bool waits(const struct tb_daemon *d, const struct tb_model_waiting *w)
{
    return is_named(w) && tb_model_row_of(d, &w->model) == TB_MODEL_NONE;
}

/* The first that nobody needs; NULL: there is none. */
static struct tb_model_waiting *free_place(struct tb_daemon *d)
{
    struct tb_model_waiting *all = d->models.waiting;
    const tb_time_ns now = tb_clock_now();
    for (uint32_t i = 0; i < TB_MODELS_WAITING_MAX; i++)
        if (!is_named(&all[i])) return &all[i];
    if (d->models.waiting_looked_at != 0 && tb_time_since(d->models.waiting_looked_at, now) < LOOK_NS)
        return NULL;
    d->models.waiting_looked_at = now;
    for (uint32_t i = 0; i < TB_MODELS_WAITING_MAX; i++)
        if (!waits(d, &all[i])) return &all[i];
    return NULL;
}

/* Its place; TB_MODELS_WAITING_MAX: it has none. */
static uint32_t place_of(const struct tb_daemon *d, const struct tb_name *model)
{
    for (uint32_t i = 0; i < TB_MODELS_WAITING_MAX; i++) {
        const struct tb_model_waiting *w = &d->models.waiting[i];
        if (tb_name_equal(&w->model, model) && waits(d, w)) return i; /* the name first: it costs less */
    }
    return TB_MODELS_WAITING_MAX;
}

void tb_model_waits(struct tb_daemon *d, const struct tb_site_state *home)
{
    static struct tb_site_state none; /* large; the main loop's alone */
    TB_ASSERT(tb_model_row_of(d, &home->model) == TB_MODEL_NONE);
    const uint32_t place = place_of(d, &home->model);
    struct tb_model_waiting *w = &d->models.waiting[place % TB_MODELS_WAITING_MAX];
    if (place == TB_MODELS_WAITING_MAX) {
        w = free_place(d);
        if (w == NULL) return;
        *w = (struct tb_model_waiting){.model = home->model};
    }
    const struct tb_record_behind b = tb_record_behind(home, &none);
    w->home = home->site;
    w->head = b.head;
    w->versions = b.versions;
    w->bytes = b.left_bytes;
    w->said_at = tb_clock_now();
    if (w->since == 0) w->since = w->said_at;
}

const struct tb_model_waiting *tb_model_waiting_at(const struct tb_daemon *d, uint32_t *cursor)
{
    while (*cursor < TB_MODELS_WAITING_MAX) {
        const struct tb_model_waiting *w = &d->models.waiting[(*cursor)++];
        if (waits(d, w)) return w;
    }
    return NULL;
}

const struct tb_model_waiting *tb_model_waiting_find(const struct tb_daemon *d, const struct tb_name *model)
{
    const uint32_t place = place_of(d, model);
    return place < TB_MODELS_WAITING_MAX ? &d->models.waiting[place] : NULL;
}
