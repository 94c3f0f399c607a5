#include "unwind/chunk_walk.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORD_BYTES = 8,
    /* A chain of generators longer than this is left to a look that follows every link. */
    MAX_OUTSIDE_HOPS = 256,
    STACKTOP_RUNNING = -1,
    /* How often a path must have been seen lately to be believed. */
    TRUSTED_TIMES = 2,
    MAX_TIMES = 8,
    PATHS_PERIOD_LOOKS = 4096,
};

/* One walk. `top` is the index of the innermost frame in the chunk so far, SIZE_MAX when there is none. */
struct walk {
    struct stack_tracker *tracker;
    const struct layout *layout;
    struct thread_state *thread;
    bool thread_known; /* *thread was read along with the copy, or since */
    size_t count;
    size_t top;
    const uint8_t *top_bytes;      /* that frame in the copy */
    const struct chunk_span *span; /* where the next frame is looked for */
};

static remote_addr first_frame_address(const struct walk *walk, const struct chunk_span *span) {
    /* The first chunk of a thread leaves its first word free (push_chunk, Python/pystate.c 3.11). */
    bool is_first = span == walk->tracker->copies.spans;
    return span->address + walk->layout->stack_chunk.data + (is_first ? WORD_BYTES : 0);
}

static bool in_chunk(const struct walk *walk, remote_addr address) {
    const struct thread_state *thread = walk->thread;
    return address - thread->datastack_chunk < thread->datastack_limit - thread->datastack_chunk ||
           chunk_copies_find(&walk->tracker->copies, address) != NULL;
}

/* The bytes of a frame of the span in the copy; NULL when they are not (all) in it. */
static const uint8_t *bytes_at(const struct walk *walk, remote_addr address) {
    size_t head_bytes = frame_head_size(walk->layout);
    uint64_t offset = address - walk->span->address;
    if (offset >= walk->span->size_bytes || walk->span->size_bytes - offset < head_bytes)
        return NULL;
    return walk->tracker->copies.now + walk->span->offset + offset;
}

/* The innermost frame in the chunks below index `count` is the top. */
static void find_top(struct walk *walk, size_t count) {
    const struct stack_tracker *tracker = walk->tracker;
    walk->top = SIZE_MAX;
    walk->top_bytes = NULL;
    walk->span = tracker->copies.spans;
    for (size_t i = count; i-- > 0;)
        if (tracker->stack.frames[i].end != 0) {
            walk->top = i;
            walk->span = chunk_copies_find(&tracker->copies, tracker->stack.frames[i].address);
            walk->top_bytes = bytes_at(walk, tracker->stack.frames[i].address);
            return;
        }
}

static int32_t stacktop_of(const struct walk *walk, const uint8_t *bytes) {
    return load_i32(bytes + walk->layout->frame.stacktop);
}

/* A frame that is being or has been popped: its variables have been given back, and with them the extent of its stack;
 * from 3.14 on its function, too (clear_thread_frame, Python/ceval.c; _PyFrame_ClearLocals, Python/frame.c). */
static bool is_cleared(const struct walk *walk, const struct tracked_frame *tracked, const uint8_t *bytes) {
    const struct layout_frame *fields = &walk->layout->frame;
    uint32_t nlocalsplus = tracked->code->nlocalsplus;
    if (layout_has(fields->stacktop)) {
        int32_t stacktop = stacktop_of(walk, bytes);
        return stacktop != STACKTOP_RUNNING && (stacktop < 0 || (uint32_t)stacktop < nlocalsplus);
    }
    uint64_t stackpointer = load_u64(bytes + fields->stackpointer);
    remote_addr base = tracked->address + fields->localsplus + (uint64_t)nlocalsplus * WORD_BYTES;
    if (stackpointer != 0 && stackpointer < base)
        return true;
    /* Shims have no function, but they are not shown either. */
    return tracked->shown && frame_untag(walk->layout, load_u64(bytes + fields->f_funcobj)) == 0;
}

/* The code that this frame had at the last look, which is mostly the one it has now. */
static bool known_code(const struct walk *walk, const struct frame *frame, uint64_t executable,
                       const struct code **code) {
    const struct stack_tracker *tracker = walk->tracker;
    if (walk->count >= tracker->stack.count)
        return false;
    const struct tracked_frame *last = &tracker->stack.frames[walk->count];
    if (last->executable != executable || last->address != frame->address || last->code == NULL ||
        !code_cache_vouches(tracker->codes, last->code))
        return false;
    *code = last->code;
    return true;
}

