/* log_form.c - the head, the values and the end of a log line, as text or as JSON. */
#include "base/log_form.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/utf8.h"

#define ESCAPE_MAX 6u  /* \u202e */
#define DIGITS_MAX 15u /* of a number that every reader of JSON keeps exactly */

/* Kept free at the end of every line: what says that it was cut, and the newline. */
static const char cut_mark[] = " cut=true\n", cut_mark_json[] = ",\"cut\":true}\n";
#define END_BYTES (sizeof cut_mark_json)

static size_t room(const struct tb_log_line *l)
{
    TB_ASSERT(l->used <= sizeof l->text - END_BYTES);
    return sizeof l->text - END_BYTES - l->used;
}

/* All of it or nothing; false also once the line was cut. */
static bool put(struct tb_log_line *l, const char *bytes, size_t count)
{
    if (l->cut || count > room(l)) {
        l->cut = true;
        return false;
    }
    memcpy(l->text + l->used, bytes, count);
    l->used += count;
    return true;
}

static bool put_text(struct tb_log_line *l, const char *text)
{
    return put(l, text, strlen(text));
}

/* ---- characters ---- */

/* How many bytes of `value` can stand as they are in a quoted value: 0 if the first has to be
 * escaped. *code_out is its character; *whole_out the bytes of that, 0 for what is no UTF-8. */
static size_t plain_bytes(const char *value, size_t left, uint32_t *code_out, size_t *whole_out)
{
    uint32_t code = 0;
    const size_t count = tb_utf8_decode(value, left, &code);
    *code_out = code;
    *whole_out = count;
    if (count == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0)) return 0;
    /* Line and paragraph separators, and the controls that turn the direction of text,
     * can forge what is seen. */
    if (code == 0x2028 || code == 0x2029 || (code >= 0x202a && code <= 0x202e) ||
        (code >= 0x2066 && code <= 0x2069)) {
        return 0;
    }
    return code == '"' || code == '\\' ? 0 : count;
}

/* "\n" and its like, which text and JSON write alike; NULL: it has no such name. */
static const char *named_escape(char c)
{
    switch (c) {
    case '\n':
        return "\\n";
    case '\t':
        return "\\t";
    case '\r':
        return "\\r";
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    default:
        return NULL;
    }
}

/* The first character of `value`, or of text its first byte. Returns the bytes that it took; 0: the
 * line is full. */
static size_t put_escaped(struct tb_log_line *l, const char *value, uint32_t code, size_t whole)
{
    char escape[ESCAPE_MAX + 1];
    const char *named = named_escape(*value);
    if (named != NULL) return put_text(l, named) ? 1 : 0;
    if (!l->json) {
        (void)snprintf(escape, sizeof escape, "\\x%02x", (unsigned)(unsigned char)*value);
        return put_text(l, escape) ? 1 : 0;
    }
    TB_ASSERT(whole == 0 || code <= 0xffff); /* of those that may not stand as they are */
    (void)snprintf(escape, sizeof escape, "\\u%04x", whole == 0 ? 0xfffdu : (unsigned)(code & 0xffff));
    return !put_text(l, escape) ? 0 : whole == 0 ? 1 : whole;
}

/* As many of the bytes as fit, in quotes. */
static void put_quoted(struct tb_log_line *l, const char *value, size_t count)
{
    if (!put_text(l, "\"")) return;
    size_t at = 0;
    while (at < count && room(l) > ESCAPE_MAX) { /* the longest escape, and the closing quote */
        uint32_t code = 0;
        size_t whole = 0;
        const size_t step = plain_bytes(value + at, count - at, &code, &whole);
        const size_t took = step == 0                  ? put_escaped(l, value + at, code, whole)
                            : put(l, value + at, step) ? step
                                                       : 0;
        if (took == 0) break;
        at += took;
    }
    if (room(l) > 0) l->text[l->used++] = '"';
    if (at < count) l->cut = true;
}

/* True when the value can stand without quotes. */
static bool bare(const char *value, size_t count)
{
    if (count == 0) return false;
    for (size_t at = 0; at < count;) {
        uint32_t code = 0;
        size_t whole = 0;
        const size_t step = plain_bytes(value + at, count - at, &code, &whole);
        if (step == 0 || value[at] == ' ' || value[at] == '=') return false;
        at += step;
    }
    return true;
}

/* ---- pairs ---- */

/* " key=" or ",\"key\":". Nothing of it, if the line has no room for a value behind it. */
static bool put_key(struct tb_log_line *l, const char *key, size_t count)
{
    const size_t around = l->json ? 4 : 2;
    if (l->cut || room(l) < count + around) {
        l->cut = true;
        return false;
    }
    return put_text(l, l->json ? ",\"" : " ") && put(l, key, count) && put_text(l, l->json ? "\":" : "=");
}

void tb_log_form_text(struct tb_log_line *l, const char *key, const char *value)
{
    const size_t count = strlen(value);
    const size_t before = l->used;
    if (!put_key(l, key, strlen(key))) return;
    if (l->json && room(l) < 2) { /* a key without a value would be no JSON */
        l->used = before;
        l->cut = true;
        return;
    }
    if (!l->json && bare(value, count) && count <= room(l))
        (void)put(l, value, count);
    else
        put_quoted(l, value, count);
}

