/* session_follow.c - what followers ask: subscribe, wait, stage, activate, release;
 * and what they are told. */
#include "gateway/daemon/daemon.h"

#include "gateway/daemon/audit.h"

#include <jansson.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/wire.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/waiters.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/control/readable_status.h"
#include "gateway/daemon/control/site_status.h"
#include "gateway/daemon/control/tensors_status.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/links/statements.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_follow.h"
#include "gateway/daemon/sessions/session_news.h"
#include "gateway/daemon/sessions/session_proofs.h"
#include "gateway/daemon/sessions/session_repair.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

#define NO_LISTEN                                                                                            \
    "the worker has a network namespace of its own, and this gateway is read on loopback alone: set "        \
    "fabric.listen to an address that the container reaches, or share the host's network with it"

/* P10: it would wait for bytes without a word. Shared memory does not reach into its network
 * namespace. */
static bool cannot_read(struct tb_worker_session *s)
{
    struct tb_fabric_endpoint door;
    tb_fabric_endpoint(s->d->fabric, &door);
    if (!s->apart || !tb_worker_is_loopback(door.tcp)) return false;
    s->d->counters.sessions_refused++;
    tb_log(TB_LOG_WARN, "session.refused", "worker=%s status=%s reason=fabric_listen_is_loopback tcp=%s",
           s->name.text, tb_status_name(TB_SITE_CONFIG), door.tcp);
    return true;
}

/* P8 P10 */
static void refuse_group(struct tb_worker_session *s, uint64_t request, const struct tb_catalog_member *m)
{
    char why[TB_TEXT_BYTES_MAX + 1];
    const char *owner = tb_catalog_group_owner(s->d->catalog, &m->model, &m->group);
    snprintf(why, sizeof why,
             "models.%s.groups: group %s belongs to %s: use another group, or list both there", m->model.text,
             m->group.text, owner != NULL ? owner : "nobody any more");
    tb_worker_denied(s, m->group.text, why);
    tb_worker_reply(s, request, TB_PEER_DENIED, why);
}

enum tb_status tb_worker_subscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_subscribe m;
    const struct tb_wire_frame whole = *frame;
    if (tb_msg_subscribe_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    enum tb_status status = tb_worker_may(s, &m.model, false);
    if (status == TB_OK && cannot_read(s)) {
        tb_worker_reply(s, frame->request, TB_SITE_CONFIG, NO_LISTEN);
        return TB_OK;
    }
    if (status == TB_OK && tb_home_runs_holds_for_store(s, &m.model, &whole)) return TB_OK;
    struct tb_catalog_member member = {
        .session = s->id,
        .subscription = m.subscription,
        .model = m.model,
        .group = m.group,
        .index = m.member_index,
        .count = m.member_count,
        .active = {.uid = m.active, .run_order = m.active_run_order, .number = m.active_number}};
    tb_rights_group_owner(s->d->config, &m.model, &s->identity, member.owner);
    if (status == TB_OK) {
        status = tb_catalog_subscribe(s->d->catalog, tb_clock_now(), &member);
        if (status == TB_PEER_DENIED) {
            refuse_group(s, frame->request, &member);
            return TB_OK;
        }
    }
    if (status == TB_OK) {
        const struct tb_catalog_known_run said = {m.model, m.active_run_order, m.active_number, {{0}}};
        (void)tb_statements_shown(s->d, &s->name, &m.model, &m.said);
        tb_home_runs_worker(s->d, &s->name, &said);
    }
    const char *why =
        status == TB_CONFLICT ? "the group has another member count, or the index is taken" : "";
    tb_worker_reply(s, frame->request, status, why);
    return TB_OK;
}

enum tb_status tb_worker_unsubscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_unsubscribe m;
    if (tb_msg_unsubscribe_decode(&frame->payload, &m) != TB_OK || frame->request == 0)
        return TB_PEER_GARBLED;
    tb_worker_reply(s, frame->request,
                    tb_catalog_unsubscribe(s->d->catalog, tb_clock_now(), &s->id, m.subscription), "");
    return TB_OK;
}

