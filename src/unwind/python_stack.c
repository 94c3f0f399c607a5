#include "unwind/python_stack.h"

#include "base/array.h"
#include "unwind/frame_chain.h"

#include <stdlib.h>
#include <string.h>

void stack_reader_init(struct stack_reader *reader, struct runtime *runtime, struct code_cache *codes) {
    *reader = (struct stack_reader){.runtime = runtime, .codes = codes};
    stack_image_init(&reader->image, runtime->live);
    stack_tracker_init(&reader->tracker, runtime, codes);
}

void stack_reader_limit(struct stack_reader *reader, struct budget *budget) {
    reader->budget = budget;
    reader->image.budget = budget;
}

void stack_reader_release(struct stack_reader *reader) {
    stack_image_release(&reader->image);
    stack_tracker_release(&reader->tracker);
    free(reader->chain.items);
    *reader = (struct stack_reader){0};
}

struct memory *stack_reader_memory(struct stack_reader *reader) {
    return &reader->image.memory;
}

void python_stack_release(struct python_stack *stack) {
    free(stack->frames);
    *stack = (struct python_stack){0};
}

static enum status add_frame(struct python_stack *stack, const struct stack_frame *frame) {
    TRY(array_reserve((void **)&stack->frames, &stack->capacity, stack->count + 1, sizeof stack->frames[0]));
    stack->frames[stack->count++] = *frame;
    return STATUS_OK;
}

/* The instruction as a byte offset into the bytecode; negative when the frame has not begun. */
static enum status instruction_offset(struct stack_reader *reader, const struct stack_frame *frame, int64_t *offset) {
    if (frame->code->bytecode == 0) {
        *offset = (int64_t)frame->frame.instruction;
    } else {
        remote_addr start = 0;
        TRY(code_bytecode_start(reader->runtime, frame->code, frame->frame.tlbc_index, &start));
        *offset = (int64_t)(frame->frame.instruction - start);
    }
    /* One code unit before the first is where a frame stands that has not begun (3.11, 3.12). */
    return *offset < -2 || *offset > (int64_t)frame->code->bytecode_bytes ? STATUS_TORN : STATUS_OK;
}

/* As the interpreter itself does (_PyFrame_IsIncomplete, Include/internal/pycore_frame.h 3.11 to 3.15): frames whose
 * setting-up instructions have not all run are not shown, generators excepted. This also leaves out the shims that
 * 3.13+ puts under __init__. */
static bool is_incomplete(const struct stack_frame *frame, int64_t offset) {
    if (frame->code->bytecode == 0 || frame->frame.owner == FRAME_OWNED_BY_GENERATOR)
        return false;
    return offset < (int64_t)frame->code->first_traceable_bytes;
}

static enum status resolve(struct stack_reader *reader, struct stack_frame *frame, bool *shown) {
    int64_t offset = 0;
    *shown = true;
    TRY(code_cache_get(reader->codes, frame->frame.code, &frame->code));
    TRY(instruction_offset(reader, frame, &offset));
    *shown = !is_incomplete(frame, offset);
    frame->instruction_bytes = offset < 0 ? -1 : (int32_t)offset;
    /* A line table is walked from its beginning for every frame. */
    TRY(budget_take(reader->budget, 0, frame->code->lines.size_bytes));
    if (offset < 0)
        frame->position = (struct source_position){frame->code->lines.first_line, -1, -1, -1};
    else
        code_position(frame->code, (uint32_t)offset, &frame->position);
    return STATUS_OK;
}

/* Names, lines, and what is not to be shown. A bad frame costs itself, not the stack. */
enum status python_stack_resolve(struct stack_reader *reader, struct stack_frame *frame, bool *shown) {
    frame->status = resolve(reader, frame, shown);
    if (frame->status != STATUS_OK)
        frame->code = NULL;
    return frame->status == STATUS_FAILED ? STATUS_FAILED : STATUS_OK;
}

static enum status resolve_chain(struct stack_reader *reader, struct python_stack *stack) {
    for (size_t i = 0; i < reader->chain.count; i++) {
        struct stack_frame frame = {.frame = reader->chain.items[i]};
        if (frame.frame.boundary) {
            if (stack->count > 0)
                stack->frames[stack->count - 1].called_from_c = true;
            continue;
        }
        bool shown = true;
        TRY(python_stack_resolve(reader, &frame, &shown));
        if (frame.status != STATUS_OK)
            stack->consistent = false;
        if (shown)
            TRY(add_frame(stack, &frame));
    }
    return STATUS_OK;
}

