#include "sim/fleet/fleet_file.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/fleet/fleet_world.h"

#define LOSSES_MAX 512

static const char usage_text[] =
    "usage: tombolo-fleet FILE [--lose site:NAME|rack:SITE:NUMBER|gateway:NAME|each] [--at SECONDS] [--full] "
    "[--json]\n"
    "A version on its way through the fleet of FILE (sim/fleet/README.md), event by event, with the shipped "
    "planner, hops\n"
    "and crossings; beside it a star (each host from its gateway) and pulls (each worker over the links).\n"
    "  --lose   what is lost on the way, and what that does to the others; `each` tries all of them, one run "
    "each\n"
    "  --at     when (default: half of the time that its site needs; home: that the sites need)\n"
    "  --full   a full version crosses, whatever `delta` says\n"
    "Example: tombolo-fleet sim/fleet/scenarios/three.yaml --lose gateway:west\n"
    "Exit codes: 0 done, 1 no memory, 2 usage or a file that says something else.\n";

struct options {
    const char *file, *lose;
    double at_s;
    bool full, json, shows;
};

static const char *what_now = "";

static void show(double share)
{
    fprintf(stderr, "\r%s: %3.0f %% at the gateways\033[K", what_now, share * 100);
}

static int complain(const char *format, const char *what)
{
    fputs("tombolo-fleet: ", stderr);
    fprintf(stderr, format, what);
    fputs("; see --help\n", stderr);
    return 2;
}

/* ---- what is lost ---- */

static bool find_site(const struct tb_fleet_scenario *s, const char *name, size_t bytes, unsigned *out)
{
    for (*out = 0; *out < s->site_count; ++*out)
        if (strlen(s->sites[*out].name) == bytes && memcmp(s->sites[*out].name, name, bytes) == 0)
            return true;
    return false;
}

static bool parse_loss(const struct tb_fleet_scenario *s, const char *text, struct tb_fleet_loss *out)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL) return false;
    const size_t kind = (size_t)(colon - text);
    const char *name = colon + 1, *number = strchr(name, ':');
    *out = (struct tb_fleet_loss){.at_s = -1};
    if (kind == 4 && memcmp(text, "site", 4) == 0) out->kind = TB_FLEET_LOSE_SITE;
    if (kind == 4 && memcmp(text, "rack", 4) == 0) out->kind = TB_FLEET_LOSE_RACK;
    if (kind == 7 && memcmp(text, "gateway", 7) == 0) out->kind = TB_FLEET_LOSE_GATEWAY;
    if (out->kind == TB_FLEET_LOSE_NOTHING || (out->kind == TB_FLEET_LOSE_RACK) != (number != NULL))
        return false;
    if (!find_site(s, name, number != NULL ? (size_t)(number - name) : strlen(name), &out->site))
        return false;
    if (number == NULL) return true;
    char *end;
    const unsigned long rack = strtoul(number + 1, &end, 10);
    out->rack = (unsigned)rack;
    return end != number + 1 && *end == '\0' && rack >= 1 && (double)rack <= s->sites[out->site].racks;
}

static unsigned all_losses(const struct tb_fleet_scenario *s, struct tb_fleet_loss *out)
{
    unsigned count = 0;
    for (unsigned i = 0; i < s->site_count; i++) {
        out[count++] = (struct tb_fleet_loss){.kind = TB_FLEET_LOSE_SITE, .site = i, .at_s = -1};
        out[count++] = (struct tb_fleet_loss){.kind = TB_FLEET_LOSE_GATEWAY, .site = i, .at_s = -1};
        for (unsigned r = 1; r <= s->sites[i].racks && count + 2 < LOSSES_MAX; r++)
            out[count++] =
                (struct tb_fleet_loss){.kind = TB_FLEET_LOSE_RACK, .site = i, .rack = r, .at_s = -1};
    }
    return count;
}

