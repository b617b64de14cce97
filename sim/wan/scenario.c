#include "sim/wan/scenario.h"

#include <string.h>

#include "sim/yaml_text.h"

enum kind { KIND_BITS, KIND_BYTES, KIND_TIME, KIND_BOOL, KIND_CHANCE };

#define SECOND 1000000000u

static const struct key {
    const char *name;
    enum kind kind;
    uint64_t min, max;
} KEYS[TB_PATH_KEY_COUNT] = {
#define KEY_MIN_BITS                 8000
#define KEY_MIN_BYTES                0
#define KEY_MIN_TIME                 0
#define KEY_MIN_BOOL                 0
#define KEY_MIN_CHANCE               0
#define KEY_MAX_BITS                 UINT64_C(100000000000)
#define KEY_MAX_BYTES                UINT64_C(4294967296)
#define KEY_MAX_TIME                 (UINT64_C(10) * SECOND)
#define KEY_MAX_BOOL                 1
#define KEY_MAX_CHANCE               TB_PATH_PPB
#define KEY_ROW(id, text, unit, why) [TB_PATH_##id] = {text, KIND_##unit, KEY_MIN_##unit, KEY_MAX_##unit},
    TB_PATH_KEYS(KEY_ROW)
#undef KEY_ROW
};

static const struct unit {
    enum kind kind;
    const char *name;
    uint64_t factor;
} UNITS[] = {
    {KIND_BITS, "bit", 1},
    {KIND_BITS, "kbit", 1000},
    {KIND_BITS, "Mbit", 1000000},
    {KIND_BITS, "Gbit", 1000000000},
    {KIND_BYTES, "", 1},
    {KIND_BYTES, "B", 1},
    {KIND_BYTES, "KiB", 1024},
    {KIND_BYTES, "MiB", 1048576},
    {KIND_BYTES, "GiB", 1073741824},
    {KIND_BYTES, "KB", 1000},
    {KIND_BYTES, "MB", 1000000},
    {KIND_BYTES, "GB", 1000000000},
    {KIND_TIME, "us", 1000},
    {KIND_TIME, "ms", 1000000},
    {KIND_TIME, "s", SECOND},
    {KIND_CHANCE, "%", TB_PATH_PPB / 100},
    {KIND_CHANCE, "", TB_PATH_PPB},
};

static struct tb_scenario *out_of(const struct tb_yaml *r)
{
    return r->out;
}

/* Digits, at most nine of them before the point and nine behind, times the unit's factor. */
static bool quantity(const char *text, enum kind kind, uint64_t *out)
{
    uint64_t whole = 0, part = 0, scale = 1;
    uint32_t digits = 0;
    for (; *text >= '0' && *text <= '9'; text++, digits++)
        whole = digits < 12 ? whole * 10 + (uint64_t)(*text - '0') : whole;
    if (digits == 0 || digits > 12) return false;
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9'; text++) {
            if (scale == SECOND) return false;
            part = part * 10 + (uint64_t)(*text - '0');
            scale *= 10;
        }
    while (*text == ' ')
        text++;
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS; i++) {
        if (UNITS[i].kind != kind || strcmp(UNITS[i].name, text) != 0) continue;
        if (whole > UINT64_MAX / 2 / UNITS[i].factor) return false;
        *out = whole * UNITS[i].factor + part * UNITS[i].factor / scale;
        return true;
    }
    return false;
}

static bool flag(const char *text, uint64_t *out)
{
    *out = strcmp(text, "yes") == 0 || strcmp(text, "true") == 0;
    return *out != 0 || strcmp(text, "no") == 0 || strcmp(text, "false") == 0;
}

static bool read_value(const struct tb_yaml *r, const yaml_node_t *n, const struct key *key, uint64_t *out)
{
    static const char *const want[] = {"a rate such as 200Mbit or 2Gbit", "bytes such as 65536 or 4MiB",
                                       "a time such as 300us, 40ms or 1.5s", "yes or no",
                                       "a chance such as 0.01% or 0.0001"};
    const char *text = tb_yaml_text(n);
    if (text == NULL || !(key->kind == KIND_BOOL ? flag(text, out) : quantity(text, key->kind, out)))
        return tb_yaml_refuse(r, n, "%s is %s", key->name, want[key->kind]);
    if (*out < key->min || *out > key->max) return tb_yaml_refuse(r, n, "%s is out of its range", key->name);
    return true;
}

