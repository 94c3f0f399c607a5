/* Clocks, in nanoseconds. */
#ifndef STROBE_BASE_CLOCK_H
#define STROBE_BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

/* CLOCK_MONOTONIC. Signal-safe. */
uint64_t clock_monotonic_ns(void);
/* Of no particular unit: only for comparing short spans with each other, at a third of a clock's cost. */
static inline uint64_t clock_ticks(void) {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return clock_monotonic_ns();
#endif
}
/* CLOCK_REALTIME, since 1970. Signal-safe. */
uint64_t clock_unix_ns(void);
/* Sleeps until CLOCK_MONOTONIC shows deadline_ns, or until a signal's handler has run. */
void clock_sleep_until(uint64_t deadline_ns);

/* The same, but comes back early when one of the descriptors is readable, and then returns true. A negative descriptor
 * is none. */
bool clock_wait_until(uint64_t deadline_ns, const int *fds, size_t count);

/* How late the calling thread's sleeps may end, so that the system can wake several sleepers at once. */
void clock_set_slack(uint64_t slack_ns);
/* Asks that when a sleep of the calling thread ends it gets its processor soon, and not only when who runs there has
 * had a turn of milliseconds: it will not want it for long. It gets no more processor time for that. Linux 6.12;
 * nothing comes of it before, nor where the user has chosen another policy. Processes that it starts do not inherit it.
 */
void clock_ask_short_turns(void);

#endif
