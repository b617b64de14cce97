/* web_server.c - see web_server.h. */
#include "gateway/web/web_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/web/metrics.h"
#include "gateway/web/page.h"

/* P7: a stranger can make nothing larger than these. */
#define CONNECTIONS_MAX      64u
#define CONNECTIONS_OF_ONE   32u
#define IDLE_S               5u
#define CONNECTION_BYTES_MAX ((size_t)32 << 10) /* for one request's head */
#define ASK_MS               2000u
#define FRESH_NS             TB_MS(1000)

struct tb_web_server {
    struct MHD_Daemon *http;
    const char *control;
    /* Its last answers, of the one thread that asks. NULL: it did not answer. */
    json_t *status, *lag, *versions;
    tb_time_ns asked_at;
    bool asked, silent; /* silent: that it does not answer was logged */
};

/* ---- the gateway's answers ---- */

static json_t *ask(struct tb_web_server *s, const char *command, char error[512])
{
    json_t *reply = NULL, *request = json_pack("{s:s}", "cmd", command);
    const enum tb_status status =
        request == NULL ? TB_SITE_NOMEM : tb_control_client_ask(s->control, request, ASK_MS, &reply, error);
    json_decref(request);
    return status == TB_OK ? reply : NULL;
}

static void forget(struct tb_web_server *s)
{
    json_decref(s->status);
    json_decref(s->lag);
    json_decref(s->versions);
    s->status = s->lag = s->versions = NULL;
}

static void told(struct tb_web_server *s, const char *error)
{
    const bool silent = s->status == NULL;
    if (silent && !s->silent) {
        struct tb_log_line line;
        tb_log_begin(&line, TB_LOG_WARN, "web.gateway_silent");
        tb_log_str(&line, "control", s->control);
        tb_log_str(&line, "why", error);
        tb_log_end(&line);
    }
    if (!silent && s->silent) tb_log(TB_LOG_INFO, "web.gateway_answers", "control=%s", s->control);
    s->silent = silent;
}

static void refresh(struct tb_web_server *s)
{
    char error[512] = "";
    const tb_time_ns now = tb_clock_now();
    if (s->asked && tb_time_since(s->asked_at, now) < FRESH_NS) return;
    forget(s);
    s->status = ask(s, "status", error);
    if (s->status != NULL) s->lag = ask(s, "lag", error);
    tb_lag_verdict_sort(json_object_get(s->lag, "lag"));
    if (s->status != NULL) s->versions = ask(s, "versions", error);
    s->asked = true;
    s->asked_at = tb_clock_now();
    told(s, error);
}

/* ---- answers ---- */

struct answer {
    unsigned code;
    const char *type;
    char *bytes; /* of open_memstream */
    size_t count;
};

static void write_metrics(struct tb_web_server *s, FILE *out, unsigned *code_out)
{
    const struct tb_web_facts facts = {s->status, s->lag, s->versions};
    tb_metrics_write(out, &facts);
    *code_out = MHD_HTTP_OK;
}

static void write_alive(struct tb_web_server *s, FILE *out, unsigned *code_out)
{
    *code_out = s->status != NULL ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    (void)fprintf(out, s->status != NULL ? "ok\n" : "the gateway does not answer on its control socket\n");
}

/* It takes versions and serves them, also while it recovers. */
static void write_ready(struct tb_web_server *s, FILE *out, unsigned *code_out)
{
    const char *why = NULL;
    if (s->status == NULL)
        why = "the gateway does not answer on its control socket";
    else if (json_is_true(json_object_get(s->status, "draining")))
        why = "the gateway drains";
    else if (!json_is_true(json_object_get(s->status, "store_ok")))
        why = "the gateway's store cannot be written";
    *code_out = why == NULL ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    (void)fprintf(out, "%s\n", why == NULL ? "ok" : why);
}

static void write_page(struct tb_web_server *s, FILE *out, unsigned *code_out)
{
    const struct tb_web_facts facts = {s->status, s->lag, s->versions};
    tb_page_write(out, &facts);
    *code_out = MHD_HTTP_OK;
}

static void write_style(struct tb_web_server *s, FILE *out, unsigned *code_out)
{
    (void)s;
    (void)fputs(tb_page_style(), out);
    *code_out = MHD_HTTP_OK;
}

static const struct route {
    const char *path, *type;
    void (*write)(struct tb_web_server *s, FILE *out, unsigned *code_out);
} routes[] = {
    {"/", "text/html; charset=utf-8", write_page},
    {"/style.css", "text/css; charset=utf-8", write_style},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics},
    {"/livez", "text/plain; charset=utf-8", write_alive},
    {"/readyz", "text/plain; charset=utf-8", write_ready},
};

static const struct route *route_of(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strcmp(routes[i].path, path) == 0) return &routes[i];
    return NULL;
}

/* False: no memory for it. */
static bool compose(struct tb_web_server *s, const struct route *route, struct answer *answer)
{
    FILE *out = open_memstream(&answer->bytes, &answer->count);
    if (out == NULL) return false;
    refresh(s);
    route->write(s, out, &answer->code);
    answer->type = route->type;
    const bool failed = ferror(out) != 0;
    return fclose(out) == 0 && !failed;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned code, const char *type,
                           struct MHD_Response *response)
{
    if (response == NULL) return MHD_NO; /* ends the connection */
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(
        response, "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    const enum MHD_Result queued = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result say_text(struct MHD_Connection *connection, unsigned code, const char *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
    if (response != NULL && code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    return say(connection, code, "text/plain; charset=utf-8", response);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **request)
{
    struct tb_web_server *s = user;
    struct answer answer = {.code = MHD_HTTP_OK};
    (void)version, (void)upload, (void)upload_bytes, (void)request;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD alone\n");
    const struct route *route = route_of(path);
    if (route == NULL)
        return say_text(connection, MHD_HTTP_NOT_FOUND, "there are /, /metrics, /livez and /readyz\n");
    if (!compose(s, route, &answer)) {
        free(answer.bytes);
        return say_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory\n");
    }
    return say(connection, answer.code, answer.type,
               MHD_create_response_from_buffer(answer.count, answer.bytes, MHD_RESPMEM_MUST_FREE));
}

/* ---- life ---- */

enum tb_status tb_web_server_open(const char *control, const struct sockaddr *at,
                                  struct tb_web_server **server_out)
{
    TB_ASSERT(control != NULL && (at->sa_family == AF_INET || at->sa_family == AF_INET6));
    const unsigned v6 = at->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    struct tb_web_server *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return TB_SITE_NOMEM;
    s->control = control;
    errno = 0;
    s->http = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | v6, 0, NULL, NULL,
                               on_request, s, MHD_OPTION_SOCK_ADDR, at, MHD_OPTION_CONNECTION_LIMIT,
                               CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE,
                               MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                               CONNECTION_BYTES_MAX, MHD_OPTION_END);
    if (s->http == NULL) {
        tb_free(s);
        return TB_BAD_ARGUMENT;
    }
    *server_out = s;
    return TB_OK;
}

uint16_t tb_web_server_port(const struct tb_web_server *server)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->http, MHD_DAEMON_INFO_BIND_PORT);
    TB_ASSERT(info != NULL);
    return info->port;
}

void tb_web_server_close(struct tb_web_server *server)
{
    if (server == NULL) return;
    MHD_stop_daemon(server->http);
    forget(server);
    tb_free(server);
}