/* Three growing numbers of at most 12 digits with single spaces between, as tcp_rmem takes them. */
static bool read_memory(const struct tb_yaml *r, const yaml_node_t *n, char *out)
{
    const char *text = tb_yaml_text(n), *c = text;
    uint64_t last = 0;
    uint32_t count = 0;
    for (; c != NULL && count < 3; count++) {
        uint64_t number = 0;
        uint32_t digits = 0;
        for (; *c >= '0' && *c <= '9' && digits < 12; c++, digits++)
            number = number * 10 + (uint64_t)(*c - '0');
        if (digits == 0 || number < last || *c != (count < 2 ? ' ' : '\0')) break;
        c += count < 2;
        last = number;
    }
    if (count < 3)
        return tb_yaml_refuse(r, n,
                              "tcp memory is three growing numbers of bytes, such as 4096 131072 67108864");
    (void)snprintf(out, 64, "%s", text);
    return true;
}

static bool read_tcp(const struct tb_yaml *r, const yaml_node_t *n, struct tb_scenario_site *site)
{
    if (n->type != YAML_MAPPING_NODE)
        return tb_yaml_refuse(r, n, "tcp settings are rmem:, wmem: and congestion:");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
        const char *key = tb_yaml_text(tb_yaml_node(r, p->key));
        const yaml_node_t *value = tb_yaml_node(r, p->value);
        bool good;
        if (key != NULL && strcmp(key, "rmem") == 0)
            good = read_memory(r, value, site->rmem);
        else if (key != NULL && strcmp(key, "wmem") == 0)
            good = read_memory(r, value, site->wmem);
        else if (key != NULL && strcmp(key, "congestion") == 0)
            good = tb_yaml_name(r, value, site->congestion, sizeof site->congestion);
        else
            return tb_yaml_refuse(r, tb_yaml_node(r, p->key),
                                  "a site has rmem:, wmem: and congestion:, not %s",
                                  key != NULL ? key : "this");
        if (!good) return false;
    }
    return true;
}

static bool find_site(const struct tb_yaml *r, const yaml_node_t *n, uint32_t *out)
{
    const char *text = tb_yaml_text(n);
    for (*out = 0; text != NULL && *out < out_of(r)->site_count; ++*out)
        if (strcmp(out_of(r)->sites[*out].name, text) == 0) return true;
    return tb_yaml_refuse(r, n, "%s is not one of the sites", text != NULL ? text : "this");
}

static bool add_site(const struct tb_yaml *r, const yaml_node_t *name)
{
    struct tb_scenario *s = out_of(r);
    if (s->site_count == TB_SCENARIO_SITES_MAX)
        return tb_yaml_refuse(r, name, "at most %d sites", TB_SCENARIO_SITES_MAX);
    struct tb_scenario_site site = {0};
    if (!tb_yaml_name(r, name, site.name, sizeof site.name)) return false;
    for (uint32_t i = 0; i < s->site_count; i++)
        if (strcmp(s->sites[i].name, site.name) == 0)
            return tb_yaml_refuse(r, name, "site %s is there twice", site.name);
    s->sites[s->site_count++] = site;
    return true;
}

/* A list of names, or a mapping from names to tcp settings of their own. */
static bool read_sites(const struct tb_yaml *r, const yaml_node_t *n)
{
    if (n->type == YAML_SEQUENCE_NODE) {
        for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++)
            if (!add_site(r, tb_yaml_node(r, *i))) return false;
    } else if (n->type == YAML_MAPPING_NODE) {
        for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
            if (!add_site(r, tb_yaml_node(r, p->key)) ||
                !read_tcp(r, tb_yaml_node(r, p->value), &out_of(r)->sites[out_of(r)->site_count - 1]))
                return false;
    }
    return out_of(r)->site_count >= 2 ||
           tb_yaml_refuse(r, n, "sites: names two to %d sites", TB_SCENARIO_SITES_MAX);
}

/* A mapping under paths: or schedule:. */
struct entry {
    uint32_t from, to;
    bool has_from, has_to, both;
    bool has_at, has_every;
    uint64_t at, every;
    uint32_t mask;
    struct tb_path_settings settings;
    char shared[TB_SCENARIO_NAME_MAX];
};

