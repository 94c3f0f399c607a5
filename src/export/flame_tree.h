/* Stacks merged by function, as a flame graph shows them. */
#ifndef STROBE_EXPORT_FLAME_TREE_H
#define STROBE_EXPORT_FLAME_TREE_H

#include "export/functions.h"
#include "export/selection.h"

struct flame_node {
    uint32_t parent; /* lower than its own number; node 0 is the root */
    uint32_t function;
    uint32_t depth; /* of the root: 0 */
    uint32_t first_child;
    uint32_t next; /* child of the same parent; largest first */
    uint64_t self;
    uint64_t total;
};

struct flame_tree {
    struct flame_node *nodes;
    size_t count;
};

/* Nodes without a value are there, too. Only want of memory makes it fail. */
enum status flame_tree_init(struct flame_tree *tree, const struct selection *selection,
                            const struct functions *functions, enum measure measure) MUST_USE;
void flame_tree_release(struct flame_tree *tree);

#endif
