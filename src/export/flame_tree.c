#include "export/flame_tree.h"
#include "base/map.h"

#include <stdlib.h>

/* Stacks that differ in their lines alone share a node. */
static enum status merge_stacks(struct flame_tree *tree, uint32_t *node_of, const struct selection *selection,
                                const struct functions *functions, struct map *numbers) {
    const struct profile *profile = selection->profile;
    for (uint32_t i = 1; i < profile->stack_count; i++) {
        if (selection_stack(selection, i) != i)
            continue;
        uint32_t parent = node_of[selection_caller(selection, i)];
        uint32_t function = functions->of_frame[profile->stacks[i].frame];
        uint64_t key = (uint64_t)parent << 32 | function;
        uint64_t number;
        if (!map_get(numbers, key, &number)) {
            number = tree->count++;
            TRY(map_set(numbers, key, number));
            tree->nodes[number] =
                (struct flame_node){.parent = parent, .function = function, .depth = tree->nodes[parent].depth + 1};
        }
        node_of[i] = (uint32_t)number;
    }
    return STATUS_OK;
}

static void add_entries(struct flame_tree *tree, const uint32_t *node_of, const struct selection *selection,
                        enum measure measure) {
    const struct profile *profile = selection->profile;
    for (size_t i = 0; i < profile->entry_count; i++) {
        const struct profile_entry *entry = &profile->entries[i];
        if (selection_has(selection, entry->thread, entry->stack))
            tree->nodes[node_of[selection_stack(selection, entry->stack)]].self += profile_value(profile, i, measure);
    }
    for (size_t i = tree->count; i-- > 0;) {
        tree->nodes[i].total += tree->nodes[i].self;
        if (i > 0)
            tree->nodes[tree->nodes[i].parent].total += tree->nodes[i].total;
    }
}

struct ranked {
    uint64_t total;
    uint32_t node;
};

static int compare_ranked(const void *left, const void *right) {
    const struct ranked *a = left;
    const struct ranked *b = right;
    int order = (a->total > b->total) - (a->total < b->total);
    return order != 0 ? order : (a->node < b->node) - (a->node > b->node);
}

/* From the smallest to the largest, each put before those of its parent that came before it. */
static enum status link_children(struct flame_tree *tree) {
    struct ranked *ranked = calloc(tree->count, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    for (uint32_t i = 0; i < tree->count; i++)
        ranked[i] = (struct ranked){tree->nodes[i].total, i};
    qsort(ranked, tree->count, sizeof ranked[0], compare_ranked);
    for (size_t i = 0; i < tree->count; i++) {
        struct flame_node *node = &tree->nodes[ranked[i].node];
        if (ranked[i].node == 0)
            continue;
        node->next = tree->nodes[node->parent].first_child;
        tree->nodes[node->parent].first_child = ranked[i].node;
    }
    free(ranked);
    return STATUS_OK;
}

enum status flame_tree_init(struct flame_tree *tree, const struct selection *selection,
                            const struct functions *functions, enum measure measure) {
    size_t stack_count = selection->profile->stack_count + 1;
    struct map numbers = {0};
    uint32_t *node_of = calloc(stack_count, sizeof node_of[0]);
    enum status status = STATUS_FAILED;
    tree->nodes = calloc(stack_count, sizeof tree->nodes[0]);
    tree->count = 1;
    if (node_of != NULL && tree->nodes != NULL)
        status = merge_stacks(tree, node_of, selection, functions, &numbers);
    if (status == STATUS_OK) {
        add_entries(tree, node_of, selection, measure);
        status = link_children(tree);
    }
    map_release(&numbers);
    free(node_of);
    if (status != STATUS_OK)
        flame_tree_release(tree);
    return status;
}

void flame_tree_release(struct flame_tree *tree) {
    free(tree->nodes);
    tree->nodes = NULL;
    tree->count = 0;
}