static bool read_between(const struct tb_yaml *r, const yaml_node_t *n, struct entry *e)
{
    const yaml_node_t *two[2];
    e->has_from = e->has_to = e->both = true;
    return tb_yaml_two(r, n, two) && find_site(r, two[0], &e->from) && find_site(r, two[1], &e->to);
}

static bool read_setting(const struct tb_yaml *r, const yaml_node_t *key, const yaml_node_t *value,
                         struct entry *e)
{
    const char *text = tb_yaml_text(key);
    for (uint32_t i = 0; text != NULL && i < TB_PATH_KEY_COUNT; i++) {
        if (strcmp(KEYS[i].name, text) != 0) continue;
        if (e->mask & 1u << i) return tb_yaml_refuse(r, key, "%s is there twice", text);
        e->mask |= 1u << i;
        return read_value(r, value, &KEYS[i], &e->settings.value[i]);
    }
    return tb_yaml_refuse(r, key, "unknown key %s", text != NULL ? text : "that is not text");
}

static const struct key WHEN[] = {{"at", KIND_TIME, 0, UINT64_C(86400) * SECOND},
                                  {"every", KIND_TIME, 1000000, UINT64_C(86400) * SECOND}};

static bool read_pair(const struct tb_yaml *r, const yaml_node_pair_t *p, bool schedule, struct entry *e)
{
    const yaml_node_t *key = tb_yaml_node(r, p->key), *value = tb_yaml_node(r, p->value);
    const char *text = tb_yaml_text(key);
    if (text == NULL) return tb_yaml_refuse(r, key, "a key is text");
    if (strcmp(text, "between") == 0) return read_between(r, value, e);
    if (strcmp(text, "from") == 0) return e->has_from = true, find_site(r, value, &e->from);
    if (strcmp(text, "to") == 0) return e->has_to = true, find_site(r, value, &e->to);
    if (schedule && strcmp(text, "at") == 0) return e->has_at = true, read_value(r, value, &WHEN[0], &e->at);
    if (schedule && strcmp(text, "every") == 0)
        return e->has_every = true, read_value(r, value, &WHEN[1], &e->every);
    if (!schedule && strcmp(text, "shared") == 0) return tb_yaml_name(r, value, e->shared, sizeof e->shared);
    return read_setting(r, key, value, e);
}

static bool read_entry(const struct tb_yaml *r, const yaml_node_t *n, bool schedule, struct entry *e)
{
    if (n->type != YAML_MAPPING_NODE)
        return tb_yaml_refuse(r, n, "each line of paths: and schedule: is a mapping");
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
        if (!read_pair(r, p, schedule, e)) return false;
    if (!e->has_from || !e->has_to)
        return tb_yaml_refuse(r, n, "which way? between: [A, B], or from: A and to: B");
    if (e->from == e->to) return tb_yaml_refuse(r, n, "a path joins two sites");
    if (schedule && !e->has_at) return tb_yaml_refuse(r, n, "at: is missing");
    return !schedule || e->mask != 0 || tb_yaml_refuse(r, n, "nothing is changed here");
}

static struct tb_scenario_path *find_path(struct tb_scenario *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < s->path_count; i++)
        if (s->paths[i].from == from && s->paths[i].to == to) return &s->paths[i];
    return NULL;
}

/* A queue that is not given holds twice what is under way, and 64 packets at least. */
static void default_queue(const struct tb_yaml *r, struct entry *e)
{
    if (e->mask & 1u << TB_PATH_QUEUE) return;
    const double bytes =
        (double)e->settings.value[TB_PATH_RATE] / 8e9 * 2 * (double)e->settings.value[TB_PATH_DELAY];
    const uint64_t least = UINT64_C(64) * out_of(r)->mtu;
    const uint64_t most = KEYS[TB_PATH_QUEUE].max;
    e->settings.value[TB_PATH_QUEUE] = bytes < (double)least  ? least
                                       : bytes > (double)most ? most
                                                              : (uint64_t)bytes;
}

