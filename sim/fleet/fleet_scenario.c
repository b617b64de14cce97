#include "sim/fleet/fleet_scenario.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

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
    {"uplink", BIT_RATE, 1e3, 1e14, OF(tb_fleet_site, uplink)},
    {"shm", RATE, 1e3, 1e14, OF(tb_fleet_site, shm)},
    {"fan_out", COUNT, 1, 16, OF(tb_fleet_site, fan_out)},
    {"rtt", SECONDS, 0, 1, OF(tb_fleet_site, rtt_s)},
    {"hop", SECONDS, 0, 1, OF(tb_fleet_site, hop_s)},
    {"notice", SECONDS, 0, 3600, OF(tb_fleet_site, notice_s)},
    {"restart", SECONDS, 0, 86400, OF(tb_fleet_site, restart_s)},
    {"plan", SECONDS, 0, 3600, OF(tb_fleet_site, plan_s)},
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

struct reading {
    const char *name;
    yaml_document_t *document;
    struct tb_fleet_scenario *out;
    char *complaint;
};

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
                                  .notice_s = 5,
                                  .restart_s = 5,
                                  .plan_s = 5e-3};
}

struct tb_fleet_link tb_fleet_link_default(void)
{
    return (struct tb_fleet_link){.mtu = 1500, .streams = 8, .efficiency = 1};
}

__attribute__((format(printf, 3, 4))) static bool refuse(const struct reading *r, const yaml_node_t *at,
                                                         const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    for (char *c = what; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    (void)snprintf(r->complaint, TB_FLEET_COMPLAINT_MAX, "%.60s:%zu: %.240s", r->name,
                   at != NULL ? at->start_mark.line + 1 : 1, what);
    return false;
}

static yaml_node_t *node(const struct reading *r, int index)
{
    return yaml_document_get_node(r->document, index);
}

/* The text of a scalar without zero bytes inside, or NULL. */
static const char *text_of(const yaml_node_t *n)
{
    if (n == NULL || n->type != YAML_SCALAR_NODE ||
        strlen((const char *)n->data.scalar.value) != n->data.scalar.length)
        return NULL;
    return (const char *)n->data.scalar.value;
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

static bool read_value(const struct reading *r, const yaml_node_t *n, const struct key *key, void *row)
{
    static const char *const want[] = {"a number",
                                       "bytes such as 240GB or 16GiB",
                                       "bytes a second such as 5GB",
                                       "a rate such as 400Mbit or 100Gbit",
                                       "a time such as 40ms, 30s or 2min",
                                       "a share such as 0.02 or 2%"};
    double value;
    if (!quantity(text_of(n), key->kind, &value)) return refuse(r, n, "%s is %s", key->name, want[key->kind]);
    if (!(value >= key->min && value <= key->max))
        return refuse(r, n, "%s is out of its range, %g to %g", key->name, key->min, key->max);
    if (key->kind == COUNT && value != (double)(uint64_t)value)
        return refuse(r, n, "%s is a whole number", key->name);
    memcpy((char *)row + key->offset, &value, sizeof value);
    return true;
}

/* One key of a row; true also when it is none of them and *known_out is false. */
static bool read_key(const struct reading *r, const yaml_node_pair_t *p, const struct key *keys, void *row)
{
    const yaml_node_t *at = node(r, p->key);
    const char *text = text_of(at);
    for (const struct key *key = keys; text != NULL && key->name != NULL; key++)
        if (strcmp(key->name, text) == 0) return read_value(r, node(r, p->value), key, row);
    return refuse(r, at, "unknown key %s", text != NULL ? text : "that is not text");
}

static bool read_row(const struct reading *r, const yaml_node_t *n, const struct key *keys, void *row)
{
    if (n->type == YAML_SCALAR_NODE && n->data.scalar.length == 0) return true; /* a site with all defaults */
    if (n->type != YAML_MAPPING_NODE) return refuse(r, n, "keys and values are expected here");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
        if (!read_key(r, p, keys, row)) return false;
    return true;
}

static bool read_name(const struct reading *r, const yaml_node_t *n, char *out)
{
    const char *text = text_of(n);
    const size_t bytes = text != NULL ? strlen(text) : 0;
    if (bytes == 0 || bytes >= TB_FLEET_NAME_MAX ||
        strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != bytes)
        return refuse(r, n, "a name has 1 to %d of a to z, 0 to 9 and -", TB_FLEET_NAME_MAX - 1);
    memcpy(out, text, bytes + 1);
    return true;
}

static bool find_site(const struct reading *r, const yaml_node_t *n, unsigned *out)
{
    const char *text = text_of(n);
    for (*out = 0; text != NULL && *out < r->out->site_count; ++*out)
        if (strcmp(r->out->sites[*out].name, text) == 0) return true;
    return refuse(r, n, "%s is not one of the sites", text != NULL ? text : "this");
}

static bool read_site(const struct reading *r, const yaml_node_t *name, const yaml_node_t *value)
{
    struct tb_fleet_scenario *s = r->out;
    struct tb_fleet_site site = tb_fleet_site_default();
    if (s->site_count == TB_FLEET_FILE_SITES_MAX)
        return refuse(r, name, "at most %d sites", TB_FLEET_FILE_SITES_MAX);
    if (!read_name(r, name, site.name)) return false;
    for (unsigned i = 0; i < s->site_count; i++)
        if (strcmp(s->sites[i].name, site.name) == 0)
            return refuse(r, name, "site %s is there twice", site.name);
    if (!read_row(r, value, site_keys, &site)) return false;
    if (site.racks > site.hosts) return refuse(r, name, "%s has more racks than hosts", site.name);
    s->sites[s->site_count++] = site;
    double workers = 0;
    for (unsigned i = 0; i < s->site_count; i++)
        workers += s->sites[i].hosts * s->sites[i].workers;
    if (workers > TB_FLEET_FILE_WORKERS_MAX)
        return refuse(r, name, "with %s there are over %d workers", site.name, TB_FLEET_FILE_WORKERS_MAX);
    return true;
}

static bool read_sites(const struct reading *r, const yaml_node_t *n)
{
    if (n->type != YAML_MAPPING_NODE)
        return refuse(r, n, "sites: has a line for each site, NAME: {hosts: ...}");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
        if (!read_site(r, node(r, p->key), node(r, p->value))) return false;
    return r->out->site_count > 0 || refuse(r, n, "sites: names 1 to %d sites", TB_FLEET_FILE_SITES_MAX);
}

static bool read_between(const struct reading *r, const yaml_node_t *n, struct tb_fleet_link *link)
{
    if (n->type != YAML_SEQUENCE_NODE || n->data.sequence.items.top - n->data.sequence.items.start != 2)
        return refuse(r, n, "between: is a list of two sites");
    if (!find_site(r, node(r, n->data.sequence.items.start[0]), &link->a) ||
        !find_site(r, node(r, n->data.sequence.items.start[1]), &link->b))
        return false;
    if (link->a == link->b) return refuse(r, n, "a link joins two sites");
    for (unsigned i = 0; i < r->out->link_count; i++) {
        const struct tb_fleet_link *l = &r->out->links[i];
        if ((l->a == link->a && l->b == link->b) || (l->a == link->b && l->b == link->a))
            return refuse(r, n, "these two are linked already");
    }
    return true;
}

static bool read_link(const struct reading *r, const yaml_node_t *n)
{
    struct tb_fleet_link link = tb_fleet_link_default();
    bool between = false;
    if (n->type != YAML_MAPPING_NODE) return refuse(r, n, "each line of links: is a mapping");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
        const char *key = text_of(node(r, p->key));
        bool good;
        if (key != NULL && strcmp(key, "between") == 0)
            good = between = read_between(r, node(r, p->value), &link);
        else if (key != NULL && strcmp(key, "shared") == 0)
            good = read_name(r, node(r, p->value), link.shared);
        else
            good = read_key(r, p, link_keys, &link);
        if (!good) return false;
    }
    if (!between) return refuse(r, n, "between: [SITE, SITE] is missing");
    if (link.rate == 0) return refuse(r, n, "rate: is missing");
    r->out->links[r->out->link_count++] = link; /* each pair once: there is room */
    return true;
}

static bool read_links(const struct reading *r, const yaml_node_t *n)
{
    if (n->type != YAML_SEQUENCE_NODE) return refuse(r, n, "links: is a list");
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++)
        if (!read_link(r, node(r, *i))) return false;
    return true;
}

