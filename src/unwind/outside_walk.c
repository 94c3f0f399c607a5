#include "unwind/walk.h"

#include <string.h>

enum {
    /* A chain of generators longer than this is left to a look that follows every link. */
    MAX_OUTSIDE_HOPS = 256,
    /* One of so many looks asks the thread state what is known already. */
    CHECK_PERIOD = 16,
    IDLE_LOOKS = 32,
    BELIEVED_TIMES = 3,
    LEAST_COUNTED = 16,
    MAX_COUNTED = 1 << 12,
};

static const struct outside_frame *find_outside(const struct stack_tracker *tracker, remote_addr address) {
    for (size_t i = 0; i < tracker->outside_count; i++)
        if (tracker->outside[i].address == address && tracker->outside[i].read)
            return &tracker->outside[i];
    return NULL;
}

/* A frame outside of the chunk: read along with the copy, or on its own: *late is set. */
static enum status read_outside(const struct walk *walk, remote_addr address, struct frame *frame, uint64_t *executable,
                                bool *late) {
    struct stack_tracker *tracker = walk->tracker;
    struct outside_frame own = {.address = address, .size_bytes = sizeof own.bytes, .read = true};
    const struct outside_frame *known = find_outside(tracker, address);
    const uint8_t *bytes = known != NULL ? known->bytes : own.bytes;
    if (known == NULL && memory_read(tracker->runtime->live, address, own.bytes, own.size_bytes) != STATUS_OK) {
        own.size_bytes = frame_head_size(walk->layout);
        TRY(memory_read(tracker->runtime->live, address, own.bytes, own.size_bytes));
    }
    *late = *late || known == NULL;
    if (known == NULL && tracker->outside_count < TRACKER_MAX_OUTSIDE)
        TRY(stack_tracker_add_outside(tracker, &own));
    *executable = load_u64(bytes + walk->layout->frame.f_executable);
    return frame_decode(walk->layout, address, bytes, frame);
}

/* Adds the frames outside of the chunk that lead from `address` down to the innermost frame so far; STATUS_NOT_FOUND
 * when they lead elsewhere. */
static enum status put_outside(struct walk *walk, remote_addr address, bool *late) {
    struct stack_tracker *tracker = walk->tracker;
    remote_addr below = walk->count > 0 ? tracker->stack.frames[walk->count - 1].address : 0;
    size_t first = walk->count;
    for (size_t hops = 0; address != below; hops++) {
        struct frame frame;
        struct tracked_frame tracked;
        uint64_t executable = 0;
        if (address == 0 || hops == MAX_OUTSIDE_HOPS || walk_in_chunk(walk, address)) {
            walk->count = first;
            return STATUS_NOT_FOUND;
        }
        enum status status = read_outside(walk, address, &frame, &executable, late);
        if (status == STATUS_OK)
            status = walk_resolve(walk, &frame, executable, &tracked);
        const struct outside_frame *outside = find_outside(tracker, address);
        if (status == STATUS_OK && outside != NULL && tracked.code != NULL)
            walk_remember_function(walk, outside->bytes, executable);
        if (status == STATUS_OK)
            status = walk_put(walk, &tracked, NULL);
        if (status != STATUS_OK) {
            walk->count = first;
            return status == STATUS_FAILED || status == STATUS_NO_PROCESS ? status : STATUS_NOT_FOUND;
        }
        address = frame.previous;
    }
    /* They were met from the inside out. */
    for (size_t low = first, high = walk->count; high > low + 1; low++) {
        struct tracked_frame swapped = tracker->stack.frames[--high];
        tracker->stack.frames[high] = tracker->stack.frames[low];
        tracker->stack.frames[low] = swapped;
    }
    for (size_t i = first; i < walk->count; i++)
        walk_set_path(walk, i);
    return STATUS_OK;
}

/* What stands in seen_calls for a call by the top so far. */
static uint32_t key_of(const struct walk *walk, const struct tracked_frame *callee) {
    uint32_t path = walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].path : 0;
    return seen_calls_key(path, callee != NULL ? callee->code->serial : SEEN_CALLS_NO_CALLEE);
}

