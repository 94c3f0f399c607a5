#include "unwind/linked_tracker.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Frames read along that were not part of the last stack. Each costs about 0.1 µs a look. */
    MAX_OTHERS = 24,
    MAX_FRAMES = 1 << 20,
    FIRST_CAPACITY = 64,
    /* PyFrameState (Include/cpython/frameobject.h 3.10). While UNWINDING finalizers may be called. */
    FRAME_EXECUTING = 0,
    FRAME_UNWINDING = 2,
};

/* What was last read of a frame, and what is remembered of it. */
struct linked_head {
    remote_addr address;
    uint8_t bytes[LINKED_HEAD_MAX_BYTES];
    uint64_t read;           /* the look of which the bytes are */
    uint64_t chained;        /* the look of which it was last part of the stack */
    remote_addr caller;      /* its caller when it was last seen running, */
    remote_addr caller_code; /* and what it ran then itself */
    const struct code *code; /* NULL: not looked up yet */
    uint32_t code_epoch;
    uint32_t next_free;
};

static const struct layout *layout_of(const struct linked_tracker *tracker) {
    return &tracker->runtime->layout;
}

bool linked_tracker_supports(const struct runtime *runtime) {
    return layout_has(runtime->layout.thread.frame) && frame_head_size(&runtime->layout) <= LINKED_HEAD_MAX_BYTES;
}

void linked_tracker_init(struct linked_tracker *tracker, struct runtime *runtime, struct code_cache *codes) {
    *tracker = (struct linked_tracker){.runtime = runtime, .codes = codes};
}

void linked_tracker_release(struct linked_tracker *tracker) {
    tracked_stack_release(&tracker->stack);
    map_release(&tracker->by_address);
    free(tracker->heads);
    free(tracker->order);
    free(tracker->chain);
    free(tracker->pieces);
    *tracker = (struct linked_tracker){0};
}

static void forget_heads(struct linked_tracker *tracker) {
    map_clear(&tracker->by_address);
    tracker->head_count = 0;
    tracker->free_head = 0;
    tracker->order_count = 0;
    tracker->chain_count = 0;
}

void linked_tracker_forget(struct linked_tracker *tracker) {
    forget_heads(tracker);
    tracker->stack.count = 0;
    tracker->stack.unchanged = 0;
    tracker->frame_type = 0;
}

/* Makes room for `count` items of an array. */
static enum status reserve(void *array, size_t *capacity, size_t count, size_t item_bytes) {
    if (count <= *capacity)
        return STATUS_OK;
    size_t wanted = *capacity > 0 ? *capacity : FIRST_CAPACITY;
    while (wanted < count)
        wanted *= 2;
    void *items = NULL;
    memcpy(&items, array, sizeof items);
    items = realloc(items, wanted * item_bytes);
    if (items == NULL)
        return STATUS_FAILED;
    memcpy(array, &items, sizeof items);
    *capacity = wanted;
    return STATUS_OK;
}

static enum status add_head(struct linked_tracker *tracker, remote_addr address, uint32_t *index) {
    if (tracker->free_head != 0) {
        *index = tracker->free_head - 1;
    } else {
        if (tracker->head_count >= MAX_FRAMES)
            return STATUS_LIMIT;
        TRY(reserve(&tracker->heads, &tracker->head_capacity, tracker->head_count + 1, sizeof tracker->heads[0]));
        *index = (uint32_t)tracker->head_count;
    }
    TRY(reserve(&tracker->order, &tracker->order_capacity, tracker->order_count + 1, sizeof tracker->order[0]));
    TRY(map_set(&tracker->by_address, address, *index));
    if (tracker->free_head != 0)
        tracker->free_head = tracker->heads[*index].next_free;
    else
        tracker->head_count++;
    tracker->heads[*index] = (struct linked_head){.address = address};
    tracker->order[tracker->order_count++] = *index;
    return STATUS_OK;
}

static void drop_head(struct linked_tracker *tracker, uint32_t index) {
    struct linked_head *head = &tracker->heads[index];
    (void)map_remove(&tracker->by_address, head->address);
    head->next_free = tracker->free_head;
    tracker->free_head = index + 1;
}

/* Everything in one call: the thread state, all heads, and the pointer to the innermost frame again. */
static enum status read_at_once(struct linked_tracker *tracker, struct thread_state *thread) {
    size_t count = 0, span = thread_state_span(layout_of(tracker));
    size_t head_bytes = frame_head_size(layout_of(tracker));
    if (span > sizeof tracker->thread_bytes)
        return STATUS_LIMIT;
    TRY(reserve(&tracker->pieces, &tracker->piece_capacity, tracker->order_count + 2, sizeof tracker->pieces[0]));
    struct memory_piece *pieces = tracker->pieces;
    pieces[count++] = (struct memory_piece){thread->address, tracker->thread_bytes, span};
    for (size_t i = 0; i < tracker->order_count; i++) {
        struct linked_head *head = &tracker->heads[tracker->order[i]];
        pieces[count++] = (struct memory_piece){head->address, head->bytes, head_bytes};
    }
    pieces[count++] = (struct memory_piece){thread->frame_slot, &tracker->frame_after, sizeof tracker->frame_after};
    tracker->look++;
    TRY(memory_read_pieces(tracker->runtime->live, pieces, count));
    for (size_t i = 0; i < tracker->order_count; i++)
        tracker->heads[tracker->order[i]].read = tracker->look;
    thread_state_decode(layout_of(tracker), thread->address, tracker->thread_bytes, thread);
    return STATUS_OK;
}

