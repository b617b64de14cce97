/* resolve.c - c-ares on a libuv loop: its sockets on uv_poll, its time on one uv_timer.
 *
 * c-ares calls back from inside its own calls, where it must not be destroyed, and a numeric host
 * has its answer before tb_resolve returns. So an answer is put into a list first, and one uv_idle
 * delivers what is there on the next turn.
 *
 * A query has two holders: c-ares until its callbacks have run, and we until the answer is
 * delivered. The deadline ends only the second, since c-ares cannot cancel one query of a channel.
 * A service is asked for its targets first, then all of them at once for their addresses.
 *
 * Of a server that drops AAAA c-ares tells the A only when it gave AAAA up, so that must not be
 * near the deadline. Each family asked alone would have them apart, but not be answered by a hosts
 * file that knows the other family alone. */
#include "base/net/resolve.h"

#include <ares.h>
#include <pthread.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/srv.h"

#define TIMEOUT_MS_DEFAULT 5000
#define TRIES              3  /* c-ares doubles the wait each time: 1 + 2 + 4 */
#define TRY_SHARE          12 /* so c-ares ends at 7/12 and three ticks, well before our deadline */
#define TRY_MS_MIN         20
#define TICK_MS            50
#define TTL_S_NUMERIC      86400
#define TTL_S_MIN          5 /* a zone (or a hosts file) that says 0 must not make us ask without rest */
#define TTL_S_MAX          86400
#define CLASS_IN           1
#define TYPE_SRV           33

/* One name with its port: the host itself, or what a service names. */
struct target {
    struct query *query;
    uint16_t port;
    uint32_t count;
    struct tb_address addresses[TB_ADDRESSES_MAX];
};

struct query {
    struct tb_resolver *resolver;
    struct query *next;
    tb_resolve_fn fn; /* NULL once delivered */
    void *user;
    uint32_t in_ares;     /* callbacks of c-ares that are to come */
    bool answered;        /* status and below are set */
    uint64_t deadline_ms; /* loop time */
    enum tb_status status;
    uint32_t count;
    uint32_t ttl_s;
    struct tb_address addresses[TB_ADDRESSES_MAX];
    enum tb_status failure; /* of the targets: the one that says most */
    uint32_t target_count;
    struct target targets[TB_SRV_TARGETS_MAX];
};

/* A socket of c-ares. */
struct watch {
    uv_poll_t poll;
    struct watch *next;
    struct tb_resolver *resolver;
    ares_socket_t fd;
};

struct tb_resolver {
    uv_loop_t *loop;
    uv_timer_t tick;
    uv_idle_t deliver;
    uint32_t handles;
    bool closing;
    uint32_t timeout_ms;
    ares_channel channel;
    struct query *queries;
    struct watch *watches;
};

static pthread_once_t ares_once = PTHREAD_ONCE_INIT;
static int ares_ready = ARES_ENOTINITIALIZED;

static void ares_begin(void)
{
    ares_ready = ares_library_init(ARES_LIB_INIT_ALL);
}

/* Queries. */

static void update(struct tb_resolver *r)
{
    if (r->closing) return;
    bool answers = false, waits = false;
    for (const struct query *q = r->queries; q != NULL; q = q->next) {
        answers |= q->answered;
        waits |= q->in_ares > 0 || !q->answered;
    }
    if (!answers) uv_idle_stop(&r->deliver);
    if (!waits) uv_timer_stop(&r->tick);
}

static void unlink_query(struct query *q)
{
    TB_ASSERT(q->resolver->queries != NULL);
    struct query **at = &q->resolver->queries;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
}

static void drop(struct query *q)
{
    if (q->in_ares > 0 || q->fn != NULL) return;
    unlink_query(q);
    tb_free(q);
}

/* Calls back and lets go. The callback may close the resolver, which frees what is in the list: so
 * the query leaves the list first, or, when c-ares still holds it (then the deadline was sooner),
 * is not touched after the call. */
static void tell(struct query *q, enum tb_status status)
{
    TB_ASSERT(q->fn != NULL && (status != TB_OK || q->count > 0)); /* an answer comes once */
    const tb_resolve_fn fn = q->fn;
    const bool ours = q->in_ares == 0;
    q->fn = NULL;
    q->answered = false;
    if (ours) unlink_query(q);
    if (status == TB_OK)
        fn(q->user, TB_OK, q->addresses, q->count, q->ttl_s);
    else
        fn(q->user, status, NULL, 0, 0);
    if (ours) tb_free(q);
}

