#include "unwind/linked_tracker.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Frames read along that were not part of the last stack. Each costs 0.2 µs a look. */
    MAX_OTHERS = 24,
    /* Frames whose caller changes, which are read first. */
    MAX_SHIFTY = 12,
    /* So many looks does a frame that was not seen stay read along, and a frame whose caller changed read first. */
    MEMORY_LOOKS = 1024,
    MAX_CONTEXTS = 1 << 14,
    /* What was seen so many times less often than something else was not seen. */
    CONTEXT_RATIO = 10,
    /* Of a frame, so many callers are remembered. */
    SHIFTY_CALLERS = 4,
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
    uint64_t read;                       /* the look of which the bytes are */
    uint64_t chained;                    /* the look of which it was last part of the stack */
    uint64_t ordered;                    /* the look after which it was put into the order */
    uint64_t shifted;                    /* the look at which its caller was another than before; 0: never */
    remote_addr callers[SHIFTY_CALLERS]; /* its callers when it was seen running, the last one first, */
    remote_addr own_code;                /* and what it ran then itself */
    uint32_t caller_index;               /* where its caller's head was found last */
    bool is_first;                       /* was read first at the last look */
    uint32_t depth;                      /* callers above it when it was last part of the stack */
    bool shifty;                         /* is read first */
    bool recursive;                      /* was seen called by its own code */
    const struct code *code;             /* NULL: not looked up yet */
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
    *tracker =
        (struct linked_tracker){.runtime = runtime, .codes = codes, .study = {.runtime = runtime, .codes = codes}};
}

void linked_tracker_release(struct linked_tracker *tracker) {
    tracked_stack_release(&tracker->stack);
    map_release(&tracker->by_address);
    map_release(&tracker->contexts);
    call_sites_release(&tracker->sites);
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
    tracker->shifty_count = 0;
    tracker->chain_count = 0;
}

void linked_tracker_forget(struct linked_tracker *tracker) {
    forget_heads(tracker);
    map_clear(&tracker->contexts);
    call_sites_forget(&tracker->sites);
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
    tracker->order_stale = true;
    return STATUS_OK;
}

static void drop_head(struct linked_tracker *tracker, uint32_t index) {
    struct linked_head *head = &tracker->heads[index];
    (void)map_remove(&tracker->by_address, head->address);
    head->address = 0;
    head->next_free = tracker->free_head;
    tracker->free_head = index + 1;
}

/* Which of the order is read right behind the pointer to the innermost frame, which is then read again: what holds for
 * both holds for the frame between. By turns all of them, to learn who calls whom and where; mostly that which can
 * mislead. */
static size_t choose_first(const struct linked_tracker *tracker) {
    if (tracker->order_count == 0 || (tracker->shifty_count > 0 && tracker->look % 2 == 0))
        return 0;
    return (size_t)(tracker->look / 2 % tracker->order_count);
}

