/* session.c - how a session is opened and closed. */
#include "intra/client/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/machine.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/publisher_word.h"
#include "intra/client/session/connection.h"
#include "intra/client/session/request.h"
#include "tombolo/version.h"

#define OPEN_TIMEOUT_MS 10000u
/* Of a program built before no_verbs was there. */
#define FIRST_OPTIONS_BYTES offsetof(struct tb_session_options, no_verbs)

const char *tb_library_version(void)
{
    return TB_VERSION_TEXT;
}

/* ---- open ---- */

static void default_name(char out[TB_NAME_BYTES_MAX + 1])
{
    char host[40] = "worker";
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "worker");
    host[sizeof host - 1] = '\0';
    snprintf(out, TB_NAME_BYTES_MAX + 1, "%s-%ld", host, (long)getpid());
    for (char *c = out; *c != '\0'; c++)
        if (!tb_name_valid((char[]){'x', *c, '\0'})) *c = '-';
}

static int set_name(struct tb_name *name, const char *given, const char *otherwise, const char *what)
{
    const char *text = given != NULL ? given : otherwise;
    if (tb_name_set(name, text) == TB_OK) return TB_OK;
    return tb_fail(TB_BAD_ARGUMENT, "%s \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -", what, text);
}

static int set_names(struct tb_session *s, const struct tb_session_options *o)
{
    char name[TB_NAME_BYTES_MAX + 1], host[TB_NAME_BYTES_MAX + 1] = "";
    default_name(name);
    if (o->host == NULL && !tb_machine_line(TB_MACHINE_BOOT_ID, host, sizeof host))
        return tb_fail(TB_SITE_IO, TB_MACHINE_BOOT_ID " cannot be read: give options.host");
    int status = set_name(&s->name, o->name, name, "worker name");
    if (status == TB_OK) status = set_name(&s->host, o->host, host, "host name");
    if (status == TB_OK && o->rack != NULL) status = set_name(&s->rack, o->rack, o->rack, "rack name");
    return status;
}

static int check_options(const struct tb_session_options *o)
{
    if (o == NULL || o->struct_bytes < FIRST_OPTIONS_BYTES)
        return tb_fail(TB_BAD_ARGUMENT, "options.struct_bytes must be sizeof(struct tb_session_options), %zu",
                       sizeof *o);
    if (o->gateway == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "options.gateway is missing: \"unix:PATH\" or \"host:port\"");
    struct tb_endpoint endpoint;
    if (tb_endpoint_parse(o->gateway, &endpoint) != TB_OK)
        return tb_fail(TB_BAD_ARGUMENT, "gateway \"%.200s\" is neither unix:PATH nor host:port", o->gateway);
    const bool tls = o->ca != NULL && o->cert != NULL && o->key != NULL;
    if (!endpoint.is_unix && !tls)
        return tb_fail(TB_BAD_ARGUMENT, "gateway %.200s is not on a unix socket: ca, cert and key are needed",
                       o->gateway);
    if (o->fabric_address != NULL && strlen(o->fabric_address) >= 64 - 2)
        return tb_fail(TB_BAD_ARGUMENT, "fabric_address \"%.80s\" is too long", o->fabric_address);
    return TB_OK;
}

static void free_session(struct tb_session *s)
{
    TB_ASSERT(s->requests == NULL && s->stagings == NULL && s->publications == NULL);
    if (s->eventfd >= 0) close(s->eventfd);
    tb_publisher_close(s);
    tb_layouts_free(s->layouts);
    tb_session_lock_fini(s);
    tb_free(s);
}

/* On failure free_session gives back what there is. */
static int session_fill(struct tb_session *s, const struct tb_session_options *o)
{
    s->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->eventfd < 0) return tb_fail(TB_SITE_IO, "eventfd: %s", strerror(errno));
    s->layouts = tb_layouts_new();
    if (s->layouts == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for a session");
    int status = set_names(s, o);
    if (status != TB_OK) return status;
    status = tb_publisher_open(s, o);
    if (status != TB_OK) return status;
    if (tb_crew_new(o->threads, &s->crew) != TB_OK)
        return tb_fail(TB_SITE_NOMEM, "no thread for the pool could be started");
    return TB_OK;
}

