/* scenario.h - a scenario file: sites, what lies between each pair of them, and what changes when.
 * README.md has the format.
 *
 * Text of anyone's: at most TB_SCENARIO_BYTES_MAX, and unknown keys, wrong units, values
 * out of range and sites that are not listed are refused with the line. Everything is
 * inside the struct. */
#ifndef TB_SIM_WAN_SCENARIO_H
#define TB_SIM_WAN_SCENARIO_H

#include <stddef.h>
#include <stdio.h>

#include "sim/wan/path.h"
#include "tombolo/status.h"

#define TB_SCENARIO_BYTES_MAX 65536
#define TB_SCENARIO_SITES_MAX 8
#define TB_SCENARIO_PATHS_MAX (TB_SCENARIO_SITES_MAX * (TB_SCENARIO_SITES_MAX - 1))
#define TB_SCENARIO_NAME_MAX  16

struct tb_scenario_site {
    char name[TB_SCENARIO_NAME_MAX];       /* a to z, 0 to 9, - */
    char rmem[64], wmem[64];               /* tcp_rmem, tcp_wmem: three numbers; empty: the kernel's */
    char congestion[TB_SCENARIO_NAME_MAX]; /* empty: the kernel's */
};

struct tb_scenario_path {
    uint32_t from, to;                 /* of sites */
    char shared[TB_SCENARIO_NAME_MAX]; /* empty: a queue of its own */
    bool backward;  /* the second half of a `between`: shares with the others of that half */
    uint32_t queue; /* which queue; equal for paths that share one */
    struct tb_path_settings settings;
    struct tb_path_change changes[TB_PATH_CHANGES_MAX];
    uint32_t change_count;
};

/* A change while the sites are up: as a line of schedule:, without at: and every:. */
struct tb_scenario_turn {
    uint32_t from, to; /* of sites */
    bool both;         /* and back */
    uint32_t mask;     /* bit 1 << key, of what is changed */
    struct tb_path_settings settings;
};

struct tb_scenario {
    uint32_t mtu; /* of the sites' devices; 576 to 9000 [1500] */
    struct tb_scenario_site sites[TB_SCENARIO_SITES_MAX];
    uint32_t site_count;
    struct tb_scenario_path paths[TB_SCENARIO_PATHS_MAX];
    uint32_t path_count;
    uint32_t queue_count;
    struct tb_scenario_turn turn; /* that was read last */
};

/* On TB_SITE_CONFIG complaint_out says "NAME:LINE: what", in at most complaint_bytes, and
 * *out is not to be used.
 *   TB_SITE_CONFIG  the text is not a scenario
 *   TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_scenario_parse(const char *name, const char *text, size_t bytes,
                                             struct tb_scenario *out, char *complaint_out,
                                             size_t complaint_bytes);
/* Reads one into s->turn: "{between: [east, west], cut: yes}". Nothing else of *s changes.
 *   TB_SITE_CONFIG  it is none, or there is no such path; the complaint is as above
 *                   TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_scenario_turn(struct tb_scenario *s, const char *text, size_t bytes,
                                            char *complaint_out, size_t complaint_bytes);
/* The whole of it as one JSON object, in the units of tb_path_settings. */
void tb_scenario_print(const struct tb_scenario *s, FILE *to);

#endif
