#include "sampler/schedule.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RATE_HZ = 1000, PERIOD_NS = 1000000, DEADLINES = 20000, PHASES = 10 };
static const uint64_t START_NS = 5 * NS_PER_S;

/* Who is always in time gets one deadline in each period, at all places in it alike. */
static void test_deadlines_are_absolute_and_jittered(void **state) {
    (void)state;
    struct schedule schedule;
    unsigned phases[PHASES] = {0};
    schedule_start(&schedule, RATE_HZ, START_NS, 1);
    uint64_t now_ns = START_NS;
    for (uint64_t i = 1; i <= DEADLINES; i++) {
        uint64_t deadline_ns = schedule_next(&schedule, now_ns);
        assert_in_range(deadline_ns, START_NS + i * PERIOD_NS, START_NS + (i + 1) * PERIOD_NS - 1);
        phases[(deadline_ns - START_NS) % PERIOD_NS * PHASES / PERIOD_NS]++;
        now_ns = deadline_ns;
    }
    assert_int_equal(schedule.missed, 0);
    /* Ten standard deviations of a binomial distribution are 424, and the seed is the same each time. */
    for (size_t i = 0; i < PHASES; i++)
        assert_in_range(phases[i], DEADLINES / PHASES - 424, DEADLINES / PHASES + 424);
}

/* Each period has had its look, or is counted as missed; and after a pause there is no more than one look a period. */
static void test_what_is_missed_is_counted_and_not_made_up_for(void **state) {
    (void)state;
    struct schedule schedule;
    schedule_start(&schedule, RATE_HZ, START_NS, 7);
    uint64_t now_ns = START_NS;
    uint64_t late_ns = 1;
    uint64_t looks = 0;
    for (; looks < DEADLINES; looks++) {
        uint64_t deadline_ns = schedule_next(&schedule, now_ns);
        /* Not of a period that is over. */
        assert_true(deadline_ns + PERIOD_NS > now_ns);
        uint64_t period = (deadline_ns - START_NS) / PERIOD_NS;
        assert_int_equal(period, looks + 1 + schedule.missed);
        late_ns = late_ns * 6364136223846793005U + 1442695040888963407U;
        now_ns = now_ns > deadline_ns ? now_ns : deadline_ns;
        now_ns += (late_ns >> 33) % (looks % 10 == 0 ? 50 * PERIOD_NS : PERIOD_NS / 10);
    }
    assert_true(schedule.missed > DEADLINES);
}

static void test_periods_of_any_length(void **state) {
    (void)state;
    struct schedule schedule;
    schedule_start(&schedule, 1e12, START_NS, 3);
    assert_int_equal(schedule.period_ns, 1);
    schedule_start(&schedule, 0.001, START_NS, 3);
    assert_int_equal(schedule.period_ns, 1000 * NS_PER_S);
    assert_in_range(schedule_next(&schedule, START_NS), START_NS + 1000 * NS_PER_S, START_NS + 2000 * NS_PER_S);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlines_are_absolute_and_jittered),
        cmocka_unit_test(test_what_is_missed_is_counted_and_not_made_up_for),
        cmocka_unit_test(test_periods_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
