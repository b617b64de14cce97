/* group_rows.h - reader groups and their members. */
#ifndef TB_GATEWAY_GROUP_ROWS_H
#define TB_GATEWAY_GROUP_ROWS_H

#include "gateway/catalog/groups.h"
#include "gateway/catalog/rows/tables.h"

struct group {
    struct row row;
    uint32_t model;
    struct tb_name name;
    char owner[TB_CATALOG_TEXT_MAX]; /* an identity or a list of them: nobody else joins */
    uint32_t count;
    uint32_t members; /* the first of its list */
    struct which go;
    tb_time_ns go_at;
    bool go_unpinned; /* pin_max passed and the room was needed */
    struct which attempt;
    tb_time_ns attempt_at;
    bool touched;
};

struct member {
    struct row row;
    uint32_t session, group, index;
    uint32_t group_next, session_next;
    uint32_t subscription;
    struct which active;
    struct tb_catalog_update update; /* that was told last; maybe of what was active before */
    struct tb_catalog_proof proof;   /* likewise */
    struct which staging;
    struct which ended; /* the last attempt that ended before go */
    enum tb_status ended_status;
    struct tb_id tell_uid;
    enum tb_status tell;
    bool go_told;
};

static inline struct group *group_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct group *)tb_table_row(&c->groups, i);
}
static inline struct member *member_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct member *)tb_table_row(&c->members, i);
}

struct version;

/* A body may not end the one it is at. The first needs session_rows.h. */
#define EACH_MEMBERSHIP(c, session, m)                                                                       \
    for (uint32_t m = session_at(c, session)->members; m != NONE; m = member_at(c, m)->session_next)
#define EACH_MEMBER(c, group, m)                                                                             \
    for (uint32_t m = group_at(c, group)->members; m != NONE; m = member_at(c, m)->group_next)

/* ---- questions ---- */

uint32_t tb_member_find(const struct tb_catalog *c, uint32_t session, uint32_t subscription);
/* The membership of that session in a group of that model; NONE also when there are several. */
uint32_t tb_member_only(const struct tb_catalog *c, uint32_t session, uint32_t model);
/* Some member of the session computes from it. */
bool tb_member_active(const struct tb_catalog *c, uint32_t session, const struct tb_id *uid);
bool tb_member_staged_whole(const struct tb_catalog *c, const struct member *m);
bool tb_group_activated(const struct tb_catalog *c, uint32_t group, const struct which *w);
/* A group stages it or computes from it, for not longer than pin_max. */
bool tb_groups_pin(const struct tb_catalog *c, const struct version *v);

bool tb_which_withdrawn(const struct tb_catalog *c, const struct which *w);

/* ---- changes ---- */

/* A member computes from that version: it is its group's, where it is known here and newer. */
void tb_group_adopt(struct tb_catalog *c, uint32_t group, const struct which *w);
/* The version became known here, and members that compute from it had said so. */
void tb_groups_learn(struct tb_catalog *c, uint32_t version);

/* Into the lists of its group and its session. */
void tb_member_link(struct tb_catalog *c, uint32_t member);
void tb_member_end(struct tb_catalog *c, uint32_t member);
/* Its staging of that version goes, and with it the attempt. */
void tb_member_release(struct tb_catalog *c, uint32_t session, uint32_t version);
/* It has all of that version: its groups are touched. */
void tb_member_progress(struct tb_catalog *c, uint32_t session, uint32_t version);
void tb_member_retell(struct tb_catalog *c, uint32_t session);
/* `told`: the version's own end has told its readers already. */
void tb_group_attempt_end(struct tb_catalog *c, uint32_t group, enum tb_status status, bool told);
void tb_groups_version_ended(struct tb_catalog *c, uint32_t version, enum tb_status status);
/* It goes all the same: whose pin was too old is told. */
void tb_groups_unpin(struct tb_catalog *c, uint32_t version);
void tb_groups_touch(struct tb_catalog *c, uint32_t model);

#endif
