/* When to look: against absolute deadlines, with jitter so that no periodic program falls into step. */
#ifndef STROBE_SAMPLER_SCHEDULE_H
#define STROBE_SAMPLER_SCHEDULE_H

#include <stdint.h>

/* Each period has one deadline, at a random place in it. A deadline that has passed when its turn comes is missed: it
 * is counted and not made up for. */
struct schedule {
    uint64_t period_ns;
    uint64_t period_start_ns; /* CLOCK_MONOTONIC, of the current period */
    uint64_t deadline_ns;
    uint64_t random;
    uint64_t missed;
};

/* Begins now. rate_hz > 0. `seed` makes the jitter repeatable; any number will do. */
void schedule_start(struct schedule *schedule, double rate_hz, uint64_t now_ns, uint64_t seed);

/* How many deadlines were missed up to now_ns, though schedule_next has not moved on yet. */
uint64_t schedule_missed(const struct schedule *schedule, uint64_t now_ns);

/* Moves to the next deadline that is not over at now_ns, and returns it. */
uint64_t schedule_next(struct schedule *schedule, uint64_t now_ns);

#endif
