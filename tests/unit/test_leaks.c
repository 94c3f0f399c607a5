/* Which histories of a line's live memory are leaks: planted ones, with noise as sampling makes it, and such as only
 * look like it. */
#include "profile/leaks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MIB = 1 << 20, HISTORIES = 200 };
static const uint64_t MOMENT_NS = 200000000;

struct history {
    uint64_t times_ns[LEAK_MOMENTS];
    uint64_t bytes[LEAK_MOMENTS];
    uint64_t variance;
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
        history->times_ns[i] = (i + 1) * MOMENT_NS;
    const struct leak_evidence evidence = {history->times_ns, history->bytes, LEAK_MOMENTS, history->variance};
    return leak_judge(&evidence, verdict);
}

static void test_steady_growth(void **state) {
    (void)state;
    struct history history = {0};
    struct leak_verdict verdict;
    for (size_t i = 0; i < LEAK_MOMENTS; i++)
        history.bytes[i] = i * MIB;
    assert_true(judge(&history, &verdict));
    assert_true(verdict.bytes_per_s > 5 * MIB - 1 && verdict.bytes_per_s < 5 * MIB + 1);
    /* 47 of 47 changes were rises: (47 + 1) / (47 + 2) */
    assert_int_equal(verdict.rises, 47);
    assert_true(verdict.likelihood > 48.0 / 49 - 1e-9 && verdict.likelihood < 48.0 / 49 + 1e-9);
}

/* 24 MiB in all, of which samples of 512 KiB tell now and then; and something comes and goes at the same line. */
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
    return i < 20 ? i * MIB : 20 * MIB;
}

static uint64_t late_plateau(size_t i, uint64_t random) {
    (void)random;
    return i < 32 ? i * MIB : 32 * MIB;
}

/* A cache that has filled up, and replaces one entry by another. */
static uint64_t cache(size_t i, uint64_t random) {
    return (i < 16 ? i * MIB : 16 * MIB) + random % MIB;
}

static uint64_t sawtooth(size_t i, uint64_t random) {
    return (i + random % 2) % 11 * 3 * MIB;
}

static uint64_t slow_sawtooth(size_t i, uint64_t random) {
    (void)random;
    return i % 30 * MIB;
}

static uint64_t warm_up(size_t i, uint64_t random) {
    (void)random;
    uint64_t left = 100 * MIB;
    for (size_t step = 0; step < i; step++)
        left -= left / 8;
    return 100 * MIB - left;
}

static uint64_t one_off(size_t i, uint64_t random) {
    return (random % 97 + 1) * 1024 + (i >= 24 ? 300 * (uint64_t)MIB : 0);
}

static uint64_t late_one_off(size_t i, uint64_t random) {
    return random % 97 * 1024 + (i >= 36 ? 300 * (uint64_t)MIB : 0);
}

static uint64_t noise(size_t i, uint64_t random) {
    (void)i;
    return 50 * MIB + random % (20 * MIB);
}

static uint64_t steps(size_t i, uint64_t random) {
    (void)random;
    return i / 12 * 10 * MIB;
}

static uint64_t given_back(size_t i, uint64_t random) {
    (void)random;
    return i + 1 < LEAK_MOMENTS ? i * MIB : 0;
}

static uint64_t small_growth(size_t i, uint64_t random) {
    (void)random;
    return i * 10000;
}

static void test_what_only_looks_like_it(void **state) {
    (void)state;
    static uint64_t (*const histories[])(size_t, uint64_t) = {plateau,       late_plateau, cache,      sawtooth,
                                                              slow_sawtooth, warm_up,      one_off,    late_one_off,
                                                              noise,         steps,        given_back, small_growth};
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

static void test_too_little_evidence(void **state) {
    (void)state;
    uint64_t times_ns[LEAK_MOMENTS], bytes[LEAK_MOMENTS];
    struct leak_verdict verdict;
    for (size_t i = 0; i < LEAK_MOMENTS; i++) {
        times_ns[i] = i * 20000000;
        bytes[i] = i * MIB;
    }
    /* Within a second, that is. */
    assert_false(leak_judge(&(struct leak_evidence){times_ns, bytes, LEAK_MOMENTS, 0}, &verdict));
    assert_false(leak_judge(&(struct leak_evidence){times_ns, bytes, 1, 0}, &verdict));
    assert_false(leak_judge(&(struct leak_evidence){times_ns, bytes, 0, 0}, &verdict));
}

/* However many moments there were, those kept are evenly spread, and each has what was held then. */
static void test_moments(void **state) {
    (void)state;
    struct leak_watch watch = {0};
    for (uint64_t i = 1; i <= 5000; i++) {
        assert_int_equal(leak_watch_change(&watch, 1, 7, 100, 1), STATUS_OK);
        assert_int_equal(leak_watch_tick(&watch, 1, i * 10000000), STATUS_OK);
    }
    const struct leak_moments *moments = &watch.moments[1];
    assert_in_range(moments->count, LEAK_MOMENTS / 2, LEAK_MOMENTS);
    for (size_t i = 0; i < moments->count; i++) {
        assert_int_equal(watch.paths[0].bytes[i], moments->times_ns[i] / 10000000 * 100);
        if (i > 0)
            assert_in_range(moments->times_ns[i] - moments->times_ns[i - 1], moments->period_ns,
                            2 * moments->period_ns);
    }
    assert_in_range(moments->times_ns[moments->count - 1], 50000000000 - 2 * moments->period_ns, 50000000000);
    leak_watch_release(&watch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_growth),           cmocka_unit_test(test_sampled_growth),
        cmocka_unit_test(test_what_only_looks_like_it), cmocka_unit_test(test_random_walks),
        cmocka_unit_test(test_too_little_evidence),     cmocka_unit_test(test_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
