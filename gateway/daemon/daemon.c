/* daemon.c - opens everything in order, ticks, drains, closes. */
#include "gateway/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/machine.h"
#include "base/net/resolve.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/config/bounds.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/catalog_models.h"
#include "gateway/daemon/certificates.h"
#include "gateway/daemon/control/backup_commands.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/control/link_status.h"
#include "gateway/daemon/control/site_status.h"
#include "gateway/daemon/control/usage_status.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/copies/arena_prover.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_sweep.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/crossing_policy.h"
#include "gateway/daemon/daemon_check.h"
#include "gateway/daemon/links/found_streams.h"
#include "gateway/daemon/links/home_statements.h"
#include "gateway/daemon/links/link_events.h"
#include "gateway/daemon/links/link_opening.h"
#include "gateway/daemon/links/link_reports.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/links/proofs.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/links/statements.h"
#include "gateway/daemon/live/live_asks.h"
#include "gateway/daemon/models/model_life.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/reload.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_proofs.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/sessions.h"
#include "gateway/daemon/shutdown.h"
#include "gateway/daemon/store_restore.h"
#include "intra/fabric/fabric_exports.h"
#include "wan/link/links_stats.h"
#include "wan/send/encoded_chunks.h"
#include "wan/send/sender_turn.h"

#define TICK_BUSY_MS 10u /* bitmaps are looked at while a version moves */
#define TICK_IDLE_MS 50u
#define POLL_NS      TB_MS(100) /* peers' progress */
#define SLOW_NS      TB_SECONDS(1)
#define VERIFY_BYTES (16u << 20)                        /* a step: some 3 ms */
#define TURN_NS      (TB_TURN_PATIENCE + TB_SECONDS(1)) /* with its two round trips, on the longest of ways */

static enum tb_status failed(const char *what, const char *why, const char *action)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "start.failed");
    tb_log_str(&l, "what", what);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", action);
    tb_log_end(&l);
    return TB_SITE_CONFIG;
}

static enum tb_status cannot_listen(const char *key, const char *address, enum tb_status status, int error)
{
    TB_ASSERT(status != TB_OK);
    char why[512], action[64];
    snprintf(why, sizeof why, "%.300s: %.150s", address, tb_endpoint_why(status, error));
    snprintf(action, sizeof action, "then start again, or set %s", key);
    return failed(key, why, action);
}

/* ---- mapping and verifying in background ---- */

#define MAP_BYTES  (2u << 20) /* a step: some 0.3 ms */
#define MAP_LOG_NS TB_SECONDS(10)

static void mapping_log(struct tb_daemon *d, bool done)
{
    struct tb_arena_mapping m;
    tb_arena_mapping(d->arena, done, &m);
    if (done) atomic_store(&d->huge_bytes, m.huge_bytes);
    tb_log(TB_LOG_INFO, done ? "arena.mapped" : "arena.mapping",
           "mapped_bytes=%llu bytes=%llu page_bytes=%llu huge_bytes=%llu after_ms=%llu",
           (unsigned long long)m.mapped_bytes, (unsigned long long)m.file_bytes,
           (unsigned long long)m.page_bytes, (unsigned long long)m.huge_bytes,
           (unsigned long long)(tb_time_since(d->started_at, tb_clock_now()) / TB_MS(1)));
}

/* P6: a step holds the kernel's lock of this process's mappings, which the main loop needs whenever
 * it gets memory. So steps are short, a pause as long as the step lets others in, and the thread
 * has the priority of those who wait for it: a low one was preempted with the lock in its hands,
 * and sessions waited for seconds. */
