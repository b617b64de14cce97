/* A folder's files are a version's chunks where names, dtypes and shapes say so, in
 * whatever files and order the tensors stand; what is missing, cut short or of another
 * shape is no chunk. P1, P7, P10.
 * Covers: gateway/disk/local_files.c */
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/layout/tensor.h"
#include "disk_world.h"
#include "gateway/disk/local_files.h"
#include "tests/unit/check.h"

/* As `tombolo adopt` and the gateway do it, one after the other. */
static enum tb_status open_both(const char *folder, const _Atomic bool *stop, struct tb_local_files **out,
                                char error[TB_LOCAL_ERROR_BYTES])
{
    static struct tb_given_files given;
    const enum tb_status s = tb_given_open(folder, NULL, &given, error);
    return s == TB_OK ? tb_local_open(&given, stop, out, error) : s;
}

static struct tb_local_files *opened(struct disk_world *w)
{
    struct tb_local_files *l = NULL;
    char error[TB_LOCAL_ERROR_BYTES] = "";
    const enum tb_status s = open_both(w->dir, NULL, &l, error);
    if (s != TB_OK) print_error("%s\n", error);
    CHECK_OK(s);
    return l;
}

static enum tb_status refused(struct disk_world *w, char error[TB_LOCAL_ERROR_BYTES])
{
    struct tb_local_files *l = NULL;
    error[0] = '\0';
    const enum tb_status s = open_both(w->dir, NULL, &l, error);
    assert_null(l);
    assert_true(strlen(error) > 0);
    return s;
}

static void count_up(uint8_t *bytes, size_t count, uint8_t first)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(first + i * 7);
}

/* Larger elements come first in packed order, wherever they stand in files. */
static void tensors_are_found_in_whatever_file_they_stand(void **state)
{
    struct disk_world *w = *state;
    uint8_t a[24], b[16];
    void *memory = NULL;
    count_up(a, sizeof a, 1);
    count_up(b, sizeof b, 100);
    (void)disk_put_tensors(w, "one.safetensors",
                           "{\"small\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
                           "\"other\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[8,24]}}",
                           a, sizeof a);
    (void)disk_put_tensors(w, "two.safetensors",
                           "{\"half\":{\"dtype\":\"BF16\",\"shape\":[2,4],\"data_offsets\":[0,16]}}", b,
                           sizeof b);
    const struct tb_tensor tensors[] = {
        {.name = "half", .dtype = TB_DTYPE_BF16, .rank = 2, .full = {2, 4}, .box_count = {2, 4}},
        {.name = "other", .dtype = TB_DTYPE_F32, .rank = 1, .full = {4}, .box_count = {4}},
        {.name = "small", .dtype = TB_DTYPE_U8, .rank = 1, .full = {8}, .box_count = {8}}};
    struct tb_manifest m = disk_manifest(tensors, 3, NULL, 0, &memory);
    struct tb_local_files *l = opened(w);
    uint8_t out[64];
    assert_int_equal(m.chunk_count, 3);
    assert_true(tb_local_read(l, &m, 0, out));
    assert_memory_equal(out, a + 8, 16);
    assert_true(tb_local_read(l, &m, 1, out));
    assert_memory_equal(out, b, 16);
    assert_true(tb_local_read(l, &m, 2, out));
    assert_memory_equal(out, a, 8);
    tb_local_close(l);
    free(memory);
}

