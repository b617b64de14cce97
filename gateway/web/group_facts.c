/* group_facts.c - see group_facts.h. */
#include "gateway/web/group_facts.h"

#include <stdbool.h>
#include <string.h>

#include "gateway/web/web_facts.h"

static bool of_one(const json_t *group, const json_t *row)
{
    return strcmp(tb_facts_text(group, "model"), tb_facts_text(row, "model")) == 0 &&
           strcmp(tb_facts_text(group, "group"), tb_facts_text(row, "group")) == 0;
}

static void keep_worst(json_t *worst, const json_t *update, const char *key)
{
    if (!tb_facts_is_number(update, key)) return;
    if (tb_facts_is_number(worst, key) && tb_facts_number(worst, key) >= tb_facts_number(update, key)) return;
    (void)json_object_set_new(worst, key, json_real(tb_facts_number(update, key)));
}

static void worst_update(const json_t *group, const json_t *updates, json_t *worst)
{
    for (size_t i = 0; i < json_array_size(updates); i++) {
        const json_t *update = json_array_get(updates, i);
        if (!of_one(group, update)) continue;
        keep_worst(worst, update, "stall_ms");
        keep_worst(worst, update, "staged_bytes");
    }
}

static void count_proofs(const json_t *group, const json_t *serving, json_int_t counts[3])
{
    for (size_t i = 0; i < json_array_size(serving); i++) {
        const json_t *row = json_array_get(serving, i);
        const char *verdict = tb_facts_text(json_object_get(row, "proof"), "verdict");
        if (!of_one(group, row)) continue;
        if (strncmp(verdict, "proven", 6) == 0)
            counts[0]++;
        else
            counts[strcmp(verdict, "differs") == 0 ? 1 : 2]++;
    }
}

/* A copy of the group with what its members' sessions say of it. NULL: no memory. */
static json_t *group_of(const json_t *group, const json_t *sessions)
{
    json_t *copy = json_copy((json_t *)group), *worst = json_object();
    json_int_t counts[3] = {0, 0, 0};
    for (size_t i = 0; worst != NULL && i < json_array_size(sessions); i++) {
        const json_t *session = json_array_get(sessions, i);
        worst_update(group, json_object_get(session, "updates"), worst);
        count_proofs(group, json_object_get(session, "serving"), counts);
    }
    json_t *words = json_pack("{s:o*, s:I, s:I, s:I}", "worst", worst, "proven", counts[0], "differs",
                              counts[1], "unproven", counts[2]);
    if (copy == NULL || words == NULL || json_object_update(copy, words) != 0) {
        json_decref(copy);
        copy = NULL;
    }
    json_decref(words);
    return copy;
}

json_t *tb_group_facts(const json_t *status)
{
    const json_t *groups = json_object_get(status, "groups");
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < json_array_size(groups) && i < TB_GROUP_FACTS_MAX; i++) {
        json_t *group = json_array_get(groups, i);
        if (!json_is_object(group)) continue;
        group = group_of(group, json_object_get(status, "sessions"));
        if (group == NULL || json_array_append_new(list, group) != 0) break; /* no memory: fewer groups */
    }
    return list;
}
