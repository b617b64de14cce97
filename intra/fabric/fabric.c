/* fabric.c - the fabric's thread: it opens, closes and dispatches. Its owner's calls for exports.
 *
 * This is the one dispatcher of hops and door. They and the pool post what happened
 * (fabric_queue.c), and this file runs the posted jobs. Its alarm polls hops and door. No file that
 * it calls calls it. */
#include "intra/fabric/fabric.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/endpoint.h"
#include "base/thread.h"
#include "intra/fabric/door.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/fabric/nic_rate.h"
#include "intra/verbs_part.h"

const char *tb_fabric_no_verbs(const struct tb_fabric *fabric)
{
    return fabric->no_verbs;
}

uint64_t tb_fabric_nic_bytes_per_s(const struct tb_fabric *fabric)
{
    return fabric->nic_bytes_per_s;
}

/* ---- one turn of the loop ---- */

#define CHECK_EVERY TB_SECONDS(1)

/* A turn ended. Where turns are checked (TB_CHECK_TURNS), each is; else one a second. */
static void turn_ended(struct tb_fabric *f)
{
    const tb_time_ns now = TB_CHECK_TURNS ? 0 : tb_clock_now();
    if (!TB_CHECK_TURNS && tb_time_since(f->checked_at, now) < CHECK_EVERY) return;
    f->checked_at = now;
    TB_CHECK(tb_fabric_check(f));
}

static void on_posted(uv_async_t *async)
{
    tb_fabric_run_posted(async->data);
    turn_ended(async->data);
}

static void on_alarm(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct tb_fabric *f = poll->data;
    uint64_t times;
    (void)!read(f->alarm_fd, &times, sizeof times);
    tb_fabric_disarm(f);
    const tb_time_ns now = tb_clock_now();
    tb_time_ns next = tb_time_min(tb_pace_gate_serve(&f->in, now), tb_pace_gate_serve(&f->out, now));
    for (struct tb_hop *hop = LIST_FIRST(&f->hops), *after; hop != NULL; hop = after) {
        after = tb_hop_after(hop);
        next = tb_time_min(next, tb_hop_poll(hop, now));
    }
    if (f->door != NULL) next = tb_time_min(next, tb_door_poll(f->door, now));
    tb_fabric_wake_at(f, next);
    turn_ended(f);
}

/* ---- beginning and end ---- */

static void *fabric_main(void *user)
{
    struct tb_fabric *f = user;
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static enum tb_status start_thread(struct tb_fabric *f)
{
    return tb_thread_start(&f->thread, fabric_main, f) == 0 ? TB_OK : TB_SITE_NOMEM;
}

static void sync_init(struct tb_fabric *f)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, &attr);
    pthread_condattr_destroy(&attr);
    f->last = &f->first;
    LIST_INIT(&f->exports.all);
    LIST_INIT(&f->hops);
    STAILQ_INIT(&f->openings);
    TAILQ_INIT(&f->in.line);
    TAILQ_INIT(&f->out.line);
}

static void sync_fini(struct tb_fabric *f)
{
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
}

static enum tb_status codecs_open(struct tb_fabric *f, uint32_t threads)
{
    f->codecs = tb_calloc(threads, sizeof *f->codecs);
    if (f->codecs == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < threads; i++) {
        const enum tb_status status = tb_codec_new(&f->codecs[i]);
        if (status != TB_OK) return status;
    }
    return tb_pool_open(threads, &f->pool);
}

static void codecs_close(struct tb_fabric *f, uint32_t threads)
{
    tb_pool_close(f->pool);
    for (uint32_t i = 0; f->codecs != NULL && i < threads; i++)
        if (f->codecs[i] != NULL) tb_codec_free(f->codecs[i]);
    tb_free(f->codecs);
}

