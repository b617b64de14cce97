/* quota.c - see quota.h. */
#include "gateway/daemon/models/quota.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/views.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/models/model_table.h"

/* Of all models of a row of the configuration, without versions that give way. */
struct used {
    uint64_t versions, bytes;
};

/* At its home a version counts from its opening on. Elsewhere those count that have bytes here, or
 * a place for them: others are words of the home. */
static bool counts(struct tb_daemon *d, const struct tb_config_model *m,
                   const struct tb_catalog_version_view *v)
{
    if (v->evicting || tb_catalog_state_status(v->state) != TB_OK) return false;
    if (tb_name_equal(&m->home, &d->site)) return true;
    const struct tb_copy *copy = tb_copy_find(d, &v->key.uid);
    return copy != NULL && copy->region != NULL;
}

/* `comes`: that model gets one more, the newest of it; NULL: none does. `but`: the version that
 * comes, which has a row already; NULL: it has none. Versions of one model are about as large as
 * each other: of one that has more than it keeps, that share of its bytes counts. */
static struct used used_by(struct tb_daemon *d, const struct tb_config_model *m, const struct tb_name *comes,
                           const struct tb_id *but)
{
    static struct tb_catalog_version_view v; /* large; the main loop's alone */
    static struct used rows[TB_CONFIG_MODELS_MAX];
    struct used u = {.versions = 0};
    memset(rows, 0, sizeof rows);
    for (uint32_t cursor = 0; tb_catalog_version_at(d->catalog, &cursor, &v);) {
        const uint32_t row = tb_model_row_of(d, &v.key.model);
        if (row == TB_MODEL_NONE || tb_model_config(d, row) != m || !counts(d, m, &v)) continue;
        if (but != NULL && tb_id_equal(&v.key.uid, but)) continue;
        rows[row].versions++;
        rows[row].bytes += v.bytes;
    }
    TB_EACH_MODEL(d, i)
    {
        const bool more = comes != NULL && tb_name_equal(comes, tb_model_name(d, i));
        if (tb_model_config(d, i) != m || (rows[i].versions == 0 && !more)) continue;
        const uint64_t all = rows[i].versions + more, kept = all < m->keep ? all : m->keep;
        const uint64_t stay = kept - more < rows[i].versions ? kept - more : rows[i].versions;
        u.versions += kept;
        if (rows[i].versions != 0) u.bytes += rows[i].bytes / rows[i].versions * stay;
    }
    return u;
}

static enum tb_status refused(struct tb_daemon *d, const struct tb_name *model, const char *why)
{
    struct tb_log_line l;
    d->counters.quotas_refused++;
    tb_log_begin(&l, TB_LOG_WARN, "quota.refused");
    tb_log_str(&l, "model", model->text);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "withdraw_versions_or_raise_it");
    tb_log_end(&l);
    return TB_SITE_NOMEM;
}

static bool is_open(const struct tb_daemon *d, const struct tb_name *model, const struct tb_id *run,
                    uint64_t number)
{
    static struct tb_catalog_version_view v; /* likewise */
    for (uint32_t cursor = 0; tb_catalog_version_at(d->catalog, &cursor, &v);)
        if (v.key.number == number && tb_id_equal(&v.key.run, run) && tb_name_equal(&v.key.model, model) &&
            tb_catalog_state_status(v.state) == TB_OK)
            return true;
    return false;
}

static void say_versions(const struct tb_config_model *m, uint64_t have, char why_out[TB_TEXT_BYTES_MAX + 1])
{
    (void)snprintf(why_out, TB_TEXT_BYTES_MAX + 1,
                   "models.%s.quota.versions: its models have %" PRIu64 " of %" PRIu32 " versions",
                   m->name.text, have, m->quota_versions);
}

static void say_bytes(const struct tb_config_model *m, uint64_t have, uint64_t more,
                      char why_out[TB_TEXT_BYTES_MAX + 1])
{
    (void)snprintf(why_out, TB_TEXT_BYTES_MAX + 1,
                   "models.%s.quota.bytes: its models have %" PRIu64 " of %" PRIu64 " bytes, and %" PRIu64
                   " would come",
                   m->name.text, have, m->quota_bytes, more);
}

static bool fits(const struct tb_config_model *m, uint64_t have, uint64_t more)
{
    return m->quota_bytes == 0 || (more <= m->quota_bytes && have <= m->quota_bytes - more);
}

enum tb_status tb_quota_open(struct tb_daemon *d, const struct tb_name *model, const struct tb_id *run,
                             uint64_t number, char why_out[TB_TEXT_BYTES_MAX + 1])
{
    const struct tb_config_model *m = tb_config_model_for(d->config, model);
    if (m == NULL || (m->quota_versions == 0 && m->quota_bytes == 0)) return TB_OK;
    if (is_open(d, model, run, number)) return TB_OK; /* another rank of it */
    const struct used to_come = used_by(d, m, model, NULL);
    if (m->quota_versions != 0 && to_come.versions > m->quota_versions)
        say_versions(m, used_by(d, m, NULL, NULL).versions, why_out);
    else if (!fits(m, to_come.bytes, 1))
        say_bytes(m, to_come.bytes, 1, why_out);
    else
        return TB_OK;
    return refused(d, model, why_out);
}

enum tb_status tb_quota_grow(struct tb_daemon *d, const struct tb_version_key *key, uint64_t bytes,
                             char why_out[TB_TEXT_BYTES_MAX + 1])
{
    static struct tb_catalog_version_view v; /* likewise */
    const struct tb_config_model *m = tb_config_model_for(d->config, &key->model);
    if (m == NULL || m->quota_bytes == 0 || !tb_catalog_version_get(d->catalog, &key->uid, &v)) return TB_OK;
    /* It is not about as large as the others yet, and takes the place of the oldest of them. */
    const uint64_t have = used_by(d, m, &key->model, &key->uid).bytes + v.bytes;
    if (fits(m, have, bytes)) return TB_OK;
    say_bytes(m, have, bytes, why_out);
    return refused(d, &key->model, why_out);
}

bool tb_quota_room(struct tb_daemon *d, const struct tb_version_key *key, uint64_t bytes,
                   char why_out[TB_TEXT_BYTES_MAX + 1])
{
    const struct tb_config_model *m = tb_config_model_for(d->config, &key->model);
    if (m == NULL || (m->quota_versions == 0 && m->quota_bytes == 0)) return true;
    const struct used to_come = used_by(d, m, &key->model, NULL);
    const bool versions = m->quota_versions == 0 || to_come.versions <= m->quota_versions;
    if (!versions)
        say_versions(m, used_by(d, m, NULL, NULL).versions, why_out);
    else if (!fits(m, to_come.bytes, bytes))
        say_bytes(m, to_come.bytes, bytes, why_out);
    else
        return true;
    return false;
}