/* ---- waits ---- */

static tb_time_ns wait_deadline(uint32_t timeout_ms)
{
    if (timeout_ms == UINT32_MAX) return TB_TIME_NEVER;
    return timeout_ms == 0 ? 0 : tb_time_add(tb_clock_now(), TB_MS(timeout_ms));
}

static enum tb_status wait_begin(struct tb_worker_session *s, uint64_t request, struct tb_catalog_wait *wait)
{
    TB_ASSERT(wait->handle == 0 && s->welcomed);
    struct tb_daemon *d = s->d;
    struct tb_pending_wait *pending = tb_calloc(1, sizeof *pending);
    if (pending == NULL) return TB_SITE_NOMEM;
    wait->handle = ++d->next_wait;
    wait->session = s->id;
    const enum tb_status status = tb_catalog_wait(d->catalog, tb_clock_now(), wait);
    if (status != TB_OK) {
        tb_free(pending);
        return status;
    }
    *pending = (struct tb_pending_wait){s->waits, wait->handle, request};
    s->waits = pending;
    return TB_OK;
}

enum tb_status tb_worker_wait_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_wait m;
    const struct tb_wire_frame whole = *frame;
    if (tb_msg_wait_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    if (m.kind > TB_CATALOG_WAIT_NEXT) return TB_PEER_GARBLED;
    enum tb_status status = tb_worker_may(s, &m.model, false);
    if (status == TB_OK && tb_home_runs_holds_for_store(s, &m.model, &whole)) return TB_OK;
    struct tb_catalog_wait wait = {.kind = (enum tb_catalog_wait_kind)m.kind,
                                   .model = m.model,
                                   .run_order = m.run_order,
                                   .number = m.number,
                                   .after = m.after,
                                   .deadline = wait_deadline(m.timeout_ms)};
    if (status == TB_OK) status = wait_begin(s, frame->request, &wait);
    if (status != TB_OK) tb_worker_reply(s, frame->request, status, "");
    return TB_OK;
}

/* A publisher may ask where its own version is; of one that ended nothing is left here by
 * which to know its own. */
static enum tb_status may_wait_site(struct tb_worker_session *s, const struct tb_id *uid)
{
    struct tb_catalog_version_view view;
    if (!tb_catalog_version_get(s->d->catalog, uid, &view)) return TB_NOT_FOUND;
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next) {
        if (e->shard != TB_CATALOG_ALL_SHARDS && tb_id_equal(&e->uid, uid)) return TB_OK;
    }
    const bool over = tb_catalog_state_status(view.state) != TB_OK;
    if (over && tb_rights_may(s->d->config, &view.key.model, &s->identity, true)) return TB_OK;
    return tb_worker_may(s, &view.key.model, false);
}

enum tb_status tb_worker_wait_site_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_wait_site m;
    if (tb_msg_wait_site_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    if (m.state > 1) return TB_PEER_GARBLED;
    enum tb_status status = may_wait_site(s, &m.uid);
    struct tb_catalog_wait wait = {.kind = m.state == 0 ? TB_CATALOG_WAIT_SITE_HOLDS
                                                        : TB_CATALOG_WAIT_SITE_ACTIVATED,
                                   .uid = m.uid,
                                   .site = m.site,
                                   .deadline = wait_deadline(m.timeout_ms)};
    if (status == TB_OK) status = wait_begin(s, frame->request, &wait);
    if (status != TB_OK) tb_worker_reply(s, frame->request, status, "");
    return TB_OK;
}

enum tb_status tb_worker_cancel_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_cancel m;
    if (tb_msg_cancel_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (tb_worker_session_glitch(s, TB_GLITCH_CANCELLED)) return TB_OK;
    for (const struct tb_pending_wait *w = s->waits; w != NULL; w = w->next) {
        if (w->request != m.request) continue;
        tb_catalog_cancel(s->d->catalog, tb_clock_now(), w->handle);
        break;
    }
    return TB_OK;
}

