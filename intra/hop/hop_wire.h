/* hop_wire.h - what a reader and a door say to each other on a hop's connection (TCP, TLS or unix).
 * Pure.
 *
 * The reader sends REQUESTs, all of one size. The door sends ANSWERs, all of one size. First comes
 * HELLO, answered by WELCOME (or END). Then READs are answered in their order by one sequence of
 * bytes: `bytes` bytes that continue it follow each DATA answer, whatever READs they belong to. So
 * the door may end a hop between two DATA answers. END is the door's last word.
 *
 * PING is answered by PONG, in order with the data.
 *
 * Shm, and over tcp after VERBS: ATTACH is answered by BUFFER. After a BUFFER of kind MEMFD, one
 * byte with one descriptor follows.
 *
 * Where a BUFFER says that the door takes memory that is lent (intra/fabric/lent_memory.h): LEND,
 * with one byte and one descriptor behind it, is answered by LENT. Then PUTs are answered in their
 * order by PUT, beside the sequence of READs.
 *
 * Where WELCOME says that there is RDMA: VERBS is answered by a RAIL for each address of the
 * owner's NICs, and then by VERBS with a secret, with which the reader may connect one queue pair.
 *
 * Shm, where WELCOME says that the export's bytes stand on a GPU: TRAY is answered by five TRAYs,
 * or by one that offers nothing. Then FILLs are answered in their order by FILLED, beside the
 * sequence of READs. */
#ifndef TB_INTRA_HOP_WIRE_H
#define TB_INTRA_HOP_WIRE_H

#include "base/layout/chunk_cut.h"
#include "base/message.h"

#define TB_HOP_WIRE_VERSION    1
#define TB_HOP_WIRE_MAGIC      UINT64_C(0x3170006f6c6f626d) /* "mbolo\0p1" */

#define TB_HOP_READS_MAX       512u /* READs that a reader may have unanswered */
#define TB_HOP_READ_BYTES_MAX  ((uint32_t)(2 * TB_CHUNK_BYTES_MAX)) /* of one READ: a chunk */
#define TB_HOP_FILLS_MAX       32u                                  /* FILLs that it may have unanswered */
#define TB_HOP_PUTS_MAX        256u                                 /* PUTs likewise */
#define TB_HOP_DATA_BYTES_MAX  (1u << 20)                           /* of one DATA */
#define TB_HOP_WORDS_BYTES_MAX (32u << 10) /* of one READ of bitmap words: the door copies them first */

enum tb_hop_request_type {
    TB_HOP_REQUEST_HELLO = 1, /* buffer: the version; a: the magic; bytes: 0; token, and export_id in b */
    TB_HOP_REQUEST_READ,      /* buffer, a: offset, bytes; flags: TB_HOP_READ_WORDS */
    TB_HOP_REQUEST_ATTACH,    /* buffer */
    TB_HOP_REQUEST_PING,
    /* by which NICs? Again only where the answer to the one before has TB_HOP_VERBS_AGAIN */
    TB_HOP_REQUEST_VERBS,
    TB_HOP_REQUEST_TRAY, /* a: bytes of a tray (intra/cuda_part.h) of its own. At most once */
    TB_HOP_REQUEST_FILL, /* buffer: shard; a: packed offset, bytes: a chunk's; b: where in the tray */
    TB_HOP_REQUEST_LEND, /* a: bytes of the memory whose descriptor follows. At most once */
    TB_HOP_REQUEST_PUT   /* buffer, a: offset, bytes; b: where in what is lent */
};
#define TB_HOP_READ_WORDS 1u

#define TB_HOP_REQUEST_FIELDS(F)                                                                             \
    F(u16, type) F(u16, flags) F(u32, buffer) F(u64, a) F(u64, b) F(u32, bytes) F(u32, zero) F(id, token)
TB_MESSAGE(tb_hop_request, TB_HOP_REQUEST_FIELDS)
#define TB_HOP_REQUEST_BYTES 48u

enum tb_hop_answer_type {
    /* a: address of 16 bytes in the door's process that equal `id`, to probe process_vm_readv;
     * kind: 1 where there is RDMA (shm: where its bytes stand on a GPU);
     * buffer, b: 1 + the buffer of its shelf, and the offset in it; 0: none, as older doors say;
     * bytes: the reader's depth in the chain, 1 below its beginning; 0: not known, as older doors
     * say */
    TB_HOP_ANSWER_WELCOME = 1,
    TB_HOP_ANSWER_DATA, /* bytes: of data behind this */
    /* buffer, kind; a: its bytes; b: offset in the descriptor, or address; bytes: VERBS: its key;
     * ADDRESS: TB_HOP_TAKES_LENT, or 0, as older doors say */
    TB_HOP_ANSWER_BUFFER,
    TB_HOP_ANSWER_PONG,
    /* bytes: the status, negated; nothing follows, and the export's memory is out of bounds */
    TB_HOP_ANSWER_END,
    /* id: an IPv6 address, or ::ffff:IPv4; bytes: its port; a: bytes/s; buffer: hops on it;
     * kind: TB_HOP_RAIL_* */
    TB_HOP_ANSWER_RAIL,
    /* id: the secret; kind: how many RAILs came before; a: TB_HOP_VERBS_AGAIN, or 0, as older doors
     * say */
    TB_HOP_ANSWER_VERBS,
    /* kind 0: id: the device, a: bytes of the tray, 0: there is none; 1 to 4: id: so
     * many parts of its handle */
    TB_HOP_ANSWER_TRAY,
    TB_HOP_ANSWER_FILLED, /* bytes: so many FILLs are done; kind 1: none was, and none will be */
    TB_HOP_ANSWER_LENT,   /* kind 0: the door puts bytes there; 1: it has no room for it */
    TB_HOP_ANSWER_PUT     /* bytes: so many PUTs are done */
};
#define TB_HOP_TRAY_ANSWERS 5u
enum tb_hop_buffer_kind {
    TB_HOP_BUFFER_STREAM,
    TB_HOP_BUFFER_MEMFD,
    TB_HOP_BUFFER_ADDRESS,
    TB_HOP_BUFFER_VERBS
};
#define TB_HOP_TAKES_LENT 1u
#define TB_HOP_RAIL_FAR   1u
#define TB_HOP_RAIL_DOWN  2u
/* It may ask again: what it was offered before ends then. An older door would refuse that. */
#define TB_HOP_VERBS_AGAIN 1u

#define TB_HOP_ANSWER_FIELDS(F)                                                                              \
    F(u16, type) F(u16, kind) F(u32, buffer) F(u32, bytes) F(u32, zero) F(u64, a) F(u64, b) F(id, id)
TB_MESSAGE(tb_hop_answer, TB_HOP_ANSWER_FIELDS)
#define TB_HOP_ANSWER_BYTES 48u

#endif
