/* last_error.c - thread-local text of the last failed call. */
#include "intra/client/session/last_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tombolo/tombolo.h"

static _Thread_local char last_error[TB_LAST_ERROR_BYTES];

int tb_fail(int status, const char *format, ...)
{
    char text[TB_LAST_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, " (%s: %s)", tb_status_name(status), tb_status_text(status));
    /* Through a copy, because an argument may be the old text itself. */
    memcpy(last_error, text, sizeof last_error);
    return status;
}

const char *tb_last_error(void)
{
    return last_error;
}
