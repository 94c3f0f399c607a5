#include "unwind/walk.h"

bool walk_in_chunk(const struct walk *walk, remote_addr address) {
    const struct thread_state *thread = walk->thread;
    return address - thread->datastack_chunk < thread->datastack_limit - thread->datastack_chunk ||
           chunk_copies_find(&walk->tracker->copies, address) != NULL;
}

const uint8_t *walk_bytes_at(const struct walk *walk, remote_addr address) {
    size_t head_bytes = frame_head_size(walk->layout);
    uint64_t offset = address - walk->span->address;
    if (offset >= walk->span->size_bytes || walk->span->size_bytes - offset < head_bytes)
        return NULL;
    return walk->tracker->copies.now + walk->span->offset + offset;
}

void walk_find_top(struct walk *walk, size_t count) {
    const struct stack_tracker *tracker = walk->tracker;
    walk->top = SIZE_MAX;
    walk->top_bytes = NULL;
    walk->span = tracker->copies.spans;
    for (size_t i = count; i-- > 0;)
        if (tracker->stack.frames[i].end != 0) {
            walk->top = i;
            walk->span = chunk_copies_find(&tracker->copies, tracker->stack.frames[i].address);
            walk->top_bytes = walk_bytes_at(walk, tracker->stack.frames[i].address);
            return;
        }
}

struct code_step walk_top_step(const struct walk *walk) {
    const struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    return code_cache_step(walk->tracker->codes, top->code, top->instruction_bytes);
}

/* The code that this frame had at the last look, which is mostly the one it has now. */
static bool known_code(const struct walk *walk, const struct frame *frame, uint64_t executable,
                       const struct code **code) {
    const struct stack_tracker *tracker = walk->tracker;
    if (walk->count >= tracker->stack.count && walk->count >= tracker->stack.known)
        return false;
    const struct tracked_frame *last = &tracker->stack.frames[walk->count];
    if (last->executable != executable || last->address != frame->address || last->code == NULL ||
        !code_cache_vouches(tracker->codes, last->code))
        return false;
    *code = last->code;
    return true;
}

