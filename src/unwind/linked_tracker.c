#include "unwind/linked_tracker.h"

#include "base/array.h"
#include "base/clock.h"
#include "unwind/linked_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_CONTEXTS = 1 << 14,
    /* What was seen so many times less often than something else was not seen. */
    CONTEXT_RATIO = 10,
    /* Of a chain that is not whole. */
    MAX_BELIEVED = 64,
    /* Calls of C that are counted as calls, on top of those that are always there. */
    MAX_MORE_SURPLUS = 8,
    /* What was seen so many times more often is believed against what the count of calls says. */
    DEPTH_RATIO = 2,
    /* Of a chain that was put together from what was read and what was recalled, so many frames are to have been read
     * for it to be remembered. */
    LEAST_BELIEVED = 4,
};

static const uint64_t NO_SURPLUS = UINT32_MAX;

bool linked_tracker_supports(const struct runtime *runtime) {
    return layout_has(runtime->layout.thread.frame) && frame_head_size(&runtime->layout) <= LINKED_HEAD_MAX_BYTES;
}

void linked_tracker_init(struct linked_tracker *tracker, struct runtime *runtime, struct code_cache *codes) {
    *tracker = (struct linked_tracker){
        .runtime = runtime, .codes = codes, .least_surplus = NO_SURPLUS, .study = {.runtime = runtime, .codes = codes}};
}

void linked_tracker_release(struct linked_tracker *tracker) {
    tracked_stack_release(&tracker->stack);
    map_release(&tracker->by_address);
    map_release(&tracker->contexts);
    map_release(&tracker->recursive_codes);
    seen_chains_release(&tracker->chains);
    call_sites_release(&tracker->sites);
    free(tracker->heads);
    free(tracker->order);
    free(tracker->chain);
    free(tracker->pieces);
    *tracker = (struct linked_tracker){0};
}

void linked_tracker_forget(struct linked_tracker *tracker) {
    linked_heads_forget(tracker);
    map_clear(&tracker->contexts);
    map_clear(&tracker->recursive_codes);
    seen_chains_forget(&tracker->chains);
    call_sites_forget(&tracker->sites);
    tracker->stack.count = 0;
    tracker->stack.unchanged = 0;
    tracker->least_surplus = NO_SURPLUS;
    tracker->frame_type = 0;
}

