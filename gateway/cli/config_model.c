/* config_model.c - see config_model.h. */
#include "gateway/cli/config_model.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/config/config_difference.h"
#include "gateway/config/model_rules.h"

struct shown {
    const struct tb_config *config;
    const char *file;
    char rule[TB_CONFIG_KEY_CHARS]; /* "models.policy-*" */
    json_t *values;                 /* NULL: as text; there was no memory */
    bool json, nomem;
};

static void place_of(const struct shown *s, const char *key, bool section, char out[512])
{
    uint32_t line = 0, column = 0;
    bool written = s->file != NULL && tb_config_written(s->config, key, &line, &column);
    if (section && s->file != NULL) {
        tb_config_place(s->config, key, &line, &column);
        written = true;
    }
    if (written)
        (void)snprintf(out, 512, "%.400s:%u", s->file, line);
    else
        (void)snprintf(out, 512, "%s", s->file != NULL ? "default" : "gateway");
}

static void value_add(void *user, const char *key, const char *value)
{
    struct shown *s = user;
    char from[512];
    const size_t bytes = strlen(s->rule);
    TB_ASSERT(strncmp(key, s->rule, bytes) == 0 && key[bytes] == '.'); /* it is of this row */
    place_of(s, key, false, from);
    if (!s->json && value == NULL) return;
    if (!s->json) {
        char clean[4096];
        tb_show_clean(value, clean, sizeof clean);
        (void)printf("  %s: %s  # %s\n", key + bytes + 1, clean, from);
        return;
    }
    json_t *row = json_pack("{s:s?, s:s}", "value", value, "from", from);
    s->nomem |= json_object_set_new(s->values, key + bytes + 1, row) != 0;
}

static enum tb_cli_exit show(struct shown *s, const struct tb_config_model *m, const struct tb_name *model)
{
    char from[512];
    const struct tb_config_subscribe *follows = tb_config_subscribe_for(s->config, model);
    place_of(s, s->rule, true, from);
    if (!s->json) {
        (void)printf("%s: models.%s counts, %s  # %s\n", model->text, m->name.text,
                     m->is_pattern ? "the first pattern that matches" : "which names it", from);
        if (follows != NULL) (void)printf("  subscribe: %s\n", follows->model.text);
    }
    const enum tb_status status = tb_config_each_value_of_model(m, value_add, s);
    if (!s->json) return fflush(stdout) == 0 && status == TB_OK ? TB_CLI_DONE : TB_CLI_SITE;
    if (status == TB_OK && !s->nomem)
        return tb_say_object(json_pack("{s:i, s:b, s:s, s:s, s:b, s:s, s:s?, s:o}", "schema", 1, "ok", 1,
                                       "model", model->text, "rule", s->rule, "pattern", m->is_pattern,
                                       "from", from, "subscribe",
                                       follows != NULL ? follows->model.text : NULL, "values", s->values));
    json_decref(s->values);
    return tb_say_object(NULL);
}

enum tb_cli_exit tb_cli_config_model(const struct tb_cli_call *call, const struct tb_config *config,
                                     const char *file)
{
    struct tb_name model;
    struct shown s = {.config = config, .file = file, .json = tb_cli_given(call, "json")};
    const char *text = tb_cli_text(call, "model");
    if (tb_name_set(&model, text) != TB_OK)
        return tb_say_usage(call->command->name, s.json, "--model wants the name of a model");
    const struct tb_config_model *m = tb_config_model_for(config, &model);
    if (m == NULL)
        return tb_say_failure(call, TB_NOT_FOUND, "no row of models names %s, and no pattern matches it",
                              model.text);
    (void)snprintf(s.rule, sizeof s.rule, "models.%s", m->name.text);
    s.values = s.json ? json_object() : NULL;
    s.nomem = s.json && s.values == NULL;
    return show(&s, m, &model);
}