/* ---- staging ---- */

static void manifest_send(struct tb_worker_session *s, const struct tb_id *uid, uint32_t shard,
                          const struct tb_manifest *manifest)
{
    const size_t head = tb_manifest_head_bytes(manifest);
    const size_t digests = (size_t)manifest->chunk_count * TB_DIGEST_BYTES;
    TB_ASSERT(head != 0);
    struct tb_writer *w =
        s->wire == NULL ? NULL : tb_wire_begin(s->wire, TB_MSG_MANIFEST, 0, head + digests + TB_WORKER_SMALL);
    if (w == NULL) return; /* the wire is being closed: it did not read */
    /* struct tb_msg_manifest, written without a copy of its head */
    tb_write_id(w, uid);
    tb_write_u32(w, shard);
    tb_write_u32(w, (uint32_t)head);
    tb_manifest_head_encode(manifest, w);
    tb_write_u32(w, (uint32_t)digests);
    tb_write_bytes(w, manifest->digests, digests);
    tb_wire_end(s->wire);
}

/* A claim of a number that this gateway does not know: home signed that run up to it. */
static bool is_signed(const struct tb_daemon *d, const struct tb_id *uid,
                      const struct tb_catalog_obstacle_view *claim)
{
    struct tb_catalog_version_view v;
    if (!tb_catalog_version_get(d->catalog, uid, &v)) return false;
    struct tb_catalog_known_run said = {v.key.model, claim->run_order, claim->number, {{0}}};
    return !tb_statements_run_lower_of_worker(d, &said);
}

/* Says in words why a request was answered TB_BAD_STATE. */
static void obstacle_text(const struct tb_worker_session *s, uint32_t subscription, const struct tb_id *uid,
                          char why[160])
{
    const struct tb_catalog_obstacle_view o =
        tb_catalog_obstacle_of(s->d->catalog, &s->id, subscription, uid);
    const unsigned long long run = o.run_order, number = o.number;
    why[0] = '\0';
    switch (o.kind) {
    case TB_OBSTACLE_NONE:
        break;
    case TB_OBSTACLE_NEWER:
        snprintf(why, 160, "group %.64s has version %llu:%llu, which is newer and was not withdrawn",
                 o.group.text, run, number);
        break;
    case TB_OBSTACLE_UNKNOWN:
        snprintf(
            why, 160,
            "this worker says it computes from %llu:%llu, unknown here%s: wait for it, or close this worker",
            run, number, is_signed(s->d, uid, &o) ? "" : " and not signed by its home");
        break;
    case TB_OBSTACLE_ATTEMPT:
        snprintf(why, 160, "group %.64s stages version %llu:%llu: tb_wait gives that one", o.group.text, run,
                 number);
        break;
    case TB_OBSTACLE_STAGED:
        snprintf(why, 160, "this member of group %.64s staged version %llu:%llu since", o.group.text, run,
                 number);
        break;
    case TB_OBSTACLE_NOT_STAGED:
        snprintf(why, 160, "this member of group %.64s does not stage it", o.group.text);
        break;
    }
}

