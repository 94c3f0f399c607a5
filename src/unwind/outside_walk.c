#include "unwind/walk.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* A chain of generators longer than this is left to a look that follows every link. */
    MAX_OUTSIDE_HOPS = 256,
    /* One of so many looks asks the thread state what is known already. */
    CHECK_PERIOD = 16,
    IDLE_LOOKS = 32,
    /* Of frames outside of the chunks that may come back. Each costs as much as a look of which only the chunk is read.
     */
    MAX_SPARE = 6,
    BELIEVED_TIMES = 3,
    MAX_COUNTED = 1 << 10,
    FEW_UNCHANGED = 4,
};

static const struct outside_frame *find_outside(const struct stack_tracker *tracker, remote_addr address) {
    for (size_t i = 0; i < tracker->outside_count; i++)
        if (tracker->outside[i].place.address == address && tracker->outside[i].read)
            return &tracker->outside[i];
    return NULL;
}

/* What is to be read of a frame. */
static size_t predict_bytes(const struct stack_tracker *tracker, const struct tracked_frame *frame) {
    size_t size_bytes = frame_head_size(&tracker->runtime->layout);
    if (frame->code != NULL && frame->code->frame_bytes > size_bytes)
        size_bytes = frame->code->frame_bytes;
    return size_bytes < FRAME_HEAD_MAX_BYTES ? size_bytes : FRAME_HEAD_MAX_BYTES;
}

/* The place of a frame of a chunk among those that are read again, at the next look as well; NULL when there is no
 * memory. */
static struct again *runner_place(struct stack_tracker *tracker, const struct tracked_frame *runner) {
    size_t size_bytes = predict_bytes(tracker, runner);
    if (tracker->again == NULL && (tracker->again = malloc(TRACKER_MAX_AGAIN * sizeof tracker->again[0])) == NULL)
        return NULL;
    for (size_t i = 0; i < tracker->again_count; i++)
        if (tracker->again[i].address == runner->address && tracker->again[i].size_bytes >= size_bytes)
            return &tracker->again[i];
    if (tracker->again_count == TRACKER_MAX_AGAIN)
        tracker->again_count = 0;
    struct again *again = &tracker->again[tracker->again_count++];
    again->address = runner->address;
    again->size_bytes = size_bytes;
    again->read = false;
    return again;
}

/* Reads a frame outside of the chunk on its own, and the top after it. */
static enum status read_late(const struct walk *walk, struct outside_frame *own) {
    struct stack_tracker *tracker = walk->tracker;
    struct memory_piece pieces[2] = {{own->place.address, own->bytes, own->place.size_bytes}};
    struct again *again = walk->top != SIZE_MAX ? runner_place(tracker, &tracker->stack.frames[walk->top]) : NULL;
    if (again != NULL)
        pieces[1] = (struct memory_piece){again->address, again->bytes, again->size_bytes};
    TRY(memory_read_pieces(tracker->runtime->live, pieces, again != NULL ? 2 : 1));
    if (again != NULL)
        again->read = true;
    return STATUS_OK;
}