static struct query *find_answered(const struct tb_resolver *r)
{
    struct query *q = r->queries;
    while (q != NULL && !(q->answered && q->fn != NULL))
        q = q->next;
    return q;
}

static void on_deliver(uv_idle_t *idle)
{
    struct tb_resolver *r = idle->data;
    /* Each callback may ask again or close the resolver, so the list is searched anew. */
    for (struct query *q; !r->closing && (q = find_answered(r)) != NULL;)
        tell(q, q->status);
    update(r);
}

static void on_tick(uv_timer_t *timer);

static void answer(struct query *q, enum tb_status status)
{
    TB_ASSERT(!q->answered && q->fn != NULL);
    TB_ASSERT(status != TB_OK || (q->count > 0 && q->count <= TB_ADDRESSES_MAX));
    q->answered = true;
    q->status = status;
    if (!q->resolver->closing) uv_idle_start(&q->resolver->deliver, on_deliver);
}

static void on_tick(uv_timer_t *timer)
{
    struct tb_resolver *r = timer->data;
    const uint64_t now = uv_now(r->loop);
    ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD); /* its own timeouts */
    for (struct query *q = r->queries; q != NULL; q = q->next)
        if (!q->answered && q->fn != NULL && now >= q->deadline_ms) answer(q, TB_PEER_UNREACHABLE);
    update(r);
}

/* Answers. */

static enum tb_status judge(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return TB_OK;
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_EBADNAME:
    case ARES_ENONAME:
        return TB_NOT_FOUND;
    case ARES_ENOMEM:
        return TB_SITE_NOMEM;
    case ARES_EDESTRUCTION:
    case ARES_ECANCELLED:
        return TB_CANCELLED;
    default:
        return TB_PEER_UNREACHABLE;
    }
}

/* The next node of the family at or after `node`; NULL if none. */
static const struct ares_addrinfo_node *next_of(const struct ares_addrinfo_node *node, int family)
{
    while (node != NULL && node->ai_family != family)
        node = node->ai_next;
    return node;
}

static void take(struct target *t, const struct ares_addrinfo_node *node)
{
    TB_ASSERT(t->count < TB_ADDRESSES_MAX && (node->ai_family == AF_INET || node->ai_family == AF_INET6));
    struct tb_address *a = &t->addresses[t->count++];
    *a = (struct tb_address){0};
    memcpy(&a->any, node->ai_addr, node->ai_family == AF_INET ? sizeof a->v4 : sizeof a->v6);
    a->bytes = node->ai_family == AF_INET ? sizeof a->v4 : sizeof a->v6;
    if (node->ai_family == AF_INET)
        a->v4.sin_port = htons(t->port);
    else
        a->v6.sin6_port = htons(t->port);
    if (node->ai_ttl >= 0 && (uint32_t)node->ai_ttl < t->query->ttl_s)
        t->query->ttl_s = (uint32_t)node->ai_ttl;
}

/* IPv6 and IPv4 in turn, so that a path that swallows one family costs one dial and not all of
 * them. */
static void interleave(struct target *t, const struct ares_addrinfo_node *nodes)
{
    const struct ares_addrinfo_node *six = next_of(nodes, AF_INET6);
    const struct ares_addrinfo_node *four = next_of(nodes, AF_INET);
    while ((six != NULL || four != NULL) && t->count < TB_ADDRESSES_MAX) {
        if (six != NULL) {
            take(t, six);
            six = next_of(six->ai_next, AF_INET6);
        }
        if (four != NULL && t->count < TB_ADDRESSES_MAX) {
            take(t, four);
            four = next_of(four->ai_next, AF_INET);
        }
    }
}

/* Every target was asked for: their addresses in the targets' order. */
static void gather(struct query *q)
{
    for (uint32_t i = 0; i < q->target_count; i++) {
        const struct target *t = &q->targets[i];
        for (uint32_t k = 0; k < t->count && q->count < TB_ADDRESSES_MAX; k++)
            q->addresses[q->count++] = t->addresses[k];
    }
    TB_ASSERT(q->in_ares == 0 && q->count <= TB_ADDRESSES_MAX);
    if (q->ttl_s < TTL_S_MIN) q->ttl_s = TTL_S_MIN;
    if (q->ttl_s > TTL_S_MAX) q->ttl_s = TTL_S_MAX;
    answer(q, q->count > 0 ? TB_OK : q->failure);
}