enum tb_status tb_worker_stage_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_msg_stage m;
    if (tb_msg_stage_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    struct tb_catalog_version_view view;
    enum tb_status status = tb_catalog_version_get(d->catalog, &m.uid, &view) ? TB_OK : TB_NOT_FOUND;
    if (status == TB_OK) status = tb_worker_may(s, &view.key.model, false);
    struct tb_copy *copy = tb_copy_find(d, &m.uid);
    if (status == TB_OK &&
        (copy == NULL || copy->region == NULL || !tb_arena_region_complete(copy->region))) {
        status = tb_catalog_state_status(view.state);
        if (status == TB_OK) status = TB_NOT_FOUND;
    }
    struct tb_id instead = m.uid;
    if (status == TB_OK) {
        status = tb_catalog_stage(d->catalog, tb_clock_now(), &s->id, m.subscription, &m.uid, &instead);
    }
    if (status != TB_OK) {
        char why[160] = "", hex[TB_HEX_CHARS];
        tb_id_format(&instead, hex);
        if (status == TB_BAD_STATE) obstacle_text(s, m.subscription, &m.uid, why);
        if (status == TB_CONFLICT) snprintf(why, sizeof why, "the group stages %s", hex);
        tb_worker_reply(s, frame->request, status, why);
        return TB_OK;
    }
    struct tb_msg_manifests reply = {view.key, view.key.shard_count, {0}};
    const struct tb_said *said = tb_said_find(&d->said, TB_STATEMENT_VERSION, &m.uid);
    if (said != NULL) reply.said = (struct tb_span){.bytes = said->bytes, .count = said->count};
    TB_WORKER_SEND(s, TB_MSG_MANIFESTS, frame->request, &reply, TB_WORKER_SMALL + reply.said.count,
                   tb_msg_manifests_encode);
    for (uint32_t i = 0; i < view.key.shard_count; i++) {
        manifest_send(s, &m.uid, i, tb_arena_place(copy->region, i)->manifest);
    }
    tb_worker_proofs_begin(s, copy);
    return TB_OK; /* the catalog's PLAN comes with settle, behind the manifests */
}

/* P8: a worker that exports its staging is given a source, and counts as a copy: so it needs the
 * right to read. It showed that right when it staged, but maybe to an earlier life of this
 * gateway. P7: an export of a version that the catalog does not know is not kept. */
enum tb_status tb_worker_export_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_catalog *c = s->d->catalog;
    struct tb_msg_export m;
    struct tb_catalog_version_view view;
    if (tb_msg_export_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (!tb_catalog_version_get(c, &m.uid, &view)) return TB_OK;
    if (tb_worker_may(s, &view.key.model, false) != TB_OK) return TB_OK;
    const enum tb_status told =
        tb_catalog_export(c, tb_clock_now(), &s->id, &m.uid, m.export_id, m.held_chunks, m.whole);
    const struct tb_worker_export export = {
        .uid = m.uid, .shard = TB_CATALOG_ALL_SHARDS, .export_id = m.export_id};
    /* For want of memory it is not found when it is planned, and another source is. */
    if (told == TB_OK && m.export_id != 0) TB_MOOT(tb_worker_export_put(s, &export, &m.source));
    return TB_OK;
}

enum tb_status tb_worker_progress_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_progress m;
    if (tb_msg_progress_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const struct tb_catalog_progress p = {.session = s->id,
                                          .uid = m.uid,
                                          .held_chunks = m.held_chunks,
                                          .total_chunks = m.total_chunks,
                                          .whole = m.whole,
                                          .bytes_per_s = m.bytes_per_s,
                                          .transport = m.transport};
    /* of a version that ended meanwhile: nothing to do */
    TB_MOOT(tb_catalog_progress(s->d->catalog, tb_clock_now(), &p));
    if (m.whole) tb_worker_staging_whole(s, &m.uid);
    return TB_OK;
}

/* P6: a source that says nothing to one of its readers is nobody's choice until it
 * says something here. */
static void note_silent(struct tb_worker_session *s, const struct tb_msg_hop_lost *m)
{
    struct tb_catalog_reference_view view;
    if (tb_msg_status_get(m->status_negated) != TB_STREAM_IDLE) return;
    if (tb_catalog_plan_get(s->d->catalog, &s->id, &m->uid, m->plan, &view) && !view.from_gateway)
        tb_catalog_session_silent(s->d->catalog, tb_clock_now(), &view.upstream);
}

