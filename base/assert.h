/* assert.h - TB_ASSERT is for our own mistakes and stays on in release; a peer's
 * mistake is a status. */
#ifndef TB_BASE_ASSERT_H
#define TB_BASE_ASSERT_H

/* Prints the place and the expression to stderr and aborts. */
_Noreturn void tb_assert_failed(const char *file, int line, const char *expression);

/* bench/assert_times.h has other definitions of these two, which take the time of each. Both are
 * statements, and evaluate what they are given once. */
#ifndef TB_ASSERT
#define TB_ASSERT(expression) ((expression) ? (void)0 : tb_assert_failed(__FILE__, __LINE__, #expression))
/* A call that walks whole tables and asserts what holds of them. Release does so once a second. */
#define TB_CHECK(walk) (walk)
#endif

/* For an assert that takes over 1 % of a process in release (bench/asserts): in builds that check
 * each turn alone. Elsewhere it is compiled, and not evaluated. */
#if defined(TB_CHECK_TURNS) && TB_CHECK_TURNS
#define TB_ASSERT_DEV(expression) TB_ASSERT(expression)
#else
#define TB_ASSERT_DEV(expression) ((void)sizeof(expression))
#endif

#endif
