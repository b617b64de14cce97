#include "gateway/daemon/rights.h"

#include <stdio.h>
#include <string.h>

#include "gateway/config/model_rules.h"

bool tb_rights_match(const char *pattern, const struct tb_identity *identity)
{
    if (identity->kind == TB_IDENTITY_NONE) return false;
    char text[TB_URI_BYTES_MAX];
    tb_identity_format(identity, text);
    const size_t bytes = strlen(pattern);
    if (bytes == 0 || pattern[bytes - 1] != '*') return strcmp(pattern, text) == 0;
    if (strncmp(pattern, "unix:", 5) != 0 && strncmp(pattern, "tombolo://", 10) != 0) return false;
    return strncmp(pattern, text, bytes - 1) == 0;
}

static bool listed(const char *const *patterns, uint32_t count, const struct tb_identity *identity)
{
    for (uint32_t i = 0; i < count; i++)
        if (tb_rights_match(patterns[i], identity)) return true;
    return false;
}

bool tb_rights_may(const struct tb_config *config, const struct tb_name *model,
                   const struct tb_identity *identity, bool publish)
{
    const struct tb_config_model *m = tb_config_model_for(config, model);
    if (m == NULL) return false;
    return publish ? listed(m->publish, m->publish_count, identity)
                   : listed(m->read, m->read_count, identity);
}

void tb_rights_group_owner(const struct tb_config *config, const struct tb_name *model,
                           const struct tb_identity *identity, char owner_out[TB_URI_BYTES_MAX])
{
    const struct tb_config_model *m = tb_config_model_for(config, model);
    tb_identity_format(identity, owner_out);
    if (m != NULL && listed(m->groups, m->groups_count, identity))
        snprintf(owner_out, TB_URI_BYTES_MAX, "models.%s.groups", m->name.text);
}

bool tb_rights_fence(const struct tb_config *config, const struct tb_name *model,
                     const struct tb_identity *identity)
{
    const struct tb_config_model *m = tb_config_model_for(config, model);
    return m != NULL && listed(m->may_fence, m->may_fence_count, identity);
}

bool tb_rights_publisher(const struct tb_config *config, const struct tb_name *model,
                         const struct tb_identity *identity)
{
    if (identity->kind != TB_IDENTITY_PUBLISHER) return false;
    const struct tb_config_model *m = tb_config_model_for(config, model);
    if (m == NULL) return false;
    return m->publishers_count == 0 || listed(m->publishers, m->publishers_count, identity);
}

bool tb_rights_publishes(const struct tb_config *config, const struct tb_identity *identity)
{
    for (uint32_t i = 0; i < config->model_count; i++)
        if (tb_rights_may(config, &config->models[i].name, identity, true)) return true;
    return false;
}

bool tb_rights_any(const struct tb_config *config, const struct tb_identity *identity)
{
    for (uint32_t i = 0; i < config->model_count; i++) {
        const struct tb_config_model *m = &config->models[i];
        if (listed(m->publish, m->publish_count, identity) || listed(m->read, m->read_count, identity))
            return true;
    }
    return false;
}
