/* island.h - for tests of the fabric: a source with a shard, a reader of it, and what
 * the reader was told. */
#ifndef TB_TESTS_INTRA_ISLAND_H
#define TB_TESTS_INTRA_ISLAND_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/layout/manifest.h"
#include "base/layout/place.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/shared_memory.h"
#include "intra/fabric/source_descriptor.h"

/* One way to move bytes; every conformance test runs over each. */
struct way {
    const char *name;
    enum tb_transport transport;
    bool clear;  /* tcp without TLS */
    bool denied; /* shm: the reader may not read the source's memory (denied_readv.h) */
    enum {
        MEMORY_OWN,
        MEMORY_SHARED,
        MEMORY_UNSEALED,
        MEMORY_DEVICE /* of a GPU, with a copy that is shared (island_device.h) */
    } memory;         /* of the source */
};

/* A shard with its sealed bytes. */
struct cargo {
    struct tb_manifest manifest;
    void *memory;
    uint8_t *bytes; /* packed, as sealed */
    uint32_t tensors;
    uint64_t tensor_bytes; /* as it was made */
};
/* `tensors` F32 tensors of tensor_bytes each, one BF16 of 2 MiB + 6 bytes, one U8 of 3 bytes, and a
 * blob; bytes by a seed. */
void cargo_make(struct cargo *c, uint32_t tensors, uint64_t tensor_bytes);
void cargo_free(struct cargo *c);

/* A place in memory of its own. */
struct hold {
    struct tb_place place;
    uint8_t *bytes;
};
void hold_make(struct hold *h, const struct cargo *c);
void hold_free(struct hold *h);
/* P1: whatever is held is what was sealed; and nothing is claimed any more. */
void hold_check(const struct hold *h, const struct cargo *c);

/* A source: a fabric with one export (id 7) of two buffers: 0 the packed bytes, 1 the bitmap. It
 * may be on another host (island_far.h): then only its shard and its endpoint are here, and the
 * calls below reach it. */
struct owner {
    int far; /* -1: it is here */
    struct stillness *still;
    struct tb_fabric *fabric;
    struct tb_shared_memory shared;
    bool has_device;
    uint8_t *bytes;
    int unsealed;
    uint64_t *held;
    struct tb_source_shard shard;
    struct tb_fabric_endpoint endpoint;
    const struct cargo *cargo;
};
#define EXPORT_ID 7u
/* Whether this machine has RDMA; if not a line says why. Asked in a process of its own: nothing of
 * it is open in this one. */
bool rdma_is_here(void);
struct tb_fabric *fabric_make(const struct way *way, uint64_t pace_bytes_per_s);
void owner_open(struct owner *o, const struct way *way, const struct cargo *c, uint64_t pace_bytes_per_s);
void owner_hold(struct owner *o, uint32_t first, uint32_t end); /* sets held bits */
void owner_hold_all(struct owner *o);
/* Into its memory; packed bytes at 64. */
void owner_put(struct owner *o, uint64_t offset, const void *bytes, uint64_t count);
void owner_fill(struct owner *o, uint8_t byte); /* all packed bytes, and what is before them */
/* These instead. */
void owner_export(struct owner *o, const struct tb_export_buffer *buffers, uint32_t count);
enum tb_status owner_export_again(struct owner *o); /* once more, with the id in use */
void owner_revoke(struct owner *o, uint32_t drain_ms);
uint32_t owner_readers(struct owner *o);
enum tb_status owner_grant(struct owner *o, const struct tb_id *token, const struct tb_fingerprint *print);
/* Of what stands on a device: its copy in host memory is of other bytes now. */
void owner_spoil_copy(struct owner *o);
void owner_stop(struct owner *o);                    /* its fabric closes */
void owner_stand_still(struct owner *o, bool begin); /* its loop does nothing until the end */
void owner_log_catch(struct owner *o);
uint32_t owner_log_lines(struct owner *o, const char *word, const char *other_word);
void owner_log_release(struct owner *o);
void owner_close(struct owner *o);

/* A reader's fabric and what its hops said. */
struct told {
    uint32_t opened, whole, lost, bad, encoded_chunks_bad;
    enum tb_status why;
    enum tb_transport transport;
    enum tb_transport_why why_transport;
    uint32_t bad_chunk;
    bool bad_twice;
};
struct tale {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct told told;
    bool blocked; /* the callback waits while this is set: its loop stands still */
};
void tale_init(struct tale *t);
void tale_fini(struct tale *t);
void tale_fn(void *user, struct tb_hop *hop, const struct tb_hop_event *event);
/* Waits until *count reaches n; fails the test after 20 s. */
void tale_wait(struct tale *t, const uint32_t *count, uint32_t n);
struct told told(struct tale *t);
#define tale_wait_whole(t)  tale_wait(t, &(t)->told.whole, 1)
#define tale_wait_lost(t)   tale_wait(t, &(t)->told.lost, 1)
#define tale_wait_opened(t) tale_wait(t, &(t)->told.opened, 1)

/* Options for a hop from the owner into the place, with a fresh token granted to the reader's
 * print. */
struct tb_hop_options hop_to(struct owner *o, struct tb_fabric *reader, const struct way *way,
                             struct tb_hop_place *place, struct tale *t);

/* By how much limits are longer here: 1; 5 where the processor is emulated (sim/vm). */
uint32_t slowness(void);

/* Polls a condition for at most 40 s: by the clock, as a rest of 1 ms takes what it takes on a busy
 * machine or in the VM lab. */
#define wait_until(condition)                                                                                \
    do {                                                                                                     \
        for (const tb_time_ns wait_from = tb_clock_now(); !(condition);) {                                   \
            assert_true(tb_clock_now() - wait_from < TB_MS(40000) * slowness());                             \
            rest_1ms();                                                                                      \
        }                                                                                                    \
    } while (0)
void rest_1ms(void);

/* Lines that contain all of the words, of what was logged since the last call of log_catch. */
void log_catch(void);
uint32_t log_lines(const char *word, const char *other_word);
void log_release(void);

#endif
