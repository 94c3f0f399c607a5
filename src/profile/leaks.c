#include "profile/leaks.h"

#include <float.h>
#include <stdlib.h>

enum {
    WINDOW_MOMENTS = 4,
    MIN_WINDOWS = 12,
    MAX_WINDOWS = LEAK_MOMENTS / WINDOW_MOMENTS,
    MIN_SPAN_S = 2,         /* what is shorter may as well be building what it needs, */
    MIN_SPAN_OF_FEW_S = 10, /* and where it is one text or table that grows, so may what is longer */
    MIN_RISES = 5,
    MIN_GROWTH_BYTES = 1 << 20,
    MIN_SURVIVORS = 5,
    QUARTERS = 4,
};
/* It must be there for this part of the process's life. */
static const double MIN_LIFE = 0.5;
/* One in 2000 sequences without a trend has one of so many standard deviations. */
static const double MIN_TREND = 3.3;
static const double MIN_LIKELIHOOD = 0.75;
/* A growth that has come to rest is none: each quarter adds at least this part of what a quarter adds on average, but
 * for so many standard deviations of the sampling, */
static const double MIN_QUARTER = 0.3;
static const double QUARTER_DEVIATIONS = 2;
/* each half this part of all survivors, */
static const double MIN_HALF = 0.1;
/* and the last rise is not longer ago than so many times the mean distance of two; of rises that come by chance one in
 * 150 sequences ends with such a pause. Short of this part of the whole it proves nothing. */
static const double MAX_PAUSE = 5;
static const double MAX_PAUSE_SHARE = 0.1;
static const double MARGIN_DEVIATIONS = 3;

