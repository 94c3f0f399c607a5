#include "unwind/outside.h"

#include <stdlib.h>
#include <string.h>

enum {
    IDLE_LOOKS = 32,
    /* Of frames outside of the chunks that may come back, besides as many as were on the stack lately. Each costs as
     * much as a look of which only the chunk is read. */
    MAX_SPARE = 6,
    ENOUGH_COUNTED = 1 << 7,
    /* At least one in so many is to be come across. Where they come back to the same addresses two of three are. */
    LEAST_USE = 8,
    ASKED_ANEW = 8,
    /* One frame alone is mostly all that is looked for. */
    SINGLE_READS = 1,
};

struct outside_frame *outside_find(const struct stack_tracker *tracker, remote_addr address) {
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

struct again *outside_runner_place(struct stack_tracker *tracker, const struct tracked_frame *runner) {
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

void outside_forget_late(struct stack_tracker *tracker) {
    if (tracker->nearby != NULL)
        memory_pages_clear(tracker->nearby);
    tracker->late_reads = 0;
}

enum status outside_read_late(struct stack_tracker *tracker, struct outside_frame *frame) {
    struct memory *live = tracker->runtime->live;
    const struct outside_frame_place *place = &frame->place;
    if (tracker->late_reads++ >= SINGLE_READS && tracker->nearby != NULL &&
        memory_read(&tracker->nearby->memory, place->address, frame->bytes, place->size_bytes) == STATUS_OK)
        return STATUS_OK;
    return memory_read(live, place->address, frame->bytes, place->size_bytes);
}

/* Where it is to be put what is read of the frame. */
static struct outside_frame *place_for(struct stack_tracker *tracker, remote_addr address) {
    struct outside_frame *known = outside_find(tracker, address), own = {.place = {.address = address}, .met = true};
    if (known != NULL)
        return known;
    if (tracker->outside_count == TRACKER_MAX_OUTSIDE || stack_tracker_add_outside(tracker, &own) != STATUS_OK)
        return NULL;
    return &tracker->outside[tracker->outside_count - 1];
}

bool outside_read_between(struct walk *walk, remote_addr address) {
    struct stack_tracker *tracker = walk->tracker;
    struct outside_frame *outside = place_for(tracker, address);
    struct again *again = outside_runner_place(tracker, &tracker->stack.frames[walk->top]);
    uint8_t before[FRAME_HEAD_MAX_BYTES];
    const size_t sizes[] = {sizeof outside->bytes, frame_head_size(walk->layout)};
    if (outside == NULL || again == NULL)
        return false;
    again->read = false;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !again->read; i++) {
        outside->place.size_bytes = sizes[i];
        const struct memory_piece pieces[] = {{again->address, before, again->size_bytes},
                                              {address, outside->bytes, outside->place.size_bytes},
                                              {again->address, again->bytes, again->size_bytes}};
        again->read = memory_read_pieces(tracker->runtime->live, pieces, 3) == STATUS_OK;
    }
    outside->read = again->read;
    return again->read && memcmp(before, again->bytes, again->size_bytes) == 0;
}

enum status outside_read(const struct walk *walk, remote_addr address, struct frame *frame, uint64_t *executable,
                         bool *late) {
    struct stack_tracker *tracker = walk->tracker;
    struct outside_frame own = {
        .place = {.address = address, .size_bytes = sizeof own.bytes}, .read = true, .met = true};
    struct outside_frame *known = outside_find(tracker, address);
    const uint8_t *bytes = known != NULL ? known->bytes : own.bytes;
    if (known != NULL)
        known->met = true;
    if (known == NULL && outside_read_late(tracker, &own) != STATUS_OK) {
        own.place.size_bytes = frame_head_size(walk->layout);
        TRY(outside_read_late(tracker, &own));
    }
    /* Who ran it is read before what only may have come back. */
    *late = *late || known == NULL || known >= tracker->outside + tracker->outside_likely;
    if (known == NULL && tracker->outside_count < TRACKER_MAX_OUTSIDE)
        TRY(stack_tracker_add_outside(tracker, &own));
    *executable = load_u64(bytes + walk->layout->frame.f_executable);
    return frame_decode(walk->layout, address, bytes, frame);
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

bool outside_still_waits(const struct walk *walk) {
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

bool outside_is_unchanged(const struct walk *walk) {
    const struct again *again = find_again(walk);
    if (again == NULL)
        return false;
    size_t size_bytes = walk_top_size(walk) < again->size_bytes ? walk_top_size(walk) : again->size_bytes;
    return memcmp(again->bytes, walk->top_bytes, size_bytes) == 0;
}

bool outside_waits_now(struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    if (walk->top == SIZE_MAX || tracker->paused)
        return true;
    struct again *again = outside_runner_place(tracker, &tracker->stack.frames[walk->top]);
    if (again == NULL)
        return false;
    again->read = memory_read(tracker->runtime->live, again->address, again->bytes, again->size_bytes) == STATUS_OK;
    return outside_still_waits(walk);
}

/* The frame of a chunk that runs the frames outside at `index`. */
static void predict_again(struct stack_tracker *tracker, size_t index) {
    const struct tracked_frame *frames = tracker->stack.frames;
    while (index > 0 && frames[index].end == 0)
        index--;
    if (frames[index].end != 0 && tracker->again_count < TRACKER_MAX_AGAIN)
        (void)outside_runner_place(tracker, &frames[index]);
}

static bool is_listed(const struct outside_frame_place *places, size_t count, remote_addr address) {
    for (size_t i = 0; i < count; i++)
        if (places[i].address == address)
            return true;
    return false;
}

/* What was read at one of the last looks and is not on the stack now: generators come and go, and mostly come back to
 * the same addresses. Those that could not be read along are as good, save where addresses are not used again soon.
 * `met`: what was come across at this look. */
static size_t list_spare(const struct stack_tracker *tracker, bool met, struct outside_frame_place *places,
                         size_t count) {
    size_t limit = MAX_SPARE + tracker->outside_depth;
    size_t listed = tracker->runtime->layout.free_threaded ? tracker->outside_planned : tracker->outside_count;
    for (size_t i = 0; i < listed && count < limit && count < TRACKER_MAX_OUTSIDE; i++) {
        struct outside_frame_place place = tracker->outside[i].place;
        place.idle_looks = tracker->outside[i].met ? 0 : place.idle_looks + 1;
        if (tracker->outside[i].met == met && place.idle_looks <= IDLE_LOOKS &&
            !is_listed(places, count, place.address))
            places[count++] = place;
    }
    return count;
}

/* How many were on the stack when any were; after some looks without, none. */
static void note_depth(struct stack_tracker *tracker, size_t count) {
    tracker->shallow_looks = count > 0 ? 0 : tracker->shallow_looks + 1;
    if (count > 0 || tracker->shallow_looks > IDLE_LOOKS)
        tracker->outside_depth = count;
}

/* Counts how many of those that were read along were come across. */
static void count_use(struct stack_tracker *tracker) {
    uint32_t met = 0;
    for (size_t i = 0; i < tracker->outside_along; i++)
        met += tracker->outside[i].met;
    outside_count(&tracker->outside_use, (uint32_t)tracker->outside_along, met);
    tracker->outside_along = 0;
}

bool outside_is_elsewhere(const struct stack_tracker *tracker) {
    const struct outside_count *use = &tracker->outside_use;
    return use->seen >= ENOUGH_COUNTED && use->matched * LEAST_USE < use->seen;
}

/* Whether it is of no use to read frames along. Now and then that is asked anew. */
static bool is_of_no_use(struct stack_tracker *tracker) {
    count_use(tracker);
    return outside_is_elsewhere(tracker) && tracker->useless_looks++ % ASKED_ANEW != 0;
}

void outside_predict_again(struct stack_tracker *tracker) {
    size_t count = 0;
    if (!is_of_no_use(tracker))
        return;
    for (size_t i = 0; i < tracker->outside_count; i++)
        if (tracker->outside[i].met)
            tracker->outside[count++] = tracker->outside[i];
    tracker->outside_likely = tracker->outside_planned = tracker->outside_count = count;
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
    note_depth(tracker, count);
    if (is_of_no_use(tracker)) {
        stack_tracker_forget_outside(tracker);
        return STATUS_OK;
    }
    tracker->outside_likely = count = list_spare(tracker, true, places, count);
    count = list_spare(tracker, false, places, count);
    tracker->outside_count = 0;
    for (size_t i = 0; i < count; i++)
        TRY(stack_tracker_add_outside(tracker, &(struct outside_frame){.place = places[i]}));
    tracker->outside_planned = count;
    if (count == 0)
        tracker->again_count = 0;
    return STATUS_OK;
}
