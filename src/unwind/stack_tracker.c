#include "unwind/stack_tracker.h"

#include "base/array.h"
#include "base/clock.h"
#include "unwind/chunk_walk.h"
#include "unwind/walk.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Read beyond the innermost frame that was seen last: it may have called something since. */
    SLACK_BYTES = 384,
    REACH_LOOKS = 64,
    /* In such parts of itself what a copy usually takes is corrected by each, at first and later. */
    FIRST_SPEED_STEP = 4,
    LAST_SPEED_STEP = 64,
    UNTAUGHT_LOOKS = 12,
    MAX_CHUNK_BYTES = 1 << 20,
    /* What is new is found in the first attempt, and seen again in the next. */
    EASY_ATTEMPTS = 4,
    USUAL_PIECES = 16,
    /* The thread state and its frame slot. */
    THREAD_PIECES = 2,
    /* Of the pieces that are read to let time pass: at one of so many looks, and at most so many. */
    SHIFTED_LOOKS = 2,
    MAX_SHIFT = 2,
};

bool stack_tracker_supports(const struct runtime *runtime) {
    const struct layout *layout = &runtime->layout;
    return layout_has(layout->frame.size) && layout_has(layout->thread.datastack_chunk) &&
           frame_head_size(layout) <= FRAME_HEAD_MAX_BYTES;
}

void stack_tracker_init(struct stack_tracker *tracker, struct runtime *runtime, struct code_cache *codes) {
    *tracker = (struct stack_tracker){.runtime = runtime, .codes = codes};
}

void stack_tracker_release(struct stack_tracker *tracker) {
    tracked_stack_release(&tracker->stack);
    chunk_copies_release(&tracker->copies);
    seen_calls_release(&tracker->own_calls);
    free(tracker->outside);
    free(tracker->again);
    free(tracker->pieces);
    *tracker = (struct stack_tracker){0};
}

static void clear_frames(struct stack_tracker *tracker) {
    tracker->stack.count = 0;
    tracker->stack.unchanged = 0;
    tracked_stack_forget(&tracker->stack, 0);
    chunk_copies_forget(&tracker->copies);
    tracker->chunk_alone = false;
    tracker->ahead = false;
}

void stack_tracker_forget_outside(struct stack_tracker *tracker) {
    tracker->outside_count = 0;
    tracker->outside_likely = 0;
    tracker->outside_planned = 0;
    tracker->outside_along = 0;
    tracker->again_count = 0;
}

/* There is no stack. */
static void clear_stack(struct stack_tracker *tracker) {
    clear_frames(tracker);
    stack_tracker_forget_outside(tracker);
}

void stack_tracker_unlearn(struct stack_tracker *tracker) {
    clear_frames(tracker);
    memset(tracker->callables, 0, sizeof tracker->callables);
    seen_calls_forget(&tracker->own_calls);
}

void stack_tracker_forget(struct stack_tracker *tracker) {
    stack_tracker_unlearn(tracker);
    clear_stack(tracker);
    memset(tracker->doubts, 0, sizeof tracker->doubts);
    memset(tracker->lasting, 0, sizeof tracker->lasting);
    memset(tracker->steady, 0, sizeof tracker->steady);
    tracker->outside_use = (struct outside_count){0};
}

/* The bytes of the newest chunk that are worth reading: up to where the stack reached in one of the last looks, and
 * somewhat more. (Were it read only to where the last one ended, a stack that had become deeper would have to be looked
 * at again, one that had not would not, and deep ones would be too rare.) */
static uint64_t predict_newest_bytes(struct stack_tracker *tracker, const struct thread_state *thread) {
    const remote_addr chunk = thread->datastack_chunk;
    const uint64_t limit_bytes = thread->datastack_limit - chunk;
    remote_addr top = thread->datastack_top;
    for (size_t i = tracker->stack.count; i-- > 0;)
        if (tracker->stack.frames[i].end != 0) {
            remote_addr end = tracker->stack.frames[i].end;
            top = end > top && end - chunk < limit_bytes ? end : top;
            break;
        }
    if (tracker->reach_looks++ % REACH_LOOKS == 0 || tracker->reach[0] - chunk >= limit_bytes) {
        tracker->reach[1] = tracker->reach[0];
        tracker->reach[0] = top;
    }
    if (top > tracker->reach[0])
        tracker->reach[0] = top;
    for (size_t i = 0; i < 2; i++)
        if (tracker->reach[i] - chunk < limit_bytes && tracker->reach[i] > top)
            top = tracker->reach[i];
    uint64_t size_bytes = top - chunk + SLACK_BYTES;
    return size_bytes < limit_bytes ? size_bytes : limit_bytes;
}