/* The copies that the tracker's frames are from, for those who read on in them. */
static enum status take_copies(struct stack_reader *reader) {
    const struct chunk_copies *copies = &reader->tracker.copies;
    stack_image_clear(&reader->image);
    for (size_t i = 0; i < copies->copied; i++) {
        const struct chunk_span *span = &copies->spans[i];
        uint8_t *bytes = NULL;
        TRY(stack_image_reserve(&reader->image, span->address, span->size_bytes, &bytes));
        memcpy(bytes, copies->now + span->offset, span->size_bytes);
        stack_image_commit(&reader->image);
    }
    return STATUS_OK;
}

static enum status add_tracked(struct stack_reader *reader, struct python_stack *stack) {
    const struct tracked_stack *tracked = &reader->tracker.stack;
    for (size_t i = tracked->count; i-- > 0;) {
        const struct tracked_frame *from = &tracked->frames[i];
        struct stack_frame frame = {.frame = {.address = from->address, .instruction = from->instruction},
                                    .code = from->code,
                                    .instruction_bytes = from->instruction_bytes};
        if (from->code == NULL && stack->count > 0)
            stack->frames[stack->count - 1].called_from_c = true;
        if (from->code == NULL || !from->shown)
            continue;
        frame.frame.code = from->code->address;
        frame.position = (struct source_position){from->code->lines.first_line, -1, -1, -1};
        if (from->instruction_bytes >= 0)
            code_position(from->code, (uint32_t)from->instruction_bytes, &frame.position);
        TRY(add_frame(stack, &frame));
    }
    return STATUS_OK;
}

/* 3.11+: as a sampler looks, each caller held against its callee. A sampler takes a stack whose end has moved by the
 * time that the thread state was read; here there is time to wait for one that has not, unless the copy itself shows
 * the end: a frame that is not understood must not look like that. */
static enum status attempt_tracked(struct stack_reader *reader, struct thread_state *thread,
                                   struct python_stack *stack) {
    const struct tracked_stack *tracked = &reader->tracker.stack;
    stack->count = 0;
    if (stack->attempts == 0)
        stack_tracker_forget(&reader->tracker);
    else
        stack_tracker_unlearn(&reader->tracker);
    TRY(stack_tracker_look(&reader->tracker, thread, 1));
    remote_addr innermost = tracked->count > 0 ? tracked->frames[tracked->count - 1].address : 0;
    if (innermost != thread->frame && !reader->tracker.end_shown)
        return STATUS_TORN;
    TRY(take_copies(reader));
    TRY(add_tracked(reader, stack));
    stack->consistent = true;
    return STATUS_OK;
}

/* Link by link; what cannot be read costs itself. */
static enum status attempt_linked(struct stack_reader *reader, struct thread_state *thread,
                                  struct python_stack *stack) {
    bool objects = !layout_has(reader->runtime->layout.frame.size);
    enum status status = objects ? frame_chain_read_objects(reader, thread, &stack->consistent, &stack->cut)
                                 : frame_chain_read_stack(reader, thread, &stack->consistent, &stack->cut);
    stack->count = 0;
    if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
        return status;
    TRY(resolve_chain(reader, stack));
    if (status == STATUS_OK)
        return STATUS_OK;
    stack->consistent = false;
    return add_frame(stack, &(struct stack_frame){.status = status});
}

enum status python_stack_read(struct stack_reader *reader, struct thread_state *thread, unsigned max_attempts,
                              struct python_stack *stack) {
    stack->consistent = false;
    stack->cut = false;
    bool tracked = stack_tracker_supports(reader->runtime) && thread->datastack_chunk != 0;
    for (stack->attempts = 0; !stack->consistent && stack->attempts < max_attempts; stack->attempts++) {
        if (tracked && stack->attempts + 1 < max_attempts) {
            enum status status = attempt_tracked(reader, thread, stack);
            if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
                return status;
        } else {
            TRY(attempt_linked(reader, thread, stack));
        }
        if (reader->budget != NULL && reader->budget->exhausted)
            break;
    }
    return STATUS_OK;
}
