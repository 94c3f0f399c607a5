#include "unwind/chunk_walk.h"

#include "unwind/walk.h"

enum { SETTLED_LOOKS = 1 << 15 };

static remote_addr first_frame_address(const struct walk *walk, const struct chunk_span *span) {
    /* The first chunk of a thread leaves its first word free (push_chunk, Python/pystate.c 3.11). */
    bool is_first = span == walk->tracker->copies.spans;
    return span->address + walk->layout->stack_chunk.data + (is_first ? WORD_BYTES : 0);
}

/* A frame that is being or has been popped: its variables have been given back, and with them the extent of its stack;
 * from 3.14 on its function, too (clear_thread_frame, Python/ceval.c; _PyFrame_ClearLocals, Python/frame.c). */
static bool is_cleared(const struct walk *walk, const struct tracked_frame *tracked, const uint8_t *bytes) {
    const struct layout_frame *fields = &walk->layout->frame;
    uint32_t nlocalsplus = tracked->code->nlocalsplus;
    if (layout_has(fields->stacktop)) {
        int32_t stacktop = walk_stacktop(walk, bytes);
        return stacktop != STACKTOP_RUNNING && (stacktop < 0 || (uint32_t)stacktop < nlocalsplus);
    }
    uint64_t stackpointer = load_u64(bytes + fields->stackpointer);
    remote_addr base = tracked->address + fields->localsplus + (uint64_t)nlocalsplus * WORD_BYTES;
    if (stackpointer != 0 && stackpointer < base)
        return true;
    /* What is not shown may have none from the first. */
    return tracked->shown && walk_function_of(walk, bytes) == 0;
}

/* Whether the innermost frame so far can have entered the frame above it itself, not through C. Up to 3.13 it saves the
 * extent of its stack before, and only then. (3.11 enters from C without a frame of its own: is_entry.) */
static bool may_have_entered(const struct walk *walk, const struct tracked_frame *callee, const uint8_t *bytes) {
    const struct layout_frame *fields = &walk->layout->frame;
    if (walk->top == SIZE_MAX)
        return true;
    /* What has not begun has called nobody: what lies above it is of another time. */
    if (walk->tracker->stack.frames[walk->top].instruction_bytes < 0)
        return false;
    struct code_step step = walk_top_step(walk);
    if (layout_has(fields->is_entry) && load_u8(bytes + fields->is_entry) != 0)
        return step.family != OPCODE_OTHER;
    /* What resumes a generator enters that, and that is in no chunk. */
    if (!step.enters || step.family == OPCODE_RESUMES_GENERATOR)
        return false;
    if (walk->top_bytes == NULL)
        return true;
    if (walk_is_running(walk, walk->top_bytes))
        return false;
    struct caller caller = {&walk->tracker->stack.frames[walk->top], walk->top_bytes, walk_top_size(walk)};
    return step.family != OPCODE_CALL || !callee->shown || walk_called_this(walk, &caller, bytes);
}

/* A call of one function by another from an instruction, by the path that leads there, or by any. */
static struct seen_call describe_call(const struct tracked_frame *caller, const struct tracked_frame *callee,
                                      bool any) {
    uint32_t from = any ? ~caller->code->serial : caller->path;
    return (struct seen_call){.key = seen_calls_key(from, callee->code->serial),
                              .instruction_bytes = caller->instruction_bytes};
}

/* The same the other way round: what an instruction calls. */
static struct seen_call describe_site(const struct tracked_frame *caller, const struct tracked_frame *callee) {
    return (struct seen_call){.key = seen_calls_key(~caller->path, (uint32_t)caller->instruction_bytes),
                              .instruction_bytes = (int32_t)callee->code->serial};
}

/* Whether the copies of the innermost frame so far and of the frame above it, which it seems to have called, can be of
 * two calls: the instruction hardly ever calls this. */
static bool is_doubtful_site(const struct walk *walk, const struct tracked_frame *callee) {
    if (walk->tracker->paused || !callee->shown || walk->top == SIZE_MAX || walk->top + 1 != walk->count)
        return false;
    struct seen_call by_site = describe_site(&walk->tracker->stack.frames[walk->top], callee);
    return seen_calls_is_rare(walk_calls(walk), &by_site);
}

/* Whether a frame is the same function's now: else it may have been another's already when what it had called was
 * copied. */
