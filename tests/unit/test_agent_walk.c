/* The agent's walk of stacks made by hand: whole ones, deep ones, and garbage that nobody may fall over. That it is
 * right of real ones is held against the interpreters in tests/live/test_agent_walk.py. */
#include "agent/walk.h"

#include "debug_offsets_samples.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum {
    ARENA_BYTES = 4 << 20,
    PAGE_BYTES = 4096,
    WORD_BYTES = 8,
    UNITS = 20,
    FIRST_MINOR = 8,
    LAST_MINOR = 15,
    FIRST_TRACEABLE = 2
};

/* An interpreter made by hand, in memory that ends in pages that cannot be read. */
static struct world { /* NOLINT(clang-analyzer-optin.performance.Padding) */
    struct agent_python python;
    uint8_t *arena;
    size_t used_bytes;
    uint64_t state, chunk;
    bool attached;
    struct walk walk;
    struct wire_slot slot;
    struct wire_ring ring;
} world;

static void *give_current(void) {
    return world.attached ? (void *)(uintptr_t)world.state : NULL;
}

static void *give_first(void) {
    return (void *)(uintptr_t)world.state;
}

static uint64_t take(size_t size_bytes) {
    uint64_t address = (uint64_t)(uintptr_t)world.arena + world.used_bytes;
    world.used_bytes += (size_bytes + 15) & ~(size_t)15;
    assert_true(world.used_bytes <= ARENA_BYTES);
    return address;
}

static void put_u64(uint64_t address, uint64_t value) {
    memcpy((void *)(uintptr_t)address, &value, sizeof value);
}

static void put_u32(uint64_t address, uint32_t value) {
    memcpy((void *)(uintptr_t)address, &value, sizeof value);
}

static void put_u8(uint64_t address, uint8_t value) {
    memcpy((void *)(uintptr_t)address, &value, sizeof value);
}

static uint32_t deallocations;

static void deallocate(void *object) {
    (void)object;
    deallocations++;
}

static uint64_t make_type(void) {
    uint64_t type = take(world.python.layout.type.size);
    put_u64(type + world.python.layout.type.tp_itemsize + WORD_BYTES, (uint64_t)(uintptr_t)deallocate);
    return type;
}

static const struct layout *table_of(int minor) {
    size_t count = 0;
    const struct layout *tables = layout_tables(&count);
    for (size_t i = 0; i < count; i++)
        if (layout_minor(&tables[i]) == minor)
            return &tables[i];
    fail_msg("no table for 3.%d", minor);
    return NULL;
}

static void decode(const uint64_t *words, size_t size_bytes, struct layout *layout) {
    uint8_t table[DEBUG_OFFSETS_MAX_BYTES] = "xdebugpy";
    struct error error = {0};
    memcpy(table + WORD_BYTES, words, size_bytes);
    assert_int_equal(debug_offsets_decode(table, sizeof table, layout, &error), STATUS_OK);
}

/* 3.8 to 3.12; 13 and more are the free-threaded ones. */
static void choose_layout(int minor) {
    struct layout *layout = &world.python.layout;
    if (minor == 13)
        decode(sample_3_13t, sizeof sample_3_13t, layout);
    else if (minor == 14)
        decode(sample_3_14t, sizeof sample_3_14t, layout);
    else if (minor == 15)
        decode(sample_3_15t, sizeof sample_3_15t, layout);
    else
        *layout = *table_of(minor);
}

