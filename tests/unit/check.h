/* check.h - what every unit test includes: cmocka with its prerequisites. */
#ifndef TB_TESTS_UNIT_CHECK_H
#define TB_TESTS_UNIT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A status that must be what the test says; prints both numbers when not. */
#define CHECK_STATUS(call, status) assert_int_equal((int)(call), (int)(status))
#define CHECK_OK(call)             CHECK_STATUS(call, TB_OK)

/* Numbers that look random and are the same in every run (splitmix64). */
static inline uint64_t check_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