/* Shards hold boxes of tensors that files have whole: rows, columns, a block in the middle. */
static void boxes_are_cut_out_of_whole_tensors(void **state)
{
    struct disk_world *w = *state;
    static const struct {
        uint64_t first[3], count[3];
    } boxes[] = {
        {{2, 0, 0}, {2, 5, 6}}, {{0, 0, 3}, {4, 5, 3}}, {{1, 2, 1}, {2, 2, 4}}, {{3, 4, 5}, {1, 1, 1}}};
    uint16_t full[4][5][6], out[4 * 5 * 6];
    for (int i = 0; i < 4 * 5 * 6; i++)
        (&full[0][0][0])[i] = (uint16_t)(i * 257 + 3);
    (void)disk_put_tensors(w, "t.safetensors",
                           "{\"t\":{\"dtype\":\"F16\",\"shape\":[4,5,6],\"data_offsets\":[0,240]}}", full,
                           sizeof full);
    struct tb_local_files *l = opened(w);
    for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; b++) {
        struct tb_tensor t = {.name = "t", .dtype = TB_DTYPE_F16, .rank = 3, .full = {4, 5, 6}};
        void *memory = NULL;
        memcpy(t.box_first, boxes[b].first, sizeof boxes[b].first);
        memcpy(t.box_count, boxes[b].count, sizeof boxes[b].count);
        struct tb_manifest m = disk_manifest(&t, 1, NULL, 0, &memory);
        assert_true(tb_local_read(l, &m, 0, (uint8_t *)out));
        const uint16_t *at = out;
        for (uint64_t x = 0; x < t.box_count[0]; x++)
            for (uint64_t y = 0; y < t.box_count[1]; y++)
                for (uint64_t z = 0; z < t.box_count[2]; z++)
                    assert_int_equal(*at++, full[t.box_first[0] + x][t.box_first[1] + y][t.box_first[2] + z]);
        free(memory);
    }
    tb_local_close(l);
}

static struct tb_tensor other(const char *name, const char *dtype, uint64_t rows, uint64_t columns)
{
    struct tb_tensor t = {.name = name, .rank = 2, .full = {rows, columns}, .box_count = {rows, columns}};
    assert_true(tb_tensor_set_dtype(&t, dtype));
    return t;
}

/* Elements of half a byte: an odd count of them, and a block whose rows begin and end on bytes. A
 * dtype that nobody knows: its bytes. */
static void fractions_of_a_byte_are_read(void **state)
{
    struct disk_world *w = *state;
    uint8_t bytes[8 + 16 + 7], out[64];
    count_up(bytes, sizeof bytes, 9);
    (void)disk_put_tensors(w, "t.safetensors",
                           "{\"odd\":{\"dtype\":\"F4\",\"shape\":[3,5],\"data_offsets\":[0,8]},"
                           "\"even\":{\"dtype\":\"F4\",\"shape\":[4,8],\"data_offsets\":[8,24]},"
                           "\"new\":{\"dtype\":\"NEW\",\"shape\":[9],\"data_offsets\":[24,31]}}",
                           bytes, sizeof bytes);
    struct tb_tensor tensors[] = {other("odd", "F4", 3, 5), other("even", "F4", 4, 8),
                                  other("new", "NEW:8", 7, 1)};
    tensors[2].rank = 1;
    tensors[1].box_first[0] = 1;
    tensors[1].box_count[0] = 2;
    tensors[1].box_first[1] = 2;
    tensors[1].box_count[1] = 4;
    void *memory = NULL;
    struct tb_manifest m = disk_manifest(tensors, 3, NULL, 0, &memory);
    struct tb_local_files *l = opened(w);
    assert_int_equal(m.chunk_count, 2);
    assert_true(tb_local_read(l, &m, 0, out)); /* both of F4: "even", then "odd" */
    assert_memory_equal(out, bytes + 8 + 4 + 1, 2);
    assert_memory_equal(out + 2, bytes + 8 + 8 + 1, 2);
    assert_memory_equal(out + 4, bytes, 8);
    assert_true(tb_local_read(l, &m, 1, out));
    assert_memory_equal(out, bytes + 24, 7);
    free(memory);
    tensors[0] = other("odd", "F4:4", 3, 5);
    tensors[0].other.bits = 5; /* the same name, and no dtype of the file's */
    m = disk_manifest(tensors, 1, NULL, 0, &memory);
    assert_false(tb_local_read(l, &m, 0, out));
    tb_local_close(l);
    free(memory);
}

