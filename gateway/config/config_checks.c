/* config_checks.c - what keys of a config say of one another. */
#include "gateway/config/config_read.h"
#include "gateway/config/model_rules.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>
#include <sys/un.h>

#include "base/assert.h"

/* The node of a path; the nearest one above it where it is not there. */
static const struct config_node *node_at(const struct config_reading *r, const char *a, const char *b,
                                         const char *c)
{
    const char *steps[] = {a, b, c};
    const struct config_node *at = r->root;
    for (uint32_t i = 0; i < 3 && steps[i] != NULL; i++) {
        const struct config_node *next = tb_config_node_find(at, steps[i]);
        if (next == NULL) break;
        at = next;
    }
    return at;
}

/* Complaints about an entry point at its key. */
static const struct config_node *key_at(const struct config_reading *r, const char *a, const char *b)
{
    const struct config_node *node = node_at(r, a, b, NULL);
    return node->key != NULL ? node->key : node;
}

static void check_numbers(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    if (c->link_down_ms <= c->link_heartbeat_ms)
        tb_config_complain(r, node_at(r, "link", "down_ms", NULL),
                           "link.down_ms: %" PRIu32 " is not above heartbeat_ms, %" PRIu32, c->link_down_ms,
                           c->link_heartbeat_ms);
    if (c->link_retry_max_ms < c->link_retry_min_ms)
        tb_config_complain(r, node_at(r, "link", "retry_max_ms", NULL),
                           "link.retry_max_ms: %" PRIu32 " is below retry_min_ms, %" PRIu32,
                           c->link_retry_max_ms, c->link_retry_min_ms);
    if (strcmp(c->gateway.text, "worker") == 0)
        tb_config_complain(r, node_at(r, "gateway", NULL, NULL),
                           "gateway: \"worker\" begins the names of workers");
}

static void check_sockets(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    const size_t most = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
    const struct {
        const char *section, *key, *path;
    } sockets[] = {{"control", "socket", c->control_socket},
                   {"control", "read", c->control_read},
                   {"session", "socket", c->session_socket}};
    for (uint32_t i = 0; i < sizeof sockets / sizeof sockets[0]; i++)
        if (sockets[i].path != NULL && strlen(sockets[i].path) > most)
            tb_config_complain(r, node_at(r, sockets[i].section, sockets[i].key, NULL),
                               "%s.%s: the path of a socket has at most %zu characters, this one %zu",
                               sockets[i].section, sockets[i].key, most, strlen(sockets[i].path));
}

static void check_tls(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    const struct {
        const char *key, *value;
    } files[] = {{"ca", c->tls_ca}, {"cert", c->tls_cert}, {"key", c->tls_key}};
    const bool needed = c->peer_count > 0 || c->session_listen != NULL || c->link_listen != NULL;
    for (uint32_t i = 0; i < 3; i++) {
        const struct config_node *section = node_at(r, "tls", NULL, NULL);
        if (files[i].value != NULL || tb_config_node_find(section, files[i].key) != NULL) continue;
        if (needed || c->tls_ca != NULL || c->tls_cert != NULL || c->tls_key != NULL)
            tb_config_complain(r, key_at(r, "tls", NULL),
                               "tls.%s: is required where there are peers, link.listen or session.listen",
                               files[i].key);
    }
}

/* The name that a lane's gateway has among the peers; false: it is no name. */
static bool label_of(const struct tb_name *site, uint32_t lane, struct tb_name *label_out)
{
    TB_ASSERT(lane < TB_CONFIG_LANES_MAX); /* the key has that range */
    char text[TB_NAME_BYTES_MAX + 16];
    if (lane == 0)
        snprintf(text, sizeof text, "%s", site->text);
    else
        snprintf(text, sizeof text, "%s.%" PRIu32, site->text, lane);
    return tb_name_set(label_out, text) == TB_OK;
}

/* The site that SITE.LANE speaks of; false: it is not named so. */
static bool site_of(struct tb_config_peer *p)
{
    TB_ASSERT(p->lane < TB_CONFIG_LANES_MAX);
    char end[16];
    const int bytes = snprintf(end, sizeof end, ".%" PRIu32, p->lane);
    struct tb_name of = p->site;
    const size_t all = strlen(of.text);
    if (p->lane > 0 && (all <= (size_t)bytes || strcmp(of.text + all - bytes, end) != 0)) return false;
    if (p->lane > 0) of.text[all - (size_t)bytes] = '\0';
    return tb_name_set(&p->of, of.text) == TB_OK;
}

