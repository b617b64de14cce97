/* verbs_hop.c - how fast one hop's READs come by RDMA, without digests: the shipped transport
 * between two fabrics of this process.
 *
 * A version's bytes are read over and over in chunks of 1 MiB, as many in flight as a hop lets be,
 * into memory of ours. Without the hop's core, since a hop always digests (P1). A second version
 * then goes the same way through the same memory. Runs where there is an RDMA device: sim/vm.
 *
 * Prints one JSON line: {"bytes", "seconds", "mib_per_s", "registered_s", "registered_again_s"};
 * the last two are what both ends took to register memory for the first version, and for the
 * second. Exit code 77 with a line on stderr where there is no RDMA. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop.h"
#include "intra/transport/transport_words.h"
#include "intra/verbs_part.h"

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define IN_FLIGHT   ((uint32_t)(TB_HOP_WINDOW_BYTES / CHUNK_BYTES))
#define EXPORT_ID   1u
#define SKIPPED     77

struct pull {
    struct tb_fabric *fabric;
    struct tb_upstream *upstream;
    struct tb_hop_options hop;
    struct tb_place place;
    struct tb_manifest manifest; /* nothing of it but its size is looked at */
    struct tb_source_shard shard;
    const struct tb_source_shard *sources[1];
    const struct tb_place *places[1];
    struct tb_read reads[IN_FLIGHT];
    uint64_t memory_bytes, left, next;
    uint32_t flying;
    tb_time_ns begun, ended;
    enum tb_status why;
    bool over, closed;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void die(const char *what, enum tb_status why)
{
    fprintf(stderr, "verbs_hop: %s: %s\n", what, tb_status_text(why));
    exit(1);
}

