/* arena_file.h - the arena's file: its format, and how it is opened, locked, allocated and mapped.
 * Inside gateway/arena only.
 *
 *   0     header, two slots of 512 bytes: the newer good one counts, the other is the one before
 *   4096  records, 256 bytes each, record_count of them: one for a region, one for each shard that
 *         has space
 *   then  extents: packed bytes, manifest head, digests, held bitmap, proofs
 *
 * The file is of this machine and this format number, so structs are mapped as they are. Nothing in
 * it is believed: records and heads are bounded and checked as if a stranger had written them. A
 * kill at any instant leaves either the value before or the one after, because every record's `use`
 * word, and every later change's check word, is stored last. */
#ifndef TB_GATEWAY_ARENA_FILE_H
#define TB_GATEWAY_ARENA_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/ident.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/extents.h"

#define TB_ARENA_FORMAT      1u
#define TB_ARENA_RECORDS_MIN 256u
#define TB_ARENA_RECORDS_MAX 65536u
#define TB_ARENA_KEY_BYTES   160u

struct arena_header {
    char magic[8];
    uint32_t format;
    uint32_t record_count;
    uint64_t bytes; /* of the file */
    uint64_t sequence;
    struct tb_id life;
    struct tb_digest check; /* of all before */
};

enum arena_use { ARENA_FREE = 0, ARENA_USED = 0x44455355 };
enum arena_kind { ARENA_REGION = 1, ARENA_SHARD = 2 };

struct arena_record_region {
    uint64_t made; /* grows: the order of regions */
    uint32_t key_bytes;
    uint8_t key[TB_ARENA_KEY_BYTES]; /* tb_version_key_encode, root zero */
};

struct arena_record_shard {
    uint64_t offset; /* of the extent, in the file */
    uint64_t bytes;  /* of the extent */
    uint64_t packed_bytes;
    uint64_t head_bytes;
    uint32_t shard;
    uint32_t chunk_count;
};

struct arena_record {
    uint32_t use; /* atomic; stored last, cleared first */
    uint32_t kind;
    struct tb_id uid;
    union {
        struct arena_record_region region;
        struct arena_record_shard shard;
    };
    struct tb_digest check; /* of kind to here */
    /* region: a number, 0 so far, and its complement. shard: tb_arena_proofs_check of the proofs in
     * its extent; atomic; 0: they are not there */
    uint64_t spare;
    struct tb_digest root; /* region; counts when root_check fits */
    uint64_t root_check;   /* atomic; 0: no root yet */
    uint64_t digests_done; /* shard; atomic: 0 or ARENA_USED */
};
_Static_assert(sizeof(struct arena_record) == 256, "the format says so");

/* Where things stand in a shard's extent, from its first byte. */
struct arena_extent_plan {
    uint64_t head;
    uint64_t digests;
    uint64_t held;
    uint64_t proofs; /* 0: an older release made it, which kept none */
    uint64_t total;
};
/* False when the numbers are over the limits of layout.h, or overflow. s->bytes 0: for a new
 * extent. */
bool tb_arena_extent_plan(const struct arena_record_shard *s, struct arena_extent_plan *plan_out);

struct arena_file {
    int fd;
    bool fresh; /* the file had no bytes before */
    uint8_t *map;
    uint64_t bytes;      /* mapped */
    uint64_t old_bytes;  /* what the file had before this open */
    uint64_t page_bytes; /* of its filesystem */
    bool in_memory;
    struct arena_header header;
    struct arena_record *records;
};

/* Opens, locks, allocates and maps. The header is not looked at yet. */
TB_MUST_USE enum tb_status tb_arena_file_open(struct arena_file *f, const struct tb_arena_options *options,
                                              char error_out[TB_ARENA_ERROR_BYTES]);
void tb_arena_file_close(struct arena_file *f);
/* Would tb_arena_file_open and tb_arena_file_load take it? Nothing is made or changed. Where
 * the file is to shrink, its records are mapped, until tb_arena_file_look_end; else
 * f->records is NULL. */
TB_MUST_USE enum tb_status tb_arena_file_look(struct arena_file *f, const struct tb_arena_options *options,
                                              struct tb_arena_look *look_out,
                                              char error_out[TB_ARENA_ERROR_BYTES]);
void tb_arena_file_look_end(struct arena_file *f); /* whatever the look said */
/* Finds the header. TB_NOT_FOUND: there is none that is good and fits the file. TB_SITE_CONFIG: it
 * is good, and of another format, or its tables do not fit into what is to be mapped; error_out
 * gets a sentence, and the file stays as it is. */
TB_MUST_USE enum tb_status tb_arena_file_load(struct arena_file *f, const char *path,
                                              char error_out[TB_ARENA_ERROR_BYTES]);
/* An empty table and a fresh life; the header is written last. */
void tb_arena_file_format(struct arena_file *f);
/* The bytes that a new file needs for so many records. */
uint64_t tb_arena_file_bytes_for(uint32_t records);
/* Writes the header with what f->header says now. */
void tb_arena_file_save(struct arena_file *f);
/* The rest of the file behind a shrunken arena goes. */
TB_MUST_USE enum tb_status tb_arena_file_trim(struct arena_file *f, char error_out[TB_ARENA_ERROR_BYTES]);

/* Where regions may stand. */
struct tb_extent tb_arena_file_room(const struct arena_file *f);
/* A smaller arena keeps nothing that stands past its end: the operator decides, not we. True of a
 * shard that does. */
bool tb_arena_file_cuts(const struct arena_file *f, const struct arena_record_shard *shard,
                        char error_out[TB_ARENA_ERROR_BYTES]);

struct tb_digest tb_arena_record_check(const struct arena_record *r);
uint64_t tb_arena_root_check(const struct tb_id *uid, const struct tb_digest *root);
/* Never 0. */
uint64_t tb_arena_proofs_check(const void *proofs, uint32_t chunk_count);
void tb_arena_record_use(struct arena_record *r, enum arena_use use);
uint32_t tb_arena_record_used(const struct arena_record *r);

void tb_arena_say(char error_out[TB_ARENA_ERROR_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
