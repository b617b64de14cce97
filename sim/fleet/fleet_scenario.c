#include "sim/fleet/fleet_scenario.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intra/hop/heartbeat.h"
#include "sim/yaml_text.h"

enum kind { COUNT, BYTES, RATE, BIT_RATE, SECONDS, SHARE };

/* The whole truth of keys: name, kind, range, where it goes. */
struct key {
    const char *name;
    enum kind kind;
    double min, max;
    size_t offset;
};

#define OF(type, field) offsetof(struct type, field)
static const struct key version_keys[] = {
    {"bytes", BYTES, 4096, 1e15, OF(tb_fleet_version, bytes)},
    {"chunks", COUNT, 1, TB_FLEET_FILE_CHUNKS_MAX, OF(tb_fleet_version, chunks)},
    {"delta", SHARE, 1e-6, 2, OF(tb_fleet_version, delta)},
    {"inside", SHARE, 1e-6, 1, OF(tb_fleet_version, inside)},
    {"step", SECONDS, 1e-3, 1e7, OF(tb_fleet_version, step_s)},
    {"keep", COUNT, 1, 1000, OF(tb_fleet_version, keep)},
    {"land", RATE, 1e3, 1e15, OF(tb_fleet_version, codec)},
    {NULL, COUNT, 0, 0, 0},
};
static const struct key site_keys[] = {
    {"hosts", COUNT, 0, TB_FLEET_FILE_WORKERS_MAX, OF(tb_fleet_site, hosts)},
    {"workers", COUNT, 1, 64, OF(tb_fleet_site, workers)},
    {"racks", COUNT, 0, TB_FLEET_FILE_WORKERS_MAX, OF(tb_fleet_site, racks)},
    {"nic", BIT_RATE, 1e3, 1e14, OF(tb_fleet_site, nic)},
    {"gateway_nic", BIT_RATE, 1e3, 1e14, OF(tb_fleet_site, gateway_nic)},
    {"slow_host", COUNT, 1, TB_FLEET_FILE_WORKERS_MAX, OF(tb_fleet_site, slow_host)},
    {"slow_nic", BIT_RATE, 1e3, 1e14, OF(tb_fleet_site, slow_nic)},
    {"uplink", BIT_RATE, 1e3, 1e14, OF(tb_fleet_site, uplink)},
    {"shm", RATE, 1e3, 1e14, OF(tb_fleet_site, shm)},
    {"fan_out", COUNT, 1, 16, OF(tb_fleet_site, fan_out)},
    {"rtt", SECONDS, 0, 1, OF(tb_fleet_site, rtt_s)},
    {"hop", SECONDS, 0, 1, OF(tb_fleet_site, hop_s)},
    {"notice", SECONDS, 0, 3600, OF(tb_fleet_site, notice_s)},
    {"restart", SECONDS, 0, 86400, OF(tb_fleet_site, restart_s)},
    {"plan", SECONDS, 0, 3600, OF(tb_fleet_site, plan_s)},
    {"join", SECONDS, 0, 30, OF(tb_fleet_site, join_s)},
    {NULL, COUNT, 0, 0, 0},
};
static const struct key link_keys[] = {
    {"rate", BIT_RATE, 1e3, 1e14, OF(tb_fleet_link, rate)},
    {"delay", SECONDS, 0, 60, OF(tb_fleet_link, delay_s)},
    {"mtu", COUNT, 576, 65536, OF(tb_fleet_link, mtu)},
    {"streams", COUNT, 1, 64, OF(tb_fleet_link, streams)},
    {"efficiency", SHARE, 0.01, 1, OF(tb_fleet_link, efficiency)},
    {NULL, COUNT, 0, 0, 0},
};

static const struct unit {
    enum kind kind;
    const char *name;
    double factor;
} units[] = {
    {COUNT, "", 1},
    {BYTES, "", 1},
    {BYTES, "B", 1},
    {BYTES, "KB", 1e3},
    {BYTES, "MB", 1e6},
    {BYTES, "GB", 1e9},
    {BYTES, "TB", 1e12},
    {BYTES, "KiB", 1024},
    {BYTES, "MiB", 1048576},
    {BYTES, "GiB", 1073741824},
    {BIT_RATE, "bit", 0.125},
    {BIT_RATE, "kbit", 125},
    {BIT_RATE, "Mbit", 125e3},
    {BIT_RATE, "Gbit", 125e6},
    {BIT_RATE, "Tbit", 125e9},
    {RATE, "MB", 1e6},
    {RATE, "GB", 1e9},
    {RATE, "MiB", 1048576},
    {SECONDS, "us", 1e-6},
    {SECONDS, "ms", 1e-3},
    {SECONDS, "s", 1},
    {SECONDS, "min", 60},
    {SHARE, "", 1},
    {SHARE, "%", 0.01},
};

