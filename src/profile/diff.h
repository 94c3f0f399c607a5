/* Two profiles side by side. */
#ifndef STROBE_PROFILE_DIFF_H
#define STROBE_PROFILE_DIFF_H

#include "profile/attribute.h"

struct diff_row {
    const char *file;
    const char *function;
    int32_t line;
    int32_t first_line;
    uint64_t self_before[MEASURE_COUNT];
    uint64_t self_after[MEASURE_COUNT]; /* scaled */
    uint64_t total_before[MEASURE_COUNT];
    uint64_t total_after[MEASURE_COUNT]; /* scaled */
};

/* Rows are sorted like those of an attribution. Texts belong to the two profiles. */
struct profile_diff {
    struct diff_row *lines; /* matched by file and line */
    size_t line_count;
    struct diff_row *functions; /* matched by file and function, wherever in the file it begins */
    size_t function_count;
    uint64_t sums_before[MEASURE_COUNT];
    uint64_t sums_after[MEASURE_COUNT]; /* scaled */
    double scale;                       /* time sampled before / time sampled after; 1 when either is not known */
    bool taken[MEASURE_COUNT];          /* measures that both have */
};

/* What `after` measured is scaled to the time that `before` was sampled, except live and peak bytes, which are no
 * flow; `as_is`: nothing is scaled. */
enum status diff_profiles(const struct profile *before, const struct profile *after,
                          const struct attribute_options *options, bool as_is, struct profile_diff *diff,
                          struct error *error) MUST_USE;
void profile_diff_release(struct profile_diff *diff);
/* By how much a measure's self grew. */
double diff_change(const struct diff_row *row, enum measure measure);

#endif