static void check_lanes(struct config_reading *r)
{
    struct tb_config *c = r->config;
    TB_ASSERT(c->lanes >= 1 && c->lanes <= TB_CONFIG_LANES_MAX);
    if (c->lane >= c->lanes)
        tb_config_complain(r, node_at(r, "lane", NULL, NULL),
                           "lane: %" PRIu32 " is not below lanes, %" PRIu32, c->lane, c->lanes);
    if (!label_of(&c->site, c->lane, &c->label) && c->site.text[0] != '\0')
        tb_config_complain(r, node_at(r, "site", NULL, NULL),
                           "site: \"%s.%" PRIu32 "\" is too long for a name", c->site.text, c->lane);
    for (uint32_t i = 0; i < c->peer_count; i++) {
        struct tb_config_peer *p = &c->peers[i];
        if (!site_of(p))
            tb_config_complain(r, key_at(r, "peers", p->site.text),
                               "peers.%s: a gateway of lane %" PRIu32 " is named SITE.%" PRIu32, p->site.text,
                               p->lane, p->lane);
        else if (tb_name_equal(&p->of, &c->site) && p->lane >= c->lanes)
            tb_config_complain(r, key_at(r, "peers", p->site.text),
                               "peers.%s: lanes says that this site has %" PRIu32, p->site.text, c->lanes);
    }
}

/* A certificate says which peer it is. */
static void check_identity(struct config_reading *r, uint32_t index)
{
    const struct tb_config *c = r->config;
    TB_ASSERT(index < c->peer_count);
    const struct tb_config_peer *p = &c->peers[index];
    const struct config_node *at = node_at(r, "peers", p->site.text, "gateway");
    if (p->of.text[0] == '\0') return; /* said already */
    if (tb_name_equal(&p->of, &c->site) && tb_name_equal(&p->gateway, &c->gateway))
        tb_config_complain(r, at, "peers.%s.gateway: \"%s\" is this gateway's own name", p->site.text,
                           p->gateway.text);
    for (uint32_t i = 0; i < index; i++)
        if (tb_name_equal(&p->of, &c->peers[i].of) && tb_name_equal(&p->gateway, &c->peers[i].gateway))
            tb_config_complain(r, at, "peers.%s.gateway: \"%s\" is also that of peers.%s", p->site.text,
                               p->gateway.text, c->peers[i].site.text);
}

/* IPv6 has a colon, and a numeric address to dial a bracket before it. A name may lead to both. */
static void check_source(struct config_reading *r, const struct tb_config_peer *p)
{
    const struct config_node *at = node_at(r, "peers", p->site.text, "source");
    if (p->source == NULL) return;
    if (p->address == NULL) {
        tb_config_warn(r, at, "peers.%s.source: does nothing, as only that side dials", p->site.text);
        return;
    }
    struct in_addr v4;
    char host[INET_ADDRSTRLEN] = "";
    const size_t bytes = strcspn(p->address, ":");
    if (bytes < sizeof host) memcpy(host, p->address, bytes);
    const bool source6 = strchr(p->source, ':') != NULL, to6 = p->address[0] == '[';
    const bool to4 = inet_pton(AF_INET, host, &v4) == 1;
    if ((source6 && to4) || (!source6 && to6))
        tb_config_complain(r, at, "peers.%s.source: %s reaches no %s address, as peers.%s.address is",
                           p->site.text, p->source, to6 ? "IPv6" : "IPv4", p->site.text);
}

static void check_peers(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    for (uint32_t i = 0; i < c->peer_count; i++) {
        const struct tb_config_peer *p = &c->peers[i];
        if (tb_name_equal(&p->site, &c->label))
            tb_config_complain(r, key_at(r, "peers", p->site.text),
                               c->lane == 0 ? "peers.%s: is this site itself"
                                            : "peers.%s: is this gateway itself",
                               p->site.text);
        else
            check_identity(r, i);
        check_source(r, p);
        if (strcmp(p->gateway.text, "worker") == 0)
            tb_config_complain(r, node_at(r, "peers", p->site.text, "gateway"),
                               "peers.%s.gateway: \"worker\" begins the names of workers", p->site.text);
        if (p->address == NULL && c->link_listen == NULL &&
            tb_config_node_find(node_at(r, "peers", p->site.text, NULL), "address") == NULL)
            tb_config_complain(
                r, key_at(r, "peers", p->site.text),
                "peers.%s: nobody can dial: give its address here, or link.listen so that it can dial",
                p->site.text);
    }
}

static bool is_site_of_peer(const struct tb_config *c, const struct tb_name *site)
{
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (tb_name_equal(&c->peers[i].of, site)) return true;
    return false;
}

/* Of a peer only its own word counts: to name one here would do nothing. */
static void check_speaks_for(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    for (uint32_t i = 0; i < c->peer_count; i++) {
        const struct tb_config_peer *p = &c->peers[i];
        for (uint32_t k = 0; k < p->speaks_for_count; k++)
            if (tb_name_equal(&p->speaks_for[k], &c->site) || is_site_of_peer(c, &p->speaks_for[k]))
                tb_config_complain(
                    r, node_at(r, "peers", p->site.text, "speaks_for"),
                    "peers.%s.speaks_for: \"%s\" speaks for itself: it is this site, or one of "
                    "peers",
                    p->site.text, p->speaks_for[k].text);
    }
}

