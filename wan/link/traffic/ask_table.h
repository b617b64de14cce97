/* ask_table.h - manifests on their way to us. */
#ifndef TB_WAN_ASK_TABLE_H
#define TB_WAN_ASK_TABLE_H

#include "wan/link/links.h"

struct tb_link;

/* Manifests on their way to us. */
struct tb_link_ask {
    struct tb_link_ask *next;
    struct tb_id uid;
    struct tb_version_key key;
    bool sent;    /* in this session */
    uint64_t seq; /* of those that were sent on this link, 1.. */
    bool unasked; /* they follow a PUSH that is not decided, and nobody here asked yet */
    bool complete;
    bool proving; /* all digests are here, and proofs follow: `shard` begins again */
    uint32_t shard;
    uint8_t *head;
    uint32_t head_total, head_got;
    uint32_t digests_got; /* or proofs */
    uint64_t memory_bytes;
    uint64_t needed_bytes;         /* with the shard for which there was no room */
    struct tb_manifest *manifests; /* key.shard_count; NULL until the answer begins */
    void **memories;
};

void tb_link_ask_clear(struct tb_link_ask *a);
/* Points to NULL where there is none. */
struct tb_link_ask **tb_link_ask_find(struct tb_link *l, const struct tb_id *uid);
void tb_link_ask_free(struct tb_link_ask **at);
void tb_link_asks_rewind(struct tb_link *l);
void tb_link_asks_free(struct tb_link *l);
uint32_t tb_link_ask_count(const struct tb_link *l); /* without those that nobody here asked for */
/* The peer answers in the order in which it was asked: what was asked before this one is over
 * there. */
void tb_link_ask_passed(struct tb_link *l, const struct tb_link_ask *a);
void tb_link_ask_skip(struct tb_link *l,
                      const struct tb_link_ask *a); /* ends here; the peer may still answer it */
void tb_link_asks_send(
    struct tb_link *l); /* those the peer announced and that were not sent in this session */
/* Bytes of manifests that may still be kept for this one. */
uint64_t tb_link_ask_room(const struct tb_link *l, const struct tb_link_ask *whose);
/* Its manifests follow PUSH. TB_TOO_LARGE, TB_SITE_NOMEM: they are not kept. */
TB_MUST_USE enum tb_status tb_link_ask_pushed(struct tb_link *l, const struct tb_version_key *key);
void tb_link_ask_declined(struct tb_link *l,
                          const struct tb_id *uid); /* they are kept if they were asked for */
void tb_link_ask_fail(struct tb_link *l, const struct tb_id *uid, enum tb_status why);

#endif