static void make_world(int minor) {
    static uint8_t ring[WIRE_RING_BYTES];
    if (world.arena != NULL)
        munmap(world.arena - PAGE_BYTES, ARENA_BYTES + 2 * PAGE_BYTES);
    memset(&world, 0, sizeof world);
    uint8_t *memory = mmap(NULL, ARENA_BYTES + 2 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    world.arena = memory + PAGE_BYTES;
    assert_int_equal(mprotect(world.arena, ARENA_BYTES, PROT_READ | PROT_WRITE), 0);
    choose_layout(minor);
    world.python.version = world.python.layout.version;
    world.python.current_state = give_current;
    world.python.first_state = give_first;
    world.python.code_type = make_type();
    world.python.unicode_type = make_type();
    world.python.bytes_type = make_type();
    world.python.eval = 1; /* nowhere near */
    world.attached = true;
    assert_true(codes_watch(&world.python));
    world.state = take(world.python.layout.thread.size);
    put_u64(world.state + world.python.layout.thread.thread_id, (uint64_t)pthread_self());
    world.ring = (struct wire_ring){&world.slot, ring, 0};
    walk_start(&world.walk, &world.python);
}

/* compact; kind 1 is Latin-1 and not ASCII. */
static uint64_t make_string(uint8_t kind, uint32_t character, size_t length) {
    const struct layout_unicode *fields = &world.python.layout.unicode;
    uint64_t object = take(fields->compact_size + length * kind);
    put_u64(object + world.python.layout.object.ob_type, world.python.unicode_type);
    put_u64(object + fields->length, length);
    put_u32(object + fields->state, (uint32_t)kind << fields->kind_shift | 1U << fields->compact_shift);
    for (size_t i = 0; i < length; i++)
        memcpy((void *)(uintptr_t)(object + fields->compact_size + i * kind), &character, kind);
    return object;
}

static uint64_t make_bytes(size_t size_bytes) {
    uint64_t object = take(world.python.layout.bytes.ob_sval + size_bytes);
    put_u64(object + world.python.layout.object.ob_type, world.python.bytes_type);
    put_u64(object + world.python.layout.object.ob_size, size_bytes);
    memset((void *)(uintptr_t)(object + world.python.layout.bytes.ob_sval), 0x42, size_bytes);
    return object;
}

static uint64_t make_code_with(uint64_t name, uint64_t filename, uint64_t table) {
    const struct layout *layout = &world.python.layout;
    uint64_t code = take(layout->code.size + UNITS * 2);
    put_u64(code + layout->object.ob_type, world.python.code_type);
    put_u64(code + layout->code.co_name, name);
    put_u64(code + layout->code.co_filename, filename);
    put_u64(code + layout->code.co_linetable, table);
    put_u32(code + layout->code.co_firstlineno, 7);
    if (layout_has(layout->code.co_code_adaptive)) {
        put_u64(code + layout->object.ob_size, UNITS);
        put_u32(code + layout->code.co_firsttraceable, FIRST_TRACEABLE);
    } else {
        put_u64(code + layout->code.co_code, make_bytes(UNITS * 2));
    }
    return code;
}

static uint64_t make_code(void) {
    return make_code_with(make_string(1, 'f', 3), make_string(1, 'x', 5), make_bytes(4));
}

/* A frame of any version, `unit` units into its code, with its caller's frame. */
static uint64_t make_frame(uint64_t code, int unit, uint64_t caller) {
    const struct layout *layout = &world.python.layout;
    if (layout_has(layout->thread.frame)) {
        uint64_t frame = take(layout->frame_object.size);
        put_u64(frame + layout->frame_object.f_back, caller);
        put_u64(frame + layout->frame_object.f_code, code);
        int bytes_a_count = layout_has(layout->frame_object.f_state) ? 1 : 2;
        put_u32(frame + layout->frame_object.f_lasti, (uint32_t)(unit * bytes_a_count));
        return frame;
    }
    uint64_t frame = take(layout->frame.localsplus + 4 * WORD_BYTES);
    put_u64(frame + layout->frame.previous, caller);
    put_u64(frame + layout->frame.f_executable, code);
    put_u64(frame + layout->frame.instr_ptr, code + layout->code.co_code_adaptive + (uint64_t)(unit * 2));
    return frame;
}

/* The interpreter's own, where there are such; 3.11 marks the frame that it enters with. */
static uint64_t make_entry(uint64_t caller) {
    const struct layout *layout = &world.python.layout;
    if (!layout_has(layout->frame.owner) || layout->first_boundary_owner == UINT8_MAX)
        return caller;
    uint64_t frame = make_frame(0, 0, caller);
    put_u8(frame + layout->frame.owner, layout->first_boundary_owner);
    return frame;
}

static void mark_entry(uint64_t frame) {
    if (layout_has(world.python.layout.frame.is_entry))
        put_u8(frame + world.python.layout.frame.is_entry, 1);
}

/* What the thread's state says is the innermost frame. */
static void set_innermost(uint64_t frame) {
    const struct layout *layout = &world.python.layout;
    if (layout_has(layout->thread.frame)) {
        put_u64(world.state + layout->thread.frame, frame);
    } else if (layout_has(layout->thread.cframe)) {
        /* The outermost, which is in the state. */
        uint64_t cframe = world.state + layout->thread.cframe + 2 * WORD_BYTES;
        put_u64(world.state + layout->thread.cframe, cframe);
        put_u64(cframe + layout->cframe.current_frame, frame);
    } else {
        put_u64(world.state + layout->thread.current_frame, frame);
    }
}

enum { REGISTERS = 4 };

static struct walk_stack look_with(const uint64_t values[REGISTERS]) {
    struct walk_registers registers = {
        .stack_pointer = (uint64_t)(uintptr_t)values, .values = values, .count = REGISTERS};
    struct walk_stack stack;
    walk_frames(&world.walk, &registers, &stack);
    return stack;
}

static struct walk_stack look(void) {
    return look_with((uint64_t[REGISTERS]){0});
}

static void test_whole_stacks(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        uint64_t codes[2] = {make_code(), make_code()};
        uint64_t outer = make_frame(codes[0], 3, make_entry(0));
        mark_entry(outer);
        uint64_t inner = make_frame(codes[1], 5, outer);
        set_innermost(inner);
        for (int attached = 0; attached < 2; attached++) {
            world.attached = attached != 0;
            struct walk_stack stack = look();
            /* Before 3.12 who holds the GIL is told by the current state. */
            assert_int_equal(stack.flags, world.attached ? 0 : WIRE_SAMPLE_DETACHED);
            assert_int_equal(stack.count, 2);
            assert_int_equal(stack.frames[0].code, codes[1]);
            assert_int_equal(stack.frames[0].instruction_bytes, 10);
            assert_int_equal(stack.frames[1].code, codes[0]);
            assert_int_equal(stack.frames[1].instruction_bytes, 6);
        }
    }
}

