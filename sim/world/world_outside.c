/* world_outside.c - what a gateway has around it and the world needs little of: TLS (the path
 * decides who is who), names, the operator's socket and pages. And five seams where the linker lets
 * the world look in or make tables small (--wrap). */
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/codec/codec.h"
#include "base/net/resolve.h"
#include "base/net/revoked.h"
#include "base/net/signed.h"
#include "base/net/tcp.h"
#include "gateway/daemon/control/site_status.h"
#include "gateway/daemon/daemon.h"
#include "wan/send/hedge.h"
#include "world.h"
#include "world_check.h"
#include "world_hostile.h"
#include "world_process.h"
#include "world_versions.h"

/* ---- base/net/tls.h ---- */

struct tb_tls {
    struct tb_identity identity;
    struct tb_fingerprint fingerprint;
    uint32_t refs;
};

enum tb_status tb_tls_new_ca(const struct tb_tls_files *files, struct tb_tls **tls_out, char error_out[256])
{
    (void)files;
    error_out[0] = '\0';
    struct tb_tls *t = tb_calloc(1, sizeof *t);
    t->refs = 1;
    t->identity.kind = TB_IDENTITY_GATEWAY;
    t->identity.site = the->sites[the->current->site].config.site;
    t->identity.name = the->sites[the->current->site].config.gateway;
    *tls_out = t;
    return TB_OK;
}

enum tb_status tb_tls_add_site_ca(struct tb_tls *tls, const struct tb_name *site, const char *ca_path,
                                  char error_out[256])
{
    (void)tls, (void)site, (void)ca_path, (void)error_out;
    return TB_OK;
}

void tb_tls_set_own_records(struct tb_tls *tls, bool own)
{
    (void)tls, (void)own;
}

struct tb_tls *tb_tls_ref(struct tb_tls *tls)
{
    tls->refs++;
    return tls;
}

void tb_tls_free(struct tb_tls *tls)
{
    if (tls != NULL && --tls->refs == 0) tb_free(tls);
}

struct tb_digest tb_tls_shown(const struct tb_tls *tls)
{
    (void)tls;
    return (struct tb_digest){{0}};
}

struct tb_digest tb_tls_trust(const struct tb_tls *tls)
{
    (void)tls;
    return (struct tb_digest){{0}};
}

uint64_t tb_tls_cas_expire_wall_s(const struct tb_tls *tls)
{
    (void)tls;
    return UINT64_MAX / 2;
}

void tb_tls_set_revoked(struct tb_tls *tls, struct tb_revoked *revoked)
{
    (void)tls;
    tb_revoked_free(revoked);
}

uint32_t tb_tls_revoked_count(const struct tb_tls *tls)
{
    (void)tls;
    return 0;
}

bool tb_tls_is_revoked(const struct tb_tls *tls)
{
    (void)tls;
    return false;
}

const struct tb_identity *tb_tls_identity(const struct tb_tls *tls)
{
    return &tls->identity;
}

const struct tb_fingerprint *tb_tls_fingerprint(const struct tb_tls *tls)
{
    return &tls->fingerprint;
}

/* ---- base/net/signed.h: nobody in the world has a key of another ---- */

