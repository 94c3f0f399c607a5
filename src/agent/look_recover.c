/* What the interpreter publishes too early or too late.
 *
 * It writes a frame's link to its caller, and what it has to say of a new evaluation loop, in one place of its source,
 * and publishes both in another; but compilers put the stores into an order of their own. As compiled, 3.11 and 3.12
 *  - publish a function's or generator's frame some instructions before it leads to its caller, and after it has ceased
 *    to (DISPATCH_INLINED, YIELD_VALUE; Python/ceval.c, bytecodes.c);
 *  - publish the evaluation loop's _PyCFrame before it is filled in (the prologue of _PyEval_EvalFrameDefault).
 * And all from 3.11 on give a chunk back before they publish the caller of the frame that was its first
 * (RETURN_GENERATOR).
 *
 * What is found instead is garbage, or worse, the state of another time. But what has yet to be published is in a
 * register or on the C stack: of all the frames there that lead to where this stack must end, the innermost is the one
 * with the longest way. Every one of them is on the stack: a suspended generator leads nowhere, and what was popped
 * lies beyond what is left, or where a frame lies that was pushed since (look_follow). */
#include "agent/hot.h"
#include "agent/load.h"
#include "agent/look.h"

enum {
    /* What C frames take: that of the evaluation loop with those it calls while it is about to publish, and those
     * between two evaluation loops. */
    STACK_WORDS = 192,
    MAX_C_STACK_BYTES = 256 << 10,
    /* The evaluation loop's code to where it has filled in its _PyCFrame: twice what debug builds take. */
    PROLOGUE_BYTES = 512,
    MAX_CANDIDATES = 32,
};

/* struct _PyCFrame { …; current_frame; previous } (Include/cpython/pystate.h 3.11, 3.12). The outermost one is in the
 * thread's state. */
AGENT_HOT bool look_read_cframe(struct look *look, uint64_t cframe, struct look_start *start) {
    layout_offset current = look->layout->cframe.current_frame;
    *start = (struct look_start){.cframe = cframe};
    look->suspect = true;
    const uint8_t *bytes = look_bytes_at(look, cframe, current + 2 * LOOK_WORD_BYTES);
    if (bytes == NULL)
        return false;
    look_note_touched(look, cframe + current, 2 * LOOK_WORD_BYTES);
    start->frame = load_u64(bytes + current);
    uint64_t outer = load_u64(bytes + current + LOOK_WORD_BYTES);
    if (span_holds(look->state, cframe, 1)) {
        start->cframe = 0;
        return true;
    }
    if (outer <= cframe && !span_holds(look->state, outer, 1))
        return false;
    bytes = look_bytes_at(look, outer, current + LOOK_WORD_BYTES);
    if (bytes == NULL)
        return false;
    start->outer_frame = load_u64(bytes + current);
    return true;
}

/* The start so far with the longest way to where this stack must end. */
struct longest {
    struct look_start start;
    uint32_t hops;
};

/* Whether the frame leads to where the stack must end; then it may be the longest so far. */
static bool consider(struct look *look, const struct look_start *published, uint64_t frame, struct longest *longest) {
    struct look_start start = *published;
    struct look_way way;
    uint8_t owner = 0;
    start.frame = frame;
    look->suspect = true;
    if (frame == 0 || frame == published->frame || !look_read_owner(look, frame, &owner) ||
        owner > LOOK_OWNED_BY_GENERATOR || !look_follow(look, &start, &way) || !way.begun)
        return false;
    if (way.hops > longest->hops)
        *longest = (struct longest){start, way.hops};
    return true;
}

/* Words that may name the frame that is looked for: registers, then the top of the C stack. */
static uint64_t word_at(const struct look *look, size_t index) {
    const struct walk_registers *registers = look->registers;
    if (index < registers->count)
        return registers->values[index];
    return load_u64(pointer_to(look->c_stack.start + (index - registers->count) * LOOK_WORD_BYTES));
}

static size_t count_words(const struct look *look) {
    size_t in_stack = (size_t)(look->c_stack.end - look->c_stack.start) / LOOK_WORD_BYTES;
    return look->registers->count + (in_stack < STACK_WORDS ? in_stack : STACK_WORDS);
}

/* The frame with the highest address below `limit` among the words that name one in the newest chunk; 0 when there is
 * none. */
static uint64_t highest_in_chunk(const struct look *look, size_t words, uint64_t limit) {
    uint64_t highest = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_at(look, i);
        if (word < limit && word > highest && span_holds(look->newest, word, 1) && word % LOOK_WORD_BYTES == 0)
            highest = word;
    }
    return highest;
}

static void consider_words(struct look *look, const struct look_start *published, struct longest *longest) {
    size_t words = count_words(look);
    /* A caller lies below what it calls, and of those that lie there the highest is the innermost. */
    uint64_t limit = span_holds(look->newest, published->frame, 1) ? published->frame : look->unused.start;
    for (int i = 0; i < MAX_CANDIDATES && limit != 0; i++) {
        limit = highest_in_chunk(look, words, limit);
        if (consider(look, published, limit, longest))
            break;
    }
    /* A generator's, or of an older chunk. */
    for (size_t i = 0; i < look->registers->count; i++)
        if (!span_holds(look->newest, word_at(look, i), 1))
            (void)consider(look, published, word_at(look, i), longest);
}

/* The next _PyCFrame on the C stack. What is left over there of others that have ended leads nowhere, or not as far.
 * Whether all of the C stack was searched. */
static bool consider_cframes(struct look *look, uint64_t cframe, struct longest *longest) {
    layout_offset previous = look->layout->cframe.current_frame + LOOK_WORD_BYTES;
    uint64_t at = cframe > look->c_stack.start ? cframe : look->c_stack.start;
    uint64_t end = look->c_stack.end;
    if (at < end && end - at > MAX_C_STACK_BYTES)
        end = at + MAX_C_STACK_BYTES;
    for (; at < end && end - at >= previous + LOOK_WORD_BYTES; at += LOOK_WORD_BYTES) {
        struct look_start start;
        struct look_way way;
        uint64_t outer = load_u64(pointer_to(at + previous));
        if (at == cframe || ((outer <= at || outer >= look->c_stack.end) && !span_holds(look->state, outer, 1)))
            continue;
        if (look_read_cframe(look, at, &start) && look_follow(look, &start, &way) && way.begun &&
            way.hops > longest->hops)
            *longest = (struct longest){start, way.hops};
    }
    return end != 0 && end == look->c_stack.end;
}

AGENT_HOT bool look_may_be_entering(const struct look *look) {
    return look->registers->program_counter - look->python->eval < PROLOGUE_BYTES;
}

bool look_recover(struct look *look, const struct look_start *published, uint64_t cframe, const struct look_way *way,
                  bool held) {
    /* A frame that has not begun adds nothing to the way. */
    struct longest longest = {*published, held ? way->hops - !way->begun : 0};
    struct look_way found;
    bool is_first = false;
    if (look->attached && (cframe == 0 || published->cframe != 0))
        consider_words(look, published, &longest);
    if (look->attached && cframe != 0 && (look_may_be_entering(look) || longest.hops == 0))
        is_first = consider_cframes(look, cframe, &longest) && look_may_be_entering(look);
    if (held || longest.hops > 0)
        return look_follow(look, &longest.start, &found);
    /* No evaluation loop but the one that is being entered. */
    return is_first && look_follow(look, &(struct look_start){0}, &found);
}
