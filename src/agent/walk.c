#include "agent/walk.h"

#include "agent/hot.h"
#include "agent/load.h"
#include "agent/look.h"

/* Of what names the innermost frame. */
static layout_offset start_offset(const struct layout_thread *fields) {
    if (layout_has(fields->frame))
        return fields->frame;
    return layout_has(fields->cframe) ? fields->cframe : fields->current_frame;
}

static AGENT_HOT bool find_stack(struct look *look, uint64_t state) {
    const struct layout_thread *fields = &look->layout->thread;
    struct look_start start = {0};
    struct look_way way = {0};
    const uint8_t *bytes = look_bytes_at(look, state, fields->size);
    if (bytes == NULL)
        return false;
    look->state = (struct span){state, state + fields->size};
    look_note_touched(look, state + start_offset(fields), LOOK_WORD_BYTES);
    if (layout_has(fields->frame))
        return look_follow_objects(look, load_u64(bytes + fields->frame));
    look_note_touched(look, state + fields->datastack_chunk, 2 * LOOK_WORD_BYTES);
    look_find_chunks(look, bytes);
    uint64_t cframe = layout_has(fields->cframe) ? load_u64(bytes + fields->cframe) : 0;
    bool read = true;
    if (cframe != 0)
        read = look_read_cframe(look, cframe, &start);
    else if (layout_has(fields->current_frame))
        start.frame = load_u64(bytes + fields->current_frame);
    bool held = read && look_follow(look, &start, &way);
    if (held && way.begun && (cframe == 0 || !look_may_be_entering(look)))
        return true;
    if (!read)
        start = (struct look_start){0};
    return look_recover(look, &start, cframe, &way, held);
}

static void reverse(struct wire_frame *frames, uint32_t first, uint32_t end) {
    for (; end > first + 1; first++) {
        struct wire_frame swapped = frames[--end];
        frames[end] = frames[first];
        frames[first] = swapped;
    }
}

/* Puts what was kept of a deep stack into its order. The number of frames that stand there then. */
static AGENT_HOT uint32_t arrange(struct look *look) {
    const struct wire_frame cut = {.kind = WIRE_FRAME_CUT, .instruction_bytes = -1};
    if (look->cut) {
        uint32_t count = look->total < LOOK_HEAD_FRAMES ? look->total : LOOK_HEAD_FRAMES;
        look->frames[count] = cut;
        return count + 1;
    }
    if (look->total <= WIRE_SAMPLE_MAX_FRAMES)
        return look->total;
    uint32_t first = LOOK_HEAD_FRAMES + 1, oldest = first + (look->total - first) % LOOK_TAIL_FRAMES;
    look->frames[LOOK_HEAD_FRAMES] = cut;
    reverse(look->frames, first, oldest);
    reverse(look->frames, oldest, WIRE_SAMPLE_MAX_FRAMES);
    reverse(look->frames, first, WIRE_SAMPLE_MAX_FRAMES);
    return WIRE_SAMPLE_MAX_FRAMES;
}

/* The stack is mostly what it was, up to its innermost frames. */
AGENT_HOT void walk_expect(const struct walk *walk) {
    const struct wire_frame *last = walk->frames[walk->last];
    uint32_t count = walk->last_count < WALK_TOUCHED_LINES ? walk->last_count : WALK_TOUCHED_LINES;
    uint64_t code = 0;
    /* All that is used of the layout stands at its beginning. */
    hot_expect_bytes(walk->python, offsetof(struct agent_python, layout.type));
    for (uint32_t i = 0; i < walk->touched_count; i++)
        hot_expect(walk->touched[i]);
    hot_expect_bytes(walk->frames[1 - walk->last], count * sizeof *last);
    for (uint32_t i = 0; i < count; i++) {
        if (last[i].code != code)
            codes_expect(&walk->codes, last[i].code);
        code = last[i].code;
    }
}

AGENT_HOT void walk_frames(struct walk *walk, const struct walk_registers *registers, struct walk_stack *stack) {
    struct agent_thread_state state = agent_python_own_state(walk->python);
    struct look look = {.walk = walk,
                        .python = walk->python,
                        .layout = &walk->python->layout,
                        .registers = registers,
                        .attached = state.attached,
                        .frames = walk->frames[1 - walk->last]};
    *stack = (struct walk_stack){.frames = look.frames};
    walk->touched_count = 0;
    if (state.address == 0) {
        stack->flags = WIRE_SAMPLE_NO_PYTHON;
        return;
    }
    stack->flags = state.attached ? 0 : WIRE_SAMPLE_DETACHED;
    look_find_c_stack(&look);
    if (!find_stack(&look, state.address)) {
        stack->flags |= WIRE_SAMPLE_TORN;
        return;
    }
    stack->count = arrange(&look);
    stack->code_unit = look_read_code_unit(&look);
    stack->loop_address = look.loop_address;
    stack->new_codes = look.new_codes;
}

/* How many of the outermost frames are those of the stack that was written last. */
static AGENT_HOT uint32_t count_kept(const struct walk *walk, const struct walk_stack *stack, uint32_t limit) {
    const struct wire_frame *last = walk->frames[walk->last];
    uint32_t kept = 0;
    for (; kept < limit && kept < walk->last_count; kept++) {
        const struct wire_frame *ours = &stack->frames[stack->count - 1 - kept];
        const struct wire_frame *theirs = &last[walk->last_count - 1 - kept];
        if (ours->code != theirs->code || ours->instruction_bytes != theirs->instruction_bytes ||
            ours->kind != theirs->kind)
            break;
    }
    return kept;
}

AGENT_HOT bool walk_define_codes(struct walk *walk, struct walk_stack *stack, struct wire_ring *ring) {
    uint32_t limit = stack->count;
    for (uint32_t i = stack->new_codes ? stack->count : 0; i-- > 0;) {
        const struct wire_frame *frame = &stack->frames[i];
        bool defined = false;
        if (frame->kind != WIRE_FRAME_PYTHON)
            continue;
        if (!codes_define(&walk->codes, walk->python, frame->code, ring, &defined)) {
            /* Some may have been defined anew: the next one is no difference to what was before that. */
            walk->last_count = 0;
            return false;
        }
        /* What an address meant to the stack before is not what it means now. */
        if (defined && limit == stack->count)
            limit = stack->count - 1 - i;
    }
    stack->kept = count_kept(walk, stack, limit);
    return true;
}

AGENT_HOT void walk_accept(struct walk *walk, const struct walk_stack *stack) {
    walk->last = 1 - walk->last;
    walk->last_count = stack->count;
}

void walk_start(struct walk *walk, const struct agent_python *python) {
    walk->python = python;
    walk->c_stack_end = walk->c_stack_mapped = 0;
    walk->last_count = 0;
    for (size_t i = 0; i < WALK_PAGE_SETS; i++)
        walk->pages[i][0] = walk->pages[i][1] = 0;
    codes_forget_ring(&walk->codes);
}
