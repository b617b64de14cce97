/* chain_status.c - what the operator's socket answers to "chains" (docs/control.md): who reads from
 * whom, of each version that workers have or stage here. As workers said last: they tell their
 * progress at most once a second. */
#include "gateway/daemon/daemon.h"

#include <jansson.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/control/chain_status.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/session_msg.h"
#include "intra/transport/transport_words.h"

#define MEMBERS_MAX 16384u /* of one answer: about 8 MB of text */
#define NOT_LISTED  UINT32_MAX

/* One answer as it is made. */
struct chains {
    struct tb_daemon *d;
    /* of each of the catalog's rows: where it stands in the members of the version that is being
     * told */
    uint32_t *places;
    uint32_t row_count;
    uint32_t member_count;
    bool lacking; /* memory, for a field or a row: there is no answer then (P10) */
};

static void put(struct chains *a, json_t *o, const char *key, json_t *v)
{
    if (json_object_set_new(o, key, v) != 0) a->lacking = true;
}

static void append(struct chains *a, json_t *list, json_t *v)
{
    if (json_array_append_new(list, v) != 0) a->lacking = true;
}

static json_t *text_json(const char *text)
{
    json_t *v = json_string(text); /* NULL for text that is not UTF-8 */
    return v != NULL ? v : json_string("?");
}

static void put_hop(struct chains *a, json_t *o, uint8_t packed, uint64_t bytes_per_s)
{
    enum tb_transport transport;
    enum tb_transport_why why;
    tb_transport_unpack(packed, &transport, &why);
    put(a, o, "transport", json_string(tb_transport_name(transport)));
    put(a, o, "transport_why", json_string(tb_transport_why_text(why)));
    put(a, o, "bytes_per_s", json_integer((json_int_t)bytes_per_s));
}

json_t *tb_status_update(const struct tb_catalog_update *u)
{
    if (tb_id_is_zero(&u->uid)) return json_null();
    return json_pack("{s:s, s:f, s:I, s:I, s:I, s:I}", "way", tb_msg_way_name(u->way), "stall_ms",
                     (double)u->stall_ns / 1e6, "staged_bytes", (json_int_t)u->staged_bytes, "copied_bytes",
                     (json_int_t)u->copied_bytes, "patched_bytes", (json_int_t)u->patched_bytes,
                     "fetched_chunks", (json_int_t)u->fetched_chunks);
}

/* The rate of a host's NIC, and its source: the config for all hosts, or the sysfs of the host. */
static void put_nic(struct chains *a, json_t *o, uint64_t said, uint32_t fan_out)
{
    const uint64_t configured = a->d->config->fabric_nic;
    const char *from = configured != 0 ? "config" : said != 0 ? "sysfs" : "unknown";
    put(a, o, "nic_bytes_per_s", json_integer((json_int_t)(configured != 0 ? configured : said)));
    put(a, o, "nic_from", json_string(from));
    put(a, o, "fan_out", json_integer(fan_out));
}

/* ---- what the gateway itself reads, at home ---- */

static json_t *feed_row(struct chains *a, const struct tb_copy_hop *h)
{
    const struct tb_worker_session *s = tb_worker_find(a->d, &h->session);
    struct tb_hop_stats stats;
    tb_hop_stats(h->hop, &stats);
    const double seconds = (double)tb_time_since(stats.open_at, stats.last_at) / 1e9;
    json_t *o = json_object();
    put(a, o, "source", text_json(s != NULL ? s->name.text : ""));
    put_hop(a, o, tb_transport_pack(stats.transport, stats.why),
            seconds > 0.001 ? (uint64_t)((double)stats.bytes_read / seconds) : 0);
    return o;
}

static json_t *feeds_json(struct chains *a, const struct tb_id *uid)
{
    json_t *list = json_array();
    const struct tb_copy *copy = tb_copy_find(a->d, uid);
    for (const struct tb_copy_hop *h = copy != NULL ? copy->hops : NULL; h != NULL; h = h->next)
        if (h->hop != NULL) append(a, list, feed_row(a, h));
    return list;
}

/* ---- members ---- */