uint64_t world_signature(const struct tb_name *site, const struct tb_name *gateway, const void *bytes,
                         size_t count)
{
    const struct {
        const void *at;
        size_t count;
    } parts[] = {{&the->seed, sizeof the->seed},
                 {site->text, strlen(site->text)},
                 {gateway->text, strlen(gateway->text)},
                 {bytes, count}};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (size_t k = 0; k < parts[i].count; k++)
            hash = (hash ^ ((const uint8_t *)parts[i].at)[k]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Where nobody lies they are left out. */
static bool are_signed(void)
{
    return the->hostile != NONE;
}

enum tb_status tb_signed_write(const struct tb_tls *tls, const struct tb_statement *statement,
                               struct tb_writer *w)
{
    uint8_t said[TB_STATEMENT_BYTES_MAX];
    struct tb_writer s;
    tb_writer_init(&s, said, sizeof said);
    tb_statement_encode(statement, &s);
    tb_write_name(w, &tls->identity.site);
    tb_write_name(w, &tls->identity.name);
    if (are_signed())
        tb_write_u64(w, world_signature(&tls->identity.site, &tls->identity.name, said, s.used));
    tb_write_bytes(w, said, s.used);
    return w->full ? TB_TOO_LARGE : TB_OK;
}

static enum tb_status signed_read(const void *bytes, size_t count, struct tb_statement *statement_out,
                                  struct tb_signer *signer_out, bool *fits_out)
{
    struct tb_reader r;
    *signer_out = (struct tb_signer){.identity = {.kind = TB_IDENTITY_GATEWAY}};
    tb_reader_init(&r, bytes, count);
    tb_read_name(&r, &signer_out->identity.site);
    tb_read_name(&r, &signer_out->identity.name);
    const uint64_t signature = are_signed() ? tb_read_u64(&r) : 0;
    const size_t left = r.left;
    const uint8_t *said = tb_read_span(&r, left);
    if (r.bad) return TB_PEER_GARBLED;
    *fits_out = !are_signed() || signature == world_signature(&signer_out->identity.site,
                                                              &signer_out->identity.name, said, left);
    return tb_statement_decode(said, left, statement_out);
}

enum tb_status tb_signed_check(const struct tb_tls *trust, const void *bytes, size_t count,
                               struct tb_statement *statement_out, struct tb_signer *signer_out,
                               char error_out[256])
{
    bool fits = false;
    (void)trust;
    error_out[0] = '\0';
    const enum tb_status status = signed_read(bytes, count, statement_out, signer_out, &fits);
    if (status != TB_OK || fits) return status;
    (void)snprintf(error_out, 256, "its signature does not fit");
    return TB_PEER_IDENTITY;
}

enum tb_status tb_signed_peek(const void *bytes, size_t count, struct tb_statement *statement_out)
{
    struct tb_signer signer;
    bool fits;
    return signed_read(bytes, count, statement_out, &signer, &fits);
}

uint64_t tb_tls_expires_wall_s(const struct tb_tls *tls)
{
    (void)tls;
    return UINT64_C(1790000000) + 30u * 86400u;
}

/* ---- base/net/tcp.h: no kernel, so nothing is known of it ---- */

bool tb_tcp_look(int fd, struct tb_tcp_seen *seen_out)
{
    (void)fd;
    memset(seen_out, 0, sizeof *seen_out);
    return false;
}

enum tb_status tb_tcp_congestion_check(const char *name, char error_out[256])
{
    (void)name;
    error_out[0] = '\0';
    return TB_SITE_CONFIG;
}

bool tb_tcp_congestion_set(int fd, const char *name)
{
    (void)fd, (void)name;
    return false;
}

void tb_tcp_congestion(int fd, char name_out[TB_TCP_CONGESTION_BYTES])
{
    (void)fd;
    name_out[0] = '\0';
}

void tb_tcp_dscp_set(int fd, uint32_t dscp)
{
    (void)fd, (void)dscp;
}

void tb_tcp_unsent_max(int fd, uint32_t bytes)
{
    (void)fd, (void)bytes;
}

uint32_t tb_tcp_stalled(int fd)
{
    (void)fd;
    return 0;
}

void tb_tcp_segment_max(int fd, uint32_t bytes)
{
    (void)fd, (void)bytes;
}

void tb_tcp_keep_alive(int fd)
{
    (void)fd;
}

struct tb_tcp_ceilings tb_tcp_ceilings(void)
{
    return (struct tb_tcp_ceilings){0, 0};
}

/* ---- names, the operator ---- */

enum tb_status tb_resolver_new(uv_loop_t *loop, const struct tb_resolver_options *options,
                               struct tb_resolver **resolver_out)
{
    (void)loop, (void)options;
    *resolver_out = tb_malloc(1);
    return TB_OK;
}

void tb_resolver_close(struct tb_resolver *resolver)
{
    tb_free(resolver);
}

void tb_resolve(struct tb_resolver *resolver, const struct tb_endpoint *endpoint, tb_resolve_fn fn,
                void *user)
{
    (void)resolver, (void)endpoint;
    fn(user, TB_NOT_FOUND, NULL, 0, 0); /* every address in the world is a number */
}

enum tb_status tb_control_open(uv_loop_t *loop, const char *path, const struct tb_control_command *commands,
                               void *user, struct tb_control **control_out)
{
    (void)loop, (void)path, (void)commands, (void)user;
    *control_out = NULL;
    return TB_OK;
}

void tb_control_usage(const struct tb_control *control, struct tb_control_usage *usage_out)
{
    (void)control;
    *usage_out = (struct tb_control_usage){0};
}

void tb_control_check(const struct tb_control *control)
{
    (void)control;
}

const struct tb_identity *tb_control_asker_at(const struct tb_control *control, uint32_t *cursor)
{
    (void)control, (void)cursor;
    return NULL;
}

/* No operator asks there. */
void tb_control_operator(const struct tb_control *control, char who_out[TB_OPERATOR_BYTES])
{
    (void)control;
    who_out[0] = '\0';
}

uint64_t tb_control_ticket(struct tb_control *control)
{
    (void)control;
    return 1;
}

void tb_control_release(struct tb_control *control, uint64_t ticket, enum tb_status status)
{
    (void)control, (void)ticket, (void)status;
}

void tb_control_release_file(struct tb_control *control, uint64_t ticket, int fd)
{
    (void)control, (void)ticket, (void)fd;
}

uint32_t tb_control_files(struct tb_control *control, int fds_out[TB_CONTROL_FILES_MAX])
{
    (void)control;
    fds_out[0] = -1; /* nothing reads it: world_threads.c */
    return 1;
}

void tb_control_close(struct tb_control *control)
{
    (void)control;
}

const struct tb_control_command tb_status_commands[] = {{NULL, NULL}};
const struct tb_control_command tb_status_reading_commands[] = {{NULL, NULL}};

json_t *tb_status_site(struct tb_daemon *d)
{
    (void)d;
    return NULL;
}

/* ---- tables of the world's size: so few rows of versions that one which stays for nothing is
 * missed within a seed ---- */

static const struct tb_catalog_limits limits = {.models = MODELS_MAX,
                                                .records = 16,
                                                .runs = 16,
                                                .versions = 8 * MODELS_MAX,
                                                .model_versions = 8,
                                                .shards = SHARDS_MAX,
                                                .sessions = 24,
                                                .references = 128,
                                                .site_references = 128,
                                                .groups = 8,
                                                .members = 16,
                                                .waits = 32,
                                                .sites = SITES_MAX};

size_t __real_tb_catalog_bytes(const struct tb_catalog_limits *l);
size_t __wrap_tb_catalog_bytes(const struct tb_catalog_limits *l);
size_t __wrap_tb_catalog_bytes(const struct tb_catalog_limits *l)
{
    (void)l;
    return __real_tb_catalog_bytes(&limits);
}

struct tb_catalog *__real_tb_catalog_init(void *memory, const struct tb_catalog_limits *l,
                                          const struct tb_catalog_config *config, tb_time_ns now);
struct tb_catalog *__wrap_tb_catalog_init(void *memory, const struct tb_catalog_limits *l,
                                          const struct tb_catalog_config *config, tb_time_ns now);
struct tb_catalog *__wrap_tb_catalog_init(void *memory, const struct tb_catalog_limits *l,
                                          const struct tb_catalog_config *config, tb_time_ns now)
{
    (void)l;
    return __real_tb_catalog_init(memory, &limits, config, now);
}

/* ---- one zstd for all: its contexts are not on a process's heap ---- */

enum tb_status __real_tb_codec_new(struct tb_codec **codec_out);
enum tb_status __wrap_tb_codec_new(struct tb_codec **codec_out);
enum tb_status __wrap_tb_codec_new(struct tb_codec **codec_out)
{
    static struct tb_codec *one;
    static struct process nobody = {.alive = true};
    struct process *p = the->current;
    the->current = &nobody;
    const enum tb_status status = one != NULL ? TB_OK : __real_tb_codec_new(&one);
    the->current = p;
    *codec_out = one;
    return status;
}

void __wrap_tb_codec_free(struct tb_codec *codec);
void __wrap_tb_codec_free(struct tb_codec *codec)
{
    (void)codec;
}

/* ---- P7: each row has a reason, whenever a request is over ---- */

bool __real_tb_catalog_next(struct tb_catalog *c, struct tb_catalog_todo *todo_out);
bool __wrap_tb_catalog_next(struct tb_catalog *c, struct tb_catalog_todo *todo_out);
bool __wrap_tb_catalog_next(struct tb_catalog *c, struct tb_catalog_todo *todo_out)
{
    world_check_rows(c);
    return __real_tb_catalog_next(c, todo_out);
}

/* ---- P2: the words to a group ---- */

void __real_tb_worker_go(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void __wrap_tb_worker_go(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void __wrap_tb_worker_go(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    world_check_go(the->current->site, &todo->session, world_version_find(&todo->uid));
    __real_tb_worker_go(d, todo);
}

/* ---- when a rank's memory is its own again, and when it is told ---- */

void __real_tb_reference_end(struct tb_catalog *c, uint32_t reference);
void __wrap_tb_reference_end(struct tb_catalog *c, uint32_t reference);
void __wrap_tb_reference_end(struct tb_catalog *c, uint32_t reference)
{
    __real_tb_reference_end(c, reference);
    world_check_let_go(c);
}

void __real_tb_worker_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void __wrap_tb_worker_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void __wrap_tb_worker_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    if (todo->status == TB_OK) world_check_unpublished(the->current->site, &todo->uid);
    __real_tb_worker_unpublished(d, todo);
}

/* ---- P5 within a crossing: what the peer said it holds is put into no parcel ---- */

static struct crossing_seen *seen_of(const void *core)
{
    for (uint32_t i = 0; i < 64; i++)
        if (the->crossings[i].core == core) return &the->crossings[i];
    return NULL;
}

void __real_tb_outbound_init(struct tb_outbound *c, const struct tb_place *places, uint32_t shard_count,
                             void *memory);
void __wrap_tb_outbound_init(struct tb_outbound *c, const struct tb_place *places, uint32_t shard_count,
                             void *memory);
void __wrap_tb_outbound_init(struct tb_outbound *c, const struct tb_place *places, uint32_t shard_count,
                             void *memory)
{
    struct crossing_seen *s = seen_of(c);
    if (s == NULL) s = &the->crossings[the->crossing_at++ % 64];
    *s = (struct crossing_seen){.core = c};
    __real_tb_outbound_init(c, places, shard_count, memory);
}

enum tb_status __real_tb_outbound_held(struct tb_outbound *c, uint32_t shard, const struct tb_span *words);
enum tb_status __wrap_tb_outbound_held(struct tb_outbound *c, uint32_t shard, const struct tb_span *words);
enum tb_status __wrap_tb_outbound_held(struct tb_outbound *c, uint32_t shard, const struct tb_span *words)
{
    struct crossing_seen *s = seen_of(c);
    const enum tb_status status = __real_tb_outbound_held(c, shard, words);
    for (uint32_t i = 0; s != NULL && status == TB_OK && i < words->count / TB_HELD_WORD_BYTES; i++)
        s->acked[shard] |= tb_held_words_at(words, i).word;
    return status;
}

bool __real_tb_outbound_next(struct tb_outbound *c, struct tb_parcel *p);
bool __wrap_tb_outbound_next(struct tb_outbound *c, struct tb_parcel *p);
bool __wrap_tb_outbound_next(struct tb_outbound *c, struct tb_parcel *p)
{
    const struct crossing_seen *s = seen_of(c);
    if (!__real_tb_outbound_next(c, p)) return false;
    for (uint32_t k = p->first; s != NULL && k < p->first + p->count; k++)
        if ((s->acked[p->shard] >> k & 1) != 0)
            world_fail("P5: chunk %u of shard %u is put on its way again, though it is held there", k,
                       p->shard);
    return true;
}

/* A version of the world is too small for 2 % of it to be a chunk. */
void __wrap_tb_hedge_init(struct tb_hedge *h, uint32_t permille);
void __real_tb_hedge_init(struct tb_hedge *h, uint32_t permille);
void __wrap_tb_hedge_init(struct tb_hedge *h, uint32_t permille)
{
    (void)permille;
    __real_tb_hedge_init(h, 500);
}
