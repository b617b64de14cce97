/* assert.h - TB_ASSERT is for our own mistakes and stays on in release; a peer's
 * mistake is a status. */
#ifndef TB_BASE_ASSERT_H
#define TB_BASE_ASSERT_H

/* Prints the place and the expression to stderr and aborts. */
_Noreturn void tb_assert_failed(const char *file, int line, const char *expression);

#ifdef TB_ASSERTS_OFF /* bench/asserts says what they cost by a build without them; nobody ships it */
#define TB_ASSERT(expression) ((void)sizeof(expression))
#else
#define TB_ASSERT(expression) ((expression) ? (void)0 : tb_assert_failed(__FILE__, __LINE__, #expression))
#endif

#endif
