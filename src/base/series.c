#include "base/series.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

void series_release(struct series *series) {
    free(series->points);
    *series = (struct series){.limit = series->limit};
}

void series_clear(struct series *series) {
    series->count = 0;
}

/* Twice the area of the triangle that a point makes with its neighbours: what the curve loses without it. */
static double worth_of(const struct series_point *point) {
    double before_ns = (double)(point[0].time_ns - point[-1].time_ns);
    double span_ns = (double)(point[1].time_ns - point[-1].time_ns);
    double rise = (double)point[0].value - (double)point[-1].value;
    double whole = (double)point[1].value - (double)point[-1].value;
    double area = rise * span_ns - whole * before_ns;
    return area < 0 ? -area : area;
}

static size_t find_highest(const struct series *series) {
    size_t highest = 0;
    for (size_t i = 1; i < series->count; i++)
        if (series->points[i].value > series->points[highest].value)
            highest = i;
    return highest;
}

static size_t find_dullest(const struct series *series, size_t highest) {
    size_t dullest = 0;
    double least = 0;
    for (size_t i = 1; i + 1 < series->count; i++) {
        double worth = worth_of(&series->points[i]);
        if (i == highest || (dullest != 0 && worth >= least))
            continue;
        dullest = i;
        least = worth;
    }
    return dullest;
}

void series_reduce(struct series *series) {
    if (series->points == NULL)
        return;
    size_t highest = find_highest(series);
    while (series->count > series->limit && series->count > 3) {
        size_t dullest = find_dullest(series, highest);
        series->count--;
        memmove(&series->points[dullest], &series->points[dullest + 1],
                (series->count - dullest) * sizeof series->points[0]);
        highest -= dullest < highest;
    }
}

uint64_t series_value_at(const struct series *series, uint64_t time_ns) {
    size_t from = 0, end = series->count;
    while (from < end) {
        size_t middle = from + (end - from) / 2;
        if (series->points[middle].time_ns <= time_ns)
            from = middle + 1;
        else
            end = middle;
    }
    if (from == 0)
        return 0;
    const struct series_point *point = &series->points[from - 1];
    if (from == series->count || point->time_ns == time_ns)
        return point->value;
    double share = (double)(time_ns - point->time_ns) / (double)(point[1].time_ns - point->time_ns);
    double value = (double)point->value + share * ((double)point[1].value - (double)point->value) + 0.5;
    return value < 0x1p64 ? (uint64_t)value : UINT64_MAX;
}

enum status series_add(struct series *series, uint64_t time_ns, uint64_t value) {
    struct series_point *last = series->count > 0 ? &series->points[series->count - 1] : NULL;
    if (last != NULL && time_ns < last->time_ns)
        time_ns = last->time_ns;
    /* Of what does not change the first and the last point are enough. */
    if (last != NULL && series->count > 1 && last->value == value && last[-1].value == value) {
        last->time_ns = time_ns;
        return STATUS_OK;
    }
    if (series->count >= series->limit * 2)
        series_reduce(series);
    TRY(array_reserve((void **)&series->points, &series->capacity, series->count + 1, sizeof series->points[0]));
    series->points[series->count++] = (struct series_point){time_ns, value};
    return STATUS_OK;
}
