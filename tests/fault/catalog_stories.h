/* catalog_stories.h - what brings a catalog through its states: a story is told step by step,
 * from 0 on; what it has to say after a step is its owner's to take. Each begins with a
 * catalog that was just opened (site.h): the first five at home, the next two elsewhere, the
 * last while home recovers. */
#ifndef TB_TESTS_FAULT_CATALOG_STORIES_H
#define TB_TESTS_FAULT_CATALOG_STORIES_H

#include "catalog/site.h"

#define HOME_STEPS 19
void home_story(struct site *s, unsigned step);
#define ENDS_STEPS 8
void ends_story(struct site *s, unsigned step);
#define ROOM_STEPS 9
void room_story(struct site *s, unsigned step);
#define ROT_STEPS 9
void rot_story(struct site *s, unsigned step);
#define UNPUBLISH_STEPS 5
void unpublish_story(struct site *s, unsigned step);

#define REMOTE_STEPS 15
void remote_story(struct site *s, unsigned step);
#define CROSSING_STEPS 10
void crossing_story(struct site *s, unsigned step);

#define RESTART_STEPS 7
void restart_story(struct site *s, unsigned step);

#endif
