#include "agent/walk.h"

#include "agent/load.h"

enum {
    WORD_BYTES = 8,
    /* Followed no further: half a millisecond. */
    MAX_HOPS = 1 << 16,
    /* Of a stack that is deeper than a record holds: the innermost frames, WIRE_FRAME_CUT, the outermost frames. */
    HEAD_FRAMES = WIRE_SAMPLE_MAX_FRAMES / 2,
    TAIL_FRAMES = WIRE_SAMPLE_MAX_FRAMES - HEAD_FRAMES - 1,
    /* _PyEval_EvalFrameDefault has its _PyCFrame and its entry frame in one C frame, which is smaller than this. */
    MAX_C_FRAME_BYTES = 4096,
    MAX_CHUNK_BYTES = 1 << 30,
    /* How far is searched, rarely: what a C frame of the evaluation loop and of what it calls takes; and the C frames
     * between two evaluation loops. */
    STACK_WORDS = 192,
    PROLOGUE_BYTES = 512,
    MAX_C_STACK_BYTES = 256 << 10,
    /* _PyInterpreterFrame.owner (Include/internal/pycore_frame.h 3.11) */
    OWNED_BY_GENERATOR = 1,
    OWNED_BY_FRAME_OBJECT = 2,
    CODE_UNIT_BYTES = 2,
    EXTENDED_ARG = 144, /* 3.8 to 3.10 */
    /* Py_TAG_BITS and Py_INT_TAG (Include/internal/pycore_stackref.h 3.14, 3.15) */
    TAG_MASK = 3,
    TAG_INT = 3,
};

struct span {
    uint64_t start, end;
};

/* One look. */
struct look {
    struct walk *walk;
    const struct layout *layout;
    const struct walk_registers *registers;
    uint64_t stack_pointer;
    struct span state;
    bool attached; /* what the thread's state leads to is alive, and nobody else frees it */
    bool suspect;  /* but this may be no frame at all */
    struct span window;
    /* 3.11+: what is not in use of the data stack's newest chunk, and the chunk that the walk is in. */
    struct span unused, newest, chunk;
    uint64_t newest_older, older_chunk;
    int64_t offset; /* of the instruction of the frame taken last, in its bytecode */
    /* What was found. */
    struct wire_frame *frames;
    uint32_t total;
    bool native_pending;
    bool new_codes;
    bool cut; /* longer than is followed */
    uint32_t code_unit;
};

static bool holds(struct span span, uint64_t address, uint64_t size_bytes) {
    return address >= span.start && address < span.end && span.end - address >= size_bytes;
}

static bool page_readable(struct look *look, uint64_t address) {
    uint64_t page = address / PROBE_PAGE_BYTES;
    uint64_t *known = &look->walk->pages[page % WALK_PAGES];
    if (*known == page && !look->suspect)
        return true;
    if (!probe_readable(address, 1))
        return false;
    *known = page;
    return true;
}

static void enter_chunk(struct look *look, uint64_t chunk) {
    const struct layout_stack_chunk *fields = &look->layout->stack_chunk;
    look->chunk = (struct span){0, 0};
    look->older_chunk = 0;
    if (chunk == 0)
        return;
    uint64_t size_bytes = load_u64(pointer_to(chunk + fields->size));
    /* A chunk that is being made can have no size yet. */
    if (size_bytes < fields->data || size_bytes > MAX_CHUNK_BYTES)
        return;
    look->chunk = (struct span){chunk + fields->data, chunk + size_bytes};
    look->older_chunk = load_u64(pointer_to(chunk + fields->previous));
}

/* The walk goes from the newest chunk to the oldest, with frames that are in no chunk between. */
static bool in_chunks(struct look *look, uint64_t address, uint64_t size_bytes) {
    if (holds(look->chunk, address, size_bytes))
        return true;
    if (look->older_chunk == 0)
        return false;
    struct span here = look->chunk;
    uint64_t older = look->older_chunk;
    enter_chunk(look, older);
    if (holds(look->chunk, address, size_bytes))
        return true;
    look->chunk = here;
    look->older_chunk = older;
    return false;
}

