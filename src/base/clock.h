/* Clocks, in nanoseconds. */
#ifndef STROBE_BASE_CLOCK_H
#define STROBE_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

/* CLOCK_MONOTONIC. Signal-safe. */
uint64_t clock_monotonic_ns(void);
/* CLOCK_REALTIME, since 1970. Signal-safe. */
uint64_t clock_unix_ns(void);
/* Sleeps until CLOCK_MONOTONIC shows deadline_ns, or until a signal's handler has run. */
void clock_sleep_until(uint64_t deadline_ns);

#endif