static bool has_touched(uint64_t address) {
    enum { LINE_BYTES = 64 };
    for (uint32_t i = 0; i < world.walk.touched_count; i++)
        if (world.walk.touched[i] == address / LINE_BYTES * LINE_BYTES)
            return true;
    return false;
}

/* What the next look asks for beforehand: where each frame names its caller and its code, each line once. */
static void test_what_was_touched(void **unused) {
    (void)unused;
    enum { DEPTH = 10, TOO_DEEP = 1000 };
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        const struct layout *layout = &world.python.layout;
        bool objects = layout_has(layout->thread.frame);
        uint64_t code = make_code(), frames[DEPTH], frame = make_entry(0);
        for (int i = 0; i < DEPTH; i++)
            frames[i] = frame = make_frame(code, 3, frame);
        mark_entry(frames[0]);
        set_innermost(frame);
        for (int looks = 0; looks < 2; looks++) {
            walk_expect(&world.walk);
            assert_int_equal(look().count, DEPTH);
            for (int i = 0; i < DEPTH; i++) {
                assert_true(has_touched(frames[i] + (objects ? layout->frame_object.f_back : layout->frame.previous)));
                assert_true(has_touched(frames[i] + (objects ? layout->frame_object.f_lasti : layout->frame.owner)));
            }
            for (uint32_t i = 1; i < world.walk.touched_count; i++)
                assert_true(world.walk.touched[i] != world.walk.touched[i - 1]);
        }
        for (int i = 0; i < TOO_DEEP; i++)
            frame = make_frame(code, 3, frame);
        set_innermost(frame);
        (void)look();
        assert_int_equal(world.walk.touched_count, WALK_TOUCHED_LINES);
        walk_expect(&world.walk);
    }
}

static void test_c_between(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        uint64_t code = make_code();
        uint64_t outer = make_frame(code, 3, make_entry(0));
        uint64_t inner = make_frame(code, 4, make_entry(outer));
        mark_entry(outer);
        mark_entry(inner);
        set_innermost(inner);
        struct walk_stack stack = look();
        assert_int_equal(stack.count, minor < 11 ? 2 : 3);
        assert_int_equal(stack.frames[1].kind, minor < 11 ? WIRE_FRAME_PYTHON : WIRE_FRAME_NATIVE);
        assert_int_equal(stack.frames[stack.count - 1].instruction_bytes, 6);
    }
}

