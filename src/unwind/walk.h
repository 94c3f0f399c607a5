/* One walk over the copies of a thread's data stack, and what its parts share. Private to stack_tracker.c and the
 * walk's files: chunk_walk.c climbs from frame to frame in the copies, outside_walk.c adds those that lie elsewhere
 * (outside.h). */
#ifndef STROBE_UNWIND_WALK_H
#define STROBE_UNWIND_WALK_H

#include "base/bytes.h"
#include "unwind/stack_tracker.h"

enum { WORD_BYTES = 8, STACKTOP_RUNNING = -1 };

/* One walk. `top` is the index of the innermost frame in the chunk so far, SIZE_MAX when there is none. */
struct walk {
    struct stack_tracker *tracker;
    const struct layout *layout;
    struct thread_state *thread;
    bool thread_known; /* *thread was read along with the copy, or since */
    size_t same;       /* the frames below are those of the look before */
    bool doubtful;     /* some of the frames are to be seen again before they can be vouched for */
    size_t count;
    size_t top;
    const uint8_t *top_bytes;      /* that frame in the copy */
    const struct chunk_span *span; /* where the next frame is looked for */
};

/* A frame that called another, and so much of it as was copied. */
struct caller {
    const struct tracked_frame *frame;
    const uint8_t *bytes;
    size_t size_bytes;
};

/* What is remembered of calls. */
static inline struct seen_calls *walk_calls(const struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    return tracker->calls != NULL ? tracker->calls : &tracker->own_calls;
}

static inline int32_t walk_stacktop(const struct walk *walk, const uint8_t *bytes) {
    return load_i32(bytes + walk->layout->frame.stacktop);
}

/* Whether a frame has not saved the extent of its stack, as it does before it calls. (3.15 leaves it saved, but in
 * debug builds.) */
static inline bool walk_is_running(const struct walk *walk, const uint8_t *bytes) {
    const struct layout_frame *fields = &walk->layout->frame;
    if (layout_has(fields->stacktop))
        return walk_stacktop(walk, bytes) == STACKTOP_RUNNING;
    return load_u64(bytes + fields->stackpointer) == 0;
}

/* How many of the top's bytes can be looked at: its code says how many it has, and may say anything. 0 of a shim. */
static inline size_t walk_top_size(const struct walk *walk) {
    const struct chunk_copies *copies = &walk->tracker->copies;
    if (walk->tracker->stack.frames[walk->top].code == NULL)
        return 0;
    size_t left = (size_t)(copies->now + copies->buffer_bytes - walk->top_bytes);
    size_t size_bytes = walk->tracker->stack.frames[walk->top].code->frame_bytes;
    return size_bytes < left ? size_bytes : left;
}

/* Whether the address is in one of the chunks, as far as they are known. */
bool walk_in_chunk(const struct walk *walk, remote_addr address);
/* The bytes of a frame of the span in the copy; NULL when they are not (all) in it. */
const uint8_t *walk_bytes_at(const struct walk *walk, remote_addr address);
/* The innermost frame in the chunks below index `count` is the top. */
void walk_find_top(struct walk *walk, size_t count);
/* What the top's instruction can do. */
struct code_step walk_top_step(const struct walk *walk);
/* Fills in what a frame executes. STATUS_TORN when it cannot be executing that. */
enum status walk_resolve(const struct walk *walk, const struct frame *frame, uint64_t executable,
                         struct tracked_frame *tracked) MUST_USE;
/* Adds a frame; `bytes` of one of the chunks. */
enum status walk_put(struct walk *walk, const struct tracked_frame *tracked, const uint8_t *bytes) MUST_USE;
/* Sets what leads to a frame. */
void walk_set_path(struct walk *walk, size_t index);
/* Takes it that the top stands at another instruction than its copy says. */
void walk_assume_site(struct walk *walk, int32_t instruction_bytes);
/* The word of the caller's value stack at `index` behind its saved end; false when it is not in the copy. */
bool walk_stack_word(const struct walk *walk, const struct caller *caller, int index, uint64_t *word);
/* What the call that the caller stands on has called: that is still in the caller's stack, just behind its end
 * (opcode.h). */
bool walk_called_word(const struct walk *walk, const struct caller *caller, uint64_t *called);
/* Whether the call that the caller stands on is of this callee, as far as the copies tell. */
bool walk_called_this(const struct walk *walk, const struct caller *caller, const uint8_t *callee);
/* What an object is that a frame seems to call. Read when it is not remembered. */
enum callable_kind walk_callable_kind(const struct walk *walk, remote_addr object);
/* The function of a frame with these bytes. */
remote_addr walk_function_of(const struct walk *walk, const uint8_t *bytes);
/* Remembers that the function of a frame is one: then it need not be read. */
void walk_remember_function(const struct walk *walk, const uint8_t *bytes);
/* Any number. */
uint32_t walk_random(struct walk *walk);
/* Reads the thread state if that was left out. */
enum status walk_know_thread(struct walk *walk) MUST_USE;

/* Links the frame above the top, a callee that is in a chunk, to the top through the frames outside of the chunks from
 * `address` down. STATUS_NOT_FOUND: they do not lead there. STATUS_TORN: it cannot be told what they were. */
enum status outside_link(struct walk *walk, remote_addr address, const struct tracked_frame *callee,
                         const uint8_t *bytes) MUST_USE;
/* Whether the top is the innermost frame, and was seen often enough to run nothing outside of the chunks. */
bool outside_is_unlikely(const struct walk *walk);
/* Adds what runs above the top outside of the chunks, if anything does. */
enum status outside_climb(struct walk *walk) MUST_USE;
/* Another attempt begins: what outside_read_late read is of the one before. */
void outside_forget_late(struct stack_tracker *tracker);
/* Makes room for one more frame to read along. */
enum status stack_tracker_add_outside(struct stack_tracker *tracker, const struct outside_frame *frame) MUST_USE;
/* Nothing is read along. */
void stack_tracker_forget_outside(struct stack_tracker *tracker);
/* What to read along at the next look: the frames outside of the chunks that moved at this one. */
enum status outside_predict(struct stack_tracker *tracker, size_t same) MUST_USE;
/* The same at the next attempt: all that was come across, and what had been predicted where that is of use. */
void outside_predict_again(struct stack_tracker *tracker);

#endif
