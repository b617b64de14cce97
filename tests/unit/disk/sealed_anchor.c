/* An encrypted anchor gives back what was written, tells nothing, and gives out no byte that was
 * changed, moved or cut. P1, P3, P8, P10.
 * Covers: gateway/disk/sealed_file.c gateway/disk/anchor_file.c */
#include <fcntl.h>
#include <sys/stat.h>

#include "anchor_world.h"

#define UNIT (TB_SEALED_BLOCK_BYTES + TB_SEAL_MORE)

static const struct tb_disk_key key_a = {{1, 2, 3}}, key_b = {{3, 2, 1}};
static const struct tb_disk_keys under_a = {.key = &key_a};
static char error[TB_ANCHOR_ERROR_BYTES];

struct anchor {
    struct disk_world *w;
    struct version v;
    const char *path;
};

static int set_up(void **state)
{
    void *w = NULL;
    struct anchor *a = calloc(1, sizeof *a);
    assert_int_equal(disk_setup(&w), 0);
    a->w = w;
    a->path = strdup(disk_path(a->w, "policy@3-12.anchor"));
    version_make(&a->v);
    CHECK_OK(write_anchor(&a->v, &key_a, a->path));
    *state = a;
    return 0;
}

static int tear_down(void **state)
{
    struct anchor *a = *state;
    void *w = a->w;
    version_fini(&a->v);
    free((void *)a->path);
    free(a);
    return disk_teardown(&w);
}

/* How many chunks are as they were; each of the others gives out nothing. */
static uint32_t good_chunks(const struct version *v, struct tb_anchor_file *f)
{
    uint32_t good = 0;
    uint8_t *out = malloc(SHARD_BYTES + 1);
    for (uint32_t s = 0; s < SHARDS; s++)
        for (uint32_t k = 0; k < v->manifests[s].chunk_count; k++) {
            const struct tb_chunk *c = &v->manifests[s].chunks[k];
            const enum tb_status status = tb_anchor_read(f, s, k, out);
            if (status != TB_OK) {
                CHECK_STATUS(status, TB_BAD_FILE);
                continue;
            }
            assert_memory_equal(out, v->bytes[s] + c->offset, c->bytes);
            good++;
        }
    free(out);
    return good;
}

static uint32_t all_chunks(const struct version *v)
{
    return v->manifests[0].chunk_count + v->manifests[1].chunk_count;
}

static uint8_t *file_read(const char *path, size_t *count_out)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    uint8_t *bytes = malloc((size_t)st.st_size);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(bytes, 1, (size_t)st.st_size, f), st.st_size);
    assert_int_equal(fclose(f), 0);
    *count_out = (size_t)st.st_size;
    return bytes;
}

static void a_version_comes_back_and_the_file_tells_nothing(void **state)
{
    struct anchor *a = *state;
    struct tb_anchor_file f;
    size_t count = 0;
    uint8_t *bytes = file_read(a->path, &count);
    assert_int_equal(count, tb_anchor_bytes(&a->v.key, a->v.list, &key_a));
    assert_null(memmem(bytes, count, "policy", 6));
    for (uint32_t s = 0; s < SHARDS; s++)
        for (size_t at = 0; at + 16 <= SHARD_BYTES; at += 64 << 10)
            assert_null(memmem(bytes, count, a->v.bytes[s] + at, 16));
    free(bytes);
    CHECK_OK(tb_anchor_open(a->path, &under_a, &f, error));
    assert_false(f.old);
    assert_true(tb_id_equal(&f.key.uid, &a->v.key.uid));
    assert_int_equal(good_chunks(&a->v, &f), all_chunks(&a->v));
    tb_anchor_close(&f);
}

/* P3: nothing is lost that the right key opens. */
static void another_key_is_told_from_damage(void **state)
{
    struct anchor *a = *state;
    struct tb_anchor_file f;
    const struct tb_disk_keys under_b = {.key = &key_b}, was_a = {&key_b, &key_a, true},
                              clear_now = {NULL, &key_a, true}, was_clear = {&key_a, NULL, true};
    CHECK_STATUS(tb_anchor_open(a->path, &under_b, &f, error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, "another key"));
    CHECK_STATUS(tb_anchor_open(a->path, &in_clear, &f, error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, "there is no disk.key"));
    assert_int_equal(tb_anchor_look(a->path, &in_clear).found, TB_DISK_OTHER);
    CHECK_OK(tb_anchor_open(a->path, &was_a, &f, error));
    assert_true(f.old);
    tb_anchor_close(&f);
    CHECK_OK(tb_anchor_open(a->path, &clear_now, &f, error));
    assert_true(f.old);
    tb_anchor_close(&f);
    CHECK_OK(write_anchor(&a->v, NULL, a->path));
    CHECK_STATUS(tb_anchor_open(a->path, &under_a, &f, error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, "in clear"));
    CHECK_OK(tb_anchor_open(a->path, &was_clear, &f, error));
    assert_true(f.old);
    assert_int_equal(good_chunks(&a->v, &f), all_chunks(&a->v));
    tb_anchor_close(&f);
}