/* A copy that the kernel made: somebody else may be giving this memory back. */
static const uint8_t *copy_of(struct look *look, uint64_t address, uint64_t size_bytes) {
    uint8_t *window = look->walk->window;
    if (!holds(look->window, address, size_bytes)) {
        uint64_t mask = PROBE_PAGE_BYTES - 1;
        /* Frames lie beside each other, or at least in the same pages. */
        struct span wanted = {address & ~mask, ((address + size_bytes - 1) | mask) + 1};
        look->window = (struct span){0, 0};
        if (wanted.end <= wanted.start || wanted.end - wanted.start > sizeof look->walk->window ||
            !probe_copy(wanted.start, window, (size_t)(wanted.end - wanted.start)))
            return NULL;
        look->window = wanted;
    }
    return window + (address - look->window.start);
}

/* The bytes at an address, valid until the next call; NULL when they cannot be read. At most a page. */
static const uint8_t *bytes_at(struct look *look, uint64_t address, uint64_t size_bytes) {
    struct span c_stack = {look->stack_pointer, look->walk->c_stack_end};
    if (address % WORD_BYTES != 0 || address + size_bytes < address)
        return NULL;
    if (!holds(c_stack, address, size_bytes)) {
        if (!look->attached)
            return copy_of(look, address, size_bytes);
        uint64_t last = address + size_bytes - 1;
        if (!in_chunks(look, address, size_bytes) &&
            (!page_readable(look, address) ||
             (last / PROBE_PAGE_BYTES != address / PROBE_PAGE_BYTES && !page_readable(look, last))))
            return NULL;
    }
    return pointer_to(address);
}

/* Frames in the middle of a stack that is too deep give way to those that come after them. */
static void put(struct look *look, const struct wire_frame *frame) {
    uint32_t place = look->total++;
    if (place >= WIRE_SAMPLE_MAX_FRAMES)
        place = HEAD_FRAMES + 1 + (place - HEAD_FRAMES - 1) % TAIL_FRAMES;
    look->frames[place] = *frame;
}

static void put_native(struct look *look) {
    put(look, &(struct wire_frame){.kind = WIRE_FRAME_NATIVE, .instruction_bytes = -1});
    look->native_pending = false;
}

/* The opcode at an instruction, in the low byte, and its argument. Before 3.11 the last instruction of a frame is the
 * first of the prefixes, if it has any (Python/ceval.c 3.10). */
static uint32_t code_unit_at(struct look *look, const struct code_entry *code, uint64_t start, int64_t offset) {
    uint16_t unit = 0;
    for (; offset + CODE_UNIT_BYTES <= (int64_t)code->bytecode_bytes; offset += CODE_UNIT_BYTES) {
        uint64_t address = start + (uint64_t)offset;
        if (look->attached)
            unit = load_u16(pointer_to(address));
        else if (!probe_copy(address, &unit, sizeof unit))
            return 0;
        if (layout_has(look->layout->code.co_code_adaptive) || (unit & 0xff) != EXTENDED_ARG)
            break;
    }
    return unit;
}

static void put_python(struct look *look, const struct code_entry *code, uint64_t start, int64_t offset) {
    if (look->native_pending && look->total > 0)
        put_native(look);
    look->native_pending = false;
    if (look->total == 0 && offset >= 0)
        look->code_unit = code_unit_at(look, code, start, offset);
    look->new_codes |= !code->defined;
    put(look, &(struct wire_frame){.code = code->address,
                                   .instruction_bytes = offset < 0 ? -1 : (int32_t)offset,
                                   .kind = WIRE_FRAME_PYTHON});
}

/* A bite in the chain's own tail, noticed by comparing with a frame left behind ever longer ago (Brent). */
static bool is_circular(uint64_t address, uint32_t hops, uint64_t *left_behind) {
    bool circular = address == *left_behind;
    if ((hops & (hops - 1)) == 0)
        *left_behind = address;
    return circular;
}