static void arena_map(struct tb_daemon *d)
{
    tb_time_ns told_at = tb_clock_now(), began = told_at;
    while (!atomic_load(&d->verifier_stop) && tb_arena_map_step(d->arena, MAP_BYTES) == TB_AGAIN) {
        const tb_time_ns step_ns = tb_time_since(began, tb_clock_now());
        const struct timespec pause = {.tv_sec = (time_t)(step_ns / TB_SECONDS(1)),
                                       .tv_nsec = (long)(step_ns % TB_SECONDS(1))};
        (void)nanosleep(&pause, NULL);
        began = tb_clock_now();
        if (tb_time_since(told_at, began) < MAP_LOG_NS) continue;
        told_at = began;
        mapping_log(d, false);
    }
    if (!atomic_load(&d->verifier_stop)) mapping_log(d, true);
}

static void *verifier_main(void *user)
{
    struct tb_daemon *d = user;
    arena_map(d);
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10); /* this thread alone, on Linux */
    enum tb_status status = d->verifier_digests ? TB_AGAIN : TB_OK;
    while (status == TB_AGAIN && !atomic_load(&d->verifier_stop)) {
        struct tb_arena_verified done = {0};
        status = tb_arena_verify_step(d->arena, VERIFY_BYTES, &done);
        atomic_fetch_add(&d->verified_bytes, done.bytes);
        if (done.bad == 0) continue;
        atomic_fetch_add(&d->verify_bad, done.bad);
        uv_async_send(&d->verify_wake);
    }
    if (status == TB_END) atomic_store(&d->verify_done, true);
    return NULL;
}

/* Chunks that failed are no longer held: the catalog hears of it, and peers of the new life. A
 * version of which all chunks have their proofs is signed. */
static void verify_wake(uv_async_t *async)
{
    struct tb_daemon *d = async->data;
    if (atomic_exchange(&d->prover.proved, false)) {
        tb_home_says_tick(d);
        tb_daemon_wake(d); /* readers that waited for the proofs hear of it in this turn */
    }
    const uint32_t bad = atomic_exchange(&d->verify_bad, 0);
    if (bad == 0) return;
    d->counters.verify_bad += bad;
    tb_log(TB_LOG_ERROR, "arena.verify_failed", "chunks=%u action=fetch_again", bad);
    tb_copies_rotted(d);
    d->life_untold = true;
    tb_daemon_wake(d);
}

static void verifier_start(struct tb_daemon *d)
{
    TB_ASSERT(!d->verifier_runs && !atomic_load(&d->verifier_stop));
    struct tb_arena_mapping m;
    tb_arena_mapping(d->arena, false, &m);
    d->verifier_digests = d->config->arena_reverify; /* a reload gives d->config another one */
    if (!d->verifier_digests && m.mapped_bytes == m.file_bytes) return;
    d->verifier_runs = pthread_create(&d->verifier, NULL, verifier_main, d) == 0;
    if (d->verifier_runs) return;
    d->verifier_digests = false;
    tb_log(TB_LOG_WARN, "arena.verify_off", "reason=no_thread");
}

static void verifier_end(struct tb_daemon *d)
{
    if (!d->verifier_runs) return;
    TB_ASSERT(d->draining); /* a chunk that fails from now on is told to nobody */
    atomic_store(&d->verifier_stop, true);
    pthread_join(d->verifier, NULL);
    d->verifier_runs = false;
}

/* ---- the tick ---- */

static void goodput_measure(struct tb_daemon *d)
{
    static struct tb_links_stats stats; /* large; the main loop's alone */
    for (uint32_t i = 0; d->links != NULL && !d->links_restarting && i < d->config->peer_count; i++) {
        tb_links_stats(d->links, i, &stats);
        const uint64_t bytes = stats.bytes_sent + stats.bytes_received;
        d->goodput[i].bytes_per_s = bytes > d->goodput[i].bytes ? bytes - d->goodput[i].bytes : 0;
        d->goodput[i].bytes = bytes;
        tb_found_seen(d, i, &stats);
    }
    tb_status_pace(d);
}

