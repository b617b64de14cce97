/* hostile.h - readers and doors that say over a hop's unix socket what a test wants them to say. */
#ifndef TB_TESTS_INTRA_HOSTILE_H
#define TB_TESTS_INTRA_HOSTILE_H

#include "intra/hop/hop_wire.h"
#include "scene.h"

/* ---- a reader ---- */

/* The owner has let it in. */
int hostile_greet(struct scene *s);
void hostile_say(int fd, const struct tb_hop_request *r);
struct tb_hop_answer hostile_hear(int fd);

/* ---- a door ---- */

struct hostile_door {
    char name[64];
    int listener;
    struct tb_hop_answer welcome, buffer; /* its answers to HELLO and to each ATTACH */
    /* A request that is neither of them, nor PING. */
    void (*on_request)(void *user, int fd, const struct tb_hop_request *r);
    void *user;
};

/* A door's address. A process listens there later, perhaps another one: the kernel tells a reader
 * whose process that was. */
void hostile_door_open(struct hostile_door *d);
void hostile_door_close(struct hostile_door *d);
/* One reader, until it hangs up. Asserts nothing, as it may run beside the test. */
void hostile_door_serve(const struct hostile_door *d);
void hostile_answer(int fd, const struct tb_hop_answer *a);
/* A hop of the scene's reader to it: to a source that holds all, where no source is silent for
 * idle_ms. */
struct tb_hop *hostile_hop(struct scene *s, const struct hostile_door *d, uint32_t idle_ms);

#endif