static void test_setting_up_is_hidden(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        if (minor < 11)
            continue;
        make_world(minor);
        uint64_t code = make_code();
        uint64_t outer = make_frame(code, 3, make_entry(0));
        mark_entry(outer);
        uint64_t inner = make_frame(code, FIRST_TRACEABLE - 1, outer);
        set_innermost(inner);
        assert_int_equal(look().count, 1);
        put_u8(inner + world.python.layout.frame.owner, 1); /* a generator's is always shown */
        assert_int_equal(look().count, 2);
    }
}

static void test_no_state(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        put_u64(world.state + world.python.layout.thread.thread_id, 1);
        world.attached = minor >= 12 ? false : true;
        struct walk_stack stack = look();
        assert_int_equal(stack.flags, WIRE_SAMPLE_NO_PYTHON);
        assert_int_equal(stack.count, 0);
    }
}

static void test_copies_of_bytecode(void **unused) {
    (void)unused;
    make_world(14);
    const struct layout *layout = &world.python.layout;
    uint64_t code = make_code(), copy = take(UNITS * 2), array = take(4 * WORD_BYTES);
    put_u64(code + layout->code.co_tlbc, array);
    put_u64(array, 3);
    put_u64(array + 3 * WORD_BYTES, copy); /* entry 2; entry 1 is null */
    memset((void *)(uintptr_t)copy, 0x17, UNITS * 2);
    uint64_t frame = make_frame(code, 3, make_entry(0));
    set_innermost(frame);
    put_u32(frame + layout->frame.tlbc_index, 1);
    assert_int_equal(look().frames[0].instruction_bytes, 6);
    put_u32(frame + layout->frame.tlbc_index, 2);
    assert_int_equal(look().flags, WIRE_SAMPLE_TORN);
    put_u64(frame + layout->frame.instr_ptr, copy + 8);
    for (int attached = 0; attached < 2; attached++) {
        world.attached = attached != 0;
        struct walk_stack stack = look();
        assert_int_equal(stack.count, 1);
        assert_int_equal(stack.frames[0].instruction_bytes, 8);
        assert_int_equal(stack.code_unit, 0x1717);
    }
    put_u32(frame + layout->frame.tlbc_index, 3);
    assert_true((look().flags & WIRE_SAMPLE_TORN) != 0);
}

static void test_deep(void **unused) {
    (void)unused;
    enum { DEPTH = 5000 };
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        uint64_t code = make_code(), top = make_code();
        uint64_t frame = make_frame(code, 2, make_entry(0));
        mark_entry(frame);
        for (int i = 1; i < DEPTH; i++)
            frame = make_frame(i == DEPTH - 1 ? top : code, 2 + i % 8, frame);
        set_innermost(frame);
        struct walk_stack stack = look();
        assert_int_equal(stack.count, WIRE_SAMPLE_MAX_FRAMES);
        assert_int_equal(stack.frames[0].code, top);
        uint32_t cut = 0;
        for (uint32_t i = 0; i < stack.count; i++) {
            if (stack.frames[i].kind == WIRE_FRAME_CUT)
                cut = i;
            int from_top = (int)i, from_bottom = (int)(stack.count - 1 - i);
            int which = cut == 0 ? DEPTH - 1 - from_top : from_bottom;
            if (stack.frames[i].kind == WIRE_FRAME_PYTHON)
                assert_int_equal(stack.frames[i].instruction_bytes, 2 * (2 + which % 8));
        }
        assert_int_equal(cut, WIRE_SAMPLE_MAX_FRAMES / 2);
    }
}

static void set_frame_words(uint64_t code, uint32_t words) {
    const struct layout *layout = &world.python.layout;
    if (layout_has(layout->code.co_framesize))
        put_u32(code + layout->code.co_framesize, words);
    else
        put_u32(code + layout->code.co_stacksize, words - layout->frame.localsplus / WORD_BYTES);
}

/* From here on the arena is the data stack. */
static void begin_chunk(void) {
    const struct layout *layout = &world.python.layout;
    world.chunk = take(layout->stack_chunk.data);
    put_u64(world.chunk + layout->stack_chunk.size, 1 << 20);
    put_u64(world.state + layout->thread.datastack_chunk, world.chunk);
}