static void blobs_are_files_and_headers(void **state)
{
    struct disk_world *w = *state;
    static const char json[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    static const char config[] = "{\"layers\": 2}";
    const size_t header = disk_put_tensors(w, "m.safetensors", json, "abc", 3);
    disk_put(w, "config.json", config, strlen(config));
    assert_int_equal(mkdir(disk_path(w, "sub"), 0755), 0);
    disk_put(w, "sub/vocab.txt", "xyz", 3);
    const struct tb_tensor t = {.name = "t", .dtype = TB_DTYPE_U8, .rank = 1, .full = {3}, .box_count = {3}};
    const struct tb_blob blobs[] = {{.name = ".tombolo/header/m.safetensors", .bytes = header},
                                    {.name = "config.json", .bytes = sizeof config - 1},
                                    {.name = "sub/vocab.txt", .bytes = 3}};
    void *memory = NULL;
    struct tb_manifest m = disk_manifest(&t, 1, blobs, 3, &memory);
    struct tb_local_files *l = opened(w);
    uint8_t out[256];
    assert_int_equal(m.chunk_count, 2);
    assert_true(tb_local_read(l, &m, 1, out));
    assert_memory_equal(out + 8, json, strlen(json));
    assert_memory_equal(out + header, config, strlen(config));
    assert_memory_equal(out + header + strlen(config), "xyz", 3);
    assert_int_equal(truncate(disk_path(w, "sub/vocab.txt"), 2), 0); /* its descriptor stays */
    assert_false(tb_local_read(l, &m, 1, out));
    tb_local_close(l);
    free(memory);
}

/* Another dtype, shape or name is another tensor, though the bytes were there. */
static void another_tensor_of_the_name_is_not_read(void **state)
{
    struct disk_world *w = *state;
    static const struct tb_tensor others[] = {
        {.name = "u", .dtype = TB_DTYPE_U8, .rank = 2, .full = {2, 4}, .box_count = {2, 4}},
        {.name = "t", .dtype = TB_DTYPE_I8, .rank = 2, .full = {2, 4}, .box_count = {2, 4}},
        {.name = "t", .dtype = TB_DTYPE_U8, .rank = 2, .full = {4, 2}, .box_count = {4, 2}},
        {.name = "t", .dtype = TB_DTYPE_U8, .rank = 1, .full = {8}, .box_count = {8}}};
    (void)disk_put_tensors(w, "t.safetensors",
                           "{\"t\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,8]}}", "12345678",
                           8);
    struct tb_local_files *l = opened(w);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        void *memory = NULL;
        uint8_t out[8];
        struct tb_manifest m = disk_manifest(&others[i], 1, NULL, 0, &memory);
        assert_false(tb_local_read(l, &m, 0, out));
        free(memory);
    }
    tb_local_close(l);
}

/* A file that is cut short, before it is opened or after, still has what is in front of the cut. */
static void a_file_cut_short_has_its_first_chunks(void **state)
{
    struct disk_world *w = *state;
    const uint32_t count = 3 << 20;
    uint8_t *bytes = malloc(count), *out = malloc(2 << 20);
    void *memory = NULL;
    count_up(bytes, count, 5);
    const size_t header = disk_put_tensors(
        w, "t.safetensors", "{\"t\":{\"dtype\":\"U8\",\"shape\":[3145728],\"data_offsets\":[0,3145728]}}",
        bytes, count);
    const struct tb_tensor t = {
        .name = "t", .dtype = TB_DTYPE_U8, .rank = 1, .full = {count}, .box_count = {count}};
    struct tb_manifest m = disk_manifest(&t, 1, NULL, 0, &memory);
    assert_int_equal(m.chunk_count, 3);
    assert_int_equal(truncate(disk_path(w, "t.safetensors"), (off_t)header + (2 << 20) + 100), 0);
    struct tb_local_files *l = opened(w);
    assert_true(tb_local_read(l, &m, 1, out));
    assert_memory_equal(out, bytes + m.chunks[1].offset, m.chunks[1].bytes);
    assert_false(tb_local_read(l, &m, 2, out));
    assert_int_equal(truncate(disk_path(w, "t.safetensors"), (off_t)header + (1 << 20)), 0);
    assert_true(tb_local_read(l, &m, 0, out));
    assert_false(tb_local_read(l, &m, 1, out));
    tb_local_close(l);
    free(memory);
    free(bytes);
    free(out);
}

static void bad_files_are_passed_over_and_told(void **state)
{
    struct disk_world *w = *state;
    struct tb_local_told told;
    char error[TB_LOCAL_ERROR_BYTES];
    disk_put(w, "bad.safetensors", "no header at all", 16);
    CHECK_STATUS(refused(w, error), TB_BAD_FILE);
    assert_non_null(strstr(error, "bad.safetensors"));
    assert_int_equal(mkfifo(disk_path(w, "pipe.safetensors"), 0600), 0);
    (void)disk_put_tensors(w, "good.safetensors",
                           "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x", 1);
    struct tb_local_files *l = opened(w);
    tb_local_told(l, &told);
    assert_int_equal(told.files, 2);
    assert_int_equal(told.passed_over, 1);
    assert_int_equal(told.tensors, 1);
    tb_local_close(l);
}

