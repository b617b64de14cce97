/* An anchor has its name when all of it is on the disk; what it says of its version is checked up
 * to the root, and what is damaged, cut short or a stranger's is refused. P1, P3, P7, P10.
 * Covers: gateway/disk/anchor_file.c */
#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/layout/version_key.h"
#include "disk_world.h"
#include "gateway/disk/anchor_file.h"
#include "tests/unit/check.h"

#define SHARDS      2u
#define SHARD_BYTES (2u << 20)

struct version {
    struct tb_version_key key;
    struct tb_manifest manifests[SHARDS];
    const struct tb_manifest *list[SHARDS];
    void *memory[SHARDS];
    uint8_t *bytes[SHARDS];
};

static void version_make(struct version *v)
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
    v->key.root = tb_version_root(&v->key, roots);
}

static void version_fini(struct version *v)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        free(v->memory[s]);
        free(v->bytes[s]);
    }
}

static enum tb_status write_anchor(const struct version *v, const char *path)
{
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    enum tb_status s = tb_anchor_create(path, &v->key, v->list, &f, error);
    if (s != TB_OK) return s;
    assert_int_equal(f.bytes, tb_anchor_bytes(&v->key, v->list));
    for (uint32_t i = 0; s == TB_OK && i < SHARDS; i++)
        s = tb_anchor_write(&f, i, 0, v->bytes[i], v->manifests[i].bytes);
    if (s == TB_OK) return tb_anchor_finish(&f);
    tb_anchor_abort(&f);
    return s;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static void a_version_comes_back_as_it_was(void **state)
{
    struct disk_world *w = *state;
    struct version v;
    struct tb_anchor_file f;
    struct stat st;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    const char *path = disk_path(w, "policy@3-12.anchor");
    uint8_t *out = malloc(2 << 20);
    version_make(&v);
    CHECK_OK(write_anchor(&v, path));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, tb_anchor_bytes(&v.key, v.list));
    CHECK_OK(tb_anchor_open(path, &f, error));
    assert_true(tb_id_equal(&f.key.uid, &v.key.uid));
    assert_int_equal(f.key.number, 12);
    for (uint32_t s = 0; s < SHARDS; s++)
        for (uint32_t k = 0; k < v.manifests[s].chunk_count; k++) {
            const struct tb_chunk *c = &v.manifests[s].chunks[k];
            CHECK_OK(tb_anchor_read(&f, s, k, out));
            assert_memory_equal(out, v.bytes[s] + c->offset, c->bytes);
            assert_true(tb_digest_equal(&f.manifests[s].digests[k], &v.manifests[s].digests[k]));
        }
    tb_anchor_close(&f);
    version_fini(&v);
    free(out);
}

/* Each byte of the head counts; none of the bytes behind it is looked at here: their digests
 * are. */
static void a_damaged_head_is_refused(void **state)
{
    struct disk_world *w = *state;
    struct version v;
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES];
    uint64_t head = 0;
    version_make(&v);
    CHECK_OK(write_anchor(&v, disk_path(w, "x.anchor")));
    FILE *file = fopen(disk_path(w, "x.anchor"), "rb");
    assert_int_equal(fseek(file, 8, SEEK_SET), 0);
    assert_int_equal(fread(&head, sizeof head, 1, file), 1);
    (void)fclose(file);
    for (long at = 0; at < 64 + (long)head; at += at < 40 ? 1 : 7) {
        if (at >= 32 && at < 64) continue; /* zeros that mean nothing */
        const char *path = disk_path(w, "x.anchor");
        error[0] = '\0';
        CHECK_OK(write_anchor(&v, path));
        disk_damage(w, "x.anchor", at);
        CHECK_STATUS(tb_anchor_open(path, &f, error), TB_BAD_FILE);
        assert_non_null(strstr(error, "x.anchor"));
    }
    version_fini(&v);
}

static void cut_or_foreign_files_are_refused(void **state)
{
    struct disk_world *w = *state;
    struct version v;
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES];
    uint8_t *out = malloc(2 << 20);
    const char *path = disk_path(w, "x.anchor");
    version_make(&v);
    for (off_t bytes = 0; bytes < 320; bytes += 16) {
        CHECK_OK(write_anchor(&v, path));
        assert_int_equal(truncate(path, bytes), 0);
        CHECK_STATUS(tb_anchor_open(path, &f, error), TB_BAD_FILE);
    }
    CHECK_OK(write_anchor(&v, path));
    assert_int_equal(truncate(path, (off_t)tb_anchor_bytes(&v.key, v.list) - 1), 0);
    CHECK_OK(tb_anchor_open(path, &f, error)); /* all but its last chunk is there */
    CHECK_OK(tb_anchor_read(&f, 0, 0, out));
    CHECK_STATUS(tb_anchor_read(&f, 1, v.manifests[1].chunk_count - 1, out), TB_SITE_IO);
    tb_anchor_close(&f);
    CHECK_STATUS(tb_anchor_open(disk_path(w, "none.anchor"), &f, error), TB_NOT_FOUND);
    CHECK_STATUS(tb_anchor_open(w->dir, &f, error), TB_BAD_FILE);
    version_fini(&v);
    free(out);
}

/* P3: whichever call to the disk fails, the older anchor stands as it was, and
 * nothing is left beside it. */
static void a_failed_write_leaves_the_older_one(void **state)
{
    struct disk_world *w = *state;
    static const enum tb_fault_point points[] = {TB_FAULT_open, TB_FAULT_pwrite, TB_FAULT_fsync,
                                                 TB_FAULT_rename};
    struct version v;
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES];
    const char *path = disk_path(w, "x.anchor"), *part = disk_path(w, "x.anchor.part");
    version_make(&v);
    CHECK_OK(write_anchor(&v, path));
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        tb_fault_arm(points[p], 1, true);
        CHECK_STATUS(write_anchor(&v, path), TB_SITE_IO);
        tb_fault_arm(points[p], 0, false);
        assert_false(exists(part));
        CHECK_OK(tb_anchor_open(path, &f, error));
        tb_anchor_close(&f);
    }
    version_fini(&v);
}

/* A kill leaves a file of another name. */
static void a_writing_that_did_not_end_is_no_anchor(void **state)
{
    struct disk_world *w = *state;
    struct version v;
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES];
    const char *path = disk_path(w, "x.anchor"), *part = disk_path(w, "x.anchor.part");
    version_make(&v);
    CHECK_OK(tb_anchor_create(path, &v.key, v.list, &f, error));
    CHECK_OK(tb_anchor_write(&f, 0, 0, v.bytes[0], 1000));
    assert_true(exists(part));
    assert_false(exists(path));
    tb_anchor_abort(&f);
    assert_false(exists(part));
    version_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_version_comes_back_as_it_was, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(a_damaged_head_is_refused, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(cut_or_foreign_files_are_refused, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_the_older_one, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(a_writing_that_did_not_end_is_no_anchor, disk_setup, disk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
