#include "export/selection.h"

#include <stdlib.h>

static bool matches_any(const char *const *globs, size_t count, const char *path) {
    for (size_t i = 0; i < count; i++)
        if (attribute_glob_matches(globs[i], path))
            return true;
    return false;
}

static void select_stacks(struct selection *selection) {
    const struct profile *profile = selection->profile;
    const struct attribute_options *options = selection->options;
    bool has_only = options != NULL && options->only_count > 0;
    bool has_exclude = options != NULL && options->exclude_count > 0;
    selection->kept[0] = !has_only;
    for (size_t i = 1; i < profile->stack_count; i++) {
        const struct profile_stack *stack = &profile->stacks[i];
        const char *file = profile->frames[stack->frame].file;
        bool hidden = has_exclude && matches_any(options->exclude, options->exclude_count, file);
        selection->shown[i] = hidden ? selection->shown[stack->parent] : (uint32_t)i;
        selection->kept[i] =
            selection->kept[stack->parent] || (has_only && matches_any(options->only, options->only_count, file));
    }
}

enum status selection_init(struct selection *selection, const struct profile *profile,
                           const struct export_options *options) {
    selection->profile = profile;
    selection->options = options != NULL ? options->attribute : NULL;
    selection->shown = calloc(profile->stack_count + 1, sizeof selection->shown[0]);
    selection->kept = calloc(profile->stack_count + 1, sizeof selection->kept[0]);
    if (selection->shown == NULL || selection->kept == NULL) {
        selection_release(selection);
        return STATUS_FAILED;
    }
    select_stacks(selection);
    return STATUS_OK;
}

void selection_release(struct selection *selection) {
    free(selection->shown);
    free(selection->kept);
    selection->shown = NULL;
    selection->kept = NULL;
}

bool selection_has_thread(const struct selection *selection, uint32_t thread) {
    const struct attribute_options *options = selection->options;
    if (options == NULL)
        return true;
    return (options->thread == ATTRIBUTE_ANY || options->thread == thread) &&
           (options->process == ATTRIBUTE_ANY || options->process == selection->profile->threads[thread].process);
}

bool selection_has(const struct selection *selection, uint32_t thread, uint32_t stack) {
    return selection->kept[stack] && selection_has_thread(selection, thread);
}

uint32_t selection_stack(const struct selection *selection, uint32_t stack) {
    return selection->shown[stack];
}

uint32_t selection_caller(const struct selection *selection, uint32_t stack) {
    return selection->shown[selection->profile->stacks[stack].parent];
}

size_t selection_frames(const struct selection *selection, uint32_t stack, uint32_t *frames) {
    size_t count = 0;
    for (uint32_t at = selection_stack(selection, stack); at != 0; at = selection_caller(selection, at))
        frames[count++] = selection->profile->stacks[at].frame;
    for (size_t i = 0; i < count / 2; i++) {
        uint32_t swapped = frames[i];
        frames[i] = frames[count - 1 - i];
        frames[count - 1 - i] = swapped;
    }
    return count;
}

size_t selection_max_depth(const struct selection *selection) {
    size_t depth = 0;
    for (size_t i = 1; i < selection->profile->stack_count; i++)
        if (selection->profile->stacks[i].depth > depth)
            depth = selection->profile->stacks[i].depth;
    return depth;
}
