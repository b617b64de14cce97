/* gc_acts.c - an operator clears the gateway of what it keeps for nobody: versions that only want
 * of room would evict, and rows of the audit record that are too old. Anchors need none: each takes
 * the place of the one before.
 *
 * A table of what stays and goes, with the reason, is the answer; a dry run has the same. */
#include "gateway/daemon/control/gc_acts.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "gateway/catalog/keeping.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/daemon.h"

struct gc {
    uint64_t ticket;
    json_t *reply; /* the control socket's too */
    bool dry;
};

static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static json_t *row_json(const struct tb_catalog_keeping *k)
{
    return json_pack(
        "{s:s, s:o, s:I, s:b, s:b, s:s}", "model", k->key.model.text, "version",
        json_sprintf("%llu:%llu", (unsigned long long)k->key.run_order, (unsigned long long)k->key.number),
        "bytes", (json_int_t)k->bytes, "whole", k->whole, "goes", k->goes, "why", k->why);
}

/* As it is now: ahead of the act. */
static bool versions_put(struct tb_daemon *d, json_t *reply)
{
    json_t *list = json_array();
    struct tb_catalog_keeping k;
    uint64_t bytes = 0, count = 0;
    bool all = list != NULL;
    for (uint32_t cursor = 0; all && tb_catalog_keeping_at(d->catalog, &cursor, &k);) {
        all = json_array_append_new(list, row_json(&k)) == 0;
        bytes += k.goes ? k.bytes : 0;
        count += k.goes;
    }
    return put(reply, "versions", list) && all && put(reply, "going", json_integer((json_int_t)count)) &&
           put(reply, "going_bytes", json_integer((json_int_t)bytes));
}

static void answer(struct tb_daemon *d, void *user, struct tb_audit_query *q, enum tb_status status)
{
    struct gc *g = user;
    uint32_t evicted = 0;
    if (status == TB_OK && !g->dry) {
        TB_MOOT(tb_catalog_clear(d->catalog, tb_clock_now(), &evicted));
        tb_daemon_wake(d);
        tb_log(TB_LOG_INFO, "gc.done", "versions=%u", evicted);
    }
    const bool told = put(g->reply, "audit_rows", json_integer((json_int_t)q->old_rows));
    tb_control_release(d->control, g->ticket, status != TB_OK || told ? status : TB_SITE_NOMEM);
    json_decref(g->reply);
    tb_free(q);
    tb_free(g);
}

/* TB_AGAIN: the store answers how many rows of the record there are, and drops them. */
static enum tb_status audit_ask(struct tb_daemon *d, json_t *reply, bool dry)
{
    enum tb_status status = TB_SITE_NOMEM;
    struct tb_audit_query *q = tb_calloc(1, sizeof *q);
    struct gc *g = tb_calloc(1, sizeof *g);
    if (q == NULL || g == NULL) goto undo;
    q->question = dry ? TB_AUDIT_COUNTS_OLD : TB_AUDIT_DROPS_OLD;
    *g = (struct gc){.ticket = tb_control_ticket(d->control), .reply = json_incref(reply), .dry = dry};
    status = tb_audit_ask(d, q, answer, g);
    if (status == TB_OK) return TB_AGAIN;
    json_decref(reply);

undo:
    tb_free(q);
    tb_free(g);
    return status;
}

enum tb_status tb_gc_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    const bool dry = json_is_true(json_object_get(request, "dry_run"));
    (void)error;
    if (!versions_put(d, reply) || !put(reply, "dry_run", json_boolean(dry))) return TB_SITE_NOMEM;
    return audit_ask(d, reply, dry);
}