static const char *loss_name(const struct tb_fleet_scenario *s, const struct tb_fleet_loss *l)
{
    static char text[64];
    if (l->kind == TB_FLEET_LOSE_RACK)
        (void)snprintf(text, sizeof text, "rack:%s:%u", s->sites[l->site].name, l->rack);
    else
        (void)snprintf(text, sizeof text, "%s:%s", l->kind == TB_FLEET_LOSE_SITE ? "site" : "gateway",
                       s->sites[l->site].name);
    return text;
}

/* ---- text ---- */

static void print_row(const char *name, const struct tb_fleet_spread *t)
{
    printf("%-14s %10.3f %10.3f %10.3f %8u", name, t->median, t->p99, t->last, t->count);
    if (t->never > 0) printf("  %u never", t->never);
    printf("\n");
}

static void print_sites(const struct tb_fleet_scenario *s, const struct tb_fleet_outcome *o)
{
    printf("\n%-14s %10s %10s %10s %10s %5s %14s %14s %9s %9s\n", "site", "gateway s", "median s", "p99 s",
           "last s", "deep", "NIC in max GB", "NIC out max GB", "gw out GB", "msg/s max");
    for (unsigned i = 0; i < s->site_count; i++) {
        const struct tb_fleet_site_result *r = &o->sites[i];
        double in = 0, out = 0;
        for (unsigned n = 1; n <= (unsigned)s->sites[i].hosts; n++) {
            if (r->nics[n].in > in) in = r->nics[n].in;
            if (r->nics[n].out > out) out = r->nics[n].out;
        }
        printf("%-14s %10.3f %10.3f %10.3f %10.3f %5u %14.2f %14.2f %9.2f %9.0f\n", s->sites[i].name,
               r->gateway_s, r->workers.median, r->workers.p99, r->workers.last, r->depth, in / 1e9,
               out / 1e9, r->nics[0].out / 1e9, r->control_max);
    }
}

static void print_text(const struct tb_fleet_scenario *s, const struct tb_fleet_outcome *o, double wall_s)
{
    printf("%-14s %10s %10s %10s %8s\n", "held by", "median s", "p99 s", "last s", "");
    print_row("gateways", &o->gateways);
    print_row("workers", &o->workers);
    print_row("as a star", &o->star);
    print_row("by pulls", &o->pulls);
    print_sites(s, o);
    printf("\n%-30s %12s %12s\n", "link", "there GB", "back GB");
    for (unsigned i = 0; i < s->link_count; i++) {
        char name[2 * TB_FLEET_NAME_MAX + 4];
        (void)snprintf(name, sizeof name, "%s - %s", s->sites[s->links[i].a].name,
                       s->sites[s->links[i].b].name);
        printf("%-30s %12.3f %12.3f\n", name, o->links[i].there / 1e9, o->links[i].back / 1e9);
    }
    printf("\n%u chunks, %.0f events in %.1f s\n", o->chunks, o->events, wall_s);
}

/* The effect of a loss on workers that were not lost. */
static void print_loss(const struct tb_fleet_scenario *s, const struct tb_fleet_loss *l,
                       const struct tb_fleet_outcome *base, const struct tb_fleet_outcome *o)
{
    printf("%-22s at %7.2f s: workers median %9.3f (%+.3f) p99 %9.3f (%+.3f) last %9.3f (%+.3f)",
           loss_name(s, l), l->at_s, o->workers.median, o->workers.median - base->workers.median,
           o->workers.p99, o->workers.p99 - base->workers.p99, o->workers.last,
           o->workers.last - base->workers.last);
    if (o->workers.never > 0) printf(", %u never", o->workers.never);
    printf("\n");
}

/* ---- JSON ---- */

static void json_spread(const char *name, const struct tb_fleet_spread *t)
{
    printf("\"%s\":{\"median\":%.6f,\"p99\":%.6f,\"last\":%.6f,\"count\":%u,\"never\":%u}", name, t->median,
           t->p99, t->last, t->count, t->never);
}

