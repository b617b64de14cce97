/* bytes.c - the cursor over untrusted bytes and the writer into bounded memory. */
#include "base/bytes.h"

#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

void tb_reader_init(struct tb_reader *r, const void *bytes, size_t count)
{
    static const uint8_t nothing[1];
    r->at = bytes != NULL ? bytes : nothing;
    r->left = bytes != NULL ? count : 0;
    r->bad = bytes == NULL && count > 0;
}

const uint8_t *tb_read_span(struct tb_reader *r, size_t count)
{
    if (r->bad || count > r->left) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *span = r->at;
    r->at += count;
    r->left -= count;
    return span;
}

static uint64_t read_little_endian(struct tb_reader *r, size_t count)
{
    TB_ASSERT(count <= sizeof(uint64_t));
    const uint8_t *p = tb_read_span(r, count);
    uint64_t v = 0;
    if (p == NULL) return 0;
    for (size_t i = 0; i < count; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t tb_read_u8(struct tb_reader *r)
{
    return (uint8_t)read_little_endian(r, 1);
}

uint16_t tb_read_u16(struct tb_reader *r)
{
    return (uint16_t)read_little_endian(r, 2);
}

uint32_t tb_read_u32(struct tb_reader *r)
{
    return (uint32_t)read_little_endian(r, 4);
}

uint64_t tb_read_u64(struct tb_reader *r)
{
    return read_little_endian(r, 8);
}

void tb_read_bytes(struct tb_reader *r, void *out, size_t count)
{
    const uint8_t *p = tb_read_span(r, count);
    if (count == 0) return;
    if (p != NULL) {
        memcpy(out, p, count);
    } else {
        memset(out, 0, count);
    }
}

void tb_read_str(struct tb_reader *r, char *out, size_t cap)
{
    TB_ASSERT(cap > 0);
    out[0] = '\0';
    const uint16_t count = tb_read_u16(r);
    const uint8_t *p = tb_read_span(r, count);
    if (p == NULL) return;
    if (count >= cap || memchr(p, '\0', count) != NULL) {
        r->bad = true;
        return;
    }
    memcpy(out, p, count);
    out[count] = '\0';
}

bool tb_reader_ended(const struct tb_reader *r)
{
    return !r->bad && r->left == 0;
}

void tb_writer_init(struct tb_writer *w, void *memory, size_t cap)
{
    TB_ASSERT(memory != NULL || cap == 0);
    *w = (struct tb_writer){.start = memory, .cap = cap};
}

void tb_write_bytes(struct tb_writer *w, const void *bytes, size_t count)
{
    TB_ASSERT(w->used <= w->cap);
    if (w->full || count > w->cap - w->used) {
        w->full = true;
        return;
    }
    if (count > 0) memcpy(w->start + w->used, bytes, count);
    w->used += count;
}

static void put_little_endian(uint8_t *to, uint64_t v, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static void write_little_endian(struct tb_writer *w, uint64_t v, size_t count)
{
    uint8_t bytes[8];
    TB_ASSERT(count <= sizeof bytes);
    put_little_endian(bytes, v, count);
    tb_write_bytes(w, bytes, count);
}

void tb_write_u8(struct tb_writer *w, uint8_t v)
{
    write_little_endian(w, v, 1);
}

void tb_write_u16(struct tb_writer *w, uint16_t v)
{
    write_little_endian(w, v, 2);
}

void tb_write_u32(struct tb_writer *w, uint32_t v)
{
    write_little_endian(w, v, 4);
}

void tb_write_u64(struct tb_writer *w, uint64_t v)
{
    write_little_endian(w, v, 8);
}

void tb_write_str(struct tb_writer *w, const char *text)
{
    const size_t count = strlen(text);
    TB_ASSERT(w->used <= w->cap);
    if (count > UINT16_MAX || w->full || 2 + count > w->cap - w->used) {
        w->full = true; /* not even the length is written: a string is there whole or not at all */
        return;
    }
    tb_write_u16(w, (uint16_t)count);
    tb_write_bytes(w, text, count);
}

void tb_write_u32_at(struct tb_writer *w, size_t offset, uint32_t v)
{
    if (w->full) return; /* what was to be overwritten may not be there */
    TB_ASSERT(offset <= w->used && w->used - offset >= 4);
    put_little_endian(w->start + offset, v, 4);
}
