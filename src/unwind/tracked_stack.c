#include "unwind/tracked_stack.h"

#include <stdlib.h>

enum { MAX_FRAMES = 1 << 20, FIRST_CAPACITY = 32 };

enum status tracked_stack_put(struct tracked_stack *stack, size_t index, const struct tracked_frame *frame) {
    if (index >= MAX_FRAMES)
        return STATUS_LIMIT;
    if (index >= stack->capacity) {
        size_t capacity = stack->capacity > 0 ? stack->capacity * 2 : FIRST_CAPACITY;
        struct tracked_frame *frames = realloc(stack->frames, capacity * sizeof frames[0]);
        if (frames == NULL)
            return STATUS_FAILED;
        stack->frames = frames;
        stack->capacity = capacity;
    }
    stack->frames[index] = *frame;
    return STATUS_OK;
}

void tracked_stack_release(struct tracked_stack *stack) {
    free(stack->frames);
    *stack = (struct tracked_stack){0};
}
