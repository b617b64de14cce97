/* anchor_world.h - what the tests of anchors share: a version of two shards, and how it is
 * written. */
#ifndef TB_TEST_ANCHOR_WORLD_H
#define TB_TEST_ANCHOR_WORLD_H

#include "base/layout/version_key.h"
#include "disk_world.h"
#include "gateway/disk/anchor_file.h"
#include "tests/unit/check.h"

static const struct tb_disk_keys in_clear = {.key = NULL};

#define SHARDS      2u
#define SHARD_BYTES (2u << 20)

struct version {
    struct tb_version_key key;
    struct tb_manifest manifests[SHARDS];
    const struct tb_manifest *list[SHARDS];
    void *memory[SHARDS];
    uint8_t *bytes[SHARDS];
};

static inline void version_make(struct version *v)
{
    struct tb_digest roots[SHARDS];
    uint64_t seed = 42;
    memset(v, 0, sizeof *v);
    v->key = (struct tb_version_key){.run_order = 3, .number = 12, .shard_count = SHARDS};
    v->key.uid.bytes[0] = v->key.run.bytes[0] = 9;
    CHECK_OK(tb_name_set(&v->key.model, "policy"));
    for (uint32_t s = 0; s < SHARDS; s++) {
        const struct tb_tensor t = {.name = s == 0 ? "a" : "b",
                                    .dtype = TB_DTYPE_U8,
                                    .rank = 1,
                                    .full = {SHARD_BYTES + s},
                                    .box_count = {SHARD_BYTES + s}};
        v->manifests[s] = disk_manifest(&t, 1, NULL, 0, &v->memory[s]);
        struct tb_manifest *m = &v->manifests[s];
        v->bytes[s] = malloc(m->bytes);
        for (uint64_t i = 0; i < m->bytes; i++)
            v->bytes[s][i] = (uint8_t)check_random(&seed);
        for (uint32_t k = 0; k < m->chunk_count; k++)
            m->digests[k] = tb_digest_of(v->bytes[s] + m->chunks[k].offset, m->chunks[k].bytes);
        roots[s] = m->root = tb_manifest_root(m);
        v->list[s] = m;
    }
    v->key.root = tb_version_key_root(&v->key, roots);
}

static inline void version_fini(struct version *v)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        free(v->memory[s]);
        free(v->bytes[s]);
    }
}

static inline enum tb_status write_anchor(const struct version *v, const struct tb_disk_key *key,
                                          const char *path)
{
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    enum tb_status s = tb_anchor_create(path, &v->key, v->list, key, &f, error);
    if (s != TB_OK) return s;
    assert_true(tb_anchor_bytes(&v->key, v->list, key) >= f.bytes);
    assert_true(key != NULL || tb_anchor_bytes(&v->key, v->list, key) == f.bytes);
    for (uint32_t i = 0; s == TB_OK && i < SHARDS; i++)
        s = tb_anchor_write(&f, i, 0, v->bytes[i], v->manifests[i].bytes);
    if (s == TB_OK) return tb_anchor_finish(&f);
    tb_anchor_abort(&f);
    return s;
}

#endif