static json_t *gateway_row(struct chains *a, const struct tb_catalog_version_view *v)
{
    json_t *o = json_object();
    put(a, o, "name", text_json(a->d->gateway.text));
    put(a, o, "kind", json_string("gateway"));
    put(a, o, "host", text_json(a->d->host.text));
    put(a, o, "source", json_null());
    put(a, o, "held_chunks", json_integer(v->held_chunks));
    put(a, o, "whole", json_boolean(v->whole));
    put(a, o, "readers", json_integer(v->gateway_readers));
    put_nic(a, o, tb_fabric_nic_bytes_per_s(a->d->fabric), v->fan_out);
    return o;
}

static json_t *source_json(const struct chains *a, const struct tb_catalog_reference_view *r)
{
    uint32_t place = NOT_LISTED;
    if (r->from_gateway) place = 0;
    if (r->upstream_row < a->row_count) place = a->places[r->upstream_row];
    return place == NOT_LISTED || r->whole ? json_null() : json_integer(place);
}

static json_t *worker_row(struct chains *a, const struct tb_catalog_reference_view *r)
{
    TB_ASSERT(r->kind == TB_REFERENCE_WORKER);
    struct tb_catalog_session_view s;
    struct tb_catalog_update update = {.way = 0};
    const bool known = tb_catalog_session_get(a->d->catalog, &r->session, &s);
    (void)tb_catalog_update_get(a->d->catalog, &r->session, &r->uid, &update);
    json_t *o = json_object();
    put(a, o, "name", text_json(r->name.text));
    put(a, o, "kind", json_string("worker"));
    put(a, o, "host", text_json(known ? s.session.host.text : ""));
    put(a, o, "source", source_json(a, r));
    put_hop(a, o, r->transport, r->whole ? 0 : r->bytes_per_s);
    put(a, o, "held_chunks", json_integer(r->held_chunks));
    put(a, o, "whole", json_boolean(r->whole));
    put(a, o, "active", json_boolean(r->activated));
    put(a, o, "update", tb_status_update(&update));
    put(a, o, "slow", json_boolean(r->slow));
    put(a, o, "silent", json_boolean(r->silent));
    put(a, o, "spot", json_boolean(r->spot));
    put(a, o, "readers", json_integer(r->readers));
    put_nic(a, o, known ? s.session.nic_bytes_per_s : 0, r->fan_out);
    return o;
}

/* A rank that workers of its host read. */
static json_t *rank_row(struct chains *a, const struct tb_catalog_reference_view *r, uint32_t chunks)
{
    TB_ASSERT(r->kind == TB_REFERENCE_PUBLISHER);
    struct tb_catalog_session_view s;
    const bool known = tb_catalog_session_get(a->d->catalog, &r->session, &s);
    json_t *o = json_object();
    put(a, o, "name", text_json(r->name.text));
    put(a, o, "kind", json_string("rank"));
    put(a, o, "host", text_json(known ? s.session.host.text : ""));
    put(a, o, "source", json_null());
    put(a, o, "held_chunks", json_integer(chunks));
    put(a, o, "whole", json_true());
    put(a, o, "readers", json_integer(r->readers));
    return o;
}

static bool next_member(const struct chains *a, const struct tb_id *uid, uint32_t *cursor,
                        struct tb_catalog_reference_view *out)
{
    while (tb_catalog_reference_at(a->d->catalog, cursor, out)) {
        const bool read = out->kind == TB_REFERENCE_PUBLISHER && out->readers > 0;
        if ((read || out->kind == TB_REFERENCE_WORKER) && tb_id_equal(&out->uid, uid)) return true;
    }
    return false;
}

/* Gives each worker of the version, and each rank that is read, its place behind the gateway's, as
 * long as there is room; how many there are. */
static uint32_t find_places(struct chains *a, const struct tb_id *uid)
{
    uint32_t cursor = 0, count = 0;
    struct tb_catalog_reference_view r;
    while (next_member(a, uid, &cursor, &r)) {
        TB_ASSERT(r.row < a->row_count);
        a->places[r.row] = a->member_count + count < MEMBERS_MAX ? 1 + count : NOT_LISTED;
        count++;
    }
    return count;
}

