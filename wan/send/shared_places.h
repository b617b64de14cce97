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
struct tb_retired;
struct tb_encoded_chunks;
struct tb_known;
struct tb_shared_places {
    atomic_uint refs;
    atomic_bool revoked;
    atomic_ullong received_bytes; /* of chunk frames that came for it, dropped and refused ones too */
    struct tb_sent *sent;         /* of an offer, ours; NULL: of a landing */
    struct tb_encoded_chunks *encoded_chunks; /* with known: whose it is */
    /* ours: a version that left, whose places these are (encoded_chunks.h);
     * NULL: one that is here */
    struct tb_known *known;
    uv_async_t *wake; /* the main loop's */
    struct tb_shared_places
        *next; /* the main loop's own: shares that retire, and the call that took them back */
    struct tb_retired *call;
    struct tb_id uid;
    uint32_t shard_count;
    struct tb_place places[];
};
struct tb_shared_places *tb_shared_places_new(const struct tb_id *uid, const struct tb_place *places,
                                              uint32_t shard_count, uv_async_t *wake); /* NULL: no memory */
void tb_shared_places_ref(struct tb_shared_places *s);
void tb_shared_places_unref(struct tb_shared_places *s);
bool tb_shared_places_revoked(const struct tb_shared_places *s);
void tb_shared_places_revoke(struct tb_shared_places *s);    /* main loop */
bool tb_shared_places_only_ours(struct tb_shared_places *s); /* main loop */
void tb_shared_places_free(struct tb_shared_places *s);      /* main loop, when only ours */
/* Any. They have a layout in common, in some shard: one may be a base of the other. */
bool tb_shared_places_layouts_meet(const struct tb_shared_places *a, const struct tb_shared_places *b);

#endif
