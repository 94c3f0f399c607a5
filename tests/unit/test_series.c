#include "base/series.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka.h needs those four before it
#include <cmocka.h>

enum { LIMIT = 50 };

static void add(struct series *series, uint64_t time_ns, uint64_t value) {
    assert_int_equal(series_add(series, time_ns, value), STATUS_OK);
    assert_true(series->count <= 2 * series->limit);
    for (size_t i = 1; i < series->count; i++)
        assert_true(series->points[i - 1].time_ns <= series->points[i].time_ns);
}

static const struct series_point *last_of(const struct series *series) {
    return &series->points[series->count - 1];
}

/* What a reader who draws straight lines between the points sees. */
static double value_at(const struct series *series, uint64_t time_ns) {
    size_t i = 1;
    while (i + 1 < series->count && series->points[i].time_ns < time_ns)
        i++;
    const struct series_point *from = &series->points[i - 1], *to = &series->points[i];
    if (to->time_ns == from->time_ns)
        return (double)to->value;
    double share = ((double)time_ns - (double)from->time_ns) / ((double)to->time_ns - (double)from->time_ns);
    return (double)from->value + share * ((double)to->value - (double)from->value);
}

static void test_few_points_are_kept(void **state) {
    (void)state;
    struct series series = {.limit = LIMIT};
    for (uint64_t i = 0; i < LIMIT; i++)
        add(&series, i, i * 37 % 101);
    series_reduce(&series);
    assert_int_equal(series.count, LIMIT);
    for (uint64_t i = 0; i < LIMIT; i++)
        assert_int_equal(series.points[i].value, i * 37 % 101);
    series_release(&series);
    assert_int_equal(series.limit, LIMIT);
}

static void test_what_does_not_change_is_two_points(void **state) {
    (void)state;
    struct series series = {.limit = LIMIT};
    for (uint64_t i = 0; i < 1000; i++)
        add(&series, i, 7);
    assert_int_equal(series.count, 2);
    assert_int_equal(series.points[0].time_ns, 0);
    assert_int_equal(series.points[1].time_ns, 999);
    series_release(&series);
}

static void test_time_does_not_go_back(void **state) {
    (void)state;
    struct series series = {.limit = LIMIT};
    add(&series, 100, 1);
    add(&series, 50, 2);
    assert_int_equal(last_of(&series)->time_ns, 100);
    assert_int_equal(last_of(&series)->value, 2);
    series_release(&series);
}

/* A ramp with steps, a spike of one point, and a plateau: first, last and highest stay, and the curve is near. */
static void test_the_curve_stays(void **state) {
    (void)state;
    enum { POINTS = 20000, SPIKE = 7777 };
    struct series series = {.limit = LIMIT};
    for (uint64_t i = 0; i < POINTS; i++)
        add(&series, i * 10, i == SPIKE ? 1000000 : i < 5000 ? i : i < 15000 ? 5000 : 20000);
    series_reduce(&series);
    assert_true(series.count <= LIMIT);
    assert_int_equal(series.points[0].time_ns, 0);
    assert_int_equal(last_of(&series)->time_ns, (POINTS - 1) * 10);
    uint64_t highest = 0, when_ns = 0;
    for (size_t i = 0; i < series.count; i++)
        if (series.points[i].value > highest) {
            highest = series.points[i].value;
            when_ns = series.points[i].time_ns;
        }
    assert_int_equal(highest, 1000000);
    assert_int_equal(when_ns, SPIKE * 10);
    const uint64_t far_from_steps[] = {100, 2500, 4900, 6000, 9000, 14000, 16000, 19000};
    for (size_t i = 0; i < sizeof far_from_steps / sizeof *far_from_steps; i++) {
        uint64_t at = far_from_steps[i];
        double truth = at < 5000 ? (double)at : at < 15000 ? 5000 : 20000;
        double seen = value_at(&series, at * 10);
        assert_true(seen - truth < 200 && truth - seen < 200);
    }
    series_release(&series);
}

static void test_clearing_keeps_the_room(void **state) {
    (void)state;
    struct series series = {.limit = LIMIT};
    for (uint64_t i = 0; i < 60; i++)
        add(&series, i, i % 3);
    size_t capacity = series.capacity;
    series_clear(&series);
    assert_int_equal(series.count, 0);
    assert_int_equal(series.capacity, capacity);
    series_reduce(&series);
    add(&series, 5, 9);
    assert_int_equal(series.count, 1);
    series_release(&series);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_points_are_kept),     cmocka_unit_test(test_what_does_not_change_is_two_points),
        cmocka_unit_test(test_time_does_not_go_back),   cmocka_unit_test(test_the_curve_stays),
        cmocka_unit_test(test_clearing_keeps_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
