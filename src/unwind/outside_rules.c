#include "unwind/outside.h"

/* From 3.14 on the extent of a stack is saved for C as well, with the arguments still on it: what is called lies below
 * them and what, of a method, it is bound to. What is behind the end is left over from before. */
static bool may_be_calling_c(const struct walk *walk, const struct caller *caller, unsigned argument_count) {
    uint64_t called = 0;
    return walk->layout->tagged_refs && argument_count < CODE_STEP_ARGUMENT &&
           walk_stack_word(walk, caller, -2 - (int)argument_count, &called) &&
           walk_callable_kind(walk, called) == CALLABLE_C;
}

/* The same where it seems to have called this callee. A bound method in Python would still be behind the end. */
static bool is_calling_c(const struct walk *walk, const struct caller *caller, unsigned argument_count,
                         const uint8_t *callee) {
    uint64_t behind = 0;
    return walk_called_word(walk, caller, &behind) && behind != walk_function_of(walk, callee) &&
           walk_callable_kind(walk, behind) != CALLABLE_METHOD && may_be_calling_c(walk, caller, argument_count);
}

bool outside_may_have_called(const struct walk *walk, const struct tracked_frame *callee, const uint8_t *bytes) {
    const struct stack_tracker *tracker = walk->tracker;
    const struct layout_frame *fields = &walk->layout->frame;
    const struct tracked_frame *generator = &tracker->stack.frames[walk->count - 1];
    const struct outside_frame *outside = outside_find(tracker, generator->address);
    if (generator->code == NULL || !callee->shown || outside == NULL ||
        (layout_has(fields->is_entry) && load_u8(bytes + fields->is_entry) != 0))
        return true;
    struct caller caller = {generator, outside->bytes, outside->place.size_bytes};
    struct code_step step = code_cache_step(tracker->codes, generator->code, generator->instruction_bytes);
    /* What resumes a generator enters that, and that is in no chunk. */
    if (!step.enters || step.family == OPCODE_RESUMES_GENERATOR || walk_is_running(walk, caller.bytes))
        return false;
    if (step.family != OPCODE_CALL)
        return true;
    return walk_called_this(walk, &caller, bytes) && !is_calling_c(walk, &caller, step.argument, bytes);
}

/* Whether the top stands on a call of a function in Python: that leads through no C. */
static bool calls_python(const struct walk *walk) {
    const struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    uint64_t called = 0;
    if (walk->top_bytes == NULL || top->code == NULL || walk_is_running(walk, walk->top_bytes))
        return false;
    struct code_step step = walk_top_step(walk);
    struct caller caller = {top, walk->top_bytes, walk_top_size(walk)};
    return step.family == OPCODE_CALL && walk_called_word(walk, &caller, &called) &&
           walk_callable_kind(walk, called) == CALLABLE_FUNCTION && !may_be_calling_c(walk, &caller, step.argument);
}

remote_addr outside_iterated(const struct walk *walk, const struct caller *frame) {
    const struct layout *layout = walk->layout;
    uint64_t object = 0;
    struct code_step step = code_cache_step(walk->tracker->codes, frame->frame->code, frame->frame->instruction_bytes);
    if (step.family != OPCODE_RESUMES_GENERATOR || !step.enters || walk_is_running(walk, frame->bytes) ||
        !walk_stack_word(walk, frame, layout_minor(layout) < 15 ? -1 : -2, &object) || object == 0)
        return 0;
    remote_addr address = object + layout->gen.gi_iframe;
    return address % WORD_BYTES == 0 && !walk_in_chunk(walk, address) ? address : 0;
}

remote_addr outside_iterated_by_top(const struct walk *walk) {
    const struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    if (walk->top_bytes == NULL || top->instruction_bytes < 0)
        return 0;
    struct caller caller = {top, walk->top_bytes, walk_top_size(walk)};
    return outside_iterated(walk, &caller);
}

bool outside_may_have_run(const struct walk *walk, size_t first) {
    if (walk->top == SIZE_MAX)
        return true;
    struct code_step step = walk_top_step(walk);
    if (layout_has(walk->layout->frame.is_entry))
        return step.family != OPCODE_OTHER && !calls_python(walk);
    if (walk->tracker->stack.frames[first].code == NULL) {
        /* Up to 3.13 the extent of a stack is not saved where C is called. */
        bool enters = layout_has(walk->layout->frame.stacktop) && walk->top_bytes != NULL &&
                      !walk_is_running(walk, walk->top_bytes);
        return step.family != OPCODE_OTHER && !enters && !calls_python(walk);
    }
    /* The first is a generator, then, and the one that the top iterates over. */
    remote_addr generator = outside_iterated_by_top(walk);
    if (generator != 0 && generator != walk->tracker->stack.frames[first].address)
        return false;
    if (step.family != OPCODE_RESUMES_GENERATOR && step.family != OPCODE_HIDDEN)
        return false;
    return step.enters && (walk->top_bytes == NULL || !walk_is_running(walk, walk->top_bytes));
}

bool outside_is_suspended(const struct walk *walk, const struct tracked_frame *generator,
                          const struct outside_frame *outside) {
    return layout_has(walk->layout->frame.stacktop) && generator->code != NULL && outside != NULL &&
           !walk_is_running(walk, outside->bytes) &&
           !code_cache_step(walk->tracker->codes, generator->code, generator->instruction_bytes).enters;
}

bool outside_may_have_led(const struct walk *walk, size_t first) {
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    for (size_t i = first; i + 1 < walk->count; i++) {
        if (frames[i].code == NULL)
            continue;
        enum opcode_family family =
            code_cache_step(walk->tracker->codes, frames[i].code, frames[i].instruction_bytes).family;
        bool itself = frames[i + 1].code != NULL && !layout_has(walk->layout->frame.is_entry);
        if (itself ? family != OPCODE_RESUMES_GENERATOR && family != OPCODE_HIDDEN : family == OPCODE_OTHER)
            return false;
    }
    return true;
}

bool outside_holds_generator(const struct walk *walk, size_t first) {
    const struct layout *layout = walk->layout;
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    while (first < walk->count && frames[first].code == NULL)
        first++;
    if (first == walk->count || walk->top == SIZE_MAX || walk->top_bytes == NULL)
        return false;
    remote_addr object = frames[first].address - layout->gen.gi_iframe;
    size_t end = walk_top_size(walk);
    for (size_t i = layout->frame.localsplus; i + WORD_BYTES <= end; i += WORD_BYTES)
        if (frame_untag(layout, load_u64(walk->top_bytes + i)) == object)
            return true;
    return false;
}
