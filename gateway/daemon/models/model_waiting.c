/* model_waiting.c - see model_waiting.h. */
#include "gateway/daemon/models/model_waiting.h"

#include <stddef.h>

#include "base/assert.h"
#include "gateway/catalog/records.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/models/model_table.h"

#define SILENT_NS TB_SECONDS(30) /* three times what a home may take to say it again */

static bool waits(const struct tb_daemon *d, const struct tb_model_waiting *w)
{
    return w->said_at != 0 && tb_time_since(w->said_at, tb_clock_now()) < SILENT_NS &&
           tb_model_row_of(d, &w->model) == TB_MODEL_NONE;
}

/* That of the model, else the first that nobody needs; NULL: there is none. */
static struct tb_model_waiting *place_for(struct tb_daemon *d, const struct tb_name *model)
{
    struct tb_model_waiting *free_place = NULL;
    for (uint32_t i = 0; i < TB_MODELS_WAITING_MAX; i++) {
        struct tb_model_waiting *w = &d->models.waiting[i];
        const bool needed = waits(d, w);
        if (needed && tb_name_equal(&w->model, model)) return w;
        if (!needed && free_place == NULL) free_place = w;
    }
    if (free_place != NULL) *free_place = (struct tb_model_waiting){.model = *model};
    return free_place;
}

void tb_model_waits(struct tb_daemon *d, const struct tb_site_state *home)
{
    static struct tb_site_state none; /* large; the main loop's alone */
    TB_ASSERT(tb_model_row_of(d, &home->model) == TB_MODEL_NONE);
    struct tb_model_waiting *w = place_for(d, &home->model);
    if (w == NULL) return;
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
    const struct tb_model_waiting *w;
    for (uint32_t cursor = 0; (w = tb_model_waiting_at(d, &cursor)) != NULL;)
        if (tb_name_equal(&w->model, model)) return w;
    return NULL;
}