static bool add_path(const struct tb_yaml *r, const yaml_node_t *n, struct entry *e, bool backward)
{
    struct tb_scenario *s = r->out;
    const uint32_t from = backward ? e->to : e->from, to = backward ? e->from : e->to;
    if (find_path(s, from, to) != NULL)
        return tb_yaml_refuse(r, n, "the path from %s to %s is there twice", s->sites[from].name,
                              s->sites[to].name);
    struct tb_scenario_path *p = &s->paths[s->path_count++];
    *p = (struct tb_scenario_path){.from = from, .to = to, .backward = backward, .queue = s->queue_count};
    p->settings = e->settings;
    memcpy(p->shared, e->shared, sizeof p->shared);
    for (const struct tb_scenario_path *other = s->paths; e->shared[0] != '\0' && other < p; other++) {
        if (strcmp(other->shared, p->shared) != 0 || other->backward != backward) continue;
        if (other->settings.value[TB_PATH_RATE] != p->settings.value[TB_PATH_RATE])
            return tb_yaml_refuse(r, n, "paths that share %s have one rate", p->shared);
        p->queue = other->queue;
    }
    s->queue_count += p->queue == s->queue_count;
    return true;
}

static bool read_path(const struct tb_yaml *r, const yaml_node_t *n)
{
    struct entry e = {.settings.value[TB_PATH_BURST_LOSS] = TB_PATH_PPB};
    if (!read_entry(r, n, false, &e)) return false;
    default_queue(r, &e);
    return add_path(r, n, &e, false) && (!e.both || add_path(r, n, &e, true));
}

static bool add_change(const struct tb_yaml *r, const yaml_node_t *n, const struct entry *e, bool backward)
{
    const uint32_t from = backward ? e->to : e->from, to = backward ? e->from : e->to;
    struct tb_scenario_path *p = find_path(out_of(r), from, to);
    if (p == NULL)
        return tb_yaml_refuse(r, n, "no path from %s to %s", out_of(r)->sites[from].name,
                              out_of(r)->sites[to].name);
    if (p->change_count == TB_PATH_CHANGES_MAX)
        return tb_yaml_refuse(r, n, "at most %d changes a path", TB_PATH_CHANGES_MAX);
    p->changes[p->change_count++] = (struct tb_path_change){
        .at = (int64_t)e->at, .every = (int64_t)e->every, .mask = e->mask, .to = e->settings};
    return true;
}

static bool read_change(const struct tb_yaml *r, const yaml_node_t *n)
{
    struct entry e = {0};
    return read_entry(r, n, true, &e) && add_change(r, n, &e, false) &&
           (!e.both || add_change(r, n, &e, true));
}

/* Values for all sites are the defaults of each site. */
static void inherit(struct tb_scenario *s, const struct tb_scenario_site *all)
{
    for (struct tb_scenario_site *site = s->sites; site < s->sites + s->site_count; site++) {
        if (site->rmem[0] == '\0') memcpy(site->rmem, all->rmem, sizeof site->rmem);
        if (site->wmem[0] == '\0') memcpy(site->wmem, all->wmem, sizeof site->wmem);
        if (site->congestion[0] == '\0') memcpy(site->congestion, all->congestion, sizeof site->congestion);
    }
}

enum top { TOP_SITES, TOP_MTU, TOP_TCP, TOP_PATHS, TOP_SCHEDULE, TOP_COUNT };

static bool read_root(const struct tb_yaml *r)
{
    static const struct key mtu_key = {"mtu", KIND_BYTES, 576, 9000};
    static const char *const names[] = {"sites", "mtu", "tcp", "paths", "schedule"};
    static const char lists[] = "paths: and schedule: are lists";
    const yaml_node_t *root = yaml_document_get_root_node(r->document), *found[TOP_COUNT] = {NULL};
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return tb_yaml_refuse(r, root, "a scenario has sites: and paths:");
    if (!tb_yaml_sort(r, root, names, TOP_COUNT, found)) return false;
    if (found[TOP_SITES] == NULL || found[TOP_PATHS] == NULL)
        return tb_yaml_refuse(r, root, "a scenario has sites: and paths:");
    uint64_t mtu = 1500;
    struct tb_scenario_site all = {0};
    if (found[TOP_MTU] != NULL && !read_value(r, found[TOP_MTU], &mtu_key, &mtu)) return false;
    out_of(r)->mtu = (uint32_t)mtu;
    if (found[TOP_TCP] != NULL && !read_tcp(r, found[TOP_TCP], &all)) return false;
    if (!read_sites(r, found[TOP_SITES])) return false;
    inherit(out_of(r), &all);
    return tb_yaml_each(r, found[TOP_PATHS], lists, read_path) &&
           (found[TOP_SCHEDULE] == NULL || tb_yaml_each(r, found[TOP_SCHEDULE], lists, read_change));
}

