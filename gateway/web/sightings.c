/* sightings.c - see sightings.h. */
#include "gateway/web/sightings.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/web/web_facts.h"

/* Answers name sites in the same order again and again, so it is looked for at `hint` first. */
static int32_t site_index(const struct tb_sightings *s, const char *site, size_t hint)
{
    for (uint32_t i = 0; i < s->site_count; i++) {
        const uint32_t at = (uint32_t)((hint + i) % s->site_count);
        if (strcmp(s->sites[at], site) == 0) return (int32_t)at;
    }
    return -1;
}

/* -1: no room, or no name of a site. */
static int32_t site_made(struct tb_sightings *s, const char *site, size_t hint)
{
    const int32_t known = site_index(s, site, hint);
    const size_t bytes = strlen(site) + 1;
    if (known >= 0 || bytes == 1 || bytes > TB_SIGHTING_NAME_BYTES || s->site_count == TB_SIGHTING_SITES_MAX)
        return known;
    memcpy(s->sites[s->site_count], site, bytes);
    return (int32_t)s->site_count++;
}

static struct tb_sighting_row *row_of(struct tb_sightings *s, const char *uid)
{
    for (uint32_t i = 0; i < TB_SIGHTING_VERSIONS_MAX; i++)
        if (strcmp(s->rows[i].uid, uid) == 0) return &s->rows[i];
    return NULL;
}

static struct tb_sighting_row *row_made(struct tb_sightings *s, const char *uid)
{
    struct tb_sighting_row *row = row_of(s, uid);
    if (row != NULL) return row;
    row = &s->rows[s->next];
    s->next = (s->next + 1) % TB_SIGHTING_VERSIONS_MAX;
    *row = (struct tb_sighting_row){.uid = ""};
    memcpy(row->uid, uid, strlen(uid) + 1);
    return row;
}

static void see_site(struct tb_sighting_row *row, int32_t index, const json_t *site, float at_s)
{
    const bool is[TB_SIGHTING_KINDS] = {tb_facts_number(site, "held_bytes") > 0,
                                        tb_facts_is_true(site, "whole"), tb_facts_is_true(site, "activated")};
    if (index < 0) return;
    float *known = row->at_s[index];
    for (int kind = 0; kind < TB_SIGHTING_KINDS; kind++)
        if (is[kind] && !(known[kind] > 0) && !(known[kind] < 0)) known[kind] = at_s;
}

static void see_version(struct tb_sightings *s, double wall_s, const json_t *version, bool watched)
{
    const char *uid = tb_facts_text(version, "uid");
    const json_t *sites = json_object_get(version, "sites");
    const double opened_ms = tb_facts_number(version, "opened_ms"), at_s = wall_s - opened_ms / 1e3;
    if (*uid == '\0' || strlen(uid) >= sizeof s->rows[0].uid) return;
    struct tb_sighting_row *row = row_made(s, uid);
    const bool dated = watched && opened_ms > 0 && at_s > 0; /* a clock may be ahead of this one */
    for (size_t i = 0; i < json_array_size(sites); i++)
        see_site(row, site_made(s, tb_facts_text(json_array_get(sites, i), "site"), i),
                 json_array_get(sites, i), dated ? (float)at_s : -1.0F);
}

void tb_sightings_see(struct tb_sightings *s, double wall_s, const json_t *versions)
{
    const size_t count = json_array_size(versions);
    const size_t first = count > TB_SIGHTING_VERSIONS_MAX ? count - TB_SIGHTING_VERSIONS_MAX : 0;
    const bool watched = s->seen_s > 0 && wall_s >= s->seen_s && wall_s - s->seen_s < TB_SIGHTING_GAP_S;
    TB_ASSERT(s->next < TB_SIGHTING_VERSIONS_MAX);
    for (size_t i = first; i < count; i++)
        see_version(s, wall_s, json_array_get(versions, i), watched);
    s->seen_s = wall_s;
}

float tb_sightings_at(const struct tb_sightings *s, const char *uid, const char *site, enum tb_sighting kind)
{
    const int32_t index = site_index(s, site, 0);
    TB_ASSERT(kind < TB_SIGHTING_KINDS);
    if (index < 0 || *uid == '\0') return 0;
    for (uint32_t i = 0; i < TB_SIGHTING_VERSIONS_MAX; i++)
        if (strcmp(s->rows[i].uid, uid) == 0) return s->rows[i].at_s[index][kind];
    return 0;
}