static int32_t site_of(const struct walk *walk) {
    return walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].instruction_bytes : 0;
}

/* Describes the frames from `first` on as the links of a call. */
static struct seen_call describe(const struct walk *walk, size_t first, const struct tracked_frame *callee,
                                 struct call_link links[SEEN_CALLS_MAX_LINKS]) {
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    size_t count = walk->count - first;
    for (size_t i = 0; i < count && i < SEEN_CALLS_MAX_LINKS; i++)
        links[i] = (struct call_link){frames[first + i].code, frames[first + i].instruction_bytes};
    return (struct seen_call){
        .key = key_of(walk, callee), .instruction_bytes = site_of(walk), .link_count = (uint32_t)count, .links = links};
}

/* Whether the last of the links, a generator, can have called the callee. */
static bool may_have_called(const struct walk *walk, const struct tracked_frame *callee, const uint8_t *bytes) {
    const struct stack_tracker *tracker = walk->tracker;
    const struct layout_frame *fields = &walk->layout->frame;
    const struct tracked_frame *generator = &tracker->stack.frames[walk->count - 1];
    const struct outside_frame *outside = find_outside(tracker, generator->address);
    if (generator->code == NULL || !callee->shown || outside == NULL ||
        (layout_has(fields->is_entry) && load_u8(bytes + fields->is_entry) != 0))
        return true;
    struct caller caller = {generator, outside->bytes, outside->size_bytes};
    struct code_step step = code_cache_step(tracker->codes, generator->code, generator->instruction_bytes);
    /* What resumes a generator enters that, and that is in no chunk. */
    if (!step.enters || step.family == OPCODE_RESUMES_GENERATOR || walk_is_running(walk, caller.bytes))
        return false;
    return step.family != OPCODE_CALL || walk_called_this(walk, &caller, bytes);
}

/* Whether the top stands on a call of a function in Python: that leads through no C. */
static bool calls_python(const struct walk *walk) {
    const struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    uint64_t called = 0;
    if (walk->top_bytes == NULL || top->code == NULL || walk_top_step(walk).family != OPCODE_CALL ||
        walk_is_running(walk, walk->top_bytes))
        return false;
    struct caller caller = {top, walk->top_bytes, top->code->frame_bytes};
    return walk_called_word(walk, &caller, &called) && walk_find_function(walk, called) != NULL;
}

/* Whether the top can have run the first of the links. From 3.12 on there is a frame between where that is through C.
 */
static bool may_have_run(const struct walk *walk, size_t first) {
    if (walk->top == SIZE_MAX)
        return true;
    struct code_step step = walk_top_step(walk);
    if (walk->tracker->stack.frames[first].code == NULL || layout_has(walk->layout->frame.is_entry))
        return step.family != OPCODE_OTHER && !calls_python(walk);
    /* The first is a generator, then. */
    if (step.family != OPCODE_RESUMES_GENERATOR && step.family != OPCODE_HIDDEN)
        return false;
    return step.enters && (walk->top_bytes == NULL || !walk_is_running(walk, walk->top_bytes));
}

