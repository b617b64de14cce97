/* web_server.c - see web_server.h. */
#include "gateway/web/web_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/web/metrics.h"
#include "gateway/web/page.h"
#include "gateway/web/page_updates.h"
#include "gateway/web/web_answers.h"
#include "gateway/web/web_assets.h"

/* P7: a stranger can make nothing larger than these. */
#define CONNECTIONS_MAX      64u
#define CONNECTIONS_OF_ONE   32u
#define IDLE_S               5u
#define CONNECTION_BYTES_MAX ((size_t)32 << 10) /* for one request's head */

struct tb_web_server {
    struct MHD_Daemon *http;
    pthread_mutex_t lock; /* of the answers, which two threads ask for */
    struct tb_web_answers answers;
    struct tb_page_updates *updates;
};

/* ---- answers ---- */

struct answer {
    unsigned code;
    const char *type;
    char *bytes; /* of open_memstream */
    size_t count;
};

static void write_metrics(const struct tb_web_facts *facts, FILE *out, unsigned *code_out)
{
    (void)code_out;
    tb_metrics_write(out, facts);
}

static bool answers(const struct tb_web_facts *facts)
{
    return facts->status != NULL && !facts->silent;
}

static void write_alive(const struct tb_web_facts *facts, FILE *out, unsigned *code_out)
{
    *code_out = answers(facts) ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    (void)fprintf(out, answers(facts) ? "ok\n" : "the gateway does not answer on its control socket\n");
}

/* It takes versions and serves them, also while it recovers. */
static void write_ready(const struct tb_web_facts *facts, FILE *out, unsigned *code_out)
{
    const char *why = NULL;
    if (!answers(facts))
        why = "the gateway does not answer on its control socket";
    else if (tb_facts_is_true(facts->status, "draining"))
        why = "the gateway drains";
    else if (!json_is_boolean(json_object_get(facts->status, "store_ok")))
        why = "whether the gateway's store can be written is not known";
    else if (!tb_facts_is_true(facts->status, "store_ok"))
        why = "the gateway's store cannot be written";
    *code_out = why == NULL ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    (void)fprintf(out, "%s\n", why == NULL ? "ok" : why);
}

#define METRICS_NEED                                                                                         \
    (TB_ANSWER_BIT(TB_ANSWER_LAG) | TB_ANSWER_BIT(TB_ANSWER_VERSIONS) | TB_ANSWER_BIT(TB_ANSWER_STREAMS))

static const struct route {
    const char *path, *type;
    unsigned needs;
    bool probe; /* it answers of now */
    void (*write)(const struct tb_web_facts *facts, FILE *out, unsigned *code_out);
} routes[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", METRICS_NEED, false, write_metrics},
    {"/livez", "text/plain; charset=utf-8", 0, true, write_alive},
    {"/readyz", "text/plain; charset=utf-8", 0, true, write_ready},
};

static const struct route *route_of(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strcmp(routes[i].path, path) == 0) return &routes[i];
    return NULL;
}

/* Asks the gateway for what is not fresh. The facts are borrowed under the lock. */
static void look(struct tb_web_server *s, unsigned needs, bool probe, struct tb_web_facts *facts_out)
{
    if (probe)
        tb_web_answers_probe(&s->answers);
    else
        tb_web_answers_refresh(&s->answers, needs);
    tb_web_answers_facts(&s->answers, needs, facts_out);
}