/* A frame outside of the chunk: read along with the copy, or on its own: *late is set. */
static enum status read_outside(const struct walk *walk, remote_addr address, struct frame *frame, uint64_t *executable,
                                bool *late) {
    struct stack_tracker *tracker = walk->tracker;
    struct outside_frame own = {.place = {.address = address, .size_bytes = sizeof own.bytes}, .read = true};
    const struct outside_frame *known = find_outside(tracker, address);
    const uint8_t *bytes = known != NULL ? known->bytes : own.bytes;
    if (known == NULL && read_late(walk, &own) != STATUS_OK) {
        own.place.size_bytes = frame_head_size(walk->layout);
        TRY(read_late(walk, &own));
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

static int32_t site_of(const struct walk *walk) {
    return walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].instruction_bytes : 0;
}

/* What stands in seen_calls for a call by the top so far. Without a callee one looks only for what is above the very
 * instruction, and what that is depends on whether the top has saved the extent of its stack. */
static uint32_t key_of(const struct walk *walk, const struct tracked_frame *callee) {
    uint32_t path = walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].path : 0;
    if (callee != NULL)
        return seen_calls_key(path, callee->code->serial);
    bool running = walk->top != SIZE_MAX && walk->top_bytes != NULL && walk_is_running(walk, walk->top_bytes);
    return seen_calls_key(seen_calls_key(path, SEEN_CALLS_NO_CALLEE - running), (uint32_t)site_of(walk));
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
    struct caller caller = {generator, outside->bytes, outside->place.size_bytes};
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
    struct caller caller = {top, walk->top_bytes, walk_top_size(walk)};
    return walk_called_word(walk, &caller, &called) && walk_find_function(walk, called) != NULL;
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

static remote_addr iterated_by_top(const struct walk *walk) {
    const struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    if (walk->top_bytes == NULL || top->instruction_bytes < 0)
        return 0;
    struct caller caller = {top, walk->top_bytes, walk_top_size(walk)};
    return iterated_frame(walk, &caller);
}

/* Whether the top can have run the first of the links. From 3.12 on there is a frame between where that is through C.
 */
static bool may_have_run(const struct walk *walk, size_t first) {
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
    remote_addr generator = iterated_by_top(walk);
    if (generator != 0 && generator != walk->tracker->stack.frames[first].address)
        return false;
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

/* The top as it was when the frames outside had been read; NULL when it was not read then. */
static const struct again *find_again(const struct walk *walk) {
    const struct stack_tracker *tracker = walk->tracker;
    remote_addr address = tracker->stack.frames[walk->top].address;
    for (size_t i = 0; i < tracker->again_count && walk->top_bytes != NULL; i++)
        if (tracker->again[i].read && tracker->again[i].address == address)
            return &tracker->again[i];
    return NULL;
}

/* Whether the top was where it had been when the frames outside had been read: else they may belong to what has taken
 * its place. */
static bool still_waits(const struct walk *walk) {
    const struct stack_tracker *tracker = walk->tracker;
    const struct layout_frame *fields = &walk->layout->frame;
    if (walk->top == SIZE_MAX || tracker->paused)
        return true;
    const struct again *again = find_again(walk);
    return again != NULL &&
           load_u64(again->bytes + fields->f_executable) == load_u64(walk->top_bytes + fields->f_executable) &&
           load_u64(again->bytes + fields->instr_ptr) == load_u64(walk->top_bytes + fields->instr_ptr) &&
           walk_is_running(walk, again->bytes) == walk_is_running(walk, walk->top_bytes);
}

static bool is_unchanged(const struct walk *walk) {
    const struct again *again = find_again(walk);
    if (again == NULL)
        return false;
    size_t size_bytes = walk_top_size(walk) < again->size_bytes ? walk_top_size(walk) : again->size_bytes;
    return memcmp(again->bytes, walk->top_bytes, size_bytes) == 0;
}

/* Whether, for all that is known, it is to be noted what was seen above a top that still waits. In between it may have
 * gone away and come back. What has not changed at all has hardly; but where looks are slow, hardly any top has not
 * changed at all. */
static bool is_noteworthy(const struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    if (!tracker->quick || tracker->paused)
        return false;
    if (walk->top == SIZE_MAX)
        return true;
    bool unchanged = is_unchanged(walk);
    tracker->waits++;
    tracker->waits_unchanged += unchanged;
    if (tracker->waits == MAX_COUNTED) {
        tracker->waits /= 2;
        tracker->waits_unchanged /= 2;
    }
    return unchanged || tracker->waits_unchanged * FEW_UNCHANGED < tracker->waits;
}

/* The same, read now. */
static bool waits_now(struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    if (walk->top == SIZE_MAX || tracker->paused)
        return true;
    struct again *again = runner_place(tracker, &tracker->stack.frames[walk->top]);
    if (again == NULL)
        return false;
    again->read = memory_read(tracker->runtime->live, again->address, again->bytes, again->size_bytes) == STATUS_OK;
    return still_waits(walk);
}

/* What is held of the frames outside between the top and this callee. */
static struct doubt *find_doubt(const struct walk *walk, const struct tracked_frame *callee) {
    struct stack_tracker *tracker = walk->tracker;
    uint32_t key = key_of(walk, callee);
    for (size_t i = 0; i < TRACKER_DOUBTS; i++)
        if (tracker->doubts[i].key == key)
            return &tracker->doubts[i];
    return NULL;
}

/* What is not known must be seen several times in a row: the thread may have come back to where it was meanwhile. */
static enum status check_often(const struct walk *walk, const struct tracked_frame *callee) {
    struct doubt *doubt = find_doubt(walk, callee);
    if (doubt == NULL) {
        doubt = &walk->tracker->doubts[walk->tracker->doubt_count++ % TRACKER_DOUBTS];
        *doubt = (struct doubt){.key = key_of(walk, callee)};
    }
    uint32_t path = seen_calls_key(walk->tracker->stack.frames[walk->count - 1].path, callee != NULL);
    doubt->times = doubt->path == path ? doubt->times + 1 : 1;
    doubt->path = path;
    return doubt->times >= BELIEVED_TIMES ? STATUS_OK : STATUS_TORN;
}

/* Whether the top had the outermost of the generators from `first` on among its variables or on its stack. That says
 * little where what is freed last is taken first, and the next generator has the address of the one before; mimalloc
 * does that seldom. */
static bool holds_generator(const struct walk *walk, size_t first) {
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

/* Whether the frames from `first` on are what the top ran. It may have gone round meanwhile and stand where it stood,
 * only with other values; but where they have called something the chunks say where the last of them is. A frame
 * of 3.13 and before says itself that it has called; those of 3.14 on, and all where generators are at other addresses
 * each time and mostly read late, must not have changed at all. */
static bool ran_them(const struct walk *walk, size_t first, bool late, bool has_callee) {
    const struct layout *layout = walk->layout;
    if (walk->top == SIZE_MAX || walk->tracker->paused)
        return true;
    bool tells = has_callee || !(layout->free_threaded || layout->tagged_refs);
    if (!(tells ? still_waits(walk) : is_unchanged(walk)))
        return false;
    return !late || (layout->free_threaded && holds_generator(walk, first));
}

/* Whether the frames from `first` on can be vouched for. STATUS_NOT_FOUND: not, and they are taken off again. */
static enum status judge_links(struct walk *walk, size_t first, bool late, const struct tracked_frame *callee) {
    struct stack_tracker *tracker = walk->tracker;
    struct call_link links[SEEN_CALLS_MAX_LINKS];
    struct seen_call call = describe(walk, first, callee, links);
    bool sure = ran_them(walk, first, late, callee != NULL),
         known = seen_calls_knows(walk_calls(walk), &call, callee != NULL);
    /* With a callee the chunks themselves say which frame called it. */
    if (sure && (callee != NULL ? !tracker->slow : is_noteworthy(walk)))
        seen_calls_note(walk_calls(walk), &call, callee != NULL);
    /* What runs by itself runs now. It need not have run then. */
    if ((known && (sure || callee != NULL)) || tracker->paused) {
        struct doubt *doubt = find_doubt(walk, callee);
        if (doubt != NULL)
            doubt->times = 0;
        return STATUS_OK;
    }
    enum status status = STATUS_NOT_FOUND;
    /* Below the outermost frame of a chunk nothing comes and goes while that is there. What is too much to be read
     * along or never twice at one address is mostly late. */
    if (sure ? !late || walk->top == SIZE_MAX : callee != NULL && tracker->insistent && still_waits(walk))
        status = check_often(walk, callee);
    else if (seen_calls_recall_at(walk_calls(walk), call.key, call.instruction_bytes, false, 0) == NULL)
        status = STATUS_TORN;
    if (status == STATUS_TORN) {
        /* So that the next attempt can find all that is to be seen again, the walk goes on. */
        if (walk->top != SIZE_MAX)
            (void)runner_place(tracker, &tracker->stack.frames[walk->top]);
        walk->doubtful = true;
        return STATUS_OK;
    }
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
    enum status status = put_outside(walk, address, &late);
    if (callee == NULL)
        walk->tracker->outside_late = late;
    TRY(status);
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

/* Where the frame of the generator is that the innermost frame so far runs, a generator itself. */
static remote_addr iterated_by_last(const struct walk *walk) {
    const struct tracked_frame *last = &walk->tracker->stack.frames[walk->count - 1];
    const struct outside_frame *outside = last->code != NULL ? find_outside(walk->tracker, last->address) : NULL;
    struct caller caller = {last, outside != NULL ? outside->bytes : NULL,
                            outside != NULL ? outside->place.size_bytes : 0};
    return outside != NULL ? iterated_frame(walk, &caller) : 0;
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
    status = status == STATUS_OK ? judge_links(walk, first, late, NULL) : STATUS_NOT_FOUND;
    if (status != STATUS_NOT_FOUND)
        return status;
    walk->count = first;
    const struct seen_call *seen =
        seen_calls_recall_at(walk_calls(walk), key_of(walk, NULL), site_of(walk), true, walk_random(walk));
    return seen != NULL ? put_seen(walk, seen) : STATUS_NOT_FOUND;
}

/* Whether a generator has been left: up to 3.13 the extent of its stack is saved then, and when it enters another
 * frame. In 3.11 it still says who resumed it last (YIELD_VALUE, Python/ceval.c). */
static bool is_suspended(const struct walk *walk, const struct tracked_frame *generator, const uint8_t *bytes) {
    return layout_has(walk->layout->frame.stacktop) && generator->code != NULL && !walk_is_running(walk, bytes) &&
           !code_cache_step(walk->tracker->codes, generator->code, generator->instruction_bytes).enters;
}

/* The frame outside of the chunks that was read along and was called by the innermost frame so far. */
static enum status put_read_along(struct walk *walk) {
    const struct stack_tracker *tracker = walk->tracker;
    remote_addr below = walk->count > 0 ? tracker->stack.frames[walk->count - 1].address : 0;
    for (size_t i = 0; i < tracker->outside_count; i++) {
        const struct outside_frame *outside = &tracker->outside[i];
        struct frame frame;
        struct tracked_frame tracked;
        if (!outside->read || frame_decode(walk->layout, outside->place.address, outside->bytes, &frame) != STATUS_OK ||
            frame.previous != below || (!frame.boundary && frame.owner != FRAME_OWNED_BY_GENERATOR))
            continue;
        uint64_t executable = load_u64(outside->bytes + walk->layout->frame.f_executable);
        enum status status = walk_resolve(walk, &frame, executable, &tracked);
        if (status != STATUS_TORN && !is_suspended(walk, &tracked, outside->bytes))
            return status == STATUS_OK ? walk_put(walk, &tracked, NULL) : status;
    }
    return STATUS_NOT_FOUND;
}

/* The frames from `first` on, read along, of which the last waits for one that has ended since. What that was is
 * recalled. */
static enum status prolong(struct walk *walk, size_t first) {
    struct call_link links[SEEN_CALLS_MAX_LINKS];
    struct seen_call call = describe(walk, first, NULL, links);
    const struct seen_call *seen = seen_calls_recall_longer(walk_calls(walk), &call, walk_random(walk));
    bool sure = still_waits(walk);
    walk->count = first;
    if (seen == NULL)
        return STATUS_NOT_FOUND;
    TRY(put_seen(walk, seen));
    if (sure && is_noteworthy(walk))
        seen_calls_note(walk_calls(walk), seen, false);
    return STATUS_OK;
}

/* What was read along of the frames that run above the top. They were read before the thread state was. */
static enum status climb_read_along(struct walk *walk) {
    size_t first = walk->count;
    enum status status = STATUS_OK;
    for (size_t hops = 0; hops < TRACKER_MAX_OUTSIDE && status == STATUS_OK; hops++)
        status = put_read_along(walk);
    if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
        return status;
    /* What the interpreter has on the C stack stays there when it has returned. */
    while (walk->count > first && walk->tracker->stack.frames[walk->count - 1].code == NULL)
        walk->count--;
    if (walk->count == first)
        return STATUS_NOT_FOUND;
    if (!may_have_run(walk, first) || !may_have_led(walk, first)) {
        walk->count = first;
        return STATUS_NOT_FOUND;
    }
    remote_addr generator = iterated_by_last(walk);
    if (generator == 0)
        return judge_links(walk, first, false, NULL);
    /* It is to be read along. */
    struct frame frame;
    bool late = false;
    (void)read_outside(walk, generator, &frame, &(uint64_t){0}, &late);
    return prolong(walk, first);
}

/* The generator with this frame ran when the thread state was read, and has been left since. If the top held it, the
 * top ran it; the interpreter does that through C unless the top has saved the extent of its stack. */
static enum status recognize(struct walk *walk, remote_addr address) {
    const struct tracked_frame entry = {.instruction_bytes = -1, .assumed = true};
    size_t first = walk->count;
    struct frame frame;
    struct tracked_frame tracked;
    uint64_t executable = 0;
    bool late = false;
    if (walk->top == SIZE_MAX || walk->top_bytes == NULL ||
        read_outside(walk, address, &frame, &executable, &late) != STATUS_OK ||
        frame.owner != FRAME_OWNED_BY_GENERATOR || frame.boundary ||
        walk_resolve(walk, &frame, executable, &tracked) != STATUS_OK)
        return STATUS_NOT_FOUND;
    if (walk_is_running(walk, walk->top_bytes) || !walk_top_step(walk).enters)
        TRY(walk_put(walk, &entry, NULL));
    TRY(walk_put(walk, &tracked, NULL));
    if (holds_generator(walk, first) && may_have_run(walk, first))
        return judge_links(walk, first, late, NULL);
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
    bool alone = runs_alone(walk), same = still_waits(walk);
    /* What never seems to run others need not be asked. */
    bool sure = seen == NULL ? alone : same && (!tracker->outside_late || waits_now(walk));
    if (tracker->paused)
        return STATUS_OK;
    if (sure && (seen != NULL ? is_noteworthy(walk) : !tracker->slow))
        seen_calls_note(walk_calls(walk), call, false);
    if (sure || (same && alone))
        return STATUS_OK;
    (void)runner_place(tracker, &tracker->stack.frames[walk->top]);
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
    bool outside = innermost != 0 && !walk_in_chunk(walk, innermost), known = find_outside(tracker, innermost) != NULL;
    if (outside && (!known || tracker->paused)) {
        status = link_found(walk, innermost, NULL, NULL);
        return status == STATUS_NOT_FOUND && !tracker->paused ? recognize(walk, innermost) : status;
    }
    if (outside && !walk->layout->free_threaded)
        tracker->outside_late = false;
    bool complete = tracker->outside_count > 0 && !tracker->outside_late && !walk->layout->free_threaded;
    return runs_alone(walk) || (complete && walk->top != SIZE_MAX) ? judge_top(walk, call) : STATUS_NOT_FOUND;
}

bool outside_is_unlikely(const struct walk *walk) {
    if (walk->top == SIZE_MAX || walk->top + 1 != walk->count)
        return false;
    struct seen_call call = {.key = key_of(walk, NULL), .instruction_bytes = site_of(walk)};
    return seen_calls_is_plain(walk_calls(walk), &call);
}

enum status outside_climb(struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    struct seen_call call = {.key = key_of(walk, NULL), .instruction_bytes = site_of(walk)};
    if (!walk->thread_known && !tracker->paused && seen_calls_is_plain(walk_calls(walk), &call) &&
        (walk_random(walk) >> 16) % CHECK_PERIOD != 0)
        return STATUS_OK;
    remote_addr generator = walk->top != SIZE_MAX && !tracker->paused ? iterated_by_top(walk) : 0;
    enum status status = generator != 0 ? climb_generators(walk, generator) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND)
        status = climb_unknown(walk, &call);
    if (status != STATUS_NOT_FOUND)
        return status;
    /* The thread has gone on since the chunks were copied. Where generators are at other addresses each time, it is
     * noted too seldom that they run: what leads to them goes first, unless the top ran alone. */
    bool linked = walk->layout->free_threaded && !runs_alone(walk);
    const struct seen_call *seen =
        seen_calls_recall_at(walk_calls(walk), call.key, call.instruction_bytes, linked, walk_random(walk));
    if (seen != NULL)
        return put_seen(walk, seen);
    return may_run_generator(walk) ? STATUS_TORN : STATUS_OK;
}

/* The frame of a chunk that runs the frames outside at `index`. */
static void predict_again(struct stack_tracker *tracker, size_t index) {
    const struct tracked_frame *frames = tracker->stack.frames;
    while (index > 0 && frames[index].end == 0)
        index--;
    if (frames[index].end != 0 && tracker->again_count < TRACKER_MAX_AGAIN)
        (void)runner_place(tracker, &frames[index]);
}

/* What was read along at one of the last looks and is not on the stack now: generators come and go, and mostly come
 * back to the same addresses. Those that could not be read along are as good, save where addresses are not used again
 * soon. */
static size_t list_spare(const struct stack_tracker *tracker, struct outside_frame_place *places, size_t count) {
    size_t listed = tracker->runtime->layout.free_threaded ? tracker->outside_planned : tracker->outside_count;
    size_t on_stack = count;
    for (size_t i = 0; i < listed && count < MAX_SPARE; i++) {
        const struct outside_frame_place *place = &tracker->outside[i].place;
        bool is_listed = place->idle_looks >= IDLE_LOOKS;
        for (size_t k = 0; k < on_stack && !is_listed; k++)
            is_listed = places[k].address == place->address;
        if (is_listed)
            continue;
        places[count] = *place;
        places[count++].idle_looks++;
    }
    return count;
}

enum status outside_predict(struct stack_tracker *tracker, size_t same) {
    const struct tracked_stack *stack = &tracker->stack;
    struct outside_frame_place places[TRACKER_MAX_OUTSIDE];
    size_t count = 0;
    for (size_t i = 0; i < tracker->again_count; i++)
        tracker->again[i].read = false;
    for (size_t i = stack->count; i-- > same && count < TRACKER_MAX_OUTSIDE;)
        if (stack->frames[i].end == 0 && !stack->frames[i].assumed)
            places[count++] = (struct outside_frame_place){.address = stack->frames[i].address,
                                                           .size_bytes = predict_bytes(tracker, &stack->frames[i])};
    if (count > 0)
        tracker->again_count = 0;
    for (size_t i = same; i < stack->count; i++)
        if (count > 0 && stack->frames[i].end == 0 && !stack->frames[i].assumed)
            predict_again(tracker, i);
    count = list_spare(tracker, places, count);
    tracker->outside_count = 0;
    for (size_t i = 0; i < count; i++)
        TRY(stack_tracker_add_outside(tracker, &(struct outside_frame){.place = places[i]}));
    tracker->outside_planned = count;
    if (count == 0)
        tracker->again_count = 0;
    return STATUS_OK;
}
