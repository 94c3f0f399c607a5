#include "unwind/outside.h"

enum {
    BELIEVED_TIMES = 3,
    MAX_COUNTED = 1 << 10,
    FEW_UNCHANGED = 4,
};

int32_t outside_site(const struct walk *walk) {
    return walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].instruction_bytes : 0;
}

uint32_t outside_key(const struct walk *walk, const struct tracked_frame *callee) {
    uint32_t path = walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].path : 0;
    if (callee != NULL)
        return seen_calls_key(path, callee->code->serial);
    bool running = walk->top != SIZE_MAX && walk->top_bytes != NULL && walk_is_running(walk, walk->top_bytes);
    return seen_calls_key(seen_calls_key(path, SEEN_CALLS_NO_CALLEE - running), (uint32_t)outside_site(walk));
}

/* Whether each of the links is mentioned by what runs it. */
static bool are_all_named(const struct seen_call *call) {
    for (uint32_t i = 0; i < call->link_count && i < SEEN_CALLS_MAX_LINKS; i++)
        if (!call->links[i].named && call->links[i].code != NULL)
            return false;
    return true;
}

struct seen_call outside_describe(const struct walk *walk, size_t first, const struct tracked_frame *callee,
                                  struct call_link links[SEEN_CALLS_MAX_LINKS]) {
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    size_t count = walk->count - first;
    const struct code *caller = walk->top != SIZE_MAX ? frames[walk->top].code : NULL;
    for (size_t i = 0; i < count && i < SEEN_CALLS_MAX_LINKS; i++) {
        const struct code *code = frames[first + i].code;
        bool named = caller != NULL && code != NULL && code_cache_mentions(walk->tracker->codes, caller, code);
        links[i] = (struct call_link){code, frames[first + i].instruction_bytes, named};
        caller = code != NULL ? code : caller;
    }
    struct seen_call call = {.key = outside_key(walk, callee),
                             .instruction_bytes = outside_site(walk),
                             .link_count = (uint32_t)count,
                             .links = links};
    call.guessed = callee == NULL && walk->top != SIZE_MAX && !are_all_named(&call);
    return call;
}

bool outside_is_noteworthy(const struct walk *walk) {
    struct stack_tracker *tracker = walk->tracker;
    if (!tracker->quick || tracker->paused)
        return false;
    if (walk->top == SIZE_MAX)
        return true;
    bool unchanged = outside_is_unchanged(walk);
    tracker->waits++;
    tracker->waits_unchanged += unchanged;
    if (tracker->waits == MAX_COUNTED) {
        tracker->waits /= 2;
        tracker->waits_unchanged /= 2;
    }
    return unchanged || tracker->waits_unchanged * FEW_UNCHANGED < tracker->waits;
}

/* The call as one of all that the top makes from where it is, whatever the callee. */
static struct seen_call of_any_callee(const struct walk *walk, const struct seen_call *call) {
    struct seen_call any = *call;
    uint32_t path = walk->top != SIZE_MAX ? walk->tracker->stack.frames[walk->top].path : 0;
    any.key = seen_calls_key(seen_calls_key(path, SEEN_CALLS_ANY_CALLEE), (uint32_t)call->instruction_bytes);
    return any;
}

bool outside_is_strange(const struct walk *walk, const struct seen_call *call, const struct tracked_frame *callee) {
    if (walk->tracker->paused)
        return false;
    /* A program may go round in just the time that a look takes. What the top is and what it seems to run are then of
     * two calls each time, and timing does not tell; of what has called others the chunks do. */
    const struct seen_call any = of_any_callee(walk, call);
    return (!are_all_named(call) && outside_can_be_of_another(walk)) || seen_calls_is_outdone(walk_calls(walk), call) ||
           (callee == NULL && seen_calls_is_unheard_of(walk_calls(walk), &any));
}

/* Notes what was surely seen. With a callee the chunks themselves say which frame called it. */
static void note(struct walk *walk, const struct seen_call *call, const struct tracked_frame *callee) {
    if (callee != NULL ? walk->tracker->slow : !outside_is_noteworthy(walk))
        return;
    seen_calls_note(walk_calls(walk), call, callee != NULL);
    if (callee != NULL) {
        const struct seen_call any = of_any_callee(walk, call);
        seen_calls_note(walk_calls(walk), &any, false);
    }
}

/* What is held of the frames outside between the top and this callee. */
static struct doubt *find_doubt(const struct walk *walk, const struct tracked_frame *callee) {
    struct stack_tracker *tracker = walk->tracker;
    uint32_t key = outside_key(walk, callee);
    for (size_t i = 0; i < TRACKER_DOUBTS; i++)
        if (tracker->doubts[i].key == key)
            return &tracker->doubts[i];
    return NULL;
}

/* What is not known must be seen several times in a row: the thread may have come back to where it was meanwhile. */
static enum status check_often(const struct walk *walk, const struct tracked_frame *callee) {
    struct doubt *doubt = find_doubt(walk, callee);
    if (doubt == NULL) {
        doubt = &walk->tracker->doubts[walk->tracker->doubt_count++ % TRACKER_DOUBTS];
        *doubt = (struct doubt){.key = outside_key(walk, callee)};
    }
    uint32_t path = seen_calls_key(walk->tracker->stack.frames[walk->count - 1].path, callee != NULL);
    doubt->times = doubt->path == path ? doubt->times + 1 : 1;
    doubt->path = path;
    return doubt->times >= BELIEVED_TIMES ? STATUS_OK : STATUS_TORN;
}