double tb_fleet_inside(const struct tb_fleet_version *version)
{
    if (version->inside > 0) return version->inside;
    return version->delta < 1 ? version->delta : 1;
}

struct tb_fleet_version tb_fleet_version_default(void)
{
    return (struct tb_fleet_version){.delta = 1, .keep = 2, .codec = 4e9, .manifest = 16};
}

struct tb_fleet_site tb_fleet_site_default(void)
{
    return (struct tb_fleet_site){.workers = 1,
                                  .nic = 12.5e9,
                                  .shm = 40e9,
                                  .rtt_s = 100e-6,
                                  .hop_s = 300e-6,
                                  .notice_s = TB_HEARTBEAT_MS * TB_HEARTBEAT_MISSED / 1e3,
                                  .restart_s = 5,
                                  .plan_s = 5e-3};
}

struct tb_fleet_link tb_fleet_link_default(void)
{
    return (struct tb_fleet_link){.mtu = 1500, .streams = 8, .efficiency = 1};
}

static struct tb_fleet_scenario *out_of(const struct tb_yaml *r)
{
    return r->out;
}

static bool quantity(const char *text, enum kind kind, double *out)
{
    char *end;
    if (text == NULL || !((*text >= '0' && *text <= '9') || *text == '.') || text[1] == 'x' || text[1] == 'X')
        return false;
    const double number = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (units[i].kind != kind || strcmp(units[i].name, end) != 0) continue;
        *out = number * units[i].factor;
        return true;
    }
    return false;
}

static bool read_value(const struct tb_yaml *r, const yaml_node_t *n, const struct key *key, void *row)
{
    static const char *const want[] = {"a number",
                                       "bytes such as 240GB or 16GiB",
                                       "bytes a second such as 5GB",
                                       "a rate such as 400Mbit or 100Gbit",
                                       "a time such as 40ms, 30s or 2min",
                                       "a share such as 0.02 or 2%"};
    double value;
    if (!quantity(tb_yaml_text(n), key->kind, &value))
        return tb_yaml_refuse(r, n, "%s is %s", key->name, want[key->kind]);
    if (!(value >= key->min && value <= key->max))
        return tb_yaml_refuse(r, n, "%s is out of its range, %g to %g", key->name, key->min, key->max);
    if (key->kind == COUNT && value != (double)(uint64_t)value)
        return tb_yaml_refuse(r, n, "%s is a whole number", key->name);
    memcpy((char *)row + key->offset, &value, sizeof value);
    return true;
}

/* One key of a row; true also when it is none of them and *known_out is false. */
static bool read_key(const struct tb_yaml *r, const yaml_node_pair_t *p, const struct key *keys, void *row)
{
    const yaml_node_t *at = tb_yaml_node(r, p->key);
    const char *text = tb_yaml_text(at);
    for (const struct key *key = keys; text != NULL && key->name != NULL; key++)
        if (strcmp(key->name, text) == 0) return read_value(r, tb_yaml_node(r, p->value), key, row);
    return tb_yaml_refuse(r, at, "unknown key %s", text != NULL ? text : "that is not text");
}

static bool read_row(const struct tb_yaml *r, const yaml_node_t *n, const struct key *keys, void *row)
{
    if (n->type == YAML_SCALAR_NODE && n->data.scalar.length == 0) return true; /* a site with all defaults */
    if (n->type != YAML_MAPPING_NODE) return tb_yaml_refuse(r, n, "keys and values are expected here");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
        if (!read_key(r, p, keys, row)) return false;
    return true;
}

static bool find_site(const struct tb_yaml *r, const yaml_node_t *n, unsigned *out)
{
    const char *text = tb_yaml_text(n);
    for (*out = 0; text != NULL && *out < out_of(r)->site_count; ++*out)
        if (strcmp(out_of(r)->sites[*out].name, text) == 0) return true;
    return tb_yaml_refuse(r, n, "%s is not one of the sites", text != NULL ? text : "this");
}

static bool read_site(const struct tb_yaml *r, const yaml_node_t *name, const yaml_node_t *value)
{
    struct tb_fleet_scenario *s = r->out;
    struct tb_fleet_site site = tb_fleet_site_default();
    if (s->site_count == TB_FLEET_FILE_SITES_MAX)
        return tb_yaml_refuse(r, name, "at most %d sites", TB_FLEET_FILE_SITES_MAX);
    if (!tb_yaml_name(r, name, site.name, sizeof site.name)) return false;
    for (unsigned i = 0; i < s->site_count; i++)
        if (strcmp(s->sites[i].name, site.name) == 0)
            return tb_yaml_refuse(r, name, "site %s is there twice", site.name);
    if (!read_row(r, value, site_keys, &site)) return false;
    if (site.racks > site.hosts) return tb_yaml_refuse(r, name, "%s has more racks than hosts", site.name);
    if (site.slow_host > site.hosts || (site.slow_host > 0) != (site.slow_nic > 0))
        return tb_yaml_refuse(r, name, "%s: slow_host is one of its hosts, and slow_nic its NIC's rate",
                              site.name);
    s->sites[s->site_count++] = site;
    double workers = 0;
    for (unsigned i = 0; i < s->site_count; i++)
        workers += s->sites[i].hosts * s->sites[i].workers;
    if (workers > TB_FLEET_FILE_WORKERS_MAX)
        return tb_yaml_refuse(r, name, "with %s there are over %d workers", site.name,
                              TB_FLEET_FILE_WORKERS_MAX);
    return true;
}

