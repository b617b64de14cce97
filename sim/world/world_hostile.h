/* world_hostile.h - members that lie: a relay that forges what it sends (FAULT_FORGE), and a second
 * gateway with the identity of an honest one (FAULT_TWIN). A part of the world (world.h).
 *
 * The relay is a whole shipped gateway. Its words to other sites are forged as they leave, frame by
 * frame, until the end of the seed. The twin is one, too, with an arena of its own. In half of the
 * seeds it goes when faults stop, as an operator would stop it. In the others it stays. */
#ifndef TB_SIM_WORLD_HOSTILE_H
#define TB_SIM_WORLD_HOSTILE_H

#include "base/message.h"
#include "world.h"
#include "world_pipe.h"

/* world_forged.c. Other bytes of the same XXH3-128. False: it is too small or too large for that,
 * and stays as it was. */
bool world_chunk_forge(uint8_t *bytes, uint32_t count);

/* world_hostile.c */
void world_hostile_choose(void); /* the one of this seed; the sites have their names */
/* Whether that site asks it first, and home behind it. */
bool world_prefers_liar(uint32_t site);
bool world_is_forged(const struct tb_id *uid); /* or run: it made that up */
/* A frame of it is complete in the tap: passes it on, or another one, and may add one. */
void world_hostile_pass(struct pipe *p, bool chunks);
/* A line of or about a member that lies. */
bool world_is_about_liar(const char *line);
void world_check_forged(void); /* no honest gateway has a row of a version made up */

/* world_twin.c */
void world_twin_init(void);
void world_twin_step(void);

/* world_outside.c: only a gateway of that name can put it under a statement. */
uint64_t world_signature(const struct tb_name *site, const struct tb_name *gateway, const void *bytes,
                         size_t count);

#endif
