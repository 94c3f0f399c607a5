#include "unwind/tracked_stack.h"

#include "base/array.h"

#include <stdlib.h>

enum { MAX_FRAMES = 1 << 20 };

void tracked_stack_forget(struct tracked_stack *stack, size_t known) {
    size_t left = 0;
    stack->known = known < stack->known ? known : stack->known;
    for (size_t i = 0; i < stack->aside_count; i++)
        if (stack->aside[i].index < stack->known)
            stack->aside[left++] = stack->aside[i];
    stack->aside_count = left;
}

void tracked_stack_touch(struct tracked_stack *stack, size_t index) {
    if (index >= stack->known)
        return;
    for (size_t i = 0; i < stack->aside_count; i++)
        if (stack->aside[i].index == index)
            return;
    if (stack->aside_count < TRACKED_MAX_ASIDE)
        stack->aside[stack->aside_count++] = (struct aside_frame){index, stack->frames[index]};
    else
        tracked_stack_forget(stack, index);
}

void tracked_stack_restore(struct tracked_stack *stack) {
    for (size_t i = 0; i < stack->aside_count; i++)
        stack->frames[stack->aside[i].index] = stack->aside[i].frame;
    stack->aside_count = 0;
}

void tracked_stack_remember(struct tracked_stack *stack, size_t known) {
    stack->known = known;
    stack->aside_count = 0;
}

enum status tracked_stack_put(struct tracked_stack *stack, size_t index, const struct tracked_frame *frame) {
    if (index >= MAX_FRAMES)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&stack->frames, &stack->capacity, index + 1, sizeof stack->frames[0]));
    tracked_stack_touch(stack, index);
    stack->frames[index] = *frame;
    return STATUS_OK;
}

void tracked_stack_release(struct tracked_stack *stack) {
    free(stack->frames);
    *stack = (struct tracked_stack){0};
}