enum tb_status tb_worker_hop_lost_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_hop_lost m;
    if (tb_msg_hop_lost_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (!tb_worker_may_report(s, &m.uid)) return TB_OK;
    s->d->counters.hops_lost++;
    tb_log(TB_LOG_WARN, "hop.lost", "worker=%s plan=%llu status=%s action=replan", s->name.text,
           (unsigned long long)m.plan, tb_status_name(tb_msg_status_get(m.status_negated)));
    note_silent(s, &m);
    TB_MOOT(tb_catalog_hop_lost(s->d->catalog, tb_clock_now(), &s->id, &m.uid, m.plan));
    return TB_OK;
}

/* ---- activating ---- */

enum tb_status tb_worker_activate_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_activate m;
    if (tb_msg_activate_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    char why[160] = "";
    const enum tb_status status =
        tb_catalog_activate(s->d->catalog, tb_clock_now(), &s->id, m.subscription, &m.uid);
    if (status == TB_BAD_STATE) obstacle_text(s, m.subscription, &m.uid, why);
    tb_worker_reply(s, frame->request, status, why);
    return TB_OK;
}

static void activated_audit(struct tb_worker_session *s, const struct tb_id *uid)
{
    char identity[TB_URI_BYTES_MAX], version[TB_AUDIT_VERSION_BYTES];
    static struct tb_catalog_version_view v;                     /* large; the main loop's alone */
    if (!tb_catalog_version_get(s->d->catalog, uid, &v)) return; /* a worker may say any */
    tb_identity_format(&s->identity, identity);
    tb_audit_version_text(&v.key, version);
    tb_audit_version(s->d, &(struct tb_audit_event){"activate", identity, version, "", "ok"});
}

enum tb_status tb_worker_activated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_activated m;
    if (tb_msg_activated_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    tb_log(TB_LOG_INFO, "worker.activated", "worker=%s stall_us=%llu copied_bytes=%llu", s->name.text,
           (unsigned long long)(m.stall_ns / 1000), (unsigned long long)m.copied_bytes);
    const struct tb_catalog_active active = {.uid = m.uid, .run_order = m.run_order, .number = m.number};
    TB_MOOT(tb_catalog_activated(s->d->catalog, tb_clock_now(), &s->id, m.subscription, &active));
    activated_audit(s, &m.uid);
    return TB_OK;
}

enum tb_status tb_worker_updated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_updated m;
    if (tb_msg_updated_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const struct tb_catalog_update update = {.uid = m.uid,
                                             .way = m.way,
                                             .fetched_chunks = m.fetched_chunks,
                                             .stall_ns = m.stall_ns,
                                             .staged_bytes = m.staged_bytes,
                                             .copied_bytes = m.copied_bytes,
                                             .patched_bytes = m.patched_bytes};
    /* of a worker that is no member any more, or has a newer version: nothing to do */
    TB_MOOT(tb_catalog_updated(s->d->catalog, &s->id, m.subscription, &update));
    return TB_OK;
}

enum tb_status tb_worker_release_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_release m;
    if (tb_msg_release_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    tb_copies_look(s->d);
    const enum tb_status status = tb_catalog_release(s->d->catalog, tb_clock_now(), &s->id, &m.uid);
    for (struct tb_worker_export **at = &s->exports; *at != NULL;) {
        const struct tb_worker_export *e = *at;
        if (e->shard == TB_CATALOG_ALL_SHARDS && tb_id_equal(&e->uid, &m.uid))
            tb_worker_export_drop(s, at);
        else
            at = &(*at)->next;
    }
    tb_worker_reply(s, frame->request, status == TB_DONE_BEFORE ? TB_OK : status, "");
    return TB_OK;
}

/* P8: any user of this host may connect. Which models there are and where they are read is told
 * only to users with a right to one of them. */
static enum tb_status may_look(struct tb_worker_session *s)
{
    if (tb_rights_any(s->d->config, &s->identity)) return TB_OK;
    tb_worker_denied(s, "status", "no right to any model");
    s->denied_model = (struct tb_name){{0}};
    return TB_PEER_DENIED;
}