static void json_site(const struct tb_fleet_site *s, const struct tb_fleet_site_result *r)
{
    printf("{\"name\":\"%s\",\"hosts\":%.0f,\"workers\":%.0f,\"racks\":%.0f,\"nic_bytes_per_s\":%.0f,\"shm_"
           "bytes_per_s\":"
           "%.0f,\"uplink_bytes_per_s\":%.0f,\"gateway_s\":%.6f,",
           s->name, s->hosts, s->workers, s->racks, s->nic, s->shm, s->uplink, r->gateway_s);
    json_spread("workers_s", &r->workers);
    printf(",\"depth\":%u,\"control_per_s\":%.2f,\"control_per_s_max\":%.0f,\"nics\":[", r->depth, r->control,
           r->control_max);
    for (unsigned n = 0; n <= (unsigned)s->hosts; n++)
        printf("%s[%.0f,%.0f]", n == 0 ? "" : ",", r->nics[n].in, r->nics[n].out);
    printf("]}");
}

static void json_link(const struct tb_fleet_scenario *s, unsigned i, const struct tb_fleet_way *w)
{
    const struct tb_fleet_link *l = &s->links[i];
    printf("{\"a\":\"%s\",\"b\":\"%s\",\"rate_bytes_per_s\":%.0f,\"delay_s\":%.6f,\"shared\":\"%s\",\"there_"
           "bytes\":%.0f,"
           "\"back_bytes\":%.0f}",
           s->sites[l->a].name, s->sites[l->b].name, l->rate, l->delay_s, l->shared, w->there, w->back);
}

static void json_outcome(const struct tb_fleet_scenario *s, const struct tb_fleet_outcome *o, double wall_s)
{
    const struct tb_fleet_version *v = &s->version;
    printf("\"version\":{\"bytes\":%.0f,\"chunks\":%u,\"delta\":%.6f,\"step_s\":%.3f,\"keep\":%.0f},\"home\":"
           "\"%s\",",
           v->bytes, o->chunks, v->delta, v->step_s, v->keep, s->sites[s->home].name);
    json_spread("gateways_s", &o->gateways);
    printf(",");
    json_spread("workers_s", &o->workers);
    printf(",");
    json_spread("star_s", &o->star);
    printf(",");
    json_spread("pulls_s", &o->pulls);
    printf(",\"sites\":[");
    for (unsigned i = 0; i < s->site_count; i++) {
        printf("%s", i == 0 ? "" : ",");
        json_site(&s->sites[i], &o->sites[i]);
    }
    printf("],\"links\":[");
    for (unsigned i = 0; i < s->link_count; i++) {
        printf("%s", i == 0 ? "" : ",");
        json_link(s, i, &o->links[i]);
    }
    printf("],\"events\":%.0f,\"wall_s\":%.2f", o->events, wall_s);
}

static void json_loss(const struct tb_fleet_scenario *s, const struct tb_fleet_loss *l,
                      const struct tb_fleet_outcome *o, bool first)
{
    printf("%s{\"lost\":\"%s\",\"at_s\":%.3f,", first ? "" : ",", loss_name(s, l), l->at_s);
    json_spread("gateways_s", &o->gateways);
    printf(",");
    json_spread("workers_s", &o->workers);
    printf("}");
}

/* ---- the runs ---- */

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool simulate(const struct tb_fleet_scenario *s, const struct tb_fleet_loss *l,
                     const struct options *o, struct tb_fleet_outcome *out)
{
    what_now = l == NULL ? "whole" : loss_name(s, l);
    const enum tb_status status = tb_fleet_world_run(s, l, o->shows ? show : NULL, out);
    if (o->shows) fputs("\r\033[K", stderr);
    if (status != TB_OK)
        fprintf(stderr, "tombolo-fleet: %s\n",
                status == TB_TOO_LARGE ? "chunks over 2 GiB: say more `chunks`" : "no memory for this fleet");
    return status == TB_OK;
}

