#include "agent/exact_quick.h"

#include "agent/thread_word.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka.h needs those four before it
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>

_Atomic uint64_t codes_generation;

static const uint64_t REGION = UINT64_C(0x7f12) << 24;

/* An address has its own entry in the leaf that it is in, and none in any other: not in a neighbour, nor in that of the
 * odd granules of the same region. */
static void test_places(void **state) {
    (void)state;
    const struct exact_leaf even = {.base = REGION}, odd = {.base = REGION + 8}, none = {.base = 1};
    for (uint64_t i = 0; i < EXACT_ENTRIES; i += 4099) {
        uint64_t address = REGION + i * BLOCKS_GRANULE_BYTES;
        assert_int_equal(exact_place_in(&even, address), i);
        assert_int_equal(exact_place_in(&odd, address + 8), i);
        assert_true(exact_place_in(&even, address + 8) >= EXACT_ENTRIES);
        assert_true(exact_place_in(&odd, address) >= EXACT_ENTRIES);
        assert_true(exact_place_in(&even, address + BLOCKS_REGION_BYTES) >= EXACT_ENTRIES);
        assert_true(exact_place_in(&even, address - BLOCKS_REGION_BYTES) >= EXACT_ENTRIES);
        assert_true(exact_place_in(&none, address) >= EXACT_ENTRIES);
    }
    assert_true(exact_place_in(&even, 0) >= EXACT_ENTRIES);
    assert_true(exact_place_in(&none, 0) >= EXACT_ENTRIES);
}

/* The leaf that was the last one but is not any more is found again. */
static void test_leaves_are_kept(void **state) {
    (void)state;
    struct exact_thread *exact = calloc(1, sizeof *exact);
    blocks_entry first[1], second[1];
    assert_non_null(exact);
    exact->leaf = (struct exact_leaf){REGION, first};
    *exact_leaf_of(exact, REGION) = exact->leaf;
    *exact_leaf_of(exact, REGION + BLOCKS_REGION_BYTES) = (struct exact_leaf){REGION + BLOCKS_REGION_BYTES, second};
    assert_int_equal(exact_place_nearby(exact, REGION + BLOCKS_REGION_BYTES + 32), 2);
    assert_ptr_equal(exact->leaf.entries, second);
    assert_int_equal(exact_place_nearby(exact, REGION + 48), 3);
    assert_ptr_equal(exact->leaf.entries, first);
    assert_true(exact_place_nearby(exact, REGION + 8) >= EXACT_ENTRIES);
    free(exact);
}

struct frame {
    uint64_t executable, previous, others[5], instruction;
};

/* The quick way's key is the other one's: what was put there for it is found. */
static void test_stacks_are_found(void **state) {
    (void)state;
    enum { DEPTH = 5 };
    struct exact_thread *exact = calloc(1, sizeof *exact);
    struct frame frames[DEPTH] = {0};
    struct exact_cell cell = {0};
    assert_non_null(exact);
    exact->fields = (struct sites_fields){.current_frame = 72,
                                          .cframe_current = OFFSET_NONE,
                                          .previous = EXACT_USUAL_PREVIOUS,
                                          .instruction = EXACT_USUAL_INSTRUCTION,
                                          .last = OFFSET_NONE};
    for (size_t i = 0; i < DEPTH; i++) {
        frames[i].instruction = UINT64_C(0x55aa00000000) + i * 0x1230;
        frames[i].previous = i + 1 < DEPTH ? (uint64_t)(uintptr_t)&frames[i + 1] : 0;
    }
    uint64_t frame = (uint64_t)(uintptr_t)&frames[0];
    uint64_t key = sites_key_of_frames(&exact->fields, frame);
    *sites_chain(&exact->sites, key) = (struct sites_chain){key, &cell};
    assert_ptr_equal(exact_cell_of_frames(exact, frame, EXACT_USUAL_PREVIOUS, EXACT_USUAL_INSTRUCTION), &cell);
    for (size_t i = 0; i < DEPTH; i++) {
        frames[i].instruction += 2;
        assert_null(exact_cell_of_frames(exact, frame, EXACT_USUAL_PREVIOUS, EXACT_USUAL_INSTRUCTION));
        frames[i].instruction -= 2;
    }
    /* Nor when code objects have died, whatever the innermost instruction is then. */
    for (uint64_t deaths = 1; deaths < 64; deaths++) {
        codes_generation += CODES_GENERATION_STEP;
        for (uint64_t difference = 0; difference < 128; difference += 2) {
            frames[0].instruction ^= difference;
            assert_null(exact_cell_of_frames(exact, frame, EXACT_USUAL_PREVIOUS, EXACT_USUAL_INSTRUCTION));
            frames[0].instruction ^= difference;
        }
    }
    free(exact);
}

struct frame_object {
    uint64_t counted, type, size, f_back, f_code;
    uint32_t others[3], f_lasti;
};

