/* The clocks of the calling thread, and the timer on its CPU clock. Async-signal-safe. */
#ifndef STROBE_AGENT_CLOCK_H
#define STROBE_AGENT_CLOCK_H

#include "base/status.h"

#include <stdint.h>

struct clock_times {
    uint64_t cpu_ns;
    uint64_t user_us, system_us;
};

uint64_t clock_now_ns(void);
uint64_t clock_cpu_ns(void);
struct clock_times clock_read(void);
/* The same, for where the kernel's clock has just ticked, as it has when a timer on a thread's CPU clock expires: with
 * one system call less, and to the microsecond. */
struct clock_times clock_read_at_tick(void);

/* A timer of the kernel's that sends AGENT_SIGNAL with `value` to the calling thread whenever it has used another
 * `period_ns` of CPU time. It must be stopped before the thread is gone, by any thread. A child of fork has none. */
enum status clock_start_timer(void *value, uint64_t period_ns, int *timer) MUST_USE;
void clock_stop_timer(int timer);

#endif
