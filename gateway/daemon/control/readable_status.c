/* readable_status.c - P8: the status that a worker is shown names only models that it may publish
 * or read. Pure.
 *
 * The status is made once for people and for workers, so that no field can be forgotten here: each
 * array of words and each `model` is looked at, whatever section it is in. */
#include "gateway/daemon/control/readable_status.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/rights.h"

struct reader {
    const struct tb_config *config;
    const struct tb_identity *identity;
};

static bool is_hidden(const struct reader *r, const json_t *word)
{
    struct tb_name model;
    if (!json_is_string(word) || tb_name_set(&model, json_string_value(word)) != TB_OK) return false;
    if (tb_config_model_for(r->config, &model) == NULL) return false; /* no model of this gateway */
    return !tb_rights_may(r->config, &model, r->identity, false) &&
           !tb_rights_may(r->config, &model, r->identity, true);
}

static void hide(const struct reader *r, json_t *at);

static void hide_in_array(const struct reader *r, json_t *array, bool of_sites)
{
    for (size_t i = json_array_size(array); i > 0; i--) {
        json_t *item = json_array_get(array, i - 1);
        const bool gone = (!of_sites && is_hidden(r, item)) || is_hidden(r, json_object_get(item, "model"));
        if (gone)
            (void)json_array_remove(array, i - 1);
        else
            hide(r, item);
    }
}

static void hide_in_object(const struct reader *r, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const bool names_model = strcmp(key, "model") == 0 || strcmp(key, "writing") == 0;
        if (json_is_array(value))
            hide_in_array(r, value, strcmp(key, "from") == 0);
        else if (names_model && is_hidden(r, value))
            (void)json_string_set(value, "");
        else
            hide(r, value);
    }
}

/* As deep as a status is, which is not an input. */
static void hide(const struct reader *r, json_t *at) /* NOLINT(misc-no-recursion) */
{
    if (json_is_array(at)) hide_in_array(r, at, false);
    if (json_is_object(at)) hide_in_object(r, at);
}

void tb_status_hide(const struct tb_config *config, const struct tb_identity *identity, json_t *status)
{
    const struct reader r = {config, identity};
    TB_ASSERT(json_is_object(status));
    hide(&r, status);
}