static int session_new(const struct tb_session_options *o, struct tb_session **s_out)
{
    struct tb_session *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for a session");
    s->pid = getpid();
    s->spot = o->spot != 0;
    s->threads = o->threads;
    s->pace_bytes_per_s = o->pace_bytes_per_s;
    s->no_verbs = o->no_verbs != 0;
    s->protect = o->protect != 0;
    s->no_prepare = o->no_prepare != 0;
    s->down_since = tb_clock_now();
    s->down_why = TB_PEER_UNREACHABLE;
    snprintf(s->down_text, sizeof s->down_text, "no answer yet");
    snprintf(s->gateway_text, sizeof s->gateway_text, "%s", o->gateway);
    if (o->fabric_address != NULL)
        snprintf(s->fabric_address, sizeof s->fabric_address, "%s%s", o->fabric_address,
                 strrchr(o->fabric_address, ':') == NULL ? ":0" : "");
    tb_session_lock_init(s);
    const int status = session_fill(s, o);
    if (status == TB_OK)
        *s_out = s;
    else
        free_session(s);
    return status;
}

static int wait_until_up(struct tb_session *s, uint32_t timeout_ms)
{
    const struct tb_call call = tb_call_begin(s, timeout_ms);
    tb_session_lock(s);
    enum tb_status status = TB_OK;
    while (!s->up && !s->refused && status == TB_OK)
        status = tb_session_wait_change(s, &call);
    const enum tb_status why = s->down_why;
    const bool up = s->up, refused = s->refused;
    char text[sizeof s->down_text];
    memcpy(text, s->down_text, sizeof text);
    tb_session_unlock(s);
    if (up) return TB_OK;
    if (refused) return tb_fail(why, "the gateway at %s cannot be used: %s", s->gateway_text, text);
    return tb_fail(TB_GATEWAY_AWAY, "the gateway at %s did not answer in %u ms: %s", s->gateway_text,
                   timeout_ms, text);
}

int tb_session_open(const struct tb_session_options *options, struct tb_session **session_out)
{
    int status = check_options(options);
    if (status != TB_OK) return status;
    if (session_out == NULL) return tb_fail(TB_BAD_ARGUMENT, "session_out is NULL");
    /* of an older program: what it does not know is not asked for */
    struct tb_session_options all = {0};
    memcpy(&all, options, options->struct_bytes < sizeof all ? options->struct_bytes : sizeof all);
    struct tb_session *s = NULL;
    status = session_new(&all, &s);
    if (status != TB_OK) return status;
    status = tb_connection_open(s, &all);
    if (status == TB_OK)
        status = wait_until_up(s, options->open_timeout_ms == 0 ? OPEN_TIMEOUT_MS : options->open_timeout_ms);
    if (status == TB_OK) {
        *session_out = s;
        return TB_OK;
    }
    tb_session_close(s);
    return status;
}

/* ---- end ---- */

void tb_session_close(struct tb_session *session)
{
    struct tb_session *s = session;
    /* In a forked child the threads are not there and the memory is not mapped: what is left is the
     * kernel's to free. */
    if (s == NULL || s->pid != getpid()) return;
    tb_session_wait_for_calls(s);
    tb_prover_end(s);
    /* Hops and tasks of the pool wake the session thread: they end before its loop does. */
    tb_subscriptions_free(s);
    tb_publications_free(s);
    tb_reserves_end(s); /* else the crew would fill them to the end */
    tb_crew_free(s->crew);
    tb_connection_close(s);
    if (s->fabric != NULL) tb_fabric_close(s->fabric);
    s->fabric = NULL; /* and what NICs knew of the memory with it */
    tb_shadows_free(s);
    while (s->registrations != NULL)
        tb_registration_free(s->registrations);
    tb_buffers_free(s);
    tb_gpu_close(s->gpu); /* behind all that it pinned */
    tb_requests_drop(s);
    TB_ASSERT(s->requests == NULL);
    free_session(s);
}

int tb_session_eventfd(struct tb_session *session)
{
    const int status = tb_session_enter(session);
    if (status != TB_OK) return -1;
    const int fd = session->eventfd;
    tb_session_leave(session);
    return fd;
}

void tb_cancel(struct tb_session *session)
{
    if (tb_session_enter(session) != TB_OK) return;
    tb_session_lock(session);
    session->cancels++;
    tb_session_changed(session, false);
    tb_session_unlock(session);
    tb_session_leave(session);
}