/* As 3.11 and 3.12 name it, from within an evaluation loop of its own; the others as ever. */
static void set_innermost_of_loop(uint64_t frame, uint64_t cframe) {
    const struct layout *layout = &world.python.layout;
    if (!layout_has(layout->thread.cframe)) {
        set_innermost(frame);
        return;
    }
    put_u64(cframe + layout->cframe.current_frame, frame);
    put_u64(cframe + layout->cframe.current_frame + WORD_BYTES, world.state + layout->thread.cframe + 2 * WORD_BYTES);
    put_u64(world.state + layout->thread.cframe, cframe);
}

static void set_top(uint64_t top) {
    put_u64(world.state + world.python.layout.thread.datastack_chunk + WORD_BYTES, top);
}

/* While the innermost frame has yet to be published, what it lies on leads to it, too, and stands in a register. */
static void test_leftovers_below_a_new_frame(void **unused) {
    (void)unused;
    enum { WIDE_WORDS = 100, NARROW_WORDS = 20 };
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        if (minor < 11)
            continue;
        for (int inside = 0; inside < 2; inside++) {
            make_world(minor);
            uint64_t code = make_code(), wide = make_code(), cframe = take(4 * WORD_BYTES), entry = make_entry(0);
            set_frame_words(code, NARROW_WORDS);
            set_frame_words(wide, inside ? WIDE_WORDS : NARROW_WORDS);
            begin_chunk();
            uint64_t outer = make_frame(code, 3, entry);
            mark_entry(outer);
            world.used_bytes = outer + NARROW_WORDS * WORD_BYTES - (uint64_t)(uintptr_t)world.arena;
            uint64_t pushed = make_frame(wide, FIRST_TRACEABLE - 1, outer);
            world.used_bytes = pushed + NARROW_WORDS * WORD_BYTES - (uint64_t)(uintptr_t)world.arena;
            uint64_t leftover = make_frame(code, 5, pushed);
            set_top(pushed + WIDE_WORDS * WORD_BYTES);
            set_innermost_of_loop((uint64_t)(uintptr_t)world.arena - PAGE_BYTES, cframe);
            uint64_t registers[REGISTERS] = {leftover, pushed, outer};
            struct walk_stack stack = look_with(registers);
            assert_int_equal(stack.flags, 0);
            assert_int_equal(stack.count, inside ? 1 : 2);
            assert_int_equal(stack.frames[stack.count - 1].instruction_bytes, 6);
        }
    }
}

static void test_circle(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        uint64_t code = make_code();
        uint64_t outer = make_frame(code, 3, 0), inner = make_frame(code, 3, outer);
        const struct layout *layout = &world.python.layout;
        layout_offset link = layout_has(layout->thread.frame) ? layout->frame_object.f_back : layout->frame.previous;
        put_u64(outer + link, inner);
        set_innermost(inner);
        struct walk_stack stack = look();
        assert_int_equal(stack.flags, WIRE_SAMPLE_TORN);
        assert_int_equal(stack.count, 0);
    }
}

/* What a pointer can be at its worst. */
static uint64_t random_word(unsigned *seed) {
    uint64_t arena = (uint64_t)(uintptr_t)world.arena;
    unsigned number = (unsigned)rand_r(seed);
    switch (number % 8) {
    case 0:
        return arena - WORD_BYTES * (number % 600);
    case 1:
        return arena + ARENA_BYTES - WORD_BYTES * (number % 40);
    case 2:
        return number;
    case 3:
        return UINT64_C(0x8000000000000000) + number;
    case 4:
        return 0;
    default:
        return arena + (number / 8 % world.used_bytes & ~UINT64_C(7));
    }
}

static void check_result(const struct walk_stack *stack) {
    assert_true(stack->count <= WIRE_SAMPLE_MAX_FRAMES);
    for (uint32_t i = 0; i < stack->count; i++) {
        assert_true(stack->frames[i].kind <= WIRE_FRAME_CUT);
        assert_true(stack->frames[i].instruction_bytes >= -1);
        assert_true(stack->frames[i].instruction_bytes <= UNITS * 2);
    }
}