static bool walk_frame_objects(struct look *look, uint64_t address) {
    const struct layout_frame_object *fields = &look->layout->frame_object;
    /* Code units in 3.10, bytes before (Objects/frameobject.c 3.10, PyFrame_GetLineNumber). */
    int64_t unit = layout_has(fields->f_state) ? CODE_UNIT_BYTES : 1;
    uint64_t left_behind = 0;
    for (uint32_t hops = 0; address != 0; hops++) {
        if (hops == MAX_HOPS) {
            look->cut = true;
            return true;
        }
        const uint8_t *bytes = bytes_at(look, address, fields->f_lasti + sizeof(int32_t));
        if (bytes == NULL || is_circular(address, hops, &left_behind))
            return false;
        int64_t lasti = load_i32(bytes + fields->f_lasti);
        address = load_u64(bytes + fields->f_back);
        const struct code_entry *code =
            codes_get(&look->walk->codes, look->walk->python, load_u64(bytes + fields->f_code));
        if (code == NULL || lasti < -1 || lasti * unit > (int64_t)code->bytecode_bytes)
            return false;
        put_python(look, code, code->bytecode, lasti < 0 ? -1 : lasti * unit);
        look->suspect = false;
    }
    return true;
}

static uint64_t untag(const struct layout *layout, uint64_t reference) {
    if (!layout->tagged_refs)
        return reference;
    return (reference & TAG_INT) == TAG_INT ? 0 : reference & ~(uint64_t)TAG_MASK;
}

/* Where the copy of the bytecode begins that a frame with this index runs (free-threaded 3.14+): _PyCodeArray
 * { Py_ssize_t size; char *entries[]; } (Include/cpython/code.h 3.14); a null entry stands for the code's own. */
static uint64_t bytecode_start(struct look *look, const struct code_entry *code, int32_t index) {
    uint64_t words[2] = {0, 0}, array = 0;
    if (index <= 0)
        return code->bytecode;
    if (!probe_copy(code->address + look->layout->code.co_tlbc, &array, sizeof array) || array == 0 ||
        !probe_copy(array, words, sizeof words[0]) || (uint64_t)index >= words[0] ||
        !probe_copy(array + WORD_BYTES * (1 + (uint64_t)index), words + 1, sizeof words[1]))
        return 0;
    return words[1] != 0 ? words[1] : code->bytecode;
}

/* What is read of an interpreter frame. */
struct head {
    uint64_t address, previous, executable, instruction;
    int32_t tlbc_index;
    uint8_t owner;
    bool is_entry; /* 3.11 */
};

static bool read_head(struct look *look, uint64_t address, struct head *head) {
    const struct layout_frame *fields = &look->layout->frame;
    const uint8_t *bytes = bytes_at(look, address, fields->localsplus);
    if (bytes == NULL)
        return false;
    *head = (struct head){.address = address,
                          .previous = load_u64(bytes + fields->previous),
                          .executable = load_u64(bytes + fields->f_executable),
                          .instruction = load_u64(bytes + fields->instr_ptr),
                          .owner = load_u8(bytes + fields->owner)};
    if (layout_has(fields->is_entry))
        head->is_entry = load_u8(bytes + fields->is_entry) != 0;
    if (layout_has(fields->tlbc_index))
        head->tlbc_index = load_i32(bytes + fields->tlbc_index);
    return true;
}

/* Whether the frame's memory was given back to the data stack already: it is leaving. */
static bool is_popped(const struct look *look, const struct head *head) {
    return holds(look->unused, head->address, 1);
}

/* One that executes Python code. Not shown, as the interpreter itself does not show it (_PyFrame_IsIncomplete,
 * Include/internal/pycore_frame.h 3.11 to 3.15): one whose setting-up instructions have not all run, unless it is a
 * generator's. Among these are the shims under __init__ (3.13+). */
static bool take_frame(struct look *look, const struct head *head) {
    if (head->owner > OWNED_BY_FRAME_OBJECT)
        return false;
    const struct code_entry *code =
        codes_get(&look->walk->codes, look->walk->python, untag(look->layout, head->executable));
    if (code == NULL)
        return false;
    uint64_t start = bytecode_start(look, code, head->tlbc_index);
    int64_t offset = look->offset = (int64_t)(head->instruction - start);
    /* One unit before the first is where a frame stands that has not begun (3.11, 3.12). */
    if (start == 0 || offset < -CODE_UNIT_BYTES || offset > (int64_t)code->bytecode_bytes)
        return false;
    bool incomplete = head->owner != OWNED_BY_GENERATOR && offset < (int64_t)code->first_traceable_bytes;
    if (!incomplete && !is_popped(look, head))
        put_python(look, code, start, offset);
    return true;
}

static void begin_anew(struct look *look) {
    look->total = 0;
    look->native_pending = look->new_codes = look->cut = false;
    look->code_unit = 0;
    look->suspect = true;
    look->chunk = look->newest;
    look->older_chunk = look->newest_older;
}