/* Whether Mann and Kendall's S is so many standard deviations above 0, with the correction for ties. */
static bool has_trend(const uint64_t *values, size_t count) {
    double score = 0, ties = 0, n = (double)count;
    for (size_t i = 0; i < count; i++) {
        double equal = 0;
        for (size_t j = 0; j < count; j++) {
            equal += values[j] == values[i];
            if (j > i)
                score += (values[j] > values[i]) - (values[j] < values[i]);
        }
        /* t(t-1)(2t+5) of each group of t, spread over its t members. */
        ties += (equal - 1) * (2 * equal + 5);
    }
    double variance = (n * (n - 1) * (2 * n + 5) - ties) / 18;
    return score > 1 && (score - 1) * (score - 1) >= MIN_TREND * MIN_TREND * variance;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double find_slope(const struct leak_evidence *evidence) {
    double slopes[LEAK_MOMENTS * (LEAK_MOMENTS - 1) / 2];
    size_t count = 0;
    for (size_t i = 0; i < evidence->count; i++)
        for (size_t j = i + 1; j < evidence->count; j++) {
            double span_s = (double)(evidence->times_ns[j] - evidence->times_ns[i]) / 1e9;
            if (span_s > 0)
                slopes[count++] = ((double)evidence->bytes[j] - (double)evidence->bytes[i]) / span_s;
        }
    qsort(slopes, count, sizeof slopes[0], compare_doubles);
    return count > 0 ? slopes[count / 2] : 0;
}

/* The least that is held from `from` on up to `end`. */
static uint64_t least_of(const uint64_t *bytes, size_t from, size_t end) {
    uint64_t least = UINT64_MAX;
    for (size_t i = from; i < end; i++)
        least = bytes[i] < least ? bytes[i] : least;
    return least;
}

/* What comes and goes does not change the least much. The last window ends with the last moment. */
static size_t find_floors(const struct leak_evidence *evidence, uint64_t floors[MAX_WINDOWS]) {
    size_t windows = evidence->count / WINDOW_MOMENTS, from = evidence->count % WINDOW_MOMENTS;
    for (size_t w = 0; w < windows; w++)
        floors[w] = least_of(evidence->bytes, from + w * WINDOW_MOMENTS, from + (w + 1) * (size_t)WINDOW_MOMENTS);
    return windows;
}

/* Whether an amount is more than so many standard deviations of the sampling, whose square is `variance`, in KiB². */
static bool exceeds(double amount, double deviations, double variance) {
    return amount > 0 && amount * amount > deviations * deviations * variance * (1 << 20);
}

/* Neither what comes and goes nor what comes to rest rises from each quarter to the next. */
static bool quarters_rise(const struct leak_evidence *evidence) {
    double floors[QUARTERS];
    for (size_t q = 0; q < QUARTERS; q++)
        floors[q] =
            (double)least_of(evidence->bytes, evidence->count * q / QUARTERS, evidence->count * (q + 1) / QUARTERS);
    double least = (floors[QUARTERS - 1] - floors[0]) / (QUARTERS - 1) * MIN_QUARTER;
    for (size_t q = 1; q < QUARTERS; q++) {
        double step = floors[q] - floors[q - 1];
        if (step <= 0 || exceeds(least - step, QUARTER_DEVIATIONS, (double)evidence->variance / QUARTERS))
            return false;
    }
    return true;
}

/* What is older than a moment cannot be more than the least that was held since: the rises of that are the survivors'.
 * Whether they come to the end. */
static bool goes_on(const struct leak_evidence *evidence) {
    const uint64_t *times_ns = evidence->times_ns;
    size_t last = evidence->count - 1, rises = 0, last_rise = 0;
    uint64_t least = evidence->bytes[last];
    for (size_t i = last; i-- > 0;) {
        if (evidence->bytes[i] >= least)
            continue;
        least = evidence->bytes[i];
        last_rise = rises++ == 0 ? i + 1 : last_rise;
    }
    double span_ns = (double)(times_ns[last] - times_ns[0]), pause_ns = (double)(times_ns[last] - times_ns[last_rise]);
    return rises > 0 && (pause_ns <= MAX_PAUSE * span_ns / (double)rises || pause_ns <= MAX_PAUSE_SHARE * span_ns);
}

static double span_of(const struct leak_evidence *evidence) {
    return evidence->count > 0 ? (double)(evidence->times_ns[evidence->count - 1] - evidence->times_ns[0]) : 0;
}

/* Of a single block that grows, of what is replaced by something larger, there are no more survivors than before. That
 * is how a text is built, too. */
static bool survivors_grow(const struct leak_evidence *evidence) {
    double all = (double)evidence->survivors, mid = (double)evidence->survivors_mid;
    if (all < MIN_SURVIVORS || all - mid < MIN_HALF * all)
        return span_of(evidence) >= MIN_SPAN_OF_FEW_S * 1e9;
    return mid >= MIN_HALF * all;
}

static void count_rises(const uint64_t *floors, size_t count, struct leak_verdict *verdict) {
    uint64_t highest = floors[0];
    size_t changes = 0;
    for (size_t w = 1; w < count; w++) {
        changes += floors[w] != floors[w - 1];
        verdict->rises += floors[w] > highest;
        highest = floors[w] > highest ? floors[w] : highest;
    }
    verdict->likelihood = (double)(verdict->rises + 1) / (double)(changes + 2);
}

/* Since when at least half of what is held at the end has been there. */
static double find_age(const struct leak_evidence *evidence) {
    size_t last = evidence->count - 1;
    uint64_t half = evidence->bytes[last] / 2;
    for (size_t i = last + 1; i-- > 0;)
        if (evidence->bytes[i] < half)
            return (double)(evidence->times_ns[last] - evidence->times_ns[i + 1 <= last ? i + 1 : last]) / 1e9;
    return (double)(evidence->times_ns[last] - evidence->times_ns[0]) / 1e9;
}

/* Without the time before the line held anything. */
static struct leak_evidence without_start(const struct leak_evidence *evidence) {
    struct leak_evidence rest = *evidence;
    while (rest.count > 0 && rest.bytes[0] == 0) {
        rest.bytes++;
        rest.times_ns++;
        rest.count--;
    }
    return rest;
}

static bool is_worth_judging(const struct leak_evidence *all, const struct leak_evidence *evidence) {
    double span_ns = span_of(evidence);
    if (all->count > LEAK_MOMENTS || evidence->count < (size_t)MIN_WINDOWS * WINDOW_MOMENTS)
        return false;
    double growth = (double)evidence->bytes[evidence->count - 1] - (double)evidence->bytes[0];
    return !all->is_script && span_ns >= MIN_SPAN_S * 1e9 && span_ns >= MIN_LIFE * span_of(all) &&
           growth >= MIN_GROWTH_BYTES && exceeds(growth, MARGIN_DEVIATIONS, (double)evidence->variance);
}

bool leak_judge(const struct leak_evidence *all, struct leak_verdict *verdict) {
    struct leak_evidence evidence = without_start(all);
    uint64_t floors[MAX_WINDOWS];
    *verdict = (struct leak_verdict){0};
    if (!is_worth_judging(all, &evidence))
        return false;
    size_t windows = find_floors(&evidence, floors);
    count_rises(floors, windows, verdict);
    verdict->bytes_per_s = find_slope(&evidence);
    verdict->age_s = find_age(&evidence);
    return verdict->rises >= MIN_RISES && verdict->likelihood >= MIN_LIKELIHOOD && verdict->bytes_per_s > 0 &&
           has_trend(floors, windows) && quarters_rise(&evidence) && goes_on(&evidence) && survivors_grow(&evidence);
}