/* False: no memory for it. `route` NULL: the page at `place`. */
static bool compose(struct tb_web_server *s, const struct route *route, const struct tb_page_place *place,
                    struct answer *answer)
{
    struct tb_web_facts facts;
    FILE *out = open_memstream(&answer->bytes, &answer->count);
    if (out == NULL) return false;
    (void)pthread_mutex_lock(&s->lock);
    look(s, route != NULL ? route->needs : tb_page_needs(place->view), route != NULL && route->probe, &facts);
    if (route != NULL)
        route->write(&facts, out, &answer->code);
    else
        tb_page_write(out, &facts, *place);
    (void)pthread_mutex_unlock(&s->lock);
    answer->type = route != NULL ? route->type : "text/html; charset=utf-8";
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
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
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

static enum MHD_Result say_made(struct tb_web_server *s, struct MHD_Connection *connection,
                                const struct route *route, const struct tb_page_place *place)
{
    struct answer answer = {.code = MHD_HTTP_OK};
    if (!compose(s, route, place, &answer)) {
        free(answer.bytes);
        return say_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory\n");
    }
    return say(connection, answer.code, answer.type,
               MHD_create_response_from_buffer(answer.count, answer.bytes, MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result say_updates(struct tb_web_server *s, struct MHD_Connection *connection,
                                   struct tb_page_place place)
{
    struct MHD_Response *response = tb_page_updates_to(s->updates, connection, place);
    if (response == NULL)
        return say_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "too many have the page open\n");
    (void)MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* a proxy passes it on at once */
    return say(connection, MHD_HTTP_OK, "text/event-stream", response);
}

static enum MHD_Result say_asset(struct MHD_Connection *connection, const struct tb_web_asset *asset)
{
    return say(connection, MHD_HTTP_OK, asset->type,
               MHD_create_response_from_buffer(asset->count, (void *)asset->bytes, MHD_RESPMEM_PERSISTENT));
}

#define UPDATES "/updates"

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **request)
{
    struct tb_web_server *s = user;
    struct tb_page_place place;
    (void)version, (void)upload, (void)upload_bytes, (void)request;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD alone\n");
    const struct route *route = route_of(path);
    const struct tb_web_asset *asset = tb_web_asset_find(path);
    if (asset != NULL) return say_asset(connection, asset);
    if (route != NULL || tb_page_find(path, &place)) return say_made(s, connection, route, &place);
    if (strncmp(path, UPDATES, strlen(UPDATES)) == 0 && tb_page_find(path + strlen(UPDATES), &place))
        return say_updates(s, connection, place);
    return say_text(
        connection, MHD_HTTP_NOT_FOUND,
        "there are /, /sites, /versions, /links, /readers, /health, /metrics, /livez and /readyz\n");
}

/* ---- life ---- */

static struct MHD_Daemon *listen_at(struct tb_web_server *s, const struct sockaddr *at)
{
    const unsigned v6 = at->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    errno = 0;
    return MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | v6,
                            0, NULL, NULL, on_request, s, MHD_OPTION_SOCK_ADDR, at,
                            MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                            CONNECTIONS_OF_ONE, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES_MAX, MHD_OPTION_END);
}

enum tb_status tb_web_server_open(const char *control, const struct sockaddr *at,
                                  struct tb_web_server **server_out)
{
    TB_ASSERT(control != NULL && (at->sa_family == AF_INET || at->sa_family == AF_INET6));
    struct tb_web_server *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return TB_SITE_NOMEM;
    (void)pthread_mutex_init(&s->lock, NULL);
    enum tb_status status = tb_web_answers_open(&s->answers, control);
    if (status != TB_OK) goto undo_server;
    status = tb_page_updates_open(&s->answers, &s->lock, &s->updates);
    if (status != TB_OK) goto undo_answers;
    s->http = listen_at(s, at);
    status = TB_BAD_ARGUMENT;
    if (s->http == NULL) goto undo_updates;
    *server_out = s;
    return TB_OK;

undo_updates : {
    const int why = errno; /* the caller's */
    tb_page_updates_end(s->updates);
    tb_page_updates_free(s->updates);
    errno = why;
}
undo_answers:
    tb_web_answers_close(&s->answers);
undo_server:
    (void)pthread_mutex_destroy(&s->lock);
    tb_free(s);
    return status;
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
    tb_page_updates_end(server->updates);
    MHD_stop_daemon(server->http);
    tb_page_updates_free(server->updates);
    tb_web_answers_close(&server->answers);
    (void)pthread_mutex_destroy(&server->lock);
    tb_free(server);
}
