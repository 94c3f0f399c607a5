/* Which histories of a line's live memory are leaks: planted ones, with noise as sampling makes it, and such as only
 * look like it. */
#include "profile/held.h"
#include "profile/leaks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MIB = 1 << 20, HISTORIES = 200 };
static const uint64_t MOMENT_NS = 100000000, LONG_MOMENT_NS = 110000000;

struct history {
    uint64_t times_ns[LEAK_MOMENTS];
    uint64_t bytes[LEAK_MOMENTS];
    uint64_t variance;
    uint64_t survivors, survivors_mid; /* 0: as many as there are MiB */
    bool is_script;
    bool is_long; /* more than ten seconds */
};

/* xorshift64 */
static uint64_t next_random(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static bool judge(struct history *history, struct leak_verdict *verdict) {
    for (size_t i = 0; i < LEAK_MOMENTS; i++)
        history->times_ns[i] = (i + 1) * (history->is_long ? LONG_MOMENT_NS : MOMENT_NS);
    const struct leak_evidence evidence = {
        .times_ns = history->times_ns,
        .bytes = history->bytes,
        .count = LEAK_MOMENTS,
        .variance = history->variance,
        .survivors = history->survivors > 0 ? history->survivors : history->bytes[LEAK_MOMENTS - 1] / MIB,
        .survivors_mid = history->survivors > 0 ? history->survivors_mid : history->bytes[LEAK_MOMENTS / 2] / MIB,
        .is_script = history->is_script,
    };
    return leak_judge(&evidence, verdict);
}

static void test_steady_growth(void **state) {
    (void)state;
    struct history history = {0};
    struct leak_verdict verdict;
    for (size_t i = 0; i < LEAK_MOMENTS; i++)
        history.bytes[i] = i * MIB;
    assert_true(judge(&history, &verdict));
    assert_true(verdict.bytes_per_s > 10 * MIB - 1 && verdict.bytes_per_s < 10 * MIB + 1);
    /* Of 23 windows (the first moment held nothing) 22 of 22 changes were rises: (22 + 1) / (22 + 2) */
    assert_int_equal(verdict.rises, 22);
    assert_true(verdict.likelihood > 23.0 / 24 - 1e-9 && verdict.likelihood < 23.0 / 24 + 1e-9);
    assert_true(verdict.age_s > 4.6 && verdict.age_s < 4.9);
}

/* 48 MiB in all, of which samples of 512 KiB tell now and then; and something comes and goes at the same line. */
static void test_sampled_growth(void **state) {
    (void)state;
    size_t found = 0;
    for (uint64_t run = 1; run <= HISTORIES; run++) {
        struct history history = {.variance = (uint64_t)48 * 512 * 512};
        struct leak_verdict verdict;
        uint64_t random = run * 88172645463325252u, held = 0;
        for (size_t i = 0; i < LEAK_MOMENTS; i++) {
            for (int chance = 0; chance < 8; chance++)
                held += next_random(&random) % 8 == 0 ? MIB / 2 : 0;
            history.bytes[i] = held + (next_random(&random) % 4 == 0 ? MIB / 2 : 0);
        }
        found += judge(&history, &verdict);
    }
    assert_true(found >= HISTORIES * 95 / 100);
}

static uint64_t plateau(size_t i, uint64_t random) {
    (void)random;
    return i < 40 ? i * MIB : 40 * MIB;
}

static uint64_t late_plateau(size_t i, uint64_t random) {
    (void)random;
    return i < 64 ? i * MIB : 64 * MIB;
}

/* Built until shortly before the end, then used. */
static uint64_t built_then_used(size_t i, uint64_t random) {
    (void)random;
    return i < 82 ? i * MIB : 82 * MIB;
}

/* A cache that has filled up, and replaces one entry by another. */
static uint64_t cache(size_t i, uint64_t random) {
    return (i < 32 ? i * MIB : 32 * MIB) + random % MIB;
}

static uint64_t sawtooth(size_t i, uint64_t random) {
    return (i + random % 2) % 22 * 3 * MIB;
}

static uint64_t slow_sawtooth(size_t i, uint64_t random) {
    (void)random;
    return i % 60 * MIB;
}

static uint64_t warm_up(size_t i, uint64_t random) {
    (void)random;
    uint64_t left = 100 * MIB;
    for (size_t step = 0; step < i; step++)
        left -= left / 16;
    return 100 * MIB - left;
}

static uint64_t one_off(size_t i, uint64_t random) {
    return (random % 97 + 1) * 1024 + (i >= 48 ? 300 * (uint64_t)MIB : 0);
}

static uint64_t late_one_off(size_t i, uint64_t random) {
    return random % 97 * 1024 + (i >= 72 ? 300 * (uint64_t)MIB : 0);
}

static uint64_t noise(size_t i, uint64_t random) {
    (void)i;
    return 50 * MIB + random % (20 * MIB);
}

static uint64_t steps(size_t i, uint64_t random) {
    (void)random;
    return i / 24 * 10 * MIB;
}

static uint64_t given_back(size_t i, uint64_t random) {
    (void)random;
    return i + 1 < LEAK_MOMENTS ? i * MIB : 0;
}

static uint64_t small_growth(size_t i, uint64_t random) {
    (void)random;
    return i * 5000;
}

static uint64_t late_start(size_t i, uint64_t random) {
    (void)random;
    return i > 50 ? (i - 50) * MIB : 0;
}

static void test_what_only_looks_like_it(void **state) {
    (void)state;
    static uint64_t (*const histories[])(size_t, uint64_t) = {
        plateau, late_plateau, built_then_used, cache,      sawtooth,     slow_sawtooth, warm_up,
        one_off, late_one_off, noise,           given_back, small_growth, late_start,    steps};
    for (size_t kind = 0; kind < sizeof histories / sizeof histories[0]; kind++)
        for (uint64_t run = 1; run <= HISTORIES; run++) {
            struct history history = {0};
            struct leak_verdict verdict;
            uint64_t random = run * 88172645463325252u;
            for (size_t i = 0; i < LEAK_MOMENTS; i++)
                history.bytes[i] = histories[kind](i, next_random(&random));
            if (judge(&history, &verdict))
                fail_msg("history %zu is taken for a leak", kind);
        }
}

/* What a walk at random does looks like a trend more often than chance has it, but hardly ever like this. */
static void test_random_walks(void **state) {
    (void)state;
    size_t found = 0;
    for (uint64_t run = 1; run <= HISTORIES; run++) {
        struct history history = {0};
        struct leak_verdict verdict;
        uint64_t random = run * 2862933555777941757u, held = 100 * MIB;
        for (size_t i = 0; i < LEAK_MOMENTS; i++)
            history.bytes[i] = held += next_random(&random) % (2 * MIB) - MIB;
        found += judge(&history, &verdict);
    }
    assert_true(found <= HISTORIES / 10);
}

/* One block that grows; what came at the beginning alone; what has just come. */
static void test_survivors(void **state) {
    (void)state;
    static const uint64_t SURVIVORS[][2] = {{1, 1}, {100, 100}, {100, 2}, {4, 2}};
    struct history history = {0};
    struct leak_verdict verdict;
    for (size_t i = 0; i < LEAK_MOMENTS; i++)
        history.bytes[i] = i * MIB;
    for (size_t i = 0; i < sizeof SURVIVORS / sizeof SURVIVORS[0]; i++) {
        history.survivors = SURVIVORS[i][0];
        history.survivors_mid = SURVIVORS[i][1];
        assert_false(judge(&history, &verdict));
    }
    history.survivors = 100;
    history.survivors_mid = 45;
    assert_true(judge(&history, &verdict));
    history.is_script = true;
    assert_false(judge(&history, &verdict));
}

/* What a list takes into which so much is put at each moment: an eighth more than it needs, whenever it is full. */
static uint64_t list_bytes(size_t i) {
    uint64_t needed = (i + 1) * MIB / 2, taken = 4096;
    while (taken < needed)
        taken += taken / 8;
    return taken;
}

/* One block that grows, or a few, for long: but not when that comes to rest, or when a function gives it back. */
static void test_containers(void **state) {
    (void)state;
    static const uint64_t SURVIVORS[][2] = {{1, 1}, {4, 2}, {100, 100}};
    for (size_t i = 0; i < sizeof SURVIVORS / sizeof SURVIVORS[0]; i++) {
        struct history history = {.survivors = SURVIVORS[i][0], .survivors_mid = SURVIVORS[i][1]};
        struct leak_verdict verdict;
        for (size_t m = 0; m < LEAK_MOMENTS; m++)
            history.bytes[m] = list_bytes(m);
        assert_false(judge(&history, &verdict));
        history.is_long = true;
        assert_true(judge(&history, &verdict));
        assert_true(verdict.rises >= 10 && verdict.likelihood > 0.9);
        history.is_script = true;
        assert_false(judge(&history, &verdict));
        history.is_script = false;
        history.bytes[LEAK_MOMENTS - 1] = 0;
        assert_false(judge(&history, &verdict));
        for (size_t m = 0; m < LEAK_MOMENTS; m++)
            history.bytes[m] = list_bytes(m < 70 ? m : 70);
        assert_false(judge(&history, &verdict));
    }
    /* All has just come. */
    struct history history = {.survivors = 100, .survivors_mid = 2, .is_long = true};
    struct leak_verdict verdict;
    for (size_t m = 0; m < LEAK_MOMENTS; m++)
        history.bytes[m] = m * MIB;
    assert_false(judge(&history, &verdict));
}

static void test_too_little_evidence(void **state) {
    (void)state;
    uint64_t times_ns[LEAK_MOMENTS], bytes[LEAK_MOMENTS];
    struct leak_verdict verdict;
    for (size_t i = 0; i < LEAK_MOMENTS; i++) {
        times_ns[i] = i * 10000000;
        bytes[i] = i * MIB;
    }
    struct leak_evidence evidence = {
        .times_ns = times_ns, .bytes = bytes, .count = LEAK_MOMENTS, .survivors = 100, .survivors_mid = 50};
    /* Within a second, that is. */
    assert_false(leak_judge(&evidence, &verdict));
    for (size_t i = 0; i < LEAK_MOMENTS; i++)
        times_ns[i] *= 10;
    assert_true(leak_judge(&evidence, &verdict));
    for (evidence.count = 0; evidence.count < 40; evidence.count++)
        assert_false(leak_judge(&evidence, &verdict));
}

enum { TICKS = 5000, TICK_NS = 10000000 };

/* However long it takes, there are so many points, they are right, and the last one is the last one. */
static void test_history(void **state) {
    (void)state;
    struct held_watch watch = {0};
    for (uint64_t i = 1; i <= TICKS; i++) {
        assert_int_equal(held_watch_change(&watch, 1, 7, MEASURE_LIVE_BYTES, 100), STATUS_OK);
        assert_int_equal(held_watch_change(&watch, 1, 7, MEASURE_LIVE_COUNT, i % 2 == 0 ? 2 : 0), STATUS_OK);
        assert_int_equal(held_watch_change(&watch, 1, 7, MEASURE_PEAK_BYTES, 1000), STATUS_OK);
        /* Another process has its own times. */
        assert_int_equal(held_watch_change(&watch, 0, 7, MEASURE_LIVE_BYTES, 1), STATUS_OK);
        assert_int_equal(held_watch_tick(&watch, 1, i * TICK_NS, i * TICK_NS), STATUS_OK);
    }
    assert_int_equal(watch.path_count, 2);
    assert_int_equal(watch.changed_count, 1);
    assert_int_equal(held_watch_tick(&watch, 0, 77, 77), STATUS_OK);
    const struct held_path *path = &watch.paths[0];
    assert_in_range(path->bytes.count, 100, 2 * path->bytes.limit);
    assert_int_equal(watch.spans[1].first_ns, TICK_NS);
    assert_int_equal(watch.spans[1].last_ns, (uint64_t)TICKS * TICK_NS);
    for (uint64_t i = 1; i <= TICKS; i++)
        assert_int_equal(series_value_at(&path->bytes, i * TICK_NS), i * 100);
    assert_int_equal(series_value_at(&path->bytes, UINT64_MAX), TICKS * 100);
    assert_int_equal(path->now_bytes, TICKS * 100);
    assert_int_equal(path->now_count, TICKS);
    assert_int_equal(series_value_at(&watch.paths[1].bytes, 77), TICKS);
    held_watch_release(&watch);
}

/* Between two changes it stays what it was. */
static void test_steps(void **state) {
    (void)state;
    struct held_watch watch = {0};
    for (uint64_t i = 1; i <= 100; i++) {
        if (i == 20 || i == 80)
            assert_int_equal(held_watch_change(&watch, 0, 1, MEASURE_LIVE_BYTES, i == 20 ? 1000 : -400), STATUS_OK);
        assert_int_equal(held_watch_tick(&watch, 0, i, i), STATUS_OK);
    }
    const struct series *bytes = &watch.paths[0].bytes;
    static const struct series_point EXPECTED[] = {{19, 0}, {20, 1000}, {79, 1000}, {80, 600}};
    assert_int_equal(bytes->count, 4);
    assert_memory_equal(bytes->points, EXPECTED, sizeof EXPECTED);
    assert_int_equal(series_value_at(bytes, 18), 0);
    assert_int_equal(series_value_at(bytes, 20), 1000);
    assert_int_equal(series_value_at(bytes, 79), 1000);
    assert_int_equal(series_value_at(bytes, 99), 600);
    held_watch_release(&watch);
}

/* No tick for long: because nothing changed, or because strobe had to wait, which the footprint tells. */
static void test_long_pauses(void **state) {
    (void)state;
    static const uint64_t SECOND = 1000000000, SHORT = 100000000;
    struct held_watch watch = {0};
    assert_int_equal(held_watch_tick(&watch, 0, 0, SECOND), STATUS_OK);
    assert_int_equal(held_watch_change(&watch, 0, 1, MEASURE_LIVE_BYTES, 1000), STATUS_OK);
    assert_int_equal(held_watch_tick(&watch, 0, 2 * SECOND, 2 * SECOND), STATUS_OK);
    assert_int_equal(held_watch_change(&watch, 0, 1, MEASURE_LIVE_BYTES, 1000), STATUS_OK);
    assert_int_equal(held_watch_tick(&watch, 0, 2 * SECOND + SHORT, 3 * SECOND), STATUS_OK);
    const struct series_point EXPECTED[] = {
        {2 * SECOND - SHORT, 0}, {2 * SECOND, 1000}, {2 * SECOND + SHORT, 1000}, {3 * SECOND, 2000}};
    assert_int_equal(watch.paths[0].bytes.count, 4);
    assert_memory_equal(watch.paths[0].bytes.points, EXPECTED, sizeof EXPECTED);
    held_watch_release(&watch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_growth),
        cmocka_unit_test(test_sampled_growth),
        cmocka_unit_test(test_what_only_looks_like_it),
        cmocka_unit_test(test_random_walks),
        cmocka_unit_test(test_too_little_evidence),
        cmocka_unit_test(test_survivors),
        cmocka_unit_test(test_containers),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_long_pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
