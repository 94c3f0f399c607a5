#include "unwind/native_stack.h"

/* aarch64: return addresses are signed in the bits that no address has (at least 48 are one's). x86-64: never set. */
static const remote_addr address_mask = UINT64_C(0x0000ffffffffffff);

static bool read_word(const struct native_stack *stack, remote_addr address, uint64_t *word) {
    uint64_t index = (address - stack->words_address) / sizeof *word;
    if (address < stack->words_address || address % sizeof *word != 0 || index >= stack->word_count)
        return false;
    *word = stack->words[index];
    return true;
}

static bool find_frame(const struct native_stack *stack, const struct unwind_row *row, remote_addr *frame) {
    remote_addr base = row->base == UNWIND_STACK_POINTER   ? stack->stack_pointer
                       : row->base == UNWIND_FRAME_POINTER ? stack->frame_pointer
                                                           : 0;
    if (base == 0)
        return false;
    *frame = base + (uint64_t)row->offset;
    return !row->dereferenced || read_word(stack, *frame, frame);
}

enum status native_stack_step(struct native_stack *stack, const struct unwind_row *row) {
    remote_addr frame = 0, caller = stack->return_register, frame_pointer = stack->frame_pointer;
    if (row->outermost)
        return STATUS_NOT_FOUND;
    if (!find_frame(stack, row, &frame))
        return STATUS_UNREADABLE;
    /* The stack grows down; only an innermost function need not have used any of it. */
    if (frame < stack->stack_pointer || (frame == stack->stack_pointer && !stack->innermost))
        return STATUS_UNREADABLE;
    if (row->return_in_register && !stack->innermost)
        return STATUS_UNREADABLE;
    if (!row->return_in_register && !read_word(stack, frame + (uint64_t)row->return_offset, &caller))
        return STATUS_LIMIT;
    /* At a function's end it has been loaded again, and its place is below the stack's top. */
    remote_addr saved = frame + (uint64_t)row->frame_pointer_offset;
    bool loaded = stack->innermost && saved < stack->stack_pointer;
    if (row->frame_pointer_saved && !loaded && !read_word(stack, saved, &frame_pointer))
        return STATUS_LIMIT;
    caller &= address_mask;
    if (caller == 0)
        return STATUS_NOT_FOUND;
    stack->program_counter = caller;
    stack->stack_pointer = frame;
    stack->frame_pointer = frame_pointer;
    stack->innermost = false;
    return STATUS_OK;
}

enum status native_stack_scan(struct native_stack *stack, bool (*is_return_address)(void *context, remote_addr address),
                              void *context) {
    if (stack->stack_pointer < stack->words_address)
        return STATUS_UNREADABLE;
    size_t first = (size_t)((stack->stack_pointer - stack->words_address) / sizeof *stack->words);
    for (size_t i = first; i < stack->word_count; i++) {
        remote_addr address = stack->words[i] & address_mask;
        if (!is_return_address(context, address))
            continue;
        stack->program_counter = address;
        stack->stack_pointer = stack->words_address + (i + 1) * sizeof *stack->words;
        stack->frame_pointer = 0;
        stack->innermost = false;
        return STATUS_OK;
    }
    return STATUS_UNREADABLE;
}