enum top { TOP_VERSION, TOP_HOME, TOP_SITES, TOP_LINKS, TOP_COUNT };

static bool sort_top(const struct reading *r, const yaml_node_t *root, const yaml_node_t *found[TOP_COUNT])
{
    static const char *const names[] = {"version", "home", "sites", "links"};
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const char *key = text_of(node(r, p->key));
        unsigned i = 0;
        while (i < TOP_COUNT && (key == NULL || strcmp(names[i], key) != 0))
            i++;
        if (i == TOP_COUNT)
            return refuse(r, node(r, p->key), "unknown key %s", key != NULL ? key : "that is not text");
        if (found[i] != NULL) return refuse(r, node(r, p->key), "%s: is there twice", key);
        found[i] = node(r, p->value);
    }
    for (unsigned i = 0; i < TOP_COUNT; i++)
        if (found[i] == NULL && i != TOP_LINKS) return refuse(r, root, "%s: is missing", names[i]);
    return true;
}

static bool read_root(const struct reading *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(r->document), *found[TOP_COUNT] = {NULL};
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return refuse(r, root, "a fleet has version:, home:, sites: and links:");
    if (!sort_top(r, root, found) || !read_row(r, found[TOP_VERSION], version_keys, &r->out->version) ||
        !read_sites(r, found[TOP_SITES]) || !find_site(r, found[TOP_HOME], &r->out->home))
        return false;
    if (r->out->version.bytes == 0) return refuse(r, found[TOP_VERSION], "bytes: is missing");
    if (r->out->version.chunks > r->out->version.bytes)
        return refuse(r, found[TOP_VERSION], "a chunk has a byte at least");
    return found[TOP_LINKS] == NULL || read_links(r, found[TOP_LINKS]);
}

enum tb_status tb_fleet_parse(const char *name, const char *text, size_t bytes, struct tb_fleet_scenario *out,
                              char complaint_out[TB_FLEET_COMPLAINT_MAX])
{
    struct reading r = {.name = name, .out = out, .complaint = complaint_out};
    *out = (struct tb_fleet_scenario){.version = tb_fleet_version_default()};
    complaint_out[0] = '\0';
    if (bytes > TB_FLEET_TEXT_MAX)
        return refuse(&r, NULL, "over %d bytes", TB_FLEET_TEXT_MAX) ? TB_OK : TB_SITE_CONFIG;
    yaml_parser_t parser;
    yaml_document_t document;
    if (!yaml_parser_initialize(&parser)) return TB_SITE_NOMEM;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    bool good = false;
    if (yaml_parser_load(&parser, &document)) {
        r.document = &document;
        good = read_root(&r);
        yaml_document_delete(&document);
    } else {
        (void)snprintf(complaint_out, TB_FLEET_COMPLAINT_MAX, "%.60s:%zu: %.200s", name,
                       parser.problem_mark.line + 1, parser.problem != NULL ? parser.problem : "not YAML");
    }
    yaml_parser_delete(&parser);
    return good ? TB_OK : TB_SITE_CONFIG;
}
