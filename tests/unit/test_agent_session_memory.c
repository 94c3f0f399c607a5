/* What a session makes of the allocations that an agent tells of. */
#include "fed_session.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct seen_memory *seen_at(const struct seen *seen, const char *place) {
    for (size_t i = 0; i < seen->memory_count; i++)
        if (strcmp(seen->memory[i].place, place) == 0)
            return &seen->memory[i];
    fail_msg("nothing was allocated by %s", place);
    return NULL;
}

/* A process whose memory is looked at, and its main thread in that slot. */
static struct agent_session *open_memory_session(struct seen *seen, struct producer *producer, uint32_t main_slot) {
    struct agent_session *session = fed_session_open(seen);
    producer_make(producer, session, 0);
    ((struct wire_region *)producer->region)->memory_stride_bytes = 1000;
    producer_publish(producer);
    producer_start_thread(producer, main_slot, 0);
    producer->rings[main_slot].slot->tid = (uint32_t)getpid();
    return session;
}

/* Allocations and samples share the stack that is remembered; what one thread allocates another gives back. */
static void test_memory(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_memory_session(&seen, &producer, 0);
    producer_put_alloc(
        &producer, 0,
        &(struct wire_alloc){.id = 1, .size_bytes = 8, .grown_bytes = 8, .weight_bytes = 8, .footprint_bytes = 8}, NULL,
        0);
    producer_start_thread(&producer, 1, 0);
    producer_put_code(&producer, 0, 0x1000, "main", 10);
    producer_put_code(&producer, 0, 0x2000, "leaf", 20);
    const struct wire_frame both[] = {{0x2000, 4, WIRE_FRAME_PYTHON}, {0x1000, 0, WIRE_FRAME_PYTHON}};
    producer_put_sample(&producer, 0, 1, 0, both, 2, 0);
    producer_put_alloc(&producer, 0,
                       &(struct wire_alloc){.id = 2,
                                            .size_bytes = 100,
                                            .grown_bytes = 100,
                                            .weight_bytes = 2148,
                                            .kept = 1,
                                            .weight_count = 3 * 1024,
                                            .footprint_bytes = 1000,
                                            .domain = WIRE_DOMAIN_PYTHON},
                       NULL, 0);
    producer_put_alloc(&producer, 0,
                       &(struct wire_alloc){.id = 3,
                                            .size_bytes = 70,
                                            .grown_bytes = 70,
                                            .weight_bytes = 70,
                                            .kept = 1,
                                            .weight_count = 1024,
                                            .footprint_bytes = 2000},
                       both, 1);
    producer_put_sample(&producer, 0, 2, 2, NULL, 0, 0);
    fed_session_drain(session);
    producer_put_free(&producer, 1, 2, 2000);
    producer_put_alloc(&producer, 1,
                       &(struct wire_alloc){.record.flags = WIRE_SAMPLE_NO_PYTHON,
                                            .id = 4,
                                            .size_bytes = 5,
                                            .grown_bytes = 5,
                                            .weight_bytes = 5,
                                            .footprint_bytes = 1990},
                       NULL, 0);
    producer_put_free(&producer, 0, 4, 1900);
    producer_end_thread(&producer, 1, 0);
    fed_session_drain(session);
    atomic_store(&((struct wire_region *)producer.region)->peak_bytes, 2000);
    fed_session_finish(session);
    assert_string_equal(seen.stacks[1], "main:10;leaf:21");
    assert_int_equal(seen_at(&seen, "STARTUP")->held.live_bytes, 8);
    const struct seen_memory *main_memory = seen_at(&seen, "main");
    assert_int_equal(main_memory->allocated.alloc_bytes, 2148);
    assert_int_equal(main_memory->allocated.python_bytes, 2148);
    assert_int_equal(main_memory->allocated.alloc_count, 3);
    assert_int_equal(main_memory->allocated.alloc_variance, 2148 * 2048 >> 20);
    assert_int_equal(main_memory->held.live_bytes, 0);
    assert_int_equal(main_memory->held.peak_bytes, 2148);
    assert_int_equal(seen_at(&seen, "main;leaf")->held.live_bytes, 70);
    assert_int_equal(seen_at(&seen, "main;leaf")->held.peak_bytes, 70);
    assert_int_equal(seen_at(&seen, "main;leaf;THREAD")->allocated.alloc_bytes, 5);
    assert_int_equal(seen_at(&seen, "main;leaf;THREAD")->held.live_bytes, 0);
    assert_int_equal(seen.peak_bytes, 2000);
    assert_int_equal(seen.highest_bytes, 2000);
    producer_end(&producer);
}