static enum status still_is(const struct walk *walk, const struct tracked_frame *frame) {
    uint64_t executable = 0;
    TRY(memory_read_u64(walk->tracker->runtime->live, frame->address + walk->layout->frame.f_executable, &executable));
    return executable == frame->executable ? STATUS_OK : STATUS_TORN;
}

/* Which instruction a frame stands on is copied before what it has called, which can be of a later call. Where another
 * instruction calls this, it is that one. Else the frame may be another function's by now. */
static enum status correct_site(struct walk *walk, const struct tracked_frame *callee) {
    const struct stack_tracker *tracker = walk->tracker;
    const struct tracked_frame *caller = &tracker->stack.frames[walk->top];
    const struct seen_calls *calls = walk_calls(walk);
    struct seen_call by_path = describe_call(caller, callee, false);
    const struct seen_call *seen = seen_calls_is_rare(calls, &by_path)
                                       ? seen_calls_recall(calls, by_path.key, caller->instruction_bytes + 1, false, 0)
                                       : NULL;
    if (seen != NULL && seen->instruction_bytes != caller->instruction_bytes) {
        walk_assume_site(walk, seen->instruction_bytes);
        return STATUS_OK;
    }
    return still_is(walk, caller);
}

/* The same where the call led through C, whose frame has been added; without looking for another instruction. */
static enum status check_site_through_c(const struct walk *walk, const struct tracked_frame *callee) {
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    if (walk->tracker->paused || walk->top == SIZE_MAX || walk->top + 2 != walk->count ||
        frames[walk->top + 1].code != NULL || frames[walk->top].assumed)
        return STATUS_OK;
    struct seen_call by_site = describe_site(&frames[walk->top], callee);
    return seen_calls_is_rare(walk_calls(walk), &by_site) ? still_is(walk, &frames[walk->top]) : STATUS_OK;
}

/* Whether the innermost frame so far, although its copy does not say so, has called the frame above it: that is copied
 * a little later, and the caller was seen to call it before. Then it stands where it stood then. */
static bool recall_call(struct walk *walk, const struct tracked_frame *callee, const uint8_t *bytes) {
    const struct tracked_frame *caller = &walk->tracker->stack.frames[walk->top];
    const struct seen_calls *calls = walk_calls(walk);
    if (walk->tracker->paused || !callee->shown || walk->top + 1 != walk->count)
        return false;
    if (layout_has(walk->layout->frame.stacktop) && !walk_is_running(walk, bytes))
        return false;
    struct seen_call by_path = describe_call(caller, callee, false), by_any = describe_call(caller, callee, true);
    const struct seen_call *seen =
        seen_calls_recall(calls, by_path.key, caller->instruction_bytes, false, walk_random(walk));
    if (seen == NULL && !walk->tracker->slow)
        seen = seen_calls_recall(calls, by_any.key, caller->instruction_bytes, false, walk_random(walk));
    if (seen == NULL)
        return false;
    walk_assume_site(walk, seen->instruction_bytes);
    return true;
}

/* Up to 3.13 a frame that returns saves the extent of its stack, and a little later has none. */
static bool is_popped(const struct walk *walk, const struct tracked_frame *tracked, const uint8_t *bytes) {
    if (is_cleared(walk, tracked, bytes))
        return true;
    return layout_has(walk->layout->frame.stacktop) && tracked->shown &&
           walk_stacktop(walk, bytes) != STACKTOP_RUNNING &&
           !code_cache_step(walk->tracker->codes, tracked->code, tracked->instruction_bytes).enters;
}

/* What the interpreter puts below __init__ where it makes an object without C: code of which nothing can be traced, and
 * which has its caller from the first (_Py_InitCleanup, Python/specialize.c; _PyFrame_PushTrampolineUnchecked, 3.13+).
 */
static bool is_shim(const struct code *code) {
    return code->first_traceable_bytes >= code->bytecode_bytes;
}

