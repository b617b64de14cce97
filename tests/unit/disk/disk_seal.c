/* A unit counts at its own place of its own file under its own key, and no nonce comes twice. P1,
 * P8.
 * Covers: gateway/disk/disk_seal.c */
#include <fcntl.h>

#include "disk_world.h"
#include "gateway/disk/disk_seal.h"
#include "tests/unit/check.h"

#define COUNT 100u
#define UNIT  (COUNT + TB_SEAL_MORE)
#define SALT  16u /* and the counter of 8 bytes behind it */

static const struct tb_disk_key key_a = {{1, 2, 3}}, key_b = {{3, 2, 1}};
static const uint8_t plain[COUNT] = "weights of a policy";
static const struct tb_seal_place here = {1, 7};

static struct tb_seal *new_seal(uint8_t header[TB_SEAL_HEADER_BYTES])
{
    struct tb_seal *seal = NULL;
    CHECK_OK(tb_seal_new(&key_a, TB_SEAL_ANCHOR, 1234, header, &seal));
    return seal;
}

static bool is_there(struct tb_seal *seal, struct tb_seal_place place, const uint8_t *unit)
{
    uint8_t out[COUNT];
    static const uint8_t zeros[COUNT];
    memset(out, 0x5a, sizeof out);
    const enum tb_status status = tb_seal_get(seal, &place, unit, COUNT, out);
    if (status == TB_OK) {
        assert_memory_equal(out, plain, COUNT);
        return true;
    }
    CHECK_STATUS(status, TB_BAD_FILE);
    assert_memory_equal(out, zeros, COUNT); /* nothing of it is given out */
    return false;
}

static void a_unit_counts_where_it_was_put(void **state)
{
    (void)state;
    uint8_t header[TB_SEAL_HEADER_BYTES], other_header[TB_SEAL_HEADER_BYTES], unit[UNIT];
    struct tb_seal *seal = new_seal(header), *other = new_seal(other_header), *again = NULL;
    CHECK_OK(tb_seal_put(seal, &here, plain, COUNT, unit));
    assert_null(memmem(unit, UNIT, plain, 8));
    assert_true(is_there(seal, here, unit));
    assert_false(is_there(seal, (struct tb_seal_place){1, 8}, unit));
    assert_false(is_there(seal, (struct tb_seal_place){2, 7}, unit));
    assert_false(is_there(other, here, unit)); /* of the same key */
    for (size_t at = 0; at < UNIT; at++) {
        unit[at] ^= 1;
        assert_false(is_there(seal, here, unit));
        unit[at] ^= 1;
    }
    CHECK_OK(tb_seal_open(&key_a, TB_SEAL_ANCHOR, header, &again)); /* the next process */
    assert_int_equal(tb_seal_inside_bytes(again), 1234);
    assert_true(is_there(again, here, unit));
    tb_seal_free(again);
    tb_seal_free(other);
    tb_seal_free(seal);
}

static void each_byte_of_a_header_counts(void **state)
{
    (void)state;
    uint8_t header[TB_SEAL_HEADER_BYTES];
    struct tb_seal *seal = NULL;
    tb_seal_free(new_seal(header));
    CHECK_STATUS(tb_seal_open(&key_b, TB_SEAL_ANCHOR, header, &seal), TB_NOT_FOUND);
    CHECK_STATUS(tb_seal_open(&key_a, TB_SEAL_STORE, header, &seal), TB_NOT_FOUND);
    for (size_t at = 0; at < sizeof header; at++) {
        header[at] ^= 4;
        CHECK_STATUS(tb_seal_open(&key_a, TB_SEAL_ANCHOR, header, &seal), TB_NOT_FOUND);
        header[at] ^= 4;
    }
    CHECK_OK(tb_seal_open(&key_a, TB_SEAL_ANCHOR, header, &seal));
    tb_seal_free(seal);
}

/* The same file, opened again and again, writes the same place: as a restart does, or one that a
 * copy was put back for. */
static void no_nonce_comes_twice(void **state)
{
    (void)state;
    enum { OPENED = 16, PUT = 16 };
    static uint8_t units[OPENED * PUT][UNIT];
    uint8_t header[TB_SEAL_HEADER_BYTES];
    tb_seal_free(new_seal(header));
    for (uint32_t i = 0; i < OPENED; i++) {
        struct tb_seal *seal = NULL;
        CHECK_OK(tb_seal_open(&key_a, TB_SEAL_ANCHOR, header, &seal));
        for (uint32_t k = 0; k < PUT; k++)
            CHECK_OK(tb_seal_put(seal, &here, plain, COUNT, units[i * PUT + k]));
        tb_seal_free(seal);
    }
    for (uint32_t i = 0; i < OPENED * PUT; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(units[i], units[k], SALT + 8);
}

static void found(struct disk_world *w, const struct tb_disk_keys *keys, enum tb_disk_found what)
{
    const int fd = open(disk_path(w, "f"), O_RDONLY | O_CLOEXEC);
    const struct tb_disk_look look = tb_disk_look(fd, TB_SEAL_ANCHOR, "PLAIN", keys);
    assert_int_equal(look.found, what);
    assert_true((look.why != NULL) == (what == TB_DISK_OTHER));
    if (what == TB_DISK_FITS) assert_ptr_equal(look.key, keys->key);
    if (what == TB_DISK_OLD) assert_ptr_equal(look.key, keys->old);
    (void)close(fd);
}

/* P10: each pair of what a file is and what the keys say. */
static void a_look_tells_what_a_file_is_under(void **state)
{
    struct disk_world *w = *state;
    uint8_t header[TB_SEAL_HEADER_BYTES] = "PLAIN";
    const struct tb_disk_keys none = {.key = NULL}, a = {.key = &key_a}, b = {.key = &key_b},
                              b_was_a = {&key_b, &key_a, true}, none_was_a = {NULL, &key_a, true},
                              a_was_none = {&key_a, NULL, true}, b_was_none = {&key_b, NULL, true};
    disk_put(w, "f", header, sizeof header);
    found(w, &none, TB_DISK_FITS);
    found(w, &none_was_a, TB_DISK_FITS);
    found(w, &a, TB_DISK_OTHER);
    found(w, &b_was_a, TB_DISK_OTHER);
    found(w, &a_was_none, TB_DISK_OLD);
    tb_seal_free(new_seal(header));
    disk_put(w, "f", header, sizeof header);
    found(w, &a, TB_DISK_FITS);
    found(w, &a_was_none, TB_DISK_FITS);
    found(w, &none, TB_DISK_OTHER);
    found(w, &b, TB_DISK_OTHER);
    found(w, &b_was_none, TB_DISK_OTHER);
    found(w, &b_was_a, TB_DISK_OLD);
    found(w, &none_was_a, TB_DISK_OLD);
    disk_put(w, "f", header, sizeof header - 1);
    found(w, &a, TB_DISK_NEITHER);
    memset(header, 'x', sizeof header);
    disk_put(w, "f", header, sizeof header);
    found(w, &a, TB_DISK_NEITHER);
    found(w, &none, TB_DISK_NEITHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_counts_where_it_was_put),
        cmocka_unit_test(each_byte_of_a_header_counts),
        cmocka_unit_test(no_nonce_comes_twice),
        cmocka_unit_test_setup_teardown(a_look_tells_what_a_file_is_under, disk_setup, disk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
