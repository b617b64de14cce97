/* start_checks.c - see start_checks.h; in the order in which daemon.c opens things. */
#include "gateway/config/start_checks.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/net/listen.h"
#include "base/net/resolve.h"
#include "base/net/tcp.h"
#include "gateway/arena/arena.h"
#include "gateway/config/disk_files.h"
#include "gateway/config/gateway_tls.h"
#include "gateway/config/model_rules.h"
#include "gateway/disk/anchor_folder.h"
#include "gateway/store/store.h"
#include "gateway/store/store_load.h"

struct checks {
    const struct tb_config *config;
    tb_start_find_fn find;
    void *user;
    struct tb_disk_files *files;
};

__attribute__((format(printf, 4, 5))) static void found(const struct checks *c, const char *key, bool refuses,
                                                        const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->find(c->user, &(struct tb_start_finding){key, refuses, text});
}

static void check_descriptors(const struct checks *c)
{
    char limit[TB_DESCRIPTORS_TEXT_MAX] = "";
    if (!tb_descriptors_allowed(c->config, limit)) /* a service has limits of its own */
        found(c, "session.max", false, "%s; a start from here would be refused", limit);
}

/* The key of the file that the sentence names. */
static const char *file_at_fault(const struct tb_config *config, const char *error, char key_out[160])
{
    for (uint32_t i = 0; i < config->peer_count; i++) {
        const struct tb_config_peer *p = &config->peers[i];
        (void)snprintf(key_out, 160, "peers.%s.ca", p->site.text);
        if (p->ca != NULL && strstr(error, p->ca) != NULL) return key_out;
    }
    TB_ASSERT(config->tls_key != NULL && config->tls_ca != NULL); /* config_checks.c: all three or none */
    if (config->tls_revoked != NULL && strstr(error, config->tls_revoked) != NULL) return "tls.revoked";
    if (config->tls_spiffe != NULL && strstr(error, config->tls_spiffe) != NULL) return "tls.spiffe";
    if (strstr(error, config->tls_key) != NULL) return "tls.key";
    return strstr(error, config->tls_ca) != NULL ? "tls.ca" : "tls.cert";
}

static void check_expiry(const struct checks *c, const struct tb_tls *tls)
{
    const time_t ends = (time_t)tb_tls_expires_wall_s(tls);
    const uint64_t now = tb_clock_wall_ms() / 1000;
    char at[32];
    struct tm utc;
    if (ends == 0 || (uint64_t)ends > now + TB_START_EXPIRES_SOON_S) return;
    (void)strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", gmtime_r(&ends, &utc));
    found(c, "tls.cert", false, "tls.cert: %.300s ends at %s UTC, in %llu hours: renew it",
          c->config->tls_cert, at, ((unsigned long long)ends - now) / 3600);
}

static void check_tls(const struct checks *c)
{
    struct tb_tls *tls = NULL;
    char error[512] = "", key[160];
    if (c->config->tls_cert == NULL) return;
    if (tb_gateway_tls(c->config, &tls, error) != TB_OK)
        found(c, file_at_fault(c->config, error, key), true, "tls: %s", error);
    else
        check_expiry(c, tls);
    tb_tls_free(tls);
}

/* Rows of a model that is not configured any more are passed over. */
static bool is_configured(const struct checks *c, const struct tb_name *model)
{
    return tb_config_model_for(c->config, model) != NULL;
}

/* The rows that the catalog refuses to restore. */
static enum tb_status run_look(void *user, const struct tb_catalog_run *run)
{
    if (!is_configured(user, &run->model)) return TB_OK;
    return run->order == 0 || tb_id_is_zero(&run->id) ? TB_BAD_ARGUMENT : TB_OK;
}

static enum tb_status version_look(void *user, const struct tb_store_version *v)
{
    if (!is_configured(user, &v->key.model)) return TB_OK;
    const bool sound =
        !tb_id_is_zero(&v->key.uid) && v->key.shard_count > 0 && v->key.shard_count <= TB_CATALOG_SHARDS;
    return sound ? TB_OK : TB_BAD_ARGUMENT;
}

/* False: the files' keys do not fit, and there is no more to say of what is inside. */
static bool check_disk(const struct checks *c)
{
    struct tb_disk_problem problem = {.key = "disk.key"};
    enum tb_status status = tb_disk_files_read(c->config, c->files, &problem);
    if (status == TB_OK) status = tb_disk_files_look(c->config, c->files, &problem);
    if (status != TB_OK) found(c, problem.key, true, "%s", problem.text);
    return status == TB_OK;
}

static void check_store(const struct checks *c)
{
    char error[256] = "";
    const char *path = c->config->store_path;
    struct checks mine = *c;
    const enum tb_status status = tb_store_check(path, &c->files->keys, run_look, version_look, &mine, error);
    if (status != TB_OK) found(c, "store.path", status != TB_SITE_LOCKED, "store.path: %s", error);
}