/* Whether each of the links can have run the next. */
static bool may_have_led(const struct walk *walk, size_t first) {
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

/* Adds the links of a call that was seen before. */
static enum status put_seen(struct walk *walk, const struct seen_call *call) {
    if (walk->top != SIZE_MAX && call->instruction_bytes != site_of(walk))
        walk_assume_site(walk, call->instruction_bytes);
    for (size_t i = 0; i < call->link_count; i++) {
        struct tracked_frame link = {.code = call->links[i].code,
                                     .instruction_bytes = call->links[i].instruction_bytes,
                                     .shown = call->links[i].code != NULL,
                                     .assumed = true};
        TRY(walk_put(walk, &link, NULL));
    }
    return STATUS_OK;
}

/* Whether the top executed the same still after the frames outside were read: else they may belong to what has taken
 * its place. Of those that were read on their own, later than the copy, it is not known. */
static bool still_runs(const struct walk *walk, bool late) {
    const struct stack_tracker *tracker = walk->tracker;
    if (walk->top == SIZE_MAX || tracker->paused)
        return true;
    const struct tracked_frame *top = &tracker->stack.frames[walk->top];
    for (size_t i = 0; i < tracker->again_count && !late; i++)
        if (tracker->again[i].read && tracker->again[i].address == top->address)
            return tracker->again[i].executable == top->executable;
    return false;
}

/* The top is to be read again at the next attempt. */
static void remember_runner(struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    if (walk->top == SIZE_MAX)
        return;
    remote_addr address = tracker->stack.frames[walk->top].address;
    for (size_t i = 0; i < tracker->again_count; i++)
        if (tracker->again[i].address == address)
            return;
    if (tracker->again_count == TRACKER_MAX_AGAIN)
        tracker->again_count = 0;
    tracker->again[tracker->again_count++] = (struct again){.address = address};
}

/* What is not known must be seen several times in a row: the thread may have come back to where it was meanwhile. */
static enum status check_often(struct walk *walk, const struct tracked_frame *callee) {
    struct stack_tracker *tracker = walk->tracker;
    uint32_t path = seen_calls_key(tracker->stack.frames[walk->count - 1].path, callee != NULL);
    tracker->doubted_times = tracker->doubted == path ? tracker->doubted_times + 1 : 1;
    tracker->doubted = path;
    return tracker->doubted_times >= BELIEVED_TIMES ? STATUS_OK : STATUS_TORN;
}

/* Whether the frames from `first` on can be vouched for. STATUS_NOT_FOUND: not, and they are taken off again. */
static enum status judge_links(struct walk *walk, size_t first, bool late, const struct tracked_frame *callee) {
    struct stack_tracker *tracker = walk->tracker;
    struct call_link links[SEEN_CALLS_MAX_LINKS];
    struct seen_call call = describe(walk, first, callee, links);
    bool sure = still_runs(walk, late), known = seen_calls_knows(walk_calls(walk), &call, callee != NULL);
    if (sure && !tracker->slow) {
        seen_calls_note(walk_calls(walk), &call, callee != NULL);
        tracker->links_noted += callee == NULL;
    }
    if (known || tracker->paused)
        return STATUS_OK;
    enum status status = STATUS_NOT_FOUND;
    if (sure)
        status = check_often(walk, callee);
    else if (seen_calls_recall_at(walk_calls(walk), call.key, call.instruction_bytes, false, 0) == NULL)
        status = STATUS_TORN;
    if (status == STATUS_TORN)
        remember_runner(walk);
    if (status != STATUS_OK)
        walk->count = first;
    return status;
}

/* Links as they are found in memory from the innermost on. STATUS_NOT_FOUND: they lead elsewhere, or cannot be vouched
 * for. */
static enum status link_found(struct walk *walk, remote_addr address, const struct tracked_frame *callee,
                              const uint8_t *bytes) {
    size_t first = walk->count;
    bool late = false;
    TRY(put_outside(walk, address, &late));
    if (walk->count > first && may_have_run(walk, first) && may_have_led(walk, first) &&
        (callee == NULL || may_have_called(walk, callee, bytes)))
        return judge_links(walk, first, late, callee);
    walk->count = first;
    return STATUS_NOT_FOUND;
}

enum status outside_link(struct walk *walk, remote_addr address, const struct tracked_frame *callee,
                         const uint8_t *bytes) {
    enum status status = link_found(walk, address, callee, bytes);
    if (status != STATUS_NOT_FOUND)
        return status;
    const struct seen_call *call =
        seen_calls_recall(walk_calls(walk), key_of(walk, callee), site_of(walk), true, walk_random(walk));
    return call != NULL ? put_seen(walk, call) : STATUS_TORN;
}

enum status outside_recall(struct walk *walk, const struct tracked_frame *callee) {
    const struct seen_call *call =
        seen_calls_recall_at(walk_calls(walk), key_of(walk, callee), site_of(walk), true, walk_random(walk));
    /* A frame that resumes a generator itself has saved the extent of its stack. One that calls C need not have. */
    if (call == NULL || (call->links[0].code != NULL && walk_is_running(walk, walk->top_bytes)))
        return STATUS_NOT_FOUND;
    return put_seen(walk, call);
}

/* Whether the chunk's innermost frame may be running a generator: what it runs is then not in the chunk. */
static bool may_run_generator(const struct walk *walk) {
    if (walk->top == SIZE_MAX || walk->top + 1 != walk->count || walk->top_bytes == NULL)
        return false;
    struct code_step step = walk_top_step(walk);
    return (step.family == OPCODE_RESUMES_GENERATOR || step.family == OPCODE_HIDDEN) &&
           !walk_is_running(walk, walk->top_bytes);
}

/* Where the frame of the generator is that a frame iterates over, if it is one: the object is still in the frame's
 * stack, below a null in 3.15 (FOR_ITER_GEN and SEND_GEN, Python/bytecodes.c 3.12 to 3.15). 0 when that is not known.
 */
static remote_addr iterated_frame(const struct walk *walk, const struct caller *frame) {
    const struct layout *layout = walk->layout;
    uint64_t object = 0;
    struct code_step step = code_cache_step(walk->tracker->codes, frame->frame->code, frame->frame->instruction_bytes);
    if (step.family != OPCODE_RESUMES_GENERATOR || !step.enters || walk_is_running(walk, frame->bytes) ||
        !walk_stack_word(walk, frame, layout_minor(layout) < 15 ? -1 : -2, &object) || object == 0)
        return 0;
    remote_addr address = object + layout->gen.gi_iframe;
    return address % WORD_BYTES == 0 && !walk_in_chunk(walk, address) ? address : 0;
}

/* Adds the generator whose frame is at *address, if there is one and the innermost frame so far runs it. Then *address
 * is where that of the generator is that this one runs, if it does. */
static enum status put_generator(struct walk *walk, remote_addr *address, bool *late) {
    struct frame frame;
    struct tracked_frame tracked;
    uint64_t executable = 0;
    remote_addr below = walk->tracker->stack.frames[walk->count - 1].address;
    if (read_outside(walk, *address, &frame, &executable, late) != STATUS_OK ||
        frame.owner != FRAME_OWNED_BY_GENERATOR || frame.previous != below)
        return STATUS_NOT_FOUND;
    TRY(walk_resolve(walk, &frame, executable, &tracked));
    TRY(walk_put(walk, &tracked, NULL));
    const struct outside_frame *outside = find_outside(walk->tracker, *address);
    struct caller caller = {&tracked, outside != NULL ? outside->bytes : NULL,
                            outside != NULL ? outside->size_bytes : 0};
    *address = outside != NULL ? iterated_frame(walk, &caller) : 0;
    return STATUS_OK;
}

/* What runs above the top, which has resumed the generator with this frame. */
static enum status climb_generators(struct walk *walk, remote_addr generator) {
    size_t first = walk->count;
    bool late = false;
    enum status status = STATUS_OK;
    for (size_t hops = 0; generator != 0 && hops < MAX_OUTSIDE_HOPS && status == STATUS_OK; hops++)
        status = put_generator(walk, &generator, &late);
    if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
        return status;
    status = status == STATUS_OK ? judge_links(walk, first, late, NULL) : STATUS_NOT_FOUND;
    if (status != STATUS_NOT_FOUND)
        return status;
    walk->count = first;
    const struct seen_call *seen =
        seen_calls_recall_at(walk_calls(walk), key_of(walk, NULL), site_of(walk), true, walk_random(walk));
    return seen != NULL ? put_seen(walk, seen) : STATUS_NOT_FOUND;
}

static remote_addr iterated_by_top(const struct walk *walk) {
    const struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    struct caller caller = {top, walk->top_bytes, top->code->frame_bytes};
    return walk->top_bytes != NULL && top->instruction_bytes >= 0 ? iterated_frame(walk, &caller) : 0;
}

static void count_links(struct stack_tracker *tracker, bool seen) {
    tracker->links_seen += seen;
    if (tracker->links_seen < MAX_COUNTED)
        return;
    tracker->links_seen /= 2;
    tracker->links_noted /= 2;
}

/* Whether it is to be noted that the top runs by itself. Frames outside of the chunks are noted when they can be
 * vouched for, which is seldom where they come and go; that there were none is noted as seldom, or it would seem
 * likelier. */
static bool is_due(struct walk *walk) {
    const struct stack_tracker *tracker = walk->tracker;
    if (tracker->links_seen < LEAST_COUNTED)
        return true;
    return (uint64_t)walk_random(walk) * tracker->links_seen >> 32 < tracker->links_noted;
}

enum status outside_climb(struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    struct seen_call call = {.key = key_of(walk, NULL), .instruction_bytes = site_of(walk)};
    if (!walk->thread_known && !tracker->paused && seen_calls_is_plain(walk_calls(walk), &call) &&
        (walk_random(walk) >> 16) % CHECK_PERIOD != 0)
        return STATUS_OK;
    remote_addr generator = walk->top != SIZE_MAX && !tracker->paused ? iterated_by_top(walk) : 0;
    if (generator != 0) {
        enum status status = climb_generators(walk, generator);
        if (status != STATUS_NOT_FOUND)
            return status;
    }
    TRY(walk_know_thread(walk));
    remote_addr innermost = walk->thread->frame;
    if (walk->top != SIZE_MAX && innermost == tracker->stack.frames[walk->top].address) {
        if (!tracker->slow && is_due(walk))
            seen_calls_note(walk_calls(walk), &call, false);
        return STATUS_OK;
    }
    bool outside = innermost != 0 && !walk_in_chunk(walk, innermost);
    count_links(tracker, outside);
    enum status status = outside ? link_found(walk, innermost, NULL, NULL) : STATUS_NOT_FOUND;
    if (status != STATUS_NOT_FOUND)
        return status;
    /* The thread has gone on since the chunks were copied. */
    const struct seen_call *seen =
        seen_calls_recall_at(walk_calls(walk), call.key, call.instruction_bytes, outside, walk_random(walk));
    if (seen != NULL)
        return put_seen(walk, seen);
    return may_run_generator(walk) ? STATUS_TORN : STATUS_OK;
}

static enum status predict_frame(struct stack_tracker *tracker, const struct tracked_frame *frame) {
    struct outside_frame outside = {.address = frame->address,
                                    .size_bytes = frame_head_size(&tracker->runtime->layout)};
    if (frame->code != NULL && frame->code->frame_bytes > outside.size_bytes)
        outside.size_bytes = frame->code->frame_bytes;
    if (outside.size_bytes > sizeof outside.bytes)
        outside.size_bytes = sizeof outside.bytes;
    return stack_tracker_add_outside(tracker, &outside);
}

/* The frame of a chunk that runs the frames outside at `index`. */
static void predict_again(struct stack_tracker *tracker, size_t index) {
    const struct tracked_frame *frames = tracker->stack.frames;
    while (index > 0 && frames[index].end == 0)
        index--;
    for (size_t i = 0; i < tracker->again_count; i++)
        if (tracker->again[i].address == frames[index].address)
            return;
    if (frames[index].end != 0 && tracker->again_count < TRACKER_MAX_AGAIN)
        tracker->again[tracker->again_count++] = (struct again){.address = frames[index].address};
}

enum status outside_predict(struct stack_tracker *tracker, size_t same) {
    const struct tracked_stack *stack = &tracker->stack;
    size_t found = 0;
    for (size_t i = same; i < stack->count; i++)
        found += stack->frames[i].end == 0 && !stack->frames[i].assumed;
    for (size_t i = 0; i < tracker->outside_count; i++)
        tracker->outside[i].read = false;
    for (size_t i = 0; i < tracker->again_count; i++)
        tracker->again[i].read = false;
    /* Where there were some lately there may be again. */
    if (found == 0 && tracker->outside_idle++ < IDLE_LOOKS)
        return STATUS_OK;
    tracker->outside_count = 0;
    tracker->again_count = 0;
    tracker->outside_idle = 0;
    for (size_t i = stack->count; i-- > same && tracker->outside_count < TRACKER_MAX_OUTSIDE;)
        if (stack->frames[i].end == 0 && !stack->frames[i].assumed) {
            TRY(predict_frame(tracker, &stack->frames[i]));
            predict_again(tracker, i);
        }
    return STATUS_OK;
}