/* So what is slow in coming is told from what nobody brings. */
static void arrivals_tell(struct tb_daemon *d)
{
    const tb_time_ns now = tb_clock_now();
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (c->region != NULL && !tb_copy_is_whole(c))
            TB_MOOT(tb_catalog_arena_came(d->catalog, now, &c->key.uid, tb_copy_wire_bytes(c)));
    }
}

/* P6: a catalog that recovers evicts nothing. Requests that wait for room are tried again in the
 * turn in which it has recovered: nothing else frees any. */
static void catalog_tick(struct tb_daemon *d, tb_time_ns now)
{
    const bool recovering = tb_catalog_recovering(d->catalog);
    tb_catalog_tick(d->catalog, now);
    if (recovering && !tb_catalog_recovering(d->catalog)) d->room_freed = true;
}

static void drain_begin(struct tb_daemon *d, int number);

static void tick(uv_timer_t *timer)
{
    struct tb_daemon *d = timer->data;
    TB_ASSERT(!d->opening && !d->turning);
    if (d->drain_asked && !d->draining) {
        drain_begin(d, 0);
        return;
    }
    const tb_time_ns now = tb_clock_now();
    tb_service_manager_alive(&d->manager, now);
    const bool moves = tb_copies_tick(d), proves = tb_worker_proofs_tick(d);
    tb_arena_prover_ask(d, moves);
    tb_copies_sweep(d, now);
    tb_grants_tick(d, now);
    tb_anchors_tick(d, now);
    tb_adopt_tick(d, now);
    tb_home_runs_tick(d, now);
    tb_live_asks_tick(d, now);
    if (now - d->polled_at >= POLL_NS) {
        d->polled_at = now;
        tb_crossings_poll(d);
    }
    if (now - d->slow_at >= SLOW_NS) {
        d->slow_at = now;
        goodput_measure(d);
        arrivals_tell(d);
        tb_site_records_tick(d);
        tb_certificates_tick(d);
        tb_audit_tick(d);
        tb_limits_tick(d);
        tb_policy_tick(d);
        tb_statements_tick(d);
        tb_home_says_tick(d);
        tb_proofs_tick(d);
        tb_persist_tick(d);
        tb_usage_tick(d);
        tb_log_tick();
        d->counters.lines_suppressed = tb_log_suppressed();
        tb_crossings_hear_again(d);
        d->room_freed = true; /* as far as anybody here knows */
        tb_sessions_tick(d, tb_clock_wall_ms() / 1000);
        tb_models_tick(d);
    }
    catalog_tick(d, now);
    tb_daemon_turn(d);
    if (d->slow_at == now) TB_CHECK(tb_daemon_check_all(d));
    const uint64_t next = moves || proves ? TICK_BUSY_MS : TICK_IDLE_MS;
    if (!d->draining && next != d->tick_ms) {
        d->tick_ms = next;
        uv_timer_start(&d->tick, tick, next, next);
    }
}

/* ---- opening ---- */

static enum tb_status host_name(struct tb_daemon *d)
{
    if (d->config->fabric_host.text[0] != '\0') {
        d->host = d->config->fabric_host;
        return TB_OK;
    }
    char id[TB_NAME_BYTES_MAX + 1];
    if (!tb_machine_line(TB_MACHINE_BOOT_ID, id, sizeof id)) return TB_SITE_IO;
    return tb_name_set(&d->host, id);
}

static enum tb_status tls_open(struct tb_daemon *d)
{
    char error[512] = "";
    const enum tb_status status = tb_certificates_open(d, error);
    return status == TB_OK ? TB_OK : failed("tls", error, "see tombolo pki --help");
}

static enum tb_status store_open(struct tb_daemon *d)
{
    TB_ASSERT(d->store == NULL);
    char error[256] = "";
    const enum tb_status status = tb_store_open(d->config->store_path, &d->disk_keys, &d->store, error);
    return status == TB_OK
               ? TB_OK
               : failed("store", error, "make its folder, writable for this user, or set store.path");
}

