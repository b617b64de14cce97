/* yaml_text.h - a YAML text of anyone's as a tree of nodes, and the one complaint about it: what
 * the readers of scenarios (sim/wan) and of fleets (sim/fleet) share.
 *
 * A reader is functions that take nodes and return whether all is well so far; a function that is
 * not content refuses, and the first refusal is the complaint, "NAME:LINE: what" in printable
 * characters. Nodes are the document's: they live until tb_yaml_load returns. */
#ifndef TB_SIM_YAML_TEXT_H
#define TB_SIM_YAML_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <yaml.h>

#include "tombolo/status.h"

struct tb_yaml {
    const char *name; /* of the text, for the complaint */
    void *out;        /* the reader's own: what it fills */
    char *complaint;
    size_t complaint_bytes;
    yaml_document_t *document; /* where read_root is called */
};

/* Parses at most bytes_max and lets read_root read. The complaint is empty unless it
 * returns TB_SITE_CONFIG.
 *   TB_SITE_CONFIG  not YAML, too long, or read_root said false    TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_yaml_load(const struct tb_yaml *y, const char *text, size_t bytes,
                                        size_t bytes_max, bool (*read_root)(const struct tb_yaml *y));

/* False, always. `at` may be NULL: the first line. */
__attribute__((format(printf, 3, 4))) bool tb_yaml_refuse(const struct tb_yaml *y, const yaml_node_t *at,
                                                          const char *format, ...);

yaml_node_t *tb_yaml_node(const struct tb_yaml *y, int index);
/* The text of a scalar without zero bytes inside, or NULL. */
const char *tb_yaml_text(const yaml_node_t *n);
/* A name of a to z, 0 to 9 and -, shorter than bytes_max. */
bool tb_yaml_name(const struct tb_yaml *y, const yaml_node_t *n, char *out, size_t bytes_max);
/* The two of `between: [A, B]`. */
bool tb_yaml_two(const struct tb_yaml *y, const yaml_node_t *n, const yaml_node_t *out[2]);
/* The values of a mapping's keys, which are `names`, each at most once; what is not there stays
 * NULL. */
bool tb_yaml_sort(const struct tb_yaml *y, const yaml_node_t *mapping, const char *const *names,
                  unsigned count, const yaml_node_t **found_out);
/* Calls `read` for each item of a list; `refusal` is said of what is none. */
bool tb_yaml_each(const struct tb_yaml *y, const yaml_node_t *n, const char *refusal,
                  bool (*read)(const struct tb_yaml *y, const yaml_node_t *item));

#endif