/* The type of frames is static: all of a process are of the same. */
static enum status check_type(struct linked_tracker *tracker, const uint8_t *bytes) {
    remote_addr type = load_u64(bytes + layout_of(tracker)->object.ob_type), name = 0;
    char text[8];
    if (type == tracker->frame_type && type != 0)
        return STATUS_OK;
    if (tracker->frame_type != 0)
        return STATUS_TORN;
    TRY(memory_read_u64(tracker->runtime->objects, type + layout_of(tracker)->type.tp_name, &name));
    TRY(memory_read_cstring(tracker->runtime->objects, name, text, sizeof text));
    if (strcmp(text, "frame") != 0)
        return STATUS_TORN;
    tracker->frame_type = type;
    return STATUS_OK;
}

/* The head of the frame at `address` as of this look; `guess` is where in the order it may be. */
static enum status get_head(struct linked_tracker *tracker, remote_addr address, size_t guess, uint32_t *index) {
    uint64_t known = 0;
    if (guess < tracker->order_count && tracker->heads[tracker->order[guess]].address == address)
        *index = tracker->order[guess];
    else if (map_get(&tracker->by_address, address, &known))
        *index = (uint32_t)known;
    else
        TRY(add_head(tracker, address, index));
    struct linked_head *head = &tracker->heads[*index];
    if (head->read != tracker->look) {
        TRY(memory_read(tracker->runtime->live, address, head->bytes, frame_head_size(layout_of(tracker))));
        head->read = tracker->look;
    }
    return check_type(tracker, head->bytes);
}

static bool is_running(const struct linked_tracker *tracker, const struct linked_head *head) {
    const struct layout_frame_object *fields = &layout_of(tracker)->frame_object;
    if (layout_has(fields->f_executing))
        return load_u8(head->bytes + fields->f_executing) != 0;
    uint8_t state = load_u8(head->bytes + fields->f_state);
    return state == FRAME_EXECUTING || state == FRAME_UNWINDING;
}

/* Whether a frame that runs stands at `address`. */
static bool runs_at(struct linked_tracker *tracker, remote_addr address, size_t guess) {
    uint32_t index = 0;
    return address != 0 && address % 8 == 0 && get_head(tracker, address, guess, &index) == STATUS_OK &&
           is_running(tracker, &tracker->heads[index]);
}

/* The caller of a frame. */
static enum status find_caller(struct linked_tracker *tracker, uint32_t index, const struct frame *frame, size_t guess,
                               remote_addr *caller) {
    struct linked_head *head = &tracker->heads[index];
    *caller = frame->previous;
    if (is_running(tracker, head)) {
        head->caller = frame->previous;
        head->caller_code = frame->code;
        return STATUS_OK;
    }
    /* What has not begun is as its caller made it. */
    if (frame->instruction == UINT64_MAX)
        return STATUS_OK;
    /* It has been left since it was the innermost one, and so may its callers. */
    if (head->caller_code != frame->code || head->caller == frame->previous)
        return frame->previous != 0 ? STATUS_OK : STATUS_TORN;
    remote_addr remembered = head->caller;
    if (!runs_at(tracker, frame->previous, guess))
        *caller = remembered;
    return STATUS_OK;
}

/* Follows the chain from the innermost frame; tracker->chain is it. */
static enum status follow(struct linked_tracker *tracker, remote_addr address) {
    /* Brent's way to notice a chain that bites its tail: compare with a frame left behind ever longer ago. */
    remote_addr left_behind = 0;
    tracker->chain_count = 0;
    while (address != 0) {
        size_t count = tracker->chain_count;
        uint32_t index = 0;
        struct frame frame;
        if (address == left_behind)
            return STATUS_TORN;
        if ((count & (count - 1)) == 0)
            left_behind = address;
        TRY(get_head(tracker, address, count, &index));
        TRY(frame_decode(layout_of(tracker), address, tracker->heads[index].bytes, &frame));
        TRY(reserve(&tracker->chain, &tracker->chain_capacity, count + 1, sizeof tracker->chain[0]));
        tracker->chain[tracker->chain_count++] = index;
        tracker->heads[index].chained = tracker->look;
        TRY(find_caller(tracker, index, &frame, count + 1, &address));
    }
    return STATUS_OK;
}