static enum tb_status arena_open(struct tb_daemon *d)
{
    TB_ASSERT(d->arena == NULL && d->copies == NULL);
    const struct tb_arena_options options = {d->config->arena_path, d->config->arena_bytes};
    char error[TB_ARENA_ERROR_BYTES] = "";
    const enum tb_status status = tb_arena_open(&options, &d->arena, error);
    if (status != TB_OK) return failed("arena", error, "set arena.path or arena.bytes");
    tb_arena_prover_start(d);
    tb_arena_prove(d->arena, tb_proofs_are_made, d);
    return TB_OK;
}

static enum tb_status encoded_chunks_open(struct tb_daemon *d)
{
    const uint64_t budget = tb_bounds_of(d->config).encoded_bytes;
    return budget > 0 ? tb_encoded_chunks_new(budget, &d->encoded_chunks) : TB_OK;
}

static enum tb_status home_runs_open(struct tb_daemon *d)
{
    const enum tb_status status = tb_home_runs_open(d);
    return status == TB_OK ? TB_OK : failed("store", tb_store_error(d->store), "the file must be writable");
}

static enum tb_status catalog_open(struct tb_daemon *d)
{
    TB_ASSERT(d->store != NULL && d->arena != NULL); /* it is filled from both */
    const struct tb_config *c = d->config;
    const struct tb_bounds bounds = d->bounds = tb_bounds_of(c);
    const struct tb_catalog_limits limits = {.models = bounds.models,
                                             .versions = bounds.versions,
                                             .model_versions = bounds.model_versions,
                                             .sites = bounds.sites,
                                             .sessions = bounds.sessions,
                                             .members = bounds.members,
                                             .groups = bounds.groups,
                                             .waits = bounds.waits,
                                             .records = bounds.records,
                                             .references = bounds.references,
                                             .site_references = bounds.site_references};
    d->catalog_memory = tb_malloc(tb_catalog_bytes(&limits));
    if (d->catalog_memory == NULL) return TB_SITE_NOMEM;
    const struct tb_catalog_config config = {.site = d->site,
                                             .host = d->host,
                                             .lease_ns = TB_MS(c->session_lease_ms),
                                             .tick_ns = TB_MS(4 * TICK_IDLE_MS),
                                             .drain_ns = TB_MS(c->drain_ms),
                                             .pin_max_ns = TB_SECONDS(c->pin_max_s),
                                             .turn_ns = TURN_NS,
                                             .fan_out = c->fabric_fan_out,
                                             .nic_bytes_per_s = c->fabric_nic};
    d->catalog = tb_catalog_init(d->catalog_memory, &limits, &config, tb_clock_now());
    enum tb_status status = TB_OK;
    TB_EACH_MODEL(d, i) if (status == TB_OK) status = tb_daemon_model(d, i);
    if (status != TB_OK) return status;
    status = tb_site_records_open(d);
    if (status != TB_OK) return status;
    status = tb_persist_restore(d);
    if (status != TB_OK) return status;
    tb_copies_restore(d);
    tb_proofs_restored(d);
    return TB_OK;
}

static enum tb_status persist_open(struct tb_daemon *d)
{
    const enum tb_status status = tb_persist_open(d);
    return status == TB_OK ? TB_OK
                           : failed("store", tb_status_text(status), "its writer needs a thread and memory");
}

