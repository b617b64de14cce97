/* place.h - the memory of one shard's packed bytes. Each chunk in it is absent, claimed or held.
 *
 * Promise P1: a chunk is held only if its bytes here are the bytes that the publisher sealed. A
 * chunk has one writer at a time: tb_place_claim gives one caller the right to write it.
 * tb_place_take digests the chunk. Then it sets the held bit, or the chunk is absent again. Nothing
 * writes a held chunk. A chunk of one who might forge it is compared with its proof instead.
 *
 * An arena region, a worker's staging and a rank's shadow are places. Links, hops and the
 * publisher's pass write them and serve from them.
 *
 * The memory is the owner's. Any thread may call: bits are atomic, and the bytes of a claimed chunk
 * belong to its claimer. Pure. */
#ifndef TB_BASE_PLACE_H
#define TB_BASE_PLACE_H

#include "base/bitmap.h"
#include "base/layout/manifest.h"

struct tb_codec_coded;
struct tb_place;

/* How a chunk came, where its bytes do not stand in the place. Zeroed: they do. */
struct tb_place_came {
    const uint8_t *beside; /* the chunk's bytes, in other memory of the host */
    /* Instead of bytes, a delta that only the owner can decode: the base is in its memory. The
     * place's bytes are not written. */
    const struct tb_codec_coded *encoded;
    /* The bytes came from one who is not believed about them: a relay, another gateway's gift or
     * another worker. They have to fit the proof. Ask for no such chunk before its proof is known:
     * until then none fits. */
    bool foreign;
};

/* A chunk that the place's owner digests, because cores cannot. The place fills it in. The caller's
 * memory, until `done` is called. */
struct tb_place_look {
    struct tb_place *place;
    uint32_t chunk;
    struct tb_place_came came; /* what it names stays as long */
    /* Where came.foreign: the owner writes here, before tb_place_looked, the proof that the bytes
     * have. Zero until then, and no chunk has that one. */
    struct tb_blake3 proof;
    /* The claim has ended, and the status is that of tb_place_take. Once, on the owner's thread;
     * maybe inside tb_place_take_later. */
    void (*done)(struct tb_place_look *look, enum tb_status status);
};

/* The hook of a place's owner: it digests what cores cannot, and keeps chunks in another form. Only
 * the owner's own code reads such a place: it is served to nobody. */
struct tb_place_owner {
    /* Takes over a far chunk or an encoded one, without waiting for what digests it. A far chunk
     * with `beside` is first written to its place. The owner answers once, by tb_place_looked, on
     * any thread. NULL: the place has no such chunks. */
    void (*look)(void *user, struct tb_place_look *look);
    /* The digest matched. TB_OK: the owner has what it needs. Any other status: the chunk is absent
     * again. Before the chunk is held, on the thread that digested it. NULL: the bytes stay in the
     * place. */
    enum tb_status (*keep)(void *user, const struct tb_place *p, uint32_t k,
                           const struct tb_place_came *came);
    /* Memory of the owner's for a far chunk that comes to the host: `look` is quick from there.
     * NULL, or it answers NULL: any memory will do. It goes back by `give`. */
    uint8_t *(*lend)(void *user, uint32_t bytes);
    void (*give)(void *user, uint8_t *lent);
    /* Bits of the chunks that are wanted. The owner claims the others for good, so they never come.
     * NULL: all chunks are wanted. */
    const uint64_t *wanted;
    void *user;
};

/* A place whose first bytes stand in the memory of a device, where cores cannot read. */
struct tb_place_far {
    /* The first `bytes` bytes of the place are far: place.bytes is an address of the device. The
     * chunks after them stand in `rest`, memory of the host. No chunk stands in both. */
    uint64_t bytes;
    uint8_t *rest;
    int dmabuf; /* through which a NIC may write to the device, from dmabuf_offset on; -1: no NIC may */
    uint64_t dmabuf_offset;
    const char *pci; /* the device's name in sysfs, "0000:18:00.0"; NULL: not known */
};

struct tb_place {
    const struct tb_manifest *manifest; /* digests complete and their root checked before the first claim */
    uint8_t *bytes;                     /* packed; manifest->bytes of them */
    uint64_t *held;                     /* TB_BITMAP_WORDS(chunk_count); maybe shared with other processes */
    uint64_t *claimed;                  /* as many; private to this process */
    const struct tb_place_owner *owner; /* NULL: bytes stay as they land, and all chunks are wanted */
    const struct tb_place_far *far;     /* NULL: all of it is memory of the host. Else `owner` digests */
    /* At the model's home, the manifest again: a chunk that lands gets its proof before it is held,
     * where it had none. NULL: proofs come from elsewhere. No chunk of such a place is far. */
    struct tb_manifest *proves;
};

/* True: chunk k was absent and is now the caller's to write, until take, finish or unclaim. */
bool tb_place_claim(struct tb_place *p, uint32_t k);
void tb_place_unclaim(struct tb_place *p, uint32_t k);
/* Chunk k, which the caller has claimed, came: digests it, hands it to the owner, makes it held.
 * The claim ends, whatever the answer. TB_CHUNK_DIGEST: it is not what was sealed, or it is foreign
 * and does not fit a known proof. Else TB_OK or the owner's status. Where the status is not TB_OK,
 * the chunk is absent again. No chunk that the owner looks at. */
TB_MUST_USE enum tb_status tb_place_take(struct tb_place *p, uint32_t k, const struct tb_place_came *came);
/* The owner looks at such a chunk: it is far, or encoded. */
bool tb_place_owner_looks(const struct tb_place *p, uint32_t k, const struct tb_place_came *came);
/* tb_place_take of such a chunk. The answer comes by look->done, which the caller has set. */
void tb_place_take_later(struct tb_place *p, uint32_t k, const struct tb_place_came *came,
                         struct tb_place_look *look);
/* The owner's answer. TB_OK: `digest` is that of the chunk. Any other status: it could not look. */
void tb_place_looked(struct tb_place_look *look, enum tb_status status, const struct tb_digest *digest);
/* The same, of a chunk that was written where it stands. */
TB_MUST_USE enum tb_status tb_place_finish(struct tb_place *p, uint32_t k);
bool tb_place_held(const struct tb_place *p, uint32_t k);
uint32_t tb_place_held_count(const struct tb_place *p);
bool tb_place_whole(const struct tb_place *p); /* every wanted chunk is held */
/* Where chunk k stands. Of a far chunk: an address of the device. */
uint8_t *tb_place_chunk(const struct tb_place *p, uint32_t k, uint32_t *bytes_out);
bool tb_place_is_far(const struct tb_place *p, uint32_t k);

#endif
