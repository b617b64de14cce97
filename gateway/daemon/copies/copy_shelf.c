/* copy_shelf.c - encoded chunks beside a copy, for workers that hold the version before
 * (base/layout/shelf.h).
 *
 * A copy gets a shelf as it is exported, if this gateway holds an older version of the same cut
 * whole, and workers of other hosts read by tcp (by shm and RDMA chunks come sooner whole) or some
 * patch their buffers, as their last updates of this model say. Its memory is a 32nd of the
 * version at most and is used as it fills. A base that goes ends the work on it; what has no entry
 * by then comes whole. */
#include "gateway/daemon/daemon.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/groups.h"
#include "gateway/daemon/copies/copy_shelf.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/shelves.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

static bool same_cut(const struct tb_copy *a, const struct tb_copy *b)
{
    TB_ASSERT(a->region != NULL && b->region != NULL);
    if (a->key.shard_count != b->key.shard_count) return false;
    for (uint32_t s = 0; s < a->key.shard_count; s++)
        if (!tb_manifest_same_cut(tb_arena_place(a->region, s)->manifest,
                                  tb_arena_place(b->region, s)->manifest))
            return false;
    return true;
}

static bool older(const struct tb_copy *a, const struct tb_copy *b)
{
    if (a->key.run_order != b->key.run_order) return a->key.run_order < b->key.run_order;
    return a->key.number < b->key.number;
}

static struct tb_copy *base_of(const struct tb_copy *copy)
{
    struct tb_copy *best = NULL;
    for (struct tb_copy *c = copy->d->copies; c != NULL; c = c->next) {
        if (c->life != TB_COPY_WHOLE || !tb_copy_is_ready(c) ||
            !tb_name_equal(&c->key.model, &copy->key.model))
            continue;
        if (older(c, copy) && (best == NULL || older(best, c)) && same_cut(c, copy)) best = c;
    }
    return best;
}

bool tb_copy_read_encoded(const struct tb_daemon *d, const struct tb_name *model)
{
    if (!d->config->fabric_encoded) return false;
    const bool by_tcp = tb_fabric_no_verbs(d->fabric) != NULL;
    for (const struct tb_worker_session *s = d->sessions; s != NULL && by_tcp; s = s->next)
        if (s->welcomed && !tb_name_equal(&s->endpoint.host, &d->host)) return true;
    return tb_catalog_updated_by(d->catalog, model, TB_MSG_WAY_PATCH);
}

static uint32_t chunks_of(const struct tb_copy *copy, uint64_t *bytes_out)
{
    uint64_t chunks = 0;
    *bytes_out = 0;
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        chunks += tb_arena_place(copy->region, s)->manifest->chunk_count;
        *bytes_out += tb_arena_place(copy->region, s)->manifest->bytes;
    }
    return chunks > TB_SHELF_COUNT_MAX ? 0 : (uint32_t)chunks;
}

bool tb_copy_shelf_make(struct tb_copy *copy, struct tb_export_buffer *buffer_out)
{
    TB_ASSERT(copy->shelf_memory == NULL && copy->shelf_work == NULL && copy->shelf_base == NULL);
    struct tb_daemon *d = copy->d;
    uint64_t bytes = 0;
    const uint32_t chunks = chunks_of(copy, &bytes);
    if (chunks == 0) return false;
    copy->shelf_base = tb_copy_read_encoded(d, &copy->key.model) ? base_of(copy) : NULL;
    if (copy->shelf_base == NULL) return false;
    const uint64_t count = tb_shelf_bytes(chunks, TB_SHELF_ROOM(bytes));
    copy->shelf_memory = tb_calloc(1, count);
    if (copy->shelf_memory == NULL) return false; /* chunks come whole */
    tb_shelf_init(&copy->shelf, copy->shelf_memory, chunks, TB_SHELF_ROOM(bytes));
    *buffer_out = (struct tb_export_buffer){.bytes = copy->shelf_memory, .count = count, .memfd = -1};
    return true;
}

static enum tb_status begin(struct tb_copy *copy)
{
    TB_ASSERT(copy->shelf_base != NULL && copy->shelf_base != copy && copy->shelf_work == NULL);
    struct tb_daemon *d = copy->d;
    const uint32_t n = copy->key.shard_count;
    const struct tb_place **places = tb_calloc(2 * (size_t)n, sizeof(struct tb_place *));
    if (places == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < n; s++) {
        places[s] = tb_arena_place(copy->region, s);
        places[n + s] = tb_arena_place(copy->shelf_base->region, s);
    }
    const struct tb_shelf_task task = {.shelf = &copy->shelf,
                                       .encoded_chunks = d->encoded_chunks,
                                       .uid = copy->key.uid,
                                       .base = copy->shelf_base->key.uid,
                                       .shard_count = n,
                                       .places = places,
                                       .bases = places + n};
    enum tb_status status = d->shelves != NULL ? TB_OK : tb_shelves_open(&d->shelves);
    if (status == TB_OK) status = tb_shelves_work_begin(d->shelves, &task, &copy->shelf_work);
    tb_free(places);
    return status;
}

void tb_copy_shelf_begin(struct tb_copy *copy)
{
    if (copy->shelf_memory == NULL || begin(copy) == TB_OK) return;
    tb_shelf_close(&copy->shelf); /* chunks come whole */
    copy->shelf_base = NULL;
}

static void stop(struct tb_copy *copy)
{
    tb_shelves_work_end(copy->shelf_work);
    copy->shelf_work = NULL;
    copy->shelf_base = NULL;
}

void tb_copy_shelf_end(struct tb_copy *copy)
{
    stop(copy);
    for (struct tb_copy *c = copy->d->copies; c != NULL; c = c->next)
        if (c->shelf_base == copy) stop(c);
    tb_free(copy->shelf_memory);
    copy->shelf_memory = NULL;
}