enum status stack_tracker_add_outside(struct stack_tracker *tracker, const struct outside_frame *frame) {
    TRY(array_reserve((void **)&tracker->outside, &tracker->outside_capacity, tracker->outside_count + 1,
                      sizeof tracker->outside[0]));
    tracker->outside[tracker->outside_count++] = *frame;
    return STATUS_OK;
}

/* While a chunk is given back to the system, a call that takes its time, the one before is the newest already, and the
 * limit is still that of what goes (Python/pystate.c, _PyThreadState_PopFrame, as seen of 3.12 and 3.13): it may lie
 * below. A size that cannot be is found out behind. */
static enum status correct_limit(const struct stack_tracker *tracker, struct thread_state *thread) {
    const remote_addr chunk = thread->datastack_chunk, limit = thread->datastack_limit;
    uint64_t size_bytes = 0;
    if (limit > chunk && limit - chunk <= MAX_CHUNK_BYTES && thread->datastack_top <= limit)
        return STATUS_OK;
    const struct chunk_span *span = chunk_copies_find(&tracker->copies, chunk);
    if (span != NULL && span->address == chunk)
        size_bytes = span->limit - chunk;
    else
        TRY(memory_read_u64(tracker->runtime->live, chunk + tracker->runtime->layout.stack_chunk.size, &size_bytes));
    thread->datastack_limit = chunk + size_bytes;
    return STATUS_OK;
}

/* Makes room for what is to be read of the chunks, their headers at the least. A thread state that was read while it
 * moved to another chunk gives nonsense, and is then read anew. */
static enum status prepare_copies(struct stack_tracker *tracker, struct thread_state *thread) {
    TRY(correct_limit(tracker, thread));
    uint64_t size_bytes = predict_newest_bytes(tracker, thread);
    bool is_sound = size_bytes >= tracker->runtime->layout.stack_chunk.data + 8 && size_bytes <= MAX_CHUNK_BYTES;
    enum status status = is_sound ? chunk_copies_follow(&tracker->copies, tracker->runtime, thread) : STATUS_TORN;
    if (status == STATUS_TORN)
        thread->datastack_chunk = 0;
    TRY(status);
    TRY(chunk_copies_reserve(&tracker->copies, (size_t)size_bytes));
    size_t count = tracker->copies.count + tracker->outside_count + tracker->again_count + MAX_SHIFT + THREAD_PIECES;
    return array_reserve((void **)&tracker->pieces, &tracker->piece_capacity, count, sizeof tracker->pieces[0]);
}

/* A chunk that has been popped since may have been given back to the system; it is mostly pushed again at the same
 * place. What was read before it is as good as ever. *all: there was none. */
static enum status read_pieces(struct stack_tracker *tracker, size_t count, bool *all) {
    struct chunk_copies *copies = &tracker->copies;
    size_t done = 0;
    enum status status = memory_read_first_pieces(tracker->runtime->live, tracker->pieces, count, &done);
    copies->copied = done < copies->count ? done : copies->count;
    *all = status == STATUS_OK;
    if (status != STATUS_UNREADABLE || copies->copied == 0)
        return status;
    if (copies->copied == copies->count) {
        /* A generator that was there has gone, and its memory with it. */
        stack_tracker_forget_outside(tracker);
    }
    if (copies->newest >= copies->copied)
        copies->newest = copies->copied - 1;
    return STATUS_OK;
}

