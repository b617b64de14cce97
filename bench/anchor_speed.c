/* anchor_speed.c - what `disk.key` costs: an anchor written and read back, and rows of the store
 * committed, each in clear and encrypted, in a folder.
 *
 *     tombolo-anchor-speed FOLDER [MIB]
 *
 * Rounds take turns, so whatever else the machine does falls on both. On tmpfs the numbers are
 * those of the code; on a disk those of the disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/layout/version_key.h"
#include "bench/measured.h"
#include "gateway/disk/anchor_file.h"
#include "gateway/store/store.h"

#define ROUNDS     5
#define PIECE      (4u << 20) /* as tombolod writes at full speed */
#define STORE_ROWS 200
#define CHUNK_ROOM ((size_t)64 << 20)

struct side {
    const char *name;
    struct tb_disk_keys keys;
    double write_s, read_s, rows_s; /* the best of the rounds */
};

struct bench {
    const char *folder;
    struct tb_version_key version;
    struct tb_manifest manifest;
    const struct tb_manifest *list[1];
    uint8_t *weights, *chunk;
};

static void must(bool done, const char *what)
{
    if (!done) measured_die(what);
}

static void path_of(const struct bench *b, const char *name, char out[512])
{
    (void)snprintf(out, 512, "%s/%s", b->folder, name);
}

static void version_make(struct bench *b, uint64_t bytes)
{
    struct tb_layout layout;
    const struct tb_tensor t = {
        .name = "w", .dtype = TB_DTYPE_U8, .rank = 1, .full = {bytes}, .box_count = {bytes}};
    const size_t cap = tb_layout_bytes_for(&t, 1);
    void *memory = malloc(cap);
    must(tb_layout_build(&t, 1, memory, cap, &layout) == TB_OK, "layout");
    const size_t need = tb_manifest_bytes_for(&layout, NULL, 0);
    must(tb_manifest_build(&layout, NULL, 0, malloc(need), need, &b->manifest) == TB_OK, "manifest");
    for (uint32_t k = 0; k < b->manifest.chunk_count; k++)
        memset(&b->manifest.digests[k], 0, sizeof b->manifest.digests[k]);
    b->manifest.root = tb_manifest_root(&b->manifest);
    b->version = (struct tb_version_key){.run_order = 1, .number = 1, .shard_count = 1};
    b->version.uid.bytes[0] = b->version.run.bytes[0] = 1;
    must(tb_name_set(&b->version.model, "policy") == TB_OK, "name");
    b->version.root = tb_version_key_root(&b->version, &b->manifest.root);
    b->list[0] = &b->manifest;
    b->weights = measured_memory(bytes, 0x5a);
    b->chunk = measured_memory(CHUNK_ROOM, 0);
    free(memory);
}

static double anchor_write(const struct bench *b, const struct side *s, const char *path)
{
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    const double from = measured_now_s();
    must(tb_anchor_create(path, &b->version, b->list, s->keys.key, &f, error) == TB_OK, error);
    for (uint64_t at = 0, count; at < b->manifest.bytes; at += count) {
        count = b->manifest.bytes - at < PIECE ? b->manifest.bytes - at : PIECE;
        must(tb_anchor_write(&f, 0, at, b->weights + at, count) == TB_OK, path);
    }
    must(tb_anchor_finish(&f) == TB_OK, path);
    return measured_now_s() - from;
}

static double anchor_read(const struct bench *b, const struct side *s, const char *path)
{
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    const double from = measured_now_s();
    must(tb_anchor_open(path, &s->keys, &f, error) == TB_OK, error);
    for (uint32_t k = 0; k < b->manifest.chunk_count; k++)
        must(tb_anchor_read(&f, 0, k, b->chunk) == TB_OK, path);
    tb_anchor_close(&f);
    return measured_now_s() - from;
}

/* One transaction a row, each synced. */
static double store_write(const struct bench *b, const struct side *s, const char *path)
{
    char error[256] = "";
    struct tb_store *store = NULL;
    const struct tb_store_audit audit = {.what = "publish", .who = "unix:0", .why = "", .wall_ms = 1};
    must(tb_store_open(path, &s->keys, &store, error) == TB_OK, error);
    const double from = measured_now_s();
    for (uint64_t i = 0; i < STORE_ROWS; i++) {
        struct tb_store_version v = {.key = b->version, .state = TB_VERSION_READY, .bytes = 1};
        v.key.number = i + 1;
        memcpy(v.key.uid.bytes, &i, sizeof i);
        must(tb_store_version(store, &v, &audit) == TB_OK, path);
    }
    const double took = measured_now_s() - from;
    tb_store_close(store);
    (void)unlink(path);
    return took;
}

static void least(double *best, double now, int round)
{
    if (round == 0 || now < *best) *best = now;
}

static void round_do(const struct bench *b, struct side *s, int round)
{
    char anchor[512], store[512];
    path_of(b, "speed.anchor", anchor);
    path_of(b, "speed.sqlite", store);
    least(&s->write_s, anchor_write(b, s, anchor), round);
    least(&s->read_s, anchor_read(b, s, anchor), round);
    least(&s->rows_s, store_write(b, s, store), round);
    (void)unlink(anchor);
}

int main(int argc, char **argv)
{
    static const struct tb_disk_key key = {{1, 2, 3}};
    struct side sides[] = {{.name = "in clear"}, {.name = "encrypted", .keys.key = &key}};
    struct bench b = {.folder = argc > 1 ? argv[1] : NULL};
    const uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 512) << 20;
    if (b.folder == NULL || bytes == 0) {
        fprintf(stderr, "Usage: tombolo-anchor-speed FOLDER [MIB]\n");
        return 2;
    }
    version_make(&b, bytes);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < 2; i++)
            round_do(&b, &sides[i], round);
    printf("%-10s %14s %14s %16s\n", "", "anchor write", "anchor read", "store commits");
    for (size_t i = 0; i < 2; i++)
        printf("%-10s %9.0f MB/s %9.0f MB/s %14.0f/s\n", sides[i].name,
               (double)bytes / 1e6 / sides[i].write_s, (double)bytes / 1e6 / sides[i].read_s,
               STORE_ROWS / sides[i].rows_s);
    return 0;
}
