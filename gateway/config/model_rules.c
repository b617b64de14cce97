/* model_rules.c - see model_rules.h. */
#include "gateway/config/model_rules.h"

#include <string.h>

#include "base/assert.h"

#define PATTERN_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*"

bool tb_model_pattern_is(const char *text)
{
    return strchr(text, '*') != NULL;
}

bool tb_model_pattern_valid(const char *text)
{
    const size_t bytes = strlen(text);
    return bytes > 0 && bytes <= TB_NAME_BYTES_MAX && strspn(text, PATTERN_CHARS) == bytes &&
           tb_model_pattern_is(text);
}

/* From the left; where it fails, the last `*` takes one character more. Each character is looked at
 * once for each of the name's: 64 of each at most. */
bool tb_model_pattern_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *behind = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            behind = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++behind;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

/* A pattern of the file comes before one that left, whatever places they had. */
static bool comes_first(const struct tb_config_model *m, const struct tb_config_model *than)
{
    if (than == NULL || m->left != than->left) return than == NULL || than->left;
    return m->place < than->place;
}

const struct tb_config_model *tb_config_model_for(const struct tb_config *c, const struct tb_name *model)
{
    const struct tb_config_model *first = NULL;
    TB_ASSERT(c->model_count <= TB_CONFIG_LIST_MAX);
    for (uint32_t i = 0; i < c->model_count; i++) {
        const struct tb_config_model *m = &c->models[i];
        if (tb_name_equal(&m->name, model)) return m;
        if (m->is_pattern && comes_first(m, first) && tb_model_pattern_matches(m->name.text, model->text))
            first = m;
    }
    return first;
}

const struct tb_config_subscribe *tb_config_subscribe_for(const struct tb_config *c,
                                                          const struct tb_name *model)
{
    const struct tb_config_subscribe *first = NULL;
    for (uint32_t i = 0; i < c->subscribe_count; i++) {
        const struct tb_config_subscribe *s = &c->subscribe[i];
        if (tb_name_equal(&s->model, model)) return s;
        if (first == NULL && tb_model_pattern_is(s->model.text) &&
            tb_model_pattern_matches(s->model.text, model->text))
            first = s;
    }
    return first;
}