static json_t *members_json(struct chains *a, const struct tb_catalog_version_view *v, uint32_t listed)
{
    json_t *list = json_array();
    uint32_t cursor = 0;
    struct tb_catalog_reference_view r;
    append(a, list, gateway_row(a, v));
    while (json_array_size(list) <= listed && next_member(a, &v->key.uid, &cursor, &r))
        append(a, list, r.kind == TB_REFERENCE_WORKER ? worker_row(a, &r) : rank_row(a, &r, v->chunk_count));
    TB_ASSERT(a->lacking || json_array_size(list) == listed + (size_t)1); /* and the gateway */
    return list;
}

static json_t *chain_json(struct chains *a, const struct tb_catalog_version_view *v)
{
    json_t *o = json_object();
    const uint32_t count = find_places(a, &v->key.uid);
    TB_ASSERT(a->member_count <= MEMBERS_MAX);
    const uint32_t room = MEMBERS_MAX - a->member_count;
    const uint32_t listed = count < room ? count : room;
    a->member_count += listed;
    put(a, o, "model", text_json(v->key.model.text));
    put(a, o, "run", json_integer((json_int_t)v->key.run_order));
    put(a, o, "number", json_integer((json_int_t)v->key.number));
    put(a, o, "chunks", json_integer(v->chunk_count));
    put(a, o, "fan_out", json_integer(v->fan_out));
    put(a, o, "arrival_bytes_per_s", json_integer((json_int_t)v->arrival_bytes_per_s));
    put(a, o, "feeds", feeds_json(a, &v->key.uid));
    put(a, o, "members", members_json(a, v, listed));
    put(a, o, "left_out", json_integer(count - listed));
    return o;
}

/* ---- the command ---- */

static bool make_places(struct chains *a)
{
    uint32_t cursor = 0;
    struct tb_catalog_reference_view r;
    while (tb_catalog_reference_at(a->d->catalog, &cursor, &r)) {
        TB_ASSERT(r.row >= a->row_count); /* they come in the order of their rows */
        a->row_count = r.row + 1;
    }
    a->places = tb_calloc((size_t)a->row_count + 1, sizeof *a->places);
    return a->places != NULL;
}

static bool is_wanted(const struct chains *a, const char *model, const struct tb_catalog_version_view *v)
{
    const struct tb_copy *copy = tb_copy_find(a->d, &v->key.uid);
    if (model != NULL && strcmp(model, v->key.model.text) != 0) return false;
    return v->workers > 0 || (copy != NULL && copy->hops != NULL);
}

static bool model_known(struct tb_daemon *d, const char *model)
{
    uint32_t cursor = 0;
    struct tb_catalog_model m;
    while (tb_catalog_model_at(d->catalog, &cursor, &m))
        if (strcmp(m.name.text, model) == 0) return true;
    return false;
}

static void tell(struct chains *a, const char *model, json_t *reply)
{
    json_t *list = json_array();
    uint32_t cursor = 0;
    struct tb_catalog_version_view v;
    while (tb_catalog_version_at(a->d->catalog, &cursor, &v))
        if (is_wanted(a, model, &v)) append(a, list, chain_json(a, &v));
    put(a, reply, "chains", list);
}

enum tb_status tb_status_chains(void *user, const json_t *request, json_t *reply, char *error)
{
    struct chains a = {.d = user};
    const json_t *wanted = json_object_get(request, "model");
    const char *model = json_string_value(wanted);
    if (wanted != NULL && model == NULL) {
        (void)snprintf(error, 256, "\"model\" is not a text");
        return TB_BAD_ARGUMENT;
    }
    if (model != NULL && !model_known(a.d, model)) {
        (void)snprintf(error, 256, "no model \"%.64s\" is configured here", model);
        return TB_NOT_FOUND;
    }
    if (!make_places(&a)) return TB_SITE_NOMEM;
    tell(&a, model, reply);
    tb_free(a.places);
    return a.lacking ? TB_SITE_NOMEM : TB_OK;
}