enum status walk_resolve(const struct walk *walk, const struct frame *frame, uint64_t executable,
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

/* Whether a frame is one more of a recursive call like those below it. */
static bool is_once_more(const struct tracked_frame *frames, size_t index) {
    return index >= 2 && frames[index].code != NULL && frames[index].code == frames[index - 1].code &&
           frames[index].code == frames[index - 2].code &&
           frames[index - 1].instruction_bytes == frames[index - 2].instruction_bytes;
}

void walk_set_path(struct walk *walk, size_t index) {
    struct tracked_frame *frames = walk->tracker->stack.frames;
    /* What was seen of recursive calls holds for all depths: there would be too many paths to remember. */
    if (is_once_more(frames, index)) {
        frames[index].call = frames[index - 1].call;
        frames[index].path = frames[index - 1].path;
        return;
    }
    uint32_t serial = frames[index].code != NULL ? frames[index].code->serial : 0;
    frames[index].call = seen_calls_key(index > 0 ? frames[index - 1].path : 0, serial);
    frames[index].path = seen_calls_path(frames[index].call, index > 0 ? frames[index - 1].instruction_bytes : 0);
}

enum status walk_put(struct walk *walk, const struct tracked_frame *tracked, const uint8_t *bytes) {
    TRY(tracked_stack_put(&walk->tracker->stack, walk->count, tracked));
    walk_set_path(walk, walk->count);
    if (tracked->end != 0) {
        walk->top = walk->count;
        walk->top_bytes = bytes;
    }
    walk->count++;
    return STATUS_OK;
}

void walk_assume_site(struct walk *walk, int32_t instruction_bytes) {
    struct tracked_frame *top = &walk->tracker->stack.frames[walk->top];
    tracked_stack_touch(&walk->tracker->stack, walk->top);
    top->instruction = top->instruction - (uint64_t)(int64_t)top->instruction_bytes + (uint64_t)instruction_bytes;
    top->instruction_bytes = instruction_bytes;
    /* Also one that was being set up when it was copied. */
    top->shown = true;
    top->assumed = true;
    if (walk->same > walk->top)
        walk->same = walk->top;
}

bool walk_stack_word(const struct walk *walk, const struct caller *caller, int index, uint64_t *word) {
    const struct layout_frame *fields = &walk->layout->frame;
    uint64_t offset = layout_has(fields->stacktop)
                          ? fields->localsplus + (uint64_t)(int64_t)walk_stacktop(walk, caller->bytes) * WORD_BYTES
                          : load_u64(caller->bytes + fields->stackpointer) - caller->frame->address;
    offset += (uint64_t)(int64_t)index * WORD_BYTES;
    if (caller->size_bytes < WORD_BYTES || offset > caller->size_bytes - WORD_BYTES || offset < fields->localsplus)
        return false;
    *word = frame_untag(walk->layout, load_u64(caller->bytes + offset));
    return true;
}

bool walk_called_word(const struct walk *walk, const struct caller *caller, uint64_t *called) {
    if (!walk_stack_word(walk, caller, 0, called))
        return false;
    return *called != 0 || layout_minor(walk->layout) >= 13 || walk_stack_word(walk, caller, 1, called);
}

static struct callable *callable_place(const struct walk *walk, remote_addr object) {
    uint64_t hash = object * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return &walk->tracker->callables[hash % TRACKER_CALLABLES];
}

remote_addr walk_function_of(const struct walk *walk, const uint8_t *bytes) {
    return frame_untag(walk->layout, load_u64(bytes + walk->layout->frame.f_funcobj));
}

void walk_remember_function(const struct walk *walk, const uint8_t *bytes) {
    remote_addr function = walk_function_of(walk, bytes);
    if (function != 0)
        *callable_place(walk, function) = (struct callable){function, CALLABLE_FUNCTION};
}

enum callable_kind walk_callable_kind(const struct walk *walk, remote_addr object) {
    struct callable *known = callable_place(walk, object);
    if (known->address != object)
        *known = (struct callable){object, callable_kind(walk->tracker->runtime, object)};
    return known->kind;
}

/* Where it is another function, or nothing that is called without C, the caller's bytes and the callee's are of
 * different calls. It can also be a bound method, of which only the interpreter's registers have the function
 * (CALL_BOUND_METHOD_GENERAL, 3.13+). */
bool walk_called_this(const struct walk *walk, const struct caller *caller, const uint8_t *callee) {
    uint64_t called = 0;
    if (!walk_called_word(walk, caller, &called) || called == walk_function_of(walk, callee))
        return true;
    enum callable_kind kind = walk_callable_kind(walk, called);
    return kind != CALLABLE_FUNCTION && kind != CALLABLE_C;
}

uint32_t walk_random(struct walk *walk) {
    return stack_tracker_random(walk->tracker);
}

/* In 3.11 and 3.12 the slot that names the innermost frame is elsewhere, and mostly still where it was: it is read
 * along. */
static enum status read_thread(const struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    const size_t span = thread_state_span(walk->layout);
    struct thread_state now = *walk->thread;
    struct memory_piece pieces[] = {{now.address, tracker->thread_bytes, span},
                                    {now.frame_slot, &tracker->slot_frame, sizeof tracker->slot_frame}};
    if (!layout_has(walk->layout->thread.cframe) || now.frame_slot == 0 || span > sizeof tracker->thread_bytes ||
        memory_read_pieces(tracker->runtime->live, pieces, 2) != STATUS_OK)
        return thread_state_read(tracker->runtime, walk->thread->address, walk->thread);
    thread_state_decode(walk->layout, walk->thread->address, tracker->thread_bytes, &now);
    if (now.frame_slot != walk->thread->frame_slot)
        return thread_state_read(tracker->runtime, walk->thread->address, walk->thread);
    now.frame = tracker->slot_frame;
    *walk->thread = now;
    return STATUS_OK;
}

enum status walk_know_thread(struct walk *walk) {
    if (!walk->thread_known)
        TRY(read_thread(walk));
    walk->thread_known = true;
    return STATUS_OK;
}
