/* world_threads.c - threads that the daemon makes for what waits on a disk: each runs to its end in
 * one instant, some time after it was made, or when it is joined. And the folders that such a
 * thread reads: files here that hold a version, or most of it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/daemon.h"
#include "gateway/disk/local_files.h"
#include "world.h"
#include "world_clients.h"
#include "world_machine.h"
#include "world_process.h"

struct world_thread {
    struct world_thread *next;
    void *(*entry)(void *);
    void *argument;
    tb_time_ns due;
    bool ended;
};

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument)
{
    (void)attributes;
    struct world_thread *t = tb_calloc(1, sizeof *t);
    *t = (struct world_thread){.next = the->current->threads,
                               .entry = entry,
                               .argument = argument,
                               .due = tb_time_add(the->now, TB_MS(1 + world_random(300)))};
    the->current->threads = t;
    *thread = (pthread_t)(uintptr_t)t;
    return 0;
}

static void run(struct world_thread *t)
{
    if (t->ended) return;
    t->ended = true;
    (void)t->entry(t->argument);
}

int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result)
{
    struct world_thread *t = (struct world_thread *)(uintptr_t)thread; // NOLINT(performance-no-int-to-ptr)
    struct world_thread **at = &the->current->threads;
    (void)result;
    while (*at != t)
        at = &(*at)->next;
    run(t);
    *at = t->next;
    tb_free(t);
    return 0;
}

int __wrap_setpriority(int which, id_t who, int priority);
int __wrap_setpriority(int which, id_t who, int priority)
{
    (void)which, (void)who, (void)priority; /* the world's own would be lowered */
    return 0;
}

void world_threads_run(struct process *p)
{
    the->current = p;
    for (struct world_thread *t = p->threads; t != NULL; t = t->next)
        if (the->now >= t->due) run(t);
    the->current = NULL;
}

/* ---- gateway/disk/local_files.h ---- */

struct tb_local_files {
    uint32_t version;
    uint64_t cut_short, wrong; /* chunks of each shard that are not there, or are not what they were */
};

enum tb_status tb_local_open(struct tb_given_files *given, const _Atomic bool *stop,
                             struct tb_local_files **files_out, char error_out[TB_LOCAL_ERROR_BYTES])
{
    const uint32_t version = (uint32_t)strtoul(given->files[0].name, NULL, 10);
    tb_given_close(given);
    if (atomic_load(stop)) return TB_CANCELLED;
    if (version >= the->version_count) {
        (void)snprintf(error_out, TB_LOCAL_ERROR_BYTES, "%u: no such version", version);
        return TB_NOT_FOUND;
    }
    struct tb_local_files *l = tb_calloc(1, sizeof *l);
    *l = (struct tb_local_files){.version = version,
                                 .cut_short = world_random(2) == 0 ? world_random(1u << CHUNKS_MAX) : 0,
                                 .wrong = world_random(2) == 0 ? world_random(1u << CHUNKS_MAX) : 0};
    *files_out = l;
    return TB_OK;
}

void tb_local_close(struct tb_local_files *l)
{
    tb_free(l);
}

void tb_local_told(const struct tb_local_files *l, struct tb_local_told *told_out)
{
    (void)l;
    *told_out = (struct tb_local_told){.files = 1};
}

/* Its tensors have the names and shapes of every version here; a file may change
 * while it is read. */
bool tb_local_read(struct tb_local_files *l, const struct tb_manifest *manifest, uint32_t k, uint8_t *out)
{
    const struct version *v = &the->versions[l->version];
    uint32_t shard = 0, bytes = 0;
    while (!tb_digest_equal(&v->shards[shard].manifest.layout.id, &manifest->layout.id))
        if (++shard == v->shard_count) return false;
    if ((l->cut_short >> k & 1) != 0) return false;
    memcpy(out, tb_place_chunk(&v->shards[shard].place, k, &bytes), manifest->chunks[k].bytes);
    TB_ASSERT(bytes == manifest->chunks[k].bytes);
    if ((l->wrong >> k & 1) != 0 && world_random(2) == 0) out[0] ^= 1u;
    return true;
}

/* ---- the operator, who adopts them ---- */

static void ask(struct site *s, json_t *request)
{
    char error[256] = "";
    json_t *reply = json_object();
    (void)tb_adopt_command(s->daemon, request, reply,
                           error); /* refused is fine: one after the other, and so on */
    json_decref(reply);
    json_decref(request);
}

/* Now and then files of an older version are there; the command asks how it stands while faults
 * last, and then is interrupted. */
void world_adopt_step(struct site *s)
{
    char folder[16];
    if (!the->adopts || !the->faulty || s->daemon == NULL || the->version_count == 0) return;
    if (!world_process_runs(s->gateway) || the->now < s->adopt_at) return;
    s->adopt_at = tb_time_add(the->now, TB_MS(200 + world_random(1500)));
    the->current = s->gateway;
    if (s->daemon->adopt == NULL || world_random(4) == 0) {
        (void)snprintf(folder, sizeof folder, "%u", (unsigned)world_random(the->version_count + 1));
        ask(s, json_pack("{s:s, s:[s]}", "model", world_models[world_random(the->model_count)], "files",
                         folder));
    } else {
        for (uint32_t m = 0; m < the->model_count; m++)
            ask(s, json_pack("{s:s}", "model", world_models[m]));
    }
    if (s->daemon->counters.adopted_chunks > 0) the->went[WAY_ADOPT]++;
    the->current = NULL;
}