/* Where a stack begins, and what that can be held against. */
struct beginning {
    uint64_t frame;
    /* 3.11, 3.12: the C frame that names it, and the innermost frame of the next one outside; 0: there is none. */
    uint64_t cframe, outer_frame;
};

/* How a walk went. */
struct way {
    uint32_t hops;
    bool begun; /* the innermost frame is one that executes Python code and has done so */
};

/* 3.11 and 3.12: whether the entry frame is that of the evaluation loop whose _PyCFrame the walk began with. */
static bool is_right_entry(const struct look *look, const struct beginning *from, const struct head *entry) {
    if (!layout_has(look->layout->frame.is_entry) &&
        entry->address - from->cframe + MAX_C_FRAME_BYTES >= 2 * MAX_C_FRAME_BYTES)
        return false;
    return entry->previous == from->outer_frame;
}

static bool walk_interpreter_frames(struct look *look, const struct beginning *from, struct way *way) {
    const struct layout *layout = look->layout;
    uint64_t left_behind = 0, address = from->frame;
    bool entered = true; /* the frame before was the entry from C */
    bool checked = from->cframe == 0;
    *way = (struct way){.begun = true};
    begin_anew(look);
    for (; address != 0; way->hops++) {
        struct head head;
        if (way->hops == MAX_HOPS) {
            look->cut = true;
            return checked;
        }
        if (!read_head(look, address, &head) || is_circular(address, way->hops, &left_behind))
            return false;
        bool boundary = head.owner >= layout->first_boundary_owner;
        entered = boundary || head.is_entry;
        if (!boundary && !take_frame(look, &head))
            return false;
        if (way->hops == 0)
            way->begun = !boundary && look->offset >= 0 && !is_popped(look, &head);
        look->native_pending |= entered;
        if (entered && !checked && !is_right_entry(look, from, &head))
            return false;
        checked |= entered;
        look->suspect = !checked;
        address = head.previous;
    }
    return entered && checked;
}

/* The chunks are only followed where they cannot be given back meanwhile. */
static void find_chunks(struct look *look, const uint8_t *state) {
    /* datastack_chunk, datastack_top, datastack_limit follow each other since they exist (cpython/pystate.h 3.11). */
    const uint8_t *chunk = state + look->layout->thread.datastack_chunk;
    if (!look->attached)
        return;
    enter_chunk(look, load_u64(chunk));
    look->newest = look->chunk;
    look->newest_older = look->older_chunk;
    uint64_t top = load_u64(chunk + WORD_BYTES);
    if (holds(look->chunk, top, 0))
        look->unused = (struct span){top, look->chunk.end};
}

/* struct _PyCFrame { …; current_frame; previous } (Include/cpython/pystate.h 3.11, 3.12). The outermost one is in the
 * thread's state. */
static bool read_cframe(struct look *look, uint64_t cframe, struct beginning *from) {
    layout_offset current = look->layout->cframe.current_frame;
    from->cframe = cframe;
    const uint8_t *bytes = bytes_at(look, cframe, current + 2 * WORD_BYTES);
    if (bytes == NULL)
        return false;
    from->frame = load_u64(bytes + current);
    uint64_t outer = load_u64(bytes + current + WORD_BYTES);
    if (holds(look->state, cframe, 1)) {
        from->cframe = 0;
        return true;
    }
    if (outer <= cframe && !holds(look->state, outer, 1))
        return false;
    bytes = bytes_at(look, outer, current + WORD_BYTES);
    if (bytes == NULL)
        return false;
    from->outer_frame = load_u64(bytes + current);
    return true;
}

/* The longest chain so far of those that lead to where this stack must end. */
struct longest {
    struct beginning from;
    uint32_t hops;
};

static void consider(struct look *look, const struct beginning *from, uint64_t frame, struct longest *longest) {
    struct beginning candidate = *from;
    struct way way;
    struct head head;
    candidate.frame = frame;
    begin_anew(look);
    /* A caller lies below the frames that it calls. */
    uint64_t limit = holds(look->newest, from->frame, 1) ? from->frame : look->unused.start;
    if (frame == 0 || frame == from->frame || (holds(look->newest, frame, 1) && frame >= limit) ||
        !read_head(look, frame, &head) || head.owner > OWNED_BY_GENERATOR)
        return;
    if (walk_interpreter_frames(look, &candidate, &way) && way.begun && way.hops > longest->hops)
        *longest = (struct longest){candidate, way.hops};
}