static bool read_sites(const struct tb_yaml *r, const yaml_node_t *n)
{
    if (n->type != YAML_MAPPING_NODE)
        return tb_yaml_refuse(r, n, "sites: has a line for each site, NAME: {hosts: ...}");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
        if (!read_site(r, tb_yaml_node(r, p->key), tb_yaml_node(r, p->value))) return false;
    return out_of(r)->site_count > 0 ||
           tb_yaml_refuse(r, n, "sites: names 1 to %d sites", TB_FLEET_FILE_SITES_MAX);
}

static bool read_between(const struct tb_yaml *r, const yaml_node_t *n, struct tb_fleet_link *link)
{
    const yaml_node_t *two[2];
    if (!tb_yaml_two(r, n, two) || !find_site(r, two[0], &link->a) || !find_site(r, two[1], &link->b))
        return false;
    if (link->a == link->b) return tb_yaml_refuse(r, n, "a link joins two sites");
    for (unsigned i = 0; i < out_of(r)->link_count; i++) {
        const struct tb_fleet_link *l = &out_of(r)->links[i];
        if ((l->a == link->a && l->b == link->b) || (l->a == link->b && l->b == link->a))
            return tb_yaml_refuse(r, n, "these two are linked already");
    }
    return true;
}

static bool read_link(const struct tb_yaml *r, const yaml_node_t *n)
{
    struct tb_fleet_link link = tb_fleet_link_default();
    bool between = false;
    if (n->type != YAML_MAPPING_NODE) return tb_yaml_refuse(r, n, "each line of links: is a mapping");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
        const char *key = tb_yaml_text(tb_yaml_node(r, p->key));
        bool good;
        if (key != NULL && strcmp(key, "between") == 0)
            good = between = read_between(r, tb_yaml_node(r, p->value), &link);
        else if (key != NULL && strcmp(key, "shared") == 0)
            good = tb_yaml_name(r, tb_yaml_node(r, p->value), link.shared, sizeof link.shared);
        else
            good = read_key(r, p, link_keys, &link);
        if (!good) return false;
    }
    if (!between) return tb_yaml_refuse(r, n, "between: [SITE, SITE] is missing");
    if (link.rate == 0) return tb_yaml_refuse(r, n, "rate: is missing");
    out_of(r)->links[out_of(r)->link_count++] = link; /* each pair once: there is room */
    return true;
}

enum top { TOP_VERSION, TOP_HOME, TOP_SITES, TOP_LINKS, TOP_COUNT };

static bool read_root(const struct tb_yaml *r)
{
    static const char *const names[] = {"version", "home", "sites", "links"};
    const yaml_node_t *root = yaml_document_get_root_node(r->document), *found[TOP_COUNT] = {NULL};
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return tb_yaml_refuse(r, root, "a fleet has version:, home:, sites: and links:");
    if (!tb_yaml_sort(r, root, names, TOP_COUNT, found)) return false;
    for (unsigned i = 0; i < TOP_COUNT; i++)
        if (found[i] == NULL && i != TOP_LINKS) return tb_yaml_refuse(r, root, "%s: is missing", names[i]);
    if (!read_row(r, found[TOP_VERSION], version_keys, &out_of(r)->version) ||
        !read_sites(r, found[TOP_SITES]) || !find_site(r, found[TOP_HOME], &out_of(r)->home))
        return false;
    if (out_of(r)->version.bytes == 0) return tb_yaml_refuse(r, found[TOP_VERSION], "bytes: is missing");
    if (out_of(r)->version.chunks > out_of(r)->version.bytes)
        return tb_yaml_refuse(r, found[TOP_VERSION], "a chunk has a byte at least");
    return found[TOP_LINKS] == NULL || tb_yaml_each(r, found[TOP_LINKS], "links: is a list", read_link);
}

enum tb_status tb_fleet_parse(const char *name, const char *text, size_t bytes, struct tb_fleet_scenario *out,
                              char complaint_out[TB_FLEET_COMPLAINT_MAX])
{
    const struct tb_yaml r = {
        .name = name, .out = out, .complaint = complaint_out, .complaint_bytes = TB_FLEET_COMPLAINT_MAX};
    *out = (struct tb_fleet_scenario){.version = tb_fleet_version_default()};
    return tb_yaml_load(&r, text, bytes, TB_FLEET_TEXT_MAX, read_root);
}
