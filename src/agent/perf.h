/* A second clock of a thread (`--clock perf`): a perf event of the kernel's that strikes at each period of its CPU
 * time, where the timer of agent/clock.h has to wait for the kernel's tick.
 *
 * It strikes in user code alone (exclude_kernel). So no system call is ever cut short by it, and it takes no privilege
 * where perf_event_paranoid is 2 or less. What it cannot see is the kernel's time, and that is what the timer goes on
 * for: of its ticks those that found the thread in the kernel count, the others have been told by the event. Each of
 * the two stands for the time of its own kind, as the thread's accounts say it, so that the sums stay exact. */
#ifndef STROBE_AGENT_PERF_H
#define STROBE_AGENT_PERF_H

#include "agent/clock.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* One thread's. All zero: it has none. */
struct perf {
    void *page;              /* the event lives as long as this is mapped; NULL: there is none */
    struct clock_times told; /* what samples stand for so far */
    uint64_t tick_system_us; /* the account at the timer's last tick */
    uint64_t kernel_tick_us; /* how long one is */
};

/* Whether a signal of AGENT_SIGNAL with this si_code is a perf event's. */
bool perf_has_sent(int code);

/* In the thread itself, whose clocks show `start`. It strikes 20,000 times a second at the most. No descriptor stays
 * open, and neither a child of fork nor what the process becomes by exec has the event. Where there can be none,
 * perf->page is NULL. Changes errno. */
void perf_start(struct perf *perf, const struct clock_times *start, uint64_t period_ns);
/* By any thread. */
void perf_stop(struct perf *perf);

/* The event has struck: what the next sample is to say of the clocks. Async-signal-safe, as the next one. */
struct clock_times perf_note_strike(struct perf *perf);
/* The timer has. False: the time since it last did was not the kernel's, but for little, and the event tells of it. */
bool perf_note_tick(struct perf *perf, struct clock_times *times);

#endif