/* Real stacks, in which words are replaced by garbage, and then ever more of them. */
static void test_garbage(void **unused) {
    (void)unused;
    enum { ROUNDS = 40, LOOKS = 150 };
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        for (unsigned round = 0; round < ROUNDS; round++) {
            unsigned seed = round + 1;
            make_world(minor);
            size_t fixed = world.used_bytes;
            uint64_t codes[3] = {make_code(), make_code(), make_code()};
            uint64_t frame = make_entry(0);
            for (int i = 0; i < 20; i++)
                frame = make_frame(codes[i % 3], 3 + i, i % 5 == 4 ? make_entry(frame) : frame);
            set_innermost(frame);
            for (int i = 0; i < LOOKS; i++) {
                uint64_t values[8];
                for (size_t at = 0; at < 8; at++)
                    values[at] = random_word(&seed);
                uint64_t at = (uint64_t)(uintptr_t)world.arena + (uint64_t)fixed;
                at += (unsigned)rand_r(&seed) % (world.used_bytes - fixed) & ~UINT64_C(7);
                put_u64(at, random_word(&seed));
                if (i % 3 == 0)
                    set_innermost(i % 2 == 0 ? frame : random_word(&seed));
                struct walk_registers registers = {.stack_pointer = (uint64_t)(uintptr_t)values,
                                                   .program_counter = i % 2 == 0 ? world.python.eval : 0,
                                                   .values = values,
                                                   .count = 8};
                world.attached = i % 4 != 0;
                world.walk.c_stack_end = i % 2 == 0 ? (uint64_t)(uintptr_t)(values + 8) : 0;
                world.walk.c_stack_mapped = 0;
                struct walk_stack stack;
                walk_frames(&world.walk, &registers, &stack);
                check_result(&stack);
                if (walk_define_codes(&world.walk, &stack, &world.ring))
                    walk_accept(&world.walk, &stack);
                atomic_store(&world.slot.read, atomic_load(&world.slot.written));
            }
        }
    }
}

/* A page that was readable and is not any more. */
static void test_memory_given_back(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        uint64_t code = make_code();
        world.used_bytes = (world.used_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        uint64_t page = take(0), outer = make_frame(code, 3, make_entry(0));
        mark_entry(outer);
        set_innermost(outer);
        for (int attached = 0; attached < 2; attached++) {
            world.attached = attached != 0;
            assert_int_equal(look().count, 1);
            assert_int_equal(mprotect((void *)(uintptr_t)page, PAGE_BYTES, PROT_NONE), 0);
            struct walk_stack stack = look();
            assert_true((stack.flags & WIRE_SAMPLE_TORN) != 0);
            assert_int_equal(mprotect((void *)(uintptr_t)page, PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
        }
    }
}

static const struct wire_code *only_record(void) {
    uint64_t position = atomic_load(&world.slot.read);
    bool damaged = false;
    const struct wire_record *record = wire_ring_next(&world.ring, &position, wire_ring_written(&world.ring), &damaged);
    assert_non_null(record);
    assert_int_equal(record->type, WIRE_CODE);
    assert_int_equal(position, wire_ring_written(&world.ring));
    wire_ring_release(&world.ring, position);
    return (const struct wire_code *)(const void *)record;
}

static bool define(uint64_t code) {
    bool defined_now = false;
    return codes_define(&world.walk.codes, &world.python, code, &world.ring, &defined_now) && defined_now;
}

static void test_definitions(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        uint64_t narrow = make_string(1, 0xe9, 5), middle = make_string(2, 0x20ac, 3000),
                 wide = make_string(4, 0x1f600, 5000);
        uint64_t code = make_code_with(middle, wide, make_bytes(WIRE_CODE_MAX_TABLE_BYTES + 1));
        assert_true(define(code));
        const struct wire_code *record = only_record();
        assert_int_equal(record->address, code);
        assert_int_equal(record->bytecode_bytes, UNITS * 2);
        assert_int_equal(record->first_line, 7);
        assert_int_equal(record->name_kind, 2);
        assert_int_equal(record->name_bytes, WIRE_CODE_MAX_NAME_BYTES);
        assert_int_equal(record->filename_kind, 4);
        assert_int_equal(record->filename_bytes, WIRE_CODE_MAX_FILENAME_BYTES);
        assert_int_equal(record->table_bytes, 0);
        assert_int_equal(record->table_length, WIRE_CODE_MAX_TABLE_BYTES + 1);
        assert_int_equal(define(code), false); /* it stands there */
        code = make_code_with(narrow, 0, make_bytes(0));
        assert_true(define(code));
        record = only_record();
        assert_int_equal(record->name_bytes, 5);
        assert_int_equal(((const uint8_t *)(record + 1))[0], 0xe9);
        assert_int_equal(record->filename_kind, 0);
        assert_int_equal(record->table_bytes, 0);
    }
}

/* The program gives a code object back, and another takes its place. */
static void die(uint64_t code) {
    void (*dealloc)(void *) = NULL;
    memcpy(&dealloc, (void *)(uintptr_t)(world.python.code_type + world.python.layout.type.tp_itemsize + WORD_BYTES),
           sizeof dealloc);
    uint32_t before = deallocations;
    dealloc((void *)(uintptr_t)code);
    assert_int_equal(deallocations, before + 1);
}

static void test_deaths(void **unused) {
    (void)unused;
    for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
        make_world(minor);
        _Atomic uint64_t published = 0;
        codes_publish_deaths(&published);
        uint64_t code = make_code(), other = make_code();
        uint64_t outer = make_frame(other, 3, make_entry(0)), inner = make_frame(code, 3, outer);
        mark_entry(outer);
        set_innermost(inner);
        for (int round = 0; round < 3; round++) {
            struct walk_stack stack = look();
            assert_int_equal(stack.new_codes, round != 1);
            uint64_t written = wire_ring_written(&world.ring);
            assert_true(walk_define_codes(&world.walk, &stack, &world.ring));
            assert_int_equal(wire_ring_written(&world.ring) != written, round != 1);
            /* The outer frame is the same throughout; the inner one means something else the last time. */
            assert_int_equal(stack.kept, round == 0 ? 0 : 1);
            walk_accept(&world.walk, &stack);
            if (round == 1)
                die(code);
            if (round == 0)
                put_u64(inner + (minor < 11 ? world.python.layout.frame_object.f_lasti
                                            : world.python.layout.frame.instr_ptr),
                        minor < 11 ? 4 : code + world.python.layout.code.co_code_adaptive + 8);
            if (round == 1)
                atomic_store(&world.slot.read, atomic_load(&world.slot.written));
        }
        assert_int_equal(published, 1);
        codes_publish_deaths(NULL);
    }
}