static enum tb_status fabric_open(struct tb_daemon *d)
{
    const struct tb_config *c = d->config;
    const struct tb_fabric_options options = {.host = d->host,
                                              .tcp_address = c->fabric_listen,
                                              .trusted = c->fabric_trusted,
                                              .pace_bytes_per_s = c->fabric_pace,
                                              .threads = tb_arena_prover_threads(c),
                                              .no_verbs = !c->fabric_verbs};
    const enum tb_status status = tb_fabric_open(&options, &d->fabric);
    if (status != TB_OK) return cannot_listen("fabric.listen", c->fabric_listen, status, errno);
    tb_fabric_endpoint(d->fabric, &d->endpoint);
    tb_catalog_nic(d->catalog, tb_fabric_nic_bytes_per_s(d->fabric));
    uint64_t arena_bytes;
    const void *arena = tb_arena_memory(d->arena, &arena_bytes);
    tb_fabric_memory_stays(d->fabric, arena, arena_bytes); /* it closes after the fabric */
    if (c->fabric_trusted)
        tb_log(TB_LOG_WARN, "fabric.trusted", "tcp=clear reason=fabric.trusted_in_the_config");
    return TB_OK;
}

static enum tb_status resolver_open(struct tb_daemon *d)
{
    const struct tb_resolver_options options = {.servers = d->config->dns_servers};
    return tb_resolver_new(&d->loop, &options, &d->resolver);
}

static enum tb_status links_open(struct tb_daemon *d)
{
    if (d->tls == NULL) {
        for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
            tb_copy_serve(c);
        return TB_OK; /* a site by itself */
    }
    return tb_crossings_open(d);
}

static enum tb_status control_open(struct tb_daemon *d)
{
    const enum tb_status status =
        tb_control_open(&d->loop, d->config->control_socket, tb_status_commands, d, &d->control);
    return status == TB_OK ? TB_OK
                           : cannot_listen("control.socket", d->config->control_socket, status, errno);
}

static enum tb_status control_read_open(struct tb_daemon *d)
{
    const char *path = d->config->control_read;
    if (path == NULL) return TB_OK;
    const enum tb_status status =
        tb_control_open(&d->loop, path, tb_status_reading_commands, d, &d->control_read);
    return status == TB_OK ? TB_OK : cannot_listen("control.read", path, status, errno);
}

static void stop_signal(uv_signal_t *signal, int number);
static void reload_signal(uv_signal_t *signal, int number);

static enum tb_status descriptors_raise(struct tb_daemon *d)
{
    char error[TB_DESCRIPTORS_TEXT_MAX] = "";
    const enum tb_status status = tb_descriptors_raise(d->config, error);
    return status == TB_OK ? TB_OK : failed("descriptors", error, "raise that limit, or lower session.max");
}

/* Behind what came over sockets and asyncs, and again behind timers and closes, before the loop
 * waits: what was marked in this turn of the loop is concluded in it. */
static void before_wait(uv_prepare_t *handle)
{
    struct tb_daemon *d = handle->data;
    if (d->woken) tb_daemon_turn(d);
}

static void after_wait(uv_check_t *handle)
{
    struct tb_daemon *d = handle->data;
    if (d->woken) tb_daemon_turn(d);
}

static void turns_open(struct tb_daemon *d)
{
    uv_prepare_init(&d->loop, &d->before_wait);
    uv_check_init(&d->loop, &d->after_wait);
    d->before_wait.data = d->after_wait.data = d;
    uv_prepare_start(&d->before_wait, before_wait);
    uv_check_start(&d->after_wait, after_wait);
}

