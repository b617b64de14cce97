/* joins.c - tombolo-fleet-joins: what a catalog pays, in CPU, for workers that all join within
 * one lease (joining.h). */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sim/fleet/joining.h"

static const char usage_text[] =
    "usage: tombolo-fleet-joins [--workers 10000] [--json]\n"
    "CPU of one catalog while so many workers (1 to 50000) join it within one lease of 10 s; no sockets.\n"
    "Example: tombolo-fleet-joins --workers 1000\n"
    "Exit codes: 0 done, 1 no memory, 2 usage.\n";

static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void show(uint32_t joined)
{
    fprintf(stderr, "\r%u joined", joined);
}

static int run(uint32_t workers, bool json)
{
    struct tb_joining_result r;
    const bool shows = isatty(STDERR_FILENO) == 1;
    const double before = cpu_s();
    if (tb_joining_run(workers, shows ? show : NULL, &r) != TB_OK) {
        fprintf(stderr, "tombolo-fleet-joins: no memory for a catalog of %u workers\n", workers);
        return 1;
    }
    const double spent = cpu_s() - before;
    const double lease = TB_JOINING_LEASE / 1e9;
    if (shows) fprintf(stderr, "\r\033[K");
    printf(json ? "{\"workers\":%u,\"cpu_s\":%.4f,\"lease_s\":%.1f,\"ratio\":%.5f,\"calls_per_s\":%.1f,"
                  "\"plans\":%llu}\n"
                : "%u workers: %.3f s of CPU in a lease of %.0f s = %.4f cores; %.0f calls a second, %llu "
                  "plans\n",
           workers, spent, lease, spent / lease, (double)r.calls / lease, (unsigned long long)r.plans);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"workers", required_argument, NULL, 'w'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    uint32_t workers = 10000;
    bool json = false;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h') return fputs(usage_text, stdout) < 0;
        if (option == 'j') {
            json = true;
            continue;
        }
        char *end = NULL;
        const unsigned long n = option == 'w' ? strtoul(optarg, &end, 10) : 0;
        if (n == 0 || n > TB_JOINING_WORKERS_MAX || *end != '\0') {
            fputs(usage_text, stderr);
            return 2;
        }
        workers = (uint32_t)n;
    }
    if (optind < argc) {
        fprintf(stderr, "tombolo-fleet-joins: %s: not an option; see --help\n", argv[optind]);
        return 2;
    }
    return run(workers, json);
}