/* Fills in what a frame executes. STATUS_TORN when it cannot be executing that. */
static enum status resolve(const struct walk *walk, const struct frame *frame, uint64_t executable,
                           struct tracked_frame *tracked) {
    struct stack_tracker *tracker = walk->tracker;
    remote_addr start = 0;
    *tracked = (struct tracked_frame){.address = frame->address,
                                      .executable = executable,
                                      .instruction = frame->instruction,
                                      .instruction_bytes = -1};
    if (frame->boundary)
        return STATUS_OK;
    if (!known_code(walk, frame, executable, &tracked->code))
        TRY(code_cache_get(tracker->codes, frame->code, &tracked->code));
    TRY(code_bytecode_start(tracker->runtime, tracked->code, frame->tlbc_index, &start));
    int64_t offset = (int64_t)(frame->instruction - start);
    if (offset < -2 || offset > (int64_t)tracked->code->bytecode_bytes)
        return STATUS_TORN;
    tracked->instruction_bytes = offset < 0 ? -1 : (int32_t)offset;
    tracked->shown =
        frame->owner == FRAME_OWNED_BY_GENERATOR || offset >= (int64_t)tracked->code->first_traceable_bytes;
    return STATUS_OK;
}

static enum status put(struct walk *walk, const struct tracked_frame *tracked, const uint8_t *bytes) {
    TRY(tracked_stack_put(&walk->tracker->stack, walk->count, tracked));
    if (tracked->end != 0) {
        walk->top = walk->count;
        walk->top_bytes = bytes;
    }
    walk->count++;
    return STATUS_OK;
}

static const struct outside_frame *find_outside(const struct stack_tracker *tracker, remote_addr address) {
    for (size_t i = 0; i < tracker->outside_count; i++)
        if (tracker->outside[i].address == address && tracker->outside[i].read)
            return &tracker->outside[i];
    return NULL;
}

/* A frame outside of the chunk: read along with the copy, or on its own. */
static enum status read_outside(const struct walk *walk, remote_addr address, struct frame *frame,
                                uint64_t *executable) {
    struct stack_tracker *tracker = walk->tracker;
    struct outside_frame own = {.address = address, .size_bytes = sizeof own.bytes, .read = true};
    const struct outside_frame *known = find_outside(tracker, address);
    const uint8_t *bytes = known != NULL ? known->bytes : own.bytes;
    if (known == NULL && memory_read(tracker->runtime->live, address, own.bytes, own.size_bytes) != STATUS_OK) {
        own.size_bytes = frame_head_size(walk->layout);
        TRY(memory_read(tracker->runtime->live, address, own.bytes, own.size_bytes));
    }
    if (known == NULL && tracker->outside_count < TRACKER_MAX_OUTSIDE)
        tracker->outside[tracker->outside_count++] = own;
    *executable = load_u64(bytes + walk->layout->frame.f_executable);
    return frame_decode(walk->layout, address, bytes, frame);
}

/* Adds the frames outside of the chunk that lead from `address` down to the innermost frame so far; STATUS_NOT_FOUND
 * when they lead elsewhere. */