static enum tb_status loop_open(struct tb_daemon *d)
{
    if (uv_loop_init(&d->loop) != 0) return TB_SITE_NOMEM;
    d->has_loop = true;
    turns_open(d);
    uv_timer_init(&d->loop, &d->tick);
    uv_signal_init(&d->loop, &d->sigterm);
    uv_signal_init(&d->loop, &d->sigint);
    uv_signal_init(&d->loop, &d->sighup);
    d->tick.data = d->sigterm.data = d->sigint.data = d->sighup.data = d->hop_wake.data =
        d->verify_wake.data = d;
    d->store_wake.data = d;
    if (uv_async_init(&d->loop, &d->hop_wake, tb_home_landing_wake) != 0) return TB_SITE_IO;
    if (uv_async_init(&d->loop, &d->verify_wake, verify_wake) != 0) return TB_SITE_IO;
    if (uv_async_init(&d->loop, &d->store_wake, tb_persist_wake) != 0) return TB_SITE_IO;
    d->hop_wake.data = d->verify_wake.data = d->store_wake.data = d;
    uv_signal_start(&d->sigterm, stop_signal, SIGTERM);
    uv_signal_start(&d->sigint, stop_signal, SIGINT);
    uv_signal_start(&d->sighup, reload_signal, SIGHUP);
    return pthread_mutex_init(&d->hop_lock, NULL) == 0 ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status session_limits_open(struct tb_daemon *d)
{
    return tb_worker_session_limits_open(&d->session_limits, d->config);
}

enum tb_status tb_daemon_open(struct tb_daemon *d, struct tb_config *config)
{
    TB_ASSERT(d->config == NULL && d->catalog == NULL); /* a daemon is opened once */
    d->config = d->given = config;
    d->site = config->label;
    d->gateway = config->gateway;
    d->started_at = d->slow_at = tb_clock_now();
    tb_random_bytes(&d->process, sizeof d->process);
    /* In order: each stands on those before it. */
    static enum tb_status (*const steps[])(struct tb_daemon *) = {
        loop_open,           descriptors_raise, host_name,           tls_open,
        store_open,          arena_open,        tb_models_open,      tb_anchors_open,
        encoded_chunks_open, home_runs_open,    catalog_open,        tb_limits_open,
        tb_pauses_open,      tb_found_open,     tb_audit_open,       persist_open,
        fabric_open,         resolver_open,     session_limits_open, links_open,
        control_open,        control_read_open, tb_sessions_open,
    };
    d->opening = true;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const enum tb_status status = steps[i](d);
        if (status != TB_OK) return status;
    }
    d->opening = false;
    tb_daemon_turn(d);
    tb_site_records_tick(d);
    verifier_start(d);
    d->tick_ms = TICK_IDLE_MS;
    uv_timer_start(&d->tick, tick, TICK_IDLE_MS, TICK_IDLE_MS);
    tb_service_manager_ready(&d->manager);
    tb_log(TB_LOG_INFO, "start", "site=%s gateway=%s incarnation=%llu pid=%d", d->site.text, d->gateway.text,
           (unsigned long long)d->incarnation, (int)uv_os_getpid());
    return TB_OK;
}

/* ---- draining and closing ---- */

static void links_closed(void *user)
{
    struct tb_daemon *d = user;
    d->links = NULL;
    uv_stop(&d->loop);
}

static uint32_t readers(struct tb_daemon *d)
{
    uint32_t count = 0;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (c->export_id != 0) count += tb_export_readers(d->fabric, c->export_id);
    }
    return count;
}

/* Readers in flight go on, and rows are written, for at most drain_ms; then links say
 * goodbye and the loop ends. */
static void drain_tick(uv_timer_t *timer)
{
    struct tb_daemon *d = timer->data;
    TB_ASSERT(d->draining && d->drain_at != 0);
    const tb_time_ns spent = tb_time_since(d->drain_at, tb_clock_now());
    tb_service_manager_alive(&d->manager, tb_clock_now());
    tb_catalog_tick(d->catalog, tb_clock_now());
    tb_daemon_turn(d);
    const uint32_t left = readers(d);
    const uint32_t rows = tb_persist_waiting(d);
    if ((left != 0 || (rows != 0 && !d->store_down)) && spent < TB_MS(d->config->drain_ms)) return;
    if (d->links_restarting) return; /* they close: until then their threads touch the arena */
    uv_timer_stop(timer);
    tb_log(TB_LOG_INFO, "drain.end", "after_ms=%llu readers_cut=%u rows_unwritten=%u",
           (unsigned long long)(spent / TB_MS(1)), left, rows);
    tb_sessions_close(d);
    tb_limits_close(d);
    if (d->links != NULL)
        tb_links_close(d->links, links_closed, d);
    else
        links_closed(d);
}