/* A frame is published before it leads to its caller, and one that leaves is published for a moment after it does no
 * longer (3.11, 3.12, as compiled); or its memory is gone already (all, when a chunk's first frame becomes a
 * generator's). But the caller's address is about to be used: it is in a register or among the words on top of the C
 * stack. All that lead on to the end are on the stack (a suspended generator leads nowhere), so the innermost is the
 * one with the longest way. */
static void consider_registers(struct look *look, const struct beginning *from, struct longest *longest) {
    for (size_t i = 0; i < look->registers->count; i++)
        consider(look, from, look->registers->values[i], longest);
    uint64_t end = look->stack_pointer + STACK_WORDS * WORD_BYTES;
    if (look->walk->c_stack_end != 0 && end > look->walk->c_stack_end)
        end = look->walk->c_stack_end;
    for (uint64_t at = look->stack_pointer & ~(uint64_t)(WORD_BYTES - 1); at + WORD_BYTES <= end; at += WORD_BYTES) {
        look->suspect = true;
        const uint8_t *bytes = bytes_at(look, at, WORD_BYTES);
        if (bytes == NULL)
            return;
        uint64_t word = load_u64(bytes);
        /* Others were in registers before they came here, or are no thread's frames. */
        if (holds(look->newest, word, 1))
            consider(look, from, word, longest);
    }
}

/* The evaluation loop publishes its _PyCFrame before it fills it in (the prologue of _PyEval_EvalFrameDefault,
 * Python/ceval.c 3.11, 3.12). Until then, what its caller was in is only known to the C stack: the next _PyCFrame on
 * it. What is left over there of others that have ended leads nowhere, or not as far. */
static void find_outer_cframe(struct look *look, uint64_t cframe, struct longest *longest) {
    uint64_t end = look->walk->c_stack_end != 0 ? look->walk->c_stack_end : cframe + MAX_C_STACK_BYTES;
    if (end - cframe > MAX_C_STACK_BYTES)
        end = cframe + MAX_C_STACK_BYTES;
    layout_offset previous = look->layout->cframe.current_frame + WORD_BYTES;
    for (uint64_t at = cframe + WORD_BYTES; at + previous + WORD_BYTES <= end; at += WORD_BYTES) {
        struct beginning from = {0};
        struct way way;
        begin_anew(look);
        const uint8_t *bytes = bytes_at(look, at, previous + WORD_BYTES);
        if (bytes == NULL)
            return;
        uint64_t outer = load_u64(bytes + previous);
        if ((outer <= at || outer >= end) && !holds(look->state, outer, 1))
            continue;
        if (read_cframe(look, at, &from) && walk_interpreter_frames(look, &from, &way) && way.begun &&
            way.hops > longest->hops)
            *longest = (struct longest){from, way.hops};
    }
}

static bool may_be_entering(const struct look *look) {
    return look->registers->program_counter - look->walk->python->eval < PROLOGUE_BYTES;
}

/* The innermost frame is not (yet, any longer) the end of a chain that holds; or it is, but has not begun, so that it
 * may have been another's. */
static bool recover(struct look *look, const struct beginning *from, uint64_t cframe, const struct way *way,
                    bool held) {
    struct longest longest = {*from, held ? way->hops - !way->begun : 0};
    struct way found;
    if (!look->attached)
        return held && walk_interpreter_frames(look, from, &found);
    if (cframe == 0 || from->cframe != 0)
        consider_registers(look, from, &longest);
    if (cframe != 0 && (may_be_entering(look) || longest.hops == 0))
        find_outer_cframe(look, cframe, &longest);
    return (held || longest.hops > 0) && walk_interpreter_frames(look, &longest.from, &found);
}