static void test_full_ring(void **unused) {
    (void)unused;
    make_world(12);
    uint64_t code = make_code();
    uint64_t frame = make_frame(code, 3, make_entry(0));
    set_innermost(frame);
    struct walk_stack stack = look();
    uint64_t position = wire_ring_position(&world.ring);
    while (wire_ring_reserve(&world.ring, &position, WIRE_SAMPLE, 64) != NULL)
        continue;
    wire_ring_commit(&world.ring, position);
    uint64_t lost = world.slot.lost_records;
    assert_false(walk_define_codes(&world.walk, &stack, &world.ring));
    assert_int_equal(world.slot.lost_records, lost + 1);
    atomic_store(&world.slot.read, position);
    stack = look();
    assert_true(stack.new_codes);
    assert_true(walk_define_codes(&world.walk, &stack, &world.ring));
    assert_int_equal(only_record()->address, code);
}

static void test_probe(void **unused) {
    (void)unused;
    make_world(12);
    uint64_t start = (uint64_t)(uintptr_t)world.arena, end = start + ARENA_BYTES;
    uint64_t value = 0;
    put_u64(end - WORD_BYTES, 42);
    assert_true(probe_readable(start, ARENA_BYTES));
    assert_true(probe_readable(end - 1, 1));
    assert_false(probe_readable(end, 1));
    assert_false(probe_readable(end - 1, 2));
    assert_false(probe_readable(start - 1, 2));
    assert_false(probe_readable(0, 8));
    assert_false(probe_readable(UINT64_MAX - 4, 8));
    assert_false(probe_readable(UINT64_C(1) << 63, 8));
    assert_true(probe_copy(end - WORD_BYTES, &value, sizeof value));
    assert_int_equal(value, 42);
    assert_false(probe_copy(end - WORD_BYTES + 1, &value, sizeof value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_stacks),
        cmocka_unit_test(test_what_was_touched),
        cmocka_unit_test(test_c_between),
        cmocka_unit_test(test_setting_up_is_hidden),
        cmocka_unit_test(test_no_state),
        cmocka_unit_test(test_copies_of_bytecode),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_leftovers_below_a_new_frame),
        cmocka_unit_test(test_circle),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_memory_given_back),
        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