static enum status get_code(struct linked_tracker *tracker, struct linked_head *head, remote_addr address) {
    struct code_cache *codes = tracker->codes;
    if (head->code != NULL && head->code->address == address && head->code_epoch == codes->epoch)
        return STATUS_OK;
    TRY(code_cache_get(codes, address, &head->code));
    head->code_epoch = codes->epoch;
    return STATUS_OK;
}

/* Where a caller stood when it called, given where it stands now: at that call, or behind it if it has gone on. */
static int32_t calling_instruction(struct linked_tracker *tracker, const struct code *code, int32_t instruction_bytes) {
    for (int32_t i = instruction_bytes; i >= 0; i -= 2) {
        enum opcode_family family = code_cache_step(tracker->codes, code, i).family;
        if (family != OPCODE_OTHER && family != OPCODE_BY_THE_WAY)
            return i;
    }
    return instruction_bytes;
}

/* What the frame at `index` of the chain shows. */
static enum status show(struct linked_tracker *tracker, size_t index, bool steady, struct tracked_frame *tracked) {
    struct linked_head *head = &tracker->heads[tracker->chain[index]];
    struct frame frame;
    TRY(frame_decode(layout_of(tracker), head->address, head->bytes, &frame));
    TRY(get_code(tracker, head, frame.code));
    int64_t offset = (int64_t)frame.instruction;
    if (offset > (int64_t)head->code->bytecode_bytes)
        return STATUS_TORN;
    *tracked = (struct tracked_frame){.address = head->address,
                                      .instruction = frame.instruction,
                                      .code = head->code,
                                      .instruction_bytes = offset < 0 ? -1 : (int32_t)offset,
                                      .shown = true};
    if (index > 0 && !steady)
        tracked->instruction_bytes = calling_instruction(tracker, head->code, tracked->instruction_bytes);
    return STATUS_OK;
}

/* Makes tracker->stack of the chain. */
static enum status show_all(struct linked_tracker *tracker, const struct thread_state *thread) {
    struct tracked_stack *stack = &tracker->stack;
    bool steady = tracker->frame_after == thread->frame;
    size_t same = 0;
    for (size_t i = 0; i < tracker->chain_count; i++) {
        struct tracked_frame tracked;
        enum status status = show(tracker, tracker->chain_count - 1 - i, steady, &tracked);
        const struct tracked_frame *old = &stack->frames[i];
        if (status == STATUS_OK && same == i && i < stack->count && old->address == tracked.address &&
            old->code == tracked.code && old->instruction_bytes == tracked.instruction_bytes)
            same++;
        else if (status == STATUS_OK)
            status = tracked_stack_put(stack, i, &tracked);
        if (status != STATUS_OK) {
            stack->unchanged = stack->unchanged < same ? stack->unchanged : same;
            stack->count = same;
            return status;
        }
    }
    stack->unchanged = stack->unchanged < same ? stack->unchanged : same;
    stack->count = tracker->chain_count;
    return STATUS_OK;
}

/* What to read next time, and in which order: this chain, then the others. */
static enum status predict(struct linked_tracker *tracker) {
    size_t count = tracker->chain_count, kept = count;
    if (tracker->order_count >= count &&
        memcmp(tracker->order, tracker->chain, count * sizeof tracker->order[0]) == 0 &&
        tracker->order_count <= count + MAX_OTHERS)
        return STATUS_OK;
    TRY(reserve(&tracker->chain, &tracker->chain_capacity, count + tracker->order_count, sizeof tracker->chain[0]));
    for (size_t i = 0; i < tracker->order_count; i++) {
        uint32_t index = tracker->order[i];
        if (tracker->heads[index].chained == tracker->look)
            continue;
        if (kept < count + MAX_OTHERS)
            tracker->chain[kept++] = index;
        else
            drop_head(tracker, index);
    }
    memcpy(tracker->order, tracker->chain, kept * sizeof tracker->order[0]);
    tracker->order_count = kept;
    return STATUS_OK;
}

static enum status attempt(struct linked_tracker *tracker, struct thread_state *thread) {
    TRY(read_at_once(tracker, thread));
    TRY(follow(tracker, thread->frame));
    TRY(show_all(tracker, thread));
    return predict(tracker);
}

enum status linked_tracker_look(struct linked_tracker *tracker, struct thread_state *thread, unsigned max_attempts) {
    enum status status = STATUS_TORN;
    if (!tracker->failed)
        tracker->stack.unchanged = tracker->stack.count;
    tracker->failed = true;
    for (unsigned i = 0; i < max_attempts && status == STATUS_TORN; i++) {
        status = attempt(tracker, thread);
        if (status == STATUS_UNREADABLE) {
            /* The memory of a frame has been given back. */
            forget_heads(tracker);
            status = STATUS_TORN;
        }
    }
    tracker->failed = status != STATUS_OK;
    return status;
}
