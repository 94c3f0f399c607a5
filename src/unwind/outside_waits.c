#include "unwind/outside.h"

enum {
    /* At each look: after some tens all of them are known. */
    NOTED_PARTS = 4,
};

enum wait { WAIT_UNKNOWN, WAIT_NONE, WAIT_CERTAIN };

/* Whether the frame at `index` awaits the next. */
static enum wait awaits_next(const struct walk *walk, size_t index) {
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    const struct outside_frame *outside = outside_find(walk->tracker, frames[index].address);
    if (frames[index].code == NULL || frames[index + 1].code == NULL || outside == NULL)
        return WAIT_UNKNOWN;
    /* 3.11 resumes through C, and leaves the extent of the stack unsaved (SEND, Python/ceval.c). */
    struct code_step step = code_cache_step(walk->tracker->codes, frames[index].code, frames[index].instruction_bytes);
    if (step.family == OPCODE_RESUMES_GENERATOR && layout_has(walk->layout->frame.is_entry))
        return walk_is_running(walk, outside->bytes) ? WAIT_CERTAIN : WAIT_NONE;
    struct caller caller = {&frames[index], outside->bytes, outside->place.size_bytes};
    remote_addr awaited = outside_iterated(walk, &caller);
    /* 0: it lies beyond what was read. */
    if (awaited == 0)
        return WAIT_UNKNOWN;
    return awaited == frames[index + 1].address ? WAIT_CERTAIN : WAIT_NONE;
}

bool outside_is_long_wait(const struct walk *walk, size_t first) {
    size_t certain = 0;
    if (walk->top == SIZE_MAX || walk->tracker->paused)
        return false;
    for (size_t i = first; i + 1 < walk->count; i++) {
        enum wait wait = awaits_next(walk, i);
        if (wait == WAIT_NONE)
            return false;
        certain += wait == WAIT_CERTAIN;
    }
    /* To read so many takes longer than most of what they wait for. */
    return certain + 1 >= SEEN_CALLS_LONG_LINKS;
}

/* Notes what leads to some of the frames from `first` on. */
static void note_parts(struct walk *walk, size_t first) {
    const size_t count = walk->count;
    for (size_t i = 0; i < NOTED_PARTS; i++) {
        size_t last = first + 1 + walk_random(walk) % (count - first - 1);
        const struct tracked_frame *led = &walk->tracker->stack.frames[last];
        struct call_link links[SEEN_CALLS_MAX_LINKS];
        if (led->code == NULL)
            continue;
        walk->count = last;
        struct seen_call call = outside_describe(walk, first, led, links);
        walk->count = count;
        seen_calls_note(walk_calls(walk), &call, true);
    }
}

/* Stands for all that the top runs from where it is. */
static struct seen_call describe_any(const struct walk *walk) {
    uint32_t path = walk->tracker->stack.frames[walk->top].path;
    return (struct seen_call){.key = seen_calls_key(path, SEEN_CALLS_ANY_WAIT),
                              .instruction_bytes = outside_site(walk)};
}

bool outside_runs_waits(const struct walk *walk) {
    if (walk->top == SIZE_MAX || walk->tracker->paused)
        return false;
    struct seen_call any = describe_any(walk);
    return seen_calls_knows(walk_calls(walk), &any, false);
}

void outside_note_any_wait(struct walk *walk) {
    if (walk->top == SIZE_MAX || walk->tracker->paused)
        return;
    struct seen_call any = describe_any(walk);
    seen_calls_note(walk_calls(walk), &any, false);
}

void outside_note_wait(struct walk *walk, size_t first, const struct seen_call *call,
                       const struct tracked_frame *callee) {
    seen_calls_note(walk_calls(walk), call, callee != NULL);
    outside_note_any_wait(walk);
    note_parts(walk, first);
}

enum status outside_put_led(struct walk *walk, remote_addr address) {
    struct frame frame;
    struct tracked_frame tracked;
    uint64_t executable = 0;
    bool late = false;
    if (walk->top == SIZE_MAX || walk->tracker->paused ||
        outside_read(walk, address, &frame, &executable, &late) != STATUS_OK ||
        frame.owner != FRAME_OWNED_BY_GENERATOR || frame.boundary || frame.previous == 0 ||
        walk_resolve(walk, &frame, executable, &tracked) != STATUS_OK ||
        outside_is_suspended(walk, &tracked, outside_find(walk->tracker, address)))
        return STATUS_NOT_FOUND;
    const struct seen_call *call = seen_calls_recall_at(walk_calls(walk), outside_key(walk, &tracked),
                                                        outside_site(walk), true, walk_random(walk));
    const size_t first = walk->count;
    TRY(outside_put_seen(walk, call, &tracked));
    tracked.assumed = true;
    TRY(walk_put(walk, &tracked, NULL));
    struct call_link links[SEEN_CALLS_MAX_LINKS];
    struct seen_call found = outside_describe(walk, first, NULL, links);
    seen_calls_note(walk_calls(walk), &found, false);
    return STATUS_OK;
}
