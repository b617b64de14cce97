/* config_tree.h - YAML text as a bounded tree whose every node knows its line and column. Pure.
 *
 * One document of mappings, sequences and scalars. Anchors, aliases, tags and a second document
 * are refused: a config that needs them is not readable, and aliases are how a small file
 * becomes a large one. */
#ifndef TB_DAEMON_CONFIG_TREE_H
#define TB_DAEMON_CONFIG_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_CONFIG_DEPTH_MAX     8
#define TB_CONFIG_NODES_MAX     20000
#define TB_CONFIG_PROBLEM_BYTES 256

enum config_node_kind { CONFIG_SCALAR, CONFIG_MAP, CONFIG_LIST };

struct config_node {
    enum config_node_kind kind;
    uint32_t line;   /* from 1 */
    uint32_t column; /* from 1 */
    bool quoted;     /* SCALAR in quotes or a block: never null, never a number */
    char *text;      /* SCALAR, and the key's text for an entry of a map; no NUL inside */
    size_t text_bytes;
    struct config_node *key;   /* of an entry of a MAP: a SCALAR */
    struct config_node *first; /* MAP and LIST */
    struct config_node *last;
    struct config_node *next; /* in its parent */
    struct config_node *made; /* all nodes, to free them */
};

struct config_tree {
    struct config_node *root; /* a MAP; an empty one for an empty file */
    struct config_node *made;
    uint32_t nodes;
};

struct config_problem {
    uint32_t line, column;
    char text[TB_CONFIG_PROBLEM_BYTES];
};

/* TB_SITE_CONFIG with *problem_out filled; TB_SITE_NOMEM. Either way the tree is to be freed. */
TB_MUST_USE enum tb_status tb_config_tree_read(const char *text, size_t bytes, struct config_tree *tree_out,
                                               struct config_problem *problem_out);
void tb_config_tree_free(struct config_tree *tree);

/* The entry of a map with that key; NULL. */
const struct config_node *tb_config_node_find(const struct config_node *map, const char *key);
/* Nothing was written behind the key (or "~", or "null"). */
bool tb_config_node_is_null(const struct config_node *node);

#endif
