/* world_anchors.c - gateway/disk/anchor_folder.h and anchor_file.h over memory that outlives a
 * reboot: a site's disk has a few anchors. A writing is there whole or not at all; what is read
 * back may have rotted (P1), and a full disk takes nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/disk/anchor_file.h"
#include "gateway/disk/anchor_folder.h"
#include "world.h"
#include "world_faults.h"
#include "world_process.h"
#include "world_versions.h"

static struct disk_anchor *disk(void)
{
    return the->sites[the->current->site].anchors;
}

static struct tb_anchor_which which_of(const struct disk_anchor *a)
{
    return (struct tb_anchor_which){.any = true, .run_order = a->key.run_order, .number = a->key.number};
}

/* ---- the folder ---- */

enum tb_status tb_anchor_folder_open(const char *path, struct tb_anchor_folder *folder_out)
{
    *folder_out = (struct tb_anchor_folder){.path = path, .fd = -1};
    return TB_OK;
}

void tb_anchor_folder_close(struct tb_anchor_folder *folder)
{
    (void)folder;
}

bool tb_anchor_folder_name(const struct tb_anchor_folder *folder, const struct tb_version_key *key,
                           char out[TB_ANCHOR_PATH_BYTES])
{
    return snprintf(out, TB_ANCHOR_PATH_BYTES, "%s/%s@%llu-%llu", folder->path, key->model.text,
                    (unsigned long long)key->run_order,
                    (unsigned long long)key->number) < TB_ANCHOR_PATH_BYTES;
}

bool tb_anchor_newer(const struct tb_anchor_which *a, const struct tb_anchor_which *b)
{
    return a->run_order != b->run_order ? a->run_order > b->run_order : a->number > b->number;
}

bool tb_anchor_folder_older(const struct tb_anchor_folder *folder, const struct tb_name *model,
                            struct tb_anchor_which *at, char path_out[TB_ANCHOR_PATH_BYTES])
{
    struct tb_anchor_which best = {.any = false};
    (void)folder;
    for (uint32_t i = 0; i < ANCHORS_MAX; i++) {
        const struct disk_anchor *a = &disk()[i];
        const struct tb_anchor_which which = which_of(a);
        if (!a->whole || !tb_name_equal(&a->key.model, model)) continue;
        if (at->any && !tb_anchor_newer(at, &which)) continue;
        if (best.any && !tb_anchor_newer(&which, &best)) continue;
        best = which;
        (void)snprintf(path_out, TB_ANCHOR_PATH_BYTES, "%u", (unsigned)i);
    }
    *at = best;
    return best.any;
}

void tb_anchor_folder_remove_older(const struct tb_anchor_folder *folder, const struct tb_name *model,
                                   const struct tb_anchor_which *than)
{
    (void)folder;
    for (uint32_t i = 0; i < ANCHORS_MAX; i++) {
        struct disk_anchor *a = &disk()[i];
        const struct tb_anchor_which which = which_of(a);
        if (a->whole && tb_name_equal(&a->key.model, model) && tb_anchor_newer(than, &which))
            a->whole = false;
    }
}

enum tb_status tb_anchor_folder_remove(const struct tb_anchor_folder *folder, const struct tb_name *model,
                                       const struct tb_anchor_which *which)
{
    (void)folder;
    for (uint32_t i = 0; i < ANCHORS_MAX; i++) {
        struct disk_anchor *a = &disk()[i];
        const bool same = a->key.run_order == which->run_order && a->key.number == which->number;
        if (same && tb_name_equal(&a->key.model, model)) a->whole = false;
    }
    return TB_OK;
}

void tb_anchor_folder_remove_parts(const struct tb_anchor_folder *folder)
{
    (void)folder; /* it has none */
}

uint64_t tb_anchor_folder_free_bytes(const struct tb_anchor_folder *folder)
{
    (void)folder;
    return UINT64_MAX;
}

/* ---- a file ---- */

