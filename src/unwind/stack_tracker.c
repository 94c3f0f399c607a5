#include "unwind/stack_tracker.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "unwind/chunk_walk.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Read beyond the innermost frame that was seen last: it may have called something since. */
    SLACK_BYTES = 384,
    MAX_CHUNK_BYTES = 1 << 20,
    MAX_PIECES = 4 + TRACKER_MAX_OUTSIDE,
};

bool stack_tracker_supports(const struct runtime *runtime) {
    const struct layout *layout = &runtime->layout;
    return layout_has(layout->frame.size) && layout_has(layout->thread.datastack_chunk) &&
           layout->frame.localsplus <= FRAME_HEAD_MAX_BYTES;
}

void stack_tracker_init(struct stack_tracker *tracker, struct runtime *runtime, struct code_cache *codes) {
    *tracker = (struct stack_tracker){.runtime = runtime, .codes = codes};
}

void stack_tracker_release(struct stack_tracker *tracker) {
    tracked_stack_release(&tracker->stack);
    free(tracker->copy);
    free(tracker->last_copy);
    *tracker = (struct stack_tracker){0};
}

void stack_tracker_forget(struct stack_tracker *tracker) {
    tracker->stack.count = 0;
    tracker->stack.unchanged = 0;
    tracker->older_count = 0;
    tracker->chunk = 0;
    tracker->last_copy_bytes = 0;
    tracker->outside_count = 0;
    tracker->chunk_alone = false;
}

static enum status reserve_copies(struct stack_tracker *tracker, size_t size_bytes) {
    if (size_bytes <= tracker->copy_capacity)
        return STATUS_OK;
    uint8_t *copy = realloc(tracker->copy, size_bytes);
    if (copy != NULL)
        tracker->copy = copy;
    uint8_t *last_copy = realloc(tracker->last_copy, size_bytes);
    if (last_copy != NULL)
        tracker->last_copy = last_copy;
    if (copy == NULL || last_copy == NULL)
        return STATUS_FAILED;
    tracker->copy_capacity = size_bytes;
    return STATUS_OK;
}

/* The bytes of the chunk that are worth reading: up to the innermost frame of last time and somewhat more. */
static uint64_t predict_copy_bytes(const struct stack_tracker *tracker, const struct thread_state *thread) {
    remote_addr top = thread->datastack_top;
    for (size_t i = tracker->stack.count; i-- > tracker->older_count;)
        if (tracker->stack.frames[i].end != 0) {
            top = tracker->stack.frames[i].end > top ? tracker->stack.frames[i].end : top;
            break;
        }
    uint64_t size_bytes = top - thread->datastack_chunk + SLACK_BYTES;
    uint64_t limit_bytes = thread->datastack_limit - thread->datastack_chunk;
    return size_bytes < limit_bytes ? size_bytes : limit_bytes;
}

/* Sizes the copies for what is to be read of the chunk, its header at the least. A thread state that was read while it
 * moved to another chunk gives nonsense, and is then read anew. */
static enum status prepare_copies(struct stack_tracker *tracker, struct thread_state *thread, size_t *copy_bytes) {
    uint64_t size_bytes = predict_copy_bytes(tracker, thread);
    if (size_bytes < tracker->runtime->layout.stack_chunk.data || size_bytes > MAX_CHUNK_BYTES) {
        thread->datastack_chunk = 0;
        return STATUS_TORN;
    }
    *copy_bytes = (size_t)size_bytes;
    return reserve_copies(tracker, (size_t)size_bytes);
}

/* The frame of the chunk that ran the innermost frames outside of it. */
static remote_addr runner_of_outside(const struct stack_tracker *tracker) {
    for (size_t i = tracker->stack.count; i-- > tracker->older_count + 1;)
        if (tracker->stack.frames[i].end == 0 && tracker->stack.frames[i - 1].end != 0)
            return tracker->stack.frames[i - 1].address;
    return 0;
}

/* Everything in one call: the chunk, then what lay outside of it last time, soon enough to be of nearly the same
 * instant, then the thread state. */
static enum status read_at_once(struct stack_tracker *tracker, struct thread_state *thread) {
    struct memory_piece pieces[MAX_PIECES];
    size_t count = 0, span = thread_state_span(&tracker->runtime->layout);
    remote_addr slot_frame = 0;
    bool has_slot = layout_has(tracker->runtime->layout.thread.cframe);
    size_t copy_bytes = 0;
    if (span > sizeof tracker->thread_bytes)
        return STATUS_LIMIT;
    TRY(prepare_copies(tracker, thread, &copy_bytes));
    pieces[count++] = (struct memory_piece){thread->datastack_chunk, tracker->copy, copy_bytes};
    for (size_t i = 0; i < tracker->outside_count; i++)
        pieces[count++] = (struct memory_piece){tracker->outside[i].address, tracker->outside[i].bytes,
                                                tracker->outside[i].size_bytes};
    tracker->again_address = tracker->outside_count > 0 ? runner_of_outside(tracker) : 0;
    if (tracker->again_address != 0)
        pieces[count++] = (struct memory_piece){tracker->again_address + tracker->runtime->layout.frame.f_executable,
                                                &tracker->again_executable, sizeof tracker->again_executable};
    pieces[count++] = (struct memory_piece){thread->address, tracker->thread_bytes, span};
    if (has_slot && thread->frame_slot != 0)
        pieces[count++] = (struct memory_piece){thread->frame_slot, &slot_frame, sizeof slot_frame};
    TRY(memory_read_pieces(tracker->runtime->live, pieces, count));
    tracker->copy_bytes = copy_bytes;
    for (size_t i = 0; i < tracker->outside_count; i++)
        tracker->outside[i].read = true;
    struct thread_state now;
    thread_state_decode(&tracker->runtime->layout, thread->address, tracker->thread_bytes, &now);
    /* 3.11 and 3.12: each call of the interpreter from C moves the slot. */
    if (has_slot && now.frame_slot == thread->frame_slot)
        now.frame = slot_frame;
    else if (has_slot && now.frame_slot != 0)
        TRY(memory_read_u64(tracker->runtime->live, now.frame_slot, &now.frame));
    bool same_chunk = now.datastack_chunk == thread->datastack_chunk;
    *thread = now;
    return same_chunk ? STATUS_OK : STATUS_TORN;
}

