/* assert.c - says where and aborts. No stdio: cores link this, and it must work when nothing else
 * does. */
#include "base/assert.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct text {
    char bytes[512];
    size_t used;
};

static void put(struct text *t, const char *s)
{
    const size_t room = sizeof t->bytes - 1 - t->used; /* the last byte stays for the newline */
    const size_t count = strnlen(s, room);
    memcpy(t->bytes + t->used, s, count);
    t->used += count;
}

static void put_number(struct text *t, int n)
{
    char digits[12];
    char *at = digits + sizeof digits - 1;
    *at = '\0';
    for (; n > 0; n /= 10)
        *--at = (char)('0' + n % 10);
    put(t, at);
}

_Noreturn void tb_assert_failed(const char *file, int line, const char *expression)
{
    struct text t = {.used = 0};
    put(&t, "error assert.failed place=");
    put(&t, file);
    put(&t, ":");
    put_number(&t, line);
    put(&t, " expression: ");
    put(&t, expression);
    t.bytes[t.used++] = '\n';
    if (write(STDERR_FILENO, t.bytes, t.used) < 0) abort();
    abort();
}