/* Whether the frames from `first` on are what the top ran. It may have gone round meanwhile and stand where it stood,
 * only with other values; but where they have called something the chunks say where the last of them is. A frame
 * of 3.13 and before says itself that it has called; those of 3.14 on, and all where generators are at other addresses
 * each time and mostly read late, must not have changed at all. */
static bool ran_them(const struct walk *walk, size_t first, bool late, bool has_callee) {
    const struct layout *layout = walk->layout;
    if (walk->top == SIZE_MAX || walk->tracker->paused)
        return true;
    bool tells = has_callee || !(layout->free_threaded || layout->tagged_refs);
    if (!(tells ? outside_still_waits(walk) : outside_is_unchanged(walk)))
        return false;
    return !late || (layout->free_threaded && outside_holds_generator(walk, first));
}

/* Whether the last of the frames so far still has the callee where it called it. */
static bool holds_callee(const struct walk *walk, const struct tracked_frame *callee) {
    const struct tracked_frame *last = &walk->tracker->stack.frames[walk->count - 1];
    const struct outside_frame *outside = outside_find(walk->tracker, last->address);
    const uint8_t *bytes = walk_bytes_at(walk, callee->address);
    uint64_t called = 0;
    if (outside == NULL || bytes == NULL || last->code == NULL || callee->code == NULL ||
        code_cache_step(walk->tracker->codes, last->code, last->instruction_bytes).family != OPCODE_CALL)
        return false;
    struct caller caller = {last, outside->bytes, outside->place.size_bytes};
    return walk_called_word(walk, &caller, &called) && called == walk_function_of(walk, bytes) &&
           code_cache_mentions(walk->tracker->codes, last->code, callee->code);
}

/* Whether each of the frames from `first` on stands where it resumes the next, and names it, as the top does the first,
 * and the last has called this callee: it makes no difference, then, that they were not read at one instant. */
static bool is_named_throughout(const struct walk *walk, size_t first, const struct seen_call *call,
                                const struct tracked_frame *callee) {
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    for (size_t i = first; i + 1 < walk->count; i++)
        if (frames[i].code != NULL &&
            code_cache_step(walk->tracker->codes, frames[i].code, frames[i].instruction_bytes).family !=
                OPCODE_RESUMES_GENERATOR)
            return false;
    return callee != NULL && are_all_named(call) && holds_callee(walk, callee);
}

/* What outside_judge says of a wait of many for one another that was read late: without taking anything off. */
static enum status judge_wait(struct walk *walk, size_t first, const struct tracked_frame *callee) {
    struct call_link links[SEEN_CALLS_MAX_LINKS];
    struct seen_call call = outside_describe(walk, first, callee, links);
    bool waits = outside_waits_now(walk) && !seen_calls_is_outdone(walk_calls(walk), &call);
    enum status status = waits ? STATUS_OK : STATUS_NOT_FOUND;
    /* Which of them called the callee is of another instant. */
    if (waits && callee != NULL && !seen_calls_knows(walk_calls(walk), &call, true))
        status = check_often(walk, callee);
    if (waits && status != STATUS_OK && outside_confirm(walk, first, callee)) {
        call = outside_describe(walk, first, callee, links);
        status = STATUS_OK;
    }
    if (status == STATUS_OK)
        outside_note_wait(walk, first, &call, callee);
    return status;
}

/* Does as was judged: takes the frames from `first` on off again where they cannot be vouched for, and leaves them
 * where they are to be seen once more. */
static enum status settle(struct walk *walk, size_t first, enum status status) {
    if (status == STATUS_TORN) {
        /* So that the next attempt can find all that is to be seen again, the walk goes on. */
        if (walk->top != SIZE_MAX)
            (void)outside_runner_place(walk->tracker, &walk->tracker->stack.frames[walk->top]);
        walk->doubtful = true;
        return STATUS_OK;
    }
    if (status != STATUS_OK)
        walk->count = first;
    return status;
}

enum status outside_judge(struct walk *walk, size_t first, bool late, const struct tracked_frame *callee) {
    struct stack_tracker *tracker = walk->tracker;
    struct call_link links[SEEN_CALLS_MAX_LINKS];
    if (late && outside_is_long_wait(walk, first))
        return settle(walk, first, judge_wait(walk, first, callee));
    if (late && walk->top != SIZE_MAX && !tracker->paused)
        late = !outside_confirm(walk, first, callee);
    struct seen_call call = outside_describe(walk, first, callee, links);
    outside_count_run(walk, late);
    bool strange = outside_is_strange(walk, &call, callee);
    bool sure = !strange &&
                (is_named_throughout(walk, first, &call, callee) || ran_them(walk, first, late, callee != NULL)),
         known = !strange && seen_calls_knows(walk_calls(walk), &call, callee != NULL);
    if (sure)
        note(walk, &call, callee);
    /* What runs by itself runs now. It need not have run then. */
    if ((known && (sure || callee != NULL)) || (sure && !late && outside_is_convincing(walk)) || tracker->paused) {
        struct doubt *doubt = find_doubt(walk, callee);
        if (doubt != NULL)
            doubt->times = 0;
        return STATUS_OK;
    }
    enum status status = STATUS_NOT_FOUND;
    /* Below the outermost frame of a chunk nothing comes and goes while that is there. What is too much to be read
     * along or never twice at one address is mostly late. */
    if (!strange &&
        (sure ? !late || walk->top == SIZE_MAX : callee != NULL && tracker->insistent && outside_still_waits(walk)))
        status = check_often(walk, callee);
    else if (seen_calls_recall_at(walk_calls(walk), call.key, call.instruction_bytes, false, 0) == NULL)
        status = STATUS_TORN;
    return settle(walk, first, status);
}
