#include "sampler/schedule.h"

#include "base/clock.h"

/* xorshift64: jitter needs to be neither secret nor perfect. */
static uint64_t next_random(struct schedule *schedule) {
    schedule->random ^= schedule->random << 13;
    schedule->random ^= schedule->random >> 7;
    schedule->random ^= schedule->random << 17;
    return schedule->random;
}

static void place_deadline(struct schedule *schedule) {
    schedule->deadline_ns = schedule->period_start_ns + next_random(schedule) % schedule->period_ns;
}

void schedule_start(struct schedule *schedule, double rate_hz, uint64_t now_ns, uint64_t seed) {
    uint64_t period_ns = (uint64_t)((double)NS_PER_S / rate_hz);
    *schedule =
        (struct schedule){.period_ns = period_ns > 0 ? period_ns : 1, .period_start_ns = now_ns, .random = seed | 1};
    place_deadline(schedule);
}

uint64_t schedule_missed(const struct schedule *schedule, uint64_t now_ns) {
    uint64_t next_start_ns = schedule->period_start_ns + schedule->period_ns;
    return schedule->missed + (now_ns > next_start_ns ? (now_ns - next_start_ns) / schedule->period_ns : 0);
}

uint64_t schedule_next(struct schedule *schedule, uint64_t now_ns) {
    /* Whole periods may have gone by: while one long look was taken, or while strobe had no processor. */
    uint64_t lost = schedule_missed(schedule, now_ns) - schedule->missed;
    schedule->missed += lost;
    schedule->period_start_ns += (1 + lost) * schedule->period_ns;
    place_deadline(schedule);
    return schedule->deadline_ns;
}
