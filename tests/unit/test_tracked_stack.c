#include "unwind/tracked_stack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { DEPTH = 40 };

/* A frame that is told by its address. */
static void put(struct tracked_stack *stack, size_t index, remote_addr address) {
    struct tracked_frame frame = {.address = address, .mark = (uint32_t)address};
    assert_int_equal(tracked_stack_put(stack, index, &frame), STATUS_OK);
}

/* One whose frame at each index has that plus `base` for an address, and which is remembered. */
static void remember_deep(struct tracked_stack *stack, remote_addr base) {
    for (size_t i = 0; i < DEPTH; i++)
        put(stack, i, base + i);
    stack->count = DEPTH;
    tracked_stack_remember(stack, DEPTH);
}

static void assert_is_deep(const struct tracked_stack *stack, remote_addr base, size_t count) {
    for (size_t i = 0; i < count; i++)
        assert_int_equal(stack->frames[i].address, base + i);
}

static void test_what_is_put_aside_comes_back(void **state) {
    (void)state;
    struct tracked_stack stack = {0};
    remember_deep(&stack, 100);
    put(&stack, 7, 1);
    put(&stack, 8, 2);
    put(&stack, 7, 3);
    assert_int_equal(stack.known, DEPTH);
    assert_int_equal(stack.frames[7].address, 3);
    tracked_stack_restore(&stack);
    assert_is_deep(&stack, 100, DEPTH);
    tracked_stack_release(&stack);
}

static void test_what_is_changed_in_its_place_comes_back(void **state) {
    (void)state;
    struct tracked_stack stack = {0};
    remember_deep(&stack, 100);
    tracked_stack_touch(&stack, 5);
    stack.frames[5].address = 1;
    tracked_stack_restore(&stack);
    assert_is_deep(&stack, 100, DEPTH);
    tracked_stack_release(&stack);
}

/* Then only what lies below the first for which there was no room is remembered on. */
static void test_too_much_to_put_aside(void **state) {
    (void)state;
    struct tracked_stack stack = {0};
    remember_deep(&stack, 100);
    for (size_t i = 10; i < 10 + TRACKED_MAX_ASIDE + 3; i++)
        put(&stack, i, i);
    assert_int_equal(stack.known, 10 + TRACKED_MAX_ASIDE);
    tracked_stack_restore(&stack);
    assert_is_deep(&stack, 100, stack.known);
    tracked_stack_release(&stack);
}

static void test_another_is_remembered(void **state) {
    (void)state;
    struct tracked_stack stack = {0};
    remember_deep(&stack, 100);
    put(&stack, 3, 1);
    tracked_stack_remember(&stack, 4);
    tracked_stack_restore(&stack);
    assert_int_equal(stack.frames[3].address, 1);
    /* What lay above it is no part of it. */
    put(&stack, 4, 2);
    tracked_stack_restore(&stack);
    assert_int_equal(stack.frames[4].address, 2);
    tracked_stack_release(&stack);
}

static void test_nothing_comes_back_that_is_forgotten(void **state) {
    (void)state;
    struct tracked_stack stack = {0};
    remember_deep(&stack, 100);
    put(&stack, 3, 1);
    put(&stack, 9, 2);
    tracked_stack_forget(&stack, 5);
    tracked_stack_restore(&stack);
    assert_int_equal(stack.frames[3].address, 103);
    assert_int_equal(stack.frames[9].address, 2);
    tracked_stack_release(&stack);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_put_aside_comes_back),
        cmocka_unit_test(test_what_is_changed_in_its_place_comes_back),
        cmocka_unit_test(test_too_much_to_put_aside),
        cmocka_unit_test(test_another_is_remembered),
        cmocka_unit_test(test_nothing_comes_back_that_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
