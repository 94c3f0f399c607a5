#include "profile/leaks.h"

#include "profile/builder.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_PERIOD_MS = 20,
    MIN_MOMENTS = 16,
    MIN_SPAN_S = 2, /* what is shorter may as well be building what it needs */
    MIN_RISES = 5,
    MIN_GROWTH_BYTES = 1 << 20,
    QUARTERS = 4,
    MAX_PATHS = 1 << 17,
};
/* One in 2000 sequences without a trend has one of so many standard deviations. */
static const double MIN_TREND = 3.3;
/* A growth that has come to rest is none: each quarter adds at least this part of what a quarter adds on average. */
static const double MIN_QUARTER = 0.4;
static const double MARGIN_DEVIATIONS = 3;

/* ------------------------------------------------------------------------------------------------ evidence ---- */

void leak_watch_release(struct leak_watch *watch) {
    free(watch->paths);
    free(watch->moments);
    digest_map_release(&watch->index);
    *watch = (struct leak_watch){0};
}

enum status leak_watch_change(struct leak_watch *watch, uint32_t process, uint32_t stack, int64_t bytes,
                              int64_t variance) {
    struct digest key = digest_of_pair(process, stack);
    uint32_t known = digest_map_get(&watch->index, key);
    if (known == 0) {
        if (watch->path_count == MAX_PATHS)
            return STATUS_OK;
        TRY(builder_reserve((void **)&watch->paths, watch->path_count, &watch->path_capacity, sizeof watch->paths[0]));
        TRY(digest_map_set(&watch->index, key, (uint32_t)watch->path_count + 1));
        watch->paths[watch->path_count] = (struct leak_path){.process = process, .stack = stack};
        known = (uint32_t)++watch->path_count;
    }
    struct leak_path *path = &watch->paths[known - 1];
    path->now_bytes = (int64_t)((uint64_t)path->now_bytes + (uint64_t)bytes);
    path->now_variance = (int64_t)((uint64_t)path->now_variance + (uint64_t)variance);
    return STATUS_OK;
}

static void thin_out(struct leak_watch *watch, uint32_t process) {
    struct leak_moments *moments = &watch->moments[process];
    moments->count /= 2;
    for (size_t i = 0; i < moments->count; i++)
        moments->times_ns[i] = moments->times_ns[2 * i + 1];
    for (size_t p = 0; p < watch->path_count; p++)
        for (size_t i = 0; i < moments->count && watch->paths[p].process == process; i++)
            watch->paths[p].bytes[i] = watch->paths[p].bytes[2 * i + 1];
    moments->period_ns *= 2;
    moments->due_ns = moments->times_ns[moments->count - 1] + moments->period_ns;
}

