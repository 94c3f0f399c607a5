/* What a quantity was over time, in a bounded number of points: when there are too many, those go that say least. The
 * highest and the last one always stay. */
#ifndef STROBE_BASE_SERIES_H
#define STROBE_BASE_SERIES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct series_point {
    uint64_t time_ns;
    uint64_t value;
};

/* `limit` is set, at least 3; the rest begins as zero. */
struct series {
    size_t limit;
    struct series_point *points; /* by time */
    size_t count, capacity;
};

void series_release(struct series *series);
/* Forgets the points, keeps the room. */
void series_clear(struct series *series);
/* A time before the last point's is taken for that one's. STATUS_FAILED when there is no memory. */
enum status series_add(struct series *series, uint64_t time_ns, uint64_t value) MUST_USE;
/* On the straight line between its neighbours; what the last one is after it, 0 before the first. */
uint64_t series_value_at(const struct series *series, uint64_t time_ns);
/* Leaves at most `limit` points; while they are added there may be twice as many. */
void series_reduce(struct series *series);

#endif