/* Components of one version have equal tensor names; the version names them by their files. Two
 * versions side by side are none. */
static void components_are_read_by_their_files(void **state)
{
    struct disk_world *w = *state;
    static const char json[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    char error[TB_LOCAL_ERROR_BYTES];
    static const struct {
        const char *name, *bytes; /* NULL: it is not there */
    } tensors[] = {{"one/m.safetensors:t", "abc"},
                   {"two/m.safetensors:t", "xyz"},
                   {"three/m.safetensors:t", NULL},
                   {"one/m.safetensors:u", NULL}};
    assert_int_equal(mkdir(disk_path(w, "one"), 0755), 0);
    assert_int_equal(mkdir(disk_path(w, "two"), 0755), 0);
    (void)disk_put_tensors(w, "one/m.safetensors", json, "abc", 3);
    (void)disk_put_tensors(w, "two/m.safetensors", json, "xyz", 3);
    struct tb_local_files *l = opened(w);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        const struct tb_tensor t = {
            .name = tensors[i].name, .dtype = TB_DTYPE_U8, .rank = 1, .full = {3}, .box_count = {3}};
        void *memory = NULL;
        uint8_t out[3];
        struct tb_manifest m = disk_manifest(&t, 1, NULL, 0, &memory);
        assert_true(tb_local_read(l, &m, 0, out) == (tensors[i].bytes != NULL));
        if (tensors[i].bytes != NULL) assert_memory_equal(out, tensors[i].bytes, 3);
        free(memory);
    }
    tb_local_close(l);
    disk_put(w, "two/STABLE", "{}", 2);
    CHECK_STATUS(refused(w, error), TB_CONFLICT);
    assert_non_null(strstr(error, "give the folder of one version"));
}

static void folders_that_are_none_or_ambiguous_are_refused(void **state)
{
    struct disk_world *w = *state;
    char error[TB_LOCAL_ERROR_BYTES];
    struct tb_local_files *l = NULL;
    CHECK_STATUS(refused(w, error), TB_NOT_FOUND); /* nothing in it */
    CHECK_STATUS(open_both("/nonexistent/folder", NULL, &l, error), TB_NOT_FOUND);
    (void)disk_put_tensors(w, "a.safetensors",
                           "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x", 1);
    (void)disk_put_tensors(w, "b.safetensors",
                           "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "y", 1);
    CHECK_STATUS(refused(w, error), TB_CONFLICT);
    assert_non_null(strstr(error, "a.safetensors"));
    assert_non_null(strstr(error, "b.safetensors"));
}

/* P6: a folder of thousands of files on a slow disk holds up nobody who wants to stop. */
static void a_stop_is_heeded_before_the_next_file(void **state)
{
    struct disk_world *w = *state;
    char error[TB_LOCAL_ERROR_BYTES];
    struct tb_local_files *l = NULL;
    _Atomic bool stop = true;
    (void)disk_put_tensors(w, "a.safetensors",
                           "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x", 1);
    CHECK_STATUS(open_both(w->dir, &stop, &l, error), TB_CANCELLED);
    assert_null(l);
    atomic_store(&stop, false);
    CHECK_OK(open_both(w->dir, &stop, &l, error));
    tb_local_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_are_found_in_whatever_file_they_stand, disk_setup,
                                        disk_teardown),
        cmocka_unit_test_setup_teardown(boxes_are_cut_out_of_whole_tensors, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(fractions_of_a_byte_are_read, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(blobs_are_files_and_headers, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(another_tensor_of_the_name_is_not_read, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(a_file_cut_short_has_its_first_chunks, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(bad_files_are_passed_over_and_told, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(components_are_read_by_their_files, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(folders_that_are_none_or_ambiguous_are_refused, disk_setup,
                                        disk_teardown),
        cmocka_unit_test_setup_teardown(a_stop_is_heeded_before_the_next_file, disk_setup, disk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
