/* world_clients.h - gateways, workers and trainers. A part of the world (world.h). */
#ifndef TB_SIM_WORLD_CLIENTS_H
#define TB_SIM_WORLD_CLIENTS_H

#include "world.h"

/* world_gateway.c */
void world_gateway_open(struct site *s);
void world_gateway_end(struct site *s, bool machine);
void world_sites_init(void);

/* world_client.c, world_worker.c, world_trainer.c */
void world_client_start(struct client *c);
void world_client_step(struct client *c);
/* A frame to the gateway; nothing while it is away. */
#define WORLD_SEND(c, type, request, message, encode)                                                        \
    do {                                                                                                     \
        struct tb_writer *w_ = (c)->wire != NULL ? tb_wire_begin((c)->wire, type, request, 16384) : NULL;    \
        if (w_ == NULL) break;                                                                               \
        encode(message, w_);                                                                                 \
        tb_wire_end((c)->wire);                                                                              \
    } while (0)
void world_worker_start(struct worker *k);
void world_worker_end(struct worker *k, bool leave);
void world_worker_step(struct worker *k);
extern const char *const world_models[MODELS_MAX];
void world_trainer_start(struct trainer *t);
void world_trainer_end(struct trainer *t);
void world_trainer_step(struct trainer *t);
bool world_trainer_holds(uint32_t version); /* and would seal it again */
void world_trainer_released(uint32_t version);

#endif
