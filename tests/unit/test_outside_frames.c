#include "unwind/outside.h"

#include "fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { PAGE_BYTES = TRACKER_NEARBY_BYTES, FRAME_BYTES = 96 };

static struct memory_pages nearby;

static struct fake_target *new_target(void) {
    struct fake_target *target = fake_new(12);
    uint32_t value = 1;
    for (size_t i = 0; i < FAKE_BYTES; i++)
        target->bytes[i] = (uint8_t)((value = value * 1103515245 + 12345) >> 16);
    return target;
}

static void start(struct stack_tracker *tracker, struct fake_target *target) {
    memory_pages_init_sized(&nearby, &target->memory, TRACKER_NEARBY_BYTES);
    stack_tracker_init(tracker, &target->runtime, NULL);
    tracker->nearby = &nearby;
}

static void end(struct stack_tracker *tracker, struct fake_target *target) {
    stack_tracker_release(tracker);
    memory_pages_release(&nearby);
    free(target);
}

/* Reads a frame, holds it against the target's memory, and returns how many reads that took. */
static size_t read_frame(struct stack_tracker *tracker, struct fake_target *target, size_t offset) {
    struct outside_frame frame = {.place = {.address = FAKE_START + offset, .size_bytes = FRAME_BYTES}};
    size_t reads = target->reads;
    assert_int_equal(outside_read_late(tracker, &frame), STATUS_OK);
    assert_memory_equal(frame.bytes, target->bytes + offset, FRAME_BYTES);
    return target->reads - reads;
}

static void test_frames_of_a_page_are_read_with_it(void **state) {
    (void)state;
    struct fake_target *target = new_target();
    struct stack_tracker tracker;
    start(&tracker, target);
    assert_int_equal(read_frame(&tracker, target, 0), 1);
    assert_int_equal(read_frame(&tracker, target, 2 * PAGE_BYTES + 8), 1);
    for (size_t i = 0; i + FRAME_BYTES <= PAGE_BYTES; i += 8)
        assert_int_equal(read_frame(&tracker, target, 2 * PAGE_BYTES + i), 0);
    /* The page before is to be read as well. */
    assert_int_equal(read_frame(&tracker, target, 2 * PAGE_BYTES - 8), 1);
    end(&tracker, target);
}

static void test_another_attempt_reads_anew(void **state) {
    (void)state;
    struct fake_target *target = new_target();
    struct stack_tracker tracker;
    start(&tracker, target);
    for (size_t i = 0; i < 3; i++) {
        memset(target->bytes, (int)i, FAKE_BYTES);
        outside_forget_late(&tracker);
        assert_int_equal(read_frame(&tracker, target, PAGE_BYTES), 1);
        assert_int_equal(read_frame(&tracker, target, PAGE_BYTES), 1);
        assert_int_equal(read_frame(&tracker, target, PAGE_BYTES), 0);
    }
    end(&tracker, target);
}

static void test_frames_in_many_pages(void **state) {
    (void)state;
    struct fake_target *target = new_target();
    struct stack_tracker tracker;
    start(&tracker, target);
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(read_frame(&tracker, target, i * PAGE_BYTES + 16), 1);
    end(&tracker, target);
}

static void test_without_pages_each_is_read_alone(void **state) {
    (void)state;
    struct fake_target *target = new_target();
    struct stack_tracker tracker;
    start(&tracker, target);
    tracker.nearby = NULL;
    outside_forget_late(&tracker);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(read_frame(&tracker, target, PAGE_BYTES), 1);
    end(&tracker, target);
}

static void test_what_is_not_there_cannot_be_read(void **state) {
    (void)state;
    struct fake_target *target = new_target();
    struct stack_tracker tracker;
    struct outside_frame frame = {.place = {.address = FAKE_START - 8, .size_bytes = FRAME_BYTES}};
    start(&tracker, target);
    assert_int_equal(read_frame(&tracker, target, 0), 1);
    assert_int_equal(outside_read_late(&tracker, &frame), STATUS_UNREADABLE);
    frame.place.address = FAKE_START + FAKE_BYTES;
    assert_int_equal(outside_read_late(&tracker, &frame), STATUS_UNREADABLE);
    assert_int_equal(read_frame(&tracker, target, FAKE_BYTES - FRAME_BYTES), 1);
    end(&tracker, target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_of_a_page_are_read_with_it),
        cmocka_unit_test(test_another_attempt_reads_anew),
        cmocka_unit_test(test_frames_in_many_pages),
        cmocka_unit_test(test_without_pages_each_is_read_alone),
        cmocka_unit_test(test_what_is_not_there_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
