/* bytes.h - cursors over untrusted bytes, and writers into bounded memory.
 *
 * A reader remembers that it was asked for more than there is: decode straight down, check
 * `bad` once at the end. After `bad` every number reads as 0 and every span as NULL, so nothing
 * that follows can leave the buffer. Integers are little-endian. Pure; no allocation. */
#ifndef TB_BASE_BYTES_H
#define TB_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tb_reader {
    const uint8_t *at;
    size_t left; /* bytes */
    bool bad;
};

void tb_reader_init(struct tb_reader *r, const void *bytes, size_t count);
uint8_t tb_read_u8(struct tb_reader *r);
uint16_t tb_read_u16(struct tb_reader *r);
uint32_t tb_read_u32(struct tb_reader *r);
uint64_t tb_read_u64(struct tb_reader *r);
/* `count` bytes inside the buffer (borrowed from it), or NULL and bad. count 0 gives a non-NULL
 * pointer. */
const uint8_t *tb_read_span(struct tb_reader *r, size_t count);
/* Copies `count` bytes; zeroes `out` when bad. */
void tb_read_bytes(struct tb_reader *r, void *out, size_t count);
/* A u16 length and as many bytes into a C string of at most `cap` bytes with its NUL. Bad when it
 * does not fit or holds a NUL. */
void tb_read_str(struct tb_reader *r, char *out, size_t cap);
/* True when nothing was bad and nothing is left: trailing bytes are a peer's mistake. */
bool tb_reader_ended(const struct tb_reader *r);

struct tb_writer {
    uint8_t *start;
    size_t used; /* bytes */
    size_t cap;  /* bytes */
    bool full;   /* something did not fit; `used` stays where it was */
};

void tb_writer_init(struct tb_writer *w, void *memory, size_t cap);
void tb_write_u8(struct tb_writer *w, uint8_t v);
void tb_write_u16(struct tb_writer *w, uint16_t v);
void tb_write_u32(struct tb_writer *w, uint32_t v);
void tb_write_u64(struct tb_writer *w, uint64_t v);
void tb_write_bytes(struct tb_writer *w, const void *bytes, size_t count);
void tb_write_str(struct tb_writer *w, const char *text); /* u16 length, bytes; full when over 65535 */
/* Overwrites a u32 written before, for lengths known only at the end. */
void tb_write_u32_at(struct tb_writer *w, size_t offset, uint32_t v);

#endif