static size_t list_outside(struct stack_tracker *tracker, struct memory_piece *pieces, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        *pieces++ = (struct memory_piece){tracker->outside[i].place.address, tracker->outside[i].bytes,
                                          tracker->outside[i].place.size_bytes};
    return to - from;
}

uint32_t stack_tracker_random(struct stack_tracker *tracker) {
    tracker->random = tracker->random * 1664525 + 1013904223;
    return tracker->random;
}

/* A program may go round in just the time that lies between the reads of two pieces, and they are then never of one
 * instant, each time with the same outcome. So at some of the looks that time is another. */
static size_t choose_shift(struct stack_tracker *tracker) {
    if (tracker->outside_likely == 0 || tracker->paused || (stack_tracker_random(tracker) >> 16) % SHIFTED_LOOKS != 0)
        return 0;
    return 1 + (stack_tracker_random(tracker) >> 16) % MAX_SHIFT;
}

/* Everything for one call: the chunks, then what lay outside of them last time, soon enough to be of nearly the same
 * instant, and who ran that once more; what may have come back; then the thread state. */
static enum status list_all(struct stack_tracker *tracker, const struct thread_state *thread, size_t *piece_count) {
    const struct layout *layout = &tracker->runtime->layout;
    struct memory_piece *pieces = tracker->pieces;
    size_t count = tracker->copies.count, span = thread_state_span(layout);
    if (span > sizeof tracker->thread_bytes)
        return STATUS_LIMIT;
    tracker->slot_frame = 0;
    chunk_copies_list_pieces(&tracker->copies, pieces);
    tracker->shift = choose_shift(tracker);
    for (size_t i = 0; i < tracker->shift; i++)
        count += list_outside(tracker, pieces + count, 0, 1);
    count += list_outside(tracker, pieces + count, 0, tracker->outside_likely);
    for (size_t i = 0; i < tracker->again_count; i++)
        pieces[count++] =
            (struct memory_piece){tracker->again[i].address, tracker->again[i].bytes, tracker->again[i].size_bytes};
    count += list_outside(tracker, pieces + count, tracker->outside_likely, tracker->outside_count);
    pieces[count++] = (struct memory_piece){thread->address, tracker->thread_bytes, span};
    if (layout_has(layout->thread.cframe) && thread->frame_slot != 0)
        pieces[count++] = (struct memory_piece){thread->frame_slot, &tracker->slot_frame, sizeof tracker->slot_frame};
    *piece_count = count;
    return STATUS_OK;
}

/* All of it was read. */
static enum status take_all(struct stack_tracker *tracker, struct thread_state *thread) {
    const struct layout *layout = &tracker->runtime->layout;
    bool has_slot = layout_has(layout->thread.cframe);
    for (size_t i = 0; i < tracker->outside_count; i++) {
        tracker->outside[i].read = true;
        tracker->outside[i].met = false;
    }
    tracker->outside_along = tracker->outside_count;
    for (size_t i = 0; i < tracker->again_count; i++)
        tracker->again[i].read = true;
    struct thread_state now;
    thread_state_decode(layout, thread->address, tracker->thread_bytes, &now);
    /* 3.11 and 3.12: each call of the interpreter from C moves the slot. */
    if (has_slot && now.frame_slot == thread->frame_slot)
        now.frame = tracker->slot_frame;
    else if (has_slot && now.frame_slot != 0)
        TRY(memory_read_u64(tracker->runtime->live, now.frame_slot, &now.frame));
    *thread = now;
    return STATUS_OK;
}

static enum status read_at_once(struct stack_tracker *tracker, struct thread_state *thread, bool *thread_known) {
    TRY(list_all(tracker, thread, &tracker->piece_count));
    TRY(read_pieces(tracker, tracker->piece_count, thread_known));
    return *thread_known ? take_all(tracker, thread) : STATUS_OK;
}

/* Whether the chunks are likely to tell all. */
static bool needs_chunks_only(const struct stack_tracker *tracker) {
    return tracker->chunk_alone && tracker->outside_count == 0;
}

