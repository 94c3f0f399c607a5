#include "agent/hot.h"
#include "agent/load.h"
#include "agent/look.h"

enum {
    /* _PyEval_EvalFrameDefault has its _PyCFrame and its entry frame in one C frame, which is smaller than this. */
    MAX_C_FRAME_BYTES = 4096,
    CODE_UNIT_BYTES = 2,
    EXTENDED_ARG = 144, /* 3.8 to 3.10 */
    FIRST_MINOR_NAMING_THE_NEXT = 13,
    /* Py_TAG_BITS and Py_INT_TAG (Include/internal/pycore_stackref.h 3.14, 3.15) */
    TAG_MASK = 3,
    TAG_INT = 3,
};

/* Frames in the middle of a stack that is too deep give way to those that come after them. */
static AGENT_HOT void put(struct look *look, const struct wire_frame *frame) {
    uint32_t place = look->total++;
    if (place >= WIRE_SAMPLE_MAX_FRAMES)
        place = LOOK_HEAD_FRAMES + 1 + (place - LOOK_HEAD_FRAMES - 1) % LOOK_TAIL_FRAMES;
    look->frames[place] = *frame;
}

static AGENT_HOT void put_native(struct look *look) {
    put(look, &(struct wire_frame){.kind = WIRE_FRAME_NATIVE, .instruction_bytes = -1});
    look->native_pending = false;
}

/* Before 3.11 the last instruction of a frame is the first of the prefixes, if it has any (Python/ceval.c 3.10). */
AGENT_HOT uint32_t look_read_code_unit(struct look *look) {
    uint64_t address = look->first_code.start;
    uint16_t unit = 0;
    /* The frame is one, as the whole way from it was right: so its code is alive. */
    look->suspect = false;
    for (; span_holds(look->first_code, address, CODE_UNIT_BYTES); address += CODE_UNIT_BYTES) {
        uint64_t in_word = address % LOOK_WORD_BYTES;
        const uint8_t *word = look_bytes_at(look, address - in_word, LOOK_WORD_BYTES);
        if (word == NULL || in_word > LOOK_WORD_BYTES - CODE_UNIT_BYTES)
            return 0;
        look_note_touched(look, address, CODE_UNIT_BYTES);
        unit = load_u16(word + in_word);
        if (layout_has(look->layout->code.co_code_adaptive) || (unit & 0xff) != EXTENDED_ARG)
            break;
    }
    return unit;
}