static bool walk_state(struct look *look, uint64_t state) {
    const struct layout *layout = look->layout;
    struct beginning from = {0};
    struct way way = {0};
    const uint8_t *bytes = bytes_at(look, state, layout->thread.size);
    if (bytes == NULL)
        return false;
    look->state = (struct span){state, state + layout->thread.size};
    if (layout_has(layout->thread.frame)) {
        look->suspect = true;
        return walk_frame_objects(look, load_u64(bytes + layout->thread.frame));
    }
    find_chunks(look, bytes);
    uint64_t cframe = layout_has(layout->thread.cframe) ? load_u64(bytes + layout->thread.cframe) : 0;
    bool read = true;
    if (cframe != 0)
        read = read_cframe(look, cframe, &from);
    else
        from.frame = load_u64(bytes + layout->thread.current_frame);
    bool held = read && walk_interpreter_frames(look, &from, &way);
    /* Later versions publish nothing that is not complete. */
    if (held && (cframe == 0 || (way.begun && !may_be_entering(look))))
        return true;
    if (!read)
        from = (struct beginning){0};
    return recover(look, &from, cframe, &way, held);
}

static void reverse(struct wire_frame *frames, uint32_t first, uint32_t end) {
    for (; end > first + 1; first++) {
        struct wire_frame swapped = frames[--end];
        frames[end] = frames[first];
        frames[first] = swapped;
    }
}

/* Puts what was kept of a deep stack into its order. The number of frames that stand there then. */
static uint32_t arrange(struct look *look) {
    const struct wire_frame cut = {.kind = WIRE_FRAME_CUT, .instruction_bytes = -1};
    if (look->cut) {
        uint32_t count = look->total < HEAD_FRAMES ? look->total : HEAD_FRAMES;
        look->frames[count] = cut;
        return count + 1;
    }
    if (look->total <= WIRE_SAMPLE_MAX_FRAMES)
        return look->total;
    uint32_t first = HEAD_FRAMES + 1, oldest = first + (look->total - first) % TAIL_FRAMES;
    look->frames[HEAD_FRAMES] = cut;
    reverse(look->frames, first, oldest);
    reverse(look->frames, oldest, WIRE_SAMPLE_MAX_FRAMES);
    reverse(look->frames, first, WIRE_SAMPLE_MAX_FRAMES);
    return WIRE_SAMPLE_MAX_FRAMES;
}

void walk_frames(struct walk *walk, const struct walk_registers *registers, struct walk_stack *stack) {
    struct agent_thread_state state = agent_python_own_state(walk->python);
    struct look look = {.walk = walk,
                        .layout = &walk->python->layout,
                        .registers = registers,
                        .stack_pointer = registers->stack_pointer,
                        .attached = state.attached,
                        .frames = walk->frames[1 - walk->last]};
    *stack = (struct walk_stack){.frames = look.frames};
    if (state.address == 0) {
        stack->flags = WIRE_SAMPLE_NO_PYTHON;
        return;
    }
    stack->flags = state.attached ? 0 : WIRE_SAMPLE_DETACHED;
    if (!walk_state(&look, state.address)) {
        stack->flags |= WIRE_SAMPLE_TORN;
        return;
    }
    stack->count = arrange(&look);
    stack->code_unit = look.code_unit;
    stack->new_codes = look.new_codes;
}

/* How many of the outermost frames are those of the stack that was written last. */
static uint32_t count_kept(const struct walk *walk, const struct walk_stack *stack, uint32_t limit) {
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

bool walk_define_codes(struct walk *walk, struct walk_stack *stack, struct wire_ring *ring) {
    uint32_t limit = stack->count;
    for (uint32_t i = stack->new_codes ? stack->count : 0; i-- > 0;) {
        const struct wire_frame *frame = &stack->frames[i];
        bool defined = false;
        if (frame->kind != WIRE_FRAME_PYTHON)
            continue;
        if (!codes_define(&walk->codes, walk->python, frame->code, ring, &defined))
            return false;
        /* What an address meant to the stack before is not what it means now. */
        if (defined && limit == stack->count)
            limit = stack->count - 1 - i;
    }
    stack->kept = count_kept(walk, stack, limit);
    return true;
}

void walk_accept(struct walk *walk, const struct walk_stack *stack) {
    walk->last = 1 - walk->last;
    walk->last_count = stack->count;
}

void walk_start(struct walk *walk, const struct agent_python *python) {
    walk->python = python;
    walk->c_stack_end = 0;
    walk->last_count = 0;
    for (size_t i = 0; i < WALK_PAGES; i++)
        walk->pages[i] = 0;
    codes_forget_ring(&walk->codes);
}