/* Since the pass began the process has grown, and told so in its header; its ring is read in the next one. */
static void test_growth_in_a_long_pass(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_memory_session(&seen, &producer, 0);
    struct wire_region *region = producer.region;
    fed_session_drain(session);
    uint64_t peak_ns = clock_monotonic_ns();
    atomic_store(&region->peak_ns, peak_ns);
    atomic_store(&region->peak_bytes, 9000);
    assert_int_equal(agent_session_drain(session, peak_ns - 3 * NS_PER_S), STATUS_OK);
    producer_put_alloc(&producer, 0,
                       &(struct wire_alloc){.time_ns = peak_ns - 2,
                                            .id = 1,
                                            .size_bytes = 7000,
                                            .grown_bytes = 7000,
                                            .weight_bytes = 7000,
                                            .footprint_bytes = 7000},
                       NULL, 0);
    fed_session_drain(session);
    fed_session_finish(session);
    assert_int_equal(seen_at(&seen, "STARTUP")->held.live_bytes, 7000);
    assert_int_equal(seen_at(&seen, "STARTUP")->held.peak_bytes, 7000);
    assert_int_equal(seen.peak_bytes, 9000);
    producer_end(&producer);
}

/* What a thread without Python allocates is charged to where it was started, also when its ring is read before that of
 * the thread that did so; and what found no room, to nobody. */
static void test_memory_without_python(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_memory_session(&seen, &producer, 1);
    struct wire_region *region = producer.region;
    producer_put_code(&producer, 1, 0x1000, "starter", 10);
    producer_put_code(&producer, 1, 0x2000, "other", 20);
    fed_session_drain(session);
    const struct wire_frame starter = {0x1000, 0, WIRE_FRAME_PYTHON}, other = {0x2000, 0, WIRE_FRAME_PYTHON};
    producer_put_start(&producer, 1, 77, &starter, 1);
    producer_put_sample(&producer, 1, 1, 0, &other, 1, 0);
    producer_start_thread(&producer, 0, 0);
    producer_start_thread(&producer, 2, 0);
    producer.rings[0].slot->starter_id = 77;
    producer.rings[0].slot->starter = 1;
    producer.rings[2].slot->starter_id = 78;
    producer.rings[2].slot->starter = 5000;
    const struct wire_alloc alloc = {.record.flags = WIRE_SAMPLE_NO_PYTHON, .size_bytes = 9, .grown_bytes = 9};
    for (uint32_t index = 0; index <= 2; index += 2) {
        struct wire_alloc one = alloc;
        one.id = index + 1;
        one.weight_bytes = 100 + index;
        producer_put_alloc(&producer, index, &one, NULL, 0);
    }
    fed_session_drain(session);
    atomic_store(&region->lost_memory_bytes, 500);
    atomic_store(&region->lost_memory_records, 2);
    fed_session_drain(session);
    fed_session_finish(session);
    assert_int_equal(seen_at(&seen, "starter;THREAD")->allocated.alloc_bytes, 100);
    assert_int_equal(seen_at(&seen, "other;THREAD")->allocated.alloc_bytes, 102);
    assert_int_equal(seen_at(&seen, "LOST")->allocated.alloc_bytes, 500);
    producer_end(&producer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_growth_in_a_long_pass),
        cmocka_unit_test(test_memory_without_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
