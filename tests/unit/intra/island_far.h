/* island_far.h - an owner on another host: what a test does to its owner is done there, over a
 * connection of our own.
 *
 * `PROGRAM --serve PORT` serves owners, each in a process of its own;
 * TB_TEST_OWNER_AT=ADDRESS:PORT makes owner_open of the verbs ways use it; those of ways over a
 * device are served by a child of the test. Both ends are the same program, so what goes between
 * them are plain structs. Inside tests alone. */
#ifndef TB_TESTS_INTRA_ISLAND_FAR_H
#define TB_TESTS_INTRA_ISLAND_FAR_H

#include "island.h"

enum far_op {
    FAR_OPEN,   /* a: tensors, b: tensor_bytes, c: pace */
    FAR_HOLD,   /* a, b: from, to */
    FAR_PUT,    /* b: offset; payload */
    FAR_FILL,   /* a: the byte */
    FAR_EXPORT, /* payload: for each of a buffers u64 count and its bytes */
    FAR_REVOKE, /* a: drain_ms */
    FAR_READERS,
    FAR_GRANT,
    FAR_STOP,
    FAR_STAND_STILL, /* a: begin or end */
    FAR_LOG_CATCH,
    FAR_LOG_LINES,
    FAR_LOG_RELEASE,
    FAR_AGAIN, /* opens an export of an id that is in use */
    FAR_SPOIL_COPY,
    FAR_DEVICE_FAIL,   /* words: an entry point; a: which call of it is refused, 0: none */
    FAR_DEVICE_FAILED, /* it was */
    FAR_DEVICE_TRAYS,  /* how many stand */
    FAR_DEVICE_MAPPED, /* its memory is one that CUDA IPC does not know */
    FAR_DIE
};

struct far_ask {
    enum far_op op;
    uint32_t a;
    uint64_t b, c;
    struct way way; /* OPEN; its name is not looked at */
    struct tb_id token;
    struct tb_fingerprint print;
    char words[2][48];
    uint64_t payload_bytes; /* that follow */
};

struct far_answer {
    int64_t value;
    struct tb_fabric_endpoint endpoint; /* OPEN */
    struct tb_source_shard shard;       /* OPEN: no table in it */
};

/* -1: owners are in this process. */
int far_dial(const struct way *way);
struct far_answer far_do(int fd, const struct far_ask *ask, const void *payload);
void far_serve(const char *port); /* for ever */
/* Serves owners whose bytes stand on a device, in a child of this process; before it has
 * threads. */
void far_begin(void);
void far_end(void);

#endif
