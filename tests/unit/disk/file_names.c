/* Names that the files of two ranks' shards have in common: equal files, others, and a file whose
 * name is a folder of the other. P1, P10.
 * Covers: gateway/disk/file_names.c */
#include <string.h>

#include "gateway/disk/file_names.h"
#include "tests/unit/check.h"

/* P1: Blobs of a library's ranks have no mark. Their digests, where both are known, and their sizes
 * tell them apart. */
static void blobs_of_one_name_differ_by_digest_or_size(void **state)
{
    (void)state;
    static struct tb_file_index index;
    const struct tb_digest one = {{1}}, two = {{2}};
    const struct {
        const char *mine, *other;
        uint64_t my_bytes, other_bytes;
        const struct tb_digest *mine_is, *other_is;
        const char *differs;
    } rows[] = {
        {"a/config.json", "a/config.json", 2, 2, &one, &one, NULL},
        {"a/config.json", "a/config.json", 2, 2, &one, &two, "a/config.json"},
        {"a/config.json", "b/config.json", 2, 2, &one, &two, NULL},
        {"config.json", "config.json", 2, 2, &one, NULL, NULL},
        {"config.json", "config.json", 2, 2, NULL, &two, NULL},
        {"config.json", "config.json", 2, 3, NULL, NULL, "config.json"},
        {TB_FILE_HEADER_PREFIX "m", TB_FILE_HEADER_PREFIX "m", 2, 2, &one, &one, NULL},
        {TB_FILE_HEADER_PREFIX "m", TB_FILE_HEADER_PREFIX "m", 2, 2, &one, &two, "m"},
        {TB_FILE_HEADER_PREFIX "m", "m", 2, 2, &one, &one, "m"},
    };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tb_blob left = {.name = rows[i].mine, .bytes = rows[i].my_bytes};
        const struct tb_blob right = {.name = rows[i].other, .bytes = rows[i].other_bytes};
        const struct tb_manifest mine = {.blob_count = 1, .blobs = &left};
        const struct tb_manifest other = {.blob_count = 1, .blobs = &right};
        const struct tb_file_list said = {&other, rows[i].other_is};
        tb_file_index_fill(&index, &(struct tb_file_list){&mine, rows[i].mine_is});
        const char *file = tb_file_differs(&index, &said);
        if (rows[i].differs == NULL)
            assert_null(file);
        else
            assert_string_equal(file, rows[i].differs);
    }
}

/* P1: where a file and a folder have one name, nobody can write both. */
static void a_file_and_a_folder_of_one_name_clash(void **state)
{
    (void)state;
    static struct tb_file_index index;
    static const char *const names[] = {"a", "b/c/d", "b/c.x", "e.f", TB_FILE_HEADER_PREFIX "m/n"};
    static const struct {
        const char *other, *clashes;
    } rows[] = {{"a/x", "a"},         {"a/x/y", "a"},
                {"ab/x", NULL},       {"b", "b"},
                {"b/c", "b/c"},       {"b/c/d/e", "b/c/d"},
                {"b/c/e", NULL},      {"b/c/d", NULL},
                {"b/c.x/y", "b/c.x"}, {"e", NULL},
                {"a.x", NULL},        {"m", "m"},
                {"m/n/o", "m/n"},     {TB_FILE_HEADER_PREFIX "a/x", "a"},
                {"z", NULL}};
    struct tb_blob blobs[sizeof names / sizeof *names];
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        blobs[i] = (struct tb_blob){.name = names[i]};
    const struct tb_manifest mine = {.blob_count = sizeof names / sizeof *names, .blobs = blobs};
    const struct tb_file_list my_files = {&mine, NULL};
    tb_file_index_fill(&index, &my_files);
    assert_null(tb_file_clashes(&index, &my_files));
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tb_blob blob = {.name = rows[i].other};
        const struct tb_manifest other = {.blob_count = 1, .blobs = &blob};
        const char *found = tb_file_clashes(&index, &(struct tb_file_list){&other, NULL});
        if ((found == NULL) != (rows[i].clashes == NULL) ||
            (found != NULL && strcmp(found, rows[i].clashes) != 0))
            fail_msg("%s clashes with %s", rows[i].other, found != NULL ? found : "nothing");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blobs_of_one_name_differ_by_digest_or_size),
        cmocka_unit_test(a_file_and_a_folder_of_one_name_clash),
    };
    return cmocka_run_group_tests_name("disk.file_names", tests, NULL, NULL);
}