static void tell(struct pull *p, bool *flag)
{
    pthread_mutex_lock(&p->lock);
    *flag = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for(struct pull *p, const bool *flag)
{
    pthread_mutex_lock(&p->lock);
    while (!*flag)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void ask(struct pull *p, struct tb_read *read)
{
    const uint64_t bytes = p->left < CHUNK_BYTES ? p->left : CHUNK_BYTES;
    *read = (struct tb_read){.offset = p->next, .bytes = (uint32_t)bytes, .to = p->place.bytes + p->next};
    p->left -= bytes;
    p->next = (p->next + CHUNK_BYTES) % p->memory_bytes;
    p->flying++;
    p->upstream->ops->read(p->upstream, read);
}

static void on_open(void *user)
{
    struct pull *p = user;
    p->begun = tb_clock_now();
    for (uint32_t i = 0; i < IN_FLIGHT && p->left > 0; i++)
        ask(p, &p->reads[i]);
}

static void on_read(void *user, struct tb_read *read)
{
    struct pull *p = user;
    p->flying--;
    if (p->left > 0) ask(p, read);
    if (p->flying > 0) return;
    p->ended = tb_clock_now();
    tell(p, &p->over);
}

static void on_confirmed(void *user)
{
    (void)user;
}

static void on_lost(void *user, enum tb_status why)
{
    struct pull *p = user;
    p->why = why;
    tell(p, &p->over);
}

static void on_closed(void *user)
{
    struct pull *p = user;
    tell(p, &p->closed);
}

static const struct tb_upstream_events events = {.on_open = on_open,
                                                 .on_read = on_read,
                                                 .on_confirmed = on_confirmed,
                                                 .on_lost = on_lost,
                                                 .on_closed = on_closed};

static void dial(struct tb_fabric *f, void *arg)
{
    struct pull *p = arg;
    const struct tb_upstream_options options = {.fabric = f,
                                                .hop = &p->hop,
                                                .sources = p->sources,
                                                .source_count = 1,
                                                .places = p->places,
                                                .idle_ms = 60000,
                                                .open_ms = 60000,
                                                .events = &events,
                                                .user = p};
    p->why = tb_transport_verbs.open(&options, &p->upstream);
}

static void hang_up(struct tb_fabric *f, void *arg)
{
    (void)f;
    struct pull *p = arg;
    p->upstream->ops->close(p->upstream);
}

static uint8_t *memory_new(uint64_t bytes, int fill)
{
    uint8_t *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) die("mmap", TB_SITE_NOMEM);
    memset(m, fill, bytes);
    return m;
}

static struct tb_fabric *fabric_new(const char *address)
{
    char at[80];
    struct tb_fabric *fabric = NULL;
    (void)snprintf(at, sizeof at, "%s:0", address);
    struct tb_fabric_options options = {.tcp_address = at, .trusted = true};
    enum tb_status status = tb_name_set(&options.host, "bench");
    if (status == TB_OK) status = tb_fabric_open(&options, &fabric);
    if (status != TB_OK) die("the fabric cannot be opened", status);
    if (tb_fabric_no_verbs(fabric) != NULL) {
        fprintf(stderr, "verbs_hop: skipped: %s\n", tb_fabric_no_verbs(fabric));
        exit(SKIPPED);
    }
    return fabric;
}

static void source_open(struct tb_fabric *owner, struct pull *p, uint8_t *bytes)
{
    const struct tb_export_buffer buffer = {.bytes = bytes, .count = p->memory_bytes, .memfd = -1};
    const struct tb_export_options options = {.export_id = EXPORT_ID, .buffers = &buffer, .buffer_count = 1};
    const enum tb_status status = tb_export_open(owner, &options);
    if (status != TB_OK) die("the export cannot be opened", status);
    tb_fabric_endpoint(owner, &p->hop.from);
}

/* The time that both ends' registrations took so far. */
static double registering_s(struct tb_fabric *owner, const struct pull *p)
{
    return (double)(tb_verbs_registering(owner->verbs) + tb_verbs_registering(p->fabric->verbs)) / 1e9;
}

static void pull_run(struct tb_fabric *owner, struct pull *p, uint64_t bytes)
{
    struct tb_fabric_endpoint me;
    p->left = bytes;
    p->next = 0;
    p->over = p->closed = false;
    p->hop.token.bytes[0]++;
    tb_fabric_endpoint(p->fabric, &me);
    const enum tb_status status = tb_export_grant(owner, EXPORT_ID, &p->hop.token, &me.fingerprint);
    if (status != TB_OK) die("the export lets nobody in", status);
    tb_fabric_call(p->fabric, dial, p);
    if (p->why != TB_OK) die("the hop cannot be opened", p->why);
    wait_for(p, &p->over);
    if (p->why != TB_OK) die("the hop was lost", p->why);
    tb_fabric_call(p->fabric, hang_up, p);
    wait_for(p, &p->closed);
}

/* One version: an export of that memory, and so many bytes of it read. */
static void version_run(struct tb_fabric *owner, struct pull *p, uint8_t *from, uint64_t bytes)
{
    source_open(owner, p, from);
    pull_run(owner, p, bytes);
    tb_export_close(owner, EXPORT_ID, 0);
}

static const char usage[] =
    "Usage: tombolo-verbs-hop [--bytes N] [--memory N] [--address A] [--goes]\n"
    "Reads N bytes by RDMA over one hop, without digests, through --memory bytes (16 MiB).\n"
    "--goes: nobody says that this memory stays, so that each version registers it.\n"
    "Example: sim/vm/run -- build/release/bench/tombolo-verbs-hop --bytes 67108864\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {{"bytes", 1, NULL, 'b'},   {"memory", 1, NULL, 'm'},
                                            {"address", 1, NULL, 'a'}, {"goes", 0, NULL, 'g'},
                                            {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    static struct pull p = {.memory_bytes = 16 * CHUNK_BYTES, .left = 64 * CHUNK_BYTES};
    const char *address = "127.0.0.1";
    bool stays = true;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'b') {
            p.left = strtoull(optarg, NULL, 10);
        } else if (o == 'm') {
            p.memory_bytes = strtoull(optarg, NULL, 10);
        } else if (o == 'a') {
            address = optarg;
        } else if (o == 'g') {
            stays = false;
        } else {
            fputs(usage, o == 'h' ? stdout : stderr);
            return o == 'h' ? 0 : 2;
        }
    }
    if (p.left == 0 || p.memory_bytes == 0 || p.memory_bytes % CHUNK_BYTES != 0) {
        fputs(usage, stderr);
        return 2;
    }
    const uint64_t bytes = p.left;
    tb_log_set(TB_LOG_ERROR, 2);
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.changed, NULL);
    struct tb_fabric *owner = fabric_new(address);
    p.fabric = fabric_new(address);
    p.hop.export_id = EXPORT_ID;
    p.hop.transport = TB_TRANSPORT_VERBS;
    p.manifest.bytes = p.memory_bytes;
    p.place = (struct tb_place){.manifest = &p.manifest, .bytes = memory_new(p.memory_bytes, 1)};
    p.shard.held_buffer = TB_SOURCE_ALL_HELD;
    p.sources[0] = &p.shard;
    p.places[0] = &p.place;
    uint8_t *from = memory_new(p.memory_bytes, 2);
    if (stays) {
        tb_fabric_memory_stays(owner, from, p.memory_bytes);
        tb_fabric_memory_stays(p.fabric, p.place.bytes, p.memory_bytes);
    }
    version_run(owner, &p, from, bytes);
    const double seconds = (double)(p.ended - p.begun) / 1e9, registered_s = registering_s(owner, &p);
    version_run(owner, &p, from, CHUNK_BYTES);
    printf("{\"bytes\": %llu, \"seconds\": %.6f, \"mib_per_s\": %.3f, \"registered_s\": %.6f, "
           "\"registered_again_s\": %.6f}\n",
           (unsigned long long)bytes, seconds, (double)bytes / 1048576 / seconds, registered_s,
           registering_s(owner, &p) - registered_s);
    tb_fabric_close(p.fabric);
    tb_fabric_close(owner);
    return 0;
}