static AGENT_HOT void put_python(struct look *look, const struct code_entry *code, uint64_t start, int64_t offset) {
    if (look->native_pending && look->total > 0)
        put_native(look);
    look->native_pending = false;
    if (look->total == 0 && offset >= 0)
        look->first_code = (struct span){start + (uint64_t)offset, start + code->bytecode_bytes};
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

AGENT_HOT bool look_follow_objects(struct look *look, uint64_t address) {
    const struct layout_frame_object *fields = &look->layout->frame_object;
    /* Code units in 3.10, bytes before (Objects/frameobject.c 3.10, PyFrame_GetLineNumber). */
    int64_t unit = layout_has(fields->f_state) ? CODE_UNIT_BYTES : 1;
    uint64_t left_behind = 0;
    look->suspect = true;
    for (uint32_t hops = 0; address != 0; hops++) {
        if (hops == LOOK_MAX_HOPS) {
            look->cut = true;
            return true;
        }
        const uint8_t *bytes = look_bytes_at(look, address, fields->f_lasti + sizeof(int32_t));
        if (bytes == NULL || is_circular(address, hops, &left_behind))
            return false;
        look_note_touched(look, address + fields->f_back, 2 * LOOK_WORD_BYTES);
        look_note_touched(look, address + fields->f_lasti, sizeof(int32_t));
        int64_t lasti = load_i32(bytes + fields->f_lasti);
        address = load_u64(bytes + fields->f_back);
        const struct code_entry *code = codes_get(&look->walk->codes, look->python, load_u64(bytes + fields->f_code));
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

static bool read_word(struct look *look, uint64_t address, uint64_t *word) {
    const uint8_t *bytes = look_bytes_at(look, address, sizeof *word);
    if (bytes == NULL)
        return false;
    *word = load_u64(bytes);
    return true;
}

/* Where the copy of the bytecode begins that a frame with this index runs (free-threaded 3.14+): _PyCodeArray
 * { Py_ssize_t size; char *entries[]; } (Include/cpython/code.h 3.14); a null entry stands for the code's own. An
 * array that another thread replaces stays until this thread has come to a safe point. */
static AGENT_HOT bool find_bytecode(struct look *look, const struct code_entry *code, int32_t index, uint64_t *start) {
    uint64_t array = 0, count = 0, copy = 0;
    *start = code->bytecode;
    if (index <= 0)
        return true;
    if (!layout_has(look->layout->code.co_tlbc) ||
        !read_word(look, code->address + look->layout->code.co_tlbc, &array) || array == 0 ||
        !read_word(look, array, &count) || (uint64_t)index >= count ||
        !read_word(look, array + LOOK_WORD_BYTES * (1 + (uint64_t)index), &copy))
        return false;
    if (copy != 0)
        *start = copy;
    return true;
}

/* What is read of an interpreter frame. */
struct head {
    uint64_t address, previous, executable, instruction;
    int32_t tlbc_index;
    uint8_t owner;
    bool is_entry; /* 3.11 */
};

static AGENT_HOT bool read_head(struct look *look, uint64_t address, struct head *head) {
    const struct layout_frame *fields = &look->layout->frame;
    const uint8_t *bytes = look_bytes_at(look, address, fields->localsplus);
    if (bytes == NULL)
        return false;
    look_note_touched(look, address, fields->localsplus);
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

bool look_read_owner(struct look *look, uint64_t frame, uint8_t *owner) {
    struct head head;
    if (!read_head(look, frame, &head))
        return false;
    *owner = head.owner;
    return true;
}

/* Whether the frame's memory was given back to the data stack already: it is leaving. */
static bool is_popped(const struct look *look, const struct head *head) {
    return span_holds(look->unused, head->address, 1);
}

/* Frames lie on the data stack one after the other, up to where it is not in use. What is left over of one that was
 * popped has all that a frame has, but may lie in the middle of one that was pushed since. False of such a one; else
 * its callers have to end before it. */
static AGENT_HOT bool take_room(struct look *look, const struct head *head, const struct code_entry *code) {
    if (!span_holds(look->chunk, head->address, 1) || is_popped(look, head))
        return true;
    uint64_t limit = look->callee_chunk == look->chunk.start ? look->callee : look->chunk.end;
    look->callee = head->address;
    look->callee_chunk = look->chunk.start;
    return head->address + (uint64_t)code->frame_words * LOOK_WORD_BYTES <= limit;
}

/* One that executes Python code. Not shown, as the interpreter itself does not show it (_PyFrame_IsIncomplete,
 * Include/internal/pycore_frame.h 3.11 to 3.15): one whose setting-up instructions have not all run, unless it is a
 * generator's. Among these are the shims under __init__ (3.13+). */
static AGENT_HOT bool take_frame(struct look *look, const struct head *head) {
    if (head->owner > LOOK_OWNED_BY_FRAME_OBJECT)
        return false;
    const struct code_entry *code = codes_get(&look->walk->codes, look->python, untag(look->layout, head->executable));
    if (code == NULL || !take_room(look, head, code))
        return false;
    uint64_t start = 0;
    if (!find_bytecode(look, code, head->tlbc_index, &start))
        return false;
    int64_t offset = look->offset = (int64_t)(head->instruction - start);
    /* One unit before the first is where a frame stands that has not begun (3.11, 3.12). */
    if (offset < -CODE_UNIT_BYTES || offset > (int64_t)code->bytecode_bytes)
        return false;
    bool incomplete =
        head->owner != LOOK_OWNED_BY_GENERATOR && offset < (int64_t)code->first_traceable_units * CODE_UNIT_BYTES;
    if (!incomplete && !is_popped(look, head))
        put_python(look, code, start, offset);
    return true;
}

/* 3.11 and 3.12: whether the entry frame is that of the evaluation loop whose _PyCFrame the walk began with. */
static bool is_right_entry(const struct look *look, const struct look_start *start, const struct head *entry) {
    if (!layout_has(look->layout->frame.is_entry) &&
        entry->address - start->cframe + MAX_C_FRAME_BYTES >= 2 * MAX_C_FRAME_BYTES)
        return false;
    return entry->previous == start->outer_frame;
}

/* Before 3.13 a frame names the instruction before the next one, later the next or current one. */
static bool has_begun(const struct look *look, const struct head *head) {
    return look->offset >= (layout_minor(look->layout) < FIRST_MINOR_NAMING_THE_NEXT ? 0 : CODE_UNIT_BYTES) &&
           !is_popped(look, head);
}

static AGENT_HOT void begin_anew(struct look *look) {
    look->total = 0;
    look->native_pending = look->new_codes = look->cut = false;
    look->first_code = (struct span){0, 0};
    look->loop_address = 0;
    look->suspect = true;
    look->chunk = look->newest;
    look->older_chunk = look->newest_older;
    look->callee = look->unused.start;
    look->callee_chunk = look->unused.start != 0 ? look->newest.start : 0;
}

/* The evaluation loop has its entry frame (3.12 and later) and its _PyCFrame (3.11, 3.12) in its C frame. One that is
 * being left lies below the stack pointer. */
static AGENT_HOT void note_loop(struct look *look, const struct look_start *start, const struct head *entry) {
    uint64_t address = start->cframe != 0 ? start->cframe : entry->address;
    if (span_holds(look->c_stack, address, LOOK_WORD_BYTES))
        look->loop_address = address;
}

AGENT_HOT bool look_follow(struct look *look, const struct look_start *start, struct look_way *way) {
    uint64_t left_behind = 0, address = start->frame;
    bool entered = true; /* the frame before was the entry from C */
    bool checked = start->cframe == 0;
    *way = (struct look_way){.begun = true};
    begin_anew(look);
    for (; address != 0; way->hops++) {
        struct head head;
        if (way->hops == LOOK_MAX_HOPS) {
            look->cut = true;
            return checked;
        }
        if (!read_head(look, address, &head) || is_circular(address, way->hops, &left_behind))
            return false;
        bool boundary = head.owner >= look->layout->first_boundary_owner;
        entered = boundary || head.is_entry;
        if (!boundary && !take_frame(look, &head))
            return false;
        if (entered && look->loop_address == 0)
            note_loop(look, start, &head);
        if (way->hops == 0)
            way->begun = !boundary && has_begun(look, &head);
        look->native_pending |= entered;
        if (entered && !checked && !is_right_entry(look, start, &head))
            return false;
        checked |= entered;
        look->suspect = !checked;
        address = head.previous;
    }
    return entered && checked;
}