#define TENSORS_MADE_MAX 2u /* in a second: answers that are kept are not counted */

/* P6: a reader that asks for one version after another is told nothing of those that are too many
 * for a second. It compares nothing then. */
static bool may_make(struct tb_worker_session *s)
{
    const tb_time_ns now = tb_clock_now();
    if (s->tensors_made == 0 || tb_time_since(s->tensors_at, now) >= TB_SECONDS(1)) {
        s->tensors_at = now;
        s->tensors_made = 0;
    }
    return s->tensors_made++ < TENSORS_MADE_MAX;
}

static char *text_of(json_t *state)
{
    char *text = state == NULL ? NULL : json_dumps(state, JSON_COMPACT);
    json_decref(state);
    return text;
}

/* NULL: no memory. */
static char *tensors_text(struct tb_copy *copy)
{
    struct tb_tensors_kept *kept = &copy->d->tensors_kept;
    const uint32_t count = copy->key.shard_count;
    const struct tb_layout **shards = tb_calloc(count, sizeof *shards);
    if (shards == NULL) return NULL;
    for (uint32_t i = 0; i < count; i++)
        shards[i] = &tb_arena_place(copy->region, i)->manifest->layout;
    char *text = text_of(tb_status_tensors(shards, count));
    tb_free(shards);
    if (text == NULL) return NULL;
    char *mine = strdup(text);
    tb_tensors_keep(kept, &copy->key.uid, &tb_arena_region_key(copy->region)->root, text);
    return mine;
}

/* Before it stages anything, a reader compares a version's tensors with its own. */
static enum tb_status of_tensors(struct tb_worker_session *s, const char *hex, char **out)
{
    struct tb_catalog_version_view view;
    struct tb_id uid;
    if (!tb_id_parse(hex, &uid) || !tb_catalog_version_get(s->d->catalog, &uid, &view)) return TB_NOT_FOUND;
    const enum tb_status may = tb_worker_may(s, &view.key.model, false);
    if (may != TB_OK) return may;
    struct tb_copy *copy = tb_copy_find(s->d, &uid);
    if (copy == NULL || copy->region == NULL || !tb_arena_region_complete(copy->region)) return TB_NOT_FOUND;
    const char *kept = tb_tensors_kept(&s->d->tensors_kept, &uid, &tb_arena_region_key(copy->region)->root);
    if (kept != NULL)
        *out = strdup(kept);
    else
        *out = may_make(s) ? tensors_text(copy) : text_of(tb_status_tensors_untold());
    return *out != NULL ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status of_site(struct tb_worker_session *s, char **out)
{
    json_t *state = tb_status_site(s->d);
    if (state != NULL) tb_status_hide(s->d->config, &s->identity, state);
    *out = text_of(state);
    return *out != NULL ? TB_OK : TB_SITE_NOMEM;
}

/* A gateway of the release before answers whatever is asked with the site's status. */
enum tb_status tb_worker_status_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_status m;
    if (tb_msg_status_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    static const char tensors[] = TB_MSG_STATUS_TENSORS;
    char *text = NULL;
    enum tb_status status = may_look(s);
    if (status == TB_OK && strncmp(m.what.text, tensors, sizeof tensors - 1) == 0)
        status = of_tensors(s, m.what.text + sizeof tensors - 1, &text);
    else if (status == TB_OK)
        status = of_site(s, &text);
    if (status != TB_OK) {
        tb_worker_reply(s, frame->request, status, "");
        return TB_OK;
    }
    const struct tb_msg_status_text reply = {{(const uint8_t *)text, (uint32_t)strlen(text)}};
    TB_WORKER_SEND(s, TB_MSG_STATUS_TEXT, frame->request, &reply, strlen(text) + TB_WORKER_SMALL,
                   tb_msg_status_text_encode);
    free(text);
    return TB_OK;
}
