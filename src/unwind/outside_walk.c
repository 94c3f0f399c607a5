#include "unwind/outside.h"

enum {
    /* A chain of generators longer than this is left to a look that follows every link. */
    MAX_OUTSIDE_HOPS = 256,
    /* One of so many looks asks the thread state what is known already. */
    CHECK_PERIOD = 16,
    /* So many that lead on are more than a generator or two, although they end before all are read. */
    MANY_HOPS = 3,
};

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
        if (hops == MANY_HOPS)
            outside_note_any_wait(walk);
        enum status status = outside_read(walk, address, &frame, &executable, late);
        if (status == STATUS_OK)
            status = walk_resolve(walk, &frame, executable, &tracked);
        const struct outside_frame *outside = outside_find(tracker, address);
        if (status == STATUS_OK && outside != NULL && tracked.code != NULL)
            walk_remember_function(walk, outside->bytes);
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

enum status outside_put_seen(struct walk *walk, const struct seen_call *call, const struct tracked_frame *callee) {
    if (call == NULL || (call->link_count < SEEN_CALLS_LONG_LINKS && outside_is_strange(walk, call, callee)))
        return STATUS_NOT_FOUND;
    if (walk->top != SIZE_MAX && call->instruction_bytes != outside_site(walk))
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

/* Links as they are found in memory from the innermost on. STATUS_NOT_FOUND: they lead elsewhere, or cannot be vouched
 * for. */
static enum status link_found(struct walk *walk, remote_addr address, const struct tracked_frame *callee,
                              const uint8_t *bytes) {
    size_t first = walk->count;
    bool late = false;
    enum status status = put_outside(walk, address, &late);
    if (callee == NULL)
        walk->tracker->outside_late = late;
    TRY(status);
    if (walk->count > first && outside_may_have_run(walk, first) && outside_may_have_led(walk, first) &&
        (callee == NULL || outside_may_have_called(walk, callee, bytes)))
        return outside_judge(walk, first, late, callee);
    walk->count = first;
    return STATUS_NOT_FOUND;
}

enum status outside_link(struct walk *walk, remote_addr address, const struct tracked_frame *callee,
                         const uint8_t *bytes) {
    enum status status = link_found(walk, address, callee, bytes);
    if (status != STATUS_NOT_FOUND)
        return status;
    const struct seen_call *call =
        seen_calls_recall(walk_calls(walk), outside_key(walk, callee), outside_site(walk), true, walk_random(walk));
    status = outside_put_seen(walk, call, callee);
    return status == STATUS_NOT_FOUND ? STATUS_TORN : status;
}

/* Whether the chunk's innermost frame may be running a generator: what it runs is then not in the chunk. */
static bool may_run_generator(const struct walk *walk) {
    if (walk->top == SIZE_MAX || walk->top + 1 != walk->count || walk->top_bytes == NULL)
        return false;
    struct code_step step = walk_top_step(walk);
    return (step.family == OPCODE_RESUMES_GENERATOR || step.family == OPCODE_HIDDEN) &&
           !walk_is_running(walk, walk->top_bytes);
}

/* Where the frame of the generator is that the innermost frame so far runs, a generator itself. */
static remote_addr iterated_by_last(const struct walk *walk) {
    const struct tracked_frame *last = &walk->tracker->stack.frames[walk->count - 1];
    const struct outside_frame *outside = last->code != NULL ? outside_find(walk->tracker, last->address) : NULL;
    struct caller caller = {last, outside != NULL ? outside->bytes : NULL,
                            outside != NULL ? outside->place.size_bytes : 0};
    return outside != NULL ? outside_iterated(walk, &caller) : 0;
}

/* Adds the generator whose frame is at *address, if there is one and the innermost frame so far runs it. Then *address
 * is where that of the generator is that this one runs, if it does. */
static enum status put_generator(struct walk *walk, remote_addr *address, bool *late) {
    struct frame frame;
    struct tracked_frame tracked;
    uint64_t executable = 0;
    remote_addr below = walk->tracker->stack.frames[walk->count - 1].address;
    if (outside_read(walk, *address, &frame, &executable, late) != STATUS_OK ||
        frame.owner != FRAME_OWNED_BY_GENERATOR || frame.previous != below)
        return STATUS_NOT_FOUND;
    TRY(walk_resolve(walk, &frame, executable, &tracked));
    TRY(walk_put(walk, &tracked, NULL));
    *address = iterated_by_last(walk);
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
    walk->tracker->outside_late = late;
    status = status == STATUS_OK ? outside_judge(walk, first, late, NULL) : STATUS_NOT_FOUND;
    if (status != STATUS_NOT_FOUND)
        return status;
    walk->count = first;
    const struct seen_call *seen =
        seen_calls_recall_at(walk_calls(walk), outside_key(walk, NULL), outside_site(walk), true, walk_random(walk));
    return outside_put_seen(walk, seen, NULL);
}

/* The frame outside of the chunks that was read along and was called by the innermost frame so far. */
static enum status put_read_along(struct walk *walk, bool *late) {
    struct stack_tracker *tracker = walk->tracker;
    remote_addr below = walk->count > 0 ? tracker->stack.frames[walk->count - 1].address : 0;
    for (size_t i = 0; i < tracker->outside_count; i++) {
        struct outside_frame *outside = &tracker->outside[i];
        struct frame frame;
        struct tracked_frame tracked;
        if (!outside->read || frame_decode(walk->layout, outside->place.address, outside->bytes, &frame) != STATUS_OK ||
            frame.previous != below || (!frame.boundary && frame.owner != FRAME_OWNED_BY_GENERATOR))
            continue;
        uint64_t executable = load_u64(outside->bytes + walk->layout->frame.f_executable);
        enum status status = walk_resolve(walk, &frame, executable, &tracked);
        if (status == STATUS_TORN || outside_is_suspended(walk, &tracked, outside))
            continue;
        outside->met = true;
        *late = *late || i >= tracker->outside_likely;
        return status == STATUS_OK ? walk_put(walk, &tracked, NULL) : status;
    }
    return STATUS_NOT_FOUND;
}

/* The frames from `first` on, read along, of which the last waits for one that has ended since. What that was is
 * recalled. */
static enum status prolong(struct walk *walk, size_t first) {
    struct call_link links[SEEN_CALLS_MAX_LINKS];
    struct seen_call call = outside_describe(walk, first, NULL, links);
    const struct seen_call *seen = seen_calls_recall_longer(walk_calls(walk), &call, walk_random(walk));
    bool sure = outside_still_waits(walk);
    walk->count = first;
    TRY(outside_put_seen(walk, seen, NULL));
    if (sure && outside_is_noteworthy(walk))
        seen_calls_note(walk_calls(walk), seen, false);
    return STATUS_OK;
}

/* What was read along of the frames that run above the top. They were read before the thread state was. */
static enum status climb_read_along(struct walk *walk) {
    size_t first = walk->count;
    bool late = false;
    enum status status = STATUS_OK;
    for (size_t hops = 0; hops < TRACKER_MAX_OUTSIDE && status == STATUS_OK; hops++)
        status = put_read_along(walk, &late);
    if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
        return status;
    /* What the interpreter has on the C stack stays there when it has returned. */
    while (walk->count > first && walk->tracker->stack.frames[walk->count - 1].code == NULL)
        walk->count--;
    if (walk->count == first)
        return STATUS_NOT_FOUND;
    if (!outside_may_have_run(walk, first) || !outside_may_have_led(walk, first)) {
        walk->count = first;
        return STATUS_NOT_FOUND;
    }
    remote_addr generator = iterated_by_last(walk);
    if (generator == 0)
        return outside_judge(walk, first, late, NULL);
    /* It is to be read along. */
    struct frame frame;
    (void)!outside_read(walk, generator, &frame, &(uint64_t){0}, &late);
    return prolong(walk, first);
}

/* The generator with this frame ran when the thread state was read, and has been left since. If the top held it, the
 * top ran it; the interpreter does that through C unless the top has saved the extent of its stack. It must hold it
 * still when that is read: without a GIL another is at its address soon. */
static enum status recognize(struct walk *walk, remote_addr address) {
    const struct tracked_frame entry = {.instruction_bytes = -1, .assumed = true};
    size_t first = walk->count;
    struct frame frame;
    struct tracked_frame tracked;
    uint64_t executable = 0;
    bool late = false;
    if (walk->top == SIZE_MAX || walk->top_bytes == NULL ||
        (walk->layout->free_threaded && !outside_read_between(walk, address)) ||
        outside_read(walk, address, &frame, &executable, &late) != STATUS_OK ||
        frame.owner != FRAME_OWNED_BY_GENERATOR || frame.boundary ||
        walk_resolve(walk, &frame, executable, &tracked) != STATUS_OK)
        return STATUS_NOT_FOUND;
    if (walk_is_running(walk, walk->top_bytes) || !walk_top_step(walk).enters)
        TRY(walk_put(walk, &entry, NULL));
    TRY(walk_put(walk, &tracked, NULL));
    if (outside_holds_generator(walk, first) && outside_may_have_run(walk, first))
        return outside_judge(walk, first, late, NULL);
    walk->count = first;
    return STATUS_NOT_FOUND;
}

/* Whether the top was the innermost frame when the thread state was read. */
static bool runs_alone(const struct walk *walk) {
    return walk->top != SIZE_MAX && walk->thread->frame == walk->tracker->stack.frames[walk->top].address;
}

/* Nothing was seen to run above the top. */
static enum status judge_top(struct walk *walk, const struct seen_call *call) {
    struct stack_tracker *tracker = walk->tracker;
    const struct seen_call *seen = seen_calls_recall_at(walk_calls(walk), call->key, call->instruction_bytes, true, 0);
    bool alone = runs_alone(walk), same = outside_still_waits(walk);
    /* What never seems to run others need not be asked. */
    bool sure = seen == NULL ? alone : same && (!tracker->outside_late || outside_waits_now(walk));
    if (tracker->paused)
        return STATUS_OK;
    if (sure && (seen != NULL ? outside_is_noteworthy(walk) : !tracker->slow))
        seen_calls_note(walk_calls(walk), call, false);
    if (sure || (same && alone))
        return STATUS_OK;
    (void)outside_runner_place(tracker, &tracker->stack.frames[walk->top]);
    return STATUS_NOT_FOUND;
}

/* What runs above the top, which does not show what that is. */
static enum status climb_unknown(struct walk *walk, const struct seen_call *call) {
    struct stack_tracker *tracker = walk->tracker;
    TRY(walk_know_thread(walk));
    enum status status = tracker->paused ? STATUS_NOT_FOUND : climb_read_along(walk);
    if (status != STATUS_NOT_FOUND)
        return status;
    remote_addr innermost = walk->thread->frame;
    bool outside = innermost != 0 && !walk_in_chunk(walk, innermost), known = outside_find(tracker, innermost) != NULL;
    if (outside && (!known || tracker->paused)) {
        status = link_found(walk, innermost, NULL, NULL);
        if (status == STATUS_NOT_FOUND)
            status = outside_put_led(walk, innermost);
        return status == STATUS_NOT_FOUND && !tracker->paused ? recognize(walk, innermost) : status;
    }
    if (outside && !walk->layout->free_threaded)
        tracker->outside_late = false;
    bool complete = tracker->outside_count > 0 && !tracker->outside_late && !walk->layout->free_threaded;
    return runs_alone(walk) || (complete && walk->top != SIZE_MAX) ? judge_top(walk, call) : STATUS_NOT_FOUND;
}

/* Whether the top was seen often enough, and never to run anything from where it is. */
static bool is_plain(const struct walk *walk, const struct seen_call *call) {
    return walk->top != SIZE_MAX && seen_calls_is_plain(walk_calls(walk), call) && !outside_runs_waits(walk);
}

bool outside_is_unlikely(const struct walk *walk) {
    if (walk->top == SIZE_MAX || walk->top + 1 != walk->count)
        return false;
    struct seen_call call = {.key = outside_key(walk, NULL), .instruction_bytes = outside_site(walk)};
    return is_plain(walk, &call);
}

enum status outside_climb(struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    struct seen_call call = {.key = outside_key(walk, NULL), .instruction_bytes = outside_site(walk)};
    if (!walk->thread_known && !tracker->paused && is_plain(walk, &call) &&
        (walk_random(walk) >> 16) % CHECK_PERIOD != 0)
        return STATUS_OK;
    remote_addr generator = walk->top != SIZE_MAX && !tracker->paused ? outside_iterated_by_top(walk) : 0;
    enum status status = generator != 0 ? climb_generators(walk, generator) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND)
        status = climb_unknown(walk, &call);
    if (status != STATUS_NOT_FOUND)
        return status;
    /* The thread has gone on since the chunks were copied. Where generators are at other addresses each time, it is
     * noted too seldom that they run: what leads to them goes first, unless the top ran alone. */
    bool alone = runs_alone(walk), waits = !alone && outside_runs_waits(walk);
    bool linked = (walk->layout->free_threaded || outside_is_elsewhere(tracker) || waits) && !alone;
    const struct seen_call *seen =
        seen_calls_recall_at(walk_calls(walk), call.key, call.instruction_bytes, linked, walk_random(walk));
    status = outside_put_seen(walk, seen, NULL);
    if (status != STATUS_NOT_FOUND)
        return status;
    return waits || may_run_generator(walk) ? STATUS_TORN : STATUS_OK;
}