/* By a signal, or by an operator (0), whose row is in the audit record already. */
static void drain_begin(struct tb_daemon *d, int number)
{
    TB_ASSERT(!d->draining);
    d->draining = true;
    tb_service_manager_stopping(&d->manager);
    if (d->opening) return;
    d->drain_at = tb_clock_now();
    tb_log(TB_LOG_INFO, "drain.begin", "signal=%d readers=%u drain_ms=%u", number, readers(d),
           d->config->drain_ms);
    if (number != 0)
        tb_audit_act(d, &(struct tb_audit_event){"drain", "gateway", d->site.text,
                                                 number == SIGTERM ? "SIGTERM" : "SIGINT", "ok"});
    tb_sessions_shut(d);
    uv_timer_start(&d->tick, drain_tick, 0, 10);
}

static void stop_signal(uv_signal_t *signal, int number)
{
    struct tb_daemon *d = signal->data;
    if (!d->draining) drain_begin(d, number);
}

static void reload_signal(uv_signal_t *signal, int number)
{
    (void)number;
    tb_reload_signal(signal->data);
}

void tb_daemon_run(struct tb_daemon *d)
{
    TB_ASSERT(d->has_loop && !d->opening);
    uv_run(&d->loop, UV_RUN_DEFAULT);
}

static void close_handle(uv_handle_t *handle, void *user)
{
    (void)user;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

/* Also after a failed open: what was not opened is NULL. */
void tb_daemon_close(struct tb_daemon *d)
{
    if (!d->has_loop) return;
    d->draining = true;
    uv_timer_stop(&d->tick); /* begins nothing any more */
    tb_anchors_stop(d);
    tb_adopt_stop(d);
    tb_closing_grant(d);
    verifier_end(d);
    tb_arena_prover_end(d);
    tb_sessions_shut(d);
    tb_sessions_close(d);
    tb_live_asks_close(d);
    tb_reload_close(d);
    tb_control_close(d->control);
    tb_control_close(d->control_read);
    d->control = d->control_read = NULL;
    tb_limits_close(d);
    if (d->links != NULL) {
        tb_links_close(d->links, links_closed, d);
        uv_run(&d->loop, UV_RUN_DEFAULT);
    }
    if (d->resolver != NULL) tb_resolver_close(d->resolver);
    tb_copies_free(d);
    tb_site_records_close(d);
    tb_seals_free(d);
    tb_home_runs_close(d);
    tb_grants_free(&d->grants);
    if (d->fabric != NULL) tb_fabric_close(d->fabric);
    d->fabric = NULL;                                  /* sessions end behind it */
    const uint64_t end_ms = tb_clock_wall_ms() + 1000; /* sessions linger for at most 200 ms */
    while (d->sessions != NULL && tb_clock_wall_ms() < end_ms)
        uv_run(&d->loop, UV_RUN_ONCE);
    tb_daemon_flush(d); /* before it is waited for other disks */
    tb_audit_close(d);
    tb_persist_close(d);
    tb_backup_commands_close(d);
    tb_models_close(d);
    tb_withdrawn_free(d); /* the last rows follow there */
    tb_said_free(&d->said);
    tb_anchors_close(d);
    tb_adopt_close(d);
    tb_encoded_chunks_free(d->encoded_chunks);
    if (!d->left) tb_arena_close(d->arena);
    tb_store_close(d->store);
    tb_tls_free(d->tls);
    tb_tensors_kept_free(&d->tensors_kept);
    tb_free(d->catalog_memory);
    if (d->config != d->given) tb_config_free(d->config);
    d->config = d->given;
    uv_walk(&d->loop, close_handle, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    tb_worker_session_limits_close(&d->session_limits);
    if (uv_loop_close(&d->loop) != 0 || d->left) d->fault = true;
    pthread_mutex_destroy(&d->hop_lock);
}