/* Everything in one call: the thread state, all heads, and the pointer to the innermost frame again. */
static enum status read_at_once(struct linked_tracker *tracker, struct thread_state *thread) {
    size_t count = 0, span = thread_state_span(layout_of(tracker));
    size_t head_bytes = frame_head_size(layout_of(tracker));
    if (span > sizeof tracker->thread_bytes)
        return STATUS_LIMIT;
    TRY(reserve(&tracker->pieces, &tracker->piece_capacity, tracker->order_count + 3, sizeof tracker->pieces[0]));
    struct memory_piece *pieces = tracker->pieces;
    tracker->frame_meanwhile = 0;
    pieces[count++] = (struct memory_piece){thread->address, tracker->thread_bytes, span};
    size_t first = choose_first(tracker);
    for (size_t i = 0; i < tracker->order_count; i++) {
        struct linked_head *head = &tracker->heads[tracker->order[i == 0 ? first : i <= first ? i - 1 : i]];
        head->is_first = i == 0;
        pieces[count++] = (struct memory_piece){head->address, head->bytes, head_bytes};
        if (i == 0)
            pieces[count++] =
                (struct memory_piece){thread->frame_slot, &tracker->frame_meanwhile, sizeof tracker->frame_meanwhile};
    }
    pieces[count++] = (struct memory_piece){thread->frame_slot, &tracker->frame_after, sizeof tracker->frame_after};
    tracker->look++;
    TRY(memory_read_pieces(tracker->runtime->live, pieces, count));
    for (size_t i = 0; i < tracker->order_count; i++) {
        tracker->heads[tracker->order[i]].read = tracker->look;
    }
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

/* The head of the frame at `address` as of this look; `guess` is where it may be. */
static enum status get_head(struct linked_tracker *tracker, remote_addr address, uint32_t guess, uint32_t *index) {
    uint64_t known = 0;
    if (guess < tracker->head_count && tracker->heads[guess].address == address)
        *index = guess;
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
static bool runs_at(struct linked_tracker *tracker, remote_addr address, uint32_t guess) {
    uint32_t index = 0;
    return address != 0 && address % 8 == 0 && get_head(tracker, address, guess, &index) == STATUS_OK &&
           is_running(tracker, &tracker->heads[index]);
}

/* The innermost frame that runs of the stack that was there when all had been read; 0 when it is not known. */
static remote_addr running_after(struct linked_tracker *tracker) {
    remote_addr address = tracker->frame_after;
    for (unsigned hops = 0; hops < MAX_OTHERS && address != 0; hops++) {
        uint32_t index = 0;
        struct frame frame;
        if (get_head(tracker, address, UINT32_MAX, &index) != STATUS_OK ||
            frame_decode(layout_of(tracker), address, tracker->heads[index].bytes, &frame) != STATUS_OK)
            return 0;
        if (is_running(tracker, &tracker->heads[index]))
            return address;
        address = frame.previous;
    }
    return 0;
}

/* The caller of a frame that has been left since it was the innermost one and whose f_back does not tell. */
static enum status guess_caller(struct linked_tracker *tracker, uint32_t index, const struct frame *frame,
                                remote_addr *caller) {
    const struct linked_head head = tracker->heads[index];
    *caller = frame->previous;
    if (runs_at(tracker, frame->previous, head.caller_index))
        return STATUS_OK;
    /* It may have been left as well; then its own caller is looked for in the same way. */
    *caller = head.callers[0];
    if (head.own_code == frame->code && *caller != 0)
        return STATUS_OK;
    *caller = frame->previous;
    if (*caller != 0)
        return STATUS_OK;
    /* A generator that has yielded, most likely to what runs now. */
    *caller = running_after(tracker);
    return *caller != 0 && *caller != frame->address ? STATUS_OK : STATUS_TORN;
}

static void remember_caller(struct linked_tracker *tracker, struct linked_head *head, const struct frame *frame) {
    size_t place = 0;
    if (head->own_code != 0 && (head->own_code != frame->code || head->callers[0] != frame->previous))
        head->shifted = tracker->look;
    head->own_code = frame->code;
    while (place < SHIFTY_CALLERS - 1 && head->callers[place] != frame->previous)
        place++;
    memmove(head->callers + 1, head->callers, place * sizeof head->callers[0]);
    head->callers[0] = frame->previous;
}

/* What stands for: a frame of this code, called from that code, has called this code. */
static enum status context_key(struct linked_tracker *tracker, remote_addr caller, remote_addr code, remote_addr callee,
                               uint64_t *key) {
    uint32_t index = 0;
    uint64_t caller_code = 0;
    if (caller != 0) {
        TRY(get_head(tracker, caller, UINT32_MAX, &index));
        caller_code = load_u64(tracker->heads[index].bytes + layout_of(tracker)->frame_object.f_code);
    }
    *key = ((caller_code * UINT64_C(0x9e3779b97f4a7c15)) ^ code) * UINT64_C(0xc2b2ae3d27d4eb4f) ^ callee;
    return STATUS_OK;
}

/* How often that was seen. */
static uint64_t context_weight(struct linked_tracker *tracker, remote_addr caller, remote_addr code,
                               remote_addr callee) {
    uint64_t key = 0, weight = 0;
    if (context_key(tracker, caller, code, callee, &key) == STATUS_OK)
        (void)map_get(&tracker->contexts, key, &weight);
    return weight;
}

static enum status note_context(struct linked_tracker *tracker, remote_addr caller, remote_addr code,
                                remote_addr callee) {
    uint64_t key = 0, weight = 0;
    if (context_key(tracker, caller, code, callee, &key) != STATUS_OK)
        return STATUS_OK;
    (void)map_get(&tracker->contexts, key, &weight);
    if (tracker->contexts.count >= MAX_CONTEXTS)
        map_clear(&tracker->contexts);
    return map_set(&tracker->contexts, key, weight + 1);
}

static bool runs_code(struct linked_tracker *tracker, remote_addr address, remote_addr code) {
    uint32_t index = 0;
    return get_head(tracker, address, UINT32_MAX, &index) == STATUS_OK &&
           load_u64(tracker->heads[index].bytes + layout_of(tracker)->frame_object.f_code) == code;
}

/* A shifty frame may have been called again, by another, before it was read. If so, what it had called before tells: of
 * its callers it is the one with which that was seen while nothing happened. (Strobe can be held up between two pieces
 * of a read: then it seems that nothing happened while everything did. That is rare.) `callee` is the code of what it
 * has called, 0 for the innermost frame, of which nothing can be told. */
static enum status check_context(struct linked_tracker *tracker, uint32_t index, bool certain, remote_addr callee) {
    const struct linked_head head = tracker->heads[index];
    struct frame frame;
    if (callee == 0 || !head.shifty || tracker->paused ||
        frame_decode(layout_of(tracker), head.address, head.bytes, &frame) != STATUS_OK)
        return STATUS_OK;
    if (certain)
        return is_running(tracker, &head) ? note_context(tracker, frame.previous, frame.code, callee) : STATUS_OK;
    uint64_t weight = context_weight(tracker, frame.previous, frame.code, callee);
    remote_addr caller = 0;
    for (size_t i = 0; i < SHIFTY_CALLERS; i++)
        if (head.callers[i] != 0 && head.callers[i] != frame.previous) {
            uint64_t other = context_weight(tracker, head.callers[i], frame.code, callee);
            if (other > CONTEXT_RATIO * weight) {
                weight = other;
                caller = head.callers[i];
            }
        }
    /* Recursive calls take their frames from a list, not twice the same: no guess would be right. */
    if (caller != 0 && runs_code(tracker, caller, frame.code))
        return STATUS_TORN;
    if (caller != 0)
        memcpy(tracker->heads[index].bytes + layout_of(tracker)->frame_object.f_back, &caller, sizeof caller);
    return STATUS_OK;
}

static enum status find_caller(struct linked_tracker *tracker, uint32_t index, const struct frame *frame,
                               remote_addr *caller) {
    struct linked_head *head = &tracker->heads[index];
    *caller = frame->previous;
    if (is_running(tracker, head)) {
        remember_caller(tracker, head, frame);
        return STATUS_OK;
    }
    /* What has not begun is as its caller made it. */
    if (frame->instruction == UINT64_MAX && frame->previous != 0)
        return STATUS_OK;
    if (frame->previous != 0 && head->own_code == frame->code && head->callers[0] == frame->previous)
        return STATUS_OK;
    head->shifted = tracker->look;
    return guess_caller(tracker, index, frame, caller);
}

static void note_place(struct linked_tracker *tracker, uint32_t index, size_t depth) {
    struct linked_head *head = &tracker->heads[index];
    bool shifty = head->shifted != 0 && tracker->look - head->shifted < MEMORY_LOOKS;
    head->chained = tracker->look;
    tracker->order_stale |= head->depth != depth || head->shifty != shifty;
    head->depth = (uint32_t)depth;
    head->shifty = shifty;
}

/* Frames of recursive calls come from a list, so that each is now this call's, now that one's: what has been left says
 * nothing. */
static enum status check_recursion(struct linked_tracker *tracker, uint32_t index, const struct frame *frame,
                                   remote_addr callee) {
    struct linked_head *head = &tracker->heads[index];
    if (tracker->chain_count == 0)
        return STATUS_OK;
    struct linked_head *below = &tracker->heads[tracker->chain[tracker->chain_count - 1]];
    if (frame->code == callee)
        head->recursive = below->recursive = true;
    if (!head->recursive || tracker->paused)
        return STATUS_OK;
    return is_running(tracker, head) && is_running(tracker, below) ? STATUS_OK : STATUS_TORN;
}

/* The outermost frame is one that stays, and no generator's. */
static enum status check_end(const struct linked_tracker *tracker) {
    if (tracker->chain_count == 0)
        return STATUS_OK;
    const struct linked_head *head = &tracker->heads[tracker->chain[tracker->chain_count - 1]];
    if (load_u64(head->bytes + layout_of(tracker)->frame_object.f_gen) != 0)
        return STATUS_TORN;
    return tracker->chain_count == 1 || is_running(tracker, head) ? STATUS_OK : STATUS_TORN;
}

/* Follows the chain from the innermost frame; tracker->chain is it. */
static enum status follow(struct linked_tracker *tracker, remote_addr address) {
    /* Brent's way to notice a chain that bites its tail: compare with a frame left behind ever longer ago. */
    remote_addr left_behind = 0;
    uint32_t guess = UINT32_MAX;
    bool same_leaf = tracker->frame_meanwhile == address;
    remote_addr callee = 0;
    tracker->chain_count = 0;
    while (address != 0) {
        size_t count = tracker->chain_count;
        uint32_t index = 0;
        struct frame frame;
        if (address == left_behind)
            return STATUS_TORN;
        if ((count & (count - 1)) == 0)
            left_behind = address;
        TRY(get_head(tracker, address, guess, &index));
        TRY(check_context(tracker, index, same_leaf && tracker->heads[index].is_first, callee));
        TRY(frame_decode(layout_of(tracker), address, tracker->heads[index].bytes, &frame));
        TRY(check_recursion(tracker, index, &frame, callee));
        callee = frame.code;
        TRY(reserve(&tracker->chain, &tracker->chain_capacity, count + 1, sizeof tracker->chain[0]));
        if (count > 0)
            tracker->heads[tracker->chain[count - 1]].caller_index = index;
        tracker->chain[tracker->chain_count++] = index;
        TRY(find_caller(tracker, index, &frame, &address));
        guess = tracker->heads[index].caller_index;
    }
    TRY(check_end(tracker));
    for (size_t i = 0; i < tracker->chain_count; i++)
        note_place(tracker, tracker->chain[i], tracker->chain_count - 1 - i);
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

/* Whether the frame at `address` or one of its callers is `wanted`, as far as heads were read. */
static bool leads_to(struct linked_tracker *tracker, remote_addr address, const struct linked_head *wanted) {
    for (unsigned hops = 0; hops < MAX_OTHERS && address != 0; hops++) {
        uint64_t index = 0;
        if (address == wanted->address)
            return true;
        if (!map_get(&tracker->by_address, address, &index) || tracker->heads[index].read != tracker->look)
            return false;
        address = load_u64(tracker->heads[index].bytes + layout_of(tracker)->frame_object.f_back);
    }
    return false;
}

/* Whether a caller was read while the frame it has called was on the stack: before and after, it was. */
static bool is_caught_calling(struct linked_tracker *tracker, const struct linked_head *caller,
                              const struct linked_head *callee) {
    return caller->is_first && is_running(tracker, caller) && leads_to(tracker, tracker->frame_meanwhile, callee);
}

/* Learns what a caller calls from where, by its own word; `callee` is what it has called in this look. */
static enum status study_call(struct linked_tracker *tracker, const struct linked_head *caller,
                              const struct code *callee) {
    struct studied_call call;
    enum status status = frame_study_call(&tracker->study, caller->address, &call);
    if (status != STATUS_OK)
        return status == STATUS_FAILED ? status : STATUS_OK;
    if (!call.direct && call.callee != callee)
        return STATUS_OK;
    return call_sites_note(&tracker->sites, call.caller, call.instruction_bytes, call.callee,
                           call.standing ? CALL_CERTAIN : CALL_COPIED);
}

/* Where a caller stood when it called, given where it stands now: *instruction_bytes. */
static enum status place_caller(struct linked_tracker *tracker, const struct linked_head *caller,
                                const struct linked_head *callee, int32_t *instruction_bytes) {
    struct call_sites *sites = &tracker->sites;
    if (call_sites_knows(sites, caller->code, *instruction_bytes, callee->code))
        return STATUS_OK;
    if (is_caught_calling(tracker, caller, callee))
        TRY(call_sites_note(sites, caller->code, *instruction_bytes, callee->code, CALL_LIKELY));
    if (call_sites_asks(sites, caller->code, callee->code))
        TRY(study_call(tracker, caller, callee->code));
    if (!tracker->last_attempt && !call_sites_is_settled(sites, caller->code, callee->code))
        return STATUS_TORN;
    *instruction_bytes = call_sites_guess(sites, tracker->codes, caller->code, callee->code, *instruction_bytes);
    return STATUS_OK;
}

/* What the frame at `index` of the chain shows. */
static enum status show(struct linked_tracker *tracker, size_t index, struct tracked_frame *tracked) {
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
    if (index == 0 || tracker->paused)
        return STATUS_OK;
    struct linked_head *callee = &tracker->heads[tracker->chain[index - 1]];
    remote_addr callee_code = load_u64(callee->bytes + layout_of(tracker)->frame_object.f_code);
    TRY(get_code(tracker, callee, callee_code));
    return place_caller(tracker, head, callee, &tracked->instruction_bytes);
}

/* Makes tracker->stack of the chain. */
static enum status show_all(struct linked_tracker *tracker) {
    struct tracked_stack *stack = &tracker->stack;
    size_t same = 0;
    for (size_t i = 0; i < tracker->chain_count; i++) {
        struct tracked_frame tracked;
        enum status status = show(tracker, tracker->chain_count - 1 - i, &tracked);
        const struct tracked_frame *old = same == i && i < stack->count ? &stack->frames[i] : NULL;
        if (status == STATUS_OK && old != NULL && old->address == tracked.address && old->code == tracked.code &&
            old->instruction_bytes == tracked.instruction_bytes)
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

/* Takes the frames that are not part of this stack out of the order; drops those not seen for long, and those too many.
 * They end behind the chain, innermost first. */
static enum status choose_others(struct linked_tracker *tracker, size_t *count) {
    uint32_t others[MAX_OTHERS];
    *count = 0;
    for (size_t i = 0; i < tracker->order_count; i++) {
        uint32_t index = tracker->order[i];
        const struct linked_head *head = &tracker->heads[index];
        if (head->chained == tracker->look)
            continue;
        size_t place = *count;
        if (tracker->look - head->chained >= MEMORY_LOOKS) {
            drop_head(tracker, index);
            continue;
        }
        while (place > 0 && tracker->heads[others[place - 1]].chained < head->chained)
            place--;
        if (*count == MAX_OTHERS) {
            drop_head(tracker, place == MAX_OTHERS ? index : others[MAX_OTHERS - 1]);
            if (place == MAX_OTHERS)
                continue;
        } else {
            (*count)++;
        }
        memmove(others + place + 1, others + place, (*count - 1 - place) * sizeof others[0]);
        others[place] = index;
    }
    for (size_t i = 1; i < *count; i++) {
        uint32_t index = others[i];
        size_t place = i;
        for (; place > 0 && tracker->heads[others[place - 1]].depth < tracker->heads[index].depth; place--)
            others[place] = others[place - 1];
        others[place] = index;
    }
    TRY(reserve(&tracker->chain, &tracker->chain_capacity, tracker->chain_count + *count, sizeof tracker->chain[0]));
    if (*count > 0)
        memcpy(tracker->chain + tracker->chain_count, others, *count * sizeof others[0]);
    return STATUS_OK;
}

/* Puts into the order, innermost first, the shifty ones of the chain and the others behind it, or the rest. */
static size_t put_in_order(struct linked_tracker *tracker, size_t other_count, bool shifty, size_t count,
                           size_t limit) {
    const uint32_t *chain = tracker->chain;
    const size_t end = tracker->chain_count, other_end = end + other_count;
    for (size_t next = 0, other = end; next < end || other < other_end;) {
        bool takes_other = next == end || (other < other_end &&
                                           tracker->heads[chain[other]].depth > tracker->heads[chain[next]].depth);
        uint32_t index = takes_other ? chain[other++] : chain[next++];
        struct linked_head *head = &tracker->heads[index];
        if (shifty && (!head->shifty || count == limit))
            continue;
        if (!shifty && head->ordered == tracker->look)
            continue;
        head->ordered = tracker->look;
        tracker->order[count++] = index;
    }
    return count;
}

/* What to read next time, and in which order. What can mislead comes right behind the pointer to the innermost frame:
 * frames that have been called by now this, now that one. Then inner ones before outer ones, since they change sooner.
 */
static enum status predict(struct linked_tracker *tracker) {
    size_t other_count = 0;
    if (!tracker->order_stale && tracker->look % MEMORY_LOOKS != 0)
        return STATUS_OK;
    TRY(choose_others(tracker, &other_count));
    size_t count = put_in_order(tracker, other_count, true, 0, MAX_SHIFTY);
    tracker->shifty_count = count;
    tracker->order_count = put_in_order(tracker, other_count, false, count, SIZE_MAX);
    tracker->order_stale = false;
    return STATUS_OK;
}

static enum status attempt(struct linked_tracker *tracker, struct thread_state *thread) {
    TRY(read_at_once(tracker, thread));
    TRY(follow(tracker, thread->frame));
    TRY(show_all(tracker));
    return predict(tracker);
}

enum status linked_tracker_look(struct linked_tracker *tracker, struct thread_state *thread, unsigned max_attempts) {
    enum status status = STATUS_TORN;
    if (!tracker->failed)
        tracker->stack.unchanged = tracker->stack.count;
    tracker->failed = true;
    for (unsigned i = 0; i < max_attempts && status == STATUS_TORN; i++) {
        tracker->last_attempt = i + 1 == max_attempts;
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