enum tb_status tb_scenario_parse(const char *name, const char *text, size_t bytes, struct tb_scenario *out,
                                 char *complaint_out, size_t complaint_bytes)
{
    const struct tb_yaml r = {
        .name = name, .out = out, .complaint = complaint_out, .complaint_bytes = complaint_bytes};
    *out = (struct tb_scenario){0};
    return tb_yaml_load(&r, text, bytes, TB_SCENARIO_BYTES_MAX, read_root);
}

static bool read_turn(const struct tb_yaml *r)
{
    struct tb_scenario *s = out_of(r);
    const yaml_node_t *root = yaml_document_get_root_node(r->document);
    struct entry e = {0};
    if (root == NULL) return tb_yaml_refuse(r, root, "nothing is changed here");
    if (!read_entry(r, root, false, &e)) return false;
    if (e.mask == 0 || e.shared[0] != '\0') return tb_yaml_refuse(r, root, "nothing is changed here");
    if (find_path(s, e.from, e.to) == NULL || (e.both && find_path(s, e.to, e.from) == NULL))
        return tb_yaml_refuse(r, root, "no path between %s and %s", s->sites[e.from].name,
                              s->sites[e.to].name);
    s->turn = (struct tb_scenario_turn){e.from, e.to, e.both, e.mask, e.settings};
    return true;
}

enum tb_status tb_scenario_turn(struct tb_scenario *s, const char *text, size_t bytes, char *complaint_out,
                                size_t complaint_bytes)
{
    const struct tb_yaml r = {
        .name = "turn", .out = s, .complaint = complaint_out, .complaint_bytes = complaint_bytes};
    return tb_yaml_load(&r, text, bytes, TB_SCENARIO_BYTES_MAX, read_turn);
}

static void print_settings(const struct tb_path_settings *s, uint32_t mask, FILE *to)
{
    const char *comma = "";
    for (uint32_t i = 0; i < TB_PATH_KEY_COUNT; i++) {
        if ((mask & 1u << i) == 0) continue;
        (void)fprintf(to, "%s\"%s\":%llu", comma, KEYS[i].name, (unsigned long long)s->value[i]);
        comma = ",";
    }
}

static void print_path(const struct tb_scenario *s, const struct tb_scenario_path *p, FILE *to)
{
    (void)fprintf(to, "{\"from\":\"%s\",\"to\":\"%s\",\"queue_id\":%u,\"shared\":\"%s\",\"settings\":{",
                  s->sites[p->from].name, s->sites[p->to].name, p->queue, p->shared);
    print_settings(&p->settings, UINT32_MAX, to);
    (void)fputs("},\"changes\":[", to);
    for (uint32_t i = 0; i < p->change_count; i++) {
        const struct tb_path_change *c = &p->changes[i];
        (void)fprintf(to, "%s{\"at_ns\":%lld,\"every_ns\":%lld,\"to\":{", i > 0 ? "," : "", (long long)c->at,
                      (long long)c->every);
        print_settings(&c->to, c->mask, to);
        (void)fputs("}}", to);
    }
    (void)fputs("]}", to);
}

void tb_scenario_print(const struct tb_scenario *s, FILE *to)
{
    (void)fprintf(to, "{\"mtu\":%u,\"sites\":[", s->mtu);
    for (uint32_t i = 0; i < s->site_count; i++)
        (void)fprintf(to, "%s{\"name\":\"%s\",\"rmem\":\"%s\",\"wmem\":\"%s\",\"congestion\":\"%s\"}",
                      i > 0 ? "," : "", s->sites[i].name, s->sites[i].rmem, s->sites[i].wmem,
                      s->sites[i].congestion);
    (void)fputs("],\"paths\":[", to);
    for (uint32_t i = 0; i < s->path_count; i++) {
        (void)fputs(i > 0 ? "," : "", to);
        print_path(s, &s->paths[i], to);
    }
    (void)fputs("]}\n", to);
}
