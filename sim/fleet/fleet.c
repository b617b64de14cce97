/* fleet.c - tombolo-fleet: how long a version takes to reach a fleet, planned, as a star and by
 * pulls. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/fleet/fleet_file.h"
#include "sim/fleet/fleet_model.h"

static const char usage_text[] =
    "usage: tombolo-fleet [--sites 20] [--hosts 125] [--workers 8] [--racks 0] [--fan-out 0] [--bytes 240e9] "
    "[--chunks "
    "16384]\n"
    "                     [--link 10e9] [--delay-ms 40] [--nic 100e9] [--json]\n"
    "How long a version takes to reach every worker of equal sites, by the planner that gateways use; beside "
    "it a\n"
    "star (each host from its gateway) and pulls (each worker over its site's link).\n"
    "  --fan-out  readers on one NIC, 1 to 16, as the planner is told it; 0: NIC rate over the rate of "
    "arrival\n"
    "  --hosts, --racks   of one site     --workers  of one host     --delay-ms  one way, of each site's "
    "link\n"
    "  --link, --nic      bits a second   --bytes    of the version; numbers may be written 240e9\n"
    "With a file, tombolo-fleet FILE, sites may differ, and what is lost on the way is tried: tombolo-fleet "
    "FILE --help\n"
    "Example: tombolo-fleet --sites 3 --hosts 64 --bytes 16e9 --chunks 4096 --link 1e9\n"
    "Exit codes: 0 done, 1 no memory, 2 usage.\n";

static const char *const shape_names[] = {"planned", "star", "pulls"};

static bool parse(const char *text, double max, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && *out >= 0 && *out <= max;
}

static bool take(struct tb_fleet *f, int option, const char *text)
{
    const bool is_count = strchr("shwrcf", option) != NULL;
    double v;
    if (!parse(text, is_count ? 1e9 : 1e18, &v)) return false;
    if (is_count && v != floor(v)) return false;
    switch (option) {
    case 's':
        f->sites = (uint32_t)v;
        break;
    case 'h':
        f->hosts = (uint32_t)v;
        break;
    case 'w':
        f->workers = (uint32_t)v;
        break;
    case 'r':
        f->racks = (uint32_t)v;
        break;
    case 'c':
        f->chunks = (uint32_t)v;
        break;
    case 'f':
        f->fan_out = (uint32_t)v;
        break;
    case 'b':
        f->bytes = v;
        break;
    case 'l':
        f->link_rate = v / 8;
        break;
    case 'n':
        f->nic_rate = v / 8;
        break;
    default:
        f->link_delay = v / 1e3;
        break;
    }
    return true;
}

static void print_text(const struct tb_fleet_result *results)
{
    printf("%-8s %12s %12s %12s %12s %8s %14s %14s %12s\n", "", "gateways s", "median s", "p99 s", "last s",
           "/floor", "link GB", "NIC in/out GB", "fan-out/deep");
    for (uint32_t i = 0; i < 3; i++) {
        const struct tb_fleet_result *r = &results[i];
        printf("%-8s %12.3f %12.3f %12.3f %12.3f %8.3f %14.1f %7.1f/%-7.1f %6u/%-6u\n", shape_names[i],
               r->gateways.last, r->workers.median, r->workers.p99, r->workers.last,
               r->workers.last / r->floor, r->link_bytes / 1e9, r->nic_in_bytes / 1e9, r->nic_out_bytes / 1e9,
               r->fan_out, r->depth);
    }
}

static void print_json(const struct tb_fleet_result *results)
{
    printf("{");
    for (uint32_t i = 0; i < 3; i++) {
        const struct tb_fleet_result *r = &results[i];
        printf("%s\"%s\":{\"gateways_s\":%.6f,\"workers_s\":{\"median\":%.6f,\"p99\":%.6f,\"last\":%.6f},"
               "\"floor_s\":%.6f,\"ratio\":%.6f,\"link_bytes\":%.0f,\"nic_in_bytes\":%.0f,\"nic_out_bytes\":%"
               ".0f,"
               "\"gateway_out_bytes\":%.0f,\"fan_out\":%u,\"depth\":%u}",
               i == 0 ? "" : ",", shape_names[i], r->gateways.last, r->workers.median, r->workers.p99,
               r->workers.last, r->floor, r->workers.last / r->floor, r->link_bytes, r->nic_in_bytes,
               r->nic_out_bytes, r->gateway_out_bytes, r->fan_out, r->depth);
    }
    printf("}\n");
}

static int run(struct tb_fleet *f, bool json)
{
    struct tb_fleet_result results[3];
    for (uint32_t i = 0; i < 3; i++) {
        f->shape = (enum tb_fleet_shape)i;
        const enum tb_status status = tb_fleet_run(f, &results[i]);
        if (status == TB_OK) continue;
        fprintf(stderr, "tombolo-fleet: %s\n",
                status == TB_BAD_ARGUMENT
                    ? "a number is out of range: 1 to 64 sites, 20000 workers a site, 64 a host, 262144 "
                      "chunks; racks "
                      "at most hosts, bytes at least chunks, rates 8 bit/s to 8e15, delay to 60 s"
                    : "no memory for it: ask for fewer hosts or chunks");
        return status == TB_BAD_ARGUMENT ? 2 : 1;
    }
    (json ? print_json : print_text)(results);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-') return tb_fleet_file_main(argc, argv);
    static const struct option options[] = {{"sites", required_argument, NULL, 's'},
                                            {"hosts", required_argument, NULL, 'h'},
                                            {"workers", required_argument, NULL, 'w'},
                                            {"racks", required_argument, NULL, 'r'},
                                            {"chunks", required_argument, NULL, 'c'},
                                            {"bytes", required_argument, NULL, 'b'},
                                            {"link", required_argument, NULL, 'l'},
                                            {"nic", required_argument, NULL, 'n'},
                                            {"delay-ms", required_argument, NULL, 'd'},
                                            {"fan-out", required_argument, NULL, 'f'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'H'},
                                            {0}};
    struct tb_fleet f = {.sites = 20,
                         .hosts = 125,
                         .workers = 8,
                         .chunks = 16384,
                         .bytes = 240e9,
                         .link_rate = 10e9 / 8,
                         .link_delay = 0.04,
                         .nic_rate = 100e9 / 8};
    bool json = false;
    int option;
    int index = 0;
    while ((option = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (option == 'H') return fputs(usage_text, stdout) < 0;
        if (option == '?') return fputs(usage_text, stderr) < 0 ? 1 : 2;
        if (option == 'j')
            json = true;
        else if (!take(&f, option, optarg)) {
            fprintf(stderr, "tombolo-fleet: --%s %s: not a number that fits; see --help\n",
                    options[index].name, optarg);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "tombolo-fleet: %s: not an option; see --help\n", argv[optind]);
        return 2;
    }
    return run(&f, json);
}
