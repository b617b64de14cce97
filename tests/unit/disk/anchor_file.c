/* An anchor has its name when all of it is on the disk; what it says of its version is checked up
 * to the root, and what is damaged, cut short or a stranger's is refused. P1, P3, P7, P10.
 * Covers: gateway/disk/anchor_file.c */
#include <errno.h>
#include <sys/stat.h>

#include "anchor_world.h"
#include "base/fault.h"

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
    CHECK_OK(write_anchor(&v, NULL, path));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, tb_anchor_bytes(&v.key, v.list, NULL));
    CHECK_OK(tb_anchor_open(path, &in_clear, &f, error));
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
    CHECK_OK(write_anchor(&v, NULL, disk_path(w, "x.anchor")));
    FILE *file = fopen(disk_path(w, "x.anchor"), "rb");
    assert_int_equal(fseek(file, 8, SEEK_SET), 0);
    assert_int_equal(fread(&head, sizeof head, 1, file), 1);
    (void)fclose(file);
    for (long at = 0; at < 64 + (long)head; at += at < 40 ? 1 : 7) {
        if (at >= 32 && at < 64) continue; /* zeros that mean nothing */
        const char *path = disk_path(w, "x.anchor");
        error[0] = '\0';
        CHECK_OK(write_anchor(&v, NULL, path));
        disk_damage(w, "x.anchor", at);
        CHECK_STATUS(tb_anchor_open(path, &in_clear, &f, error), TB_BAD_FILE);
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
        CHECK_OK(write_anchor(&v, NULL, path));
        assert_int_equal(truncate(path, bytes), 0);
        CHECK_STATUS(tb_anchor_open(path, &in_clear, &f, error), TB_BAD_FILE);
    }
    CHECK_OK(write_anchor(&v, NULL, path));
    assert_int_equal(truncate(path, (off_t)tb_anchor_bytes(&v.key, v.list, NULL) - 1), 0);
    CHECK_OK(tb_anchor_open(path, &in_clear, &f, error)); /* all but its last chunk is there */
    CHECK_OK(tb_anchor_read(&f, 0, 0, out));
    CHECK_STATUS(tb_anchor_read(&f, 1, v.manifests[1].chunk_count - 1, out), TB_SITE_IO);
    tb_anchor_close(&f);
    CHECK_STATUS(tb_anchor_open(disk_path(w, "none.anchor"), &in_clear, &f, error), TB_NOT_FOUND);
    CHECK_STATUS(tb_anchor_open(w->dir, &in_clear, &f, error), TB_BAD_FILE);
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
    CHECK_OK(write_anchor(&v, NULL, path));
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        tb_fault_arm(points[p], 1, true);
        CHECK_STATUS(write_anchor(&v, NULL, path), TB_SITE_IO);
        tb_fault_arm(points[p], 0, false);
        assert_false(exists(part));
        CHECK_OK(tb_anchor_open(path, &in_clear, &f, error));
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
    CHECK_OK(tb_anchor_create(path, &v.key, v.list, NULL, &f, error));
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
