/* link_manifest_pages.h - manifests on their way to the peer. */
#ifndef TB_WAN_LINK_MANIFEST_PAGES_H
#define TB_WAN_LINK_MANIFEST_PAGES_H

#include "wan/link/links.h"

struct tb_link;
struct tb_offer;
struct tb_wire_frame;

#define LINK_QUEUE_BYTES ((uint64_t)1 << 20) /* of manifest pages on the control stream */

/* Manifests on their way to the peer. */
struct tb_link_serve {
    struct tb_link_serve *next;
    struct tb_offer *offer;
    uint32_t shard;
    bool head_done;
    bool asked;   /* else it follows PUSH */
    bool proving; /* digests were sent, and proofs follow; until all are known it is put aside */
    uint32_t at;  /* byte of the head, digest or proof */
    uint8_t *head;
    uint32_t head_bytes;
};

void tb_link_serves_drop(struct tb_link *l, const struct tb_offer *o); /* NULL: all */
void tb_link_serves_tick(struct tb_link *l);
void tb_link_serve(struct tb_link *l, struct tb_offer *o, bool asked); /* or GONE, where there is no memory */
/* Proofs of that version are all known: they go to the peer, if its manifests went. */
void tb_link_serve_proofs(struct tb_link *l, const struct tb_offer *o);
enum tb_status tb_link_on_ask(struct tb_link *l, struct tb_wire_frame *f);

#endif