enum status leak_watch_tick(struct leak_watch *watch, uint32_t process, uint64_t time_ns) {
    while (watch->process_count <= process) {
        TRY(builder_reserve((void **)&watch->moments, watch->process_count, &watch->process_capacity,
                            sizeof watch->moments[0]));
        watch->moments[watch->process_count++] =
            (struct leak_moments){.period_ns = (uint64_t)FIRST_PERIOD_MS * 1000000};
    }
    struct leak_moments *moments = &watch->moments[process];
    if (moments->count == LEAK_MOMENTS)
        thin_out(watch, process);
    if (time_ns < moments->due_ns)
        return STATUS_OK;
    for (size_t p = 0; p < watch->path_count; p++) {
        struct leak_path *path = &watch->paths[p];
        if (path->process == process)
            path->bytes[moments->count] = path->now_bytes > 0 ? (uint64_t)path->now_bytes : 0;
    }
    moments->times_ns[moments->count++] = time_ns;
    moments->due_ns = time_ns + moments->period_ns;
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ judgement --- */

/* Whether Mann and Kendall's S is so many standard deviations above 0, with the correction for ties. */
static bool has_trend(const uint64_t *bytes, size_t count) {
    double score = 0, ties = 0, n = (double)count;
    for (size_t i = 0; i < count; i++) {
        double equal = 0;
        for (size_t j = 0; j < count; j++) {
            equal += bytes[j] == bytes[i];
            if (j > i)
                score += (bytes[j] > bytes[i]) - (bytes[j] < bytes[i]);
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

/* The least that is held in each quarter rises from each to the next: neither what comes and goes nor what comes to
 * rest does that. */
static bool floors_rise(const uint64_t *bytes, size_t count) {
    double floors[QUARTERS];
    for (size_t q = 0; q < QUARTERS; q++) {
        floors[q] = DBL_MAX;
        for (size_t i = count * q / QUARTERS; i < count * (q + 1) / QUARTERS; i++)
            floors[q] = (double)bytes[i] < floors[q] ? (double)bytes[i] : floors[q];
    }
    double least = (floors[QUARTERS - 1] - floors[0]) / (QUARTERS - 1) * MIN_QUARTER;
    for (size_t q = 1; q < QUARTERS; q++)
        if (floors[q] - floors[q - 1] <= 0 || floors[q] - floors[q - 1] < least)
            return false;
    return true;
}

struct rises {
    size_t all, late; /* late: in the last quarter */
    size_t changes;
};

static struct rises count_rises(const struct leak_evidence *evidence) {
    struct rises rises = {0};
    uint64_t highest = evidence->bytes[0];
    for (size_t i = 1; i < evidence->count; i++) {
        rises.changes += evidence->bytes[i] != evidence->bytes[i - 1];
        if (evidence->bytes[i] <= highest)
            continue;
        highest = evidence->bytes[i];
        rises.all++;
        rises.late += i >= evidence->count - evidence->count / QUARTERS;
    }
    return rises;
}

bool leak_judge(const struct leak_evidence *evidence, struct leak_verdict *verdict) {
    size_t count = evidence->count;
    *verdict = (struct leak_verdict){0};
    if (count < MIN_MOMENTS || count > LEAK_MOMENTS)
        return false;
    uint64_t span_ns = evidence->times_ns[count - 1] - evidence->times_ns[0];
    double growth = (double)evidence->bytes[count - 1] - (double)evidence->bytes[0];
    double margin = MARGIN_DEVIATIONS * 1024;
    if (span_ns < (uint64_t)MIN_SPAN_S * 1000000000 || growth < MIN_GROWTH_BYTES ||
        growth * growth < margin * margin * (double)evidence->variance)
        return false;
    struct rises rises = count_rises(evidence);
    verdict->rises = rises.all;
    verdict->likelihood = (double)(rises.all + 1) / (double)(rises.changes + 2);
    verdict->bytes_per_s = find_slope(evidence);
    bool goes_on = (double)rises.late * QUARTERS >= MIN_QUARTER * (double)rises.all;
    return goes_on && rises.all >= MIN_RISES && has_trend(evidence->bytes, count) && verdict->bytes_per_s > 0 &&
           floors_rise(evidence->bytes, count);
}

/* ------------------------------------------------------------------------------------------------ lines ------- */

/* What a line holds in a process. */
struct line {
    const struct profile_frame *frame;
    uint32_t process;
    uint64_t now_bytes, variance;
    uint64_t bytes[LEAK_MOMENTS];
};

struct lines {
    struct line *items;
    size_t count, capacity;
    struct digest_map index; /* -> item + 1 */
};

static enum status find_line(struct lines *lines, const struct profile_frame *frame, uint32_t process,
                             struct line **line) {
    const uint64_t fields[] = {(uintptr_t)frame->file, (uint32_t)frame->line, process};
    struct digest key = digest_of(fields, sizeof fields);
    uint32_t known = digest_map_get(&lines->index, key);
    if (known == 0) {
        TRY(builder_reserve((void **)&lines->items, lines->count, &lines->capacity, sizeof lines->items[0]));
        TRY(digest_map_set(&lines->index, key, (uint32_t)lines->count + 1));
        lines->items[lines->count] = (struct line){.frame = frame, .process = process};
        known = (uint32_t)++lines->count;
    }
    *line = &lines->items[known - 1];
    return STATUS_OK;
}

static enum status sum_lines(const struct profile *profile, const uint32_t *charged, struct lines *lines) {
    const struct leak_watch *watch = &profile->builder->leaks;
    for (size_t p = 0; p < watch->path_count; p++) {
        const struct leak_path *path = &watch->paths[p];
        struct line *line = NULL;
        if (path->process >= watch->process_count || charged[path->stack] == 0)
            continue;
        const struct profile_frame *frame = &profile->frames[profile->stacks[charged[path->stack]].frame];
        TRY(find_line(lines, frame, path->process, &line));
        if (line == NULL)
            continue;
        for (size_t i = 0; i < watch->moments[path->process].count; i++)
            line->bytes[i] = saturating_add(line->bytes[i], path->bytes[i]);
        line->now_bytes = saturating_add(line->now_bytes, path->now_bytes > 0 ? (uint64_t)path->now_bytes : 0);
        line->variance = saturating_add(line->variance, path->now_variance > 0 ? (uint64_t)path->now_variance : 0);
    }
    return STATUS_OK;
}

static enum status judge_line(const struct profile *profile, const struct line *line, struct leak_list *list) {
    const struct leak_moments *moments = &profile->builder->leaks.moments[line->process];
    const struct leak_evidence evidence = {moments->times_ns, line->bytes, moments->count, line->variance};
    struct leak_verdict verdict;
    if (!leak_judge(&evidence, &verdict))
        return STATUS_OK;
    TRY(builder_reserve((void **)&list->leaks, list->count, &list->capacity, sizeof list->leaks[0]));
    list->leaks[list->count++] = (struct leak){.file = line->frame->file,
                                               .line = line->frame->line,
                                               .process = line->process,
                                               .live_bytes = line->now_bytes,
                                               .verdict = verdict};
    return STATUS_OK;
}

static int compare_leaks(const void *left, const void *right) {
    const struct leak *a = left, *b = right;
    int order = compare_doubles(&b->verdict.bytes_per_s, &a->verdict.bytes_per_s);
    order = order != 0 ? order : strcmp(a->file, b->file);
    return order != 0 ? order : (a->line > b->line) - (a->line < b->line);
}

enum status leaks_find(const struct profile *profile, const uint32_t *charged, struct leak_list *list) {
    struct lines lines = {0};
    enum status status = sum_lines(profile, charged, &lines);
    for (size_t i = 0; status == STATUS_OK && i < lines.count; i++)
        status = judge_line(profile, &lines.items[i], list);
    if (list->count > 1)
        qsort(list->leaks, list->count, sizeof list->leaks[0], compare_leaks);
    free(lines.items);
    digest_map_release(&lines.index);
    return status;
}
