/* fleet_scenario.h - a fleet as a file: a version, sites that may differ, the links between them.
 * README.md has an example.
 *
 * Text of anyone's: at most TB_FLEET_TEXT_MAX, and unknown keys, wrong units, values out of
 * range, sites that are not listed and fleets too large are refused with the line. Everything
 * is inside the struct. */
#ifndef TB_SIM_FLEET_SCENARIO_H
#define TB_SIM_FLEET_SCENARIO_H

#include <stddef.h>

#include "tombolo/status.h"

#define TB_FLEET_TEXT_MAX         65536
#define TB_FLEET_FILE_SITES_MAX   20
#define TB_FLEET_FILE_LINKS_MAX   190 /* each pair once */
#define TB_FLEET_NAME_MAX         16
#define TB_FLEET_FILE_WORKERS_MAX 20000 /* of all sites */
#define TB_FLEET_FILE_CHUNKS_MAX  65536
#define TB_FLEET_COMPLAINT_MAX    320

struct tb_fleet_version {
    double bytes;  /* of a full version, as workers hold it */
    double chunks; /* 0: as base/layout/chunk_cut.c cuts one tensor of so many bytes */
    double delta;  /* bytes that cross for one byte of it: 1 full and raw, 0.02 for a delta */
    /* bytes that NICs carry for one byte of it; 0: as `delta`, at most 1, as readers hold the base
     * too */
    double inside;
    double step_s;   /* a version is published every so often; 0: once */
    double keep;     /* whole versions that an arena keeps */
    double codec;    /* decoded bytes a second that a gateway lands, each of its threads together */
    double manifest; /* bytes of a manifest page a chunk */
};

struct tb_fleet_site {
    char name[TB_FLEET_NAME_MAX];
    double hosts, workers, racks; /* workers of each host; hosts are dealt to racks in turn */
    double nic, gateway_nic;      /* bytes a second, each way; gateway_nic 0: as nic */
    /* one host, from 1 on in the order in which they join, and its NIC; 0: none */
    double slow_host, slow_nic;
    double uplink;    /* bytes a second of all its links together, each way; 0: no bound */
    double shm;       /* bytes a second that the followers of one host copy together */
    double fan_out;   /* 0: from gateway_nic over arrival, as the catalog computes it */
    double rtt_s;     /* inside the site */
    double hop_s;     /* what a hop adds to a chunk: wake-up, digest */
    double notice_s;  /* until a reader notices that its source's host is silent */
    double restart_s; /* of a lost gateway; 0: never */
    double plan_s;    /* from the gateway's word that a version comes to the reader's first read */
    double join_s;    /* a host begins so long after the one before; 0: all at once */
};

struct tb_fleet_link {
    unsigned a, b;                  /* of sites */
    char shared[TB_FLEET_NAME_MAX]; /* links of one name share its rate, each way; empty: its own */
    double rate;                    /* bytes a second of IP packets, each way */
    double delay_s;                 /* one way */
    double mtu, streams;
    double efficiency; /* goodput over what TCP could carry; 1: no losses to speak of */
};

struct tb_fleet_scenario {
    struct tb_fleet_version version;
    unsigned home; /* of sites */
    struct tb_fleet_site sites[TB_FLEET_FILE_SITES_MAX];
    unsigned site_count;
    struct tb_fleet_link links[TB_FLEET_FILE_LINKS_MAX];
    unsigned link_count;
};

/* On TB_SITE_CONFIG complaint_out says "NAME:LINE: what", and *out is not to be used.
 *   TB_SITE_CONFIG  the text is not a fleet    TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_fleet_parse(const char *name, const char *text, size_t bytes,
                                          struct tb_fleet_scenario *out,
                                          char complaint_out[TB_FLEET_COMPLAINT_MAX]);

/* Bytes that NICs carry for one byte of the version. */
double tb_fleet_inside(const struct tb_fleet_version *version);

/* The defaults of a site, a link and a version. */
struct tb_fleet_site tb_fleet_site_default(void);
struct tb_fleet_link tb_fleet_link_default(void);
struct tb_fleet_version tb_fleet_version_default(void);

#endif
