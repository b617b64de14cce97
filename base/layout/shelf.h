/* shelf.h - the encoded chunks of one version on one base, where others may READ them. Pure.
 *
 * A process that serves a version inside a site has a shelf beside the version's bytes. For each
 * chunk it has a bit, and then an entry: the entry says where the chunk's delta stands in the
 * shelf's room, or that the chunk has none.
 *
 * Readers that hold the base poll the bits as they poll held bits, and read deltas instead of
 * chunks. Other readers read chunks, and pass deltas on. The chunk's digest judges the bytes that a
 * delta decodes to (P1). So a process that cannot decode a delta may pass it on, and for a bad
 * delta its chunk is read once more.
 *
 * Memory, all of it the owner's and 8-byte aligned: head, bits, two words an entry, room. Chunks
 * are numbered in one line, shard behind shard. An entry and its delta are written once, before the
 * bit is set. Where a delta is found damaged (tb_shelf_recheck), its entry says from then on that
 * the chunk has none. In front of each delta stands its digest, for the owner alone.
 *
 * Threads: tb_shelf_put may come from several at once for different chunks; all else from one. */
#ifndef TB_BASE_SHELF_H
#define TB_BASE_SHELF_H

#include "base/bitmap.h"
#include "base/codec/codec.h"
#include "base/ident.h"

#define TB_SHELF_HEAD_WORDS        6u
#define TB_SHELF_ENTRY_WORDS       2u
#define TB_SHELF_COUNT_MAX         262144u                 /* chunks; a version of more has no shelf */
#define TB_SHELF_ROOM(bytes)       ((bytes) / 32u)         /* deltas take 1 to 2 % of a version */
#define TB_SHELF_GAINS(raw, coded) ((coded) <= (raw) / 4u) /* else the chunk itself is as well read */

enum tb_shelf_state {
    TB_SHELF_UNKNOWN, /* whether there will be deltas, and on which base */
    TB_SHELF_OPEN,    /* more may come */
    TB_SHELF_CLOSED   /* what is not there will not come */
};

struct tb_shelf {
    uint64_t *head; /* state, base, base, count, room_bytes, room used; behind it bits and entries */
    uint8_t *room;
    uint64_t room_bytes;
    uint32_t count;
};

uint64_t tb_shelf_bytes(uint32_t count, uint64_t room_bytes);
/* Of those, how many have to be zero before init. */
uint64_t tb_shelf_zero_bytes(uint32_t count);
/* memory: tb_shelf_bytes of it; UNKNOWN. */
void tb_shelf_init(struct tb_shelf *shelf_out, void *memory, uint32_t count, uint64_t room_bytes);

/* UNKNOWN becomes OPEN with this base; else nothing happens. */
void tb_shelf_open(struct tb_shelf *shelf, const struct tb_id *base);
void tb_shelf_close(struct tb_shelf *shelf);
/* It was opened with this base. */
bool tb_shelf_is_of(const struct tb_shelf *shelf, const struct tb_id *base);
bool tb_shelf_has(const struct tb_shelf *shelf, uint32_t line);
/* Copies it in; where there is no room, or coded is NULL, the entry says that the chunk has none.
 * Put twice is put once. */
void tb_shelf_put(struct tb_shelf *shelf, uint32_t line, const struct tb_codec_coded *coded);

/* A reader says that the delta is wrong: its bytes are digested. False: they are not the bytes that
 * were put, and the entry now says that the chunk has none. True: they are, or there is none. */
bool tb_shelf_recheck(struct tb_shelf *shelf, uint32_t line);

/* ---- as a reader sees it: words that came from another process ---- */

struct tb_shelf_head {
    enum tb_shelf_state state;
    struct tb_id base;
    uint64_t room_bytes;
};
/* The first TB_SHELF_HEAD_WORDS words. False: not a shelf of `count` chunks. */
bool tb_shelf_head_read(const uint64_t *words, uint32_t count, struct tb_shelf_head *head_out);

struct tb_shelf_entry {
    struct tb_codec_form form; /* as said: decoding judges it */
    uint32_t bytes;            /* 0: the chunk has no delta */
    uint64_t offset;           /* in the room */
};
/* Two words. False: it points out of the room, or is larger than its chunk. */
bool tb_shelf_entry_read(const uint64_t *words, const struct tb_shelf_head *head, uint32_t chunk_bytes,
                         struct tb_shelf_entry *entry_out);
/* Where in the memory: the bits, an entry's words, the room; from the head's first byte. */
uint64_t tb_shelf_entry_offset(uint32_t count, uint32_t line);
uint64_t tb_shelf_room_offset(uint32_t count);

#endif
