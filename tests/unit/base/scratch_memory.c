/* scratch_memory.c - memory that grows; where there is none left it is empty, and may be asked
 * again.
 * Covers: base/scratch_memory.c */
#include "base/scratch_memory.h"

#include <string.h>

#include "base/fault.h"
#include "tests/unit/check.h"

static void it_grows_and_does_not_shrink(void **state)
{
    (void)state;
    struct tb_room room = {0};
    assert_true(tb_room_for(&room, 0));
    assert_true(tb_room_for(&room, 100));
    memset(room.bytes, 1, 100);
    const uint8_t *before = room.bytes;
    assert_true(tb_room_for(&room, 60));
    assert_ptr_equal(room.bytes, before);
    assert_int_equal(room.cap, 100);
    assert_true(tb_room_for(&room, 100000));
    memset(room.bytes, 1, 100000);
    tb_room_free(&room);
    assert_true(room.bytes == NULL && room.cap == 0);
    tb_room_free(&room);
}

static void without_memory_it_is_empty(void **state)
{
    (void)state;
    struct tb_room room = {0};
    assert_true(tb_room_for(&room, 100));
    tb_fault_arm(TB_FAULT_malloc, 1, false);
    assert_false(tb_room_for(&room, 200));
    tb_fault_arm(TB_FAULT_malloc, 0, false);
    assert_true(room.bytes == NULL && room.cap == 0);
    assert_true(tb_room_for(&room, 200)); /* and may be asked again */
    tb_room_free(&room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows_and_does_not_shrink),
        cmocka_unit_test(without_memory_it_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