static enum status read_copies(struct stack_tracker *tracker, struct thread_state *thread, bool *thread_known) {
    struct chunk_copies *copies = &tracker->copies;
    *thread_known = false;
    if (!needs_chunks_only(tracker))
        return read_at_once(tracker, thread, thread_known);
    chunk_copies_list_pieces(copies, tracker->pieces);
    tracker->piece_count = copies->count;
    tracker->shift = 0;
    if (copies->count > 1)
        return read_pieces(tracker, copies->count, &(bool){false});
    copies->copied = 1;
    return memory_read(tracker->runtime->live, tracker->pieces[0].address, tracker->pieces[0].buffer,
                       tracker->pieces[0].size_bytes);
}

/* How many frames that are remembered need but so much of the copies. */
static size_t count_below(const struct tracked_stack *stack, size_t bytes) {
    size_t low = 0, high = stack->known;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stack->frames[middle].copied_end <= bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many remembered frames end before the copies first differ from what is remembered: they and all that holds for
 * them is as it was. So is what the interpreter has between two such frames, but not a generator there, which can be
 * another. */
static size_t count_same(struct stack_tracker *tracker) {
    struct tracked_stack *stack = &tracker->stack;
    const size_t seen_bytes = tracker->copies.seen_bytes;
    tracked_stack_restore(stack);
    if (stack->known > 0 && stack->frames[stack->known - 1].copied_end > seen_bytes)
        tracked_stack_forget(stack, count_below(stack, seen_bytes));
    size_t count = count_below(stack, chunk_copies_count_same(&tracker->copies, &tracker->runtime->layout));
    while (count > 0 && stack->frames[count - 1].end == 0)
        count--;
    return count;
}

/* Up to where the copies must be as they are for a frame to be the same. */
static void place_frame(struct tracked_frame *frames, size_t index) {
    size_t below = index > 0 ? frames[index - 1].copied_end : 0;
    struct tracked_frame *frame = &frames[index];
    if (frame->end == 0)
        frame->copied_end = frame->code == NULL ? below : SIZE_MAX;
    if (frame->assumed || below == SIZE_MAX)
        frame->copied_end = SIZE_MAX;
}

/* Whether the innermost frame is the same as in the look before. */
static bool stands_still(struct stack_tracker *tracker) {
    const struct tracked_frame *frame = &tracker->stack.frames[tracker->stack.count - 1];
    struct passing_frame before = tracker->passing;
    tracker->passing = (struct passing_frame){frame->address, frame->instruction};
    return before.address == frame->address && before.instruction == frame->instruction;
}

/* What to compare the next copies with. */
static void remember(struct stack_tracker *tracker) {
    struct tracked_stack *stack = &tracker->stack;
    struct tracked_frame *frames = stack->frames;
    size_t same = stack->unchanged, start = same > 0 ? frames[same - 1].copied_end : 0;
    bool deeper = stack->count < stack->known;
    stack->passing = deeper && (stack->count == same || !stands_still(tracker));
    if (stack->passing || (stack->count == stack->known && stack->count == same))
        return;
    for (size_t i = same; i < stack->count; i++)
        place_frame(frames, i);
    size_t known = stack->count;
    while (known > same && frames[known - 1].copied_end == SIZE_MAX)
        known--;
    tracked_stack_remember(stack, known);
    if (known > same)
        chunk_copies_remember(&tracker->copies, start, frames[known - 1].copied_end);
}

/* What is copied besides the chunks is of a later instant the longer all of it takes. So a copy is judged as a whole;
 * only one of so many pieces that it would always pass for slow is allowed the more time. The first copies take longer
 * than any later one, or are interrupted. So their median is looked for in large steps, and until it is found none of
 * them was quick. */
static void judge_speed(struct stack_tracker *tracker, uint64_t copy_ticks, size_t piece_count) {
    uint64_t ticks = piece_count <= USUAL_PIECES ? copy_ticks : copy_ticks * USUAL_PIECES / piece_count;
    /* Without what was there to let time pass; the chunks count for two. */
    ticks -= ticks * tracker->shift / (piece_count + 1);
    uint64_t usual_ticks = tracker->usual_ticks != 0 ? tracker->usual_ticks : ticks;
    uint64_t step = usual_ticks / (FIRST_SPEED_STEP + tracker->timed_looks) + 1;
    tracker->slow = ticks > usual_ticks + usual_ticks / 5;
    tracker->quick = ticks <= usual_ticks && tracker->timed_looks >= UNTAUGHT_LOOKS;
    tracker->usual_ticks = ticks > usual_ticks ? usual_ticks + step : usual_ticks - step;
    tracker->timed_looks += FIRST_SPEED_STEP + tracker->timed_looks < LAST_SPEED_STEP;
}

static enum status plan(struct stack_tracker *tracker, struct thread_state *thread, size_t *count) {
    TRY(prepare_copies(tracker, thread));
    if (!needs_chunks_only(tracker))
        return list_all(tracker, thread, count);
    chunk_copies_list_pieces(&tracker->copies, tracker->pieces);
    *count = tracker->copies.count;
    return STATUS_OK;
}

void stack_tracker_plan(struct stack_tracker *tracker, struct thread_state *thread) {
    size_t count = 0;
    bool known = !tracker->failed && thread->datastack_chunk != 0 && thread->frame != 0;
    tracker->ahead = false;
    /* What is wrong with it the look will find out. */
    tracker->piece_count = known && plan(tracker, thread, &count) == STATUS_OK ? count : 0;
}

/* How long it took to copy this thread's stack is not known. */
static enum status take_ahead(struct stack_tracker *tracker, struct thread_state *thread, bool *thread_known) {
    tracker->ahead = false;
    tracker->slow = true;
    tracker->quick = false;
    tracker->copies.copied = tracker->copies.count;
    *thread_known = !needs_chunks_only(tracker);
    return *thread_known ? take_all(tracker, thread) : STATUS_OK;
}

static enum status attempt(struct stack_tracker *tracker, struct thread_state *thread, bool is_last) {
    bool thread_known = false;
    enum status status = STATUS_OK;
    outside_forget_late(tracker);
    if (tracker->ahead) {
        status = take_ahead(tracker, thread, &thread_known);
    } else {
        TRY(prepare_copies(tracker, thread));
        uint64_t start_ticks = clock_ticks();
        status = read_copies(tracker, thread, &thread_known);
        judge_speed(tracker, clock_ticks() - start_ticks, tracker->piece_count);
    }
    tracker->chunk_alone = false;
    tracker->end_shown = false;
    TRY(status);
    TRY(chunk_walk(tracker, thread, thread_known, !is_last, count_same(tracker)));
    /* There is an innermost frame, so this is no stack. */
    if (tracker->stack.count == 0)
        return STATUS_TORN;
    remember(tracker);
    return STATUS_OK;
}

/* A stack that contradicts itself may be one of code that has taken the place of other code. */
static void check_codes(struct stack_tracker *tracker) {
    code_cache_start_epoch(tracker->codes);
    clear_frames(tracker);
}

enum status stack_tracker_look(struct stack_tracker *tracker, struct thread_state *thread, unsigned max_attempts) {
    enum status status = STATUS_TORN;
    tracker->failed = true;
    for (unsigned i = 0; i < max_attempts && (status == STATUS_TORN || status == STATUS_UNREADABLE); i++) {
        /* Without a frame as well: in 3.11 and 3.12 the slot moves, and what was read may have been where it was. */
        if (status == STATUS_UNREADABLE || thread->datastack_chunk == 0 || thread->frame == 0)
            TRY(thread_state_read(tracker->runtime, thread->address, thread));
        if (thread->datastack_chunk == 0 || thread->frame == 0) {
            clear_stack(tracker);
            /* Where the slot is on the C stack it may have been given up before it was read. */
            bool sure = tracker->paused || !layout_has(tracker->runtime->layout.thread.cframe) || i + 1 == max_attempts;
            status = sure ? STATUS_OK : STATUS_TORN;
        } else {
            tracker->insistent = i >= EASY_ATTEMPTS;
            if (i == EASY_ATTEMPTS && !tracker->paused)
                check_codes(tracker);
            status = attempt(tracker, thread, i + 1 == max_attempts);
        }
    }
    tracker->failed = status != STATUS_OK;
    return status;
}
