#include "agent/stride.h"
#include "profile/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka.h needs those four before it
#include <cmocka.h>
#include <math.h>
#include <string.h>

static const double RELATIVE_ERROR = 1e-9;

static void assert_near(double value, double expected, double error) {
    if (fabs(value - expected) > error)
        fail_msg("%.17g, and not %.17g", value, expected);
}

static void weights_are_those_of_the_formula(void **state) {
    (void)state;
    const uint64_t strides[] = {1, 1000, 64 << 10, 256 << 10, 512 << 10, UINT64_C(1) << 30};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        for (uint64_t size = 1; size < UINT64_C(1) << 42; size += 1 + size / 3) {
            struct stride_weight weight = stride_weigh(size, strides[i]);
            double p = -expm1(-(double)size / (double)strides[i]);
            /* Integers: half a unit off, at most. */
            double slack = 1e-7 * (double)strides[i] / (double)size < RELATIVE_ERROR ? RELATIVE_ERROR : 1e-6;
            assert_near((double)weight.bytes, (double)size / p, 0.5 + slack * (double)size / p);
            assert_near((double)weight.count, STRIDE_COUNT_UNIT / p, 0.5 + slack * STRIDE_COUNT_UNIT / p);
        }
    }
}

static void weights_at_the_ends(void **state) {
    (void)state;
    struct stride_weight weight = stride_weigh(1, STRIDE_MAX_BYTES);
    assert_near((double)weight.bytes, (double)STRIDE_MAX_BYTES, 1e-4 * (double)STRIDE_MAX_BYTES);
    weight = stride_weigh(UINT64_C(1) << 55, 1);
    assert_true(weight.bytes == UINT64_C(1) << 55);
    assert_true(weight.count == STRIDE_COUNT_UNIT);
}

/* Gaps are exponentially distributed: held against the distribution function by Kolmogorov's and Smirnov's test. The
 * seeds are fixed, so this either always holds or never does. */
static void gaps_are_exponential(void **state) {
    (void)state;
    enum { DRAWS = 200000, BINS = 1000 };
    static const uint64_t stride = 256 << 10;
    static uint32_t counts[BINS];
    uint64_t random = 1;
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) {
        double gap = (double)stride_draw_gap(&random, stride);
        sum += gap;
        size_t bin = (size_t)(-expm1(-gap / (double)stride) * BINS);
        counts[bin < BINS ? bin : BINS - 1]++;
    }
    assert_near(sum / DRAWS / (double)stride, 1, 4 / sqrt(DRAWS));
    double below = 0;
    for (size_t bin = 0; bin < BINS; bin++) {
        below += counts[bin];
        assert_near(below / DRAWS, (double)(bin + 1) / BINS, 1.63 / sqrt(DRAWS));
    }
}

/* Sampled as the agent does it, blocks of any one size add up to what there was, in bytes and in number, on average
 * over many seeds; and the spread is what the theory says: a variance of n (1 - p) / p blocks. */
static void sums_are_unbiased(void **state) {
    (void)state;
    enum { SEEDS = 2000, BLOCKS = 3000 };
    static const uint64_t stride = 4096;
    const uint64_t sizes[] = {1, 17, 56, 509, 4099, 20011};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double total = 0, squares = 0, p = -expm1(-(double)sizes[i] / (double)stride);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            uint64_t random = seed;
            int64_t left = (int64_t)stride_draw_gap(&random, stride);
            double bytes = 0;
            for (int block = 0; block < BLOCKS; block++) {
                left -= (int64_t)sizes[i];
                if (left >= 0)
                    continue;
                bytes += (double)stride_weigh(sizes[i], stride).bytes;
                left = (int64_t)stride_draw_gap(&random, stride);
            }
            total += bytes;
            squares += bytes * bytes;
        }
        double truth = (double)sizes[i] * BLOCKS, mean = total / SEEDS;
        double deviation = (double)sizes[i] * sqrt(BLOCKS * (1 - p) / p);
        /* Rounding a weight to whole bytes is a bias, too, of half a byte in `stride`. */
        assert_near(mean, truth, 4 * deviation / sqrt(SEEDS) + truth / (double)stride);
        assert_near(sqrt(squares / SEEDS - mean * mean) / deviation, 1, 0.1);
    }
}

/* One run of a line that allocates blocks of one size: whether the truth is within the margin that a report would give.
 */
static bool margin_holds(uint64_t seed, uint64_t size_bytes, uint64_t blocks) {
    static const uint64_t stride = 512 << 10;
    uint64_t random = seed, row[MEASURE_COUNT] = {0};
    int64_t left = (int64_t)stride_draw_gap(&random, stride);
    struct stride_weight weight = stride_weigh(size_bytes, stride);
    double truth = (double)(size_bytes * blocks), variance = 0;
    for (uint64_t i = 0; i < blocks; i++) {
        left -= (int64_t)size_bytes;
        if (left >= 0)
            continue;
        row[MEASURE_ALLOC_BYTES] += weight.bytes;
        variance += (double)weight.bytes * (double)(weight.bytes - size_bytes) / (1 << 20);
        left = (int64_t)stride_draw_gap(&random, stride);
    }
    row[MEASURE_ALLOC_VARIANCE] = (uint64_t)variance;
    return fabs((double)row[MEASURE_ALLOC_BYTES] - truth) <= (double)profile_margin(row, MEASURE_ALLOC_BYTES);
}

/* The margin is said to be that of 19 in 20 cases, also where there are but a few samples. Of few blocks that are
 * nearly all sampled the sum has few values, so that a share goes by large steps. The seeds are fixed. */
static void margins_hold_as_often_as_they_say(void **state) {
    (void)state;
    enum { SEEDS = 2000 };
    const uint64_t totals[] = {3 << 20, 8 << 20, 60 << 20}, sizes[] = {2003, 40009, 524288, 1000003};
    double sum = 0;
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            uint64_t held = 0;
            for (uint64_t seed = 1; seed <= SEEDS; seed++)
                held += margin_holds(seed, sizes[j], totals[i] / sizes[j]);
            double share = (double)held / SEEDS;
            if (share < (j < 2 ? 0.94 : 0.88))
                fail_msg("%zu bytes in blocks of %zu: %.3f", (size_t)totals[i], (size_t)sizes[j], share);
            sum += share;
        }
    size_t count = sizeof totals / sizeof *totals * (sizeof sizes / sizeof *sizes);
    assert_near(sum / (double)count, 0.955, 0.01);
}

static void every_state_is_a_good_one(void **state) {
    (void)state;
    uint64_t zero = 0;
    assert_true(stride_random(&zero) != stride_random(&zero));
    for (uint64_t seed = 0; seed < 1000; seed++) {
        uint64_t random = seed;
        assert_true(stride_draw_gap(&random, STRIDE_MAX_BYTES) < 45 * STRIDE_MAX_BYTES);
        assert_true(stride_draw_gap(&random, 1) < 45);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_formula),
        cmocka_unit_test(weights_at_the_ends),
        cmocka_unit_test(gaps_are_exponential),
        cmocka_unit_test(sums_are_unbiased),
        cmocka_unit_test(margins_hold_as_often_as_they_say),
        cmocka_unit_test(every_state_is_a_good_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
