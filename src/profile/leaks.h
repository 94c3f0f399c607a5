/* Which lines hold more and more. Evidence is the live bytes of each call path at moments evenly spread over the run
 * (struct leak_watch); a line's are the sums of its paths'. */
#ifndef STROBE_PROFILE_LEAKS_H
#define STROBE_PROFILE_LEAKS_H

#include "base/digest.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct profile;

enum { LEAK_MOMENTS = 48 };

/* The live bytes of one call path in one process. */
struct leak_path {
    uint32_t process, stack;
    int64_t now_bytes, now_variance;
    uint64_t bytes[LEAK_MOMENTS]; /* at each moment of its process */
};

/* The moments of one process. When there are too many, every other one goes. */
struct leak_moments {
    uint64_t times_ns[LEAK_MOMENTS];
    size_t count;
    uint64_t period_ns, due_ns;
};

/* Zero-initialised is empty. */
struct leak_watch {
    struct leak_path *paths;
    size_t path_count, path_capacity;
    struct leak_moments *moments; /* by process */
    size_t process_count, process_capacity;
    struct digest_map index; /* process × stack -> path + 1 */
};

void leak_watch_release(struct leak_watch *watch);
/* Live bytes, or their variance, of a path have changed. */
enum status leak_watch_change(struct leak_watch *watch, uint32_t process, uint32_t stack, int64_t bytes,
                              int64_t variance) MUST_USE;
/* All changes up to a time have been told. */
enum status leak_watch_tick(struct leak_watch *watch, uint32_t process, uint64_t time_ns) MUST_USE;

/* What was held at `count` moments, and what is known of it at the last one. */
struct leak_evidence {
    const uint64_t *times_ns;
    const uint64_t *bytes;
    size_t count;
    uint64_t variance; /* of the last amount, in KiB² */
};

struct leak_verdict {
    double likelihood;  /* by the rule of succession: that the next change of what is held is again an increase beyond
                         * all that it was */
    double bytes_per_s; /* the median of the slopes between all pairs of moments (Theil and Sen) */
    size_t rises;       /* how often it came to be more than ever */
};

/* Whether it is a leak: it has grown to the end, from one quarter of the time to the next, by more than the sampling
 * explains. */
bool leak_judge(const struct leak_evidence *evidence, struct leak_verdict *verdict);

/* A line that leaks. */
struct leak {
    const char *file; /* of the profile's */
    int32_t line;
    uint32_t process;
    uint64_t live_bytes;
    struct leak_verdict verdict;
};

struct leak_list {
    struct leak *leaks; /* fastest first */
    size_t count, capacity;
};

/* `charged`: stack -> the stack whose innermost frame's line its memory is charged to, 0: none. */
enum status leaks_find(const struct profile *profile, const uint32_t *charged, struct leak_list *list) MUST_USE;

#endif
