/* shared_places.h - the places of one version, which the main loop and streams share. */
#ifndef TB_WAN_SHARED_PLACES_H
#define TB_WAN_SHARED_PLACES_H

#include <stdatomic.h>
#include <uv.h>

#include "base/layout/place.h"
#include "wan/send/sent_counters.h"

/* Places of one version that streams may touch, kept alive by counts. The main loop owns one
 * reference from new to the end; it revokes, and when its own is the last one no thread touches
 * the places any more. */
struct retired;
struct tb_objects;
struct tb_known;
struct tb_share {
    atomic_uint refs;
    atomic_bool revoked;
    atomic_ullong received_bytes; /* of chunk frames that came for it, dropped and refused ones too */
    struct tb_sent *sent;         /* of an offer, ours; NULL: of a landing */
    struct tb_objects *objects;   /* with known: whose it is */
    /* ours: a version that left, whose places these are (encoded_chunks.h);
     * NULL: one that is here */
    struct tb_known *known;
    uv_async_t *wake;      /* the main loop's */
    struct tb_share *next; /* the main loop's own: shares that retire, and the call that took them back */
    struct retired *call;
    struct tb_id uid;
    uint32_t shard_count;
    struct tb_place places[];
};
struct tb_share *tb_share_new(const struct tb_id *uid, const struct tb_place *places, uint32_t shard_count,
                              uv_async_t *wake); /* NULL: no memory */
void tb_share_ref(struct tb_share *s);
void tb_share_unref(struct tb_share *s);
bool tb_share_revoked(const struct tb_share *s);
void tb_share_revoke(struct tb_share *s);    /* main loop */
bool tb_share_only_ours(struct tb_share *s); /* main loop */
void tb_share_free(struct tb_share *s);      /* main loop, when only ours */
/* Any. They have a layout in common, in some shard: one may be a base of the other. */
bool tb_share_layouts_meet(const struct tb_share *a, const struct tb_share *b);

#endif
