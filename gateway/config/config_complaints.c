/* config_complaints.c - errors and warnings of a file, each with its place. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "gateway/config/config_read.h"

#define COMPLAINTS_MAX 100

/* A file may hold anything; a complaint is one clean line. */
static void clean(char *line)
{
    for (; *line != '\0'; line++)
        if ((unsigned char)*line < 0x20 || *line == 0x7f) *line = '?';
}

static void say_at(const struct config_reading *r, tb_config_complain_fn fn, uint32_t line, uint32_t column,
                   const char *text)
{
    TB_ASSERT(line > 0 && column > 0);
    char out[1024];
    snprintf(out, sizeof out, "%.300s:%" PRIu32 ":%" PRIu32 ": %s", r->name, line, column, text);
    clean(out);
    if (fn != NULL) fn(r->user, out);
}

void tb_config_complain_at(struct config_reading *r, uint32_t line, uint32_t column, const char *text)
{
    if (++r->complaints > COMPLAINTS_MAX) return;
    if (r->complaints == COMPLAINTS_MAX) text = "and more: this is the last complaint";
    say_at(r, r->complain, line, column, text);
}

void tb_config_warn(struct config_reading *r, const struct config_node *at, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say_at(r, r->warn, at->line, at->column, text);
}

void tb_config_complain(struct config_reading *r, const struct config_node *at, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tb_config_complain_at(r, at->line, at->column, text);
}
