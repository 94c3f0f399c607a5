/* A thread's doings, asked for again and again: through descriptors that are kept open. */
#ifndef STROBE_PROCESS_THREAD_WATCH_H
#define STROBE_PROCESS_THREAD_WATCH_H

#include "process/process.h"

struct thread_activity {
    /* CPU time since the thread's birth. While it runs the kernel brings this up to date at its ticks only (1 to 10
     * ms); it is exact when the thread does not run. */
    uint64_t cpu_ns;
    /* How often it was put on a processor: unchanged, and not running, means that it has done nothing since. */
    uint64_t switches;
    uint64_t delay_ns; /* for how long it was ready to run and had no processor */
};

struct thread_watch;

/* `tid` as strobe sees it. STATUS_NO_PROCESS when there is no such thread (any more), STATUS_NO_FILES when there are
 * not enough descriptors left for it. */
enum status thread_watch_open(struct process *process, pid_t tid, struct thread_watch **watch) MUST_USE;
void thread_watch_free(struct thread_watch *watch);

/* One cheap call (0.3 µs). STATUS_NO_PROCESS when the thread has ended; STATUS_NOT_FOUND where the kernel keeps no
 * schedstat (then thread_watch_state alone tells). */
enum status thread_watch_activity(struct thread_watch *watch, struct thread_activity *activity) MUST_USE;
/* Whether it runs or wants to (1.1 µs). */
enum status thread_watch_state(struct thread_watch *watch, enum thread_run_state *state) MUST_USE;
/* The futex that it waits on, 0 for none (1 µs). */
remote_addr thread_watch_futex(struct thread_watch *watch);
/* Both at once, mostly in one call. *futex is 0 for a thread that does not wait on one. */
enum status thread_watch_wait(struct thread_watch *watch, enum thread_run_state *state, remote_addr *futex) MUST_USE;

/* The CPU time of all its threads, also of those that have ended: the sum of what thread_watch_activity tells of each.
 * One cheap call (0.4 µs, at a thousand threads some 40 µs). */
enum status process_cpu_clock(struct process *process, uint64_t *cpu_ns) MUST_USE;

/* How many threads the process has: one cheap call. 0 when it has ended. */
size_t process_thread_count(struct process *process);

#endif
