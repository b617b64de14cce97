/* chain_commands.c - tombolo chains: who reads from whom inside this site, as trees. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/cli/control_fields.h"
#include "gateway/cli/operator_commands.h"
#include "gateway/cli/options.h"

/* a chain of a thousand hosts must stay on the screen: behind it the depth stands as a number */
#define INDENT_MAX 12u
#define NOBODY     SIZE_MAX

/* Children lists of one chain, and who was shown: the gateway's word is a stranger's
 * and may have a cycle. */
struct tree {
    const json_t *members;
    size_t count;
    size_t *first, *next;
    bool *shown;
};

static size_t source_of(const struct tree *t, size_t i)
{
    TB_ASSERT(i < t->count);
    const json_t *source = json_object_get(json_array_get(t->members, i), "source");
    const json_int_t at = json_is_integer(source) ? json_integer_value(source) : -1;
    return at < 0 || (size_t)at >= t->count ? NOBODY : (size_t)at;
}

static void tree_free(struct tree *t)
{
    tb_free(t->first);
    tb_free(t->next);
    tb_free(t->shown);
}

static bool tree_make(const json_t *members, struct tree *out)
{
    struct tree t = {.members = members, .count = json_array_size(members)};
    t.first = tb_calloc(t.count + 1, sizeof *t.first);
    t.next = tb_calloc(t.count + 1, sizeof *t.next);
    t.shown = tb_calloc(t.count + 1, sizeof *t.shown);
    if (t.first == NULL || t.next == NULL || t.shown == NULL) {
        tree_free(&t);
        return false;
    }
    for (size_t i = 0; i < t.count; i++)
        t.first[i] = NOBODY;
    for (size_t i = t.count; i-- > 0;) { /* backwards: each list is then in the order of the answer */
        const size_t source = source_of(&t, i);
        if (source == NOBODY) continue;
        t.next[i] = t.first[source];
        t.first[source] = i;
    }
    *out = t;
    return true;
}

static struct tb_field share_of(const json_t *m, uint64_t chunks)
{
    struct tb_field f;
    (void)snprintf(f.text, sizeof f.text, "%" PRIu64 "/%" PRIu64, tb_count_of(m, "held_chunks"), chunks);
    return f;
}

/* "shm (same host) 1.2 GB/s", or why nothing is read. */
static void print_hop(const json_t *m)
{
    if (json_is_integer(json_object_get(m, "source")))
        (void)printf("  %s (%s) %s/s", tb_text_of(m, "transport").text, tb_text_of(m, "transport_why").text,
                     tb_bytes_of(m, "bytes_per_s").text);
    else if (json_is_true(json_object_get(m, "whole")))
        (void)printf("  has all of it");
    else if (json_string_length(json_object_get(m, "transport")) > 0)
        (void)printf("  waits for a source");
}

/* "patch, stall 1.2 ms, staged 3.1 MiB", of what it computes from. */
static void print_update(const json_t *update)
{
    if (!json_is_object(update)) return;
    (void)printf("  %s, stall %.1f ms, staged %s", tb_text_of(update, "way").text,
                 tb_number_of(update, "stall_ms"), tb_bytes_of(update, "staged_bytes").text);
}

/* "feeds 16 (nic 12.5 GB/s by sysfs)"; nothing of a NIC that nobody knows. */
static void print_nic(const json_t *m)
{
    if (tb_count_of(m, "nic_bytes_per_s") == 0) return;
    (void)printf("  feeds %" PRIu64 " (nic %s/s by %s)", tb_count_of(m, "fan_out"),
                 tb_bytes_of(m, "nic_bytes_per_s").text, tb_text_of(m, "nic_from").text);
}

static void print_member(const json_t *m, size_t depth, uint64_t chunks)
{
    static const char *const marks[] = {"slow", "silent", "spot", "active"};
    const int indent = (int)(2 * (depth < INDENT_MAX ? depth : INDENT_MAX));
    (void)printf("  %*s", indent, "");
    if (depth > INDENT_MAX) (void)printf("(%zu) ", depth);
    (void)printf("%-*s %-16s %11s", indent < 20 ? 24 - indent : 4, tb_text_of(m, "name").text,
                 tb_text_of(m, "host").text, share_of(m, chunks).text);
    print_hop(m);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (json_is_true(json_object_get(m, marks[i]))) (void)printf("  %s", marks[i]);
    print_update(json_object_get(m, "update"));
    print_nic(m);
    (void)putchar('\n');
}

/* A member and all behind it, the nearest first; without recursion, as a chain may be long. */
static void print_from(struct tree *t, size_t root, uint64_t chunks)
{
    TB_ASSERT(root < t->count && source_of(t, root) == NOBODY);
    size_t depth = 0;
    for (size_t i = root; i != NOBODY;) {
        if (!t->shown[i]) print_member(json_array_get(t->members, i), depth, chunks);
        const size_t child = t->shown[i] ? NOBODY : t->first[i];
        t->shown[i] = true;
        if (child != NOBODY) {
            i = child;
            depth++;
            continue;
        }
        while (i != root && t->next[i] == NOBODY && depth > 0) {
            i = source_of(t, i);
            depth--;
        }
        i = i == root ? NOBODY : t->next[i];
    }
}

static void print_feeds(const json_t *feeds)
{
    for (size_t i = 0; i < json_array_size(feeds); i++) {
        const json_t *f = json_array_get(feeds, i);
        (void)printf("  the gateway reads from %s", tb_text_of(f, "source").text);
        (void)printf("  %s (%s) %s/s\n", tb_text_of(f, "transport").text, tb_text_of(f, "transport_why").text,
                     tb_bytes_of(f, "bytes_per_s").text);
    }
}

static void print_chain(const json_t *c)
{
    struct tree t;
    const uint64_t chunks = tb_count_of(c, "chunks");
    (void)printf("%s %" PRIu64 ":%" PRIu64 "  fan-out %" PRIu64, tb_text_of(c, "model").text,
                 tb_count_of(c, "run"), tb_count_of(c, "number"), tb_count_of(c, "fan_out"));
    if (tb_count_of(c, "arrival_bytes_per_s") > 0)
        (void)printf("  versions arrive at %s/s", tb_bytes_of(c, "arrival_bytes_per_s").text);
    (void)putchar('\n');
    print_feeds(json_object_get(c, "feeds"));
    if (!tree_make(json_object_get(c, "members"), &t)) return;
    for (size_t i = 0; i < t.count; i++)
        if (source_of(&t, i) == NOBODY) print_from(&t, i, chunks);
    tree_free(&t);
    if (tb_count_of(c, "left_out") > 0) (void)printf("  and %" PRIu64 " more\n", tb_count_of(c, "left_out"));
}

static void print_chains(const struct tb_cli_call *call, const json_t *reply)
{
    const json_t *chains = json_object_get(reply, "chains");
    if (json_array_size(chains) == 0 && !tb_cli_given(call, "quiet"))
        (void)printf("no worker has or reads a version here\n");
    for (size_t i = 0; i < json_array_size(chains); i++)
        print_chain(json_array_get(chains, i));
}

enum tb_cli_exit tb_cli_chains(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count <= 1); /* the table of commands says so */
    json_t *reply = NULL;
    json_t *request = json_pack("{s:s}", "cmd", "chains");
    if (request != NULL && call->argument_count > 0 &&
        json_object_set_new(request, "model", json_string(call->arguments[0])) != 0)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "the model's name is not UTF-8");
    const enum tb_cli_exit asked = tb_cli_ask(call, request, &reply);
    return asked != TB_CLI_DONE ? asked : tb_cli_show(call, reply, print_chains);
}
