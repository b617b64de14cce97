/* planner_scene.c - see planner_scene.h. */
#include "planner_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint32_t site_add(struct site *s, const char *name, enum tb_planner_kind kind, uint32_t host)
{
    const uint32_t i = s->count++;
    s->members[i] =
        (struct tb_planner_member){.id = i + 1, .kind = kind, .host = host, .upstream = TB_PLANNER_NONE};
    snprintf(s->names[i], sizeof s->names[i], "%s", name);
    return i;
}

void site_init(struct site *s, uint32_t fan_out)
{
    memset(s, 0, sizeof *s);
    s->fan_out = fan_out;
    site_add(s, "gw", TB_PLANNER_GATEWAY, 1000);
}

void count_readers(struct site *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        s->members[i].readers = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t up = s->members[i].upstream;
        if (up != TB_PLANNER_NONE && s->members[up].host != s->members[i].host) s->members[up].readers++;
    }
}

enum tb_status site_plan(struct site *s, uint32_t reader)
{
    uint64_t avoid[SITE_MEMBERS_MAX];
    uint32_t avoid_count = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->gone[i]) avoid[avoid_count++] = s->members[i].id;
    count_readers(s);
    const struct tb_planner_question q = {.members = s->members,
                                          .count = s->count,
                                          .reader = reader,
                                          .fan_out = s->fan_out,
                                          .avoid = avoid,
                                          .avoid_count = avoid_count,
                                          .failed_count = avoid_count};
    return tb_planner_upstream(&q, &s->members[reader].upstream);
}

uint32_t site_join(struct site *s, const char *name, uint32_t host)
{
    const uint32_t i = site_add(s, name, TB_PLANNER_WORKER, host);
    assert_int_equal(site_plan(s, i), TB_OK);
    return i;
}

uint32_t site_leave(struct site *s, uint32_t index)
{
    uint32_t orphans[SITE_MEMBERS_MAX];
    uint32_t count = 0;
    s->gone[index] = true;
    s->members[index].upstream = TB_PLANNER_NONE;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->members[i].upstream == index) {
            s->members[i].upstream = TB_PLANNER_NONE;
            orphans[count++] = i;
        }
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(site_plan(s, orphans[i]), TB_OK);
    return count;
}

static void draw_below(struct site *s, uint32_t index, int depth)
{
    const uint32_t up = s->members[index].upstream;
    const bool shared = up != TB_PLANNER_NONE && s->members[up].host == s->members[index].host;
    const size_t used = strlen(s->drawing);
    snprintf(s->drawing + used, sizeof s->drawing - used, "%*s%s%s\n", depth * 2, "", shared ? "=" : "",
             s->names[index]);
    for (uint32_t i = 0; i < s->count; i++)
        if (s->members[i].upstream == index) draw_below(s, i, depth + 1);
}

const char *site_draw(struct site *s)
{
    s->drawing[0] = '\0';
    for (uint32_t i = 0; i < s->count; i++)
        if (s->members[i].upstream == TB_PLANNER_NONE && !s->gone[i]) draw_below(s, i, 0);
    return s->drawing;
}