/* The first match counts, so a row behind one that matches all of it never would. */
static void check_patterns(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    for (uint32_t i = 0; i < c->model_count; i++) {
        const struct tb_config_model *m = &c->models[i], *first = NULL;
        for (uint32_t k = 0; k < i && first == NULL; k++)
            if (c->models[k].is_pattern && tb_model_pattern_matches(c->models[k].name.text, m->name.text))
                first = &c->models[k];
        if (first != NULL)
            tb_config_complain(
                r, key_at(r, "models", m->name.text),
                "models.%s: never counts, because models.%s before it matches it: put it first", m->name.text,
                first->name.text);
    }
}

static bool is_peer(const struct tb_config *c, const struct tb_name *site)
{
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (tb_name_equal(&c->peers[i].site, site)) return true;
    return false;
}

/* P3: a copy counts by its holder's own word, and only a peer's own word is heard. */
static void check_durable(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    for (uint32_t i = 0; i < c->model_count; i++) {
        const struct tb_config_model *m = &c->models[i];
        for (uint32_t k = 0; k < m->durable_count; k++)
            if (!is_site_of_peer(c, &m->durable[k]))
                tb_config_complain(r, node_at(r, "models", m->name.text, "durable"),
                                   "models.%s.durable: \"%s\" is not the site of one of peers", m->name.text,
                                   m->durable[k].text);
    }
}