uint64_t tb_anchor_bytes(const struct tb_version_key *version, const struct tb_manifest *const *manifests,
                         const struct tb_disk_key *key)
{
    (void)manifests, (void)key;
    return (uint64_t)version->shard_count * SHARD_BYTES;
}

static enum tb_status refuse(char error_out[TB_ANCHOR_ERROR_BYTES], const char *why)
{
    (void)snprintf(error_out, TB_ANCHOR_ERROR_BYTES, "%s", why);
    errno = ENOSPC;
    return TB_SITE_IO;
}

/* Written over the oldest that has no name any more; there is one, as older ones go
 * when a newer is there. */
enum tb_status tb_anchor_create(const char *path, const struct tb_version_key *version,
                                const struct tb_manifest *const *manifests, const struct tb_disk_key *key,
                                struct tb_anchor_file *file_out, char error_out[TB_ANCHOR_ERROR_BYTES])
{
    uint32_t i = 0;
    (void)path, (void)manifests, (void)key;
    if (the->now < the->sites[the->current->site].store.full_until)
        return refuse(error_out, "the disk is full");
    while (i < ANCHORS_MAX && disk()[i].whole)
        i++;
    if (i == ANCHORS_MAX) return refuse(error_out, "no room for another anchor");
    disk()[i] = (struct disk_anchor){.key = *version};
    *file_out = (struct tb_anchor_file){.fd = (int)i, .key = *version};
    return TB_OK;
}

enum tb_status tb_anchor_write(struct tb_anchor_file *f, uint32_t shard, uint64_t at, const void *bytes,
                               uint64_t count)
{
    TB_ASSERT(shard < SHARDS_MAX && at + count <= SHARD_BYTES);
    memcpy(disk()[f->fd].bytes[shard] + at, bytes, count);
    return TB_OK;
}

enum tb_status tb_anchor_flush(struct tb_anchor_file *f)
{
    (void)f;
    return TB_OK;
}

enum tb_status tb_anchor_finish(struct tb_anchor_file *f)
{
    disk()[f->fd].whole = true;
    world_say("an anchor of v%u is on the disk", world_version_find(&f->key.uid) + 1);
    return TB_OK;
}

void tb_anchor_abort(struct tb_anchor_file *f)
{
    disk()[f->fd].whole = false;
}

struct tb_disk_look tb_anchor_look(const char *path, const struct tb_disk_keys *keys)
{
    (void)path, (void)keys;
    return (struct tb_disk_look){.found = TB_DISK_FITS};
}

enum tb_status tb_anchor_open(const char *path, const struct tb_disk_keys *keys,
                              struct tb_anchor_file *file_out, char error_out[TB_ANCHOR_ERROR_BYTES])
{
    (void)keys;
    const uint32_t i = (uint32_t)strtoul(path, NULL, 10);
    const struct disk_anchor *a = &disk()[i];
    const struct version *v = &the->versions[world_version_find(&a->key.uid)];
    if (world_strikes(FAULT_ROT, 5000)) {
        (void)snprintf(error_out, TB_ANCHOR_ERROR_BYTES, "its head is damaged");
        return TB_BAD_FILE;
    }
    struct tb_anchor_file f = {.fd = (int)i, .path = tb_strdup(path), .key = a->key};
    f.manifests = tb_calloc(a->key.shard_count, sizeof *f.manifests);
    for (uint32_t s = 0; s < a->key.shard_count; s++)
        f.manifests[s] = v->shards[s].manifest; /* what they point to is the oracle's, and stays */
    *file_out = f;
    return TB_OK;
}

enum tb_status tb_anchor_read(struct tb_anchor_file *f, uint32_t shard, uint32_t k, uint8_t *out)
{
    const struct tb_chunk *c = &f->manifests[shard].chunks[k];
    memcpy(out, disk()[f->fd].bytes[shard] + c->offset, c->bytes);
    if (world_strikes(FAULT_ROT, 1000)) out[0] ^= 1u;
    the->went[WAY_ANCHOR]++;
    return TB_OK;
}

void tb_anchor_close(struct tb_anchor_file *f)
{
    tb_free(f->manifests);
    tb_free(f->path);
}
