#include "unwind/linked_parts.h"

#include "base/array.h"

#include <string.h>

enum {
    /* Frames whose caller changes, which are read first. */
    MAX_SHIFTY = 12,
    /* So many are read first where a stack is deep. */
    MAX_INNERMOST = 24,
    MAX_STEADY = 8,
    MAX_FRAMES = 1 << 20,
    /* PyFrameState (Include/cpython/frameobject.h 3.10). While UNWINDING finalizers may be called. */
    FRAME_EXECUTING = 0,
    FRAME_UNWINDING = 2,
};

void linked_heads_forget(struct linked_tracker *tracker) {
    map_clear(&tracker->by_address);
    tracker->head_count = 0;
    tracker->free_head = 0;
    tracker->order_count = 0;
    tracker->shifty_count = 0;
    tracker->chain_count = 0;
}

static enum status add_head(struct linked_tracker *tracker, remote_addr address, uint32_t *index) {
    if (tracker->free_head != 0) {
        *index = tracker->free_head - 1;
    } else {
        if (tracker->head_count >= MAX_FRAMES)
            return STATUS_LIMIT;
        TRY(array_reserve((void **)&tracker->heads, &tracker->head_capacity, tracker->head_count + 1,
                          sizeof tracker->heads[0]));
        *index = (uint32_t)tracker->head_count;
    }
    TRY(array_reserve((void **)&tracker->order, &tracker->order_capacity, tracker->order_count + 1,
                      sizeof tracker->order[0]));
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

static void decode_thread(struct linked_tracker *tracker, struct thread_state *thread) {
    thread_state_decode(linked_layout(tracker), thread->address, tracker->thread_bytes, thread);
    /* `recursion_depth` stands behind `frame` (struct _ts, Include/cpython/pystate.h 3.8 to 3.10). */
    int32_t depth = load_i32(tracker->thread_bytes + linked_layout(tracker)->thread.frame + sizeof(uint64_t));
    tracker->recursion_depth = depth > 0 ? (size_t)depth : 0;
}

/* Adds a head to the pieces, and behind the first of them the pointer to the innermost frame. */
static void add_piece(struct linked_tracker *tracker, const struct thread_state *thread, uint32_t index, bool is_first,
                      size_t *count) {
    struct linked_head *head = &tracker->heads[index];
    head->is_first = is_first;
    head->read = tracker->look;
    tracker->pieces[(*count)++] =
        (struct memory_piece){head->address, head->bytes, frame_head_size(linked_layout(tracker))};
    if (is_first)
        tracker->pieces[(*count)++] =
            (struct memory_piece){thread->frame_slot, &tracker->frame_meanwhile, sizeof tracker->frame_meanwhile};
}

/* Reads the thread state and, behind it, frames that are no recursive calls': each of these is the same function's at
 * all times, but they are called by now this frame, now that one. */
static enum status read_innermost(struct linked_tracker *tracker, struct thread_state *thread, size_t span) {
    size_t count = 0, found = 0;
    tracker->pieces[count++] = (struct memory_piece){thread->address, tracker->thread_bytes, span};
    for (size_t i = 0; i < tracker->order_count && found < MAX_STEADY; i++)
        if (!tracker->heads[tracker->order[i]].recursive) {
            add_piece(tracker, thread, tracker->order[i], found == 0, &count);
            found++;
        }
    TRY(memory_read_pieces(tracker->runtime->live, tracker->pieces, count));
    decode_thread(tracker, thread);
    return STATUS_OK;
}

/* Adds those that lead away from the innermost frame, as was read or as they were last seen to. */
static void add_innermost(struct linked_tracker *tracker, const struct thread_state *thread, size_t *count) {
    remote_addr address = thread->frame;
    for (size_t i = 0; i < MAX_INNERMOST && address != 0; i++) {
        uint64_t index = 0;
        if (!map_get(&tracker->by_address, address, &index))
            return;
        const struct linked_head *head = &tracker->heads[index];
        remote_addr previous = load_u64(head->bytes + linked_layout(tracker)->frame_object.f_back);
        if (head->read == tracker->look) {
            address = previous;
            continue;
        }
        address = head->own_code != 0 ? head->callers[0] : previous;
        add_piece(tracker, thread, (uint32_t)index, false, count);
    }
}

/* Everything in one call: the thread state, all heads, and the pointer to the innermost frame again. Where there are
 * many, and their order says little of which are the innermost, one call more: then these come first. */
enum status linked_heads_read(struct linked_tracker *tracker, struct thread_state *thread) {
    size_t count = 0, span = thread_state_span(linked_layout(tracker));
    bool innermost_first = tracker->deep && tracker->order_count > MAX_INNERMOST && !tracker->paused;
    if (span > sizeof tracker->thread_bytes)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&tracker->pieces, &tracker->piece_capacity, tracker->order_count + 3,
                      sizeof tracker->pieces[0]));
    tracker->frame_meanwhile = 0;
    tracker->look++;
    if (innermost_first) {
        TRY(read_innermost(tracker, thread, span));
        add_innermost(tracker, thread, &count);
    } else {
        tracker->pieces[count++] = (struct memory_piece){thread->address, tracker->thread_bytes, span};
    }
    size_t first = choose_first(tracker);
    for (size_t i = 0; i < tracker->order_count; i++) {
        uint32_t index = tracker->order[i == 0 ? first : i <= first ? i - 1 : i];
        if (tracker->heads[index].read != tracker->look)
            add_piece(tracker, thread, index, i == 0 && !innermost_first, &count);
    }
    tracker->pieces[count++] =
        (struct memory_piece){thread->frame_slot, &tracker->frame_after, sizeof tracker->frame_after};
    TRY(memory_read_pieces(tracker->runtime->live, tracker->pieces, count));
    if (!innermost_first)
        decode_thread(tracker, thread);
    return STATUS_OK;
}