/* A bit of each block: the head's block ends the whole, any other one chunks alone. */
static void a_flipped_bit_is_never_given_out(void **state)
{
    struct anchor *a = *state;
    size_t count = 0;
    free(file_read(a->path, &count));
    uint32_t refused = 0;
    for (size_t block = 0; TB_SEAL_HEADER_BYTES + block * UNIT < count; block++) {
        struct tb_anchor_file f;
        const long at = (long)(TB_SEAL_HEADER_BYTES + block * UNIT + block * 97 % 200);
        disk_damage(a->w, "policy@3-12.anchor", at);
        const enum tb_status status = tb_anchor_open(a->path, &under_a, &f, error);
        if (status == TB_OK) {
            const uint32_t good = good_chunks(&a->v, &f);
            assert_true(good < all_chunks(&a->v) && good + 3 >= all_chunks(&a->v));
            tb_anchor_close(&f);
        } else {
            CHECK_STATUS(status, TB_BAD_FILE);
            refused++;
        }
        disk_damage(a->w, "policy@3-12.anchor", at); /* back */
    }
    assert_int_equal(refused, 1);
    disk_damage(a->w, "policy@3-12.anchor", 20); /* of its id */
    CHECK_STATUS(tb_anchor_open(a->path, &under_a, &(struct tb_anchor_file){0}, error), TB_SITE_CONFIG);
}

static void copy_unit(uint8_t *to, const uint8_t *from, size_t block_to, size_t block_from)
{
    memcpy(to + TB_SEAL_HEADER_BYTES + block_to * UNIT, from + TB_SEAL_HEADER_BYTES + block_from * UNIT,
           UNIT);
}

/* Of this file, or from the same place of another one of the same key. */
static void a_block_counts_at_its_place_alone(void **state)
{
    struct anchor *a = *state;
    struct tb_anchor_file f;
    size_t count = 0;
    uint8_t *bytes = file_read(a->path, &count), *changed = malloc(count);
    memcpy(changed, bytes, count);
    copy_unit(changed, bytes, 10, 11);
    copy_unit(changed, bytes, 11, 10);
    disk_put(a->w, "policy@3-12.anchor", changed, count);
    CHECK_OK(tb_anchor_open(a->path, &under_a, &f, error));
    assert_true(good_chunks(&a->v, &f) < all_chunks(&a->v));
    tb_anchor_close(&f);
    CHECK_OK(write_anchor(&a->v, &key_a, disk_path(a->w, "other.anchor")));
    size_t other_count = 0;
    uint8_t *other = file_read(disk_path(a->w, "other.anchor"), &other_count);
    assert_int_equal(other_count, count);
    memcpy(changed, bytes, count);
    copy_unit(changed, other, 12, 12);
    disk_put(a->w, "policy@3-12.anchor", changed, count);
    CHECK_OK(tb_anchor_open(a->path, &under_a, &f, error));
    assert_true(good_chunks(&a->v, &f) < all_chunks(&a->v));
    tb_anchor_close(&f);
    free(other);
    free(changed);
    free(bytes);
}

static void an_anchor_that_is_cut_off_is_not_there(void **state)
{
    struct anchor *a = *state;
    struct tb_anchor_file f;
    struct stat st;
    static const off_t cuts[] = {1, TB_SEAL_MORE, UNIT, 20 * UNIT};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        assert_int_equal(stat(a->path, &st), 0);
        assert_int_equal(truncate(a->path, st.st_size - cuts[i]), 0);
        CHECK_OK(tb_anchor_open(a->path, &under_a, &f, error)); /* the rest is there */
        const uint32_t good = good_chunks(&a->v, &f);
        assert_true(good > 0 && good < all_chunks(&a->v));
        tb_anchor_close(&f);
    }
    size_t count = 0;
    uint8_t *bytes = file_read(a->path, &count);
    for (size_t least = 0; least <= TB_SEAL_HEADER_BYTES + TB_SEAL_MORE + 64; least += 8) {
        disk_put(a->w, "policy@3-12.anchor", bytes, least);
        CHECK_STATUS(tb_anchor_open(a->path, &under_a, &f, error), TB_BAD_FILE);
    }
    free(bytes);
}

/* The pieces of a slow writer, and none that fits a block. */
static void pieces_of_any_size_are_one_file(void **state)
{
    struct anchor *a = *state;
    struct tb_anchor_file f;
    uint64_t seed = 7;
    CHECK_OK(tb_anchor_create(a->path, &a->v.key, a->v.list, &key_a, &f, error));
    for (uint32_t s = 0; s < SHARDS; s++)
        for (uint64_t at = 0, count; at < a->v.manifests[s].bytes; at += count) {
            const uint64_t left = a->v.manifests[s].bytes - at;
            count = check_random(&seed) % (200u << 10) + 1;
            count = count < left ? count : left;
            CHECK_OK(tb_anchor_write(&f, s, at, a->v.bytes[s] + at, count));
        }
    CHECK_OK(tb_anchor_finish(&f));
    CHECK_OK(tb_anchor_open(a->path, &under_a, &f, error));
    assert_int_equal(good_chunks(&a->v, &f), all_chunks(&a->v));
    tb_anchor_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_version_comes_back_and_the_file_tells_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_key_is_told_from_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_flipped_bit_is_never_given_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_block_counts_at_its_place_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_anchor_that_is_cut_off_is_not_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pieces_of_any_size_are_one_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