/* Whether the frame at `address` in the copy is the next one up; then it is added. */
static enum status climb(struct walk *walk, remote_addr address, bool *climbed) {
    const uint8_t *bytes = walk_bytes_at(walk, address);
    struct frame frame;
    struct tracked_frame tracked;
    *climbed = false;
    if (bytes == NULL) {
        /* The thread may have got further than was thought. */
        TRY(walk_know_thread(walk));
        bool is_newest = walk->thread->datastack_chunk == walk->span->address;
        return !is_newest || address < walk->thread->datastack_top ? STATUS_TORN : STATUS_OK;
    }
    const uint64_t executable = load_u64(bytes + walk->layout->frame.f_executable);
    if (frame_decode(walk->layout, address, bytes, &frame) != STATUS_OK || frame.owner != FRAME_OWNED_BY_THREAD)
        return STATUS_OK;
    enum status status = walk_resolve(walk, &frame, executable, &tracked);
    if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
        return status;
    if (status != STATUS_OK || tracked.code->frame_bytes == 0)
        return STATUS_OK;
    remote_addr below = walk->count > 0 ? walk->tracker->stack.frames[walk->count - 1].address : 0;
    tracked.end = address + tracked.code->frame_bytes;
    /* The end of one that has just been pushed may lie beyond what was copied. */
    const size_t end_bytes = (size_t)(tracked.end - walk->span->address);
    tracked.copied_end = end_bytes <= walk->span->size_bytes ? walk->span->offset + end_bytes : SIZE_MAX;
    if (is_popped(walk, &tracked, bytes))
        return STATUS_OK;
    if (frame.previous == below) {
        if (!may_have_entered(walk, &tracked, bytes) && !recall_call(walk, &tracked, bytes))
            return STATUS_OK;
        if (is_doubtful_site(walk, &tracked))
            TRY(correct_site(walk, &tracked));
    } else {
        /* Through C, or from a generator that it runs. */
        if (walk_in_chunk(walk, frame.previous) || (!tracked.shown && !is_shim(tracked.code)))
            return STATUS_OK;
        status = outside_link(walk, frame.previous, &tracked, bytes);
        if (status != STATUS_OK)
            return status;
        TRY(check_site_through_c(walk, &tracked));
    }
    *climbed = true;
    walk_remember_function(walk, bytes);
    return walk_put(walk, &tracked, bytes);
}

/* Adds all frames of the chunks that are live. */
static enum status climb_all(struct walk *walk) {
    const struct chunk_copies *copies = &walk->tracker->copies;
    remote_addr next =
        walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].end : first_frame_address(walk, walk->span);
    for (bool climbed = true; climbed;) {
        const struct chunk_span *newer = NULL;
        if (next == chunk_copies_end(copies, walk->layout, walk->span))
            newer = chunk_copies_newer(copies, walk->layout, walk->span);
        climbed = false;
        if (newer != NULL) {
            const struct chunk_span *older = walk->span;
            walk->span = newer;
            TRY(climb(walk, first_frame_address(walk, newer), &climbed));
            if (!climbed)
                walk->span = older;
        }
        if (!climbed)
            TRY(climb(walk, next, &climbed));
        if (climbed)
            next = walk->tracker->stack.frames[walk->count - 1].end;
    }
    return STATUS_OK;
}

/* Takes the innermost frame off again. */
static void drop(struct walk *walk) {
    size_t index = --walk->count;
    if (walk->top != index)
        return;
    walk_find_top(walk, index);
}

/* Whether the innermost frame is none that runs. One that is being set up would not be shown, and one from which a
 * generator was made looks like that for ever (RETURN_GENERATOR, Python/bytecodes.c 3.12). Up to 3.13 the
 * extent of its stack is saved when a frame enters another and when it returns, and is -1 while it runs: one that has
 * it saved has been popped when its instruction enters nothing. */
static bool is_leftover(const struct walk *walk) {
    const struct layout_frame *fields = &walk->layout->frame;
    const struct tracked_frame *frame = &walk->tracker->stack.frames[walk->count - 1];
    if (walk->top + 1 != walk->count)
        return frame->code == NULL;
    if (!frame->shown)
        return true;
    return walk->top_bytes != NULL && layout_has(fields->stacktop) &&
           walk_stacktop(walk, walk->top_bytes) != STACKTOP_RUNNING && !walk_top_step(walk).enters;
}

static void drop_leftovers(struct walk *walk) {
    while (walk->count > 0 && is_leftover(walk))
        drop(walk);
}

/* Whether a newer chunk that was not copied may have been pushed on top of the innermost frame. */
static bool may_have_newer(const struct walk *walk) {
    const struct chunk_copies *copies = &walk->tracker->copies;
    return chunk_copies_end(copies, walk->layout, walk->span) == walk->tracker->stack.frames[walk->top].end &&
           chunk_copies_newer(copies, walk->layout, walk->span) == NULL;
}