static void check_arena(const struct checks *c)
{
    const struct tb_arena_options options = {c->config->arena_path, c->config->arena_bytes};
    char error[TB_ARENA_ERROR_BYTES] = "";
    struct tb_arena_look look;
    const enum tb_status status = tb_arena_check(&options, &look, error);
    const bool size = status == TB_SITE_NOMEM || look.too_small;
    if (status != TB_OK)
        found(c, size ? "arena.bytes" : "arena.path", status != TB_SITE_LOCKED, "%s: %s",
              size ? "arena.bytes" : "arena.path", error);
    if (!look.in_memory)
        found(c, "arena.path", false,
              "arena.path: %.300s is on a disk, and every landed byte is written to it: put it on tmpfs or "
              "hugetlbfs%s",
              options.path, c->config->disk_key != NULL ? "; disk.key does not encrypt it" : "");
}

static void check_anchors(const struct checks *c)
{
    if (c->config->anchor_dir == NULL) return;
    const enum tb_status status = tb_anchor_folder_check(c->config->anchor_dir);
    if (status != TB_OK)
        found(c, "anchor.dir", status != TB_SITE_LOCKED, "anchor.dir: %.300s: %s", c->config->anchor_dir,
              status == TB_SITE_LOCKED   ? "another gateway has it now"
              : status == TB_SITE_CONFIG ? TB_ANCHOR_FOLDER_OTHERS
                                         : strerror(errno));
}

static enum tb_status listener_status(const char *text)
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    enum tb_status status = tb_endpoint_parse(text, &endpoint);
    if (status != TB_OK) return status;
    status = tb_endpoint_address(&endpoint, &address);
    if (status != TB_OK) return status;
    return tb_listen_check(&address);
}

static void check_listener(const struct checks *c, const char *key, const char *text, bool local)
{
    char full[300];
    if (text == NULL) return;
    (void)snprintf(full, sizeof full, "%s%s", local ? "unix:" : "", text);
    const enum tb_status status = listener_status(full);
    if (status != TB_OK)
        found(c, key, status != TB_SITE_LOCKED, "%s: %.200s: %s", key, text, tb_endpoint_why(status, errno));
}

static void check_congestion(const struct checks *c, const char *key, const char *word)
{
    char error[256] = "";
    if (strcmp(word, "system") == 0 || strcmp(word, "auto") == 0) return;
    if (tb_tcp_congestion_check(word, error) != TB_OK) found(c, key, true, "%s: %s", key, error);
}

/* A warning: the address may come later, as one that moves between machines does. */
static void check_source(const struct checks *c, const struct tb_config_peer *p)
{
    struct tb_endpoint endpoint = {.port = 0};
    struct tb_address address;
    char key[160];
    if (p->source == NULL) return;
    (void)snprintf(key, sizeof key, "peers.%s.source", p->site.text);
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", p->source);
    if (tb_endpoint_address(&endpoint, &address) == TB_OK && tb_listen_check(&address) == TB_OK) return;
    found(c, key, false, "%s: %s is no address of this machine now: %s", key, p->source, strerror(errno));
}

static void check_paths(const struct checks *c)
{
    char key[160];
    if (c->config->tls_cert == NULL) return; /* a site by itself opens no links */
    check_listener(c, "link.listen", c->config->link_listen, false);
    if (c->config->peer_count > 0) check_congestion(c, "link.congestion", c->config->link_congestion);
    for (uint32_t i = 0; i < c->config->peer_count; i++) {
        const struct tb_config_peer *p = &c->config->peers[i];
        (void)snprintf(key, sizeof key, "peers.%s.congestion", p->site.text);
        if (p->congestion != NULL) check_congestion(c, key, p->congestion);
        check_source(c, p);
    }
}

static void check_resolver(const struct checks *c)
{
    const struct tb_resolver_options options = {.servers = c->config->dns_servers};
    struct tb_resolver *resolver = NULL;
    uv_loop_t loop;
    if (options.servers == NULL || uv_loop_init(&loop) != 0) return;
    if (tb_resolver_new(&loop, &options, &resolver) != TB_OK)
        found(c, "dns.servers", true, "dns.servers: \"%.200s\" is not a list of ADDRESS:PORT",
              options.servers);
    else
        tb_resolver_close(resolver);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
}

void tb_start_check(const struct tb_config *config, tb_start_find_fn find, void *user)
{
    struct tb_disk_files files = {.old_count = 0};
    const struct checks c = {config, find, user, &files};
    check_descriptors(&c);
    check_tls(&c);
    if (check_disk(&c)) check_store(&c);
    check_arena(&c);
    check_anchors(&c);
    check_listener(&c, "fabric.listen", config->fabric_listen, false);
    check_resolver(&c);
    check_paths(&c);
    check_listener(&c, "control.socket", config->control_socket, true);
    check_listener(&c, "control.read", config->control_read, true);
    check_listener(&c, "session.socket", config->session_socket, true);
    check_listener(&c, "session.listen", config->session_listen, false);
    tb_disk_files_close(&files);
}
