#include "profile/diff.h"

#include <stdlib.h>
#include <string.h>

typedef int row_order(const struct attribute_row *left, const struct attribute_row *right);

static int compare_lines(const struct attribute_row *left, const struct attribute_row *right) {
    int order = strcmp(left->file, right->file);
    return order != 0 ? order : (left->line > right->line) - (left->line < right->line);
}

/* A function is the same when the lines above it moved it. */
static int compare_functions(const struct attribute_row *left, const struct attribute_row *right) {
    int order = strcmp(left->file, right->file);
    return order != 0 ? order : strcmp(left->qualname, right->qualname);
}

static int compare_functions_for_qsort(const void *left, const void *right) {
    const struct attribute_row *a = left;
    const struct attribute_row *b = right;
    int order = compare_functions(a, b);
    return order != 0 ? order : (a->first_line > b->first_line) - (a->first_line < b->first_line);
}

static bool is_flow(int measure) {
    return measure != MEASURE_PEAK_BYTES && measure != MEASURE_LIVE_BYTES && measure != MEASURE_LIVE_COUNT;
}

static uint64_t scaled(uint64_t amount, double scale, int measure) {
    double result = is_flow(measure) ? (double)amount * scale : (double)amount;
    return result < 0x1p64 ? (uint64_t)(result + 0.5) : UINT64_MAX;
}

static void name_row(struct diff_row *row, const struct attribute_row *from) {
    row->file = from->file;
    row->function = from->function;
    row->line = from->line;
    row->first_line = from->first_line;
}

static void add_before(struct diff_row *row, const struct attribute_row *from) {
    name_row(row, from);
    for (int m = 0; m < MEASURE_COUNT; m++) {
        row->self_before[m] += from->self[m];
        row->total_before[m] += from->total[m];
    }
}

static void add_after(struct diff_row *row, const struct attribute_row *from, double scale) {
    name_row(row, from);
    for (int m = 0; m < MEASURE_COUNT; m++) {
        row->self_after[m] += scaled(from->self[m], scale, m);
        row->total_after[m] += scaled(from->total[m], scale, m);
    }
}

struct row_list {
    const struct attribute_row *rows;
    size_t count;
};

/* Both are sorted by `order`. Each row of either is in one row of the result; neighbours that `order` takes for equal
 * (overloads of one name) are added up. */
static enum status join(struct row_list before, struct row_list after, row_order *order, double scale,
                        struct diff_row **joined, size_t *count) {
    size_t b = 0;
    size_t a = 0;
    *joined = calloc(before.count + after.count + 1, sizeof **joined);
    if (*joined == NULL)
        return STATUS_FAILED;
    while (b < before.count || a < after.count) {
        bool after_is_first = b == before.count || (a < after.count && order(&after.rows[a], &before.rows[b]) < 0);
        const struct attribute_row *first = after_is_first ? &after.rows[a] : &before.rows[b];
        struct diff_row *row = &(*joined)[(*count)++];
        while (b < before.count && order(&before.rows[b], first) == 0)
            add_before(row, &before.rows[b++]);
        while (a < after.count && order(&after.rows[a], first) == 0)
            add_after(row, &after.rows[a++], scale);
    }
    return STATUS_OK;
}

static uint64_t sampled_ns(const struct profile *profile) {
    uint64_t sum_ns = 0;
    for (size_t i = 0; i < profile->process_count; i++)
        sum_ns += profile->processes[i].elapsed_ns;
    return sum_ns;
}

static void sort_functions(struct attribution *attribution) {
    if (attribution->function_count > 0)
        qsort(attribution->functions, attribution->function_count, sizeof attribution->functions[0],
              compare_functions_for_qsort);
}

static enum status join_both(struct attribution *before, struct attribution *after, struct profile_diff *diff) {
    sort_functions(before);
    sort_functions(after);
    for (int m = 0; m < MEASURE_COUNT; m++) {
        diff->sums_before[m] = before->sums[m];
        diff->sums_after[m] = scaled(after->sums[m], diff->scale, m);
    }
    TRY(join((struct row_list){before->lines, before->line_count}, (struct row_list){after->lines, after->line_count},
             compare_lines, diff->scale, &diff->lines, &diff->line_count));
    return join((struct row_list){before->functions, before->function_count},
                (struct row_list){after->functions, after->function_count}, compare_functions, diff->scale,
                &diff->functions, &diff->function_count);
}

enum status diff_profiles(const struct profile *before, const struct profile *after,
                          const struct attribute_options *options, bool as_is, struct profile_diff *diff,
                          struct error *error) {
    struct attribution of_before = {0};
    struct attribution of_after = {0};
    uint64_t before_ns = sampled_ns(before);
    uint64_t after_ns = sampled_ns(after);
    *diff = (struct profile_diff){.scale = 1};
    if (!as_is && before_ns > 0 && after_ns > 0)
        diff->scale = (double)before_ns / (double)after_ns;
    for (int m = 0; m < MEASURE_COUNT; m++)
        diff->taken[m] = profile_has(before, (enum measure)m) && profile_has(after, (enum measure)m);
    enum status status = attribute_profile(before, options, &of_before, error);
    if (status == STATUS_OK)
        status = attribute_profile(after, options, &of_after, error);
    if (status == STATUS_OK && join_both(&of_before, &of_after, diff) != STATUS_OK)
        status = error_set(error, STATUS_FAILED, "cannot compare the profiles: out of memory");
    if (status != STATUS_OK)
        profile_diff_release(diff);
    attribution_release(&of_before);
    attribution_release(&of_after);
    return status;
}

void profile_diff_release(struct profile_diff *diff) {
    free(diff->lines);
    free(diff->functions);
    *diff = (struct profile_diff){0};
}

double diff_change(const struct diff_row *row, enum measure measure) {
    return (double)row->self_after[measure] - (double)row->self_before[measure];
}
