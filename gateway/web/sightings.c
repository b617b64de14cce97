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

/* A version that is still in the answer keeps its row: what is left is as old as can be. */
static struct tb_sighting_row *row_made(struct tb_sightings *s, const char *uid)
{
    struct tb_sighting_row *oldest = &s->rows[0], *row = row_of(s, uid);
    if (row != NULL) return row;
    for (uint32_t i = 1; i < TB_SIGHTING_VERSIONS_MAX; i++)
        if (s->rows[i].answer < oldest->answer) oldest = &s->rows[i];
    TB_ASSERT(oldest->answer < s->answers);
    *oldest = (struct tb_sighting_row){.answer = s->answers};
    memcpy(oldest->uid, uid, strlen(uid) + 1);
    return oldest;
}

static const char *uid_of(const json_t *version)
{
    const char *uid = tb_facts_text(version, "uid");
    return strlen(uid) < sizeof((struct tb_sighting_row *)NULL)->uid ? uid : "";
}

/* Before any row is made: no version of this answer loses its row to another one. */
static void mark_row(struct tb_sightings *s, const json_t *version)
{
    struct tb_sighting_row *row = *uid_of(version) != '\0' ? row_of(s, uid_of(version)) : NULL;
    if (row == NULL || row->answer == s->answers) return;
    row->answer_before = row->answer;
    row->answer = s->answers;
}

static void see_site(struct tb_sighting_row *row, int32_t index, const json_t *site, float at_s)
{
    const bool is[TB_SIGHTING_KINDS] = {tb_facts_number(site, "held_bytes") > 0,
                                        tb_facts_is_true(site, "whole"), tb_facts_is_true(site, "activated")};
    float *known = row->at_s[index];
    for (int kind = 0; kind < TB_SIGHTING_KINDS; kind++)
        if (is[kind] && !(known[kind] > 0) && !(known[kind] < 0)) known[kind] = at_s;
}

static void see_version(struct tb_sightings *s, double wall_s, const json_t *version, bool watched)
{
    const json_t *sites = json_object_get(version, "sites");
    const double opened_s = tb_facts_number(version, "opened_ms") / 1e3, at_s = wall_s - opened_s;
    if (*uid_of(version) == '\0') return;
    struct tb_sighting_row *row = row_made(s, uid_of(version));
    const bool dated = watched && opened_s > 0 && at_s > 0; /* a clock may be ahead of this one */
    const bool young = opened_s >= s->seen_s, followed = row->answer_before + 1 == s->answers;
    bool known[TB_SIGHTING_SITES_MAX] = {false};
    for (size_t i = 0; i < json_array_size(sites); i++) {
        const json_t *site = json_array_get(sites, i);
        const int32_t index = site_made(s, tb_facts_text(site, "site"), i);
        if (index < 0) continue;
        const bool between = dated && (young || (followed && row->site_known[index]));
        see_site(row, index, site, between ? (float)at_s : -1.0F);
        known[index] = tb_facts_is_true(site, "known");
    }
    memcpy(row->site_known, known, sizeof known);
}

void tb_sightings_see(struct tb_sightings *s, double wall_s, const json_t *versions)
{
    const size_t count = json_array_size(versions);
    const size_t first = count > TB_SIGHTING_VERSIONS_MAX ? count - TB_SIGHTING_VERSIONS_MAX : 0;
    const bool watched = s->seen_s > 0 && wall_s >= s->seen_s && wall_s - s->seen_s < TB_SIGHTING_GAP_S;
    if (!json_is_array(versions)) return;
    s->answers++;
    for (size_t i = first; i < count; i++)
        mark_row(s, json_array_get(versions, i));
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
