/* doctor_finding.c - see doctor_finding.h. */
#include "gateway/cli/doctor/doctor_finding.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

struct tb_finding tb_find(enum tb_mark mark, const char *format, ...)
{
    struct tb_finding f = {.mark = mark};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(f.text, sizeof f.text, format, arguments);
    va_end(arguments);
    return f;
}

void tb_advise(struct tb_finding *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(f->advice, sizeof f->advice, format, arguments);
    va_end(arguments);
}

const char *tb_mark_name(enum tb_mark mark)
{
    static const char *const names[TB_MARK_COUNT] = {"fine", "warning", "wrong", "unknown", "not-checked"};
    TB_ASSERT(mark < TB_MARK_COUNT);
    return names[mark];
}
