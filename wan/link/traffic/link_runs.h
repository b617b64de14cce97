/* link_runs.h - which run of a model a peer remembers. */
#ifndef TB_WAN_LINK_RUNS_H
#define TB_WAN_LINK_RUNS_H

#include "wan/link/links.h"

struct tb_link;
struct tb_wire_frame;

enum tb_status tb_link_on_runs(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_run_told(struct tb_link *l, struct tb_wire_frame *f);

#endif