/* A name that does not exist says less than a server that could not be asked: with the first
 * another try is vain. */
static void on_target(void *user, int status, int timeouts, struct ares_addrinfo *info)
{
    (void)timeouts;
    struct target *t = user;
    struct query *q = t->query;
    const enum tb_status result = judge(status);
    if (result == TB_OK) interleave(t, info->nodes);
    if (result != TB_OK && result != TB_NOT_FOUND) q->failure = result;
    if (info != NULL) ares_freeaddrinfo(info);
    TB_ASSERT(q->in_ares > 0);
    if (--q->in_ares > 0) return;
    if (q->fn == NULL)
        drop(q); /* the deadline was sooner */
    else if (!q->answered)
        gather(q);
}

/* c-ares may call back from inside, so all are counted before the first is asked. */
static void ask_targets(struct query *q, const struct tb_srv_answer *srv)
{
    const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC, .ai_flags = ARES_AI_NOSORT};
    TB_ASSERT(srv->count >= 1 && srv->count <= TB_SRV_TARGETS_MAX && q->in_ares == 0);
    q->failure = TB_NOT_FOUND;
    q->target_count = srv->count;
    q->in_ares += srv->count;
    for (uint32_t i = 0; i < srv->count; i++) {
        q->targets[i].query = q;
        q->targets[i].port = srv->targets[i].port;
        ares_getaddrinfo(q->resolver->channel, srv->targets[i].host, NULL, &hints, on_target, &q->targets[i]);
    }
}

static void on_service(void *user, int status, int timeouts, unsigned char *message, int bytes)
{
    (void)timeouts;
    struct query *q = user;
    struct tb_srv_answer srv;
    uint64_t random = 0;
    enum tb_status result = judge(status);
    TB_ASSERT(q->in_ares == 1); /* the service is asked for alone */
    q->in_ares--;
    if (q->fn == NULL) {
        drop(q);
        return;
    }
    if (q->answered) return; /* the deadline is sooner */
    if (result == TB_OK) result = tb_srv_read(message, (size_t)bytes, &srv);
    if (result != TB_OK) {
        answer(q, result);
        return;
    }
    if (srv.ttl_s < q->ttl_s) q->ttl_s = srv.ttl_s;
    tb_random_bytes(&random, sizeof random);
    tb_srv_order(&srv, random);
    ask_targets(q, &srv);
}

/* Sockets. */

static void on_watch_closed(uv_handle_t *handle)
{
    tb_free(handle->data);
}

static void on_watch(uv_poll_t *poll, int status, int events)
{
    const struct watch *w = poll->data;
    struct tb_resolver *r = w->resolver;
    const ares_socket_t fd = w->fd; /* c-ares may close it, and w with it */
    const bool readable = status < 0 || (events & UV_READABLE) != 0;
    const bool writable = status < 0 || (events & UV_WRITABLE) != 0;
    ares_process_fd(r->channel, readable ? fd : ARES_SOCKET_BAD, writable ? fd : ARES_SOCKET_BAD);
}

static struct watch *watch_find(struct tb_resolver *r, ares_socket_t fd)
{
    struct watch *w = r->watches;
    while (w != NULL && w->fd != fd)
        w = w->next;
    return w;
}

/* Without memory the socket is not watched: its query ends by the deadline. */
static struct watch *watch_add(struct tb_resolver *r, ares_socket_t fd)
{
    struct watch *w = tb_calloc(1, sizeof *w);
    if (w == NULL || uv_poll_init(r->loop, &w->poll, fd) != 0) {
        tb_free(w);
        return NULL;
    }
    w->poll.data = w;
    w->resolver = r;
    w->fd = fd;
    w->next = r->watches;
    r->watches = w;
    return w;
}

static void watch_remove(struct tb_resolver *r, struct watch *w)
{
    struct watch **at = &r->watches;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    uv_close((uv_handle_t *)&w->poll, on_watch_closed);
}

static void on_socket(void *user, ares_socket_t fd, int readable, int writable)
{
    struct tb_resolver *r = user;
    struct watch *w = watch_find(r, fd);
    if (readable == 0 && writable == 0) {
        if (w != NULL) watch_remove(r, w); /* c-ares closes fd when this returns */
        return;
    }
    if (w == NULL) w = watch_add(r, fd);
    if (w != NULL)
        uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_watch);
}

/* Beginnings and ends. */