/* The innermost frame that runs of the stack that was there when all had been read; 0 when it is not known. */
static remote_addr running_after(struct linked_tracker *tracker) {
    remote_addr address = tracker->frame_after;
    for (unsigned hops = 0; hops < LINKED_MAX_OTHERS && address != 0; hops++) {
        uint32_t index = 0;
        struct frame frame;
        if (linked_heads_get(tracker, address, UINT32_MAX, &index) != STATUS_OK ||
            frame_decode(linked_layout(tracker), address, tracker->heads[index].bytes, &frame) != STATUS_OK)
            return 0;
        if (linked_head_runs(tracker, &tracker->heads[index]))
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
    if (linked_heads_runs_at(tracker, frame->previous, head.caller_index))
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
    while (place < LINKED_CALLERS - 1 && head->callers[place] != frame->previous)
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
        TRY(linked_heads_get(tracker, caller, UINT32_MAX, &index));
        caller_code = load_u64(tracker->heads[index].bytes + linked_layout(tracker)->frame_object.f_code);
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
    return linked_heads_get(tracker, address, UINT32_MAX, &index) == STATUS_OK &&
           load_u64(tracker->heads[index].bytes + linked_layout(tracker)->frame_object.f_code) == code;
}

/* A shifty frame may have been called again, by another, before it was read. If so, what it had called before tells: of
 * its callers it is the one with which that was seen while nothing happened. (Strobe can be held up between two pieces
 * of a read: then it seems that nothing happened while everything did. That is rare.) `callee` is the code of what it
 * has called, 0 for the innermost frame, of which nothing can be told. */
static enum status check_context(struct linked_tracker *tracker, uint32_t index, bool certain, remote_addr callee) {
    const struct linked_head head = tracker->heads[index];
    struct frame frame;
    if (callee == 0 || !head.shifty || tracker->paused ||
        frame_decode(linked_layout(tracker), head.address, head.bytes, &frame) != STATUS_OK)
        return STATUS_OK;
    if (certain)
        return linked_head_runs(tracker, &head) ? note_context(tracker, frame.previous, frame.code, callee) : STATUS_OK;
    uint64_t weight = context_weight(tracker, frame.previous, frame.code, callee);
    remote_addr caller = 0;
    for (size_t i = 0; i < LINKED_CALLERS; i++)
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
        memcpy(tracker->heads[index].bytes + linked_layout(tracker)->frame_object.f_back, &caller, sizeof caller);
    return STATUS_OK;
}

static enum status find_caller(struct linked_tracker *tracker, uint32_t index, const struct frame *frame,
                               remote_addr *caller) {
    struct linked_head *head = &tracker->heads[index];
    *caller = frame->previous;
    if (linked_head_runs(tracker, head)) {
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
    bool shifty = head->shifted != 0 && tracker->look - head->shifted < LINKED_MEMORY_LOOKS;
    head->chained = tracker->look;
    tracker->order_stale |= head->depth != depth || head->shifty != shifty;
    head->depth = (uint32_t)depth;
    head->shifty = shifty;
}

static enum status add_to_chain(struct linked_tracker *tracker, uint32_t index) {
    size_t count = tracker->chain_count;
    TRY(array_reserve((void **)&tracker->chain, &tracker->chain_capacity, count + 1, sizeof tracker->chain[0]));
    if (count > 0)
        tracker->heads[tracker->chain[count - 1]].caller_index = index;
    tracker->chain[tracker->chain_count++] = index;
    return STATUS_OK;
}

/* Frames of recursive calls come from a list, so that each is now this call's, now that one's: what has been left says
 * nothing, and what runs may have been called since by another. So a caller has to stand where it calls that, unless it
 * has gone on since, and what it had called was no such frame. */
static enum status check_recursion(struct linked_tracker *tracker, uint32_t index, const struct frame *frame,
                                   remote_addr callee) {
    struct linked_head *head = &tracker->heads[index];
    uint64_t times = 0;
    if (frame->code == callee)
        TRY(map_set(&tracker->recursive_codes, callee, 1));
    head->recursive = map_get(&tracker->recursive_codes, frame->code, &times);
    tracker->recursive |= head->recursive;
    if (tracker->chain_count == 0 || tracker->paused || !head->recursive)
        return STATUS_OK;
    struct linked_head *below = &tracker->heads[tracker->chain[tracker->chain_count - 1]];
    TRY(linked_head_code(tracker, head, frame->code));
    TRY(linked_head_code(tracker, below, callee));
    if (!linked_head_runs(tracker, below)) {
        bool known = call_sites_calls(&tracker->sites, head->code, below->code);
        if (known && !below->recursive && linked_head_runs(tracker, head))
            return STATUS_OK;
        /* It was still this call's, most likely, where it has called that before. */
        if (known)
            TRY(add_to_chain(tracker, index));
        return STATUS_TORN;
    }
    if (!linked_head_runs(tracker, head) || frame->instruction > head->code->bytecode_bytes)
        return STATUS_TORN;
    bool certain = false;
    TRY(linked_sites_check(tracker, head, (int32_t)frame->instruction, below->code, &certain));
    tracker->doubtful |= !certain;
    return STATUS_OK;
}

/* There cannot be more frames than the interpreter counts calls, nor many fewer (calls of C are counted, too) where all
 * have called each other themselves. */
static bool has_right_depth(const struct linked_tracker *tracker) {
    if (tracker->chain_count > tracker->recursion_depth)
        return false;
    return tracker->doubtful ||
           tracker->recursion_depth - tracker->chain_count <= tracker->least_surplus + MAX_MORE_SURPLUS;
}

/* The outermost frame is one that stays, and no generator's. There cannot be more frames than the interpreter counts
 * calls. */
static enum status check_end(const struct linked_tracker *tracker) {
    if (tracker->chain_count == 0)
        return STATUS_OK;
    const struct linked_head *head = &tracker->heads[tracker->chain[tracker->chain_count - 1]];
    if (load_u64(head->bytes + linked_layout(tracker)->frame_object.f_gen) != 0)
        return STATUS_TORN;
    if (tracker->recursive && !tracker->paused && !has_right_depth(tracker))
        return STATUS_TORN;
    return tracker->chain_count == 1 || linked_head_runs(tracker, head) ? STATUS_OK : STATUS_TORN;
}

/* Follows the chain from the innermost frame; tracker->chain is it, or as much of it as can be told. */
static enum status follow(struct linked_tracker *tracker, remote_addr address) {
    /* Brent's way to notice a chain that bites its tail: compare with a frame left behind ever longer ago. */
    remote_addr left_behind = 0;
    uint32_t guess = UINT32_MAX;
    bool same_leaf = tracker->frame_meanwhile == address;
    remote_addr callee = 0;
    tracker->chain_count = 0;
    tracker->recursive = false;
    tracker->doubtful = false;
    while (address != 0) {
        size_t count = tracker->chain_count;
        uint32_t index = 0;
        struct frame frame;
        if (address == left_behind)
            return STATUS_TORN;
        if ((count & (count - 1)) == 0)
            left_behind = address;
        TRY(linked_heads_get(tracker, address, guess, &index));
        TRY(check_context(tracker, index, same_leaf && tracker->heads[index].is_first, callee));
        TRY(frame_decode(linked_layout(tracker), address, tracker->heads[index].bytes, &frame));
        TRY(check_recursion(tracker, index, &frame, callee));
        callee = frame.code;
        TRY(add_to_chain(tracker, index));
        TRY(find_caller(tracker, index, &frame, &address));
        guess = tracker->heads[index].caller_index;
    }
    return check_end(tracker);
}

/* What is to be read next time when this chain was whole. */
static enum status predict(struct linked_tracker *tracker) {
    for (size_t i = 0; i < tracker->chain_count; i++)
        note_place(tracker, tracker->chain[i], tracker->chain_count - 1 - i);
    return linked_heads_predict(tracker);
}

/* So many of the innermost frames are believed of a chain that is not whole, and their codes. */
static size_t list_believed(struct linked_tracker *tracker, const struct code *codes[MAX_BELIEVED]) {
    size_t count = tracker->chain_count < MAX_BELIEVED ? tracker->chain_count : MAX_BELIEVED;
    for (size_t i = 0; i < count; i++) {
        struct linked_head *head = &tracker->heads[tracker->chain[i]];
        remote_addr code = load_u64(head->bytes + linked_layout(tracker)->frame_object.f_code);
        if (linked_head_code(tracker, head, code) != STATUS_OK)
            return i;
        codes[i] = head->code;
    }
    return count;
}

/* Who called the outermost of the codes, of which the innermost is at that depth, or about: the interpreter counts a
 * call just before it says which frame is the innermost, and calls of C, too. But then what the number says was seen
 * far more seldom. */
static uint32_t recall_about(struct linked_tracker *tracker, const struct code *const *codes, size_t count,
                             size_t depth, bool known) {
    const size_t depths[] = {depth, depth - (depth > 0), depth + 1};
    uint64_t most = 0;
    uint32_t found = 0;
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        uint64_t times = 0;
        uint32_t link = seen_chains_recall(&tracker->chains, codes, count, depths[i], tracker->random, &times);
        if (i == 0 && link == 0 && known)
            return 0;
        if (link == 0 || times <= most * DEPTH_RATIO)
            continue;
        most = times;
        found = link;
    }
    return found;
}

/* The callers of those frames of a chain that can be told, from when such a stack was seen whole, and as many calls
 * were counted. (That number was read along with the pointer to the innermost frame.) */
static enum status recall_callers(struct linked_tracker *tracker) {
    const struct code *codes[MAX_BELIEVED];
    size_t count = list_believed(tracker, codes), depth = tracker->recursion_depth;
    uint64_t times = 0;
    if (count == 0)
        return STATUS_TORN;
    tracker->random = tracker->random * 1664525 + 1013904223;
    tracker->chain_count = count;
    tracker->recalled = recall_about(tracker, codes, count, depth, true);
    for (size_t i = 1; i < count && i <= depth && tracker->recalled == 0; i++)
        tracker->recalled =
            seen_chains_recall(&tracker->chains, codes + i, count - i, depth - i, tracker->random, &times);
    if (tracker->recalled == 0)
        tracker->recalled = recall_about(tracker, codes, count, depth, false);
    return tracker->recalled != 0 ? STATUS_OK : STATUS_TORN;
}

/* What the frame at `index` of the chain shows. */
static enum status show(struct linked_tracker *tracker, size_t index, struct tracked_frame *tracked) {
    struct linked_head *head = &tracker->heads[tracker->chain[index]];
    struct frame frame;
    TRY(frame_decode(linked_layout(tracker), head->address, head->bytes, &frame));
    TRY(linked_head_code(tracker, head, frame.code));
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
    remote_addr callee_code = load_u64(callee->bytes + linked_layout(tracker)->frame_object.f_code);
    TRY(linked_head_code(tracker, callee, callee_code));
    return linked_sites_place(tracker, head, callee, &tracked->instruction_bytes);
}

/* Puts a frame; *same counts those that are as they were. */
static enum status put(struct linked_tracker *tracker, size_t index, const struct tracked_frame *tracked,
                       size_t *same) {
    struct tracked_stack *stack = &tracker->stack;
    const struct tracked_frame *old = *same == index && index < stack->count ? &stack->frames[index] : NULL;
    if (old == NULL || old->address != tracked->address || old->code != tracked->code ||
        old->instruction_bytes != tracked->instruction_bytes)
        return tracked_stack_put(stack, index, tracked);
    ++*same;
    return STATUS_OK;
}

/* The callers that were recalled. */
static enum status show_recalled(struct linked_tracker *tracker, size_t count, size_t *same) {
    const struct chain_link *links = tracker->chains.links;
    uint32_t *order = NULL;
    size_t capacity = 0;
    enum status status = array_reserve((void **)&order, &capacity, count, sizeof order[0]);
    size_t place = count;
    for (uint32_t link = tracker->recalled; link != 0 && place > 0 && status == STATUS_OK; link = links[link].caller)
        order[--place] = link;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const struct chain_link *link = &links[order[i]];
        struct tracked_frame tracked = {
            .code = link->code, .instruction_bytes = link->instruction_bytes, .shown = true, .assumed = true};
        status = put(tracker, i, &tracked, same);
    }
    free(order);
    return status;
}