/* In the middle of what the lost one does: a site's spreading, home's crossings. */
static double half_way(const struct tb_fleet_scenario *s, const struct tb_fleet_outcome *base, unsigned site)
{
    const struct tb_fleet_site_result *r = &base->sites[site];
    if (site == s->home) return base->gateways.last / 2;
    return (r->workers.count > 0 ? r->workers.last : r->gateway_s) / 2;
}

static bool run_losses(const struct tb_fleet_scenario *s, const struct options *o,
                       const struct tb_fleet_outcome *base, struct tb_fleet_loss *losses, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct tb_fleet_outcome after;
        losses[i].at_s = o->at_s >= 0 ? o->at_s : half_way(s, base, losses[i].site);
        if (!simulate(s, &losses[i], o, &after)) return false;
        if (o->json)
            json_loss(s, &losses[i], &after, i == 0);
        else
            print_loss(s, &losses[i], base, &after);
        tb_fleet_outcome_fini(&after);
    }
    return true;
}

static int run(const struct tb_fleet_scenario *s, const struct options *o)
{
    static struct tb_fleet_loss losses[LOSSES_MAX];
    struct tb_fleet_outcome base;
    unsigned count = 0;
    if (o->lose != NULL && strcmp(o->lose, "each") == 0)
        count = all_losses(s, losses);
    else if (o->lose != NULL && !parse_loss(s, o->lose, &losses[count++]))
        return complain("--lose %s: not site:NAME, rack:SITE:NUMBER, gateway:NAME of this fleet, or each",
                        o->lose);
    const double began = now_s();
    if (!simulate(s, NULL, o, &base)) return 1;
    if (o->json) printf("{");
    (o->json ? json_outcome : print_text)(s, &base, now_s() - began);
    if (o->json)
        printf(",\"losses\":[");
    else if (count > 0)
        printf("\n");
    const bool good = run_losses(s, o, &base, losses, count);
    if (o->json) printf("]}\n");
    tb_fleet_outcome_fini(&base);
    return good && fflush(stdout) == 0 ? 0 : 1;
}

static int load(const char *path, struct tb_fleet_scenario *out)
{
    static char text[TB_FLEET_TEXT_MAX + 1];
    char complaint[TB_FLEET_COMPLAINT_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "tombolo-fleet: %s: %s\n", path, strerror(errno));
        return 2;
    }
    const size_t bytes = fread(text, 1, sizeof text, file);
    const bool failed = ferror(file) != 0;
    (void)fclose(file);
    if (failed) return complain("%s cannot be read", path);
    if (tb_fleet_parse(path, text, bytes, out, complaint) == TB_OK) return 0;
    fprintf(stderr, "%s\n", complaint);
    return 2;
}

int tb_fleet_file_main(int argc, char **argv)
{
    static const struct option options[] = {
        {"lose", required_argument, NULL, 'l'}, {"at", required_argument, NULL, 'a'},
        {"full", no_argument, NULL, 'f'},       {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'H'},       {0}};
    static struct tb_fleet_scenario scenario;
    struct options o = {.file = argv[1], .at_s = -1, .shows = isatty(STDERR_FILENO) == 1};
    int option;
    optind = 2;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        char *end = NULL;
        if (option == 'H') return fputs(usage_text, stdout) < 0;
        if (option == '?') return fputs(usage_text, stderr) < 0 ? 1 : 2;
        if (option == 'l') o.lose = optarg;
        if (option == 'f') o.full = true;
        if (option == 'j') o.json = true;
        if (option != 'a') continue;
        o.at_s = strtod(optarg, &end);
        if (end == optarg || *end != '\0' || !(o.at_s >= 0 && o.at_s <= 1e6))
            return complain("--at %s: not seconds", optarg);
    }
    if (optind < argc) return complain("%s: not an option", argv[optind]);
    const int status = load(o.file, &scenario);
    if (status != 0) return status;
    if (o.full) scenario.version.delta = scenario.version.inside = 1;
    return run(&scenario, &o);
}
