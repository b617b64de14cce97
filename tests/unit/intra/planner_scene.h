/* planner_scene.h - a site for the tests of intra/planner.c: members that join, leave and are
 * drawn, one a line, indented under its upstream, '=' before a reader that shares its upstream's
 * host. */
#ifndef TB_TESTS_PLANNER_SCENE_H
#define TB_TESTS_PLANNER_SCENE_H

#include "intra/planner.h"

#define SITE_MEMBERS_MAX 64

struct site {
    struct tb_planner_member members[SITE_MEMBERS_MAX];
    char names[SITE_MEMBERS_MAX][8];
    bool gone[SITE_MEMBERS_MAX];
    uint32_t count;
    uint32_t fan_out;
    char drawing[4096];
};

uint32_t site_add(struct site *s, const char *name, enum tb_planner_kind kind, uint32_t host);
void site_init(struct site *s, uint32_t fan_out); /* with a gateway */
void count_readers(struct site *s);
/* Asks for the reader's upstream. Members that are gone stay in the table, so that indexes do not
 * move: the question avoids them, and nobody reads from them. */
enum tb_status site_plan(struct site *s, uint32_t reader);
uint32_t site_join(struct site *s, const char *name, uint32_t host);
/* Its readers lose it, in the order of their numbers, and only they are asked about. Returns how
 * many they were. */
uint32_t site_leave(struct site *s, uint32_t index);
const char *site_draw(struct site *s);

#endif
