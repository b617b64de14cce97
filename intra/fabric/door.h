/* door.h - a fabric's door: its listeners, and the readers that came through it. Inside intra/
 * only. On the fabric's thread. */
#ifndef TB_INTRA_DOOR_H
#define TB_INTRA_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"
#include "tombolo/status.h"

struct tb_door;
struct tb_export;
struct tb_fabric;

enum tb_status tb_door_open(struct tb_fabric *f, const char *tcp_address, struct tb_door **door_out);
/* Listeners go, peers are cut off; they are gone when tb_door_quiet. */
void tb_door_close(struct tb_door *door);
bool tb_door_quiet(const struct tb_door *door);
void tb_door_free(struct tb_door *door);
extern const uint32_t tb_door_readers_max;
void tb_door_owners_leave(struct tb_door *door, const uint64_t *owners, uint32_t count); /* their hops end */
void tb_door_revoke(struct tb_door *door, const struct tb_export *export); /* ends the hops into it */
tb_time_ns tb_door_poll(struct tb_door *door, tb_time_ns now);

#endif
