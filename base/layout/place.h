/* place.h - where a shard's packed bytes stand, and which of its chunks are absent, claimed or
 * held.
 *
 * Promise P1: a chunk is held here only if its bytes here are what the publisher sealed. A
 * destination has one writer at a time: tb_place_claim gives the right to write chunk k to
 * exactly one caller; tb_place_finish digests what was written and either sets the held bit or
 * gives the claim back. Nothing writes a held chunk. An arena region, a worker's staging and a
 * rank's shadow are all places; links, hops and the publisher's pass write them and serve from
 * them with the same four calls.
 *
 * Memory is the owner's. Threads: any; bits are atomic, bytes belong to the claimer until held.
 * Pure. */
#ifndef TB_BASE_PLACE_H
#define TB_BASE_PLACE_H

#include "base/bitmap.h"
#include "base/layout/manifest.h"

struct tb_place;

/* Of a place whose first bytes stand where no core of this process can touch them: in
 * the memory of a device. */
struct tb_place_far {
    /* So many, from place.bytes on, which is an address of the device's; the chunks behind them
     * stand in `rest`, memory of the host. No chunk stands in both. */
    uint64_t bytes;
    uint8_t *rest;
    /* Chunk k, which is far, is written there from `from`, in memory of the host; NULL: it was
     * written there, and that is complete. Then what stands there is digested. TB_OK,
     * TB_CHUNK_DIGEST, or why its owner could not look. Any thread. */
    enum tb_status (*finish)(void *owner, const struct tb_place *p, uint32_t k, const uint8_t *from);
    void *owner;
    int dmabuf; /* by which a NIC may write there: it begins at dmabuf_offset of it; -1: none may */
    uint64_t dmabuf_offset;
    const char *pci; /* the device, as sysfs names it, "0000:18:00.0"; NULL: not known */
};

struct tb_place {
    const struct tb_manifest *manifest; /* digests complete and their root checked before the first claim */
    uint8_t *bytes;                     /* packed; manifest->bytes of them */
    uint64_t *held;                     /* TB_BITMAP_WORDS(chunk_count); maybe shared with other processes */
    uint64_t *claimed;                  /* as many; private to this process */
    /* Called by tb_place_finish when the digest matched, before the chunk is held, by whoever
     * finishes it: an owner that keeps chunks in another form takes the bytes from here. Such a
     * place is served from to nobody. NULL: they stay. */
    void (*landed)(void *owner, const struct tb_place *p, uint32_t k);
    void *owner;
    /* NULL: all chunks are wanted. Else bits: one that is not never comes, and its claim is held
     * by the owner for good. */
    const uint64_t *wanted;
    const struct tb_place_far
        *far; /* NULL: all of it is memory of the host. Such a place is served from to nobody, either */
};

/* True: chunk k was absent and is now the caller's to write, until finish or unclaim. */
bool tb_place_claim(struct tb_place *p, uint32_t k);
void tb_place_unclaim(struct tb_place *p, uint32_t k);
/* Digests chunk k as it now stands: TB_OK and held, or TB_CHUNK_DIGEST and absent again, as with
 * whatever else a far place's owner says. The claim ends. */
TB_MUST_USE enum tb_status tb_place_finish(struct tb_place *p, uint32_t k);
/* By an owner with `landed`, who keeps chunk k in another form, has seen in it what the publisher
 * sealed, and left its bytes here alone: held. The claim ends. */
void tb_place_accept(struct tb_place *p, uint32_t k);
/* The same of a far chunk that stands at `from`, in memory of the host: its owner
 * brings it there first. */
TB_MUST_USE enum tb_status tb_place_bring(struct tb_place *p, uint32_t k, const uint8_t *from);
bool tb_place_held(const struct tb_place *p, uint32_t k);
uint32_t tb_place_held_count(const struct tb_place *p);
bool tb_place_whole(const struct tb_place *p);
/* Where it stands: of a far chunk nothing but an address. */
uint8_t *tb_place_chunk(const struct tb_place *p, uint32_t k, uint32_t *bytes_out);
bool tb_place_is_far(const struct tb_place *p, uint32_t k);

#endif