static void put_bare(struct tb_log_line *l, const char *key, size_t key_bytes, const char *value,
                     size_t count)
{
    const size_t before = l->used;
    if (put_key(l, key, key_bytes) && !put(l, value, count) && l->json) l->used = before;
}

void tb_log_form_number(struct tb_log_line *l, const char *key, uint64_t value)
{
    char digits[32];
    const int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    TB_ASSERT(count > 0 && (size_t)count < sizeof digits);
    if (l->json && (size_t)count > DIGITS_MAX)
        tb_log_form_text(l, key, digits);
    else
        put_bare(l, key, strlen(key), digits, (size_t)count);
}

/* How many characters of a word are its key: "key=..."; 0: it is none. */
static size_t key_bytes(const char *text)
{
    const size_t count = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    return count > 0 && text[count] == '=' ? count : 0;
}

/* Where a value ends that begins at `text`: before the next word that is a key. */
static const char *value_end(const char *text)
{
    if (*text == '"') {
        const char *quote = strchr(text + 1, '"');
        while (quote != NULL && quote[1] != '\0' && quote[1] != ' ')
            quote = strchr(quote + 1, '"');
        if (quote != NULL) return quote + 1;
    }
    for (const char *space = strchr(text, ' '); space != NULL; space = strchr(space + 1, ' '))
        if (key_bytes(space + 1) > 0) return space;
    return text + strlen(text);
}

/* Digits, with a sign or a fraction: what JSON takes for a number. */
static bool is_number(const char *text, size_t count)
{
    const size_t sign = count > 0 && text[0] == '-';
    const size_t whole = strspn(text + sign, "0123456789");
    const bool dot = sign + whole + 1 < count && text[sign + whole] == '.';
    const size_t behind = dot ? 1 + strspn(text + sign + whole + 1, "0123456789") : 0;
    if (whole == 0 || count > DIGITS_MAX || (whole > 1 && text[sign] == '0')) return false;
    return sign + whole + behind == count && (!dot || behind > 1);
}

static void put_value(struct tb_log_line *l, const char *key, size_t key_count, const char *value,
                      size_t count)
{
    if (is_number(value, count)) {
        put_bare(l, key, key_count, value, count);
        return;
    }
    const size_t before = l->used;
    const bool quoted = count >= 2 && value[0] == '"' && value[count - 1] == '"';
    if (!put_key(l, key, key_count)) return;
    if (room(l) < 2) {
        l->used = before;
        l->cut = true;
        return;
    }
    put_quoted(l, value + quoted, count - (quoted ? 2 : 0));
}

/* The same text as pairs of JSON. Words before the first key are the value of "text". */
static void put_pairs(struct tb_log_line *l, const char *text)
{
    while (*text != '\0' && !l->cut) {
        const size_t count = key_bytes(text);
        const char *value = count > 0 ? text + count + 1 : text;
        const char *end = value_end(value);
        put_value(l, count > 0 ? text : "text", count > 0 ? count : 4, value, (size_t)(end - value));
        text = *end == ' ' ? end + 1 : end;
    }
}

void tb_log_form_pairs(struct tb_log_line *l, const char *format, va_list args)
{
    char text[sizeof l->text];
    const int wanted = vsnprintf(text, sizeof text, format, args);
    const size_t all = wanted < 0 ? 0 : (size_t)wanted;
    size_t count = all < sizeof text ? all : sizeof text - 1;
    /* The rule is that only text of ours comes this way; where it is broken, at least no line
     * is forged. */
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) text[i] = '?';
    if (l->json) {
        put_pairs(l, text);
        if (count < all) l->cut = true;
        return;
    }
    if (!put_text(l, " ")) return;
    if (count > room(l)) count = room(l);
    (void)put(l, text, count);
    if (count < all) l->cut = true;
}

/* ---- the line ---- */

static void put_time(struct tb_log_line *l)
{
    const uint64_t now_ms = tb_clock_wall_ms();
    const time_t now_s = (time_t)(now_ms / 1000);
    char day[32], text[64];
    struct tm utc;
    if (strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now_s, &utc)) == 0) return;
    (void)snprintf(text, sizeof text, l->json ? "\"time\":\"%s.%03uZ\"," : "%s.%03uZ ", day,
                   (unsigned)(now_ms % 1000));
    (void)put_text(l, text);
}

void tb_log_form_begin(struct tb_log_line *l, struct tb_log_form form, const struct tb_log_head *head)
{
    char mark[8];
    l->used = 0;
    l->cut = false;
    l->json = form.json;
    TB_ASSERT(head->priority >= 0 && head->priority <= 7);
    (void)snprintf(mark, sizeof mark, "<%d>", head->priority);
    if (form.priority) (void)put_text(l, mark);
    if (l->json) (void)put_text(l, "{");
    if (form.time) put_time(l);
    (void)put_text(l, l->json ? "\"level\":\"" : "");
    (void)put_text(l, head->level);
    (void)put_text(l, l->json ? "\",\"event\":\"" : " ");
    (void)put_text(l, head->event);
    if (l->json) (void)put_text(l, "\"");
}

size_t tb_log_form_end(struct tb_log_line *l)
{
    const char *tail = l->cut ? (l->json ? cut_mark_json : cut_mark) : (l->json ? "}\n" : "\n");
    const size_t count = strlen(tail);
    TB_ASSERT(l->used + count <= sizeof l->text);
    memcpy(l->text + l->used, tail, count); /* room() keeps this free */
    return l->used + count;
}
