/* world_pipe.h - the bytes of one connection on their way to one end: a window, a delay, and what
 * the path does to them. */
#ifndef TB_SIM_WORLD_PIPE_H
#define TB_SIM_WORLD_PIPE_H

#include "world.h"

#define TAP_BYTES 2048u

struct segment;
struct pipe {
    uint32_t from, to; /* sites */
    bool link;         /* between two gateways; else inside a site, where nothing is lost */
    uint32_t receiver_life;
    struct segment *first, *last;
    size_t bytes;
    tb_time_ns last_at;
    bool ended, said_end; /* nothing follows; the reader knows */
    struct tap {          /* follows the frames that pass */
        bool chunks;      /* BIND or BOUND went by */
        bool corrupt;
        bool held_back; /* until all of the frame is there (world_hostile.h) */
        uint32_t got, need;
        uint8_t frame[TAP_BYTES];
    } tap;
};

bool world_path_open(uint32_t from, uint32_t to);
tb_time_ns world_path_delay(uint32_t from, uint32_t to);
size_t world_pipe_room(const struct pipe *p);
size_t world_pipe_write(struct pipe *p, const void *bytes, size_t count); /* how many were taken */
void world_pipe_push(struct pipe *p, const void *bytes, size_t count);    /* whatever room there is */
bool world_pipe_ready(const struct pipe *p);                              /* a read gives bytes */
bool world_pipe_over(const struct pipe *p); /* all was read, and the end has come */
size_t world_pipe_read(struct pipe *p, void *out, size_t cap);
void world_pipe_drop(struct pipe *p, bool arrived_too);

#endif