static enum status put_outside(struct walk *walk, remote_addr address) {
    struct stack_tracker *tracker = walk->tracker;
    remote_addr below = walk->count > 0 ? tracker->stack.frames[walk->count - 1].address : 0;
    size_t first = walk->count;
    for (size_t hops = 0; address != below; hops++) {
        struct frame frame;
        struct tracked_frame tracked;
        uint64_t executable = 0;
        if (address == 0 || hops == MAX_OUTSIDE_HOPS || in_chunk(walk, address)) {
            walk->count = first;
            return STATUS_NOT_FOUND;
        }
        enum status status = read_outside(walk, address, &frame, &executable);
        if (status == STATUS_OK)
            status = resolve(walk, &frame, executable, &tracked);
        if (status == STATUS_OK)
            status = put(walk, &tracked, NULL);
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
    return STATUS_OK;
}

static struct code_step top_step(const struct walk *walk) {
    const struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    return code_cache_step(walk->tracker->codes, top->code, top->instruction_bytes);
}

/* A frame that called another, and so much of it as was copied. */
struct caller {
    const struct tracked_frame *frame;
    const uint8_t *bytes;
    size_t size_bytes;
};

/* The word of the caller's value stack at `index` behind its saved end; false when it is not in the copy. */
static bool stack_word(const struct walk *walk, const struct caller *caller, size_t index, uint64_t *word) {
    const struct layout_frame *fields = &walk->layout->frame;
    uint64_t offset = layout_has(fields->stacktop)
                          ? fields->localsplus + (uint64_t)(int64_t)stacktop_of(walk, caller->bytes) * WORD_BYTES
                          : load_u64(caller->bytes + fields->stackpointer) - caller->frame->address;
    offset += index * WORD_BYTES;
    if (offset > caller->size_bytes - WORD_BYTES || offset < fields->localsplus)
        return false;
    *word = frame_untag(walk->layout, load_u64(caller->bytes + offset));
    return true;
}

/* What a call has called is still in the caller's stack, just behind its end (opcode.h). Where it is the function of
 * another callee, the caller's bytes and the callee's are of different calls. */
static bool called_this(const struct walk *walk, const struct caller *caller, const uint8_t *callee) {
    uint64_t function = frame_untag(walk->layout, load_u64(callee + walk->layout->frame.f_funcobj));
    uint64_t called = 0;
    if (!stack_word(walk, caller, 0, &called))
        return true;
    if (called == 0 && layout_minor(walk->layout) < 13 && !stack_word(walk, caller, 1, &called))
        return true;
    return called == function;
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
    struct code_step step = top_step(walk);
    if (layout_has(fields->is_entry) && load_u8(bytes + fields->is_entry) != 0)
        return step.family != OPCODE_OTHER;
    if (!step.enters)
        return false;
    if (walk->top_bytes == NULL)
        return true;
    if (layout_has(fields->stacktop) && stacktop_of(walk, walk->top_bytes) == STACKTOP_RUNNING)
        return false;
    struct caller caller = {&walk->tracker->stack.frames[walk->top], walk->top_bytes,
                            walk->tracker->stack.frames[walk->top].code->frame_bytes};
    return step.family != OPCODE_CALL || !callee->shown || called_this(walk, &caller, bytes);
}

/* Reads the thread state if that was left out. */
static enum status know_thread(struct walk *walk) {
    if (!walk->thread_known)
        TRY(thread_state_read(walk->tracker->runtime, walk->thread->address, walk->thread));
    walk->thread_known = true;
    return STATUS_OK;
}

/* Whether the innermost frame so far, a generator read from outside of the chunk, can have called the callee:
 * STATUS_NOT_FOUND when it calls nothing. STATUS_TORN when it called something else: its memory was given to another
 * generator since the chunk was read. */
static enum status check_generator_call(const struct walk *walk, const struct tracked_frame *callee,
                                        const uint8_t *bytes) {
    const struct stack_tracker *tracker = walk->tracker;
    const struct layout_frame *fields = &walk->layout->frame;
    const struct tracked_frame *generator = &tracker->stack.frames[walk->count - 1];
    const struct outside_frame *outside = find_outside(tracker, generator->address);
    if (generator->code == NULL || !callee->shown || outside == NULL ||
        (layout_has(fields->is_entry) && load_u8(bytes + fields->is_entry) != 0))
        return STATUS_OK;
    struct caller caller = {generator, outside->bytes, outside->size_bytes};
    struct code_step step = code_cache_step(tracker->codes, generator->code, generator->instruction_bytes);
    /* What resumes a generator enters that, and that is in no chunk. */
    if (!step.enters || step.family == OPCODE_RESUMES_GENERATOR ||
        (layout_has(fields->stacktop) && stacktop_of(walk, caller.bytes) == STACKTOP_RUNNING))
        return STATUS_NOT_FOUND;
    return step.family != OPCODE_CALL || called_this(walk, &caller, bytes) ? STATUS_OK : STATUS_TORN;
}

/* Whether the frame at `address` in the copy is the next one up; then it is added. */
static enum status climb(struct walk *walk, remote_addr address, bool *climbed) {
    const struct layout_frame *fields = &walk->layout->frame;
    const uint8_t *bytes = bytes_at(walk, address);
    struct frame frame;
    struct tracked_frame tracked;
    *climbed = false;
    if (bytes == NULL) {
        /* The thread may have got further than was thought. */
        TRY(know_thread(walk));
        bool is_newest = walk->thread->datastack_chunk == walk->span->address;
        return !is_newest || address < walk->thread->datastack_top ? STATUS_TORN : STATUS_OK;
    }
    if (frame_decode(walk->layout, address, bytes, &frame) != STATUS_OK || frame.owner != FRAME_OWNED_BY_THREAD)
        return STATUS_OK;
    uint64_t executable = load_u64(bytes + fields->f_executable);
    enum status status = resolve(walk, &frame, executable, &tracked);
    if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
        return status;
    if (status != STATUS_OK || tracked.code->frame_bytes == 0 || is_cleared(walk, &tracked, bytes))
        return STATUS_OK;
    remote_addr below = walk->count > 0 ? walk->tracker->stack.frames[walk->count - 1].address : 0;
    if (frame.previous == below) {
        if (!may_have_entered(walk, &tracked, bytes))
            return STATUS_OK;
    } else {
        /* Through C, or from a generator that it runs. */
        if (in_chunk(walk, frame.previous) || (walk->top != SIZE_MAX && top_step(walk).family == OPCODE_OTHER))
            return STATUS_OK;
        size_t inside_count = walk->count;
        status = put_outside(walk, frame.previous);
        if (status == STATUS_NOT_FOUND)
            return STATUS_OK;
        TRY(status);
        status = check_generator_call(walk, &tracked, bytes);
        if (status == STATUS_NOT_FOUND) {
            walk->count = inside_count;
            return STATUS_OK;
        }
        TRY(status);
    }
    tracked.end = address + tracked.code->frame_bytes;
    tracked.copied_end = walk->span->offset + (size_t)(tracked.end - walk->span->address);
    *climbed = true;
    return put(walk, &tracked, bytes);
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

/* Whether the chunk's innermost frame may be running a generator: what it runs is then not in the chunk. */
static bool may_run_generator(const struct walk *walk) {
    const struct layout_frame *fields = &walk->layout->frame;
    if (walk->top == SIZE_MAX || walk->top + 1 != walk->count || walk->top_bytes == NULL)
        return false;
    struct code_step step = top_step(walk);
    if (step.family != OPCODE_RESUMES_GENERATOR && step.family != OPCODE_HIDDEN)
        return false;
    return !layout_has(fields->stacktop) || stacktop_of(walk, walk->top_bytes) != STACKTOP_RUNNING;
}

/* Takes the innermost frame off again. */
static void drop(struct walk *walk) {
    size_t index = --walk->count;
    if (walk->top != index)
        return;
    find_top(walk, index);
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
           stacktop_of(walk, walk->top_bytes) != STACKTOP_RUNNING && !top_step(walk).enters;
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

/* Whether the copy itself shows that the chunk's innermost frame is the one that runs: what it runs is neither outside
 * of the chunk nor in a newer one. From 3.14 on a frame has no stack pointer exactly while its own instructions run
 * (_PyFrame_GetStackPointer, Include/internal/pycore_interpframe.h); before, only what its instruction can do tells. */
static bool is_innermost(const struct walk *walk) {
    const struct layout_frame *fields = &walk->layout->frame;
    if (walk->top == SIZE_MAX || walk->top + 1 != walk->count || walk->top_bytes == NULL ||
        walk->tracker->stack.frames[walk->top].instruction_bytes < 0 || may_have_newer(walk))
        return false;
    if (layout_has(fields->stacktop))
        return top_step(walk).family == OPCODE_OTHER;
    return load_u64(walk->top_bytes + fields->stackpointer) == 0;
}

/* STATUS_TORN when the chunk's innermost frame executed something else after the frames outside were read: they may
 * belong to what has taken its place. */
static enum status check_still_runs(const struct walk *walk) {
    const struct stack_tracker *tracker = walk->tracker;
    if (walk->top == SIZE_MAX)
        return STATUS_OK;
    const struct tracked_frame *top = &tracker->stack.frames[walk->top];
    uint64_t executable = tracker->again_executable;
    if (tracker->again_address != top->address)
        TRY(memory_read_u64(tracker->runtime->live, top->address + walk->layout->frame.f_executable, &executable));
    return executable == top->executable ? STATUS_OK : STATUS_TORN;
}

/* The frames above the chunk's innermost one: generators that it runs. */
static enum status climb_outside(struct walk *walk) {
    bool ambiguous = may_run_generator(walk);
    TRY(know_thread(walk));
    if (walk->top != SIZE_MAX && may_have_newer(walk) && walk->thread->datastack_chunk != walk->span->address)
        return STATUS_TORN;
    remote_addr innermost = walk->thread->frame;
    if (!in_chunk(walk, innermost) && innermost != 0) {
        enum status status = put_outside(walk, innermost);
        if (status != STATUS_NOT_FOUND)
            return status == STATUS_OK ? check_still_runs(walk) : status;
    }
    if (!ambiguous || innermost == walk->tracker->stack.frames[walk->top].address)
        return STATUS_OK;
    return STATUS_TORN;
}

/* Whether what is new from frame `from` on can be believed (stack_tracker.h says when not). */
static bool check_paths(struct stack_tracker *tracker, size_t from, size_t count) {
    struct tracked_frame *frames = tracker->stack.frames;
    bool known = true;
    for (size_t i = from; i < count; i++) {
        uint64_t key = frames[i].code != NULL ? frames[i].code->serial : 0;
        if (i > 0)
            key += (uint64_t)frames[i - 1].path << 32 ^ (uint64_t)(uint32_t)frames[i - 1].instruction_bytes << 24;
        uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
        frames[i].path = (uint32_t)((hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
        struct seen_path *seen = &tracker->paths[frames[i].path % TRACKER_PATHS];
        bool same = seen->path == frames[i].path;
        known = known && same && seen->times >= TRUSTED_TIMES;
        if (!tracker->slow)
            *seen = (struct seen_path){frames[i].path, same ? seen->times + (seen->times < MAX_TIMES) : 1};
    }
    if (!tracker->slow && ++tracker->quick_looks % PATHS_PERIOD_LOOKS == 0)
        for (size_t i = 0; i < TRACKER_PATHS; i++)
            tracker->paths[i].times /= 2;
    return known || !tracker->slow;
}

static void predict_outside_frame(struct stack_tracker *tracker, const struct tracked_frame *frame) {
    struct outside_frame *outside = &tracker->outside[tracker->outside_count++];
    size_t size_bytes = frame_head_size(&tracker->runtime->layout);
    if (frame->code != NULL && frame->code->frame_bytes > size_bytes)
        size_bytes = frame->code->frame_bytes;
    outside->address = frame->address;
    outside->size_bytes = size_bytes < sizeof outside->bytes ? size_bytes : sizeof outside->bytes;
    outside->read = false;
}

/* What to read along next time: the frames outside of the chunk that moved this time. */
static void predict_outside(struct stack_tracker *tracker, size_t same) {
    tracker->outside_count = 0;
    for (size_t i = tracker->stack.count; i-- > same && tracker->outside_count < TRACKER_MAX_OUTSIDE;)
        if (tracker->stack.frames[i].end == 0)
            predict_outside_frame(tracker, &tracker->stack.frames[i]);
}

enum status chunk_walk(struct stack_tracker *tracker, struct thread_state *thread, bool thread_known, bool may_retry,
                       size_t same) {
    const struct layout *layout = &tracker->runtime->layout;
    struct walk walk = {
        .tracker = tracker, .layout = layout, .thread = thread, .thread_known = thread_known, .count = same};
    find_top(&walk, same);
    tracker->stack.unchanged = tracker->stack.unchanged < same ? tracker->stack.unchanged : same;
    enum status status = climb_all(&walk);
    if (status == STATUS_OK) {
        drop_leftovers(&walk);
        tracker->chunk_alone = is_innermost(&walk);
        if (!tracker->chunk_alone)
            status = climb_outside(&walk);
        else if (!walk.thread_known)
            thread->datastack_top = tracker->stack.frames[walk.top].end;
    }
    if (status == STATUS_OK && !check_paths(tracker, same, walk.count) && may_retry)
        status = STATUS_TORN;
    if (status != STATUS_OK) {
        /* Frames from `same` on were overwritten: what is left is what both looks agree on. */
        tracker->stack.count = same;
        return status;
    }
    tracker->stack.count = walk.count;
    /* A frame that was there before can turn out to be one that is left over. */
    if (tracker->stack.unchanged > walk.count)
        tracker->stack.unchanged = walk.count;
    predict_outside(tracker, same);
    return STATUS_OK;
}