static enum tb_status loop_open(struct tb_fabric *f)
{
    f->alarm_at = TB_TIME_NEVER;
    f->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (f->alarm_fd < 0) return TB_SITE_IO;
    if (uv_loop_init(&f->loop) != 0) goto undo_fd;
    f->posted.data = f;
    f->alarm.data = f;
    if (uv_async_init(&f->loop, &f->posted, on_posted) != 0) goto undo_loop;
    if (uv_poll_init(&f->loop, &f->alarm, f->alarm_fd) != 0) goto undo_async;
    (void)uv_poll_start(&f->alarm, UV_READABLE, on_alarm);
    return TB_OK;

undo_async:
    uv_close((uv_handle_t *)&f->posted, NULL);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
undo_loop:
    (void)uv_loop_close(&f->loop);
undo_fd:
    close(f->alarm_fd);
    return TB_SITE_IO;
}

/* Turns the loop until nothing is left in it. Called where the loop thread is not running
 * any more, or never ran. */
static void loop_close(struct tb_fabric *f)
{
    uv_close((uv_handle_t *)&f->posted, NULL);
    uv_close((uv_handle_t *)&f->alarm, NULL);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    const int left = uv_loop_close(&f->loop);
    TB_ASSERT(left == 0);
    close(f->alarm_fd);
}

static void describe(struct tb_fabric *f, const struct tb_fabric_options *options)
{
    f->host = options->host;
    f->trusted = options->trusted;
    f->endpoint.host = options->host;
    f->endpoint.tls = !options->trusted;
    f->endpoint.fingerprint = *tb_tls_fingerprint(f->tls);
    tb_pace_init(&f->in.pace, options->pace_bytes_per_s, tb_clock_now());
    tb_pace_init(&f->out.pace, options->pace_bytes_per_s, tb_clock_now());
}

/* An emulated NIC is the only one of its fabric: what went by another would not be paced. */
static void verbs_open(struct tb_fabric *f, const struct tb_fabric_options *options)
{
    if (options->no_verbs)
        f->no_verbs = "switched off";
    else if (options->pace_bytes_per_s != 0)
        f->no_verbs = "the NIC is emulated";
    else
        f->no_verbs = tb_verbs_open(f, &f->verbs);
}

/* A port with several addresses is several rails. */
static bool port_before(const struct tb_rail *rails, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (rails[k].nic == rails[i].nic && rails[k].port == rails[i].port) return true;
    return false;
}

/* The rate that rdma_rxe reports is made up: the interface beneath it is asked. */
static uint64_t rate_of_rails(struct tb_fabric *f)
{
    const struct tb_export none = {.id = 0};
    struct tb_rail rails[TB_RAILS_MAX];
    uint16_t port;
    uint64_t sum = 0;
    const uint32_t count = f->verbs != NULL ? tb_verbs_rails(f->verbs, &none, rails, &port) : 0;
    for (uint32_t i = 0; i < count; i++) {
        struct tb_address at = {.v6 = {.sin6_family = AF_INET6}};
        memcpy(&at.v6.sin6_addr, rails[i].address.bytes, sizeof rails[i].address.bytes);
        if (!port_before(rails, i)) sum += tb_nic_rate_of(TB_NIC_RATE_SYSFS, &at.any);
    }
    return sum;
}

static uint64_t rate_of_door(const struct tb_fabric *f)
{
    struct tb_endpoint door;
    struct tb_address at;
    if (f->endpoint.tcp[0] == '\0' || tb_endpoint_parse(f->endpoint.tcp, &door) != TB_OK ||
        tb_endpoint_address(&door, &at) != TB_OK)
        return 0;
    return tb_nic_rate_of(TB_NIC_RATE_SYSFS, &at.any);
}

/* Before the thread runs: the rails are its own then. */
static void find_nic_rate(struct tb_fabric *f, const struct tb_fabric_options *options)
{
    if (options->pace_bytes_per_s != 0) return;
    f->nic_bytes_per_s = rate_of_rails(f);
    if (f->nic_bytes_per_s == 0) f->nic_bytes_per_s = rate_of_door(f);
}