/* What runs above the chunk's innermost frame, if anything does. */
static enum status climb_outside(struct walk *walk) {
    if (walk->top != SIZE_MAX && may_have_newer(walk)) {
        TRY(walk_know_thread(walk));
        if (walk->thread->datastack_chunk != walk->span->address)
            return STATUS_TORN;
    }
    return outside_climb(walk);
}

/* Whether the copy itself shows that the chunk's innermost frame is the one that runs: what it runs is neither outside
 * of the chunk nor in a newer one. From 3.14 on a frame has no stack pointer exactly while its own instructions run
 * (_PyFrame_GetStackPointer, Include/internal/pycore_interpframe.h); before, only what its instruction can do tells. */
static bool is_innermost(const struct walk *walk) {
    const struct layout_frame *fields = &walk->layout->frame;
    if (walk->top == SIZE_MAX || walk->top + 1 != walk->count || walk->top_bytes == NULL ||
        walk->tracker->stack.frames[walk->top].instruction_bytes < 0 || may_have_newer(walk))
        return false;
    if (walk_top_step(walk).family == OPCODE_OTHER)
        return true;
    return !layout_has(fields->stacktop) && walk_is_running(walk, walk->top_bytes);
}

/* The frame that called one, itself or through C; NULL when there is none, or it need not be the one below. */
static const struct tracked_frame *caller_in_python(const struct tracked_frame *frames, size_t index) {
    for (size_t i = index, hops = 0; i-- > 0 && hops < 2; hops++)
        if (frames[i].code != NULL || frames[i].assumed)
            return frames[i].assumed ? NULL : &frames[i];
    return NULL;
}

/* Whether what is new can be believed (stack_tracker.h says when not). */
static bool check_paths(struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    const struct tracked_frame *frames = tracker->stack.frames;
    bool known = true;
    /* Much is known already: some of the looks, chosen at random, tell how often what is seen. */
    if (!tracker->slow && tracker->learned_looks >= SETTLED_LOOKS && walk_random(walk) > UINT32_MAX / 4)
        return true;
    tracker->learned_looks += tracker->learned_looks < SETTLED_LOOKS;
    for (size_t i = walk->same; i < walk->count; i++) {
        const struct tracked_frame *caller = i > 0 ? &frames[i - 1] : NULL;
        struct seen_call call = {.key = frames[i].call,
                                 .instruction_bytes = caller != NULL ? caller->instruction_bytes : 0};
        known = known && seen_calls_knows(walk_calls(walk), &call, true);
        if (tracker->slow || frames[i].assumed || (caller != NULL && caller->assumed))
            continue;
        seen_calls_note(walk_calls(walk), &call, true);
        const struct tracked_frame *site = caller_in_python(frames, i);
        if (site == NULL || frames[i].code == NULL)
            continue;
        if (site == caller) {
            call = describe_call(caller, &frames[i], true);
            seen_calls_note(walk_calls(walk), &call, true);
        }
        call = describe_site(site, &frames[i]);
        seen_calls_note(walk_calls(walk), &call, true);
    }
    return known || !tracker->slow;
}

enum status chunk_walk(struct stack_tracker *tracker, struct thread_state *thread, bool thread_known, bool may_retry,
                       size_t same) {
    const struct layout *layout = &tracker->runtime->layout;
    struct walk walk = {.tracker = tracker,
                        .layout = layout,
                        .thread = thread,
                        .thread_known = thread_known,
                        .same = same,
                        .count = same};
    walk_find_top(&walk, same);
    enum status status = climb_all(&walk);
    if (status == STATUS_OK) {
        drop_leftovers(&walk);
        if (!is_innermost(&walk))
            status = climb_outside(&walk);
        tracker->end_shown = is_innermost(&walk);
        tracker->chunk_alone = !walk.thread_known || tracker->end_shown || outside_is_unlikely(&walk);
        if (!walk.thread_known && walk.top != SIZE_MAX)
            thread->datastack_top = tracker->stack.frames[walk.top].end;
    }
    if (status == STATUS_OK && (walk.doubtful || (!check_paths(&walk) && may_retry)))
        status = STATUS_TORN;
    if (status != STATUS_OK) {
        /* Frames from `same` on were overwritten: what is left is what both looks agree on. */
        tracker->stack.count = tracker->stack.unchanged = walk.same;
        outside_predict_again(tracker);
        return status;
    }
    tracker->stack.count = walk.count;
    /* A frame that was there before can turn out to be one that is left over. */
    tracker->stack.unchanged = walk.same < walk.count ? walk.same : walk.count;
    return outside_predict(tracker, walk.same);
}
