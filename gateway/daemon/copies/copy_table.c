/* copy_table.c - the rows of this gateway's copies: found, made, freed and counted. A leaf: it
 * calls no other room. */
#include "gateway/daemon/daemon.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/shard_files.h"
#include "gateway/daemon/counters.h"
#include "intra/fabric/fabric_hops.h"

struct tb_copy *tb_copy_find(struct tb_daemon *d, const struct tb_id *uid)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (tb_id_equal(&c->key.uid, uid)) return c;
    }
    return NULL;
}

struct tb_copy *tb_copy_get(struct tb_daemon *d, const struct tb_version_key *key)
{
    struct tb_copy *copy = tb_copy_find(d, &key->uid);
    if (copy != NULL) return copy;
    if (d->copies_used.used >= d->bounds.versions) {
        d->copies_used.refused++;
        return NULL;
    }
    copy = tb_calloc(1, sizeof *copy);
    if (copy == NULL) return NULL;
    *copy = (struct tb_copy){.next = d->copies,
                             .d = d,
                             .key = *key,
                             .seen_at = tb_clock_now(),
                             .opened_wall_ms = tb_clock_wall_ms()};
    d->copies = copy;
    tb_gauge_add(&d->copies_used, 1);
    return copy;
}

void tb_copy_free(struct tb_copy *copy)
{
    TB_ASSERT(copy->hops == NULL && copy->shelf_memory == NULL && copy->export_id == 0);
    TB_ASSERT(copy->d->copies_used.used > 0);
    struct tb_copy **at = &copy->d->copies;
    while (*at != copy)
        at = &(*at)->next;
    *at = copy->next;
    copy->d->copies_used.used--;
    tb_shard_files_free(&copy->files);
    tb_free(copy->proofs_told);
    tb_free(copy->source);
    tb_free(copy);
}

uint64_t tb_copy_held_bytes(const struct tb_copy *copy)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; copy->region != NULL && s < copy->key.shard_count; s++) {
        const struct tb_place *p = tb_arena_place(copy->region, s);
        if (p == NULL || !tb_arena_place_ready(copy->region, s)) continue;
        for (uint32_t k = 0; k < p->manifest->chunk_count; k++) {
            if (tb_place_held(p, k)) bytes += p->manifest->chunks[k].bytes;
        }
    }
    return bytes;
}

uint64_t tb_copy_wire_bytes(const struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    uint64_t bytes = copy->hop_wire_bytes + copy->link_wire_bytes;
    if (d->links != NULL && !d->links_restarting) bytes += tb_links_landed_bytes(d->links, &copy->key.uid);
    for (const struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next) {
        if (h->hop == NULL) continue;
        struct tb_hop_stats stats;
        tb_hop_stats(h->hop, &stats);
        bytes += stats.bytes_read;
    }
    return bytes;
}
