/* groups.h - reader groups: their members stage a version and switch to it together. A room of the
 * catalog (catalog.h).
 *
 * The rule that keeps P2. A group has at most one open *attempt*: the uid that its members stage.
 * The first stage while there is none opens it. Until the attempt ends, stage of any other uid gets
 * TB_CONFLICT and the attempt's uid, and so do latest and next waits of a member: members that saw
 * different heads meet.
 *
 * An attempt ends
 *   - by `go`, when all members are there and have staged it whole;
 *   - as TB_GROUP_BROKEN, when a member is lost, unsubscribes or releases it before go;
 *   - with the version's status, when the version ends;
 *   - as TB_SUPERSEDED, when a member stages a newer version that is whole here while the attempt's
 *     version is not.
 *
 * After go the group's uid is that one. A member that comes back later stages and activates it
 * without the others. Stage and activate of an older uid are refused (TB_BAD_STATE), unless the
 * group's version was withdrawn, or an operator pinned the older one.
 *
 * A newer version than the pinned one is not staged (TB_CONFLICT with the pinned uid), and an
 * attempt at it ends as TB_SUPERSEDED. */
#ifndef TB_GATEWAY_CATALOG_GROUPS_H
#define TB_GATEWAY_CATALOG_GROUPS_H

#include "gateway/catalog/catalog.h"

/* The version that a member computes from, and how new it is. A version that the
 * catalog does not know counts for this member alone. */
struct tb_catalog_active {
    struct tb_id uid; /* zero: nothing, or nothing any more */
    uint64_t run_order, number;
};

struct tb_catalog_member {
    struct tb_id session;
    uint32_t subscription; /* the session's number for it, above 0 */
    struct tb_name model;
    struct tb_name group;
    uint32_t index;
    uint32_t count;
    /* To whom a group that it opens belongs: its identity, or the list that it is in. */
    char owner[TB_CATALOG_TEXT_MAX];
    struct tb_catalog_active active;
};

/* The same request again is TB_OK. An `active` that is newer than the group's uid becomes that: the
 * catalog restarted after its go. One that the catalog does not know holds this member back, and no
 * other, until the catalog knows it: nobody but home may say how new a version is.
 *   TB_PEER_DENIED  the group belongs to another owner (tb_catalog_group_owner)
 *   TB_CONFLICT  another count for the group, the index is taken, or the subscription is used
 *                otherwise
 *   TB_BAD_ARGUMENT */
TB_MUST_USE enum tb_status tb_catalog_subscribe(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_catalog_member *m);

/* NULL: there is no such group. Valid until the next call. */
const char *tb_catalog_group_owner(const struct tb_catalog *c, const struct tb_name *model,
                                   const struct tb_name *group);

TB_MUST_USE enum tb_status tb_catalog_unsubscribe(struct tb_catalog *c, tb_time_ns now,
                                                  const struct tb_id *session, uint32_t subscription);

/* The member stages it; a PLAN follows when there is a source. *uid_out is the same uid, or with
 * TB_CONFLICT the uid to ask for instead.
 *   TB_BAD_STATE  backwards
 *   TB_NOT_FOUND  unknown here, or not ready
 *   TB_VERSION_*, TB_SUPERSEDED  it ended */
TB_MUST_USE enum tb_status tb_catalog_stage(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                            uint32_t subscription, const struct tb_id *uid,
                                            struct tb_id *uid_out);

/* TB_OK after go. Lost and broken take no go back: staged bytes are whole and verified.
 *   TB_AGAIN         before go, or this member has not staged it whole
 *   TB_BAD_STATE     backwards, or never staged
 *   TB_GROUP_BROKEN  the attempt ended
 *   TB_VERSION_WITHDRAWN, _LOST, _BROKEN */
TB_MUST_USE enum tb_status tb_catalog_activate(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_id *session, uint32_t subscription,
                                               const struct tb_id *uid);

/* The bytes are in the buffers. */
TB_MUST_USE enum tb_status tb_catalog_activated(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, uint32_t subscription,
                                                const struct tb_catalog_active *active);

/* How the bytes got into the buffers, as the worker says. For people: no decision uses it. */
struct tb_catalog_update {
    struct tb_id uid;
    uint8_t way; /* enum tb_msg_way, or a later release's */
    uint32_t fetched_chunks;
    uint64_t stall_ns, staged_bytes, copied_bytes, patched_bytes;
};

/* Call it behind tb_catalog_activated of the same version, else TB_BAD_STATE. */
TB_MUST_USE enum tb_status tb_catalog_updated(struct tb_catalog *c, const struct tb_id *session,
                                              uint32_t subscription, const struct tb_catalog_update *update);

/* The result of a worker's own digests of the bytes that it computes from. For people: no decision
 * uses it. */
struct tb_catalog_proof {
    struct tb_id uid;
    tb_time_ns at;        /* the digests were complete */
    uint8_t verdict, why; /* enum tb_msg_verdict, enum tb_msg_unprovable, or a later release's */
    uint64_t bytes, box_bytes, blake3_bytes, left_bytes, took_ms;
    uint32_t bad, shard, chunk;       /* of the first that differs */
    char tensor[TB_CATALOG_TEXT_MAX]; /* likewise; cut */
};

/* Of what the member is active in, else TB_BAD_STATE. *alarm_out: it differs, and the proof before
 * did not say so of that tensor and version. */
TB_MUST_USE enum tb_status tb_catalog_proven(struct tb_catalog *c, const struct tb_id *session,
                                             uint32_t subscription, const struct tb_catalog_proof *proof,
                                             bool *alarm_out);

/* Why a member that stages or activates a version gets TB_BAD_STATE. */
enum tb_catalog_obstacle {
    TB_OBSTACLE_NONE,      /* no such member */
    TB_OBSTACLE_NEWER,     /* the group's last go was for a newer version, which was not withdrawn */
    TB_OBSTACLE_UNKNOWN,   /* this member said that it computes from a newer one, not known here */
    TB_OBSTACLE_ATTEMPT,   /* the group stages another version */
    TB_OBSTACLE_STAGED,    /* this member staged another version since */
    TB_OBSTACLE_NOT_STAGED /* the gateway has not heard that this member stages it */
};

struct tb_catalog_obstacle_view {
    enum tb_catalog_obstacle kind;
    struct tb_name group;
    uint64_t run_order, number; /* of the other version; 0 for NOT_STAGED */
};

struct tb_catalog_obstacle_view tb_catalog_obstacle_of(const struct tb_catalog *c,
                                                       const struct tb_id *session, uint32_t subscription,
                                                       const struct tb_id *uid);

/* How the session came to that version. False: no member of it is active in the version, or it has
 * not said how. */
bool tb_catalog_update_get(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                           struct tb_catalog_update *out);

/* A member of a group of that model computes from bytes that came in that way. */
bool tb_catalog_updated_by(const struct tb_catalog *c, const struct tb_name *model, uint8_t way);

#endif