/* The type of frames is static: all of a process are of the same. */
static enum status check_type(struct linked_tracker *tracker, const uint8_t *bytes) {
    remote_addr type = load_u64(bytes + linked_layout(tracker)->object.ob_type), name = 0;
    char text[8];
    if (type == tracker->frame_type && type != 0)
        return STATUS_OK;
    if (tracker->frame_type != 0)
        return STATUS_TORN;
    TRY(memory_read_u64(tracker->runtime->objects, type + linked_layout(tracker)->type.tp_name, &name));
    TRY(memory_read_cstring(tracker->runtime->objects, name, text, sizeof text));
    if (strcmp(text, "frame") != 0)
        return STATUS_TORN;
    tracker->frame_type = type;
    return STATUS_OK;
}

/* The head of the frame at `address` as of this look; `guess` is where it may be. */
enum status linked_heads_get(struct linked_tracker *tracker, remote_addr address, uint32_t guess, uint32_t *index) {
    uint64_t known = 0;
    if (guess < tracker->head_count && tracker->heads[guess].address == address)
        *index = guess;
    else if (map_get(&tracker->by_address, address, &known))
        *index = (uint32_t)known;
    else
        TRY(add_head(tracker, address, index));
    struct linked_head *head = &tracker->heads[*index];
    if (head->read != tracker->look) {
        TRY(memory_read(tracker->runtime->live, address, head->bytes, frame_head_size(linked_layout(tracker))));
        head->read = tracker->look;
    }
    return check_type(tracker, head->bytes);
}

bool linked_head_runs(const struct linked_tracker *tracker, const struct linked_head *head) {
    const struct layout_frame_object *fields = &linked_layout(tracker)->frame_object;
    if (layout_has(fields->f_executing))
        return load_u8(head->bytes + fields->f_executing) != 0;
    uint8_t state = load_u8(head->bytes + fields->f_state);
    return state == FRAME_EXECUTING || state == FRAME_UNWINDING;
}

/* Whether a frame that runs stands at `address`. */
bool linked_heads_runs_at(struct linked_tracker *tracker, remote_addr address, uint32_t guess) {
    uint32_t index = 0;
    return address != 0 && address % 8 == 0 && linked_heads_get(tracker, address, guess, &index) == STATUS_OK &&
           linked_head_runs(tracker, &tracker->heads[index]);
}

/* Takes the frames that are not part of this stack out of the order; drops those not seen for long, and those too many.
 * They end behind the chain, innermost first. */
static enum status choose_others(struct linked_tracker *tracker, size_t *count) {
    uint32_t others[LINKED_MAX_OTHERS];
    *count = 0;
    for (size_t i = 0; i < tracker->order_count; i++) {
        uint32_t index = tracker->order[i];
        const struct linked_head *head = &tracker->heads[index];
        if (head->chained == tracker->look)
            continue;
        size_t place = *count;
        if (tracker->look - head->chained >= LINKED_MEMORY_LOOKS) {
            drop_head(tracker, index);
            continue;
        }
        while (place > 0 && tracker->heads[others[place - 1]].chained < head->chained)
            place--;
        if (*count == LINKED_MAX_OTHERS) {
            drop_head(tracker, place == LINKED_MAX_OTHERS ? index : others[LINKED_MAX_OTHERS - 1]);
            if (place == LINKED_MAX_OTHERS)
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
    TRY(array_reserve((void **)&tracker->chain, &tracker->chain_capacity, tracker->chain_count + *count,
                      sizeof tracker->chain[0]));
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
enum status linked_heads_predict(struct linked_tracker *tracker) {
    size_t other_count = 0;
    if (!tracker->order_stale && tracker->look % LINKED_MEMORY_LOOKS != 0)
        return STATUS_OK;
    TRY(choose_others(tracker, &other_count));
    size_t count = put_in_order(tracker, other_count, true, 0, MAX_SHIFTY);
    tracker->shifty_count = count;
    tracker->order_count = put_in_order(tracker, other_count, false, count, SIZE_MAX);
    tracker->order_stale = false;
    return STATUS_OK;
}

enum status linked_head_code(struct linked_tracker *tracker, struct linked_head *head, remote_addr address) {
    struct code_cache *codes = tracker->codes;
    if (head->code != NULL && head->code->address == address && head->code_epoch == codes->epoch)
        return STATUS_OK;
    TRY(code_cache_get(codes, address, &head->code));
    head->code_epoch = codes->epoch;
    return STATUS_OK;
}
