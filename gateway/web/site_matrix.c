/* site_matrix.c - see site_matrix.h. */
#include "gateway/web/site_matrix.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/web/web_facts.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t without_twins(const char **texts, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || strcmp(texts[kept - 1], texts[i]) != 0) texts[kept++] = texts[i];
    return kept;
}

/* Sorted, each once; how many there are in *count_out. The caller's; NULL: no memory. */
static const char **names_of(const json_t *rows, const char *key, size_t *count_out)
{
    const size_t count = json_array_size(rows);
    const char **names = tb_calloc(count + 1, sizeof *names);
    if (names == NULL) return NULL;
    for (size_t i = 0; i < count; i++)
        names[i] = tb_facts_text(json_array_get(rows, i), key);
    qsort(names, count, sizeof *names, by_text);
    *count_out = without_twins(names, count);
    return names;
}

static size_t index_of(const char *const *names, size_t count, const char *name)
{
    const char *const *found = bsearch(&name, names, count, sizeof *names, by_text);
    TB_ASSERT(found != NULL);
    return (size_t)(found - names);
}

static int worst_first(const void *a, const void *b)
{
    const struct tb_matrix_site *x = a, *y = b;
    if (x->worst == y->worst) return strcmp(x->name, y->name);
    return tb_lag_verdict_worse(x->worst, y->worst) == x->worst ? -1 : 1;
}

static bool open_sites(struct tb_site_matrix *m, const json_t *rows, double warn_s, double crit_s)
{
    const char **names = names_of(rows, "site", &m->site_count);
    if (names == NULL) return false;
    m->sites = tb_calloc(m->site_count + 1, sizeof *m->sites);
    m->cells = tb_calloc(m->site_count * m->model_count + 1, sizeof *m->cells);
    for (size_t i = 0; m->sites != NULL && m->cells != NULL && i < m->site_count; i++)
        m->sites[i] = (struct tb_matrix_site){names[i], &m->cells[i * m->model_count], TB_LAG_FINE};
    for (size_t i = 0; m->sites != NULL && m->cells != NULL && i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        struct tb_matrix_site *site = &m->sites[index_of(names, m->site_count, tb_facts_text(row, "site"))];
        site->cells[index_of(m->models, m->model_count, tb_facts_text(row, "model"))] = row;
        site->worst = tb_lag_verdict_worse(site->worst, tb_lag_verdict_severity(row, warn_s, crit_s));
    }
    tb_free(names);
    return m->sites != NULL && m->cells != NULL;
}

bool tb_site_matrix_open(struct tb_site_matrix *m, const json_t *rows, double warn_s, double crit_s)
{
    *m = (struct tb_site_matrix){.models = NULL};
    m->models = names_of(rows, "model", &m->model_count);
    if (m->models == NULL || !open_sites(m, rows, warn_s, crit_s)) {
        tb_site_matrix_close(m);
        return false;
    }
    qsort(m->sites, m->site_count, sizeof *m->sites, worst_first);
    return true;
}

void tb_site_matrix_close(struct tb_site_matrix *m)
{
    tb_free(m->models);
    tb_free(m->sites);
    tb_free(m->cells);
    *m = (struct tb_site_matrix){.models = NULL};
}
