/* link_manifest.h - pages of manifests that come. */
#ifndef TB_WAN_LINK_MANIFEST_H
#define TB_WAN_LINK_MANIFEST_H

#include "wan/link/links.h"

struct tb_link;
struct tb_wire_frame;

void tb_link_asks_tick(struct tb_link *l); /* those that are complete */
enum tb_status tb_link_on_head(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_digests(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_proofs(struct tb_link *l, struct tb_wire_frame *f);

#endif
