/* The threads of the process that are sampled: one slot of the region each, from birth to end. */
#ifndef STROBE_AGENT_THREADS_H
#define STROBE_AGENT_THREADS_H

#include "agent/clock.h"
#include "agent/perf.h"
#include "agent/walk.h"
#include "base/status.h"
#include "wire/ring.h"

#include <stdbool.h>
#include <stdint.h>

/* In private memory, one for each slot that was ever used; never unmapped, as slots come again. */
struct agent_thread {
    struct wire_ring ring;
    int timer;
    unsigned end_rounds;
    uint32_t missed; /* calls of its clock that found it busy */
    bool sampled;    /* a sample of it was written */
    union {
        void *(*posix)(void *);
        int (*c11)(void *);
    } start;
    void *argument; /* of start */
    /* Time for which sampling is paused is taken out of what strobe is told. Up to `accounted` it is known which. */
    struct clock_times accounted;
    struct clock_times paused;
    struct perf perf;
    struct exact_thread *exact; /* agent/exact.c's, which outlives the thread; NULL: none yet */
    struct walk walk;           /* what it knows of code objects outlives the thread */
};

/* Before any other. In a process that stays single-threaded meanwhile: from the constructor. */
enum status threads_init(void) MUST_USE;

/* Takes a free slot of the current region for a thread that is to be born, and makes its ring ready. NULL, and counted,
 * when there is none. Allocates nothing with malloc. */
struct agent_thread *threads_claim(void);
/* The thread was not born after all. */
void threads_unclaim(struct agent_thread *thread);
/* In the thread itself: from here on it is sampled. `stack_end` is the highest address of its C stack. */
void threads_begin(struct agent_thread *thread, uintptr_t stack_end);
/* In a thread that pthread_create has not begun, as thrd_create's: takes a slot and begins. NULL when it cannot be
 * sampled. Async-signal-safe, but for the first call of agent_python_own_state. */
struct agent_thread *threads_adopt(void);
/* In the thread itself: from here on it is not. */
void threads_end(struct agent_thread *thread);

/* The calling thread's time since this was last called was paused, or it was not. */
void threads_note_time(struct agent_thread *thread, const struct clock_times *times, bool paused);

/* The calling thread's own; NULL when it is not sampled. Async-signal-safe. */
struct agent_thread *threads_current(void);
/* Of its slot. */
uint32_t threads_index(const struct agent_thread *thread);
/* Whether this is the address of an agent_thread, sampled or not. Async-signal-safe. */
bool threads_know(const void *thread);

/* In a child of fork, in which nothing of the parent's region is mapped: all slots are forgotten, the calling thread
 * is not sampled. Returns the end of its stack, or 0. */
uintptr_t threads_forget_all(void);

#endif
