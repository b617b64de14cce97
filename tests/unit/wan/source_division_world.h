/* source_division_world.h - a fixture in virtual time: sources send chunks of one version, each at
 * its rate, and a divider tells them which. */
#ifndef TB_TESTS_DIVIDE_WORLD_H
#define TB_TESTS_DIVIDE_WORLD_H

#include "small_places.h"
#include "wan/send/source_division.h"

#define CHUNKS      200u
#define CHUNK_BYTES (1u << 20)
#define STEP_MS     5u
#define STREAMS_MAX 8u

struct sender {
    uint32_t source;
    uint64_t bytes_per_s;
    uint64_t dropped_per_s; /* bytes beside those, of which no chunk becomes */
    uint32_t rtt_ms;
    uint64_t has[4], take[4], sent[4]; /* as it knows them */
    uint32_t on_way[CHUNKS];           /* ms of arrival; 0: not */
    struct {
        uint32_t begun; /* the chunk it is in; CHUNKS: none */
        double credit;  /* bytes it may send now */
    } streams[STREAMS_MAX];
    uint32_t stream_count, next; /* where it looks for the next one */
    bool aimed, mute;            /* mute: its gateway says nothing */
    uint32_t chunks_sent;
    double received; /* of parts of chunks, too */
};

struct world {
    struct small_place small;
    struct tb_place place;
    struct tb_divide d;
    uint8_t *memory;
    uint32_t ms, held, twice, goal;
    struct sender senders[3];
    uint32_t count;
};

tb_time_ns divide_world_now(const struct world *w);
/* The first `small` chunks have a sixteenth of the others' bytes. */
void divide_world_init_uneven(struct world *w, uint16_t start, uint32_t small);
void divide_world_init(struct world *w, uint16_t start);
void divide_world_fini(struct world *w);
void divide_world_have(struct world *w, struct sender *s);
/* Holds chunks first to end. */
struct sender *divide_world_source(struct world *w, uint64_t bytes_per_s, uint32_t rtt_ms, uint32_t first,
                                   uint32_t end);
/* Until it is whole or so many milliseconds have passed. */
void divide_world_run(struct world *w, uint32_t until_ms);

#endif