/* The same up to 3.10, where the code object and the number of the instruction say where a frame is. */
static void test_stacks_of_objects_are_found(void **state) {
    (void)state;
    enum { DEPTH = 5 };
    struct exact_thread *exact = calloc(1, sizeof *exact);
    struct frame_object frames[DEPTH] = {0};
    struct exact_cell cell = {0};
    assert_non_null(exact);
    exact->fields = (struct sites_fields){.current_frame = 24,
                                          .cframe_current = OFFSET_NONE,
                                          .previous = offsetof(struct frame_object, f_back),
                                          .instruction = offsetof(struct frame_object, f_code),
                                          .last = offsetof(struct frame_object, f_lasti)};
    for (size_t i = 0; i < DEPTH; i++) {
        frames[i].f_code = UINT64_C(0x55aa00000000) + i * 0x1230;
        frames[i].f_lasti = (uint32_t)i;
        frames[i].f_back = i + 1 < DEPTH ? (uint64_t)(uintptr_t)&frames[i + 1] : 0;
    }
    frames[DEPTH - 1].f_lasti = (uint32_t)-1;
    uint64_t frame = (uint64_t)(uintptr_t)&frames[0];
    uint64_t key = sites_key_of_frames(&exact->fields, frame);
    *sites_chain(&exact->sites, key) = (struct sites_chain){key, &cell};
    assert_ptr_equal(exact_cell_of_kind(exact, frame, EXACT_FRAMES_OBJECTS), &cell);
    for (size_t i = 0; i < DEPTH; i++) {
        frames[i].f_lasti++;
        assert_null(exact_cell_of_kind(exact, frame, EXACT_FRAMES_OBJECTS));
        frames[i].f_lasti--;
        frames[i].f_code += 64;
        assert_null(exact_cell_of_kind(exact, frame, EXACT_FRAMES_OBJECTS));
        frames[i].f_code -= 64;
    }
    free(exact);
}

/* Which way a version's frames are followed is said by where it has what, not by its number. */
static void test_kinds(void **state) {
    (void)state;
    struct layout layout = {.thread = {.frame = 24, .current_frame = OFFSET_NONE}};
    assert_int_equal(exact_frames_of(&layout), EXACT_FRAMES_OBJECTS);
    layout.thread.frame = OFFSET_NONE;
    layout.frame.previous = EXACT_USUAL_PREVIOUS;
    layout.frame.instr_ptr = EXACT_USUAL_INSTRUCTION;
    assert_int_equal(exact_frames_of(&layout), EXACT_FRAMES_LINKED); /* it has a cframe */
    layout.thread.current_frame = 72;
    assert_int_equal(exact_frames_of(&layout), EXACT_FRAMES_USUAL);
    layout.frame.instr_ptr += 8;
    assert_int_equal(exact_frames_of(&layout), EXACT_FRAMES_LINKED);
}

/* Two frames, one behind the other, each at one of many instructions of its code: each pair has a key of its own. */
static int compare(const void *left, const void *right) {
    const uint64_t *first = left, *second = right;
    return *first < *second ? -1 : *first > *second;
}
static void test_keys_differ(void **state) {
    (void)state;
    enum { INSTRUCTIONS = 512 };
    static uint64_t keys[INSTRUCTIONS * INSTRUCTIONS];
    for (uint64_t i = 0; i < INSTRUCTIONS; i++)
        for (uint64_t j = 0; j < INSTRUCTIONS; j++)
            keys[i * INSTRUCTIONS + j] =
                sites_mix(sites_mix(0, UINT64_C(0x55aa12345000) + 2 * i), UINT64_C(0x7f0098765000) + 2 * j);
    qsort(keys, sizeof keys / sizeof *keys, sizeof *keys, compare);
    for (size_t i = 1; i < sizeof keys / sizeof *keys; i++)
        assert_true(keys[i] != keys[i - 1]);
}

#ifdef __x86_64__
static void as_function(uint8_t *page, const uint8_t *code, size_t size_bytes, void *(**function)(void)) {
    memcpy(page, code, size_bytes);
    *(void **)function = page;
}

/* A function that loads a variable is read; one that does anything else is not. */
static void test_thread_word(void **state) {
    (void)state;
    static const uint8_t plain[] = {0x64, 0x48, 0x8b, 0x04, 0x25, 0xe8, 0xff, 0xff, 0xff, 0xc3},
                         marked[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x64, 0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0, 0xc3},
                         goes_on[] = {0x64, 0x48, 0x8b, 0x04, 0x25, 0xe8, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x00, 0xc3},
                         calls[] = {0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0, 0xc3, 0x90, 0x90};
    uint8_t page[32] = {0};
    void *(*function)(void);
    int64_t offset = 0;
    as_function(page, plain, sizeof plain, &function);
    assert_true(thread_word_of(function, &offset));
    assert_int_equal(offset, -24);
    as_function(page, marked, sizeof marked, &function);
    assert_true(thread_word_of(function, &offset));
    assert_int_equal(offset, 16);
    as_function(page, goes_on, sizeof goes_on, &function);
    assert_false(thread_word_of(function, &offset));
    as_function(page, calls, sizeof calls, &function);
    assert_false(thread_word_of(function, &offset));
    /* glibc and musl keep there what they know the thread by. */
    assert_int_equal((uintptr_t)thread_word(0), (uintptr_t)pthread_self());
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_leaves_are_kept),
        cmocka_unit_test(test_stacks_are_found),
        cmocka_unit_test(test_stacks_of_objects_are_found),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_keys_differ),
#ifdef __x86_64__
        cmocka_unit_test(test_thread_word),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