static size_t count_recalled(const struct linked_tracker *tracker) {
    size_t count = 0;
    for (uint32_t link = tracker->recalled; link != 0; link = tracker->chains.links[link].caller)
        count++;
    return count;
}

/* Makes tracker->stack of the chain, and of what was recalled. */
static enum status show_all(struct linked_tracker *tracker) {
    struct tracked_stack *stack = &tracker->stack;
    size_t same = 0, outer_count = count_recalled(tracker), count = outer_count + tracker->chain_count;
    enum status status = outer_count > 0 ? show_recalled(tracker, outer_count, &same) : STATUS_OK;
    for (size_t i = outer_count; i < count && status == STATUS_OK; i++) {
        struct tracked_frame tracked;
        status = show(tracker, count - 1 - i, &tracked);
        if (status == STATUS_OK)
            status = put(tracker, i, &tracked, &same);
    }
    stack->unchanged = stack->unchanged < same ? stack->unchanged : same;
    stack->count = status == STATUS_OK ? count : same;
    return status;
}

/* Learns a chain that is of one time as far as can be told, also by its depth; who called frames that were recalled is
 * no news. */
static enum status learn_chain(struct linked_tracker *tracker) {
    const struct tracked_stack *stack = &tracker->stack;
    if (tracker->recursion_depth < stack->count)
        return STATUS_OK;
    uint64_t surplus = tracker->recursion_depth - stack->count;
    if (surplus < tracker->least_surplus)
        tracker->least_surplus = surplus;
    if (surplus > tracker->least_surplus)
        return STATUS_OK;
    return seen_chains_note(&tracker->chains, stack->frames, stack->count, (size_t)surplus + 1,
                            stack->count - tracker->chain_count);
}

static enum status attempt(struct linked_tracker *tracker, struct thread_state *thread) {
    tracker->recalled = 0;
    tracker->codes->frames_ns = clock_monotonic_ns();
    TRY(linked_heads_read(tracker, thread));
    enum status status = follow(tracker, thread->frame);
    bool whole = status == STATUS_OK;
    if (status == STATUS_TORN && tracker->recursive && !tracker->paused)
        status = recall_callers(tracker);
    TRY(status);
    TRY(show_all(tracker));
    if (whole && tracker->recursive && !tracker->doubtful && !tracker->paused)
        TRY(learn_chain(tracker));
    else if (!whole && !tracker->doubtful && tracker->chain_count >= LEAST_BELIEVED)
        TRY(learn_chain(tracker));
    tracker->deep = tracker->recursive;
    /* Of what was recalled the frames are not known: those that were read are read again. */
    return whole || tracker->order_count > 2 * tracker->stack.count + LINKED_MAX_OTHERS ? predict(tracker) : STATUS_OK;
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
            linked_heads_forget(tracker);
            status = STATUS_TORN;
        }
    }
    tracker->failed = status != STATUS_OK;
    return status;
}
