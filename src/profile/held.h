/* What each call path held of the memory that it allocated, over time, in bounded memory: the more paths there are, the
 * fewer points each has. Private to src/profile. */
#ifndef STROBE_PROFILE_HELD_H
#define STROBE_PROFILE_HELD_H

#include "base/digest.h"
#include "base/series.h"
#include "profile/profile.h"

/* One call path in one process. What changed from one tick to the next is two points, one for each. */
struct held_path {
    uint32_t process, stack;
    bool is_changed; /* since the last tick */
    int64_t now_bytes, now_count, now_variance;
    struct series bytes, counts;
};

/* The time that the changes of a process are about. */
struct held_span {
    bool has_begun;
    uint64_t first_ns, last_ns;
    uint64_t last_change_ns;
};

/* Zero-initialised is empty. */
struct held_watch {
    struct held_path *paths;
    size_t path_count, path_capacity;
    struct held_span *spans; /* by process */
    size_t span_count, span_capacity;
    uint32_t *changed; /* paths */
    size_t changed_count, changed_capacity;
    struct digest_map index; /* process × stack -> path + 1 */
};

void held_watch_release(struct held_watch *watch);
/* MEASURE_LIVE_BYTES, MEASURE_LIVE_COUNT or MEASURE_LIVE_VARIANCE of a path has changed; others are none of its
 * business. */
enum status held_watch_change(struct held_watch *watch, uint32_t process, uint32_t stack, enum measure measure,
                              int64_t amount) MUST_USE;
/* Nothing is live any more of what the process had: it has exec'd. */
enum status held_watch_forget(struct held_watch *watch, uint32_t process) MUST_USE;
/* All changes of a process up to a time have been told. `first_point_ns`: since the tick before, its footprint was
 * first seen to change then. */
enum status held_watch_tick(struct held_watch *watch, uint32_t process, uint64_t first_point_ns,
                            uint64_t time_ns) MUST_USE;

#endif
