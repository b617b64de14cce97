/* doctor_tell.c - see doctor_tell.h. */
#include "gateway/cli/doctor/doctor_tell.h"

#include <string.h>

#include "base/assert.h"

void tb_doctor_tell(const struct tb_doctor *d, const char *name, struct tb_finding finding)
{
    TB_ASSERT(d->tell != NULL && strlen(name) < TB_CHECK_NAME_BYTES);
    d->tell(d->user, name, &finding);
}

const json_t *tb_doctor_link(const struct tb_doctor *d)
{
    const json_t *links = json_object_get(d->status, "links");
    TB_ASSERT(d->config != NULL && d->peer < d->config->peer_count);
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *row = json_array_get(links, i);
        const char *site = json_string_value(json_object_get(row, "site"));
        if (site != NULL && strcmp(site, d->config->peers[d->peer].site.text) == 0) return row;
    }
    return NULL;
}
