/* disk_world.h - what the tests of gateway/disk share: a folder of its own, files in it, and
 * manifests. */
#ifndef TB_TEST_DISK_WORLD_H
#define TB_TEST_DISK_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/layout/manifest.h"
#include "tests/unit/scratch.h"

struct disk_world {
    char dir[SCRATCH_BYTES];
};

static inline int disk_setup(void **state)
{
    struct disk_world *w = calloc(1, sizeof *w);
    *state = w;
    return scratch_folder(w->dir, sizeof w->dir, "disk") ? 0 : -1;
}

static inline int disk_teardown(void **state)
{
    struct disk_world *w = *state;
    const bool removed = scratch_remove(w->dir);
    free(w);
    return removed ? 0 : -1;
}

/* Good until seven more were asked for. */
static inline const char *disk_path(const struct disk_world *w, const char *name)
{
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", w->dir, name);
    return path;
}

static inline void disk_put(struct disk_world *w, const char *name, const void *bytes, size_t count)
{
    FILE *f = fopen(disk_path(w, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

/* A safetensors file: that header, those bytes. Its header's length is returned. */
static inline size_t disk_put_tensors(struct disk_world *w, const char *name, const char *json,
                                      const void *bytes, size_t count)
{
    const size_t json_bytes = strlen(json);
    uint8_t *file = malloc(8 + json_bytes + count);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)json_bytes >> (8 * i));
    memcpy(file + 8, json, json_bytes);
    memcpy(file + 8 + json_bytes, bytes, count);
    disk_put(w, name, file, 8 + json_bytes + count);
    free(file);
    return 8 + json_bytes;
}

/* Turns one byte of a file over. */
static inline void disk_damage(struct disk_world *w, const char *name, long at)
{
    FILE *f = fopen(disk_path(w, name), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* Freed with *memory_out. */
static inline struct tb_manifest disk_manifest(const struct tb_tensor *tensors, uint32_t tensor_count,
                                               const struct tb_blob *blobs, uint32_t blob_count,
                                               void **memory_out)
{
    struct tb_layout layout;
    struct tb_manifest m;
    const size_t layout_bytes = tb_layout_bytes_for(tensors, tensor_count);
    void *layout_memory = malloc(layout_bytes);
    assert_int_equal(tb_layout_build(tensors, tensor_count, layout_memory, layout_bytes, &layout), TB_OK);
    const size_t cap = tb_manifest_bytes_for(&layout, blobs, blob_count);
    *memory_out = malloc(cap);
    assert_int_equal(tb_manifest_build(&layout, blobs, blob_count, *memory_out, cap, &m), TB_OK);
    free(layout_memory);
    return m;
}

#endif