/* The chunk alone, which is the thread's newest as far as is known. STATUS_TORN when it was given to another use. */
static enum status read_chunk(struct stack_tracker *tracker, struct thread_state *thread) {
    size_t copy_bytes = 0, previous = tracker->runtime->layout.stack_chunk.previous;
    TRY(prepare_copies(tracker, thread, &copy_bytes));
    TRY(memory_read(tracker->runtime->live, thread->datastack_chunk, tracker->copy, copy_bytes));
    tracker->copy_bytes = copy_bytes;
    bool same = load_u64(tracker->copy + previous) == load_u64(tracker->last_copy + previous);
    return same ? STATUS_OK : STATUS_TORN;
}

/* How many frames of last time end before the copies first differ: they and all that holds for them is as it was. */
static size_t count_same(const struct stack_tracker *tracker) {
    enum { BLOCK_BYTES = 256 };
    size_t common = tracker->copy_bytes < tracker->last_copy_bytes ? tracker->copy_bytes : tracker->last_copy_bytes;
    size_t same_bytes = 0;
    while (same_bytes + BLOCK_BYTES <= common &&
           memcmp(tracker->copy + same_bytes, tracker->last_copy + same_bytes, BLOCK_BYTES) == 0)
        same_bytes += BLOCK_BYTES;
    while (same_bytes + 8 <= common &&
           load_u64(tracker->copy + same_bytes) == load_u64(tracker->last_copy + same_bytes))
        same_bytes += 8;
    remote_addr limit = tracker->chunk + same_bytes;
    size_t count = tracker->older_count;
    while (count < tracker->stack.count && tracker->stack.frames[count].end != 0 &&
           tracker->stack.frames[count].end <= limit)
        count++;
    return count;
}

static void keep_copy(struct stack_tracker *tracker) {
    uint8_t *copy = tracker->last_copy;
    tracker->last_copy = tracker->copy;
    tracker->copy = copy;
    tracker->last_copy_bytes = tracker->copy_bytes;
}

static void judge_speed(struct stack_tracker *tracker, uint64_t ticks) {
    uint64_t usual_ticks = tracker->usual_ticks != 0 ? tracker->usual_ticks : ticks;
    uint64_t step = usual_ticks / 64 + 1;
    tracker->slow = ticks > usual_ticks + usual_ticks / 5;
    tracker->usual_ticks = ticks > usual_ticks ? usual_ticks + step : usual_ticks - step;
}

static enum status attempt(struct stack_tracker *tracker, struct thread_state *thread, bool is_last) {
    tracker->again_address = 0;
    bool alone = tracker->chunk_alone && tracker->outside_count == 0 && tracker->chunk == thread->datastack_chunk;
    uint64_t start_ticks = clock_ticks();
    enum status status = alone ? read_chunk(tracker, thread) : read_at_once(tracker, thread);
    judge_speed(tracker, clock_ticks() - start_ticks);
    tracker->chunk_alone = false;
    if (status == STATUS_UNREADABLE && tracker->outside_count > 0) {
        /* A generator that was there has gone, and its memory with it. */
        tracker->outside_count = 0;
        return STATUS_TORN;
    }
    TRY(status);
    /* A chunk that was given back and got again has the same address, and other chunks below it. */
    if (tracker->chunk != thread->datastack_chunk || tracker->older_count > 0)
        TRY(chunk_walk_older(tracker, thread));
    size_t same = count_same(tracker);
    TRY(chunk_walk(tracker, thread, !alone, !is_last, same));
    /* There is an innermost frame, so this is no stack: the chunk's first frame has gone, and those below are older. */
    if (tracker->stack.count == 0 ||
        (tracker->older_count == 0 && load_u64(tracker->copy + tracker->runtime->layout.stack_chunk.previous) != 0)) {
        tracker->chunk = 0;
        return STATUS_TORN;
    }
    keep_copy(tracker);
    return STATUS_OK;
}

enum status stack_tracker_look(struct stack_tracker *tracker, struct thread_state *thread, unsigned max_attempts) {
    enum status status = STATUS_TORN;
    if (!tracker->failed)
        tracker->stack.unchanged = tracker->stack.count;
    tracker->failed = true;
    for (unsigned i = 0; i < max_attempts && (status == STATUS_TORN || status == STATUS_UNREADABLE); i++) {
        /* Without a frame as well: in 3.11 and 3.12 the slot moves, and what was read may have been where it was. */
        if (status == STATUS_UNREADABLE || thread->datastack_chunk == 0 || thread->frame == 0)
            TRY(thread_state_read(tracker->runtime, thread->address, thread));
        if (thread->datastack_chunk == 0 || thread->frame == 0) {
            stack_tracker_forget(tracker);
            status = STATUS_OK;
        } else {
            status = attempt(tracker, thread, i + 1 == max_attempts);
        }
    }
    tracker->failed = status != STATUS_OK;
    return status;
}