enum tb_status tb_fabric_open(const struct tb_fabric_options *options, struct tb_fabric **fabric_out)
{
    const uint32_t threads = options->threads != 0 ? options->threads : 1;
    int error = 0; /* of listening alone */
    struct tb_fabric *f = tb_calloc(1, sizeof *f);
    if (f == NULL) return TB_SITE_NOMEM;
    sync_init(f);
    enum tb_status status = tb_tls_new_ephemeral(&f->tls);
    if (status != TB_OK) goto undo_memory;
    describe(f, options);
    status = codecs_open(f, threads);
    if (status != TB_OK) goto undo_codecs;
    status = loop_open(f);
    if (status != TB_OK) goto undo_codecs;
    verbs_open(f, options);
    status = tb_door_open(f, options->tcp_address, &f->door);
    error = errno;
    if (status != TB_OK) goto undo_loop;
    find_nic_rate(f, options);
    status = start_thread(f);
    if (status != TB_OK) goto undo_door;

    if (options->trusted && options->tcp_address != NULL)
        tb_log(TB_LOG_WARN, "fabric.clear", "address=%s tls=no reason=site_network_is_trusted_by_config",
               f->endpoint.tcp);
    *fabric_out = f;
    return TB_OK;

undo_door:
    tb_door_close(f->door);
undo_loop:
    tb_verbs_close(f->verbs);
    loop_close(f);
    tb_verbs_free(f->verbs);
    if (f->door != NULL) tb_door_free(f->door);
undo_codecs:
    codecs_close(f, threads);
    tb_tls_free(f->tls);
undo_memory:
    sync_fini(f);
    tb_free(f);
    errno = error;
    return status;
}

static void begin_end(struct tb_fabric *f, void *arg)
{
    (void)arg;
    TB_ASSERT(!f->ending);
    f->ending = true;
    for (struct tb_hop *hop = LIST_FIRST(&f->hops), *after; hop != NULL; hop = after) {
        after = tb_hop_after(hop);
        tb_hop_orphan(hop);
    }
    tb_door_close(f->door);
}

static void ask_quiet(struct tb_fabric *f, void *arg)
{
    bool *quiet = arg;
    TB_ASSERT(f->ending);
    *quiet = LIST_EMPTY(&f->hops) && STAILQ_EMPTY(&f->openings) && tb_door_quiet(f->door);
    if (*quiet) uv_stop(&f->loop);
}

/* Hops and peers end by callbacks of the loop within milliseconds, and openings of trays when the
 * driver answers. This runs once in a process's life. */
static void wait_quiet(struct tb_fabric *f)
{
    for (bool quiet = false; !quiet;) {
        tb_fabric_call(f, ask_quiet, &quiet);
        const struct timespec rest = {.tv_nsec = 1000000};
        if (!quiet) nanosleep(&rest, NULL);
    }
}

void tb_fabric_close(struct tb_fabric *f)
{
    if (f == NULL) return;
    const uint32_t threads = tb_pool_threads(f->pool);
    tb_fabric_call(f, begin_end, NULL);
    wait_quiet(f);
    pthread_join(f->thread, NULL);
    tb_verbs_close(f->verbs);
    loop_close(f);
    tb_door_free(f->door);
    TB_ASSERT(f->first == NULL); /* nothing was posted to a thread that is gone */
    while (!LIST_EMPTY(&f->exports.all)) {
        tb_verbs_export_drop(LIST_FIRST(&f->exports.all)->verbs);
        tb_exports_remove(LIST_FIRST(&f->exports.all));
    }
    tb_verbs_free(f->verbs);
    codecs_close(f, threads);
    tb_tls_free(f->tls);
    sync_fini(f);
    tb_free(f);
}

void tb_fabric_endpoint(const struct tb_fabric *fabric, struct tb_fabric_endpoint *endpoint_out)
{
    *endpoint_out = fabric->endpoint;
}

void tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count)
{
    tb_verbs_memory_stays(fabric->verbs, bytes, count);
}

void tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes)
{
    tb_verbs_memory_goes(fabric->verbs, bytes);
}

/* ---- exports ---- */