static enum tb_status channel_open(struct tb_resolver *r, const char *servers)
{
    TB_ASSERT(r->timeout_ms > 0);
    uint32_t try_ms = r->timeout_ms / TRY_SHARE;
    if (try_ms < TRY_MS_MIN) try_ms = TRY_MS_MIN;
    struct ares_options o = {
        .timeout = (int)try_ms, .tries = TRIES, .sock_state_cb = on_socket, .sock_state_cb_data = r};
    const int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB;
    int result = ares_init_options(&r->channel, &o, mask);
    if (result != ARES_SUCCESS) return result == ARES_ENOMEM ? TB_SITE_NOMEM : TB_SITE_IO;
    if (servers != NULL) result = ares_set_servers_ports_csv(r->channel, servers);
    if (result == ARES_SUCCESS) return TB_OK;
    ares_destroy(r->channel);
    return result == ARES_ENOMEM ? TB_SITE_NOMEM : TB_BAD_ARGUMENT;
}

enum tb_status tb_resolver_new(uv_loop_t *loop, const struct tb_resolver_options *options,
                               struct tb_resolver **resolver_out)
{
    static const struct tb_resolver_options defaults;
    if (options == NULL) options = &defaults;
    pthread_once(&ares_once, ares_begin);
    if (ares_ready != ARES_SUCCESS) return TB_SITE_NOMEM;
    struct tb_resolver *r = tb_calloc(1, sizeof *r);
    if (r == NULL) return TB_SITE_NOMEM;
    r->loop = loop;
    r->timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_MS_DEFAULT;
    const enum tb_status status = channel_open(r, options->servers);
    if (status != TB_OK) {
        tb_free(r);
        return status;
    }
    uv_timer_init(loop, &r->tick);
    uv_idle_init(loop, &r->deliver);
    r->tick.data = r->deliver.data = r;
    r->handles = 2;
    *resolver_out = r;
    return TB_OK;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct tb_resolver *r = handle->data;
    TB_ASSERT(r->closing && r->queries == NULL && r->handles > 0);
    if (--r->handles == 0) tb_free(r);
}

void tb_resolver_close(struct tb_resolver *r)
{
    if (r == NULL || r->closing) return;
    r->closing = true;
    ares_destroy(r->channel); /* ends what c-ares holds: from here on no query is in it */
    while (r->queries != NULL) {
        TB_ASSERT(r->queries->in_ares == 0);
        if (r->queries->fn != NULL)
            tell(r->queries, TB_CANCELLED);
        else
            drop(r->queries);
    }
    uv_close((uv_handle_t *)&r->tick, on_handle_closed);
    uv_close((uv_handle_t *)&r->deliver, on_handle_closed);
}

static void ask(struct query *q, const struct tb_endpoint *endpoint)
{
    TB_ASSERT(q->in_ares == 0 && !q->answered && !endpoint->is_unix);
    struct tb_resolver *r = q->resolver;
    if (!uv_is_active((uv_handle_t *)&r->tick)) uv_timer_start(&r->tick, on_tick, TICK_MS, TICK_MS);
    if (endpoint->is_service) {
        q->in_ares = 1;
        ares_query(r->channel, endpoint->host, CLASS_IN, TYPE_SRV, on_service, q);
        return;
    }
    struct tb_srv_answer one = {.count = 1, .targets = {{.port = endpoint->port}}};
    memcpy(one.targets[0].host, endpoint->host, sizeof one.targets[0].host);
    ask_targets(q, &one);
}

void tb_resolve(struct tb_resolver *r, const struct tb_endpoint *endpoint, tb_resolve_fn fn, void *user)
{
    TB_ASSERT(fn != NULL);
    struct query *q = r->closing ? NULL : tb_calloc(1, sizeof *q);
    if (q == NULL) {
        fn(user, r->closing ? TB_CANCELLED : TB_SITE_NOMEM, NULL, 0, 0);
        return;
    }
    uv_update_time(r->loop);
    *q = (struct query){.resolver = r, .fn = fn, .user = user, .ttl_s = TTL_S_NUMERIC, .next = r->queries};
    q->deadline_ms = uv_now(r->loop) + r->timeout_ms;
    r->queries = q;
    const enum tb_status status = tb_endpoint_address(endpoint, &q->addresses[0]);
    q->count = status == TB_OK ? 1 : 0;
    if (status == TB_NOT_FOUND)
        ask(q, endpoint);
    else
        answer(q, status);
}