/* A relay may bring it: so this is no error. */
static void warn_of_homes(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    for (uint32_t i = 0; i < c->model_count; i++) {
        const struct tb_config_model *m = &c->models[i];
        if (m->home.text[0] == '\0' || tb_name_equal(&m->home, &c->label) || is_peer(c, &m->home)) continue;
        tb_config_warn(
            r, node_at(r, "models", m->name.text, "home"),
            "models.%s.home: \"%s\" is not one of peers: the model comes only through a peer that relays it",
            m->name.text, m->home.text);
    }
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

static void warn_of_fabric(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    if (c->session_listen == NULL || c->fabric_listen == NULL) return;
    if (is_loopback(c->session_listen) || !is_loopback(c->fabric_listen)) return;
    tb_config_warn(r, node_at(r, "session", "listen", NULL),
                   "session.listen: workers of other hosts may come to %s, and none of them can read from "
                   "fabric.listen, %s",
                   c->session_listen, c->fabric_listen);
}

/* `*` of a key that is not given; what two keys name has one owner. Port 0 is
 * another port each time. */
static void check_shared(struct config_reading *r)
{
    const struct tb_config *c = r->config;
    const struct {
        const char *section, *key, *value;
        bool address;
    } places[] = {
        {"control", "socket", c->control_socket, false}, {"control", "read", c->control_read, false},
        {"session", "socket", c->session_socket, false}, {"store", "path", c->store_path, false},
        {"audit", "file", c->audit_file, false},         {"arena", "path", c->arena_path, false},
        {"session", "listen", c->session_listen, true},  {"link", "listen", c->link_listen, true},
        {"fabric", "listen", c->fabric_listen, true}};
    for (uint32_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *value = places[i].value;
        const size_t bytes = value != NULL ? strlen(value) : 0;
        if (bytes == 0 || (places[i].address && bytes > 2 && strcmp(value + bytes - 2, ":0") == 0)) continue;
        for (uint32_t k = 0; k < i; k++)
            if (places[k].value != NULL && strcmp(places[k].value, value) == 0)
                tb_config_complain(r, node_at(r, places[i].section, places[i].key, NULL),
                                   "%s.%s: \"%s\" is also %s.%s", places[i].section, places[i].key, value,
                                   places[k].section, places[k].key);
    }
}

/* `item` is the list's node for this subscription. A name that was refused before is empty:
 * nothing more is said of it. */
static void check_from(struct config_reading *r, const struct config_node *item)
{
    const struct tb_config *c = r->config;
    TB_ASSERT(item->kind == CONFIG_MAP);
    const struct config_node *from = tb_config_node_find(item, "from");
    if (from == NULL || from->kind != CONFIG_LIST) return;
    if (from->first == NULL) tb_config_complain(r, from, "subscribe: from names no site");
    for (const struct config_node *n = from->first; n != NULL; n = n->next) {
        struct tb_name site;
        if (n->kind != CONFIG_SCALAR || tb_name_set(&site, n->text) != TB_OK) continue;
        if (!is_peer(c, &site))
            tb_config_complain(r, n, "subscribe: from \"%s\": is not one of peers", site.text);
        for (const struct config_node *m = from->first; m != n; m = m->next)
            if (m->kind == CONFIG_SCALAR && strcmp(m->text, n->text) == 0)
                tb_config_complain(r, n, "subscribe: from \"%s\": is named twice", site.text);
    }
}

/* A home alone wakes the models of its patterns (tb_model_announced). */
static void warn_of_relays(struct config_reading *r, const struct config_node *at,
                           const struct tb_config_subscribe *s, const struct tb_config_model *model)
{
    bool from_home = s->from_count == 0 || model->home.text[0] == '\0'; /* refused elsewhere */
    for (uint32_t i = 0; i < s->from_count; i++)
        from_home |= tb_name_equal(&s->from[i], &model->home);
    if (!model->is_pattern || from_home) return;
    tb_config_warn(r, at,
                   "subscribe: model \"%s\": a model of a pattern is followed from its home, and from does "
                   "not list \"%s\": it comes only while a worker here subscribes to it",
                   s->model.text, model->home.text);
}

static void check_subscription(struct config_reading *r, uint32_t index, const struct config_node *item)
{
    const struct tb_config *c = r->config;
    TB_ASSERT(index < c->subscribe_count && item->kind == CONFIG_MAP);
    const struct tb_config_subscribe *s = &c->subscribe[index];
    const struct config_node *at = tb_config_node_find(item, "model");
    if (at == NULL || s->model.text[0] == '\0') return;
    const struct tb_config_model *model = tb_config_model_for(c, &s->model);
    if (model == NULL)
        tb_config_complain(r, at, "subscribe: model \"%s\": is not one of models", s->model.text);
    else if (tb_name_equal(&model->home, &c->label))
        tb_config_complain(r, at, "subscribe: model \"%s\": this site is its home", s->model.text);
    else
        warn_of_relays(r, at, s, model);
    for (uint32_t i = 0; i < index; i++)
        if (tb_name_equal(&c->subscribe[i].model, &s->model))
            tb_config_complain(r, at, "subscribe: model \"%s\": is subscribed before", s->model.text);
    check_from(r, item);
}

/* Of this site, or of a peer of any lane. */
static bool has_ca(const struct tb_config *c, const struct tb_name *home)
{
    if (tb_name_equal(home, &c->label) || tb_name_equal(home, &c->site)) return true;
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (tb_name_equal(&c->peers[i].site, home) || tb_name_equal(&c->peers[i].of, home)) return true;
    return false;
}

/* P2: of a home that no CA stands behind no version would count. */
static void check_home_ca(struct config_reading *r, const struct tb_config_subscribe *s)
{
    const struct tb_config *c = r->config;
    const struct tb_config_model *m = tb_config_model_for(c, &s->model);
    bool may_be_unsigned = s->from_count > 0;
    for (uint32_t i = 0; i < c->peer_count; i++)
        for (uint32_t k = 0; k < s->from_count; k++)
            if (tb_name_equal(&c->peers[i].site, &s->from[k])) may_be_unsigned &= c->peers[i].is_unsigned;
    if (m == NULL || m->home.text[0] == '\0' || m->home_ca != NULL || may_be_unsigned) return;
    if (has_ca(c, &m->home)) return;
    const struct config_node *model = node_at(r, "models", m->name.text, NULL);
    if (tb_config_node_find(model, "home_ca") != NULL) return; /* refused before */
    tb_config_complain(r, key_at(r, "models", m->name.text),
                       "models.%s.home_ca: \"%s\" is not one of peers, so the CA of that home is needed",
                       m->name.text, m->home.text);
}

static void check_subscribe(struct config_reading *r)
{
    const struct config_node *list = tb_config_node_find(r->root, "subscribe");
    uint32_t index = 0;
    if (list == NULL || list->kind != CONFIG_LIST) return;
    for (const struct config_node *item = list->first; item != NULL; item = item->next)
        if (item->kind == CONFIG_MAP && index < r->config->subscribe_count)
            check_subscription(r, index++, item);
    for (uint32_t i = 0; i < r->config->subscribe_count; i++)
        check_home_ca(r, &r->config->subscribe[i]);
}

void tb_config_check(struct config_reading *r)
{
    TB_ASSERT(r->config->peer_count <= TB_CONFIG_LIST_MAX && r->config->model_count <= TB_CONFIG_LIST_MAX);
    TB_ASSERT(r->config->subscribe_count <= TB_CONFIG_LIST_MAX);
    check_numbers(r);
    check_sockets(r);
    check_tls(r);
    check_lanes(r);
    check_peers(r);
    check_speaks_for(r);
    check_patterns(r);
    check_subscribe(r);
    check_durable(r);
    check_shared(r);
    warn_of_homes(r);
    warn_of_fabric(r);
}
